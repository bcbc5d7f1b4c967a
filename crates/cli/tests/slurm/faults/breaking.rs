//! What breaks: Bursar, Slurm's controller, a node of it, the clients.

use super::jobs::now_ms;
use crate::governed::Governed;
use bursar_slurm_lab::{self as lab, Lab};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The daemon.
    Bursar,
    /// slurmctld, at any moment: it forgets what happened in the last five seconds.
    Controller,
    /// slurmctld, just after it has written down what it knows.
    SavedController,
    /// The slurmd of this node; what runs there goes on.
    Slurmd(usize),
    /// This node, with all that runs there.
    Node(usize),
}

/// A fault, when it comes, and how long it lasts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub(crate) fault: Fault,
    pub(crate) at: Duration,
    lasts: Duration,
}

pub(crate) fn plan(random: &mut Pcg64Mcg) -> Vec<Planned> {
    let count = random.random_range(2..6);
    let mut planned: Vec<Planned> = (0..count)
        .map(|_| {
            let node = random.random_range(1..=lab::nodes());
            let fault = match random.random_range(0..8) {
                0..3 => Fault::Bursar,
                3 => Fault::Controller,
                4..6 => Fault::SavedController,
                6 => Fault::Slurmd(node),
                _ => Fault::Node(node),
            };
            let at = Duration::from_millis(random.random_range(500..11_000));
            Planned { fault, at, lasts: Duration::from_millis(random.random_range(0..1500)) }
        })
        .collect();
    planned.sort_by_key(|one| one.at);
    planned
}

impl Planned {
    /// Breaks it and has it come back; what Slurm forgot, if it did.
    pub(crate) fn play(&self, governed: &mut Governed, begun: Instant) -> Option<Forgotten> {
        std::thread::sleep(self.at.saturating_sub(begun.elapsed()));
        let mut forgotten = None;
        match self.fault {
            Fault::Bursar => governed.kill(),
            Fault::Controller | Fault::SavedController => {
                if self.fault == Fault::SavedController {
                    await_save();
                }
                kill_daemon("slurmctld.pid", "slurmctld-wlm");
                forgotten = Some(Forgotten { from_ms: saved_ms() - 300, to_ms: now_ms() + 100 });
            }
            Fault::Slurmd(node) => kill_daemon(&format!("slurmd.n{node}.pid"), "slurmd-wlm"),
            Fault::Node(node) => {
                kill_daemon(&format!("slurmd.n{node}.pid"), "slurmd-wlm");
                kill_work(&governed.lab, node);
            }
        }
        std::thread::sleep(self.lasts);
        match self.fault {
            Fault::Bursar => come_up(governed),
            _ => lab::up(),
        }
        forgotten
    }
}

/// From when to when Slurm's controller knows nothing of what happened, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forgotten {
    pub(crate) from_ms: u64,
    pub(crate) to_ms: u64,
}

impl Forgotten {
    pub(crate) fn has(&self, at_ms: u64) -> bool {
        (self.from_ms..=self.to_ms).contains(&at_ms)
    }
}

/// When the controller wrote down its jobs.
fn saved_ms() -> u64 {
    file_ms("job_state")
}

/// When the controller wrote a file of its state.
fn file_ms(name: &str) -> u64 {
    let path = lab::folder().join("state").join(name);
    let saved = fs::metadata(path).and_then(|file| file.modified());
    let since = saved.ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    since.map_or(300, |since| u64::try_from(since.as_millis()).expect("now"))
}

/// Waits until it does that again; it does not if nothing has changed.
fn await_save() {
    let (before, until) = (saved_ms(), Instant::now() + Duration::from_secs(7));
    while saved_ms() == before && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until it has written down what it has of its nodes now.
pub(crate) fn await_nodes_saved() {
    let (begun_ms, until) = (now_ms(), Instant::now() + Duration::from_secs(7));
    while file_ms("node_state") < begun_ms && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Nodes tell the controller what they have; else a job that it has for running, and is not, would be found in minutes.
/// Slurm 22.05 also loses count of GPUs when its controller is killed ("gres count underflow"), and does not use them any
/// more; a reconfiguration counts anew, as its administrator would have it do.
pub(crate) fn register_nodes(lab: &Lab) {
    for node in 1..=lab::nodes() {
        kill_daemon(&format!("slurmd.n{node}.pid"), "slurmd-wlm");
    }
    lab::up();
    let done = Command::new("scontrol").arg("reconfigure").envs(lab.environment()).status();
    assert!(done.is_ok_and(|status| status.success()), "scontrol reconfigure");
}

/// Slurm 22.05 changes no job while slurmdbd gives it a number, and one that its controller wrote down just then, and was
/// killed, waits for that number for ever ("DB index is being set"). It asks anew for all of them once slurmdbd did not
/// answer when it asked for one: so an administrator stops slurmdbd, submits something, and starts it again.
pub(crate) fn number_jobs(lab: &Lab) {
    kill_daemon("slurmdbd.pid", "slurmdbd");
    let asked = ["--parsable", "--hold", "--partition=free", "--wrap=true", "--output=/dev/null"];
    let job = lab.ok("alice", "sbatch", &asked);
    // It asks every five seconds.
    std::thread::sleep(Duration::from_secs(12));
    lab::up();
    lab.ok("alice", "scancel", &[&job]);
}

/// Whoever starts the daemon does it again, until Slurm lets it come up.
pub(crate) fn come_up(governed: &mut Governed) {
    let until = Instant::now() + crate::PATIENCE;
    while let Err(said) = governed.try_up(&[]) {
        assert!(Instant::now() < until, "it does not come up: {said}");
    }
}

/// Kills a daemon of Slurm, which must be this program.
fn kill_daemon(pid_file: &str, program: &str) {
    let Ok(pid) = fs::read_to_string(lab::folder().join("run").join(pid_file)) else { return };
    let pid: i32 = pid.trim().parse().expect("its pid");
    let Ok(found) = fs::read_link(format!("/proc/{pid}/exe")) else { return };
    assert!(found.ends_with(program), "{found:?}");
    kill_process(Pid::from_raw(pid).expect("a pid"), Signal::KILL).expect("to kill it");
}

/// Kills what runs on a node of the cluster, as a power cut would: the supervisors of its jobs and all below them.
fn kill_work(lab: &Lab, node: usize) {
    let conf = format!("SLURM_CONF={}", lab.environment()["SLURM_CONF"]);
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    let mut doomed = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let after = stat.rsplit(") ").next().unwrap_or_default();
        let parent = after.split(' ').nth(1).and_then(|parent| parent.parse().ok());
        children.entry(parent.unwrap_or_default()).or_default().push(pid);
        let is_step = fs::read_link(entry.path().join("exe"))
            .is_ok_and(|exe| exe.ends_with("slurmstepd-wlm"));
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        let says =
            |what: &str| environment.split(|byte| *byte == 0).any(|one| one == what.as_bytes());
        if is_step && says(&conf) && is_of(&entry.path(), node) {
            doomed.push(pid);
        }
    }
    // The supervisors first: they would tell how their work ended.
    while !doomed.is_empty() {
        for pid in &doomed {
            if let Some(pid) = Pid::from_raw(*pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        doomed = doomed.iter().filter_map(|pid| children.remove(pid)).flatten().collect();
    }
}

/// Whether a supervisor is of a node: it has a socket in that node's folder.
fn is_of(process: &Path, node: usize) -> bool {
    let spool = lab::folder().join("spool").join(format!("n{node}"));
    let line = fs::read(process.join("cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).into_owned();
    // "slurmstepd: [17.batch]", and the socket is called n1_17.4294967291.
    let Some((_, job)) = line.split_once('[') else { return false };
    let job = job.split(['.', ']']).next().unwrap_or_default();
    let named = format!("n{node}_{job}.");
    fs::read_dir(spool).is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with(&named))
    })
}

/// Clients that are slow or fail, as a list has it: one word for each call. Without the list nothing is wrong with them.
pub(crate) struct Clients;

/// How long a call may take, as the daemon is told.
pub(crate) const ANSWER_WITHIN: &str = "answer_within: 2s";

impl Clients {
    /// Writes the script by which they are run, and the list; gives the script.
    pub(crate) fn write(folder: &Path, random: &mut Pcg64Mcg) -> String {
        let words: String = (0..4000)
            .map(|_| match random.random_range(0..100) {
                0..4 => "before\n",
                4..8 => "after\n",
                8..9 => "hang\n",
                9..10 => "late\n",
                10..15 => "slow\n",
                _ => "well\n",
            })
            .collect();
        fs::write(folder.join("list"), words).expect("a list");
        let path = folder.join("run-by");
        let through = bursar_slurm_lab::through("svc").join(" ");
        let script = format!(
            "#!/bin/bash\ncd {}\nn=$(<count); echo $((n + 1)) >count\n\
             mapfile -t -s ${{n:-0}} -n 1 word 2>/dev/null <list\n\
             cd /\ncase \"${{word[0]}}\" in\n\
             before) echo 'it is broken' >&2; exit 1 ;;\n\
             after) {through} \"$@\"; echo 'it is broken' >&2; exit 1 ;;\n\
             hang) exec sleep 1000 ;;\n\
             late) {through} \"$@\"; exec sleep 1000 ;;\n\
             slow) sleep 0.6 ;;\nesac\nexec {through} \"$@\"\n",
            folder.display()
        );
        fs::write(&path, script).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a script");
        fs::write(folder.join("count"), "0\n").expect("a count");
        path.to_str().expect("UTF-8").to_owned()
    }

    /// From now on nothing is wrong with them.
    pub(crate) fn mend(folder: &Path) {
        let _ = fs::remove_file(folder.join("list"));
    }
}
