//! The next moment at which rule 6 allows something that it does not allow now, although nothing
//! happens: a ratio crossing.
//!
//! Between events a side's ratio moves along straight pieces: what runs unprotected adds to the used
//! GPU-time, what falls out of the lookback takes from it. A crossing is looked for piece by piece, up
//! to the next moment at which the core wakes anyway, and is exact to the millisecond.

use super::queue::LeafQueue;
use super::{BudgetPolicy, least_rate};
use crate::state::State;
use crate::units::{BudgetIx, SpanMs, TimeMs};
use crate::wide::Ratio;
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

impl BudgetPolicy {
    /// The next crossing of any waiting contract against any side that has interruptible work.
    pub(super) fn next_crossing(&self, state: &State) -> TimeMs {
        let known = self.known_wakes(state);
        let limit = known.min(state.now() + LOOKAHEAD);
        let mut next = TimeMs::NEVER;
        let unreserved = state.reservations.len() < state.settings.reservations as usize;
        for (place, queue) in self.queues.iter().enumerate() {
            let leaf = state.tree.leaves()[place];
            if queue.waiting_contracts == 0 || state.tree.fraction(leaf) == 0 {
                continue;
            }
            // A promise can be made, or moved, when a side comes to be above the holder's.
            let holds = state
                .reservations
                .iter()
                .any(|reservation| state.workload(reservation.holder).spec.budget == leaf);
            let unreserved = unreserved || holds;
            let rates = queue.lists.iter().filter(|list| !list.contracts.is_empty());
            let rate = rates.map(|list| u128::from(least_rate(state, list.key))).min().unwrap_or(1);
            for mine in state.tree.path(leaf) {
                let Some(parent) = state.tree.parent(mine) else { break };
                for &theirs in state.tree.children(parent) {
                    let busy = state.ledger.account(theirs).interruptible_gpus > 0;
                    if theirs == mine || !(busy || unreserved) {
                        continue;
                    }
                    let swap = Test::Swap(state.settings.margin_ppm);
                    let pair = Pair { mine, theirs, contract: 0, test: swap };
                    let shortest = queue.contract_costs.keys().next().map_or(0, |cost| cost * rate);
                    let shortest = Pair { contract: shortest, ..pair };
                    if !busy {
                        // Nothing to take yet; but a promise can be made against what is protected.
                    } else if !self.is_allowed_now(state, shortest) {
                        next = next.min(self.crossing_of(state, shortest, limit.min(next)));
                    } else {
                        next =
                            next.min(self.next_longer(state, queue, rate, pair, limit.min(next)));
                    }
                    if unreserved {
                        // Rule 7: a side comes to count for a reservation when its ratio passes the own.
                        let pair = Pair { test: Test::Above, ..pair };
                        if !self.is_allowed_now(state, pair) {
                            next = next.min(self.crossing_of(state, pair, limit.min(next)));
                        }
                    }
                }
            }
        }
        next
    }

    /// The crossing of the least contract of a leaf that is longer than what is allowed now.
    fn next_longer(
        &self,
        state: &State,
        queue: &LeafQueue,
        rate: u128,
        pair: Pair,
        limit: TimeMs,
    ) -> TimeMs {
        let allowed = self.longest_allowed(state, pair);
        let costs = queue.contract_costs.range(allowed.div_ceil(rate)..);
        let longer = costs
            .map(|(cost, _)| Pair { contract: cost * rate, ..pair })
            .find(|&pair| !self.is_allowed_now(state, pair));
        longer.map_or(TimeMs::NEVER, |pair| self.crossing_of(state, pair, limit))
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

    /// Whether a pair could be allowed before `limit`, seen generously: a side gains and loses at most the
    /// whole capacity per millisecond. Knows nothing (and says yes) while allocations change.
    fn could_cross(&self, state: &State, pair: Pair, limit: TimeMs) -> bool {
        if limit == TimeMs::NEVER || !state.ledger.allocation_is_steady(state.now()) {
            return true;
        }
        let most = (state.ledger.capacity_units() * u128::from(limit.since(state.now()).0)) << 32;
        let mine = self.ratio_with(state, pair.mine, pair.contract);
        let theirs = self.ratio(state, pair.theirs);
        let mine = Ratio { used: mine.used.saturating_sub(most), ..mine };
        let theirs = Ratio { used: theirs.used + most, ..theirs };
        pair.test.holds(mine, theirs)
    }

    /// The crossing of a pair up to `limit`; `limit` itself where it may come later, so that it is looked for
    /// again then; [`TimeMs::NEVER`] where nothing moves the pair any more.
    fn crossing_of(&self, state: &State, pair: Pair, limit: TimeMs) -> TimeMs {
        if is_still(state, pair) {
            return TimeMs::NEVER;
        }
        if self.could_cross(state, pair, limit) {
            first_crossing(state, pair, limit)
        } else {
            limit
        }
    }

    /// Moments at which the core wakes whatever the ratios do; beyond the first, pieces may bend.
    fn known_wakes(&self, state: &State) -> TimeMs {
        let due = state.reservations.iter().map(|reservation| reservation.until);
        let wakes = due.chain(state.first_protection_end());
        wakes.filter(|&at| at > state.now()).fold(TimeMs::NEVER, TimeMs::min)
    }
}

fn is_allowed(state: &State, pair: Pair, at: TimeMs) -> bool {
    let mine = forecast(state, pair.mine, pair.contract, at);
    pair.test.holds(mine, forecast(state, pair.theirs, 0, at))
}

/// The usage ratio at a later moment if nothing happens before.
fn forecast(state: &State, node: BudgetIx, extra: u128, at: TimeMs) -> Ratio {
    state.ledger.usage_ratio_with(node, extra, at)
}

/// The first moment after now at which the pair is allowed, or `limit` if there is none before it.
fn first_crossing(state: &State, pair: Pair, limit: TimeMs) -> TimeMs {
    let mut from = state.now();
    while from < limit {
        let to = piece_end(state, pair, from).min(limit);
        if let Some(at) = crossing_in_piece(state, pair, from, to) {
            return at;
        }
        from = to;
    }
    limit
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

/// The end of the straight piece that begins at `from`.
fn piece_end(state: &State, pair: Pair, from: TimeMs) -> TimeMs {
    [pair.mine, pair.theirs]
        .iter()
        .flat_map(|&node| {
            let account = state.ledger.account(node);
            [account.charged.next_tail_change(from), account.allocation.next_tail_change(from)]
        })
        .flatten()
        .filter(|&at| at > from)
        .fold(TimeMs::NEVER, TimeMs::min)
}

/// The first moment in `(from, to]` at which the pair is allowed, knowing that it is not at `from`.
///
/// On a piece, used and allocated are linear, so the difference that decides is a quadratic in time. If
/// it is met at the end there is exactly one crossing; if not, it can only be met around the vertex, which
/// matters where capacity changed within the lookback.
fn crossing_in_piece(state: &State, pair: Pair, from: TimeMs, to: TimeMs) -> Option<TimeMs> {
    if is_allowed(state, pair, from) {
        return Some(from);
    }
    if is_allowed(state, pair, to) {
        return Some(bisect(state, pair, from, to));
    }
    if is_flat(state, pair, from) {
        return None;
    }
    // The capacity within the lookback changes along this piece: sample it, then bisect.
    const SAMPLES: u64 = 16;
    let step = (to.0 - from.0) / SAMPLES;
    (1..SAMPLES)
        .map(|sample| TimeMs(from.0 + sample * step))
        .find(|&at| step > 0 && is_allowed(state, pair, at))
        .map(|at| bisect(state, pair, from, at))
}

/// Whether the allocations of a pair stay as they are along the piece from `from`, so that its ratios are
/// straight lines and the ends of the piece tell all.
fn is_flat(state: &State, pair: Pair, from: TimeMs) -> bool {
    [pair.mine, pair.theirs].iter().all(|&node| {
        let allocation = &state.ledger.account(node).allocation;
        allocation.rate() == allocation.tail_rate(from)
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
