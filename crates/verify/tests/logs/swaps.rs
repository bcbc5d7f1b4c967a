//! Rules 1, 5 and 6: who may be made to leave, and what that gives.

use crate::dsl::{checked, history, judge};
use bursar_verify::Check;

pub(crate) const SWAP: &str = "
cluster: {hosts: [{count: 1, gpus: 8, model: h100, name: h0}]}
budgets: {a: {share: 1}, b: {share: 1}}
settings: {SETTINGS, grace: 30s, debug_hosts: 0}
workloads:
  - {id: a1, submit: 0s, budget: a, gpus: 8, runtime: 4h, min_runtime: 30m, resumable: true}
  - {id: b1, submit: 10m, budget: b, gpus: 8, runtime: 1h, min_runtime: 1h}
";

// b holds 20 GPU-hours of 40 allocated ones after 10 of 8: 8/40 + 0.05 = 10/40, so at 1h15m.
pub(crate) const SWAP_LOG: &str = "
0 submitted a1
0 started a1 #1 until=1800 rule=8 on=h0:8
600 submitted b1
1800 protection_ended a1 #1
4500 preempted a1 #1 by=b1 rule=6
4512.5 requeued a1 #1
4512.5 started b1 #1 until=8112.5 decided=4500 rule=6 on=h0:8
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
    let log = log.replace("decided=4500 rule=6", "decided=4500 rule=7");
    history(SWAP, &log, &[]);
    let early = judge(SWAP, &log.replace("4500", "4499.999"));
    assert!(early.violations.iter().any(|v| v.check == Check::Swap), "{early}");
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
4510 started b1 #1 until=8110 decided=4480 rule=6 on=h-0:4
4530 requeued a2 #1
4530 started b2 #1 until=8130 decided=4500 rule=6 on=h-1:4
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

pub(crate) const TWO_HOSTS: &str = "
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
fn idle_hosts_that_are_too_small_spare_nobody() {
    // 5 + 3 GPUs of the small hosts would be enough, but what fits one host is never split.
    let scenario = "
cluster: {hosts: [{count: 2, gpus: 8, model: h100, name: b}, {count: 2, gpus: 5, model: h100, name: s}]}
budgets: {a: {share: 1}, b: {share: 3}}
settings: {SETTINGS, grace: 0s, debug_hosts: 0}
workloads:
  - {id: v1, submit: 0s, budget: a, gpus: 8, runtime: 9h, min_runtime: 30m, resumable: true}
  - {id: v2, submit: 0s, budget: a, gpus: 8, runtime: 9h, min_runtime: 30m, resumable: true}
  - {id: b1, submit: 3h, budget: b, gpus: 8, runtime: 1h, min_runtime: 1h}
";
    let log = "
0 submitted v1
0 submitted v2
0 started v1 #1 until=1800 rule=8 on=b-0:8
0 started v2 #1 until=1800 rule=8 on=b-1:8
10800 submitted b1
10800 preempted v2 #1 by=b1 rule=6
10800 requeued v2 #1
10800 started b1 #1 until=14400 rule=6 on=b-1:8
";
    let both = "10800 preempted v1 #1 by=b1 rule=6\n10800 preempted v2 #1 by=b1 rule=6";
    history(
        scenario,
        log,
        &[
            ("10800 preempted v2 #1 by=b1 rule=6", both, Check::Minimal),
            ("rule=6 on=b-1:8", "rule=6 on=s-0:5,s-1:3", Check::Shape),
        ],
    );
    // On small hosts of 8 it would have had to take those.
    let found = judge(&scenario.replace("gpus: 5", "gpus: 8"), log);
    assert!(found.violations.iter().any(|v| v.check == Check::Minimal), "{found}");
}
