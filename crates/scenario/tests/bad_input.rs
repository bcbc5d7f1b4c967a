//! Bad scenarios and the exact line that each earns.
//!
//! Every row edits one place of a good scenario, so that the row shows the mistake and nothing else.

use std::path::Path;

use bursar_scenario::load_str;

const GOOD: &str = "\
cluster: {hosts: [{count: 4, gpus: 8, model: h100, name: gpu}]}
budgets:
  p: {share: 1, children: {p1: {share: 1}, p2: {share: 3}}}
  q: {share: 2}
settings: {horizon: 8h}
hosts_events: [{at: 1h, host: gpu-1, event: fail}]
budget_changes: [{at: 10d, budget: p/p1, share: 2}]
workloads:
  - {id: run-1, submit: 0s, budget: p/p1, gpus: 2, runtime: 1h, min_runtime: 1h}
  - {id: run-2, submit: 5m, budget: q, gpus: 16, runtime: 1h}
";

/// (what to replace in the good scenario, by what, the error).
const TABLE: &[(&str, &str, &str)] = &[
    // Workloads.
    (
        "gpus: 2,",
        "gpus: 0,",
        "lab.yaml line 9: workloads[0] 'run-1': gpus: 0 is not allowed; give at least 1",
    ),
    (
        "gpus: 2,",
        "gpus: 33,",
        "lab.yaml line 9: workloads[0] 'run-1': gpus: 33 is more than the cluster has for one workload: hosts of one model and size have 32 together (rule 8); ask for at most 32, or declare more hosts",
    ),
    ("gpus: 2,", "gpus: -2,", "lab.yaml line 9: workloads[0] 'run-1': gpus: '-2' is negative"),
    (
        "gpus: 2,",
        "gpus: .nan,",
        "lab.yaml line 9: workloads[0] 'run-1': gpus: '.nan' is not finite",
    ),
    (
        "gpus: 2,",
        "gpus: 2.5,",
        "lab.yaml line 9: workloads[0] 'run-1': gpus: '2.5' is not a whole number",
    ),
    (
        "gpus: 2,",
        "gpus: [2],",
        "lab.yaml line 9: workloads[0] 'run-1': gpus: expected a single value, found a list",
    ),
    ("gpus: 2,", "", "lab.yaml line 9: workloads[0] 'run-1': 'gpus' is missing"),
    ("gpus: 2,", "hosts: 2,", "lab.yaml line 9: workloads[0] 'run-1': 'gpus_per_host' is missing"),
    (
        "gpus: 2,",
        "hosts: 5, gpus_per_host: 8,",
        "lab.yaml line 9: workloads[0] 'run-1': hosts: 5 hosts with 8 GPUs each are asked for; of one model and size there are 4 (rule 8); ask for fewer, or declare more hosts",
    ),
    (
        "gpus: 2,",
        "gpus: 3, hosts: 2, gpus_per_host: 2,",
        "lab.yaml line 9: workloads[0] 'run-1': gpus: hosts x gpus_per_host is 4; leave gpus out",
    ),
    (
        "gpus: 2,",
        "gpsu: 2,",
        "lab.yaml line 9: workloads[0] 'run-1': unknown key 'gpsu'; the nearest valid key is 'gpus'",
    ),
    (
        "gpus: 2,",
        "gpus: 2, gpus: 3,",
        "lab.yaml line 9: workloads[0] 'run-1': duplicate key 'gpus', first on line 9",
    ),
    (
        "gpus: 2,",
        "gpus: 2, gpu_model: h10,",
        "lab.yaml line 9: workloads[0] 'run-1': gpu_model: no host has GPU model 'h10'; there is h100",
    ),
    (
        "gpus: 2,",
        "gpus: 2, grace: 1m,",
        "lab.yaml line 9: workloads[0] 'run-1': grace: the cluster grants at most 30s (settings: grace)",
    ),
    (
        "gpus: 2,",
        "gpus: 2, rank: high,",
        "lab.yaml line 9: workloads[0] 'run-1': rank: 'high' is not a whole number",
    ),
    (
        "gpus: 2,",
        "gpus: 2, resumable: yes,",
        "lab.yaml line 9: workloads[0] 'run-1': resumable: 'yes' is neither true nor false",
    ),
    (
        "gpus: 2,",
        "gpus: 2, kind: service,",
        "lab.yaml line 9: workloads[0] 'run-1': kind: 'service' is not one of batch, session",
    ),
    (
        "gpus: 2,",
        "gpus: 2, checkpoint_interval: 0,",
        "lab.yaml line 9: workloads[0] 'run-1': checkpoint_interval: 0 is not allowed; give a time above 0",
    ),
    (
        "min_runtime: 1h",
        "min_runtime: 8h1s",
        "lab.yaml line 9: workloads[0] 'run-1': min_runtime: 8h1s is above the horizon of 8h, the longest that may be declared",
    ),
    (
        "runtime: 1h, ",
        "runtime: 0, ",
        "lab.yaml line 9: workloads[0] 'run-1': runtime: 0 is not allowed; give a time above 0",
    ),
    (
        "runtime: 1h, ",
        "runtime: nan, ",
        "lab.yaml line 9: workloads[0] 'run-1': runtime: 'nan' is not a finite number",
    ),
    (
        "runtime: 1h, ",
        "runtime: -1h, ",
        "lab.yaml line 9: workloads[0] 'run-1': runtime: '-1h' is negative",
    ),
    (
        "runtime: 1h, ",
        "runtime: 200y, ",
        "lab.yaml line 9: workloads[0] 'run-1': runtime: '200y' is not a duration: write seconds, or parts such as 15m, 1h30m or 7d",
    ),
    (
        "runtime: 1h, ",
        "runtime: 99999d, ",
        "lab.yaml line 9: workloads[0] 'run-1': runtime: '99999d' is more than 100 years",
    ),
    (
        "submit: 0s",
        "submit: 10000-01-01T00:00:00Z",
        "lab.yaml line 9: workloads[0] 'run-1': submit: '10000-01-01T00:00:00Z' is not a duration: write seconds, or parts such as 15m, 1h30m or 7d",
    ),
    (
        "submit: 0s, budget: p/p1,",
        "submit: 0s, budget: p/p3,",
        "lab.yaml line 9: workloads[0] 'run-1': budget: there is no budget 'p/p3'; the nearest is 'p/p1'",
    ),
    (
        "submit: 0s, budget: p/p1,",
        "submit: 0s, budget: p2,",
        "lab.yaml line 9: workloads[0] 'run-1': budget: there is no budget 'p2'; the nearest is 'p/p2'",
    ),
    (
        "submit: 0s, budget: p/p1,",
        "submit: 0s, budget: p,",
        "lab.yaml line 9: workloads[0] 'run-1': budget: 'p' is divided among p/p1, p/p2; name a leaf",
    ),
    (
        "submit: 0s, budget: p/p1,",
        "submit: 0s, budget: ,",
        "lab.yaml line 9: workloads[0] 'run-1': 'budget' is missing",
    ),
    (
        "id: run-2",
        "id: run-1",
        "lab.yaml line 10: workloads: duplicate id 'run-1', first on line 9",
    ),
    ("id: run-2", "id: ''", "lab.yaml line 10: workloads[1] '': id: a name must not be empty"),
    (
        "id: run-2",
        "id: \"run\\n2\"",
        "lab.yaml line 10: workloads[1] 'run\\u{a}2': id: 'run\\u{a}2' has a control character in it",
    ),
    (
        "  - {id: run-2",
        "  - nothing\n  - {id: run-2",
        "lab.yaml line 10: workloads[1]: expected a block of keys (id, submit, budget, user, gpus, hosts, gpus_per_host, gpu_model, runtime, min_runtime, max_runtime, resumable, rank, kind, checkpoint_interval, checkpoint_on_signal, save_time, grace, startup, status, ran), found a single value",
    ),
    // Budgets.
    (
        "p2: {share: 3}",
        "p2: {share: -3}",
        "lab.yaml line 3: budgets: p: children: p2: share: '-3' is negative",
    ),
    (
        "p2: {share: 3}",
        "p2: {share: .inf}",
        "lab.yaml line 3: budgets: p: children: p2: share: '.inf' is not finite",
    ),
    (
        "p2: {share: 3}",
        "p2: {share: .NaN}",
        "lab.yaml line 3: budgets: p: children: p2: share: '.NaN' is not finite",
    ),
    (
        "p2: {share: 3}",
        "p2: {share: 0.1234567}",
        "lab.yaml line 3: budgets: p: children: p2: share: 0.1234567 has more than 6 digits behind the point",
    ),
    (
        "p2: {share: 3}",
        "p2: {share: 1e99}",
        "lab.yaml line 3: budgets: p: children: p2: share: '1e99' is not a number",
    ),
    (
        "p2: {share: 3}",
        "p2: {share: 9999999999}",
        "lab.yaml line 3: budgets: p: children: p2: share: 9999999999 is too large; the most is 1000000000",
    ),
    ("p2: {share: 3}", "p2: {}", "lab.yaml line 3: budgets: p: children: p2: 'share' is missing"),
    (
        "p2: {share: 3}",
        "p1: {share: 3}",
        "lab.yaml line 3: budgets: p: children: duplicate budget 'p1', first on line 3",
    ),
    (
        "p2: {share: 3}",
        "a/b: {share: 3}",
        "lab.yaml line 3: budgets: p: children: 'a/b': a budget's name must not contain '/'",
    ),
    (
        "p2: {share: 3}",
        "'': {share: 3}",
        "lab.yaml line 3: budgets: p: children: a name must not be empty",
    ),
    (
        "p2: {share: 3}",
        "p2: {share: 3, limit: -5}",
        "lab.yaml line 3: budgets: p: children: p2: limit: '-5' is negative",
    ),
    (
        "p2: {share: 3}",
        "p2: {shares: 3}",
        "lab.yaml line 3: budgets: p: children: p2: unknown key 'shares'; the nearest valid key is 'share'",
    ),
    (
        "  q: {share: 2}",
        "  q: &q {share: 2, children: {r: *q}}",
        "lab.yaml line 4: budgets.q.children.r: this alias names a block that it lies in: a cycle",
    ),
    (
        "  q: {share: 2}",
        "  p: {share: 2}",
        "lab.yaml line 4: budgets: duplicate budget 'p', first on line 3",
    ),
    // Cluster.
    (
        "gpus: 8,",
        "gpus: 0,",
        "lab.yaml line 1: cluster: hosts[0]: gpus: 0 is not allowed; give at least 1",
    ),
    (
        "count: 4",
        "count: 9999999",
        "lab.yaml line 1: cluster: hosts[0]: count: 9999999 is too large; the most is 100000",
    ),
    (
        "name: gpu}",
        "name: gpu}, {count: 2, gpus: 8, model: h100, name: gpu}",
        "lab.yaml line 1: cluster: hosts[1]: duplicate host 'gpu-0'",
    ),
    (
        "name: gpu}]",
        "name: gpu}], rates: {b200: 2}",
        "lab.yaml line 1: cluster: rates: no host has GPU model 'b200'; there is h100",
    ),
    (
        "name: gpu}]",
        "name: gpu}], rates: {h100: 0}",
        "lab.yaml line 1: cluster: rates: h100: 0 is not allowed; nothing is free (rule 1)",
    ),
    (
        "{hosts: [{count: 4, gpus: 8, model: h100, name: gpu}]}",
        "{hosts: []}",
        "lab.yaml line 1: cluster: hosts: there is not a single host",
    ),
    // The rest.
    (
        "host: gpu-1",
        "host: gpu-7",
        "lab.yaml line 6: hosts_events[0]: host: there is no host 'gpu-7'; the nearest is 'gpu-0'",
    ),
    (
        "event: fail",
        "event: explode",
        "lab.yaml line 6: hosts_events[0]: event: 'explode' is not one of fail, repair, drain",
    ),
    (
        "at: 1h",
        "at: 9999999d",
        "lab.yaml line 6: hosts_events[0]: at: '9999999d' is more than 100 years",
    ),
    (
        "at: 10d, budget: p/p1",
        "at: 10d, budget: p/x",
        "lab.yaml line 7: budget_changes[0]: budget: there is no budget 'p/x'; the nearest is 'p'",
    ),
    (
        "horizon: 8h",
        "horizon: 8h, lookback: 0s",
        "lab.yaml line 5: settings: lookback: 0 is not allowed; give a time above 0",
    ),
    (
        "horizon: 8h",
        "horizon: 8h, margin: 0",
        "lab.yaml line 5: settings: margin: 0 is not allowed; without a margin workloads would swap for ever",
    ),
    (
        "horizon: 8h",
        "horizons: 8h",
        "lab.yaml line 5: settings: unknown key 'horizons'; the nearest valid key is 'horizon'",
    ),
    (
        "cluster:",
        "clusters:",
        "lab.yaml line 1: unknown key 'clusters'; the nearest valid key is 'cluster'",
    ),
    ("settings:", "seed: -1\nsettings:", "lab.yaml line 5: seed: '-1' is negative"),
    (
        "settings:",
        "budgets:\nsettings:",
        "lab.yaml line 5: duplicate key 'budgets', first on line 2",
    ),
    ("settings: {horizon: 8h}", "settings: {horizon: 8h", "lab.yaml line 6: not valid YAML: "),
];

#[test]
fn each_mistake_earns_its_line() {
    load_str(GOOD, Path::new(""), "lab.yaml", &[]).unwrap();
    let mut wrong = Vec::new();
    for (from, to, want) in TABLE {
        assert!(GOOD.contains(from), "{from}");
        let text = GOOD.replacen(from, to, 1);
        match load_str(&text, Path::new(""), "lab.yaml", &[]) {
            Ok(_) => wrong.push(format!("{to}: accepted, wanted {want}")),
            Err(error) => {
                let error = error.to_string();
                assert_eq!(error.lines().count(), 1);
                let same =
                    if want.ends_with(": ") { error.starts_with(want) } else { error == *want };
                if !same {
                    wrong.push(format!("{to}\n   got {error}\n  want {want}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_missing_altogether() {
    let list = GOOD.find("workloads:").unwrap();
    let without = &GOOD[..list];
    for text in
        [without.to_owned(), format!("{without}workloads: []\n"), format!("{without}workloads:\n")]
    {
        let error = load_str(&text, Path::new(""), "lab.yaml", &[]).unwrap_err();
        assert_eq!(error.to_string(), "lab.yaml: workloads: there are none");
    }
    let error = load_str("seed: 1", Path::new(""), "lab.yaml", &[]).unwrap_err();
    assert_eq!(error.to_string(), "lab.yaml line 1: 'cluster' is missing");
}

#[test]
fn deep_budget_trees_are_refused() {
    let mut tree = "x: 1".to_owned();
    for depth in 0..20 {
        tree = format!("x: {{share: 1, children: {{{tree}}}}}");
        let text = format!(
            "cluster: {{hosts: [{{gpus: 1, model: m}}]}}\nbudgets: {{{tree}}}\nworkloads: []\n"
        );
        let error = load_str(&text, Path::new(""), "t", &[]).unwrap_err().to_string();
        assert_eq!(error.contains("budgets nest deeper than 16 levels"), depth >= 15, "{error}");
    }
}
