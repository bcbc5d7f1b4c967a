//! The shared cases: small scenarios with exact outcomes, worked out by hand and by another program.

use bursar_sim::{EventSink, RunOptions, run};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn cases() -> Option<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cases");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        println!("no shared cases here: nothing compared");
        return None;
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    paths.sort();
    Some(paths)
}

/// Whether `actual` has every key of `expected`, with the same value; a missing `rule` was left open.
fn matches(expected: &Value, actual: &Value) -> bool {
    let expected = expected.as_object().expect("an event is an object");
    expected.iter().all(|(key, value)| {
        let actual = &actual[key.as_str()];
        match (value.as_f64(), actual.as_f64()) {
            (Some(a), Some(b)) => a == b,
            _ => value == actual,
        }
    })
}

fn compare(path: &Path) -> Vec<String> {
    let mut faults = Vec::new();
    let scenario = bursar_scenario::load_path(path, &[]).expect("the case is a scenario");
    let mut log = Vec::new();
    let outcome = run(&scenario, "budget", RunOptions::default(), EventSink::Json(&mut log))
        .expect("it runs");
    let expected_path = path.with_extension("expected.json");
    let expected: Value =
        serde_json::from_str(&std::fs::read_to_string(expected_path).expect("has its outcome"))
            .expect("is JSON");
    let left_out = ["submitted", "reserved", "protection_ended", "unreserved"];
    let log = String::from_utf8(log).expect("is text");
    let mut actual: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).expect("is JSON"))
        .filter(|event: &Value| !left_out.iter().any(|name| event["event"] == *name))
        .collect();
    for event in expected["events"].as_array().expect("events") {
        // Events of one instant may come in another order.
        match actual.iter().position(|other| matches(event, other)) {
            Some(at) => {
                actual.remove(at);
            }
            None => faults.push(format!("missing: {event}")),
        }
    }
    faults.extend(actual.iter().map(|event| format!("unexpected: {event}")));
    let mut total = |name: &str, expected: &Value, actual: f64| {
        if expected.as_f64() != Some(actual) {
            faults.push(format!("{name}: {expected} expected, {actual} found"));
        }
    };
    for (budget, charged) in expected["charged_gpu_seconds"].as_object().expect("charges") {
        total(budget, charged, outcome.summary.charged_gpu_seconds[budget]);
    }
    let unallocated = outcome.summary.unallocated_gpu_seconds;
    total("unallocated", &expected["unallocated_gpu_seconds"], unallocated);
    total("lost", &expected["lost_gpu_seconds"], outcome.summary.lost_gpu_seconds);
    assert!(outcome.summary.conservation_exact, "rule 12 holds in {}", path.display());
    faults
}

#[test]
fn every_shared_case_comes_out_exactly() {
    let Some(paths) = cases() else { return };
    let mut report = String::new();
    for path in &paths {
        for fault in compare(path) {
            report.push_str(&format!("{}: {fault}\n", path.file_stem().unwrap().display()));
        }
    }
    assert!(report.is_empty(), "{report}");
    assert!(paths.len() >= 12, "the folder has lost cases");
}
