//! Rule 4: whose turn it is.

use crate::dsl::{history, judge};
use crate::swaps::TWO_HOSTS;
use bursar_verify::Check;

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

const TWO_SIZES: &str = "
cluster: {hosts: [{count: 3, gpus: 3, model: h100, name: s}, {count: 1, gpus: 4, model: h100, name: b}]}
budgets: {a: {share: 1}}
settings: {SETTINGS, grace: 0s, debug_hosts: 0}
workloads:
  - {id: r, submit: 0s, budget: a, gpus: 4, runtime: 2h, min_runtime: 1h}
  - {id: y, submit: 1s, budget: a, gpus: 4, runtime: 1h, min_runtime: 1h}
  - {id: x, submit: 2s, budget: a, gpus: 5, runtime: 9h, min_runtime: 1h}
  - {id: w, submit: 2h, budget: a, gpus: 4, runtime: 1h, min_runtime: 1h}
";

const TWO_SIZES_LOG: &str = "
0 submitted r
0 started r #1 until=3600 rule=8 on=b:4
1 submitted y
2 submitted x
2 started x #1 until=3602 rule=8 on=s-0:3,s-1:2
7200 submitted w
7200 completed r #1
7200 started y #1 until=10800 rule=8 on=b:4
";

#[test]
fn what_fits_one_host_is_not_passed_over_for_a_gang_on_smaller_ones() {
    // y is smaller than x and comes first, but 4 GPUs are never split over hosts of 3.
    history(
        TWO_SIZES,
        TWO_SIZES_LOG,
        &[
            ("7200 started y", "7200 started w", Check::Order),
            ("until=10800 rule=8 on=b:4", "until=10800 rule=8 on=b:3,s-2:1", Check::Shape),
            ("until=10800 rule=8 on=b:4", "until=10800 rule=8 on=s-2:3,s-1:1", Check::Shape),
            ("on=s-0:3,s-1:2", "on=s-0:3,b:2", Check::Shape),
        ],
    );
    // Were all hosts of one size, y could have had those of x.
    let one_size = TWO_SIZES.replace("gpus: 3, model", "gpus: 4, model");
    let log = TWO_SIZES_LOG.replace("on=s-0:3,s-1:2", "on=s-0:4,s-1:1");
    let found = judge(&one_size, &log);
    assert!(found.violations.iter().any(|v| v.check == Check::Order), "{found}");
}
