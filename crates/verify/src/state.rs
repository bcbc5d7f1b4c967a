//! What is known of workloads, hosts and reservations at one moment of the log.

use crate::books::Sure;
use std::collections::BTreeSet;

/// Where a workload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Absent,
    Waiting,
    Running,
    /// Its host failed, and it can be resumed.
    HostFailed,
    Over,
    Refused,
}

/// A workload.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) phase: Phase,
    pub(crate) attempts: u32,
    /// Of the running attempt.
    pub(crate) allocated: bool,
    pub(crate) protected_until: u64,
    pub(crate) placement: Box<[(u32, u32)]>,
    pub(crate) started: u64,
    /// GPUs x rate, in thousandths.
    pub(crate) rate: u128,
    /// When it was told to leave.
    pub(crate) told: Option<u64>,
    /// Decided starts that wait for GPUs: certain ones, and others.
    pub(crate) holds: (u32, u32),
    /// The class that was right when the start was decided.
    pub(crate) class: Option<(bool, Sure)>,
    /// What its reservation promised, once its start is decided: (T, since when).
    pub(crate) promised: Option<(u64, u64)>,
}

impl Job {
    /// Whether its start is decided, though it has not begun.
    pub(crate) fn hold(&self) -> Option<Sure> {
        match self.holds {
            (0, 0) => None,
            (0, _) => Some(Sure::Maybe),
            _ => Some(Sure::Yes),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostState {
    Up,
    Draining,
    Drained,
    Down,
}

/// A host. Signed, so that a log which gives GPUs twice can be followed.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) state: HostState,
    pub(crate) gpus: i64,
    pub(crate) used: i64,
    /// Of the used ones, told to leave.
    pub(crate) leaving: i64,
    /// For starts that are decided and wait.
    pub(crate) held: i64,
    pub(crate) maybe_held: i64,
    pub(crate) runs: BTreeSet<u32>,
    pub(crate) since: u64,
    pub(crate) idle_ms: i128,
    pub(crate) out_of_service_ms: i128,
}

impl Host {
    pub(crate) fn is_in_service(&self) -> bool {
        matches!(self.state, HostState::Up | HostState::Draining)
    }

    pub(crate) fn touch(&mut self, now: u64) {
        let span = i128::from(now - self.since);
        if self.is_in_service() {
            self.idle_ms += i128::from(self.gpus - self.used) * span;
        } else {
            self.out_of_service_ms += i128::from(self.gpus) * span;
        }
        self.since = now;
    }
}

/// A reservation that stands.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    pub(crate) holder: u32,
    pub(crate) hosts: Vec<u32>,
    pub(crate) until: u64,
    /// Since when it holds one, or had to get a new one because a host was lost.
    pub(crate) since: u64,
    /// The entry that made it (or moved it).
    pub(crate) entry: usize,
    pub(crate) line: u64,
    /// One of its hosts is lost.
    pub(crate) is_broken: bool,
}
