//! Starts that are decided and have not begun: what they count for in the books and on hosts, and what is not
//! known of them.

use crate::books::Sure;
use crate::replay::Replay;
use crate::report::Check;
use crate::state::{Faith, Phase, Promise};
use crate::timeline::Turn;

/// A hold that stands now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    sure: Sure,
    contract: u128,
}

impl Replay<'_> {
    /// What becomes of holds, and of fog, before entry `index`.
    pub(crate) fn turn(&mut self, index: usize) {
        while let Some(fog) = self.timeline.fogs.get(self.next_fog) {
            if fog.from > index {
                break;
            }
            self.fogs.push(*fog);
            self.next_fog += 1;
        }
        if self.fogs.iter().any(|fog| fog.over <= index) {
            self.lift_fog(index);
        }
        for (hold, turn) in self.timeline.turns.remove(&index).unwrap_or_default() {
            match turn {
                Turn::Maybe => {
                    self.stand(hold, Sure::Maybe);
                    self.note_class_of(hold);
                }
                Turn::Over | Turn::Lost => self.fall(hold),
            }
            if self.timeline.holds[hold].start.is_none() && turn != Turn::Over {
                self.bring_back(self.timeline.holds[hold].workload, turn);
            }
        }
    }

    /// Rule 7: a holder whose start was decided and is lost with a host has its reservation again, made anew.
    fn bring_back(&mut self, holder: u32, turn: Turn) {
        let Some((until, since)) = self.jobs[holder as usize].promised.take() else { return };
        if self.promises.iter().any(|promise| promise.holder == holder) {
            return;
        }
        let doubt = (turn == Turn::Maybe).then_some(self.now);
        let (entry, line, faith) = (usize::MAX, self.line, Faith::Broken);
        let hosts = Vec::new();
        self.promises.push(Promise { holder, hosts, until, since, entry, line, faith, doubt });
    }

    /// A holder that may have been held there, and have lost that hold, has its reservation made anew now.
    fn lift_fog(&mut self, index: usize) {
        let lost = |promise: &Promise| self.may_be_held(promise.holder);
        let lost: Vec<bool> = self.promises.iter().map(lost).collect();
        for (promise, _) in self.promises.iter_mut().zip(lost).filter(|(_, lost)| *lost) {
            promise.doubt = Some(self.now);
        }
        self.fogs.retain(|fog| fog.over > index);
    }

    /// Whether a waiting request may be held without a trace in the log.
    pub(crate) fn may_be_held(&self, workload: u32) -> bool {
        if self.fogs.is_empty() || self.contract(workload) == 0 {
            return false;
        }
        let spec = &self.scenario.workloads[workload as usize];
        self.jobs[workload as usize].phase == Phase::Waiting
            && self.fogs.iter().any(|fog| {
                let wants = self.pools.wants(spec, fog.host);
                wants.is_some_and(|wants| fog.hides(wants)) && self.suits_debug(workload, fog.host)
            })
    }

    /// Whether GPUs may be held that are not known to be: then a check of where there is room may fail for
    /// that.
    pub(crate) fn is_hazy(&self) -> bool {
        self.vague > 0 || !self.fogs.is_empty()
    }

    /// Whether a standing reservation may be over already.
    pub(crate) fn is_open(&self, promise: &Promise) -> bool {
        promise.doubt == Some(self.now)
            || self.jobs[promise.holder as usize].hold().is_some()
            || self.may_be_held(promise.holder)
    }

    pub(crate) fn stand(&mut self, hold: usize, sure: Sure) {
        self.fall(hold);
        let facts = &self.timeline.holds[hold];
        let (workload, start) = (facts.workload, facts.start);
        let like = match (start, facts.victims.first()) {
            (Some(start), _) => self.entries[start].placement.first().map(|place| place.0),
            (None, Some(&victim)) => {
                let victim = self.entries[victim].workload as usize;
                self.jobs[victim].placement.first().map(|place| place.0)
            }
            (None, None) => None,
        };
        let unallocated = start.is_some_and(|start| self.entries[start].rule == Some(1));
        let span = if unallocated { 0 } else { u128::from(self.contract(workload)) };
        let contract = self.rate(workload, like.unwrap_or(0)) * span;
        self.books.decide(self.leaf(workload), contract, sure);
        self.standing[hold] = Some(Standing { sure, contract });
        let job = &mut self.jobs[workload as usize];
        match sure {
            Sure::Yes => job.holds.0 += 1,
            Sure::Maybe => job.holds.1 += 1,
        }
        self.hold_gpus(hold, sure, 1);
    }

    fn fall(&mut self, hold: usize) {
        let Some(standing) = self.standing[hold].take() else { return };
        let facts = &self.timeline.holds[hold];
        let (workload, is_dissolved) = (facts.workload, facts.start.is_none());
        self.books.undecide(self.leaf(workload), standing.contract, standing.sure);
        let job = &mut self.jobs[workload as usize];
        match standing.sure {
            Sure::Yes => job.holds.0 -= 1,
            Sure::Maybe => job.holds.1 -= 1,
        }
        if is_dissolved {
            job.class = None;
        }
        self.hold_gpus(hold, standing.sure, -1);
    }

    fn hold_gpus(&mut self, hold: usize, sure: Sure, sign: i64) {
        let Some(start) = self.timeline.holds[hold].start else {
            self.vague = self.vague.saturating_add_signed(sign as isize);
            return;
        };
        let is_unseen = self.timeline.holds[hold].is_unseen();
        for &(host, gpus) in &self.entries[start].placement {
            let told = self.hosts[host as usize].leaving + self.victims_on(hold, host);
            let (host, gpus) = (&mut self.hosts[host as usize], i64::from(gpus));
            match sure {
                Sure::Yes => host.held += sign * gpus,
                Sure::Maybe => host.maybe_held += sign * gpus,
            }
            if sign < 0 {
                host.awaits.retain(|awaited| awaited.hold != hold);
            } else if sure == Sure::Yes {
                host.wait_for(hold, gpus, told, is_unseen);
            }
        }
    }

    /// GPUs of a host on which those run who are told to leave for a hold with the lines that follow.
    fn victims_on(&self, hold: usize, host: u32) -> i64 {
        let of = |victim: &usize| {
            let job = &self.jobs[self.entries[*victim].workload as usize];
            let here = job.placement.iter().find(|place| place.0 == host);
            here.map_or(0, |place| i64::from(place.1))
        };
        self.timeline.holds[hold].victims.iter().map(of).sum()
    }

    /// Remembers the class that is right where an unseen start may have been decided first.
    fn note_class_of(&mut self, hold: usize) {
        let facts = &self.timeline.holds[hold];
        let Some(start) = facts.start.filter(|_| facts.is_unseen()) else { return };
        let entry = &self.entries[start];
        if let Some(place) = entry.placement.first() {
            self.note_class(entry.workload, place.0);
        }
    }

    /// At the end of the moment in which a start was decided unseen: what can be judged of the decision. From
    /// here on the hold is certain.
    pub(crate) fn judge_unseen(&mut self, hold: usize) {
        let facts = &self.timeline.holds[hold];
        let (from, decided) = (facts.from, facts.decided);
        let Some(entry) = facts.start.map(|start| &self.entries[start]) else { return };
        if !entry.placement.is_empty() && self.is_budget {
            let line = std::mem::replace(&mut self.line, entry.line);
            self.judge_decided_before(entry.workload, &entry.placement, entry.rule, decided, from);
            self.line = line;
        }
        self.stand(hold, Sure::Yes);
    }

    /// What is judged of a start that was decided unseen in this moment, at entry `from` or later.
    pub(crate) fn judge_decided_before(
        &mut self,
        workload: u32,
        placement: &[(u32, u32)],
        rule: Option<u8>,
        decided: u64,
        from: usize,
    ) {
        let noted = self.jobs[workload as usize].class;
        self.note_class(workload, placement[0].0);
        if let (Some((before, _)), Some((class, sure))) =
            (noted, &mut self.jobs[workload as usize].class)
            && before != *class
        {
            *sure = Sure::Maybe;
        }
        if rule == Some(7) {
            self.judge_promised_hosts(workload, placement);
        }
        if rule != Some(1) {
            self.judge_reserved_hosts(workload, placement, decided, from);
        }
        self.findings.undecided(Check::Order);
        self.release_promise(workload);
    }
}
