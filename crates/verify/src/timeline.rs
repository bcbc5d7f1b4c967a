//! When each start was decided, as far as the log tells.
//!
//! A start that needs no victims begins when it is decided. One with victims is decided where the log
//! says `preempted … by`, and begins when they are gone. In between its contract counts and its GPUs
//! are held. Two things are not in the log: a start that waits for GPUs which others are leaving
//! already has no victims of its own, so if any such have just left its hosts, it was decided at some
//! moment within the grace before it; and a host that fails or drains dissolves what was decided for it. And of one pass of planning the
//! log has first who must leave and what is reserved, then what starts at once: in which order these
//! two were decided, it does not say. All that is kept as *maybe*, and the rules are judged so that a
//! maybe never makes a violation.

use crate::log::What;
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
    pub(crate) until: Option<u64>,
    /// (host, GPUs), of `started` and `reserved` only.
    pub(crate) placement: Box<[(u32, u32)]>,
}

/// A start that is decided before it begins.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) workload: u32,
    /// Entries that tell its victims to leave; none if it waits for others'.
    pub(crate) victims: Vec<usize>,
    /// The entry from which on it may have been decided, and the moment.
    pub(crate) from: usize,
    pub(crate) earliest: u64,
    /// The entry that begins it.
    pub(crate) start: Option<usize>,
    /// The first entry at which it may have been dissolved.
    trouble: Option<usize>,
    /// The entry before which it is over.
    over: usize,
}

/// What becomes of a hold, before an entry is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It may stand from here on.
    Maybe,
    /// It stands for certain again.
    Sure,
    /// It is over.
    Over,
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
    /// For the entries of starts: the first entry of the pass that they were decided in.
    pub(crate) pass_from: HashMap<usize, usize>,
    /// Holds for which victims left but which never began, though nothing kept them from it.
    pub(crate) unexplained: Vec<usize>,
}

impl Timeline {
    pub(crate) fn new(entries: &[Entry], workloads: usize, hosts: usize, grace: u64) -> Self {
        Builder {
            entries,
            grace,
            runs: vec![None; workloads],
            left: vec![None; hosts],
            open: vec![None; workloads],
            queued: vec![0; workloads],
            troubles: Vec::new(),
            timeline: Self::default(),
        }
        .build()
        .with_passes(entries)
    }

    /// Opens the order within each pass: what leaves and is reserved, then what starts.
    fn with_passes(mut self, entries: &[Entry]) -> Self {
        let is_decision = |entry: &Entry| {
            matches!(
                entry.what,
                What::Preempted | What::Reserved | What::Unreserved | What::Drained
            )
        };
        let is_effect =
            |entry: &Entry| matches!(entry.what, What::Started | What::Requeued | What::Terminated);
        let mut index = 0;
        while index < entries.len() {
            let at = entries[index].at;
            let run = |from: usize, is: &dyn Fn(&Entry) -> bool| {
                let rest = entries[from..].iter();
                from + rest.take_while(|entry| entry.at == at && is(entry)).count()
            };
            let effects = run(index, &is_decision);
            let end = run(effects, &is_effect);
            if index < effects && effects < end {
                self.open_pass(entries, index, effects, end);
            }
            index = end.max(effects).max(index + 1);
        }
        self
    }

    fn open_pass(&mut self, entries: &[Entry], from: usize, effects: usize, end: usize) {
        for (start, entry) in entries.iter().enumerate().take(end).skip(effects) {
            if entry.what != What::Started {
                continue;
            }
            self.pass_from.insert(start, from);
            if !self.by_start.contains_key(&start) {
                let hold = self.holds.len();
                self.holds.push(Hold {
                    workload: entry.workload,
                    victims: Vec::new(),
                    from,
                    earliest: entry.at,
                    start: Some(start),
                    trouble: None,
                    over: effects,
                });
                self.turn(from, hold, Turn::Maybe);
                self.turn(effects, hold, Turn::Over);
            }
        }
        for victim in from..effects {
            let Some(&hold) = self.by_first_victim.get(&victim) else { continue };
            let (over, trouble) = (self.holds[hold].over, self.holds[hold].trouble);
            if over > effects {
                self.turn(effects, hold, Turn::Maybe);
            }
            if over > end && trouble.is_none_or(|trouble| trouble > end) {
                self.turn(end, hold, Turn::Sure);
            }
        }
    }

    fn turn(&mut self, entry: usize, hold: usize, turn: Turn) {
        self.turns.entry(entry).or_default().push((hold, turn));
    }
}

struct Builder<'a> {
    entries: &'a [Entry],
    grace: u64,
    /// For each workload the entry that began its running attempt, and whether it was told to leave.
    runs: Vec<Option<(usize, bool)>>,
    /// For each host when somebody who was told to leave did so last.
    left: Vec<Option<u64>>,
    /// For each workload the hold that has not begun.
    open: Vec<Option<usize>>,
    /// For each workload the entry that queued it last.
    queued: Vec<usize>,
    /// Entries that dissolve holds.
    troubles: Vec<usize>,
    timeline: Timeline,
}

impl Builder<'_> {
    fn build(mut self) -> Timeline {
        for index in 0..self.entries.len() {
            let entry = &self.entries[index];
            let workload = entry.workload as usize;
            if entry.what.ends_attempt() {
                self.leave(index);
            }
            match entry.what {
                What::Submitted | What::Requeued => self.queued[workload] = index,
                What::Preempted => {
                    if let Some(run) = &mut self.runs[workload] {
                        run.1 = true;
                    }
                    if let Some(by) = entry.by {
                        self.victim(index, by);
                    }
                }
                What::Started => self.start(index),
                What::Cancelled => {
                    if let Some(hold) = self.open[workload].take() {
                        self.dissolve(hold, index, true);
                    }
                }
                What::DrainStarted | What::HostDown => self.troubles.push(index),
                _ => {}
            }
        }
        for workload in 0..self.open.len() {
            if let Some(hold) = self.open[workload].take() {
                self.dissolve(hold, self.entries.len(), false);
            }
        }
        self.timeline
    }

    fn leave(&mut self, index: usize) {
        let entry = &self.entries[index];
        if let Some((start, true)) = self.runs[entry.workload as usize].take() {
            for &(host, _) in &self.entries[start].placement {
                self.left[host as usize] = Some(entry.at);
            }
        }
    }

    fn victim(&mut self, index: usize, by: u32) {
        let at = self.entries[index].at;
        if let Some(hold) = self.open[by as usize] {
            if self.entries[self.timeline.holds[hold].from].at == at {
                self.timeline.holds[hold].victims.push(index);
                return;
            }
            self.dissolve(hold, index, false);
        }
        let hold = self.timeline.holds.len();
        self.timeline.holds.push(Hold {
            workload: by,
            victims: vec![index],
            from: index,
            earliest: at,
            start: None,
            trouble: None,
            over: usize::MAX,
        });
        self.timeline.by_first_victim.insert(index, hold);
        self.open[by as usize] = Some(hold);
    }

    fn start(&mut self, index: usize) {
        let entry = &self.entries[index];
        let by_others_leaving = !matches!(entry.rule, Some(8 | 1));
        self.runs[entry.workload as usize] = Some((index, false));
        let just_left =
            entry.placement.iter().any(|place| self.left[place.0 as usize] == Some(entry.at));
        if let Some(hold) = self.open[entry.workload as usize].take() {
            let decided = self.entries[self.timeline.holds[hold].from].at;
            let trouble = self.trouble_after(self.timeline.holds[hold].from, index);
            let in_time = entry.at <= decided.saturating_add(self.grace);
            if by_others_leaving && (in_time || trouble.is_none()) {
                self.timeline.holds[hold].start = Some(index);
                self.timeline.holds[hold].trouble = trouble;
                self.timeline.by_start.insert(index, hold);
                if let Some(trouble) = trouble {
                    self.timeline.turn(trouble, hold, Turn::Maybe);
                }
                self.timeline.holds[hold].over = index;
                self.timeline.turn(index, hold, Turn::Over);
                return;
            }
            self.dissolve(hold, index, false);
        }
        if just_left || matches!(entry.rule, Some(6 | 7)) {
            let earliest = entry.at.saturating_sub(self.grace);
            let from = self.entries[..index].partition_point(|entry| entry.at < earliest);
            let queued = self.queued[entry.workload as usize];
            let from = from.max(queued + 1).min(index);
            let earliest = earliest.max(self.entries[queued].at);
            let hold = self.timeline.holds.len();
            self.timeline.holds.push(Hold {
                workload: entry.workload,
                victims: Vec::new(),
                from,
                earliest,
                start: Some(index),
                trouble: None,
                over: index,
            });
            self.timeline.by_start.insert(index, hold);
            self.timeline.turn(from, hold, Turn::Maybe);
            self.timeline.turn(index, hold, Turn::Over);
        }
    }

    fn trouble_after(&self, from: usize, to: usize) -> Option<usize> {
        let next = self.troubles.partition_point(|&trouble| trouble < from);
        self.troubles.get(next).copied().filter(|&trouble| trouble < to)
    }

    /// A hold that did not begin before entry `to`.
    fn dissolve(&mut self, hold: usize, to: usize, cancelled: bool) {
        let from = self.timeline.holds[hold].from;
        let trouble = self.trouble_after(from, to);
        let last = self.entries[from].at.saturating_add(self.grace);
        let late = self.entries.partition_point(|entry| entry.at <= last);
        let over = to.min(late);
        if let Some(trouble) = trouble.filter(|&trouble| trouble < over) {
            self.timeline.holds[hold].trouble = Some(trouble);
            self.timeline.turn(trouble, hold, Turn::Maybe);
        } else if !cancelled && (to < self.entries.len() || late < self.entries.len()) {
            self.timeline.unexplained.push(hold);
        }
        self.timeline.holds[hold].over = over;
        self.timeline.turn(over, hold, Turn::Over);
    }
}

impl Hold {
    /// Whether a host failed or drained between the decision and the start.
    pub(crate) fn is_troubled(&self) -> bool {
        self.trouble.is_some()
    }
}
