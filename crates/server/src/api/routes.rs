//! The handlers.

use super::problem::Problem;
use super::views;
use super::{LocalDaemon, Shared};
use crate::clock::Clock as _;
use crate::journal::{Journal as _, JournalError};
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use bursar_engine::AttemptKey;
use bursar_site::budgets::BudgetDoc;
use bursar_site::declare::WorkloadFile;
use bursar_site::record::TokenIssued;
use bursar_site::views::Standing;
use bursar_site::{Body, Record, Refused, Site};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

type Answer = Result<Json<Value>, Problem>;

/// How many things a list has at most.
const PAGE_MAX: usize = 1_000;

fn secret_of(headers: &HeaderMap) -> Result<String, Problem> {
    let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let secret = value.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
    secret.map(str::to_owned).ok_or_else(Problem::unauthenticated)
}

/// Runs a job for whoever the token is of.
async fn as_user<T: Send + 'static>(
    shared: &Shared,
    headers: &HeaderMap,
    job: impl FnOnce(&mut LocalDaemon, TokenIssued) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let secret = secret_of(headers)?;
    let run = move |daemon: &mut LocalDaemon| {
        // Nobody is let in by what the journal does not have, or shown it.
        daemon.current()?;
        let now = daemon.now_ms();
        let token = daemon.site().authenticate(&secret, now).cloned();
        job(daemon, token.ok_or_else(Problem::unauthenticated)?)
    };
    shared.daemon.with(run).await?
}

/// Asks for a change and answers with what `show` makes of it.
async fn change(
    shared: &Shared,
    headers: &HeaderMap,
    request: impl FnOnce(&Site, &str) -> Result<Body, Refused> + Send + 'static,
    show: impl FnOnce(&LocalDaemon, &Record) -> Value + Send + 'static,
) -> Answer {
    as_user(shared, headers, move |daemon, token| {
        must_write(&token)?;
        let user = token.user;
        let record = daemon.ask(&user, |site| request(site, &user))?;
        Ok(Json(show(daemon, &record)))
    })
    .await
}

fn must_write(token: &TokenIssued) -> Result<(), Problem> {
    if token.read_only {
        let detail = format!("token '{}' may only read; use another one", token.token);
        return Err(Problem::new(StatusCode::FORBIDDEN, "read_only", detail));
    }
    Ok(())
}

fn text_of(body: &axum::body::Bytes) -> Result<&str, Problem> {
    std::str::from_utf8(body).map_err(|_| {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", "the body is no UTF-8")
    })
}

/// Reads a body that is JSON or YAML (every JSON text is YAML, too).
fn read<T: serde::de::DeserializeOwned>(body: &axum::body::Bytes) -> Result<T, Problem> {
    let invalid =
        |detail: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail);
    let text = text_of(body)?;
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|error| invalid(error.to_string()));
    }
    serde_saphyr::from_str(text).map_err(|error| {
        let text = error.to_string();
        invalid(text.lines().next().unwrap_or("it cannot be read").to_owned())
    })
}

fn unix(daemon: &LocalDaemon) -> impl Fn(u64) -> u64 + '_ {
    |ms| daemon.clock().unix_ms(ms)
}

pub(super) async fn nothing_here() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "not_found",
        "there is no such path; see /v1/workloads, /v1/budgets, /v1/hosts",
    )
}

pub(super) async fn not_this_method() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", "this path does not take that method")
}

pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

pub(super) async fn readyz(State(shared): State<Shared>) -> Result<&'static str, Problem> {
    if shared.daemon.is_healthy() {
        return Ok("ready\n");
    }
    let detail = "the latest round failed; the daemon's log says why";
    Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", detail))
}

pub(super) async fn me(State(shared): State<Shared>, headers: HeaderMap) -> Answer {
    as_user(&shared, &headers, |daemon, token| {
        let site = daemon.site();
        let may_submit: Vec<&str> = site
            .budgets
            .paths()
            .filter(|path| site.budgets.is_member(&token.user, path))
            .filter(|path| site.budgets.get(path).is_some_and(|one| one.children.is_empty()))
            .collect();
        Ok(Json(json!({
            "user": token.user,
            "token": token.token,
            "operator": site.budgets.is_root_owner(&token.user),
            "may_submit_to": may_submit,
            "site": site.created.name,
            "settings": site.created.settings,
        })))
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SubmitQuery {
    #[serde(default)]
    dry_run: bool,
    /// Do not let it enter the queue before it is released.
    #[serde(default)]
    hold: bool,
}

pub(super) async fn submit(
    State(shared): State<Shared>,
    query: Result<Query<SubmitQuery>, QueryRejection>,
    headers: HeaderMap,
    body: axum::body::Bytes,
) -> Answer {
    let SubmitQuery { dry_run, hold } = query.map_err(bad_query)?.0;
    let file: WorkloadFile = read(&body)?;
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
    as_user(&shared, &headers, move |daemon, token| {
        if !dry_run {
            must_write(&token)?;
        }
        let user = token.user;
        let prepare = |site: &Site| {
            let submission = site.submit(&user, file.workload, key.as_deref(), hold)?;
            let accepted = &submission.accepted;
            let mut answer = json!({
                "defaults": accepted.defaults,
                "advice": accepted.advice,
                "contract_gpu_ms": site.contract_gpu_ms(accepted),
                "would_start": site.would_start(accepted),
            });
            if dry_run {
                answer["declared"] = json!(accepted.declared);
                return Ok((vec![], answer));
            }
            answer["workload"] = json!(submission.workload);
            answer["count"] = json!(submission.count);
            answer["held"] = json!(submission.held);
            Ok((submission.bodies, answer))
        };
        let (_, answer) = daemon.ask_for(&user, prepare)?;
        Ok(Json(answer))
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    #[serde(default)]
    all: bool,
    budget: Option<String>,
    user: Option<String>,
    /// Only workloads with larger numbers.
    after: Option<u64>,
    limit: Option<usize>,
}

fn bad_query(rejection: QueryRejection) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", rejection.body_text())
}

pub(super) async fn list(
    State(shared): State<Shared>,
    query: Result<Query<ListQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Answer {
    let query = query.map_err(bad_query)?.0;
    as_user(&shared, &headers, move |daemon, token| {
        let site = daemon.site();
        let limit = query.limit.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX);
        let inside = |path: &str, budget: &str| {
            path.strip_prefix(budget).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let mut works: Vec<_> = site
            .works()
            .filter(|work| query.after.is_none_or(|after| work.number > after))
            .filter(|work| site.may_see(&token.user, work))
            .filter(|work| query.all || site.standing(work) != Standing::Ended)
            .filter(|work| query.user.as_ref().is_none_or(|user| *user == work.declared.user))
            .filter(|work| {
                query.budget.as_ref().is_none_or(|budget| inside(&work.declared.budget, budget))
            })
            .take(limit + 1)
            .collect();
        let more = works.len() > limit;
        works.truncate(limit);
        let next = more.then(|| works.last().map(|work| work.number)).flatten();
        let unix = unix(daemon);
        let views: Vec<_> = works.iter().map(|work| views::workload(site, work, &unix)).collect();
        Ok(Json(json!({ "workloads": views, "next_after": next })))
    })
    .await
}

pub(super) async fn show(
    State(shared): State<Shared>,
    Path(number): Path<String>,
    headers: HeaderMap,
) -> Answer {
    let number = number_of(&number)?;
    as_user(&shared, &headers, move |daemon, token| {
        let work = daemon.site().visible(&token.user, number)?;
        let mut detail = views::detail(daemon.site(), work, &unix(daemon));
        if work.declared.user != token.user {
            // Environments carry keys of other services: they are their user's only.
            detail.declared.env.values_mut().for_each(|value| *value = "not shown".into());
        }
        Ok(Json(json!(detail)))
    })
    .await
}

fn number_of(text: &str) -> Result<u64, Problem> {
    text.parse().map_err(|_| {
        let detail = "a workload is named by its number, as in /v1/workloads/17";
        Problem::new(StatusCode::NOT_FOUND, "not_found", detail)
    })
}

pub(super) async fn cancel(
    State(shared): State<Shared>,
    Path(number): Path<String>,
    headers: HeaderMap,
) -> Answer {
    let number = number_of(&number)?;
    let request = move |site: &Site, user: &str| site.cancel(user, number);
    change(&shared, &headers, request, move |_, _| json!({ "workload": number })).await
}

pub(super) async fn checkpoint(
    State(shared): State<Shared>,
    Path(number): Path<String>,
    headers: HeaderMap,
) -> Answer {
    let number = number_of(&number)?;
    let request = move |site: &Site, user: &str| site.checkpoint(user, number);
    change(&shared, &headers, request, move |_, _| json!({ "workload": number })).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogQuery {
    attempt: Option<u32>,
    #[serde(default)]
    offset: u64,
}

/// How much of a log comes at once.
const LOG_BYTES_MAX: usize = 256 * 1024;

pub(super) async fn log(
    State(shared): State<Shared>,
    Path(number): Path<String>,
    query: Result<Query<LogQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Answer {
    let query = query.map_err(bad_query)?.0;
    let number = number_of(&number)?;
    let (attempt, ended, total) = as_user(&shared, &headers, move |daemon, token| {
        let work = daemon.site().visible(&token.user, number)?;
        let ended = daemon.site().standing(work) == Standing::Ended;
        let latest = work.latest().map(|latest| latest.number);
        let over = |attempt: u32| {
            let one = work.attempts.iter().find(|one| one.number == attempt);
            one.is_some_and(|one| one.ended_ms.is_some())
        };
        let attempt = query.attempt.or(latest);
        Ok((attempt, ended || attempt.is_some_and(over), latest.unwrap_or(0)))
    })
    .await?;
    let Some(attempt) = attempt else {
        return Ok(Json(json!({ "attempt": null, "text": "", "next_offset": 0, "ended": ended })));
    };
    let logs = std::sync::Arc::clone(&shared.logs);
    let read = tokio::task::spawn_blocking(move || {
        let key = AttemptKey::new(number.to_string(), attempt)?;
        logs.read(&key, query.offset, LOG_BYTES_MAX)
    });
    let chunk = match read.await {
        Ok(Ok(chunk)) => chunk,
        // An attempt that has not started has no log yet.
        Ok(Err(_)) | Err(_) => {
            return Ok(Json(json!({
                "attempt": attempt, "text": "", "next_offset": query.offset, "ended": ended, "attempts": total,
            })));
        }
    };
    Ok(Json(json!({
        "attempt": attempt,
        "attempts": total,
        "text": String::from_utf8_lossy(&chunk.bytes),
        "offset": chunk.offset,
        "next_offset": chunk.next_offset,
        "ended": ended,
    })))
}

pub(super) async fn budgets(State(shared): State<Shared>, headers: HeaderMap) -> Answer {
    as_user(&shared, &headers, |daemon, token| {
        let site = daemon.site();
        let tree = site.budgets.is_root_owner(&token.user).then_some(&site.budgets.tree);
        Ok(Json(json!({
            "version": site.budgets.version,
            "budgets": site.budget_views(&token.user),
            "owners": site.budgets.owners,
            "tree": tree,
        })))
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetsRequest {
    base: u64,
    reason: String,
    budgets: BTreeMap<String, BudgetDoc>,
    owners: Option<Vec<String>>,
}

pub(super) async fn change_budgets(
    State(shared): State<Shared>,
    headers: HeaderMap,
    body: axum::body::Bytes,
) -> Answer {
    let wanted: BudgetsRequest = read(&body)?;
    let request = move |site: &Site, user: &str| {
        site.change_budgets(user, wanted.base, wanted.budgets, wanted.owners, &wanted.reason)
    };
    let show =
        |daemon: &LocalDaemon, _: &Record| json!({ "version": daemon.site().budgets.version });
    change(&shared, &headers, request, show).await
}

pub(super) async fn hosts(State(shared): State<Shared>, headers: HeaderMap) -> Answer {
    as_user(&shared, &headers, |daemon, token| {
        let site = daemon.site();
        let operator = site.budgets.is_root_owner(&token.user);
        let unix = unix(daemon);
        let hosts: Vec<Value> = site
            .host_views()
            .into_iter()
            .map(|host| {
                let sees = |number: &u64| {
                    operator || site.work(*number).is_some_and(|w| site.may_see(&token.user, w))
                };
                json!({
                    "name": host.name, "model": host.model, "gpus": host.gpus, "used": host.used,
                    "state": host.state, "reason": host.reason,
                    "empty_by_unix_ms": unix(host.empty_by_ms),
                    "workloads": host.workloads.into_iter().filter(sees).collect::<Vec<_>>(),
                })
            })
            .collect();
        Ok(Json(json!({ "hosts": hosts })))
    })
    .await
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DrainRequest {
    #[serde(default)]
    reason: String,
}

pub(super) async fn drain(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: axum::body::Bytes,
) -> Answer {
    let wanted: DrainRequest = if body.is_empty() { DrainRequest::default() } else { read(&body)? };
    let host = name.clone();
    let request = move |site: &Site, user: &str| site.drain(user, &host, &wanted.reason);
    change(&shared, &headers, request, move |daemon, _| {
        let found = daemon.site().host_views().into_iter().find(|host| host.name == name);
        let empty_by = found.map(|host| daemon.clock().unix_ms(host.empty_by_ms));
        json!({ "host": name, "empty_by_unix_ms": empty_by })
    })
    .await
}

pub(super) async fn undrain(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Answer {
    let host = name.clone();
    let request = move |site: &Site, user: &str| site.undrain(user, &host);
    change(&shared, &headers, request, move |_, _| json!({ "host": name })).await
}

pub(super) async fn tokens(State(shared): State<Shared>, headers: HeaderMap) -> Answer {
    as_user(&shared, &headers, |daemon, token| {
        let unix = unix(daemon);
        let tokens: Vec<Value> = daemon
            .site()
            .tokens_of(&token.user)
            .map(|(one, good)| {
                json!({
                    "token": one.token, "user": one.user, "read_only": one.read_only,
                    "void": !good, "expires_unix_ms": one.expires_ms.map(&unix),
                })
            })
            .collect();
        Ok(Json(json!({ "tokens": tokens })))
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenRequest {
    name: String,
    user: Option<String>,
    expires_in_seconds: Option<u64>,
    #[serde(default)]
    read_only: bool,
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

pub(super) async fn issue_token(
    State(shared): State<Shared>,
    headers: HeaderMap,
    body: axum::body::Bytes,
) -> Answer {
    let wanted: TokenRequest = read(&body)?;
    let secret = new_secret().map_err(|error| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", error.to_string())
    })?;
    let shown = secret.clone();
    let request = move |site: &Site, user: &str| {
        let for_user = wanted.user.as_deref().unwrap_or(user);
        let expires = wanted.expires_in_seconds.map(|seconds| seconds.saturating_mul(1_000));
        site.issue_token(user, &wanted.name, for_user, &secret, expires, wanted.read_only)
    };
    change(
        &shared,
        &headers,
        request,
        move |_, _| json!({ "secret": shown, "note": "shown this once; only its hash is kept" }),
    )
    .await
}

pub(super) async fn revoke_token(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Answer {
    let token = name.clone();
    let request = move |site: &Site, user: &str| site.revoke_token(user, &token);
    change(&shared, &headers, request, move |_, _| json!({ "token": name })).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    /// Only records after this one.
    #[serde(default)]
    after: u64,
    limit: Option<usize>,
}

/// Who asked for what. Owners of the root see all of it.
pub(super) async fn audit(
    State(shared): State<Shared>,
    query: Result<Query<AuditQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Answer {
    let query = query.map_err(bad_query)?.0;
    as_user(&shared, &headers, move |daemon, token| {
        if !daemon.site().budgets.is_root_owner(&token.user) {
            let detail = "only owners of the root may read the audit log";
            return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail));
        }
        let limit = query.limit.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX);
        let unix = unix(daemon);
        let mut entries: Vec<Value> = Vec::new();
        let read = daemon.journal().read(query.after.saturating_add(1), &mut |record| {
            if record.actor.is_some() {
                if entries.len() == limit {
                    return Err(JournalError(String::new()));
                }
                entries.push(json!({
                    "seq": record.seq,
                    "at_unix_ms": unix(record.at_ms),
                    "actor": record.actor,
                    "what": without_secrets(&record.body),
                }));
            }
            Ok(())
        });
        match read {
            Err(error) if entries.len() < limit => Err(crate::daemon::Failure::from(error).into()),
            _ => Ok(Json(json!({ "entries": entries }))),
        }
    })
    .await
}

fn without_secrets(body: &Body) -> Value {
    let mut value = json!(body);
    if let Some(fields) = value.as_object_mut() {
        fields.remove("secret_sha256");
        if let Some(env) = fields.get_mut("declared").and_then(|declared| declared.get_mut("env")) {
            // Environments carry keys of other services.
            *env = json!("not shown");
        }
    }
    value
}
