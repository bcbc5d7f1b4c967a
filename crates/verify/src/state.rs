//! What is known of workloads, hosts and reservations at one moment of the log.

use crate::books::Sure;
use crate::losses::Progress;
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
    pub(crate) progress: Progress,
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

/// GPUs of a hold that are still used by others who leave. The rest of what it holds is idle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Await {
    pub(crate) hold: usize,
    pub(crate) least: i64,
    pub(crate) most: i64,
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
    /// Of the held ones, which of those who leave they are to come from; in the order of decision.
    pub(crate) awaits: Vec<Await>,
    pub(crate) runs: BTreeSet<u32>,
    pub(crate) since: u64,
    pub(crate) idle_ms: i128,
    pub(crate) out_of_service_ms: i128,
}

impl Host {
    pub(crate) fn is_in_service(&self) -> bool {
        matches!(self.state, HostState::Up | HostState::Draining)
    }

    /// GPUs that are neither used nor held: (for certain, at most).
    pub(crate) fn idle(&self) -> (i64, i64) {
        let free = self.gpus - self.used;
        let kept = |awaited: i64| (self.held - awaited).max(0);
        let least = self.awaits.iter().map(|awaited| awaited.least).sum();
        let most = self.awaits.iter().map(|awaited| awaited.most).sum();
        (free - kept(least) - self.maybe_held, free - kept(most))
    }

    /// A hold of `gpus` is decided. What others are leaving counts first, as far as nobody awaits it yet;
    /// `told` says how many GPUs these have then.
    pub(crate) fn wait_for(&mut self, hold: usize, gpus: i64, told: i64, is_unseen: bool) {
        let (mut least, mut most) = (told, told);
        for other in &self.awaits {
            least -= other.most;
            most -= other.least;
        }
        // Who was told before an unseen decision, and who after it, is open.
        let least = if is_unseen { 0 } else { least.clamp(0, gpus) };
        let most = most.clamp(0, gpus);
        if most > 0 {
            self.awaits.push(Await { hold, least, most });
        }
    }

    /// Somebody who was told to leave is gone: the holds that wait are served in the order of decision.
    pub(crate) fn serve(&mut self, gpus: i64) {
        let (mut of_least, mut of_most) = (gpus, gpus);
        for awaited in &mut self.awaits {
            let (least, most) = (awaited.least.min(of_least), awaited.most.min(of_most));
            awaited.least -= least;
            awaited.most -= most;
            of_least -= least;
            of_most -= most;
        }
        self.awaits.retain(|awaited| awaited.most > 0);
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
    pub(crate) faith: Faith,
    /// When its holder may have lost a hold of which the log shows nothing (see `fog`).
    pub(crate) doubt: Option<u64>,
}

/// What a reservation is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Faith {
    /// It stands, and is to be kept.
    Good,
    /// One of its hosts is lost: in this moment it is made anew, even if later, or given up.
    Broken,
}
