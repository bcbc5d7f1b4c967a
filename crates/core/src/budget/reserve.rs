//! Rule 7: a reservation is a promise. Hosts, and the moment T by which they hold nothing that the
//! holder may not take.

use super::{BudgetPolicy, Kind};
use crate::cluster::{Ask, HostState, Placement};
use crate::policy::{Decision, Reservation};
use crate::state::State;
use crate::units::{HostIx, SpanMs, TimeMs, WorkloadIx};
use crate::workload::{Status, Workload};
use alloc::vec;
use alloc::vec::Vec;

/// A holder that has waited long before its reservation still leaves this part of `reservation_age` to the
/// ends of other work, and to swaps that rule 6 allows, before it counts sides that are above its own by
/// however little. Taking at once lost 4.2 % of the occupied GPU-time on the lab, all of `reservation_age`
/// 2.3 % but kept 1.3 % of the GPUs waiting; a quarter 2.5 % and 0.5 %; a third lies between (docs/benchmarks.md).
pub(super) const SETTLING_PART: u64 = 3;

impl BudgetPolicy {
    /// Reservations that are due are taken; those on hosts that fail or drain, or at whose rate a limit has no
    /// room any more, are made anew; others are moved when that makes T earlier.
    pub(super) fn decide_reservations(&mut self, state: &State) -> Option<Decision> {
        for index in 0..state.reservations.len() {
            let reservation = state.reservations[index].clone();
            let holder = reservation.holder;
            if !Self::can_be_kept(state, &reservation) {
                return Some(self.renew(state, &reservation));
            }
            if reservation.until <= state.now() {
                // Idle GPUs or legal victims elsewhere may disturb fewer; the promise stands behind.
                let better =
                    self.find_reservation(state, holder, Some(&reservation)).filter(|found| {
                        let loss = |placement: &Placement| -> u128 {
                            placement
                                .iter()
                                .map(|&(host, _)| Self::loss_on(state, host, state.now()))
                                .sum()
                        };
                        found.until <= state.now()
                            && loss(&found.placement) < loss(&reservation.placement)
                    });
                let decision = self.place(state, holder).or_else(|| {
                    if let Some(better) = better {
                        // As early, and less is lost: the promise holds, on other hosts.
                        let until = reservation.until;
                        return Some(Decision::Reserve(Reservation { until, ..better }));
                    }
                    self.take_reserved(state, holder, &reservation.placement, reservation.until)
                });
                // Should it not be possible yet (a start there waits for its confirmation), the promise stays.
                if decision.is_some() {
                    return decision;
                }
            }
        }
        if self.may_move {
            let moved = self.move_earlier(state);
            // What one leaves may be what another waits for.
            self.may_move = moved.is_some();
            return moved;
        }
        None
    }

    /// The first reservation that can be due earlier, on hosts that are the holder's by then.
    fn move_earlier(&self, state: &State) -> Option<Decision> {
        state.reservations.iter().find_map(|reservation| {
            let earlier = TimeMs(reservation.until.0.saturating_sub(1));
            if !self.could_be_by(state, reservation, earlier, None) {
                return None;
            }
            let found = self.find_reservation(state, reservation.holder, Some(reservation))?;
            (found.until < reservation.until).then_some(Decision::Reserve(found))
        })
    }

    /// Whether all hosts of a reservation are up, and its holder would be allocated on them: its budget has a
    /// share, and the limits have room at the rate of their pool.
    fn can_be_kept(state: &State, reservation: &Reservation) -> bool {
        let up = |host: HostIx| state.cluster.host(host).state == HostState::Up;
        let hosts = &reservation.placement;
        hosts.iter().all(|&(host, _)| up(host))
            && hosts.first().is_some_and(|&(host, _)| {
                let rate = state.cluster.rate(state.cluster.host(host).pool);
                state.would_be_allocated(reservation.holder, rate)
            })
    }

    /// A reservation that can no longer be kept is made anew, even if later, or given up.
    fn renew(&self, state: &State, old: &Reservation) -> Decision {
        let holder = old.holder;
        if self.would_be_allocated(state, holder)
            && let Some(found) = self.find_reservation(state, holder, Some(old))
            && found.placement != old.placement
        {
            return Decision::Reserve(found);
        }
        Decision::Unreserve { holder }
    }

    /// Whether a reservation could do without one of its hosts and still be due when it is. Remembered for
    /// the moment and the facts.
    pub(super) fn is_movable(&self, state: &State, index: usize) -> bool {
        self.asks_way.set(true);
        let mut known = self.movable.borrow_mut();
        if (known.at, known.facts) != (state.now(), self.facts) {
            (known.at, known.facts) = (state.now(), self.facts);
            known.answers.clear();
        }
        known.answers.resize(state.reservations.len(), None);
        if let Some(answer) = known.answers[index] {
            return answer;
        }
        let reservation = &state.reservations[index];
        let without = reservation.placement.first().map(|&(host, _)| host);
        let answer = reservation.until > state.now()
            && self.could_be_by(state, reservation, reservation.until, without);
        known.answers[index] = Some(answer);
        answer
    }

    /// A moment further away is no promise that keeps the bound of rule 7.
    pub(super) fn latest(state: &State) -> TimeMs {
        state.now() + state.settings.horizon.max(state.settings.reservation_age)
    }

    /// Rule 7: a reservation keeps its moment, not its hosts. If `placement` could be had but for standing
    /// reservations, and the first of these is as early on other hosts, it moves there.
    pub(super) fn make_way(&self, state: &State, placement: &Placement) -> Option<Decision> {
        let index =
            placement.iter().find_map(|&(host, _)| self.reserved[host.at()].checked_sub(1))?;
        let old = &state.reservations[index as usize];
        let found = self.find_without(state, old.holder, Some(old), placement)?;
        (found.until <= old.until).then_some(Decision::Reserve(found))
    }

    /// The hosts that are the holder's earliest, and when. None when no hosts can be promised: too many
    /// hold work of sides that are not above the holder's own.
    pub(super) fn find_reservation(
        &self,
        state: &State,
        holder: WorkloadIx,
        old: Option<&Reservation>,
    ) -> Option<Reservation> {
        self.find_without(state, holder, old, &Placement::new())
    }

    /// The same without the hosts of `without`.
    fn find_without(
        &self,
        state: &State,
        holder: WorkloadIx,
        old: Option<&Reservation>,
        without: &Placement,
    ) -> Option<Reservation> {
        let spec = &state.workload(holder).spec;
        let found = state
            .cluster
            .asks(spec.gpus, spec.shape, spec.model)
            .filter(|&(pool, _)| Self::has_room(state, holder, pool))
            .filter_map(|(pool, ask)| self.earliest(state, holder, pool, ask, without))
            .min_by_key(|(until, _)| *until)?;
        let made = old.map_or(state.now(), |old| old.made);
        let (until, placement) = found;
        Some(Reservation { holder, placement, until, made })
    }

    /// The holder's earliest moment in one pool, and hosts for it: of those that serve by then the ones
    /// whose taking is expected to lose least.
    fn earliest(
        &self,
        state: &State,
        holder: WorkloadIx,
        pool: usize,
        ask: Ask,
        without: &Placement,
    ) -> Option<(TimeMs, Placement)> {
        let outlook = self.outlook(state, holder, pool, ask, without);
        let until = outlook.earliest(ask)?;
        let mut available = vec![0; state.cluster.hosts().len()];
        let mut costs = vec![0; available.len()];
        for (host, frees) in outlook.hosts() {
            let by_then = frees.iter().filter(|&&(at, _)| at <= until);
            available[host.at()] = by_then.map(|&(_, gpus)| gpus).sum();
            if available[host.at()] >= ask.smallest_part() {
                costs[host.at()] = Self::loss_on(state, host, until);
            }
        }
        let placement = state.cluster.place_at_cost(
            pool,
            ask,
            |host| available[host.at()],
            |host| costs[host.at()],
        )?;
        Some((until, placement))
    }

    /// When how many GPUs of each host that may be reserved are the holder's to take.
    fn outlook(
        &self,
        state: &State,
        holder: WorkloadIx,
        pool: usize,
        ask: Ask,
        without: &Placement,
    ) -> Outlook {
        let mut countable = Vec::new();
        self.fill_countable(state, holder, state.cluster.rate(pool), &mut countable);
        let kind = Self::kind(state, holder, ask);
        let latest = Self::latest(state);
        let mut outlook = Outlook::default();
        for &host in &state.cluster.pools()[pool].hosts {
            if self.may_reserve(state, host, holder, kind)
                && without.iter().all(|&(other, _)| other != host)
            {
                let from = outlook.frees.len();
                Self::frees(state, holder, host, &countable, |at, gpus| {
                    if at <= latest {
                        outlook.frees.push((at, gpus));
                    }
                });
                outlook.frees[from..].sort_unstable();
                outlook.ranges.push((host, from, outlook.frees.len()));
            }
        }
        outlook
    }

    /// GPU-time that taking a whole host at `until` would lose, as far as can be known now; a gang's loss is
    /// spread over its hosts.
    fn loss_on(state: &State, host: HostIx, until: TimeMs) -> u128 {
        let runs = state.cluster.host(host).runs.iter();
        runs.map(|&(other, gpus)| {
            let workload = state.workload(other);
            if workload.status == Status::Preempting {
                return 0;
            }
            u128::from(workload.loss_expected_at(until, state.now()).0) * u128::from(gpus)
        })
        .sum()
    }

    /// Whether a host may be named in a reservation for `holder`: it is up, nobody else's, and not one
    /// of the debug hosts unless the holder may use those.
    pub(super) fn may_reserve(
        &self,
        state: &State,
        host: HostIx,
        holder: WorkloadIx,
        kind: Kind,
    ) -> bool {
        let others = self.reserved[host.at()]
            .checked_sub(1)
            .is_some_and(|index| state.reservations[index as usize].holder != holder);
        state.cluster.host(host).state == HostState::Up
            && !others
            && (kind == Kind::Debug || !Self::is_debug_host(state, host))
    }

    /// When how many GPUs of a host are the holder's to take; GPUs that never are, are left out.
    pub(super) fn frees(
        state: &State,
        holder: WorkloadIx,
        host: HostIx,
        countable: &[Option<TimeMs>],
        mut free: impl FnMut(TimeMs, u32),
    ) {
        let facts = state.cluster.host(host);
        let now = state.now();
        free(now, facts.idle());
        let mut last_dying = now;
        for &(other, gpus) in &facts.runs {
            let workload = state.workload(other);
            if workload.status == Status::Preempting {
                last_dying = last_dying.max(workload.leave_by);
            } else if let Some(at) = Self::free_at(state, holder, workload, countable) {
                free(at.max(now), gpus);
            }
        }
        // Of those who leave, the first go to whom they leave for; what is to spare comes free last. The
        // contracts of those who take over end at the latest a grace later.
        let spare = facts.idle_soon() - facts.idle();
        if spare > 0 {
            free(last_dying, spare);
        }
        if facts.held + facts.awaited + facts.starting > 0 {
            let held = state.held.iter().map(|&held| (held, state.settings.grace));
            let starting = state.starting.iter().map(|&starting| (starting, SpanMs::ZERO));
            for (decided, wait) in held.chain(starting) {
                let workload = state.workload(decided);
                let on_it = workload.placement.iter().find(|&&(other, _)| other == host);
                if let Some(&(_, gpus)) = on_it {
                    if !workload.allocated {
                        // It can be taken as soon as it runs; until then nobody can be told to leave.
                        continue;
                    }
                    let until = now + wait + workload.protection();
                    if let Some(at) = Self::count(state, holder, workload, until, countable) {
                        free(at, gpus);
                    }
                }
            }
        }
    }

    /// When a running attempt may be taken by the holder.
    fn free_at(
        state: &State,
        holder: WorkloadIx,
        running: &Workload,
        countable: &[Option<TimeMs>],
    ) -> Option<TimeMs> {
        if !running.allocated {
            return Some(state.now());
        }
        Self::count(state, holder, running, running.protected_until, countable)
    }

    /// From when on work that is protected until then counts for the holder.
    fn count(
        state: &State,
        holder: WorkloadIx,
        other: &Workload,
        protected_until: TimeMs,
        countable: &[Option<TimeMs>],
    ) -> Option<TimeMs> {
        let mine = &state.workload(holder).spec;
        if other.spec.budget == mine.budget {
            return (mine.rank > other.spec.rank).then_some(protected_until);
        }
        let from = countable[state.tree.leaf_place(other.spec.budget)?]?;
        Some(protected_until.max(from))
    }
}

/// When a host whose GPUs come free like `frees` (in order of time) can give `gpus`.
pub(super) fn time_for(frees: &[(TimeMs, u32)], gpus: u32) -> Option<TimeMs> {
    let mut sum = 0;
    for &(at, freed) in frees {
        sum += freed;
        if sum >= gpus {
            return Some(at);
        }
    }
    None
}

/// When GPUs come free for a holder, per host and in order of time.
#[derive(Debug, Default)]
struct Outlook {
    frees: Vec<(TimeMs, u32)>,
    ranges: Vec<(HostIx, usize, usize)>,
}

impl Outlook {
    fn hosts(&self) -> impl Iterator<Item = (HostIx, &[(TimeMs, u32)])> + '_ {
        self.ranges.iter().map(|&(host, from, to)| (host, &self.frees[from..to]))
    }

    /// The earliest moment at which `ask` fits.
    fn earliest(&self, ask: Ask) -> Option<TimeMs> {
        if ask.is_single() {
            let gpus = ask.single_gpus();
            return self.hosts().filter_map(|(_, frees)| time_for(frees, gpus)).min();
        }
        // Enough whole hosts, and one more for the rest.
        let needed = ask.hosts as usize;
        let mut whole: Vec<(TimeMs, HostIx)> = self
            .hosts()
            .filter_map(|(host, frees)| Some((time_for(frees, ask.gpus_per_host)?, host)))
            .collect();
        whole.sort_unstable();
        let last = whole.get(needed.checked_sub(1)?)?.0;
        if ask.rest == 0 {
            return Some(last);
        }
        // Either one more whole host, or a further host that has room for the rest.
        let in_use = |host: HostIx| whole[..needed].iter().any(|&(_, used)| used == host);
        let beside = self.hosts().filter(|&(host, _)| !in_use(host));
        let beside = beside.filter_map(|(_, frees)| time_for(frees, ask.rest)).min();
        let one_more = whole.get(needed).map(|&(at, _)| at);
        let rest = beside.into_iter().chain(one_more).min()?;
        Some(last.max(rest))
    }
}
