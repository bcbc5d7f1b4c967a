//! Replays one policy's log, entry by entry, and has every entry judged by what held just before it.
//!
//! An entry that cannot have happened (an unknown state, a wrong attempt) is reported and has no
//! effect, so that one fault does not drown the rest.

use crate::books::{Books, Sure};
use crate::log::What;
use crate::report::{Breaches, Check, Findings, PolicyReport, Spot, seconds};
use crate::state::{Host, HostState, Job, Phase, Promise};
use crate::timeline::{Entry, Timeline, Turn};
use bursar_scenario::{HostEventKind, Scenario};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Waiting requests that ask for the same.
pub(crate) type Ask = (u32, Option<(u32, u32)>, Option<u32>);
/// The order inside a leaf: rank, first submission, id.
pub(crate) type Turnout = (Reverse<i32>, u64, u64);
/// Of one leaf: by contract, then order.
pub(crate) type Queue = BTreeMap<Ask, BTreeSet<(u64, Turnout, u32)>>;

/// A hold that stands now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    sure: Sure,
    contract: u128,
}

pub(crate) struct Replay<'a> {
    pub(crate) scenario: &'a Scenario,
    /// Whether all rules apply.
    pub(crate) is_budget: bool,
    pub(crate) entries: &'a [Entry],
    pub(crate) timeline: Timeline,
    pub(crate) findings: Findings,
    pub(crate) books: Books,
    pub(crate) hosts: Vec<Host>,
    /// Hosts of one model and size have the same number.
    pub(crate) pools: Vec<usize>,
    pub(crate) jobs: Vec<Job>,
    pub(crate) queues: BTreeMap<usize, Queue>,
    pub(crate) promises: Vec<Promise>,
    /// Reservations that ended at this moment; when exactly is open.
    pub(crate) just_ended: Vec<Promise>,
    /// Standing holds whose hosts are not known.
    pub(crate) vague: usize,
    pub(crate) standing: Vec<Option<Standing>>,
    pub(crate) now: u64,
    pub(crate) line: u64,
    pub(crate) expected: Vec<HostState>,
    pub(crate) planned: HashSet<(u64, usize, u8)>,
    pub(crate) next_host_event: usize,
    pub(crate) next_change: usize,
    pub(crate) touched: BTreeSet<usize>,
    pub(crate) to_requeue: Vec<u32>,
    pub(crate) attempts: u64,
    pub(crate) allocated_ms: u128,
    pub(crate) unallocated_ms: u128,
    pub(crate) budget_charged: Vec<u128>,
    pub(crate) budget_unallocated: Vec<u128>,
    pub(crate) breaches: Breaches,
}

pub(crate) fn kind_code(kind: HostEventKind) -> u8 {
    match kind {
        HostEventKind::Fail => 0,
        HostEventKind::Repair => 1,
        HostEventKind::Drain => 2,
    }
}

/// Hosts of one model and size share a number.
fn pools(scenario: &Scenario) -> Vec<usize> {
    let mut known = BTreeMap::new();
    let mut pool = |host: &bursar_scenario::HostSpec| {
        let next = known.len();
        *known.entry((host.model, host.gpus)).or_insert(next)
    };
    scenario.hosts.iter().map(&mut pool).collect()
}

impl<'a> Replay<'a> {
    pub(crate) fn new(scenario: &'a Scenario, entries: &'a [Entry], findings: Findings) -> Self {
        let capacity = |host: &bursar_scenario::HostSpec| {
            u128::from(host.gpus) * u128::from(scenario.models[host.model].rate_milli)
        };
        let books = Books::new(scenario, scenario.hosts.iter().map(capacity).sum());
        let host = |host: &bursar_scenario::HostSpec| Host {
            state: HostState::Up,
            gpus: i64::from(host.gpus),
            used: 0,
            leaving: 0,
            held: 0,
            maybe_held: 0,
            runs: BTreeSet::new(),
            since: 0,
            idle_ms: 0,
            out_of_service_ms: 0,
        };
        let job = Job {
            phase: Phase::Absent,
            attempts: 0,
            allocated: false,
            protected_until: 0,
            placement: Box::default(),
            started: 0,
            rate: 0,
            told: None,
            holds: (0, 0),
            class: None,
            promised: None,
        };
        let workloads = scenario.workloads.len();
        let timeline =
            Timeline::new(entries, workloads, scenario.hosts.len(), scenario.settings.grace_ms);
        let planned = scenario.hosts_events.iter();
        Self {
            scenario,
            is_budget: false,
            entries,
            standing: vec![None; timeline.holds.len()],
            timeline,
            findings,
            books,
            hosts: scenario.hosts.iter().map(host).collect(),
            pools: pools(scenario),
            jobs: vec![job; workloads],
            queues: BTreeMap::new(),
            promises: Vec::new(),
            just_ended: Vec::new(),
            vague: 0,
            now: 0,
            line: 0,
            expected: vec![HostState::Up; scenario.hosts.len()],
            planned: planned.map(|e| (e.at_ms, e.host, kind_code(e.kind))).collect(),
            next_host_event: 0,
            next_change: 0,
            touched: BTreeSet::new(),
            to_requeue: Vec::new(),
            attempts: 0,
            allocated_ms: 0,
            unallocated_ms: 0,
            budget_charged: vec![0; scenario.budgets.len()],
            budget_unallocated: vec![0; scenario.budgets.len()],
            breaches: Breaches::default(),
        }
    }

    /// Replays everything and reports.
    pub(crate) fn run(mut self, policy: &str) -> (PolicyReport, Findings) {
        self.is_budget = policy == "budget";
        for index in 0..self.entries.len() {
            let at = self.entries[index].at;
            let in_order = at >= self.now;
            let spot = self.spot_of(index);
            let now = self.now;
            self.findings.check(Check::Log, spot, in_order, || {
                format!("time goes back from {}", seconds(now))
            });
            if in_order {
                self.advance(at);
            }
            self.line = self.entries[index].line;
            for (hold, turn) in self.timeline.turns.remove(&index).unwrap_or_default() {
                match turn {
                    Turn::Maybe => self.stand(hold, Sure::Maybe),
                    Turn::Sure => self.stand(hold, Sure::Yes),
                    Turn::Over => self.fall(hold),
                }
            }
            self.entry(index);
        }
        self.finish(policy)
    }

    pub(crate) fn spot_of(&self, index: usize) -> Spot<'a> {
        let entry = &self.entries[index];
        let workload = (!entry.what.is_of_host())
            .then(|| &*self.scenario.workloads[entry.workload as usize].id);
        Spot { at: entry.at, line: entry.line, workload }
    }

    /// Where something about `workload` is found now.
    pub(crate) fn spot(&self, workload: u32) -> Spot<'a> {
        let id = &*self.scenario.workloads[workload as usize].id;
        Spot { at: self.now, line: self.line, workload: Some(id) }
    }

    pub(crate) fn host_spot(&self) -> Spot<'a> {
        Spot { at: self.now, line: self.line, workload: None }
    }

    pub(crate) fn host_name(&self, host: u32) -> &'a str {
        &self.scenario.hosts[host as usize].name
    }

    /// What an attempt protects: min_runtime, or all that max_runtime leaves.
    pub(crate) fn contract(&self, workload: u32) -> u64 {
        let spec = &self.scenario.workloads[workload as usize];
        spec.min_runtime_ms.min(spec.max_runtime_ms.unwrap_or(u64::MAX))
    }

    /// GPUs x rate in thousandths on a host like this.
    pub(crate) fn rate(&self, workload: u32, host: u32) -> u128 {
        let model = self.scenario.hosts[host as usize].model;
        u128::from(self.scenario.workloads[workload as usize].gpus)
            * u128::from(self.scenario.models[model].rate_milli)
    }

    pub(crate) fn leaf(&self, workload: u32) -> usize {
        self.scenario.workloads[workload as usize].budget as usize
    }

    pub(crate) fn turnout(&self, workload: u32) -> Turnout {
        let spec = &self.scenario.workloads[workload as usize];
        (Reverse(spec.rank), spec.submit_ms, spec.tie)
    }

    fn advance(&mut self, at: u64) {
        if at > self.now {
            self.end_instant();
            self.just_ended.clear();
            // Shares that changed in between hold from their own moment on.
            while let Some(change) = self.next_change_until(at) {
                self.books.advance(change.at_ms.max(self.now));
                self.books.set_share(self.scenario, change.budget, change.share_micro);
            }
            self.now = at;
            self.books.advance(at);
        } else {
            while let Some(change) = self.next_change_until(at) {
                self.books.set_share(self.scenario, change.budget, change.share_micro);
            }
        }
    }

    fn next_change_until(&mut self, at: u64) -> Option<bursar_scenario::BudgetChange> {
        let change = *self.scenario.budget_changes.get(self.next_change)?;
        if change.at_ms > at {
            return None;
        }
        self.next_change += 1;
        Some(change)
    }

    fn stand(&mut self, hold: usize, sure: Sure) {
        self.fall(hold);
        let (workload, start) =
            (self.timeline.holds[hold].workload, self.timeline.holds[hold].start);
        let like = match (start, self.timeline.holds[hold].victims.first()) {
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
        let holds = &mut self.jobs[workload as usize].holds;
        match sure {
            Sure::Yes => holds.0 += 1,
            Sure::Maybe => holds.1 += 1,
        }
        self.hold_gpus(hold, sure, 1);
    }

    fn fall(&mut self, hold: usize) {
        let Some(standing) = self.standing[hold].take() else { return };
        let workload = self.timeline.holds[hold].workload;
        self.books.undecide(self.leaf(workload), standing.contract, standing.sure);
        let holds = &mut self.jobs[workload as usize].holds;
        match standing.sure {
            Sure::Yes => holds.0 -= 1,
            Sure::Maybe => holds.1 -= 1,
        }
        self.hold_gpus(hold, standing.sure, -1);
    }

    fn hold_gpus(&mut self, hold: usize, sure: Sure, sign: i64) {
        let Some(start) = self.timeline.holds[hold].start else {
            self.vague = self.vague.saturating_add_signed(sign as isize);
            return;
        };
        for &(host, gpus) in &self.entries[start].placement {
            let host = &mut self.hosts[host as usize];
            match sure {
                Sure::Yes => host.held += sign * i64::from(gpus),
                Sure::Maybe => host.maybe_held += sign * i64::from(gpus),
            }
        }
    }

    fn entry(&mut self, index: usize) {
        let entry = &self.entries[index];
        match entry.what {
            What::Submitted => self.submitted(index),
            What::Refused => self.refused(index),
            What::Started => self.started(index),
            What::ProtectionEnded => self.protection_ended(index),
            What::Preempted => self.preempted(index),
            What::Requeued => self.requeued(index),
            What::Completed | What::Failed | What::Terminated | What::HostFailed => {
                self.ended(index);
            }
            What::Cancelled => self.cancelled(index),
            What::DrainStarted | What::Drained | What::HostDown | What::HostUp => {
                self.host_event(index);
            }
            What::Reserved => self.reserved(index),
            What::Unreserved => self.unreserved(index),
        }
    }

    /// Reports unless the log may say this here.
    pub(crate) fn may(
        &mut self,
        index: usize,
        good: bool,
        message: impl FnOnce() -> String,
    ) -> bool {
        let spot = self.spot_of(index);
        self.findings.check(Check::Log, spot, good, message);
        good
    }

    fn expect_phase(&mut self, index: usize, phase: Phase) -> bool {
        let (what, workload) = (self.entries[index].what, self.entries[index].workload);
        let is = self.jobs[workload as usize].phase;
        self.may(index, is == phase, || format!("{what:?} while it is {is:?}, not {phase:?}"))
    }

    /// For what happens to the running attempt: it runs, and is the one that is meant.
    fn expect_running(&mut self, index: usize) -> bool {
        if !self.expect_phase(index, Phase::Running) {
            return false;
        }
        let entry = &self.entries[index];
        let (attempt, allocated) = (entry.attempt, entry.allocated);
        let job = &self.jobs[entry.workload as usize];
        let (attempts, class) = (job.attempts, job.allocated);
        let same = self.may(index, attempt.is_none_or(|attempt| attempt == attempts), || {
            format!("attempt {} while attempt {attempts} runs", attempt.unwrap_or(0))
        });
        if let Some(allocated) = allocated {
            let spot = self.spot_of(index);
            self.findings.check(Check::Class, spot, allocated == class, || {
                format!("allocated is {allocated}, but the attempt started with {class}")
            });
        }
        same
    }

    fn submitted(&mut self, index: usize) {
        let (at, workload) = (self.entries[index].at, self.entries[index].workload);
        if !self.expect_phase(index, Phase::Absent) {
            return;
        }
        let due = self.scenario.workloads[workload as usize].submit_ms;
        self.may(index, at == due, || format!("submitted, but due at {}", seconds(due)));
        self.enqueue(workload);
    }

    fn refused(&mut self, index: usize) {
        let workload = self.entries[index].workload;
        let phase = self.jobs[workload as usize].phase;
        let new = matches!(phase, Phase::Absent | Phase::Waiting);
        if self.may(index, new, || format!("refused while it is {phase:?}")) {
            self.dequeue(workload);
            self.jobs[workload as usize].phase = Phase::Refused;
        }
    }

    fn enqueue(&mut self, workload: u32) {
        self.jobs[workload as usize].phase = Phase::Waiting;
        let contract = self.contract(workload);
        if contract > 0 && self.is_budget {
            let spec = &self.scenario.workloads[workload as usize];
            let ask = (spec.gpus, spec.shape, spec.model);
            let place = (contract, self.turnout(workload), workload);
            let queue = self.queues.entry(spec.budget as usize).or_default();
            queue.entry(ask).or_default().insert(place);
        }
    }

    fn dequeue(&mut self, workload: u32) {
        let spec = &self.scenario.workloads[workload as usize];
        let place = (self.contract(workload), self.turnout(workload), workload);
        let Some(queue) = self.queues.get_mut(&(spec.budget as usize)) else { return };
        let ask = (spec.gpus, spec.shape, spec.model);
        if let Some(waiting) = queue.get_mut(&ask) {
            waiting.remove(&place);
            if waiting.is_empty() {
                queue.remove(&ask);
            }
        }
    }

    fn started(&mut self, index: usize) {
        let entry = &self.entries[index];
        let workload = entry.workload;
        if !self.expect_phase(index, Phase::Waiting) {
            return;
        }
        let attempt = self.jobs[workload as usize].attempts + 1;
        let numbered = entry.attempt == Some(attempt);
        self.may(index, numbered, || {
            format!("attempt {} starts, {attempt} is next", entry.attempt.unwrap_or(0))
        });
        let placed = self.judge_shape(workload, &entry.placement);
        self.judge_host_use(workload, &entry.placement);
        let allocated = entry.allocated.unwrap_or(entry.protected_until.is_some());
        if self.is_budget {
            self.may(index, entry.allocated.is_some(), || "started without \"allocated\"".into());
            self.judge_start(index, allocated);
        }
        if !placed {
            return;
        }
        self.dequeue(workload);
        let contract = self.contract(workload);
        let protected_until = match (self.is_budget, allocated) {
            (true, true) => self.now.saturating_add(contract),
            (false, true) => entry.protected_until.unwrap_or(self.now),
            (_, false) => self.now,
        };
        let rate = self.rate(workload, entry.placement[0].0);
        let leaf = self.leaf(workload);
        if allocated {
            self.books.start(leaf, workload, rate, protected_until);
        }
        for &(host, gpus) in &entry.placement {
            let host = &mut self.hosts[host as usize];
            host.touch(self.now);
            host.used += i64::from(gpus);
            host.runs.insert(workload);
        }
        self.attempts += 1;
        let now = self.now;
        let job = &mut self.jobs[workload as usize];
        job.phase = Phase::Running;
        job.attempts = attempt;
        job.allocated = allocated;
        job.protected_until = protected_until;
        job.placement = entry.placement.clone();
        job.started = now;
        job.rate = rate;
        job.told = None;
        job.class = None;
    }

    fn protection_ended(&mut self, index: usize) {
        if !self.expect_running(index) || !self.is_budget {
            return;
        }
        let job = &self.jobs[self.entries[index].workload as usize];
        let (allocated, until, now) = (job.allocated, job.protected_until, self.now);
        let spot = self.spot_of(index);
        self.findings.check(Check::Class, spot, allocated && until == now, || {
            format!("protection ends at {}, not at {}", seconds(until), seconds(now))
        });
    }

    fn preempted(&mut self, index: usize) {
        let entry = &self.entries[index];
        let workload = entry.workload;
        if !self.expect_running(index) {
            return;
        }
        let told = self.jobs[workload as usize].told;
        if !self.may(index, told.is_none(), || "preempted twice".into()) {
            return;
        }
        let (now, job) = (self.now, &self.jobs[workload as usize]);
        let (until, allocated) = (job.protected_until, job.allocated);
        let is_protected = allocated && until > now;
        if is_protected {
            self.breaches.preempted += 1;
        }
        if self.is_budget {
            let spot = self.spot_of(index);
            self.findings.check(Check::Protected, spot, !is_protected, || {
                format!(
                    "preempted {} ms before its protection ends at {}",
                    until - now,
                    seconds(until)
                )
            });
            if let Some(&hold) = self.timeline.by_first_victim.get(&index) {
                self.judge_preemption(hold);
                self.stand(hold, Sure::Yes);
            } else if entry.by.is_none() {
                self.judge_drain_victim(index);
            }
        }
        self.jobs[workload as usize].told = Some(now);
        for &(host, gpus) in &self.jobs[workload as usize].placement {
            self.hosts[host as usize].leaving += i64::from(gpus);
        }
    }

    /// Rule 9: who is preempted for nobody must be on a draining host.
    fn judge_drain_victim(&mut self, index: usize) {
        let job = &self.jobs[self.entries[index].workload as usize];
        let drains =
            job.placement.iter().any(|p| self.hosts[p.0 as usize].state == HostState::Draining);
        let spot = self.spot_of(index);
        self.findings.check(Check::Drain, spot, drains, || {
            "preempted for nobody, and none of its hosts drains".into()
        });
    }

    fn requeued(&mut self, index: usize) {
        let workload = self.entries[index].workload;
        let resumable = self.scenario.workloads[workload as usize].resumable;
        self.may(index, resumable, || "requeued, but it is not resumable".into());
        if self.jobs[workload as usize].phase == Phase::HostFailed {
            self.enqueue(workload);
            return;
        }
        if !self.expect_running(index) {
            return;
        }
        let told = self.jobs[workload as usize].told;
        self.may(index, told.is_some(), || "requeued, but it was not preempted".into());
        self.end_attempt(workload);
        self.enqueue(workload);
    }

    fn cancelled(&mut self, index: usize) {
        let workload = self.entries[index].workload;
        if self.jobs[workload as usize].phase == Phase::Running {
            return self.ended(index);
        }
        if self.expect_phase(index, Phase::Waiting) {
            self.dequeue(workload);
            self.promises.retain(|promise| promise.holder != workload);
            self.jobs[workload as usize].phase = Phase::Over;
        }
    }

    fn ended(&mut self, index: usize) {
        let entry = &self.entries[index];
        let workload = entry.workload;
        if !self.expect_running(index) {
            return;
        }
        let spec = &self.scenario.workloads[workload as usize];
        let job = &self.jobs[workload as usize];
        let (told, now) = (job.told, self.now);
        let is_protected = job.allocated && job.protected_until > now;
        let age = now - job.started;
        if entry.what == What::Terminated {
            let out_of_time = spec.max_runtime_ms.is_some_and(|most| age >= most);
            let good = out_of_time || (told.is_some() && !spec.resumable);
            self.may(index, good, || {
                "terminated, but it was not preempted or could be resumed".into()
            });
        }
        if entry.what == What::HostFailed {
            let placement = &self.jobs[workload as usize].placement;
            let at_fault = placement.iter().any(|place| {
                let host = place.0 as usize;
                let fails = (now, host, kind_code(HostEventKind::Fail));
                self.hosts[host].state == HostState::Down || self.planned.contains(&fails)
            });
            self.may(index, at_fault, || "host_failed, but none of its hosts failed".into());
            self.breaches.host_failed += u64::from(is_protected);
        }
        self.end_attempt(workload);
        let job = &mut self.jobs[workload as usize];
        if entry.what == What::HostFailed && spec.resumable {
            job.phase = Phase::HostFailed;
            self.to_requeue.push(workload);
        } else {
            job.phase = Phase::Over;
        }
    }

    /// Takes the running attempt off its hosts and out of the books.
    pub(crate) fn end_attempt(&mut self, workload: u32) {
        let spec = &self.scenario.workloads[workload as usize];
        let now = self.now;
        let job = &self.jobs[workload as usize];
        let told = job.told;
        if let (Some(told), true) = (told, self.is_budget) {
            let most = self.scenario.settings.grace_ms;
            let grace = spec.grace_ms.unwrap_or(most).min(most);
            let spot = self.spot(workload);
            self.findings.check(Check::Grace, spot, now - told <= grace, || {
                format!("leaves {} ms after it was told; its grace is {grace} ms", now - told)
            });
        }
        let job = &mut self.jobs[workload as usize];
        let placement = std::mem::take(&mut job.placement);
        let gpu_ms = u128::from(spec.gpus) * u128::from(now - job.started);
        let (leaf, rate) = (spec.budget as usize, job.rate);
        if job.allocated {
            self.allocated_ms += gpu_ms;
            self.budget_charged[leaf] += rate * u128::from(now - job.started);
            self.books.stop(leaf, workload, rate, job.protected_until);
        } else {
            self.unallocated_ms += gpu_ms;
            self.budget_unallocated[leaf] += gpu_ms;
        }
        for &(host, gpus) in &placement {
            let host = &mut self.hosts[host as usize];
            host.touch(now);
            host.used -= i64::from(gpus);
            if told.is_some() {
                host.leaving -= i64::from(gpus);
            }
            host.runs.remove(&workload);
        }
    }
}
