//! Rule 4: whose turn it is.
//!
//! From the root down, the sibling with the least usage ratio among those that still have requests to
//! try; ties go to the larger share, then to the name. Depth first, so everything of a less used
//! programme is tried before anything of a more used one.

use super::queue::{AskList, Entry};
use super::{BudgetPolicy, is_limited, least_rate};
use crate::state::State;
use crate::tree::FRACTION_ONE;
use crate::units::{BudgetIx, SpanMs, WorkloadIx};
use crate::wide::Ratio;
use core::cmp::Ordering;

impl BudgetPolicy {
    /// At the begin of an epoch every leaf with contracts may have something to place.
    pub(super) fn reopen(&mut self) {
        if self.open_in != self.epoch {
            self.open_in = self.epoch;
            for (open, queue) in self.open.iter_mut().zip(&self.queues) {
                *open = queue.waiting_contracts > 0;
            }
        }
    }

    /// The leaf whose turn it is among the open ones.
    pub(super) fn next_leaf(&self, state: &State) -> Option<usize> {
        let is_open = |node: BudgetIx| {
            state.tree.fraction(node) > 0
                && state.tree.leaves_below(node).any(|place| self.open[place])
        };
        let now = state.now();
        let leaf = descend(state, is_open, |node| state.ledger.usage_ratio(node, now))?;
        state.tree.leaf_place(leaf)
    }

    /// The first request of a leaf that is not known to be blocked in this epoch, by rank, first
    /// submission and id.
    pub(super) fn next_request(&mut self, state: &State, leaf: usize) -> Option<Entry> {
        let limited = is_limited(state, state.tree.leaves()[leaf]);
        loop {
            let first = |list: &AskList| {
                list.contracts.first_shorter(list.blocked_from(self.epoch))
            };
            let lists = self.queues[leaf].lists.iter();
            let (at, entry) = lists
                .enumerate()
                .filter_map(|(at, list)| first(list).map(|entry| (at, entry)))
                .min_by_key(|(_, entry)| entry.order)?;
            // Rule 1: without room for its whole contract it is unallocated this time.
            let list = &mut self.queues[leaf].lists[at];
            if limited && !state.would_be_allocated(entry.workload, least_rate(state, list.key)) {
                list.block(entry.contract, self.epoch);
                continue;
            }
            return Some(entry);
        }
    }

    /// Remembers that a request cannot be placed: neither can any of its leaf that asks for as many
    /// GPUs and as long a contract (or more).
    pub(super) fn block(&mut self, state: &State, leaf: usize, entry: Entry) {
        let blocked = state.workload(entry.workload);
        let spec = &blocked.spec;
        let comparable = spec.shape.is_none() && state.cluster.is_uniform(spec.model);
        for list in &mut self.queues[leaf].lists {
            let same = (list.key.gpus, list.key.shape, list.key.model)
                == (spec.gpus, spec.shape, spec.model);
            let larger = comparable
                && list.key.shape.is_none()
                && list.key.model == spec.model
                && list.key.gpus >= spec.gpus;
            if same || larger {
                list.block(entry.contract, self.epoch);
            }
        }
    }

    /// The unallocated request whose turn it is: asking for fewer than `blocked` GPUs and no more than
    /// are `idle`, and not among those already `tried`.
    pub(super) fn next_unallocated(
        &self,
        state: &State,
        blocked: u32,
        idle: u32,
        tried: &[WorkloadIx],
    ) -> Option<WorkloadIx> {
        let head = |place: usize| self.first_unallocated(state, place, blocked, idle, tried);
        let waits = |node: BudgetIx| {
            state.tree.leaves_below(node).any(|place| self.may_be_unallocated(state, place)
                && head(place).is_some())
        };
        let now = state.now();
        let leaf =
            descend(state, waits, |node| state.ledger.unallocated_ratio(&state.tree, node, now))?;
        head(state.tree.leaf_place(leaf)?).map(|entry| entry.workload)
    }

    fn may_be_unallocated(&self, state: &State, place: usize) -> bool {
        let queue = &self.queues[place];
        let leaf = state.tree.leaves()[place];
        queue.waiting_free > 0
            || (queue.waiting_contracts > 0
                && (state.tree.fraction(leaf) == 0 || is_limited(state, leaf)))
    }

    fn first_unallocated(
        &self,
        state: &State,
        place: usize,
        blocked: u32,
        idle: u32,
        tried: &[WorkloadIx],
    ) -> Option<Entry> {
        let leaf = state.tree.leaves()[place];
        let (funded, limited) = (state.tree.fraction(leaf) > 0, is_limited(state, leaf));
        let may_try = |list: &AskList| list.key.gpus < blocked && list.key.gpus <= idle;
        let lists = self.queues[place].lists.iter().filter(|list| may_try(list));
        lists
            .filter_map(|list| {
                let untried = |entry: &Entry| !tried.contains(&entry.workload);
                let free = if tried.is_empty() {
                    list.free.first_shorter(SpanMs(1))
                } else {
                    list.free.iter().find(untried)
                };
                let contract = if !funded || limited {
                    let rate = least_rate(state, list.key);
                    list.contracts.iter().filter(untried).find(|entry| {
                        !state.would_be_allocated(entry.workload, rate)
                    })
                } else {
                    None
                };
                free.into_iter().chain(contract).min_by_key(|entry| entry.order)
            })
            .min_by_key(|entry| entry.order)
    }
}

/// Walks from the root to a leaf, at each step to the child with the least ratio among those that `may`
/// be visited (rule 4).
fn descend(
    state: &State,
    may: impl Fn(BudgetIx) -> bool,
    ratio: impl Fn(BudgetIx) -> Ratio,
) -> Option<BudgetIx> {
    let mut node = BudgetIx(0);
    if !may(node) {
        return None;
    }
    while !state.tree.children(node).is_empty() {
        let mut best: Option<(BudgetIx, Ratio)> = None;
        for &child in state.tree.children(node) {
            if !may(child) {
                continue;
            }
            let candidate = (child, ratio(child));
            if best.is_none_or(|best| before(state, candidate, best) == Ordering::Less) {
                best = Some(candidate);
            }
        }
        node = best?.0;
    }
    debug_assert!(state.tree.fraction(BudgetIx(0)) <= FRACTION_ONE);
    Some(node)
}

/// Least ratio first; ties: larger share, then name (the order of the indices). A fraction of zero comes
/// last.
fn before(state: &State, a: (BudgetIx, Ratio), b: (BudgetIx, Ratio)) -> Ordering {
    let unfunded = |node: BudgetIx| state.tree.fraction(node) == 0;
    let share = |node: BudgetIx| state.tree.node(node).share_micro;
    (unfunded(a.0).cmp(&unfunded(b.0)))
        .then_with(|| a.1.compare(b.1))
        .then_with(|| share(b.0).cmp(&share(a.0)))
        .then_with(|| a.0.cmp(&b.0))
}
