//! Not checks but figures, printed: `cargo test -p bursar-slurm --test real -- --ignored --nocapture measure`.

use crate::world::{World, key};
use bursar_engine::Engine;
use bursar_slurm_lab::{Lab, skipped};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// How many jobs follow each other.
const JOBS: usize = 11;

/// A job that takes all GPUs of a node, and writes down when it began and ended.
fn stamping(log: &Path) -> String {
    format!("date +'%s%N begins' >> {0}; sleep 1; date +'%s%N ends' >> {0}", log.display())
}

/// From each end to the next beginning, in milliseconds, sorted.
fn gaps(log: &Path) -> Vec<u64> {
    let text = fs::read_to_string(log).expect("stamps");
    let stamps: Vec<u64> = text
        .lines()
        .map(|line| line.split(' ').next().expect("a stamp").parse().expect("a stamp"))
        .collect();
    assert_eq!(stamps.len(), 2 * JOBS);
    let mut gaps: Vec<u64> =
        stamps[1..].chunks_exact(2).map(|two| (two[1] - two[0]) / 1_000_000).collect();
    gaps.sort_unstable();
    gaps
}

fn told(who: &str, gaps: &[u64]) {
    let (median, last) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
    println!("{who}: from freed GPUs to the next job: median {median} ms, most {last} ms");
}

#[test]
#[ignore = "it only prints figures"]
fn how_long_gpus_idle_between_two_jobs() {
    if skipped() {
        return;
    }
    let mut world = World::on(Lab::all_nodes());
    let logs = tempfile::TempDir::new_in(world.lab.jobs()).expect("a folder");
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(logs.path(), everybody).expect("a folder for all");

    // Slurm alone: a queue in a partition that is not governed.
    let log = logs.path().join("slurm");
    for _ in 0..JOBS {
        let wrap = format!("--wrap={}", stamping(&log));
        world.lab.ok("alice", "sbatch", &["--partition=free", "--nodelist=n1", "--gpus=8", &wrap]);
    }
    let whole =
        |log: &Path| fs::read_to_string(log).is_ok_and(|text| text.lines().count() == 2 * JOBS);
    world.until("Slurm's jobs", |_| whole(&log).then_some(()));
    told("Slurm alone", &gaps(&log));

    // The same by the engine, looked at as often as a daemon does that is nudged, and as one that is not.
    for (round, every_ms) in [(1, 100), (2, 1000)] {
        let log = logs.path().join(format!("bursar-{every_ms}"));
        let jobs: Vec<String> =
            (0..JOBS).map(|_| world.sbatch("alice", &["--gpus=8"], &stamping(&log))).collect();
        let arrivals: Vec<_> = jobs.iter().map(|job| world.await_waiting(job)).collect();
        let (mut calls, mut looks) = (Duration::ZERO, 0);
        for (at, arrival) in (0_u32..).zip(&arrivals) {
            let key = key(100 * round + at);
            let begun = Instant::now();
            world.start(&key, arrival, &[("n1", 8)]);
            calls += begun.elapsed();
            loop {
                let begun = Instant::now();
                let seen = world.engine().observe().expect("observe");
                looks += 1;
                let over = seen.iter().any(|one| one.key == key && one.state.exited().is_some());
                if over {
                    break;
                }
                std::thread::sleep(Duration::from_millis(every_ms).saturating_sub(begun.elapsed()));
            }
        }
        told(&format!("Bursar, a look each {every_ms} ms"), &gaps(&log));
        println!("  a start takes {} ms of calls; {looks} looks", calls.as_millis() / JOBS as u128);
    }
}
