//! The local engine: claims attempts, starts their shims, and reads what they write.

use super::attempt::Attempt;
use super::changes::Changes;
use super::folder::{Command, Folder, UNFINISHED, make_fifo};
use super::gpus::Gpus;
use super::logs::Logs;
use super::process::ProcessId;
use super::records::{ExitRecord, OrderRecord, OutcomeRecord, VERSION, one_line};
use super::retention::Retention;
use super::steps::{Step, reached};
use super::{LocalOptions, cgroup, clock, durable, orphans, remains};
use crate::engine::{Engine, LogChunk, Signal};
use crate::error::{Error, ErrorKind};
use crate::key::AttemptKey;
use crate::observation::{HostFacts, Observation};
use crate::order::StartOrder;
use crate::signal::SignalScope;
use rustix::fs::FlockOperation;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// What work finds programs on if neither its order nor the daemon says.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How long to wait for the folder to be free. A daemon that was killed while it started a shim may hold it
/// a moment longer: until that shim is executed.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// Runs work as processes of this machine. See [the module](super).
#[derive(Debug)]
pub struct LocalEngine {
    attempts_dir: PathBuf,
    ended_dir: PathBuf,
    changes: PathBuf,
    dir: PathBuf,
    /// One, or several virtual ones; each with as many GPUs as `gpus` says.
    hosts: Vec<String>,
    /// Those that are cordoned, as their files say; nobody else writes these.
    cordons: BTreeSet<String>,
    gpus: Gpus,
    cgroups: Option<PathBuf>,
    options: LocalOptions,
    boot_id: String,
    attempts: BTreeMap<AttemptKey, Attempt>,
    /// Shims that this process started and has to collect.
    shims: Vec<Child>,
    notes: Vec<String>,
    retention: Retention,
    /// Held as long as this is.
    _lock: File,
}

impl LocalEngine {
    /// Opens the engine whose records are in `dir`, or makes a new one there. Attempts that were started
    /// by an earlier process are taken on as they are.
    ///
    /// # Errors
    ///
    /// `InUse` if another process has it open; `Unsupported` if this machine cannot run it; `Invalid` if
    /// the options make no sense; `Io` if its folder cannot be used.
    pub fn open(dir: &Path, options: LocalOptions) -> Result<Self, Error> {
        if options.shim.first().is_none_or(String::is_empty) {
            return Err(Error::invalid("no command line for the shim"));
        }
        supported()?;
        orphans::adopt();
        let cannot = |error: io::Error| Error::io(format!("cannot use {}", dir.display()), error);
        make_folder(dir).map_err(cannot)?;
        let dir = fs::canonicalize(dir).map_err(cannot)?;
        let lock = lock(&dir.join("lock"))?;
        let (attempts_dir, ended_dir) = (dir.join("attempts"), dir.join("ended"));
        make_folder(&attempts_dir).map_err(cannot)?;
        make_folder(&ended_dir).map_err(cannot)?;
        durable::sync_folder(&dir).map_err(cannot)?;
        let changes = dir.join("changes");
        make_fifo(&changes).map_err(cannot)?;
        let mut notes = Vec::new();
        let attempts = find_attempts(&attempts_dir, &mut notes).map_err(cannot)?;
        let mut gpus = Gpus::find(&options, &mut notes);
        let hosts = hosts(&options, &mut gpus)?;
        let mut engine = Self {
            gpus,
            cgroups: cgroup::holder(&options.cgroup, &mut notes),
            boot_id: clock::boot_id().map_err(cannot)?,
            dir,
            attempts_dir,
            ended_dir,
            changes,
            hosts,
            cordons: BTreeSet::new(),
            options,
            attempts,
            shims: Vec::new(),
            notes,
            retention: Retention::default(),
            _lock: lock,
        };
        for name in &engine.hosts {
            if engine.cordoned(name).try_exists().map_err(cannot)? {
                engine.cordons.insert(name.clone());
            }
        }
        Ok(engine)
    }

    /// What an operator should know about this engine on this machine: what it has to do without.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Word of changes, for whoever waits for them.
    ///
    /// # Errors
    ///
    /// `Io` if the FIFO that brings it cannot be opened.
    pub fn changes(&self) -> Result<Changes, Error> {
        Changes::open(&self.changes).map_err(|error| Error::io("cannot listen for changes", error))
    }

    /// The logs, to be read elsewhere.
    pub fn logs(&self) -> Logs {
        Logs::new(self.attempts_dir.clone(), self.ended_dir.clone())
    }

    /// Removes the log of a forgotten attempt, and its claim with it: the caller must be sure never to
    /// start that attempt again. Does nothing if it was not forgotten.
    ///
    /// # Errors
    ///
    /// `Io` if files cannot be removed.
    pub fn purge(&mut self, key: &AttemptKey) -> Result<(), Error> {
        match fs::remove_dir_all(self.ended_dir.join(key.to_string())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io(format!("cannot purge {key}"), error))
            }
            _ => Ok(()),
        }
    }

    /// Whether the order can be carried out on this host.
    fn check(&self, order: &StartOrder) -> Result<(), Error> {
        order.check()?;
        for part in &order.placement {
            self.check_host(&part.host)
                .map_err(|error| Error::invalid(format!("{}: {error}", order.key)))?;
            if let Some(gpu) = part.gpus.iter().find(|gpu| **gpu >= self.gpus.count) {
                return Err(Error::invalid(format!(
                    "{}: host {} has no GPU {gpu}, only {}",
                    order.key, part.host, self.gpus.count
                )));
            }
        }
        Ok(())
    }

    fn check_host(&self, host: &str) -> Result<(), Error> {
        if self.hosts.iter().any(|known| known == host) {
            return Ok(());
        }
        let known = self.hosts.join(", ");
        let text = format!("no host '{}', only {known}", host.escape_debug());
        Err(Error::new(ErrorKind::Unknown, text))
    }

    /// The file whose being there cordons a host.
    fn cordoned(&self, host: &str) -> PathBuf {
        match &self.hosts[..] {
            [_] => self.dir.join("cordoned"),
            _ => self.dir.join(format!("cordoned.{host}")),
        }
    }

    fn is_claimed(&self, key: &AttemptKey) -> io::Result<bool> {
        Ok(self.attempts.contains_key(key) || self.ended_dir.join(key.to_string()).try_exists()?)
    }

    /// What the shim will read.
    fn record(&self, order: &StartOrder) -> io::Result<OrderRecord> {
        let token = clock::unique()?;
        let host = order.placement.first().map_or(&self.hosts[0], |part| &part.host);
        let mut env = order.environment(host, self.options.socket.as_deref());
        for name in &self.options.keep_env {
            if let (false, Ok(value)) = (env.contains_key(name), std::env::var(name)) {
                env.insert(name.clone(), value);
            }
        }
        env.entry("PATH".to_owned()).or_insert_with(|| PATH.to_owned());
        env.insert(remains::MARK.to_owned(), token.clone());
        let short = token.get(..8).unwrap_or(&token);
        Ok(OrderRecord {
            version: VERSION,
            cgroup: self.cgroups.as_ref().map(|above| above.join(format!("{}-{short}", order.key))),
            token,
            command: order.command.clone(),
            workdir: order.workdir.clone(),
            env,
            user: order.user.clone(),
            allow_root: self.options.allow_root,
            checkpoint_dir: order.checkpoint_dir.clone(),
            memory_bytes: order.memory_bytes,
            cpus: order.cpus,
            checkpoint_signal: self.options.checkpoint_signal.system().as_raw(),
            warn_signal: self.options.warn_signal.system().as_raw(),
            leader_only: self.options.signal_scope == SignalScope::Leader,
            log_bytes_max: order.log_bytes_max,
            log_files_max: order.log_files_max,
            open_files: crate::files::allowed_before(),
            changes: self.changes.clone(),
        })
    }

    /// Makes the checkpoint folder for its user, if it is one of those that the engine makes.
    fn make_checkpoint_dir(&self, order: &StartOrder) -> Result<(), Error> {
        let path = &order.checkpoint_dir;
        let root = self.options.checkpoint_root.as_deref();
        if root.is_none() || path.parent() != root || path.file_name().is_none() {
            return Ok(());
        }
        let cannot = |error: io::Error| {
            Error::io(format!("{}: cannot make {}", order.key, path.display()), error)
        };
        make_folder(path).map_err(cannot)?;
        if let Some(name) = order.user.as_deref().filter(|_| rustix::process::geteuid().is_root())
            && let Ok(Some(user)) = nix::unistd::User::from_name(name)
        {
            let owner = fs::symlink_metadata(path).map_err(cannot)?.uid();
            if owner == user.uid.as_raw() {
                return Ok(());
            }
            // Only what was just made, now or before this process was killed at it, is anybody's to have.
            if owner != 0 || fs::read_dir(path).map_err(cannot)?.next().is_some() {
                return Err(Error::invalid(format!(
                    "{} belongs to user number {owner} and is not given to {name}",
                    path.display()
                )));
            }
            std::os::unix::fs::lchown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
                .map_err(cannot)?;
        }
        Ok(())
    }

    fn spawn_shim(&self, folder: &Folder, control: OwnedFd) -> io::Result<Child> {
        let mut command = std::process::Command::new(&self.options.shim[0]);
        command.args(&self.options.shim[1..]).arg(folder.path()).env_clear().current_dir("/");
        #[cfg(feature = "testkit")]
        if let Some(step) = std::env::var_os(super::steps::DIE_AT) {
            command.env(super::steps::DIE_AT, step);
        }
        command.stdin(control).stdout(Stdio::null()).stderr(folder.shim_log()?).spawn()
    }

    fn collect_shims(&mut self) {
        self.shims.retain_mut(|shim| matches!(shim.try_wait(), Ok(None)));
        orphans::collect(&self.shims);
    }
}

impl Engine for LocalEngine {
    fn hosts(&mut self) -> Result<Vec<HostFacts>, Error> {
        let ill = !self.gpus.are_healthy();
        let facts = |name: &String| HostFacts {
            name: name.clone(),
            gpus: self.gpus.count,
            model: self.gpus.model.clone(),
            healthy: true,
            closed: ill.then(|| "a GPU of it does not answer".to_owned()),
            cordoned: self.cordons.contains(name),
        };
        Ok(self.hosts.iter().map(facts).collect())
    }

    fn observe(&mut self) -> Result<Vec<Observation>, Error> {
        self.collect_shims();
        let mut seen = Vec::with_capacity(self.attempts.len());
        let (shims, shim) = (&self.shims, &self.options.shim);
        let mut adopted = || orphans::end(shims, shim);
        for (key, attempt) in &mut self.attempts {
            let observation = attempt.observe(&self.boot_id, &mut adopted);
            seen.push(
                observation.map_err(|error| Error::io(format!("cannot observe {key}"), error))?,
            );
        }
        Ok(seen)
    }

    fn start(&mut self, order: &StartOrder) -> Result<(), Error> {
        self.collect_shims();
        self.check(order)?;
        let key = &order.key;
        let cannot = |error: io::Error| Error::io(format!("cannot claim {key}"), error);
        if self.is_claimed(key).map_err(cannot)? {
            return Ok(());
        }
        self.make_checkpoint_dir(order)?;
        let record = self.record(order).map_err(cannot)?;
        let name = key.to_string();
        let claimed = Folder::claim(&self.attempts_dir, &name, &record).map_err(cannot)?;
        let folder = Folder::at(self.attempts_dir.join(&name));
        if let Some((_, control)) = claimed {
            reached(Step::Claimed);
            match self.spawn_shim(&folder, control) {
                Ok(shim) => self.shims.push(shim),
                Err(error) => not_spawned(&folder, &self.options.shim[0], &error, &self.boot_id),
            }
            reached(Step::Spawned);
        }
        self.attempts.insert(key.clone(), Attempt::new(key.clone(), folder));
        Ok(())
    }

    fn signal(&mut self, key: &AttemptKey, signal: Signal) -> Result<(), Error> {
        let command = match signal {
            Signal::Warn => Command::Warn,
            Signal::Checkpoint => Command::Checkpoint,
        };
        let told = self.attempts.get(key).map_or(Ok(()), |attempt| attempt.signal(command));
        told.map_err(|error| Error::io(format!("cannot signal {key}"), error))
    }

    fn stop(&mut self, key: &AttemptKey) -> Result<(), Error> {
        let stuck_after = self.options.shim_stuck_after;
        let told = self.attempts.get_mut(key).map_or(Ok(()), |attempt| attempt.stop(stuck_after));
        told.map_err(|error| Error::io(format!("cannot stop {key}"), error))
    }

    fn forget(&mut self, key: &AttemptKey) -> Result<(), Error> {
        let Some(attempt) = self.attempts.get_mut(key) else { return Ok(()) };
        let cannot = |error: io::Error| Error::io(format!("cannot forget {key}"), error);
        if attempt.observe(&self.boot_id, &mut || Ok(0)).map_err(cannot)?.state.exited().is_none() {
            return Err(Error::new(ErrorKind::NotEnded, format!("{key} has not ended")));
        }
        attempt.folder().retire(&self.ended_dir).map_err(cannot)?;
        self.attempts.remove(key);
        Ok(())
    }

    fn purge_some(&mut self, age: Duration) -> Result<(), Error> {
        let done = self.retention.step(&self.ended_dir, age);
        done.map_err(|error| Error::io("cannot remove old logs", error))
    }

    fn cordon(&mut self, host: &str, _: &str) -> Result<(), Error> {
        self.check_host(host)?;
        File::create(self.cordoned(host))
            .map_err(|error| Error::io(format!("cannot cordon {host}"), error))?;
        self.cordons.insert(host.to_owned());
        Ok(())
    }

    fn uncordon(&mut self, host: &str) -> Result<(), Error> {
        self.check_host(host)?;
        match fs::remove_file(self.cordoned(host)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io(format!("cannot uncordon {host}"), error))
            }
            _ => {
                self.cordons.remove(host);
                Ok(())
            }
        }
    }

    fn read_log(&self, key: &AttemptKey, offset: u64, bytes_max: usize) -> Result<LogChunk, Error> {
        self.logs().read(key, offset, bytes_max)
    }
}

/// The names of the hosts. Virtual GPUs are spread over as many as the options say.
fn hosts(options: &LocalOptions, gpus: &mut Gpus) -> Result<Vec<String>, Error> {
    let spread = options.virtual_hosts.max(1);
    if spread == 1 || !gpus.are_virtual() {
        let name = options.host.clone();
        let called = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        return Ok(vec![name.unwrap_or_else(called)]);
    }
    if !gpus.count.is_multiple_of(spread) || gpus.count == 0 {
        let text = format!(
            "{} virtual GPUs cannot be spread evenly over {spread} virtual hosts: give a multiple of {spread}",
            gpus.count
        );
        return Err(Error::invalid(text));
    }
    gpus.count /= spread;
    Ok((1..=spread).map(|number| format!("virtual-{number}")).collect())
}

/// Records that a shim could not be started, so that nobody waits for it.
fn not_spawned(folder: &Folder, shim: &str, error: &io::Error, boot_id: &str) {
    let reason = one_line(&format!("cannot run the supervisor {shim}: {error}"));
    let exit = ExitRecord {
        version: VERSION,
        boot_id: boot_id.to_owned(),
        started: None,
        ended: clock::now().into(),
        outcome: OutcomeRecord::StartFailed(reason),
        told_to_leave: false,
        notes: Vec::new(),
    };
    // If that fails, too, there is a claim without a shim, which says the same less well.
    let _ = folder.write_exit(&exit);
}

/// Whether processes can be told apart here.
fn supported() -> Result<(), Error> {
    match ProcessId::of(rustix::process::getpid()).and_then(ProcessId::handle) {
        Ok(_) => Ok(()),
        Err(error) => {
            let text = format!("handles on processes need Linux 5.4 and /proc: {error}");
            Err(Error::new(ErrorKind::Unsupported, text))
        }
    }
}

fn lock(path: &Path) -> Result<File, Error> {
    let cannot = |error: io::Error| Error::io(format!("cannot lock {}", path.display()), error);
    let file =
        File::options().create(true).truncate(false).write(true).open(path).map_err(cannot)?;
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let text = format!("{} is locked by another process", path.display());
                return Err(Error::new(ErrorKind::InUse, text));
            }
            Err(error) => return Err(cannot(error.into())),
        }
    }
}

fn make_folder(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

/// The attempts that are claimed and not forgotten. Claims that were not finished are removed.
fn find_attempts(
    folder: &Path,
    notes: &mut Vec<String>,
) -> io::Result<BTreeMap<AttemptKey, Attempt>> {
    let mut attempts = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(UNFINISHED) {
            fs::remove_dir_all(entry.path())?;
        } else if let Some(key) = AttemptKey::from_name(&name) {
            attempts.insert(key.clone(), Attempt::new(key, Folder::at(entry.path())));
        } else {
            notes.push(format!("{} is no attempt", entry.path().display()));
        }
    }
    Ok(attempts)
}
