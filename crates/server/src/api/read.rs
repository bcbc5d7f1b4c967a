//! Reading what is sent: bodies as JSON or YAML, and queries.

use super::Shared;
use super::problem::Problem;
use crate::limits::NESTING_MAX;
use crate::plain::one_line;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::IntoResponse as _;
use serde::de::DeserializeOwned;

/// A body of JSON or YAML.
pub(crate) struct Sent<T>(pub(crate) T);

/// As [`Sent`], where no body at all will do.
pub(crate) struct SentIfAny<T>(pub(crate) T);

/// A query whose every key is known.
pub(crate) struct Query<T>(pub(crate) T);

async fn bytes_of(request: Request) -> Result<Bytes, Problem> {
    Bytes::from_request(request, &()).await.map_err(|rejection: BytesRejection| {
        if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
            let detail = "the body is larger than this server takes; send less at a time";
            return Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail);
        }
        let status = rejection.into_response().status();
        Problem::invalid(format!("the body did not arrive whole ({status})"))
    })
}

impl<T: DeserializeOwned> FromRequest<Shared> for Sent<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &Shared) -> Result<Self, Problem> {
        read(&bytes_of(request).await?).map(Self)
    }
}

impl<T: DeserializeOwned + Default> FromRequest<Shared> for SentIfAny<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &Shared) -> Result<Self, Problem> {
        let bytes = bytes_of(request).await?;
        if bytes.is_empty() { Ok(Self(T::default())) } else { read(&bytes).map(Self) }
    }
}

impl<T: DeserializeOwned> FromRequestParts<Shared> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> Result<Self, Problem> {
        let read = axum::extract::Query::<T>::try_from_uri(&parts.uri);
        let refused = |rejection: axum::extract::rejection::QueryRejection| {
            Problem::invalid(format!("query: {}", one_line(&rejection.body_text())))
        };
        read.map(|query| Self(query.0)).map_err(refused)
    }
}

/// What the one variable part of a path says.
async fn path_part(parts: &mut Parts) -> Option<String> {
    Path::<String>::from_request_parts(parts, &()).await.ok().map(|Path(part)| part)
}

/// The name in a path. What it names is looked up, never opened: `..` is a name that nothing has.
pub(crate) struct Name(pub(crate) String);

impl FromRequestParts<Shared> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> Result<Self, Problem> {
        let detail = "the path holds no name";
        let none = || Problem::new(StatusCode::NOT_FOUND, "not_found", detail);
        path_part(parts).await.map(Self).ok_or_else(none)
    }
}

/// The workload's number in a path.
pub(crate) struct Number(pub(crate) u64);

impl FromRequestParts<Shared> for Number {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> Result<Self, Problem> {
        let number = path_part(parts).await.and_then(|text| text.parse().ok());
        let detail = "a workload is named by its number, as in /v1/workloads/17";
        let none = || Problem::new(StatusCode::NOT_FOUND, "not_found", detail);
        number.map(Self).ok_or_else(none)
    }
}

/// Reads a text that is JSON or YAML.
fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Problem> {
    let text = std::str::from_utf8(body).map_err(|_| Problem::invalid("the body is no UTF-8"))?;
    if text.trim_start().starts_with(['{', '[']) {
        if nests_deeper_than(text, NESTING_MAX) {
            let detail = format!("the body nests deeper than {NESTING_MAX} levels");
            return Err(Problem::invalid(detail));
        }
        let mut reader = serde_json::Deserializer::from_str(text);
        match serde_path_to_error::deserialize(&mut reader) {
            Ok(value) if reader.end().is_ok() => return Ok(value),
            // What is well formed JSON with wrong fields is told as such; flow YAML begins alike.
            Err(error) if error.inner().is_data() => return Err(wrong_fields::<T>(text, &error)),
            Ok(_) | Err(_) => {}
        }
    }
    bursar_site::yaml::read_with(text, limits()).map_err(Problem::invalid)
}

fn limits() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: NESTING_MAX },
    }
}

/// JSON whose fields are wrong. It is YAML, too, and what reads that says more; where YAML would take it (a number
/// in quotes), it is told as JSON.
fn wrong_fields<T: DeserializeOwned>(
    text: &str,
    error: &serde_path_to_error::Error<serde_json::Error>,
) -> Problem {
    if let Err(told) = bursar_site::yaml::read_with::<T>(text, limits()) {
        // The line says nothing where a client wrote all on one.
        let told = told.strip_prefix("line 1: ").unwrap_or(&told);
        return Problem::invalid(told);
    }
    let field = bursar_site::yaml::field(error.path());
    let place = if field.is_empty() { field } else { format!("{field}: ") };
    Problem::invalid(one_line(&format!("{place}{}", error.inner())))
}

/// Whether brackets nest deeper than that, outside of strings.
fn nests_deeper_than(text: &str, max: usize) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > max {
                    return true;
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// How many things a list has at most.
pub(crate) const PAGE_MAX: usize = 1_000;

/// How many things a page is to have.
pub(crate) fn page_of(limit: Option<usize>) -> Result<usize, Problem> {
    match limit {
        None => Ok(PAGE_MAX),
        Some(limit) if (1..=PAGE_MAX).contains(&limit) => Ok(limit),
        Some(limit) => {
            Err(Problem::invalid(format!("limit: {limit} is not between 1 and {PAGE_MAX}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Small {
        a: BTreeMap<String, u32>,
    }

    fn read_text(text: &str) -> Result<Small, Problem> {
        read(&Bytes::from(text.to_owned()))
    }

    #[test]
    fn json_yaml_and_flow_yaml_are_read() {
        let small = Small { a: BTreeMap::from([("b".to_owned(), 1)]) };
        for text in ["{\"a\": {\"b\": 1}}", "a: {b: 1}", "a:\n  b: 1\n", "{a: {b: 1}}"] {
            assert_eq!(read_text(text).as_ref(), Ok(&small), "{text}");
        }
    }

    #[test]
    fn what_nests_too_deep_or_grows_is_refused_and_overflows_nothing() {
        let deep = [
            "[".repeat(100_000),
            format!("{{\"a\": {}", "{\"b\": ".repeat(100_000)),
            format!("a: {}", "[".repeat(100_000)),
            (0..2_000).map(|at| format!("{}b:\n", " ".repeat(at))).collect::<String>(),
        ];
        for text in &deep {
            let problem = read_text(text).expect_err("too deep");
            assert_eq!(problem.status, 422, "{}", problem.detail);
            assert!(problem.detail.len() < 700, "{}", problem.detail);
        }
        // A billion laughs.
        let mut laughs = String::from("l0: &l0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]\n");
        for at in 1..10 {
            let below = format!("*l{}, ", at - 1).repeat(10);
            laughs += &format!("l{at}: &l{at} [{below}]\n");
        }
        assert_eq!(read_text(&laughs).expect_err("it grows").status, 422);
    }

    #[test]
    fn brackets_in_strings_do_not_nest() {
        let text = format!("{{\"a\": \"{}\\\"{}\"}}", "[".repeat(1_000), "{".repeat(1_000));
        assert!(!nests_deeper_than(&text, 2));
        assert!(nests_deeper_than("[[[", 2) && !nests_deeper_than("[][][]", 1));
    }

    #[test]
    fn messages_are_one_plain_line() {
        let problem =
            read_text("{\"a\": {\"b\": 1}, \"x\\u001b[31m\\ny\": 2}").expect_err("unknown");
        assert!(!problem.detail.chars().any(crate::plain::obeyed), "{:?}", problem.detail);
    }
}
