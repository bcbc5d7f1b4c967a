//! The dice: one stream of random numbers per purpose, and the few shapes that values are drawn from.
//!
//! Everything here gives the same values on every machine: PCG-64-MCG by name, integer arithmetic, and for
//! the log-normal only `+ - * /`, `sqrt` and the exponential and logarithm of libm, which is code and not
//! the platform's.

use rand::Rng;
use rand_pcg::Pcg64Mcg;

use crate::error::Fault;
use crate::fields::{self, Fields, decimal, duration, list, named, parse_whole, whole};
use crate::yaml::{Node, Value};

/// A whole, in millionths.
pub(super) const PPM: u64 = 1_000_000;
/// The 90th percentile of the standard normal distribution.
const NORMAL_P90: f64 = 1.281_551_565_544_600_4;
const SECOND_MS: u64 = 1_000;

/// One stream of random numbers.
pub(super) struct Dice(Pcg64Mcg);

impl Dice {
    /// The stream that belongs to these words under this seed. No other words give it, so that adding a
    /// team or a kind of work changes nothing for the rest.
    pub(super) fn new(seed: u64, words: &[&str]) -> Self {
        let half = |salt: u64| {
            let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ salt;
            let bytes = words.iter().flat_map(|word| word.bytes().chain([0xff]));
            for byte in seed.to_le_bytes().into_iter().chain(bytes) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
            mixed(hash)
        };
        let state = (u128::from(half(0)) << 64) | u128::from(half(0x9e37_79b9_7f4a_7c15));
        Self(Pcg64Mcg::new(state))
    }

    /// A whole number below `bound`, which is above 0. (The bias of one part in 2^64 does not matter here.)
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Between both ends, both included.
    pub(super) fn between(&mut self, range: (u64, u64)) -> u64 {
        range.0 + self.below(range.1 - range.0 + 1)
    }

    /// True with this chance, in millionths.
    pub(super) fn chance(&mut self, ppm: u64) -> bool {
        self.below(PPM) < ppm
    }

    /// Between -1 and 1, in steps of 2^-52.
    fn signed_unit(&mut self) -> f64 {
        let steps = (self.0.next_u64() >> 11) as f64;
        steps * (1.0 / (1_u64 << 52) as f64) - 1.0
    }

    /// Standard normal, by Marsaglia's polar method.
    fn normal(&mut self) -> f64 {
        loop {
            let (u, v) = (self.signed_unit(), self.signed_unit());
            let s = u * u + v * v;
            if s > 0.0 && s < 1.0 {
                return u * (-2.0 * libm::log(s) / s).sqrt();
            }
        }
    }
}

/// The finalizer of splitmix64: FNV alone leaves its high bits poor.
fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Values with weights, drawn by count.
#[derive(Clone, Debug)]
pub(super) struct Weighted<T> {
    items: Vec<(T, u64)>,
    total: u64,
}

impl<T: Copy> Weighted<T> {
    pub(super) fn one(value: T) -> Self {
        Self { items: vec![(value, 1)], total: 1 }
    }

    pub(super) fn values(&self) -> impl Iterator<Item = T> {
        self.items.iter().map(|(value, _)| *value)
    }

    pub(super) fn draw(&self, dice: &mut Dice) -> T {
        let mut ticket = dice.below(self.total);
        for (value, weight) in &self.items {
            match ticket.checked_sub(*weight) {
                Some(rest) => ticket = rest,
                None => return *value,
            }
        }
        self.items[0].0
    }

    /// `8`, or `{1: 3, 8: 1}`; `what` the values are.
    pub(super) fn read(
        node: &Node,
        what: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Self, Fault> {
        if let Value::Scalar(text) = &node.value {
            let value = parse(text).map_err(|message| Fault::value(node.line, message))?;
            return Ok(Self::one(value));
        }
        let mut items = Vec::new();
        for (key, weight) in named(node, what)? {
            let value = parse(&key.text).map_err(|message| Fault::value(key.line, message))?;
            items.push((value, whole(weight, 0, PPM).map_err(|fault| fault.within(&key.text))?));
        }
        let total = items.iter().map(|(_, weight)| weight).sum();
        if total == 0 {
            return Err(Fault::value(node.line, "the weights add up to nothing"));
        }
        Ok(Self { items, total })
    }
}

/// One value, or `[low, high]`: anything between, evenly.
pub(super) fn range(
    node: &Node,
    read: impl Fn(&Node) -> Result<u64, Fault>,
) -> Result<(u64, u64), Fault> {
    let Value::List(items) = &node.value else {
        let value = read(node)?;
        return Ok((value, value));
    };
    let [low, high] = items.as_slice() else {
        return Err(Fault::value(node.line, "expected [low, high]"));
    };
    let (low, high) = (read(low)?, read(high)?);
    if low > high {
        return Err(Fault::value(node.line, "low is above high"));
    }
    Ok((low, high))
}

/// A part of a whole, 0 to 1, in millionths.
pub(super) fn part(node: &Node) -> Result<u64, Fault> {
    decimal(node, 6, 1)
}

/// A chance: `true`, `false`, or a part.
pub(super) fn chance(node: &Node) -> Result<u64, Fault> {
    match fields::text(node)? {
        "true" => Ok(PPM),
        "false" => Ok(0),
        _ => part(node),
    }
}

/// A number of GPUs, for [`Weighted::read`].
pub(super) fn parse_gpus(text: &str) -> Result<u32, String> {
    parse_whole(text, 1, u64::from(u32::MAX)).map(|gpus| gpus as u32)
}

/// A distribution of times, whole seconds.
#[derive(Clone, Debug)]
pub(super) struct Times {
    shape: Shape,
    min_ms: u64,
    max_ms: u64,
}

#[derive(Clone, Debug)]
enum Shape {
    Uniform(u64, u64),
    LogNormal { median_ms: f64, sigma: f64 },
}

impl Times {
    pub(super) fn draw(&self, dice: &mut Dice) -> u64 {
        let ms = match self.shape {
            Shape::Uniform(low, high) => dice.between((low, high)),
            // A cast from float to integer saturates, so that a wild draw is only a long time.
            Shape::LogNormal { median_ms, sigma } => {
                (median_ms * libm::exp(sigma * dice.normal())) as u64
            }
        };
        let whole_ms = ms / SECOND_MS * SECOND_MS;
        whole_ms.clamp(self.min_ms.max(SECOND_MS), self.max_ms.max(SECOND_MS))
    }

    /// `2h`, `{uniform: [1m, 15m]}`, or `{lognormal: {median: 2h, p90: 20h}, min: 1m, max: 3d}`.
    pub(super) fn read(node: &Node) -> Result<Self, Fault> {
        if let Value::Scalar(_) = node.value {
            let ms = fields::duration_positive(node)?;
            return Ok(Self { shape: Shape::Uniform(ms, ms), min_ms: ms, max_ms: ms });
        }
        let block = Fields::of(node, &["lognormal", "uniform", "min", "max"])?;
        let uniform = block.opt("uniform", |node| {
            list(node)?;
            range(node, fields::duration_positive)
        })?;
        let shape = match (uniform, block.opt("lognormal", read_lognormal)?) {
            (Some((low, high)), None) => Shape::Uniform(low, high),
            (None, Some(shape)) => shape,
            (None, None) | (Some(_), Some(_)) => {
                return Err(Fault::value(block.line, "give one of 'lognormal' and 'uniform'"));
            }
        };
        let min_ms = block.opt("min", duration)?.unwrap_or(SECOND_MS);
        let max_ms = block.opt("max", duration)?.unwrap_or(fields::TIME_MAX_MS);
        if min_ms > max_ms {
            return Err(Fault::value(block.line, "min is above max"));
        }
        Ok(Self { shape, min_ms, max_ms })
    }
}

fn read_lognormal(node: &Node) -> Result<Shape, Fault> {
    let block = Fields::of(node, &["median", "p90"])?;
    let median_ms = block.must("median", fields::duration_positive)?;
    let p90_ms = block.must("p90", fields::duration_positive)?;
    if p90_ms < median_ms {
        return Err(Fault::value(block.line, "p90 is below the median"));
    }
    let sigma = libm::log(p90_ms as f64 / median_ms as f64) / NORMAL_P90;
    Ok(Shape::LogNormal { median_ms: median_ms as f64, sigma })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml;

    #[test]
    fn streams_differ_by_every_word_and_by_seed() {
        let first = |seed, words: &[&str]| Dice::new(seed, words).0.next_u64();
        let all = [
            first(1, &["a", "b"]),
            first(2, &["a", "b"]),
            first(1, &["ab"]),
            first(1, &["b", "a"]),
            first(1, &["a", "b", ""]),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a != b));
        }
        assert_eq!(first(1, &["a", "b"]), all[0]);
    }

    #[test]
    fn a_lognormal_has_the_median_and_p90_it_says() {
        let node = yaml::parse("{lognormal: {median: 2h, p90: 20h}}").unwrap();
        let times = Times::read(&node).unwrap();
        let mut dice = Dice::new(7, &["test"]);
        let mut drawn: Vec<u64> = (0..20_000).map(|_| times.draw(&mut dice)).collect();
        drawn.sort_unstable();
        let hours = |index: usize| drawn[index] as f64 / 3.6e6;
        assert!((hours(10_000) - 2.0).abs() < 0.1, "{}", hours(10_000));
        assert!((hours(18_000) - 20.0).abs() < 1.5, "{}", hours(18_000));
        assert!(drawn.iter().all(|ms| ms % 1_000 == 0 && *ms > 0));
    }

    #[test]
    fn weights_are_by_count() {
        let node = yaml::parse("{1: 3, 8: 1, 64: 0}").unwrap();
        let sizes = Weighted::read(&node, "size", parse_gpus).unwrap();
        let mut dice = Dice::new(7, &["test"]);
        let ones = (0..10_000).filter(|_| sizes.draw(&mut dice) == 1).count();
        assert!((7_300..7_700).contains(&ones), "{ones}");
    }
}
