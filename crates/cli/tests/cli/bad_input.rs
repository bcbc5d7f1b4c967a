//! Bad input: one line that names the place, exit 2, nothing on standard output, no file.

use crate::{bursar, files, folder, scenario};
use std::fs;
use std::io::Write;
use std::path::Path;

const GOOD: &str = "\
cluster: {hosts: [{count: 4, gpus: 8, model: h100, name: gpu}]}
budgets:
  p: {share: 1, children: {p1: {share: 1}, p2: {share: 3}}}
  q: {share: 2}
settings: {horizon: 8h}
workloads:
  - {id: run-1, submit: 0s, budget: p/p1, gpus: 2, runtime: 1h, min_runtime: 1h}
  - {id: run-2, submit: 5m, budget: q, gpus: 16, runtime: 1h}
";

/// Runs `bursar` with every output asked for, and checks what it left.
fn refused(folder: &Path, args: &[&str], place: &str) {
    let before = files(folder);
    let done = bursar(folder, args);
    assert_eq!(done.code, Some(2), "{args:?}: {}", done.stderr);
    assert_eq!(done.stdout, "", "{args:?}");
    assert_eq!(done.stderr.lines().count(), 1, "{args:?}: {}", done.stderr);
    assert!(done.stderr.starts_with("bursar: "), "{}", done.stderr);
    assert!(done.stderr.contains(place), "{args:?}: '{place}' is not in {}", done.stderr);
    assert!(!done.stderr.contains('\x1b'), "{:?}", done.stderr);
    assert_eq!(files(folder), before, "{args:?} left a file");
}

const OUTPUTS: [&str; 6] = ["--summary", "s.json", "--events", "e.jsonl", "--html", "r.html"];

fn simulate<'a>(more: &[&'a str]) -> Vec<&'a str> {
    ["simulate", "s.yaml"].into_iter().chain(OUTPUTS).chain(more.iter().copied()).collect()
}

#[test]
fn a_scenario_that_says_what_cannot_be() {
    let table = [
        ("q: {share: 2}", "q: &q {share: 2, children: {r: *q}}", "line 4"),
        ("q: {share: 2}", "p: {share: 2}", "s.yaml line 4: budgets: duplicate budget 'p'"),
        ("q: {share: 2}", "q: {share: -2}", "s.yaml line 4"),
        ("q: {share: 2}", "q: {share: .nan}", "s.yaml line 4"),
        ("q: {share: 2}", "q: {share: .inf}", "s.yaml line 4"),
        ("budget: q,", "budget: r,", "there is no budget 'r'"),
        ("gpus: 2,", "gpus: 0,", "'run-1': gpus: 0 is not allowed"),
        ("gpus: 2,", "gpus: 33,", "'run-1': gpus: 33 is more than the cluster has"),
        ("gpus: 2,", "gpus: nan,", "'run-1': gpus: 'nan'"),
        ("min_runtime: 1h", "min_runtime: 9h", "'run-1': min_runtime: 9h is above the horizon"),
        ("submit: 0s", "submit: 10000-01-01T00:00:00Z", "'run-1': submit:"),
        ("id: run-2", "id: \"run\\e[31m\\n2\"", "control character"),
        ("cluster:", "clutser:", "the nearest valid key is 'cluster'"),
    ];
    for (from, to, place) in table {
        let folder = folder();
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{from}");
        fs::write(folder.path().join("s.yaml"), text).unwrap();
        refused(folder.path(), &simulate(&[]), place);
        refused(folder.path(), &["explain", "s.yaml", "--workload", "run-1"], place);
        refused(folder.path(), &["verify", "s.yaml", "s.yaml"], place);
    }
}

#[test]
fn flags_that_say_what_cannot_be() {
    let folder = folder();
    fs::write(folder.path().join("s.yaml"), GOOD).unwrap();
    let table: [(&[&str], &str); 12] = [
        (&["--set", "horizon=soon"], "--set horizon=soon"),
        (&["--set", "horizn=4h"], "the nearest valid one is 'horizon'"),
        (&["--set", "horizon=30m"], "'run-1': min_runtime: 1h is above the horizon of 30m"),
        (&["--set", "horizon"], "not KEY=VALUE"),
        (&["--set", "margin=nan"], "--set margin=nan"),
        (&["--policy", "bugdet"], "bugdet"),
        (&["--policy", "fifo", "--policy", "fifo"], "given twice"),
        (&["--until=-1h"], "--until"),
        (&["--yarn-min-share", "2"], "--yarn-min-share"),
        (&["--sweep", "horizon=4h"], "cannot be used with"),
        (&["--events", "s.yaml"], "--events"),
        (&["--no-such-flag"], "--no-such-flag"),
    ];
    for (more, place) in table {
        let args = simulate(more);
        let args = if more == ["--events", "s.yaml"] {
            vec!["simulate", "s.yaml", "--events", "s.yaml"]
        } else {
            args
        };
        let place =
            if more == ["--events", "s.yaml"] { "it is read, or written twice" } else { place };
        refused(folder.path(), &args, place);
    }
    refused(
        folder.path(),
        &["simulate", "s.yaml", "--summary", "no/such/s.json"],
        "no/such/s.json",
    );
    refused(folder.path(), &["simulate", "none.yaml"], "none.yaml");
    refused(folder.path(), &["explain", "s.yaml", "--workload", "run-3"], "the nearest is 'run-1'");
    refused(folder.path(), &["explain", "s.yaml", "--workload", "x\x1b[2Jy"], "\\u{1b}");
}

#[test]
fn a_grid_with_one_bad_value_plays_nothing() {
    let folder = folder();
    fs::write(folder.path().join("s.yaml"), GOOD).unwrap();
    let table: [(&[&str], &str); 6] = [
        (&["--sweep", "horizon=8h,30m"], "above the horizon of 30m"),
        (&["--sweep", "horizon=8h,soon"], "--set horizon=soon"),
        (&["--sweep", "lookbak=1d"], "the nearest valid one is 'lookback'"),
        (&["--sweep", "lookback=1d,,2d"], "--sweep"),
        (&["--sweep", "lookback=1d", "--sweep", "lookback=2d"], "given twice"),
        (&["--sweep", "lookback=1d", "--set", "lookback=2d"], "both in --set and in --sweep"),
    ];
    for (more, place) in table {
        let args: Vec<&str> =
            ["simulate", "s.yaml", "--summary", "s.json"].iter().chain(more).copied().collect();
        refused(folder.path(), &args, place);
    }
}

/// Writes a history, and a scenario that reads it.
fn history(folder: &Path, name: &str, bytes: &[u8]) {
    fs::write(folder.join(name), bytes).unwrap();
    let text = format!(
        "cluster: {{hosts: [{{count: 4, gpus: 8, model: h100}}]}}\nbudgets: auto\nworkloads: {name}\n"
    );
    fs::write(folder.join("s.yaml"), text).unwrap();
}

#[test]
fn a_history_that_cannot_be_read() {
    let rows = "id,submit,budget,gpus,runtime\na,0,p,1,60\n";
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let many: String =
        (0..5_000).map(|at| format!("j{at},{at},p,1,{}\n", at * 7 % 1_000 + 1)).collect();
    packed.write_all(b"id,submit,budget,gpus,runtime\n").unwrap();
    packed.write_all(many.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let long = format!("{rows}b,0,{},1,60\n", "x".repeat(bursar_trace_line_max() + 1));
    let table: [(&str, Vec<u8>, &str); 9] = [
        ("empty.csv", Vec::new(), "empty.csv"),
        ("header.csv", b"id,submit,budget,gpus,runtime\n".to_vec(), "header.csv"),
        ("cut.csv.gz", packed[..packed.len() / 2].to_vec(), "cut.csv.gz"),
        ("long.csv", long.into_bytes(), "long.csv line 3"),
        ("nan.csv", format!("{rows}b,0,p,NaN,60\n").into_bytes(), "nan.csv line 3: field 'gpus'"),
        ("zero.csv", format!("{rows}b,0,p,0,60\n").into_bytes(), "zero.csv line 3: field 'gpus'"),
        ("inf.csv", format!("{rows}b,0,p,1,inf\n").into_bytes(), "inf.csv line 3: field 'runtime'"),
        (
            "year.csv",
            b"id,submit,budget,gpus,runtime\nb,10000-01-01T00:00:00Z,p,1,60\n".to_vec(),
            "year.csv line 2: field 'submit'",
        ),
        ("noise.csv", b"\x1b[2J\x00\xff\n".to_vec(), "noise.csv"),
    ];
    for (name, bytes, place) in table {
        let folder = folder();
        history(folder.path(), name, &bytes);
        refused(folder.path(), &simulate(&[]), place);
        refused(folder.path(), &["trace", "describe", name], place);
        refused(folder.path(), &["trace", "convert", name, "--to", "out.csv"], place);
    }
}

const fn bursar_trace_line_max() -> usize {
    1 << 20
}

#[test]
fn a_log_that_is_none() {
    let folder = folder();
    let small = scenario("small.yaml");
    for (text, place) in [
        ("", "e.jsonl: holds no event"),
        ("{\"t\":0", "e.jsonl line 1"),
        ("not json\n", "e.jsonl line 1"),
        ("{\"t\":0,\"policy\":\"budget\",\"event\":\"exploded\"}\n", "e.jsonl line 1"),
    ] {
        fs::write(folder.path().join("e.jsonl"), text).unwrap();
        refused(folder.path(), &["verify", "e.jsonl", &small], place);
    }
    refused(folder.path(), &["verify", "none.jsonl", &small], "none.jsonl");
}
