//! Following what changes.

use crate::world::{World, request, secret, workload};
use axum::body::Body;
use bursar_site::views::Standing;
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower::ServiceExt as _;

/// An event as it came.
#[derive(Clone, Debug, PartialEq)]
struct Told {
    kind: String,
    id: String,
    data: Value,
}

/// Somebody who follows.
struct Following {
    body: Body,
    text: String,
}

impl Following {
    async fn begin(world: &World, who: &str, last: Option<&str>) -> Self {
        let mut asked = request(Some(&secret(who)), "GET", "/v1/events", "");
        if let Some(last) = last {
            asked.headers_mut().insert("last-event-id", last.parse().expect("a header"));
        }
        let response = world.router.clone().oneshot(asked).await.expect("infallible");
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body(), text: String::new() }
    }

    /// The next event; none if the stream has ended.
    async fn next(&mut self) -> Option<Told> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let block: String = self.text.drain(..end + 2).collect();
                let field = |name: &str| {
                    let line = block.lines().find_map(|line| line.strip_prefix(name));
                    line.map(|value| value.trim_start().to_owned())
                };
                // Without a kind it is a heartbeat.
                if let Some(kind) = field("event:") {
                    let data = field("data:").expect("data");
                    let data = serde_json::from_str(&data).expect("JSON");
                    return Some(Told { kind, id: field("id:").expect("an id"), data });
                }
                continue;
            }
            let frame = self.body.frame().await?.expect("a frame");
            let data = frame.into_data().expect("data");
            self.text.push_str(std::str::from_utf8(&data).expect("UTF-8"));
        }
    }

    /// Events until one fits, that one included.
    async fn until(&mut self, fits: impl Fn(&Told) -> bool) -> Vec<Told> {
        let mut seen = Vec::new();
        loop {
            let told = self.next().await.expect("the stream goes on");
            seen.push(told.clone());
            if fits(&told) {
                return seen;
            }
        }
    }
}

fn stands(told: &Told, number: u64, state: &str) -> bool {
    told.kind == "workload" && told.data["workload"] == number && told.data["state"] == state
}

#[tokio::test]
async fn one_is_told_of_what_one_may_see_and_of_nothing_else() {
    let world = World::new();
    let mut max = Following::begin(&world, "max", None).await;
    let mut eve = Following::begin(&world, "eve", None).await;
    let mut boss = Following::begin(&world, "boss", None).await;
    let hidden = world.submit("bob", &workload("hidden", "program-b")).await;
    world.until(hidden, Standing::Protected).await;
    let shown = world.submit("mate", &workload("shown", "program-a/team-a1")).await;
    world.until(shown, Standing::Protected).await;
    world.processes.end(shown, 0);
    world.until(shown, Standing::Ended).await;
    let drained = world.ask("boss", "POST", "/v1/hosts/h-1/drain", "{\"reason\": \"dust\"}").await;
    assert_eq!(drained.status, 200);

    let is_last = |told: &Told| told.kind == "host";
    let seen = max.until(is_last).await;
    assert_eq!(seen[0].kind, "open");
    assert!(seen.iter().any(|told| stands(told, shown, "protected")), "{seen:?}");
    let end = seen.iter().find(|told| stands(told, shown, "ended")).expect("it ended");
    assert_eq!(end.data["ending"], "completed");
    assert_eq!(end.data["user"], "mate");
    assert!(!format!("{seen:?}").contains("program-b"), "{seen:?}");
    let kinds: Vec<String> = eve.until(is_last).await.into_iter().map(|told| told.kind).collect();
    assert_eq!(kinds, ["open", "host"]);
    let all = boss.until(is_last).await;
    assert!(all.iter().any(|told| stands(told, hidden, "protected")), "{all:?}");
    let host = all.last().expect("the host");
    assert_eq!((&host.data["host"], &host.data["reason"]), (&"h-1".into(), &"dust".into()));
    // Ids never go back, and tell the record.
    let ids: Vec<(u64, u64)> = all
        .iter()
        .map(|told| {
            let (seq, nth) = told.id.split_once('.').expect("two numbers");
            (seq.parse().expect("a record"), nth.parse().expect("a number"))
        })
        .collect();
    assert!(ids.is_sorted() && ids.len() > 4, "{ids:?}");
    let seq = world.records().await.last().expect("a record").seq;
    assert!(ids.last().expect("one").0 <= seq);
}

#[tokio::test]
async fn who_comes_back_misses_nothing() {
    let world = World::new();
    let mut first = Following::begin(&world, "max", None).await;
    let number = world.submit("max", &workload("w", "program-a/team-a1")).await;
    world.until(number, Standing::Protected).await;
    let all = first.until(|told| stands(told, number, "protected")).await;
    for (at, last) in all.iter().enumerate() {
        let mut again = Following::begin(&world, "max", Some(&last.id)).await;
        let begin = again.next().await.expect("an event");
        assert_eq!((begin.kind.as_str(), &begin.id), ("open", &last.id));
        for expected in &all[at + 1..] {
            assert_eq!(again.next().await.as_ref(), Some(expected));
        }
    }
    // What was before this process, or is of another journal, cannot be told: begin anew.
    for last in ["1", "0.0", "99999.1"] {
        let mut again = Following::begin(&world, "max", Some(last)).await;
        assert_eq!(again.next().await.expect("an event").kind, "reset", "{last}");
    }
    for bad in ["x", "1.2.3", "-1", "1e3"] {
        let mut asked = request(Some(&secret("max")), "GET", "/v1/events", "");
        asked.headers_mut().insert("last-event-id", bad.parse().expect("a header"));
        assert_eq!(world.send(asked).await.status, 422, "{bad}");
    }
}

#[tokio::test]
async fn a_stream_ends_with_its_token_and_with_the_daemon() {
    let world = World::new();
    let mut max = Following::begin(&world, "max", None).await;
    let mut bob = Following::begin(&world, "bob", None).await;
    assert_eq!(world.ask("max", "POST", "/v1/tokens/max/revoke", "").await.status, 200);
    assert_eq!(max.next().await.expect("it began").kind, "open");
    assert_eq!(max.next().await, None);
    assert_eq!(world.ask("max", "GET", "/v1/events", "").await.status, 401);
    world.hub.close();
    assert_eq!(bob.next().await.expect("it began").kind, "open");
    assert_eq!(bob.next().await, None);
}

#[tokio::test]
async fn rights_that_change_change_what_is_told() {
    let world = World::new();
    let mut bob = Following::begin(&world, "bob", None).await;
    let seen = world.ask("boss", "GET", "/v1/budgets", "").await.json();
    let mut tree = seen["tree"].clone();
    tree["program-a"]["members"] = serde_json::json!(["bob"]);
    let body = serde_json::json!({"base": seen["version"], "reason": "bob helps", "budgets": tree});
    assert_eq!(world.ask("boss", "PUT", "/v1/budgets", &body.to_string()).await.status, 200);
    let number = world.submit("mia", &workload("w", "program-a/team-a2")).await;
    world.until(number, Standing::Protected).await;
    let seen = bob.until(|told| stands(told, number, "protected")).await;
    assert_eq!((seen[1].kind.as_str(), &seen[1].data["version"]), ("budgets", &2.into()));
}

#[tokio::test]
async fn who_is_too_slow_is_dropped_and_delays_nobody() {
    let world = World::new();
    let mut slow = Following::begin(&world, "max", None).await;
    let hub = std::sync::Arc::clone(&world.hub);
    let changes = world.with(move |daemon| {
        for _ in 0..600 {
            daemon.ask("boss", |site| site.drain("boss", "h-1", "back and")).expect("drained");
            hub.look(daemon);
            daemon.ask("boss", |site| site.undrain("boss", "h-1")).expect("in service");
            hub.look(daemon);
        }
    });
    changes.await;
    let mut seen = 0;
    while slow.next().await.is_some() {
        seen += 1;
    }
    assert!(seen < 1_200, "{seen} events were kept for one who did not read");
    // It may come back.
    let mut again = Following::begin(&world, "max", Some("1")).await;
    assert_eq!(again.next().await.expect("an event").kind, "reset");
}

#[tokio::test]
async fn what_runs_once_more_is_told_again() {
    let world = World::new();
    let number = world.submit("max", &workload("w", "program-a/team-a1")).await;
    world.until(number, Standing::Protected).await;
    let mut max = Following::begin(&world, "max", None).await;
    world.processes.end(number, 0);
    max.until(|told| stands(told, number, "ended")).await;
    let path = format!("/v1/workloads/{number}/requeue");
    assert_eq!(world.ask("max", "POST", &path, "").await.status, 200);
    let seen = max.until(|told| stands(told, number, "protected")).await;
    assert_eq!(seen.last().expect("one").data["attempts"], 2);
    let counts = world.hub.counts();
    assert_eq!(counts.standings.get(&(Standing::Protected, false)), Some(&1), "{counts:?}");
}
