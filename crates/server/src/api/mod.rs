//! The HTTP API under `/v1`. Every answer is JSON; every refusal is a problem (RFC 9457) with a code.
//!
//! A handler authenticates, asks the daemon on its own thread, and renders. What somebody may see or do is
//! decided by the site (`bursar_site::requests`), not here.

mod problem;
mod routes;
mod views;

use crate::driver::Handle;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};

pub use problem::Problem;
pub use routes::new_secret;

/// How large a request may be: a workload with its environment, or a tree of thousands of budgets.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The daemon as the API drives it.
pub type LocalDaemon = crate::daemon::Daemon<
    bursar_store::Store,
    bursar_engine::LocalEngine,
    crate::clock::SystemClock,
>;

/// What handlers share.
#[derive(Clone)]
pub struct Shared {
    /// The way to the daemon.
    pub daemon: Handle<LocalDaemon>,
    /// The logs of attempts, read beside the daemon.
    pub logs: std::sync::Arc<bursar_engine::local::Logs>,
}

/// All routes.
pub fn router(shared: Shared) -> Router {
    Router::new()
        .route("/v1/me", get(routes::me))
        .route("/v1/workloads", get(routes::list).post(routes::submit))
        .route("/v1/workloads/{number}", get(routes::show))
        .route("/v1/workloads/{number}/log", get(routes::log))
        .route("/v1/workloads/{number}/cancel", post(routes::cancel))
        .route("/v1/workloads/{number}/checkpoint", post(routes::checkpoint))
        .route("/v1/budgets", get(routes::budgets).put(routes::change_budgets))
        .route("/v1/hosts", get(routes::hosts))
        .route("/v1/hosts/{name}/drain", post(routes::drain))
        .route("/v1/hosts/{name}/undrain", post(routes::undrain))
        .route("/v1/tokens", get(routes::tokens).post(routes::issue_token))
        .route("/v1/tokens/{name}/revoke", post(routes::revoke_token))
        .route("/v1/audit", get(routes::audit))
        .route("/healthz", get(routes::healthz))
        .route("/readyz", get(routes::readyz))
        .fallback(routes::nothing_here)
        .method_not_allowed_fallback(routes::not_this_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(shared)
}
