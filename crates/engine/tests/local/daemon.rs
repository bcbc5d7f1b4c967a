//! Another process that has the engine open, to be killed: this test binary, run again for one "test".

use crate::subject::options;
use bursar_engine::testkit::DIE_AT;
use bursar_engine::{AttemptKey, CgroupChoice, Engine, HostGpus, LocalEngine, StartOrder};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The variables that make this binary a daemon: where its records are, and what it starts.
const RECORDS: &str = "TEST_DAEMON_RECORDS";
const ORDERS: &str = "TEST_DAEMON_ORDERS";

/// What it says after each start.
const STARTED: &str = "daemon has started ";

/// A daemon that starts what it was given, in a loop, until it is killed or let go.
pub(crate) struct Daemon {
    child: Child,
}

impl Daemon {
    pub(crate) fn run(records: &Path, die_at: Option<&str>, orders: &[StartOrder]) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command
            .args(["daemon::as_a_daemon", "--exact", "--nocapture", "--test-threads=1"])
            .env(RECORDS, records)
            .env(ORDERS, orders.iter().map(encode).collect::<Vec<_>>().join("\x1e"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(step) = die_at {
            command.env(DIE_AT, step);
        }
        Self { child: command.spawn().expect("to run this binary") }
    }

    /// Waits until it has given its first orders, or is dead.
    pub(crate) fn await_starts(&mut self, count: usize) {
        let out = self.child.stdout.as_mut().expect("its output");
        let said = BufReader::new(out).lines().map_while(Result::ok);
        let _ = said.filter(|line| line.contains(STARTED)).take(count).count();
    }

    /// Lets it go when it has given its orders, and waits until it is gone.
    pub(crate) fn await_end(mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.stdout.take().map(|mut out| out.read_to_end(&mut Vec::new()));
        self.child.wait().expect("its end");
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("to kill it");
        self.child.wait().expect("its end");
    }
}

/// What differs between the orders of these tests, as text.
fn encode(order: &StartOrder) -> String {
    let key = [order.key.workload().to_owned(), order.key.attempt().to_string()];
    let folder = order.checkpoint_dir.to_str().expect("UTF-8").to_owned();
    key.into_iter().chain([folder]).chain(order.command.clone()).collect::<Vec<_>>().join("\x1f")
}

fn decode(text: &str) -> StartOrder {
    let mut words = text.split('\x1f').map(str::to_owned);
    let mut word = || words.next().expect("a whole order");
    let key = AttemptKey::new(word(), word().parse().expect("a number")).expect("a good key");
    StartOrder {
        key,
        checkpoint_dir: word().into(),
        command: words.collect(),
        workdir: Some("/".into()),
        env: BTreeMap::new(),
        user: None,
        placement: vec![HostGpus { host: crate::subject::HOST.to_owned(), gpus: vec![0] }],
        memory_bytes: None,
        cpus: None,
        adopts: None,
        resumable: false,
        resume: false,
        protected_until_unix_ms: None,
        log_bytes_max: 100,
        log_files_max: 3,
    }
}

/// Not a test: what [`Daemon::run`] runs.
#[test]
fn as_a_daemon() {
    let Some(records) = std::env::var_os(RECORDS) else { return };
    let orders = std::env::var(ORDERS).expect("orders");
    let mut options = options();
    options.cgroup = CgroupChoice::Own;
    let mut engine = LocalEngine::open(Path::new(&records), options).expect("open");
    for order in orders.split('\x1e').filter(|text| !text.is_empty()).map(decode) {
        engine.start(&order).expect("start");
        engine.observe().expect("observe");
        println!("{STARTED}{}", order.key);
    }
    // Until it is let go.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
