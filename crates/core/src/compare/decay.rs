//! Exponential decay in fixed point: the same on every machine.
//!
//! Slurm multiplies all usage by `2^(-period / half life)` once per period. That factor is a number
//! over 2^64 here: a product of the square roots of one half that the bits of the exponent select,
//! each found by an integer square root. Usage is kept over 2^32 and rounded down at each step.

use crate::units::SpanMs;
use crate::wide::product;

/// Bits behind the point of decayed usage.
pub(super) const USAGE_BITS: u32 = 32;

/// What usage is multiplied by once per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decay {
    /// No half-life: usage is never forgotten.
    None,
    /// The factor, over 2^64.
    Factor(u128),
}

impl Decay {
    /// The decay of one `period` for a half-life; zero for none.
    pub(super) fn new(half_life: SpanMs, period: SpanMs) -> Self {
        if half_life == SpanMs::ZERO {
            return Self::None;
        }
        let whole = period.0 / half_life.0;
        let fraction = (u128::from(period.0 % half_life.0) << 64) / u128::from(half_life.0);
        let (mut factor, mut root): (u128, u128) = (1 << 64, 1 << 63);
        for bit in (0..64).rev() {
            // 2^-(1/2), 2^-(1/4), 2^-(1/8) …
            root = (root << 64).isqrt();
            if fraction >> bit & 1 == 1 {
                factor = (factor * root) >> 64;
            }
        }
        Self::Factor(factor.checked_shr(u32::try_from(whole).unwrap_or(u32::MAX)).unwrap_or(0))
    }

    /// What is left of `usage` one period later.
    pub(super) fn apply(self, usage: u128) -> u128 {
        match self {
            Self::None => usage,
            Self::Factor(factor) => {
                let (high, low) = product(usage, factor);
                high << 64 | low >> 64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_half_life_half_is_left() {
        let (week, period) = (SpanMs::hours(7 * 24), SpanMs::minutes(5));
        let decay = Decay::new(week, period);
        let full = 1_000_000u128 << USAGE_BITS;
        let mut usage = full;
        for _ in 0..7 * 24 * 12 {
            usage = decay.apply(usage);
        }
        // Rounded down 2,016 times, each time by less than 2^-32.
        assert!(usage <= full / 2 && full / 2 - usage < 2_500, "{}", full / 2 - usage);
    }

    #[test]
    fn whole_half_lives_are_exact() {
        assert_eq!(Decay::new(SpanMs(5), SpanMs(15)), Decay::Factor(1 << 61));
        assert_eq!(Decay::new(SpanMs(1), SpanMs(1_000)).apply(u128::MAX), 0);
        assert_eq!(Decay::new(SpanMs(0), SpanMs(15)).apply(7), 7);
    }
}
