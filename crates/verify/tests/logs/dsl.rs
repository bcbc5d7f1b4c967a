//! Histories as text, and what the checker says of them.
//!
//! A line is `time event [workload or @host] [#attempt] [key=value]…`; `on=h0:2,h1:4` is a placement, `free=1`
//! stands for an unallocated start. Who has to leave lost everything since its start, unless `lost=` says otherwise.

use bursar_verify::{Check, Report, verify};
use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;

pub(crate) const SETTINGS: &str =
    "lookback: 8h, horizon: 2h, margin: 0.05, startup: 0s, reservation_age: 2h";

/// The log as Bursar writes it.
pub(crate) fn json(text: &str) -> String {
    let mut out = String::new();
    // By workload and policy: since when it runs, and its GPUs; then what it lost.
    let mut runs: HashMap<(&str, &str), (f64, f64)> = HashMap::new();
    let mut losses: HashMap<(&str, &str), f64> = HashMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let mut words = line.split_whitespace();
        let (at, event) = (words.next().expect("a time"), words.next().expect("an event"));
        let (mut policy, mut keys) = ("budget", String::new());
        let (mut workload, mut gpus, mut is_said) = ("", 0.0, false);
        for word in words {
            if let Some(host) = word.strip_prefix('@') {
                write!(keys, ",\"host\":\"{host}\"").expect("fits");
            } else if let Some(attempt) = word.strip_prefix('#') {
                write!(keys, ",\"attempt\":{attempt}").expect("fits");
            } else if let Some((key, value)) = word.split_once('=') {
                match key {
                    "policy" => policy = value,
                    "lost" => {
                        is_said = true;
                        write!(keys, ",\"lost_gpu_seconds\":{value}").expect("fits");
                    }
                    "by" | "budget" => write!(keys, ",\"{key}\":\"{value}\"").expect("fits"),
                    "on" => {
                        let places: Vec<String> = value
                            .split(',')
                            .map(|place| {
                                let (host, count) = place.split_once(':').expect("host:gpus");
                                gpus += count.parse::<f64>().expect("a number");
                                format!("{{\"host\":\"{host}\",\"gpus\":{count}}}")
                            })
                            .collect();
                        write!(keys, ",\"placement\":[{}]", places.join(",")).expect("fits");
                    }
                    "free" => keys.push_str(",\"allocated\":false,\"protected_until\":null"),
                    "until" if event == "started" => {
                        write!(keys, ",\"allocated\":true,\"protected_until\":{value}")
                            .expect("fits");
                    }
                    _ => write!(keys, ",\"{key}\":{value}").expect("fits"),
                }
            } else {
                workload = word;
                write!(keys, ",\"workload\":\"{word}\"").expect("fits");
            }
        }
        let (now, who) = (at.parse::<f64>().unwrap_or(0.0), (policy, workload));
        match event {
            "started" => drop(runs.insert(who, (now, gpus))),
            "requeued" | "terminated" | "host_failed" if !is_said => {
                let lost = runs.remove(&who).map(|(since, gpus)| (now - since) * gpus);
                let lost = lost.or(losses.get(&who).copied()).unwrap_or(0.0).max(0.0);
                losses.insert(who, lost);
                let thousandths = (lost * 1_000.0).round() / 1_000.0;
                write!(keys, ",\"lost_gpu_seconds\":{thousandths}").expect("fits");
            }
            _ => {}
        }
        writeln!(out, "{{\"t\":{at},\"policy\":\"{policy}\",\"event\":\"{event}\"{keys}}}")
            .expect("fits");
    }
    out
}

/// The scenario, with the common settings where it says `SETTINGS`.
pub(crate) fn scenario(text: &str) -> bursar_scenario::Scenario {
    let text = text.replace("SETTINGS", SETTINGS);
    bursar_scenario::load_str(&text, Path::new(""), "test", &[]).expect("a good scenario")
}

/// What the checker says.
pub(crate) fn judge(scenario_text: &str, log: &str) -> Report {
    verify(json(log).as_bytes(), &scenario(scenario_text)).expect("a log")
}

/// The log keeps the rules; with each change, it breaks the one that is named.
pub(crate) fn history(scenario: &str, log: &str, changes: &[(&str, &str, Check)]) {
    let report = judge(scenario, log);
    assert!(report.is_clean(), "{report}");
    for &(old, new, check) in changes {
        assert_eq!(log.matches(old).count(), 1, "{old:?} is there once");
        let report = judge(scenario, &log.replace(old, new));
        let found = report.violations.iter().any(|violation| violation.check == check);
        assert!(found, "{old:?} -> {new:?} should break {check:?}\n{report}");
    }
}

/// How often something was checked.
pub(crate) fn checked(report: &Report, check: Check) -> u64 {
    report.policies[0].checks.iter().find(|count| count.check == check).expect("listed").checked
}
