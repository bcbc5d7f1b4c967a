//! When work arrives: a weight for every quarter of an hour, and moments drawn in proportion.
//!
//! A span begins on a Monday at midnight. Seasons, bursts and idle weeks multiply the weight of a slot;
//! all are integers, so that no two machines disagree about a moment.

use super::draw::{Dice, PPM, part};
use crate::error::Fault;
use crate::fields::{Fields, decimal, duration, list, whole, word};
use crate::yaml::Node;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;
const WEEK_MS: u64 = 7 * DAY_MS;
const SLOT_MS: u64 = 15 * MINUTE_MS;
/// The weight of a slot that nothing raises or lowers.
const SLOT_WEIGHT: u64 = 1_000;

/// How arrivals spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    /// Evenly spaced but for the seasons.
    Steady,
    /// Each at its own random moment.
    Poisson,
    /// As `Poisson`, with random bursts.
    Bursty,
}

/// An arrival process, as declared.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pattern: Pattern,
    day_night_ppm: u64,
    weekend_ppm: u64,
    bursts_per_week_micro: u64,
    burst_factor_micro: u64,
    burst_length_ms: u64,
    idle_weeks: Vec<u64>,
    start_ms: u64,
    end_ms: u64,
    backlog_ppm: u64,
}

impl Default for Arrival {
    fn default() -> Self {
        Self {
            pattern: Pattern::Poisson,
            day_night_ppm: 0,
            weekend_ppm: 0,
            bursts_per_week_micro: 0,
            burst_factor_micro: PPM,
            burst_length_ms: 4 * HOUR_MS,
            idle_weeks: Vec::new(),
            start_ms: 0,
            end_ms: u64::MAX,
            backlog_ppm: 0,
        }
    }
}

impl Arrival {
    pub(super) fn read(node: &Node) -> Result<Self, Fault> {
        let block = Fields::of(
            node,
            &[
                "kind",
                "day_night",
                "weekend",
                "bursts_per_week",
                "burst_factor",
                "burst_length",
                "idle_weeks",
                "start",
                "end",
                "backlog",
            ],
        )?;
        let words = [
            ("steady", Pattern::Steady),
            ("poisson", Pattern::Poisson),
            ("bursty", Pattern::Bursty),
        ];
        let pattern = block.opt("kind", |node| word(node, &words))?.unwrap_or(Pattern::Poisson);
        for key in ["bursts_per_week", "burst_factor", "burst_length"] {
            if let (true, Some(node)) = (pattern != Pattern::Bursty, block.get(key)) {
                let message = format!("{key}: only 'kind: bursty' has bursts");
                return Err(Fault::value(node.line, message));
            }
        }
        let weeks = |node| list(node)?.iter().map(|week| whole(week, 1, 1_000)).collect();
        let default = Self::default();
        let (bursts, factor) =
            if pattern == Pattern::Bursty { (2 * PPM, 5 * PPM) } else { (0, PPM) };
        Ok(Self {
            pattern,
            day_night_ppm: block.opt("day_night", part)?.unwrap_or(0),
            weekend_ppm: block.opt("weekend", part)?.unwrap_or(0),
            bursts_per_week_micro: block
                .opt("bursts_per_week", |node| decimal(node, 6, 100))?
                .unwrap_or(bursts),
            burst_factor_micro: block
                .opt("burst_factor", |node| decimal(node, 6, 1_000))?
                .unwrap_or(factor),
            burst_length_ms: block.opt("burst_length", duration)?.unwrap_or(4 * HOUR_MS),
            idle_weeks: block.opt("idle_weeks", weeks)?.unwrap_or_default(),
            start_ms: block.opt("start", duration)?.unwrap_or(0),
            end_ms: block.opt("end", duration)?.unwrap_or(default.end_ms),
            backlog_ppm: block.opt("backlog", part)?.unwrap_or(0),
        })
    }

    /// `count` moments within the span, sorted; `None` if the span leaves no moment for arrivals.
    pub(super) fn moments(&self, span_ms: u64, count: u64, dice: &mut Dice) -> Option<Vec<u64>> {
        let ends = self.cumulative(span_ms, dice);
        let total = *ends.last()?;
        if total == 0 {
            return None;
        }
        let mut moments = Vec::new();
        for number in 0..count {
            if dice.chance(self.backlog_ppm) {
                moments.push(self.start_ms.min(span_ms));
                continue;
            }
            let ticket = match self.pattern {
                Pattern::Poisson | Pattern::Bursty => dice.below(total),
                Pattern::Steady => {
                    let within = u128::from(dice.below(total));
                    let ticket =
                        (u128::from(number) * u128::from(total) + within) / u128::from(count);
                    ticket as u64
                }
            };
            moments.push(moment(&ends, ticket).min(span_ms - 1));
        }
        moments.sort_unstable();
        Some(moments)
    }

    /// The running sum of the slots' weights.
    fn cumulative(&self, span_ms: u64, dice: &mut Dice) -> Vec<u64> {
        let slots = span_ms.div_ceil(SLOT_MS);
        let mut weights: Vec<u64> = (0..slots).map(|slot| self.weight(slot * SLOT_MS)).collect();
        let bursts = u128::from(span_ms) * u128::from(self.bursts_per_week_micro);
        let bursts = (bursts / u128::from(WEEK_MS) + 500_000) / 1_000_000;
        let length = self.burst_length_ms.div_ceil(SLOT_MS).max(1);
        for _ in 0..bursts {
            let from = dice.below(slots);
            for weight in weights.iter_mut().skip(from as usize).take(length as usize) {
                // Bursts may overlap; the cap keeps the sum of all slots far inside 64 bits.
                let raised = (*weight).saturating_mul(self.burst_factor_micro) / PPM;
                *weight = raised.min(SLOT_WEIGHT * 1_000_000);
            }
        }
        let mut sum = 0;
        for weight in &mut weights {
            sum += *weight;
            *weight = sum;
        }
        weights
    }

    fn weight(&self, at_ms: u64) -> u64 {
        let idle = self.idle_weeks.contains(&(at_ms / WEEK_MS + 1));
        if idle || at_ms < self.start_ms / SLOT_MS * SLOT_MS || at_ms >= self.end_ms {
            return 0;
        }
        let night = self.day_night_ppm * night_ppm(at_ms % DAY_MS) / PPM;
        let weekend = if at_ms % WEEK_MS >= 5 * DAY_MS { self.weekend_ppm } else { 0 };
        SLOT_WEIGHT * (PPM - night) / PPM * (PPM - weekend) / PPM
    }
}

/// How much it is night: not at all from 9 to 18, wholly from 22 to 6, in between in between.
fn night_ppm(of_day_ms: u64) -> u64 {
    let (morning, day, evening, night) = (6 * HOUR_MS, 9 * HOUR_MS, 18 * HOUR_MS, 22 * HOUR_MS);
    if of_day_ms < morning || of_day_ms >= night {
        PPM
    } else if of_day_ms < day {
        PPM * (day - of_day_ms) / (day - morning)
    } else if of_day_ms < evening {
        0
    } else {
        PPM * (of_day_ms - evening) / (night - evening)
    }
}

/// The moment, in whole seconds, at which the running sum passes `ticket`.
fn moment(ends: &[u64], ticket: u64) -> u64 {
    let slot = ends.partition_point(|end| *end <= ticket);
    let before = if slot == 0 { 0 } else { ends[slot - 1] };
    let weight = ends.get(slot).map_or(1, |end| end - before).max(1);
    let within_ms = SLOT_MS * (ticket.saturating_sub(before)) / weight;
    (slot as u64 * SLOT_MS + within_ms) / 1_000 * 1_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml;

    fn moments(text: &str, days: u64, count: u64) -> Option<Vec<u64>> {
        let arrival = Arrival::read(&yaml::parse(text).unwrap()).unwrap();
        arrival.moments(days * DAY_MS, count, &mut Dice::new(3, &[text]))
    }

    fn between(moments: &[u64], from_ms: u64, to_ms: u64) -> usize {
        moments.iter().filter(|at| (from_ms..to_ms).contains(*at)).count()
    }

    #[test]
    fn nights_and_weekends_are_quiet() {
        let all = moments("{day_night: 0.8, weekend: 0.5}", 7, 100_000).unwrap();
        assert!(all.is_sorted() && all.iter().all(|at| at % 1_000 == 0));
        let noon = between(&all, 11 * HOUR_MS, 13 * HOUR_MS) as f64;
        let night = between(&all, 2 * HOUR_MS, 4 * HOUR_MS) as f64;
        let sunday = between(&all, 6 * DAY_MS + 11 * HOUR_MS, 6 * DAY_MS + 13 * HOUR_MS) as f64;
        assert!((night / noon - 0.2).abs() < 0.03, "{}", night / noon);
        assert!((sunday / noon - 0.5).abs() < 0.05, "{}", sunday / noon);
    }

    #[test]
    fn idle_weeks_late_starts_and_backlogs() {
        let all = moments("{idle_weeks: [2], start: 3d, backlog: 0.1}", 21, 10_000).unwrap();
        assert_eq!(between(&all, 0, 3 * DAY_MS), 0);
        assert_eq!(between(&all, 7 * DAY_MS, 14 * DAY_MS), 0);
        assert!((900..1_100).contains(&between(&all, 3 * DAY_MS, 3 * DAY_MS + 1)));
        assert_eq!(moments("{idle_weeks: [1]}", 7, 5), None);
        assert_eq!(moments("{start: 8d}", 7, 5), None);
    }

    #[test]
    fn steady_is_even_and_bursts_are_not() {
        let busiest = |text| {
            let all = moments(text, 28, 28 * 24 * 10).unwrap();
            (0..28 * 24).map(|h| between(&all, h * HOUR_MS, (h + 1) * HOUR_MS)).max().unwrap()
        };
        assert!(busiest("{kind: steady}") <= 11);
        assert!(busiest("{kind: bursty, bursts_per_week: 2, burst_factor: 8}") > 40);
    }
}
