//! The HTTP API under `/v1`. Every answer is JSON; every refusal is a problem (RFC 9457) with a code.
//!
//! A handler takes a `Caller`, asks the daemon on its own thread, and renders. What somebody may see or do is
//! decided by the site (`bursar_site::requests`), not here.
//!
//! A route is one function with `#[utoipa::path]` and its line in `described`: so it is in the document
//! (docs/openapi.json) or it is not at all. `tests/api` says of each route what each role gets from it.

mod answer;
mod audit;
mod budgets;
mod caller;
mod document;
mod events;
mod export;
mod funding;
mod health;
mod hosts;
mod layers;
mod metrics;
mod people;
mod problem;
mod read;
mod report;
mod views;
mod workloads;

use crate::driver::Handle;
use crate::events::Hub;
use crate::gate::Gate;
use crate::limits::{Limiter, Limits};
use crate::metrics::Metrics;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use std::sync::Arc;
use tokio::sync::Semaphore;
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use people::new_secret;
pub use problem::{CODES, Problem};

/// The daemon as the API drives it.
pub type LocalDaemon = crate::daemon::Daemon<
    crate::watch::Measured<bursar_store::Store>,
    Box<dyn bursar_engine::Engine>,
    crate::clock::SystemClock,
>;

/// What handlers share.
#[derive(Clone)]
pub struct Shared {
    /// The way to the daemon.
    pub daemon: Handle<LocalDaemon>,
    /// The logs of attempts, where they can be read beside the daemon.
    pub logs: Option<Arc<bursar_engine::local::Logs>>,
    /// What changed.
    pub hub: Arc<Hub>,
    /// What is measured.
    pub metrics: Arc<Metrics>,
    /// What work said last about its progress.
    pub progress: crate::report::Progress,
    /// What clients may take.
    pub limits: Limits,
    /// Who has asked for how much.
    pub limiter: Arc<Limiter>,
    at_once: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    /// Streams of each user.
    streams_of_one: Gate,
    /// Dry runs of each user.
    dry_runs_of_one: Gate,
    used: crate::first::Used,
}

impl Shared {
    /// What handlers share, for a daemon that is driven and watched.
    #[must_use]
    pub fn new(
        daemon: Handle<LocalDaemon>,
        logs: Option<bursar_engine::local::Logs>,
        watch: &crate::watch::Watch,
        limits: Limits,
        limiter: Limiter,
    ) -> Self {
        Self {
            daemon,
            logs: logs.map(Arc::new),
            progress: crate::report::Progress::default(),
            hub: Arc::clone(&watch.hub),
            metrics: Arc::clone(&watch.metrics),
            limits,
            limiter: Arc::new(limiter),
            at_once: Arc::new(Semaphore::new(limits.requests_at_once)),
            streams: Arc::new(Semaphore::new(limits.streams)),
            streams_of_one: Gate::new(limits.streams_of_one),
            dry_runs_of_one: Gate::new(limits.dry_runs_of_one),
            used: crate::first::Used::default(),
        }
    }

    /// Has it kept that a token was used.
    #[must_use]
    pub fn noting_use(self, used: crate::first::Used) -> Self {
        Self { used, ..self }
    }
}

/// All routes with their description. Only `routes!` is used, which needs both.
fn described() -> OpenApiRouter<Shared> {
    OpenApiRouter::with_openapi(document::Document::openapi())
        .routes(routes!(people::me))
        .routes(routes!(workloads::list, workloads::submit))
        .routes(routes!(workloads::show))
        .routes(routes!(workloads::log))
        .routes(routes!(workloads::cancel))
        .routes(routes!(workloads::release))
        .routes(routes!(workloads::requeue))
        .routes(routes!(workloads::checkpoint))
        .routes(routes!(budgets::budgets, budgets::change_budgets))
        .routes(routes!(budgets::history))
        .routes(routes!(budgets::scheduled))
        .routes(routes!(budgets::withdraw))
        .routes(routes!(funding::transfer))
        .routes(routes!(funding::list, funding::ask))
        .routes(routes!(funding::show))
        .routes(routes!(funding::effect))
        .routes(routes!(funding::grant))
        .routes(routes!(funding::decline))
        .routes(routes!(funding::withdraw))
        .routes(routes!(hosts::hosts))
        .routes(routes!(hosts::drain))
        .routes(routes!(hosts::undrain))
        .routes(routes!(people::tokens, people::issue_token))
        .routes(routes!(people::revoke_token))
        .routes(routes!(audit::audit))
        .routes(routes!(report::report))
        .routes(routes!(export::trace))
        .routes(routes!(events::events))
        .routes(routes!(document::openapi))
        .routes(routes!(metrics::metrics))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
}

/// The description of the API (OpenAPI 3.1), as docs/openapi.json has it.
///
/// # Panics
/// Never: the description is made of types that can be written.
#[must_use]
pub fn openapi_text() -> String {
    let document = document::finish(described().into_openapi());
    let mut text = serde_json::to_string_pretty(&document).expect("it can be written");
    text.push('\n');
    text
}

/// All routes, ready to serve.
pub fn router(shared: Shared) -> Router {
    let body_bytes = shared.limits.body_bytes;
    let (router, _) = described().split_for_parts();
    let router = router
        .fallback(health::nothing_here)
        .method_not_allowed_fallback(health::not_this_method)
        .layer(DefaultBodyLimit::max(body_bytes));
    layers::around(router, &shared).with_state(shared)
}
