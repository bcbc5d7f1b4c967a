//! The daemon: the loop of observing, journaling, deciding and acting, its clock, and what it serves.
//!
//! [`Daemon`] is the loop, without threads and without a clock of its own: it is driven by whoever has them.
//! What it must stand is in docs/adr/0008 and tested by seeded faults (`tests/faults`).

pub mod accounts;
#[cfg(target_os = "linux")]
pub mod api;
pub mod arrivals;
pub mod clock;
pub mod daemon;
pub mod driver;
pub mod effect;
mod ended;
pub mod events;
pub mod export;
#[cfg(target_os = "linux")]
pub mod first;
pub mod gate;
pub mod guests;
pub mod history;
mod hosts;
pub mod journal;
pub mod limits;
pub mod metrics;
#[cfg(feature = "otel")]
pub mod otel;
#[cfg(target_os = "linux")]
mod ours;
mod past;
pub mod plain;
pub mod queue;
mod reconcile;
pub mod report;
#[cfg(target_os = "linux")]
pub mod serve;
pub mod settings;
#[cfg(target_os = "linux")]
pub mod slurm;
mod starts;
#[cfg(target_os = "linux")]
pub mod up;
pub mod watch;

pub use clock::{Clock, SystemClock};
pub use daemon::{Daemon, Failure};
pub use journal::{Journal, JournalError};
