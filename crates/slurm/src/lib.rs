//! The engine that governs a Slurm cluster.
//!
//! People go on using `sbatch`. A small script in Slurm's controller, the *gate* ([`JOB_SUBMIT_LUA`]), checks what they
//! declare, puts their jobs on hold and gives each a name that is never given again. [`SlurmEngine`] tells of these
//! jobs as arrivals, releases those that are ordered to start, signals and requeues those that are to leave, and reads
//! from the queue and the accounts what became of them. It drives Slurm by its command-line clients alone
//! ([`client`]), as an administrator of Slurm or with a token of one.
//!
//! [`WatchEngine`] only looks: it tells of what Slurm does by itself.
//!
//! **Invariant: a job runs only after its attempt was recorded**, as far as it is the engine that starts it. A job runs
//! for one attempt at most once: what puts it back into the queue counts it ([`read::Job::restarts`]). It is put on hold as
//! soon as it is seen there; Slurm itself would start it after two minutes, and then it is found running.
//!
//! **Invariant: the number of a job is never trusted alone.** A controller that was killed gives numbers out again, so
//! jobs are known by the tag in their `AdminComment` ([`declare`]).
//!
//! **Invariant: what users write cannot be taken for anything else** ([`read`]).
//!
//! Absent on purpose: a connection to Slurm's library, whose interface changes with each release; JSON, which only some
//! clients of 22.05 print; hooks, without which nothing is missed.

mod budgets;
pub mod check;
pub mod client;
pub mod declare;
mod engine;
mod gate;
mod handback;
mod options;
mod outcome;
pub mod read;
mod records;

pub use budgets::{PlannedBudget, PlannedTree, UserBudgets, plan_budgets};
pub use engine::{SlurmEngine, WatchEngine};
pub use gate::{GATE_FILE, Gate, GatePartition, JOB_SUBMIT_LUA, SPANK_PLUGIN_C};
pub use handback::{HandbackError, HandedBack, hand_back};
pub use options::{Holder, SignalTarget, SlurmOptions, SlurmSignal, SubmitOptions, Undeclared};
pub use outcome::Ending;

/// 64 random bits in hexadecimal. Without randomness from the system, the time and a counter: distinct, not secret.
pub(crate) fn random_hex() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let mut bytes = [0; 8];
    if getrandom::fill(&mut bytes).is_err() {
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        bytes = (now_ms().wrapping_mul(1_000_003) ^ count).to_be_bytes();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.ok().and_then(|since| u64::try_from(since.as_millis()).ok()).unwrap_or_default()
}
