//! Rule 4: whose turn it is.
//!
//! From the root down, the sibling with the least usage ratio among those that still have requests to
//! try; ties go to the larger share, then to the name. Depth first, so everything of a less used
//! programme is tried before anything of a more used one.

use super::queue::{AskKey, AskList, Entry};
use super::{BudgetPolicy, is_limited, least_rate};
use crate::state::State;
use crate::tree::FRACTION_ONE;
use crate::units::{BudgetIx, SpanMs, WorkloadIx};
use crate::workload::Workload;
use core::cmp::Ordering;

impl BudgetPolicy {
    /// At the begin of an epoch every funded leaf with contracts may have something to place.
    pub(super) fn reopen(&mut self, state: &State) {
        if self.open_in != self.epoch {
            self.open_in = self.epoch;
            self.marks.iter_mut().for_each(|mark| *mark += 1);
            self.asked_way.fill(false);
            for place in 0..self.open.len() {
                self.open[place] = self.may_have_allocated(state, place);
            }
        }
    }

    /// The leaf whose turn it is among the open ones.
    pub(super) fn next_leaf(&self, state: &State) -> Option<usize> {
        let is_open = |node: BudgetIx| {
            state.tree.fraction(node) > 0
                && state.tree.leaves_below(node).any(|place| self.open[place])
        };
        let leaf = descend(state, is_open, |a, b| self.compare(state, a, b))?;
        state.tree.leaf_place(leaf)
    }

    /// The first request of a leaf that is not known to be blocked, by rank, first
    /// submission and id.
    pub(super) fn next_request(&mut self, state: &State, leaf: usize) -> Option<Entry> {
        let budget = state.tree.leaves()[leaf];
        let limited = is_limited(state, budget);
        let has_sides = self.leaf_has_sides(state, budget);
        loop {
            let mut next: Option<(usize, Entry)> = None;
            for place in 0..self.queues[leaf].contract_lists().len() {
                let at = self.queues[leaf].contract_lists()[place] as usize;
                let Some(first) = self.first_of(state, leaf, at, has_sides) else { continue };
                if next.is_none_or(|(_, next)| first.order < next.order) {
                    next = Some((at, first));
                }
            }
            let (at, entry) = next?;
            // Rule 1: without room for its whole contract it is unallocated this time.
            let list = &mut self.queues[leaf].lists[at];
            if limited && !state.would_be_allocated(entry.workload, least_rate(state, list.key)) {
                list.block(entry.contract, self.marks[leaf]);
                continue;
            }
            return Some(entry);
        }
    }

    /// The first request of a list that is not known to be blocked. What is too long for all that it could have
    /// is blocked from now on.
    fn first_of(
        &mut self,
        state: &State,
        leaf: usize,
        at: usize,
        has_sides: bool,
    ) -> Option<Entry> {
        let list = &self.queues[leaf].lists[at];
        let bound = list.blocked_from(self.marks[leaf]);
        if list.contracts.shortest() >= bound {
            return None;
        }
        if !self.tried_holders.is_empty() {
            let untried = |entry: &Entry| !self.tried_holders.contains(&entry.workload);
            return list.contracts.iter().filter(untried).find(|entry| entry.contract < bound);
        }
        let first = list.contracts.first_shorter(bound)?;
        // While a reservation is to be had, the first that cannot be placed must be known.
        if Self::may_reserve_more(state) || self.forgetful {
            return Some(first);
        }
        let budget = state.tree.leaves()[leaf];
        let longest = if has_sides || state.has_lower_rank(budget, first.rank()) {
            self.longest_in_reach(state, budget, &list.asks)
        } else if Self::has_holder(state, budget, list.key) {
            return Some(first);
        } else {
            // It can have nothing but idle and unallocated GPUs, and so can all after it.
            self.longest_on_soft(state, &list.asks, first.contract)
        };
        if first.contract <= longest {
            return Some(first);
        }
        let list = &mut self.queues[leaf].lists[at];
        // Shorter ones than any that wait may have more: no crossing was looked for on their behalf.
        let longer = SpanMs(longest.0.saturating_add(1)).max(list.contracts.shortest());
        list.block(longer, self.marks[leaf]);
        list.contracts.first_shorter(list.blocked_from(self.marks[leaf]))
    }

    /// Whether a leaf may have something to place, told from what no search is needed for. Most leaves that are
    /// opened by a change have not, and are closed again by this.
    pub(super) fn may_have_next(&mut self, state: &State, leaf: usize) -> bool {
        if Self::may_reserve_more(state) || self.forgetful {
            return true;
        }
        let mark = self.marks[leaf];
        let queue = &self.queues[leaf];
        let unblocked = || {
            let lists = queue.contract_lists().iter().map(|&at| &queue.lists[at as usize]);
            lists.filter(|list| list.contracts.shortest() < list.blocked_from(mark))
        };
        let mut is_blocked = true;
        for list in unblocked() {
            let shortest = list.contracts.shortest();
            if shortest <= self.most_on_soft(&list.asks)
                && shortest <= self.longest_on_soft(state, &list.asks, shortest)
            {
                return true;
            }
            is_blocked = false;
        }
        if is_blocked {
            return false;
        }
        let budget = state.tree.leaves()[leaf];
        let lowest = state.lowest_rank(budget);
        let outranks = |list: &AskList| {
            let first = list.contracts.first();
            first.is_some_and(|first| lowest.is_some_and(|lowest| first.rank() > lowest))
        };
        let holds = Self::holders(state, budget).next().is_some();
        let may_have_more = unblocked()
            .any(|list| outranks(list) || (holds && Self::has_holder(state, budget, list.key)))
            || self.leaf_has_sides(state, budget);
        if !may_have_more {
            self.queues[leaf].block_all(mark);
        }
        may_have_more
    }

    /// The requests of a leaf that hold reservations.
    fn holders(state: &State, leaf: BudgetIx) -> impl Iterator<Item = &Workload> {
        let holders =
            state.reservations.iter().map(|reservation| state.workload(reservation.holder));
        holders.filter(move |holder| holder.spec.budget == leaf)
    }

    /// Whether a request of this list holds a reservation: its hosts are open to it alone.
    fn has_holder(state: &State, leaf: BudgetIx, key: AskKey) -> bool {
        Self::holders(state, leaf).any(|holder| holder.spec.gpus == key.gpus)
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
                list.block(entry.contract, self.marks[leaf]);
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
            state
                .tree
                .leaves_below(node)
                .any(|place| self.may_be_unallocated(state, place) && head(place).is_some())
        };
        let now = state.now();
        let ratio = |node| state.ledger.unallocated_ratio(&state.tree, node, now);
        let leaf = descend(state, waits, |a, b| ratio(a).compare(ratio(b)))?;
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
                    list.contracts
                        .iter()
                        .filter(untried)
                        .filter(|entry| {
                            state.workload(entry.workload).backs_off_until <= state.now()
                        })
                        .find(|entry| !state.would_be_allocated(entry.workload, rate))
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
    compare: impl Fn(BudgetIx, BudgetIx) -> Ordering,
) -> Option<BudgetIx> {
    let mut node = BudgetIx(0);
    if !may(node) {
        return None;
    }
    while !state.tree.children(node).is_empty() {
        let mut best: Option<BudgetIx> = None;
        for &child in state.tree.children(node) {
            if may(child)
                && best.is_none_or(|best| before(state, child, best, &compare) == Ordering::Less)
            {
                best = Some(child);
            }
        }
        node = best?;
    }
    debug_assert!(state.tree.fraction(BudgetIx(0)) <= FRACTION_ONE);
    Some(node)
}

/// Least ratio first; ties: larger share, then name (the order of the indices). A fraction of zero comes
/// last.
fn before(
    state: &State,
    a: BudgetIx,
    b: BudgetIx,
    compare: &impl Fn(BudgetIx, BudgetIx) -> Ordering,
) -> Ordering {
    let unfunded = |node: BudgetIx| state.tree.fraction(node) == 0;
    let share = |node: BudgetIx| state.tree.node(node).share_micro;
    (unfunded(a).cmp(&unfunded(b)))
        .then_with(|| compare(a, b))
        .then_with(|| share(b).cmp(&share(a)))
        .then_with(|| a.cmp(&b))
}
