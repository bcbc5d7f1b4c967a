//! Usage ratios (rule 3), remembered; and comparisons of siblings by them, of which every moment takes many.
//!
//! Between two changes of an account what it has used moves along a straight line until a breakpoint leaves
//! the lookback: so a ratio is worked out once per line, and read off it at every other moment. Beside it stand
//! two short numbers that it lies between. Nearly all comparisons are decided by those; the rest are exact.

use super::BudgetPolicy;
use crate::ledger::Line;
use crate::state::State;
use crate::units::{BudgetIx, TimeMs};
use crate::wide::Ratio;
use core::cell::{Cell, RefCell};
use core::cmp::Ordering;

/// What is asked of two siblings.
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

    /// Whether it holds, if the short numbers tell.
    #[inline]
    pub(super) fn by_bounds(self, state: &State, mine: Bounds, theirs: Bounds) -> Option<bool> {
        let margin = match self {
            Self::Swap => (state.settings.margin_ppm << SCALE_BITS) / 1_000_000,
            Self::Above => 0,
        };
        if mine.low.saturating_add(margin) > theirs.high {
            Some(false)
        } else if mine.high.saturating_add(margin + 1) < theirs.low {
            Some(true)
        } else {
            None
        }
    }
}

/// One budget beside another one of the same parent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) mine: BudgetIx,
    pub(super) theirs: BudgetIx,
}

/// Short numbers are ratios times two to the power of this.
const SCALE_BITS: u32 = 40;

/// Short numbers that a ratio lies between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    low: u64,
    high: u64,
}

/// How units come to bounds where so much is allocated.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scale {
    allocated: u128,
    /// `2^(SCALE_BITS + 96 - shift) / allocated`, rounded down; 0 where nothing is known.
    inverse: u64,
    /// By how much units are raised first.
    shift: u32,
}

impl Scale {
    const UNKNOWN: Bounds = Bounds { low: 0, high: u64::MAX };

    fn of(allocated: u128) -> Self {
        // So that the inverse has 63 bits, if need be of what is rounded up from 63 bits of the divisor: longer
        // divisions take long.
        let bits = 128 - allocated.leading_zeros();
        let shift = (SCALE_BITS + 34).saturating_sub(bits);
        let power = SCALE_BITS + 96 - shift;
        let cut = power.saturating_sub(125);
        let over = (allocated >> cut) + u128::from(cut > 0);
        let inverse = (1u128 << (power - cut)).checked_div(over).filter(|_| shift < 64);
        let inverse = inverse.and_then(|inverse| u64::try_from(inverse).ok()).unwrap_or(0);
        Self { allocated, inverse, shift }
    }

    /// The bounds of so many units: what is rounded, here and in the inverse, comes to less than five.
    #[inline]
    pub(super) fn bounds(self, units: u64) -> Bounds {
        if self.inverse == 0 || units == u64::MAX || units.leading_zeros() < self.shift {
            return Self::UNKNOWN;
        }
        let product = u128::from(units << self.shift) * u128::from(self.inverse);
        let low = (product >> 64) as u64;
        Bounds { low, high: low.saturating_add(5) }
    }
}

/// What is known of one budget's ratio.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// The moment of the latest reading …
    at: Cell<TimeMs>,
    /// … the version of the account that it and the line are of …
    version: Cell<u64>,
    /// … and what was read.
    used_units: Cell<u128>,
    bounds: Cell<Bounds>,
    scale: Cell<Scale>,
    line: RefCell<Line>,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            at: Cell::new(TimeMs(0)),
            version: Cell::new(u64::MAX),
            used_units: Cell::new(0),
            bounds: Cell::default(),
            scale: Cell::default(),
            line: RefCell::default(),
        }
    }
}

impl Known {
    #[inline(never)]
    fn read_at(&self, state: &State, node: BudgetIx) {
        let (now, version) = (state.now(), state.ledger.version(node));
        let line = &mut *self.line.borrow_mut();
        if self.version.get() != version || !line.holds_at(now) {
            *line = state.ledger.line(node, now);
        }
        let ((used, _), allocated) = (line.used_units_at(now), line.allocated_at(now).unwrap_or(0));
        if self.scale.get().allocated != allocated {
            self.scale.set(Scale::of(allocated));
        }
        self.at.set(now);
        self.version.set(version);
        self.used_units.set(used);
        self.bounds.set(self.scale.get().bounds(short(used)));
    }

    fn ratio_with(&self, contract: u128) -> Ratio {
        let used = (self.used_units.get() + contract) << 32;
        Ratio { used, allocated: self.scale.get().allocated }
    }
}

impl BudgetPolicy {
    #[inline]
    fn read(&self, state: &State, node: BudgetIx) -> &Known {
        let known = &self.ratios[node.at()];
        if known.at.get() != state.now() || known.version.get() != state.ledger.version(node) {
            known.read_at(state, node);
            debug_assert_eq!(known.ratio_with(0), state.ledger.usage_ratio(node, state.now()));
        }
        known
    }

    /// Rule 3.
    pub(super) fn ratio(&self, state: &State, node: BudgetIx) -> Ratio {
        self.ratio_with(state, node, 0)
    }

    /// The same, were `contract` more committed.
    pub(super) fn ratio_with(&self, state: &State, node: BudgetIx, contract: u128) -> Ratio {
        self.read(state, node).ratio_with(contract)
    }

    /// Orders two budgets by their ratios.
    pub(super) fn compare(&self, state: &State, a: BudgetIx, b: BudgetIx) -> Ordering {
        let (of_a, of_b) = (self.read(state, a), self.read(state, b));
        if of_a.bounds.get().high < of_b.bounds.get().low {
            Ordering::Less
        } else if of_b.bounds.get().high < of_a.bounds.get().low {
            Ordering::Greater
        } else {
            of_a.ratio_with(0).compare(of_b.ratio_with(0))
        }
    }

    /// Whether a test holds now, were `contract` units more committed to mine.
    pub(super) fn holds(&self, state: &State, test: Test, pair: Pair, contract: u128) -> bool {
        let (mine, theirs) = (self.read(state, pair.mine), self.read(state, pair.theirs));
        let of_mine = if contract == 0 {
            mine.bounds.get()
        } else {
            mine.scale.get().bounds(short(mine.used_units.get() + contract))
        };
        test.by_bounds(state, of_mine, theirs.bounds.get())
            .unwrap_or_else(|| test.holds(state, mine.ratio_with(contract), theirs.ratio_with(0)))
    }

    /// How a budget could stand up to a moment, unless its account changes. Beyond the end of its line what is
    /// used is seen generously: a side gains at most what runs past its contract, and it loses at most the whole
    /// capacity. Of what is allocated nothing is said there.
    pub(super) fn view(&self, state: &State, node: BudgetIx, by: TimeMs) -> View {
        let known = self.read(state, node);
        let line = known.line.borrow();
        let scale = known.scale.get();
        let Some(allocated) = line.allocated_at(by) else {
            return View { least: 0, scale: Scale::default(), most: Scale::UNKNOWN };
        };
        let (then, beyond) = line.used_units_at(by);
        let (now, then) = (short(known.used_units.get()), short(then));
        let (mut most, mut least) = (now.max(then), now.min(then));
        if beyond.0 > 0 {
            let moves = |units: u128| short(units).saturating_mul(beyond.0);
            most = most.saturating_add(moves(state.ledger.unprotected_units(node)));
            least = least.saturating_sub(moves(state.ledger.capacity_units()));
        }
        // Most stands highest where least is allocated, and the other way round.
        let (more, less) = match allocated.cmp(&scale.allocated) {
            Ordering::Equal => (scale, scale),
            Ordering::Greater => (Scale::of(allocated), scale),
            Ordering::Less => (scale, Scale::of(allocated)),
        };
        View { least, scale: more, most: less.bounds(most) }
    }
}

/// How a budget could stand up to a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    least: u64,
    scale: Scale,
    most: Bounds,
}

impl View {
    /// Whether a test could hold for it with a contract, against how high another could stand.
    #[inline]
    pub(super) fn could_hold(
        &self,
        state: &State,
        test: Test,
        contract: u128,
        theirs: &Self,
    ) -> bool {
        let least = self.scale.bounds(self.least.saturating_add(short(contract)));
        test.by_bounds(state, least, theirs.most) != Some(false)
    }
}

/// Units in short. What does not fit is more than any bound can tell.
#[inline]
fn short(units: u128) -> u64 {
    u64::try_from(units).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_ratio_lies_between_its_bounds(
            units in 0u64.., cut in 0u32..64, bits in 0u32..100, allocated in 0u128..1 << 100,
        ) {
            let (units, allocated) = (units >> cut, (allocated >> bits).max(1));
            let Bounds { low, high } = Scale::of(allocated).bounds(units);
            let ratio = Ratio { used: u128::from(units) << 32, allocated };
            let short = |value: u64| Ratio { used: value.into(), allocated: 1 << SCALE_BITS };
            prop_assert_ne!(short(low).compare(ratio), Ordering::Greater);
            if high < u64::MAX {
                prop_assert_ne!(short(high).compare(ratio), Ordering::Less);
            }
        }
    }
}
