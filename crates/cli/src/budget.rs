//! `bursar budget`: the tree, what it changes to, and what it was.

use crate::args::{BudgetFile, BudgetVerb};
use crate::client::Client;
use crate::failure::Failure;
use crate::live::{gpu_hours, print, read_input, table, when, words};
use crate::shown::say;
use bursar_site::BudgetDoc;
use serde_json::{Value, json};
use std::collections::BTreeMap;

type Tree = BTreeMap<String, BudgetDoc>;

/// How a file says which version it was exported from.
const VERSION_MARK: &str = "# budgets at version ";

pub(crate) fn read_tree(text: &str) -> Result<Tree, String> {
    bursar_site::yaml::read(text)
}

pub(crate) fn budget(verb: &BudgetVerb) -> Result<(), Failure> {
    match verb {
        BudgetVerb::Show { server } => {
            let answer = Client::new(server)?.get("/v1/budgets", &[])?;
            print(server, &answer, budgets_text);
        }
        BudgetVerb::Export { at, server } => {
            let answer = Client::new(server)?.get("/v1/budgets", &[])?;
            let tree = tree_of(&answer, at.as_deref())?;
            if server.json {
                let whole = json!({ "version": answer["version"], "at": at, "budgets": tree });
                say(&format!("{whole:#}\n"));
                return Ok(());
            }
            let text = serde_saphyr::to_string(&tree).map_err(Failure::fault)?;
            say(&format!("{VERSION_MARK}{}\n{text}", answer["version"]));
        }
        BudgetVerb::Diff { file, server } => {
            let (client, body) = (Client::new(server)?, Change::read(file)?);
            let body = body.asked(&client, "only asked for", None)?;
            let answer = client.put("/v1/budgets?dry_run=true", &body)?;
            print(server, &answer, |answer| match edits_text(&answer["edits"], "") {
                text if text.is_empty() => "nothing would change\n".into(),
                text => text,
            });
        }
        BudgetVerb::Import { file, reason, effective, force_base, server } => {
            let effective =
                effective.as_deref().map(|text| moment("--effective", text)).transpose()?;
            let (client, change) = (Client::new(server)?, Change::read(file)?);
            if change.base.is_none() && !force_base {
                change.must_remove_nothing(&client)?;
            }
            let body = change.asked(&client, reason, effective)?;
            let answer = client.put("/v1/budgets", &body)?;
            print(server, &answer, |answer| {
                let edits = edits_text(&answer["edits"], "  ");
                match answer["scheduled"].as_u64() {
                    Some(number) => format!(
                        "change set {number} is made {}\n{edits}",
                        when(&json!(effective.unwrap_or_default()))
                    ),
                    None => {
                        format!("the budgets are at version {} now\n{edits}", answer["version"])
                    }
                }
            });
        }
        BudgetVerb::History { limit, server } => {
            let query = [("limit", limit.to_string())];
            let answer = Client::new(server)?.get("/v1/budgets/history", &query)?;
            print(server, &answer, history_text);
        }
        BudgetVerb::Scheduled { server } => {
            let answer = Client::new(server)?.get("/v1/budgets/scheduled", &[])?;
            print(server, &answer, scheduled_text);
        }
        BudgetVerb::Transfer { from, to, gpu_hours, each, reason, server } => {
            let mut body =
                json!({ "from": from, "to": to, "gpu_hours": gpu_hours, "reason": reason });
            if let Some(each) = each {
                body["each"] = json!(each);
            }
            let answer =
                Client::new(server)?.post("/v1/budgets/transfer", None, &body.to_string())?;
            print(server, &answer, |answer| {
                let left = |terms: &Value| match &terms[0]["left_gpu_hours"] {
                    Value::Null => String::new(),
                    left => format!(", and has {} left", hours(left)),
                };
                format!("{from} gave {gpu_hours} GPU-hours to {to}{}\n", left(&answer["from"]))
            });
        }
        BudgetVerb::Withdraw { change, server } => {
            let path = format!("/v1/budgets/scheduled/{change}/withdraw");
            let answer = Client::new(server)?.post(&path, None, "")?;
            print(server, &answer, |_| format!("change set {change} will not be made\n"));
        }
    }
    Ok(())
}

/// What lies below `at`, or all of it, as far as one owns it.
fn tree_of(answer: &Value, at: Option<&str>) -> Result<Tree, Failure> {
    let Some(at) = at else {
        if answer["tree"].is_null() {
            let owned = answer["owned"].as_object().into_iter().flatten();
            let owned: Vec<&str> = owned.map(|(path, _)| path.as_str()).collect();
            return Err(Failure::input(match &owned[..] {
                [] => "you own no budget; ask an owner".to_owned(),
                owned => format!(
                    "only owners of the root export the whole tree; name yours with --at: {}",
                    owned.join(", ")
                ),
            }));
        }
        return serde_json::from_value(answer["tree"].clone()).map_err(Failure::fault);
    };
    let nothing = || Failure::input(format!("--at: there is no budget '{at}' that you own"));
    let owned = answer["owned"].as_object().into_iter().flatten();
    let roots = owned
        .map(|(path, below)| (path.as_str(), below))
        .chain(answer["tree"].is_object().then_some(("", &answer["tree"])));
    for (path, below) in roots {
        let rest = match (path, at.strip_prefix(path)) {
            (_, Some("")) => Some(""),
            ("", Some(rest)) => Some(rest),
            (_, Some(rest)) => rest.strip_prefix('/'),
            (_, None) => None,
        };
        let Some(rest) = rest else { continue };
        let mut tree: Tree = serde_json::from_value(below.clone()).map_err(Failure::fault)?;
        for name in rest.split('/').filter(|name| !name.is_empty()) {
            tree = tree.remove(name).ok_or_else(nothing)?.children;
        }
        return Ok(tree);
    }
    Err(nothing())
}

/// A tree from a file, and what it is to be put in place of.
struct Change {
    tree: Tree,
    at: Option<String>,
    base: Option<u64>,
}

impl Change {
    fn read(file: &BudgetFile) -> Result<Self, Failure> {
        let text = read_input(&file.file)?;
        let tree = read_tree(&text)
            .map_err(|error| Failure::input(format!("{}: {error}", file.file.display())))?;
        // What it was exported from, so that what others changed since is noticed.
        let marked = text.lines().find_map(|line| line.strip_prefix(VERSION_MARK));
        let base = file.base.or_else(|| marked.and_then(|version| version.trim().parse().ok()));
        Ok(Self { tree, at: file.at.clone(), base })
    }

    /// A tree that does not say what it was made from must not take away what others added meanwhile.
    fn must_remove_nothing(&self, client: &Client) -> Result<(), Failure> {
        let body = self.asked(client, "only asked for", None)?;
        let answer = client.put("/v1/budgets?dry_run=true", &body)?;
        let edits = answer["edits"].as_array().into_iter().flatten();
        let gone = edits.filter(|edit| edit["edit"] == "removed").map(|edit| words(&edit["path"]));
        let gone: Vec<String> = gone.collect();
        if gone.is_empty() {
            return Ok(());
        }
        let base = client.get("/v1/budgets", &[])?["version"].clone();
        Err(Failure::input(format!(
            "it does not say from which version it was made, and would remove {}; give --base {base} if it was made from what is in force now, or --force-base",
            gone.join(", ")
        )))
    }

    fn asked(
        &self,
        client: &Client,
        reason: &str,
        effective: Option<u64>,
    ) -> Result<String, Failure> {
        let base = match self.base {
            Some(base) => json!(base),
            None => client.get("/v1/budgets", &[])?["version"].clone(),
        };
        let mut body = json!({ "base": base, "reason": reason, "budgets": self.tree });
        if let Some(at) = &self.at {
            body["at"] = json!(at);
        }
        if let Some(effective) = effective {
            body["effective_unix_ms"] = json!(effective);
        }
        Ok(body.to_string())
    }
}

/// Milliseconds since 1970 of a moment as people write it: with an offset, or in this machine's time zone.
pub(crate) fn moment(flag: &str, text: &str) -> Result<u64, Failure> {
    let wrong = || {
        Failure::input(format!(
            "{flag}: '{text}' is no moment; write 2026-12-01, 2026-12-01T09:00 or 2026-12-01T09:00:00Z"
        ))
    };
    let timestamp = match text.parse::<jiff::Timestamp>() {
        Ok(timestamp) => timestamp,
        Err(_) => {
            let local: jiff::civil::DateTime = text.parse().map_err(|_| wrong())?;
            jiff::tz::TimeZone::system().to_timestamp(local).map_err(|_| wrong())?
        }
    };
    u64::try_from(timestamp.as_millisecond()).map_err(|_| wrong())
}

fn edits_text(edits: &Value, indent: &str) -> String {
    let edits = edits.as_array().into_iter().flatten();
    edits.map(|edit| format!("{indent}{}\n", words(&edit["text"]))).collect()
}

fn history_text(answer: &Value) -> String {
    let versions = answer["versions"].as_array().into_iter().flatten();
    let text: String = versions
        .map(|one| {
            let by = one["author"].as_str().map_or(String::new(), |author| format!(", {author}"));
            format!(
                "version {} ({}{by}): {}\n{}",
                one["version"],
                when(&one["at_unix_ms"]),
                words(&one["reason"]),
                edits_text(&one["edits"], "  ")
            )
        })
        .collect();
    if text.is_empty() { "no budget that you may see was ever changed\n".into() } else { text }
}

fn scheduled_text(answer: &Value) -> String {
    let changes = answer["scheduled"].as_array().into_iter().flatten();
    let text: String = changes
        .map(|one| {
            format!(
                "change set {} ({}, {}): {}\n{}",
                one["change"],
                when(&one["effective_unix_ms"]),
                words(&one["author"]),
                words(&one["reason"]),
                edits_text(&one["edits"], "  ")
            )
        })
        .collect();
    if text.is_empty() { "nothing waits for its moment\n".into() } else { text }
}

fn budgets_text(answer: &Value) -> String {
    let row = |budget: &Value| {
        let path = match budget["path"].as_str() {
            Some("") | None => "(all)".to_owned(),
            Some(path) => path.to_owned(),
        };
        vec![
            path,
            budget["share"].to_string(),
            format!("{:.1} %", budget["fraction"].as_f64().unwrap_or(0.0) * 100.0),
            words(&budget["usage_ratio"]),
            gpu_hours(&budget["charged_gpu_ms"]),
            gpu_hours(&budget["protected_gpu_ms"]),
            gpu_hours(&budget["allocated_gpu_ms"]),
            budget["running_gpus"].to_string(),
            budget["waiting"].to_string(),
        ]
    };
    let rows = answer["budgets"].as_array().into_iter().flatten().map(row).collect();
    let head = [
        "budget",
        "share",
        "fraction",
        "usage ratio",
        "charged",
        "protected",
        "allocated",
        "running GPUs",
        "waiting",
    ];
    let terms = terms_text(answer);
    let legend = "usage ratio = (charged + protected) / allocated, in GPU-hours over lookback and horizon (rule 3)\n";
    format!("version {}\n{}{legend}{terms}", answer["version"], table(&head, rows))
}

/// GPU-hours with what people read of them.
fn hours(value: &Value) -> String {
    format!("{:.1} GPU-hours", value.as_f64().unwrap_or(0.0))
}

/// How the terms stand that hold now, a line each.
fn terms_text(answer: &Value) -> String {
    let mut rows = Vec::new();
    for budget in answer["budgets"].as_array().into_iter().flatten() {
        for term in budget["terms"].as_array().into_iter().flatten() {
            let number = |key: &str| format!("{:.1}", term[key].as_f64().unwrap_or(0.0));
            let forecast = match (&term["exhausted_unix_ms"], &term["until_unix_ms"]) {
                (Value::Null, _) => "lasts".to_owned(),
                (at, _) if term["left_gpu_hours"] == 0.0 && !at.is_null() => "exhausted".to_owned(),
                (at, _) => format!("exhausted {}", when(at)),
            };
            let ends = match &term["until_unix_ms"] {
                Value::Null => "never".to_owned(),
                until => when(until),
            };
            rows.push(vec![
                words(&budget["path"]),
                words(&term["text"]),
                number("limit_gpu_hours"),
                number("charged_gpu_hours"),
                number("committed_gpu_hours"),
                number("left_gpu_hours"),
                ends,
                forecast,
            ]);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let head = [
        "budget",
        "term",
        "limit",
        "charged",
        "protected",
        "left",
        "ends",
        "as in the lookback it is",
    ];
    format!("\nTerms, in GPU-hours at rate 1:\n{}", table(&head, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Value {
        json!({
            "version": 4,
            "tree": null,
            "owned": {"a": {"a1": {"share": 1, "children": {"x": {"share": 2}}}}, "ab": {}},
        })
    }

    #[test]
    fn owners_export_what_lies_below_what_they_own() {
        let names = |at: &str| {
            tree_of(&answer(), Some(at)).map(|tree| tree.into_keys().collect::<Vec<_>>())
        };
        assert_eq!(names("a").ok(), Some(vec!["a1".to_owned()]));
        assert_eq!(names("a/a1").ok(), Some(vec!["x".to_owned()]));
        assert_eq!(names("ab").ok(), Some(vec![]));
        for none in ["a/a2", "b", "a/a1/x/y", "abc"] {
            let refused = names(none).expect_err(none).to_string();
            assert!(refused.contains(&format!("'{none}'")), "{refused}");
        }
        let refused = tree_of(&answer(), None).expect_err("not the root's owner").to_string();
        assert!(refused.contains("--at: a, ab"), "{refused}");
        let whole = json!({"version": 1, "tree": {"a": {"share": 1, "children": {"b": {"share": 1}}}}, "owned": {}});
        assert_eq!(tree_of(&whole, Some("a")).expect("it is there").len(), 1);
        assert_eq!(tree_of(&whole, None).expect("all").len(), 1);
    }

    #[test]
    fn moments_are_read_as_people_write_them() {
        assert_eq!(moment("--effective", "1970-01-01T00:00:01Z").ok(), Some(1_000));
        assert_eq!(moment("--effective", "1970-01-01T01:00:00+01:00").ok(), Some(0));
        assert!(
            moment("--effective", "2026-12-01").is_ok()
                && moment("--effective", "2026-12-01T09:00").is_ok()
        );
        for wrong in ["tomorrow", "", "2026-13-01", "1969-01-01T00:00:00Z", "10000-01-01"] {
            let refused = moment("--effective", wrong).expect_err(wrong).to_string();
            assert!(refused.contains("--effective"), "{refused}");
        }
    }
}
