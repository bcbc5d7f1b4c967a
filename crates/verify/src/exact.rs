//! Exact arithmetic: ratios compared without rounding, and areas under step functions.
//!
//! Ratios are compared by their continued fractions, which needs divisions but never a product, so
//! 128 bits are enough for whatever a scenario holds.

use std::cmp::Ordering;

/// A ratio of whole numbers; with a denominator of 0 it is above every other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ratio {
    pub(crate) num: u128,
    pub(crate) den: u128,
}

impl Ratio {
    /// This ratio plus `ppm` millionths.
    pub(crate) fn plus_ppm(self, ppm: u64) -> Self {
        let scaled = self.num.saturating_mul(1_000_000);
        Self {
            num: scaled.saturating_add(self.den.saturating_mul(u128::from(ppm))),
            den: self.den.saturating_mul(1_000_000),
        }
    }

    /// Compares two ratios exactly.
    pub(crate) fn compare(self, other: Self) -> Ordering {
        match (self.den, other.den) {
            (0, 0) => return Ordering::Equal,
            (0, _) => return Ordering::Greater,
            (_, 0) => return Ordering::Less,
            _ => {}
        }
        let (mut a, mut b) = ((self.num, self.den), (other.num, other.den));
        loop {
            let whole = (a.0 / a.1).cmp(&(b.0 / b.1));
            if whole != Ordering::Equal {
                return whole;
            }
            let rests = (a.0 % a.1, b.0 % b.1);
            match rests {
                (0, 0) => return Ordering::Equal,
                (0, _) => return Ordering::Less,
                (_, 0) => return Ordering::Greater,
                // x/a < y/b exactly if b/y < a/x.
                (x, y) => (a, b) = ((b.1, y), (a.1, x)),
            }
        }
    }

    /// For people; never compared.
    pub(crate) fn shown(self) -> String {
        if self.den == 0 {
            return "infinite".into();
        }
        format!("{:.9}", self.num as f64 / self.den as f64)
    }
}

/// What holds before the first step of a [`Steps`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Earlier {
    /// Nothing.
    Nothing,
    /// This height, as far back as anybody asks.
    Height(i128),
}

/// A step function of time that knows the area below it.
#[derive(Clone, Debug)]
pub(crate) struct Steps {
    earlier: Earlier,
    /// (from, area before `from`, height from then on), in order of time.
    steps: Vec<(u64, i128, i128)>,
}

impl Steps {
    pub(crate) fn new(earlier: Earlier) -> Self {
        Self { earlier, steps: Vec::new() }
    }

    pub(crate) fn height(&self) -> i128 {
        match (self.steps.last(), self.earlier) {
            (Some(step), _) => step.2,
            (None, Earlier::Height(height)) => height,
            (None, Earlier::Nothing) => 0,
        }
    }

    /// From `at` on, which is no earlier than the last step, the height is `height`.
    pub(crate) fn set(&mut self, at: u64, height: i128) {
        let area = if self.steps.is_empty() { 0 } else { self.area(i128::from(at)) };
        // What holds from the first moment on counts as having always held, also if it changes again at
        // that very moment.
        if let Earlier::Height(earlier) = &mut self.earlier
            && self.steps.first().is_none_or(|first| first.0 == at)
        {
            *earlier = height;
        }
        match self.steps.last_mut() {
            Some(last) if last.0 == at => last.2 = height,
            _ => self.steps.push((at, area, height)),
        }
    }

    pub(crate) fn raise(&mut self, at: u64, by: i128) {
        self.set(at, self.height() + by);
    }

    /// The area from the first step to `at`; negative before the first step.
    fn area(&self, at: i128) -> i128 {
        let after = self.steps.partition_point(|step| i128::from(step.0) <= at);
        match after.checked_sub(1) {
            Some(index) => {
                let (from, area, height) = self.steps[index];
                area + height * (at - i128::from(from))
            }
            None => match self.earlier {
                Earlier::Nothing => 0,
                Earlier::Height(height) => {
                    let first = self.steps.first().map_or(0, |step| step.0);
                    height * (at - i128::from(first))
                }
            },
        }
    }

    /// The area over the `length` before `to`.
    pub(crate) fn over(&self, to: u64, length: u64) -> u128 {
        let to = i128::from(to);
        let area = self.area(to) - self.area(to - i128::from(length));
        u128::try_from(area).unwrap_or(0)
    }

    /// The area up to `to` of a function that is 0 at first.
    pub(crate) fn up_to(&self, to: u64) -> u128 {
        u128::try_from(self.area(i128::from(to))).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(num: u128, den: u128) -> Ratio {
        Ratio { num, den }
    }

    #[test]
    fn ratios_compare_like_their_cross_products() {
        for a in 0..12u128 {
            for b in 1..12u128 {
                for c in 0..12u128 {
                    for d in 1..12u128 {
                        assert_eq!(ratio(a, b).compare(ratio(c, d)), (a * d).cmp(&(c * b)));
                    }
                }
            }
        }
    }

    #[test]
    fn large_ratios_that_differ_by_one_unit_are_told_apart() {
        let den = u128::MAX / 3;
        assert_eq!(ratio(den - 1, den).compare(ratio(den, den + 1)), Ordering::Less);
        assert_eq!(ratio(1, 0).compare(ratio(u128::MAX, 1)), Ordering::Greater);
        assert_eq!(ratio(0, 0).compare(ratio(5, 0)), Ordering::Equal);
    }

    #[test]
    fn the_margin_is_added_exactly() {
        assert_eq!(ratio(16, 40).plus_ppm(100_000).compare(ratio(20, 40)), Ordering::Equal);
        assert_eq!(ratio(16, 40).plus_ppm(100_001).compare(ratio(20, 40)), Ordering::Greater);
    }

    #[test]
    fn areas_reach_back_before_the_first_step() {
        let mut charged = Steps::new(Earlier::Nothing);
        charged.raise(10, 4);
        charged.raise(20, -3);
        assert_eq!(charged.over(30, 100), 50);
        assert_eq!(charged.over(25, 10), 20 + 5);
        let mut accrued = Steps::new(Earlier::Height(8));
        accrued.set(0, 8);
        accrued.set(10, 2);
        assert_eq!(accrued.over(20, 50), 8 * 40 + 2 * 10);
    }

    #[test]
    fn what_changes_at_the_first_moment_has_always_held_as_changed() {
        let mut accrued = Steps::new(Earlier::Height(8));
        accrued.set(0, 8);
        accrued.set(0, 2);
        assert_eq!(accrued.over(20, 50), 2 * 50);
        accrued.set(20, 4);
        assert_eq!(accrued.over(30, 50), 2 * 40 + 4 * 10);
    }
}
