//! A little world for policies: hosts, budgets, submissions; an engine that does at once what it is told.

use bursar_core::compare::{Options, by_name};
use bursar_core::{
    BudgetIx, BudgetNode, Command, Event, HostSpec, ModelIx, Notice, Scheduler, Settings, SpanMs,
    State, Stop, TimeMs, Tree, WorkloadIx, WorkloadSpec,
};
use std::collections::{BTreeMap, BTreeSet};

/// One job: `tie` is its number.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) budget: u32,
    pub(crate) submit_s: u64,
    pub(crate) gpus: u32,
    pub(crate) runtime_s: u64,
    /// What it declares; the runtime when absent.
    pub(crate) declared_s: Option<u64>,
}

/// What happened to a job: every start, and its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fate {
    pub(crate) starts_s: Vec<u64>,
    pub(crate) end_s: u64,
}

pub(crate) fn settings() -> Settings {
    Settings {
        lookback: SpanMs::hours(7 * 24),
        horizon: SpanMs::hours(8),
        grace: SpanMs::ZERO,
        margin_ppm: 50_000,
        reservations: 1,
        reservation_age: SpanMs::hours(4),
        debug_hosts: 0,
    }
}

/// A tree of `(path, share)`, parents first.
pub(crate) fn tree(rows: &[(&str, u64)]) -> Tree {
    let node = |path: &str, parent, share: u64| BudgetNode {
        path: path.to_owned(),
        parent,
        share_micro: share * 1_000_000,
        limit_units: None,
        terms: Vec::new(),
    };
    let mut nodes = vec![node("", None, 1)];
    for &(path, share) in rows {
        let parent = path.rfind('/').map_or(0, |cut| {
            nodes.iter().position(|node| node.path == path[..cut]).expect("parents come first")
        });
        nodes.push(node(path, Some(BudgetIx(parent as u32)), share));
    }
    Tree::new(nodes)
}

pub(crate) fn scheduler(
    policy: &str,
    hosts: &[u32],
    budgets: &[(&str, u64)],
    options: &Options,
) -> Scheduler {
    let specs: Vec<HostSpec> =
        hosts.iter().map(|&gpus| HostSpec { gpus, model: ModelIx(0), domain: 0 }).collect();
    let state = State::new(settings(), &specs, vec![1], tree(budgets));
    let policy = by_name(policy, &state, options).expect("a known policy");
    Scheduler::new(state, policy)
}

fn spec(tie: u64, job: &Job) -> Box<WorkloadSpec> {
    Box::new(WorkloadSpec {
        tie,
        budget: BudgetIx(job.budget),
        gpus: job.gpus,
        shape: None,
        model: None,
        min_runtime: SpanMs::minutes(1),
        max_runtime: None,
        expected_runtime: Some(SpanMs::seconds(job.declared_s.unwrap_or(job.runtime_s))),
        resumable: true,
        rank: 0,
        checkpoint_interval: None,
        checkpoint_on_signal: false,
        grace: None,
        startup: SpanMs::ZERO,
    })
}

/// Jobs through a scheduler. A preempted job starts from scratch.
pub(crate) struct World<'a> {
    scheduler: Scheduler,
    jobs: &'a [Job],
    by_place: BTreeMap<WorkloadIx, usize>,
    ends: BTreeSet<(u64, usize, WorkloadIx)>,
    end_of: BTreeMap<WorkloadIx, u64>,
    pub(crate) fates: Vec<Fate>,
    is_checked: bool,
    /// What happens to hosts, latest first.
    host_events: Vec<(u64, Event)>,
}

impl<'a> World<'a> {
    pub(crate) fn new(scheduler: Scheduler, jobs: &'a [Job]) -> Self {
        Self {
            scheduler,
            jobs,
            by_place: BTreeMap::new(),
            ends: BTreeSet::new(),
            end_of: BTreeMap::new(),
            fates: vec![Fate::default(); jobs.len()],
            is_checked: false,
            host_events: Vec::new(),
        }
    }

    /// With events of hosts at given seconds, in order.
    pub(crate) fn with_host_events(mut self, events: Vec<(u64, Event)>) -> Self {
        self.host_events = events;
        self.host_events.reverse();
        self
    }

    /// An event of a host, and what stops by it.
    fn apply_host_event(&mut self, at: u64, event: Event) {
        self.apply(at, event);
        for notice in self.scheduler.state().notices() {
            if let Notice::Stopped(workload, Stop::HostFailed) = notice {
                let end = self.end_of.remove(workload).expect("it ran");
                self.ends.remove(&(end, self.by_place[workload], *workload));
            }
        }
        self.settle(at);
    }

    /// Checks at each moment that plans are stable and that no policy has forgotten anybody.
    pub(crate) fn checked(self) -> Self {
        Self { is_checked: true, ..self }
    }

    fn apply(&mut self, at: u64, event: Event) -> Option<WorkloadIx> {
        self.scheduler.apply(TimeMs(at), event).expect("the world sends legal events")
    }

    /// Runs everything to its end; jobs must be in the order of submission.
    pub(crate) fn run(&mut self) {
        let mut next = 0;
        loop {
            let submit = self.jobs.get(next).map_or(u64::MAX, |job| job.submit_s * 1_000);
            let end = self.ends.first().map_or(u64::MAX, |&(end, ..)| end);
            let wake = self.scheduler.next_wake().0;
            let at = submit.min(end);
            if at == u64::MAX && self.host_events.is_empty() {
                break;
            }
            let is_next = |(host, _): &mut (u64, Event)| *host * 1_000 < at.min(wake);
            if let Some((host, event)) = self.host_events.pop_if(is_next) {
                self.apply_host_event(host * 1_000, event);
                continue;
            }
            if wake < at {
                self.apply(wake, Event::Tick);
                self.settle(wake);
                continue;
            }
            while let Some(&(end, job, workload)) = self.ends.first() {
                if end > at {
                    break;
                }
                self.ends.pop_first();
                self.end_of.remove(&workload);
                self.fates[job].end_s = end / 1_000;
                self.apply(at, Event::Stopped(workload, Stop::Completed));
            }
            while self.jobs.get(next).is_some_and(|job| job.submit_s * 1_000 == at) {
                let spec = spec(next as u64, &self.jobs[next]);
                let place = self.apply(at, Event::Submitted(spec)).expect("a place");
                self.by_place.insert(place, next);
                next += 1;
            }
            self.settle(at);
        }
        assert!(self.fates.iter().all(|fate| !fate.starts_s.is_empty()), "somebody never started");
    }

    /// Decides, obeys, and again, until nothing is left to do at this moment.
    fn settle(&mut self, at: u64) {
        loop {
            let mut commands = Vec::new();
            let plan = self.is_checked.then(|| self.scheduler.plan());
            let mut decisions = Vec::new();
            while let Some(decision) = self.scheduler.decide() {
                self.scheduler.commit(&decision, &mut |command| commands.push(command));
                decisions.push(decision);
            }
            assert!(plan.is_none_or(|plan| plan.decisions == decisions), "a plan is what is done");
            if commands.is_empty() {
                break;
            }
            for command in commands {
                match command {
                    Command::Start { workload, .. } => {
                        let job = self.by_place[&workload];
                        self.apply(at, Event::Started(workload));
                        let end = at + self.jobs[job].runtime_s * 1_000;
                        self.fates[job].starts_s.push(at / 1_000);
                        self.ends.insert((end, job, workload));
                        self.end_of.insert(workload, end);
                    }
                    Command::Preempt { workload, .. } => {
                        let end = self.end_of.remove(&workload).expect("it runs");
                        self.ends.remove(&(end, self.by_place[&workload], workload));
                        self.apply(at, Event::Stopped(workload, Stop::Left));
                    }
                    Command::HandOver(_) => {}
                }
            }
        }
        self.scheduler.clear_notices();
        if self.is_checked {
            // Changing no share at all makes every policy look at everything again.
            let mut again = self.scheduler.clone();
            again.apply(TimeMs(at), Event::SharesChanged(Vec::new())).expect("nothing changes");
            assert_eq!(again.plan().decisions, [], "somebody was forgotten at {at}");
        }
    }
}

/// Every start and the end of `(budget, submit, gpus, runtime)` jobs.
pub(crate) fn simulate(
    policy: &str,
    hosts: &[u32],
    budgets: &[(&str, u64)],
    jobs: &[(u32, u64, u32, u64)],
    options: &Options,
) -> Vec<Fate> {
    let jobs: Vec<Job> = jobs
        .iter()
        .map(|&(budget, submit_s, gpus, runtime_s)| Job {
            budget,
            submit_s,
            gpus,
            runtime_s,
            declared_s: None,
        })
        .collect();
    let mut world = World::new(scheduler(policy, hosts, budgets, options), &jobs);
    world.run();
    world.fates
}
