//! The socket, and what it takes.

use crate::api::{LocalDaemon, Problem};
use crate::clock::Clock as _;
use crate::daemon::Failure;
use crate::driver::Handle;
use crate::limits::{Limiter, Limits, Rate};
use crate::report::{ReportKey, TOKEN_VARIABLE};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use bursar_site::{Body, Refused, RefusedKind, Site, Stage, Work};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long what work says about its progress may be, in characters.
const PROGRESS_CHARS_MAX: usize = 200;

/// How many workloads may have said something before those that have ended are forgotten.
const PROGRESS_KEPT: usize = 1_000;

/// Checkpoints of an attempt that follow within this time are not journaled: work that reports in a tight loop
/// must not fill the disk, and what is lost is known to a second all the same.
const CHECKPOINT_EVERY_MS: u64 = 1_000;

/// What work said last about its progress. Not journaled: it is gone when the daemon is.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Mutex<BTreeMap<u64, Said>>>);

#[derive(Clone, Debug)]
struct Said {
    attempt: u32,
    text: String,
    unix_ms: u64,
}

impl Progress {
    /// What the latest attempt of a workload said last, for people.
    pub fn of(&self, work: &Work) -> Option<Value> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let said = known.get(&work.number)?;
        let latest = work.latest()?;
        (latest.number == said.attempt)
            .then(|| json!({ "text": said.text, "unix_ms": said.unix_ms }))
    }

    fn note(&self, site: &Site, workload: u64, said: Said) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= PROGRESS_KEPT {
            let is_live = |number: &u64| {
                site.work(*number).is_some_and(|work| !matches!(work.stage, Stage::Ended(_)))
            };
            known.retain(|number, _| is_live(number));
        }
        known.insert(workload, said);
    }
}

#[derive(Clone)]
struct Reports {
    daemon: Handle<LocalDaemon>,
    key: ReportKey,
    progress: Progress,
    limiter: Arc<Limiter>,
}

/// What one attempt may report: work that reports at every step is told to come again, not waited for.
const OF_AN_ATTEMPT: Rate = Rate { per_second: 20, burst: 200 };

/// Opens the socket at a path. Whoever may reach it may write to it: what it takes is guarded by secrets.
///
/// # Errors
/// If it cannot be made.
pub(crate) fn listen(path: &Path) -> io::Result<tokio::net::UnixListener> {
    // The data folder is held by this process: a socket that is there was left behind.
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path)?,
        Ok(_) => return Err(io::Error::other("there is something that is no socket")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = tokio::net::UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// What the socket takes.
pub(crate) fn router(
    daemon: Handle<LocalDaemon>,
    key: ReportKey,
    progress: Progress,
    limits: &Limits,
) -> Router {
    let limiter = Limiter::by_process_clock(&Limits { token: OF_AN_ATTEMPT, ..*limits });
    Router::new()
        .route("/v1/checkpoint", post(checkpoint))
        .route("/v1/progress", post(told))
        .layer(DefaultBodyLimit::max(16 * 1024))
        .layer(from_fn_with_state(limits.request_time, in_time))
        .with_state(Reports { daemon, key, progress, limiter: Arc::new(limiter) })
}

/// A report that takes too long is given up, its body included.
async fn in_time(State(time): State<Duration>, request: Request, next: Next) -> Response {
    let slow = || Problem::new(StatusCode::REQUEST_TIMEOUT, "slow", "it took too long");
    let done = tokio::time::timeout(time, next.run(request)).await;
    done.unwrap_or_else(|_| slow().into_response())
}

fn who(reports: &Reports, headers: &HeaderMap) -> Result<(u64, u32), Problem> {
    let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = value.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
    let found = token.and_then(|token| Some((token, reports.key.read(token)?)));
    let (token, attempt) = found.ok_or_else(|| {
        Problem::new(
            StatusCode::UNAUTHORIZED,
            "unauthenticated",
            format!("send the attempt's own secret: Authorization: Bearer ${TOKEN_VARIABLE}"),
        )
    })?;
    let hash = Sha256::digest(token.as_bytes()).into();
    reports.limiter.take_of_token(&hash).map_err(Problem::too_many)?;
    Ok(attempt)
}

/// The attempt, if it runs.
fn running(site: &Site, workload: u64, attempt: u32) -> Result<&bursar_site::Attempt, Refused> {
    let latest = site.work(workload).and_then(Work::latest);
    let live = latest
        .filter(|one| one.number == attempt && one.started_ms.is_some() && one.ended_ms.is_none());
    live.ok_or_else(|| Refused {
        kind: RefusedKind::Conflict,
        message: format!("attempt {attempt} of workload {workload} does not run"),
    })
}

/// Looks at the engine first if the site does not know yet that the attempt runs: work may be quicker to speak
/// than the daemon is to look.
fn notice(daemon: &mut LocalDaemon, workload: u64, attempt: u32) -> Result<(), Failure> {
    let site = daemon.current()?;
    let latest = site.work(workload).and_then(Work::latest);
    if latest.is_some_and(|one| one.number == attempt && one.started_ms.is_none()) {
        daemon.round()?;
    }
    Ok(())
}

async fn checkpoint(
    State(reports): State<Reports>,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    let (workload, attempt) = who(&reports, &headers)?;
    let job = move |daemon: &mut LocalDaemon| {
        notice(daemon, workload, attempt)?;
        let now = daemon.now_ms();
        let actor = format!("workload/{workload}");
        daemon.ask_for(&actor, |site| {
            let one = running(site, workload, attempt)?;
            let is_known = one.checkpoint_ms.is_some_and(|at| now < at + CHECKPOINT_EVERY_MS);
            let news = (!is_known).then_some(Body::Checkpointed { workload, attempt });
            Ok((news.into_iter().collect(), ()))
        })
    };
    reports.daemon.with(job).await??;
    Ok(Json(json!({ "workload": workload, "attempt": attempt })))
}

async fn told(
    State(reports): State<Reports>,
    headers: HeaderMap,
    body: String,
) -> Result<Json<Value>, Problem> {
    let (workload, attempt) = who(&reports, &headers)?;
    let text: String = body
        .trim()
        .chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .take(PROGRESS_CHARS_MAX)
        .collect();
    if text.is_empty() {
        let detail = "progress: say how far it is, such as 'step 120 of 900'";
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail));
    }
    let progress = reports.progress.clone();
    let job = move |daemon: &mut LocalDaemon| {
        notice(daemon, workload, attempt)?;
        let unix_ms = daemon.clock().unix_ms(daemon.now_ms());
        let site = daemon.current()?;
        running(site, workload, attempt)?;
        progress.note(site, workload, Said { attempt, text, unix_ms });
        Ok::<_, Problem>(())
    };
    reports.daemon.with(job).await??;
    Ok(Json(json!({ "workload": workload, "attempt": attempt })))
}
