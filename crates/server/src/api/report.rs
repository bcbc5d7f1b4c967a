//! `GET /v1/report`: what a period cost and gave.

use super::answer::{Answer, Json};
use super::caller::Caller;
use super::document::Refusals;
use super::problem::Problem;
use super::read::Query;
use crate::clock::Clock;
use axum::http::StatusCode;
use bursar_site::report::{Asked, Begin, Report};
use serde::Deserialize;
use utoipa::IntoParams;

/// Which period, and of what.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ReportQuery {
    /// Where the period begins, in milliseconds since 1970; before the site began, with the site.
    from_unix_ms: Option<u64>,
    /// Instead of `from_unix_ms`: so many milliseconds up to its end.
    #[param(minimum = 1)]
    last_ms: Option<u64>,
    /// Where it ends: that moment is not in it. Now, unless that is earlier.
    to_unix_ms: Option<u64>,
    /// One budget with all below it.
    budget: Option<String>,
    /// Whether to give every attempt, too: the lines that all sums are made of.
    #[serde(default)]
    attempts: bool,
}

/// By how much the wall clock may have been moved since the site began without the books following it.
const CLOCK_MOVED_MAX_MS: u64 = 60_000;

/// The wall clock at the site's moment 0. As it was then, so that a period that is over keeps its figures; only where
/// that clock turned out to be wrong, as it is known to have been by now.
fn zero_unix_ms(created_unix_ms: u64, clock: &impl Clock, now_ms: u64) -> u64 {
    let known_now = clock.unix_ms(now_ms).saturating_sub(now_ms);
    if known_now.abs_diff(created_unix_ms) <= CLOCK_MOVED_MAX_MS {
        created_unix_ms
    } else {
        known_now
    }
}

/// What a period cost and gave, of budgets and workloads that one may see: sums over their attempts, what budgets were
/// owed, and waits. Of the whole cluster owners of the root are told.
#[utoipa::path(
    get, path = "/v1/report", tag = "budgets", params(ReportQuery),
    responses((status = 200, description = "Figures of the period.", body = Report), Refusals)
)]
pub(super) async fn report(caller: Caller, Query(query): Query<ReportQuery>) -> Answer<Report> {
    let gather = caller.ask(move |daemon, token| {
        let now_ms = daemon.now_ms();
        let zero_unix = zero_unix_ms(daemon.site().created.unix_ms, daemon.clock(), now_ms);
        // Books count from the site's beginning, in its own time.
        let begin = match (query.from_unix_ms, query.last_ms) {
            (Some(from), None) => Begin::At(from),
            (None, Some(last_ms)) => Begin::Last(last_ms),
            (Some(_), Some(_)) | (None, None) => {
                let detail =
                    "give from_unix_ms or last_ms: where the period begins, or how long it is";
                return Err(Problem::invalid(detail));
            }
        };
        let asked = Asked {
            begin,
            to_unix_ms: query.to_unix_ms,
            now_ms,
            unix_ms: zero_unix,
            user: &token.user,
            budget: query.budget.as_deref(),
            attempts: query.attempts,
        };
        Ok(daemon.site().facts(&asked)?)
    });
    let facts = gather.await?;
    // Not on the daemon's thread: a month of a large site takes a moment.
    let report = tokio::task::spawn_blocking(move || facts.report()).await.map_err(|_| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the daemon is stopping")
    })?;
    Ok(Json(report))
}
