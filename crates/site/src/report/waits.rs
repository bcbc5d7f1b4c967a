//! Waits: from when a workload entered the queue, or left its GPUs to wait again, to its next start.

use super::facts::{Facts, WorkFacts};
use bursar_core::{SpanMs, classes};
use serde::Serialize;
use utoipa::ToSchema;

/// Exact quantiles, by nearest rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Waits {
    /// How many.
    pub count: u64,
    /// Their mean, rounded down.
    pub mean_ms: u64,
    /// The median.
    pub p50_ms: u64,
    /// Nine of ten were not longer.
    pub p90_ms: u64,
    /// 99 of a hundred were not longer.
    pub p99_ms: u64,
    /// The longest.
    pub longest_ms: u64,
}

impl Waits {
    pub(super) fn of(mut waits_ms: Vec<u64>) -> Self {
        waits_ms.sort_unstable();
        let count = waits_ms.len() as u64;
        let at = |per_100: usize| {
            let rank = (waits_ms.len() * per_100).div_ceil(100).max(1);
            waits_ms.get(rank - 1).copied().unwrap_or(0)
        };
        let sum: u128 = waits_ms.iter().map(|&wait| u128::from(wait)).sum();
        let mean_ms = u64::try_from(sum / u128::from(count.max(1))).unwrap_or(u64::MAX);
        Self { count, mean_ms, p50_ms: at(50), p90_ms: at(90), p99_ms: at(99), longest_ms: at(100) }
    }
}

/// What a workload waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waited {
    /// Until its first start, if that wait is the period's.
    pub(super) first_ms: Option<u64>,
    /// In the period, if it waited or started in it.
    pub(super) in_period_ms: Option<u64>,
}

impl Facts {
    pub(super) fn waited(&self, work: &WorkFacts) -> Waited {
        let (from, to) = (self.from_ms, self.to_ms);
        let in_period_ms = waiting_ms(work, from, to);
        let starts = || work.attempts.iter().map(|attempt| attempt.started_ms);
        let starts_in = starts().any(|start| (from..to).contains(&start));
        // It belongs to the period in which it ended, by a start or for good, and to each at whose end it went on.
        let first = starts().next().filter(|&start| start < to);
        let last = work.spells.last().and_then(|spell| spell.until_ms);
        let ends_ms = first.or(last.filter(|&until| until < to)).unwrap_or(to);
        Waited {
            first_ms: (ends_ms >= from).then(|| waiting_ms(work, 0, ends_ms)),
            in_period_ms: (in_period_ms > 0 || starts_in).then_some(in_period_ms),
        }
    }

    /// The classes of a workload (docs/metrics.md).
    pub(super) fn classes(&self, work: &WorkFacts) -> Vec<&'static str> {
        let one_host = self.hosts.iter().map(|host| u64::from(host.gpus)).max().unwrap_or(0);
        let gpus = work.gpus;
        let is_single = work.hosts_asked.map_or(gpus <= one_host, |hosts| hosts == 1);
        classes::classes(gpus, SpanMs(work.min_runtime_ms), is_single)
    }
}

/// How long a workload waited between two moments: in the queue, and not running.
fn waiting_ms(work: &WorkFacts, from_ms: u64, to_ms: u64) -> u64 {
    let within = |begin: u64, end: Option<u64>| {
        end.unwrap_or(to_ms).min(to_ms).saturating_sub(begin.max(from_ms))
    };
    let live: u64 = work.spells.iter().map(|spell| within(spell.from_ms, spell.until_ms)).sum();
    let ran = work.attempts.iter().map(|attempt| within(attempt.started_ms, attempt.ended_ms));
    live.saturating_sub(ran.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_the_nearest_rank() {
        let found = Waits::of((1..=10).rev().collect());
        assert_eq!((found.p50_ms, found.p90_ms, found.p99_ms, found.longest_ms), (5, 9, 10, 10));
        assert_eq!((found.count, found.mean_ms), (10, 5));
        assert_eq!(Waits::of(Vec::new()), Waits::default());
    }
}
