//! For tests: a real Slurm cluster on this machine, which all tests of a copy of this repository share, and who has
//! which part of it. `scripts/slurm-lab.sh` brings it up and takes it away when nobody needs it any more.

#![cfg(target_os = "linux")]
#![allow(clippy::missing_panics_doc, reason = "a test that cannot have its cluster fails")]

use bursar_slurm::client::SystemClients;
use bursar_slurm::{Gate, GatePartition, JOB_SUBMIT_LUA};
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

/// The users, and who Bursar is.
const UIDS: [(&str, u32); 5] =
    [("alice", 20001), ("bob", 20002), ("carol", 20003), ("dave", 20004), ("svc", 20005)];

/// How many nodes there are, each of which is a partition `only1` … of its own, too: four, unless `BURSAR_SLURM_NODES`
/// says otherwise (with a folder of its own, or it is the cluster that is there already).
pub fn nodes() -> usize {
    std::env::var("BURSAR_SLURM_NODES").ok().and_then(|nodes| nodes.parse().ok()).unwrap_or(4)
}

/// GPUs of each node.
pub const GPUS: u32 = 8;

/// The horizon of the governed partitions, in seconds.
pub const HORIZON_S: u64 = 7 * 86_400;

/// Whether Slurm is not to be tested; says so.
pub fn skipped() -> bool {
    let skipped = std::env::var("BURSAR_NO_SLURM").is_ok_and(|value| value == "1");
    if skipped {
        println!("SKIPPED: BURSAR_NO_SLURM=1, so nothing was tried on a real Slurm");
    }
    skipped
}

/// The folder of the cluster: one for the tests of each crate, in each copy of this repository.
pub fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("BURSAR_SLURM_LAB") {
        return folder.into();
    }
    let binary = std::env::current_exe().unwrap_or_default();
    let name = binary.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut hasher = DefaultHasher::new();
    env!("CARGO_MANIFEST_DIR").hash(&mut hasher);
    // `slurm` and `slurm_setup` are of one crate.
    name.split(['-', '_']).next().unwrap_or_default().hash(&mut hasher);
    let below =
        if Path::new("/dev/shm").is_dir() { "/dev/shm".into() } else { std::env::temp_dir() };
    below.join(format!("bursar-slurm-test-{:08x}", hasher.finish() as u32))
}

fn script(args: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/slurm-lab.sh");
    let mut command = Command::new(script);
    command
        .args(args)
        .env("BURSAR_SLURM_LAB", folder())
        .env("BURSAR_SLURM_NODES", nodes().to_string());
    command.output().expect("scripts/slurm-lab.sh")
}

/// Brings up whatever is not up.
pub fn up() {
    let pid = std::process::id().to_string();
    let output = script(&["up", "--for", &pid]);
    assert!(
        output.status.success(),
        "no Slurm could be brought up for these tests. It needs root, and packages that apt installs \
         (scripts/slurm-lab.sh install); with BURSAR_NO_SLURM=1 these tests are skipped.\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
}

/// Brings the cluster up, once for this process.
fn cluster() {
    static UP: OnceLock<()> = OnceLock::new();
    UP.get_or_init(|| {
        up();
        // The gate as it is in this source, whoever brought the cluster up.
        let etc = folder().join("etc");
        if fs::read_to_string(etc.join("job_submit.lua")).ok().as_deref() != Some(JOB_SUBMIT_LUA) {
            fs::write(etc.join("job_submit.lua.new"), JOB_SUBMIT_LUA).expect("the gate");
            fs::rename(etc.join("job_submit.lua.new"), etc.join("job_submit.lua"))
                .expect("the gate");
        }
        let governed = |name: String| GatePartition {
            name,
            horizon_s: HORIZON_S,
            min_runtime_s: 0,
            resumable: false,
        };
        let only = (1..=nodes()).map(|node| format!("only{node}"));
        let gate = Gate {
            site: None,
            uids: vec![uid("svc")],
            partitions: only.chain(["main".to_owned()]).map(governed).collect(),
            budgets: Some(vec!["lab/vision".to_owned()]),
            accounts: Some(vec!["research".to_owned(), "root".to_owned()]),
        };
        gate.write(&etc).expect("the gate");
    });
}

/// The number of a user of the cluster.
pub fn uid(user: &str) -> u32 {
    UIDS.iter().find(|(name, _)| *name == user).expect("a user of the cluster").1
}

/// The environment in which Slurm's clients find this cluster and its users.
pub fn environment() -> BTreeMap<String, String> {
    let etc = folder().join("etc");
    let path = |name: &str| etc.join(name).to_str().expect("UTF-8").to_owned();
    let output = script(&["env"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let preload = text.lines().find_map(|line| line.strip_prefix("export LD_PRELOAD="));
    [
        ("SLURM_CONF", path("slurm.conf")),
        ("NSS_WRAPPER_PASSWD", path("passwd")),
        ("NSS_WRAPPER_GROUP", path("group")),
        ("LD_PRELOAD", preload.expect("the library for users").to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// By what a program is run as this user.
pub fn through(user: &str) -> Vec<String> {
    let uid = uid(user);
    let words =
        ["setpriv", &format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups", "--"];
    words.map(str::to_owned).to_vec()
}

/// Part of the cluster, for one test alone: a node and its partition, or all of them.
pub struct Lab {
    /// The partitions of these nodes.
    pub partitions: Vec<String>,
    /// Their names.
    pub hosts: Vec<String>,
    env: BTreeMap<String, String>,
    _locks: Vec<File>,
}

impl Lab {
    /// Any node, with its partition.
    pub fn one_node() -> Self {
        cluster();
        loop {
            for node in 1..=nodes() {
                let lock = lock_of(node);
                if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                    return Self::of(
                        vec![format!("only{node}")],
                        vec![format!("n{node}")],
                        vec![lock],
                    );
                }
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// All nodes, and partition `main`, which has them.
    pub fn all_nodes() -> Self {
        cluster();
        let locks: Vec<File> = (1..=nodes()).map(lock_of).collect();
        for lock in &locks {
            flock(lock, FlockOperation::LockExclusive).expect("the nodes");
        }
        let hosts = (1..=nodes()).map(|node| format!("n{node}")).collect();
        Self::of(vec!["main".to_owned()], hosts, locks)
    }

    fn of(partitions: Vec<String>, hosts: Vec<String>, locks: Vec<File>) -> Self {
        static ENV: OnceLock<BTreeMap<String, String>> = OnceLock::new();
        let env = ENV.get_or_init(environment).clone();
        let lab = Self { partitions, hosts, env, _locks: locks };
        lab.clear();
        lab
    }

    /// What a process needs in its environment to find the cluster and its users.
    pub fn environment(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    /// The clients, as Bursar calls them.
    pub fn clients(&self) -> SystemClients {
        SystemClients {
            through: through("svc"),
            env: self.env.clone(),
            limit: Duration::from_secs(60),
        }
    }

    /// A program that a user runs.
    pub fn as_user(&self, user: &str, program: &str, args: &[&str]) -> Output {
        let words = through(user);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(program).args(args).envs(&self.env).current_dir(self.jobs());
        command.env("SLURM_TIME_FORMAT", "%s").output().expect("a client")
    }

    /// The same; it must succeed. Gives what it wrote.
    pub fn ok(&self, user: &str, program: &str, args: &[&str]) -> String {
        let output = self.as_user(user, program, args);
        assert!(output.status.success(), "{user}: {program} {args:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// A folder that all nodes see and everybody may write to.
    pub fn jobs(&self) -> PathBuf {
        folder().join("jobs")
    }

    /// Nodes that take no work, or of which Slurm believes that somebody has GPUs or CPUs there.
    fn taken(&self, partition: &str, nodes: &str) -> Vec<String> {
        let fields = "NodeList:|,StateLong:|,GresUsed:|,CPUsState:|";
        let all =
            self.ok("svc", "sinfo", &["-h", "-N", "-p", partition, "-n", nodes, "-O", fields]);
        all.lines().filter(|line| !is_free(line)).map(str::to_owned).collect()
    }

    /// Ends all jobs of these partitions, and waits until their nodes take new ones; has Slurm find what it lost count of.
    pub fn clear(&self) {
        let partition = self.partitions.join(",");
        let nodes = self.hosts.join(",");
        let states =
            ["-h", "-N", "-p", &partition, "-n", &nodes, "-O", "NodeList:|,StateComplete:|"];
        for line in self.ok("svc", "sinfo", &states).lines() {
            let (node, state) = line.split_once('|').expect("a node");
            if state.contains("drain") || state.contains("down") {
                let node = format!("NodeName={node}");
                self.ok("svc", "scontrol", &["update", &node, "State=RESUME"]);
            }
        }
        // Whoever governed them before is gone.
        self.ok("svc", "scontrol", &["update", &format!("NodeName={nodes}"), "Comment="]);
        let mut seen = String::new();
        let mut alone = 0;
        for round in 0..1200 {
            let left =
                self.ok("svc", "squeue", &["-h", "-a", "-r", "-p", &partition, "-o", "%i %T"]);
            let taken = self.taken(&partition, &nodes);
            if left.is_empty() && taken.is_empty() {
                return;
            }
            if !left.is_empty() && round % 40 == 0 {
                for job in left.lines().filter_map(|line| line.split(' ').next()) {
                    self.as_user("svc", "scancel", &[job]);
                }
            }
            alone = if left.is_empty() { alone + 1 } else { 0 };
            match alone {
                // A controller that was killed may never give back what a job had that ended meanwhile ("gres count
                // underflow"): it starts nothing there any more. It counts anew when it starts, and only then.
                20 | 400 => {
                    println!("nobody has a job, but these are not free: {taken:?}");
                    let output = script(&["recount"]);
                    assert!(output.status.success(), "{output:?}");
                }
                _ => {}
            }
            seen = format!("jobs {left:?}, nodes {taken:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        let queue = self.ok("svc", "squeue", &["-a", "-r", "-o", "%i %P %T %r %N %j"]);
        let nodes = self.ok("svc", "scontrol", &["show", "node", &self.hosts.join(","), "-o"]);
        panic!("the nodes {:?} do not become idle: {seen}\n{queue}\n{nodes}", self.hosts);
    }
}

/// Whether a line of sinfo tells of a node that takes work: its state, the GPUs that are used there, and CPUs by allocated,
/// idle, other and all. Slurm 22.05 goes on saying "mixed" of a node that is idle, now and then.
fn is_free(line: &str) -> bool {
    let mut fields = line.split('|').skip(1);
    matches!(fields.next(), Some("idle" | "mixed"))
        && fields.next().is_some_and(|used| used.contains(":0(") || used.contains("(null)"))
        && fields.next().is_some_and(|cpus| cpus.starts_with("0/"))
}

impl Drop for Lab {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.clear();
        }
    }
}

fn lock_of(node: usize) -> File {
    let path = folder().join(format!("test-n{node}.lock"));
    OpenOptions::new().write(true).create(true).truncate(false).open(path).expect("a lock")
}
