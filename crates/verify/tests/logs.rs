//! Hand-written histories that keep the rules, and for each rule what one wrong line makes of them.
//!
//! A line is `time event [workload or @host] [#attempt] [key=value]…`; `on=h0:2,h1:4` is a placement.

use bursar_verify::{Check, Report, VerifyError, verify};
use std::fmt::Write;
use std::path::Path;

const SETTINGS: &str = "lookback: 8h, horizon: 2h, margin: 0.05, startup: 0s, reservation_age: 2h";

fn json(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let mut words = line.split_whitespace();
        let (at, event) = (words.next().expect("a time"), words.next().expect("an event"));
        let (mut policy, mut keys) = ("budget", String::new());
        for word in words {
            if let Some(host) = word.strip_prefix('@') {
                write!(keys, ",\"host\":\"{host}\"").expect("fits");
            } else if let Some(attempt) = word.strip_prefix('#') {
                write!(keys, ",\"attempt\":{attempt}").expect("fits");
            } else if let Some((key, value)) = word.split_once('=') {
                match key {
                    "policy" => policy = value,
                    "by" | "budget" => write!(keys, ",\"{key}\":\"{value}\"").expect("fits"),
                    "on" => {
                        let places: Vec<String> = value
                            .split(',')
                            .map(|place| {
                                let (host, gpus) = place.split_once(':').expect("host:gpus");
                                format!("{{\"host\":\"{host}\",\"gpus\":{gpus}}}")
                            })
                            .collect();
                        write!(keys, ",\"placement\":[{}]", places.join(",")).expect("fits");
                    }
                    "free" => keys.push_str(",\"allocated\":false,\"protected_until\":null"),
                    "until" if event == "started" => {
                        write!(keys, ",\"allocated\":true,\"protected_until\":{value}")
                            .expect("fits");
                    }
                    _ => write!(keys, ",\"{key}\":{value}").expect("fits"),
                }
            } else {
                write!(keys, ",\"workload\":\"{word}\"").expect("fits");
            }
        }
        writeln!(out, "{{\"t\":{at},\"policy\":\"{policy}\",\"event\":\"{event}\"{keys}}}")
            .expect("fits");
    }
    out
}

fn judge(scenario: &str, log: &str) -> Report {
    let scenario = scenario.replace("SETTINGS", SETTINGS);
    let scenario = bursar_scenario::load_str(&scenario, Path::new(""), "test", &[]);
    let scenario = scenario.expect("a good scenario");
    verify(json(log).as_bytes(), &scenario).expect("a log")
}

/// The log keeps the rules; with each change, it breaks the one that is named.
fn history(scenario: &str, log: &str, changes: &[(&str, &str, Check)]) {
    let report = judge(scenario, log);
    assert!(report.is_clean(), "{report}");
    for &(old, new, check) in changes {
        assert_eq!(log.matches(old).count(), 1, "{old:?} is there once");
        let report = judge(scenario, &log.replace(old, new));
        let found = report.violations.iter().any(|violation| violation.check == check);
        assert!(found, "{old:?} -> {new:?} should break {check:?}\n{report}");
    }
}

fn checked(report: &Report, check: Check) -> u64 {
    report.policies[0].checks.iter().find(|count| count.check == check).expect("listed").checked
}

const SWAP: &str = "
cluster: {hosts: [{count: 1, gpus: 8, model: h100, name: h0}]}
budgets: {a: {share: 1}, b: {share: 1}}
settings: {SETTINGS, grace: 30s, debug_hosts: 0}
workloads:
  - {id: a1, submit: 0s, budget: a, gpus: 8, runtime: 4h, min_runtime: 30m, resumable: true}
  - {id: b1, submit: 10m, budget: b, gpus: 8, runtime: 1h, min_runtime: 1h}
";

// b holds 20 GPU-hours of 40 allocated ones after 10 of 8: 8/40 + 0.05 = 10/40, so at 1h15m.
const SWAP_LOG: &str = "
0 submitted a1
0 started a1 #1 until=1800 rule=8 on=h0:8
600 submitted b1
1800 protection_ended a1 #1
4500 preempted a1 #1 by=b1 rule=6
4512.5 requeued a1 #1
4512.5 started b1 #1 until=8112.5 rule=6 on=h0:8
8112.5 completed b1 #1
8112.5 started a1 #2 until=9912.5 rule=8 on=h0:8
9912.5 protection_ended a1 #2
18000 completed a1 #2
";

#[test]
fn a_swap_is_legal_to_the_millisecond() {
    history(
        SWAP,
        SWAP_LOG,
        &[
            ("4500 preempted", "4499.999 preempted", Check::Swap),
            ("4500 preempted a1 #1 by=b1", "1799.999 preempted a1 #1 by=b1", Check::Log),
            ("4500 preempted a1 #1 by=b1 rule=6", "4500 preempted a1 #1 rule=9", Check::Drain),
            ("rule=6\n4512.5 requeued", "rule=7\n4512.5 requeued", Check::Swap),
        ],
    );
    let report = judge(SWAP, SWAP_LOG);
    assert_eq!(checked(&report, Check::Swap), 2);
    let totals = report.policies[0].totals;
    let hour = 8 * 3_600_000;
    assert_eq!(totals.allocated_gpu_ms, 18_000_000 * 8);
    assert_eq!(totals.all_gpu_ms, 5 * u128::from(hour as u64));
    let b = report.policies[0].budgets.iter().find(|budget| budget.budget == "b").expect("b");
    assert_eq!(b.charged_milli_gpu_ms, 8 * 3_600_000 * 1000);
}

#[test]
fn a_reservation_made_at_once_counts_only_what_it_may() {
    // No reservation is in the log; one that was due at once may have been made where rule 6 allows.
    let log = SWAP_LOG.replace("by=b1 rule=6", "by=b1 rule=7");
    let log = log.replace("until=8112.5 rule=6", "until=8112.5 rule=7");
    history(SWAP, &log, &[("4500 preempted", "4499.999 preempted", Check::Swap)]);
}

#[test]
fn the_log_must_be_a_possible_history() {
    history(
        SWAP,
        SWAP_LOG,
        &[
            ("0 submitted a1\n", "1 submitted a1\n", Check::Log),
            ("600 submitted b1\n", "", Check::Log),
            ("8112.5 completed b1 #1", "8112.5 completed b1 #2", Check::Log),
            ("started a1 #2", "started a1 #3", Check::Log),
            ("4512.5 requeued a1 #1\n", "", Check::Log),
            ("8112.5 completed b1", "4000 completed b1", Check::Log),
            ("started a1 #2", "started ghost #2", Check::Log),
            ("600 submitted b1", "600 submitted b1 budget=a", Check::Log),
            ("600 submitted b1", "600 submitted b1 gpus=4", Check::Log),
            ("4512.5 requeued a1 #1", "4512.5 terminated a1 #1", Check::Log),
            ("18000 completed", "18000 submitted a1\n18000 completed", Check::Log),
        ],
    );
}

#[test]
fn victims_leave_within_their_grace() {
    let late = SWAP_LOG.replace("4512.5", "4530.001").replace("8112.5", "8130.001");
    let late = late.replace("9912.5", "9930.001");
    let report = judge(SWAP, &late);
    let graces = report.violations.iter().filter(|violation| violation.check == Check::Grace);
    // The victim stays too long, and so the other starts too late.
    assert_eq!(graces.count(), 2, "{report}");
    let in_time = SWAP_LOG.replace("4512.5", "4530").replace("8112.5", "8130");
    assert!(judge(SWAP, &in_time.replace("9912.5", "9930")).is_clean());
}

#[test]
fn nothing_protected_is_preempted_and_protection_is_the_contract() {
    let early = SWAP_LOG.replace("1800 protection_ended a1 #1\n", "");
    let early = early.replace("4500 preempted", "1799.999 preempted");
    let report = judge(SWAP, &early);
    assert_eq!(report.policies[0].breaches.preempted, 1);
    let first = report.violations.first().expect("found");
    assert_eq!((first.rule, first.line, first.t), (5, 4, 1799.999));
    assert!(first.message.contains("1 ms before"), "{first}");
    history(
        SWAP,
        SWAP_LOG,
        &[
            ("until=8112.5", "until=8112.499", Check::Class),
            ("until=8112.5", "free=1", Check::Class),
            ("1800 protection_ended", "1799 protection_ended", Check::Class),
            (
                "started a1 #2 until=9912.5 rule=8",
                "started a1 #2 until=9912.5 rule=1",
                Check::Class,
            ),
            ("4512.5 requeued a1 #1", "4512.5 requeued a1 #1 allocated=false", Check::Class),
        ],
    );
}

#[test]
fn other_policies_are_judged_by_what_holds_for_all() {
    let log = SWAP_LOG.replace("4500 preempted", "1800 preempted");
    let log: String = log
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| format!("{line} policy=levels\n"))
        .collect();
    let log = log
        .replace("until=1800 ", "until=3600 ")
        .replace("1800 protection_ended a1 #1 policy=levels\n", "");
    let both = format!("{SWAP_LOG}{log}");
    let report = judge(SWAP, &both);
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.policies.len(), 2);
    assert_eq!(report.policies[1].breaches.preempted, 1);
    let twice = both.replace("8112.5 completed b1 #1 policy=levels\n", "");
    assert!(!judge(SWAP, &twice).is_clean());
}

#[test]
fn the_order_of_starts_at_one_moment_is_that_of_the_ratios() {
    // y asks for more than x and comes first.
    let scenario = format!(
        "{TWO_HOSTS}
  - {{id: x, submit: 0s, budget: a, gpus: 1, runtime: 1h, min_runtime: 1h}}
  - {{id: y, submit: 0s, budget: b, gpus: 4, runtime: 1h, min_runtime: 2h}}
"
    );
    let log = "
0 submitted x
0 submitted y
0 started y #1 until=7200 rule=8 on=h0:4
0 started x #1 until=3600 rule=8 on=h1:1
";
    let other = "
0 submitted x
0 submitted y
0 started x #1 until=3600 rule=8 on=h0:1
0 started y #1 until=7200 rule=8 on=h1:4
";
    history(&scenario, log, &[]);
    let report = judge(&scenario, other);
    assert_eq!(report.violations_total, 1, "{report}");
    assert_eq!(report.violations[0].check, Check::Order);
}

#[test]
fn contracts_decided_but_not_begun_count() {
    let scenario = "
cluster: {hosts: [{count: 2, gpus: 4, model: h100, name: h}]}
budgets: {a: {share: 1}, b: {share: 1}}
settings: {SETTINGS, grace: 30s, debug_hosts: 0}
workloads:
  - {id: a1, submit: 0s, budget: a, gpus: 4, runtime: 9h, min_runtime: 30m, resumable: true}
  - {id: a2, submit: 0s, budget: a, gpus: 4, runtime: 9h, min_runtime: 30m, resumable: true}
  - {id: b1, submit: 10m, budget: b, gpus: 4, runtime: 1h, min_runtime: 1h}
  - {id: b2, submit: 11m, budget: b, gpus: 4, runtime: 1h, min_runtime: 1h}
";
    // b1: 4/40 + 0.05 = 6/40 of a, from 45m on. b2 with b1: 8/40 + 0.05 = 10/40, from 1h15m on.
    let log = "
0 submitted a1
0 submitted a2
0 started a1 #1 until=1800 rule=8 on=h-0:4
0 started a2 #1 until=1800 rule=8 on=h-1:4
600 submitted b1
660 submitted b2
4480 preempted a1 #1 by=b1 rule=6
4500 preempted a2 #1 by=b2 rule=6
4510 requeued a1 #1
4510 started b1 #1 until=8110 rule=6 on=h-0:4
4530 requeued a2 #1
4530 started b2 #1 until=8130 rule=6 on=h-1:4
";
    history(
        scenario,
        log,
        &[
            ("4500 preempted", "4499.999 preempted", Check::Swap),
            // b2 is not before b1 in their budget.
            ("4480 preempted a1 #1 by=b1", "4480 preempted a1 #1 by=b2", Check::Log),
        ],
    );
}

const TWO_HOSTS: &str = "
cluster: {hosts: [{count: 1, gpus: 4, model: h100, name: h0}, {count: 1, gpus: 4, model: h100, name: h1}]}
budgets: {a: {share: 1}, b: {share: 3}}
settings: {SETTINGS, grace: 0s, debug_hosts: 0}
workloads:
";

#[test]
fn victims_are_no_more_than_needed() {
    let scenario = format!(
        "{TWO_HOSTS}
  - {{id: v1, submit: 0s, budget: a, gpus: 2, runtime: 9h, min_runtime: 30m, resumable: true}}
  - {{id: v2, submit: 0s, budget: a, gpus: 2, runtime: 9h, min_runtime: 30m, resumable: true}}
  - {{id: v3, submit: 0s, budget: a, gpus: 4, runtime: 9h, min_runtime: 30m, resumable: true}}
  - {{id: b1, submit: 3h, budget: b, gpus: 3, runtime: 1h, min_runtime: 1h}}
"
    );
    let log = "
0 submitted v1
0 submitted v2
0 submitted v3
0 started v1 #1 until=1800 rule=8 on=h0:2
0 started v2 #1 until=1800 rule=8 on=h0:2
0 started v3 #1 until=1800 rule=8 on=h1:4
10800 submitted b1
10800 preempted v3 #1 by=b1 rule=6
10800 requeued v3 #1
10800 started b1 #1 until=14400 rule=6 on=h1:3
14400 completed b1 #1
14400 started v3 #2 until=16200 rule=8 on=h1:4
";
    let both = "10800 preempted v1 #1 by=b1 rule=6\n10800 preempted v3 #1 by=b1 rule=6";
    history(
        &scenario,
        log,
        &[
            ("10800 preempted v3 #1 by=b1 rule=6", both, Check::Minimal),
            // One half of h0 is not enough for three.
            (
                "10800 preempted v3 #1 by=b1 rule=6\n10800 requeued v3 #1",
                "10800 preempted v1 #1 by=b1 rule=6\n10800 requeued v1 #1",
                Check::Minimal,
            ),
            ("rule=6 on=h1:3", "rule=6 on=h0:3", Check::HostUse),
            ("rule=6 on=h1:3", "rule=6 on=h1:2", Check::Shape),
        ],
    );
}

#[test]
fn rank_counts_inside_a_leaf_only() {
    let scenario = |rank: i32| {
        format!(
            "{TWO_HOSTS}
  - {{id: v1, submit: 0s, budget: a, gpus: 4, runtime: 9h, min_runtime: 30m, resumable: true}}
  - {{id: v2, submit: 0s, budget: a, gpus: 4, runtime: 9h, min_runtime: 30m, resumable: true}}
  - {{id: a1, submit: 1h, budget: a, gpus: 4, runtime: 1h, min_runtime: 1h, rank: {rank}}}
"
        )
    };
    let log = "
0 submitted v1
0 submitted v2
0 started v1 #1 until=1800 rule=8 on=h0:4
0 started v2 #1 until=1800 rule=8 on=h1:4
3600 submitted a1
3600 preempted v2 #1 by=a1 rule=6
3600 requeued v2 #1
3600 started a1 #1 until=7200 rule=6 on=h1:4
";
    history(&scenario(1), log, &[]);
    let report = judge(&scenario(0), log);
    assert!(report.violations[0].message.contains("rank 0 is not above 0"), "{report}");
}

#[test]
fn unallocated_work_is_nobodys_and_preempts_nobody() {
    let scenario = "
cluster: {hosts: [{count: 1, gpus: 4, model: h100, name: h0}, {count: 1, gpus: 4, model: h100, name: h1}]}
budgets: {a: {share: 1}, b: {share: 3}, z: {share: 0}, cap: {share: 1, limit: 6}}
settings: {SETTINGS, grace: 0s, debug_hosts: 0}
workloads:
  - {id: u1, submit: 0s, budget: a, gpus: 4, runtime: 9h, resumable: true}
  - {id: z1, submit: 0s, budget: z, gpus: 4, runtime: 9h, min_runtime: 1h, resumable: true}
  - {id: c1, submit: 1h, budget: cap, gpus: 4, runtime: 9h, min_runtime: 1h, resumable: true}
  - {id: c2, submit: 2h, budget: cap, gpus: 4, runtime: 1h, min_runtime: 1h, resumable: true}
";
    let log = "
0 submitted u1
0 submitted z1
0 started u1 #1 free=1 rule=1 on=h0:4
0 started z1 #1 free=1 rule=1 on=h1:4
3600 submitted c1
3600 preempted z1 #1 by=c1 rule=6
3600 requeued z1 #1
3600 started c1 #1 until=7200 rule=6 on=h1:4
7200 submitted c2
32400 completed u1 #1
32400 started c2 #1 free=1 rule=1 on=h0:4
36000 completed c2 #1
";
    // c1 has used 4 of the 6 GPU-hours of its limit at 2h, and more later: c2 has no room.
    history(
        scenario,
        log,
        &[
            ("started z1 #1 free=1 rule=1", "started z1 #1 until=3600 rule=8", Check::Class),
            ("started c2 #1 free=1 rule=1", "started c2 #1 until=36000 rule=8", Check::Class),
            ("started c1 #1 until=7200 rule=6", "started c1 #1 free=1 rule=1", Check::Class),
            (
                "7200 submitted c2",
                "7200 submitted c2\n7200 preempted u1 #1 by=c2 rule=6\n7200 requeued u1 #1",
                Check::Swap,
            ),
        ],
    );
    let report = judge(scenario, log);
    assert_eq!(report.policies[0].totals.unallocated_gpu_ms, (36_000 + 3_600) * 4 * 1000);
}

#[test]
fn nobody_who_comes_first_is_passed_over() {
    let scenario = "
cluster: {hosts: [{count: 1, gpus: 4, model: h100, name: h0}]}
budgets: {p: {share: 1, children: {p1: {share: 1}, p2: {share: 1}}}, q: {share: 1}}
settings: {SETTINGS, grace: 0s, debug_hosts: 0}
workloads:
  - {id: x1, submit: 0s, budget: p/p1, gpus: 2, runtime: 1h, min_runtime: 1h}
  - {id: x2, submit: 0s, budget: p/p2, gpus: 2, runtime: 1h, min_runtime: 1h}
  - {id: x3, submit: 0s, budget: p/p2, gpus: 2, runtime: 1h, min_runtime: 1h}
  - {id: q1, submit: 0s, budget: q, gpus: 2, runtime: 1h, min_runtime: 1h}
  - {id: q2, submit: 0s, budget: q, gpus: 2, runtime: 1h, min_runtime: 1h}
  - {id: u1, submit: 0s, budget: q, gpus: 4, runtime: 1h, resumable: true}
";
    let log = "
0 submitted x1
0 submitted x2
0 submitted x3
0 submitted q1
0 submitted q2
0 submitted u1
0 started x1 #1 until=3600 rule=8 on=h0:2
0 started q1 #1 until=3600 rule=8 on=h0:2
3600 completed x1 #1
3600 completed q1 #1
3600 started x2 #1 until=7200 rule=8 on=h0:2
3600 started q2 #1 until=7200 rule=8 on=h0:2
7200 completed x2 #1
7200 completed q2 #1
7200 started x3 #1 until=10800 rule=8 on=h0:2
10800 completed x3 #1
10800 started u1 #1 free=1 rule=1 on=h0:4
";
    let swapped = "3600 started q2 #1 until=7200 rule=8 on=h0:2";
    history(
        scenario,
        log,
        &[
            // After x1, q comes before p; p/p2 is not even looked at.
            (
                "0 started q1 #1 until=3600 rule=8 on=h0:2\n3600 completed x1 #1\n3600 completed q1",
                "0 started x2 #1 until=3600 rule=8 on=h0:2\n3600 completed x1 #1\n3600 completed x2",
                Check::Order,
            ),
            // A tie of programmes goes to the name, also between starts of one moment.
            (
                "3600 started x2 #1 until=7200 rule=8 on=h0:2\n3600 started q2 #1 until=7200 rule=8 \
                 on=h0:2",
                &format!("{swapped}\n3600 started x2 #1 until=7200 rule=8 on=h0:2"),
                Check::Order,
            ),
            // In a leaf, the first id.
            ("3600 started x2", "3600 started x3", Check::Order),
            // Unallocated work comes after all contracts.
            (
                "7200 started x3 #1 until=10800 rule=8 on=h0:2\n10800 completed x3 #1\n10800 started u1",
                "7200 started u1",
                Check::Order,
            ),
        ],
    );
}

const PLACES: &str = "
cluster:
  hosts:
    - {count: 2, gpus: 4, model: h100, name: x, domain: one}
    - {count: 3, gpus: 4, model: h100, name: y, domain: two}
    - {count: 1, gpus: 4, model: h100, name: z, domain: three}
budgets: {a: {share: 1}}
settings: {SETTINGS, grace: 0s, debug_hosts: 1}
workloads:
  - {id: s1, submit: 0s, budget: a, gpus: 1, runtime: 1h, min_runtime: 1h}
  - {id: s2, submit: 1s, budget: a, gpus: 2, runtime: 1h, min_runtime: 1h}
  - {id: g1, submit: 2s, budget: a, gpus: 10, runtime: 1h, min_runtime: 1h}
  - {id: d1, submit: 3s, budget: a, gpus: 4, runtime: 10m, min_runtime: 10m}
  - {id: d2, submit: 4s, budget: a, gpus: 4, runtime: 10m, min_runtime: 10m}
  - {id: f1, submit: 5s, budget: a, gpus: 2, runtime: 10m, min_runtime: 10m}
";

const PLACES_LOG: &str = "
0 submitted s1
0 started s1 #1 until=3600 rule=8 on=x-0:1
1 submitted s2
1 started s2 #1 until=3601 rule=8 on=x-0:2
2 submitted g1
2 started g1 #1 until=3602 rule=8 on=y-0:4,y-1:4,y-2:2
3 submitted d1
3 started d1 #1 until=603 rule=8 on=x-1:4
4 submitted d2
4 started d2 #1 until=604 rule=8 on=z:4
5 submitted f1
5 started f1 #1 until=605 rule=8 on=y-2:2
";

#[test]
fn placement_follows_rule_8() {
    let scenario = PLACES.replace(", }", "}");
    history(
        &scenario,
        PLACES_LOG,
        &[
            ("until=3601 rule=8 on=x-0:2", "until=3601 rule=8 on=y-0:2", Check::Fullest),
            ("until=3600 rule=8 on=x-0:1", "until=3600 rule=8 on=x-1:1", Check::Fullest),
            ("until=3601 rule=8 on=x-0:2", "until=3601 rule=8 on=x-0:1,x-1:1", Check::Shape),
            ("on=y-0:4,y-1:4,y-2:2", "on=y-0:4,y-1:3,y-2:3", Check::Shape),
            ("on=y-0:4,y-1:4,y-2:2", "on=y-0:4,x-1:4,y-2:2", Check::Fullest),
            ("on=y-0:4,y-1:4,y-2:2", "on=y-0:4,y-1:4,y-0:2", Check::Shape),
            ("on=y-0:4,y-1:4,y-2:2", "on=y-0:4,y-1:4,z:2", Check::DebugHosts),
            ("until=3600 rule=8 on=x-0:1", "until=3600 rule=8 on=z:1", Check::DebugHosts),
            ("until=604 rule=8 on=z:4", "until=604 rule=8 on=x-1:4", Check::HostUse),
            ("until=604 rule=8 on=z:4", "until=604 rule=8 on=nowhere:4", Check::Log),
        ],
    );
}

const RESERVED: &str = "
cluster: {hosts: [{count: 3, gpus: 4, model: h100, name: h}]}
budgets: {a: {share: 1}, b: {share: 2}, c: {share: 1}}
settings: {SETTINGS, grace: 30s, debug_hosts: 0, reservations: 1}
workloads:
  - {id: a1, submit: 0s, budget: a, gpus: 4, runtime: 9h, min_runtime: 2h, resumable: true}
  - {id: a2, submit: 0s, budget: a, gpus: 4, runtime: 9h, min_runtime: 2h, resumable: true}
  - {id: b1, submit: 10m, budget: b, gpus: 8, runtime: 1h, min_runtime: 1h}
  - {id: b2, submit: 10m, budget: b, gpus: 12, runtime: 1h, min_runtime: 1h}
  - {id: c1, submit: 20m, budget: c, gpus: 2, runtime: 1h, min_runtime: 1h}
  - {id: c2, submit: 30m, budget: c, gpus: 2, runtime: 2h, min_runtime: 2h}
  - {id: u1, submit: 40m, budget: c, gpus: 2, runtime: 5h, resumable: true}
";

const RESERVED_LOG: &str = "
0 submitted a1
0 submitted a2
0 started a1 #1 until=7200 rule=8 on=h-0:4
0 started a2 #1 until=7200 rule=8 on=h-1:4
600 submitted b1
600 submitted b2
600 reserved b1 until=7200 rule=7 on=h-0:4,h-2:4
1200 submitted c1
1200 started c1 #1 until=4800 rule=8 on=h-2:2
1800 submitted c2
2400 submitted u1
2400 started u1 #1 free=1 rule=1 on=h-2:2
4800 completed c1 #1
7200 preempted u1 #1 by=b1 rule=6
7200 preempted a1 #1 by=b1 rule=7
7210 requeued u1 #1
7230 requeued a1 #1
7230 started b1 #1 until=10830 rule=7 on=h-0:4,h-2:4
10830 completed b1 #1
";

#[test]
fn reservations_are_kept() {
    history(
        RESERVED,
        RESERVED_LOG,
        &[
            // c2 would be protected beyond T.
            (
                "1800 submitted c2",
                "1800 submitted c2\n1800 started c2 #1 until=9000 rule=8 on=h-2:2",
                Check::PromiseHosts,
            ),
            ("600 reserved b1 until=7200", "600 reserved b1 until=7800.001", Check::PromiseMade),
            (
                "1800 submitted c2",
                "1800 submitted c2\n1800 reserved b1 until=7200.001 on=h-0:4,h-2:4",
                Check::PromiseMade,
            ),
            ("1800 submitted c2", "1800 submitted c2\n1800 unreserved b1", Check::PromiseKept),
            (
                "1800 submitted c2",
                "1800 submitted c2\n1800 reserved b2 until=7200 on=h-0:4,h-1:4,h-2:4",
                Check::PromiseMade,
            ),
            ("rule=7 on=h-0:4,h-2:4\n10830", "rule=7 on=h-1:4,h-2:4\n10830", Check::PromiseKept),
        ],
    );
    let late = RESERVED_LOG.replace("7200 preempted", "7200.001 preempted");
    let late = late.replace("7230", "7230.001").replace("10830", "10830.001");
    let report = judge(RESERVED, &late);
    let kept = |v: &&bursar_verify::Violation| v.check == Check::PromiseKept;
    let late = report.violations.iter().find(kept).expect("late");
    assert!(late.message.contains("30001 ms later"), "{late}");
    // Before T, the others are taken only by rule 6.
    let early = RESERVED_LOG.replace("7200 preempted", "7199 preempted");
    assert!(judge(RESERVED, &early).violations.iter().any(|v| v.check == Check::Protected));
    // Never at all.
    let never = RESERVED_LOG.split("7200 preempted u1").next().expect("a beginning");
    let never = format!("{never}7300 cancelled c2\n");
    assert!(judge(RESERVED, &never).violations.iter().any(|v| v.check == Check::PromiseKept));
}

#[test]
fn a_reservation_moves_later_only_if_a_host_is_lost() {
    let lost = RESERVED
        .replace("workloads:", "hosts_events: [{at: 30m, host: h-2, event: fail}]\nworkloads:");
    let log = "
0 submitted a1
0 submitted a2
0 started a1 #1 until=7200 rule=8 on=h-0:4
0 started a2 #1 until=7200 rule=8 on=h-1:4
600 submitted b1
600 submitted b2
600 reserved b1 until=7100 rule=7 on=h-0:4,h-2:4
1200 submitted c1
1800 host_down @h-2
1800 reserved b1 until=7200 rule=7 on=h-0:4,h-1:4
1800 submitted c2
2400 submitted u1
";
    let named = |log: &str, host: &str| log.replace("@h-2", host);
    assert!(judge(&lost, log).is_clean(), "{}", judge(&lost, log));
    assert!(!judge(&lost, &named(log, "@h-1")).is_clean());
    assert!(!judge(&lost, &log.replace("1800 host_down @h-2\n", "")).is_clean());
    assert!(!judge(RESERVED, log).is_clean());
}

#[test]
fn hosts_drain_and_fail_by_rule_9() {
    let scenario = "
cluster: {hosts: [{count: 1, gpus: 4, model: h100, name: h0}, {count: 1, gpus: 4, model: h100, name: h1}]}
budgets: {a: {share: 1}, b: {share: 1}}
settings: {SETTINGS, grace: 0s, debug_hosts: 0}
hosts_events:
  - {at: 30m, host: h0, event: drain}
  - {at: 2h, host: h1, event: fail}
  - {at: 3h, host: h0, event: repair}
workloads:
  - {id: a1, submit: 0s, budget: a, gpus: 2, runtime: 9h, min_runtime: 1h, resumable: true}
  - {id: u1, submit: 0s, budget: b, gpus: 2, runtime: 9h}
  - {id: b1, submit: 40m, budget: b, gpus: 2, runtime: 9h, min_runtime: 2h}
";
    let log = "
0 submitted a1
0 submitted u1
0 started a1 #1 until=3600 rule=8 on=h0:2
0 started u1 #1 free=1 rule=1 on=h0:2
1800 drain_started @h0
1800 preempted u1 #1 rule=9
1800 terminated u1 #1
2400 submitted b1
2400 started b1 #1 until=9600 rule=8 on=h1:2
3600 preempted a1 #1 rule=9
3600 requeued a1 #1
3600 drained @h0
3600 started a1 #2 until=7200 rule=8 on=h1:2
7200 host_down @h1
7200 host_failed a1 #2
7200 requeued a1 #2
7200 host_failed b1 #1
10800 host_up @h0
10800 started a1 #3 until=14400 rule=8 on=h0:2
14400 protection_ended a1 #3
";
    history(
        scenario,
        log,
        &[
            (
                "2400 started b1 #1 until=9600 rule=8 on=h1:2",
                "2400 started b1 #1 until=9600 rule=8 on=h0:2",
                Check::Drain,
            ),
            ("1800 preempted u1 #1 rule=9\n1800 terminated u1 #1\n", "", Check::Drain),
            ("3600 preempted a1 #1 rule=9", "3599 preempted a1 #1 rule=9", Check::Protected),
            ("3600 drained @h0\n", "", Check::Drain),
            ("3600 drained @h0\n", "3600 drained @h1\n", Check::Log),
            ("2400 submitted b1", "2400 drained @h0\n2400 submitted b1", Check::Drain),
            ("7200 host_failed b1 #1\n", "", Check::HostUse),
            ("7200 host_failed b1 #1\n", "", Check::Conservation),
            ("7200 requeued a1 #2\n", "", Check::Log),
            ("7200 host_down @h1\n", "", Check::Log),
            ("10800 host_up @h0\n", "", Check::HostUse),
            ("10800 host_up @h0\n", "10799 host_up @h0\n", Check::Log),
        ],
    );
    let report = judge(scenario, log);
    assert_eq!(report.policies[0].breaches.host_failed, 1);
    let totals = report.policies[0].totals;
    assert_eq!(totals.out_of_service_gpu_ms, (7_200 + 7_200) * 4 * 1000);
    let sum = totals.allocated_gpu_ms + totals.unallocated_gpu_ms + totals.idle_gpu_ms;
    assert_eq!(sum + totals.out_of_service_gpu_ms, totals.all_gpu_ms);
}

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
fn a_log_that_is_none_is_an_error_that_names_the_line() {
    let scenario = SWAP.replace("SETTINGS", SETTINGS);
    let scenario = bursar_scenario::load_str(&scenario, Path::new(""), "test", &[]).expect("good");
    let good = json(SWAP_LOG);
    for (bad, line) in [
        (format!("{good}{{\"t\":"), 12),
        (format!("nonsense\n{good}"), 1),
        (good.replace("\"submitted\"", "\"sublimated\""), 1),
        (format!("{good}{}", json("1 drained @h0 policy=x\n1 drained @h0")), 13),
    ] {
        let error = verify(bad.as_bytes(), &scenario).expect_err("not a log");
        let VerifyError::Malformed { line: named, .. } = &error else { panic!("{error}") };
        assert_eq!(*named, line, "{error}");
        assert_eq!(error.to_string().lines().count(), 1);
    }
    assert!(verify("".as_bytes(), &scenario).expect("an empty log").is_clean());
}

#[test]
fn the_report_shows_what_was_checked_and_serializes() {
    let report = judge(SWAP, &SWAP_LOG.replace("4500 preempted", "4499.999 preempted"));
    let text = report.to_string();
    for part in ["rule  6  the preemption is allowed", "VIOLATED 1", "t=4499.999", "checked"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert_eq!(report.policies[0].checks.len(), Check::ALL.len());
    let value = serde_json::to_value(&report).expect("serializes");
    assert_eq!(value["violations"][0]["rule"], 6);
    assert_eq!(value["violations"][0]["workload"], "a1");
    assert_eq!(value["policies"][0]["policy"], "budget");
}

/// A small generator, so that a failure repeats.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

#[test]
fn no_log_makes_it_panic() {
    let placed = PLACES.to_string();
    for (scenario, log) in [(SWAP, SWAP_LOG), (RESERVED, RESERVED_LOG), (&placed, PLACES_LOG)] {
        let scenario = scenario.replace("SETTINGS", SETTINGS);
        let scenario = bursar_scenario::load_str(&scenario, Path::new(""), "test", &[]);
        let scenario = scenario.expect("a good scenario");
        let lines: Vec<String> = json(log).lines().map(String::from).collect();
        let names = ["a1", "b1", "u1", "c1", "h-0", "h0", "x-0"];
        for seed in 0..1_500 {
            let mut draw = Draw(seed);
            let mut lines = lines.clone();
            for _ in 0..=draw.below(4) {
                let (one, other) = (draw.below(lines.len()), draw.below(lines.len()));
                match draw.below(6) {
                    0 => drop(lines.remove(one)),
                    1 => lines.insert(one, lines[other].clone()),
                    2 => lines.swap(one, other),
                    3 => {
                        let (from, to) = (draw.below(names.len()), draw.below(names.len()));
                        lines[one] = lines[one].replace(names[from], names[to]);
                    }
                    4 => {
                        let (from, to) = (draw.below(10), draw.below(10));
                        lines[one] = lines[one].replace(&from.to_string(), &to.to_string());
                    }
                    _ => {
                        let events = ["started", "preempted", "requeued", "completed", "reserved"];
                        let (from, to) = (draw.below(5), draw.below(5));
                        lines[one] = lines[one].replace(events[from], events[to]);
                    }
                }
            }
            // An error or a report, whatever the text.
            drop(verify(lines.join("\n").as_bytes(), &scenario));
        }
    }
}
