//! `bursar funding`: what members ask for, and what owners decide.

use crate::args::FundingVerb;
use crate::budget::moment;
use crate::client::Client;
use crate::failure::Failure;
use crate::live::{print, table, when, words};
use serde_json::{Value, json};

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
        assert!(text.ends_with("  open\n"), "{text}");
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
