//! Rule 4: whose turn it is.
//!
//! From the root down, the sibling with the least usage ratio among those that still have requests to
//! try; ties go to the larger share, then to the name. Depth first, so everything of a less used
//! programme is tried before anything of a more used one.

use super::queue::{AskKey, AskList, Entry};
use super::{BudgetPolicy, Others, SoftLongest, is_limited, least_rate};
use crate::cluster::Ask;
use crate::state::{Settings, State};
use crate::tree::FRACTION_ONE;
use crate::units::{BudgetIx, HostIx, SpanMs, WorkloadIx};
use crate::wide::Ratio;
use alloc::vec::Vec;
use core::cell::{OnceCell, Ref};
use core::cmp::Ordering;

/// What idle and unallocated GPUs are enough for, looked up at most once while nothing changes.
#[derive(Debug, Default)]
pub(super) struct SoftView<'a> {
    stay: OnceCell<Ref<'a, SoftLongest>>,
    make_way: OnceCell<Ref<'a, SoftLongest>>,
}

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
        let leaf = descend(state, is_open, |node| self.ratio(state, node))?;
        state.tree.leaf_place(leaf)
    }

    /// The first request of a leaf that is not known to be blocked, by rank, first
    /// submission and id.
    pub(super) fn next_request(&mut self, state: &State, leaf: usize) -> Option<Entry> {
        let budget = state.tree.leaves()[leaf];
        let limited = is_limited(state, budget);
        let has_sides = self.leaf_has_sides(state, budget);
        // While a reservation is to be had, the first that cannot be placed must be known.
        let may_reserve = Self::may_reserve_more(state);
        loop {
            let soft = SoftView::default();
            let first = |list: &AskList| {
                let bound = list.blocked_from(self.marks[leaf]);
                if !self.tried_holders.is_empty() {
                    let untried = |entry: &Entry| !self.tried_holders.contains(&entry.workload);
                    return list.contracts.iter().filter(untried).find(|e| e.contract < bound);
                }
                let first = list.contracts.first_shorter(bound)?;
                if may_reserve || self.forgetful {
                    return Some(first);
                }
                let rank = state.workload(first.workload).spec.rank;
                let bound = if has_sides || state.has_lower_rank(budget, rank) {
                    self.longest_in_reach(state, budget, &list.asks)
                } else if Self::has_holder(state, budget, list.key) {
                    return Some(first);
                } else {
                    // It can have nothing but idle and unallocated GPUs, and so can all after it.
                    self.longest_on_soft(state, &soft, &list.asks, first.contract)
                };
                if first.contract <= bound {
                    return Some(first);
                }
                let shorter =
                    SpanMs(bound.0.saturating_add(1)).min(list.blocked_from(self.marks[leaf]));
                list.contracts.first_shorter(shorter)
            };
            let lists = self.queues[leaf].lists.iter();
            let (at, entry) = lists
                .enumerate()
                .filter_map(|(at, list)| first(list).map(|entry| (at, entry)))
                .min_by_key(|(_, entry)| entry.order)?;
            drop(soft);
            // Rule 1: without room for its whole contract it is unallocated this time.
            let list = &mut self.queues[leaf].lists[at];
            if limited && !state.would_be_allocated(entry.workload, least_rate(state, list.key)) {
                list.block(entry.contract, self.marks[leaf]);
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
    fn longest_in_reach(&self, state: &State, leaf: BudgetIx, asks: &[(usize, Ask)]) -> SpanMs {
        self.reach(state, leaf, |reach| {
            let each = asks.iter().map(|&(pool, ask)| reach.longest(pool, ask));
            each.max().unwrap_or(SpanMs::ZERO)
        })
    }

    /// The longest contract for which idle and unallocated GPUs could be enough, on whatever hosts it may
    /// use (rules 7 and 8); zero for none. Never less than what is true. Where it is enough for `contract`
    /// with all reservations where they are, it is not asked whether they could make way for a longer one.
    pub(super) fn longest_on_soft<'a>(
        &'a self,
        state: &State,
        soft: &SoftView<'a>,
        asks: &[(usize, Ask)],
        contract: SpanMs,
    ) -> SpanMs {
        // Whatever the reservations do, there must be as many GPUs.
        if !asks.iter().any(|&(pool, ask)| state.cluster.pools()[pool].soft_may_fit(ask)) {
            return SpanMs::ZERO;
        }
        let longest = |others: Others| {
            let soft = match others {
                Others::Stay => &soft.stay,
                Others::MakeWay => &soft.make_way,
            };
            let soft = soft.get_or_init(|| self.soft(state, others));
            let each = asks.iter().map(|&place| self.longest_of(state, place, others, soft));
            each.max().unwrap_or(SpanMs::ZERO)
        };
        let stay = longest(Others::Stay);
        if contract <= stay || state.reservations.is_empty() {
            stay
        } else {
            longest(Others::MakeWay)
        }
    }

    fn longest_of(
        &self,
        state: &State,
        (index, ask): (usize, Ask),
        others: Others,
        soft: &SoftLongest,
    ) -> SpanMs {
        if ask.is_single() {
            return soft.single[index][ask.single_gpus() as usize];
        }
        let of_hosts = |longest: &[SpanMs]| {
            longest.get(ask.hosts as usize - 1).copied().unwrap_or(SpanMs::ZERO)
        };
        if ask.gpus_per_host == state.cluster.pools()[index].gpus_per_host {
            return of_hosts(&soft.whole[index]);
        }
        let mut longest = Vec::new();
        self.fill_gang(state, index, ask.gpus_per_host, others, &mut longest);
        of_hosts(&longest)
    }

    /// What idle and unallocated GPUs are enough for, remembered for the moment and the facts.
    fn soft(&self, state: &State, others: Others) -> Ref<'_, SoftLongest> {
        let remembered = match others {
            Others::Stay => &self.soft_stay,
            Others::MakeWay => &self.soft_make_way,
        };
        let known = remembered.borrow();
        let known = if (known.at, known.facts) == (state.now(), self.facts) {
            known
        } else {
            drop(known);
            let mut filled = remembered.borrow_mut();
            (filled.at, filled.facts) = (state.now(), self.facts);
            let asked = self.asks_way.replace(false);
            self.fill_soft(state, others, &mut filled);
            filled.asks_way = self.asks_way.replace(asked);
            drop(filled);
            remembered.borrow()
        };
        self.asks_way.set(self.asks_way.get() || known.asks_way);
        known
    }

    fn fill_soft(&self, state: &State, others: Others, known: &mut SoftLongest) {
        let pools = state.cluster.pools();
        known.single.resize(pools.len(), Vec::new());
        known.whole.resize(pools.len(), Vec::new());
        for (index, pool) in pools.iter().enumerate() {
            let longest = &mut known.single[index];
            longest.clear();
            longest.resize(pool.gpus_per_host as usize + 1, SpanMs::ZERO);
            for host in pool.soft_hosts(1) {
                let soft = state.cluster.host(host).soft() as usize;
                if longest[soft] < SpanMs(u64::MAX) {
                    longest[soft] = longest[soft].max(self.longest_on(state, host, others));
                }
            }
            for gpus in (1..longest.len()).rev() {
                longest[gpus - 1] = longest[gpus - 1].max(longest[gpus]);
            }
            self.fill_gang(state, index, pool.gpus_per_host, others, &mut known.whole[index]);
        }
    }

    /// How long a contract each whole host of a gang allows, longest first: a gang may be as long as the
    /// shortest that it needs of them.
    fn fill_gang(
        &self,
        state: &State,
        pool: usize,
        gpus_per_host: u32,
        others: Others,
        longest: &mut Vec<SpanMs>,
    ) {
        let hosts = state.cluster.pools()[pool].soft_hosts(gpus_per_host);
        let hosts = hosts.filter(|&host| !Self::is_debug_host(state, host));
        longest.clear();
        longest.extend(hosts.map(|host| self.longest_on(state, host, others)));
        longest.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// The longest contract that may start on a host now, for others than a holder of it.
    fn longest_on(&self, state: &State, host: HostIx, others: Others) -> SpanMs {
        let by_debug = if Self::is_debug_host(state, host) {
            Settings::DEBUG_RUNTIME_MAX
        } else {
            SpanMs(u64::MAX)
        };
        let Some(index) = self.reserved[host.at()].checked_sub(1) else { return by_debug };
        if others == Others::MakeWay && self.is_movable(state, index as usize) {
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
