//! Bringing a site up on one machine: data folder, engine, daemon, API.

use crate::api::{LocalDaemon, Shared, new_secret, router};
use crate::clock::{SystemClock, wall_ms};
use crate::daemon::{Daemon, StartOptions};
use crate::driver::Driver;
use crate::events::Hub;
use crate::limits::{Limiter, Limits};
use crate::metrics::Metrics;
use crate::watch::{Measured, Watch};
use bursar_engine::{Engine as _, GpuSource, LocalEngine, LocalOptions};
use bursar_site::record::{BudgetsChanged, Created, HostDoc, SettingsDoc};
use bursar_site::{Body, BudgetDoc};
use bursar_store::{Check, Store};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// So many records fold in half a second; a snapshot of many workloads takes as long (docs/benchmarks.md).
const SNAPSHOT_EVERY: u64 = 100_000;

/// What `bursar up` was asked for.
#[derive(Clone, Debug)]
pub struct UpOptions {
    /// Where everything is kept.
    pub data: PathBuf,
    /// Where the API listens.
    pub listen: SocketAddr,
    /// GPUs to pretend where there are none.
    pub virtual_gpus: u32,
    /// The first owner of the root; only asked when the site is created.
    pub owner: String,
    /// The name of the site; only asked when it is created.
    pub name: String,
    /// The first budgets; only asked when the site is created.
    pub budgets: BTreeMap<String, BudgetDoc>,
    /// The command line that runs the supervisor of an attempt.
    pub shim: Vec<String>,
    /// What clients of the API may take.
    pub limits: Limits,
}

/// A site that is up.
pub struct Up {
    driver: Driver<LocalDaemon>,
    shared: Shared,
    listener: tokio::net::TcpListener,
    runtime: tokio::runtime::Runtime,
    /// The secret of the owner's first token: shown once, kept only as a hash.
    pub first_secret: Option<String>,
    /// Where the API listens.
    pub address: SocketAddr,
    /// The hosts, as `name: N x model`.
    pub hosts: Vec<String>,
    /// What the engine cannot do here.
    pub notes: Vec<String>,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Opens or creates the site and begins to drive it. The error is one line.
///
/// # Errors
/// If data, engine, journal or port cannot be had.
pub fn up(options: UpOptions) -> Result<Up, String> {
    let store = Store::open_or_create(&options.data, Check::Tail).map_err(text)?;
    let mut local = LocalOptions::new(options.shim.clone());
    local.gpus = GpuSource::Detected { virtual_if_none: options.virtual_gpus };
    let checkpoints = options.data.join("checkpoints");
    std::fs::create_dir_all(&checkpoints).map_err(text)?;
    local.checkpoint_root = Some(checkpoints.clone());
    let mut engine = LocalEngine::open(&options.data.join("engine"), local).map_err(text)?;
    let found = engine.hosts().map_err(text)?;
    if found.iter().all(|host| host.gpus == 0) {
        return Err(
            "this machine has no GPUs that the driver knows: try it with --virtual-gpus 8".into()
        );
    }
    let hosts: Vec<String> =
        found.iter().map(|host| format!("{}: {} x {}", host.name, host.gpus, host.model)).collect();
    let (notes, logs) = (engine.notes().to_vec(), engine.logs());
    let first = {
        let (options, found) = (options.clone(), found.clone());
        move || first_records(&options, &found)
    };
    let start = StartOptions {
        checkpoint_root: checkpoints,
        log_bytes_max: 64 * 1024 * 1024,
        log_files_max: 4,
        as_user: rustix::process::geteuid().is_root(),
        snapshot_every: SNAPSHOT_EVERY,
    };
    let data = options.data.clone();
    let clock = move |site: &bursar_site::Site| {
        SystemClock::open(&data, site.created.unix_ms, site.now_ms())
    };
    let watch = Watch { hub: Arc::new(Hub::default()), metrics: Arc::new(Metrics::default()) };
    let journal = Measured::new(store, Arc::clone(&watch.metrics));
    let mut daemon =
        Daemon::open(journal, Box::new(engine) as _, clock, start, first).map_err(text)?;
    must_be_the_same(&daemon, &found)?;
    let first_secret = first_token(&mut daemon)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(text)?;
    let listener = runtime
        .block_on(tokio::net::TcpListener::bind(options.listen))
        .map_err(|error| format!("cannot listen on {}: {error}; try --listen", options.listen))?;
    let address = listener.local_addr().map_err(text)?;
    let limiter = Limiter::by_process_clock(&options.limits);
    // Who follows from the first moment on misses nothing of it.
    watch.hub.look(&daemon);
    let driver = Driver::start(daemon, watch.clone()).map_err(text)?;
    let shared = Shared::new(driver.handle.clone(), logs, &watch, options.limits, limiter);
    Ok(Up { driver, shared, listener, runtime, first_secret, address, hosts, notes })
}

impl Up {
    /// Serves until `stop` is done. What runs, runs on; the next `up` finds it.
    ///
    /// # Errors
    /// If the listener fails.
    pub fn serve(self, stop: impl Future<Output = ()> + Send + 'static) -> Result<(), String> {
        let Self { driver, shared, listener, runtime, .. } = self;
        runtime.block_on(async move {
            let (hub, limits) = (Arc::clone(&shared.hub), shared.limits);
            // Streams of events would never end by themselves.
            let stop = async move {
                stop.await;
                hub.close();
            };
            crate::serve::serve(listener, router(shared), &limits, stop).await;
        });
        runtime.shutdown_timeout(std::time::Duration::from_secs(2));
        driver.stop();
        Ok(())
    }
}

fn first_records(options: &UpOptions, found: &[bursar_engine::HostFacts]) -> Vec<Body> {
    let created = Created {
        name: options.name.clone(),
        unix_ms: wall_ms(),
        settings: SettingsDoc::default(),
        hosts: found
            .iter()
            .map(|host| HostDoc {
                name: host.name.clone(),
                gpus: host.gpus,
                model: host.model.clone(),
                domain: None,
            })
            .collect(),
        rates_milli: BTreeMap::new(),
    };
    let change = BudgetsChanged {
        version: 1,
        reason: "the site's first budgets".into(),
        budgets: options.budgets.clone(),
        owners: vec![options.owner.clone()],
        scheduled: None,
    };
    vec![Body::Created(created), Body::BudgetsChanged(change)]
}

/// A site knows its hosts from its creation; a machine that has others by now is told so, not guessed at.
fn must_be_the_same(
    daemon: &LocalDaemon,
    found: &[bursar_engine::HostFacts],
) -> Result<(), String> {
    let known = &daemon.site().created.hosts;
    let same = known.len() == found.len()
        && known.iter().zip(found).all(|(known, found)| {
            (&known.name, known.gpus, &known.model) == (&found.name, found.gpus, &found.model)
        });
    if same {
        return Ok(());
    }
    let list = |hosts: Vec<String>| hosts.join(", ");
    let known = known.iter().map(|h| format!("{} ({} x {})", h.name, h.gpus, h.model)).collect();
    let found = found.iter().map(|h| format!("{} ({} x {})", h.name, h.gpus, h.model)).collect();
    Err(format!(
        "this site was created with {}, now there is {}: use another --data, or the same --virtual-gpus",
        list(known),
        list(found)
    ))
}

fn first_token(daemon: &mut LocalDaemon) -> Result<Option<String>, String> {
    let site = daemon.site();
    let Some(owner) = site.budgets.owners.first().cloned() else { return Ok(None) };
    if site.tokens_of(&owner).next().is_some() {
        return Ok(None);
    }
    let secret = new_secret().map_err(text)?;
    let shown = secret.clone();
    let name = format!("{owner}-first");
    daemon
        .ask(&owner, |site| site.issue_token(&owner, &name, &owner, &secret, None, false))
        .map_err(text)?;
    Ok(Some(shown))
}
