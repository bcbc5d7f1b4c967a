//! Slurm's Fair Tree, as a pure function of a tree of accounts: who has which FairShare.
//!
//! Source: Cox & Morrison, `src/plugins/priority/multifactor/fair_tree.c` of Slurm, and the page "Fair
//! Tree Fairshare Algorithm" of its documentation; checked against what a 22.05 daemon computed. From the root down siblings are sorted by
//! *LevelFS* = (shares / shares of the level) / (usage / usage of the account above), highest first,
//! users before accounts; depth first each user gets the next lower rank. FairShare is the rank divided
//! by the number of users.
//!
//! What the daemon does beyond its manual, and [`Ties::AsDaemon`] repeats:
//! - Tied sibling accounts are *not* merged: `_count_tied_accounts` stops at the first account, and only
//!   accounts can follow. The one created first comes first, since glibc's qsort is stable. A tie still
//!   carries over to the first user below the second account, who gets the rank given last.
//! - Ties are equality of floating-point numbers: shares are normalised as a `double`, everything else
//!   is an x87 `long double`. Ratios that are equal on paper may differ. The roundings are repeated in
//!   integers (the `rounded` module).
//! - A `Fairshare=parent` account dissolves: its children are siblings of its siblings. Such a user ranks
//!   as high as an unused one and does not count among the shares of the level.
//! - Root has a user of its own with one share, who counts like any other. Callers add it.
//!
//! [`Ties::AsManual`] merges the children of tied accounts and compares ratios exactly.

use super::rounded::{DOUBLE_BITS, LONG_DOUBLE_BITS, Rounded};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// Shares of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shares {
    /// `Fairshare=parent`.
    Parent,
    /// A weight among siblings.
    Of(u64),
}

/// Whether an association is an account or a user in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Holds users and accounts; its usage is theirs.
    Account,
    /// A user, with a usage in any unit.
    User {
        /// What it has used.
        usage: u128,
    },
}

/// One association. The first of a tree is the root account; parents come before children; siblings are
/// in the order in which they were created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Association {
    /// The account it is in: its place in the list. The root's own does not matter.
    pub parent: usize,
    /// Its weight.
    pub shares: Shares,
    /// Account or user.
    pub kind: Kind,
}

/// Who says what a tie is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// As slurmctld computes it.
    AsDaemon,
    /// As its manual describes it.
    AsManual,
}

/// The rank of every user, highest (the number of users) for those who come first; none for accounts.
/// FairShare is the rank divided by the number of users.
#[must_use]
pub fn fair_tree_order(tree: &[Association], ties: Ties) -> Vec<Option<u32>> {
    let users = tree.iter().filter(|node| matches!(node.kind, Kind::User { .. })).count() as u32;
    let mut ranking = Ranking::new(tree, ties, users);
    if !tree.is_empty() {
        ranking.rank_level(ranking.children[0].clone(), Entry::Free);
    }
    ranking.ranks
}

/// LevelFS. The order is the daemon's.
#[derive(Clone, Copy, Debug)]
enum Level {
    /// Shares of zero.
    Zero,
    /// As the daemon rounds it.
    Rounded(Rounded),
    /// (shares x usage above) / (shares of the level x usage).
    Exact { above: [u128; 2], below: [u128; 2] },
    /// Nothing used.
    Infinite,
}

impl Level {
    fn compare(&self, other: &Self) -> Ordering {
        let kind = |level: &Self| match level {
            Self::Zero => 0,
            Self::Rounded(_) | Self::Exact { .. } => 1,
            Self::Infinite => 2,
        };
        match (self, other) {
            (Self::Rounded(a), Self::Rounded(b)) => a.cmp(b),
            (Self::Exact { above: a, below: b }, Self::Exact { above: c, below: d }) => {
                wide_product([a[0], a[1], d[0], d[1]]).cmp(&wide_product([c[0], c[1], b[0], b[1]]))
            }
            (
                Self::Zero | Self::Rounded(_) | Self::Exact { .. } | Self::Infinite,
                Self::Zero | Self::Rounded(_) | Self::Exact { .. } | Self::Infinite,
            ) => kind(self).cmp(&kind(other)),
        }
    }
}

/// The product of four, most significant limb first.
fn wide_product(factors: [u128; 4]) -> [u64; 8] {
    let mut limbs = [0u64; 8];
    limbs[0] = 1;
    for factor in factors {
        let mut next = [0u64; 8];
        for (shift, part) in [factor as u64, (factor >> 64) as u64].into_iter().enumerate() {
            let mut carry = 0u128;
            for at in 0..8 - shift {
                let sum =
                    u128::from(limbs[at]) * u128::from(part) + u128::from(next[at + shift]) + carry;
                next[at + shift] = sum as u64;
                carry = sum >> 64;
            }
        }
        limbs = next;
    }
    limbs.reverse();
    limbs
}

/// Whether a level is entered from an account that was tied with what came before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Free,
    Tied,
}

struct Ranking<'a> {
    tree: &'a [Association],
    ties: Ties,
    /// Members of each account, dissolved accounts replaced by their members.
    children: Vec<Vec<usize>>,
    levels: Vec<Level>,
    ranks: Vec<Option<u32>>,
    /// The rank given last.
    rank: u32,
    /// The rank that comes next if there is no tie.
    next: u32,
}

impl<'a> Ranking<'a> {
    fn new(tree: &'a [Association], ties: Ties, users: u32) -> Self {
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); tree.len()];
        for (at, node) in tree.iter().enumerate().skip(1) {
            assert!(node.parent < at, "parents come before children");
            members[node.parent].push(at);
        }
        let mut usage = vec![0u128; tree.len()];
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); tree.len()];
        for (at, node) in tree.iter().enumerate().rev() {
            match node.kind {
                Kind::User { usage: own } => usage[at] = own,
                Kind::Account => {
                    usage[at] = members[at].iter().map(|&member| usage[member]).sum();
                    for &member in &members[at] {
                        if (tree[member].kind, tree[member].shares)
                            == (Kind::Account, Shares::Parent)
                        {
                            let dissolved = core::mem::take(&mut children[member]);
                            children[at].extend(dissolved);
                        } else {
                            children[at].push(member);
                        }
                    }
                }
            }
        }
        let mut levels = vec![Level::Infinite; tree.len()];
        for (account, siblings) in children.iter().enumerate() {
            let shares = siblings.iter().map(|&at| match tree[at].shares {
                Shares::Parent => 0,
                Shares::Of(shares) => u128::from(shares),
            });
            let of_level: u128 = shares.sum();
            for &at in siblings {
                if let Shares::Of(shares) = tree[at].shares {
                    let facts = [u128::from(shares), of_level, usage[at], usage[account]];
                    levels[at] = level(ties, facts);
                }
            }
        }
        let ranks = vec![None; tree.len()];
        Self { tree, ties, children, levels, ranks, rank: users, next: users }
    }

    fn is_user(&self, at: usize) -> bool {
        matches!(self.tree[at].kind, Kind::User { .. })
    }

    fn is_tied(&self, a: usize, b: usize) -> bool {
        self.levels[a].compare(&self.levels[b]) == Ordering::Equal
    }

    /// `_calc_tree_fs`.
    fn rank_level(&mut self, mut siblings: Vec<usize>, entry: Entry) {
        siblings.sort_by(|&a, &b| {
            let users_first = self.is_user(b).cmp(&self.is_user(a));
            self.levels[b].compare(&self.levels[a]).then(users_first)
        });
        let mut at = 0;
        while at < siblings.len() {
            let this = siblings[at];
            let is_tied = match at.checked_sub(1) {
                Some(before) => self.is_tied(siblings[before], this),
                None => entry == Entry::Tied,
            };
            if self.is_user(this) {
                if !is_tied {
                    self.rank = self.next;
                }
                self.ranks[this] = Some(self.rank);
                self.next -= 1;
            } else {
                let mut below = self.children[this].clone();
                if self.ties == Ties::AsManual {
                    while at + 1 < siblings.len() && self.is_tied(this, siblings[at + 1]) {
                        at += 1;
                        below.extend(&self.children[siblings[at]]);
                    }
                }
                self.rank_level(below, if is_tied { Entry::Tied } else { Entry::Free });
            }
            at += 1;
        }
    }
}

/// `_calc_assoc_fs`, from shares, shares of the level, usage and usage of the account above.
fn level(ties: Ties, [shares, of_level, usage, above]: [u128; 4]) -> Level {
    if shares == 0 {
        return Level::Zero;
    }
    if usage == 0 {
        return Level::Infinite;
    }
    match ties {
        Ties::AsManual => Level::Exact { above: [shares, above], below: [of_level, usage] },
        Ties::AsDaemon => {
            let divide = |a: u128, b: u128, bits: u32| {
                let (a, b) = (Rounded::new(a, bits), Rounded::new(b, bits));
                Some(a?.divide(b?, bits))
            };
            let normal_shares = divide(shares, of_level, DOUBLE_BITS);
            let effective_usage = divide(usage, above, LONG_DOUBLE_BITS);
            match (normal_shares, effective_usage) {
                (Some(shares), Some(usage)) => {
                    Level::Rounded(shares.divide(usage, LONG_DOUBLE_BITS))
                }
                // Neither sum is zero when one of its parts is not.
                _ => Level::Infinite,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_factors_keep_every_bit() {
        assert_eq!(wide_product([1, 2, 3, 4]), [0, 0, 0, 0, 0, 0, 0, 24]);
        assert_eq!(wide_product([1 << 127, 1 << 127, 1 << 127, 1 << 127])[0], 1 << 60);
        let max = wide_product([u128::MAX; 4]);
        assert_eq!((max[0], max[7]), (u64::MAX, 1));
    }
}
