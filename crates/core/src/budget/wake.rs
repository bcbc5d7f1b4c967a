//! The next moment at which rule 6 allows something that it does not allow now, although nothing
//! happens: a ratio crossing.
//!
//! Between events a side's ratio moves along straight pieces: what runs unprotected adds to the used
//! GPU-time, what falls out of the lookback takes from it. A crossing is looked for piece by piece, up
//! to the next moment at which the core wakes anyway, and is exact to the millisecond.

use super::queue::LeafQueue;
use super::{BudgetPolicy, contract_units};
use crate::state::State;
use crate::units::{BudgetIx, SpanMs, TimeMs, WorkloadIx};
use crate::wide::Ratio;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// A side that might become allowed: `mine` with a contract against `theirs`.
#[derive(Clone, Copy, Debug)]
struct Pair {
    mine: BudgetIx,
    theirs: BudgetIx,
    contract: u128,
    test: Test,
}

/// What must become true of a pair.
#[derive(Clone, Copy, Debug)]
enum Test {
    /// Rule 6 (a): mine stays below by a margin, in millionths.
    Swap(u64),
    /// Rule 7: theirs is above mine.
    Above,
}

impl Test {
    fn holds(self, mine: Ratio, theirs: Ratio) -> bool {
        match self {
            Self::Swap(margin_ppm) => mine.at_least_margin_below(theirs, margin_ppm),
            Self::Above => mine.compare(theirs) == Ordering::Less,
        }
    }
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

/// That a pair cannot be allowed before a moment, as its two accounts stand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Apart {
    versions: (u64, u64),
    /// Contracts as large as this.
    contract: u128,
    until: TimeMs,
}

/// For what a pair is looked at. What is known of it is remembered for each.
#[derive(Clone, Copy, Debug)]
enum For {
    /// The least contract that waits.
    Waiting,
    /// A promise that could be made or moved.
    Promise,
    /// The contract of a holder.
    Holder,
}

/// What is known of pairs: per budget, and per sibling of it, for each [`For`].
pub(super) type Aparts = Vec<Vec<[Apart; 3]>>;

/// Where a pair that cannot meet is looked at beyond the next wake, so many times further away: most accounts
/// stand as they are for many wakes.
const FURTHER: u64 = 16;

impl BudgetPolicy {
    /// The next crossing of any waiting contract against any side that has interruptible work.
    pub(super) fn next_crossing(&self, state: &State) -> Crossing {
        let limit = self.known_wakes(state).min(state.now() + LOOKAHEAD);
        let mut next = Crossing::NEVER;
        for mine in (1..state.tree.len()).map(|at| BudgetIx(at as u32)) {
            let Some(parent) = state.tree.parent(mine) else { continue };
            let Some(shortest) = self.shortest_below(state, mine) else { continue };
            // A promise can be made, or moved, when a side comes to be above the holder's.
            let promises = Self::may_reserve_more(state) || Self::has_holder_below(state, mine);
            for (place, &theirs) in state.tree.children(parent).iter().enumerate() {
                let busy = state.ledger.account(theirs).interruptible_gpus > 0;
                if theirs == mine || !(busy || promises) {
                    continue;
                }
                let test = Test::Swap(state.settings.margin_ppm);
                let pair = Pair { mine, theirs, contract: shortest, test };
                if busy {
                    let limit = limit.min(next.at);
                    let crossing =
                        self.crossing_if_apart(state, pair, (place, For::Waiting), limit);
                    let crossing = crossing.unwrap_or_else(|| self.next_longer(state, pair, limit));
                    next = next.min(crossing);
                }
                if promises {
                    // Rule 7: a side comes to count for a reservation when its ratio passes the own.
                    let pair = Pair { test: Test::Above, contract: 0, ..pair };
                    let limit = limit.min(next.at);
                    let crossing =
                        self.crossing_if_apart(state, pair, (place, For::Promise), limit);
                    next = next.min(crossing.unwrap_or(Crossing::NEVER));
                }
            }
        }
        for reservation in &state.reservations {
            next = next.min(self.next_of_holder(state, reservation.holder, limit.min(next.at)));
        }
        next.min(self.next_exhaustion(state))
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
        let firsts = self.waiting_below(state, node);
        firsts.filter_map(|queue| queue.contract_costs.keys().next().copied()).min()
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
    fn next_of_holder(&self, state: &State, holder: WorkloadIx, limit: TimeMs) -> Crossing {
        let workload = state.workload(holder);
        let spec = &workload.spec;
        let test = Test::Swap(state.settings.margin_ppm);
        let mut next = Crossing::NEVER;
        for (pool, _) in state.cluster.asks(spec.gpus, spec.shape, spec.model) {
            let rate = state.cluster.rate(pool);
            let contract = contract_units(spec.gpus, rate, workload.protection());
            for mine in state.tree.path(spec.budget) {
                let Some(parent) = state.tree.parent(mine) else { break };
                for (place, &theirs) in state.tree.children(parent).iter().enumerate() {
                    if theirs != mine {
                        let pair = Pair { mine, theirs, contract, test };
                        let place = (place, For::Holder);
                        let crossing =
                            self.crossing_if_apart(state, pair, place, limit.min(next.at));
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

    /// The crossing of the least contract of a side that is longer than what is allowed now.
    fn next_longer(&self, state: &State, pair: Pair, limit: TimeMs) -> Crossing {
        let allowed = self.longest_allowed(state, pair);
        let longer = self.waiting_below(state, pair.mine).filter_map(|queue| {
            let costs = queue.contract_costs.range(allowed..);
            let pairs = costs.map(|(&contract, _)| Pair { contract, ..pair });
            pairs.into_iter().find(|&pair| !self.is_allowed_now(state, pair))
        });
        let least = longer.min_by_key(|pair| pair.contract);
        least.map_or(Crossing::NEVER, |pair| self.crossing_of(state, pair, limit))
    }

    /// The crossing of a pair that is not allowed now, as [`Self::crossing_of`] finds it; none if it is allowed.
    fn crossing_if_apart(
        &self,
        state: &State,
        pair: Pair,
        (sibling, purpose): (usize, For),
        limit: TimeMs,
    ) -> Option<Crossing> {
        let versions = (state.ledger.version(pair.mine), state.ledger.version(pair.theirs));
        let mut known = self.aparts.borrow_mut();
        let of_mine = &mut known[pair.mine.at()];
        if of_mine.len() <= sibling {
            of_mine.resize(sibling + 1, Default::default());
        }
        let known = &mut of_mine[sibling][purpose as usize];
        if known.versions == versions && known.contract <= pair.contract && limit <= known.until {
            return Some(Crossing::after(limit));
        }
        let wait = limit.since(state.now()).0;
        let further = TimeMs(state.now().0.saturating_add(wait.saturating_mul(FURTHER)));
        // What could not even be allowed later is not allowed now.
        let until = if !self.could_cross(state, pair, further) {
            further
        } else if self.is_allowed_now(state, pair) {
            return None;
        } else if !self.could_cross(state, pair, limit) {
            limit
        } else {
            return Some(crossing_within(state, pair, limit));
        };
        *known = Apart { versions, contract: pair.contract, until };
        Some(Crossing::after(limit))
    }

    fn is_allowed_now(&self, state: &State, pair: Pair) -> bool {
        let mine = self.ratio_with(state, pair.mine, pair.contract);
        pair.test.holds(mine, self.ratio(state, pair.theirs))
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

    /// Whether a pair could be allowed before `limit`, seen generously: until a protection ends a side gains at
    /// most what runs past its contract, and it loses at most the whole capacity. Knows nothing (and says yes)
    /// while allocations change.
    fn could_cross(&self, state: &State, pair: Pair, limit: TimeMs) -> bool {
        if limit == TimeMs::NEVER || !state.ledger.allocation_is_steady(state.now()) {
            return true;
        }
        let wait = u128::from(limit.since(state.now()).0);
        let loss = (state.ledger.capacity_units() * wait) << 32;
        let gain = (state.ledger.unprotected_units(pair.theirs) * wait) << 32;
        let mine = self.ratio_with(state, pair.mine, pair.contract);
        let theirs = self.ratio(state, pair.theirs);
        let mine = Ratio { used: mine.used.saturating_sub(loss), ..mine };
        let theirs = Ratio { used: theirs.used + gain, ..theirs };
        pair.test.holds(mine, theirs)
    }

    /// The crossing of a pair up to `limit`; that there is none up to it where it may come later, so that it is
    /// looked for again then; never where nothing moves the pair any more.
    fn crossing_of(&self, state: &State, pair: Pair, limit: TimeMs) -> Crossing {
        if self.could_cross(state, pair, limit) {
            crossing_within(state, pair, limit)
        } else {
            Crossing::after(limit)
        }
    }

    /// Moments at which the core wakes whatever the ratios do; beyond the first, pieces may bend.
    fn known_wakes(&self, state: &State) -> TimeMs {
        let due = state.reservations.iter().map(|reservation| reservation.until);
        let wakes = due.chain(state.next_protection_end());
        wakes.filter(|&at| at > state.now()).fold(TimeMs::NEVER, TimeMs::min)
    }
}

/// The crossing of a pair up to `limit`, where it could come before.
fn crossing_within(state: &State, pair: Pair, limit: TimeMs) -> Crossing {
    if is_still(state, pair) {
        return Crossing::NEVER;
    }
    let found = first_crossing(state, pair, state.now(), limit);
    found.map_or(Crossing::after(limit), Crossing::found)
}

fn is_allowed(state: &State, pair: Pair, at: TimeMs) -> bool {
    may_be_allowed(state, pair, at, at)
}

/// Whether the pair could be allowed anywhere in `[from, to]`, seen generously: for a single moment,
/// whether it is.
fn may_be_allowed(state: &State, pair: Pair, from: TimeMs, to: TimeMs) -> bool {
    let mine = state.ledger.ratio_at_least(pair.mine, pair.contract, from, to);
    pair.test.holds(mine, state.ledger.ratio_at_most(pair.theirs, from, to))
}

/// The first moment in `(from, to]` at which the pair is allowed, knowing that it is not at `from`.
///
/// Intervals in which it cannot be are passed over whole; others are halved, the earlier half first, down
/// to those in which both ratios are straight lines.
fn first_crossing(state: &State, pair: Pair, from: TimeMs, to: TimeMs) -> Option<TimeMs> {
    if !may_be_allowed(state, pair, from, to) {
        return None;
    }
    if is_straight(state, pair, from, to) {
        return is_allowed(state, pair, to).then(|| bisect(state, pair, from, to));
    }
    if to.0 - from.0 <= 1 {
        return is_allowed(state, pair, to).then_some(to);
    }
    let middle = TimeMs(from.0 + (to.0 - from.0) / 2);
    first_crossing(state, pair, from, middle).or_else(|| first_crossing(state, pair, middle, to))
}

/// Whether the ratios of a pair are straight lines in `[from, to]`, so that its ends tell all: nothing that
/// leaves the lookback bends what is used, and what is allocated stays as it is.
fn is_straight(state: &State, pair: Pair, from: TimeMs, to: TimeMs) -> bool {
    [pair.mine, pair.theirs].iter().all(|&node| {
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
fn is_still(state: &State, pair: Pair) -> bool {
    let now = state.now();
    [pair.mine, pair.theirs].iter().all(|&node| {
        let account = state.ledger.account(node);
        let protected = state.ledger.protected_units(node);
        protected == 0
            && account.charged.rate() == account.charged.tail_rate(now)
            && account.charged.next_tail_change(now).is_none()
            && account.allocation.next_tail_change(now).is_none()
    })
}

/// The first allowed moment in `(from, to]`, where `from` is not allowed and `to` is.
fn bisect(state: &State, pair: Pair, from: TimeMs, to: TimeMs) -> TimeMs {
    let (mut low, mut high) = (from.0, to.0);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if is_allowed(state, pair, TimeMs(middle)) {
            high = middle;
        } else {
            low = middle;
        }
    }
    TimeMs(high)
}
