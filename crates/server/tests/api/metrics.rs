//! Metrics: what is in them, and who reads what.

use crate::world::{World, request, secret, workload};
use axum::extract::ConnectInfo;
use bursar_site::views::Standing;
use std::net::SocketAddr;

async fn scraped(world: &World, token: Option<&str>, from: &str) -> (u16, String) {
    let mut asked = request(token, "GET", "/metrics", "");
    let address: SocketAddr = from.parse().expect("an address");
    asked.extensions_mut().insert(ConnectInfo(address));
    let answer = world.send(asked).await;
    (answer.status.as_u16(), answer.text().to_owned())
}

/// The value of a series.
fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in:\n{text}")).parse().expect("a number")
}

const LOOPBACK: &str = "127.0.0.1:1";
const ELSEWHERE: &str = "192.0.2.1:1";

#[tokio::test]
async fn budgets_are_told_to_owners_of_the_root_only() {
    let world = World::new();
    let number = world.submit("max", &workload("w", "program-a/team-a1")).await;
    world.until(number, Standing::Protected).await;
    let (status, open) = scraped(&world, None, LOOPBACK).await;
    assert_eq!(status, 200);
    assert_eq!(scraped(&world, None, "[::1]:1").await.0, 200);
    assert_eq!(scraped(&world, None, ELSEWHERE).await.0, 401);
    assert_eq!(scraped(&world, Some("guess"), LOOPBACK).await.0, 401);
    let (status, member) = scraped(&world, Some(&secret("max")), ELSEWHERE).await;
    assert_eq!(status, 200);
    let (status, owner) = scraped(&world, Some(&secret("boss")), ELSEWHERE).await;
    assert_eq!(status, 200);
    for text in [&open, &member, &owner] {
        assert!(text.ends_with("# EOF\n"), "{text}");
        for name in ["max", "w\"", "team-a1", "secret-of"] {
            assert!(!text.contains(name), "{name} in {text}");
        }
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (_, number) = line.rsplit_once(' ').expect("a name and a number");
            assert!(number.parse::<f64>().is_ok(), "{line}");
        }
    }
    assert!(!open.contains("program-") && !member.contains("program-"));
    let series = |name: &str| format!("bursar_{name}{{budget=\"program-a\"}}");
    assert_eq!(value(&owner, &series("budget_running_gpus")), 1.0);
    assert_eq!(value(&owner, &series("budget_waiting")), 0.0);
    assert!(value(&owner, &series("budget_allocated_gpu_seconds")) > 0.0);
    assert!(value(&owner, &series("budget_charged_gpu_seconds")) >= 0.0);
    assert!(!owner.contains("program-a/"), "only budgets below the root have series");
}

#[tokio::test]
async fn what_happens_is_counted() {
    let world = World::new();
    let number = world.submit("max", &workload("w", "program-a/team-a1")).await;
    world.until(number, Standing::Protected).await;
    let unpaid = workload("u", "program-b").replace("min_runtime: 30m", "min_runtime: 0");
    let unpaid = world.submit("bob", &unpaid).await;
    world.until(unpaid, Standing::Interruptible).await;
    assert_eq!(world.ask("max", "GET", "/v1/workloads/4711", "").await.status, 404);
    assert_eq!(world.ask("max", "MAKEBELIEVE", "/no/such/path", "").await.status, 404);
    // The hub looks after the round in which the change was made; one more job comes after that.
    world.with(|_| ()).await;
    let (_, text) = scraped(&world, None, LOOPBACK).await;
    let workloads = |state: &str, class: &str| {
        value(&text, &format!("bursar_workloads{{state=\"{state}\",class=\"{class}\"}}"))
    };
    assert_eq!(workloads("protected", "allocated"), 1.0);
    assert_eq!(workloads("interruptible", "unallocated"), 1.0);
    assert_eq!(workloads("queued", "allocated"), 0.0);
    assert_eq!(value(&text, "bursar_gpus_in_service{model=\"x\"}"), 16.0);
    assert_eq!(value(&text, "bursar_gpus_occupied{model=\"x\"}"), 2.0);
    assert_eq!(value(&text, "bursar_occupancy_ratio"), 0.125);
    assert_eq!(value(&text, "bursar_hosts{state=\"up\"}"), 2.0);
    assert_eq!(value(&text, "bursar_preemptions_total"), 0.0);
    assert!(value(&text, "bursar_rounds_total") >= 2.0);
    assert!(value(&text, "bursar_round_seconds_count") >= 2.0);
    assert!(value(&text, "bursar_plan_seconds_count") >= 2.0);
    assert!(value(&text, "bursar_journal_records_total") >= 5.0);
    assert!(value(&text, "bursar_journal_append_seconds_count") >= 5.0);
    assert_eq!(value(&text, "bursar_journal_append_failures_total"), 0.0);
    let of = |method: &str, route: &str, status: u16| {
        let labels = format!("method=\"{method}\",route=\"{route}\",status=\"{status}\"");
        value(&text, &format!("bursar_http_requests_total{{{labels}}}"))
    };
    assert_eq!(of("POST", "/v1/workloads", 200), 2.0);
    assert_eq!(of("GET", "/v1/workloads/{number}", 404), 1.0);
    assert_eq!(of("other", "none", 404), 1.0);
    assert!(text.contains("bursar_build_info{version="), "{text}");
}
