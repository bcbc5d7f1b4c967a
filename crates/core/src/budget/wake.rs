//! The next moment at which rule 6 allows something that it does not allow now, although nothing
//! happens: a ratio crossing.
//!
//! Between events a side's ratio moves along straight pieces: what runs unprotected adds to the used
//! GPU-time, what falls out of the lookback takes from it. A crossing is looked for piece by piece, up
//! to the next moment at which the core wakes anyway, and is exact to the millisecond.

use super::queue::LeafQueue;
use super::ratios::{Pair, Test, View};
use super::{BudgetPolicy, contract_units};
use crate::state::State;
use crate::units::{BudgetIx, SpanMs, TimeMs};
use alloc::vec::Vec;

/// A budget, the contract with which it is looked at, and what must become true of it and any of its siblings.
#[derive(Clone, Copy, Debug)]
struct Case {
    mine: BudgetIx,
    contract: u128,
    test: Test,
    /// Whether only siblings count that have work to take, and for any contract that waits.
    for_work: bool,
}

/// That a case with such a contract, or a larger one, comes true of nobody up to a moment, as the account above
/// the siblings stands: it changes whenever one of theirs does.
#[derive(Clone, Copy, Debug, Default)]
struct Quiet {
    version: u64,
    contract: u128,
    until: TimeMs,
}

/// Where crossings are looked for, and up to when.
#[derive(Debug)]
struct Search<'a> {
    parent: BudgetIx,
    siblings: &'a [BudgetIx],
    limit: TimeMs,
    /// How each sibling could stand up to the end of [`LOOKAHEAD`], once that was asked for.
    far: &'a mut Vec<View>,
    /// The same up to the limit.
    near: &'a mut Vec<View>,
}

impl<'a> Search<'a> {
    fn new(
        parent: BudgetIx,
        siblings: &'a [BudgetIx],
        limit: TimeMs,
        (far, near): (&'a mut Vec<View>, &'a mut Vec<View>),
    ) -> Self {
        far.clear();
        near.clear();
        Self { parent, siblings, limit, far, near }
    }
}

/// What is remembered from one search to the next, and buffers.
#[derive(Clone, Debug, Default)]
pub(super) struct Wakes {
    /// The state of the queues …
    queue_changes: u64,
    /// … and per budget the least contract that waited in it then.
    shortest: Vec<Option<u128>>,
    /// Per budget: for the work that waits, for promises, and for a holder.
    quiet: Vec<[Quiet; 3]>,
    far: Vec<View>,
    near: Vec<View>,
}

/// What is known of the next crossing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crossing {
    pub(super) at: TimeMs,
    /// Whether there is one; else it was looked for up to that moment, which is still before it.
    pub(super) is_found: bool,
}

impl Crossing {
    /// None for ever.
    const NEVER: Self = Self { at: TimeMs::NEVER, is_found: false };

    /// Nothing crosses up to this moment.
    const fn after(at: TimeMs) -> Self {
        Self { at, is_found: false }
    }

    const fn found(at: TimeMs) -> Self {
        Self { at, is_found: true }
    }

    /// What is known of two: the earlier one, and of a tie the one that is found.
    fn min(self, other: Self) -> Self {
        let key = |crossing: Self| (crossing.at, !crossing.is_found);
        if key(other) < key(self) { other } else { self }
    }
}

impl BudgetPolicy {
    /// The next crossing of any waiting contract against any side that has interruptible work.
    pub(super) fn next_crossing(&self, state: &State) -> Crossing {
        let limit = self.known_wakes(state).min(state.now() + LOOKAHEAD);
        let mut memory = self.wakes.borrow_mut();
        let Wakes { queue_changes, shortest, quiet, far, near } = &mut *memory;
        if *queue_changes != self.queue_changes {
            *queue_changes = self.queue_changes;
            self.fill_shortest(state, shortest);
        }
        quiet.resize(state.tree.len(), Default::default());
        let mut next = Crossing::NEVER;
        for parent in (0..state.tree.len()).map(|at| BudgetIx(at as u32)) {
            let siblings = state.tree.children(parent);
            let mut search = Search::new(parent, siblings, limit, (far, near));
            for &mine in siblings {
                let Some(contract) = shortest[mine.at()] else { continue };
                let quiet = &mut quiet[mine.at()];
                let waits = Case { mine, contract, test: Test::Swap, for_work: true };
                let of_work = self.next_of(state, waits, &mut search, &mut quiet[0], next);
                next = next.min(of_work);
                // A promise can be made, or moved, when a side comes to be above the holder's (rule 7).
                if Self::may_reserve_more(state) || Self::has_holder_below(state, mine) {
                    let above = Case { mine, contract: 0, test: Test::Above, for_work: false };
                    next = next.min(self.next_of(state, above, &mut search, &mut quiet[1], next));
                }
            }
        }
        for reservation in &state.reservations {
            // Or when one that has nothing to take yet comes to count as soon as its protection ends. The
            // reservation could then be kept on other hosts, and make way.
            let workload = state.workload(reservation.holder);
            let spec = &workload.spec;
            for (pool, _) in state.cluster.asks(spec.gpus, spec.shape, spec.model) {
                let rate = state.cluster.rate(pool);
                let contract = contract_units(spec.gpus, rate, workload.protection());
                for mine in state.tree.path(spec.budget) {
                    let Some(parent) = state.tree.parent(mine) else { break };
                    let siblings = state.tree.children(parent);
                    let mut search = Search::new(parent, siblings, limit, (far, near));
                    let holder = Case { mine, contract, test: Test::Swap, for_work: false };
                    let quiet = &mut quiet[mine.at()][2];
                    next = next.min(self.next_of(state, holder, &mut search, quiet, next));
                }
            }
        }
        if self.has_limits { next.min(self.next_exhaustion(state)) } else { next }
    }

    /// The least contract that waits in each budget.
    fn fill_shortest(&self, state: &State, shortest: &mut Vec<Option<u128>>) {
        shortest.clear();
        shortest.resize(state.tree.len(), None);
        for (queue, &leaf) in self.queues.iter().zip(state.tree.leaves()) {
            let Some(cost) = queue.least_cost().filter(|_| state.tree.fraction(leaf) > 0) else {
                continue;
            };
            for node in state.tree.path(leaf) {
                let known = &mut shortest[node.at()];
                *known = Some(known.map_or(cost, |known| known.min(cost)));
            }
        }
    }

    /// The next crossing of a case against any sibling, if it comes before the one that is `next`.
    #[inline]
    fn next_of(
        &self,
        state: &State,
        case: Case,
        search: &mut Search<'_>,
        quiet: &mut Quiet,
        next: Crossing,
    ) -> Crossing {
        if !self.forgetful
            && quiet.version == state.ledger.version(search.parent)
            && quiet.contract <= case.contract
            && search.limit <= quiet.until
        {
            return Crossing::after(search.limit.min(next.at));
        }
        self.look_for(state, case, search, quiet, next)
    }

    /// The same where it is not known already that all stays quiet.
    fn look_for(
        &self,
        state: &State,
        case: Case,
        search: &mut Search<'_>,
        quiet: &mut Quiet,
        known: Crossing,
    ) -> Crossing {
        let Search { parent, siblings, limit, .. } = *search;
        let counts = |theirs: BudgetIx| {
            theirs != case.mine
                && (!case.for_work || state.ledger.account(theirs).interruptible_gpus > 0)
        };
        if !siblings.iter().any(|&theirs| counts(theirs)) {
            return Crossing::NEVER;
        }
        let place_of_mine = siblings.iter().position(|&node| node == case.mine).unwrap_or(0);
        let far = state.now() + LOOKAHEAD;
        let views = self.views_of(state, siblings, far, search.far);
        let could_hold = |views: &[View], contract: u128, theirs: usize| {
            views[place_of_mine].could_hold(state, case.test, contract, &views[theirs])
        };
        let mut places = (0..siblings.len()).filter(|&place| counts(siblings[place]));
        if !places.any(|place| could_hold(views, case.contract, place)) {
            let version = state.ledger.version(parent);
            *quiet = Quiet { version, contract: case.contract, until: far };
            return Crossing::after(limit.min(known.at));
        }
        let views = self.views_of(state, siblings, limit, search.near);
        let mut next = known;
        for (place, &theirs) in siblings.iter().enumerate().filter(|&(_, &node)| counts(node)) {
            let limit = limit.min(next.at);
            let pair = Pair { mine: case.mine, theirs };
            // What could not even be allowed later is not allowed now.
            let crossing = if !could_hold(views, case.contract, place) {
                Crossing::after(limit)
            } else if !self.holds(state, case.test, pair, case.contract) {
                crossing_within(state, case, theirs, limit)
            } else if case.for_work
                && let Some(contract) = self.next_longer(state, pair)
            {
                if could_hold(views, contract, place) {
                    crossing_within(state, Case { contract, ..case }, theirs, limit)
                } else {
                    Crossing::after(limit)
                }
            } else {
                Crossing::NEVER
            };
            next = next.min(crossing);
        }
        next
    }

    /// How each of some siblings could stand up to a moment. Looked up once per search.
    fn views_of<'a>(
        &self,
        state: &State,
        siblings: &[BudgetIx],
        by: TimeMs,
        views: &'a mut Vec<View>,
    ) -> &'a [View] {
        if views.is_empty() {
            views.extend(siblings.iter().map(|&node| self.view(state, node, by)));
        }
        views
    }

    /// The queues of the funded leaves of a budget that have contracts waiting.
    fn waiting_below<'a>(
        &'a self,
        state: &'a State,
        node: BudgetIx,
    ) -> impl Iterator<Item = &'a LeafQueue> + 'a {
        let funded = |&place: &usize| state.tree.fraction(state.tree.leaves()[place]) > 0;
        let queues = state.tree.leaves_below(node).filter(funded).map(|place| &self.queues[place]);
        queues.filter(|queue| queue.waiting_contracts > 0)
    }

    fn has_holder_below(state: &State, node: BudgetIx) -> bool {
        let places = state.tree.leaves_below(node);
        state.reservations.iter().any(|reservation| {
            let leaf = state.workload(reservation.holder).spec.budget;
            state.tree.leaf_place(leaf).is_some_and(|place| places.contains(&place))
        })
    }

    /// The least contract that waits on one side and is longer than what is allowed it now.
    fn next_longer(&self, state: &State, pair: Pair) -> Option<u128> {
        let allowed = self.longest_allowed(state, pair);
        let longer = self.waiting_below(state, pair.mine).filter_map(|queue| {
            let mut costs = queue.contract_costs.range(allowed..).map(|(&cost, _)| cost);
            costs.find(|&contract| !self.holds(state, Test::Swap, pair, contract))
        });
        longer.min()
    }

    /// Rule 1: the next moment at which a hard limit has no room any more for a contract that waits: what runs
    /// past its own contract goes on to charge. The request is unallocated from then on.
    fn next_exhaustion(&self, state: &State) -> Crossing {
        let mut next = Crossing::NEVER;
        for (place, queue) in self.queues.iter().enumerate() {
            if queue.waiting_contracts == 0 {
                continue;
            }
            for node in state.tree.path(state.tree.leaves()[place]) {
                let growth = state.ledger.unprotected_units(node);
                let room = state.ledger.room(&state.tree, node, state.now());
                let (Ok(Some(room)), true) = (room, growth > 0) else { continue };
                if let Some((cost, _)) = queue.contract_costs.range(..=room).next_back() {
                    let wait = u64::try_from((room - cost) / growth + 1).unwrap_or(u64::MAX);
                    next = next.min(Crossing::found(state.now() + SpanMs(wait)));
                }
            }
        }
        next
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

    /// Moments at which the core wakes whatever the ratios do; beyond the first, pieces may bend.
    fn known_wakes(&self, state: &State) -> TimeMs {
        let due = state.reservations.iter().map(|reservation| reservation.until);
        let wakes = due.chain(state.next_known_change());
        wakes.filter(|&at| at > state.now()).fold(TimeMs::NEVER, TimeMs::min)
    }
}

/// A case against one sibling.
#[derive(Clone, Copy, Debug)]
struct Against {
    case: Case,
    theirs: BudgetIx,
}

/// The crossing of a pair up to `limit`, where it could come before.
fn crossing_within(state: &State, case: Case, theirs: BudgetIx, limit: TimeMs) -> Crossing {
    let case = Against { case, theirs };
    if is_still(state, case) {
        return Crossing::NEVER;
    }
    let found = first_crossing(state, case, state.now(), limit);
    found.map_or(Crossing::after(limit), Crossing::found)
}

fn is_allowed(state: &State, case: Against, at: TimeMs) -> bool {
    may_be_allowed(state, case, at, at)
}

/// Whether the pair could be allowed anywhere in `[from, to]`, seen generously: for a single moment,
/// whether it is.
fn may_be_allowed(state: &State, case: Against, from: TimeMs, to: TimeMs) -> bool {
    let Against { case: Case { mine, contract, test, .. }, theirs } = case;
    let mine = state.ledger.ratio_at_least(mine, contract, from, to);
    test.holds(state, mine, state.ledger.ratio_at_most(theirs, from, to))
}

/// The first moment in `(from, to]` at which the pair is allowed, knowing that it is not at `from`.
///
/// Intervals in which it cannot be are passed over whole; others are halved, the earlier half first, down
/// to those in which both ratios are straight lines.
fn first_crossing(state: &State, case: Against, from: TimeMs, to: TimeMs) -> Option<TimeMs> {
    if !may_be_allowed(state, case, from, to) {
        return None;
    }
    if is_straight(state, case, from, to) {
        return is_allowed(state, case, to).then(|| bisect(state, case, from, to));
    }
    if to.0 - from.0 <= 1 {
        return is_allowed(state, case, to).then_some(to);
    }
    let middle = TimeMs(from.0 + (to.0 - from.0) / 2);
    first_crossing(state, case, from, middle).or_else(|| first_crossing(state, case, middle, to))
}

/// Whether the ratios of a pair are straight lines in `[from, to]`, so that its ends tell all: nothing that
/// leaves the lookback bends what is used, and what is allocated stays as it is.
fn is_straight(state: &State, case: Against, from: TimeMs, to: TimeMs) -> bool {
    [case.case.mine, case.theirs].iter().all(|&node| {
        let account = state.ledger.account(node);
        let bends = |at: Option<TimeMs>| at.is_some_and(|at| at < to);
        let allocation = &account.allocation;
        !bends(account.charged.next_tail_change(from))
            && (state.ledger.allocation_is_steady(from)
                || (allocation.rate() == allocation.tail_rate(from)
                    && !bends(allocation.next_tail_change(from))))
    })
}

/// How far ahead a crossing is looked for before the core wakes to look again. Long enough to wake seldom,
/// short enough that few breakpoints of the lookback leave it meanwhile.
const LOOKAHEAD: SpanMs = SpanMs::hours(1);

/// Whether nothing moves the ratios of a pair any more: as much leaves the lookback as enters it, and no
/// breakpoint is left in it.
fn is_still(state: &State, case: Against) -> bool {
    let now = state.now();
    [case.case.mine, case.theirs].iter().all(|&node| {
        let account = state.ledger.account(node);
        let protected = state.ledger.protected_units(node);
        protected == 0
            && account.charged.rate() == account.charged.tail_rate(now)
            && account.charged.next_tail_change(now).is_none()
            && account.allocation.next_tail_change(now).is_none()
    })
}

/// The first allowed moment in `(from, to]`, where `from` is not allowed and `to` is.
fn bisect(state: &State, case: Against, from: TimeMs, to: TimeMs) -> TimeMs {
    let (mut low, mut high) = (from.0, to.0);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if is_allowed(state, case, TimeMs(middle)) {
            high = middle;
        } else {
            low = middle;
        }
    }
    TimeMs(high)
}
