//! `bursar up`: a site on this machine.

use crate::args::UpArgs;
use crate::config::Config;
use crate::failure::Failure;
use crate::shown;
use crate::slurm::SlurmBlock;
use bursar_server::accounts::Accounts;
use bursar_server::clock::Jump;
use bursar_server::first::KeepSecret;
use bursar_server::slurm::SlurmWanted;
use bursar_server::up::{Control, Up, UpOptions, up as bring_up};
use bursar_site::BudgetDoc;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use tracing_subscriber::EnvFilter;

/// The hidden word that makes this program the supervisor of an attempt.
pub(crate) const SHIM: &str = "shim";

/// Where the API listens if nobody says otherwise.
pub(crate) const DEFAULT_LISTEN: SocketAddr =
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7373));

pub(crate) fn up(args: &UpArgs) -> Result<(), Failure> {
    if args.demo {
        return crate::demo::demo(args);
    }
    let config = args.config.as_deref().map(Config::read).transpose()?.unwrap_or_default();
    let filter = LogFilter::of(config.log.filter.as_deref(), "info");
    let logs = logs(&filter, args.log_json || config.log.json.unwrap_or(false), args)?;
    let mut options = options(args, &config)?;
    let owner = options.owner.clone();
    let token_out = args.token_out.as_ref().or(config.token_out.as_ref());
    // The token is told once: where it cannot be written, there is to be none yet.
    token_out.map_or(Ok(()), |file| secret_beside(file).map(drop))?;
    if let Some(file) = token_out.cloned() {
        options.keep_secret = Some(KeepSecret::by(move |secret| {
            write_secret(&file, secret).map_err(|failure| failure.to_string())
        }));
    }
    let site = bring_up(options).map_err(Failure::Fault)?;
    let mut text = introduction(&site);
    match (&site.first_secret, token_out) {
        (Some(_), Some(file)) => {
            text += &format!(
                "\n{owner} owns all budgets. Their token is in {0}:\n\n  export BURSAR_TOKEN_FILE={0}\n{1}",
                file.display(),
                url_line(site.address)
            );
        }
        (Some(secret), None) => {
            text += &format!(
                "\n{owner} owns all budgets. This token is shown once; only its hash is kept:\n\n  export BURSAR_TOKEN={secret}\n{}\nTry, in another terminal:\n\n  bursar run --gpus 1 --min-runtime 1m --follow -- sh -c 'echo hello; sleep 5'\n  bursar queue\n",
                url_line(site.address)
            );
        }
        (None, _) if site.address != DEFAULT_LISTEN => {
            text += &format!("\nIn other terminals:\n\n{}", url_line(site.address));
        }
        (None, _) => {}
    }
    for warning in config.warnings() {
        text += &format!("  note: {warning}\n");
    }
    shown::say(&text);
    if let Some(file) = args.config.clone() {
        let (reload_filter, control) = (logs.reload, site.control());
        let reload = Reload { file, config, filter, reload_filter, control };
        site.runtime().spawn(reload.at_every_hangup());
    }
    site.serve(stopped(args.config.is_none())).map_err(Failure::Fault)
}

/// What others must set to find a site that does not listen where they look; nothing if it does.
pub(crate) fn url_line(address: SocketAddr) -> String {
    if address == DEFAULT_LISTEN {
        return String::new();
    }
    // Where it listens on every address, this machine has one that can be asked.
    let host = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        std::net::IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        std::net::IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
    };
    format!("  export BURSAR_URL=http://{}\n", SocketAddr::new(host, address.port()))
}

fn introduction(site: &Up) -> String {
    let mut text = format!("bursar is up at http://{}\n", site.address);
    for host in &site.hosts {
        text += &format!("  host {host}\n");
    }
    for note in &site.notes {
        text += &format!("  note: {note}\n");
    }
    text
}

/// The cluster of Slurm that is to be governed.
fn slurm(args: &UpArgs, config: &Config) -> Result<Option<SlurmWanted>, Failure> {
    let wanted = config.slurm.as_ref().map(SlurmBlock::wanted).transpose();
    let mut wanted = wanted.map_err(Failure::input)?;
    match &mut wanted {
        Some(slurm) => slurm.options.takes_over = args.take_over,
        None if args.take_over => {
            return Err(Failure::input(
                "--take-over is for a cluster of Slurm: no slurm: in the configuration",
            ));
        }
        None => {}
    }
    Ok(wanted)
}

/// Flags win over the file, the file over defaults.
fn options(args: &UpArgs, config: &Config) -> Result<UpOptions, Failure> {
    let owner = owner(args, config.owner.as_deref());
    let data = data_folder(args.data.as_ref().or(config.data.as_ref()))?;
    let as_user = rustix::process::geteuid().is_root();
    let work = args.work.as_ref().or(config.work.as_ref());
    let work = match work {
        Some(work) => std::path::absolute(work).map_err(Failure::fault)?,
        None if as_user => {
            // Work of others could not get into the data folder, which is closed to all but root.
            let mut name = data.file_name().unwrap_or_default().to_owned();
            name.push("-work");
            data.with_file_name(name)
        }
        None => data.clone(),
    };
    let budgets = match args.budgets.as_ref().or(config.budgets.as_ref()) {
        Some(file) => read_budgets(file, &owner)?,
        None => one_budget(&owner),
    };
    Ok(UpOptions {
        data,
        work,
        limits: bursar_server::limits::Limits::default(),
        accounts: Accounts {
            as_user,
            allow_root: args.allow_root_work || config.allow_root_work.unwrap_or(false),
        },
        listen: args.listen.or(config.listen).unwrap_or(DEFAULT_LISTEN),
        virtual_gpus: args.virtual_gpus.or(config.virtual_gpus).unwrap_or(0),
        always_virtual: false,
        virtual_hosts: args.virtual_hosts.or(config.virtual_hosts).unwrap_or(1),
        settings: config.settings(),
        rotation: config.rotation(),
        owner,
        name: config.name.clone().unwrap_or_else(|| "lab".into()),
        budgets,
        shim: shim()?,
        slurm: slurm(args, config)?,
        keep_secret: None,
        queue: config.queue(),
        jump: if args.accept_clock_jump { Jump::Accepted } else { Jump::Refused },
    })
}

/// Who owns a new site: who was named, else who is here.
pub(crate) fn owner(args: &UpArgs, configured: Option<&str>) -> String {
    let named = args.owner.as_deref().or(configured).map(str::to_owned);
    let owner = named.or_else(|| std::env::var("USER").ok());
    owner.filter(|owner| !owner.is_empty()).unwrap_or_else(|| "root".into())
}

/// This program.
pub(crate) fn program() -> Result<String, Failure> {
    let program = std::env::current_exe().map_err(Failure::fault)?;
    let program = program.to_str().ok_or_else(|| Failure::fault("its own path is no text"))?;
    Ok(program.to_owned())
}

/// The command line that supervises an attempt.
pub(crate) fn shim() -> Result<Vec<String>, Failure> {
    Ok(vec![program()?, SHIM.to_owned()])
}

/// The folder that was named, else the usual one.
pub(crate) fn data_folder(named: Option<&PathBuf>) -> Result<PathBuf, Failure> {
    let default = || {
        let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
        let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
        data.or(home).map(|folder| folder.join("bursar"))
    };
    let found = named.cloned().or_else(default);
    let found = found.ok_or_else(|| Failure::input("--data: where? HOME is not set"))?;
    std::path::absolute(&found).map_err(Failure::fault)
}

fn one_budget(owner: &str) -> BTreeMap<String, BudgetDoc> {
    let whole = BudgetDoc {
        share: bursar_site::budgets::Share(1_000_000),
        members: vec![owner.to_owned()],
        ..BudgetDoc::default()
    };
    BTreeMap::from([("main".to_owned(), whole)])
}

/// Reads the first budgets. What is wrong is said before anything is created.
pub(crate) fn read_budgets(
    file: &Path,
    owner: &str,
) -> Result<BTreeMap<String, BudgetDoc>, Failure> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|e| Failure::input(format!("{name}: {e}")))?;
    let tree =
        crate::budget::read_tree(&text).map_err(|e| Failure::input(format!("{name}: {e}")))?;
    bursar_site::Budgets::new(1, tree.clone(), vec![owner.to_owned()])
        .map_err(|refused| Failure::input(format!("{name}: {refused}")))?;
    Ok(tree)
}

/// Writes a secret that only its owner may read.
pub(crate) fn write_secret(file: &Path, secret: &str) -> Result<(), Failure> {
    use std::io::Write as _;
    let cannot = |error: std::io::Error| cannot_write(file, &error);
    let mut made = secret_beside(file)?;
    writeln!(made, "{secret}").and_then(|()| made.as_file().sync_all()).map_err(cannot)?;
    made.persist(file).map_err(|error| cannot(error.error))?;
    Ok(())
}

/// What becomes the file of a secret: for its owner alone from the beginning, wherever it lies.
fn secret_beside(file: &Path) -> Result<tempfile::NamedTempFile, Failure> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let made = std::fs::create_dir_all(folder)
        .and_then(|()| tempfile::Builder::new().prefix(".bursar-").tempfile_in(folder));
    made.map_err(|error| cannot_write(file, &error))
}

fn cannot_write(file: &Path, error: &std::io::Error) -> Failure {
    Failure::input(format!("cannot write {}: {error}", file.display()))
}

/// What the daemon's log shows: by the variable BURSAR_LOG, else as configured.
#[derive(Debug)]
pub(crate) struct LogFilter {
    text: String,
    is_by_variable: bool,
}

impl LogFilter {
    pub(crate) fn of(configured: Option<&str>, default: &str) -> Self {
        match std::env::var("BURSAR_LOG") {
            Ok(text) if !text.is_empty() => Self { text, is_by_variable: true },
            _ => Self { text: configured.unwrap_or(default).to_owned(), is_by_variable: false },
        }
    }

    fn read(&self) -> EnvFilter {
        EnvFilter::try_new(&self.text).unwrap_or_else(|_| EnvFilter::new("info"))
    }
}

type ReloadFilter = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

/// A log that was begun.
pub(crate) struct Logs {
    /// Changes what is shown.
    reload: ReloadFilter,
    /// Sends the last traces when it is dropped.
    #[cfg(feature = "otel")]
    _traces: Option<bursar_server::otel::Traces>,
}

/// Begins to log, and to trace if that was asked for.
pub(crate) fn logs(filter: &LogFilter, json: bool, args: &UpArgs) -> Result<Logs, Failure> {
    use tracing_subscriber::Layer as _;
    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::util::SubscriberInitExt as _;
    // Colours are for terminals: a file of logs has no control characters.
    let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let lines = tracing_subscriber::fmt::layer().with_ansi(ansi).with_writer(std::io::stderr);
    let lines = if json { lines.json().boxed() } else { lines.boxed() };
    let (filter, handle) = tracing_subscriber::reload::Layer::new(filter.read());
    let registry = tracing_subscriber::registry().with(lines.with_filter(filter));
    #[cfg(feature = "otel")]
    let (registry, traces) = {
        let found = args.otlp.as_deref().map(bursar_server::otel::traces).transpose();
        let (layer, traces) = found.map_err(Failure::Input)?.unzip();
        let level = tracing_subscriber::filter::LevelFilter::INFO;
        (registry.with(layer.map(|layer| layer.with_filter(level))), traces)
    };
    #[cfg(not(feature = "otel"))]
    let _ = args;
    // If somebody set one up before, theirs is used.
    let _ = registry.try_init();
    Ok(Logs {
        reload: Box::new(move |filter| handle.reload(filter).map_err(|error| error.to_string())),
        #[cfg(feature = "otel")]
        _traces: traces,
    })
}

/// Until somebody asks for the end: Ctrl-C, SIGTERM, and where nothing is to be read again, SIGHUP.
pub(crate) async fn stopped(hangup_stops: bool) {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut term) = signal(SignalKind::terminate()) else { return };
    let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = term.recv() => {}
        _ = hangup.recv(), if hangup_stops => {}
    }
    tracing::info!("stopping; what runs, runs on");
}

/// What is needed to read the configuration again.
struct Reload {
    file: PathBuf,
    /// As it is in force.
    config: Config,
    filter: LogFilter,
    reload_filter: ReloadFilter,
    control: Control,
}

impl Reload {
    async fn at_every_hangup(mut self) {
        use tokio::signal::unix::{SignalKind, signal};
        let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
        while hangup.recv().await.is_some() {
            self.again().await;
        }
    }

    /// Applies what can be, and says of the rest what to do.
    async fn again(&mut self) {
        let new = match Config::read(&self.file) {
            Ok(new) => new,
            Err(failure) => {
                tracing::error!("{failure}; nothing was changed");
                return;
            }
        };
        for told in self.config.not_reloaded(&new) {
            tracing::warn!("{told}");
        }
        match self.control.reload(new.settings(), new.rotation()).await {
            Ok(told) => told.iter().for_each(|told| tracing::warn!("{told}")),
            Err(error) => tracing::error!("{error}; the settings are as they were"),
        }
        if self.filter.is_by_variable {
            if new.log.filter != self.config.log.filter {
                tracing::warn!("log.filter: BURSAR_LOG is set and wins; start without it");
            }
        } else {
            self.filter = LogFilter::of(new.log.filter.as_deref(), "info");
            if let Err(error) = (self.reload_filter)(self.filter.read()) {
                tracing::error!("log.filter: {error}");
            }
        }
        // What only counts at a start is compared with what was in force then.
        self.config.settings = new.settings;
        self.config.workload_logs = new.workload_logs;
        self.config.log.filter = new.log.filter;
        tracing::info!("{} was read again", self.file.display());
    }
}
