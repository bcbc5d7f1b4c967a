//! Traces reach a collector, with names and without secrets.
#![cfg(feature = "otel")]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use tracing_subscriber::layer::SubscriberExt as _;

/// Takes one request and gives its head and body.
fn one_request(listener: &TcpListener) -> (String, Vec<u8>) {
    let (mut stream, _) = listener.accept().expect("a connection");
    let (mut all, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let end = all.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&all[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.expect("a length").trim().parse().expect("a number");
            if all.len() == end + 4 + length {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("sent");
                return (head, all[end + 4..].to_vec());
            }
        }
        let count = stream.read(&mut part).expect("it comes");
        assert!(count > 0, "it ends before it is whole");
        all.extend_from_slice(&part[..count]);
    }
}

#[test]
fn spans_are_sent_when_it_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let collector = std::thread::spawn(move || one_request(&listener));
    let (layer, traces) =
        bursar_server::otel::traces(&format!("http://{address}/")).expect("an address");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let span = tracing::info_span!("request", method = "GET", route = "/v1/me", status = 200);
        span.in_scope(|| tracing::info_span!("round").in_scope(|| ()));
    });
    drop(traces);
    let (head, body) = collector.join().expect("it was sent");
    assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
    let text = String::from_utf8_lossy(&body);
    for name in ["bursar", "request", "round", "/v1/me"] {
        assert!(text.contains(name), "{name} is not in {text:?}");
    }
}

#[test]
fn other_addresses_are_refused() {
    for url in ["", "http://", "https://127.0.0.1:4318", "127.0.0.1:4318", "\u{1b}[31m"] {
        let refused = bursar_server::otel::traces::<tracing_subscriber::Registry>(url);
        let text = refused.err().expect("no plain HTTP");
        assert!(text.contains("http://127.0.0.1:4318") && !text.contains('\u{1b}'), "{text}");
    }
}
