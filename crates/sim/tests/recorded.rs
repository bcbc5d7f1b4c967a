//! The policy `recorded` plays what really ran, and measures it as everything else.

use bursar_sim::{EventSink, RECORDED, RunError, RunOptions, run};

const SCENARIO: &str = r"
cluster: {hosts: [{gpus: 8, model: h100, name: n1}, {gpus: 8, model: h100, name: n2}]}
budgets:
  a: {share: 1}
  b: {share: 1}
workloads:
  # It had to leave after an hour, and came back.
  - {id: first, submit: 0, budget: a, gpus: 16, runtime: 2h, min_runtime: 2h, resumable: true, checkpoint_interval: 1h,
     ran: [{start: 0, end: 1h, on: {n1: 8, n2: 8}}, {start: 3h, end: 4h, on: {n1: 8, n2: 8}}]}
  - {id: second, submit: 30m, budget: b, gpus: 8, runtime: 1h, min_runtime: 1h,
     ran: [{start: 1h, end: 2h, on: {n2: 8}}]}
  # Moments are rounded: by the books its GPUs are another's for a second.
  - {id: third, submit: 30m, budget: b, gpus: 8, runtime: 1h, min_runtime: 0, status: failed,
     ran: [{start: 3599, end: 2h, on: {n1: 8}}]}
  # It never ran.
  - {id: fourth, submit: 1h, budget: a, gpus: 8, runtime: 1h, min_runtime: 1h}
  # It still runs.
  - {id: fifth, submit: 1h, budget: b, gpus: 8, runtime: 9h, min_runtime: 1h, ran: [{start: 2h, on: {n2: 4, n1: 4}}]}
";

fn play(text: &str, policy: &str) -> Result<(bursar_sim::PolicySummary, Vec<String>), RunError> {
    let scenario = bursar_scenario::load_str(text, ".".as_ref(), "test", &[]).expect("a scenario");
    let mut log = Vec::new();
    let options = RunOptions { until_ms: Some(5 * 3_600_000), ..RunOptions::default() };
    let outcome = run(&scenario, policy, options, EventSink::Json(&mut log))?;
    let log = String::from_utf8(log).expect("text");
    Ok((outcome.summary, log.lines().map(str::to_owned).collect()))
}

#[test]
fn what_ran_is_measured() {
    let (summary, log) = play(SCENARIO, RECORDED).expect("it runs");
    let told: Vec<(String, String, String)> = log
        .iter()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
        .filter(|line| line["event"] != "submitted" && line["event"] != "protection_ended")
        .map(|line| {
            (line["t"].to_string(), line["event"].to_string(), line["workload"].to_string())
        })
        .collect();
    let of = |t: u64, event: &str, workload: &str| {
        (t.to_string(), format!("\"{event}\""), format!("\"{workload}\""))
    };
    assert_eq!(
        told,
        [
            of(0, "started", "first"),
            of(3600, "requeued", "first"),
            of(3600, "started", "third"),
            of(3600, "started", "second"),
            of(7200, "completed", "second"),
            of(7200, "failed", "third"),
            of(7200, "started", "fifth"),
        ],
        "{log:#?}"
    );
    // The fifth has half of the GPUs that the first had, so that cannot have come back: the record contradicts itself, and
    // what does not fit is not played.
    assert_eq!((summary.preemptions.total, summary.breaches["scheduler"]), (1, 1));
    assert!(summary.conservation_exact);
    let charged = &summary.charged_gpu_seconds;
    assert_eq!((charged["a"], charged["b"]), (16.0 * 3600.0, 8.0 * 3600.0 * 4.0));
    assert_eq!(summary.unallocated_gpu_seconds, 8.0 * 3600.0);
    assert_eq!(summary.first_waits.budgets["b"].max, 3600.0);
    // A policy plays the same scenario as if nothing had been recorded.
    let (budget, _) = play(SCENARIO, "budget").expect("it runs");
    assert_eq!(budget.breaches["scheduler"], 0);
}

#[test]
fn what_was_not_recorded_cannot_be_played() {
    let bare = "cluster: {hosts: [{gpus: 8, model: h100}]}\nbudgets: {a: {share: 1}}\n\
                workloads: [{id: x, submit: 0, budget: a, gpus: 1, runtime: 1h}]\n";
    assert!(matches!(play(bare, RECORDED), Err(RunError::NothingRecorded)));
    for (ran, said) in [
        ("[{start: 0, end: 1h, on: {h100-9: 1}}]", "there is no host 'h100-9'"),
        ("[{start: 0, end: 1h, on: {h100-0: 2}}]", "on: the hosts' GPUs are not 1 together"),
        ("[{start: 1h, end: 1h, on: {h100-0: 1}}]", "an attempt starts after its submission"),
        (
            "[{start: 0, on: {h100-0: 1}}, {start: 1h, on: {h100-0: 1}}]",
            "the attempt before it has no end",
        ),
        ("[{start: 0, until: 1h}]", "unknown key 'until'"),
    ] {
        let text = bare.replace("runtime: 1h}", &format!("runtime: 1h, ran: {ran}}}"));
        let error = bursar_scenario::load_str(&text, ".".as_ref(), "test", &[]);
        let error = error.expect_err(ran).to_string();
        assert!(error.contains(said), "{ran}: {error}");
    }
}

#[test]
fn a_record_of_more_than_there_was_to_do_is_played() {
    // Its first attempt saved nothing, whatever it declared: what it did and kept is the second.
    let text = "cluster: {hosts: [{gpus: 8, model: h100, name: n1}]}\nbudgets: {a: 1}\nworkloads:\n\
        - {id: w, submit: 0, budget: a, gpus: 8, runtime: 1h, min_runtime: 1h, resumable: true, checkpoint_interval: 30m, ran: [{start: 0, end: 2h, on: {n1: 8}}, {start: 3h, end: 4h, on: {n1: 8}}]}\n";
    let (summary, _) = play(text, RECORDED).expect("it runs");
    assert!(summary.conservation_exact);
    assert_eq!(summary.budgets[0].delivered_gpu_hours, 24.0);
}

#[test]
fn a_part_of_a_run_is_measured_as_the_whole_less_what_came_before() {
    const HOUR_MS: u64 = 3_600_000;
    let scenario = bursar_scenario::load_str(SCENARIO, ".".as_ref(), "test", &[]);
    let scenario = scenario.expect("a scenario");
    let measured = |policy: &str, from: u64, until: u64| {
        let options = RunOptions {
            series: true,
            from_ms: from * HOUR_MS,
            until_ms: Some(until * HOUR_MS),
            ..RunOptions::default()
        };
        let summary = run(&scenario, policy, options, EventSink::None).expect("it runs").summary;
        assert!(summary.conservation_exact, "{policy}, {from} to {until}");
        assert_eq!(summary.measured_seconds, (until - from) as f64 * 3_600.0);
        summary
    };
    for policy in [RECORDED, "budget", "fifo"] {
        let (first, second) = (measured(policy, 0, 3), measured(policy, 3, 5));
        let whole = measured(policy, 0, 5);
        for (at, leaf) in whole.budgets.iter().enumerate() {
            let parts = [&first.budgets[at], &second.budgets[at]];
            let same = |of: fn(&bursar_sim::BudgetSummary) -> f64| {
                let sum = of(parts[0]) + of(parts[1]);
                assert!((of(leaf) - sum).abs() < 1e-9, "{policy}: {} is not {sum}", of(leaf));
            };
            same(|one| one.delivered_gpu_hours);
            same(|one| one.owed_gpu_hours);
            same(|one| one.allocation_gpu_hours);
            same(|one| one.unallocated_gpu_hours);
        }
        assert_eq!(whole.preemptions.total, first.preemptions.total + second.preemptions.total);
        // All of it was submitted in the first part.
        assert!(second.first_waits.budgets.is_empty() && !first.first_waits.budgets.is_empty());
    }
}

#[test]
fn protections_end_in_a_record_also_where_somebody_waits() {
    // The waiting one could start at every moment, which a record does not do.
    let text = "cluster: {hosts: [{gpus: 8, model: h100, name: n1}]}\nbudgets: {a: 1, b: 1}\nworkloads:\n\
        - {id: w, submit: 0, budget: a, gpus: 4, runtime: 4h, min_runtime: 30m, ran: [{start: 0, end: 4h, on: {n1: 4}}]}\n\
        - {id: v, submit: 0, budget: b, gpus: 4, runtime: 1h, min_runtime: 30m}\n";
    let scenario = bursar_scenario::load_str(text, ".".as_ref(), "test", &[]).expect("a scenario");
    let options =
        RunOptions { until_ms: Some(5 * 3_600_000), series: true, ..RunOptions::default() };
    let outcome = run(&scenario, RECORDED, options, EventSink::None).expect("it runs");
    assert_eq!(outcome.series.samples.len(), 5);
    assert!((outcome.summary.budgets[0].delivered_gpu_hours - 16.0).abs() < 1e-9);
}
