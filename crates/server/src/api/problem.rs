//! Refusals as problems (RFC 9457).

use crate::daemon::Failure;
use crate::driver::Stopping;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bursar_site::{Refused, RefusedKind};
use serde::Serialize;

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// A stable name of the kind of problem.
    pub code: &'static str,
    /// One sentence for people: the field, the value, the fix.
    pub detail: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status: status.as_u16(), code, detail: detail.into() }
    }

    pub(super) fn unauthenticated() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "unauthenticated",
            "send a token that is not void: Authorization: Bearer …",
        )
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let status = match refused.kind {
            RefusedKind::Invalid | RefusedKind::NeverFits => StatusCode::UNPROCESSABLE_ENTITY,
            RefusedKind::Forbidden => StatusCode::FORBIDDEN,
            RefusedKind::NotFound => StatusCode::NOT_FOUND,
            RefusedKind::Conflict => StatusCode::CONFLICT,
        };
        Self::new(status, refused.kind.code(), refused.message)
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(refused) => refused.into(),
            Failure::Journal(_) | Failure::Replay(_) | Failure::Engine(_) => {
                tracing::warn!(%failure, "a request could not be done");
                Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "unavailable",
                    "the daemon cannot write or act just now; look again before you repeat it",
                )
            }
        }
    }
}

impl From<Stopping> for Problem {
    fn from(stopping: Stopping) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", stopping.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_string(&self).unwrap_or_default();
        (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response()
    }
}
