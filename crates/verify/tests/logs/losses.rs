//! What attempts lost, and what may be refused.

use crate::dsl::{checked, history, json, judge, scenario};
use bursar_scenario::Scenario;
use bursar_verify::{Check, verify};

/// Every start takes 10 minutes. i1 saves every 30 minutes of work, s1 when it is told to go, and c1, which
/// takes longer to save than it is given, does not.
const LOSSES: &str = "
cluster: {hosts: [{count: 5, gpus: 2, model: h100, name: h}]}
budgets: {a: {share: 1}, b: {share: 3}}
settings: {lookback: 8h, horizon: 2h, grace: 1m, startup: 10m, debug_hosts: 0}
hosts_events:
  - {at: 2h, host: h-2, event: drain}
  - {at: 2h, host: h-4, event: drain}
  - {at: 2h, host: h-0, event: drain}
  - {at: 2h, host: h-1, event: fail}
  - {at: 2h, host: h-3, event: drain}
  - {at: 3h, host: h-2, event: repair}
  - {at: 3h, host: h-3, event: repair}
  - {at: 3h, host: h-0, event: repair}
  - {at: 3h, host: h-1, event: repair}
workloads:
  - {id: i1, submit: 0s, budget: a, gpus: 2, runtime: 3h, min_runtime: 1h, resumable: true, checkpoint_interval: 30m}
  - {id: s1, submit: 0s, budget: a, gpus: 2, runtime: 3h, min_runtime: 1h, resumable: true, checkpoint_on_signal: true, save_time: 20s}
  - {id: c1, submit: 0s, budget: a, gpus: 2, runtime: 3h, min_runtime: 1h, resumable: true, checkpoint_on_signal: true, save_time: 2m}
  - {id: f1, submit: 0s, budget: a, gpus: 2, runtime: 3h, min_runtime: 1h, resumable: true, checkpoint_interval: 30m, checkpoint_on_signal: true}
  - {id: n1, submit: 0s, budget: a, gpus: 2, runtime: 3h, min_runtime: 1h}
";

// At 2:00 each is 1:50 of work old, and leaves a minute later. i1 saved at 1:30 of work: 21 min are lost. s1 saved
// what it had at the signal: nothing. c1: all 1:51. f1's host fails: 20 min, saved at 1:30. n1: 2:01, start-up and all.
// The second start-up is lost, too: 10 min. i1 and f1 have 1:30 left, s1 1:10, c1 all three hours.
const LOSSES_LOG: &str = "
0 submitted i1
0 submitted s1
0 submitted c1
0 submitted f1
0 submitted n1
0 started c1 #1 until=3600 rule=8 on=h-0:2
0 started f1 #1 until=3600 rule=8 on=h-1:2
0 started i1 #1 until=3600 rule=8 on=h-2:2
0 started n1 #1 until=3600 rule=8 on=h-3:2
0 started s1 #1 until=3600 rule=8 on=h-4:2
3600 protection_ended i1 #1
3600 protection_ended s1 #1
3600 protection_ended c1 #1
3600 protection_ended f1 #1
3600 protection_ended n1 #1
7200 drain_started @h-2
7200 drain_started @h-4
7200 drain_started @h-0
7200 host_down @h-1
7200 host_failed f1 #1 lost=2400
7200 requeued f1 #1 lost=2400
7200 drain_started @h-3
7200 preempted i1 #1 rule=9
7200 preempted s1 #1 rule=9
7200 preempted c1 #1 rule=9
7200 preempted n1 #1 rule=9
7220 requeued s1 #1 lost=0
7220 drained @h-4
7260 requeued i1 #1 lost=2520
7260 drained @h-2
7260 requeued c1 #1 lost=13320
7260 drained @h-0
7260 terminated n1 #1 lost=14520
7260 drained @h-3
10800 host_up @h-0
10800 host_up @h-1
10800 host_up @h-2
10800 host_up @h-3
10800 started c1 #2 until=14400 rule=8 on=h-0:2
10800 started f1 #2 until=14400 rule=8 on=h-1:2
10800 started i1 #2 until=14400 rule=8 on=h-2:2
10800 started s1 #2 until=14400 rule=8 on=h-3:2
14400 protection_ended c1 #2
14400 protection_ended f1 #2
14400 protection_ended i1 #2
14400 protection_ended s1 #2
15600 completed s1 #2 lost=1200
16800 completed f1 #2 lost=1200
16800 completed i1 #2 lost=1200
22200 completed c1 #2 lost=1200
";

#[test]
fn what_each_attempt_lost_follows_from_its_times() {
    history(
        LOSSES,
        LOSSES_LOG,
        &[
            ("requeued i1 #1 lost=2520", "requeued i1 #1 lost=2519.999", Check::Lost),
            ("requeued i1 #1 lost=2520", "requeued i1 #1 lost=0", Check::Lost),
            ("requeued s1 #1 lost=0", "requeued s1 #1 lost=13280", Check::Lost),
            ("requeued c1 #1 lost=13320", "requeued c1 #1 lost=0", Check::Lost),
            ("host_failed f1 #1 lost=2400", "host_failed f1 #1 lost=0", Check::Lost),
            ("requeued f1 #1 lost=2400", "requeued f1 #1 lost=2399", Check::Lost),
            ("terminated n1 #1 lost=14520", "terminated n1 #1 lost=13320", Check::Lost),
            ("completed c1 #2 lost=1200", "completed c1 #2", Check::Lost),
            ("completed s1 #2 lost=1200", "completed s1 #2 lost=1200.001", Check::Lost),
        ],
    );
    assert_eq!(checked(&judge(LOSSES, LOSSES_LOG), Check::Lost), 10);
    // It is a fact of any policy's log.
    let levels: String =
        LOSSES_LOG.trim().lines().map(|line| format!("{line} policy=levels\n")).collect();
    let forged = ("host_failed f1 #1 lost=2400", "host_failed f1 #1 lost=1", Check::Lost);
    history(LOSSES, &levels, &[forged]);
}

#[test]
fn amounts_of_gpu_time_may_be_larger_than_any_moment() {
    let scenario = scenario(LOSSES);
    let log = |lost: &str| {
        json(LOSSES_LOG)
            .replace("\"lost_gpu_seconds\":2520", &format!("\"lost_gpu_seconds\":{lost}"))
    };
    for large in ["18446744073709551615", "9007199254740993.5", "1e300"] {
        let report = verify(log(large).as_bytes(), &scenario).expect("a log");
        assert_eq!(report.violations_total, 1, "{report}");
    }
    for none in ["-1", "-0.5", "\"2520\"", "null"] {
        let read = verify(log(none).as_bytes(), &scenario);
        assert_eq!(read.is_err(), none != "null", "{none}");
    }
}

#[test]
fn an_attempt_that_runs_on_past_its_max_runtime_or_is_not_told_to_go() {
    let scenario = "
cluster: {hosts: [{count: 1, gpus: 2, model: h100, name: h}]}
budgets: {a: {share: 1}}
settings: {SETTINGS, debug_hosts: 0}
workloads: [{id: w, submit: 0s, budget: a, gpus: 2, runtime: 3h, min_runtime: 1h, max_runtime: 2h}]
";
    let log = "
0 submitted w
0 started w #1 until=3600 rule=8 on=h:2
3600 protection_ended w #1
7200 failed w #1
";
    history(
        scenario,
        log,
        &[
            ("7200 failed", "7200.001 failed", Check::Log),
            // Who is not told to leave is not terminated: at its max_runtime it has failed.
            ("7200 failed", "7200 terminated", Check::Log),
        ],
    );
}

#[test]
fn only_what_could_never_start_is_refused() {
    let mut scenario = scenario(
        "
cluster: {hosts: [{count: 2, gpus: 2, model: h100, name: h}]}
budgets: {a: {share: 1}}
settings: {SETTINGS, debug_hosts: 0}
workloads:
  - {id: large, submit: 0s, budget: a, gpus: 4, runtime: 1h, min_runtime: 1h}
  - {id: long, submit: 0s, budget: a, gpus: 1, runtime: 1h, min_runtime: 1h}
",
    );
    let log = json("0 refused large\n0 refused long\n");
    let refused = |scenario: &Scenario| {
        let report = verify(log.as_bytes(), scenario).expect("a log");
        let count = |check| report.violations.iter().filter(|found| found.check == check).count();
        (count(Check::Refused), report.violations_total)
    };
    assert_eq!(refused(&scenario), (2, 2));
    // Scenarios do not hold such work; the core has the last word all the same.
    scenario.workloads[0].gpus = 5;
    assert_eq!(refused(&scenario), (1, 1));
    scenario.workloads[1].min_runtime_ms = scenario.settings.horizon_ms + 1;
    assert_eq!(refused(&scenario), (0, 0));
    // Instead of being submitted, at the moment at which it was due.
    for bad in [
        "0 submitted large\n0 refused large\n0 refused long\n",
        "1 refused large\n0 refused long\n",
    ] {
        let report = verify(json(bad).as_bytes(), &scenario).expect("a log");
        assert!(report.violations.iter().any(|found| found.check == Check::Log), "{report}");
    }
}
