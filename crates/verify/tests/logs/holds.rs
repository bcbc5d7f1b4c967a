//! Starts that wait for others to leave: when they are decided, and what becomes of them where a host is lost.

use crate::dsl::{history, judge};
use bursar_verify::Check;

fn finds(scenario: &str, log: &str, check: Check) {
    let report = judge(scenario, log);
    assert!(report.violations.iter().any(|v| v.check == check), "{check:?} in\n{report}");
}

fn is_clean(scenario: &str, log: &str) {
    let report = judge(scenario, log);
    assert!(report.is_clean(), "{report}");
}

/// b1 is promised h0 and decided at 2h; while it waits for a1 to leave, h0 fails.
const LOST: &str = "
cluster: {hosts: [{count: 1, gpus: 4, model: h100, name: h0}]}
budgets: {a: {share: 1}, b: {share: 1}}
settings: {SETTINGS, grace: 5m, debug_hosts: 0}
hosts_events:
  - {at: 2h1m, host: h0, event: fail}
  - {at: 6h, host: h0, event: repair}
workloads:
  - {id: a1, submit: 0s, budget: a, gpus: 4, runtime: 9h, min_runtime: 2h}
  - {id: b1, submit: 10m, budget: b, gpus: 4, runtime: 1h, min_runtime: 1h}
";

const LOST_LOG: &str = "
0 submitted a1
0 started a1 #1 until=7200 rule=8 on=h0:4
600 submitted b1
600 reserved b1 until=7200 rule=7 on=h0:4
7200 protection_ended a1 #1
7200 preempted a1 #1 by=b1 rule=6
7260 host_down @h0
7260 host_failed a1 #1
7260 unreserved b1
21600 host_up @h0
21600 started b1 #1 until=25200 rule=8 on=h0:4
";

#[test]
fn a_hold_is_dissolved_where_a_host_fails_and_by_nothing_else() {
    is_clean(LOST, LOST_LOG);
    let calm = LOST
        .replace("  - {at: 2h1m, host: h0, event: fail}\n", "")
        .replace("  - {at: 6h, host: h0, event: repair}\n", "")
        .replace("hosts_events:\n", "");
    let stays = LOST_LOG
        .replace(
            "7260 host_down @h0\n7260 host_failed a1 #1\n7260 unreserved b1",
            "7260 terminated a1 #1",
        )
        .replace("21600 host_up @h0\n", "");
    finds(&calm, &stays, Check::Log);
    finds(&calm, &stays, Check::PromiseKept);
    let in_time = stays
        .replace("21600 started", "7260 started")
        .replace("until=25200 rule=8", "until=10860 decided=7200 rule=6");
    is_clean(&calm, &in_time);
    // Rule 7's promise was not kept by that start's decision alone.
    let late = in_time.replace("7260", "7500.001").replace("10860", "11100.001");
    finds(&calm, &late, Check::PromiseKept);
    finds(&calm, &late, Check::Grace);
}

#[test]
fn decided_is_a_moment_at_which_it_waited_and_its_hosts_outlast_it() {
    let log = LOST_LOG.replace("until=25200 rule=8", "until=25200 decided=21600 rule=8");
    history(
        LOST,
        &log,
        &[
            ("decided=21600", "decided=599", Check::Log),
            ("decided=21600", "decided=21601", Check::Log),
            // h0 failed since.
            ("decided=21600", "decided=7200", Check::Log),
        ],
    );
}

#[test]
fn a_promise_comes_back_with_the_work_whose_hold_is_lost() {
    // b1 has its reservation again when h0 drains, made anew, even if later. In the meantime another was made,
    // which may stay: it was the only one when it was made.
    let scenario = "
cluster:
  hosts:
    - {count: 2, gpus: 4, model: h100, name: h}
    - {count: 1, gpus: 4, model: b200, name: z}
budgets: {a: {share: 1}, b: {share: 1}}
settings: {SETTINGS, grace: 5m, debug_hosts: 0, reservations: 1}
hosts_events: [{at: 2h1m, host: h-0, event: drain}]
workloads:
  - {id: a1, submit: 0s, budget: a, gpus: 4, runtime: 9h, min_runtime: 2h}
  - {id: a2, submit: 0s, budget: a, gpus: 4, runtime: 9h, min_runtime: 2h}
  - {id: a3, submit: 0s, budget: a, gpus: 4, runtime: 9h, min_runtime: 2h}
  - {id: b1, submit: 10m, budget: b, gpus: 4, gpu_model: h100, runtime: 1h, min_runtime: 1h}
  - {id: b2, submit: 20m, budget: b, gpus: 4, gpu_model: b200, runtime: 1h, min_runtime: 1h}
  - {id: b3, submit: 20m, budget: b, gpus: 4, gpu_model: b200, runtime: 1h, min_runtime: 1h}
";
    let log = "
0 submitted a1
0 submitted a2
0 submitted a3
0 started a1 #1 until=7200 rule=8 on=h-0:4
0 started a2 #1 until=7200 rule=8 on=h-1:4
0 started a3 #1 until=7200 rule=8 on=z:4
600 submitted b1
600 reserved b1 until=7200 rule=7 on=h-0:4
1200 submitted b2
1200 submitted b3
7200 protection_ended a1 #1
7200 protection_ended a2 #1
7200 protection_ended a3 #1
7200 preempted a1 #1 by=b1 rule=6
7200 reserved b2 until=9000 rule=7 on=z:4
7260 drain_started @h-0
7260 reserved b1 until=14460 rule=7 on=h-1:4
7400 terminated a1 #1
7400 drained @h-0
";
    history(
        scenario,
        log,
        &[
            // By max(H, A) from then on, on hosts that are nobody else's, and at once or never.
            (
                "7260 reserved b1 until=14460",
                "7260 reserved b1 until=14460.001",
                Check::PromiseMade,
            ),
            ("rule=7 on=h-1:4", "rule=7 on=h-0:4", Check::PromiseMade),
            ("until=14460 rule=7 on=h-1:4", "until=14460 rule=7 on=z:4", Check::PromiseMade),
            ("7260 reserved b1", "7260.001 reserved b1", Check::PromiseKept),
            // Nobody else gets one beside those two, and b1 none while its start is decided.
            ("7260 reserved b1", "7260 reserved b3", Check::PromiseMade),
            ("7200 reserved b2", "7200 reserved b1", Check::PromiseMade),
        ],
    );
    is_clean(scenario, &log.replace("reserved b1 until=14460 rule=7 on=h-1:4", "unreserved b1"));
    // Without the drain it is not lost.
    let calm = scenario.replace("hosts_events: [{at: 2h1m, host: h-0, event: drain}]\n", "");
    let log = log.replace("7260 drain_started @h-0\n", "").replace("7400 drained @h-0\n", "");
    finds(&calm, &log, Check::PromiseMade);
}

/// a1 leaves h-0 for b1, which leaves one of its GPUs to spare; b2 is decided at the same moment for that one
/// and the two that are idle.
const UNSEEN: &str = "
cluster: {hosts: [{count: 2, gpus: 6, model: h100, name: h}]}
budgets: {p: {share: 1, children: {a: {share: 1}, b: {share: 1}}}}
settings: {SETTINGS, grace: 5m, debug_hosts: 0, reservations: 1}
workloads:
  - {id: a1, submit: 0s, budget: p/a, gpus: 4, runtime: 9h, min_runtime: 30m}
  - {id: a2, submit: 0s, budget: p/a, gpus: 6, runtime: 3650s, min_runtime: 1h}
  - {id: b1, submit: 1h, budget: p/b, gpus: 3, runtime: 9h, min_runtime: 1h}
  - {id: b2, submit: 1h, budget: p/b, gpus: 3, runtime: 9h, min_runtime: 1h}
  - {id: b3, submit: 1h, budget: p/b, gpus: 3, runtime: 9h, min_runtime: 1h}
  - {id: b4, submit: 1h, budget: p/b, gpus: 1, runtime: 9h, min_runtime: 45m}
";

const UNSEEN_LOG: &str = "
0 submitted a1
0 submitted a2
0 started a1 #1 until=1800 rule=8 on=h-0:4
0 started a2 #1 until=3600 rule=8 on=h-1:6
1800 protection_ended a1 #1
3600 protection_ended a2 #1
3600 submitted b1
3600 submitted b2
3600 submitted b3
3600 submitted b4
3600 preempted a1 #1 by=b1 rule=6
3650 completed a2 #1
3650 started b3 #1 until=7250 rule=8 on=h-1:3
3650 started b4 #1 until=6350 rule=8 on=h-1:1
3900 terminated a1 #1
3900 started b1 #1 until=7500 decided=3600 rule=6 on=h-0:3
3900 started b2 #1 until=7500 decided=3600 rule=8 on=h-0:3
";

/// The same, but that h-0 drains before a1 is gone, and is back a minute later.
fn drained(scenario: &str, log: &str) -> (String, String) {
    let events =
        "hosts_events: [{at: 62m, host: h-0, event: drain}, {at: 63m, host: h-0, event: repair}]";
    let log = log
        .replace("3900 terminated", "3720 drain_started @h-0\n3780 host_up @h-0\n3900 terminated")
        .replace("decided=3600 rule=6", "decided=3780 rule=8")
        .replace("decided=3600 rule=8", "decided=3780 rule=8");
    (scenario.replace("workloads:", &format!("{events}\nworkloads:")), log)
}

#[test]
fn an_unseen_decision_holds_gpus_from_its_moment_on() {
    // b3 comes after b2, and b4 is not on the host that seems to be the fuller one.
    is_clean(UNSEEN, UNSEEN_LOG);
    let at_once = UNSEEN_LOG.replace("decided=3600 rule=8", "rule=8");
    finds(UNSEEN, &at_once, Check::Order);
    finds(UNSEEN, &at_once, Check::Fullest);
    let late = UNSEEN_LOG.replace("decided=3600 rule=8", "decided=3650.001 rule=8");
    finds(UNSEEN, &late, Check::Order);
}

#[test]
fn a_hold_that_was_lost_unseen_explains_as_much() {
    let (scenario, log) = drained(UNSEEN, UNSEEN_LOG);
    is_clean(&scenario, &log);
    // Not when nobody had begun to leave, and not after the loss.
    let (begun, drains) = ("3600 preempted a1 #1 by=b1 rule=6\n", "3720 drain_started @h-0\n");
    let seen = "3650 completed a2 #1\n3650 started b3 #1 until=7250 rule=8 on=h-1:3\n3650 started b4 #1 \
                until=6350 rule=8 on=h-1:1\n";
    assert!(log.contains(seen));
    let before = log
        .replace(begun, "")
        .replace(drains, &format!("3700 preempted a1 #1 by=b1 rule=6\n{drains}"));
    finds(&scenario, &before, Check::Order);
    finds(&scenario, &before, Check::Fullest);
    let scenario = scenario.replace("3650s", "3720s");
    let after = log.replace(seen, "").replace(
        drains,
        &format!(
            "{drains}{}",
            seen.replace("3650", "3720").replace("7250", "7320").replace("6350", "6420")
        ),
    );
    finds(&scenario, &after, Check::Order);
}

#[test]
fn a_reservation_is_made_anew_after_an_unseen_hold() {
    // b2 is decided for h-0 at once and loses that hold. While it was held b3 got the one reservation that
    // there may be; now b2 has its own again, and later.
    let log = UNSEEN_LOG.split("3650 completed").next().expect("a beginning");
    let log = format!(
        "{log}3600 reserved b2 until=7200 rule=7 on=h-1:3\n3650 completed a2 #1\n\
         3720 drain_started @h-0\n3720 reserved b2 until=9000 rule=7 on=h-1:3\n\
         3900 terminated a1 #1\n3900 drained @h-0\n"
    );
    let (scenario, _) = drained(UNSEEN, "");
    let scenario = scenario.replace(", {at: 63m, host: h-0, event: repair}", "");
    is_clean(&scenario, &log);
    let other = "3650 completed a2 #1\n3650 reserved b3 until=7200 rule=7 on=";
    let beside = log.replace("3650 completed a2 #1\n", &format!("{other}h-0:3\n"));
    is_clean(&scenario, &beside.replace("3900 term", "3720 unreserved b3\n3900 term"));
    finds(
        &scenario,
        &log.replace("3650 completed a2 #1\n", &format!("{other}h-1:3\n")),
        Check::PromiseMade,
    );
    let late = log.replace("3720 reserved", "3720.001 reserved");
    finds(&scenario, &late, Check::PromiseMade);
    let calm = log.replace("3720 drain_started @h-0\n", "").replace("3900 drained @h-0\n", "");
    let calm = format!("{calm}3900 started b1 #1 until=7500 decided=3600 rule=6 on=h-0:3");
    finds(UNSEEN, &calm, Check::PromiseMade);
}

#[test]
fn an_unseen_decision_is_stamped_by_what_holds_at_its_moment() {
    // When b2 is decided, p has used 10 GPU-hours of its 20 and b1 and b2 ask for 6. When it starts, 10.2 are
    // used or promised to others, and there would be no room.
    let limited = UNSEEN.replace("p: {share: 1,", "p: {share: 1, limit: 20,");
    is_clean(&limited, UNSEEN_LOG);
    finds(&limited, &UNSEEN_LOG.replace("decided=3600 rule=8", "rule=8"), Check::Class);
    finds(&limited.replace("limit: 20", "limit: 15"), UNSEEN_LOG, Check::Class);
}
