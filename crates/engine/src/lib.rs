//! What carries out decisions: the engine trait, the local engine of processes on one machine, and a
//! conformance suite.
//!
//! An [`Engine`] knows attempts, hosts and GPUs. It knows nothing of budgets and decides nothing. It is
//! *level-triggered*: whoever drives it looks at what is there ([`Engine::observe`]), compares it with what
//! should be, and orders the difference. Every order may be lost, repeated or late; what makes that
//! harmless is that an attempt is claimed by its [`AttemptKey`] once and for ever, and that every other
//! order may be repeated without effect.
//!
//! [`LocalEngine`] runs attempts as processes of this machine, each under a small supervisor of its own
//! (the *shim*, [`shim_main`]), so that work outlives the daemon and its end is known even when nobody was
//! there to see it. How it does that is told in [`local`].
//!
//! ```no_run
//! use bursar_engine::{AttemptState, Engine, LocalEngine, LocalOptions};
//! # fn main() -> Result<(), bursar_engine::Error> {
//! let shim = vec!["/usr/bin/bursar".to_owned(), "shim".to_owned()];
//! let mut engine = LocalEngine::open("/var/lib/bursar/engine".as_ref(), LocalOptions::new(shim))?;
//! for seen in engine.observe()? {
//!     match seen.state {
//!         AttemptState::Exited(exited) => println!("{} ended: {:?}", seen.key, exited.outcome),
//!         AttemptState::Starting | AttemptState::Running { .. } => println!("{} is there", seen.key),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **Invariant: at most one process tree per key, ever**, whatever is killed at whatever moment.
//!
//! **Invariant: an attempt that is reported as exited has no process left**, as far as the system lets one
//! see its processes ([`local`] says where that ends).
//!
//! Absent on purpose: threads that watch, callbacks, retries. Who drives the engine has a loop already.

mod account;
mod arrival;
mod engine;
mod error;
mod files;
mod key;
pub mod local;
mod observation;
mod order;
#[cfg(target_os = "linux")]
mod shim;
mod signal;
#[cfg(feature = "testkit")]
pub mod testkit;

pub use account::{Account, account};
pub use arrival::{Arrival, ArrivalState, PastRun};
pub use engine::{Engine, LogChunk, Signal};
pub use error::{Error, ErrorKind};
pub use files::allow_open_files;
pub use key::AttemptKey;
#[cfg(not(target_os = "linux"))]
pub use local::shim_main;
pub use local::{CgroupChoice, GpuSource, LocalEngine, LocalOptions, local_advice};
pub use observation::{AttemptState, Exited, HostFacts, Moment, Observation, Outcome};
pub use order::{HostGpus, StartOrder};
#[cfg(target_os = "linux")]
pub use shim::shim_main;
pub use signal::{SignalScope, UnixSignal};
