//! Says what is inside a history: sizes, runtimes, people, and its load over time.
//!
//! All figures are exact integers; quantiles are by nearest rank.

mod text;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::job::{Format, JobStatus, Trace, TraceJob};
use crate::values::SPAN_MS_MAX;

/// How many users, groups, budgets and models are listed; the rest are only counted.
const NAMED_MAX: usize = 10;

/// Most rows of the load over time.
const BUCKETS_MAX: u64 = 40;

/// Lengths of a row of the load over time: the first that gives few enough rows.
const BUCKET_MS: [u64; 8] = {
    const HOUR: u64 = 3_600_000;
    [HOUR, 6 * HOUR, 24 * HOUR, 168 * HOUR, 720 * HOUR, 2_190 * HOUR, 8_760 * HOUR, 87_600 * HOUR]
};

/// Size classes (docs/metrics.md): their most GPUs, and what they are called.
const SIZE_CLASSES: [(u32, &str); 5] =
    [(1, "1"), (8, "2-8"), (64, "9-64"), (256, "65-256"), (u32::MAX, ">256")];

/// What is inside a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Description {
    /// What it was read from.
    pub name: String,
    /// Its format.
    pub format: Format,
    /// The moment of its time 0, if known.
    pub origin: Option<String>,
    /// Jobs that were read.
    pub jobs: u64,
    /// Broken rows left out.
    pub skipped: u64,
    /// Jobs left out without a GPU.
    pub without_gpus: u64,
    /// Jobs left out that never started.
    pub never_started: u64,
    /// Jobs left out without an end.
    pub unfinished: u64,
    /// First submission.
    pub first_submit_ms: u64,
    /// Last submission.
    pub last_submit_ms: u64,
    /// GPU-time of all jobs, in GPU-milliseconds.
    pub gpu_ms: u128,
    /// Jobs by how they ended.
    pub statuses: BTreeMap<JobStatus, u64>,
    /// Jobs and GPU-time by size.
    pub sizes: Vec<SizeClass>,
    /// GPUs of the largest job.
    pub gpus_max: u32,
    /// Runtimes.
    pub runtime_ms: Quantiles,
    /// Waits as recorded, over the jobs whose start is known.
    pub recorded_wait_ms: Option<Quantiles>,
    /// How many users there are.
    pub users: u64,
    /// Those with the most GPU-time.
    pub top_users: Vec<NamedUse>,
    /// How many groups there are.
    pub groups: u64,
    /// Those with the most GPU-time.
    pub top_groups: Vec<NamedUse>,
    /// How many budgets there are.
    pub budgets: u64,
    /// Those with the most GPU-time.
    pub top_budgets: Vec<NamedUse>,
    /// GPU models that jobs demanded, with the most GPU-time first.
    pub top_gpu_models: Vec<NamedUse>,
    /// GPUs that would be busy at most if every job started when it was submitted.
    pub peak_gpus: u64,
    /// Load over time.
    pub load: Vec<LoadBucket>,
    /// What else to know.
    pub notes: Vec<String>,
}

/// Jobs of one size class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SizeClass {
    /// Its GPUs, such as `2-8`.
    pub gpus: &'static str,
    /// How many jobs.
    pub jobs: u64,
    /// Their GPU-time.
    pub gpu_ms: u128,
}

/// Quantiles by nearest rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// The least.
    pub min: u64,
    /// The median.
    pub p50: u64,
    /// 90 % are at most this.
    pub p90: u64,
    /// 99 % are at most this.
    pub p99: u64,
    /// The greatest.
    pub max: u64,
}

/// What one user, group, budget or model used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NamedUse {
    /// Its name.
    pub name: String,
    /// How many jobs.
    pub jobs: u64,
    /// Their GPU-time.
    pub gpu_ms: u128,
}

/// The load in one stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LoadBucket {
    /// Its beginning.
    pub from_ms: u64,
    /// Its end.
    pub to_ms: u64,
    /// Jobs submitted in it.
    pub jobs: u64,
    /// GPU-time of the jobs submitted in it.
    pub submitted_gpu_ms: u128,
    /// GPU-time in it if every job started when it was submitted.
    pub demand_gpu_ms: u128,
}

/// Looks through all of `trace`.
pub fn describe(trace: &Trace) -> Description {
    let jobs = &trace.jobs;
    let runtimes = jobs.iter().map(|job| job.runtime_ms).collect();
    let waits: Vec<u64> = jobs
        .iter()
        .filter_map(|job| job.start_ms.map(|start_ms| start_ms.saturating_sub(job.submit_ms)))
        .collect();
    let mut statuses = BTreeMap::new();
    for job in jobs {
        *statuses.entry(job.status).or_default() += 1;
    }
    let (users, top_users) = used_by(jobs, |job| &job.user);
    let (groups, top_groups) = used_by(jobs, |job| &job.group);
    let (budgets, top_budgets) = used_by(jobs, |job| &job.budget);
    let (_, top_gpu_models) = used_by(jobs, |job| &job.gpu_model);
    Description {
        name: trace.name.clone(),
        format: trace.format,
        origin: trace.origin.map(|origin| origin.to_string()),
        jobs: jobs.len() as u64,
        skipped: trace.skipped_count,
        without_gpus: trace.without_gpus,
        never_started: trace.never_started,
        unfinished: trace.unfinished,
        first_submit_ms: jobs.first().map_or(0, |job| job.submit_ms),
        last_submit_ms: jobs.last().map_or(0, |job| job.submit_ms),
        gpu_ms: jobs.iter().map(gpu_ms).sum(),
        statuses,
        sizes: sizes(jobs),
        gpus_max: jobs.iter().map(|job| job.gpus).max().unwrap_or(0),
        runtime_ms: quantiles(runtimes).unwrap_or(Quantiles {
            min: 0,
            p50: 0,
            p90: 0,
            p99: 0,
            max: 0,
        }),
        recorded_wait_ms: quantiles(waits),
        users,
        top_users,
        groups,
        top_groups,
        budgets,
        top_budgets,
        top_gpu_models,
        peak_gpus: peak_gpus(jobs),
        load: load(jobs),
        notes: trace.notes.clone(),
    }
}

fn gpu_ms(job: &TraceJob) -> u128 {
    u128::from(job.gpus) * u128::from(job.runtime_ms)
}

fn sizes(jobs: &[TraceJob]) -> Vec<SizeClass> {
    let mut classes: Vec<SizeClass> =
        SIZE_CLASSES.iter().map(|(_, gpus)| SizeClass { gpus, jobs: 0, gpu_ms: 0 }).collect();
    for job in jobs {
        let index = SIZE_CLASSES.partition_point(|(most, _)| *most < job.gpus);
        if let Some(class) = classes.get_mut(index) {
            class.jobs += 1;
            class.gpu_ms += gpu_ms(job);
        }
    }
    classes
}

fn quantiles(mut values: Vec<u64>) -> Option<Quantiles> {
    values.sort_unstable();
    let last = values.len().checked_sub(1)?;
    let at = |percent: usize| values[(values.len() * percent).div_ceil(100).saturating_sub(1)];
    Some(Quantiles { min: values[0], p50: at(50), p90: at(90), p99: at(99), max: values[last] })
}

/// How many names there are, and what those with the most GPU-time used.
fn used_by(
    jobs: &[TraceJob],
    name: impl Fn(&TraceJob) -> &Option<Arc<str>>,
) -> (u64, Vec<NamedUse>) {
    let mut uses: BTreeMap<&str, (u64, u128)> = BTreeMap::new();
    for job in jobs {
        if let Some(name) = name(job) {
            let entry = uses.entry(name).or_default();
            entry.0 += 1;
            entry.1 += gpu_ms(job);
        }
    }
    let count = uses.len() as u64;
    let mut top: Vec<NamedUse> = uses
        .into_iter()
        .map(|(name, (jobs, gpu_ms))| NamedUse { name: name.to_owned(), jobs, gpu_ms })
        .collect();
    // Stable: equals stay in the order of their names.
    top.sort_by_key(|used| Reverse(used.gpu_ms));
    top.truncate(NAMED_MAX);
    (count, top)
}

fn peak_gpus(jobs: &[TraceJob]) -> u64 {
    let held = || jobs.iter().filter(|job| job.runtime_ms > 0);
    let mut ends: Vec<(u64, u32)> =
        held().map(|job| (job.submit_ms.saturating_add(job.runtime_ms), job.gpus)).collect();
    ends.sort_unstable();
    let (mut busy, mut peak, mut ended) = (0u64, 0u64, 0usize);
    for job in held() {
        // A job may begin at the moment at which another ends.
        while let Some((_, gpus)) = ends.get(ended).filter(|(end_ms, _)| *end_ms <= job.submit_ms) {
            busy = busy.saturating_sub(u64::from(*gpus));
            ended += 1;
        }
        busy += u64::from(job.gpus);
        peak = peak.max(busy);
    }
    peak
}

fn load(jobs: &[TraceJob]) -> Vec<LoadBucket> {
    let (Some(first), Some(last)) = (jobs.first(), jobs.last()) else { return Vec::new() };
    let width_ms = BUCKET_MS
        .into_iter()
        .find(|width_ms| last.submit_ms / width_ms - first.submit_ms / width_ms < BUCKETS_MAX)
        .unwrap_or(SPAN_MS_MAX);
    let (first_bucket, last_bucket) = (first.submit_ms / width_ms, last.submit_ms / width_ms);
    let mut buckets: Vec<LoadBucket> = (first_bucket..=last_bucket)
        .map(|index| LoadBucket {
            from_ms: index * width_ms,
            to_ms: (index + 1) * width_ms,
            jobs: 0,
            submitted_gpu_ms: 0,
            demand_gpu_ms: 0,
        })
        .collect();
    for job in jobs {
        let at = (job.submit_ms / width_ms - first_bucket) as usize;
        let end_ms = job.submit_ms.saturating_add(job.runtime_ms);
        for (index, bucket) in buckets.iter_mut().enumerate().skip(at) {
            if index == at {
                bucket.jobs += 1;
                bucket.submitted_gpu_ms += gpu_ms(job);
            } else if bucket.from_ms >= end_ms {
                break;
            }
            let inside_ms =
                end_ms.min(bucket.to_ms).saturating_sub(job.submit_ms.max(bucket.from_ms));
            bucket.demand_gpu_ms += u128::from(inside_ms) * u128::from(job.gpus);
        }
    }
    buckets
}
