//! Usage ratios (rule 3), remembered. Between two changes of an account what it has used moves along a
//! straight line until a breakpoint leaves the lookback: so a ratio is worked out once per line, and read off
//! it at every other moment.

use super::BudgetPolicy;
use crate::ledger::Line;
use crate::state::State;
use crate::units::{BudgetIx, TimeMs};
use crate::wide::Ratio;
use core::cell::Cell;

/// What is known of one budget's ratio.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// The moment of the latest reading …
    at: Cell<TimeMs>,
    /// … the version of the account that it and the line are of …
    version: Cell<u64>,
    /// … and what was read.
    used: Cell<u128>,
    allocated: Cell<u128>,
    line: Cell<Option<Line>>,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            at: Cell::new(TimeMs(0)),
            version: Cell::new(u64::MAX),
            used: Cell::new(0),
            allocated: Cell::new(0),
            line: Cell::new(None),
        }
    }
}

impl BudgetPolicy {
    /// Rule 3.
    pub(super) fn ratio(&self, state: &State, node: BudgetIx) -> Ratio {
        let known = self.read(state, node);
        Ratio { used: known.used.get(), allocated: known.allocated.get() }
    }

    /// What a ratio has above its line.
    pub(super) fn used(&self, state: &State, node: BudgetIx) -> u128 {
        self.read(state, node).used.get()
    }

    #[inline]
    fn read(&self, state: &State, node: BudgetIx) -> &Known {
        let known = &self.ratios[node.at()];
        if known.at.get() != state.now() || known.version.get() != state.ledger.version(node) {
            known.read_at(state, node);
        }
        known
    }

    /// The same, were `contract` more committed.
    pub(super) fn ratio_with(&self, state: &State, node: BudgetIx, contract: u128) -> Ratio {
        let Ratio { used, allocated } = self.ratio(state, node);
        Ratio { used: used + (contract << 32), allocated }
    }
}

impl Known {
    #[inline(never)]
    fn read_at(&self, state: &State, node: BudgetIx) {
        let (now, version) = (state.now(), state.ledger.version(node));
        let line = match self.line.get() {
            Some(line) if self.version.get() == version && line.holds_at(now) => line,
            _ => {
                let line = state.ledger.line(node, now);
                self.line.set(Some(line));
                line
            }
        };
        let ratio = line.ratio_at(now);
        debug_assert_eq!(ratio, state.ledger.usage_ratio(node, now));
        self.at.set(now);
        self.version.set(version);
        self.used.set(ratio.used);
        self.allocated.set(ratio.allocated);
    }
}
