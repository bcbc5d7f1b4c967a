//! Hard limits that hold between two moments: terms (rule 1).
//!
//! The core knows no calendar. Whoever writes "each month" gives one term for each month, and gives more of
//! them in time.

use crate::units::TimeMs;
use alloc::vec::Vec;

/// A hard limit on what a budget is charged from one moment to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Term {
    /// Terms of one series follow each other: what one leaves may be carried into the next.
    pub series: u32,
    /// Its first moment.
    pub from: TimeMs,
    /// The first moment that is not of it any more.
    pub until: TimeMs,
    /// The limit, in units of the ledger.
    pub units: u128,
    /// Whether what the term of its series before it left unspent is added to it.
    pub carries: bool,
    /// What was charged in it before it was made known, for one that began before.
    pub before: u128,
}

impl Term {
    /// Whether a moment is of it.
    #[must_use]
    pub fn has(&self, at: TimeMs) -> bool {
        self.from <= at && at < self.until
    }

    /// Whether it is the same as another, though the limit may differ.
    fn is_same(&self, other: &Self) -> bool {
        (self.series, self.from, self.until, self.carries)
            == (other.series, other.from, other.until, other.carries)
    }
}

/// A term that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OpenTerm {
    /// The term.
    pub term: Term,
    /// What was charged when it began: less than nothing if more was charged in it than the account knows of.
    base: i128,
    /// What the term before left.
    pub carried: u128,
}

impl OpenTerm {
    /// A term that begins now, when `total` was charged. `open` are those that have begun.
    pub(crate) fn begin(term: Term, total: u128, open: &[Self]) -> Self {
        let is_before =
            |other: &&Self| other.term.series == term.series && other.term.until == term.from;
        let left = open.iter().find(is_before).filter(|_| term.carries);
        let carried = left.map_or(0, |before| before.units().saturating_sub(before.charged(total)));
        Self { term, base: total as i128 - term.before as i128, carried }
    }

    /// The limit with what was carried into it.
    #[must_use]
    pub const fn units(&self) -> u128 {
        self.term.units + self.carried
    }

    /// What was charged in it, if so much was charged in all.
    #[must_use]
    pub fn charged(&self, total: u128) -> u128 {
        u128::try_from(total as i128 - self.base).unwrap_or(0)
    }

    /// What is heard late was charged in all, `accrued` of it before the term began.
    pub(crate) fn correct(&mut self, accrued: i128) {
        self.base += accrued;
    }
}

/// The terms of a new tree that have begun: those that were there before go on.
pub(crate) fn renewed(
    terms: &[Term],
    known: &[OpenTerm],
    total: u128,
    now: TimeMs,
) -> Vec<OpenTerm> {
    let begun = terms.iter().filter(|term| term.has(now));
    begun
        .map(|&term| match known.iter().find(|open| open.term.is_same(&term)) {
            Some(open) => OpenTerm { term, ..*open },
            None => OpenTerm::begin(term, total, &[]),
        })
        .collect()
}
