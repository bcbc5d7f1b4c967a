//! Job histories.

use crate::{bursar, files, folder, good};
use std::fs;

const JOBS: &str = "\
id,submit,budget,gpus,runtime,user
a,0,,1,7200,ann
b,60,,8,30,bob
c,120,,2,x,bob
d,180,,2,600,anna
";

#[test]
fn a_history_described() {
    let folder = folder();
    fs::write(folder.path().join("jobs.csv"), JOBS).unwrap();
    let done = bursar(folder.path(), &["trace", "describe", "jobs.csv", "--skip-bad"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.starts_with("jobs.csv (csv)\njobs      3 submitted"), "{}", done.stdout);
    assert!(done.stderr.contains("skipped jobs.csv line 4: field 'runtime'"), "{}", done.stderr);
    let json = good(folder.path(), &["trace", "describe", "jobs.csv", "--skip-bad", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["jobs"], &json["skipped"]), (&3.into(), &1.into()));
}

#[test]
fn a_history_converted_with_budgets_and_contracts() {
    let folder = folder();
    fs::write(folder.path().join("jobs.csv"), JOBS).unwrap();
    let args = [
        "trace",
        "convert",
        "jobs.csv",
        "--skip-bad",
        "--to",
        "out.csv",
        "--budget-by",
        "user",
        "--map",
        "ann*=p/{}",
        "--default-budget",
        "rest",
        "--min-runtime-cap",
        "30m",
        "--resumable-above",
        "20m",
        "--checkpoint-interval",
        "10m",
    ];
    good(folder.path(), &args);
    let expected = "\
id,submit,budget,gpus,runtime,user,group,min_runtime,resumable,rank,kind,gpu_model,checkpoint_interval,startup,max_runtime,status,start
a,0,p/ann,1,7200,ann,,1800,true,,,,600,,,completed,
b,60,rest,8,30,bob,,30,false,,,,,,,completed,
d,180,p/anna,2,600,anna,,600,false,,,,,,,completed,
";
    assert_eq!(fs::read_to_string(folder.path().join("out.csv")).unwrap(), expected);
    // What was written can be read, and simulated.
    let again = good(folder.path(), &["trace", "convert", "out.csv", "--to", "-"]);
    assert_eq!(again, expected);
    let scenario =
        "cluster: {hosts: [{count: 1, gpus: 8, model: h100}]}\nbudgets: auto\nworkloads: out.csv\n";
    fs::write(folder.path().join("s.yaml"), scenario).unwrap();
    assert!(good(folder.path(), &["simulate", "s.yaml"]).contains("p/anna"));
    assert_eq!(files(folder.path()), ["jobs.csv", "out.csv", "s.yaml"]);
}

#[test]
fn names_without_a_budget_are_refused() {
    let folder = folder();
    fs::write(folder.path().join("jobs.csv"), JOBS).unwrap();
    let args = [
        "trace",
        "convert",
        "jobs.csv",
        "--skip-bad",
        "--to",
        "out.csv",
        "--budget-by",
        "user",
        "--map",
        "ann*=p",
    ];
    let done = bursar(folder.path(), &args);
    assert_eq!((done.code, done.stdout.as_str()), (Some(2), ""));
    assert!(done.stderr.contains("no mapping rule covers user 'bob'"), "{}", done.stderr);
    assert_eq!(files(folder.path()), ["jobs.csv"]);
}

#[test]
fn notes_of_a_scenario_are_told() {
    let folder = folder();
    fs::write(folder.path().join("jobs.csv"), JOBS.replace(",,", ",p,")).unwrap();
    let scenario = "cluster: {hosts: [{count: 1, gpus: 8, model: h100}]}\nbudgets: auto\nworkloads: [{file: jobs.csv, skip_bad: true}]\n";
    fs::write(folder.path().join("s.yaml"), scenario).unwrap();
    let done = bursar(folder.path(), &["simulate", "s.yaml"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("note: "), "{}", done.stderr);
}
