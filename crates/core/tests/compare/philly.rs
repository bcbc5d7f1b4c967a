//! `fifo` and `sjf` reproduce the schedules that were published for the Philly trace, to the second.
//!
//! The data lies beside the repository; without it the test says so and passes.

use crate::world::{Job, World, scheduler};
use bursar_core::compare::Options;
use flate2::read::GzDecoder;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

const NODES: [(&str, usize); 5] =
    [("7f04ca", 32), ("11cb48", 16), ("e13805", 16), ("103959", 8), ("0e4a51", 32)];

fn data() -> Option<PathBuf> {
    let found = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/philly");
    if found.exists() {
        return Some(found);
    }
    println!("skipped: {} is not here", found.display());
    None
}

/// Jobs by virtual cluster, in the order of submission, with their names.
fn jobs(data: &Path) -> BTreeMap<String, Vec<(String, Job)>> {
    let mut reader = csv::Reader::from_path(data.join("jobs.csv")).expect("jobs.csv");
    let mut jobs: BTreeMap<String, Vec<(String, Job)>> = BTreeMap::new();
    for row in reader.records() {
        let row = row.expect("a row");
        let number = |at: usize| row[at].parse::<f64>().expect("a number") as u64;
        let job = Job {
            budget: 0,
            submit_s: number(5),
            gpus: number(3) as u32,
            runtime_s: number(6),
            declared_s: None,
        };
        jobs.entry(row[2].to_owned()).or_default().push((row[0].to_owned(), job));
    }
    // Stable: the row order decides within a second.
    jobs.values_mut().for_each(|jobs| jobs.sort_by_key(|(_, job)| job.submit_s));
    jobs
}

/// Published starts by job name, under FIFO and SJF.
fn published(data: &Path) -> BTreeMap<String, [u64; 2]> {
    let file = File::open(data.join("schedule.csv.gz")).expect("schedule.csv.gz");
    let mut reader = csv::Reader::from_reader(GzDecoder::new(file));
    let rows = reader.records().map(|row| {
        let row = row.expect("a row");
        let number = |at: usize| row[at].parse().expect("a number");
        (row[0].to_owned(), [number(2), number(3)])
    });
    rows.collect()
}

#[test]
fn fifo_and_sjf_reproduce_the_published_schedules() {
    let Some(data) = data() else { return };
    let (mut by_cluster, published) = (jobs(&data), published(&data));
    let mut compared = 0;
    for (cluster, nodes) in NODES {
        let named = by_cluster.remove(cluster).expect("a virtual cluster of the trace");
        let jobs: Vec<Job> = named.iter().map(|(_, job)| job.clone()).collect();
        for (column, policy) in ["fifo", "sjf"].into_iter().enumerate() {
            let began = Instant::now();
            let hosts = vec![8; nodes];
            let mut world = World::new(scheduler(policy, &hosts, &[], &Options::default()), &jobs);
            world.run();
            let seconds = began.elapsed().as_secs_f64();
            println!(
                "{cluster} {policy}: {} jobs, {:.0} jobs/s",
                jobs.len(),
                jobs.len() as f64 / seconds
            );
            for ((name, job), fate) in named.iter().zip(&world.fates) {
                let start = published[name][column];
                assert_eq!(fate.starts_s, [start], "{cluster} {policy} {name}");
                assert_eq!(fate.end_s, start + job.runtime_s, "{cluster} {policy} {name}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 2 * published.len());
}
