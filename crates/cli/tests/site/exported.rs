//! What happened on a site is simulated and verified.

use crate::{Site, bursar, folder};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[test]
fn a_sites_history_is_simulated_and_verified() {
    let dir = folder();
    let data = dir.path().join("site");
    let tree = dir.path().join("tree.yaml");
    fs::write(
        &tree,
        "a: {share: 1, members: [root], children: {x: {share: 1}, y: {share: 2}}}\nb: {share: 1, members: [root]}\n",
    )
    .expect("written");
    let flags = [
        "--virtual-gpus",
        "4",
        "--virtual-hosts",
        "2",
        "--owner",
        "root",
        "--allow-root-work",
        "--budgets",
        text(&tree),
    ];
    let site = Site::up_with(&data, &flags);
    let quick = |budget: &str, seconds: &str| {
        site.submit(json!({ "budget_owner": budget, "command": ["sleep", seconds] }))
    };
    let works = [quick("a/x", "0.3"), quick("a/y", "0.5"), quick("b", "0.2")];
    for number in works {
        site.until(number, "ended");
    }
    let failed = site.submit(json!({ "budget_owner": "b", "command": ["false"] }));
    site.until(failed, "ended");
    site.ask_well(&["host", "drain", "virtual-2", "--reason", "a fan"]);
    site.ask_well(&["host", "undrain", "virtual-2"]);
    let new = fs::read_to_string(&tree).expect("a tree").replace("b: {share: 1", "b: {share: 3");
    fs::write(&tree, new).expect("written");
    site.ask_well(&["budget", "import", text(&tree), "--reason", "b gets more"]);
    let after = quick("b", "0.2");
    site.until(after, "ended");
    // Never runs: nothing is known of it.
    let blocks =
        site.submit(json!({ "budget_owner": "b", "gpus": 4, "command": ["sleep", "600"] }));
    site.until(blocks, "protected");
    let waits = quick("a/x", "1");
    site.until(waits, "queued");
    site.ask_well(&["cancel", &waits.to_string()]);
    site.ask_well(&["cancel", &blocks.to_string()]);
    site.until(blocks, "ended");

    let csv = site.ask(&["export", "trace"]);
    assert_eq!(csv.code, Some(0), "{}", csv.stderr);
    assert!(csv.stderr.contains("1 workload never ran and left out"), "{}", csv.stderr);
    assert_eq!(csv.stdout.lines().count(), 1 + 6, "{}", csv.stdout);
    let history = dir.path().join("history.csv");
    fs::write(&history, &csv.stdout).expect("written");
    let described = bursar(&["trace", "describe", text(&history)]);
    assert_eq!(described.code, Some(0), "{}", described.stderr);
    // What was charged is what the trace says that it ran.
    let rows: Vec<Vec<&str>> =
        csv.stdout.lines().skip(1).map(|row| row.split(',').collect()).collect();
    for row in &rows {
        let work = site.work(row[0].parse().expect("a number"));
        let charged = work["charged_gpu_ms"].as_u64().expect("a charge");
        let gpus: u64 = row[3].parse().expect("GPUs");
        let runtime: f64 = row[4].parse().expect("a runtime");
        let ran = gpus * (runtime * 1000.0).round() as u64;
        // One that was seen to start and end in the same millisecond has a runtime of one.
        assert!(charged == ran || (charged, ran) == (0, gpus), "{charged}: {row:?}");
    }

    let scenario = dir.path().join("site.yaml");
    let args = ["export", "trace", "--scenario", "--out", text(&scenario)];
    site.ask_well(&args);
    let said = fs::read_to_string(&scenario).expect("written");
    for part in ["event: drain", "event: repair", "budget_changes:", "share: 3", "status: failed"] {
        assert!(said.contains(part), "{part} is missing in\n{said}");
    }
    let offline = bursar(&["export", "trace", "--scenario", "--data", text(&data)]);
    assert_eq!(offline.stdout, said);

    let (events, summary) = (dir.path().join("events.jsonl"), dir.path().join("summary.json"));
    let played = bursar(&[
        "simulate",
        text(&scenario),
        "--quiet",
        "--events",
        text(&events),
        "--summary",
        text(&summary),
    ]);
    assert_eq!(played.code, Some(0), "{}", played.stderr);
    let verified = bursar(&["verify", text(&events), text(&scenario)]);
    assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
    let events = fs::read_to_string(&events).expect("events");
    let ended: Vec<Value> = events
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .filter(|event: &Value| event["event"] == "completed" || event["event"] == "failed")
        .collect();
    assert_eq!(ended.iter().filter(|event| event["event"] == "failed").count(), 1, "{ended:?}");
    assert!(ended.len() >= 5, "{ended:?}");

    // It tells of everybody: only owners of the root may.
    let said = site.ask_well(&["token", "issue", "sue", "--user", "sue", "--json"]);
    let secret: Value = serde_json::from_str(&said).expect("JSON");
    let secret = secret["secret"].as_str().expect("a secret");
    let (status, _) = crate::get(&site.url, secret, "/v1/export/trace").expect("an answer");
    assert_eq!(status, 403);
}
