//! Rule 8: hosts, gangs and domains.

use crate::dsl::history;
use bursar_verify::Check;

pub(crate) const PLACES: &str = "
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

pub(crate) const PLACES_LOG: &str = "
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
    history(
        PLACES,
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
