//! When each start was decided, as far as the log tells.
//!
//! Lines of one moment stand in the order of the decisions. A start on idle GPUs begins when it is decided;
//! any other is *held* until they are free: its contract counts, and `started` says when it was `decided`. If
//! others had to be told to leave for it, that moment is where the log says `preempted … by`. If it waits for
//! GPUs that others are leaving already, its decision is *unseen*: it was made somewhere within its moment.
//!
//! A host that fails or drains dissolves the holds on it, and the log does not say so. A hold for which others
//! were told to leave may then be gone from there on. One that was unseen leaves no trace at all: where there
//! may have been such, there is *fog* (see `fog`). All that is kept as *maybe*, and the rules are judged so
//! that a maybe never makes a violation.

use crate::fog::{Fog, Leavers};
use crate::log::What;
use crate::pools::Pools;
use std::collections::{BTreeMap, HashMap};

/// A line of the log, names resolved.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) line: u64,
    pub(crate) at: u64,
    pub(crate) what: What,
    /// Its workload; for events of hosts, nothing to look at.
    pub(crate) workload: u32,
    pub(crate) host: u32,
    pub(crate) by: Option<u32>,
    pub(crate) attempt: Option<u32>,
    pub(crate) rule: Option<u8>,
    pub(crate) allocated: Option<bool>,
    pub(crate) protected_until: Option<u64>,
    pub(crate) decided: Option<u64>,
    pub(crate) until: Option<u64>,
    pub(crate) lost_gpu_ms: Option<u64>,
    /// (host, GPUs), of `started` and `reserved` only.
    pub(crate) placement: Box<[(u32, u32)]>,
}

/// A start that is decided before it begins.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) workload: u32,
    /// Entries that tell its victims to leave; none if it waits for others'.
    pub(crate) victims: Vec<usize>,
    /// The first entry before which it may have been decided.
    pub(crate) from: usize,
    /// When it was decided.
    pub(crate) decided: u64,
    /// The entry that begins it; none if it is dissolved.
    pub(crate) start: Option<usize>,
}

impl Hold {
    /// Whether nobody was told to leave for it.
    pub(crate) fn is_unseen(&self) -> bool {
        self.victims.is_empty()
    }
}

/// What becomes of a hold, before an entry is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It may stand from here on.
    Maybe,
    /// It begins, or is cancelled.
    Over,
    /// It is dissolved, for a host of it is lost.
    Lost,
}

/// All holds of a run.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    pub(crate) holds: Vec<Hold>,
    /// By the first victim's entry, or by the entry of a start: its hold.
    pub(crate) by_first_victim: HashMap<usize, usize>,
    pub(crate) by_start: HashMap<usize, usize>,
    /// By entry.
    pub(crate) turns: BTreeMap<usize, Vec<(usize, Turn)>>,
    /// Unseen holds, by the moment at whose end they stand for certain.
    pub(crate) unseen: BTreeMap<u64, Vec<usize>>,
    /// In the order of their first entries.
    pub(crate) fogs: Vec<Fog>,
    /// What cannot be.
    pub(crate) faults: Vec<Fault>,
}

/// Something about a workload that cannot be.
#[derive(Debug)]
pub(crate) struct Fault {
    /// The entry that shows it.
    pub(crate) entry: usize,
    pub(crate) workload: u32,
    pub(crate) message: &'static str,
}

impl Timeline {
    pub(crate) fn new(entries: &[Entry], workloads: usize, pools: &Pools, grace: u64) -> Self {
        Builder {
            entries,
            grace,
            pools,
            runs: vec![None; workloads],
            leavers: Leavers::default(),
            open: vec![None; workloads],
            queued: vec![0; workloads],
            troubles: Vec::new(),
            timeline: Self::default(),
        }
        .build()
    }

    fn turn(&mut self, entry: usize, hold: usize, turn: Turn) {
        self.turns.entry(entry).or_default().push((hold, turn));
    }

    fn fault(&mut self, entry: usize, workload: u32, message: &'static str) {
        self.faults.push(Fault { entry, workload, message });
    }
}

struct Builder<'a> {
    entries: &'a [Entry],
    grace: u64,
    pools: &'a Pools,
    /// For each workload the entry that began its running attempt.
    runs: Vec<Option<usize>>,
    leavers: Leavers,
    /// For each workload the hold for which others were told to leave and that has not begun.
    open: Vec<Option<usize>>,
    /// For each workload the entry that queued it last.
    queued: Vec<usize>,
    /// Entries at which a host fails or drains.
    troubles: Vec<usize>,
    timeline: Timeline,
}

impl Builder<'_> {
    fn build(mut self) -> Timeline {
        for index in 0..self.entries.len() {
            let entry = &self.entries[index];
            let workload = entry.workload as usize;
            if entry.what.ends_attempt() && self.runs[workload].take().is_some() {
                self.leavers.leave(entry.workload, entry.at);
            }
            match entry.what {
                What::Submitted | What::Requeued => self.queued[workload] = index,
                What::Preempted => {
                    if let Some(start) = self.runs[workload] {
                        self.leavers.tell(entry.workload, index, start);
                    }
                    if let Some(by) = entry.by {
                        self.victim(index, by);
                    }
                }
                What::Started => self.start(index),
                What::Cancelled => {
                    if let Some(hold) = self.open[workload].take() {
                        self.timeline.turn(index, hold, Turn::Over);
                    }
                }
                What::DrainStarted | What::HostDown => self.trouble(index),
                What::ProtectionEnded
                | What::Completed
                | What::Failed
                | What::Terminated
                | What::HostFailed
                | What::Drained
                | What::HostUp
                | What::Reserved
                | What::Unreserved
                | What::Refused => {}
            }
        }
        let end = self.entries.len();
        for workload in 0..self.open.len() {
            if let Some(hold) = self.open[workload].take() {
                self.dissolve(hold, end);
            }
        }
        // What is decided unseen when the log ends never starts in it.
        let last = self.leavers.fogs_at_end(self.entries, self.pools, end);
        self.timeline.fogs.extend(last);
        self.timeline.fogs.sort_by_key(|fog| fog.from);
        self.timeline
    }

    /// A host fails or drains.
    fn trouble(&mut self, index: usize) {
        self.troubles.push(index);
        let fogs = self.leavers.fogs_before(self.entries, self.pools, index);
        self.timeline.fogs.extend(fogs);
    }

    fn victim(&mut self, index: usize, by: u32) {
        let at = self.entries[index].at;
        if let Some(hold) = self.open[by as usize] {
            if self.timeline.holds[hold].decided == at {
                self.timeline.holds[hold].victims.push(index);
                return;
            }
            self.dissolve(hold, index);
        }
        let hold = self.timeline.holds.len();
        self.timeline.holds.push(Hold {
            workload: by,
            victims: vec![index],
            from: index,
            decided: at,
            start: None,
        });
        self.timeline.by_first_victim.insert(index, hold);
        self.open[by as usize] = Some(hold);
    }

    fn start(&mut self, index: usize) {
        let entry = &self.entries[index];
        let workload = entry.workload as usize;
        self.runs[workload] = Some(index);
        let decided = self.decided(index);
        if let Some(hold) = self.open[workload].take() {
            if self.timeline.holds[hold].decided == decided {
                self.timeline.holds[hold].start = Some(index);
                self.timeline.by_start.insert(index, hold);
                self.timeline.turn(index, hold, Turn::Over);
                return self.check_hosts(index, decided);
            }
            let to = self.entries[..index].partition_point(|entry| entry.at <= decided);
            self.dissolve(hold, to);
        }
        // Work that is charged to nobody starts on idle GPUs only.
        let just_left = entry.rule != Some(1)
            && entry
                .placement
                .iter()
                .any(|place| self.leavers.have_just_left(self.entries, place.0, entry.at));
        if decided < entry.at || just_left {
            self.unseen(index, decided);
            self.check_hosts(index, decided);
        }
    }

    /// When a start was decided: when it says, at once if it does not say.
    fn decided(&mut self, index: usize) -> u64 {
        let entry = &self.entries[index];
        let Some(decided) = entry.decided else { return entry.at };
        let queued = self.entries[self.queued[entry.workload as usize]].at;
        if decided > entry.at || decided < queued {
            let message = "it did not wait at the moment at which it says it was decided";
            self.timeline.fault(index, entry.workload, message);
        }
        decided.clamp(queued.min(entry.at), entry.at)
    }

    fn unseen(&mut self, index: usize, decided: u64) {
        let workload = self.entries[index].workload;
        let first = self.entries[..index].partition_point(|entry| entry.at < decided);
        let from = first.max(self.queued[workload as usize] + 1).min(index);
        let hold = self.timeline.holds.len();
        self.timeline.holds.push(Hold {
            workload,
            victims: Vec::new(),
            from,
            decided,
            start: Some(index),
        });
        self.timeline.by_start.insert(index, hold);
        if self.entries[from].at <= decided {
            self.timeline.turn(from, hold, Turn::Maybe);
        }
        if decided < self.entries[index].at {
            self.timeline.unseen.entry(decided).or_default().push(hold);
        }
        self.timeline.turn(index, hold, Turn::Over);
    }

    /// A hold does not outlive a host of it.
    fn check_hosts(&mut self, index: usize, decided: u64) {
        let entry = &self.entries[index];
        let after = self.troubles.iter().rev().take_while(|&&at| self.entries[at].at > decided);
        let lost = after.map(|&at| self.entries[at].host);
        let lost = lost.into_iter().find(|&host| entry.placement.iter().any(|p| p.0 == host));
        if lost.is_some() {
            let message = "a host of it failed or drained between its decision and its start";
            self.timeline.fault(index, entry.workload, message);
        }
    }

    /// A hold for which others were told to leave, and that was gone before entry `to`.
    fn dissolve(&mut self, hold: usize, to: usize) {
        let Hold { workload, from, decided, .. } = self.timeline.holds[hold];
        let last = decided.saturating_add(self.grace);
        let late = self.entries.partition_point(|entry| entry.at <= last);
        let over = to.min(late).max(from + 1);
        let first = self.troubles.partition_point(|&trouble| trouble < from);
        let troubles = &self.troubles[first..];
        let troubles = &troubles[..troubles.partition_point(|&trouble| trouble < over)];
        match *troubles {
            [] => {
                if over < self.entries.len() {
                    let message = "others were told to leave for it, but it did not start";
                    self.timeline.fault(from, workload, message);
                }
                self.timeline.turn(over, hold, Turn::Over);
            }
            [only] => self.timeline.turn(only, hold, Turn::Lost),
            [first, .., last] => {
                self.timeline.turn(first, hold, Turn::Maybe);
                self.timeline.turn(last, hold, Turn::Lost);
            }
        }
    }
}
