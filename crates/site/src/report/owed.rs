//! What each leaf was allocated, asked for and was owed, hour by hour (docs/metrics.md).

use super::HOUR_MS;
use super::facts::{Facts, WorkFacts};
use super::need::Need;
use bursar_core::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// A leaf's figures, in GPU-milliseconds at rate 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Owed {
    pub(super) allocation: u64,
    pub(super) demand: u64,
    pub(super) owed: u64,
}

/// Budgets of the period.
pub(super) struct Trees {
    /// Every path that ever was in force in the period, with the fraction that it had when it ended.
    pub(super) paths: BTreeMap<String, f64>,
    /// For each leaf its fraction in each of the terms, times 2^32.
    leaves: BTreeMap<String, Vec<u64>>,
    /// When each of the terms began.
    begins_ms: Vec<u64>,
}

/// A part of the period in which neither fractions nor capacity changed, within one hour.
struct Part {
    hour: usize,
    term: usize,
    span_ms: u64,
    /// GPUs in service times their rates in thousandths.
    capacity_milli: u64,
}

/// The period's parts, and its hours.
pub(super) struct Time {
    parts: Vec<Part>,
    /// Where each hour begins, and where the last one ends: the first and the last may be a part of one.
    hours_ms: Vec<u64>,
}

impl Facts {
    /// The trees that were in force in the period.
    pub(super) fn trees(&self) -> Trees {
        const ONE: f64 = 4_294_967_296.0;
        let mut trees =
            Trees { paths: BTreeMap::new(), leaves: BTreeMap::new(), begins_ms: Vec::new() };
        let made = crate::site::trees_of(&self.changes);
        let in_force = made.partition_point(|(at_ms, _)| *at_ms <= self.from_ms).max(1) - 1;
        for (at_ms, budgets) in &made[in_force..] {
            let tree = Tree::new(budgets.nodes(1, &[], |_| 0));
            let term = trees.begins_ms.len();
            trees.begins_ms.push((*at_ms).max(self.from_ms));
            trees.paths.values_mut().for_each(|fraction| *fraction = 0.0);
            for at in 0..tree.len() {
                let node = bursar_core::BudgetIx(at as u32);
                let (path, fraction) = (tree.node(node).path.clone(), tree.fraction(node));
                if tree.leaf_place(node).is_some() {
                    let fractions = trees.leaves.entry(path.clone()).or_default();
                    fractions.resize(term, 0);
                    fractions.push(fraction);
                }
                trees.paths.insert(path, fraction as f64 / ONE);
            }
        }
        let terms = trees.begins_ms.len();
        trees.leaves.values_mut().for_each(|fractions| fractions.resize(terms, 0));
        trees
    }

    /// The period cut into hours of the clock, and where anything changed.
    pub(super) fn time(&self, trees: &Trees) -> Time {
        let (from, to) = (self.from_ms, self.to_ms);
        let first = HOUR_MS - (self.unix_ms + from) % HOUR_MS + from;
        let mut hours_ms = vec![from];
        hours_ms.extend((0..).map(|nth| first + nth * HOUR_MS).take_while(|&at| at < to));
        hours_ms.push(to);
        let changes = self.service.iter().map(|change| change.at_ms);
        let mut cuts: BTreeSet<u64> = changes.chain(trees.begins_ms.iter().copied()).collect();
        cuts.extend(&hours_ms);
        let cuts: Vec<u64> = cuts.into_iter().filter(|at| (from..=to).contains(at)).collect();
        let weight = |host: usize| {
            let host = &self.hosts[host];
            u64::from(host.gpus) * self.rate_milli(&host.model)
        };
        let mut capacity_milli: u64 = (0..self.hosts.len()).map(weight).sum();
        let mut service = self.service.iter().peekable();
        let (mut hour, mut term) = (0, 0);
        let mut parts = Vec::with_capacity(cuts.len());
        for pair in cuts.windows(2) {
            while let Some(change) = service.next_if(|change| change.at_ms <= pair[0]) {
                let weight = weight(change.host as usize);
                if change.is_in {
                    capacity_milli += weight;
                } else {
                    capacity_milli -= weight;
                }
            }
            while hours_ms[hour + 1] <= pair[0] {
                hour += 1;
            }
            while trees.begins_ms.get(term + 1).is_some_and(|&at| at <= pair[0]) {
                term += 1;
            }
            parts.push(Part { hour, term, span_ms: pair[1] - pair[0], capacity_milli });
        }
        Time { parts, hours_ms }
    }

    /// What each of the leaves that are shown was owed.
    pub(super) fn owed<'a>(&self, trees: &'a Trees, time: &Time) -> BTreeMap<&'a str, Owed> {
        let mut works: BTreeMap<&str, Vec<&WorkFacts>> = BTreeMap::new();
        for work in self.works.iter().filter(|work| work.min_runtime_ms > 0) {
            works.entry(&work.budget).or_default().push(work);
        }
        let shown = trees.leaves.iter().filter(|(path, _)| self.scope.shows(path));
        shown
            .map(|(path, fractions)| {
                let asked = works.get(path.as_str()).map_or(&[][..], |works| works);
                (path.as_str(), self.owed_to(fractions, asked, time))
            })
            .collect()
    }

    fn owed_to(&self, fractions: &[u64], works: &[&WorkFacts], time: &Time) -> Owed {
        // In thousandths of GPU-milliseconds; what is allocated also times 2^32.
        let hours = time.hours_ms.len() - 1;
        let mut allocation = vec![0u128; hours];
        for part in &time.parts {
            let rate = u128::from(fractions[part.term]) * u128::from(part.capacity_milli);
            allocation[part.hour] += rate * u128::from(part.span_ms);
        }
        let mut demand = vec![0u128; hours];
        works.iter().for_each(|work| self.ask(work, time, &mut demand));
        let owed = allocation.iter().zip(&demand).map(|(&had, &asked)| had.min(asked << 32)).sum();
        let whole = |scaled: u128| u64::try_from((scaled >> 32) / 1_000).unwrap_or(u64::MAX);
        Owed {
            allocation: whole(allocation.iter().sum()),
            demand: u64::try_from(demand.iter().sum::<u128>() / 1_000).unwrap_or(u64::MAX),
            owed: whole(owed),
        }
    }

    /// What a workload could have used in each hour.
    fn ask(&self, work: &WorkFacts, time: &Time, demand: &mut [u128]) {
        let models = self.hosts.iter().map(|host| host.model.as_str());
        let rate_milli = match &work.model {
            Some(model) => self.rate_milli(model),
            None => models.map(|model| self.rate_milli(model)).min().unwrap_or(1_000),
        };
        let per_ms = u128::from(work.gpus) * u128::from(rate_milli);
        let need = Need::of(work, self.to_ms);
        for spell in &work.spells {
            let (from, to) =
                (spell.from_ms.max(self.from_ms), spell.until_ms.unwrap_or(self.to_ms));
            let to = to.min(self.to_ms);
            if from >= to {
                continue;
            }
            let mut hour = time.hours_ms.partition_point(|&begin| begin <= from) - 1;
            while time.hours_ms[hour] < to {
                let begin = time.hours_ms[hour].max(from);
                let end = time.hours_ms[hour + 1].min(to);
                let wanted = need.left_ms(begin).max(need.ran_ms(begin, end)).min(end - begin);
                demand[hour] += per_ms * u128::from(wanted);
                hour += 1;
            }
        }
    }
}
