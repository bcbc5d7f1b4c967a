//! The daemon governs a real Slurm: what people see who use `sbatch`, and what `bursar` says of it. The cluster is the
//! one that `bursar-slurm-lab` brings up: four nodes of eight fake GPUs. `BURSAR_NO_SLURM=1` skips these tests.

#![cfg(target_os = "linux")]

mod faults;
mod governed;
mod order;
mod refused;
mod scale;
#[path = "../support/mod.rs"]
mod support;
mod two;
mod unseen;
mod watched;

pub(crate) use support::*;
