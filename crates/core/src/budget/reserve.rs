//! Rule 7: a reservation is a promise. Hosts, and the moment T by which they hold nothing that the
//! holder may not take.

use super::BudgetPolicy;
use crate::cluster::{Ask, HostState, Placement};
use crate::policy::{Decision, Reservation};
use crate::state::State;
use crate::units::{BudgetIx, HostIx, SpanMs, TimeMs, WorkloadIx};
use crate::workload::{Status, Workload};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// From when on a holder may count the work of a leaf whose protection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Countable {
    /// Rule 6 allows the swap now.
    Now,
    /// The side's ratio is above the holder's: once the holder has waited `reservation_age`.
    Aged,
    /// Not at all.
    Never,
}

impl BudgetPolicy {
    /// Reservations that are due are taken; those on hosts that fail or drain are made anew; others are
    /// moved when that makes T earlier.
    pub(super) fn decide_reservations(&mut self, state: &State) -> Option<Decision> {
        for index in 0..state.reservations.len() {
            let reservation = state.reservations[index].clone();
            let holder = reservation.holder;
            let broken = reservation
                .placement
                .iter()
                .any(|&(host, _)| state.cluster.host(host).state != HostState::Up);
            if broken || !self.is_still_allocated(state, holder) {
                return Some(self.renew(state, &reservation));
            }
            if reservation.until <= state.now() {
                // Idle GPUs or legal victims elsewhere may disturb fewer; the promise stands behind.
                let decision = self.place(state, holder).or_else(|| {
                    self.take_reserved(state, holder, &reservation.placement, reservation.until)
                });
                return Some(decision.unwrap_or_else(|| self.renew(state, &reservation)));
            }
        }
        if core::mem::take(&mut self.may_move) {
            for reservation in &state.reservations {
                let found = self.find_reservation(state, reservation.holder, Some(reservation));
                if let Some(found) = found
                    && found.until < reservation.until
                {
                    return Some(Decision::Reserve(found));
                }
            }
        }
        None
    }

    fn is_still_allocated(&self, state: &State, holder: WorkloadIx) -> bool {
        let spec = &state.workload(holder).spec;
        let mut asks = state.cluster.asks(spec.gpus, spec.shape, spec.model);
        asks.any(|(pool, _)| state.would_be_allocated(holder, state.cluster.rate(pool)))
    }

    /// A reservation that can no longer be kept is made anew, even if later, or given up.
    fn renew(&self, state: &State, old: &Reservation) -> Decision {
        let holder = old.holder;
        if self.is_still_allocated(state, holder)
            && let Some(found) = self.find_reservation(state, holder, Some(old))
            && found.placement != old.placement
        {
            return Decision::Reserve(found);
        }
        Decision::Unreserve { holder }
    }

    /// The hosts that are the holder's earliest, and when. None when no hosts can be promised: too many
    /// hold work of sides that are not above the holder's own.
    pub(super) fn find_reservation(
        &self,
        state: &State,
        holder: WorkloadIx,
        old: Option<&Reservation>,
    ) -> Option<Reservation> {
        let spec = &state.workload(holder).spec;
        let found = state
            .cluster
            .asks(spec.gpus, spec.shape, spec.model)
            .filter_map(|(pool, ask)| self.earliest(state, holder, pool, ask))
            .min_by_key(|(until, _)| *until)?;
        let made = old.map_or(state.now(), |old| old.made);
        let (until, placement) = found;
        Some(Reservation { holder, placement, until, made })
    }

    fn earliest(
        &self,
        state: &State,
        holder: WorkloadIx,
        pool: usize,
        ask: Ask,
    ) -> Option<(TimeMs, Placement)> {
        let countable = self.countable(state, holder, state.cluster.rate(pool));
        let is_debug = Self::is_debug(state, holder, ask);
        let hosts: Vec<HostIx> = state.cluster.pools()[pool]
            .hosts
            .iter()
            .copied()
            .filter(|&host| self.may_reserve(state, host, holder, is_debug))
            .collect();
        let frees: Vec<Vec<(TimeMs, u32)>> =
            hosts.iter().map(|&host| Self::frees(state, holder, host, &countable)).collect();
        let until = if ask.is_single() {
            frees.iter().filter_map(|frees| time_for(frees, ask.single_gpus())).min()?
        } else {
            gang_time(&frees, ask)?
        };
        let mut available = vec![0; state.cluster.hosts().len()];
        for (host, frees) in hosts.iter().zip(&frees) {
            let by_then = frees.iter().filter(|&&(at, _)| at <= until);
            available[host.at()] = by_then.map(|&(_, gpus)| gpus).sum();
        }
        let placement = state.cluster.place(pool, ask, |host| available[host.at()])?;
        Some((until, placement))
    }

    /// Whether a host may be named in a reservation for `holder`: it is up, nobody else's, and not one
    /// of the debug hosts unless the holder may use those.
    fn may_reserve(&self, state: &State, host: HostIx, holder: WorkloadIx, is_debug: bool) -> bool {
        let others = self.reserved[host.at()]
            .checked_sub(1)
            .is_some_and(|index| state.reservations[index as usize].holder != holder);
        state.cluster.host(host).state == HostState::Up
            && !others
            && (is_debug || !Self::is_debug_host(state, host))
    }

    /// For each leaf whether, and from when on, its work counts once its protection has ended.
    fn countable(&self, state: &State, holder: WorkloadIx, rate: u64) -> Vec<Countable> {
        let workload = state.workload(holder);
        let leaf = workload.spec.budget;
        let contract = super::contract_units(workload.spec.gpus, rate, workload.protection());
        let mut sides = Vec::new();
        self.sides(state, leaf, contract, false, &mut sides);
        let mut countable = vec![Countable::Never; sides.len()];
        for mine in state.tree.path(leaf) {
            let Some(parent) = state.tree.parent(mine) else { break };
            let own = self.ratio(state, mine);
            let is_above = |theirs: BudgetIx| {
                own.compare(self.ratio(state, theirs)) == Ordering::Less
            };
            for &theirs in state.tree.children(parent) {
                if theirs != mine && is_above(theirs) {
                    countable[state.tree.leaves_below(theirs)].fill(Countable::Aged);
                }
            }
        }
        for (countable, side) in countable.iter_mut().zip(&sides) {
            if side.is_some() {
                *countable = Countable::Now;
            }
        }
        countable
    }

    /// When how many GPUs of a host are the holder's to take; GPUs that never are, are left out.
    fn frees(
        state: &State,
        holder: WorkloadIx,
        host: HostIx,
        countable: &[Countable],
    ) -> Vec<(TimeMs, u32)> {
        let facts = state.cluster.host(host);
        let now = state.now();
        let mut frees = vec![(now, facts.idle())];
        let mut dying = Vec::new();
        for &(other, gpus) in &facts.runs {
            let workload = state.workload(other);
            if workload.status == Status::Preempting {
                dying.push((workload.leave_by, gpus));
            } else if let Some(at) = Self::free_at(state, holder, workload, countable) {
                frees.push((at.max(now), gpus));
            }
        }
        // Of those who leave, the first go to whom they leave for; what is to spare comes free last. The
        // contracts of those who take over end at the latest a grace later.
        let spare = facts.idle_soon() - facts.idle();
        if spare > 0 {
            let last = dying.iter().map(|&(at, _)| at).max().unwrap_or(now);
            frees.push((last, spare));
        }
        if facts.promised + facts.starting > 0 {
            let held = state.held.iter().map(|&held| (held, state.settings.grace));
            let starting = state.starting.iter().map(|&starting| (starting, SpanMs::ZERO));
            for (decided, wait) in held.chain(starting) {
                let workload = state.workload(decided);
                let on_it = workload.placement.iter().find(|&&(other, _)| other == host);
                if let Some(&(_, gpus)) = on_it {
                    if !workload.allocated {
                        frees.push((now, gpus));
                        continue;
                    }
                    let until = now + wait + workload.protection();
                    let place = state.tree.leaf_place(workload.spec.budget);
                    if let Some(at) = Self::count(state, holder, until, place, countable) {
                        frees.push((at, gpus));
                    }
                }
            }
        }
        frees.sort_unstable();
        frees
    }

    /// When a running attempt may be taken by the holder.
    fn free_at(
        state: &State,
        holder: WorkloadIx,
        running: &Workload,
        countable: &[Countable],
    ) -> Option<TimeMs> {
        if !running.allocated {
            return Some(state.now());
        }
        let mine = &state.workload(holder).spec;
        if running.spec.budget == mine.budget {
            return (mine.rank > running.spec.rank).then_some(running.protected_until);
        }
        let place = state.tree.leaf_place(running.spec.budget);
        Self::count(state, holder, running.protected_until, place, countable)
    }

    fn count(
        state: &State,
        holder: WorkloadIx,
        protected_until: TimeMs,
        leaf: Option<usize>,
        countable: &[Countable],
    ) -> Option<TimeMs> {
        match countable[leaf?] {
            Countable::Now => Some(protected_until),
            Countable::Aged => {
                let waits_since = state.workload(holder).queued_since;
                Some(protected_until.max(waits_since + state.settings.reservation_age))
            }
            Countable::Never => None,
        }
    }
}

/// When a host whose GPUs come free like `frees` (in order of time) can give `gpus`.
fn time_for(frees: &[(TimeMs, u32)], gpus: u32) -> Option<TimeMs> {
    let mut sum = 0;
    for &(at, freed) in frees {
        sum += freed;
        if sum >= gpus {
            return Some(at);
        }
    }
    None
}

/// When a gang of several hosts fits: enough whole ones, and one more for the rest.
fn gang_time(frees: &[Vec<(TimeMs, u32)>], ask: Ask) -> Option<TimeMs> {
    let needed = ask.hosts as usize;
    let mut whole: Vec<(TimeMs, usize)> = frees
        .iter()
        .enumerate()
        .filter_map(|(index, frees)| Some((time_for(frees, ask.gpus_per_host)?, index)))
        .collect();
    whole.sort_unstable();
    let last = whole.get(needed.checked_sub(1)?)?.0;
    if ask.rest == 0 {
        return Some(last);
    }
    // Either one more whole host, or a further host that has room for the rest.
    let in_use = |index: usize| whole[..needed].iter().any(|&(_, used)| used == index);
    let beside = frees
        .iter()
        .enumerate()
        .filter(|&(index, _)| !in_use(index))
        .filter_map(|(_, frees)| time_for(frees, ask.rest))
        .min();
    let one_more = whole.get(needed).map(|&(at, _)| at);
    let rest = beside.into_iter().chain(one_more).min()?;
    Some(last.max(rest))
}
