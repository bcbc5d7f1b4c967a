//! A workload of a site: what was declared, its attempts, and what became of them.

use crate::declare::Declared;
use crate::record::{Arrived, Outcome};
use bursar_core::WorkloadIx;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Work {
    /// Its number.
    pub number: u64,
    /// What was declared.
    pub declared: Declared,
    /// When it was submitted, in milliseconds since the site was created.
    pub submitted_ms: u64,
    /// Where it stands.
    pub stage: Stage,
    /// Its attempts, oldest first.
    pub attempts: Vec<Attempt>,
    /// Whether somebody asked for its end.
    pub cancelled: bool,
    /// Why it does not enter the queue before somebody releases it.
    pub held: Option<String>,
    /// Until when it is held, where that is a moment.
    #[serde(default)]
    pub held_until_ms: Option<u64>,
    /// SHA-256 of what was sent, where it came with a key.
    #[serde(default)]
    pub sent: Option<String>,
    /// By when its attempt must have left to wait again, if somebody asked for that.
    pub requeue_by_ms: Option<u64>,
    /// Attempts that it had before it last entered the queue.
    pub attempts_before: u32,
    /// What it is in the engine's own queue, if it came through that.
    pub arrived: Option<Arrived>,
    /// When it waited or ran: from when it entered the queue until it ended, oldest first.
    pub spells: Vec<Spell>,
}

/// A span in which a workload waited in the queue or ran. Moments in milliseconds since the site was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spell {
    /// When it entered the queue; if it was found running, when that began.
    pub from_ms: u64,
    /// When it ended; none while it has not.
    pub until_ms: Option<u64>,
}

/// Where a workload stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Waits for other workloads to end, or for somebody who releases it; not in the queue yet.
    Waits,
    /// In the core's hands.
    Live(WorkloadIx),
    /// Has ended for good.
    Ended(Ending),
}

/// How a workload ended for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It finished its work.
    Completed,
    /// It ended with an error.
    Failed,
    /// Somebody cancelled it.
    Cancelled,
    /// It was preempted and cannot be resumed.
    Terminated,
    /// A host of it failed and it cannot be resumed.
    HostFailed,
    /// A workload that it waited for did not end as it had to.
    Unreachable,
}

/// One attempt. Moments in milliseconds since the site was created.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its number, from 1.
    pub number: u32,
    /// Whether it is charged (rule 1).
    pub allocated: bool,
    /// When its start was decided.
    pub decided_ms: u64,
    /// When the engine began to run it.
    pub started_ms: Option<u64>,
    /// Until when it is protected; its start for unallocated attempts.
    pub protected_until_ms: Option<u64>,
    /// When it ended.
    pub ended_ms: Option<u64>,
    /// Where: hosts and the numbers of the GPUs on each.
    pub placement: Vec<(String, Vec<u32>)>,
    /// The rule by which it started.
    pub rule: u8,
    /// Why it started.
    pub reason: String,
    /// Why it was told to leave, if it was.
    pub eviction: Option<Eviction>,
    /// When it last saved, as far as it said.
    pub checkpoint_ms: Option<u64>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Whether it left because somebody asked that it wait again.
    #[serde(default)]
    pub asked_to_requeue: bool,
    /// The exit code, where there is one.
    pub exit_code: Option<i32>,
    /// What more the engine said.
    pub detail: Option<String>,
    /// What it was charged: GPU-milliseconds, not times the rate.
    pub charged_gpu_ms: u64,
    /// What of it was lost: since it last saved, or all.
    pub lost_gpu_ms: u64,
    /// What its engine's accounts call it, where they alone told how it ended.
    #[serde(default)]
    pub run: Option<String>,
}

/// Why an attempt was told to leave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Eviction {
    /// When.
    pub at_ms: u64,
    /// By when it must be gone.
    pub leave_by_ms: u64,
    /// For which workload, if for one.
    pub by: Option<u64>,
    /// The rule.
    pub rule: u8,
    /// The reason, with the numbers that were compared.
    pub reason: String,
    /// The beneficiary's side of the tree and its usage ratio after the swap (rule 6).
    pub side: Option<(String, String)>,
    /// The own side and its usage ratio.
    pub against: Option<(String, String)>,
}

impl Work {
    /// The attempt that runs, starts or ended last.
    #[must_use]
    pub fn latest(&self) -> Option<&Attempt> {
        self.attempts.last()
    }

    pub(crate) fn wait_again(&mut self) {
        self.stage = Stage::Waits;
        self.attempts_before = self.highest_attempt();
    }

    /// The highest number of its attempts: one that was heard of late has a higher one than what ran after it.
    pub(crate) fn highest_attempt(&self) -> u32 {
        self.attempts.iter().map(|attempt| attempt.number).max().unwrap_or(0)
    }

    /// Whether one of its attempts holds GPUs, or is being started.
    #[must_use]
    pub fn has_open_attempt(&self) -> bool {
        self.latest().is_some_and(|attempt| attempt.ended_ms.is_none())
    }

    /// GPU-milliseconds charged so far for attempts that have ended.
    #[must_use]
    pub fn charged_gpu_ms(&self) -> u64 {
        self.attempts.iter().map(|attempt| attempt.charged_gpu_ms).sum()
    }
}

/// How an attempt's detail begins that a signal ended; its number follows.
pub const ENDED_BY_SIGNAL: &str = "ended by signal ";

impl Attempt {
    /// The signal that ended it, where one did.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        self.detail.as_deref()?.strip_prefix(ENDED_BY_SIGNAL)?.parse().ok()
    }

    /// GPUs of the attempt.
    #[must_use]
    pub fn gpus(&self) -> u64 {
        self.placement.iter().map(|(_, gpus)| gpus.len() as u64).sum()
    }

    pub(crate) fn close(&mut self, at_ms: u64, resumable: bool, saves_on_signal: bool) {
        self.ended_ms = Some(at_ms);
        let Some(started) = self.started_ms else { return };
        let gpus = self.gpus();
        if self.allocated {
            self.charged_gpu_ms = gpus * (at_ms - started);
        }
        let is_lost = match self.outcome {
            Some(Outcome::Left | Outcome::Lost) => true,
            Some(Outcome::Completed | Outcome::Failed | Outcome::Cancelled) | None => false,
        };
        if is_lost {
            let saved = if !resumable {
                started
            } else if self.outcome == Some(Outcome::Left) && saves_on_signal {
                at_ms
            } else {
                self.checkpoint_ms.unwrap_or(started).clamp(started, at_ms)
            };
            self.lost_gpu_ms = gpus * (at_ms - saved);
        }
    }
}
