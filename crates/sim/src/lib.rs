//! The simulator: the decision core of Bursar, with an event heap in place of the engine and the clock.
//!
//! [`run`] plays one scenario under one policy: it jumps from one moment at which something can be
//! decided to the next, lets the core plan and commit, and plays the engine: start-up, checkpoints,
//! grace, lost work, failing hosts. The same scenario and policy give the same events, byte for byte.
//!
//! The policy `recorded` plays what really ran instead, where a scenario has that, so that it is measured alike.
//!
//! Invariant: nothing here decides. Whatever starts, leaves or is promised, the core said so.
//!
//! Invariant: never async, no wall clock (but for the one figure `wall_seconds` of a summary).

mod build;
mod engine;
mod events;
mod measure;
mod recorded;
mod run;
mod series;
mod summary;
mod waits;

pub use build::{PolicyError, build_state, build_workload};
pub use events::{EventKind, EventLine, EventSink, Seconds};
pub use recorded::RECORDED;
pub use run::{Observer, Outcome, RunError, RunOptions, run, run_all};
pub use series::{AttemptRecord, Sample, Series};
pub use summary::{
    BudgetSummary, PolicySummary, Preemptions, SimulatorSummary, Summary, WaitQuantiles,
    WaitSummary,
};

/// The names of all policies, the default first.
pub fn policy_names() -> impl Iterator<Item = &'static str> {
    bursar_core::compare::NAMES.iter().copied().chain([RECORDED])
}
