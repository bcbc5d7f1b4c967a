//! The engine on a real Slurm: slurmctld, slurmdbd and four nodes of eight fake GPUs, which `scripts/slurm-lab.sh`
//! brings up on this machine. That takes some seconds, once for all tests, and must be done as root; packages are
//! installed if they are missing. With `BURSAR_NO_SLURM=1` these tests say that they were skipped, and pass.

#![cfg(target_os = "linux")]

mod chaos;
mod conformance;
mod faults;
mod gate;
mod jobs;
mod nodes;
mod subject;
mod world;
