//! Waits by class, with exact quantiles (nearest rank).

use crate::summary::{WaitQuantiles, WaitSummary};
use bursar_core::{SpanMs, classes};
use bursar_scenario::{Scenario, WorkloadSpec};
use std::collections::BTreeMap;

/// The classes of one workload.
pub(crate) fn classes(scenario: &Scenario, spec: &WorkloadSpec) -> Vec<&'static str> {
    let one_host = scenario.hosts.iter().map(|host| host.gpus).max().unwrap_or(0);
    let is_single = match spec.shape {
        Some((hosts, _)) => hosts == 1,
        None => spec.gpus <= one_host,
    };
    classes::classes(u64::from(spec.gpus), SpanMs(spec.min_runtime_ms), is_single)
}

/// Waits collected per class and per budget.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    by_class: BTreeMap<&'static str, Vec<u64>>,
    by_budget: BTreeMap<u32, Vec<u64>>,
}

impl Waits {
    pub(crate) fn add(&mut self, classes: &[&'static str], budget: u32, wait_ms: u64) {
        for class in classes {
            self.by_class.entry(class).or_default().push(wait_ms);
        }
        if !classes.contains(&"unallocated") {
            self.by_budget.entry(budget).or_default().push(wait_ms);
        }
    }

    pub(crate) fn summarize(self, scenario: &Scenario) -> WaitSummary {
        let name = |budget: u32| scenario.budgets[budget as usize].path.clone();
        WaitSummary {
            classes: self
                .by_class
                .into_iter()
                .map(|(class, waits)| (class.to_owned(), quantiles(waits)))
                .collect(),
            budgets: self
                .by_budget
                .into_iter()
                .map(|(budget, waits)| (name(budget), quantiles(waits)))
                .collect(),
        }
    }
}

fn quantiles(mut waits_ms: Vec<u64>) -> WaitQuantiles {
    waits_ms.sort_unstable();
    let seconds = |ms: u64| ms as f64 / 1_000.0;
    // Nearest rank: the smallest value with at least that share of all at or below it.
    let at = |per_100: usize| {
        let rank = (waits_ms.len() * per_100).div_ceil(100).max(1);
        waits_ms.get(rank - 1).copied().map_or(0.0, seconds)
    };
    let sum: u128 = waits_ms.iter().map(|&ms| u128::from(ms)).sum();
    let mean = sum as f64 / 1_000.0 / waits_ms.len().max(1) as f64;
    WaitQuantiles {
        count: waits_ms.len() as u64,
        mean,
        p50: at(50),
        p90: at(90),
        p99: at(99),
        max: at(100),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_the_nearest_rank() {
        let found = quantiles((1..=10).map(|seconds| seconds * 1_000).collect());
        assert_eq!((found.p50, found.p90, found.p99, found.max), (5.0, 9.0, 10.0, 10.0));
        assert_eq!(quantiles(vec![7_000]).p50, 7.0);
        assert_eq!(quantiles(Vec::new()).max, 0.0);
    }
}
