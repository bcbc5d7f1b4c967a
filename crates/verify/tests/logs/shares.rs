//! Rule 3: shares and rates.

use crate::dsl::judge;
use crate::swaps::{SWAP, SWAP_LOG};
use bursar_verify::Check;

#[test]
fn shares_and_rates_count_from_when_they_hold() {
    // b holds nothing until 1h; then both hold half of 4 x 2: until 9h10m back a held all of it.
    let scenario = "
cluster: {hosts: [{count: 1, gpus: 4, model: b200, name: h0}], rates: {b200: 2}}
budgets: {a: {share: 1}, b: {share: 0}}
budget_changes: [{at: 1h, budget: b, share: 1}]
settings: {SETTINGS, grace: 0s, debug_hosts: 0}
workloads:
  - {id: a1, submit: 0s, budget: a, gpus: 4, runtime: 40h, min_runtime: 30m, resumable: true}
  - {id: b1, submit: 10m, budget: b, gpus: 4, runtime: 1h, min_runtime: 1h}
";
    // At time t (in hours) a has 8t/(8*(8-(t-1)) + 4(t-1) + 8), b with its contract 8/(4(t-1) + 8).
    // With the margin, b may take a from t = 4.3206 h on: 15554.4 s.
    let ratio = |t: f64| {
        let b = 8.0 / (4.0 * (t - 1.0) + 8.0) + 0.05;
        8.0 * t / (8.0 * (9.0 - t) + 4.0 * (t - 1.0) + 8.0) - b
    };
    let (mut low, mut high) = (1.0, 8.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if ratio(middle) < 0.0 { low = middle } else { high = middle }
    }
    let legal_ms = (high * 3_600_000.0).ceil() as u64;
    let log = |at_ms: u64| {
        let (at, until) = (at_ms as f64 / 1000.0, (at_ms + 3_600_000) as f64 / 1000.0);
        format!(
            "
0 submitted a1
0 started a1 #1 until=1800 rule=8 on=h0:4
600 submitted b1
{at} preempted a1 #1 by=b1 rule=6
{at} requeued a1 #1
{at} started b1 #1 until={until} rule=6 on=h0:4
"
        )
    };
    let good = judge(scenario, &log(legal_ms));
    assert!(good.is_clean(), "{good}");
    assert_eq!(good.policies[0].budgets[0].charged_milli_gpu_ms, u128::from(legal_ms) * 8 * 1000);
    let bad = judge(scenario, &log(legal_ms - 1));
    assert_eq!(bad.violations_total, 1, "{bad}");
    assert_eq!(bad.violations[0].check, Check::Swap);
}

#[test]
fn what_changes_at_the_first_moment_has_always_held_as_changed() {
    let early = SWAP_LOG.replace("4500", "4499.999");
    let exact = |scenario: &str, before: &str| {
        let report = judge(scenario, &format!("{before}{SWAP_LOG}"));
        assert!(report.is_clean(), "{report}");
        let report = judge(scenario, &format!("{before}{early}"));
        assert!(report.violations.iter().any(|v| v.check == Check::Swap), "{report}");
    };
    let shares = SWAP
        .replace("b: {share: 1}", "b: {share: 3}")
        .replace("workloads:", "budget_changes: [{at: 0s, budget: b, share: 1}]\nworkloads:");
    exact(&shares, "");
    let capacity = SWAP
        .replace("name: h0}", "name: h0}, {count: 1, gpus: 8, model: h100, name: h1}")
        .replace("workloads:", "hosts_events: [{at: 0s, host: h1, event: fail}]\nworkloads:");
    exact(&capacity, "0 host_down @h1");
}
