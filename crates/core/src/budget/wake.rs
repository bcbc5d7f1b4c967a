//! The next moment at which rule 6 allows something that it does not allow now, although nothing
//! happens: a ratio crossing.
//!
//! Between events a side's ratio moves along straight pieces: what runs unprotected adds to the used
//! GPU-time, what falls out of the lookback takes from it. A crossing is looked for piece by piece, up
//! to the next moment at which the core wakes anyway, and is exact to the millisecond.

use super::queue::LeafQueue;
use super::ratios::{Pair, Range, Test};
use super::{BudgetPolicy, contract_units};
use crate::state::State;
use crate::units::{BudgetIx, SpanMs, TimeMs, WorkloadIx};

/// A pair, the contract with which mine is looked at, and what must become true of them.
#[derive(Clone, Copy, Debug)]
struct Case {
    pair: Pair,
    contract: u128,
    test: Test,
}

/// Up to when crossings are looked for, and between what and what each budget could have used by then, if that
/// is known.
#[derive(Clone, Copy, Debug)]
struct Search<'a> {
    limit: TimeMs,
    ranges: &'a [Range],
}

/// What is known of the next crossing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crossing {
    pub(super) at: TimeMs,
    /// Whether there is one; else it was looked for up to that moment, which is still before it.
    pub(super) is_found: bool,
}

impl Crossing {
    /// None for ever.
    const NEVER: Self = Self { at: TimeMs::NEVER, is_found: false };

    /// Nothing crosses up to this moment.
    const fn after(at: TimeMs) -> Self {
        Self { at, is_found: false }
    }

    const fn found(at: TimeMs) -> Self {
        Self { at, is_found: true }
    }

    /// What is known of two: the earlier one, and of a tie the one that is found.
    fn min(self, other: Self) -> Self {
        let key = |crossing: Self| (crossing.at, !crossing.is_found);
        if key(other) < key(self) { other } else { self }
    }
}

impl BudgetPolicy {
    /// The next crossing of any waiting contract against any side that has interruptible work.
    pub(super) fn next_crossing(&self, state: &State) -> Crossing {
        let limit = self.known_wakes(state).min(state.now() + LOOKAHEAD);
        let mut ranges = self.ranges.borrow_mut();
        ranges.clear();
        let nodes = || (0..state.tree.len()).map(|at| BudgetIx(at as u32));
        // While allocations change, nothing is known.
        if state.ledger.allocation_is_steady(state.now()) {
            ranges.extend(nodes().map(|node| self.range_by(state, node, limit)));
        }
        let search = Search { limit, ranges: &ranges };
        let mut next = Crossing::NEVER;
        for mine in nodes().skip(1) {
            let Some(parent) = state.tree.parent(mine) else { continue };
            let Some(shortest) = self.shortest_below(state, mine) else { continue };
            // A promise can be made, or moved, when a side comes to be above the holder's.
            let promises = Self::may_reserve_more(state) || Self::has_holder_below(state, mine);
            for &theirs in state.tree.children(parent) {
                let busy = state.ledger.account(theirs).interruptible_gpus > 0;
                if theirs == mine || !(busy || promises) {
                    continue;
                }
                let pair = Pair { mine, theirs };
                if busy {
                    let case = Case { pair, contract: shortest, test: Test::Swap };
                    let crossing = self.crossing_if_apart(state, case, search, next);
                    let longer = || self.next_longer(state, case, search, next);
                    next = next.min(crossing.unwrap_or_else(longer));
                }
                if promises {
                    // Rule 7: a side comes to count for a reservation when its ratio passes the own.
                    let case = Case { pair, contract: 0, test: Test::Above };
                    let crossing = self.crossing_if_apart(state, case, search, next);
                    next = next.min(crossing.unwrap_or(Crossing::NEVER));
                }
            }
        }
        for reservation in &state.reservations {
            next = self.next_of_holder(state, reservation.holder, search, next);
        }
        if self.has_limits { next.min(self.next_exhaustion(state)) } else { next }
    }

    /// The queues of the funded leaves of a budget that have contracts waiting.
    fn waiting_below<'a>(
        &'a self,
        state: &'a State,
        node: BudgetIx,
    ) -> impl Iterator<Item = &'a LeafQueue> + 'a {
        let funded = |&place: &usize| state.tree.fraction(state.tree.leaves()[place]) > 0;
        let queues = state.tree.leaves_below(node).filter(funded).map(|place| &self.queues[place]);
        queues.filter(|queue| queue.waiting_contracts > 0)
    }

    /// The least contract that waits in a budget.
    fn shortest_below(&self, state: &State, node: BudgetIx) -> Option<u128> {
        self.waiting_below(state, node).filter_map(LeafQueue::least_cost).min()
    }

    fn has_holder_below(state: &State, node: BudgetIx) -> bool {
        let places = state.tree.leaves_below(node);
        state.reservations.iter().any(|reservation| {
            let leaf = state.workload(reservation.holder).spec.budget;
            state.tree.leaf_place(leaf).is_some_and(|place| places.contains(&place))
        })
    }

    /// Rule 7: the next moment at which a side that has nothing to take yet comes to count for a holder as soon
    /// as its protection ends. Its reservation could then be kept on other hosts, and make way.
    fn next_of_holder(
        &self,
        state: &State,
        holder: WorkloadIx,
        search: Search<'_>,
        mut next: Crossing,
    ) -> Crossing {
        let workload = state.workload(holder);
        let spec = &workload.spec;
        for (pool, _) in state.cluster.asks(spec.gpus, spec.shape, spec.model) {
            let rate = state.cluster.rate(pool);
            let contract = contract_units(spec.gpus, rate, workload.protection());
            for mine in state.tree.path(spec.budget) {
                let Some(parent) = state.tree.parent(mine) else { break };
                for &theirs in state.tree.children(parent) {
                    if theirs != mine {
                        let pair = Pair { mine, theirs };
                        let case = Case { pair, contract, test: Test::Swap };
                        let crossing = self.crossing_if_apart(state, case, search, next);
                        next = next.min(crossing.unwrap_or(Crossing::NEVER));
                    }
                }
            }
        }
        next
    }

    /// Rule 1: the next moment at which a hard limit has no room any more for a contract that waits: what runs
    /// past its own contract goes on to charge. The request is unallocated from then on.
    fn next_exhaustion(&self, state: &State) -> Crossing {
        let mut next = Crossing::NEVER;
        for (place, queue) in self.queues.iter().enumerate() {
            if queue.waiting_contracts == 0 {
                continue;
            }
            for node in state.tree.path(state.tree.leaves()[place]) {
                let Some(limit) = state.tree.node(node).limit_units else { continue };
                let growth = state.ledger.unprotected_units(node);
                let room = limit.checked_sub(state.ledger.taken_units(node, state.now()));
                let (Some(room), true) = (room, growth > 0) else { continue };
                if let Some((cost, _)) = queue.contract_costs.range(..=room).next_back() {
                    let wait = u64::try_from((room - cost) / growth + 1).unwrap_or(u64::MAX);
                    next = next.min(Crossing::found(state.now() + SpanMs(wait)));
                }
            }
        }
        next
    }

    /// The crossing of the least contract of a side that is longer than what is allowed now, if it comes before
    /// the one that is `known`.
    fn next_longer(
        &self,
        state: &State,
        case: Case,
        search: Search<'_>,
        known: Crossing,
    ) -> Crossing {
        let Case { pair, test, .. } = case;
        let allowed = self.longest_allowed(state, pair);
        let longer = self.waiting_below(state, pair.mine).filter_map(|queue| {
            let mut costs = queue.contract_costs.range(allowed..).map(|(&cost, _)| cost);
            costs.find(|&contract| !self.holds(state, test, pair, contract))
        });
        let Some(contract) = longer.min() else { return Crossing::NEVER };
        let case = Case { contract, ..case };
        if self.could_hold(state, case, search) {
            crossing_within(state, case, search.limit.min(known.at))
        } else {
            Crossing::after(search.limit.min(known.at))
        }
    }

    /// The crossing of what is not allowed now, if it comes before the one that is `known`; that there is none up to
    /// the limit where it may come later, so that it is looked for again then; never where nothing moves the pair
    /// any more. None if it is allowed.
    #[inline]
    fn crossing_if_apart(
        &self,
        state: &State,
        case: Case,
        search: Search<'_>,
        known: Crossing,
    ) -> Option<Crossing> {
        // What could not even be allowed later is not allowed now.
        if !self.could_hold(state, case, search) {
            Some(Crossing::after(search.limit.min(known.at)))
        } else if self.holds(state, case.test, case.pair, case.contract) {
            None
        } else {
            Some(crossing_within(state, case, search.limit.min(known.at)))
        }
    }

    /// Whether a case could come true before the limit, for all that is known.
    #[inline]
    fn could_hold(&self, state: &State, case: Case, search: Search<'_>) -> bool {
        let Case { pair: Pair { mine, theirs }, contract, test } = case;
        if search.ranges.is_empty() {
            return true;
        }
        let ranges = search.ranges;
        ranges[mine.at()].could_hold(state, test, contract, &ranges[theirs.at()])
    }

    /// A contract that is allowed for certain, close to the longest one: from
    /// `(used + contract) / allocated + margin <= theirs`, in 64 significant bits and rounded down.
    fn longest_allowed(&self, state: &State, pair: Pair) -> u128 {
        let (mine, theirs) = (self.ratio(state, pair.mine), self.ratio(state, pair.theirs));
        if theirs.allocated == 0 || mine.allocated == 0 {
            return 0;
        }
        let shift = |value: u128| (128 - value.leading_zeros()).saturating_sub(62);
        let (by_used, by_mine) = (shift(theirs.used), shift(mine.allocated));
        let product = (theirs.used >> by_used) * (mine.allocated >> by_mine);
        let quotient = product / ((theirs.allocated >> by_mine).max(1) + 1);
        let Some(limit) = quotient.checked_shl(by_used) else { return 0 };
        let margin_ppm = u128::from(state.settings.margin_ppm);
        let margin = mine.allocated / 1_000_000 * margin_ppm + margin_ppm;
        let limit = limit.saturating_sub(margin).saturating_sub(mine.used) >> 32;
        limit - (limit >> 20)
    }

    /// Moments at which the core wakes whatever the ratios do; beyond the first, pieces may bend.
    fn known_wakes(&self, state: &State) -> TimeMs {
        let due = state.reservations.iter().map(|reservation| reservation.until);
        let wakes = due.chain(state.next_protection_end());
        wakes.filter(|&at| at > state.now()).fold(TimeMs::NEVER, TimeMs::min)
    }
}

/// The crossing of a pair up to `limit`, where it could come before.
fn crossing_within(state: &State, case: Case, limit: TimeMs) -> Crossing {
    if is_still(state, case) {
        return Crossing::NEVER;
    }
    let found = first_crossing(state, case, state.now(), limit);
    found.map_or(Crossing::after(limit), Crossing::found)
}

fn is_allowed(state: &State, case: Case, at: TimeMs) -> bool {
    may_be_allowed(state, case, at, at)
}

/// Whether the pair could be allowed anywhere in `[from, to]`, seen generously: for a single moment,
/// whether it is.
fn may_be_allowed(state: &State, case: Case, from: TimeMs, to: TimeMs) -> bool {
    let Case { pair, contract, test } = case;
    let mine = state.ledger.ratio_at_least(pair.mine, contract, from, to);
    test.holds(state, mine, state.ledger.ratio_at_most(pair.theirs, from, to))
}

/// The first moment in `(from, to]` at which the pair is allowed, knowing that it is not at `from`.
///
/// Intervals in which it cannot be are passed over whole; others are halved, the earlier half first, down
/// to those in which both ratios are straight lines.
fn first_crossing(state: &State, case: Case, from: TimeMs, to: TimeMs) -> Option<TimeMs> {
    if !may_be_allowed(state, case, from, to) {
        return None;
    }
    if is_straight(state, case, from, to) {
        return is_allowed(state, case, to).then(|| bisect(state, case, from, to));
    }
    if to.0 - from.0 <= 1 {
        return is_allowed(state, case, to).then_some(to);
    }
    let middle = TimeMs(from.0 + (to.0 - from.0) / 2);
    first_crossing(state, case, from, middle).or_else(|| first_crossing(state, case, middle, to))
}

/// Whether the ratios of a pair are straight lines in `[from, to]`, so that its ends tell all: nothing that
/// leaves the lookback bends what is used, and what is allocated stays as it is.
fn is_straight(state: &State, case: Case, from: TimeMs, to: TimeMs) -> bool {
    [case.pair.mine, case.pair.theirs].iter().all(|&node| {
        let account = state.ledger.account(node);
        let bends = |at: Option<TimeMs>| at.is_some_and(|at| at < to);
        let allocation = &account.allocation;
        !bends(account.charged.next_tail_change(from))
            && (state.ledger.allocation_is_steady(from)
                || (allocation.rate() == allocation.tail_rate(from)
                    && !bends(allocation.next_tail_change(from))))
    })
}

/// How far ahead a crossing is looked for before the core wakes to look again. Long enough to wake seldom,
/// short enough that few breakpoints of the lookback leave it meanwhile.
const LOOKAHEAD: SpanMs = SpanMs::hours(1);

/// Whether nothing moves the ratios of a pair any more: as much leaves the lookback as enters it, and no
/// breakpoint is left in it.
fn is_still(state: &State, case: Case) -> bool {
    let now = state.now();
    [case.pair.mine, case.pair.theirs].iter().all(|&node| {
        let account = state.ledger.account(node);
        let protected = state.ledger.protected_units(node);
        protected == 0
            && account.charged.rate() == account.charged.tail_rate(now)
            && account.charged.next_tail_change(now).is_none()
            && account.allocation.next_tail_change(now).is_none()
    })
}

/// The first allowed moment in `(from, to]`, where `from` is not allowed and `to` is.
fn bisect(state: &State, case: Case, from: TimeMs, to: TimeMs) -> TimeMs {
    let (mut low, mut high) = (from.0, to.0);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if is_allowed(state, case, TimeMs(middle)) {
            high = middle;
        } else {
            low = middle;
        }
    }
    TimeMs(high)
}
