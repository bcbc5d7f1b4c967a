//! The facts: hosts, live workloads, budgets, and what follows from them. Changed by the scheduler
//! only, one event or committed decision at a time; every change leaves a [`Notice`].

mod attempts;
mod budgets;
mod hosts;

use crate::cluster::{Cluster, HostSpec};
use crate::ledger::{Change, Ledger};
use crate::policy::Reservation;
use crate::tree::Tree;
use crate::units::{BudgetIx, HostIx, SpanMs, TimeMs, WorkloadIx};
use crate::workload::{Refusal, Status, Workload, WorkloadSpec};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

/// The cluster-wide numbers of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Settings {
    /// W: over how long occupancy is compared with allocation.
    pub lookback: SpanMs,
    /// H: the longest contract.
    pub horizon: SpanMs,
    /// How long a preempted workload has to save and leave.
    pub grace: SpanMs,
    /// By how much the beneficiary's side must stay below after a swap, in millionths; never 0.
    pub margin_ppm: u64,
    /// How many reservations there may be at a time.
    pub reservations: u32,
    /// A: after waiting this long, a reservation counts any side above its own.
    pub reservation_age: SpanMs,
    /// How many hosts, the last declared, take only debug contracts and unallocated work.
    pub debug_hosts: u32,
}

impl Settings {
    /// The longest contract that counts as a debug run (rule 8).
    pub const DEBUG_RUNTIME_MAX: SpanMs = SpanMs::minutes(15);
}

/// How an attempt ended, as its engine saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It finished its work.
    Completed,
    /// It ended with an error, or at its max_runtime.
    Failed,
    /// Its owner cancelled it.
    Cancelled,
    /// It left after it was told to.
    Left,
    /// A host of it failed.
    HostFailed,
}

/// How a workload ended for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It finished its work.
    Completed,
    /// It ended with an error, or at its max_runtime.
    Failed,
    /// Its owner cancelled it.
    Cancelled,
    /// It was preempted and cannot be resumed.
    Terminated,
    /// A host of it failed and it cannot be resumed.
    HostFailed,
}

/// A run that is over and that nobody decided: what it is charged is all that is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastRun {
    /// Whose it was: a leaf.
    pub budget: BudgetIx,
    /// One of the hosts that it ran on: its rate counts.
    pub host: HostIx,
    /// With how many GPUs.
    pub gpus: u32,
    /// What it had declared.
    pub min_runtime: SpanMs,
    /// What of that its limit left: its contract.
    pub protection: SpanMs,
    /// When it began.
    pub since: TimeMs,
    /// When it ended.
    pub ended: TimeMs,
}

/// How a decided start gets its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// They were idle: the engine is to be told.
    AtOnce,
    /// It waits until others are gone.
    Held,
}

/// What just changed, in the order in which it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A workload entered the queue for the first time.
    Submitted(WorkloadIx),
    /// A workload left the queue: decided, or cancelled.
    Dequeued(WorkloadIx),
    /// A workload is back in the queue after its attempt (or its hold) ended.
    Requeued(WorkloadIx),
    /// A decided start will not come: its GPUs are given back.
    Released(WorkloadIx),
    /// An attempt runs.
    Started(WorkloadIx),
    /// An attempt's protection ended by time.
    ProtectionEnded(WorkloadIx),
    /// An attempt was told to leave.
    Preempted(WorkloadIx),
    /// An attempt ended, whatever follows for its workload.
    Stopped(WorkloadIx, Stop),
    /// What was charged before now is other than was known (a start, an end or a whole run that was heard of late).
    Corrected(BudgetIx),
    /// A workload ended for good. Its place may be used again once the notices are taken.
    Ended(WorkloadIx, End),
    /// Hosts are reserved, or reserved anew.
    Reserved(WorkloadIx),
    /// A reservation is gone.
    Unreserved(WorkloadIx),
    /// A host failed.
    HostDown(HostIx),
    /// A host is back in service.
    HostUp(HostIx),
    /// A host takes no new work.
    DrainStarted(HostIx),
    /// A draining host is empty and out of service.
    Drained(HostIx),
    /// Fractions changed.
    SharesChanged,
    /// A hard limit began or ended that holds for a time.
    TermsChanged,
}

/// All facts at one moment.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct State {
    now: TimeMs,
    /// The cluster-wide numbers.
    pub settings: Settings,
    /// Hosts and who is on them.
    pub cluster: Cluster,
    /// Budgets.
    pub tree: Tree,
    /// What budgets were charged and allocated.
    pub ledger: Ledger,
    workloads: Vec<Workload>,
    free_places: Vec<WorkloadIx>,
    ended_places: Vec<WorkloadIx>,
    /// Decided, waiting for others to leave; in the order of decision.
    pub held: Vec<WorkloadIx>,
    /// The engine was told to start them and has not confirmed it.
    pub starting: Vec<WorkloadIx>,
    /// Running, not protected, not told to leave; in no particular order.
    takeable: Vec<WorkloadIx>,
    takeable_places: Vec<u32>,
    /// GPUs of the unallocated ones among them.
    takeable_unallocated_gpus: u32,
    /// Per leaf the ranks of the allocated ones among them, with how many have each.
    takeable_ranks: Vec<BTreeMap<i32, u32>>,
    /// Standing reservations, oldest first.
    pub reservations: Vec<Reservation>,
    /// When protections end, and whose.
    protection_ends: BTreeSet<(TimeMs, WorkloadIx)>,
    /// When the next term begins or ends.
    next_turn: Option<TimeMs>,
    /// Hosts that drain.
    pub draining: Vec<HostIx>,
    // Taken before anything is written down.
    #[cfg_attr(feature = "serde", serde(skip))]
    notices: Vec<Notice>,
}

impl State {
    /// An idle cluster at moment 0.
    #[must_use]
    pub fn new(settings: Settings, hosts: &[HostSpec], rates: Vec<u64>, tree: Tree) -> Self {
        let cluster = Cluster::new(hosts, rates);
        let mut ledger = Ledger::new(&tree, settings.lookback, settings.horizon);
        ledger.set_allocation(&tree, cluster.capacity_units(), TimeMs(0));
        let takeable_ranks = vec![BTreeMap::new(); tree.leaves().len()];
        let mut state = Self {
            now: TimeMs(0),
            settings,
            cluster,
            tree,
            ledger,
            workloads: Vec::new(),
            free_places: Vec::new(),
            ended_places: Vec::new(),
            held: Vec::new(),
            starting: Vec::new(),
            takeable: Vec::new(),
            takeable_places: Vec::new(),
            takeable_unallocated_gpus: 0,
            takeable_ranks,
            reservations: Vec::new(),
            protection_ends: BTreeSet::new(),
            next_turn: None,
            draining: Vec::new(),
            notices: Vec::new(),
        };
        state.next_turn = state.turn_after(TimeMs(0));
        state
    }

    /// The moment of the latest event.
    #[must_use]
    pub const fn now(&self) -> TimeMs {
        self.now
    }

    /// A live workload.
    #[must_use]
    pub fn workload(&self, workload: WorkloadIx) -> &Workload {
        &self.workloads[workload.at()]
    }

    /// Workloads that wait and are not decided, in no particular order.
    pub fn waiting(&self) -> impl Iterator<Item = WorkloadIx> + '_ {
        let waits = |&at: &usize| self.workloads[at].status == Status::Queued;
        (0..self.workloads.len()).filter(waits).map(|at| WorkloadIx(at as u32))
    }

    /// Running workloads that are neither protected nor leaving, in no particular order.
    #[must_use]
    pub fn takeable(&self) -> &[WorkloadIx] {
        &self.takeable
    }

    /// The lowest rank of work of `leaf` that is neither protected nor leaving.
    #[must_use]
    pub fn lowest_rank(&self, leaf: BudgetIx) -> Option<i32> {
        let place = self.tree.leaf_place(leaf).expect("a leaf");
        self.takeable_ranks[place].first_key_value().map(|(&lowest, _)| lowest)
    }

    /// Whether work of `leaf` that is neither protected nor leaving has a lower rank than `rank`.
    #[must_use]
    pub fn has_lower_rank(&self, leaf: BudgetIx, rank: i32) -> bool {
        self.lowest_rank(leaf).is_some_and(|lowest| lowest < rank)
    }

    /// GPUs of running unallocated workloads that were not told to leave.
    #[must_use]
    pub const fn takeable_unallocated_gpus(&self) -> u32 {
        self.takeable_unallocated_gpus
    }

    /// What changed since the notices were last taken.
    #[must_use]
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// Forgets the notices; places of ended workloads may be used again from now on.
    pub fn clear_notices(&mut self) {
        self.notices.clear();
        self.free_places.append(&mut self.ended_places);
    }

    /// Rule 1: whether a start now would be charged: a contract, a funded budget, and room for the
    /// whole contract under every hard limit of the path.
    #[must_use]
    pub fn would_be_allocated(&self, workload: WorkloadIx, rate: u64) -> bool {
        let workload = self.workload(workload);
        let units = u64::from(workload.spec.gpus) * rate;
        let spec = &workload.spec;
        self.is_allocated(spec.budget, units, spec.min_runtime, workload.protection())
    }

    /// Rule 1, for so many units in a budget.
    fn is_allocated(
        &self,
        budget: BudgetIx,
        units: u64,
        min_runtime: SpanMs,
        protection: SpanMs,
    ) -> bool {
        let contract = u128::from(units) * u128::from(protection.0);
        min_runtime > SpanMs::ZERO
            && self.tree.fraction(budget) > 0
            && self.has_room(budget, contract)
    }

    /// Whether every hard limit above (and of) `budget` has room for `contract` more units.
    #[must_use]
    pub fn has_room(&self, budget: BudgetIx, contract: u128) -> bool {
        self.tree.path(budget).all(|node| {
            let room = self.ledger.room(&self.tree, node, self.now);
            room.is_ok_and(|room| room.is_none_or(|room| contract <= room))
        })
    }

    /// Moves the clock; protections that have ended by then end in order.
    pub(crate) fn advance(&mut self, at: TimeMs) -> Result<(), Refusal> {
        if at < self.now {
            return Err(Refusal::InThePast { at, now: self.now });
        }
        while let Some(turn) = self.next_turn.filter(|&turn| turn <= at) {
            self.end_protections(turn);
            self.now = turn;
            self.ledger.turn_terms(&self.tree, turn);
            self.next_turn = self.turn_after(turn);
            self.notices.push(Notice::TermsChanged);
        }
        self.end_protections(at);
        self.now = at;
        Ok(())
    }

    /// The next moment after one at which a term begins or ends.
    fn turn_after(&self, at: TimeMs) -> Option<TimeMs> {
        let nodes = (0..self.tree.len()).map(|node| self.tree.node(BudgetIx(node as u32)));
        let turns = nodes.flat_map(|node| &node.terms).flat_map(|term| [term.from, term.until]);
        turns.filter(|&turn| turn > at).min()
    }

    fn end_protections(&mut self, until: TimeMs) {
        while let Some(&(ends, workload)) = self.protection_ends.first() {
            if ends > until {
                break;
            }
            self.now = ends;
            self.end_protection(workload);
            self.notices.push(Notice::ProtectionEnded(workload));
            self.add_takeable(workload);
        }
    }

    /// The next moment at which a protection ends, or a term begins or ends.
    pub(crate) fn next_known_change(&self) -> Option<TimeMs> {
        let ends = self.protection_ends.first().map(|&(ends, _)| ends);
        ends.into_iter().chain(self.next_turn).min()
    }

    fn end_protection(&mut self, index: WorkloadIx) {
        let workload = &mut self.workloads[index.at()];
        workload.protected = false;
        let (budget, units, until) =
            (workload.spec.budget, workload.units, workload.protected_until);
        self.protection_ends.remove(&(until, index));
        self.ledger.unprotect(&self.tree, budget, units, until);
    }

    fn add_takeable(&mut self, index: WorkloadIx) {
        self.takeable_places[index.at()] = self.takeable.len() as u32;
        self.takeable.push(index);
        let workload = &self.workloads[index.at()];
        if workload.allocated {
            let (budget, gpus) = (workload.spec.budget, workload.spec.gpus);
            self.ledger.interruptible(&self.tree, budget, gpus, Change::More);
            let place = self.tree.leaf_place(budget).expect("a leaf");
            *self.takeable_ranks[place].entry(workload.spec.rank).or_insert(0) += 1;
        } else {
            self.takeable_unallocated_gpus += workload.spec.gpus;
        }
    }

    fn remove_takeable(&mut self, index: WorkloadIx) {
        let place = self.takeable_places[index.at()] as usize;
        self.takeable.swap_remove(place);
        if let Some(moved) = self.takeable.get(place) {
            self.takeable_places[moved.at()] = place as u32;
        }
        let workload = &self.workloads[index.at()];
        if workload.allocated {
            let (budget, gpus) = (workload.spec.budget, workload.spec.gpus);
            self.ledger.interruptible(&self.tree, budget, gpus, Change::Less);
            let place = self.tree.leaf_place(budget).expect("a leaf");
            let ranks = &mut self.takeable_ranks[place];
            let count = ranks.get_mut(&workload.spec.rank).expect("it was counted");
            *count -= 1;
            if *count == 0 {
                ranks.remove(&workload.spec.rank);
            }
        } else {
            self.takeable_unallocated_gpus -= workload.spec.gpus;
        }
    }

    /// Takes a declaration into the queue, or says why not.
    pub(crate) fn submit(&mut self, spec: WorkloadSpec) -> Result<WorkloadIx, Refusal> {
        self.check(&spec)?;
        let workload = Workload::new(spec, self.now);
        let index = if let Some(index) = self.free_places.pop() {
            self.workloads[index.at()] = workload;
            index
        } else {
            self.workloads.push(workload);
            self.takeable_places.push(0);
            WorkloadIx(self.workloads.len() as u32 - 1)
        };
        self.notices.push(Notice::Submitted(index));
        Ok(index)
    }

    fn check(&self, spec: &WorkloadSpec) -> Result<(), Refusal> {
        if spec.gpus == 0 {
            return Err(Refusal::NoGpus);
        }
        if spec.min_runtime > self.settings.horizon {
            let (min_runtime, horizon) = (spec.min_runtime, self.settings.horizon);
            return Err(Refusal::MinRuntimeAboveHorizon { min_runtime, horizon });
        }
        if spec.budget.at() >= self.tree.len() {
            return Err(Refusal::Unknown("budget", spec.budget.0));
        }
        if self.tree.leaf_place(spec.budget).is_none() {
            return Err(Refusal::NotALeaf(spec.budget));
        }
        if self.cluster.asks(spec.gpus, spec.shape, spec.model).next().is_none() {
            let largest = self.cluster.largest_gang(spec.model);
            return Err(Refusal::TooLarge { gpus: spec.gpus, largest });
        }
        Ok(())
    }

    /// A waiting workload leaves the queue for good.
    pub(crate) fn cancel(&mut self, index: WorkloadIx) -> Result<(), Refusal> {
        match self.workloads[index.at()].status {
            Status::Queued => self.notices.push(Notice::Dequeued(index)),
            Status::Held | Status::Starting => self.drop_hold(index),
            Status::Running | Status::Preempting | Status::Ended => {
                let why = "it does not wait: stop the attempt, then report that it stopped";
                return Err(Refusal::WrongState(index, why));
            }
        }
        self.drop_reservation(index);
        self.end(index, End::Cancelled);
        Ok(())
    }

    fn end(&mut self, index: WorkloadIx, end: End) {
        self.notices.push(Notice::Ended(index, end));
        self.ended_places.push(index);
        let workload = &mut self.workloads[index.at()];
        workload.status = Status::Ended;
    }

    /// Rule 7: hosts are reserved, in place of an older reservation of the same holder.
    pub(crate) fn reserve(&mut self, reservation: Reservation) {
        let holder = reservation.holder;
        match self.reservations.iter_mut().find(|other| other.holder == holder) {
            Some(other) => *other = reservation,
            None => self.reservations.push(reservation),
        }
        self.notices.push(Notice::Reserved(holder));
    }

    /// Forgets the reservation of a holder, if there is one.
    pub(crate) fn drop_reservation(&mut self, holder: WorkloadIx) -> Option<Reservation> {
        let at = self.reservations.iter().position(|reservation| reservation.holder == holder)?;
        self.notices.push(Notice::Unreserved(holder));
        Some(self.reservations.remove(at))
    }

    /// Changes shares from now on.
    pub(crate) fn set_shares(&mut self, shares: &[(BudgetIx, u64)]) -> Result<(), Refusal> {
        for &(node, share_micro) in shares {
            if node.at() == 0 || node.at() >= self.tree.len() {
                return Err(Refusal::Unknown("budget", node.0));
            }
            self.tree.set_share(node, share_micro);
        }
        self.ledger.set_allocation(&self.tree, self.cluster.capacity_units(), self.now);
        self.notices.push(Notice::SharesChanged);
        Ok(())
    }

    /// GPU-time per state of the GPUs, in GPUs at this moment (rule 12).
    #[must_use]
    pub fn occupancy(&self) -> Occupancy {
        let mut occupancy = Occupancy::default();
        for host in self.cluster.hosts() {
            if !host.in_service() {
                occupancy.out_of_service += u64::from(host.spec.gpus);
                continue;
            }
            occupancy.idle += u64::from(host.spec.gpus - host.used);
            for &(index, gpus) in &host.runs {
                if self.workload(index).allocated {
                    occupancy.allocated += u64::from(gpus);
                } else {
                    occupancy.unallocated += u64::from(gpus);
                }
            }
        }
        occupancy
    }
}

/// Where the GPUs are at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Charged to budgets.
    pub allocated: u64,
    /// Charged to nobody.
    pub unallocated: u64,
    /// In service and not occupied (held ones included).
    pub idle: u64,
    /// On hosts that are drained or down.
    pub out_of_service: u64,
}
