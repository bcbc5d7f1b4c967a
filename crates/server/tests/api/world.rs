//! A small organisation with everybody in it, and a way to ask as each of them.

use axum::Router;
use axum::body::Body as HttpBody;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use bursar_engine::{
    AttemptKey, AttemptState, Engine, Error, Exited, HostFacts, LocalEngine, LocalOptions,
    LogChunk, Moment, Observation, Outcome, Signal, StartOrder,
};
use bursar_server::api::{LocalDaemon, Shared, router};
use bursar_server::clock::{SystemClock, wall_ms};
use bursar_server::daemon::StartOptions;
use bursar_server::driver::{Driver, Handle, NoAnswer};
use bursar_server::events::Hub;
use bursar_server::limits::{Limiter, Limits, Rate};
use bursar_server::metrics::Metrics;
use bursar_server::watch::{Measured, Watch};
use bursar_server::{Daemon, Journal};
use bursar_site::record::{BudgetsChanged, Created, HostDoc, SettingsDoc};
use bursar_site::views::Standing;
use bursar_site::{Body, Record};
use http_body_util::BodyExt as _;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tower::ServiceExt as _;

/// Pretended processes: they run as soon as they are started, and end when they are told to.
#[derive(Clone, Default)]
pub(crate) struct Processes(
    Arc<Mutex<BTreeMap<AttemptKey, AttemptState>>>,
    /// Whether the next look at them panics.
    Arc<AtomicBool>,
);

fn moment() -> Moment {
    Moment { unix_ms: 1_700_000_000_000, boot_ms: None }
}

impl Processes {
    /// Ends a process by itself.
    pub(crate) fn end(&self, workload: u64, code: i32) {
        let mut all = self.0.lock().expect("no panic while it was held");
        let found = all.iter_mut().find(|(key, _)| key.workload() == workload.to_string());
        *found.expect("it runs").1 = exited(Outcome::Exit { code });
    }

    /// Has the next round meet a fault.
    pub(crate) fn panic_once(&self) {
        self.1.store(true, Ordering::SeqCst);
    }

    /// Whether it has yet to.
    pub(crate) fn will_panic(&self) -> bool {
        self.1.load(Ordering::SeqCst)
    }
}

fn exited(outcome: Outcome) -> AttemptState {
    AttemptState::Exited(Exited {
        started_at: Some(moment()),
        ended_at: moment(),
        outcome,
        was_told_to_leave: true,
    })
}

impl Engine for Processes {
    fn hosts(&mut self) -> Result<Vec<HostFacts>, Error> {
        Ok(Vec::new())
    }

    fn observe(&mut self) -> Result<Vec<Observation>, Error> {
        assert!(!self.1.swap(false, Ordering::SeqCst), "a fault of ours");
        let all = self.0.lock().expect("no panic while it was held");
        let one = |(key, state): (&AttemptKey, &AttemptState)| Observation {
            key: key.clone(),
            state: state.clone(),
            notes: Vec::new(),
        };
        Ok(all.iter().map(one).collect())
    }

    fn start(&mut self, order: &StartOrder) -> Result<(), Error> {
        let running =
            AttemptState::Running { started_at: moment(), warned: false, told_to_leave: false };
        let mut all = self.0.lock().expect("no panic while it was held");
        all.entry(order.key.clone()).or_insert(running);
        Ok(())
    }

    fn signal(&mut self, key: &AttemptKey, signal: Signal) -> Result<(), Error> {
        if signal == Signal::Checkpoint {
            self.stop(key)?;
        }
        Ok(())
    }

    fn stop(&mut self, key: &AttemptKey) -> Result<(), Error> {
        let mut all = self.0.lock().expect("no panic while it was held");
        if let Some(state) = all.get_mut(key) {
            *state = exited(Outcome::Signal { number: 9 });
        }
        Ok(())
    }

    fn forget(&mut self, key: &AttemptKey) -> Result<(), Error> {
        self.0.lock().expect("no panic while it was held").remove(key);
        Ok(())
    }

    fn cordon(&mut self, _: &str, _: &str) -> Result<(), Error> {
        Ok(())
    }

    fn uncordon(&mut self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    fn read_log(&self, _: &AttemptKey, _: u64, _: usize) -> Result<LogChunk, Error> {
        Err(AttemptKey::new("../none", 1).expect_err("not a key"))
    }
}

/// Who owns and belongs to what. `mate` is there so that there is work of a budget that is not one's own.
pub(crate) const TREE: &str = r#"{
    "program-a": {"share": 2, "owners": ["ann"], "children": {
        "team-a1": {"share": 1, "owners": ["lea"], "members": ["max", "mate"]},
        "team-a2": {"share": 1, "owners": ["lars"], "members": ["mia"]}}},
    "program-b": {"share": 1, "owners": ["ben"], "members": ["bob"]}
}"#;

/// Everybody with a good token: the token is called as they are.
pub(crate) const PEOPLE: [&str; 10] =
    ["eve", "bob", "max", "mate", "lea", "lars", "mia", "ann", "ben", "boss"];

/// An answer.
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
}

impl Answered {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes).expect("UTF-8")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).expect("JSON")
    }
}

/// A site that is up, without a port.
pub(crate) struct World {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) router: Router,
    pub(crate) hub: Arc<Hub>,
    pub(crate) processes: Processes,
    handle: Handle<LocalDaemon>,
    driver: Option<Driver<LocalDaemon>>,
}

/// Limits that no test comes near by accident.
pub(crate) fn wide() -> Limits {
    let rate = Rate { per_second: 1_000_000, burst: 1_000_000 };
    Limits { token: rate, peer: rate, ..Limits::default() }
}

fn first() -> Vec<Body> {
    let host =
        |at: u32| HostDoc { name: format!("h-{at}"), gpus: 8, model: "x".into(), domain: None };
    let created = Created {
        name: "test".into(),
        site_id: None,
        unix_ms: wall_ms(),
        settings: SettingsDoc::default(),
        hosts: (0..2).map(host).collect(),
        rates_milli: BTreeMap::new(),
    };
    let budgets = serde_json::from_str(TREE).expect("a tree");
    let change = BudgetsChanged::first(budgets, "boss", "first");
    vec![Body::Created(created), Body::BudgetsChanged(change)]
}

/// The secret of a person's token: long enough to be found wherever it is written.
pub(crate) fn secret(name: &str) -> String {
    format!("secret-of-{name}-0123456789abcdef")
}

impl World {
    pub(crate) fn new() -> Self {
        let limits = wide();
        let limiter = Limiter::by_process_clock(&limits);
        Self::limited(limits, limiter)
    }

    pub(crate) fn limited(limits: Limits, limiter: Limiter) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let data = dir.path().join("data");
        let store = bursar_store::Store::create(&data).expect("a store");
        let logs = logs_of(&data.join("engine"));
        let watch = Watch { hub: Arc::new(Hub::default()), metrics: Arc::new(Metrics::default()) };
        let processes = Processes::default();
        let options = StartOptions {
            watches: false,
            reads_past_first: false,
            checkpoint_root: data.join("checkpoints"),
            snapshot_every: 100,
            report_key: None,
            numbers_from: 0,
            queue: bursar_server::queue::QueueLimits::default(),
            keep_logs: std::time::Duration::from_secs(86_400),
            account_budgets: bursar_server::arrivals::AccountBudgets::default(),
            log_bytes_max: 1,
            log_files_max: 1,
            accounts: bursar_server::accounts::Accounts::default(),
        };
        let journal = Measured::new(store, Arc::clone(&watch.metrics));
        let folder = data.clone();
        let clock = move |site: &bursar_site::Site| {
            SystemClock::open(
                &folder,
                site.created.unix_ms,
                site.now_ms(),
                bursar_server::clock::Jump::Refused,
            )
        };
        let engine: Box<dyn Engine> = Box::new(processes.clone());
        let mut daemon = Daemon::open(journal, engine, clock, options, first).expect("a daemon");
        issue_tokens(&mut daemon);
        watch.hub.look(&daemon);
        let driver = Driver::start(daemon, watch.clone(), bursar_server::driver::LOOK_AGAIN)
            .expect("a thread");
        let handle = driver.handle.clone();
        let shared = Shared::new(handle.clone(), Some(logs), &watch, limits, limiter);
        let router = router(shared);
        Self { dir, router, hub: watch.hub, processes, handle, driver: Some(driver) }
    }

    /// Sends a request and reads the answer.
    pub(crate) async fn send(&self, request: Request<HttpBody>) -> Answered {
        let response = self.router.clone().oneshot(request).await.expect("infallible");
        let (parts, body) = response.into_parts();
        let stream =
            parts.headers.get("content-type").is_some_and(|kind| kind == "text/event-stream");
        // A stream never ends; who wants one reads it by itself.
        let bytes = if stream {
            Vec::new()
        } else {
            body.collect().await.expect("a body").to_bytes().to_vec()
        };
        Answered { status: parts.status, headers: parts.headers, bytes }
    }

    /// Asks as somebody.
    pub(crate) async fn ask(&self, who: &str, method: &str, path: &str, body: &str) -> Answered {
        self.send(request(Some(&secret(who)), method, path, body)).await
    }

    /// Runs a job on the daemon's thread.
    pub(crate) async fn with<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut LocalDaemon) -> T + Send + 'static,
    ) -> T {
        self.handle.with(job).await.expect("it runs")
    }

    /// As [`Self::with`], for jobs that may panic.
    pub(crate) async fn try_with(
        &self,
        job: impl FnOnce(&mut LocalDaemon) + Send + 'static,
    ) -> Result<(), NoAnswer> {
        self.handle.with(job).await
    }

    /// Submits as somebody, and gives the number.
    pub(crate) async fn submit(&self, who: &str, workload: &str) -> u64 {
        let answer = self.ask(who, "POST", "/v1/workloads", workload).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["workload"].as_u64().expect("a number")
    }

    /// Goes on until a workload stands there; every job is followed by a round.
    pub(crate) async fn until(&self, number: u64, standing: Standing) {
        for _ in 0..10_000 {
            let stands = self
                .with(move |daemon| {
                    let site = daemon.site();
                    site.work(number).map(|work| site.standing(work))
                })
                .await;
            if stands == Some(standing) {
                return;
            }
        }
        panic!("workload {number} never stands at {standing:?}");
    }

    /// Every record of the journal.
    pub(crate) async fn records(&self) -> Vec<Record> {
        self.with(|daemon| {
            let mut records = Vec::new();
            daemon
                .journal()
                .read(1, &mut |record| {
                    records.push(record);
                    Ok(())
                })
                .expect("it is read");
            records
        })
        .await
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.stop();
        }
    }
}

fn logs_of(folder: &Path) -> bursar_engine::local::Logs {
    let options = LocalOptions::new(vec!["/bin/false".into()]);
    LocalEngine::open(folder, options).expect("a folder of logs").logs()
}

fn issue_tokens(daemon: &mut LocalDaemon) {
    let mut issue = |name: &str, user: &str, expires_in_ms: Option<u64>, read_only: bool| {
        daemon
            .ask("boss", |site| {
                site.issue_token("boss", name, user, &secret(name), expires_in_ms, read_only)
            })
            .expect("a token");
    };
    for person in PEOPLE {
        issue(person, person, None, false);
    }
    issue("void", "max", None, false);
    issue("expired", "max", Some(0), false);
    issue("reader", "max", None, true);
    daemon.ask("boss", |site| site.revoke_token("boss", "void")).expect("revoked");
}

/// A request.
pub(crate) fn request(
    secret: Option<&str>,
    method: &str,
    path: &str,
    body: &str,
) -> Request<HttpBody> {
    let method: Method = method.parse().expect("a method");
    let mut request = Request::builder().method(method).uri(path);
    if let Some(secret) = secret {
        request = request.header("authorization", format!("Bearer {secret}"));
    }
    request.body(HttpBody::from(body.to_owned())).expect("a request")
}

/// A workload, as YAML.
pub(crate) fn workload(name: &str, budget: &str) -> String {
    format!(
        "workload: {{name: {name}, gpus: 1, min_runtime: 30m, resumable: true, budget_owner: {budget}, command: [x], env: {{KEY: env-of-{name}}}}}"
    )
}
