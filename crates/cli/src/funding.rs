//! `bursar funding`: what members ask for, and what owners decide.

use crate::args::FundingVerb;
use crate::budget::moment;
use crate::client::Client;
use crate::failure::Failure;
use crate::live::{print, span, table, when, words};
use crate::shown::note;
use serde_json::{Value, json};
use std::io::IsTerminal as _;

pub(crate) fn funding(verb: &FundingVerb) -> Result<(), Failure> {
    match verb {
        FundingVerb::Ask { budget, how_much, from, reason, server } => {
            let from = from.as_deref().map(|text| moment("--from", text)).transpose()?;
            let body = json!({
                "budget": budget,
                "share": how_much.share,
                "gpus": how_much.gpus,
                "from_unix_ms": from,
                "reason": reason,
            });
            let answer = Client::new(server)?.post("/v1/funding", None, &body.to_string())?;
            print(server, &answer, |answer| {
                format!(
                    "funding request {} waits for an owner's decision\n{}",
                    answer["request"],
                    one_text(answer)
                )
            });
        }
        FundingVerb::List { all, budget, server } => {
            let mut query = vec![("all", all.to_string()), ("limit", "1000".to_owned())];
            query.extend(budget.clone().map(|budget| ("budget", budget)));
            let answer = Client::new(server)?.get("/v1/funding", &query)?;
            print(server, &answer, list_text);
        }
        FundingVerb::Show { request, server } => {
            let answer = Client::new(server)?.get(&format!("/v1/funding/{request}"), &[])?;
            print(server, &answer, one_text);
        }
        FundingVerb::Effect { request, share, last, server } => {
            let mut query = vec![("last_ms", last.to_string())];
            query.extend(share.map(|share| ("share", share.to_string())));
            if std::io::stderr().is_terminal() && !server.json {
                note("playing the last days twice: this takes some seconds");
            }
            let path = format!("/v1/funding/{request}/effect");
            let answer = Client::new(server)?.get(&path, &query)?;
            print(server, &answer, effect_text);
        }
        FundingVerb::Grant { request, how_much, reason, server } => {
            let body = json!({ "share": how_much.share, "gpus": how_much.gpus, "reason": reason });
            let path = format!("/v1/funding/{request}/grant");
            let answer = Client::new(server)?.post(&path, None, &body.to_string())?;
            print(server, &answer, one_text);
        }
        FundingVerb::Decline { request, reason, server } => {
            let path = format!("/v1/funding/{request}/decline");
            let body = json!({ "reason": reason });
            let answer = Client::new(server)?.post(&path, None, &body.to_string())?;
            print(server, &answer, one_text);
        }
        FundingVerb::Withdraw { request, server } => {
            let path = format!("/v1/funding/{request}/withdraw");
            let answer = Client::new(server)?.post(&path, None, "")?;
            print(server, &answer, one_text);
        }
    }
    Ok(())
}

/// `2m -> 5m`, or once if it stays.
fn changes(change: &Value, text: impl Fn(f64) -> String) -> String {
    let of = |key: &str| change[key].as_f64().map(&text);
    match (of("now"), of("then")) {
        (Some(now), Some(then)) if now == then => now,
        (Some(now), Some(then)) => format!("{now} -> {then}"),
        _ => "-".to_owned(),
    }
}

fn effect_text(effect: &Value) -> String {
    let percent = |ratio: f64| format!("{:.1} %", ratio * 100.0);
    let hours = |hours: f64| format!("{hours:.1}");
    let mut rows: Vec<Vec<String>> = Vec::new();
    let row = |name: String, one: &Value| {
        vec![
            name,
            changes(&one["owed_gpu_hours"], hours),
            changes(&one["delivered_gpu_hours"], hours),
            changes(&one["delivered_ratio"], percent),
            changes(&one["wait_p50_s"], crate::table::wait),
            changes(&one["wait_p90_s"], crate::table::wait),
            changes(&one["preemptions"], |count| format!("{count:.0}")),
        ]
    };
    for one in effect["budgets"].as_array().into_iter().flatten() {
        rows.push(row(words(&one["budget"]), one));
    }
    if !effect["others"].is_null() {
        rows.push(row("(all others)".to_owned(), &effect["others"]));
    }
    let head = ["budget", "owed", "delivered", "ratio", "wait p50", "wait p90", "preempted"];
    let days = span(effect["span_ms"].as_u64().unwrap_or(0));
    let cluster = changes(&effect["delivered_ratio"], percent);
    let notes = effect["notes"].as_array().into_iter().flatten();
    let notes: String = notes.map(|note| format!("note: {}\n", words(note))).collect();
    format!(
        "the last {days} played again: as budgets are -> as they would be (GPU-hours)\n{}of the whole cluster: {cluster} of what was owed is delivered\n{notes}",
        table(&head, rows)
    )
}

/// `2 (13.7 GPUs on average)`.
fn share_text(share: &Value, gpus: &Value) -> String {
    match gpus.as_f64() {
        Some(gpus) => format!("{share} ({gpus:.1} GPUs on average)"),
        None => share.to_string(),
    }
}

fn state_text(one: &Value) -> String {
    let decision = &one["decision"];
    match words(&decision["ruling"]).as_str() {
        "" => "open".to_owned(),
        "granted" if decision["share"] != one["share"] => {
            format!("granted otherwise, share {}", decision["share"])
        }
        ruling => ruling.to_owned(),
    }
}

fn list_text(answer: &Value) -> String {
    let row = |one: &Value| {
        vec![
            one["request"].to_string(),
            words(&one["by"]),
            when(&one["asked_unix_ms"]),
            words(&one["budget"]),
            share_text(&one["share"], &one["gpus_if_granted"]),
            state_text(one),
            words(&one["reason"]),
        ]
    };
    let rows: Vec<Vec<String>> =
        answer["requests"].as_array().into_iter().flatten().map(row).collect();
    if rows.is_empty() {
        return "no funding request waits for a decision\n".into();
    }
    table(&["request", "by", "asked", "budget", "share", "state", "reason"], rows)
}

fn one_text(one: &Value) -> String {
    let before = match &one["share_before"] {
        Value::Null => "not there yet".to_owned(),
        share => share.to_string(),
    };
    let mut text = format!(
        "request {} of {} for {}, {}: {}\n  share: {} -> {}\n  it may hold {:.1} GPUs on average now\n",
        one["request"],
        words(&one["by"]),
        words(&one["budget"]),
        when(&one["asked_unix_ms"]),
        words(&one["reason"]),
        before,
        share_text(&one["share"], &one["gpus_if_granted"]),
        one["gpus_now"].as_f64().unwrap_or(0.0),
    );
    if !one["from_unix_ms"].is_null() {
        text += &format!("  from: {}\n", when(&one["from_unix_ms"]));
    }
    let decision = &one["decision"];
    text += &match decision["by"].as_str() {
        None if one["may_decide"] == true => format!(
            "  open; bursar funding effect {} tells what granting it would do\n",
            one["request"]
        ),
        None => "  open\n".to_owned(),
        Some(by) => {
            let said = words(&decision["reason"]);
            let said = if said.is_empty() { said } else { format!(": {said}") };
            format!("  {} by {by}, {}{said}\n", state_text(one), when(&decision["at_unix_ms"]))
        }
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Value {
        json!({
            "request": 7, "by": "max", "asked_unix_ms": 0, "budget": "a/a1", "share": 2, "share_before": 1,
            "gpus": null, "gpus_now": 4.0, "gpus_if_granted": 5.333, "from_unix_ms": null, "reason": "the paper",
            "decision": null, "may_decide": true,
        })
    }

    #[test]
    fn a_request_says_what_it_asks_for() {
        let text = one_text(&one());
        assert!(text.contains("for a/a1"), "{text}");
        assert!(text.contains("share: 1 -> 2 (5.3 GPUs on average)\n"), "{text}");
        assert!(
            text.ends_with("bursar funding effect 7 tells what granting it would do\n"),
            "{text}"
        );
    }

    #[test]
    fn an_effect_says_what_changes_and_what_stays() {
        let effect = json!({
            "span_ms": 604_800_000u64,
            "budgets": [{
                "budget": "a/a1",
                "owed_gpu_hours": {"now": 10.0, "then": 10.0},
                "delivered_gpu_hours": {"now": 4.0, "then": 8.0},
                "delivered_ratio": {"now": 0.4, "then": 0.8},
                "wait_p50_s": {"now": 60.0, "then": 30.0},
                "wait_p90_s": null,
                "preemptions": {"now": 2.0, "then": 0.0},
            }],
            "others": null,
            "delivered_ratio": {"now": 0.9, "then": 0.9},
            "notes": ["1 workload left out"],
        });
        let text = effect_text(&effect);
        let line =
            text.lines().find(|line| line.trim_start().starts_with("a/a1")).expect("its line");
        let cells: Vec<&str> =
            line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells[..4], ["a/a1", "10.0", "4.0 -> 8.0", "40.0 % -> 80.0 %"], "{text}");
        assert_eq!(cells[5..], ["-", "2 -> 0"], "{text}");
        assert!(text.starts_with("the last 7d played again"), "{text}");
        assert!(text.contains("cluster: 90.0 % of what"), "{text}");
    }

    #[test]
    fn a_decision_says_what_it_gives_and_why() {
        let mut decided = one();
        decided["decision"] = json!({ "by": "ann", "at_unix_ms": 0, "ruling": "granted", "share": 1.5, "reason": "half" });
        let text = one_text(&decided);
        assert!(text.contains("granted otherwise, share 1.5 by ann"), "{text}");
        assert!(text.ends_with(": half\n"), "{text}");
        decided["decision"]["ruling"] = json!("declined");
        assert!(list_text(&json!({ "requests": [decided] })).contains("declined"));
        assert!(list_text(&json!({ "requests": [] })).contains("no funding request"));
    }
}
