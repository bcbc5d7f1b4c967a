//! What every budget was charged, still protects and was allocated (rules 2 and 3).
//!
//! Amounts are in *units* of GPU-ms: GPUs x rate x milliseconds, the rates divided by their greatest
//! common divisor so that a cluster of one model counts plain GPU-ms. Everything is kept per node of
//! the tree, ancestors included, so that a reading never walks the tree.

use crate::terms::{self, OpenTerm};
use crate::tree::Tree;
use crate::units::{BudgetIx, SpanMs, TimeMs};
use crate::wide::Ratio;
use crate::window::{Before, Window};
use alloc::vec::Vec;

/// One budget's account.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Account {
    /// Allocated occupancy of itself and all below, over the lookback.
    pub charged: Window,
    /// Unallocated occupancy, over the lookback.
    pub unallocated: Window,
    /// Fraction x capacity in service, over the lookback.
    pub allocation: Window,
    /// Units of its protected attempts.
    protected_units: u128,
    /// Sum of units x end of protection over its protected attempts.
    protected_until: u128,
    /// Contracts of attempts that are decided but do not run yet.
    pending: u128,
    /// GPUs of its allocated, running and no longer protected attempts.
    pub interruptible_gpus: u32,
    /// Hard limits that hold for a time, which has begun.
    terms: Vec<OpenTerm>,
    /// Changes whenever something else of the account does, but for the passing of time.
    version: u64,
}

impl Account {
    fn empty(lookback: SpanMs) -> Self {
        Self {
            charged: Window::new(lookback, Before::Nothing),
            unallocated: Window::new(lookback, Before::Nothing),
            allocation: Window::new(lookback, Before::FirstRate),
            protected_units: 0,
            protected_until: 0,
            pending: 0,
            interruptible_gpus: 0,
            terms: Vec::new(),
            version: 0,
        }
    }
}

/// All accounts, and the capacity that feeds them.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Ledger {
    accounts: Vec<Account>,
    lookback: SpanMs,
    horizon: SpanMs,
    capacity_units: u128,
    /// When fractions or capacity last changed, if they ever did.
    allocation_changed: Option<TimeMs>,
}

impl Ledger {
    /// Empty accounts for `tree`.
    #[must_use]
    pub fn new(tree: &Tree, lookback: SpanMs, horizon: SpanMs) -> Self {
        let account = Account::empty(lookback);
        let accounts = (0..tree.len()).map(|_| account.clone()).collect();
        let mut ledger =
            Self { accounts, lookback, horizon, capacity_units: 0, allocation_changed: None };
        ledger.renew_terms(tree, TimeMs(0));
        ledger
    }

    /// Terms of a new tree that have begun; what is known of those that go on stays known.
    fn renew_terms(&mut self, tree: &Tree, now: TimeMs) {
        for (index, account) in self.accounts.iter_mut().enumerate() {
            let terms = &tree.node(BudgetIx(index as u32)).terms;
            account.terms = terms::renewed(terms, &account.terms, account.charged.total(now), now);
        }
    }

    /// Terms that begin at this moment begin, those that end at it end. Nothing was charged late since.
    pub(crate) fn turn_terms(&mut self, tree: &Tree, now: TimeMs) {
        for (index, account) in self.accounts.iter_mut().enumerate() {
            let total = account.charged.total(now);
            for &term in &tree.node(BudgetIx(index as u32)).terms {
                if term.from == now && !account.terms.iter().any(|open| open.term == term) {
                    account.terms.push(OpenTerm::begin(term, total, &account.terms));
                }
            }
            account.terms.retain(|open| open.term.has(now));
        }
    }

    /// The terms of a budget that have begun and not ended.
    #[must_use]
    pub fn terms(&self, node: BudgetIx) -> &[OpenTerm] {
        &self.accounts[node.at()].terms
    }

    /// Rule 1: room under the hard limits of a budget (not of those above it), in units: the least that any of
    /// them leaves beside what was charged and what contracts still protect. None if nothing limits it now;
    /// an error if one is overdrawn.
    pub fn room(
        &self,
        tree: &Tree,
        node: BudgetIx,
        now: TimeMs,
    ) -> Result<Option<u128>, Overdrawn> {
        let account = &self.accounts[node.at()];
        let total = account.charged.total(now);
        let committed = self.committed_units(node, now);
        let ever = tree.node(node).limit_units.map(|limit| (limit, total));
        let terms = account.terms.iter().map(|open| (open.units(), open.charged(total)));
        let mut least = None;
        for (limit, charged) in ever.into_iter().chain(terms) {
            let room = limit.checked_sub(charged + committed).ok_or(Overdrawn)?;
            least = Some(least.map_or(room, |least: u128| least.min(room)));
        }
        Ok(least)
    }

    /// One budget's account.
    #[must_use]
    pub fn account(&self, node: BudgetIx) -> &Account {
        &self.accounts[node.at()]
    }

    /// Capacity in service, in units per millisecond.
    #[must_use]
    pub const fn capacity_units(&self) -> u128 {
        self.capacity_units
    }

    /// The lookback W.
    #[must_use]
    pub const fn lookback(&self) -> SpanMs {
        self.lookback
    }

    /// From `now` on the fractions of `tree` and `capacity_units` hold.
    pub fn set_allocation(&mut self, tree: &Tree, capacity_units: u128, now: TimeMs) {
        if now > TimeMs(0) {
            self.allocation_changed = Some(now);
        }
        self.capacity_units = capacity_units;
        for (index, account) in self.accounts.iter_mut().enumerate() {
            let fraction = u128::from(tree.fraction(BudgetIx(index as u32)));
            account.allocation.set_rate(now, fraction * capacity_units);
            account.version += 1;
        }
    }

    /// A new tree: accounts move to where their budgets are now; budgets that are new have accrued nothing.
    pub fn change_tree(
        &mut self,
        tree: &Tree,
        moved: &[Option<BudgetIx>],
        capacity_units: u128,
        now: TimeMs,
    ) {
        let mut fresh = Account::empty(self.lookback);
        fresh.allocation.set_rate(TimeMs(0), 0);
        let old = core::mem::take(&mut self.accounts);
        self.accounts = (0..tree.len()).map(|_| fresh.clone()).collect();
        for (account, to) in old.into_iter().zip(moved) {
            if let Some(to) = to {
                self.accounts[to.at()] = account;
            }
        }
        self.renew_terms(tree, now);
        self.set_allocation(tree, capacity_units, now);
    }

    fn each_above(&mut self, tree: &Tree, leaf: BudgetIx, mut change: impl FnMut(&mut Account)) {
        let mut node = Some(leaf);
        while let Some(at) = node {
            let account = &mut self.accounts[at.at()];
            change(account);
            account.version += 1;
            node = tree.parent(at);
        }
    }

    /// A contract is decided: its GPU-time counts from now, though the attempt does not run yet.
    pub fn commit(&mut self, tree: &Tree, leaf: BudgetIx, contract: u128) {
        self.each_above(tree, leaf, |account| account.pending += contract);
    }

    /// The decided contract is taken up by a running attempt, or dropped.
    pub fn uncommit(&mut self, tree: &Tree, leaf: BudgetIx, contract: u128) {
        self.each_above(tree, leaf, |account| account.pending -= contract);
    }

    /// An allocated attempt of `units` starts to run, protected until `until`.
    pub fn start(&mut self, tree: &Tree, leaf: BudgetIx, units: u64, until: TimeMs, now: TimeMs) {
        let units = u128::from(units);
        self.each_above(tree, leaf, |account| {
            account.charged.set_rate(now, account.charged.rate() + units);
            account.protected_units += units;
            account.protected_until += units * u128::from(until.0);
        });
    }

    /// The protection of an attempt ends, by time or because it stopped.
    pub fn unprotect(&mut self, tree: &Tree, leaf: BudgetIx, units: u64, until: TimeMs) {
        let units = u128::from(units);
        self.each_above(tree, leaf, |account| {
            account.protected_units -= units;
            account.protected_until -= units * u128::from(until.0);
        });
    }

    /// `gpus` of an allocated attempt become (or cease to be) interruptible.
    pub fn interruptible(&mut self, tree: &Tree, leaf: BudgetIx, gpus: u32, change: Change) {
        self.each_above(tree, leaf, |account| match change {
            Change::More => account.interruptible_gpus += gpus,
            Change::Less => account.interruptible_gpus -= gpus,
        });
    }

    /// An allocated attempt stops. Its protection must have been ended before.
    pub fn stop(&mut self, tree: &Tree, leaf: BudgetIx, units: u64, now: TimeMs) {
        let units = u128::from(units);
        self.each_above(tree, leaf, |account| {
            account.charged.set_rate(now, account.charged.rate() - units);
        });
    }

    /// An unallocated attempt starts or stops.
    pub fn unallocated(&mut self, tree: &Tree, leaf: BudgetIx, units: u64, c: Change, now: TimeMs) {
        let units = u128::from(units);
        self.each_above(tree, leaf, |account| {
            let rate = account.unallocated.rate();
            let rate = match c {
                Change::More => rate + units,
                Change::Less => rate - units,
            };
            account.unallocated.set_rate(now, rate);
        });
    }

    /// What is known late: an attempt ran (or did not) from `from` to `now`, other than it was charged.
    pub fn correct(
        &mut self,
        tree: &Tree,
        leaf: BudgetIx,
        units: u64,
        allocated: bool,
        change: Change,
        (from, now): (TimeMs, TimeMs),
    ) {
        self.each_above(tree, leaf, |account| {
            let window = if allocated { &mut account.charged } else { &mut account.unallocated };
            window.correct(from, now, u128::from(units), change);
            for open in account.terms.iter_mut().filter(|_| allocated) {
                let until = open.term.from.min(now);
                let accrued = i128::from(units) * i128::from(until.since(from.min(until)).0);
                open.correct(if matches!(change, Change::More) { accrued } else { -accrued });
            }
        });
    }

    /// What a budget has charged within the lookback plus what its contracts still protect, in units.
    #[must_use]
    pub fn used_units(&self, node: BudgetIx, now: TimeMs) -> u128 {
        let account = &self.accounts[node.at()];
        account.charged.sum(now) + self.committed_units(node, now)
    }

    /// What the contracts of a budget still protect, decided ones included, in units.
    #[must_use]
    pub fn committed_units(&self, node: BudgetIx, now: TimeMs) -> u128 {
        let account = &self.accounts[node.at()];
        account.pending + account.protected_until - account.protected_units * u128::from(now.0)
    }

    /// Units of a budget's attempts that run past their contracts: by how much what a hard limit counts grows
    /// per millisecond.
    #[must_use]
    pub fn unprotected_units(&self, node: BudgetIx) -> u128 {
        let account = &self.accounts[node.at()];
        account.charged.rate() - account.protected_units
    }

    /// Units of a budget's protected attempts.
    #[must_use]
    pub fn protected_units(&self, node: BudgetIx) -> u128 {
        self.accounts[node.at()].protected_units
    }

    /// What a budget is allocated over `[t-W, t+H]`, in units times 2^32 (rule 3's denominator).
    #[must_use]
    pub fn allocated(&self, node: BudgetIx, now: TimeMs) -> u128 {
        let allocation = &self.accounts[node.at()].allocation;
        if self.allocation_is_steady(now) {
            return allocation.rate() * u128::from(self.lookback.0 + self.horizon.0);
        }
        allocation.sum(now) + allocation.rate() * u128::from(self.horizon.0)
    }

    /// Changes whenever an account does, but for the passing of time: what follows from it and a moment may be
    /// remembered by both.
    #[must_use]
    pub fn version(&self, node: BudgetIx) -> u64 {
        self.accounts[node.at()].version
    }

    /// Rule 3 over an interval in which nothing happens: no reading of the usage ratio, were `extra` units more
    /// committed, is below this one.
    #[must_use]
    pub fn ratio_at_least(&self, node: BudgetIx, extra: u128, from: TimeMs, to: TimeMs) -> Ratio {
        self.ratio_between(node, extra, (from, to))
    }

    /// The same from above.
    #[must_use]
    pub fn ratio_at_most(&self, node: BudgetIx, from: TimeMs, to: TimeMs) -> Ratio {
        self.ratio_between(node, 0, (to, from))
    }

    /// What is used gains until the first moment and drops until the second, what is allocated the other way
    /// round. What contracts still protect was counted before it is charged, so both together only grow.
    fn ratio_between(
        &self,
        node: BudgetIx,
        extra: u128,
        (gains, drops): (TimeMs, TimeMs),
    ) -> Ratio {
        let account = &self.accounts[node.at()];
        let counted = account.charged.total(gains) + self.committed_units(node, gains) + extra;
        let used = counted.saturating_sub(account.charged.dropped(drops));
        let accrued = if self.allocation_is_steady(gains.min(drops)) {
            account.allocation.rate() * u128::from(self.lookback.0)
        } else {
            account.allocation.sum_between(drops, gains)
        };
        let allocated = accrued + account.allocation.rate() * u128::from(self.horizon.0);
        Ratio { used: used << 32, allocated }
    }

    /// Whether what budgets are allocated within the lookback stays as it is as time goes on.
    #[must_use]
    pub fn allocation_is_steady(&self, now: TimeMs) -> bool {
        self.allocation_changed.is_none_or(|changed| now.since(changed) >= self.lookback)
    }

    /// Rule 3: the usage ratio, were `extra` units more committed.
    #[must_use]
    pub fn usage_ratio_with(&self, node: BudgetIx, extra: u128, now: TimeMs) -> Ratio {
        Ratio {
            used: (self.used_units(node, now) + extra) << 32,
            allocated: self.allocated(node, now),
        }
    }

    /// Rule 3: the usage ratio of a budget from now on, as long as nothing happens to its account.
    #[must_use]
    pub fn line(&self, node: BudgetIx, now: TimeMs) -> Line {
        let account = &self.accounts[node.at()];
        let used = Straight {
            until: account.charged.next_tail_change(now).unwrap_or(TimeMs::NEVER),
            value: self.used_units(node, now),
            gains: account.charged.rate(),
            drops: account.protected_units + account.charged.tail_rate(now),
        };
        let value = self.allocated(node, now);
        let allocation = &account.allocation;
        let allocated = if self.allocation_is_steady(now) {
            Straight { until: TimeMs::NEVER, value, gains: 0, drops: 0 }
        } else {
            Straight {
                until: allocation.next_tail_change(now).unwrap_or(TimeMs::NEVER),
                value,
                gains: allocation.rate(),
                drops: allocation.tail_rate(now),
            }
        };
        Line { from: now, used, allocated }
    }

    /// Rule 3: the usage ratio.
    #[must_use]
    pub fn usage_ratio(&self, node: BudgetIx, now: TimeMs) -> Ratio {
        self.usage_ratio_with(node, 0, now)
    }

    /// Rule 4: what orders unallocated requests, unallocated occupancy over the lookback / fraction.
    #[must_use]
    pub fn unallocated_ratio(&self, tree: &Tree, node: BudgetIx, now: TimeMs) -> Ratio {
        Ratio {
            used: self.accounts[node.at()].unallocated.sum(now),
            allocated: u128::from(tree.fraction(node)),
        }
    }
}

/// A hard limit was reached and passed: there is no room, and time alone makes none before the term ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overdrawn;

/// A usage ratio while both of its parts move straight on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Line {
    from: TimeMs,
    used: Straight,
    allocated: Straight,
}

/// An amount that moves straight on.
#[derive(Clone, Copy, Debug, Default)]
struct Straight {
    until: TimeMs,
    /// What it is at the begin.
    value: u128,
    /// What comes in per millisecond …
    gains: u128,
    /// … and what leaves the lookback, or was counted before it is charged.
    drops: u128,
}

impl Straight {
    /// What it is so much later. Where a protection ends before, nothing is said of what comes after.
    fn after(&self, passed: SpanMs) -> u128 {
        let passed = u128::from(passed.0);
        if self.gains >= self.drops {
            self.value + (self.gains - self.drops) * passed
        } else {
            self.value.saturating_sub((self.drops - self.gains) * passed)
        }
    }
}

impl Line {
    /// Whether the ratio is still on it at a moment.
    #[must_use]
    pub fn holds_at(&self, now: TimeMs) -> bool {
        self.from <= now && now <= self.used.until && now <= self.allocated.until
    }

    /// What is used in units, at a moment at which it holds, or the last one of what is used if that is before it,
    /// and how long before.
    #[must_use]
    pub fn used_units_at(&self, at: TimeMs) -> (u128, SpanMs) {
        let last = self.used.until.min(at);
        (self.used.after(last.since(self.from)), at.since(last))
    }

    /// What is allocated, in units times 2^32, if it moves straight on so long.
    #[must_use]
    pub fn allocated_at(&self, at: TimeMs) -> Option<u128> {
        (at <= self.allocated.until).then(|| self.allocated.after(at.since(self.from)))
    }
}

/// Whether an amount comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is added.
    More,
    /// It is taken away.
    Less,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    #[test]
    fn the_ratio_of_the_design_by_hand() {
        // 8 GPUs, W = 8 h, H = 2 h, one of two equal budgets: 0.5 x 8 x 10 h = 40 GPU-hours.
        let tree = tree(&[("a", 1), ("b", 1)]);
        let a = BudgetIx(1);
        let hour = SpanMs::hours(1).0;
        let mut ledger = Ledger::new(&tree, SpanMs::hours(8), SpanMs::hours(2));
        ledger.set_allocation(&tree, 8, TimeMs(0));
        ledger.commit(&tree, a, u128::from(8 * hour));
        assert_eq!(ledger.usage_ratio(a, TimeMs(0)).per_10_000(), 2_000);
        ledger.uncommit(&tree, a, u128::from(8 * hour));
        ledger.start(&tree, a, 8, TimeMs(hour), TimeMs(0));
        // Committed whole at the start, and no more by running under protection.
        assert_eq!(ledger.usage_ratio(a, TimeMs(hour / 2)).per_10_000(), 2_000);
        ledger.unprotect(&tree, a, 8, TimeMs(hour));
        assert_eq!(ledger.usage_ratio(a, TimeMs(5 * hour / 2)).per_10_000(), 5_000);
        assert_eq!(ledger.usage_ratio(BudgetIx(0), TimeMs(5 * hour / 2)).per_10_000(), 2_500);
    }
}
