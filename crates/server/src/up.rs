//! Bringing a site up on one machine: data folder, engine, daemon, API.

use crate::accounts::Accounts;
use crate::api::{LocalDaemon, Shared, router};
use crate::clock::{Jump, SystemClock, wall_ms};
use crate::daemon::{Daemon, StartOptions};
use crate::driver::{Driver, Handle, LOOK_AGAIN};
use crate::events::Hub;
use crate::first::{KeepSecret, Used};
use crate::journal::{Journal as _, JournalError};
use crate::limits::{Limiter, Limits};
use crate::metrics::Metrics;
use crate::ours::{Owner, Within, highest_workload};
use crate::queue::QueueLimits;
use crate::report::{self, ReportKey};
use crate::settings::SettingsWanted;
use crate::slurm::{self, GateKeeper, SlurmMode, SlurmWanted, Watching};
use crate::watch::{Measured, Watch};
use bursar_engine::local::Logs;
use bursar_engine::{Engine, GpuSource, HostFacts, LocalEngine, LocalOptions};
use bursar_site::record::{BudgetsChanged, Created, HostDoc, SettingsDoc};
use bursar_site::{Body, BudgetDoc};
use bursar_store::{Check, Store};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// So many records fold in half a second; a snapshot of many workloads takes as long (docs/benchmarks.md).
const SNAPSHOT_EVERY: u64 = 100_000;

/// What `bursar up` was asked for.
#[derive(Clone, Debug)]
pub struct UpOptions {
    /// Where everything is kept that is nobody else's business. Closed to other users.
    pub data: PathBuf,
    /// Where that is kept what work has to reach: checkpoints, the socket. `data` itself, unless work runs as
    /// other users.
    pub work: PathBuf,
    /// As whom work may run.
    pub accounts: Accounts,
    /// Where the API listens.
    pub listen: SocketAddr,
    /// GPUs to pretend where there are none.
    pub virtual_gpus: u32,
    /// Whether to pretend them even if there are others.
    pub always_virtual: bool,
    /// Over how many hosts these are spread.
    pub virtual_hosts: u32,
    /// What is said about settings.
    pub settings: SettingsWanted,
    /// How logs of work are rotated.
    pub rotation: Rotation,
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
    /// The cluster of Slurm that is to be governed, instead of this machine.
    pub slurm: Option<SlurmWanted>,
    /// Where the secret of the owner's first token is put before it is made.
    pub keep_secret: Option<KeepSecret>,
    /// How much may be queued.
    pub queue: QueueLimits,
    /// Whether a wall clock that is far ahead after a reboot is believed.
    pub jump: Jump,
}

/// What carries decisions out, and what is known of it.
struct Opened {
    engine: Box<dyn Engine>,
    hosts: Vec<HostFacts>,
    /// Logs that can be read beside the daemon.
    logs: Option<Logs>,
    notes: Vec<String>,
}

/// Longer paths the system takes for no socket.
const SOCKET_BYTES_MAX: usize = 108;

/// How logs of work are rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// How long a log may become before it is followed by another, in bytes.
    pub bytes_max: u64,
    /// How many are kept.
    pub files_max: u32,
    /// For how many days the logs of an attempt are kept after its end.
    pub keep_days: u32,
}

impl Rotation {
    fn keep_logs(self) -> std::time::Duration {
        std::time::Duration::from_secs(u64::from(self.keep_days) * 86_400)
    }
}

impl Default for Rotation {
    fn default() -> Self {
        Self { bytes_max: 64 * 1024 * 1024, files_max: 4, keep_days: 30 }
    }
}

/// A site that is up.
pub struct Up {
    driver: Driver<LocalDaemon>,
    shared: Shared,
    reports: Option<(tokio::net::UnixListener, axum::Router)>,
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

/// What the local engine calls GPUs that it makes up.
const VIRTUAL_MODEL: &str = "virtual";

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Opens or creates the site and begins to drive it. The error is one line.
///
/// # Errors
/// If data, engine, journal or port cannot be had.
pub fn up(options: UpOptions) -> Result<Up, String> {
    let data = options.data.clone();
    bring_up(options).map_err(|error| {
        // What the system says; what our store says names the fix already.
        if !error.contains("No space left on device") {
            return error;
        }
        format!(
            "{error}: the disk of {0} is full; make room (df -h {0} tells how much there is), then start again",
            data.display()
        )
    })
}

fn bring_up(mut options: UpOptions) -> Result<Up, String> {
    // The rounds need files, too: connections get a part of what there may be.
    if let Some(files) = bursar_engine::allow_open_files() {
        let part = usize::try_from(files / 4).unwrap_or(usize::MAX).max(8);
        options.limits.connections = options.limits.connections.min(part);
        options.limits.guests = options.limits.guests.min(part / 2);
    }
    // Before anything is created: an address in use is the most likely of all mistakes.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(text)?;
    let listener = runtime
        .block_on(tokio::net::TcpListener::bind(options.listen))
        .map_err(|error| format!("cannot listen on {}: {error}; try --listen", options.listen))?;
    let address = listener.local_addr().map_err(text)?;
    // All of it: a start that begins at a snapshot would not come upon damage before that.
    let store = Store::open_or_create(&options.data, Check::Full).map_err(text)?;
    let checkpoints = options.work.join("checkpoints");
    let engine_dir = options.data.join("engine");
    let owner = owner_of(&store, &engine_dir)?;
    let apart = options.work != options.data;
    owner.check(&options.work, if apart { Within::Anywhere } else { Within::Data })?;
    owner.check(&engine_dir, Within::Data)?;
    // First in the data folder: a site that is killed while it is created finds there what it was to be.
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&engine_dir);
    made.and_then(|()| owner.mark(&engine_dir))
        .map_err(|error| format!("{}: {error}", engine_dir.display()))?;
    make_reachable(&options, &owner)
        .map_err(|error| format!("{}: {error}", options.work.display()))?;
    let socket = options.work.join("socket");
    let is_short = socket.as_os_str().len() < SOCKET_BYTES_MAX;
    let report_key = ReportKey::open(&options.data)
        .map_err(|error| format!("{}: {error}", options.data.display()))?;
    let Opened { engine, hosts: found, logs, mut notes } = match &options.slurm {
        Some(slurm) => open_slurm(slurm, &options.settings, &engine_dir, &owner.id)?,
        None => open_local(&options, &engine_dir, &checkpoints, is_short.then_some(&socket))?,
    };
    let numbers_from = highest_workload(&options.work, &engine_dir).map_err(text)? + 1;
    let hosts: Vec<String> =
        found.iter().map(|host| format!("{}: {} x {}", host.name, host.gpus, host.model)).collect();
    if !is_short {
        notes.push(format!(
            "work cannot report: the path {} has {SOCKET_BYTES_MAX} bytes or more, which no socket takes; use a shorter --data",
            socket.display()
        ));
    }
    // Said before a site is created with them; a site that is there knows its own.
    let settings = options.settings.for_a_new_site(found.len());
    if store.head().seq == 0 {
        settings.clone()?;
    }
    let is_new = store.head().seq == 0;
    let first = {
        let (options, found, id) = (options.clone(), found.clone(), owner.id.clone());
        move || first_records(&options, &found, settings.unwrap_or_default(), id)
    };
    let start = StartOptions {
        checkpoint_root: checkpoints,
        log_bytes_max: options.rotation.bytes_max,
        log_files_max: options.rotation.files_max,
        accounts: options.accounts,
        report_key: is_short.then(|| report_key.clone()),
        watches: options.slurm.as_ref().is_some_and(|slurm| slurm.mode == SlurmMode::Watch),
        reads_past_first: store.head().seq == 0
            && options.slurm.as_ref().is_some_and(|slurm| slurm.history_ms > 0),
        account_budgets: options
            .slurm
            .as_ref()
            .map(|slurm| slurm.accounts.clone())
            .unwrap_or_default(),
        snapshot_every: SNAPSHOT_EVERY,
        numbers_from,
        queue: options.queue,
        keep_logs: options.rotation.keep_logs(),
    };
    let (data, jump) = (options.data.clone(), options.jump);
    let clock = move |site: &bursar_site::Site| {
        SystemClock::open(&data, site.created.unix_ms, site.now_ms(), jump)
    };
    let watch = Watch { hub: Arc::new(Hub::default()), metrics: Arc::new(Metrics::default()) };
    let journal = Measured::new(store, Arc::clone(&watch.metrics));
    let mut daemon = Daemon::open(journal, engine, clock, start, first).map_err(text)?;
    must_be_the_same(&daemon, &found)?;
    if let Some(told) = options.settings.cannot_change(&daemon.site().created.settings).first() {
        return Err(told.clone());
    }
    change_settings(&mut daemon, &options.settings)?;
    let reports = {
        let _runtime = runtime.enter();
        let listen = || report::listen(&socket);
        let listener = is_short.then(listen).transpose();
        listener.map_err(|error| format!("{}: {error}", socket.display()))?
    };
    if let Some(slurm) = &options.slurm {
        let budgets = &daemon.site().budgets;
        let wrong = slurm.not_budgets(|path| budgets.get(path).is_some());
        // In a site that is there an owner may have removed it: that keeps nobody from coming up.
        match wrong.first() {
            Some(wrong) if is_new => return Err(wrong.clone()),
            _ => notes.extend(wrong),
        }
        notes.extend(slurm.hand_back(daemon.site())?);
        notes.push(slurm.told());
    }
    let mut gate = options.slurm.as_ref().map(GateKeeper::new).transpose()?.flatten();
    if let Some(gate) = &mut gate {
        // Who is told that it is up may submit at once.
        gate.look(daemon.site()).map_err(|error| format!("slurm.gate: {error}"))?;
    }
    // The last that may fail: a token that was made and never told would lock its owner out.
    let first = crate::first::token(&mut daemon, &options.data, options.keep_secret.as_ref())?;
    let (first_secret, told) = first.map_or((None, None), |(secret, told)| (Some(secret), told));
    notes.extend(told);
    let accounts = options.accounts;
    if accounts.as_user
        && !accounts.allow_root
        && daemon.site().budgets.owners.iter().any(|owner| is_root(owner))
    {
        notes.push(
            "root's own work runs as root; nobody else's does without --allow-root-work".into(),
        );
    }
    let limiter = Limiter::by_process_clock(&options.limits);
    // Who follows from the first moment on misses nothing of it.
    watch.hub.look(&daemon);
    let look_again = if options.slurm.is_some() { slurm::LOOK_AGAIN } else { LOOK_AGAIN };
    let watching = Watching { watch: watch.clone(), gate };
    let driver = Driver::start(daemon, watching, look_again).map_err(text)?;
    let shared = Shared::new(driver.handle.clone(), logs, &watch, options.limits, limiter);
    let shared = shared.noting_use(Used::within(&options.data));
    let progress = shared.progress.clone();
    let taken = report::router(driver.handle.clone(), report_key, progress, &options.limits);
    let reports = reports.map(|socket| (socket, taken));
    Ok(Up { driver, shared, reports, listener, runtime, first_secret, address, hosts, notes })
}

/// Whether a person is root on this machine.
fn is_root(name: &str) -> bool {
    bursar_engine::account(name).is_ok_and(|account| account == bursar_engine::Account::Root)
}

fn open_local(
    options: &UpOptions,
    engine_dir: &Path,
    checkpoints: &Path,
    socket: Option<&PathBuf>,
) -> Result<Opened, String> {
    let mut local = LocalOptions::new(options.shim.clone());
    local.gpus = match options.virtual_gpus {
        count if options.always_virtual => GpuSource::Virtual { count },
        count => GpuSource::Detected { virtual_if_none: count },
    };
    local.virtual_hosts = options.virtual_hosts;
    local.checkpoint_root = Some(checkpoints.to_owned());
    local.socket = socket.cloned();
    // The API asks whose it is; a site that root does not own never has any.
    local.allow_root = options.accounts.allow_root || is_root(&options.owner);
    let mut engine = LocalEngine::open(engine_dir, local).map_err(text)?;
    let hosts = engine.hosts().map_err(text)?;
    if hosts.iter().all(|host| host.gpus == 0) {
        return Err(
            "this machine has no GPUs that the driver knows: try it with --virtual-gpus 8".into()
        );
    }
    let (mut notes, logs) = (engine.notes().to_vec(), Some(engine.logs()));
    if options.virtual_gpus > 0 && hosts.iter().all(|host| host.model == VIRTUAL_MODEL) {
        // Asked for: that the driver is not there is no fault then.
        notes.retain(|note| !note.contains("NVIDIA's driver"));
        notes.push("its GPUs are virtual, as asked for: slots to try everything with".into());
    }
    Ok(Opened { engine: Box::new(engine), hosts, logs, notes })
}

fn open_slurm(
    slurm: &SlurmWanted,
    settings: &SettingsWanted,
    engine_dir: &Path,
    site: &str,
) -> Result<Opened, String> {
    let mut engine = slurm.with_usual(settings).open(engine_dir, site)?;
    let mut hosts = engine.hosts().map_err(|error| format!("slurm: {error}"))?;
    hosts.retain(|host| host.gpus > 0);
    if hosts.is_empty() {
        return Err(format!(
            "slurm.partitions: no node of {} has GPUs (Gres=gpu:…)",
            slurm.options.partitions.join(", ")
        ));
    }
    Ok(Opened { engine, hosts, logs: None, notes: Vec::new() })
}

impl Up {
    /// A way to change what can be changed while it is up.
    #[must_use]
    pub fn control(&self) -> Control {
        Control { daemon: self.driver.handle.clone() }
    }

    /// Where tasks beside the API can run, as long as it serves.
    #[must_use]
    pub fn runtime(&self) -> &tokio::runtime::Handle {
        self.runtime.handle()
    }

    /// Serves until `stop` is done. What runs, runs on; the next `up` finds it.
    ///
    /// # Errors
    /// If the listener fails.
    pub fn serve(self, stop: impl Future<Output = ()> + Send + 'static) -> Result<(), String> {
        let Self { driver, shared, reports, listener, runtime, .. } = self;
        if let Some((socket, taken)) = reports {
            let limits = shared.limits;
            runtime.spawn(async move {
                crate::serve::serve_at(socket, taken, &limits, std::future::pending()).await;
            });
        }
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

/// Changes what can be changed while a site is up.
#[derive(Clone)]
pub struct Control {
    daemon: Handle<LocalDaemon>,
}

impl Control {
    /// Makes settings and rotation what is wanted, and gives what could not be changed, a line for each.
    ///
    /// # Errors
    /// If the site refuses, or cannot write.
    pub async fn reload(
        &self,
        settings: SettingsWanted,
        rotation: Rotation,
    ) -> Result<Vec<String>, String> {
        let job = move |daemon: &mut LocalDaemon| {
            let options = daemon.options_mut();
            (options.log_bytes_max, options.log_files_max) =
                (rotation.bytes_max, rotation.files_max);
            options.keep_logs = rotation.keep_logs();
            change_settings(daemon, &settings)?;
            Ok(settings.cannot_change(&daemon.site().created.settings))
        };
        self.daemon.with(job).await.map_err(text)?
    }
}

/// Journals settings that are wanted otherwise and can be changed.
fn change_settings(daemon: &mut LocalDaemon, wanted: &SettingsWanted) -> Result<(), String> {
    let changed = daemon
        .ask_for("config/file", |site| Ok((wanted.change(site)?.into_iter().collect(), ())))
        .map_err(|error| format!("settings: {error}"))?;
    if !changed.0.is_empty() {
        tracing::info!("settings were changed as the configuration says");
    }
    Ok(())
}

/// Makes the folders that work has to reach. Others may pass through them, but not look around.
fn make_reachable(options: &UpOptions, owner: &Owner) -> io::Result<()> {
    let apart = options.work != options.data;
    let make = |path: &Path, mode: u32| {
        std::fs::DirBuilder::new().recursive(true).mode(mode).create(path)?;
        // Whatever the process's mask says.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
    };
    if apart {
        make(&options.work, 0o711)?;
    }
    owner.mark(&options.work)?;
    make(&options.work.join("checkpoints"), if apart { 0o711 } else { 0o700 })
}

/// The site of a journal, for its folders. One that is to be created is given what tells it from all others.
fn owner_of(store: &Store, engine: &Path) -> Result<Owner, String> {
    let mut id = None;
    let read = store.read(1, &mut |record| {
        if let Body::Created(created) = record.body {
            id = Some(created.id());
        }
        // No more is asked.
        Err(JournalError(String::new()))
    });
    match id {
        Some(id) => Ok(Owner { id, is_new: false }),
        None if store.head().seq > 0 => {
            read.map_err(text).and(Err("the journal is no site's".into()))
        }
        None => {
            if let Some(id) = crate::ours::marked(engine)? {
                return Ok(Owner { id, is_new: true });
            }
            let mut bytes = [0; 16];
            getrandom::fill(&mut bytes).map_err(|error| format!("no randomness: {error}"))?;
            let id = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            Ok(Owner { id, is_new: true })
        }
    }
}

fn first_records(
    options: &UpOptions,
    found: &[bursar_engine::HostFacts],
    settings: SettingsDoc,
    id: String,
) -> Vec<Body> {
    let created = Created {
        name: options.name.clone(),
        site_id: Some(id),
        // Moments of a site are counted from its begin, and none lies before it.
        unix_ms: wall_ms()
            .saturating_sub(options.slurm.as_ref().map_or(0, |slurm| slurm.history_ms)),
        settings,
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
    let laid = bursar_site::terms::lay_out(&created, &options.budgets, 0, &[]);
    let change = BudgetsChanged {
        terms: laid.terms,
        terms_until_ms: laid.until_ms,
        ..BudgetsChanged::first(options.budgets.clone(), &options.owner, "the site's first budgets")
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
        "this site was created with {}, now there is {}: use another --data, or the same --virtual-gpus and --virtual-hosts",
        list(known),
        list(found)
    ))
}
