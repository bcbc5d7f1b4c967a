//! Work that comes through a queue of the engine's own.

use crate::observation::{Moment, Outcome};
use std::collections::BTreeMap;

/// Work that somebody gave to the engine's own queue, as the engine sees it now. It waits there until a
/// [`StartOrder`](crate::StartOrder) adopts it, or runs without an order of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its name with the engine: the same for as long as the work is there, and never given again.
    pub name: String,
    /// What people know it by with the engine: `1234_7`.
    pub shown: String,
    /// What its submitter called it.
    pub title: String,
    /// Whose it is.
    pub user: String,
    /// What the engine would charge: Slurm's account.
    pub account: String,
    /// The queue that it was given to: Slurm's partition.
    pub queue: String,
    /// How many GPUs.
    pub gpus: u32,
    /// Hosts and GPUs on each, where that is asked for.
    pub shape: Option<(u32, u32)>,
    /// Their model, where one is asked for.
    pub gpu_model: Option<String>,
    /// After how long the engine ends it, in milliseconds.
    pub max_runtime_ms: Option<u64>,
    /// What was declared to us beside that: by key (`min-runtime`, `resumable`, `budget` …), as it was written.
    pub declared: BTreeMap<String, String>,
    /// When it was submitted.
    pub submitted_at: Moment,
    /// How far it is.
    pub state: ArrivalState,
}

/// A run of work of the engine's own queue that is over, as the engine accounts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastRun {
    /// What the engine calls it: one run has one name, and no other has it.
    pub run: String,
    /// The work, its state being where and since when it ran.
    pub arrival: Arrival,
    /// Other names that the same work may have been told by.
    pub aliases: Vec<String>,
    /// When it began.
    pub started_at: Moment,
    /// When it ended.
    pub ended_at: Moment,
    /// Where: hosts, and how many GPUs on each.
    pub placement: Vec<(String, u32)>,
    /// How it ended.
    pub outcome: Outcome,
    /// Whether it went back into the engine's queue.
    pub returned: bool,
}

/// How far an [`Arrival`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArrivalState {
    /// Waits for an order.
    Waits,
    /// Waits, and the engine would not start it yet if it were ordered to: for people, why.
    NotYet(String),
    /// Runs, and no order of ours started it.
    Runs {
        /// Since when.
        since: Moment,
        /// Where: hosts, and how many GPUs on each.
        placement: Vec<(String, u32)>,
    },
}
