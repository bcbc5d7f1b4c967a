//! The description of the API (OpenAPI 3.1): what is true of all routes. The rest stands at each.

use super::Shared;
use super::problem::Problem;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, OpenApi, Ref, RefOr, ResponseBuilder, ResponsesBuilder};
use utoipa::{IntoResponses, Modify, ToSchema};

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Bursar",
        description = "The budget-based scheduler of a GPU cluster. docs/api.md tells of tokens, pages, idempotency, events and limits.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    tags(
        (name = "workloads", description = "What runs and waits."),
        (name = "budgets", description = "The budget tree, its shares and who may do what in it."),
        (name = "funding", description = "What members ask for, and what owners decide."),
        (name = "hosts", description = "Hosts and their drains."),
        (name = "people", description = "Who one is, and tokens."),
        (name = "events", description = "What changes, as it changes."),
        (name = "audit", description = "Who asked for what."),
        (name = "health", description = "For supervisors and monitoring.")
    ),
    components(schemas(Problem)),
    security(("token" = [])),
    modifiers(&Token)
)]
pub(super) struct Document;

struct Token;

impl Modify for Token {
    fn modify(&self, openapi: &mut OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some(
                "A token of this site, as `bursar up` and POST /v1/tokens give them.",
            ))
            .build();
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// Problems that can be the answer to whatever is asked with a token.
pub(super) struct Refusals;

/// Problems that can be the answer to whatever changes something.
pub(super) struct RefusedChanges;

type Responses = BTreeMap<String, RefOr<utoipa::openapi::Response>>;

fn problems(of: &[(&str, &str)]) -> Responses {
    let response = |description: &str| {
        let content = Content::new(Some(Ref::from_schema_name(Problem::name())));
        ResponseBuilder::new()
            .description(description)
            .content("application/problem+json", content)
            .build()
    };
    let all = of.iter().map(|(status, description)| (*status, response(description)));
    ResponsesBuilder::new().responses_from_iter(all).build().responses
}

const REFUSALS: [(&str, &str); 8] = [
    ("401", "No token, or one that is void."),
    ("403", "The token may not do that."),
    ("404", "There is none, or none that one may see."),
    ("408", "It took too long."),
    ("422", "The request is wrong."),
    ("429", "Too often; `Retry-After` says when to come again."),
    ("500", "A fault of the daemon's own."),
    ("503", "Not just now."),
];

impl IntoResponses for Refusals {
    fn responses() -> Responses {
        problems(&REFUSALS)
    }
}

impl IntoResponses for RefusedChanges {
    fn responses() -> Responses {
        let mut all = problems(&REFUSALS);
        all.extend(problems(&[
            ("409", "It does not fit how things are by now."),
            ("413", "The body is too large."),
        ]));
        all
    }
}

/// What the derived description cannot say.
pub(super) fn finish(mut document: OpenApi) -> OpenApi {
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    document
}

/// This description.
#[utoipa::path(
    get, path = "/v1/openapi.json", tag = "health", security(()),
    responses((status = 200, description = "OpenAPI 3.1.", body = Object))
)]
pub(super) async fn openapi(State(_): State<Shared>) -> Response {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(super::openapi_text).as_str();
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}
