//! The verbs of those who operate a site: `host`, `audit`.

use crate::args::{AuditArgs, HostVerb};
use crate::client::Client;
use crate::failure::Failure;
use crate::live::{path_word, print, span, table, when, words};
use serde_json::{Value, json};

pub(crate) fn host(verb: &HostVerb) -> Result<(), Failure> {
    match verb {
        HostVerb::List { server } => {
            let answer = Client::new(server)?.get("/v1/hosts", &[])?;
            print(server, &answer, |answer| {
                let row = |host: &Value| {
                    let empty = if host["used"] == 0 {
                        "now".to_owned()
                    } else {
                        when(&host["empty_by_unix_ms"])
                    };
                    vec![
                        words(&host["name"]),
                        words(&host["model"]),
                        format!("{} of {}", host["used"], host["gpus"]),
                        words(&host["state"]),
                        empty,
                        words(&host["reason"]),
                    ]
                };
                let rows = answer["hosts"].as_array().into_iter().flatten().map(row).collect();
                table(&["host", "model", "GPUs used", "state", "empty if drained", "reason"], rows)
            });
        }
        HostVerb::Drain { host, reason, server } => {
            let body = json!({ "reason": reason }).to_string();
            let path = format!("/v1/hosts/{}/drain", path_word(host)?);
            let answer = Client::new(server)?.post(&path, None, &body)?;
            print(server, &answer, |answer| {
                if answer["used"] == 0 {
                    return format!("{host} is empty now, and out of service\n");
                }
                format!("{host} drains; it is empty {}\n", when(&answer["empty_by_unix_ms"]))
            });
        }
        HostVerb::Undrain { host, server } => {
            let path = format!("/v1/hosts/{}/undrain", path_word(host)?);
            let answer = Client::new(server)?.post(&path, None, "")?;
            print(server, &answer, |_| format!("{host} is in service\n"));
        }
    }
    Ok(())
}

pub(crate) fn audit(args: &AuditArgs) -> Result<(), Failure> {
    let client = Client::new(&args.server)?;
    let answer = client.get("/v1/audit", &[("after", args.after.to_string())])?;
    print(&args.server, &answer, |answer| {
        let row = |entry: &Value| {
            vec![
                entry["seq"].to_string(),
                when(&entry["at_unix_ms"]),
                words(&entry["actor"]),
                words(&entry["what"]["kind"]).replace('_', " "),
                details(entry),
            ]
        };
        let rows = answer["entries"].as_array().into_iter().flatten().map(row).collect();
        table(&["seq", "when", "who", "what", "details"], rows)
    });
    Ok(())
}

/// What a record says, in words: durations and moments as people say them. `--json` has all of it as it is.
fn details(entry: &Value) -> String {
    let Some(what) = entry["what"].as_object() else { return String::new() };
    let at = entry["at_ms"].as_u64().unwrap_or(0);
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut told: Vec<String> = Vec::new();
    for (key, value) in what {
        let ms = value.as_u64();
        let text = match (&**key, ms) {
            ("kind" | "budgets" | "hash" | "secret_sha256" | "hosts" | "settings", _) => continue,
            ("declared", _) => {
                let name = words(&value["name"]);
                let contract = value["min_runtime_ms"].as_u64().unwrap_or(0);
                format!(
                    "'{name}' of {}, {}, contract {}",
                    words(&value["budget"]),
                    crate::live::gpus(&value["gpus"]),
                    span(contract)
                )
            }
            ("edits", _) => {
                let edits = value.as_array().map_or(0, Vec::len);
                format!("{edits} {}", if edits == 1 { "edit" } else { "edits" })
            }
            // Moments of a site are counted from its creation: told from the record's own on.
            ("effective_ms" | "expires_ms", Some(ms)) => {
                let name = key.trim_end_matches("_ms");
                format!("{name} {} later", span(ms.saturating_sub(at)))
            }
            ("since_ms" | "ended_ms", Some(ms)) => {
                let name = key.trim_end_matches("_ms");
                format!("{name} {} before", span(at.saturating_sub(ms)))
            }
            (key, Some(ms)) if key.ends_with("_ms") => {
                format!("{} {}", key.trim_end_matches("_ms").replace('_', " "), span(ms))
            }
            (_, _) if value.is_null() || value.as_str() == Some("") => continue,
            (_, _) if value.is_array() => {
                let items: Vec<String> = value.as_array().into_iter().flatten().map(word).collect();
                format!("{} {}", key.replace('_', " "), items.join(" "))
            }
            (_, _) => format!("{} {}", key.replace('_', " "), word(value)),
        };
        told.push(text);
    }
    told.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_told_in_words() {
        let entry = json!({"at_ms": 10_000, "what": {
            "kind": "change_scheduled", "effective_ms": 3_610_000, "reason": "new year", "edits": [{}],
        }});
        assert_eq!(details(&entry), "1 edit, effective 1h later, reason new year");
        let entry = json!({"at_ms": 0, "what": {
            "kind": "settings_changed", "warn_before_ms": 300_000, "default_min_runtime_ms": 3_600_000,
        }});
        assert_eq!(details(&entry), "default min runtime 1h, warn before 5m");
    }
}
