//! Rule 6 (a): which sides stand so far above a request's own that it may take from them.

use super::BudgetPolicy;
use super::ratios::{Pair, Test};
use crate::state::State;
use crate::units::{BudgetIx, TimeMs};
use crate::wide::Ratio;
use alloc::vec::Vec;

/// A side that may lose GPUs to a request: where the paths part, and the numbers compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    pub(super) mine: BudgetIx,
    pub(super) theirs: BudgetIx,
    pub(super) ratio_after: Ratio,
    pub(super) ratio_theirs: Ratio,
}

/// Whether rule 6 (a) could allow a budget any of its siblings, at a moment, as the account above them stood:
/// it changes whenever one of theirs does.
#[derive(Clone, Copy, Debug)]
pub(super) struct HasSide {
    at: TimeMs,
    version: u64,
    has: bool,
}

impl HasSide {
    pub(super) const UNKNOWN: Self = Self { at: TimeMs(0), version: u64::MAX, has: false };
}

impl BudgetPolicy {
    /// For every leaf, the side on which rule 6 (a) lets a contract of `contract` units for `leaf` take
    /// interruptible work now; `needs_work` leaves out sides that have none.
    pub(super) fn sides(
        &self,
        state: &State,
        leaf: BudgetIx,
        contract: u128,
        needs_work: bool,
        sides: &mut Vec<Option<Side>>,
    ) -> u32 {
        sides.clear();
        sides.resize(state.tree.leaves().len(), None);
        let mut takeable_gpus = 0;
        for mine in state.tree.path(leaf) {
            let Some(parent) = state.tree.parent(mine) else { break };
            for &theirs in state.tree.children(parent) {
                let gpus = state.ledger.account(theirs).interruptible_gpus;
                if theirs == mine || (needs_work && gpus == 0) {
                    continue;
                }
                if self.holds(state, Test::Swap, Pair { mine, theirs }, contract) {
                    takeable_gpus += gpus;
                    let ratio_after = self.ratio_with(state, mine, contract);
                    let ratio_theirs = self.ratio(state, theirs);
                    let side = Side { mine, theirs, ratio_after, ratio_theirs };
                    sides[state.tree.leaves_below(theirs)].fill(Some(side));
                }
            }
        }
        takeable_gpus
    }

    /// Whether rule 6 (a) could allow any side at all to a request of `leaf` now, however short.
    pub(super) fn leaf_has_sides(&self, state: &State, leaf: BudgetIx) -> bool {
        state.tree.path(leaf).any(|mine| self.has_side(state, mine))
    }

    /// Whether rule 6 (a) could allow `mine` any of its siblings now.
    pub(super) fn has_side(&self, state: &State, mine: BudgetIx) -> bool {
        let Some(parent) = state.tree.parent(mine) else { return false };
        let known = self.node_sides[mine.at()].get();
        let version = state.ledger.version(parent);
        if (known.at, known.version) == (state.now(), version) {
            return known.has;
        }
        let has = state.tree.children(parent).iter().any(|&theirs| {
            theirs != mine
                && state.ledger.account(theirs).interruptible_gpus > 0
                && self.holds(state, Test::Swap, Pair { mine, theirs }, 0)
        });
        self.node_sides[mine.at()].set(HasSide { at: state.now(), version, has });
        has
    }
}
