//! Rule 9: drains and failures.

use crate::dsl::{history, judge};
use bursar_verify::Check;

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
