//! Rules 1 to 3: what each budget was charged, what its running work still protects, what decided
//! starts will add, and what it was allocated.
//!
//! All amounts are in GPU x rate in thousandths x milliseconds. Contracts of starts that are decided
//! but not begun count in two columns: those that stand in the log, and those that *may* have been
//! decided already (see `timeline`).

use crate::exact::{Earlier, Ratio, Steps};
use crate::shares::{WHOLE, fractions};
use bursar_scenario::{Scenario, TermSpec};
use std::collections::BTreeMap;

/// Which of two bounds of a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// Nothing counts that is not certain.
    Least,
    /// All that may have been decided counts.
    Most,
}

/// How sure a decided start is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sure {
    Yes,
    Maybe,
}

#[derive(Debug)]
struct Account {
    fraction: u64,
    charged: Steps,
    /// Fraction (over 2^32) x capacity.
    accrued: Steps,
    protected_rate: u128,
    /// Sum of rate x end of protection.
    protected_ends: u128,
    decided: u128,
    maybe_decided: u128,
}

/// All accounts of one run.
#[derive(Debug)]
pub(crate) struct Books {
    lookback: u64,
    horizon: u64,
    accounts: Vec<Account>,
    /// From the root down, for every budget.
    paths: Vec<Vec<usize>>,
    limits: Vec<Option<u128>>,
    terms: Vec<Vec<TermSpec>>,
    share_micro: Vec<u64>,
    capacity: u128,
    now: u64,
    /// (end of protection, workload) -> (leaf, rate).
    protections: BTreeMap<(u64, u32), (usize, u128)>,
}

impl Books {
    pub(crate) fn new(scenario: &Scenario, capacity: u128) -> Self {
        let share_micro: Vec<u64> = scenario.budgets.iter().map(|b| b.share_micro).collect();
        let first = fractions(scenario, &share_micro);
        let account = |fraction: &u64| {
            let height = i128::from(*fraction) * capacity as i128;
            let mut accrued = Steps::new(Earlier::Height(height));
            accrued.set(0, height);
            Account {
                fraction: *fraction,
                charged: Steps::new(Earlier::Nothing),
                accrued,
                protected_rate: 0,
                protected_ends: 0,
                decided: 0,
                maybe_decided: 0,
            }
        };
        let path = |index: usize| {
            let mut path = vec![index];
            while let Some(parent) = scenario.budgets[path[path.len() - 1]].parent {
                path.push(parent);
            }
            path.reverse();
            path
        };
        let limit = |limit: Option<u64>| limit.map(|gpu_ms| u128::from(gpu_ms) * 1000);
        Self {
            lookback: scenario.settings.lookback_ms,
            horizon: scenario.settings.horizon_ms,
            accounts: first.iter().map(account).collect(),
            paths: (0..scenario.budgets.len()).map(path).collect(),
            limits: scenario.budgets.iter().map(|b| limit(b.limit_gpu_ms)).collect(),
            terms: scenario.budgets.iter().map(|b| b.terms.clone()).collect(),
            share_micro,
            capacity,
            now: 0,
            protections: BTreeMap::new(),
        }
    }

    /// Time passes; protections end.
    pub(crate) fn advance(&mut self, now: u64) {
        self.now = now;
        while let Some((&(until, workload), _)) = self.protections.first_key_value() {
            if until > now {
                break;
            }
            self.unprotect(until, workload);
        }
    }

    fn unprotect(&mut self, until: u64, workload: u32) {
        if let Some((leaf, rate)) = self.protections.remove(&(until, workload)) {
            for &node in &self.paths[leaf] {
                self.accounts[node].protected_rate -= rate;
                self.accounts[node].protected_ends -= rate * u128::from(until);
            }
        }
    }

    fn restate(&mut self) {
        for account in &mut self.accounts {
            account.accrued.set(self.now, i128::from(account.fraction) * self.capacity as i128);
        }
    }

    /// From now on this capacity is in service.
    pub(crate) fn set_capacity(&mut self, capacity: u128) {
        self.capacity = capacity;
        self.restate();
    }

    /// From now on a budget has this share.
    pub(crate) fn set_share(&mut self, scenario: &Scenario, budget: usize, share_micro: u64) {
        self.share_micro[budget] = share_micro;
        for (account, new) in self.accounts.iter_mut().zip(fractions(scenario, &self.share_micro)) {
            account.fraction = new;
        }
        self.restate();
    }

    /// An allocated attempt starts; `rate` is its GPUs x rate.
    pub(crate) fn start(&mut self, leaf: usize, workload: u32, rate: u128, until: u64) {
        for &node in &self.paths[leaf] {
            self.accounts[node].charged.raise(self.now, rate as i128);
            if until > self.now {
                self.accounts[node].protected_rate += rate;
                self.accounts[node].protected_ends += rate * u128::from(until);
            }
        }
        if until > self.now {
            self.protections.insert((until, workload), (leaf, rate));
        }
    }

    /// It ends.
    pub(crate) fn stop(&mut self, leaf: usize, workload: u32, rate: u128, until: u64) {
        self.unprotect(until, workload);
        for &node in &self.paths[leaf] {
            self.accounts[node].charged.raise(self.now, -(rate as i128));
        }
    }

    /// A start is decided: its contract counts from now on.
    pub(crate) fn decide(&mut self, leaf: usize, contract: u128, sure: Sure) {
        for &node in &self.paths[leaf] {
            match sure {
                Sure::Yes => self.accounts[node].decided += contract,
                Sure::Maybe => self.accounts[node].maybe_decided += contract,
            }
        }
    }

    /// The start begins, or is given up.
    pub(crate) fn undecide(&mut self, leaf: usize, contract: u128, sure: Sure) {
        for &node in &self.paths[leaf] {
            match sure {
                Sure::Yes => self.accounts[node].decided -= contract,
                Sure::Maybe => self.accounts[node].maybe_decided -= contract,
            }
        }
    }

    /// The budgets below the point where two paths part; none if one is on the other's path.
    pub(crate) fn sides(&self, a: usize, b: usize) -> Option<(usize, usize)> {
        let both = self.paths[a].iter().zip(&self.paths[b]);
        both.map(|(&a, &b)| (a, b)).find(|(a, b)| a != b)
    }

    pub(crate) fn fraction(&self, budget: usize) -> u64 {
        self.accounts[budget].fraction
    }

    pub(crate) fn share_micro(&self, budget: usize) -> u64 {
        self.share_micro[budget]
    }

    fn still_protected(&self, account: &Account) -> u128 {
        account.protected_ends - account.protected_rate * u128::from(self.now)
    }

    fn open_contracts(&self, account: &Account, bound: Bound) -> u128 {
        let decided = match bound {
            Bound::Least => account.decided,
            Bound::Most => account.decided + account.maybe_decided,
        };
        self.still_protected(account) + decided
    }

    /// Rule 3: the usage ratio now, with `more` added to what counts as used.
    pub(crate) fn ratio(&self, budget: usize, more: u128, bound: Bound) -> Ratio {
        let account = &self.accounts[budget];
        let used = account.charged.over(self.now, self.lookback)
            + self.open_contracts(account, bound)
            + more;
        let ahead = u128::from(account.fraction)
            .saturating_mul(self.capacity)
            .saturating_mul(u128::from(self.horizon));
        let allocated = account.accrued.over(self.now, self.lookback).saturating_add(ahead);
        Ratio { num: used.saturating_mul(u128::from(WHOLE)), den: allocated }
    }

    /// Rule 1: whether every hard limit above has room for a contract, and whether the answer is
    /// the same under both bounds.
    pub(crate) fn has_room(&self, leaf: usize, contract: u128) -> (bool, Sure) {
        let under = |bound: Bound| {
            self.paths[leaf].iter().all(|&node| {
                let account = &self.accounts[node];
                let spent = account.charged.up_to(self.now);
                let wanted = self.open_contracts(account, bound) + contract;
                let ever = self.limits[node].is_none_or(|limit| spent + wanted <= limit);
                let is_now = |term: &&TermSpec| (term.from_ms..term.until_ms).contains(&self.now);
                let mut terms = self.terms[node].iter().filter(is_now);
                ever && terms.all(|term| {
                    spent - account.charged.up_to(term.from_ms) + wanted
                        <= self.term_limit(node, term)
                })
            })
        };
        let (least, most) = (under(Bound::Least), under(Bound::Most));
        (least, if least == most { Sure::Yes } else { Sure::Maybe })
    }

    /// The limit of a term: with what the one before left, if that is carried over.
    fn term_limit(&self, node: usize, term: &TermSpec) -> u128 {
        let own = u128::from(term.limit_gpu_ms) * 1000;
        let is_before =
            |other: &&TermSpec| other.series == term.series && other.until_ms == term.from_ms;
        let before = self.terms[node].iter().find(is_before).filter(|_| term.carry_over);
        let charged = &self.accounts[node].charged;
        own + before.map_or(0, |before| {
            let spent = charged.up_to(before.until_ms) - charged.up_to(before.from_ms);
            self.term_limit(node, before).saturating_sub(spent)
        })
    }

    /// Whether a leaf or something above it has a hard limit.
    pub(crate) fn is_limited(&self, leaf: usize) -> bool {
        self.paths[leaf]
            .iter()
            .any(|&node| self.limits[node].is_some() || !self.terms[node].is_empty())
    }

    /// All that was ever charged.
    pub(crate) fn charged(&self, budget: usize) -> u128 {
        self.accounts[budget].charged.up_to(self.now)
    }
}
