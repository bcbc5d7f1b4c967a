//! Numbers rounded as a floating-point unit rounds them, in integers.
//!
//! The Slurm daemon decides ties by equality of `long double`s, which differs from equality of the
//! ratios that they stand for (1/6 ÷ 1/4 and 3/6 ÷ 3/4 are not equal there). To give its order, its
//! roundings are repeated: to nearest, ties to even, with 53 bits for a `double` and 64 for the x87
//! `long double`. Only what its formula needs is here: positive numbers and division.

use core::cmp::Ordering;

/// Significant bits of a `double`.
pub(super) const DOUBLE_BITS: u32 = 53;
/// Significant bits of an x87 `long double`.
pub(super) const LONG_DOUBLE_BITS: u32 = 64;

/// `mantissa * 2^exponent`, the mantissa's top bit set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rounded {
    mantissa: u64,
    exponent: i32,
}

impl Rounded {
    /// The nearest number of `bits` significant bits; none for zero.
    pub(super) fn new(value: u128, bits: u32) -> Option<Self> {
        (value > 0).then(|| Self::round(value, 0, bits, false))
    }

    /// `self / other`, rounded to `bits` significant bits.
    pub(super) fn divide(self, other: Self, bits: u32) -> Self {
        let dividend = u128::from(self.mantissa) << 64;
        let divisor = u128::from(other.mantissa);
        let is_inexact = dividend % divisor != 0;
        // At least 64 bits, and one more below them that tells what to round to.
        let quotient = (dividend / divisor) << 1 | u128::from(is_inexact);
        Self::round(quotient, self.exponent - other.exponent - 65, bits, is_inexact)
    }

    /// Rounds `value * 2^exponent`; `is_sticky` says that a little more than `value` is meant.
    fn round(value: u128, exponent: i32, bits: u32, is_sticky: bool) -> Self {
        let length = 128 - value.leading_zeros();
        let Some(cut) = length.checked_sub(bits).filter(|&cut| cut > 0) else {
            return Self::normal(value, exponent);
        };
        let kept = value >> cut;
        let (rest, half) = (value & ((1 << cut) - 1), 1 << (cut - 1));
        let rounds_up = match rest.cmp(&half) {
            Ordering::Greater => true,
            Ordering::Less => false,
            Ordering::Equal => is_sticky || kept & 1 == 1,
        };
        Self::normal(kept + u128::from(rounds_up), exponent + cut as i32)
    }

    /// Shifts the top bit into place. `value` has at most 65 bits, and if 65 its last is 0.
    fn normal(value: u128, exponent: i32) -> Self {
        let shift = value.leading_zeros() as i32 - 64;
        let mantissa = if shift >= 0 { value << shift } else { value >> -shift };
        Self { mantissa: mantissa as u64, exponent: exponent - shift }
    }
}

impl Ord for Rounded {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.exponent, self.mantissa).cmp(&(other.exponent, other.mantissa))
    }
}

impl PartialOrd for Rounded {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn divides_as_the_hardware_does(a in 1u64..1 << 53, b in 1u64..1 << 53, c in 1u64..1 << 53) {
            let new = |value: u64| Rounded::new(u128::from(value), DOUBLE_BITS).expect("not zero");
            let ours = new(a).divide(new(b), DOUBLE_BITS);
            let theirs = a as f64 / b as f64;
            let bits = theirs.to_bits();
            prop_assert_eq!(ours.mantissa, (bits << 11) | 1 << 63);
            prop_assert_eq!(ours.exponent, (bits >> 52) as i32 - 1023 - 63);
            let further = ours.divide(new(c), DOUBLE_BITS);
            prop_assert_eq!(further.mantissa, ((theirs / c as f64).to_bits() << 11) | 1 << 63);
        }
    }

    #[test]
    fn wide_integers_round_to_nearest_even() {
        let value = |value: u128| Rounded::new(value, LONG_DOUBLE_BITS).expect("not zero");
        let (odd, even) = ((1u128 << 64) + 3, (1u128 << 64) + 1);
        assert_eq!(value(odd), value((1 << 64) + 4));
        assert_eq!(value(even), value(1 << 64));
        assert_eq!(value(u128::MAX), Rounded { mantissa: 1 << 63, exponent: 65 });
        assert_eq!(Rounded::new(0, 64), None);
    }
}
