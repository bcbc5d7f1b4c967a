//! Replays one policy's log, entry by entry, and has every entry judged by what held just before it.
//!
//! An entry that cannot have happened (an unknown state, a wrong attempt) is reported and has no
//! effect, so that one fault does not drown the rest.

use crate::books::Books;
use crate::fog::Fog;
use crate::holds::Standing;
use crate::log::What;
use crate::losses::Progress;
use crate::pools::Pools;
use crate::report::{Breaches, Check, Findings, PolicyReport, Spot, seconds};
use crate::state::{Host, HostState, Job, Phase, Promise};
use crate::timeline::{Entry, Timeline};
use bursar_scenario::{HostEventKind, Scenario};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Waiting requests that ask for the same.
pub(crate) type Ask = (u32, Option<(u32, u32)>, Option<u32>);
/// The order inside a leaf: rank, first submission, id.
pub(crate) type Turnout = (Reverse<i32>, u64, u64);
/// Of one leaf: by contract, then order.
pub(crate) type Queue = BTreeMap<Ask, BTreeSet<(u64, Turnout, u32)>>;

pub(crate) struct Replay<'a> {
    pub(crate) scenario: &'a Scenario,
    /// Whether all rules apply.
    pub(crate) is_budget: bool,
    pub(crate) entries: &'a [Entry],
    pub(crate) timeline: Timeline,
    pub(crate) findings: Findings,
    pub(crate) books: Books,
    pub(crate) hosts: Vec<Host>,
    pub(crate) pools: Pools,
    pub(crate) jobs: Vec<Job>,
    pub(crate) queues: BTreeMap<usize, Queue>,
    pub(crate) promises: Vec<Promise>,
    /// Standing holds whose hosts are not known.
    pub(crate) vague: usize,
    /// The fogs that lie now, and how many have come.
    pub(crate) fogs: Vec<Fog>,
    pub(crate) next_fog: usize,
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
            awaits: Vec::new(),
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
            progress: Progress::default(),
            holds: (0, 0),
            class: None,
            promised: None,
        };
        let workloads = scenario.workloads.len();
        let pools = Pools::new(scenario);
        let timeline = Timeline::new(entries, workloads, &pools, scenario.settings.grace_ms);
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
            pools,
            jobs: vec![job; workloads],
            queues: BTreeMap::new(),
            promises: Vec::new(),
            vague: 0,
            fogs: Vec::new(),
            next_fog: 0,
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
            self.turn(index);
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

    /// Time goes on to `at`, past the ends of the moments at which something was decided unseen.
    fn advance(&mut self, at: u64) {
        while let Some(moment) = self.timeline.unseen.keys().next().copied() {
            if moment >= at {
                break;
            }
            self.advance_to(moment.max(self.now));
            for hold in self.timeline.unseen.remove(&moment).unwrap_or_default() {
                self.judge_unseen(hold);
            }
        }
        self.advance_to(at);
    }

    fn advance_to(&mut self, at: u64) {
        if at > self.now {
            self.end_instant();
        }
        // Shares that changed in between hold from their own moment on.
        while let Some(change) = self.next_change_until(at) {
            self.books.advance(change.at_ms.max(self.now));
            self.books.set_share(self.scenario, change.budget, change.share_micro);
        }
        self.now = at;
        self.books.advance(at);
    }

    fn next_change_until(&mut self, at: u64) -> Option<bursar_scenario::BudgetChange> {
        let change = *self.scenario.budget_changes.get(self.next_change)?;
        if change.at_ms > at {
            return None;
        }
        self.next_change += 1;
        Some(change)
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
}
