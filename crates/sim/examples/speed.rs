//! Jobs per second of every shipped policy, in one run: `cargo run --release -p bursar-sim --example speed`.
//!
//! ```text
//! speed [SCENARIO [POLICY]...]   plays SCENARIO (benches/jobs.yaml by default) under these policies (all)
//! ```
//!
//! A time tells of the machine as much as of the program, so each is given beside that of a yardstick that
//! runs right before: the least that could play the same jobs, first come, first served, on a heap of ends
//! and a number of idle GPUs. What can be compared from machine to machine is the ratio of the two.

use bursar_core::compare::NAMES;
use bursar_scenario::{Scenario, load_path};
use bursar_sim::{EventSink, RunError, RunOptions, run};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A run is repeated for about this long, and its shortest time counts.
const REPEATED_FOR: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/jobs.yaml");
    let path = args.first().map_or(own, PathBuf::from);
    let scenario = load_path(&path, &[]).map_err(|error| error.to_string())?;
    println!("{}: {} GPUs", path.display(), scenario.gpus_total());
    println!(
        "{:<12} {:>8} {:>10} {:>12} {:>11}",
        "", "jobs", "events", "jobs/second", "x yardstick"
    );
    let chosen: Vec<&str> = args.iter().skip(1).map(String::as_str).collect();
    for policy in if chosen.is_empty() { NAMES } else { &chosen } {
        let (_, yardstick) = timed(|| Ok::<_, RunError>(first_come_first_served(&scenario)))?;
        let play = || run(&scenario, policy, RunOptions::default(), EventSink::None);
        let (outcome, took) = timed(play)?;
        let of = outcome.summary.simulator;
        let per_second = of.workloads as f64 / took.as_secs_f64();
        let ratio = took.as_secs_f64() / yardstick.as_secs_f64();
        println!(
            "{policy:<12} {:>8} {:>10} {per_second:>12.0} {ratio:>11.1}",
            of.workloads, of.events
        );
    }
    Ok(())
}

/// What `work` gives, and the shortest time that it takes.
fn timed<T, E>(work: impl Fn() -> Result<T, E>) -> Result<(T, Duration), E> {
    let begun = Instant::now();
    let mut shortest = Duration::MAX;
    loop {
        let begun_once = Instant::now();
        let result = black_box(work()?);
        shortest = shortest.min(begun_once.elapsed());
        if begun.elapsed() > REPEATED_FOR {
            return Ok((result, shortest));
        }
    }
}

/// When each job starts if the first that was submitted always goes first and GPUs are a mere number.
fn first_come_first_served(scenario: &Scenario) -> Vec<u64> {
    let mut idle = scenario.gpus_total();
    let mut ends: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
    let mut now_ms = 0;
    let mut starts = Vec::with_capacity(scenario.workloads.len());
    for job in &scenario.workloads {
        let gpus = u64::from(job.gpus).min(scenario.gpus_total());
        now_ms = now_ms.max(job.submit_ms);
        while let Some(&Reverse((end_ms, freed))) = ends.peek() {
            if end_ms > now_ms && idle >= gpus {
                break;
            }
            ends.pop();
            idle += freed;
            now_ms = now_ms.max(end_ms);
        }
        idle -= gpus;
        ends.push(Reverse((now_ms + job.runtime_ms, gpus)));
        starts.push(now_ms);
    }
    starts
}
