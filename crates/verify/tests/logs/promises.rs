//! Rule 7: reservations.

use crate::dsl::{history, judge};
use bursar_verify::Check;

pub(crate) const RESERVED: &str = "
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

pub(crate) const RESERVED_LOG: &str = "
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
7230 started b1 #1 until=10830 decided=7200 rule=7 on=h-0:4,h-2:4
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
    let late = late.replace("decided=7200", "decided=7200.001");
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
fn a_holder_that_is_not_funded_any_more_is_given_up() {
    let log = RESERVED_LOG.split("1800 submitted c2").next().expect("a beginning");
    let log = format!("{log}1800 unreserved b1\n1800 submitted c2");
    let with = |changes: &str| RESERVED.replace("workloads:", &format!("{changes}\nworkloads:"));
    let given_up = |scenario: &str, log: &str| {
        let report = judge(scenario, log);
        assert!(report.violations.iter().all(|v| v.check == Check::PromiseKept), "{report}");
        report.is_clean()
    };
    let unfunded = with("budget_changes: [{at: 30m, budget: b, share: 0}]");
    assert!(given_up(&unfunded, &log));
    // Not before it has lost its share, and not if it has only lost a part.
    let early = log.replace("1800 unreserved b1\n", "");
    let early = early.replace("1200 submitted c1", "1199 unreserved b1\n1200 submitted c1");
    assert!(!given_up(&unfunded, &early));
    assert!(!given_up(&with("budget_changes: [{at: 30m, budget: b, share: 1}]"), &log));
    assert!(!given_up(RESERVED, &log));
    // With room for its contract of 8 GPU-hours under a limit it must stay, without it must never be made.
    let limited =
        |hours: u32| RESERVED.replace("b: {share: 2}", &format!("b: {{share: 2, limit: {hours}}}"));
    assert!(!given_up(&limited(8), &log));
    let report = judge(&limited(7), &log);
    let at: Vec<(f64, Check)> = report.violations.iter().map(|v| (v.t, v.check)).collect();
    let (made, kept) = (Check::PromiseMade, Check::PromiseKept);
    assert_eq!(at, [(600.0, made), (600.0, kept), (1200.0, kept)], "{report}");
}

#[test]
fn a_reservation_stands_only_where_limits_have_room() {
    // What s1 runs past its contract leaves no room at 1:15 for p's 8 GPU-hours on y, but for 4 on x.
    let scenario = "
cluster: {hosts: [{count: 1, gpus: 4, model: y, name: y}, {count: 2, gpus: 4, model: x, name: x}], rates: {y: 2}}
budgets: {big: {share: 1}, small: {share: 1, limit: 13}}
settings: {lookback: 8h, horizon: 2h, reservation_age: 1h, startup: 0s, grace: 0s}
workloads:
  - {id: b1, submit: 0s, budget: big, gpus: 4, runtime: 9h, min_runtime: 90m, gpu_model: y}
  - {id: b2, submit: 0s, budget: big, gpus: 4, runtime: 9h, min_runtime: 2h, gpu_model: x}
  - {id: s1, submit: 0s, budget: small, gpus: 4, runtime: 9h, min_runtime: 10m, gpu_model: x}
  - {id: p, submit: 20m, budget: small, gpus: 4, runtime: 1h, min_runtime: 1h}
  - {id: u1, submit: 80m, budget: big, gpus: 4, runtime: 1h}
";
    let log = "
0 submitted b1
0 submitted b2
0 submitted s1
0 started b1 #1 until=5400 rule=8 on=y:4
0 started s1 #1 until=600 rule=8 on=x-0:4
0 started b2 #1 until=7200 rule=8 on=x-1:4
600 protection_ended s1
1200 submitted p
1200 reserved p until=5400 rule=7 on=y:4
4501 reserved p until=7200 rule=7 on=x-1:4
4800 submitted u1
";
    let again = "4501 reserved p until=7200 rule=7 on=x-1:4\n";
    history(
        scenario,
        log,
        &[
            (again, "", Check::PromiseKept),
            (again, "4501 reserved p until=7200 rule=7 on=y:4\n", Check::PromiseMade),
            ("4501 reserved", "4499 reserved", Check::PromiseMade),
        ],
    );
}
