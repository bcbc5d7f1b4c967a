//! The scheduler: events in, plans out. Simulator and daemon drive nothing but this.

use crate::cluster::Placement;
use crate::policy::{Decision, Plan, Policy, Victim};
use crate::reason::{EvictReason, WaitReason};
use crate::state::{PastRun, State, Stop, Taken};
use crate::tree::BudgetNode;
use crate::units::{BudgetIx, HostIx, TimeMs, WorkloadIx};
use crate::workload::{Refusal, WorkloadSpec};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A fact from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A workload was submitted.
    Submitted(Box<WorkloadSpec>),
    /// A waiting workload was cancelled by its owner.
    Cancelled(WorkloadIx),
    /// The engine runs the attempt that it was told to start.
    Started(WorkloadIx),
    /// The same, heard of late: it has run since a moment that lies behind.
    StartedAt(WorkloadIx, TimeMs),
    /// A workload that waits was found running, started by somebody else: where, and since when.
    Found(WorkloadIx, Placement, TimeMs),
    /// A run that is over is heard of only now: nobody decided it, and nobody saw it.
    Ran(PastRun),
    /// An attempt has stopped.
    Stopped(WorkloadIx, Stop),
    /// The same, heard of late: it stopped at a moment that lies behind, and is charged until then only.
    StoppedAt(WorkloadIx, Stop, TimeMs),
    /// A host failed.
    HostFailed(HostIx),
    /// A host is back in service.
    HostRepaired(HostIx),
    /// An operator (or a health check) drains a host.
    DrainRequested(HostIx),
    /// Shares of budgets, in millionths.
    SharesChanged(Vec<(BudgetIx, u64)>),
    /// A new budget tree: the root first, parents before children, siblings sorted by name.
    TreeChanged(Vec<BudgetNode>),
    /// Time has passed.
    Tick,
}

/// What an engine must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Start an attempt on the workload's placement.
    Start {
        /// Who.
        workload: WorkloadIx,
        /// The number of the attempt: starting it twice starts it once.
        attempt: u32,
    },
    /// Send the checkpoint signal; kill at `leave_by`.
    Preempt {
        /// Who.
        workload: WorkloadIx,
        /// The number of the attempt.
        attempt: u32,
        /// When its grace ends.
        leave_by: TimeMs,
    },
    /// A drained host is the repairer's.
    HandOver(HostIx),
}

/// Facts, and the policy that decides on them.
pub struct Scheduler {
    state: State,
    policy: Box<dyn Policy>,
    seen: usize,
}

impl Clone for Scheduler {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), policy: self.policy.clone_box(), seen: self.seen }
    }
}

impl Scheduler {
    /// A scheduler for an idle cluster.
    #[must_use]
    pub fn new(state: State, policy: Box<dyn Policy>) -> Self {
        Self { state, policy, seen: 0 }
    }

    /// The facts.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &dyn Policy {
        &*self.policy
    }

    /// Forgets the notices once the edge has read them.
    pub fn clear_notices(&mut self) {
        self.tell_policy();
        self.state.clear_notices();
        self.seen = 0;
    }

    fn tell_policy(&mut self) {
        while self.seen < self.state.notices().len() {
            let notice = self.state.notices()[self.seen].clone();
            self.policy.observe(&self.state, &notice);
            self.seen += 1;
        }
    }

    /// Takes in a fact. A submission returns the place of its workload.
    ///
    /// # Errors
    /// A [`Refusal`] leaves everything as it was, but for the clock.
    pub fn apply(&mut self, at: TimeMs, event: Event) -> Result<Option<WorkloadIx>, Refusal> {
        self.state.advance(at)?;
        let state = &mut self.state;
        let result = match event {
            Event::Submitted(spec) => state.submit(*spec).map(Some),
            Event::Cancelled(workload) => state.cancel(workload).map(|()| None),
            Event::Started(workload) => state.started(workload, at).map(|()| None),
            Event::StartedAt(workload, since) => state.started(workload, since).map(|()| None),
            Event::Found(workload, placement, since) => {
                state.found(workload, placement, since).map(|()| None)
            }
            Event::Ran(run) => state.ran(&run).map(|()| None),
            Event::Stopped(workload, stop) => state.stopped(workload, stop, at).map(|()| None),
            Event::StoppedAt(workload, stop, ended) => {
                state.stopped(workload, stop, ended).map(|()| None)
            }
            Event::HostFailed(host) => state.fail_host(host).map(|()| None),
            Event::HostRepaired(host) => state.repair_host(host).map(|()| None),
            Event::DrainRequested(host) => state.drain_host(host).map(|()| None),
            Event::SharesChanged(shares) => state.set_shares(&shares).map(|()| None),
            Event::TreeChanged(nodes) => match self.policy.rebuilt(state) {
                None => Err(Refusal::FixedTree),
                Some(_) => state.change_tree(nodes).map(|()| {
                    self.policy = self.policy.rebuilt(state).expect("it could a moment ago");
                    None
                }),
            },
            Event::Tick => Ok(None),
        };
        self.tell_policy();
        result
    }

    /// What should be done now. Changes nothing: the decisions are found by committing each to a copy.
    #[must_use]
    pub fn plan(&self) -> Plan {
        let mut copy = self.clone();
        let mut plan = Plan::default();
        while let Some(decision) = copy.decide() {
            copy.commit(&decision, &mut |_| {});
            plan.decisions.push(decision);
        }
        plan
    }

    /// The next decision, if any. [`Scheduler::plan`] is all of them; committing each as it comes gives
    /// the same, without the copy.
    pub fn decide(&mut self) -> Option<Decision> {
        let ready = self.state.held.iter().copied().find(|&held| self.state.is_ready(held));
        if let Some(workload) = ready {
            return Some(Decision::StartHeld { workload });
        }
        if let Some(decision) = self.decide_drains() {
            return Some(decision);
        }
        self.policy.decide(&self.state)
    }

    /// Rule 9: what may leave a draining host leaves; an empty one is drained.
    fn decide_drains(&self) -> Option<Decision> {
        self.state.draining.iter().find_map(|&host| {
            let facts = self.state.cluster.host(host);
            let leaves = facts.runs.iter().map(|&(index, _)| index).filter(|&index| {
                let workload = self.state.workload(index);
                workload.status == crate::workload::Status::Running && !workload.protected
            });
            let victim = leaves.min_by_key(|&index| self.state.workload(index).spec.tie);
            if let Some(workload) = victim {
                return Some(Decision::Evict(Victim {
                    workload,
                    reason: EvictReason::Drain { host },
                }));
            }
            (facts.used + facts.held + facts.starting == 0).then_some(Decision::Drained(host))
        })
    }

    /// Commits one decision; the engine's part of it goes to `command`.
    pub fn commit(&mut self, decision: &Decision, command: &mut impl FnMut(Command)) {
        match decision {
            Decision::Start { workload, placement, allocated, reason, victims } => {
                for victim in victims {
                    self.evict(victim, command);
                }
                let evicts = !victims.is_empty();
                let taken =
                    self.state.hold(*workload, placement.clone(), *allocated, *reason, evicts);
                if taken == Taken::AtOnce {
                    let attempt = self.state.workload(*workload).attempt;
                    command(Command::Start { workload: *workload, attempt });
                }
            }
            Decision::StartHeld { workload } => self.order_start(*workload, command),
            Decision::Evict(victim) => self.evict(victim, command),
            Decision::Drained(host) => {
                self.state.finish_drain(*host);
                command(Command::HandOver(*host));
            }
            Decision::Reserve(reservation) => self.state.reserve(reservation.clone()),
            Decision::Unreserve { holder } => {
                self.state.drop_reservation(*holder);
            }
        }
        self.tell_policy();
    }

    fn order_start(&mut self, workload: WorkloadIx, command: &mut impl FnMut(Command)) {
        self.state.order_start(workload);
        let attempt = self.state.workload(workload).attempt;
        command(Command::Start { workload, attempt });
    }

    fn evict(&mut self, victim: &Victim, command: &mut impl FnMut(Command)) {
        self.state.evict(victim.workload, victim.reason);
        let workload = self.state.workload(victim.workload);
        let (attempt, leave_by) = (workload.attempt, workload.leave_by);
        command(Command::Preempt { workload: victim.workload, attempt, leave_by });
    }

    /// The next moment at which something could be decided although nothing happens before.
    pub fn next_wake(&mut self) -> TimeMs {
        let ends = self.state.next_known_change().unwrap_or(TimeMs::NEVER);
        ends.min(self.policy.next_wake(&self.state))
    }

    /// What a waiting workload waits for (rule 11).
    #[must_use]
    pub fn why(&self, workload: WorkloadIx) -> WaitReason {
        self.policy.why(&self.state, workload)
    }
}
