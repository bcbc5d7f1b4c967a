//! Two siblings compared by their usage ratios, many times in every moment: for swaps (rule 6), for promises
//! (rule 7), and for the moments at which either changes.
//!
//! While allocations stand, a comparison depends on what both have used and on nothing else, and only becomes
//! more true as the one uses less and the other more. So each that was worked out settles all that lie further
//! on its side. Of every pair and test two such points are remembered, one of either answer, halfway between
//! what was asked and the boundary: nearly all comparisons are with those.

use super::BudgetPolicy;
use crate::state::State;
use crate::units::{BudgetIx, TimeMs};
use crate::wide::Ratio;
use alloc::vec::Vec;
use core::cell::Cell;
use core::cmp::Ordering;

/// What is asked of a pair of siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// Rule 6 (a): mine stays below theirs by the margin.
    Swap,
    /// Rule 7: theirs is above mine.
    Above,
}

impl Test {
    pub(super) fn holds(self, state: &State, mine: Ratio, theirs: Ratio) -> bool {
        match self {
            Self::Swap => mine.at_least_margin_below(theirs, state.settings.margin_ppm),
            Self::Above => mine.compare(theirs) == Ordering::Less,
        }
    }
}

/// One budget beside another one of the same parent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) mine: BudgetIx,
    pub(super) theirs: BudgetIx,
}

/// Where an answer is known: what mine has used and what theirs has, in units times 2^32.
#[derive(Clone, Debug)]
struct Point {
    mine: Cell<u128>,
    theirs: Cell<u128>,
}

impl Point {
    const fn at(mine: u128, theirs: u128) -> Self {
        Self { mine: Cell::new(mine), theirs: Cell::new(theirs) }
    }

    fn set(&self, mine: u128, theirs: u128) {
        self.mine.set(mine);
        self.theirs.set(theirs);
    }
}

/// What is known of a pair and a test.
#[derive(Clone, Debug)]
struct Known {
    /// The state of the allocations.
    allocations: Cell<u64>,
    /// It holds where mine has used no more than this, and theirs no less.
    holds: Point,
    /// It does not where mine has used no less than this, and theirs no more.
    fails: Point,
}

impl Known {
    const NEVER_HOLDS: (u128, u128) = (0, u128::MAX);
    const NEVER_FAILS: (u128, u128) = (u128::MAX, 0);

    const fn nothing() -> Self {
        Self {
            allocations: Cell::new(u64::MAX),
            holds: Point::at(Self::NEVER_HOLDS.0, Self::NEVER_HOLDS.1),
            fails: Point::at(Self::NEVER_FAILS.0, Self::NEVER_FAILS.1),
        }
    }
}

/// What is known of all pairs.
#[derive(Clone, Debug)]
pub(super) struct Pairs {
    /// The place of each budget among its siblings.
    places: Vec<usize>,
    /// Where what is known of each budget begins, by the places of its siblings.
    begins: Vec<usize>,
    /// For each pair and each [`Test`].
    known: Vec<[Known; 2]>,
}

impl Pairs {
    pub(super) fn of(state: &State) -> Self {
        let mut pairs = Self { places: Vec::new(), begins: Vec::new(), known: Vec::new() };
        for node in (0..state.tree.len()).map(|at| BudgetIx(at as u32)) {
            let parent = state.tree.parent(node);
            let siblings = parent.map_or(&[][..], |parent| state.tree.children(parent));
            pairs.places.push(siblings.iter().position(|&other| other == node).unwrap_or(0));
            pairs.begins.push(pairs.known.len());
            let nothing = || [Known::nothing(), Known::nothing()];
            pairs.known.extend(siblings.iter().map(|_| nothing()));
        }
        pairs
    }

    fn known(&self, test: Test, pair: Pair) -> &Known {
        let at = self.begins[pair.mine.at()] + self.places[pair.theirs.at()];
        &self.known[at][test as usize]
    }
}

impl BudgetPolicy {
    /// Whether a test holds now, were `contract` units more committed to mine.
    pub(super) fn holds(&self, state: &State, test: Test, pair: Pair, contract: u128) -> bool {
        let mine_used = self.used(state, pair.mine) + (contract << 32);
        self.holds_at(state, test, pair, (mine_used, self.used(state, pair.theirs)))
    }

    /// How little a budget could have used by `limit`, and how much, seen generously: until a protection ends a
    /// side gains at most what runs past its contract, and it loses at most the whole capacity.
    pub(super) fn range_by(&self, state: &State, node: BudgetIx, limit: TimeMs) -> (u128, u128) {
        let wait = u128::from(limit.since(state.now()).0);
        let loss = (state.ledger.capacity_units() * wait) << 32;
        let gain = (state.ledger.unprotected_units(node) * wait) << 32;
        let used = self.used(state, node);
        (used.saturating_sub(loss), used + gain)
    }

    /// Whether a test holds where both have used so much, and are allocated what they are now.
    #[inline]
    pub(super) fn holds_at(
        &self,
        state: &State,
        test: Test,
        pair: Pair,
        (mine, theirs): (u128, u128),
    ) -> bool {
        let known = self.pairs.known(test, pair);
        if known.allocations.get() == state.ledger.allocations() {
            if mine >= known.fails.mine.get() && theirs <= known.fails.theirs.get() {
                return false;
            }
            if mine <= known.holds.mine.get() && theirs >= known.holds.theirs.get() {
                return true;
            }
        }
        let of = |node, used| Ratio { used, ..self.ratio(state, node) };
        self.work_out(state, test, known, (of(pair.mine, mine), of(pair.theirs, theirs)))
    }

    #[inline(never)]
    fn work_out(
        &self,
        state: &State,
        test: Test,
        known: &Known,
        (mine, theirs): (Ratio, Ratio),
    ) -> bool {
        let holds = test.holds(state, mine, theirs);
        let lasting = state.ledger.allocation_is_steady(state.now()) && !self.forgetful;
        if !lasting || mine.allocated == 0 || theirs.allocated == 0 {
            // Nothing may stay that was known of other allocations.
            known.allocations.set(u64::MAX);
            return holds;
        }
        if known.allocations.get() != state.ledger.allocations() {
            known.allocations.set(state.ledger.allocations());
            known.holds.set(Known::NEVER_HOLDS.0, Known::NEVER_HOLDS.1);
            known.fails.set(Known::NEVER_FAILS.0, Known::NEVER_FAILS.1);
        }
        let margin = match test {
            Test::Swap => scaled(mine.allocated, state.settings.margin_ppm.into(), 1_000_000),
            Test::Above => 0,
        };
        // What theirs has used at the boundary, as mine stands; halfway to it; and mine at the boundary there.
        let edge = scaled(mine.used + margin, theirs.allocated, mine.allocated);
        let theirs_used = theirs.used / 2 + edge / 2;
        let edge = scaled(theirs_used, mine.allocated, theirs.allocated).saturating_sub(margin);
        let rounding = (edge >> 50) + 1;
        let mine_used = if holds { edge.saturating_sub(rounding) } else { edge + rounding };
        // All that was rounded on the way: the point counts if the test itself says so.
        let at = |used: u128, of: Ratio| Ratio { used, ..of };
        if test.holds(state, at(mine_used, mine), at(theirs_used, theirs)) == holds {
            let point = if holds { &known.holds } else { &known.fails };
            point.set(mine_used, theirs_used);
        }
        holds
    }
}

/// About `value * by / over`, in 62 significant bits.
fn scaled(value: u128, by: u128, over: u128) -> u128 {
    let shift = |value: u128| (128 - value.leading_zeros()).saturating_sub(62);
    let (of_value, of_by, of_over) = (shift(value), shift(by), shift(over));
    let quotient = (value >> of_value) * (by >> of_by) / (over >> of_over).max(1);
    let up = of_value + of_by;
    if up >= of_over {
        quotient.checked_shl(up - of_over).filter(|of| of >> (up - of_over) == quotient)
    } else {
        Some(quotient >> (of_over - up))
    }
    .unwrap_or(u128::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_scaled_value_is_close(
            value in 0u128..1 << 84, by in 1u128..1 << 80, over in 1u128..1 << 80,
        ) {
            let (short, by, over) = (value >> 44, by >> 4, over);
            let exact = short * by / over;
            let found = scaled(short, by, over);
            prop_assert!(found.abs_diff(exact) <= (exact >> 55) + 1, "{found} and not {exact}");
        }
    }
}
