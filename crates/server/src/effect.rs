//! What other budgets would do: a site's last days played again, with its budgets as they are and as they would be.

use crate::export::{History, Open};
use bursar_scenario::Scenario;
use bursar_sim::{EventSink, Outcome, RunOptions};
use bursar_site::BudgetDoc;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use utoipa::ToSchema;

/// What a change of the budgets would have done to the last days.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Effect {
    /// How many milliseconds were looked at, up to now.
    pub span_ms: u64,
    /// Leaves that one may see, by path.
    pub budgets: Vec<LeafEffect>,
    /// All other leaves together, if there are any.
    pub others: Option<Beside>,
    /// Of the whole cluster: the sum of min(delivered, owed) over leaves / sum of owed.
    pub delivered_ratio: Change,
    /// What was left out of the last days, a sentence for each.
    pub notes: Vec<String>,
}

/// What it would have done to a leaf of the tree.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct LeafEffect {
    /// Its path.
    pub budget: String,
    /// What it was owed and delivered.
    #[serde(flatten)]
    pub beside: Beside,
    /// The median first wait of its work with a contract, in seconds; none if none was submitted.
    pub wait_p50_s: Option<Change>,
    /// 90 % of its first waits were not longer.
    pub wait_p90_s: Option<Change>,
    /// How often its work was preempted.
    pub preemptions: Change,
}

/// Owed and delivered, with the budgets as they are and as they would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct Beside {
    /// GPU-hours that it was owed.
    pub owed_gpu_hours: Change,
    /// GPU-hours that it was charged.
    pub delivered_gpu_hours: Change,
    /// min(1, delivered / owed).
    pub delivered_ratio: Change,
}

/// A figure with the budgets as they are and as they would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct Change {
    /// As they are.
    pub now: f64,
    /// As they would be.
    pub then: f64,
}

/// A run of one tree.
struct Played {
    scenario: Scenario,
    outcome: Outcome,
    preemptions: BTreeMap<String, u64>,
    notes: Vec<String>,
}

/// Plays what a history has under a tree, measured from `from_ms` on.
fn play(
    history: &mut History,
    tree: &BTreeMap<String, BudgetDoc>,
    from_ms: u64,
) -> Result<Played, String> {
    history.put_under(tree.clone());
    let written = history.scenario(Open::ToLimit);
    let scenario = bursar_scenario::load_str(&written.text, Path::new("."), "the history", &[])
        .map_err(|error| error.to_string())?;
    let until_ms = written.until_ms.max(1);
    let options = RunOptions {
        until_ms: Some(until_ms),
        from_ms: from_ms.min(until_ms - 1),
        series: true,
        ..RunOptions::default()
    };
    let outcome = bursar_sim::run(&scenario, "budget", options, EventSink::None)
        .map_err(|error| error.to_string())?;
    let mut preemptions: BTreeMap<String, u64> = BTreeMap::new();
    for attempt in
        outcome.series.attempts.iter().filter(|one| one.preempted && one.end_ms >= from_ms)
    {
        let budget = scenario.workloads[attempt.workload as usize].budget;
        let path = scenario.budgets[budget as usize].path.clone();
        *preemptions.entry(path).or_default() += 1;
    }
    Ok(Played { scenario, outcome, preemptions, notes: written.notes })
}

impl Played {
    fn leaves(&self) -> impl Iterator<Item = &bursar_sim::BudgetSummary> {
        self.outcome.summary.budgets.iter()
    }

    fn leaf(&self, path: &str) -> Option<&bursar_sim::BudgetSummary> {
        self.leaves().find(|leaf| leaf.budget == path)
    }

    /// The cluster's delivered ratio.
    fn ratio(&self) -> f64 {
        let owed: f64 = self.leaves().map(|leaf| leaf.owed_gpu_hours).sum();
        let got: f64 =
            self.leaves().map(|leaf| leaf.delivered_gpu_hours.min(leaf.owed_gpu_hours)).sum();
        if owed > 0.0 { got / owed } else { 1.0 }
    }
}

/// What putting `then` in place of `now` would have done. `from_ms` is where the span begins that is measured, in the
/// history's own milliseconds: what lies before only fills the lookback. Leaves that `sees` refuses are summed up.
///
/// # Errors
/// If the history cannot be played: a fault of ours, or work that no tree of these two has a budget for.
pub fn effect(
    mut history: History,
    now: &BTreeMap<String, BudgetDoc>,
    then: &BTreeMap<String, BudgetDoc>,
    from_ms: u64,
    sees: impl Fn(&str) -> bool,
) -> Result<Effect, String> {
    let span_ms = history.span_ms().saturating_sub(from_ms);
    let (now, then) = (play(&mut history, now, from_ms)?, play(&mut history, then, from_ms)?);
    let paths: BTreeSet<String> =
        now.leaves().chain(then.leaves()).map(|leaf| leaf.budget.clone()).collect();
    let both = |path: &str| (now.leaf(path), then.leaf(path));
    let change = |path: &str, figure: &dyn Fn(&bursar_sim::BudgetSummary) -> f64| {
        let (now, then) = both(path);
        Change { now: now.map_or(0.0, figure), then: then.map_or(0.0, figure) }
    };
    let beside = |path: &str| Beside {
        owed_gpu_hours: change(path, &|leaf| leaf.owed_gpu_hours),
        delivered_gpu_hours: change(path, &|leaf| leaf.delivered_gpu_hours),
        delivered_ratio: change(path, &|leaf| leaf.delivered_ratio),
    };
    let (mut budgets, mut others, mut kept_of_others) = (Vec::new(), None, Change::default());
    for path in paths {
        let one = beside(&path);
        if !sees(&path) {
            let all: &mut Beside = others.get_or_insert_default();
            for (sum, more) in [
                (&mut all.owed_gpu_hours, one.owed_gpu_hours),
                (&mut all.delivered_gpu_hours, one.delivered_gpu_hours),
            ] {
                sum.now += more.now;
                sum.then += more.then;
            }
            let (owed, got) = (one.owed_gpu_hours, one.delivered_gpu_hours);
            kept_of_others.now += owed.now.min(got.now);
            kept_of_others.then += owed.then.min(got.then);
            continue;
        }
        let waits = |figure: fn(&bursar_sim::WaitQuantiles) -> f64| {
            let of =
                |played: &Played| played.outcome.summary.first_waits.budgets.get(&path).map(figure);
            of(&now).zip(of(&then)).map(|(now, then)| Change { now, then })
        };
        let left = |played: &Played| played.preemptions.get(&path).copied().unwrap_or(0) as f64;
        budgets.push(LeafEffect {
            beside: one,
            wait_p50_s: waits(|waits| waits.p50),
            wait_p90_s: waits(|waits| waits.p90),
            preemptions: Change { now: left(&now), then: left(&then) },
            budget: path,
        });
    }
    if let Some(all) = &mut others {
        let ratio = |kept: f64, owed: f64| if owed > 0.0 { kept / owed } else { 1.0 };
        all.delivered_ratio = Change {
            now: ratio(kept_of_others.now, all.owed_gpu_hours.now),
            then: ratio(kept_of_others.then, all.owed_gpu_hours.then),
        };
    }
    let delivered_ratio = Change { now: now.ratio(), then: then.ratio() };
    debug_assert_eq!(now.scenario.hosts, then.scenario.hosts);
    Ok(Effect { span_ms, budgets, others, delivered_ratio, notes: then.notes })
}
