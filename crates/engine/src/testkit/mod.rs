//! For tests: a scripted engine, and the suite that every engine must pass.
//!
//! [`FakeWorld`] is a cluster in virtual time, and [`FakeEngine`] a way to it that loses, repeats, delays
//! and misreports as a seed has it. [`conformance`] holds what any [`Engine`](crate::Engine) owes to whoever
//! drives it; it knows an engine only through a [`conformance::Subject`].

pub mod conformance;
mod fake;
mod work;
mod world;

pub use fake::{FakeEngine, Faults};
pub use work::{FakeWork, OnCheckpoint};
pub use world::{FakeFact, FakeRecord, FakeWorld};

/// The variable that names the step at which a process of the local engine kills itself, if it was built
/// with this feature. The shim gets it from the process that starts it.
#[cfg(target_os = "linux")]
pub const DIE_AT: &str = crate::local::steps::DIE_AT;

/// The names of all steps, in the order in which they are reached: first those of the daemon, then those
/// of the shim.
#[cfg(target_os = "linux")]
pub fn steps() -> Vec<&'static str> {
    crate::local::steps::Step::NAMES.iter().map(|(name, _)| *name).collect()
}
