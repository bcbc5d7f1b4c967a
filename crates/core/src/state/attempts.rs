//! The life of an attempt: decided, held, started, told to leave, stopped (rules 1, 2, 5 and 6).

use super::{End, Notice, PastRun, State, Stop, Taken};
use crate::cluster::{HostState, Placement, Was};
use crate::ledger::Change;
use crate::reason::{EvictReason, StartReason};
use crate::units::{HostIx, SpanMs, TimeMs, WorkloadIx};
use crate::workload::{Refusal, Status};

impl State {
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
        self.commit(index, placement, allocated, reason);
        self.workloads[index.at()].awaits = awaits;
        if idle_now {
            self.mark_starting(index);
            Taken::AtOnce
        } else {
            self.held.push(index);
            Taken::Held
        }
    }

    /// Writes a start down whose GPUs are taken: the contract counts from now on.
    fn commit(
        &mut self,
        index: WorkloadIx,
        placement: Placement,
        allocated: bool,
        reason: StartReason,
    ) {
        let pool = self.cluster.host(placement[0].0).pool;
        let rate = self.cluster.rate(pool);
        let workload = &mut self.workloads[index.at()];
        debug_assert_eq!(workload.status, Status::Queued);
        workload.status = Status::Held;
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

    /// The engine says that the attempt has run since `since`: its contract and its charge begin there.
    pub(crate) fn started(&mut self, index: WorkloadIx, since: TimeMs) -> Result<(), Refusal> {
        let now = self.now;
        if self.workloads[index.at()].status != Status::Starting {
            return Err(Refusal::WrongState(index, "it was not told to start"));
        }
        let workload = &mut self.workloads[index.at()];
        let protection = workload.protection();
        workload.status = Status::Running;
        workload.promised = None;
        let since = since.clamp(workload.decided, now);
        workload.started = since;
        let (budget, units) = (workload.spec.budget, workload.units);
        if workload.allocated {
            workload.protected_until = since + protection;
            workload.protected = true;
            let until = workload.protected_until;
            let contract = u128::from(units) * u128::from(protection.0);
            self.ledger.uncommit(&self.tree, budget, contract);
            self.ledger.start(&self.tree, budget, units, until, now);
            self.protection_ends.insert((until, index));
        } else {
            workload.protected_until = since;
            self.ledger.unallocated(&self.tree, budget, units, Change::More, now);
        }
        let workload = &self.workloads[index.at()];
        self.starting.retain(|&starting| starting != index);
        self.cluster.end_start(&workload.placement);
        self.cluster.occupy(index, &workload.placement, workload.allocated);
        let (allocated, until) = (workload.allocated, workload.protected_until);
        self.notices.push(Notice::Started(index));
        if !allocated {
            self.add_takeable(index);
        } else if until <= now {
            self.end_protection(index);
            self.notices.push(Notice::ProtectionEnded(index));
            self.add_takeable(index);
        }
        self.correct(index, since, Change::More);
        Ok(())
    }

    /// Whether a workload that waits may be running on these GPUs, by our books: nobody else has them.
    ///
    /// # Errors
    /// A [`Refusal`] that says why not.
    pub fn check_found(&self, index: WorkloadIx, placement: &Placement) -> Result<(), Refusal> {
        let refuse = |why| Err(Refusal::WrongState(index, why));
        let Some(workload) = self.workloads.get(index.at()) else {
            return Err(Refusal::Unknown("workload", index.0));
        };
        if !matches!(workload.status, Status::Queued | Status::Held) {
            return refuse("it is found running, but it does not wait");
        }
        let gpus: u64 = placement.iter().map(|&(_, gpus)| u64::from(gpus)).sum();
        if placement.is_empty() || gpus != u64::from(workload.spec.gpus) {
            return refuse("it is found running on other than as many GPUs as it asks for");
        }
        let on = |placement: &Placement, host: HostIx| -> u32 {
            placement.iter().filter(|&&(other, _)| other == host).map(|&(_, gpus)| gpus).sum()
        };
        let mut pool = None;
        for &(host, _) in placement {
            let Some(facts) = self.cluster.hosts().get(host.at()) else {
                return Err(Refusal::Unknown("host", host.0));
            };
            if !matches!(facts.state, HostState::Up | HostState::Draining) {
                return refuse("it is found running on a host that is not in service");
            }
            // What is held for itself, and has come free.
            let held = workload.status == Status::Held;
            let own = on(&workload.placement, host) - on(&workload.awaits, host);
            if facts.free() + if held { own } else { 0 } < on(placement, host) {
                return refuse("it is found running on GPUs that others have");
            }
            if *pool.get_or_insert(facts.pool) != facts.pool {
                return refuse("it is found running on GPUs of several models");
            }
        }
        Ok(())
    }

    /// A workload that waits is found running: somebody else started it. It has its contract from its start on, as
    /// if we had.
    pub(crate) fn found(
        &mut self,
        index: WorkloadIx,
        placement: Placement,
        since: TimeMs,
    ) -> Result<(), Refusal> {
        self.check_found(index, &placement)?;
        let held = self.workloads[index.at()].status == Status::Held;
        let pool = self.cluster.host(placement[0].0).pool;
        if held {
            self.release(&[index]);
        }
        let rate = self.cluster.rate(pool);
        let allocated = self.would_be_allocated(index, rate);
        self.cluster.begin_start_on_idle(&placement);
        self.commit(index, placement, allocated, StartReason::Elsewhere);
        self.mark_starting(index);
        let workload = &mut self.workloads[index.at()];
        workload.decided = workload.decided.min(since);
        self.started(index, since)
    }

    /// Rule 1, for a run that is heard of when it is over: whether it is charged, by what is known now.
    #[must_use]
    pub fn past_run_is_allocated(&self, run: &PastRun) -> bool {
        let pool = self.cluster.host(run.host).pool;
        let units = u64::from(run.gpus) * self.cluster.rate(pool);
        self.is_allocated(run.budget, units, run.min_runtime, run.protection)
    }

    /// Charges a run that is heard of when it is over. Its GPUs are others' by now: only the books change.
    pub(crate) fn ran(&mut self, run: &PastRun) -> Result<(), Refusal> {
        if run.budget.at() >= self.tree.len() {
            return Err(Refusal::Unknown("budget", run.budget.0));
        }
        if self.tree.leaf_place(run.budget).is_none() {
            return Err(Refusal::NotALeaf(run.budget));
        }
        let Some(host) = self.cluster.hosts().get(run.host.at()) else {
            return Err(Refusal::Unknown("host", run.host.0));
        };
        let units = u64::from(run.gpus) * self.cluster.rate(host.pool);
        let allocated = self.past_run_is_allocated(run);
        let (now, budget) = (self.now, run.budget);
        let ended = run.ended.min(now);
        let since = run.since.min(ended);
        // Up to now, and from its end on not: a window is corrected from a moment up to now.
        let (more, less) = ((since, now), (ended, now));
        self.ledger.correct(&self.tree, budget, units, allocated, Change::More, more);
        self.ledger.correct(&self.tree, budget, units, allocated, Change::Less, less);
        self.notices.push(Notice::Corrected(budget));
        Ok(())
    }

    /// What ran since `from`, or did not, was charged from now on (or up to now) only.
    fn correct(&mut self, index: WorkloadIx, from: TimeMs, change: Change) {
        if from < self.now {
            let workload = &self.workloads[index.at()];
            let (budget, units, charged) =
                (workload.spec.budget, workload.units, workload.allocated);
            let span = (from, self.now);
            self.ledger.correct(&self.tree, budget, units, charged, change, span);
            self.notices.push(Notice::Corrected(budget));
        }
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

    /// The engine says that an attempt stopped at `ended`: it is charged until then.
    pub(crate) fn stopped(
        &mut self,
        index: WorkloadIx,
        stop: Stop,
        ended: TimeMs,
    ) -> Result<(), Refusal> {
        if index.at() >= self.workloads.len() {
            return Err(Refusal::Unknown("workload", index.0));
        }
        let never_ran = match self.workloads[index.at()].status {
            Status::Running | Status::Preempting => {
                self.vacate(index, ended);
                false
            }
            Status::Starting => {
                self.drop_hold(index);
                true
            }
            Status::Queued | Status::Held | Status::Ended => {
                return Err(Refusal::WrongState(index, "it has no attempt to stop"));
            }
        };
        self.notices.push(Notice::Stopped(index, stop));
        let resumable = self.workloads[index.at()].spec.resumable;
        match stop {
            Stop::Completed => self.end(index, End::Completed),
            Stop::Failed => self.end(index, End::Failed),
            Stop::Cancelled => self.end(index, End::Cancelled),
            Stop::Left | Stop::HostFailed if resumable => self.requeue(index, stop),
            Stop::Left => self.end(index, End::Terminated),
            // What never ran lost nothing that it would have to resume from.
            Stop::HostFailed if never_ran => self.requeue(index, stop),
            Stop::HostFailed => self.end(index, End::HostFailed),
        }
        Ok(())
    }

    /// Takes a running attempt off its hosts and ends its charge.
    fn vacate(&mut self, index: WorkloadIx, ended: TimeMs) {
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
        let workload = &mut self.workloads[index.at()];
        workload.left = placement;
        workload.ended = ended.clamp(workload.started, now);
        let ended = workload.ended;
        self.correct(index, ended, Change::Less);
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
    pub(super) fn drop_hold(&mut self, index: WorkloadIx) {
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
}

/// How long unallocated work waits after its `count`-th preemption in a row: not at all after the first
/// two, then 1, 2, 4 … minutes, at most an hour.
fn back_off(count: u32) -> SpanMs {
    match count {
        0..=2 => SpanMs::ZERO,
        _ => SpanMs::minutes(1 << (count - 3).min(6)).min(SpanMs::hours(1)),
    }
}
