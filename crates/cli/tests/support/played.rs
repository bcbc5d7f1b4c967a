//! A history that nobody had to wait for: a scenario played into a site's data folder, as the daemon and an engine would
//! have written it, beginning as long ago as it lasts.

#![allow(dead_code, reason = "each of its users needs a part of it")]

use bursar_scenario::{Ends, HostEventKind, Scenario, WorkloadSpec};
use bursar_server::Journal;
use bursar_site::budgets::Share;
use bursar_site::declare::{Declared, Kind};
use bursar_site::record::{BudgetsChanged, Created, HostDoc, Outcome, SettingsDoc, Submitted};
use bursar_site::views::Wanted;
use bursar_site::{Body, BudgetDoc, Record, Site};
use bursar_store::{Check, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub(crate) type Failure = Box<dyn std::error::Error>;

/// How many records are written at a time.
const BATCH: usize = 2_000;

/// A site that is being played.
pub(crate) struct Played<'a> {
    scenario: &'a Scenario,
    pub(crate) site: Site,
    store: Store,
    unwritten: Vec<Record>,
    now_ms: u64,
    next: (usize, usize, usize),
    /// What each workload still has to do, by its number.
    left_ms: BTreeMap<u64, u64>,
    /// When attempts end by themselves, and whose.
    ends: BTreeSet<(u64, u64, u32)>,
    /// When those that were told to leave have left.
    leaves: BTreeSet<(u64, u64, u32)>,
}

/// The tree of a scenario, in which everybody owns all: the root's owner is the one given.
fn tree(scenario: &Scenario, shares: &[u64]) -> BTreeMap<String, BudgetDoc> {
    fn below(scenario: &Scenario, shares: &[u64], parent: usize) -> BTreeMap<String, BudgetDoc> {
        let children = scenario.budgets.iter().enumerate();
        children
            .filter(|(_, one)| one.parent == Some(parent))
            .map(|(at, one)| {
                let doc = BudgetDoc {
                    share: Share(shares[at]),
                    limit: one.limit_gpu_ms.map(|ms| ms as f64 / 3_600_000.0),
                    members: one.members.clone(),
                    children: below(scenario, shares, at),
                    ..BudgetDoc::default()
                };
                (one.name.clone(), doc)
            })
            .collect()
    }
    below(scenario, shares, 0)
}

impl<'a> Played<'a> {
    /// The site, created in a folder.
    pub(crate) fn begin(
        scenario: &'a Scenario,
        data: &Path,
        owner: &str,
        unix_ms: u64,
    ) -> Result<Self, Failure> {
        let mut store = Store::open_or_create(data, Check::Tail)?;
        let domains = scenario.hosts.iter().map(|host| host.domain).max().unwrap_or(0) > 0;
        let host = |host: &bursar_scenario::HostSpec| HostDoc {
            name: host.name.clone(),
            gpus: host.gpus,
            model: scenario.models[host.model].name.clone(),
            domain: domains.then(|| format!("rack-{}", host.domain)),
        };
        let set = &scenario.settings;
        let created = Created {
            name: "played".into(),
            site_id: None,
            unix_ms,
            settings: SettingsDoc {
                lookback_ms: set.lookback_ms,
                horizon_ms: set.horizon_ms,
                grace_ms: set.grace_ms,
                margin_ppm: set.margin_ppm,
                reservations: set.reservations,
                reservation_age_ms: set.reservation_age_ms,
                debug_hosts: set.debug_hosts,
                ..SettingsDoc::default()
            },
            hosts: scenario.hosts.iter().map(host).collect(),
            rates_milli: scenario
                .models
                .iter()
                .map(|model| (model.name.clone(), model.rate_milli))
                .collect(),
        };
        let shares: Vec<u64> = scenario.budgets.iter().map(|one| one.share_micro).collect();
        let change = BudgetsChanged::first(tree(scenario, &shares), owner, "the first");
        let record = |seq, body| Record { seq, at_ms: 0, actor: None, body };
        let first = [record(1, Body::Created(created)), record(2, Body::BudgetsChanged(change))];
        Journal::append(&mut store, &first)?;
        Ok(Self {
            scenario,
            site: Site::new(&first[0], &first[1])?,
            store,
            unwritten: Vec::new(),
            now_ms: 0,
            next: (0, 0, 0),
            left_ms: BTreeMap::new(),
            ends: BTreeSet::new(),
            leaves: BTreeSet::new(),
        })
    }

    /// Plays to a moment, and writes everything.
    pub(crate) fn to(&mut self, until_ms: u64) -> Result<(), Failure> {
        while let Some(at_ms) = self.next_ms().filter(|&at_ms| at_ms <= until_ms) {
            self.now_ms = at_ms.max(self.now_ms);
            self.happen()?;
            self.settle()?;
        }
        self.write()
    }

    fn next_ms(&mut self) -> Option<u64> {
        let (submit, host, change) = self.next;
        let all = [
            self.scenario.workloads.get(submit).map(|spec| spec.submit_ms),
            self.scenario.hosts_events.get(host).map(|event| event.at_ms),
            self.scenario.budget_changes.get(change).map(|change| change.at_ms),
            self.ends.first().map(|end| end.0),
            self.leaves.first().map(|end| end.0),
            self.site.next_wake_ms(),
        ];
        all.into_iter().flatten().min()
    }

    fn put(&mut self, body: Body) -> Result<(), Failure> {
        let (seq, at_ms) = (self.site.seq() + 1, self.now_ms);
        let record = Record { seq, at_ms, actor: None, body };
        self.site.apply(&record)?;
        self.unwritten.push(record);
        Ok(())
    }

    fn happen(&mut self) -> Result<(), Failure> {
        while let Some(&end) = self.ends.first().filter(|end| end.0 <= self.now_ms) {
            self.ends.remove(&end);
            self.stop(end.1, end.2, self.outcome(end.1))?;
        }
        while let Some(&end) = self.leaves.first().filter(|end| end.0 <= self.now_ms) {
            self.leaves.remove(&end);
            self.stop(end.1, end.2, Outcome::Left)?;
        }
        while let Some(event) = self.scenario.hosts_events.get(self.next.1) {
            if event.at_ms > self.now_ms {
                break;
            }
            self.next.1 += 1;
            let (host, reason) =
                (self.scenario.hosts[event.host].name.clone(), "as played".to_owned());
            let ran = self.running_on(&host);
            self.put(match event.kind {
                HostEventKind::Fail => Body::HostDown { host, reason, by_engine: false },
                HostEventKind::Drain => Body::DrainStarted { host, reason, by_engine: false },
                HostEventKind::Repair => Body::HostUp { host },
            })?;
            if event.kind == HostEventKind::Fail {
                self.ends.retain(|end| !ran.contains(&(end.1, end.2)));
                self.leaves.retain(|end| !ran.contains(&(end.1, end.2)));
            }
        }
        let mut shares: Option<Vec<u64>> = None;
        while let Some(change) = self.scenario.budget_changes.get(self.next.2) {
            if change.at_ms > self.now_ms {
                break;
            }
            self.next.2 += 1;
            let now = |at: usize, one: &bursar_scenario::BudgetSpec| {
                self.site.budgets.get(&one.path).map_or(one.share_micro, |doc| {
                    debug_assert!(at > 0);
                    doc.share.0
                })
            };
            let shares = shares.get_or_insert_with(|| {
                self.scenario.budgets.iter().enumerate().map(|(at, one)| now(at, one)).collect()
            });
            shares[change.budget] = change.share_micro;
        }
        if let Some(shares) = shares {
            let version = self.site.budgets.version + 1;
            let owners = self.site.budgets.owners.clone();
            let first = BudgetsChanged::first(tree(self.scenario, &shares), "", "as played");
            let change = BudgetsChanged { version, owners, ..first };
            self.put(Body::BudgetsChanged(change))?;
        }
        while let Some(spec) = self.scenario.workloads.get(self.next.0) {
            if spec.submit_ms > self.now_ms {
                break;
            }
            self.next.0 += 1;
            let workload = self.site.next_number();
            self.left_ms.insert(workload, spec.runtime_ms.max(1));
            let declared = self.declared(spec);
            self.put(Body::Submitted(Box::new(Submitted {
                workload,
                declared,
                idempotency_key: None,
                sent_sha256: None,
                held: None,
                arrived: None,
            })))?;
        }
        Ok(())
    }

    fn declared(&self, spec: &WorkloadSpec) -> Declared {
        let set = &self.scenario.settings;
        Declared {
            name: spec.id.to_string(),
            user: spec.user.map_or("nobody", |at| &self.scenario.users[at as usize]).to_owned(),
            budget: self.scenario.budgets[spec.budget as usize].path.clone(),
            gpus: spec.gpus,
            shape: spec.shape,
            gpu_model: spec.model.map(|at| self.scenario.models[at as usize].name.clone()),
            min_runtime_ms: spec.min_runtime_ms,
            resumable: spec.resumable,
            rank: spec.rank,
            kind: Kind::Batch,
            grace_ms: spec.grace_ms.unwrap_or(set.grace_ms),
            checkpoint_interval_ms: spec.checkpoint_interval_ms,
            // Nobody reports checkpoints here: what saves at all has saved when it leaves.
            checkpoint_on_signal: spec.checkpoint_on_signal
                || spec.checkpoint_interval_ms.is_some(),
            max_runtime_ms: spec.max_runtime_ms,
            cpus: None,
            memory_bytes: None,
            env: BTreeMap::new(),
            workdir: None,
            labels: BTreeMap::new(),
            after: Vec::new(),
            element: None,
            command: vec!["./train.sh".into()],
        }
    }

    fn outcome(&self, workload: u64) -> Outcome {
        // Numbers are given in the order of submission.
        match self.scenario.workloads[workload as usize - 1].ends {
            Ends::Completed => Outcome::Completed,
            Ends::Failed => Outcome::Failed,
            Ends::Cancelled => Outcome::Cancelled,
        }
    }

    fn running_on(&self, host: &str) -> BTreeSet<(u64, u32)> {
        let on = |one: &bursar_site::Attempt| one.placement.iter().any(|(name, _)| name == host);
        let wanted = self.site.wanted();
        wanted
            .filter(|(_, one, _)| on(one))
            .map(|(work, one, _)| (work.number, one.number))
            .collect()
    }

    fn stop(&mut self, workload: u64, attempt: u32, outcome: Outcome) -> Result<(), Failure> {
        let (ended_ms, exit_code, detail) = (None, Some(0), None);
        self.put(Body::Stopped {
            workload,
            attempt,
            outcome,
            ended_ms,
            exit_code,
            detail,
            run: None,
        })?;
        if outcome == Outcome::Left {
            let work = self.site.work(workload).ok_or("it is there")?;
            let latest = work.latest().ok_or("it ran")?;
            let ran = latest.ended_ms.zip(latest.started_ms).map_or(0, |(end, start)| end - start);
            let kept = ran.saturating_sub(latest.lost_gpu_ms / latest.gpus().max(1));
            let left = self.left_ms.entry(workload).or_default();
            *left = left.saturating_sub(kept).max(1);
        }
        Ok(())
    }

    /// Plans, starts and tells to leave until nothing more is to be done at this moment.
    fn settle(&mut self) -> Result<(), Failure> {
        loop {
            let planned = self.site.plan(self.now_ms);
            let body = Body::Planned { decisions: planned.decisions, hash: planned.hash };
            let seq = self.site.seq() + 1;
            self.unwritten.push(Record { seq, at_ms: self.now_ms, actor: None, body });
            self.site.planned(seq);
            let wanted: Vec<(u64, u32, bool, Wanted)> = self
                .site
                .wanted()
                .map(|(work, one, wanted)| {
                    (work.number, one.number, one.started_ms.is_some(), wanted)
                })
                .collect();
            let mut changed = false;
            for (workload, attempt, runs, wanted) in wanted {
                match wanted {
                    Wanted::Run if !runs => {
                        let left = self.left_ms.get(&workload).copied().unwrap_or(1);
                        self.ends.insert((self.now_ms + left, workload, attempt));
                        self.put(Body::Started { workload, attempt, since_ms: None })?;
                        changed = true;
                    }
                    Wanted::Run => {}
                    Wanted::Leave { by_ms } => {
                        self.ends.retain(|end| (end.1, end.2) != (workload, attempt));
                        self.leaves.insert((by_ms.max(self.now_ms + 1), workload, attempt));
                    }
                    Wanted::Stop { .. } => {
                        self.ends.retain(|end| (end.1, end.2) != (workload, attempt));
                        self.stop(workload, attempt, Outcome::Failed)?;
                        changed = true;
                    }
                }
            }
            if self.unwritten.len() >= BATCH {
                self.write()?;
            }
            if !changed {
                return Ok(());
            }
        }
    }

    fn write(&mut self) -> Result<(), Failure> {
        Journal::append(&mut self.store, &self.unwritten)?;
        self.unwritten.clear();
        Ok(())
    }
}
