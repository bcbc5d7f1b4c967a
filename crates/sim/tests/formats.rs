//! docs/formats.md names every event, every key of every event, and every key of the summary that the simulator
//! writes, and nothing that it never writes.

use bursar_core::compare::NAMES;
use bursar_scenario::{Scenario, load_str};
use bursar_sim::{EventSink, RunOptions, Summary, run};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const FORMATS: &str = include_str!("../../../docs/formats.md");

/// Hosts drain under work of each kind, one of them for good; what waits for one host is promised it; a swap has
/// to wait for its victim to leave.
const DRAINS: &str = "
cluster: {hosts: [{count: 6, gpus: 2, model: h100, name: h}]}
budgets: {a: {share: 1}, b: {share: 3}}
settings: {lookback: 8h, horizon: 2h, grace: 1m, startup: 10m}
hosts_events:
  - {at: 1h, host: h-0, event: drain}
  - {at: 1h, host: h-1, event: drain}
  - {at: 1h, host: h-2, event: drain}
  - {at: 1h, host: h-3, event: drain}
  - {at: 2h, host: h-0, event: repair}
  - {at: 2h, host: h-1, event: repair}
  - {at: 2h, host: h-2, event: repair}
workloads:
  - {id: a1, submit: 0, budget: a, gpus: 2, runtime: 2h, min_runtime: 30m, resumable: true}
  - {id: a2, submit: 0, budget: a, gpus: 2, runtime: 2h, min_runtime: 30m, resumable: true, status: failed}
  - {id: a3, submit: 0, budget: a, gpus: 2, runtime: 2h, min_runtime: 30m, resumable: true, status: cancelled}
  - {id: a4, submit: 0, budget: a, gpus: 2, runtime: 2h, min_runtime: 30m}
  - {id: a5, submit: 0, budget: a, gpus: 2, runtime: 9h, min_runtime: 30m, max_runtime: 8h, resumable: true}
  - {id: u1, submit: 0, budget: a, gpus: 2, runtime: 9h}
  - {id: b1, submit: 5h, budget: b, gpus: 12, runtime: 1h, min_runtime: 1h}
  - {id: large, submit: 1s, budget: a, gpus: 1, runtime: 1h}
";

/// b1 is promised the only host. It fails under a1, which can resume.
const FAILS: &str = "
cluster: {hosts: [{gpus: 4, model: h100, name: h0}]}
budgets: {a: {share: 1}, b: {share: 1}}
settings: {lookback: 8h, horizon: 2h, reservation_age: 2h, grace: 5m}
hosts_events: [{at: 1h, host: h0, event: fail}, {at: 6h, host: h0, event: repair}]
workloads:
  - {id: a1, submit: 0, budget: a, gpus: 4, runtime: 9h, min_runtime: 2h, resumable: true}
  - {id: b1, submit: 10m, budget: b, gpus: 4, runtime: 1h, min_runtime: 1h}
";

fn scenarios() -> [Scenario; 2] {
    let load = |text| load_str(text, Path::new(""), "formats", &[]).expect("a good scenario");
    let (mut drains, fails) = (load(DRAINS), load(FAILS));
    // The reader would refuse it; the core does, too.
    for work in drains.workloads.iter_mut().filter(|work| &*work.id == "large") {
        work.gpus = 99;
    }
    [drains, fails]
}

/// For each event the keys that its lines have.
fn written() -> BTreeMap<String, BTreeSet<String>> {
    let mut keys: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for scenario in &scenarios() {
        for policy in NAMES {
            let mut log = Vec::new();
            let sink = EventSink::Json(&mut log);
            run(scenario, policy, RunOptions::default(), sink).expect("it runs");
            for line in String::from_utf8(log).expect("text").lines() {
                let Ok(Value::Object(line)) = serde_json::from_str(line) else { panic!("{line}") };
                let event = line["event"].as_str().expect("text").to_owned();
                keys.entry(event).or_default().extend(line.keys().cloned());
            }
        }
    }
    keys
}

fn section(title: &str) -> &'static str {
    let from = FORMATS.split(&format!("\n## {title}\n")).nth(1).expect("the section is there");
    from.split("\n## ").next().expect("a beginning")
}

/// The rows of the table whose heading begins so, as (first cell, second cell).
fn table(section: &'static str, heading: &str) -> Vec<(&'static str, &'static str)> {
    let from = section.split(heading).nth(1).expect("the table is there");
    let rows = from.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = |row: &'static str| {
        let (first, rest) = row[1..].split_once('|').expect("two cells");
        (first, rest.trim_end_matches('|'))
    };
    rows.map(cells).collect()
}

/// The words in backticks.
fn named(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(String::from).collect()
}

fn set(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn the_events_and_their_keys_are_those_that_are_documented() {
    let section = section("events.jsonl");
    let written = written();
    let events: BTreeSet<String> =
        table(section, "\n| event | |").iter().flat_map(|row| named(row.0)).collect();
    assert_eq!(events, written.keys().cloned().collect(), "events documented, and written");

    let of_hosts = set(&["drain_started", "drained", "host_down", "host_up"]);
    let ends = set(&["completed", "failed", "cancelled", "terminated", "host_failed"]);
    let mut documented = BTreeMap::new();
    for (keys, about) in table(section, "\n| key | |") {
        // What follows a colon, a full stop or a semicolon says more about the key.
        let of = about.split([':', ';']).next().and_then(|of| of.split(". ").next()).expect("text");
        let mut of_events = &named(of) & &events;
        if of.contains("always") {
            of_events = events.clone();
        } else if of.contains("all events but those of hosts") {
            of_events = &events - &of_hosts;
        } else if of.contains("events of hosts") {
            of_events = of_hosts.clone();
        }
        if of.contains("of ends") {
            of_events.extend(ends.iter().cloned());
        }
        assert!(!of_events.is_empty(), "of which events is {keys}? {about}");
        for key in named(keys) {
            documented.insert(key, of_events.clone());
        }
    }
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (event, keys) in &written {
        for key in keys {
            found.entry(key.clone()).or_default().insert(event.clone());
        }
    }
    assert_eq!(documented, found, "keys documented, and written, with their events");
}

/// The keys of blocks that are made of fixed keys; those that are keyed by names are passed over.
fn keys_of(value: &Value, found: &mut BTreeSet<String>) {
    let by_name = ["policies", "charged_gpu_seconds", "classes", "budgets", "by_rule"];
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                found.insert(key.clone());
                match value {
                    Value::Object(map) if by_name.contains(&key.as_str()) => {
                        map.values().for_each(|value| keys_of(value, found));
                    }
                    _ => keys_of(value, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| keys_of(value, found)),
        _ => {}
    }
}

#[test]
fn the_summary_has_the_keys_that_are_documented() {
    let [scenario, _] = scenarios();
    let outcome =
        run(&scenario, "budget", RunOptions::default(), EventSink::None).expect("it runs");
    let summary = Summary { scenario: "x".into(), seed: 0, policies: vec![outcome.summary] };
    let mut written = BTreeSet::new();
    keys_of(&serde_json::to_value(&summary).expect("JSON"), &mut written);

    let block = section("summary.json").split("```text\n").nth(1).expect("the block is there");
    let block = block.split("```").next().expect("a beginning");
    let words: BTreeSet<String> = block
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .map(String::from)
        .collect();
    let missing: Vec<_> = written.difference(&words).collect();
    assert!(missing.is_empty(), "not documented: {missing:?}");
    let unknown: Vec<_> = words.difference(&written).filter(|word| word.contains('_')).collect();
    assert!(unknown.is_empty(), "documented, and never written: {unknown:?}");
}
