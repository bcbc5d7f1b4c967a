//! Weighted fair shares by water-filling: YARN's `ComputeFairShares`, in integers.
//!
//! There is a ratio R such that everybody gets `weight * R`, but no less than the min share and no more
//! than the max share, and all shares add up to the total. YARN finds R by 25 steps of bisection on
//! doubles; here R is a whole number over 2^64 and found exactly: the largest whose shares, rounded down,
//! do not exceed the total.

use crate::wide::product;

/// Who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) weight: u64,
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Part {
    /// `computeShare`: `weight * ratio` (over 2^64) between the bounds.
    fn share(self, ratio: u128) -> u64 {
        let (high, low) = product(u128::from(self.weight), ratio);
        let exact = if high >> 64 > 0 { u128::MAX } else { high << 64 | low >> 64 };
        u64::try_from(exact).unwrap_or(u64::MAX).max(self.min).min(self.max)
    }
}

/// Everybody's share of `total`, in the order of `parts`.
pub(super) fn fair_shares(parts: &[Part], total: u64) -> impl Iterator<Item = u64> + '_ {
    let used =
        |ratio: u128| -> u128 { parts.iter().map(|part| u128::from(part.share(ratio))).sum() };
    // One part of weight 1 that gets everything needs a ratio of `total`, that is total * 2^64.
    let (mut low, mut high) = (0, (u128::from(total) + 1) << 64);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if used(middle) <= u128::from(total) {
            low = middle;
        } else {
            high = middle;
        }
    }
    parts.iter().map(move |part| part.share(low))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn shares(parts: &[(u64, u64, u64)], total: u64) -> Vec<u64> {
        let parts: Vec<Part> =
            parts.iter().map(|&(weight, min, max)| Part { weight, min, max }).collect();
        fair_shares(&parts, total).collect()
    }

    /// The cases of YARN's TestComputeFairShares.
    #[test]
    fn as_the_tests_of_yarn() {
        const ALL: u64 = u64::MAX;
        assert_eq!(shares(&[(1, 0, ALL); 4], 40), [10, 10, 10, 10]);
        let capped = [(1, 0, 100), (1, 0, 50), (1, 0, 11), (1, 0, 3)];
        assert_eq!(shares(&capped, 40), [13, 13, 11, 3]);
        let with_min = [(1, 20, ALL), (1, 18, ALL), (1, 0, ALL), (1, 2, ALL)];
        assert_eq!(shares(&with_min, 40), [20, 18, 0, 2]);
        // YARN's weights are 2, 1, 1, 0.5.
        assert_eq!(
            shares(&[(4, 0, ALL), (2, 0, ALL), (2, 0, ALL), (1, 0, ALL)], 45),
            [20, 10, 10, 5]
        );
        let both = [(4, 0, 10), (2, 0, 11), (2, 0, 30), (1, 20, ALL)];
        assert_eq!(shares(&both, 45), [10, 7, 7, 20]);
    }

    #[test]
    fn min_shares_above_the_total_stand() {
        assert_eq!(shares(&[(1, 30, 99), (1, 30, 99)], 40), [30, 30]);
        assert_eq!(shares(&[(0, 0, 99), (1, 0, 99)], 40), [0, 40]);
        assert_eq!(shares(&[], 40), []);
    }
}
