//! Rule 4: whose turn it is.
//!
//! From the root down, the sibling with the least usage ratio among those that still have requests to
//! try; ties go to the larger share, then to the name. Depth first, so everything of a less used
//! programme is tried before anything of a more used one.

use super::queue::{AskKey, AskList, Entry};
use super::{BudgetPolicy, is_limited, least_rate};
use crate::cluster::Ask;
use crate::state::{Settings, State};
use crate::tree::FRACTION_ONE;
use crate::units::{BudgetIx, HostIx, SpanMs, WorkloadIx};
use crate::wide::Ratio;
use alloc::vec::Vec;
use core::cmp::Ordering;

impl BudgetPolicy {
    /// At the begin of an epoch every funded leaf with contracts may have something to place.
    pub(super) fn reopen(&mut self, state: &State) {
        if self.open_in != self.epoch {
            self.open_in = self.epoch;
            let leaves = self.queues.iter().zip(state.tree.leaves());
            for (open, (queue, &leaf)) in self.open.iter_mut().zip(leaves) {
                *open = queue.waiting_contracts > 0 && state.tree.fraction(leaf) > 0;
            }
        }
    }

    /// The leaf whose turn it is among the open ones.
    pub(super) fn next_leaf(&self, state: &State) -> Option<usize> {
        let is_open = |node: BudgetIx| {
            state.tree.fraction(node) > 0
                && state.tree.leaves_below(node).any(|place| self.open[place])
        };
        let leaf = descend(state, is_open, |node| self.ratio(state, node))?;
        state.tree.leaf_place(leaf)
    }

    /// The first request of a leaf that is not known to be blocked in this epoch, by rank, first
    /// submission and id.
    pub(super) fn next_request(&mut self, state: &State, leaf: usize) -> Option<Entry> {
        let budget = state.tree.leaves()[leaf];
        let limited = is_limited(state, budget);
        let has_sides = self.leaf_has_sides(state, budget);
        // While a reservation is to be had, the first that cannot be placed must be known.
        let may_reserve = state.reservations.len() < state.settings.reservations as usize;
        loop {
            let first = |list: &AskList| {
                let first = list.contracts.first_shorter(list.blocked_from(self.epoch))?;
                if may_reserve || self.forgetful {
                    return Some(first);
                }
                let rank = state.workload(first.workload).spec.rank;
                let bound = if has_sides || state.has_lower_rank(budget, rank) {
                    self.longest_in_reach(state, budget, list.key)
                } else if Self::has_holder(state, budget, list.key) {
                    return Some(first);
                } else {
                    // It can have nothing but idle and unallocated GPUs, and so can all after it.
                    self.longest_on_soft(state, list.key)
                };
                if first.contract <= bound {
                    return Some(first);
                }
                let shorter = SpanMs(bound.0.saturating_add(1)).min(list.blocked_from(self.epoch));
                list.contracts.first_shorter(shorter)
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

    /// Whether a request of this list holds a reservation: its hosts are open to it alone.
    fn has_holder(state: &State, leaf: BudgetIx, key: AskKey) -> bool {
        state.reservations.iter().any(|reservation| {
            let spec = &state.workload(reservation.holder).spec;
            spec.budget == leaf && spec.gpus == key.gpus
        })
    }

    /// The longest contract for which what the leaf could take could be enough; zero for none.
    fn longest_in_reach(&self, state: &State, leaf: BudgetIx, key: AskKey) -> SpanMs {
        let asks = state.cluster.asks(key.gpus, key.shape, key.model);
        self.reach(state, leaf, |reach| {
            asks.map(|(pool, ask)| reach.longest(pool, ask)).max().unwrap_or(SpanMs::ZERO)
        })
    }

    /// The longest contract for which idle and unallocated GPUs could be enough, on whatever hosts it may
    /// use (rules 7 and 8); zero for none. Never less than what is true.
    pub(super) fn longest_on_soft(&self, state: &State, key: AskKey) -> SpanMs {
        let room = |(index, ask): (usize, Ask)| {
            let pool = &state.cluster.pools()[index];
            if !pool.soft_may_fit(ask) {
                SpanMs::ZERO
            } else if ask.is_single() {
                self.longest_on_host_with(state, index, ask.single_gpus())
            } else {
                // The whole hosts of a gang: as long as the shortest that it needs of them allows.
                let hosts = pool.soft_hosts(ask.gpus_per_host);
                let hosts = hosts.filter(|&host| !Self::is_debug_host(state, host));
                let mut longest: Vec<SpanMs> =
                    hosts.map(|host| self.longest_on(state, host)).collect();
                longest.sort_unstable_by(|a, b| b.cmp(a));
                longest.get(ask.hosts as usize - 1).copied().unwrap_or(SpanMs::ZERO)
            }
        };
        let asks = state.cluster.asks(key.gpus, key.shape, key.model);
        asks.map(room).max().unwrap_or(SpanMs::ZERO)
    }

    /// The longest contract that may start on any host with `gpus` idle or unallocated GPUs. Remembered
    /// for the moment and the epoch.
    fn longest_on_host_with(&self, state: &State, pool: usize, gpus: u32) -> SpanMs {
        let mut known = self.soft_longest.borrow_mut();
        if (known.at, known.epoch) != (state.now(), self.epoch) {
            (known.at, known.epoch) = (state.now(), self.epoch);
            known.by_pool.clear();
            for pool in state.cluster.pools() {
                let longest = |gpus| {
                    let hosts = pool.soft_hosts(gpus);
                    hosts.map(|host| self.longest_on(state, host)).max().unwrap_or(SpanMs::ZERO)
                };
                known.by_pool.push((0..=pool.gpus_per_host).map(longest).collect());
            }
        }
        known.by_pool[pool][gpus as usize]
    }

    /// The longest contract that may start on a host now, for others than a holder of it.
    fn longest_on(&self, state: &State, host: HostIx) -> SpanMs {
        let by_debug = if Self::is_debug_host(state, host) {
            Settings::DEBUG_RUNTIME_MAX
        } else {
            SpanMs(u64::MAX)
        };
        let Some(index) = self.reserved[host.at()].checked_sub(1) else { return by_debug };
        if self.is_movable(state, index as usize) {
            return by_debug;
        }
        let until = state.reservations[index as usize].until;
        by_debug.min(until.since(state.now()) - state.settings.grace)
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
            state
                .tree
                .leaves_below(node)
                .any(|place| self.may_be_unallocated(state, place) && head(place).is_some())
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
                    list.contracts
                        .iter()
                        .filter(untried)
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
