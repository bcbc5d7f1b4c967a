//! Not checks but figures, printed: what a loop costs Slurm's controller when there are many nodes and a long queue, and
//! how long GPUs wait for work and work for GPUs, each beside plain Slurm on the same machine in the same run.
//! `scripts/slurm-scale.sh` runs it on a hundred nodes.

use crate::eventually;
use crate::governed::{Governed, SLEEPS};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const BUDGETS: &str = "research: {share: 1}\nproduct: {share: 1}\n";

/// Nodes on which work comes and goes; the others are full for as long as this takes.
const LIVELY: usize = 20;

/// Jobs that wait on hold.
const WAITING: usize = 2000;

/// How long the controller is watched.
const WATCH: Duration = Duration::from_secs(60);

/// How long work comes and goes in each round, and how many rounds there are of each.
const ROUND: Duration = Duration::from_secs(45);
const ROUNDS: usize = 2;

/// Submissions on idle GPUs, of each.
const PROBES: usize = 30;

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    u64::try_from(since.as_millis()).expect("now")
}

/// The time of a processor that a process has had, with what it started and saw end, in milliseconds.
fn cpu_ms(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process");
    let after = stat.rsplit(") ").next().expect("its figures");
    let ticks: u64 =
        after.split(' ').skip(11).take(4).map(|part| part.parse::<u64>().expect("a number")).sum();
    ticks * 10
}

fn controller() -> u32 {
    let path = bursar_slurm_lab::folder().join("run/slurmctld.pid");
    fs::read_to_string(path).expect("a pid").trim().parse().expect("a pid")
}

/// What the controller computes in a second, in milliseconds, and what else does.
fn watched(other: Option<u32>) -> (f64, f64) {
    let at = Instant::now();
    let before = (cpu_ms(controller()), other.map(cpu_ms));
    std::thread::sleep(WATCH);
    let took = at.elapsed().as_secs_f64();
    let other = other.map_or(0, |pid| cpu_ms(pid) - before.1.unwrap_or(0));
    ((cpu_ms(controller()) - before.0) as f64 / took, other as f64 / took)
}

/// Median and 90th percentile.
fn of(mut all: Vec<u64>) -> (u64, u64) {
    all.sort_unstable();
    assert!(!all.is_empty(), "nothing was measured");
    (all[all.len() / 2], all[(all.len() * 9).div_ceil(10) - 1])
}

fn told(what: &str, ours: Vec<u64>, plain: Vec<u64>) {
    let counts = (ours.len(), plain.len());
    let ((median, late), (plain_median, plain_late)) = (of(ours), of(plain));
    let ratio = |one: u64, other: u64| one as f64 / other.max(1) as f64;
    println!(
        "{what}: Bursar median {median} ms, p90 {late} ms ({}); plain Slurm {plain_median} ms, {plain_late} ms ({}); \
         ratio {:.2}, {:.2}",
        counts.0,
        counts.1,
        ratio(median, plain_median),
        ratio(late, plain_late)
    );
}

/// A folder where all may write.
fn open_folder(governed: &Governed, name: &str) -> PathBuf {
    let path = governed.lab.jobs().join(format!("{name}-{}", std::process::id()));
    fs::create_dir_all(&path).expect("a folder");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("a folder for all");
    path
}

/// Takes a whole node for some seconds, and writes down when it began and ended there.
fn stamping(folder: &Path) -> String {
    format!(
        "log={}/$SLURM_JOB_NODELIST\necho begins $(date +%s%3N) >>$log\nsleep $((3 + RANDOM % 4)).$((RANDOM % 10))\n\
         echo ends $(date +%s%3N) >>$log",
        folder.display()
    )
}

/// From each end on a node to the next beginning there.
fn gaps(folder: &Path) -> Vec<u64> {
    let mut gaps = Vec::new();
    for file in fs::read_dir(folder).expect("stamps").flatten() {
        let text = fs::read_to_string(file.path()).expect("stamps");
        let stamps: Vec<(&str, u64)> = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(word, at)| (word, at.parse().expect("a stamp")))
            .collect();
        let pairs = stamps.windows(2).filter(|two| (two[0].0, two[1].0) == ("ends", "begins"));
        gaps.extend(pairs.map(|two| two[1].1 - two[0].1));
    }
    gaps
}

/// Submits so many of the same as a user does, one after the other; how long each took, in milliseconds.
fn submit(governed: &Governed, user: &str, args: &str, count: usize, script: &Path) -> f64 {
    let at = Instant::now();
    let loops = format!(
        "for i in $(seq {count}); do sbatch --output=/dev/null {args} {} >/dev/null || exit 1; done",
        script.display()
    );
    governed.lab.ok(user, "bash", &["-c", &loops]);
    at.elapsed().as_secs_f64() * 1000.0 / count as f64
}

fn known(governed: &Governed) -> u64 {
    let text = governed.site().ask_well(&["queue", "--all", "--json"]);
    text.matches("\"workload\":").count() as u64
}

fn running(governed: &Governed, partition: &str) -> usize {
    let args = ["-h", "-a", "-p", partition, "-t", "R", "-o", "%i"];
    governed.lab.ok("svc", "squeue", &args).lines().count()
}

/// From the moment before sbatch to the first line of the script.
fn probe(governed: &Governed, partition: &str, folder: &Path, number: usize) -> u64 {
    let stamp = folder.join(format!("{partition}-{number}"));
    let wrap = format!("--wrap=date +%s%3N > {}", stamp.display());
    let partition = format!("--partition={partition}");
    let begun = now_ms();
    let args = [&*partition, "--gpus=1", "--comment=min-runtime=1s", "--output=/dev/null", &*wrap];
    governed.lab.ok("alice", "sbatch", &args);
    let at: u64 = eventually("a stamp", || fs::read_to_string(&stamp).ok()?.trim().parse().ok());
    at - begun
}

#[test]
#[ignore = "it only prints figures, and takes some minutes"]
fn what_many_nodes_and_a_long_queue_cost() {
    if bursar_slurm_lab::skipped() {
        return;
    }
    let nodes = bursar_slurm_lab::nodes();
    assert!(nodes > LIVELY, "scripts/slurm-scale.sh brings up more nodes");
    let mut governed = Governed::with(BUDGETS, "");
    let jobs = governed.lab.jobs();
    let script = |name: &str, text: &str| {
        let path = jobs.join(format!("{name}-{}.sh", std::process::id()));
        fs::write(&path, format!("#!/bin/bash\n{text}\n")).expect("a script");
        path
    };
    let sleeps = script("sleeps", SLEEPS);
    let long = "--partition=main --nodes=1 --comment=min-runtime=10m";
    submit(&governed, "carol", &format!("{long} --gpus=8"), nodes - LIVELY, &sleeps);
    // Three GPUs of each of the others stay idle.
    submit(&governed, "dave", &format!("{long} --gpus=5"), LIVELY, &sleeps);
    eventually("long jobs on all nodes", || (running(&governed, "main") == nodes).then_some(()));
    let stamps = open_folder(&governed, "ours");
    let waits = script("waits", &stamping(&stamps));
    let each = submit(
        &governed,
        "alice",
        "--partition=main --nodes=1 --gpus=8 --comment=min-runtime=1s",
        WAITING,
        &waits,
    );
    println!("{nodes} nodes; {WAITING} jobs submitted, {each:.1} ms each");
    let all = (nodes + WAITING) as u64;
    eventually("all of them", || (known(&governed) >= all).then_some(()));

    let pid = governed.site().child.id();
    let (with, own) = watched(Some(pid));
    governed.stop();
    let (without, _) = watched(None);
    println!(
        "slurmctld computes {with:.1} ms a second with Bursar, {without:.1} without: {:.1} ms for each look; \
         Bursar itself {own:.1}, with its clients",
        with - without
    );
    governed.up();

    let probes = open_folder(&governed, "probes");
    let mut latencies: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for number in 0..PROBES {
        for partition in ["main", "free"] {
            // Not in step with anybody's clock.
            std::thread::sleep(Duration::from_millis(300 + (number as u64 * 137) % 700));
            latencies
                .entry(partition)
                .or_default()
                .push(probe(&governed, partition, &probes, number));
        }
    }
    let free = latencies.remove("free").expect("some");
    told(
        "from a submission to a start on idle GPUs",
        latencies.remove("main").expect("some"),
        free,
    );

    // Now the lively nodes are free, and the queue flows over them; then plain Slurm's does, and so on.
    governed.lab.ok("dave", "scancel", &["--user=dave"]);
    let plain = open_folder(&governed, "plain");
    let free = script("free", &stamping(&plain));
    for _ in 0..ROUNDS {
        std::thread::sleep(ROUND);
        governed.stop();
        eventually("nothing that comes and goes", || {
            (running(&governed, "main") == nodes - LIVELY).then_some(())
        });
        submit(&governed, "carol", "--partition=free --nodes=1 --gpus=8", LIVELY * 8, &free);
        std::thread::sleep(ROUND);
        governed.lab.ok("carol", "scancel", &["--partition=free"]);
        eventually("nothing of Slurm's own", || (running(&governed, "free") == 0).then_some(()));
        // A round's first is not after anything.
        for folder in [&stamps, &plain] {
            for file in fs::read_dir(folder).expect("stamps").flatten() {
                let text = fs::read_to_string(file.path()).expect("stamps");
                fs::write(file.path(), format!("{text}pause 0\n")).expect("stamps");
            }
        }
        governed.up();
    }
    told("from freed GPUs to the next job", gaps(&stamps), gaps(&plain));
}
