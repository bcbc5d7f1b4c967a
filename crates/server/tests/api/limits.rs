//! What one client may take of the server.

use crate::world::{World, request, secret, wide, workload};
use axum::body::Body;
use axum::http::Request;
use bursar_server::limits::{Limiter, Limits, Rate};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

#[tokio::test]
async fn bodies_are_bounded_in_size_depth_and_number() {
    let world = World::new();
    let submit = |text: String| {
        let world = &world;
        async move { world.ask("max", "POST", "/v1/workloads", &text).await }
    };
    let answer = submit("x".repeat(Limits::default().body_bytes + 1)).await;
    assert_eq!((answer.status.as_u16(), answer.json()["code"].as_str()), (413, Some("too_large")));
    for text in [
        "[".repeat(1_000_000),
        "{\"a\":".repeat(100_000),
        "- ".repeat(100_000),
        format!("workload: {{name: {}", "{a: ".repeat(10_000)),
    ] {
        let answer = submit(text).await;
        assert_eq!(answer.status, 422, "{}", answer.text());
        assert!(answer.bytes.len() < 2_000);
    }
    let many: Vec<String> = (0..20_001).map(|at| format!("\"b{at}\": {{\"share\": 1}}")).collect();
    let body =
        format!("{{\"base\": 1, \"reason\": \"many\", \"budgets\": {{{}}}}}", many.join(","));
    let answer = world.ask("boss", "PUT", "/v1/budgets", &body).await;
    assert_eq!(answer.status, 422);
    assert!(answer.text().contains("more than 20000 budgets"), "{}", answer.text());
    let deep = (0..20).fold("{\"share\": 1}".to_owned(), |below, _| {
        format!("{{\"share\": 1, \"children\": {{\"b\": {below}}}}}")
    });
    let body = format!("{{\"base\": 1, \"reason\": \"deep\", \"budgets\": {{\"b\": {deep}}}}}");
    let answer = world.ask("boss", "PUT", "/v1/budgets", &body).await;
    assert_eq!(answer.status, 422);
    assert!(answer.text().contains("deeper than 16"), "{}", answer.text());
    for seconds in ["3153600001", "10650149566532509696", "18446744073709551615"] {
        let body = format!("{{\"name\": \"far\", \"expires_in_seconds\": {seconds}}}");
        let answer = world.ask("max", "POST", "/v1/tokens", &body).await;
        assert_eq!(answer.status, 422, "{}", answer.text());
    }
    for limit in ["0", "1001", "-1", "many", "99999999999999999999"] {
        let answer = world.ask("max", "GET", &format!("/v1/workloads?limit={limit}"), "").await;
        assert_eq!(answer.status, 422, "{limit}");
    }
}

/// A world whose clock for limits is the test's.
fn limited(token: Rate, peer: Rate) -> (World, Arc<AtomicU64>) {
    let clock = Arc::new(AtomicU64::new(0));
    let read = Arc::clone(&clock);
    let limits = Limits { token, peer, ..Limits::default() };
    let limiter = Limiter::new(&limits, move || read.load(Ordering::Relaxed));
    (World::limited(limits, limiter), clock)
}

#[tokio::test]
async fn a_token_that_asks_too_often_is_told_when_to_come_again() {
    let slow = Rate { per_second: 1, burst: 3 };
    let (world, clock) = limited(slow, wide().peer);
    for _ in 0..3 {
        assert_eq!(world.ask("max", "GET", "/v1/me", "").await.status, 200);
    }
    clock.store(100, Ordering::Relaxed);
    let answer =
        world.ask("max", "POST", "/v1/workloads", &workload("w", "program-a/team-a1")).await;
    assert_eq!((answer.status.as_u16(), answer.json()["code"].as_str()), (429, Some("too_many")));
    assert_eq!(answer.headers["retry-after"], "1", "whole seconds, and not too few");
    // Nothing was done, and others feel nothing.
    assert_eq!(
        world.ask("mate", "GET", "/v1/workloads", "").await.json()["workloads"],
        serde_json::json!([])
    );
    clock.store(1_100, Ordering::Relaxed);
    assert_eq!(world.ask("max", "GET", "/v1/me", "").await.status, 200);
}

#[tokio::test]
async fn who_guesses_tokens_has_few_tries_and_those_who_are_known_do_not_feel_it() {
    let (world, clock) = limited(wide().token, Rate { per_second: 1, burst: 4 });
    assert_eq!(world.ask("max", "GET", "/v1/me", "").await.status, 200);
    for at in 0..4 {
        let guess = format!("guess-{at}");
        let answer = world.send(request(Some(&guess), "GET", "/v1/me", "")).await;
        assert_eq!(answer.status, 401);
        assert_eq!(answer.headers["www-authenticate"], "Bearer");
    }
    // Now no other is looked at; but a good one is let in, though it was not used before, as after a restart.
    assert_eq!(world.send(request(Some("guess-5"), "GET", "/v1/me", "")).await.status, 429);
    assert_eq!(world.ask("bob", "GET", "/v1/me", "").await.status, 200);
    assert_eq!(world.send(request(None, "GET", "/v1/me", "")).await.status, 429);
    assert_eq!(world.ask("max", "GET", "/v1/me", "").await.status, 200);
    clock.store(1_000, Ordering::Relaxed);
    // A good one costs nothing of what strangers have.
    for who in ["bob", "ben", "mia", "lea"] {
        assert_eq!(world.ask(who, "GET", "/v1/me", "").await.status, 200, "{who}");
    }
    // A token that was revoked is a stranger's.
    assert_eq!(world.ask("bob", "POST", "/v1/tokens/bob/revoke", "").await.status, 200);
    assert_eq!(world.ask("bob", "GET", "/v1/me", "").await.status, 401);
    assert_eq!(world.ask("bob", "GET", "/v1/me", "").await.status, 401);
    assert_eq!(world.ask("bob", "GET", "/v1/me", "").await.status, 429);
    // So is one that has expired.
    clock.store(2_000, Ordering::Relaxed);
    assert_eq!(world.ask("expired", "GET", "/v1/me", "").await.status, 401);
    assert_eq!(world.ask("expired", "GET", "/v1/me", "").await.status, 429);
}

#[tokio::test]
async fn strangers_cannot_make_the_server_read() {
    let world = World::new();
    let endless = futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>();
    let asked = Request::builder().method("POST").uri("/v1/workloads");
    let asked = asked.header("authorization", "Bearer guess").body(Body::from_stream(endless));
    // It would never be answered if the body were read first.
    assert_eq!(world.send(asked.expect("a request")).await.status, 401);
}

#[tokio::test]
async fn a_body_that_does_not_come_and_a_server_that_is_full_are_told() {
    let limits = Limits { request_time: Duration::from_millis(20), ..wide() };
    let world = World::limited(limits, Limiter::by_process_clock(&limits));
    let endless = futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>();
    let asked = Request::builder().method("POST").uri("/v1/workloads");
    let asked = asked.header("authorization", format!("Bearer {}", secret("max")));
    let answer = world.send(asked.body(Body::from_stream(endless)).expect("a request")).await;
    assert_eq!((answer.status.as_u16(), answer.json()["code"].as_str()), (408, Some("slow")));

    let limits = Limits { requests_at_once: 0, ..wide() };
    let world = World::limited(limits, Limiter::by_process_clock(&limits));
    let answer = world.ask("max", "GET", "/v1/me", "").await;
    assert_eq!((answer.status.as_u16(), answer.json()["code"].as_str()), (503, Some("busy")));
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(world.send(request(None, "GET", "/healthz", "")).await.status, 200);

    let limits = Limits { streams: 1, ..wide() };
    let world = World::limited(limits, Limiter::by_process_clock(&limits));
    let stream = tower::ServiceExt::oneshot(
        world.router.clone(),
        request(Some(&secret("max")), "GET", "/v1/events", ""),
    );
    let stream = stream.await.expect("infallible");
    assert_eq!(stream.status(), 200);
    assert_eq!(world.ask("max", "GET", "/v1/events", "").await.status, 503);
    drop(stream);
    assert_eq!(world.ask("max", "GET", "/v1/events", "").await.status, 200);
}

/// Serves a world on a port of the loopback.
async fn served(limits: Limits) -> (World, std::net::SocketAddr) {
    let world = World::limited(limits, Limiter::by_process_clock(&limits));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = world.router.clone();
    tokio::spawn(async move {
        bursar_server::serve::serve(listener, router, &limits, std::future::pending()).await;
    });
    (world, address)
}

async fn said(address: std::net::SocketAddr, text: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    // Who is given up in the midst of sending cannot send the rest.
    let _ = stream.write_all(text).await;
    let mut answer = Vec::new();
    // A connection that is reset was given up, too.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).expect("UTF-8")
}

#[tokio::test]
async fn heads_are_bounded_in_time_number_and_size() {
    let limits = Limits { header_time: Duration::from_millis(100), ..wide() };
    let (_world, address) = served(limits).await;
    // Whoever dribbles a head gets no further: the server ends it, and this test, too.
    let answer = said(address, b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-a: ").await;
    assert!(!answer.contains(" 200 "), "{answer}");
    let whole =
        said(address, b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(whole.starts_with("HTTP/1.1 200 "), "{whole}");
    assert!(whole.contains("x-request-id: "), "{whole}");
    let many: String = (0..200).map(|at| format!("x-{at}: y\r\n")).collect();
    let answer =
        said(address, format!("GET /healthz HTTP/1.1\r\nhost: x\r\n{many}\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let large = "y".repeat(4 * limits.header_bytes);
    let answer =
        said(address, format!("GET /healthz HTTP/1.1\r\nx-a: {large}\r\n\r\n").as_bytes()).await;
    // The refusal may be lost with the connection, of which much was not read.
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    for nonsense in
        ["nonsense\r\n\r\n", "GET / HTTP/1.1\r\na\0b: c\r\n\r\n", "\x16\x03\x01\x02\0\x01"]
    {
        let answer = said(address, nonsense.as_bytes()).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_their_turn() {
    let limits = Limits { connections: 1, ..wide() };
    let (_world, address) = served(limits).await;
    let ask = format!(
        "GET /v1/me HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        secret("max")
    );
    let ask = ask.as_bytes();
    let mut first = TcpStream::connect(address).await.expect("a connection");
    first.write_all(ask).await.expect("sent");
    let mut part = [0; 16];
    first.read_exact(&mut part).await.expect("an answer");
    // Nobody is turned out who is known.
    let second = tokio::spawn(async move {
        said(address, b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await
    });
    // The first still has the place.
    first.write_all(ask).await.expect("sent");
    first.read_exact(&mut part).await.expect("an answer");
    drop(first);
    assert!(second.await.expect("it ends").starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn who_holds_connections_open_does_not_keep_others_out() {
    let limits = Limits { connections: 8, guests: 6, guests_of_one: 4, ..wide() };
    let (_world, address) = served(limits).await;
    // More than there is room for, silent, and renewed as long as this test lasts.
    let mut held = Vec::new();
    for _ in 0..30 {
        held.push(TcpStream::connect(address).await.expect("a connection"));
    }
    let ask = format!(
        "GET /v1/me HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {}\r\n\r\n",
        secret("max")
    );
    let answer = tokio::time::timeout(Duration::from_secs(5), said(address, ask.as_bytes())).await;
    assert!(answer.expect("well before heads time out").starts_with("HTTP/1.1 200 "));
    // The oldest were closed.
    let mut byte = [0];
    let closed = tokio::time::timeout(Duration::from_secs(5), held[0].read(&mut byte)).await;
    assert!(matches!(closed.expect("it was closed"), Ok(0) | Err(_)));
}

#[tokio::test]
async fn one_user_has_some_of_the_streams_and_not_all() {
    let limits = Limits { streams_of_one: 2, ..wide() };
    let world = World::limited(limits, Limiter::by_process_clock(&limits));
    let follow = |who: &str| {
        let asked = request(Some(&secret(who)), "GET", "/v1/events", "");
        tower::ServiceExt::oneshot(world.router.clone(), asked)
    };
    let first = follow("max").await.expect("infallible");
    let second = follow("max").await.expect("infallible");
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 200));
    // By another token of theirs, too.
    let third = world.ask("reader", "GET", "/v1/events", "").await;
    assert_eq!((third.status.as_u16(), third.json()["code"].as_str()), (503, Some("busy")));
    assert_eq!(follow("bob").await.expect("infallible").status(), 200);
    drop((first, second));
    assert_eq!(follow("max").await.expect("infallible").status(), 200);
}
