//! Whether the daemon lives, and what is not there.

use super::Shared;
use super::problem::Problem;
use axum::extract::State;
use axum::http::StatusCode;

pub(super) async fn nothing_here() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "not_found",
        "there is no such path; /v1/openapi.json lists all there are",
    )
}

pub(super) async fn not_this_method() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", "this path does not take that method")
}

/// Whether the process answers.
#[utoipa::path(
    get, path = "/healthz", tag = "health", security(()),
    responses((status = 200, description = "It does.", body = String, content_type = "text/plain", example = "ok\n"))
)]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether the daemon does its rounds: journal and engine can be reached.
#[utoipa::path(
    get, path = "/readyz", tag = "health", security(()),
    responses(
        (status = 200, description = "The latest round went well.", body = String, content_type = "text/plain", example = "ready\n"),
        (status = 503, description = "The latest round failed.", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn readyz(State(shared): State<Shared>) -> Result<&'static str, Problem> {
    if shared.daemon.is_healthy() {
        return Ok("ready\n");
    }
    let detail = "the latest round failed; the daemon's log says why";
    Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", detail))
}
