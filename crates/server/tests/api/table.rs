//! What each role gets from each route, for each part of the tree; and that nothing of others is in any answer.

use crate::document::operations;
use crate::world::{Answered, World, request, secret, workload};
use bursar_site::views::Standing;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Nobody has no token. Void, expired and reader are tokens of max; reader's may only read. Eve has a token and no
/// part in any budget. Bob is a member of program-b, max of program-a/team-a1. Lea owns that leaf, ann program-a,
/// boss the root.
const ROLES: [&str; 10] =
    ["nobody", "void", "expired", "reader", "eve", "bob", "max", "lea", "ann", "boss"];

/// Own is program-a/team-a1 (its workloads are another member's), sibling program-a/team-a2, parent program-a,
/// other program-b, root the whole.
const TABLE: &str = "
route                                 | of      | nobody void expired reader eve bob max lea ann boss
GET /healthz                          | -       | 200 200 200 200 200 200 200 200 200 200
GET /readyz                           | -       | 200 200 200 200 200 200 200 200 200 200
GET /v1/openapi.json                  | -       | 200 200 200 200 200 200 200 200 200 200
GET /metrics                          | -       | 401 401 401 200 200 200 200 200 200 200
GET /v1/me                            | -       | 401 401 401 200 200 200 200 200 200 200
GET /v1/events                        | -       | 401 401 401 200 200 200 200 200 200 200
GET /v1/workloads                     | -       | 401 401 401 200 200 200 200 200 200 200
GET /v1/workloads                     | sibling | 401 401 401 200 200 200 200 200 200 200
GET /v1/workloads                     | other   | 401 401 401 200 200 200 200 200 200 200
POST /v1/workloads                    | own     | 401 401 401 403 403 403 200 200 200 200
POST /v1/workloads                    | dry-run | 401 401 401 200 403 403 200 200 200 200
POST /v1/workloads                    | sibling | 401 401 401 403 403 403 403 403 200 200
POST /v1/workloads                    | parent  | 401 401 401 403 403 403 403 403 422 422
POST /v1/workloads                    | other   | 401 401 401 403 403 200 403 403 403 200
POST /v1/workloads                    | for-max | 401 401 401 403 403 403 200 200 403 200
POST /v1/workloads                    | for-mia | 401 401 401 403 403 403 403 403 403 200
POST /v1/workloads                    | for-bob | 401 401 401 403 403 403 403 403 403 403
POST /v1/workloads                    | for-root| 401 401 401 403 403 403 403 403 403 403
GET /v1/workloads/{number}            | own     | 401 401 401 200 404 404 200 200 200 200
GET /v1/workloads/{number}            | sibling | 401 401 401 404 404 404 404 404 200 200
GET /v1/workloads/{number}            | other   | 401 401 401 404 404 200 404 404 404 200
GET /v1/workloads/{number}            | none    | 401 401 401 404 404 404 404 404 404 404
GET /v1/workloads/{number}/log        | own     | 401 401 401 200 404 404 200 200 200 200
GET /v1/workloads/{number}/log        | sibling | 401 401 401 404 404 404 404 404 200 200
GET /v1/workloads/{number}/log        | other   | 401 401 401 404 404 200 404 404 404 200
POST /v1/workloads/{number}/cancel    | own     | 401 401 401 403 404 404 403 200 200 200
POST /v1/workloads/{number}/cancel    | sibling | 401 401 401 403 404 404 404 404 200 200
POST /v1/workloads/{number}/cancel    | other   | 401 401 401 403 404 200 404 404 404 200
POST /v1/workloads/{number}/cancel    | array   | 401 401 401 403 404 404 403 200 200 200
POST /v1/workloads/{number}/release   | own     | 401 401 401 403 404 404 403 200 200 200
POST /v1/workloads/{number}/release   | sibling | 401 401 401 403 404 404 404 404 200 200
POST /v1/workloads/{number}/release   | other   | 401 401 401 403 404 200 404 404 404 200
POST /v1/workloads/{number}/requeue   | own     | 401 401 401 403 404 404 403 200 200 200
POST /v1/workloads/{number}/requeue   | sibling | 401 401 401 403 404 404 404 404 200 200
POST /v1/workloads/{number}/requeue   | other   | 401 401 401 403 404 200 404 404 404 200
POST /v1/workloads/{number}/checkpoint| own     | 401 401 401 403 404 404 403 200 200 200
POST /v1/workloads/{number}/checkpoint| sibling | 401 401 401 403 404 404 404 404 200 200
POST /v1/workloads/{number}/checkpoint| other   | 401 401 401 403 404 200 404 404 404 200
GET /v1/budgets                       | -       | 401 401 401 200 200 200 200 200 200 200
PUT /v1/budgets                       | own     | 401 401 401 403 403 403 403 200 200 200
PUT /v1/budgets                       | sibling | 401 401 401 403 403 403 403 403 200 200
PUT /v1/budgets                       | parent  | 401 401 401 403 403 403 403 403 200 200
PUT /v1/budgets                       | other   | 401 401 401 403 403 403 403 403 403 200
PUT /v1/budgets                       | root    | 401 401 401 403 403 403 403 403 403 200
PUT /v1/budgets                       | dry-run | 401 401 401 403 403 403 403 200 200 200
PUT /v1/budgets                       | later   | 401 401 401 403 403 403 403 200 200 200
GET /v1/budgets/history               | -       | 401 401 401 200 200 200 200 200 200 200
GET /v1/budgets/scheduled             | -       | 401 401 401 200 200 200 200 200 200 200
POST /v1/budgets/scheduled/{number}/withdraw| own | 401 401 401 403 404 404 404 404 200 200
POST /v1/budgets/scheduled/{number}/withdraw| none| 401 401 401 403 404 404 404 404 404 404
POST /v1/budgets/transfer             | own     | 401 401 401 403 403 403 403 403 422 422
POST /v1/budgets/transfer             | other   | 401 401 401 403 403 403 403 403 403 422
GET /v1/funding                       | -       | 401 401 401 200 200 200 200 200 200 200
POST /v1/funding                      | own     | 401 401 401 403 403 403 200 200 200 200
POST /v1/funding                      | sibling | 401 401 401 403 403 403 403 403 200 200
POST /v1/funding                      | other   | 401 401 401 403 403 200 403 403 403 200
GET /v1/funding/{number}              | own     | 401 401 401 200 404 404 200 200 200 200
GET /v1/funding/{number}              | other   | 401 401 401 404 404 200 404 404 404 200
GET /v1/funding/{number}/effect       | own     | 401 401 401 403 404 404 403 403 200 200
GET /v1/funding/{number}/effect       | other   | 401 401 401 404 404 403 404 404 404 200
POST /v1/funding/{number}/grant       | own     | 401 401 401 403 404 404 403 403 200 200
POST /v1/funding/{number}/grant       | other   | 401 401 401 403 404 403 404 404 404 200
POST /v1/funding/{number}/decline     | own     | 401 401 401 403 404 404 403 403 200 200
POST /v1/funding/{number}/withdraw    | own     | 401 401 401 403 404 404 403 403 403 403
POST /v1/funding/{number}/withdraw    | none    | 401 401 401 403 404 404 404 404 404 404
GET /v1/hosts                         | -       | 401 401 401 200 200 200 200 200 200 200
POST /v1/hosts/{name}/drain           | -       | 401 401 401 403 403 403 403 403 403 200
POST /v1/hosts/{name}/undrain         | -       | 401 401 401 403 403 403 403 403 403 200
GET /v1/tokens                        | -       | 401 401 401 200 200 200 200 200 200 200
POST /v1/tokens                       | own     | 401 401 401 403 200 200 200 200 200 200
POST /v1/tokens                       | other   | 401 401 401 403 403 200 403 403 403 200
POST /v1/tokens/{name}/revoke         | own     | 401 401 401 403 404 404 200 404 404 200
POST /v1/tokens/{name}/revoke         | none    | 401 401 401 403 404 404 404 404 404 404
GET /v1/report                        | -       | 401 401 401 200 200 200 200 200 200 200
GET /v1/report                        | own     | 401 401 401 200 404 404 200 200 200 200
GET /v1/report                        | sibling | 401 401 401 404 404 404 404 404 200 200
GET /v1/report                        | parent  | 401 401 401 404 404 404 404 404 200 200
GET /v1/report                        | other   | 401 401 401 404 404 200 404 404 404 200
GET /v1/export/trace                  | -       | 401 401 401 403 403 403 403 403 403 200
GET /v1/audit                         | -       | 401 401 401 403 403 403 403 403 403 200
";

/// Words that tell of somebody's matters, and who may read them.
const WORDS: [(&str, &[&str]); 20] = [
    ("program-a", &["reader", "max", "lea", "ann", "boss"]),
    ("team-a1", &["reader", "max", "lea", "ann", "boss"]),
    ("mark-a1", &["reader", "max", "lea", "ann", "boss"]),
    ("mate", &["reader", "max", "lea", "ann", "boss"]),
    ("max", &["reader", "max", "lea", "ann", "boss"]),
    ("lea", &["reader", "max", "lea", "ann", "boss"]),
    ("ann", &["reader", "max", "lea", "ann", "boss"]),
    ("team-a2", &["ann", "boss"]),
    ("mark-a2", &["ann", "boss"]),
    ("mia", &["ann", "boss"]),
    ("lars", &["ann", "boss"]),
    ("program-b", &["bob", "boss"]),
    ("mark-b", &["bob", "boss"]),
    ("bob", &["bob", "boss"]),
    ("ben", &["bob", "boss"]),
    ("boss", &["reader", "bob", "max", "lea", "ann", "boss"]),
    ("eve", &["eve", "boss"]),
    ("env-of-mark-a1", &[]),
    ("env-of-mark-a2", &[]),
    ("env-of-mark-b", &["bob"]),
];

struct Row {
    route: String,
    of: String,
    expected: BTreeMap<&'static str, u16>,
}

fn rows() -> Vec<Row> {
    let lines = TABLE.lines().filter(|line| !line.is_empty()).skip(1);
    let row = |line: &str| {
        let [route, of, statuses] = line.split('|').collect::<Vec<_>>()[..] else {
            panic!("three columns: {line}")
        };
        let statuses = statuses.split_whitespace().map(|status| status.parse().expect("a status"));
        let expected: BTreeMap<_, _> = ROLES.into_iter().zip(statuses).collect();
        assert_eq!(expected.len(), ROLES.len(), "a status for each role: {line}");
        Row { route: route.trim().into(), of: of.trim().into(), expected }
    };
    lines.map(row).collect()
}

fn budget_of(of: &str) -> &'static str {
    match of {
        "own" | "dry-run" | "later" | "array" | "for-max" | "for-bob" | "for-root" | "-" => {
            "program-a/team-a1"
        }
        "sibling" | "for-mia" => "program-a/team-a2",
        "parent" => "program-a",
        "other" => "program-b",
        "root" => "",
        of => panic!("{of} is no part of the tree"),
    }
}

/// A member of a leaf who is none of the roles, but for program-b, and the name of their workload.
fn worker_of(of: &str) -> (&'static str, &'static str) {
    match of {
        "own" | "array" => ("mate", "mark-a1"),
        "sibling" => ("mia", "mark-a2"),
        "other" => ("bob", "mark-b"),
        of => panic!("nobody works for {of}"),
    }
}

/// The site with one running workload for each leaf.
struct Played {
    world: World,
    running: BTreeMap<&'static str, u64>,
    count: u32,
}

impl Played {
    async fn new() -> Self {
        let world = World::new();
        let mut running = BTreeMap::new();
        for of in ["own", "sibling", "other"] {
            let (who, name) = worker_of(of);
            let number = world.submit(who, &workload(name, budget_of(of))).await;
            world.until(number, Standing::Protected).await;
            running.insert(of, number);
        }
        Self { world, running, count: 0 }
    }

    /// Makes what a cell needs and gives its path and body.
    async fn prepared(&mut self, route: &str, of: &str) -> (String, String) {
        self.count += 1;
        let path = route.split_once(' ').expect("method and path").1;
        let fill = |part: &str, with: &str| path.replace(part, with);
        match (route, of) {
            ("GET /v1/workloads", "-") => (format!("{path}?all=true"), String::new()),
            ("GET /v1/workloads", of) => {
                (format!("{path}?all=true&budget={}", budget_of(of)), String::new())
            }
            ("GET /v1/report", "-") => {
                (format!("{path}?last_ms=86400000&attempts=true"), String::new())
            }
            ("GET /v1/report", of) => {
                let query = format!("last_ms=86400000&attempts=true&budget={}", budget_of(of));
                (format!("{path}?{query}"), String::new())
            }
            ("POST /v1/workloads", "dry-run") => {
                (format!("{path}?dry_run=true"), workload("mine", budget_of(of)))
            }
            ("POST /v1/workloads", "for-max" | "for-mia" | "for-bob" | "for-root") => {
                let text = workload("mine", budget_of(of));
                let user = &of["for-".len()..];
                (path.into(), text.replace("gpus: 1", &format!("gpus: 1, user: {user}")))
            }
            ("POST /v1/workloads", of) => (path.into(), workload("mine", budget_of(of))),
            ("POST /v1/workloads/{number}/cancel", of) => {
                let (who, name) = worker_of(of);
                let mut text = workload(name, budget_of(of));
                let all = of == "array";
                if all {
                    text = text.replace("gpus: 1", "gpus: 1, array: 0-2%1");
                }
                let number = self.world.submit(who, &text).await;
                let path = fill("{number}", &number.to_string());
                (if all { format!("{path}?array=true") } else { path }, String::new())
            }
            ("POST /v1/workloads/{number}/release", of) => {
                let (who, name) = worker_of(of);
                let text = workload(name, budget_of(of));
                let held = self.world.ask(who, "POST", "/v1/workloads?hold=true", &text).await;
                (fill("{number}", &held.json()["workload"].to_string()), String::new())
            }
            ("POST /v1/workloads/{number}/requeue", of) => {
                // One that has ended is run once more.
                let (who, name) = worker_of(of);
                let number = self.world.submit(who, &workload(name, budget_of(of))).await;
                let cancel = format!("/v1/workloads/{number}/cancel");
                self.world.ask(who, "POST", &cancel, "").await;
                self.world.until(number, Standing::Ended).await;
                (fill("{number}", &number.to_string()), String::new())
            }
            ("PUT /v1/budgets", "dry-run") => {
                (format!("{path}?dry_run=true"), self.budgets_as_they_are(of).await)
            }
            ("PUT /v1/budgets", "later") => {
                let mut body: Value =
                    serde_json::from_str(&self.budgets_as_they_are(of).await).expect("JSON");
                body["effective_unix_ms"] = json!(4_102_444_800_000u64);
                (path.into(), body.to_string())
            }
            ("POST /v1/budgets/transfer", of) => {
                let (from, to) = match of {
                    "own" => ("program-a/team-a1", "program-a/team-a2"),
                    _ => ("program-a", "program-b"),
                };
                let body = json!({ "from": from, "to": to, "gpu_hours": 1 });
                (path.into(), body.to_string())
            }
            ("POST /v1/funding", of) => (path.into(), self.funding_of(of)),
            (_, of) if path.starts_with("/v1/funding/{number}") && of != "none" => {
                let who = if of == "own" { "mate" } else { "bob" };
                let asked = self.world.ask(who, "POST", "/v1/funding", &self.funding_of(of)).await;
                let number = asked.json()["request"].to_string();
                let body = json!({ "reason": format!("ruling {}", self.count) });
                let has_body = path.ends_with("grant") || path.ends_with("decline");
                let body = if has_body { body.to_string() } else { String::new() };
                (fill("{number}", &number), body)
            }
            ("POST /v1/budgets/scheduled/{number}/withdraw", "own") => {
                let mut body: Value =
                    serde_json::from_str(&self.budgets_as_they_are("parent").await).expect("JSON");
                body["effective_unix_ms"] = json!(4_102_444_800_000u64);
                let made = self.world.ask("ann", "PUT", "/v1/budgets", &body.to_string()).await;
                (fill("{number}", &made.json()["scheduled"].to_string()), String::new())
            }
            ("POST /v1/budgets/scheduled/{number}/withdraw", _) => {
                (fill("{number}", "4711"), String::new())
            }
            (_, "none") if path.contains("{number}") => (fill("{number}", "4711"), String::new()),
            (_, of) if path.contains("{number}") => {
                (fill("{number}", &self.running[of].to_string()), String::new())
            }
            ("PUT /v1/budgets", of) => (path.into(), self.budgets_as_they_are(of).await),
            ("POST /v1/hosts/{name}/drain", _) => (fill("{name}", "h-1"), String::new()),
            ("POST /v1/hosts/{name}/undrain", _) => {
                let drained = self.world.ask("boss", "POST", "/v1/hosts/h-1/drain", "").await;
                assert_eq!(drained.status, 200, "{}", drained.text());
                (fill("{name}", "h-1"), String::new())
            }
            ("POST /v1/tokens", "own") => {
                (path.into(), json!({ "name": format!("new-{}", self.count) }).to_string())
            }
            ("POST /v1/tokens", _) => {
                let name = format!("new-{}", self.count);
                (path.into(), json!({ "name": name, "user": "bob" }).to_string())
            }
            ("POST /v1/tokens/{name}/revoke", "own") => {
                let name = format!("spare-{}", self.count);
                let body = json!({ "name": name }).to_string();
                let made = self.world.ask("max", "POST", "/v1/tokens", &body).await;
                assert_eq!(made.status, 200, "{}", made.text());
                (fill("{name}", &name), String::new())
            }
            ("POST /v1/tokens/{name}/revoke", _) => (fill("{name}", "nothing"), String::new()),
            (_, "-") => (path.into(), String::new()),
            (route, of) => panic!("how is {route} asked for {of}?"),
        }
    }

    /// A change that changes nothing, below some budget.
    async fn budgets_as_they_are(&self, of: &str) -> String {
        let seen = self.world.ask("boss", "GET", "/v1/budgets", "").await.json();
        let mut below = &seen["tree"];
        let at = budget_of(of);
        for name in at.split('/').filter(|name| !name.is_empty()) {
            below = &below[name]["children"];
        }
        let below = if below.is_null() { json!({}) } else { below.clone() };
        let mut body = json!({ "base": seen["version"], "reason": "none", "budgets": below });
        if !at.is_empty() {
            body["at"] = json!(at);
        }
        body.to_string()
    }

    /// A funding request for a share that no budget has.
    fn funding_of(&self, of: &str) -> String {
        let budget = match of {
            "other" => "program-b",
            of => budget_of(of),
        };
        let share = 1_000 + self.count;
        json!({ "budget": budget, "share": share, "reason": "more" }).to_string()
    }

    async fn tidied(&self, route: &str) {
        if route.starts_with("POST /v1/hosts") {
            self.world.ask("boss", "POST", "/v1/hosts/h-1/undrain", "").await;
        }
    }

    async fn asked(&self, role: &str, route: &str, path: &str, body: &str) -> Answered {
        let method = route.split_once(' ').expect("method and path").0;
        let known = secret(role);
        let token = (role != "nobody").then_some(known.as_str());
        self.world.send(request(token, method, path, body)).await
    }
}

fn words_of(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect()
}

#[test]
fn every_route_is_in_the_table_and_no_other() {
    let known: BTreeSet<String> = rows().into_iter().map(|row| row.route).collect();
    let served: BTreeSet<String> =
        operations().into_iter().map(|(method, path)| format!("{method} {path}")).collect();
    assert_eq!(known, served, "TABLE says of each route what each role gets");
}

#[tokio::test]
async fn each_role_gets_what_the_table_says_and_reads_nothing_of_others() {
    let mut played = Played::new().await;
    let mut wrong = Vec::new();
    for row in rows() {
        for role in ROLES {
            let (path, body) = played.prepared(&row.route, &row.of).await;
            let answer = played.asked(role, &row.route, &path, &body).await;
            played.tidied(&row.route).await;
            let cell = format!("{} of {} as {role}", row.route, row.of);
            if answer.status != row.expected[role] {
                let (status, text) = (answer.status, answer.text());
                wrong.push(format!("{cell}: {status} is not {}: {text}", row.expected[role]));
            }
            if answer.status.as_u16() >= 400 {
                let problem = answer.json();
                assert_eq!(answer.headers["content-type"], "application/problem+json", "{cell}");
                assert_eq!(problem["status"], answer.status.as_u16(), "{cell}");
                assert!(problem["detail"].as_str().is_some_and(|text| !text.is_empty()), "{cell}");
            }
            // What is the same for all tells nothing of anybody.
            if row.route == "GET /v1/openapi.json" {
                continue;
            }
            // The longest of some waits is called so, and it is a name here.
            let text = answer.text().replace("\"max\":", "");
            let (asked, told) = (format!("{path} {body}"), words_of(&text));
            for (word, readers) in WORDS {
                let known = readers.contains(&role) || words_of(&asked).contains(word);
                if told.contains(word) && !known {
                    wrong.push(format!("{cell} reads '{word}': {}", answer.text()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} cells:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn what_one_may_not_see_looks_like_what_is_not_there() {
    let played = Played::new().await;
    let hidden = played.running["other"];
    let answer = |path: String| {
        let world = &played.world;
        async move { world.ask("max", "GET", &path, "").await }
    };
    let there = answer(format!("/v1/workloads/{hidden}")).await;
    let not_there = answer("/v1/workloads/4711".into()).await;
    assert_eq!(
        there.text().replace(&hidden.to_string(), "N"),
        not_there.text().replace("4711", "N")
    );
    // A workload that waits for one that it may not see learns nothing either.
    for number in [hidden, 4711] {
        let text = workload("w", "program-a/team-a1")
            .replace("gpus: 1", &format!("gpus: 1, after: [{{workload: {number}}}]"));
        let answer = played.world.ask("max", "POST", "/v1/workloads", &text).await;
        assert_eq!(answer.status, 404, "{}", answer.text());
    }
    // Nor does the key of somebody else's submission tell anything.
    let mut first =
        request(Some(&secret("bob")), "POST", "/v1/workloads", &workload("k", "program-b"));
    first.headers_mut().insert("idempotency-key", "one".parse().expect("a header"));
    let first = played.world.send(first).await.json();
    let text = workload("k", "program-a/team-a1");
    let mut second = request(Some(&secret("max")), "POST", "/v1/workloads", &text);
    second.headers_mut().insert("idempotency-key", "one".parse().expect("a header"));
    let second = played.world.send(second).await.json();
    assert_ne!(first["workload"], second["workload"]);
}

#[tokio::test]
async fn an_owner_divides_what_they_own_without_seeing_the_rest() {
    let world = World::new();
    let seen = world.ask("ann", "GET", "/v1/budgets", "").await.json();
    assert_eq!(seen["tree"], Value::Null);
    assert_eq!(seen["owned"]["program-a"]["team-a2"]["members"], json!(["mia"]));
    assert_eq!(seen["owned"].as_object().map(serde_json::Map::len), Some(1), "only the topmost");
    let mut children = seen["owned"]["program-a"].clone();
    children["team-a3"] = json!({ "share": 3 });
    let body = json!({
        "base": seen["version"], "reason": "a new team", "at": "program-a", "budgets": children
    });
    let answer = world.ask("ann", "PUT", "/v1/budgets", &body.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let after = world.ask("boss", "GET", "/v1/budgets", "").await.json();
    assert_eq!(after["version"], 2);
    assert_eq!(after["tree"]["program-a"]["children"]["team-a3"]["share"], 3);
    let before: Value = serde_json::from_str(crate::world::TREE).expect("a tree");
    assert_eq!(after["tree"]["program-b"], before["program-b"]);
    // The version is stale by now.
    let answer = world.ask("ann", "PUT", "/v1/budgets", &body.to_string()).await;
    assert_eq!(answer.status, 409);
    // Probing for what one does not own tells nothing, whatever is there.
    for at in
        ["program-b", "program-b/nothing", "nothing", "../program-b", "program-a/../program-b"]
    {
        let body = json!({ "base": 2, "reason": "probe", "at": at, "budgets": {} });
        let answer = world.ask("ann", "PUT", "/v1/budgets", &body.to_string()).await;
        assert_eq!(answer.status, 403, "{}", answer.text());
        assert_eq!(answer.json()["detail"], format!("at: there is no budget '{at}' that you own"));
    }
}
