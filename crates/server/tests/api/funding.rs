//! Terms, transfers and funding requests, as their people have them.

use crate::world::{World, workload};
use serde_json::{Value, json};

/// Who gets the tree as it is, with something changed by `change`.
async fn change_tree(world: &World, change: impl FnOnce(&mut Value)) {
    let seen = world.ask("boss", "GET", "/v1/budgets", "").await.json();
    let mut tree = seen["tree"].clone();
    change(&mut tree);
    let body = json!({ "base": seen["version"], "reason": "test", "budgets": tree });
    let answer = world.ask("boss", "PUT", "/v1/budgets", &body.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

async fn terms_of(world: &World, who: &str, path: &str) -> Value {
    let seen = world.ask(who, "GET", "/v1/budgets", "").await.json();
    let budgets = seen["budgets"].as_array().expect("a list");
    budgets.iter().find(|one| one["path"] == path).expect("it is seen")["terms"].clone()
}

#[tokio::test]
async fn a_term_is_shown_and_moved_between_siblings_by_who_owns_both() {
    let world = World::new();
    change_tree(&world, |tree| {
        let teams = &mut tree["program-a"]["children"];
        teams["team-a1"]["terms"] = json!([{ "each": "month", "limit": 100 }]);
        teams["team-a2"]["terms"] = json!([{ "each": "month", "limit": 40, "carry_over": true }]);
    })
    .await;
    let term = terms_of(&world, "max", "program-a/team-a1").await[0].clone();
    assert_eq!(term["text"], "100 GPU-hours each month");
    assert_eq!((&term["limit_gpu_hours"], &term["left_gpu_hours"]), (&json!(100.0), &json!(100.0)));
    let give = |from: &str, to: &str, hours: f64| {
        json!({ "from": from, "to": to, "gpu_hours": hours, "reason": "done early" }).to_string()
    };
    let (a1, a2) = ("program-a/team-a1", "program-a/team-a2");
    let too_much = world.ask("ann", "POST", "/v1/budgets/transfer", &give(a1, a2, 100.5)).await;
    assert_eq!(too_much.status, 409, "{}", too_much.text());
    assert!(too_much.text().contains("has 100 GPU-hours left"), "{}", too_much.text());
    // Lea owns one of them only.
    let hers = world.ask("lea", "POST", "/v1/budgets/transfer", &give(a1, a2, 1.0)).await;
    assert_eq!(hers.status, 403, "{}", hers.text());
    let moved = world.ask("ann", "POST", "/v1/budgets/transfer", &give(a1, a2, 30.25)).await;
    assert_eq!(moved.status, 200, "{}", moved.text());
    let (left, got) = (terms_of(&world, "ann", a1).await, terms_of(&world, "ann", a2).await);
    assert_eq!(
        (&left[0]["limit_gpu_hours"], &left[0]["moved_gpu_hours"]),
        (&json!(69.75), &json!(-30.25))
    );
    assert_eq!(
        (&got[0]["limit_gpu_hours"], &got[0]["moved_gpu_hours"]),
        (&json!(70.25), &json!(30.25))
    );
    // It stays moved when something else of the tree changes, and is in the audit log.
    change_tree(&world, |tree| tree["program-b"]["share"] = json!(3)).await;
    assert_eq!(terms_of(&world, "ann", a2).await[0]["limit_gpu_hours"], 70.25);
    let audit = world.ask("boss", "GET", "/v1/audit", "").await.json();
    let entries = audit["entries"].as_array().expect("a list");
    let entry = entries.iter().find(|one| one["what"]["kind"] == "transferred").expect("an entry");
    assert_eq!(
        (&entry["actor"], &entry["what"]["milli_gpu_hours"]),
        (&json!("ann"), &json!(30_250))
    );
}

#[tokio::test]
async fn a_bad_term_names_the_budget_and_what_is_wrong() {
    let world = World::new();
    let seen = world.ask("boss", "GET", "/v1/budgets", "").await.json();
    for (term, wanted) in [
        (json!({ "limit": 1 }), "budget 'program-b': terms: a term needs each, from or until"),
        (json!({ "each": "year", "limit": 1 }), "year"),
        (json!({ "each": "day", "limit": -1 }), "limit: -1"),
        (json!({ "from": "2026-02-30", "limit": 1 }), "from: '2026-02-30' is no day or moment"),
        (json!({ "from": "2026-03-02", "until": "2026-03-01", "limit": 1 }), "is not after from"),
        (json!({ "until": "2026-03-01", "limit": 1, "carry_over": true }), "carry_over needs each"),
    ] {
        let mut tree = seen["tree"].clone();
        tree["program-b"]["terms"] = json!([term]);
        let body = json!({ "base": seen["version"], "reason": "test", "budgets": tree });
        let answer = world.ask("boss", "PUT", "/v1/budgets", &body.to_string()).await;
        assert!(answer.status.is_client_error(), "{term}");
        assert!(answer.text().contains(wanted), "{term}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_request_is_granted_otherwise_and_everybody_below_can_read_it() {
    let world = World::new();
    // program-a may hold two thirds of 16 GPUs; half of that is each team's.
    let asked = json!({ "budget": "program-a/team-a1", "gpus": 8, "reason": "the sweep" });
    let asked = world.ask("max", "POST", "/v1/funding", &asked.to_string()).await;
    assert_eq!(asked.status, 200, "{}", asked.text());
    let asked = asked.json();
    assert_eq!(asked["share"], 3, "8 of 10.67 GPUs beside a share of 1");
    assert_eq!(asked["may_decide"], false);
    let number = &asked["request"];
    let at = |verb: &str| format!("/v1/funding/{number}{verb}");
    let too_much = world.ask("ann", "POST", &at("/grant"), r#"{"gpus": 11}"#).await;
    assert_eq!(too_much.status, 422, "{}", too_much.text());
    assert!(too_much.text().contains("'program-a' may hold"), "{}", too_much.text());
    let granted =
        world.ask("ann", "POST", &at("/grant"), r#"{"share": 1.5, "reason": "half"}"#).await;
    assert_eq!(granted.status, 200, "{}", granted.text());
    for who in ["max", "mate", "lea", "ann", "boss"] {
        let seen = world.ask(who, "GET", &at(""), "").await.json();
        let decision = &seen["decision"];
        assert_eq!((&decision["ruling"], &decision["share"]), (&json!("granted"), &json!(1.5)));
        assert_eq!((&decision["by"], &decision["reason"]), (&json!("ann"), &json!("half")));
    }
    let seen = world.ask("boss", "GET", "/v1/budgets", "").await.json();
    assert_eq!(seen["tree"]["program-a"]["children"]["team-a1"]["share"], 1.5);
    let history = world.ask("lea", "GET", "/v1/budgets/history", "").await.json();
    let reason = history["versions"][0]["reason"].as_str().expect("a reason");
    assert!(
        reason.starts_with("funding request ") && reason.ends_with("of max: the sweep"),
        "{reason}"
    );
    let again = world.ask("ann", "POST", &at("/decline"), r#"{"reason": "no"}"#).await;
    assert_eq!(again.status, 409, "{}", again.text());
}

#[tokio::test]
async fn a_new_project_is_asked_for_and_begins_later() {
    let world = World::new();
    let later = 4_102_444_800_000u64;
    let asked = json!({ "budget": "program-a/pilot", "share": 0.5, "from_unix_ms": later, "reason": "an idea" });
    // Max belongs to a team, not to the programme.
    let his = world.ask("max", "POST", "/v1/funding", &asked.to_string()).await;
    assert_eq!(his.status, 403, "{}", his.text());
    let asked = world.ask("ann", "POST", "/v1/funding", &asked.to_string()).await.json();
    let (number, before) = (&asked["request"], &asked["share_before"]);
    assert_eq!(before, &Value::Null);
    let grant = format!("/v1/funding/{number}/grant");
    assert_eq!(world.ask("ann", "POST", &grant, "").await.status, 200);
    let scheduled = world.ask("ann", "GET", "/v1/budgets/scheduled", "").await.json();
    let one = &scheduled["scheduled"][0];
    assert_eq!(one["effective_unix_ms"], later);
    assert_eq!(one["edits"][0]["text"], "+ program-a/pilot: share 0.5");
    let open = world.ask("ann", "GET", "/v1/funding", "").await.json();
    assert_eq!(open["requests"], json!([]));
    let all = world.ask("ann", "GET", "/v1/funding?all=true&budget=program-a", "").await.json();
    assert_eq!(all["requests"][0]["request"], *number);
    assert_eq!(
        world.ask("ann", "GET", "/v1/funding?all=true&budget=program-b", "").await.json()["requests"],
        json!([])
    );
}

#[tokio::test]
async fn what_a_request_lacks_is_said() {
    let world = World::new();
    for (body, wanted) in [
        (json!({ "budget": "program-b", "reason": "x" }), "either share or gpus"),
        (
            json!({ "budget": "program-b", "share": 2, "gpus": 1, "reason": "x" }),
            "either share or gpus",
        ),
        (json!({ "budget": "program-b", "share": 2, "reason": " " }), "say what it is for"),
        (json!({ "budget": "program-b", "share": 1, "reason": "x" }), "has this share already"),
        (json!({ "budget": "program-b", "gpus": 16, "reason": "x" }), "the whole cluster"),
        (json!({ "budget": "program-b", "share": 2, "from_unix_ms": 1, "reason": "x" }), "is past"),
        (json!({ "budget": "program-b/a b", "share": 2, "reason": "x" }), "is no name"),
        (json!({ "budget": "program-c", "share": 2, "reason": "x" }), "that you belong to"),
    ] {
        let answer = world.ask("bob", "POST", "/v1/funding", &body.to_string()).await;
        assert!(answer.status.is_client_error(), "{body}");
        assert!(answer.text().contains(wanted), "{body}: {}", answer.text());
    }
}

/// Two teams of one programme want all of it; one asks for three quarters.
#[tokio::test]
async fn the_effect_of_a_grant_is_what_the_simulator_does_with_it() {
    let world = World::new();
    let asked = json!({ "budget": "program-a/team-a1", "share": 3, "reason": "the sweep" });
    let asked = world.ask("max", "POST", "/v1/funding", &asked.to_string()).await.json();
    let path = format!("/v1/funding/{}/effect", asked["request"]);
    for (who, budget) in
        [("max", "program-a/team-a1"), ("mia", "program-a/team-a2"), ("bob", "program-b")]
    {
        for _ in 0..4 {
            world
                .submit(who, &workload("w", budget).replace("gpus: 1", "gpus: 8, max_runtime: 2h"))
                .await;
        }
    }
    let seen = world.ask("ann", "GET", &path, "").await;
    assert_eq!(seen.status, 200, "{}", seen.text());
    let seen = seen.json();
    let budgets: Vec<&str> = seen["budgets"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["budget"].as_str().expect("a path"))
        .collect();
    assert_eq!(budgets, ["program-a/team-a1", "program-a/team-a2"], "program-b is not hers to see");
    assert!(!seen["others"].is_null() && !seen.to_string().contains("program-b"), "{seen}");
    // The same again says the same, and as it is now nothing changes.
    let same = world.ask("ann", "GET", &format!("{path}?share=1"), "").await.json();
    for one in same["budgets"].as_array().expect("a list") {
        assert_eq!(one["delivered_gpu_hours"]["now"], one["delivered_gpu_hours"]["then"], "{one}");
    }
    let wrong = world.ask("ann", "GET", &format!("{path}?share=-1"), "").await;
    assert_eq!(wrong.status, 422, "{}", wrong.text());
}
