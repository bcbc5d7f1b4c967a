//! From a scenario to the core's state and workloads. One place for all who drive the core with a scenario.

use bursar_core::compare;
use bursar_core::tree::BudgetNode;
use bursar_core::{
    BudgetIx, BudgetPolicy, HostSpec, ModelIx, Policy, Settings, SpanMs, State, Term, TimeMs, Tree,
    WorkloadSpec,
};
use bursar_scenario::Scenario;

/// A policy that does not exist.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("there is no policy '{name}'; choose from {known}")]
pub struct PolicyError {
    /// What was asked for.
    pub name: String,
    /// What there is.
    pub known: String,
}

/// What one unit of the ledger is worth: rates are divided by this, in thousandths.
pub(crate) fn rate_step(scenario: &Scenario) -> u64 {
    let step = scenario.models.iter().fold(0, |step, model| gcd(step, model.rate_milli));
    step.max(1)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The idle cluster of a scenario at moment 0.
#[must_use]
pub fn build_state(scenario: &Scenario) -> State {
    let step = rate_step(scenario);
    let hosts: Vec<HostSpec> = scenario
        .hosts
        .iter()
        .map(|host| HostSpec {
            gpus: host.gpus,
            model: ModelIx(host.model as u32),
            domain: host.domain as u32,
        })
        .collect();
    let nodes = scenario
        .budgets
        .iter()
        .map(|budget| BudgetNode {
            path: budget.path.clone(),
            parent: budget.parent.map(|parent| BudgetIx(parent as u32)),
            share_micro: budget.share_micro,
            limit_units: budget
                .limit_gpu_ms
                .map(|limit| u128::from(limit) * 1_000 / u128::from(step)),
            terms: budget
                .terms
                .iter()
                .map(|term| Term {
                    series: term.series,
                    from: TimeMs(term.from_ms),
                    until: TimeMs(term.until_ms),
                    units: u128::from(term.limit_gpu_ms) * 1_000 / u128::from(step),
                    carries: term.carry_over,
                    before: 0,
                })
                .collect(),
        })
        .collect();
    let rates = scenario.models.iter().map(|model| model.rate_milli / step).collect();
    let given = &scenario.settings;
    let settings = Settings {
        lookback: SpanMs(given.lookback_ms),
        horizon: SpanMs(given.horizon_ms),
        grace: SpanMs(given.grace_ms),
        margin_ppm: given.margin_ppm,
        reservations: given.reservations,
        reservation_age: SpanMs(given.reservation_age_ms),
        debug_hosts: given.debug_hosts,
    };
    State::new(settings, &hosts, rates, Tree::new(nodes))
}

/// What the core is told of a workload.
#[must_use]
pub fn build_workload(scenario: &Scenario, index: usize) -> WorkloadSpec {
    let given = &scenario.workloads[index];
    let span = |ms: Option<u64>| ms.map(SpanMs);
    WorkloadSpec {
        tie: given.tie,
        budget: BudgetIx(given.budget),
        gpus: given.gpus,
        shape: given.shape,
        model: given.model.map(ModelIx),
        min_runtime: SpanMs(given.min_runtime_ms),
        max_runtime: span(given.max_runtime_ms),
        expected_runtime: Some(SpanMs(given.runtime_ms)),
        resumable: given.resumable,
        rank: given.rank,
        checkpoint_interval: span(given.checkpoint_interval_ms),
        checkpoint_on_signal: given.checkpoint_on_signal,
        grace: span(given.grace_ms),
        startup: SpanMs(given.startup_ms.unwrap_or(scenario.settings.startup_ms)),
    }
}

/// The policy of that name.
pub(crate) fn policy(
    name: &str,
    state: &State,
    options: &compare::Options,
) -> Result<Box<dyn Policy>, PolicyError> {
    // Not in the list that people see: what `budget` is tested against.
    if name == "budget-forgetful" {
        return Ok(Box::new(BudgetPolicy::forgetful(state)));
    }
    compare::by_name(name, state, options).ok_or_else(|| PolicyError {
        name: name.to_owned(),
        known: crate::policy_names().collect::<Vec<_>>().join(", "),
    })
}
