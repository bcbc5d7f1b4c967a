//! The facts: hosts, live workloads, budgets, and what follows from them. Changed by the scheduler
//! only, one event or committed decision at a time; every change leaves a [`Notice`].

use crate::cluster::{Cluster, HostSpec, HostState, Placement, Was};
use crate::ledger::{Change, Ledger};
use crate::policy::Reservation;
use crate::reason::{EvictReason, StartReason};
use crate::tree::Tree;
use crate::units::{BudgetIx, HostIx, SpanMs, TimeMs, WorkloadIx};
use crate::workload::{Refusal, Status, Workload, WorkloadSpec};
use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// The cluster-wide numbers of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

/// All facts at one moment.
#[derive(Clone, Debug)]
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
    protection_ends: BinaryHeap<Reverse<(TimeMs, WorkloadIx)>>,
    /// Hosts that drain.
    pub draining: Vec<HostIx>,
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
        Self {
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
            protection_ends: BinaryHeap::new(),
            draining: Vec::new(),
            notices: Vec::new(),
        }
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

    /// Running workloads that are neither protected nor leaving, in no particular order.
    #[must_use]
    pub fn takeable(&self) -> &[WorkloadIx] {
        &self.takeable
    }

    /// Whether work of `leaf` that is neither protected nor leaving has a lower rank than `rank`.
    #[must_use]
    pub fn has_lower_rank(&self, leaf: BudgetIx, rank: i32) -> bool {
        let place = self.tree.leaf_place(leaf).expect("a leaf");
        self.takeable_ranks[place].first_key_value().is_some_and(|(&lowest, _)| lowest < rank)
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
        let budget = workload.spec.budget;
        let contract =
            u128::from(workload.spec.gpus) * u128::from(rate) * u128::from(workload.protection().0);
        workload.spec.min_runtime > SpanMs::ZERO
            && self.tree.fraction(budget) > 0
            && self.has_room(budget, contract)
    }

    /// Whether every hard limit above (and of) `budget` has room for `contract` more units.
    #[must_use]
    pub fn has_room(&self, budget: BudgetIx, contract: u128) -> bool {
        self.tree.path(budget).all(|node| {
            let Some(limit) = self.tree.node(node).limit_units else { return true };
            self.ledger.taken_units(node, self.now) + contract <= limit
        })
    }

    /// Moves the clock; protections that have ended by then end in order.
    pub(crate) fn advance(&mut self, at: TimeMs) -> Result<(), Refusal> {
        if at < self.now {
            return Err(Refusal::InThePast { at, now: self.now });
        }
        while let Some(&Reverse((ends, workload))) = self.protection_ends.peek() {
            if ends > at {
                break;
            }
            self.protection_ends.pop();
            if self.is_protected_until(workload, ends) {
                self.now = ends;
                self.end_protection(workload);
                self.notices.push(Notice::ProtectionEnded(workload));
                self.add_takeable(workload);
            }
        }
        self.now = at;
        Ok(())
    }

    /// The next moment at which a protection ends.
    pub(crate) fn next_protection_end(&mut self) -> TimeMs {
        while let Some(&Reverse((ends, workload))) = self.protection_ends.peek() {
            if self.is_protected_until(workload, ends) {
                return ends;
            }
            self.protection_ends.pop();
        }
        TimeMs::NEVER
    }

    /// A moment at or before the next end of a protection.
    pub(crate) fn first_protection_end(&self) -> Option<TimeMs> {
        self.protection_ends.peek().map(|&Reverse((ends, _))| ends)
    }

    /// Whether an entry of `protection_ends` is still true: the attempt may have stopped, and its place
    /// may be another's by now.
    fn is_protected_until(&self, workload: WorkloadIx, ends: TimeMs) -> bool {
        let workload = &self.workloads[workload.at()];
        workload.protected && workload.protected_until == ends
    }

    fn end_protection(&mut self, index: WorkloadIx) {
        let workload = &mut self.workloads[index.at()];
        workload.protected = false;
        let (budget, units, until) =
            (workload.spec.budget, workload.units, workload.protected_until);
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

    /// Commits a start: the contract counts, victims were told to leave before. GPUs that are idle enough
    /// are taken at once, and the engine is to be told; otherwise they are held until the rest is gone.
    /// Says which.
    pub(crate) fn hold(
        &mut self,
        index: WorkloadIx,
        placement: Placement,
        allocated: bool,
        reason: StartReason,
        evicts: bool,
    ) -> Taken {
        let idle_now =
            !evicts && placement.iter().all(|&(host, gpus)| self.cluster.host(host).idle() >= gpus);
        let awaits = if idle_now {
            self.cluster.begin_start_on_idle(&placement);
            Placement::new()
        } else {
            self.cluster.hold(&placement)
        };
        let pool = self.cluster.host(placement[0].0).pool;
        let rate = self.cluster.rate(pool);
        let workload = &mut self.workloads[index.at()];
        debug_assert_eq!(workload.status, Status::Queued);
        workload.status = Status::Held;
        workload.awaits = awaits;
        workload.units = u64::from(workload.spec.gpus) * rate;
        workload.placement = placement;
        workload.allocated = allocated;
        workload.decided = self.now;
        workload.start_reason = Some(reason);
        workload.evict_reason = None;
        if allocated {
            let contract = u128::from(workload.units) * u128::from(workload.protection().0);
            self.ledger.commit(&self.tree, workload.spec.budget, contract);
        }
        self.notices.push(Notice::Dequeued(index));
        self.workloads[index.at()].promised = self.drop_reservation(index);
        if idle_now {
            self.mark_starting(index);
            Taken::AtOnce
        } else {
            self.held.push(index);
            Taken::Held
        }
    }

    /// Whether all that a held workload waits for is gone.
    pub(crate) fn is_ready(&self, index: WorkloadIx) -> bool {
        self.workloads[index.at()].awaits.is_empty()
    }

    /// GPUs of one who was told to leave have come free: those who await them are served in the order in
    /// which they were decided, so that nobody waits for a grace that began after its own.
    fn serve(&mut self, host: HostIx, mut gpus: u32) {
        for at in 0..self.held.len() {
            let awaits = &mut self.workloads[self.held[at].at()].awaits;
            let Some(place) = awaits.iter().position(|&(other, _)| other == host) else { continue };
            let served = gpus.min(awaits[place].1);
            awaits[place].1 -= served;
            if awaits[place].1 == 0 {
                awaits.swap_remove(place);
            }
            gpus -= served;
            self.cluster.serve(host, served);
            if gpus == 0 {
                return;
            }
        }
    }

    /// The engine is told to start a held workload: a new attempt.
    pub(crate) fn order_start(&mut self, index: WorkloadIx) {
        self.held.retain(|&held| held != index);
        self.cluster.begin_start(&self.workloads[index.at()].placement);
        self.mark_starting(index);
    }

    fn mark_starting(&mut self, index: WorkloadIx) {
        let workload = &mut self.workloads[index.at()];
        workload.status = Status::Starting;
        workload.attempt += 1;
        self.starting.push(index);
    }

    /// The engine says that the attempt runs, from now on.
    pub(crate) fn started(&mut self, index: WorkloadIx) -> Result<(), Refusal> {
        let now = self.now;
        if self.workloads[index.at()].status != Status::Starting {
            return Err(Refusal::WrongState(index, "it was not told to start"));
        }
        let workload = &mut self.workloads[index.at()];
        let protection = workload.protection();
        workload.status = Status::Running;
        workload.promised = None;
        workload.started = now;
        let (budget, units) = (workload.spec.budget, workload.units);
        if workload.allocated {
            workload.protected_until = now + protection;
            workload.protected = true;
            let until = workload.protected_until;
            let contract = u128::from(units) * u128::from(protection.0);
            self.ledger.uncommit(&self.tree, budget, contract);
            self.ledger.start(&self.tree, budget, units, until, now);
            self.protection_ends.push(Reverse((until, index)));
        } else {
            workload.protected_until = now;
            self.ledger.unallocated(&self.tree, budget, units, Change::More, now);
        }
        let workload = &self.workloads[index.at()];
        self.starting.retain(|&starting| starting != index);
        self.cluster.end_start(&workload.placement);
        self.cluster.occupy(index, &workload.placement, workload.allocated);
        let allocated = workload.allocated;
        self.notices.push(Notice::Started(index));
        if !allocated {
            self.add_takeable(index);
        }
        Ok(())
    }

    /// Commits an eviction: the attempt is told to leave within its grace.
    pub(crate) fn evict(&mut self, index: WorkloadIx, reason: EvictReason) {
        if self.workloads[index.at()].protected {
            // Only policies without contracts, and operators who override one, come here.
            self.end_protection(index);
        } else {
            self.remove_takeable(index);
        }
        let grace = self.settings.grace;
        let workload = &mut self.workloads[index.at()];
        workload.status = Status::Preempting;
        workload.evict_reason = Some(reason);
        workload.leave_by = self.now + workload.spec.grace.unwrap_or(grace).min(grace);
        self.cluster.mark_dying(&workload.placement, workload.allocated);
        self.notices.push(Notice::Preempted(index));
    }

    /// The engine says that an attempt has stopped.
    pub(crate) fn stopped(&mut self, index: WorkloadIx, stop: Stop) -> Result<(), Refusal> {
        if index.at() >= self.workloads.len() {
            return Err(Refusal::Unknown("workload", index.0));
        }
        match self.workloads[index.at()].status {
            Status::Running | Status::Preempting => self.vacate(index),
            Status::Starting => self.drop_hold(index),
            Status::Queued | Status::Held | Status::Ended => {
                return Err(Refusal::WrongState(index, "it has no attempt to stop"));
            }
        }
        self.notices.push(Notice::Stopped(index, stop));
        let resumable = self.workloads[index.at()].spec.resumable;
        match stop {
            Stop::Completed => self.end(index, End::Completed),
            Stop::Failed => self.end(index, End::Failed),
            Stop::Cancelled => self.end(index, End::Cancelled),
            Stop::Left | Stop::HostFailed if resumable => self.requeue(index, stop),
            Stop::Left => self.end(index, End::Terminated),
            Stop::HostFailed => self.end(index, End::HostFailed),
        }
        Ok(())
    }

    /// Takes a running attempt off its hosts and ends its charge.
    fn vacate(&mut self, index: WorkloadIx) {
        let now = self.now;
        let was_dying = self.workloads[index.at()].status == Status::Preempting;
        if self.workloads[index.at()].protected {
            self.end_protection(index);
        } else if !was_dying {
            self.remove_takeable(index);
        }
        let workload = &mut self.workloads[index.at()];
        let placement = core::mem::take(&mut workload.placement);
        let (budget, units) = (workload.spec.budget, workload.units);
        if workload.allocated {
            self.ledger.stop(&self.tree, budget, units, now);
        } else {
            self.ledger.unallocated(&self.tree, budget, units, Change::Less, now);
        }
        let was = match (was_dying, workload.allocated) {
            (true, _) => Was::Dying,
            (false, false) => Was::Unallocated,
            (false, true) => Was::Allocated,
        };
        self.cluster.vacate(index, &placement, was);
        if was_dying {
            for &(host, gpus) in &placement {
                self.serve(host, gpus);
            }
        }
        self.workloads[index.at()].left = placement;
    }

    /// Back into the queue with its first submission time (rule 6); unallocated work that is preempted
    /// again and again backs off.
    fn requeue(&mut self, index: WorkloadIx, stop: Stop) {
        let now = self.now;
        let workload = &mut self.workloads[index.at()];
        workload.status = Status::Queued;
        workload.queued_since = now;
        workload.backs_off_until = now;
        let preempted = matches!(stop, Stop::Left)
            && workload.evict_reason.is_some_and(|reason| reason.by().is_some());
        if !workload.allocated && preempted {
            workload.unallocated_preemptions += 1;
            workload.backs_off_until = now + back_off(workload.unallocated_preemptions);
        } else {
            workload.unallocated_preemptions = 0;
        }
        self.notices.push(Notice::Requeued(index));
    }

    /// Gives back the GPUs and the contract of a decided start.
    fn drop_hold(&mut self, index: WorkloadIx) {
        self.held.retain(|&held| held != index);
        let workload = &mut self.workloads[index.at()];
        let placement = core::mem::take(&mut workload.placement);
        if workload.status == Status::Starting {
            self.starting.retain(|&starting| starting != index);
            self.cluster.end_start(&placement);
        } else {
            let awaits = core::mem::take(&mut workload.awaits);
            self.cluster.unhold(&placement, &awaits);
        }
        if workload.allocated {
            let contract = u128::from(workload.units) * u128::from(workload.protection().0);
            self.ledger.uncommit(&self.tree, workload.spec.budget, contract);
        }
        self.notices.push(Notice::Released(index));
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

    /// Those decided for a host that can no longer take them.
    fn held_on(&self, host: HostIx) -> Vec<WorkloadIx> {
        self.held.iter().copied().filter(|&index| self.is_placed_on(index, host)).collect()
    }

    /// Starts on a host that the engine has not confirmed.
    fn starting_on(&self, host: HostIx) -> Vec<WorkloadIx> {
        self.starting.iter().copied().filter(|&index| self.is_placed_on(index, host)).collect()
    }

    fn is_placed_on(&self, index: WorkloadIx, host: HostIx) -> bool {
        self.workloads[index.at()].placement.iter().any(|&(other, _)| other == host)
    }

    /// What was decided and will not come waits again where it was. A promise that the decision kept stands
    /// again; its hosts are lost, so it is made anew (rule 7).
    fn release(&mut self, decided: &[WorkloadIx]) {
        for &index in decided {
            self.drop_hold(index);
            let workload = &mut self.workloads[index.at()];
            workload.status = Status::Queued;
            let promised = workload.promised.take();
            self.notices.push(Notice::Requeued(index));
            if let Some(promise) = promised {
                self.reserve(Reservation { placement: Placement::new(), ..promise });
            }
        }
    }

    fn capacity_changed(&mut self) {
        let capacity = self.cluster.capacity_units();
        self.ledger.set_allocation(&self.tree, capacity, self.now);
    }

    fn known_host(&self, host: HostIx) -> Result<HostState, Refusal> {
        let found = self.cluster.hosts().get(host.at()).map(|host| host.state);
        found.ok_or(Refusal::Unknown("host", host.0))
    }

    /// Rule 9: a host failed. What ran on it has stopped.
    pub(crate) fn fail_host(&mut self, host: HostIx) -> Result<(), Refusal> {
        if self.known_host(host)? == HostState::Down {
            return Ok(());
        }
        self.release(&self.held_on(host));
        self.release(&self.starting_on(host));
        let runs: Vec<WorkloadIx> =
            self.cluster.host(host).runs.iter().map(|&(index, _)| index).collect();
        self.notices.push(Notice::HostDown(host));
        self.draining.retain(|&other| other != host);
        self.cluster.set_state(host, HostState::Down);
        for index in runs {
            self.stopped(index, Stop::HostFailed)?;
        }
        self.capacity_changed();
        Ok(())
    }

    /// A host is back in service, or its drain is called off.
    pub(crate) fn repair_host(&mut self, host: HostIx) -> Result<(), Refusal> {
        if self.known_host(host)? == HostState::Up {
            return Ok(());
        }
        self.draining.retain(|&other| other != host);
        self.cluster.set_state(host, HostState::Up);
        self.notices.push(Notice::HostUp(host));
        self.capacity_changed();
        Ok(())
    }

    /// Rule 9: a host takes no new work from now on.
    pub(crate) fn drain_host(&mut self, host: HostIx) -> Result<(), Refusal> {
        if self.known_host(host)? != HostState::Up {
            return Ok(());
        }
        self.release(&self.held_on(host));
        self.cluster.set_state(host, HostState::Draining);
        self.draining.push(host);
        self.draining.sort_unstable();
        self.notices.push(Notice::DrainStarted(host));
        Ok(())
    }

    /// Rule 9: a draining host is empty and leaves service.
    pub(crate) fn finish_drain(&mut self, host: HostIx) {
        self.draining.retain(|&other| other != host);
        self.cluster.set_state(host, HostState::Drained);
        self.notices.push(Notice::Drained(host));
        self.capacity_changed();
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

/// How long unallocated work waits after its `count`-th preemption in a row: not at all after the first
/// two, then 1, 2, 4 … minutes, at most an hour.
fn back_off(count: u32) -> SpanMs {
    match count {
        0..=2 => SpanMs::ZERO,
        _ => SpanMs::minutes(1 << (count - 3).min(6)).min(SpanMs::hours(1)),
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
