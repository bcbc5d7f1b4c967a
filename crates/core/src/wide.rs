//! Exact comparison of products and ratios of 128-bit amounts.
//!
//! A usage ratio over weeks on thousands of GPUs fits 128 bits, its cross product with a margin does
//! not always; products are therefore compared at full width. Products of the shares along a path may be
//! of any size.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;

/// The full 256-bit product of `a` and `b`, as (high, low).
#[must_use]
pub const fn product(a: u128, b: u128) -> (u128, u128) {
    const LOW: u128 = u64::MAX as u128;
    let (a_high, a_low, b_high, b_low) = (a >> 64, a & LOW, b >> 64, b & LOW);
    let low = a_low * b_low;
    let (mid, mid_carry) = (a_high * b_low).overflowing_add(a_low * b_high);
    let (low, low_carry) = low.overflowing_add(mid << 64);
    let high = a_high * b_high + (mid >> 64) + ((mid_carry as u128) << 64) + low_carry as u128;
    (high, low)
}

/// Compares `a * b` with `c * d`, exactly.
#[must_use]
pub fn compare_products(a: u128, b: u128, c: u128, d: u128) -> Ordering {
    // At full width at once: of the products of a large cluster most overflow 128 bits, and to find that out
    // takes longer than the product.
    product(a, b).cmp(&product(c, d))
}

/// A ratio of two amounts, kept as they are. A zero denominator stands for "nothing was funded": such
/// a ratio is above every other as soon as anything was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Ratio {
    /// What was used, in GPU-ms times 2^32.
    pub used: u128,
    /// What was allocated, in GPU-ms times 2^32.
    pub allocated: u128,
}

impl Ratio {
    /// Orders ratios by value, least first.
    #[must_use]
    pub fn compare(self, other: Self) -> Ordering {
        match (self.allocated == 0 && self.used > 0, other.allocated == 0 && other.used > 0) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => {
                // An unfunded, unused side reads as 0 of 1.
                let (a, b) = (self.allocated.max(1), other.allocated.max(1));
                compare_products(self.used, b, other.used, a)
            }
        }
    }

    /// Whether `self + margin <= other`, with the margin in millionths; inclusive (rule 6).
    #[must_use]
    pub fn at_least_margin_below(self, other: Self, margin_ppm: u64) -> bool {
        const MILLION: u128 = 1_000_000;
        if other.allocated == 0 {
            return other.used > 0;
        }
        if self.allocated == 0 {
            return false;
        }
        // (used/allocated + margin) <= other  <=>  (used*M + margin*allocated) * other.allocated
        //                                          <= other.used * (M * allocated)
        let raised = self.used * MILLION + u128::from(margin_ppm) * self.allocated;
        compare_products(raised, other.allocated, other.used, MILLION * self.allocated)
            != Ordering::Greater
    }

    /// The value in ten-thousandths, rounded down; `u64::MAX` when nothing was allocated but something
    /// was used. For display only.
    #[must_use]
    pub fn per_10_000(self) -> u64 {
        if self.allocated == 0 {
            return if self.used == 0 { 0 } else { u64::MAX };
        }
        let scale = (self.allocated >> 96) as u32;
        let shift = 32 - scale.leading_zeros();
        let (used, allocated) = (self.used >> shift, self.allocated >> shift);
        u64::try_from(used.saturating_mul(10_000) / allocated.max(1)).unwrap_or(u64::MAX)
    }
}

/// A whole number of any size. For what is worked out seldom and then rounded once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Natural {
    /// Digits to the base 2^64, the least significant one first, the last one not zero.
    digits: Vec<u64>,
}

impl Natural {
    fn of(mut digits: Vec<u64>) -> Self {
        while digits.last() == Some(&0) {
            digits.pop();
        }
        Self { digits }
    }

    /// Whether it is 0.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    /// The sum.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let (long, short) =
            if self.digits.len() >= other.digits.len() { (self, other) } else { (other, self) };
        let mut digits = long.digits.clone();
        digits.push(0);
        let mut carry = false;
        for (at, digit) in digits.iter_mut().enumerate() {
            let (sum, first) = digit.overflowing_add(short.digits.get(at).copied().unwrap_or(0));
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            (*digit, carry) = (sum, first || second);
        }
        Self::of(digits)
    }

    /// The difference to one that is not larger.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        debug_assert!(*other <= *self);
        let mut digits = self.digits.clone();
        let mut borrow = false;
        for (at, digit) in digits.iter_mut().enumerate() {
            let (rest, first) = digit.overflowing_sub(other.digits.get(at).copied().unwrap_or(0));
            let (rest, second) = rest.overflowing_sub(u64::from(borrow));
            (*digit, borrow) = (rest, first || second);
        }
        Self::of(digits)
    }

    /// The product.
    #[must_use]
    pub fn times(&self, other: &Self) -> Self {
        let mut digits = vec![0u64; self.digits.len() + other.digits.len()];
        for (at, &a) in self.digits.iter().enumerate() {
            let mut carry = 0u128;
            for (by, &b) in other.digits.iter().enumerate() {
                let sum = u128::from(a) * u128::from(b) + u128::from(digits[at + by]) + carry;
                (digits[at + by], carry) = (sum as u64, sum >> 64);
            }
            digits[at + other.digits.len()] = carry as u64;
        }
        Self::of(digits)
    }

    /// `self / other` over 2^32, rounded down, and what is left of it over `other`. `self` is not larger
    /// than `other`, and that is not 0.
    #[must_use]
    pub fn fraction_of(&self, other: &Self) -> (u64, Self) {
        if self == other {
            return (1 << 32, Self::of(Vec::new()));
        }
        let (mut fraction, mut rest) = (0, self.clone());
        for _ in 0..32 {
            fraction <<= 1;
            rest = rest.plus(&rest);
            if rest >= *other {
                fraction += 1;
                rest = rest.minus(other);
            }
        }
        (fraction, rest)
    }
}

impl From<u128> for Natural {
    fn from(value: u128) -> Self {
        Self::of(vec![value as u64, (value >> 64) as u64])
    }
}

impl Ord for Natural {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.digits.len().cmp(&other.digits.len()))
            .then_with(|| self.digits.iter().rev().cmp(other.digits.iter().rev()))
    }
}

impl PartialOrd for Natural {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.per_10_000() {
            u64::MAX => f.write_str("unfunded"),
            value => write!(f, "{}.{:04}", value / 10_000, value % 10_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn products_keep_every_bit() {
        assert_eq!(product(u128::MAX, u128::MAX), (u128::MAX - 1, 1));
        assert_eq!(product(1 << 100, 1 << 100), (1 << 72, 0));
    }

    #[test]
    fn the_margin_is_inclusive() {
        let quarter = Ratio { used: 1, allocated: 4 };
        let three_tenths = Ratio { used: 3, allocated: 10 };
        assert!(quarter.at_least_margin_below(three_tenths, 50_000));
        assert!(!quarter.at_least_margin_below(three_tenths, 50_001));
    }

    #[test]
    fn unfunded_use_is_above_everything() {
        let unfunded = Ratio { used: 1, allocated: 0 };
        let huge = Ratio { used: u128::MAX >> 30, allocated: 1 };
        assert_eq!(unfunded.compare(huge), Ordering::Greater);
        assert!(huge.at_least_margin_below(unfunded, 1));
    }

    #[test]
    fn naturals_carry_and_borrow() {
        let max = Natural::from(u128::MAX);
        let one = Natural::from(1);
        let above = max.plus(&one);
        assert!(above > max);
        assert_eq!(above.minus(&one), max);
        assert_eq!(max.times(&max).plus(&max).plus(&max), above.times(&above).minus(&one));
        assert_eq!(max.fraction_of(&above).0, u64::from(u32::MAX));
        assert_eq!(max.fraction_of(&max), (1 << 32, Natural::from(0)));
    }

    proptest! {
        #[test]
        fn naturals_agree_with_small_numbers(a: u64, b: u64, c in 1..=u64::MAX) {
            let [a, b, c] = [a, b, c].map(u128::from);
            let natural = Natural::from;
            prop_assert_eq!(natural(a).times(&natural(b)), natural(a * b));
            prop_assert_eq!(natural(a << 60).plus(&natural(b)), natural((a << 60) + b));
            prop_assert_eq!(natural(a).cmp(&natural(b)), a.cmp(&b));
            let part = a.min(c);
            let (fraction, rest) = natural(part).fraction_of(&natural(c));
            prop_assert_eq!(u128::from(fraction), (part << 32) / c);
            prop_assert_eq!(rest, natural((part << 32) % c));
        }

        #[test]
        fn wide_products_agree_with_small_ones(a: u64, b: u64, c: u64, d: u64) {
            let (left, right) = (u128::from(a) * u128::from(b), u128::from(c) * u128::from(d));
            prop_assert_eq!(product(u128::from(a), u128::from(b)), (0, left));
            prop_assert_eq!(
                compare_products(u128::from(a), u128::from(b), u128::from(c), u128::from(d)),
                left.cmp(&right)
            );
        }

        #[test]
        fn wide_comparison_is_antisymmetric(a: u128, b: u128, c: u128, d: u128) {
            prop_assert_eq!(
                compare_products(a, b, c, d),
                compare_products(c, d, a, b).reverse()
            );
        }
    }
}
