//! The local engine as a subject of the conformance suite: work is small shell scripts, which tell that
//! they are prepared, and wait to be released, through FIFOs.

use crate::daemon::Daemon;
use bursar_engine::local::Changes;
use bursar_engine::testkit::conformance::{Subject, Work};
use bursar_engine::{
    AttemptKey, Engine, GpuSource, HostGpus, LocalEngine, LocalOptions, StartOrder,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::{Pid, Signal};
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The program that `LocalEngine` runs as the shim.
pub(crate) const SHIM: &str = env!("CARGO_BIN_EXE_bursar-shim");

pub(crate) const HOST: &str = "here";

/// A local engine in a folder of its own. When it is dropped nothing of it may be left.
pub(crate) struct Local {
    folder: TempDir,
    options: LocalOptions,
    engine: Option<LocalEngine>,
    changes: Option<Changes>,
    fifos: BTreeMap<PathBuf, OwnedFd>,
}

impl Local {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// With other options than these tests have usually.
    pub(crate) fn with(change: impl FnOnce(&mut LocalOptions)) -> Self {
        Self::within(TempDir::new().expect("a folder"), change)
    }

    /// In this folder.
    pub(crate) fn within(folder: TempDir, change: impl FnOnce(&mut LocalOptions)) -> Self {
        let mut options = options();
        options.checkpoint_root = Some(folder.path().join("checkpoints"));
        change(&mut options);
        for name in ["runs", "fifos", "checkpoints"] {
            fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let mut local =
            Self { folder, options, engine: None, changes: None, fifos: BTreeMap::new() };
        local.up();
        local
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where the engine has its records.
    pub(crate) fn records(&self) -> PathBuf {
        self.path("engine")
    }

    pub(crate) fn record(&self, key: &AttemptKey, name: &str) -> PathBuf {
        self.records().join("attempts").join(key.to_string()).join(name)
    }

    /// An order to run a script of the shell. It has the path of the file that counts executions in `$1`,
    /// the FIFO that says it is prepared in `$2`, the one that releases it in `$3`, and `argument` in `$4`.
    pub(crate) fn script(&mut self, key: &AttemptKey, script: &str, argument: &str) -> StartOrder {
        let path = |name: String| self.path(&name).to_str().expect("UTF-8").to_owned();
        let (ready, go) = (path(format!("fifos/{key}.ready")), path(format!("fifos/{key}.go")));
        let runs = path(format!("runs/{key}"));
        let checkpoint_dir = self.path("checkpoints").join(key.workload());
        for fifo in [&ready, &go] {
            self.fifo(Path::new(fifo));
        }
        let script = format!("echo run >> \"$1\"; {script}");
        let command = ["sh", "-c", &script, "work", &runs, &ready, &go, argument];
        StartOrder {
            key: key.clone(),
            command: command.map(str::to_owned).to_vec(),
            workdir: Some("/".into()),
            env: BTreeMap::new(),
            user: None,
            placement: vec![HostGpus { host: HOST.to_owned(), gpus: vec![0] }],
            memory_bytes: None,
            cpus: None,
            adopts: None,
            resumable: false,
            resume: false,
            checkpoint_dir,
            protected_until_unix_ms: None,
            log_bytes_max: 100,
            log_files_max: 3,
        }
    }

    /// Made once and kept open for both, so that nobody waits for another to open it.
    fn fifo(&mut self, path: &Path) -> &OwnedFd {
        self.fifos.entry(path.to_owned()).or_insert_with(|| {
            rustix::fs::mkfifoat(CWD, path, Mode::from_raw_mode(0o666)).expect("a FIFO");
            let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, Mode::empty()).expect("a FIFO")
        })
    }

    /// The shim of an attempt, as it was recorded.
    pub(crate) fn shim(&self, key: &AttemptKey) -> Option<Pid> {
        self.recorded(key, "shim")
    }

    /// A process that is recorded in the state of an attempt.
    pub(crate) fn recorded(&self, key: &AttemptKey, name: &str) -> Option<Pid> {
        let state = fs::read(self.record(key, "state.json")).ok()?;
        let state: serde_json::Value = serde_json::from_slice(&state).ok()?;
        Pid::from_raw(i32::try_from(state[name]["pid"].as_i64()?).ok()?)
    }

    /// Whether a process has to do with this engine, and is not another that got its number.
    pub(crate) fn is_ours(&self, process: Pid) -> bool {
        let command = fs::read(format!("/proc/{}/cmdline", process.as_raw_pid()));
        let folder = self.folder.path().to_str().expect("UTF-8");
        command.is_ok_and(|command| String::from_utf8_lossy(&command).contains(folder))
    }

    /// Runs another process on the records of this engine, which is down meanwhile.
    pub(crate) fn daemon(&mut self, die_at: Option<&str>, orders: &[StartOrder]) -> Daemon {
        self.down();
        Daemon::run(&self.records(), die_at, orders)
    }

    pub(crate) fn options(&mut self) -> &mut LocalOptions {
        &mut self.options
    }
}

/// What the engines of these tests have in common.
pub(crate) fn options() -> LocalOptions {
    let mut options = LocalOptions::new(vec![SHIM.to_owned()]);
    options.host = Some(HOST.to_owned());
    options.gpus = GpuSource::Virtual { count: 4 };
    options
}

impl Subject for Local {
    type Engine = LocalEngine;

    fn engine(&mut self) -> &mut LocalEngine {
        self.engine.as_mut().expect("the daemon is up")
    }

    fn down(&mut self) {
        self.engine = None;
    }

    fn up(&mut self) {
        let engine = LocalEngine::open(&self.records(), self.options.clone()).expect("open");
        self.changes = Some(engine.changes().expect("changes"));
        self.engine = Some(engine);
    }

    fn order(&mut self, key: &AttemptKey, work: &Work) -> StartOrder {
        // A shell that waits for a child may get a signal just before it waits; one whose children are short
        // cannot miss it for long.
        const UNTIL_SIGNAL: &str = "echo > \"$2\"; while :; do sleep 0.02; done";
        let until = |signal: &str| format!("trap 'exit $4' {signal}; {UNTIL_SIGNAL}");
        let (script, argument) = match work {
            Work::Exit(code) => ("exit $4".to_owned(), code.to_string()),
            Work::KilledBy(number) => ("kill -$4 $$".to_owned(), number.to_string()),
            Work::WhenReleased(code) => {
                ("echo > \"$2\"; read x < \"$3\"; exit $4".to_owned(), code.to_string())
            }
            Work::Endless => ("echo > \"$2\"; exec sleep 100000".to_owned(), String::new()),
            Work::Family => (FAMILY.to_owned(), String::new()),
            Work::UntilCheckpoint(code) => (until("TERM"), code.to_string()),
            Work::UntilWarning(code) => (until("USR2"), code.to_string()),
            Work::Print(bytes) => {
                ("yes 0123456789 | tr -d '\\n' | head -c $4".to_owned(), bytes.to_string())
            }
            Work::MissingProgram | Work::MissingWorkdir => (String::new(), String::new()),
        };
        let mut order = self.script(key, &script, &argument);
        match work {
            Work::MissingProgram => order.command = vec!["no-such-program-here".to_owned()],
            Work::MissingWorkdir => order.workdir = Some("/nonexistent/dir".into()),
            _ => {}
        }
        order
    }

    fn await_prepared(&mut self, key: &AttemptKey) {
        let path = self.path(&format!("fifos/{key}.ready"));
        let fifo = self.fifo(&path);
        let mut fds = [PollFd::new(fifo, PollFlags::IN)];
        let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut fds, Some(&patience)), Ok(1), "{key} is not prepared");
        rustix::io::read(fifo, &mut [0; 64]).expect("what it said");
    }

    fn release(&mut self, key: &AttemptKey) {
        let path = self.path(&format!("fifos/{key}.go"));
        rustix::io::write(self.fifo(&path), b"go\n").expect("to release it");
    }

    fn pause(&mut self) {
        // A shim that is killed gives no word, so not for long.
        let changes = self.changes.as_ref().expect("the daemon is up");
        changes.wait(Duration::from_millis(20)).expect("to wait");
    }

    fn processes(&mut self, key: &AttemptKey) -> usize {
        let workload = self.path("checkpoints").join(key.workload());
        let workload = format!("BURSAR_CHECKPOINT_DIR={}", workload.display());
        let attempt = format!("BURSAR_ATTEMPT={}", key.attempt());
        let has = |environ: &str, what: &str| environ.split('\0').any(|one| one == what);
        let ours = |environ: &str| has(environ, &workload) && has(environ, &attempt);
        processes_with("environ").filter(|(_, environ)| ours(environ)).count()
    }

    fn executions(&mut self, key: &AttemptKey) -> usize {
        let runs = fs::read_to_string(self.path(&format!("runs/{key}")));
        runs.map_or(0, |runs| runs.lines().count())
    }

    fn claim_only(&mut self, order: &StartOrder) {
        self.daemon(Some("claimed"), std::slice::from_ref(order)).await_end();
        self.up();
    }

    fn kill_supervisor(&mut self, key: &AttemptKey) {
        let shim = self.shim(key).expect("its shim");
        rustix::process::kill_process(shim, Signal::KILL).expect("to kill it");
    }
}

/// A child, one in a session of its own, and below that a grandchild in yet another, whose parent is gone.
const FAMILY: &str = r#"
    sleep 100000 &
    setsid sleep 100000 &
    setsid sh -c '(setsid sleep 100000 &); sleep 100000 & echo > "$0"; wait' "$2" &
    sleep 100000"#;

/// All processes and one of the files that `/proc` has of each, `environ` or `cmdline`.
pub(crate) fn processes_with(file: &str) -> impl Iterator<Item = (i32, String)> {
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(move |pid| {
        let text = fs::read(format!("/proc/{pid}/{file}")).ok()?;
        Some((pid, String::from_utf8_lossy(&text).into_owned()))
    })
}

impl Drop for Local {
    fn drop(&mut self) {
        // Every process of these tests has this folder in its command or its environment.
        let folder = self.folder.path().to_str().expect("UTF-8").to_owned();
        let me = i32::try_from(std::process::id()).expect("a process");
        let ours = || -> Vec<(i32, String)> {
            let all = processes_with("cmdline").chain(processes_with("environ"));
            all.filter(|(pid, text)| *pid != me && text.contains(&folder)).collect()
        };
        if let Some(engine) = &mut self.engine {
            for seen in engine.observe().unwrap_or_default() {
                if seen.state.exited().is_none() {
                    let _ = engine.stop(&seen.key);
                }
            }
        }
        // A shim that has written down how its work ended needs a moment to end itself.
        let until = Instant::now() + Duration::from_secs(20);
        let mut left = ours();
        while !left.is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
            left = ours();
        }
        for (pid, _) in &left {
            let _ = Pid::from_raw(*pid).map(|pid| rustix::process::kill_process(pid, Signal::KILL));
        }
        if !std::thread::panicking() {
            assert!(left.is_empty(), "processes were left: {left:?}");
        }
    }
}
