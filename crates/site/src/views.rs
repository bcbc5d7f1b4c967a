//! What people and engines are shown: read from the site, never changed.

use crate::site::Site;
use crate::terms::TermView;
use crate::work::{Attempt, Ending, Stage, Work};
use bursar_core::{HostState, Status, TimeMs, WaitReason, WorkloadIx};
use serde::Serialize;
use utoipa::ToSchema;

/// Where a workload stands, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Waits for other workloads to end.
    Waiting,
    /// In the queue.
    Queued,
    /// Its GPUs are held until the work on them has left.
    Held,
    /// The engine was told to start it.
    Starting,
    /// Runs and cannot be preempted.
    Protected,
    /// Runs and may be preempted.
    Interruptible,
    /// Was told to leave.
    Preempting,
    /// Has ended for good.
    Ended,
}

/// A budget and how it stands.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct BudgetView {
    /// Its path; empty for the root.
    pub path: String,
    /// Its weight among its siblings.
    pub share: f64,
    /// Its fraction of everything, for display.
    pub fraction: f64,
    /// Its usage ratio, with four decimals.
    pub usage_ratio: String,
    /// GPU-milliseconds charged within the lookback.
    #[schema(value_type = u64)]
    pub charged_gpu_ms: u128,
    /// GPU-milliseconds that its contracts still protect.
    #[schema(value_type = u64)]
    pub protected_gpu_ms: u128,
    /// GPU-milliseconds that it is allocated over lookback and horizon.
    #[schema(value_type = u64)]
    pub allocated_gpu_ms: u128,
    /// GPUs that it is charged for now.
    pub running_gpus: u64,
    /// Workloads that wait.
    pub waiting: u32,
    /// Its hard limit, in GPU-hours.
    pub limit_gpu_hours: Option<f64>,
    /// Hard limits that hold for a time, of those that hold now.
    pub terms: Vec<TermView>,
    /// Who owns it.
    pub owners: Vec<String>,
    /// Who may submit to it.
    pub members: Vec<String>,
}

/// A host and what is on it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostView {
    /// Its name.
    pub name: String,
    /// Its GPU model.
    pub model: String,
    /// How many GPUs it has.
    pub gpus: u32,
    /// How many run something.
    pub used: u32,
    /// `up`, `draining`, `drained` or `down`.
    pub state: &'static str,
    /// Why it drains or is down.
    pub reason: Option<String>,
    /// By when it would be empty if it were drained now: the last protection on it ends, plus grace.
    pub empty_by_ms: u64,
    /// The workloads on it.
    pub workloads: Vec<u64>,
}

/// What the engine should be doing about an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum Wanted {
    /// It should run: start it if it does not.
    Run,
    /// It should save and leave, and be gone by then (milliseconds since the site was created).
    Leave {
        /// When its grace ends.
        by_ms: u64,
    },
    /// It should be stopped at once.
    Stop {
        /// Why.
        reason: &'static str,
    },
}

impl Site {
    /// Where a workload stands.
    #[must_use]
    pub fn standing(&self, work: &Work) -> Standing {
        match work.stage {
            Stage::Waits => Standing::Waiting,
            Stage::Ended(_) => Standing::Ended,
            Stage::Live(place) => {
                let core = self.scheduler.state().workload(place);
                match core.status {
                    Status::Queued => Standing::Queued,
                    Status::Held => Standing::Held,
                    Status::Starting => Standing::Starting,
                    Status::Running if core.protected => Standing::Protected,
                    Status::Running => Standing::Interruptible,
                    Status::Preempting => Standing::Preempting,
                    Status::Ended => Standing::Ended,
                }
            }
        }
    }

    /// Budgets that a person may see, root first.
    #[must_use]
    pub fn budget_views(&self, user: &str) -> Vec<BudgetView> {
        let state = self.scheduler.state();
        let now = state.now();
        let mut waiting = vec![0u32; state.tree.len()];
        let mut running = vec![0u64; state.tree.len()];
        for place in self.places.keys() {
            let core = state.workload(*place);
            for node in state.tree.path(core.spec.budget) {
                match core.status {
                    Status::Queued | Status::Held => waiting[node.at()] += 1,
                    _ if core.allocated => running[node.at()] += u64::from(core.spec.gpus),
                    _ => {}
                }
            }
        }
        let visible = |path: &str| {
            self.budgets.is_root_owner(user)
                || self.budgets.is_member(user, path)
                || self.budgets.paths().any(|below| {
                    below.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'))
                        && self.budgets.is_member(user, below)
                })
        };
        (0..state.tree.len())
            .map(|at| bursar_core::BudgetIx(at as u32))
            .filter(|&node| node.at() == 0 || visible(self.budgets.path(node)))
            .map(|node| {
                let path = self.budgets.path(node);
                let doc = self.budgets.get(path);
                let account = state.ledger.account(node);
                BudgetView {
                    path: path.to_owned(),
                    share: doc.map_or(1.0, |doc| doc.share.0 as f64 / 1e6),
                    fraction: state.tree.fraction(node) as f64 / (1u64 << 32) as f64,
                    usage_ratio: state.ledger.usage_ratio(node, now).to_string(),
                    charged_gpu_ms: account.charged.sum(now),
                    protected_gpu_ms: state.ledger.committed_units(node, now),
                    allocated_gpu_ms: state.ledger.allocated(node, now) >> 32,
                    running_gpus: running[node.at()],
                    waiting: waiting[node.at()],
                    limit_gpu_hours: doc.and_then(|doc| doc.limit),
                    terms: self.term_views(path),
                    owners: doc.map_or_else(|| self.budgets.owners.clone(), |d| d.owners.clone()),
                    members: doc.map_or_else(Vec::new, |doc| doc.members.clone()),
                }
            })
            .collect()
    }

    /// All hosts.
    #[must_use]
    pub fn host_views(&self) -> Vec<HostView> {
        let state = self.scheduler.state();
        let view = |(doc, host): (&crate::record::HostDoc, &bursar_core::cluster::Host)| {
            let last = host.runs.iter().map(|&(place, _)| {
                let core = state.workload(place);
                if core.status == Status::Preempting {
                    core.leave_by
                } else {
                    core.protected_until.max(state.now()) + state.settings.grace
                }
            });
            HostView {
                name: doc.name.clone(),
                model: doc.model.clone(),
                gpus: doc.gpus,
                used: host.used,
                state: match host.state {
                    HostState::Up => "up",
                    HostState::Draining => "draining",
                    HostState::Drained => "drained",
                    HostState::Down => "down",
                },
                reason: self.host_reasons.get(&doc.name).map(|(reason, _)| reason.clone()),
                empty_by_ms: last.fold(state.now(), TimeMs::max).0,
                workloads: host.runs.iter().map(|&(place, _)| self.number_at(place)).collect(),
            }
        };
        self.created.hosts.iter().zip(state.cluster.hosts()).map(view).collect()
    }

    /// The state of a host, and whether it is its engine that says so; none if there is no such host. `near` is where
    /// it stands if the engine tells of hosts in the site's order: all of them are asked for in every round.
    #[must_use]
    pub fn host_state(&self, name: &str, near: usize) -> Option<(HostState, bool)> {
        let is_near = self.created.hosts.get(near).is_some_and(|host| host.name == name);
        let index = if is_near { bursar_core::HostIx(near as u32) } else { self.host_index(name)? };
        let state = self.scheduler.state().cluster.host(index).state;
        Some((state, self.host_reasons.get(name).is_some_and(|(_, by_engine)| *by_engine)))
    }

    /// Whether any workload waits for GPUs.
    pub fn anything_queued(&self) -> bool {
        let waits = |number: &u64| {
            let work = self.works.get(number);
            work.is_some_and(|work| work.latest().is_none_or(|one| one.ended_ms.is_some()))
        };
        self.places.values().any(waits)
    }

    /// Why a host is drained or down.
    pub fn host_reason(&self, name: &str) -> Option<&str> {
        self.host_reasons.get(name).map(|(why, _)| why.as_str())
    }

    /// What the engine should be doing: every attempt that is not known to have ended.
    pub fn wanted(&self) -> impl Iterator<Item = (&Work, &Attempt, Wanted)> {
        self.places.iter().filter_map(|(&place, number)| {
            let work = self.works.get(number)?;
            let attempt = work.latest().filter(|attempt| attempt.ended_ms.is_none())?;
            let wanted = self.wanted_of(work, place, attempt)?;
            Some((work, attempt, wanted))
        })
    }

    fn wanted_of(&self, work: &Work, place: WorkloadIx, attempt: &Attempt) -> Option<Wanted> {
        let state = self.scheduler.state();
        let core = state.workload(place);
        let too_old = || {
            let age = attempt.started_ms.map(|started| state.now().0.saturating_sub(started));
            work.declared.max_runtime_ms.zip(age).is_some_and(|(max, age)| age >= max)
        };
        match core.status {
            Status::Starting | Status::Running | Status::Preempting if work.cancelled => {
                Some(Wanted::Stop { reason: "cancelled" })
            }
            Status::Running | Status::Preempting if too_old() => {
                Some(Wanted::Stop { reason: "max_runtime" })
            }
            Status::Running if work.requeue_by_ms.is_some() => {
                work.requeue_by_ms.map(|by_ms| Wanted::Leave { by_ms })
            }
            Status::Starting | Status::Running => Some(Wanted::Run),
            Status::Preempting => Some(Wanted::Leave { by_ms: core.leave_by.0 }),
            Status::Queued | Status::Held | Status::Ended => None,
        }
    }

    /// The next moment at which an attempt is to be warned or has reached its max_runtime.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        let state = self.scheduler.state();
        let deadlines = self.wanted().flat_map(|(work, attempt, wanted)| {
            let ages = attempt.started_ms.zip(work.declared.max_runtime_ms);
            // At the end of its grace one that was to leave is ended.
            let leave = match wanted {
                Wanted::Leave { by_ms } => Some(by_ms),
                Wanted::Run | Wanted::Stop { .. } => None,
            };
            let warn = attempt
                .protected_until_ms
                .filter(|_| attempt.allocated)
                .map(|until| until.saturating_sub(self.created.settings.warn_before_ms));
            [ages.map(|(started, max)| started + max), leave, warn]
        });
        deadlines.flatten().filter(|&at| at > state.now().0).min()
    }

    /// GPU-milliseconds at the ledger's rate unit that all budgets were ever charged.
    #[must_use]
    pub fn charged_gpu_ms(&self) -> u128 {
        let state = self.scheduler.state();
        state.ledger.account(bursar_core::BudgetIx(0)).charged.total(state.now())
    }

    /// GPU-milliseconds of an attempt that are charged so far.
    #[must_use]
    pub fn charged_so_far(&self, attempt: &Attempt) -> u64 {
        match (attempt.ended_ms, attempt.started_ms) {
            (None, Some(started)) if attempt.allocated => {
                attempt.gpus() * self.now_ms().saturating_sub(started)
            }
            _ => attempt.charged_gpu_ms,
        }
    }

    /// How a workload ended, if it has.
    #[must_use]
    pub fn ending(&self, work: &Work) -> Option<Ending> {
        match work.stage {
            Stage::Ended(ending) => Some(ending),
            Stage::Waits | Stage::Live(_) => None,
        }
    }
}

pub(crate) fn until_of(reason: &WaitReason) -> Option<TimeMs> {
    match reason {
        WaitReason::Reserved { until } | WaitReason::Grace { until } => Some(*until),
        WaitReason::Order { until, .. } => *until,
        // Backing off ends then, but nothing is promised.
        WaitReason::BacksOff { .. } | WaitReason::Idle { .. } | WaitReason::Compared(_) => None,
    }
}
