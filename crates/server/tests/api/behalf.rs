//! For whom work runs: who may have it run as somebody else, and as which accounts of the machine.

use crate::world::{TREE, World};
use bursar_server::accounts::Accounts;
use serde_json::{Value, json};

fn for_user(user: &str, budget: &str) -> String {
    format!(
        "workload: {{name: w, gpus: 1, min_runtime: 30m, budget_owner: {budget}, command: [x], user: {user}}}"
    )
}

/// Puts another tree in force below a budget, as somebody.
async fn change(world: &World, who: &str, at: &str, tree: &Value) {
    let base = world.ask(who, "GET", "/v1/budgets", "").await.json()["version"].clone();
    let mut body = json!({ "base": base, "reason": "test", "budgets": tree });
    if !at.is_empty() {
        body["at"] = json!(at);
    }
    let body = body.to_string();
    let answer = world.ask(who, "PUT", "/v1/budgets", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

fn tree() -> Value {
    serde_json::from_str(TREE).expect("a tree")
}

#[tokio::test]
async fn nobody_becomes_root_by_a_budget() {
    let world = World::new();
    let mut wanted = tree();
    wanted["program-b"]["members"] = json!(["bob", "root", "daemon"]);
    change(&world, "boss", "", &wanted).await;
    for allow_root in [false, true] {
        world
            .with(move |daemon| {
                daemon.options_mut().accounts = Accounts { as_user: true, allow_root };
            })
            .await;
        let root_by_boss = if allow_root { "" } else { "may not run as 'root'" };
        let root_by_ben =
            if allow_root { "an account of the system" } else { "may not run as 'root'" };
        for (who, user, said) in [
            ("ben", "root", root_by_ben),
            ("boss", "root", root_by_boss),
            ("ben", "daemon", "'daemon' is an account of the system"),
            ("boss", "daemon", ""),
            ("ben", "bob", ""),
        ] {
            let answer =
                world.ask(who, "POST", "/v1/workloads", &for_user(user, "program-b")).await;
            let status = if said.is_empty() { 200 } else { 403 };
            assert_eq!(answer.status, status, "{who} for {user}: {}", answer.text());
            assert!(answer.text().contains(said), "{who} for {user}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn who_was_written_in_by_an_owner_is_not_theirs_to_run_as() {
    let world = World::new();
    let mut wanted = tree();
    wanted["program-a"]["children"]["team-a1"]["members"] = json!(["max", "mate", "bob"]);
    change(&world, "ann", "program-a", &wanted["program-a"]["children"]).await;
    let body = for_user("bob", "program-a/team-a1");
    let answer = world.ask("ann", "POST", "/v1/workloads", &body).await;
    assert_eq!(answer.status, 403);
    assert!(answer.text().contains("only by lists that you write yourself"), "{}", answer.text());
    assert_eq!(world.ask("bob", "POST", "/v1/workloads", &body).await.status, 200);
}

#[tokio::test]
async fn who_left_a_budget_has_nothing_run_in_it() {
    let world = World::new();
    let body = for_user("max", "program-a/team-a1");
    let held = world.ask("max", "POST", "/v1/workloads?hold=true", &body).await;
    let held = held.json()["workload"].as_u64().expect("a number");
    let ended = world.ask("max", "POST", "/v1/workloads?hold=true", &body).await;
    let ended = ended.json()["workload"].as_u64().expect("a number");
    let cancelled = world.ask("max", "POST", &format!("/v1/workloads/{ended}/cancel"), "").await;
    assert_eq!(cancelled.status, 200);
    let mut wanted = tree();
    wanted["program-a"]["children"]["team-a1"]["members"] = json!(["mate"]);
    change(&world, "ann", "program-a", &wanted["program-a"]["children"]).await;
    // Neither they, nor for them an owner who may not submit for them any more.
    for who in ["max", "lea"] {
        for (number, verb) in [(held, "release"), (ended, "requeue")] {
            let path = format!("/v1/workloads/{number}/{verb}");
            let answer = world.ask(who, "POST", &path, "").await;
            assert_eq!(answer.status, 403, "{who} {verb}: {}", answer.text());
            assert!(answer.text().contains("member of 'program-a/team-a1'"), "{}", answer.text());
        }
    }
    let answer = world.ask("max", "POST", &format!("/v1/workloads/{held}/cancel"), "").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}
