//! What is around every route: a request's id, its log line, its time, and how many are worked on.

use super::Shared;
use super::caller::Actor;
use super::problem::Problem;
use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use std::time::Instant;
use tracing::Instrument as _;
use tracing::field::Empty;

/// The routes with all that is around them.
pub(super) fn around(router: Router<Shared>, shared: &Shared) -> Router<Shared> {
    router
        .layer(from_fn_with_state(shared.clone(), bounded))
        .layer(from_fn_with_state(shared.clone(), told))
}

/// A request's id: of no meaning, only unlike any other.
fn new_id() -> String {
    let mut bytes = [0u8; 8];
    // Without randomness ids repeat; nothing but logs reads them.
    let _ = getrandom::fill(&mut bytes);
    format!("{:016x}", u64::from_le_bytes(bytes))
}

/// Gives a request its id, and tells of it when it is answered: in the log if it may change something, in the
/// metrics always. Bodies, queries and secrets are not told; paths are told as templates.
async fn told(State(shared): State<Shared>, mut request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let id = new_id();
    let actor = Actor::default();
    let method = request.method().clone();
    let matched = request.extensions().get::<MatchedPath>();
    let route = matched.map_or("none", MatchedPath::as_str).to_owned();
    request.extensions_mut().insert(actor.clone());
    let shown = crate::plain::one_line(method.as_str());
    let span = tracing::info_span!("request", method = shown, route, status = Empty);
    let mut response = next.run(request).instrument(span.clone()).await;
    let (status, took) = (response.status().as_u16(), begun.elapsed());
    span.record("status", status);
    drop(span);
    shared.metrics.answered(&method, &route, status, took);
    if !matches!(method, Method::GET | Method::HEAD | Method::OPTIONS) {
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let actor = actor.name();
        tracing::info!(request = id, actor, method = shown, route, status, took_ms, "asked");
    }
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert("x-request-id", id);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Bounds how many requests are worked on, and for how long each. A stream of events counts until it begins.
async fn bounded(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    // Whether the daemon lives can be asked however much is asked of it.
    if request.uri().path() == "/healthz" {
        return next.run(request).await;
    }
    let Ok(_place) = shared.at_once.try_acquire() else {
        return Problem::busy().into_response();
    };
    match tokio::time::timeout(shared.limits.request_time, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let detail = "it took too long; look again before you repeat a change";
            Problem::new(StatusCode::REQUEST_TIMEOUT, "slow", detail).into_response()
        }
    }
}
