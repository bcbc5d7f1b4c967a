//! Who one is, and tokens.

use super::answer::{Answer, Json};
use super::caller::{Caller, must_write};
use super::document::{Refusals, RefusedChanges};
use super::problem::Problem;
use super::read::{Name, Sent};
use crate::clock::Clock as _;
use crate::journal::JournalError;
use axum::http::StatusCode;
use bursar_site::record::SettingsDoc;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Who one is here.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Me {
    /// The token's user.
    user: String,
    /// The token's name.
    token: String,
    /// Whether the user owns the root: may divide all, and operate the cluster.
    operator: bool,
    /// Budgets that workloads may be submitted to.
    may_submit_to: Vec<String>,
    /// The site's name.
    site: String,
    /// The site's numbers for the rules.
    settings: SettingsDoc,
}

/// Who one is, what one may submit to, and the site's settings.
#[utoipa::path(
    get, path = "/v1/me", tag = "people",
    responses((status = 200, description = "Who the token is of.", body = Me), Refusals)
)]
pub(super) async fn me(caller: Caller) -> Answer<Me> {
    caller
        .ask(|daemon, token| {
            let site = daemon.site();
            let may_submit_to = site
                .budgets
                .paths()
                .filter(|path| site.budgets.is_member(&token.user, path))
                .filter(|path| site.budgets.get(path).is_some_and(|one| one.children.is_empty()))
                .map(str::to_owned)
                .collect();
            Ok(Json(Me {
                operator: site.budgets.is_root_owner(&token.user),
                user: token.user,
                token: token.token,
                may_submit_to,
                site: site.created.name.clone(),
                settings: site.created.settings.clone(),
            }))
        })
        .await
}

/// A token, without its secret.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct TokenView {
    /// Its name.
    token: String,
    /// Whose it is.
    user: String,
    /// Whether it may only read.
    read_only: bool,
    /// Whether it was revoked.
    void: bool,
    /// From when on it is void, in milliseconds since 1970.
    expires_unix_ms: Option<u64>,
}

/// Tokens.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct TokenList {
    tokens: Vec<TokenView>,
}

/// One's own tokens; an owner of the root sees all.
#[utoipa::path(
    get, path = "/v1/tokens", tag = "people",
    responses((status = 200, description = "Tokens, without their secrets.", body = TokenList), Refusals)
)]
pub(super) async fn tokens(caller: Caller) -> Answer<TokenList> {
    caller
        .ask(|daemon, token| {
            let view = |(one, good): (&bursar_site::record::TokenIssued, bool)| TokenView {
                token: one.token.clone(),
                user: one.user.clone(),
                read_only: one.read_only,
                void: !good,
                expires_unix_ms: one.expires_ms.map(|ms| daemon.clock().unix_ms(ms)),
            };
            let tokens = daemon.site().tokens_of(&token.user).map(view).collect();
            Ok(Json(TokenList { tokens }))
        })
        .await
}

/// A token that is asked for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenRequest {
    /// How it is called: letters, digits, `-`, `_`, `.` and `@`.
    #[schema(
        min_length = 1,
        max_length = 64,
        pattern = "^[A-Za-z0-9_@][A-Za-z0-9_.@-]*$",
        example = "ann-laptop"
    )]
    name: String,
    /// For whom; oneself unless given. Only owners of the root may give others tokens.
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9_@][A-Za-z0-9_.@-]*$")]
    user: Option<String>,
    /// After how long it is void; never unless given.
    #[schema(maximum = 3_153_600_000u64)]
    expires_in_seconds: Option<u64>,
    /// Whether it may only read.
    #[serde(default)]
    read_only: bool,
}

/// A hundred years: what is longer is a mistake.
const SECONDS_MAX: u64 = 3_153_600_000;

/// A new token.
#[derive(Clone, Serialize, ToSchema)]
pub(super) struct TokenMade {
    /// What goes behind `Bearer`.
    #[schema(example = "bursar_…")]
    secret: String,
    /// That it is shown this once.
    note: String,
}

/// A new secret: 256 random bits, with a prefix by which it is known for what it is.
///
/// # Errors
/// If the machine has no randomness.
pub fn new_secret() -> Result<String, JournalError> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| JournalError(format!("no randomness: {error}")))?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("bursar_{hex}"))
}

/// Issues a token. Its secret is in this answer and nowhere else.
#[utoipa::path(
    post, path = "/v1/tokens", tag = "people",
    request_body(content = TokenRequest, description = "JSON; or the same as YAML, in which plain words and numbers are texts where texts are asked for."),
    responses((status = 200, description = "The secret, this once.", body = TokenMade), RefusedChanges)
)]
pub(super) async fn issue_token(
    caller: Caller,
    Sent(wanted): Sent<TokenRequest>,
) -> Answer<TokenMade> {
    if let Some(seconds) = wanted.expires_in_seconds.filter(|&seconds| seconds > SECONDS_MAX) {
        return Err(Problem::invalid(format!(
            "expires_in_seconds: {seconds} is more than a hundred years; leave it out for a token that does not expire"
        )));
    }
    let secret = new_secret().map_err(|error| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", error.to_string())
    })?;
    caller
        .ask(move |daemon, token| {
            must_write(&token)?;
            let for_user = wanted.user.as_deref().unwrap_or(&token.user);
            // From the site's moment on, which is that of its latest record.
            let late_ms = daemon.now_ms().saturating_sub(daemon.site().now_ms());
            let expires = wanted.expires_in_seconds.map(|seconds| seconds * 1_000 + late_ms);
            daemon.ask(&token.user, |site| {
                let (name, read_only) = (&wanted.name, wanted.read_only);
                site.issue_token_by(&token, name, for_user, &secret, expires, read_only)
            })?;
            let until = if token.expires_ms.is_some() {
                "; void at the latest when the token that asked for it is"
            } else {
                ""
            };
            let note = format!("shown this once; only its hash is kept{until}");
            Ok(Json(TokenMade { secret, note }))
        })
        .await
}

/// A token that was revoked.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct TokenRevoked {
    /// Its name.
    token: String,
}

/// Revokes a token of one's own; an owner of the root may revoke any. Streams that follow by it end.
#[utoipa::path(
    post, path = "/v1/tokens/{name}/revoke", tag = "people",
    params(("name" = String, Path, description = "The token's name.", example = "ann-laptop")),
    responses((status = 200, description = "It is void from now on.", body = TokenRevoked), RefusedChanges)
)]
pub(super) async fn revoke_token(caller: Caller, Name(name): Name) -> Answer<TokenRevoked> {
    caller
        .ask(move |daemon, token| {
            must_write(&token)?;
            daemon.ask(&token.user, |site| site.revoke_token(&token.user, &name))?;
            Ok(Json(TokenRevoked { token: name }))
        })
        .await
}
