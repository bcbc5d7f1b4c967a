//! `GET /v1/export/trace`: the site's history for the simulator.

use super::answer::{Answer, Json};
use super::caller::Caller;
use super::document::Refusals;
use super::problem::Problem;
use super::read::Query;
use crate::export::{History, Open, Written};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// In which form.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Form {
    /// The workloads, as CSV.
    #[default]
    Csv,
    /// All of it, as a scenario.
    Scenario,
    /// The same, but work that has not ended is taken to need what it may: for comparing up to this moment.
    WhatIf,
}

/// What to export.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ExportQuery {
    /// The workloads as CSV, or all of it as a scenario; `whatif` is a scenario in which work that has not ended goes on
    /// to its limit.
    #[serde(default)]
    #[param(inline)]
    form: Form,
    /// Only the last so many milliseconds, as a scenario: what began before them is there with what was left of it, and
    /// moments count from where they begin.
    #[param(minimum = 1)]
    last_ms: Option<u64>,
}

/// A site's history.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Exported {
    /// The file.
    text: String,
    /// What of the history does not fit into it.
    notes: Vec<String>,
    /// The moment up to which it tells, in milliseconds since the file's beginning.
    until_ms: u64,
}

/// The site's history for the simulator. Only for owners of the root: it tells of everybody.
#[utoipa::path(
    get, path = "/v1/export/trace", tag = "audit", params(ExportQuery),
    responses((status = 200, description = "A file that `bursar simulate` takes.", body = Exported), Refusals)
)]
pub(super) async fn trace(caller: Caller, Query(query): Query<ExportQuery>) -> Answer<Exported> {
    let read = caller.ask(move |daemon, token| {
        if !daemon.site().budgets.is_root_owner(&token.user) {
            let detail = "only owners of the root may export the site's history";
            return Err(Problem::forbidden(detail));
        }
        if query.last_ms.is_some() && matches!(query.form, Form::Csv) {
            let detail =
                "last_ms: a part of the history is a scenario; give form=scenario or form=whatif";
            return Err(Problem::invalid(detail));
        }
        Ok(History::of(daemon.site(), daemon.site().now_ms(), query.last_ms))
    });
    let history = read.await?;
    // Not on the daemon's thread: it may take a while.
    let write = move || match query.form {
        Form::Csv => history.csv(),
        Form::Scenario => history.scenario(Open::AsSeen),
        Form::WhatIf => history.scenario(Open::ToLimit),
    };
    let written = tokio::task::spawn_blocking(write).await.map_err(|_| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the daemon is stopping")
    })?;
    let Written { text, notes, until_ms, workloads: _ } = written;
    Ok(Json(Exported { text, notes, until_ms }))
}
