//! From when on each host could give a holder what it asks of a host (rule 7). Looked at after every end of
//! work, for whether a reservation could be due earlier or make way; most hosts are as they were.

use super::ratios::{Pair, Test};
use super::reserve::SETTLING_PART;
use super::{BudgetPolicy, contract_units};
use crate::cluster::Ask;
use crate::policy::Reservation;
use crate::state::State;
use crate::units::{BudgetIx, HostIx, SpanMs, TimeMs, WorkloadIx};
use alloc::vec::Vec;

/// For each leaf from when on a holder may count its work whose protection has ended; none for never.
pub(super) type Countable = Vec<Option<TimeMs>>;

/// What is known of a holder in a pool.
#[derive(Clone, Debug)]
struct Holder {
    key: Key,
    countable: Countable,
    /// By the place in the pool.
    hosts: Vec<Due>,
}

/// What the dues of hosts depend on beside hosts and [`Countable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    holder: WorkloadIx,
    tie: u64,
    budget: BudgetIx,
    rank: i32,
    pool: usize,
    ask: Ask,
}

/// From when on a host can give what is asked.
#[derive(Clone, Copy, Debug)]
struct Due {
    /// The version of the host.
    version: u64,
    /// The leaves whose work is on it, each by a bit that it may share with others.
    leaves: u64,
    /// All that is asked of one host.
    whole: TimeMs,
    /// The rest of a gang.
    rest: TimeMs,
}

impl Due {
    const UNKNOWN: Self =
        Self { version: u64::MAX, leaves: 0, whole: TimeMs::NEVER, rest: TimeMs::NEVER };
}

/// What is known of holders, and buffers.
#[derive(Clone, Debug, Default)]
pub(super) struct Dues {
    holders: Vec<Holder>,
    countable: Countable,
    frees: Vec<(TimeMs, u32)>,
}

const fn bit(place: usize) -> u64 {
    1 << (place % 64)
}

impl BudgetPolicy {
    /// Whether there are hosts (but for `without`) that are the holder's own by a moment.
    pub(super) fn could_be_by(
        &self,
        state: &State,
        reservation: &Reservation,
        by: TimeMs,
        without: Option<HostIx>,
    ) -> bool {
        if by < state.now() {
            return false;
        }
        let holder = reservation.holder;
        let spec = &state.workload(holder).spec;
        let by = by.min(Self::latest(state));
        let dues = &mut *self.dues.borrow_mut();
        if dues.holders.len() > 2 * state.reservations.len() + 2 {
            dues.holders.clear();
        }
        let asks = state.cluster.asks(spec.gpus, spec.shape, spec.model);
        asks.filter(|&(pool, _)| Self::has_room(state, holder, pool)).any(|(pool, ask)| {
            let Dues { holders, countable, frees } = &mut *dues;
            self.fill_countable(state, holder, state.cluster.rate(pool), countable);
            let (tie, budget, rank) = (spec.tie, spec.budget, spec.rank);
            let key = Key { holder, tie, budget, rank, pool, ask };
            let at = holders.iter().position(|known| known.key == key).unwrap_or_else(|| {
                let hosts = state.cluster.pools()[pool].hosts.iter().map(|_| Due::UNKNOWN);
                holders.push(Holder { key, countable: countable.clone(), hosts: hosts.collect() });
                holders.len() - 1
            });
            let known = &mut holders[at];
            let mut changed = 0;
            for (place, now) in countable.iter().enumerate() {
                if known.countable[place] != *now || self.forgetful {
                    changed |= bit(place);
                }
            }
            known.countable.clone_from(countable);
            // All hosts are brought up to date, since what has changed is not told again.
            let kind = Self::kind(state, holder, ask);
            let (mut whole, mut partly) = (0, false);
            for (due, &host) in known.hosts.iter_mut().zip(&state.cluster.pools()[pool].hosts) {
                if due.version != state.cluster.host(host).version || due.leaves & changed != 0 {
                    *due = Self::due(state, key, host, countable, frees);
                }
                if due.whole <= by || due.rest <= by {
                    let counts =
                        Some(host) != without && self.may_reserve(state, host, holder, kind);
                    whole += u32::from(counts && due.whole <= by);
                    partly |= counts && due.whole > by;
                }
            }
            let hosts = if ask.is_single() { 1 } else { ask.hosts };
            whole > hosts || (whole == hosts && (ask.is_single() || ask.rest == 0 || partly))
        })
    }

    fn due(
        state: &State,
        key: Key,
        host: HostIx,
        countable: &Countable,
        frees: &mut Vec<(TimeMs, u32)>,
    ) -> Due {
        frees.clear();
        Self::frees(state, key.holder, host, countable, |at, gpus| frees.push((at, gpus)));
        frees.sort_unstable();
        let facts = state.cluster.host(host);
        let each = if key.ask.is_single() { key.ask.single_gpus() } else { key.ask.gpus_per_host };
        let by_time = |gpus| super::reserve::time_for(frees, gpus).unwrap_or(TimeMs::NEVER);
        let whole = by_time(each);
        let rest =
            if key.ask.is_single() || key.ask.rest == 0 { whole } else { by_time(key.ask.rest) };
        // When starts that were decided come to be is told by no change of the host.
        let is_settled = facts.held + facts.awaited + facts.starting == 0;
        let leaf = |&(run, _): &(WorkloadIx, u32)| bit(Self::leaf_of(state, run));
        Due {
            version: if is_settled { facts.version } else { u64::MAX },
            leaves: facts.runs.iter().map(leaf).fold(0, |leaves, leaf| leaves | leaf),
            whole,
            rest,
        }
    }

    /// For each leaf from when on its work counts once its protection has ended: at once where rule 6 allows
    /// the swap now, later where its side is above the holder's, else never.
    pub(super) fn fill_countable(
        &self,
        state: &State,
        holder: WorkloadIx,
        rate: u64,
        countable: &mut Countable,
    ) {
        let workload = state.workload(holder);
        let leaf = workload.spec.budget;
        let contract = contract_units(workload.spec.gpus, rate, workload.protection());
        let made = Self::reservation_index(state, holder)
            .map_or(state.now(), |at| state.reservations[at].made);
        let age = state.settings.reservation_age;
        let settled = made + SpanMs(age.0 / SETTLING_PART);
        let aged = (workload.queued_since + age).max(settled);
        countable.clear();
        countable.resize(state.tree.leaves().len(), None);
        for mine in state.tree.path(leaf) {
            let Some(parent) = state.tree.parent(mine) else { break };
            for &theirs in state.tree.children(parent).iter().filter(|&&theirs| theirs != mine) {
                let pair = Pair { mine, theirs };
                let from = if self.holds(state, Test::Swap, pair, contract) {
                    Some(TimeMs(0))
                } else if self.holds(state, Test::Above, pair, 0) {
                    Some(aged)
                } else {
                    None
                };
                countable[state.tree.leaves_below(theirs)].fill(from);
            }
        }
    }
}
