//! How much may be queued and asked for; submissions that are sent again; tokens that are asked for by tokens.

use crate::world::{World, request, secret, wide, workload};
use bursar_server::limits::{Limiter, Limits};
use bursar_server::queue::QueueLimits;
use serde_json::Value;

#[tokio::test]
async fn a_queue_that_is_full_says_so() {
    let world = World::new();
    world.with(|daemon| daemon.options_mut().queue = QueueLimits { all: 4, of_one: 3 }).await;
    let text = workload("w", "program-a/team-a1");
    let many = text.replace("gpus: 1", "gpus: 1, array: 0-3");
    let answer = world.ask("max", "POST", "/v1/workloads", &many).await;
    assert_eq!((answer.status.as_u16(), answer.json()["code"].as_str()), (409, Some("conflict")));
    let three = text.replace("gpus: 1", "gpus: 1, array: 0-2");
    let mut keyed = request(Some(&secret("max")), "POST", "/v1/workloads", &three);
    keyed.headers_mut().insert("idempotency-key", "k".parse().expect("a value"));
    assert_eq!(world.send(keyed).await.status, 200);
    let answer = world.ask("max", "POST", "/v1/workloads", &text).await;
    assert!(answer.text().contains("3 workloads of 'max' wait or run"), "{}", answer.text());
    // What was taken before is told again.
    let mut keyed = request(Some(&secret("max")), "POST", "/v1/workloads", &three);
    keyed.headers_mut().insert("idempotency-key", "k".parse().expect("a value"));
    assert_eq!(world.send(keyed).await.status, 200);
    let number = world.submit("mate", &text).await;
    let answer = world.ask("bob", "POST", "/v1/workloads", &workload("w", "program-b")).await;
    assert_eq!(answer.status, 409);
    assert!(answer.text().contains("4 workloads wait or run"), "{}", answer.text());
    // What has ended makes room, and what runs again takes it.
    assert_eq!(
        world.ask("mate", "POST", &format!("/v1/workloads/{number}/cancel"), "").await.status,
        200
    );
    world.until(number, bursar_site::views::Standing::Ended).await;
    let other = world.submit("bob", &workload("w", "program-b")).await;
    let requeue = format!("/v1/workloads/{number}/requeue");
    assert_eq!(world.ask("mate", "POST", &requeue, "").await.status, 409);
    assert_eq!(
        world.ask("bob", "POST", &format!("/v1/workloads/{other}/cancel"), "").await.status,
        200
    );
    world.until(other, bursar_site::views::Standing::Ended).await;
    assert_eq!(world.ask("mate", "POST", &requeue, "").await.status, 200);
}

#[tokio::test]
async fn dry_runs_have_a_gate_of_their_own() {
    let limits = Limits { dry_runs_of_one: 0, ..wide() };
    let world = World::limited(limits, Limiter::by_process_clock(&limits));
    let text = workload("w", "program-a/team-a1");
    let answer = world.ask("max", "POST", "/v1/workloads?dry_run=true", &text).await;
    assert_eq!((answer.status.as_u16(), answer.json()["code"].as_str()), (503, Some("busy")));
    world.submit("max", &text).await;
}

#[tokio::test]
async fn what_is_sent_again_is_the_same_whatever_defaults_are_by_then() {
    let world = World::new();
    let text = workload("w", "program-a/team-a1").replace("min_runtime: 30m, ", "");
    let send = |text: String| {
        let mut keyed = request(Some(&secret("max")), "POST", "/v1/workloads", &text);
        keyed.headers_mut().insert("idempotency-key", "k".parse().expect("a value"));
        world.send(keyed)
    };
    let first = send(text.clone()).await;
    assert_eq!(first.status, 200, "{}", first.text());
    world
        .with(|daemon| {
            let change = |site: &bursar_site::Site| {
                Ok((site.change_settings(600_000, 1_000)?.into_iter().collect(), ()))
            };
            daemon.ask_for("config/file", change).expect("changed")
        })
        .await;
    let again = send(text.clone()).await;
    assert_eq!(again.status, 200, "{}", again.text());
    assert_eq!(again.json()["workload"], first.json()["workload"]);
    let other = send(text.replace("command: [x]", "command: [y]")).await;
    assert_eq!(other.status, 409);
}

#[tokio::test]
async fn a_token_makes_none_that_outlives_it() {
    let world = World::new();
    let ask =
        |by: String, body: &'static str| world.send(request(Some(&by), "POST", "/v1/tokens", body));
    let day = ask(secret("max"), r#"{"name": "day", "expires_in_seconds": 86400}"#).await.json();
    let day = day["secret"].as_str().expect("a secret").to_owned();
    let made = ask(day.clone(), r#"{"name": "ever"}"#).await;
    assert!(made.text().contains("void at the latest when"), "{}", made.text());
    assert_eq!(
        ask(day.clone(), r#"{"name": "year", "expires_in_seconds": 31536000}"#).await.status,
        200
    );
    assert_eq!(ask(day, r#"{"name": "hour", "expires_in_seconds": 3600}"#).await.status, 200);
    let list = world.ask("max", "GET", "/v1/tokens", "").await.json();
    let expires = |name: &str| -> u64 {
        let all = list["tokens"].as_array().expect("a list");
        let one: &Value = all.iter().find(|one| one["token"] == name).expect("it is there");
        one["expires_unix_ms"].as_u64().expect("it expires")
    };
    for name in ["ever", "year"] {
        assert!(expires(name).abs_diff(expires("day")) < 60_000, "{name}: {list}");
    }
    assert!(expires("hour") + 3_600_000 < expires("day"));
}
