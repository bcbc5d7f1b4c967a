//! Refusals as problems (RFC 9457).

use super::answer::respond;
use crate::daemon::Failure;
use crate::driver::NoAnswer;
use crate::plain::one_line;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bursar_site::{Refused, RefusedKind};
use serde::Serialize;
use std::time::Duration;
use utoipa::ToSchema;

/// Every code that a problem can have, with its statuses and what it means. docs/api.md has them all; a problem
/// with another code fails the tests.
pub const CODES: &[(&str, &[u16], &str)] = &[
    ("unauthenticated", &[401], "no token, or one that is void, revoked or unknown"),
    ("forbidden", &[403], "the token's user may not do that"),
    ("read_only", &[403], "the token may only read"),
    ("not_found", &[404], "there is none, or none that the token's user may see"),
    ("method", &[405], "the path does not take this method"),
    ("conflict", &[409], "it does not fit how things are by now"),
    ("too_large", &[413], "the body is larger than the server takes"),
    ("invalid", &[422], "the request itself is wrong"),
    ("never_fits", &[422], "no host of this site could ever hold it"),
    ("too_many", &[429], "asked for too often; Retry-After says when to come again"),
    ("headers", &[431], "more or larger headers than the server takes"),
    ("internal", &[500], "a fault of the daemon's own; its log says more"),
    ("unavailable", &[503], "the journal or the engine cannot be reached just now"),
    ("not_ready", &[503], "the latest round failed"),
    ("busy", &[503], "too much is asked at once; Retry-After says when to come again"),
    ("stopping", &[503], "the daemon is about to end"),
    ("slow", &[408], "the request did not arrive, or could not be done, in time"),
];

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(example = json!({"status": 404, "code": "not_found", "detail": "there is no workload 17 that you may see"}))]
pub struct Problem {
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// A stable name of the kind of problem; docs/api.md lists all.
    #[schema(value_type = String, pattern = "^[a-z_]+$")]
    pub code: &'static str,
    /// One sentence for people: the field, the value, the fix.
    pub detail: String,
    /// After how long it is worth asking again: the header `Retry-After`.
    #[serde(skip)]
    pub retry_after: Option<Duration>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        let status = status.as_u16();
        debug_assert!(
            CODES.iter().any(|(known, statuses, _)| *known == code && statuses.contains(&status)),
            "{code} with {status} is no problem that CODES lists"
        );
        Self { status, code, detail: detail.into(), retry_after: None }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail)
    }

    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    pub(crate) fn unauthenticated() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "unauthenticated",
            "send a token that is not void: Authorization: Bearer …",
        )
    }

    /// A token that is unknown, revoked or expired. Which of these is told to who holds the secret only.
    pub(crate) fn void_token(told: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", told)
    }

    pub(crate) fn too_many(wait: Duration) -> Self {
        let seconds = seconds_of(wait);
        let detail = format!("too many requests; come again in {seconds} s");
        let mut problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many", detail);
        problem.retry_after = Some(wait);
        problem
    }

    pub(crate) fn busy() -> Self {
        let detail = "too many requests are worked on; come again in 1 s";
        let mut problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail);
        problem.retry_after = Some(Duration::from_secs(1));
        problem
    }
}

/// Whole seconds, for `Retry-After`: never too few.
fn seconds_of(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
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
                let failure = one_line(&failure.to_string());
                tracing::warn!(failure, "a request could not be done");
                Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "unavailable",
                    "the daemon cannot write or act just now; look again before you repeat it",
                )
            }
        }
    }
}

impl From<NoAnswer> for Problem {
    fn from(none: NoAnswer) -> Self {
        match none {
            NoAnswer::Stopping => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", none.to_string())
            }
            NoAnswer::Fault => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", none.to_string())
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = respond(status, "application/problem+json", &self);
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(wait) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds_of(wait).into());
        }
        response
    }
}
