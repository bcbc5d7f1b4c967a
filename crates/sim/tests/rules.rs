//! Rules by small scenarios, each as the lines that a person would read. Worked out by hand.

use bursar_sim::{EventSink, RunOptions, run};
use serde_json::Value;

/// Plays a scenario under `budget`. One line per event: seconds, event, workload, and for starts the hosts
/// and the class.
fn play(yaml: &str) -> Vec<String> {
    let scenario =
        bursar_scenario::load_str(yaml, ".".as_ref(), "rules.yaml", &[]).expect("a scenario");
    let mut log = Vec::new();
    run(&scenario, "budget", RunOptions::default(), EventSink::Json(&mut log)).expect("it runs");
    let log = String::from_utf8(log).expect("is text");
    log.lines().map(|line| line_of(&serde_json::from_str(line).expect("is JSON"))).collect()
}

fn line_of(event: &Value) -> String {
    let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let mut line = format!("{} {} {}", event["t"], text("event"), text("workload"));
    if let Some(hosts) = event["placement"].as_array() {
        for host in hosts {
            line += &format!(" {}:{}", host["host"].as_str().expect("a host"), host["gpus"]);
        }
    }
    if event["event"] == "started" {
        line += if event["allocated"] == true { " allocated" } else { " unallocated" };
    }
    line
}

fn assert_has(lines: &[String], expected: &[&str]) {
    for line in expected {
        assert!(lines.iter().any(|other| other == line), "{line:?} is missing in {lines:#?}");
    }
}

#[test]
fn a_limit_that_runs_out_by_time_makes_a_waiting_request_unallocated() {
    // The limit has room for 8 GPU-hours beside what a1 charges until a1 has charged 16: at 2 h. From the
    // next millisecond on a2 is unallocated and may use the debug host.
    let lines = play(
        "
cluster: {hosts: [{count: 2, gpus: 8, model: x, name: h}]}
budgets: {a: {share: 1, limit: 24}}
settings: {debug_hosts: 1, startup: 0s, grace: 0s}
workloads:
  - {id: a1, submit: 0s, budget: a, gpus: 8, runtime: 4h, min_runtime: 1h, resumable: true}
  - {id: a2, submit: 0s, budget: a, gpus: 8, runtime: 1h, min_runtime: 1h}
",
    );
    assert_has(&lines, &["0 started a1 h-0:8 allocated", "7200.001 started a2 h-1:8 unallocated"]);
}

#[test]
fn nobody_is_preempted_where_another_pool_will_have_room_to_spare() {
    // p needs one GPU of model y and makes u2 leave all four. q fits on the other three, and u1 stays.
    let lines = play(
        "
cluster: {hosts: [{count: 1, gpus: 4, model: x, name: x}, {count: 1, gpus: 4, model: y, name: y}]}
budgets: {a: {share: 1}, b: {share: 1}}
settings: {startup: 0s, grace: 30s}
workloads:
  - {id: u1, submit: 0s, budget: b, gpus: 4, runtime: 4h, min_runtime: 0s, resumable: true, gpu_model: x}
  - {id: u2, submit: 0s, budget: b, gpus: 4, runtime: 4h, min_runtime: 0s, resumable: true, gpu_model: y}
  - {id: p, submit: 10m, budget: a, gpus: 1, runtime: 1h, min_runtime: 1h, gpu_model: y}
  - {id: q, submit: 610s, budget: a, gpus: 2, runtime: 1h, min_runtime: 1h}
",
    );
    assert_has(&lines, &["600 preempted u2", "630 started p y:1 allocated"]);
    assert_has(&lines, &["630 started q y:2 allocated"]);
    assert!(!lines.iter().any(|line| line.contains("preempted u1")), "{lines:#?}");
}

#[test]
fn a_promise_outlives_the_loss_of_a_host_between_decision_and_start() {
    // Rule 6 never lets b (a sixteenth of the cluster) take two hosts of a, its promise does: T is 2 h after
    // b1 came. While those who must leave have their grace, h-0 fails. The promise stands again on the other
    // hosts and is due when a2 is gone; a new one would have to settle first, for 40 min.
    let lines = play(
        "
cluster: {hosts: [{count: 3, gpus: 8, model: x, name: h}]}
budgets: {a: {share: 15}, b: {share: 1}}
settings: {lookback: 8h, horizon: 2h, reservation_age: 2h, startup: 0s, grace: 60s}
workloads:
  - {id: a1, submit: 0s, budget: a, gpus: 8, runtime: 20h, min_runtime: 1h, resumable: true, checkpoint_interval: 1h}
  - {id: a2, submit: 0s, budget: a, gpus: 8, runtime: 20h, min_runtime: 1h, resumable: true, checkpoint_interval: 1h}
  - {id: a3, submit: 0s, budget: a, gpus: 8, runtime: 20h, min_runtime: 1h, resumable: true}
  - {id: b1, submit: 30m, budget: b, gpus: 16, runtime: 1h, min_runtime: 1h}
hosts_events: [{at: 9030s, host: h-0, event: fail}]
",
    );
    assert_has(&lines, &["9000 preempted a1", "9000 preempted a2", "9030 host_down "]);
    assert_has(&lines, &["9030 reserved b1 h-1:8 h-2:8", "9060 preempted a3"]);
    assert_has(&lines, &["9120 started b1 h-1:8 h-2:8 allocated"]);
}

#[test]
fn a_request_backs_off_from_unallocated_starts_only() {
    // a2 has no room under the limit beside a1, runs unallocated and is preempted three times. It would back
    // off until 3630, but at 3600 a1 gives half its contract back: a2 is allocated again and starts.
    let lines = play(
        "
cluster: {hosts: [{count: 1, gpus: 4, model: x, name: h}]}
budgets: {a: {share: 1, limit: 4}, b: {share: 1}}
settings: {startup: 0s, grace: 0s}
workloads:
  - {id: a1, submit: 0s, budget: a, gpus: 2, runtime: 1h, min_runtime: 2h}
  - {id: a2, submit: 0s, budget: a, gpus: 2, runtime: 3h, min_runtime: 1h, resumable: true}
  - {id: b1, submit: 10m, budget: b, gpus: 2, runtime: 1m, min_runtime: 1m}
  - {id: b2, submit: 20m, budget: b, gpus: 2, runtime: 1m, min_runtime: 1m}
  - {id: b3, submit: 3570s, budget: b, gpus: 2, runtime: 1m, min_runtime: 1m}
",
    );
    assert_has(&lines, &["0 started a2 h:2 unallocated", "3570 preempted a2"]);
    assert_has(&lines, &["3600 started a2 h:2 allocated"]);
}

#[test]
fn a_term_limits_what_is_charged_in_it() {
    // A day turns after two hours. Its limit is 6 GPU-hours. a1 charges 2 x 1 h = 2 and a2 may have its 4: nothing is
    // left, so a3 is unallocated. At 2:00 the next day begins, in which a2 has charged nothing and its contract protects
    // no more: a4, whose 4 do not fit before, is allocated then, and a5 (4) does not fit beside it.
    let lines = play(
        "
cluster: {hosts: [{count: 2, gpus: 4, model: x, name: h}]}
budgets: {a: {share: 1, terms: [{each: day, limit: 6}]}, b: {share: 1}}
settings: {startup: 0s, grace: 0s, begins: '2026-10-24T20:00:00Z', time_zone: Europe/Zurich}
workloads:
  - {id: a1, submit: 0s, budget: a, gpus: 2, runtime: 1h, min_runtime: 1h}
  - {id: a2, submit: 10s, budget: a, gpus: 4, runtime: 1h, min_runtime: 1h}
  - {id: a3, submit: 20s, budget: a, gpus: 1, runtime: 50m, min_runtime: 30m}
  - {id: a4, submit: 5400s, budget: a, gpus: 4, runtime: 1h, min_runtime: 1h}
  - {id: b1, submit: 5400s, budget: b, gpus: 8, runtime: 30m, min_runtime: 30m}
  - {id: a5, submit: 7200s, budget: a, gpus: 4, runtime: 3h, min_runtime: 1h}
",
    );
    assert_has(&lines, &["0 started a1 h-0:2 allocated", "10 started a2 h-1:4 allocated"]);
    assert_has(
        &lines,
        &["20 started a3 h-0:1 unallocated", "5400 started b1 h-0:4 h-1:4 allocated"],
    );
    assert_has(&lines, &["7200 started a4 h-0:4 allocated", "7200 started a5 h-1:4 unallocated"]);
}

#[test]
fn what_a_term_leaves_is_carried_over_if_it_says_so() {
    // Two hours of the first day, limit 4: a1 charges 2, so 2 are carried. On the next day a2 (6) fits where it is
    // carried over; b2 of the same kind does not.
    let lines = play(
        "
cluster: {hosts: [{count: 2, gpus: 4, model: x, name: h}]}
budgets: {a: {share: 1, terms: [{each: day, limit: 4, carry_over: true}]}, b: {share: 1, terms: [{each: day, limit: 4}]}}
settings: {startup: 0s, grace: 0s, begins: '2026-10-24T22:00:00Z'}
workloads:
  - {id: a1, submit: 0s, budget: a, gpus: 2, runtime: 1h, min_runtime: 1h}
  - {id: b1, submit: 0s, budget: b, gpus: 2, runtime: 1h, min_runtime: 1h}
  - {id: a2, submit: 2h, budget: a, gpus: 3, runtime: 2h, min_runtime: 2h}
  - {id: b2, submit: 2h, budget: b, gpus: 3, runtime: 2h, min_runtime: 2h}
",
    );
    assert_has(&lines, &["7200 started a2 h-0:3 allocated", "7200 started b2 h-1:3 unallocated"]);
}

#[test]
fn a_promise_is_made_anew_where_a_limit_has_room_still() {
    // y costs twice what x does. p is promised y at 1:30, when b1's contract ends. s1 goes on to charge 4
    // GPU-hours an hour: from 1:15 on the limit has no room for p's 8 on y, but for its 4 on x.
    let lines = play(
        "
cluster: {hosts: [{count: 1, gpus: 4, model: y, name: y}, {count: 2, gpus: 4, model: x, name: x}], rates: {y: 2}}
budgets: {big: {share: 1}, small: {share: 1, limit: 13}}
settings: {lookback: 8h, horizon: 2h, reservation_age: 1h, startup: 0s, grace: 0s}
workloads:
  - {id: b1, submit: 0s, budget: big, gpus: 4, runtime: 9h, min_runtime: 90m, resumable: true, gpu_model: y}
  - {id: b2, submit: 0s, budget: big, gpus: 4, runtime: 9h, min_runtime: 2h, resumable: true, gpu_model: x}
  - {id: s1, submit: 0s, budget: small, gpus: 4, runtime: 9h, min_runtime: 10m, gpu_model: x}
  - {id: p, submit: 20m, budget: small, gpus: 4, runtime: 1h, min_runtime: 1h}
",
    );
    assert_has(&lines, &["1200 reserved p y:4", "4500.001 reserved p x-1:4"]);
    assert_has(&lines, &["7200 preempted b2", "7200 started p x-1:4 allocated"]);
}

#[test]
fn all_promises_move_that_can_be_earlier_at_one_moment() {
    // g1 waits for b1 and b2, g2 for b3 and b4. At 1:00 b2 and b4 end: what is left of each promise is earlier.
    let lines = play(
        "
cluster: {hosts: [{count: 4, gpus: 4, model: x, name: h}]}
budgets: {big: {share: 1}, small: {share: 1}}
settings: {lookback: 8h, horizon: 2h, reservation_age: 1h, reservations: 2, startup: 0s, grace: 0s}
workloads:
  - {id: b1, submit: 0s, budget: big, gpus: 4, runtime: 9h, min_runtime: 80m, resumable: true}
  - {id: b2, submit: 0s, budget: big, gpus: 4, runtime: 1h, min_runtime: 90m, resumable: true}
  - {id: b3, submit: 0s, budget: big, gpus: 4, runtime: 9h, min_runtime: 100m, resumable: true}
  - {id: b4, submit: 0s, budget: big, gpus: 4, runtime: 1h, min_runtime: 2h, resumable: true}
  - {id: g1, submit: 10m, budget: small, gpus: 8, runtime: 2h, min_runtime: 2h}
  - {id: g2, submit: 10m, budget: small, gpus: 8, runtime: 2h, min_runtime: 2h}
",
    );
    assert_has(&lines, &["600 reserved g1 h-0:4 h-1:4", "600 reserved g2 h-2:4 h-3:4"]);
    assert_has(&lines, &["3600 reserved g1 h-0:4 h-1:4", "3600 reserved g2 h-2:4 h-3:4"]);
    assert_has(&lines, &["4800 started g1 h-0:4 h-1:4 allocated"]);
    assert_has(&lines, &["6000 started g2 h-2:4 h-3:4 allocated"]);
}

#[test]
fn a_start_elsewhere_unblocks_all_that_come_below_it() {
    // Of 16 hours, a and b are allocated 186.9 GPU-hours each, c 10.3. At 1:14 x is blocked: a has 21.4 of its
    // own, which is below c (0.12), but not with the 4 of x's contract. At 1:15 q2 starts and b stands at 10 + 16:
    // from then on x may take q1's host. y comes at that moment and waits behind it.
    let lines = play(
        "
cluster: {hosts: [{count: 3, gpus: 8, model: m, name: h}]}
budgets: {a: {share: 5}, b: {share: 5}, c: {share: 0.275}}
settings: {lookback: 8h, horizon: 8h, margin: 0.001, reservations: 0, startup: 0s, grace: 0s}
workloads:
  - {id: p1, submit: 0s, budget: a, gpus: 7, runtime: 9h, min_runtime: 2h}
  - {id: p2, submit: 0s, budget: a, gpus: 6, runtime: 9h, min_runtime: 30m}
  - {id: q1, submit: 0s, budget: b, gpus: 8, runtime: 9h, min_runtime: 1h, resumable: true}
  - {id: c1, submit: 0s, budget: c, gpus: 1, runtime: 9h, min_runtime: 30m}
  - {id: x, submit: 74m, budget: a, gpus: 8, runtime: 1h, min_runtime: 30m}
  - {id: q2, submit: 75m, budget: b, gpus: 2, runtime: 8h, min_runtime: 8h}
  - {id: y, submit: 75m, budget: a, gpus: 8, runtime: 1h, min_runtime: 30m, gpu_model: m}
",
    );
    assert_has(&lines, &["4500 started q2 h-2:2 allocated", "4500 preempted q1"]);
    assert_has(&lines, &["4500 started x h-1:8 allocated"]);
}
