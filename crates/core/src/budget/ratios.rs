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
    /// The ratio at a moment, as a version of the account stood.
    read: Cell<(TimeMs, u64, Ratio)>,
    line: Cell<Option<Line>>,
}

impl Default for Known {
    fn default() -> Self {
        let read = Cell::new((TimeMs(0), u64::MAX, Ratio::default()));
        Self { read, line: Cell::new(None) }
    }
}

impl BudgetPolicy {
    /// Rule 3.
    pub(super) fn ratio(&self, state: &State, node: BudgetIx) -> Ratio {
        let known = &self.ratios[node.at()];
        let (at, version, ratio) = known.read.get();
        if (at, version) == (state.now(), state.ledger.version(node)) {
            return ratio;
        }
        self.read_ratio(state, node)
    }

    #[inline(never)]
    fn read_ratio(&self, state: &State, node: BudgetIx) -> Ratio {
        let known = &self.ratios[node.at()];
        let (now, version) = (state.now(), state.ledger.version(node));
        let (_, of_line, _) = known.read.get();
        let line = match known.line.get() {
            Some(line) if of_line == version && line.holds_at(now) => line,
            _ => {
                let line = state.ledger.line(node, now);
                known.line.set(Some(line));
                line
            }
        };
        let ratio = line.ratio_at(now);
        debug_assert_eq!(ratio, state.ledger.usage_ratio(node, now));
        known.read.set((now, version, ratio));
        ratio
    }

    /// The same, were `contract` more committed.
    pub(super) fn ratio_with(&self, state: &State, node: BudgetIx, contract: u128) -> Ratio {
        let Ratio { used, allocated } = self.ratio(state, node);
        Ratio { used: used + (contract << 32), allocated }
    }
}
