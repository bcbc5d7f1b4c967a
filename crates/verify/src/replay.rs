//! Replays one policy's log, entry by entry, and has every entry judged by what held just before it.
//!
//! An entry that cannot have happened (an unknown state, a wrong attempt) is reported and has no
//! effect, so that one fault does not drown the rest.

use crate::books::{Books, Sure};
use crate::log::What;
use crate::report::{Breaches, BudgetTotals, Check, Findings, PolicyReport, Spot, Totals, seconds};
use crate::timeline::{Entry, Timeline, Turn};
use bursar_scenario::{HostEventKind, Scenario};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};

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
    started: u64,
    /// GPUs x rate, in thousandths.
    rate: u128,
    /// When it was told to leave.
    pub(crate) told: Option<u64>,
    /// Decided starts that wait for GPUs: certain ones, and others.
    holds: (u32, u32),
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
    since: u64,
    idle_ms: i128,
    out_of_service_ms: i128,
}

impl Host {
    fn is_in_service(&self) -> bool {
        matches!(self.state, HostState::Up | HostState::Draining)
    }

    fn touch(&mut self, now: u64) {
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

/// Waiting requests that ask for the same.
pub(crate) type Ask = (u32, Option<(u32, u32)>, Option<u32>);
/// The order inside a leaf: rank, first submission, id.
pub(crate) type Turnout = (Reverse<i32>, u64, u64);
/// Of one leaf: by contract, then order.
pub(crate) type Queue = BTreeMap<Ask, BTreeSet<(u64, Turnout, u32)>>;

/// A hold that stands now.
#[derive(Clone, Copy, Debug)]
struct Standing {
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
    standing: Vec<Option<Standing>>,
    pub(crate) now: u64,
    line: u64,
    expected: Vec<HostState>,
    planned: HashSet<(u64, usize, u8)>,
    next_host_event: usize,
    next_change: usize,
    touched: BTreeSet<usize>,
    to_requeue: Vec<u32>,
    attempts: u64,
    allocated_ms: u128,
    unallocated_ms: u128,
    budget_charged: Vec<u128>,
    budget_unallocated: Vec<u128>,
    breaches: Breaches,
}

fn kind_code(kind: HostEventKind) -> u8 {
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

    fn spot_of(&self, index: usize) -> Spot<'a> {
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

    fn host_spot(&self) -> Spot<'a> {
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
    fn may(&mut self, index: usize, good: bool, message: impl FnOnce() -> String) -> bool {
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
    fn end_attempt(&mut self, workload: u32) {
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

    fn host_event(&mut self, index: usize) {
        let entry = &self.entries[index];
        let (host, now) = (entry.host as usize, self.now);
        let state = self.hosts[host].state;
        let (next, cause, good) = match entry.what {
            What::DrainStarted => {
                (HostState::Draining, Some(HostEventKind::Drain), state == HostState::Up)
            }
            What::HostDown => {
                (HostState::Down, Some(HostEventKind::Fail), state != HostState::Down)
            }
            What::HostUp => (HostState::Up, Some(HostEventKind::Repair), state != HostState::Up),
            _ => (HostState::Drained, None, state == HostState::Draining),
        };
        let name = self.host_name(entry.host);
        if !self.may(index, good, || format!("{:?} of {name} while it is {state:?}", entry.what)) {
            return;
        }
        if let Some(kind) = cause {
            let planned = self.planned.contains(&(now, host, kind_code(kind)));
            self.may(index, planned, || format!("the scenario does not {kind:?} {name} now"));
        }
        if next == HostState::Drained {
            let (used, held) = (self.hosts[host].used, self.hosts[host].held);
            let spot = self.host_spot();
            self.findings.check(Check::Drain, spot, used == 0 && held == 0, || {
                format!("{name} is drained with {used} GPUs used and {held} held")
            });
        }
        self.hosts[host].touch(now);
        self.hosts[host].state = next;
        self.touched.insert(host);
        if next != HostState::Up {
            for promise in &mut self.promises {
                promise.is_broken |= promise.hosts.contains(&entry.host);
            }
        }
        let in_service = self.hosts.iter().zip(&self.scenario.hosts);
        let capacity = in_service.filter(|(host, _)| host.is_in_service()).map(|(_, spec)| {
            u128::from(spec.gpus) * u128::from(self.scenario.models[spec.model].rate_milli)
        });
        let capacity = capacity.sum();
        self.books.set_capacity(capacity);
    }

    /// What must hold when all entries of a moment have been read.
    fn end_instant(&mut self) {
        for workload in std::mem::take(&mut self.to_requeue) {
            let requeued = self.jobs[workload as usize].phase != Phase::HostFailed;
            let spot = self.spot(workload);
            self.findings.check(Check::Log, spot, requeued, || {
                "its host failed and it is resumable, but it was not requeued".into()
            });
        }
        self.compare_hosts();
        if self.is_budget {
            for host in 0..self.hosts.len() {
                if self.hosts[host].state == HostState::Draining {
                    self.judge_draining(host);
                }
            }
        }
    }

    /// The states of hosts follow the scenario, and nothing runs on a host out of service.
    fn compare_hosts(&mut self) {
        while let Some(event) = self.scenario.hosts_events.get(self.next_host_event) {
            if event.at_ms > self.now {
                break;
            }
            self.next_host_event += 1;
            self.touched.insert(event.host);
            let state = &mut self.expected[event.host];
            *state = match (event.kind, *state) {
                (HostEventKind::Fail, _) => HostState::Down,
                (HostEventKind::Repair, _) => HostState::Up,
                (HostEventKind::Drain, HostState::Up) => HostState::Draining,
                (HostEventKind::Drain, state) => state,
            };
        }
        let spot = self.host_spot();
        for host in std::mem::take(&mut self.touched) {
            let name = self.host_name(host as u32);
            let (is, should) = (self.hosts[host].state, self.expected[host]);
            let same = match is {
                HostState::Drained => HostState::Draining,
                other => other,
            };
            self.findings.check(Check::Log, spot, same == should, || {
                format!("{name} is {is:?}; after the scenario's events it is {should:?}")
            });
            let (used, serves) = (self.hosts[host].used, self.hosts[host].is_in_service());
            self.findings.check(Check::HostUse, spot, serves || used == 0, || {
                format!("{used} GPUs are used on {name}, which is {is:?}")
            });
        }
    }

    /// Rule 9: what may leave a draining host has been told, and an empty one is drained.
    fn judge_draining(&mut self, host: usize) {
        for workload in self.hosts[host].runs.iter().copied().collect::<Vec<_>>() {
            let job = &self.jobs[workload as usize];
            let stays = job.told.is_some() || (job.allocated && job.protected_until > self.now);
            let (spot, name) = (self.spot(workload), self.host_name(host as u32));
            self.findings.check(Check::Drain, spot, stays, || {
                format!("not protected on {name}, which drains, and was not told to leave")
            });
        }
        let (spot, name) = (self.host_spot(), self.host_name(host as u32));
        let empty = self.hosts[host].used == 0;
        let held = self.hosts[host].held > 0 || self.hosts[host].maybe_held > 0;
        self.findings.check(Check::Drain, spot, !empty || held, || {
            format!("{name} drains and is empty, but is not drained")
        });
    }

    fn finish(mut self, policy: &str) -> (PolicyReport, Findings) {
        self.end_instant();
        let end = self.now;
        for workload in 0..self.jobs.len() as u32 {
            self.finish_workload(workload);
        }
        if self.is_budget {
            self.judge_unkept_promises();
            for hold in std::mem::take(&mut self.timeline.unexplained) {
                let entry = &self.entries[self.timeline.holds[hold].from];
                let id = &*self.scenario.workloads[self.timeline.holds[hold].workload as usize].id;
                let spot = Spot { at: entry.at, line: entry.line, workload: Some(id) };
                let message = "others were told to leave for it, but it did not start".into();
                self.findings.fail(Check::Log, spot, message);
            }
        }
        let totals = self.totals(end);
        let budgets =
            self.scenario.budgets.iter().enumerate().map(|(index, budget)| BudgetTotals {
                budget: budget.path.clone(),
                charged_milli_gpu_ms: self.books.charged(index),
                unallocated_gpu_ms: self.budget_unallocated[index],
            });
        let report = PolicyReport {
            policy: policy.into(),
            events: self.entries.len() as u64,
            attempts: self.attempts,
            end: end as f64 / 1000.0,
            checks: self.findings.counts(),
            violations_total: self.findings.total,
            totals,
            budgets: budgets.collect(),
            breaches: self.breaches,
        };
        (report, self.findings)
    }

    fn finish_workload(&mut self, workload: u32) {
        let spec = &self.scenario.workloads[workload as usize];
        let phase = self.jobs[workload as usize].phase;
        let spot = self.spot(workload);
        let seen = phase != Phase::Absent || spec.submit_ms > self.now;
        self.findings.check(Check::Log, spot, seen, || {
            format!("due at {}, but never submitted", seconds(spec.submit_ms))
        });
        if phase == Phase::Running {
            self.end_attempt(workload);
        }
    }

    /// Rule 12. Used GPU-time comes from the attempts, idle and lost GPU-time from the hosts.
    fn totals(&mut self, end: u64) -> Totals {
        for host in &mut self.hosts {
            host.touch(end);
        }
        let idle: i128 = self.hosts.iter().map(|host| host.idle_ms).sum();
        let lost: i128 = self.hosts.iter().map(|host| host.out_of_service_ms).sum();
        let all = u128::from(self.scenario.gpus_total()) * u128::from(end);
        let sum = (self.allocated_ms + self.unallocated_ms) as i128 + idle + lost;
        let (allocated, unallocated) = (self.allocated_ms, self.unallocated_ms);
        let spot = self.host_spot();
        self.findings.check(Check::Conservation, spot, sum == all as i128 && idle >= 0, || {
            format!(
                "allocated {allocated} + unallocated {unallocated} + idle {idle} + out of service \
                 {lost} = {sum} GPU-ms, but GPUs x time is {all}"
            )
        });
        // From the leaves up: each node is charged what its leaves are.
        for index in (1..self.budget_charged.len()).rev() {
            if let Some(parent) = self.scenario.budgets[index].parent {
                self.budget_charged[parent] += self.budget_charged[index];
                self.budget_unallocated[parent] += self.budget_unallocated[index];
            }
        }
        for index in 0..self.budget_charged.len() {
            let (of_attempts, in_books) = (self.budget_charged[index], self.books.charged(index));
            let path = &self.scenario.budgets[index].path;
            self.findings.check(Check::Conservation, spot, of_attempts == in_books, || {
                format!("{path:?}: charged {in_books}, its attempts come to {of_attempts}")
            });
        }
        Totals {
            allocated_gpu_ms: allocated,
            unallocated_gpu_ms: unallocated,
            idle_gpu_ms: u128::try_from(idle).unwrap_or(0),
            out_of_service_gpu_ms: u128::try_from(lost).unwrap_or(0),
            all_gpu_ms: all,
        }
    }
}
