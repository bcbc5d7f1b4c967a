//! Runs that work.

use crate::{bursar, command, files, folder, good, scenario};
use serde_json::Value;
use std::fs;
use std::process::Stdio;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn the_summary_has_the_documented_keys() {
    let folder = folder();
    let day = scenario("day.yaml");
    let shown = good(folder.path(), &["simulate", &day, "--summary", "s.json", "--json"]);
    let summary = json(&fs::read_to_string(folder.path().join("s.json")).unwrap());
    assert_eq!(summary, json(&shown));
    let budget = &summary["policies"]["budget"];
    for key in [
        "policy",
        "delivered_ratio",
        "worst_budget",
        "worst_delivered_ratio",
        "occupancy",
        "availability",
        "unallocated_share",
        "goodput",
        "lost_share",
        "lost_gpu_seconds",
        "preemptions",
        "breaches",
        "reservations",
        "budgets",
        "first_waits",
        "total_waits",
        "conservation_exact",
    ] {
        assert!(!budget[key].is_null(), "{key} in {budget}");
    }
    for key in ["workloads", "events", "passes", "wall_seconds"] {
        assert!(budget["simulator"][key].is_number(), "{key}");
    }
    assert_eq!(budget["conservation_exact"], true);
    assert_eq!(files(folder.path()), ["s.json"]);
}

#[test]
fn what_is_simulated_verifies() {
    let folder = folder();
    for name in ["small.yaml", "day.yaml"] {
        let path = scenario(name);
        good(folder.path(), &["simulate", &path, "--events", "e.jsonl"]);
        let report = good(folder.path(), &["verify", "e.jsonl", &path]);
        assert!(report.contains("no violation in"), "{report}");
        let report = json(&good(folder.path(), &["verify", "e.jsonl", &path, "--json"]));
        assert_eq!(report["violations_total"], 0);
    }
}

#[test]
fn a_log_that_breaks_the_rules_is_exit_3() {
    let folder = folder();
    let small = scenario("small.yaml");
    good(folder.path(), &["simulate", &small, "--events", "e.jsonl"]);
    let log = fs::read_to_string(folder.path().join("e.jsonl")).unwrap();
    let kept = |line: &&str| !(line.contains("\"protection_ended\"") && line.contains("\"e1\""));
    let doctored: String =
        log.lines().filter(kept).map(|line| line.replace("\"n-0\"", "\"n-1\"") + "\n").collect();
    fs::write(folder.path().join("e.jsonl"), doctored).unwrap();
    let done = bursar(folder.path(), &["verify", "e.jsonl", &small]);
    assert_eq!(done.code, Some(3), "{}", done.stdout);
    assert!(done.stdout.contains("VIOLATED"), "{}", done.stdout);
    assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
}

#[test]
fn events_of_several_policies_follow_each_other() {
    let folder = folder();
    let day = scenario("day.yaml");
    let args =
        ["simulate", &day, "--policy", "levels", "--policy", "budget", "--events", "e.jsonl"];
    let shown = good(folder.path(), &args);
    assert!(shown.contains("levels") && shown.contains("delivered ratio"), "{shown}");
    let log = fs::read_to_string(folder.path().join("e.jsonl")).unwrap();
    let mut policies: Vec<String> = Vec::new();
    let mut last = 0.0;
    for line in log.lines() {
        let event = json(line);
        let policy = event["policy"].as_str().unwrap();
        if policies.last().is_none_or(|last| last != policy) {
            policies.push(policy.to_owned());
            last = 0.0;
        }
        let t = event["t"].as_f64().unwrap();
        assert!(t >= last, "{line}");
        last = t;
    }
    assert_eq!(policies, ["levels", "budget"]);
    good(folder.path(), &["verify", "e.jsonl", &day]);
    // One policy alone writes the same.
    good(folder.path(), &["simulate", &day, "--events", "one.jsonl"]);
    let one = fs::read_to_string(folder.path().join("one.jsonl")).unwrap();
    assert!(log.ends_with(&one));
}

#[test]
fn a_grid_has_a_row_for_each_combination_and_policy() {
    let folder = folder();
    let day = scenario("day.yaml");
    let grid = ["simulate", &day, "--sweep", "lookback=1d,7d", "--sweep", "seed=1,2,3"];
    let table = good(folder.path(), &grid);
    assert_eq!(table.lines().count(), 1 + 6, "{table}");
    assert!(table.lines().next().unwrap().starts_with(" lookback"), "{table}");
    let two: Vec<&str> =
        grid.iter().copied().chain(["--policy", "budget", "--policy", "fifo", "--json"]).collect();
    let rows = json(&good(folder.path(), &two));
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 12);
    assert_eq!(rows[3]["set"]["seed"], "2");
    assert_eq!((&rows[3]["policy"], &rows[3]["seed"]), (&"fifo".into(), &2.into()));
    assert_eq!(rows[11]["set"]["lookback"], "7d");
    // A row is what the same settings give alone.
    let alone = good(
        folder.path(),
        &["simulate", &day, "--set", "seed=2", "--json", "--set", "lookback=1d"],
    );
    let alone = &json(&alone)["policies"]["budget"];
    assert_eq!(rows[2]["delivered_ratio"], alone["delivered_ratio"]);
    assert_eq!(rows[2]["preemptions"], alone["preemptions"]);
    good(folder.path(), &["simulate", &day, "--sweep", "horizon=2h,4h", "--summary", "s.json"]);
    let written = json(&fs::read_to_string(folder.path().join("s.json")).unwrap());
    assert_eq!(written.as_array().unwrap().len(), 2);
}

#[test]
fn the_page_is_whole() {
    let folder = folder();
    good(folder.path(), &["simulate", &scenario("day.yaml"), "--html", "r.html"]);
    let page = fs::read_to_string(folder.path().join("r.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
}

#[test]
fn settings_of_other_policies_count() {
    let folder = folder();
    let month = scenario("day.yaml");
    let ratio = |half_life: &str| {
        let args =
            ["simulate", &month, "--policy", "fair-tree", "--half-life", half_life, "--json"];
        json(&good(folder.path(), &args))["policies"]["fair-tree"]["first_waits"].clone()
    };
    assert_ne!(ratio("1m"), ratio("30d"));
}

#[test]
fn outputs_replace_files_and_follow_links() {
    let folder = folder();
    let small = scenario("small.yaml");
    fs::write(folder.path().join("old.json"), "old").unwrap();
    std::os::unix::fs::symlink("old.json", folder.path().join("link.json")).unwrap();
    good(folder.path(), &["simulate", &small, "--summary", "link.json"]);
    assert!(fs::symlink_metadata(folder.path().join("link.json")).unwrap().is_symlink());
    json(&fs::read_to_string(folder.path().join("old.json")).unwrap());
    let shown = good(folder.path(), &["simulate", &small, "--events", "-"]);
    assert!(shown.starts_with("{\"t\":0"), "{shown}");
    good(folder.path(), &["simulate", &small, "--events", "/dev/null"]);
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    assert_eq!(files(folder.path()), ["link.json", "old.json"]);
}

#[test]
fn a_reader_that_leaves_is_no_fault() {
    let folder = folder();
    let day = scenario("day.yaml");
    let mut child = command(folder.path(), &["simulate", &day, "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let done = child.wait_with_output().unwrap();
    assert_eq!((done.status.code(), &*done.stderr), (Some(0), &b""[..]));
}

#[test]
fn every_verb_has_help_with_examples_and_exit_codes() {
    let folder = folder();
    for verb in ["simulate", "explain", "verify", "policies", "completions", "man"] {
        let help = good(folder.path(), &[verb, "--help"]);
        assert!(help.contains("Examples:") && help.contains("Exit codes:"), "{help}");
    }
    for verb in ["describe", "convert"] {
        let help = good(folder.path(), &["trace", verb, "--help"]);
        assert!(help.contains("Examples:") && help.contains("Exit codes:"), "{help}");
    }
    assert!(good(folder.path(), &["--help"]).contains("Exit codes:"));
    assert!(good(folder.path(), &["--version"]).starts_with("bursar "));
}

#[test]
fn what_a_shell_needs() {
    let folder = folder();
    for (shell, part) in
        [("bash", "complete"), ("zsh", "#compdef bursar"), ("fish", "complete -c bursar")]
    {
        assert!(good(folder.path(), &["completions", shell]).contains(part), "{shell}");
    }
    good(folder.path(), &["man", "pages/man1"]);
    let pages = files(&folder.path().join("pages/man1"));
    assert!(pages.contains(&"bursar-simulate.1".to_owned()), "{pages:?}");
    insta::assert_snapshot!(good(folder.path(), &["policies"]));
    assert_eq!(json(&good(folder.path(), &["policies", "--json"])).as_array().unwrap().len(), 8);
}
