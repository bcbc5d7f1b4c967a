//! Workloads: what runs and waits.

use super::LocalDaemon;
use super::Shared;
use super::answer::{Answer, Json};
use super::caller::{Caller, must_write};
use super::document::{Refusals, RefusedChanges};
use super::problem::Problem;
use super::read::{Number, Query, Sent, page_of};
use super::views::{self, WorkloadDetail, WorkloadView};
use crate::clock::Clock as _;
use crate::plain::one_line;
use axum::extract::State;
use axum::http::HeaderMap;
use bursar_engine::{AttemptKey, local_advice};
use bursar_site::declare::{Declared, WorkloadFile};
use bursar_site::forecast::WouldStart;
use bursar_site::views::Standing;
use bursar_site::waiting::Rooms;
use bursar_site::{Body, Refused, Site, Stage};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

pub(super) fn unix(daemon: &LocalDaemon) -> impl Fn(u64) -> u64 + '_ {
    |ms| daemon.clock().unix_ms(ms)
}

/// How to submit.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SubmitQuery {
    /// Only tell what it would cost and when it would start.
    #[serde(default)]
    dry_run: bool,
    /// Keep it out of the queue until it is released; it may even be one that has no room here.
    #[serde(default)]
    hold: bool,
}

/// What became of a submission.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Submitted {
    /// The workload's number, the first one's of an array; not for a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    workload: Option<u64>,
    /// How many workloads it is; their numbers follow each other.
    count: u32,
    /// Why it does not enter the queue before it is released, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<String>,
    /// What is kept of the declaration; for a dry run only.
    #[serde(skip_serializing_if = "Option::is_none")]
    declared: Option<Declared>,
    /// Defaults that were filled in, as sentences.
    defaults: Vec<String>,
    /// What fits badly together, as sentences.
    advice: Vec<String>,
    /// What its contract costs if it runs for all of it, in GPU-milliseconds at rate 1.
    contract_gpu_ms: u64,
    /// The budget that pays.
    budget: String,
    /// What is left of the tightest limit above that budget, in GPU-hours.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_gpu_hours: Option<f64>,
    /// Workloads that must end before it enters the queue.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waits_for: Vec<u64>,
    /// When it would start as things are, if that can be told.
    would_start: Option<WouldStart>,
}

/// The client's key for a submission.
fn key_of(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut keys = headers.get_all("idempotency-key").iter();
    let Some(key) = keys.next() else { return Ok(None) };
    let visible = key.to_str().ok().filter(|key| !key.chars().any(crate::plain::obeyed));
    match (visible, keys.next()) {
        (Some(key), None) => Ok(Some(key.to_owned())),
        _ => Err(Problem::invalid("Idempotency-Key: give one, of visible ASCII characters")),
    }
}

/// Submits a workload. With an `Idempotency-Key`, the same key and workload again give the same number again.
#[utoipa::path(
    post, path = "/v1/workloads", tag = "workloads",
    params(
        SubmitQuery,
        ("Idempotency-Key" = Option<String>, Header, description = "Of one's own choosing; the same for every try of one submission.", min_length = 1, max_length = 128)
    ),
    request_body(content = WorkloadFile, description = "JSON; or the same as YAML, in which plain words and numbers are texts where texts are asked for."),
    responses((status = 200, description = "Its number, and what was filled in.", body = Submitted), RefusedChanges)
)]
pub(super) async fn submit(
    State(shared): State<Shared>,
    caller: Caller,
    Query(query): Query<SubmitQuery>,
    headers: HeaderMap,
    Sent(file): Sent<WorkloadFile>,
) -> Answer<Submitted> {
    let key = key_of(&headers)?;
    let _place = match query.dry_run {
        true => {
            Some(shared.dry_runs_of_one.enter(&caller.user().await?).ok_or_else(Problem::busy)?)
        }
        false => None,
    };
    caller
        .ask(move |daemon, token| {
            if !query.dry_run {
                must_write(&token)?;
            }
            let user = token.user;
            let (accounts, queue) = (daemon.options().accounts, daemon.options().queue);
            let as_user = accounts.as_user;
            let prepare = |site: &Site| -> Result<(Vec<Body>, Submitted), Refused> {
                let mut submission =
                    site.submit(&user, file.workload, key.as_deref(), query.hold)?;
                accounts.check(site, &user, &submission.accepted.declared.user)?;
                let person = &submission.accepted.declared.user;
                // What was submitted before is told again, however full the queue is.
                if !submission.bodies.is_empty() {
                    queue.check(site, person, submission.bodies.len())?;
                }
                if query.dry_run {
                    submission.bodies.clear();
                }
                let mut accepted = submission.accepted;
                let declared = &accepted.declared;
                // Root may look wherever root's own work may.
                let other = Some(&*declared.user).filter(|user| as_user && *user != "root");
                let here = local_advice(declared.workdir.as_deref(), other, declared.cpus);
                accepted.advice.extend(here);
                let enters = submission.held.is_none();
                let budget = accepted.declared.budget.clone();
                let answer = Submitted {
                    contract_gpu_ms: site
                        .contract_gpu_ms(&accepted)
                        .saturating_mul(u64::from(submission.count)),
                    left_gpu_hours: site.left_of_limit(&budget),
                    budget,
                    waits_for: site.waits_for(&accepted.declared),
                    would_start: enters.then(|| site.would_start(&accepted)).flatten(),
                    count: submission.count,
                    held: submission.held,
                    workload: (!query.dry_run).then_some(submission.workload),
                    defaults: accepted.defaults,
                    advice: accepted.advice,
                    declared: query.dry_run.then_some(accepted.declared),
                };
                Ok((submission.bodies, answer))
            };
            let (_, answer) = daemon.ask_for(&user, prepare)?;
            Ok(Json(answer))
        })
        .await
}

/// Which workloads.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Those that have ended, too.
    #[serde(default)]
    all: bool,
    /// Only those of this budget and of what is below it.
    budget: Option<String>,
    /// Only those of this user.
    user: Option<String>,
    /// Only those with this label: `key=value`.
    label: Option<String>,
    /// Only workloads with larger numbers.
    after: Option<u64>,
    /// How many at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Whether a path is a budget, or lies below it.
fn inside(path: &str, budget: &str) -> bool {
    let rest = path.strip_prefix(budget);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn label_of(text: &str) -> Result<(&str, &str), Problem> {
    text.split_once('=')
        .ok_or_else(|| Problem::invalid(format!("label: '{}' is not KEY=VALUE", one_line(text))))
}

impl ListQuery {
    /// What in the query names nothing that one may see: a list that is empty since a name is misspelt must not
    /// look as if all were quiet.
    fn names_nothing(&self, site: &Site, user: &str) -> Vec<String> {
        let visible = || site.works().filter(|work| site.may_see(user, work));
        let mut notes = Vec::new();
        let views = site.budget_views(user);
        if let Some(budget) = &self.budget {
            let paths = views.iter().map(|view| view.path.as_str()).filter(|path| !path.is_empty());
            let paths: Vec<&str> = paths.collect();
            let known = paths.contains(&budget.as_str())
                || visible().any(|work| inside(&work.declared.budget, budget));
            if !known {
                let near = bursar_site::yaml::nearest(budget, &paths);
                let near = match near {
                    "" => String::new(),
                    near => format!("; the nearest is '{near}'"),
                };
                let budget = one_line(budget);
                notes.push(format!("budget: there is no '{budget}' that you may see{near}"));
            }
        }
        if let Some(asked) = self.user.as_ref().filter(|asked| *asked != user) {
            let known = visible().any(|work| work.declared.user == *asked)
                || views
                    .iter()
                    .any(|view| view.owners.contains(asked) || view.members.contains(asked));
            if !known {
                let asked = one_line(asked);
                notes.push(format!(
                    "user: '{asked}' has no workload and no budget that you may see"
                ));
            }
        }
        notes
    }
}

/// A page of workloads.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct WorkloadPage {
    workloads: Vec<WorkloadView>,
    /// What to ask `after` for the next page; none on the last.
    next_after: Option<u64>,
    /// What the query names and is not there, as sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// Workloads that one may see: one's own, and those of budgets of which one is a member or owner.
#[utoipa::path(
    get, path = "/v1/workloads", tag = "workloads", params(ListQuery),
    responses((status = 200, description = "By number.", body = WorkloadPage), Refusals)
)]
pub(super) async fn list(caller: Caller, Query(query): Query<ListQuery>) -> Answer<WorkloadPage> {
    let limit = page_of(query.limit)?;
    caller
        .ask(move |daemon, token| {
            let site = daemon.site();
            let notes = query.names_nothing(site, &token.user);
            let label = query.label.as_deref().map(label_of).transpose()?;
            let mut works: Vec<_> = site
                .works()
                .filter(|work| query.after.is_none_or(|after| work.number > after))
                .filter(|work| site.may_see(&token.user, work))
                .filter(|work| query.all || site.standing(work) != Standing::Ended)
                .filter(|work| query.user.as_ref().is_none_or(|user| *user == work.declared.user))
                .filter(|work| {
                    label.is_none_or(|(key, value)| {
                        work.declared.labels.get(key).is_some_and(|found| found == value)
                    })
                })
                .filter(|work| {
                    query.budget.as_ref().is_none_or(|budget| inside(&work.declared.budget, budget))
                })
                .take(limit + 1)
                .collect();
            let more = works.len() > limit;
            works.truncate(limit);
            let next_after = more.then(|| works.last().map(|work| work.number)).flatten();
            let unix = unix(daemon);
            let mut rooms = Rooms::default();
            let workloads =
                works.iter().map(|work| views::workload(site, work, &mut rooms, &unix)).collect();
            Ok(Json(WorkloadPage { workloads, next_after, notes }))
        })
        .await
}

/// All of a workload: what was declared, every attempt, what it waits for.
#[utoipa::path(
    get, path = "/v1/workloads/{number}", tag = "workloads",
    params(("number" = u64, Path, description = "The workload.", example = 17)),
    responses((status = 200, description = "Values of its environment are shown to its user only.", body = WorkloadDetail), Refusals)
)]
pub(super) async fn show(
    State(shared): State<Shared>,
    caller: Caller,
    Number(number): Number,
) -> Answer<WorkloadDetail> {
    let progress = shared.progress;
    caller
        .ask(move |daemon, token| {
            let work = daemon.site().visible(&token.user, number)?;
            let mut detail = views::detail(daemon.site(), work, &unix(daemon));
            detail.progress = progress.of(work);
            if work.declared.user != token.user {
                // Environments carry keys of other services: they are their user's only.
                let values = detail.declared.env.values_mut();
                values.for_each(|value| *value = "not shown".into());
            }
            Ok(Json(detail))
        })
        .await
}

/// A workload that was changed.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct WorkloadNumber {
    /// Its number.
    workload: u64,
}

/// What to cancel.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct CancelQuery {
    /// All of the array that it is of.
    #[serde(default)]
    array: bool,
}

/// Ends a workload: out of the queue, or its attempt is stopped.
#[utoipa::path(
    post, path = "/v1/workloads/{number}/cancel", tag = "workloads",
    params(("number" = u64, Path, description = "The workload.", example = 17), CancelQuery),
    responses((status = 200, description = "It is ended, or will be.", body = WorkloadNumber), RefusedChanges)
)]
pub(super) async fn cancel(
    caller: Caller,
    Number(number): Number,
    Query(query): Query<CancelQuery>,
) -> Answer<WorkloadNumber> {
    caller
        .ask(move |daemon, token| {
            must_write(&token)?;
            let user = token.user;
            daemon.ask_for(&user, |site| {
                let bodies = match query.array {
                    true => site.cancel_array(&user, number)?,
                    false => vec![site.cancel(&user, number)?],
                };
                Ok((bodies, ()))
            })?;
            Ok(Json(WorkloadNumber { workload: number }))
        })
        .await
}

/// Lets a held workload enter the queue.
#[utoipa::path(
    post, path = "/v1/workloads/{number}/release", tag = "workloads",
    params(("number" = u64, Path, description = "The workload.", example = 17)),
    responses((status = 200, description = "It is no longer held.", body = WorkloadNumber), RefusedChanges)
)]
pub(super) async fn release(caller: Caller, Number(number): Number) -> Answer<WorkloadNumber> {
    caller
        .ask(move |daemon, token| {
            must_write(&token)?;
            daemon.ask(&token.user, |site| site.release_held(&token.user, number))?;
            Ok(Json(WorkloadNumber { workload: number }))
        })
        .await
}

/// Has a running workload save, leave and wait again; has one that has ended run once more.
#[utoipa::path(
    post, path = "/v1/workloads/{number}/requeue", tag = "workloads",
    params(("number" = u64, Path, description = "The workload.", example = 17)),
    responses((status = 200, description = "It waits again, or will when it has left.", body = WorkloadNumber), RefusedChanges)
)]
pub(super) async fn requeue(caller: Caller, Number(number): Number) -> Answer<WorkloadNumber> {
    caller
        .ask(move |daemon, token| {
            must_write(&token)?;
            let queue = daemon.options().queue;
            daemon.ask(&token.user, |site| {
                let body = site.requeue(&token.user, number)?;
                if let Some(work) = site.work(number)
                    && matches!(work.stage, Stage::Ended(_))
                {
                    queue.check(site, &work.declared.user, 1)?;
                }
                Ok(body)
            })?;
            Ok(Json(WorkloadNumber { workload: number }))
        })
        .await
}

/// Tells that the running attempt saved a checkpoint.
#[utoipa::path(
    post, path = "/v1/workloads/{number}/checkpoint", tag = "workloads",
    params(("number" = u64, Path, description = "The workload.", example = 17)),
    responses((status = 200, description = "What is lost at a preemption counts from now.", body = WorkloadNumber), RefusedChanges)
)]
pub(super) async fn checkpoint(caller: Caller, Number(number): Number) -> Answer<WorkloadNumber> {
    caller
        .ask(move |daemon, token| {
            must_write(&token)?;
            daemon.ask(&token.user, |site| site.checkpoint(&token.user, number))?;
            Ok(Json(WorkloadNumber { workload: number }))
        })
        .await
}

/// Which part of a log.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LogQuery {
    /// Of which attempt; the latest unless given.
    attempt: Option<u32>,
    /// From which byte on.
    #[serde(default)]
    offset: u64,
}

/// How much of a log comes at once.
const LOG_BYTES_MAX: usize = 256 * 1024;

/// A part of a log.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct LogPart {
    /// The attempt; none if there was none yet.
    attempt: Option<u32>,
    /// How many attempts there were.
    attempts: u32,
    /// What was written. Bytes that are no UTF-8 are replaced.
    text: String,
    /// Where it begins: later than what was asked for if that is gone.
    offset: u64,
    /// What to ask for next.
    next_offset: u64,
    /// Whether no more will come.
    ended: bool,
}

/// What a workload writes to its standard output and error. An empty part means that there is no more yet.
#[utoipa::path(
    get, path = "/v1/workloads/{number}/log", tag = "workloads",
    params(("number" = u64, Path, description = "The workload.", example = 17), LogQuery),
    responses((status = 200, description = "A part of it.", body = LogPart), Refusals)
)]
pub(super) async fn log(
    State(shared): State<Shared>,
    caller: Caller,
    Number(number): Number,
    Query(query): Query<LogQuery>,
) -> Answer<LogPart> {
    let asked = caller.ask(move |daemon, token| {
        let work = daemon.site().visible(&token.user, number)?;
        let ended = daemon.site().standing(work) == Standing::Ended;
        let latest = work.latest().map(|latest| latest.number);
        let over = |attempt: u32| {
            let one = work.attempts.iter().find(|one| one.number == attempt);
            one.is_some_and(|one| one.ended_ms.is_some())
        };
        let attempt = query.attempt.or(latest);
        Ok((attempt, ended || attempt.is_some_and(over), latest.unwrap_or(0)))
    });
    let (attempt, ended, attempts) = asked.await?;
    let mut part = LogPart {
        attempt,
        attempts,
        text: String::new(),
        offset: query.offset,
        next_offset: query.offset,
        ended,
    };
    // Only attempts that there were have logs; no other name reaches the folder of logs.
    let Some(attempt) = attempt.filter(|attempt| (1..=attempts).contains(attempt)) else {
        return Ok(Json(part));
    };
    let key = AttemptKey::new(number.to_string(), attempt);
    let read = match (shared.logs.clone(), key) {
        (_, Err(_)) => None,
        (Some(logs), Ok(key)) => {
            let read =
                tokio::task::spawn_blocking(move || logs.read(&key, query.offset, LOG_BYTES_MAX));
            read.await.ok().and_then(Result::ok)
        }
        // Only the engine knows where.
        (None, Ok(key)) => {
            let read = move |daemon: &mut LocalDaemon| {
                daemon.engine().read_log(&key, query.offset, LOG_BYTES_MAX).ok()
            };
            shared.daemon.with(read).await.ok().flatten()
        }
    };
    // An attempt that has not started has no log yet.
    if let Some(chunk) = read {
        part.text = String::from_utf8_lossy(&chunk.bytes).into_owned();
        (part.offset, part.next_offset) = (chunk.offset, chunk.next_offset);
    }
    Ok(Json(part))
}
