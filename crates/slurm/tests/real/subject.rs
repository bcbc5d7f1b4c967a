//! The engine as a subject of the conformance suite: what it starts without an arrival is submitted by itself.

use bursar_engine::testkit::conformance::{Subject, Work};
use bursar_engine::{AttemptKey, Engine, HostGpus, StartOrder};
use bursar_slurm::client::{Call, ClientError, Clients, Program, SystemClients};
use bursar_slurm::{SlurmEngine, SlurmOptions, SlurmSignal, SubmitOptions};
use bursar_slurm_lab::Lab;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SIGTERM: i32 = 15;

/// The engine on one node of the cluster.
pub(crate) struct Slurm {
    lab: Lab,
    folder: TempDir,
    engine: Option<SlurmEngine>,
    /// Whether the next submission is the moment at which the daemon is killed.
    dies: Arc<AtomicBool>,
}

/// Clients that die with the daemon when it submits something.
struct Dying {
    clients: SystemClients,
    dies: Arc<AtomicBool>,
}

impl Clients for Dying {
    fn run(&self, call: &Call) -> Result<Vec<u8>, ClientError> {
        assert!(
            call.program != Program::Sbatch || !self.dies.load(Ordering::Relaxed),
            "the daemon is killed here, as the test has it"
        );
        self.clients.run(call)
    }
}

impl Slurm {
    pub(crate) fn new() -> Self {
        let lab = Lab::one_node();
        let folder = TempDir::new_in(lab.jobs()).expect("a folder");
        let mut slurm = Self { lab, folder, engine: None, dies: Arc::default() };
        for name in ["", "runs", "ready", "go", "checkpoints", "logs"] {
            let path = slurm.path(name);
            fs::create_dir_all(&path).expect("a folder");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o1777))
                .expect("a folder for all");
        }
        slurm.up();
        slurm
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Subject for Slurm {
    type Engine = SlurmEngine;

    fn engine(&mut self) -> &mut SlurmEngine {
        self.engine.as_mut().expect("the daemon is up")
    }

    fn down(&mut self) {
        self.engine = None;
    }

    fn up(&mut self) {
        let mut options = SlurmOptions::new(self.lab.partitions.clone());
        // What the suite's work knows.
        options.checkpoint_signal = SlurmSignal::Term;
        options.warn_signal = Some(SlurmSignal::Urg);
        options.submit = Some(SubmitOptions {
            partition: self.lab.partitions[0].clone(),
            through: Vec::new(),
            log_dir: self.path("logs"),
        });
        let clients = Dying { clients: self.lab.clients(), dies: Arc::clone(&self.dies) };
        let engine = SlurmEngine::open(&self.path("engine"), options, clients);
        self.engine = Some(engine.expect("open"));
    }

    fn order(&mut self, key: &AttemptKey, work: &Work) -> StartOrder {
        const UNTIL_SIGNAL: &str = "echo > \"$2\"; while :; do sleep 0.02; done";
        let until = |signal: &str| format!("trap 'exit $4' {signal}; {UNTIL_SIGNAL}");
        let (script, argument) = match work {
            Work::Exit(code) => ("exit $4".to_owned(), code.to_string()),
            Work::KilledBy(number) => ("kill -$4 $$".to_owned(), number.to_string()),
            Work::WhenReleased(code) => {
                let script = "echo > \"$2\"; until [ -e \"$3\" ]; do sleep 0.05; done; exit $4";
                (script.to_owned(), code.to_string())
            }
            Work::Endless => ("echo > \"$2\"; exec sleep 100000".to_owned(), String::new()),
            Work::Family => (FAMILY.to_owned(), String::new()),
            Work::UntilCheckpoint(code) => (until("TERM"), code.to_string()),
            Work::UntilWarning(code) => (until("URG"), code.to_string()),
            Work::Print(bytes) => {
                ("yes 0123456789 | tr -d '\\n' | head -c $4".to_owned(), bytes.to_string())
            }
            Work::MissingProgram | Work::MissingWorkdir => (String::new(), String::new()),
        };
        let path =
            |name: &str| self.path(&format!("{name}/{key}")).to_str().expect("UTF-8").to_owned();
        let script = format!("echo run >> \"$1\"; {script}");
        let command =
            ["sh", "-c", &script, "work", &path("runs"), &path("ready"), &path("go"), &argument];
        let mut order = StartOrder {
            key: key.clone(),
            command: command.map(str::to_owned).to_vec(),
            workdir: Some("/".into()),
            env: BTreeMap::new(),
            user: None,
            placement: vec![HostGpus { host: self.lab.hosts[0].clone(), gpus: vec![0] }],
            memory_bytes: None,
            cpus: None,
            adopts: None,
            resumable: false,
            resume: false,
            checkpoint_dir: self.path("checkpoints").join(key.workload()),
            protected_until_unix_ms: None,
            log_bytes_max: 100,
            log_files_max: 3,
        };
        match work {
            Work::MissingProgram => order.command = vec!["no-such-program-here".to_owned()],
            Work::MissingWorkdir => order.workdir = Some("/nonexistent/dir".into()),
            _ => {}
        }
        order
    }

    fn await_prepared(&mut self, key: &AttemptKey) {
        let ready = self.path(&format!("ready/{key}"));
        let until = Instant::now() + self.patience();
        while !ready.exists() {
            assert!(Instant::now() < until, "{key} is not prepared");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn release(&mut self, key: &AttemptKey) {
        let go = self.path(&format!("go/{key}"));
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(go)
            .expect("a word")
            .write_all(b"go\n")
            .expect("a word");
    }

    fn pause(&mut self) {
        std::thread::sleep(Duration::from_millis(100));
    }

    fn processes(&mut self, key: &AttemptKey) -> usize {
        let folder = self.path("checkpoints").join(key.workload());
        let folder = format!("BURSAR_CHECKPOINT_DIR={}", folder.display());
        let attempt = format!("BURSAR_ATTEMPT={}", key.attempt());
        let has = |environ: &str, what: &str| environ.split('\0').any(|one| one == what);
        let ours = |environ: &str| has(environ, &folder) && has(environ, &attempt);
        let all = fs::read_dir("/proc").expect("/proc").flatten();
        let environs = all.filter_map(|entry| fs::read(entry.path().join("environ")).ok());
        environs.filter(|environ| ours(&String::from_utf8_lossy(environ))).count()
    }

    fn executions(&mut self, key: &AttemptKey) -> usize {
        let runs = fs::read_to_string(self.path(&format!("runs/{key}")));
        runs.map_or(0, |runs| runs.lines().count())
    }

    fn claim_only(&mut self, order: &StartOrder) {
        self.dies.store(true, Ordering::Relaxed);
        let engine = self.engine.as_mut().expect("the daemon is up");
        let started = std::panic::AssertUnwindSafe(|| engine.start(order));
        assert!(std::panic::catch_unwind(started).is_err(), "it was to be killed");
        self.down();
        self.dies.store(false, Ordering::Relaxed);
        self.up();
    }

    fn kill_supervisor(&mut self, _key: &AttemptKey) {
        panic!("what supervises here is Slurm: see conformance.rs");
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(120)
    }

    fn stop_signal(&self) -> i32 {
        SIGTERM
    }
}

/// A child, one in a session of its own, and below that a grandchild in yet another.
const FAMILY: &str = r#"
    sleep 100000 &
    setsid sleep 100000 &
    setsid sh -c 'setsid sleep 100000 & sleep 100000 & echo > "$0"; wait' "$2" &
    sleep 100000"#;
