//! What the page's scripts draw from. `assets/data.js` reads exactly this.

use crate::bars::{BARS_MAX, Bars, What};
use crate::pack::{Packed, front_coded};
use crate::samples::Samples;
use bursar_scenario::{HostEventKind, Scenario};
use bursar_sim::{Outcome, WaitQuantiles, WaitSummary};
use serde::Serialize;

/// Up to this many GPUs the timeline has a row per GPU, above a row per host.
const GPU_ROWS_MAX: u64 = 256;

/// Classes of waits in the order in which they are shown.
pub(crate) const CLASSES: [&str; 8] =
    ["debug", "1", "2-8", "9-64", "65-256", ">256", "all", "unallocated"];

/// Everything, times in units of `unit_ms` unless they say otherwise.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Data<'a> {
    unit_ms: u64,
    /// Whether the timeline has a row per GPU.
    row_per_gpu: bool,
    budgets: Vec<Budget<'a>>,
    hosts: Vec<Host<'a>>,
    absences: Vec<Absence>,
    /// The names of the workloads that have bars, sorted and front-coded.
    names: Vec<String>,
    /// For each of them the leaf and when it was submitted.
    workloads: String,
    policies: Vec<Policy<'a>>,
}

#[derive(Clone, Debug, Serialize)]
struct Budget<'a> {
    name: &'a str,
    path: &'a str,
    parent: Option<usize>,
    leaf: bool,
}

#[derive(Clone, Debug, Serialize)]
struct Host<'a> {
    name: &'a str,
    gpus: u32,
}

/// A host was not to be had from one moment to another.
#[derive(Clone, Debug, Serialize)]
struct Absence {
    host: usize,
    from: u64,
    to: u64,
    /// Drained, or else down.
    drain: bool,
}

#[derive(Clone, Debug, Serialize)]
struct Policy<'a> {
    name: &'a str,
    measured: u64,
    ended: u64,
    bar_count: usize,
    joined_below: u64,
    bars: String,
    samples: Samples,
    first_waits: Vec<Wait<'a>>,
    total_waits: Vec<Wait<'a>>,
}

#[derive(Clone, Debug, Serialize)]
struct Wait<'a> {
    class: &'a str,
    count: u64,
    /// p50, p90, p99, longest, in milliseconds.
    quantiles: [u64; 4],
}

impl<'a> Data<'a> {
    pub(crate) fn new(scenario: &'a Scenario, outcomes: &'a [Outcome]) -> Self {
        let seconds = outcomes.iter().map(|outcome| outcome.summary.ended_seconds);
        let ended_ms = (seconds.fold(0.0, f64::max) * 1_000.0).round() as u64;
        // Seconds are exact enough for a picture, but not for one of a few minutes.
        let unit_ms = if ended_ms <= 2 * 3_600_000 { 1 } else { 1_000 };
        let bars: Vec<Bars> = outcomes
            .iter()
            .map(|outcome| Bars::new(scenario, outcome, unit_ms, BARS_MAX))
            .collect();
        let named = Named::new(scenario, &bars);
        let mut workloads = Packed::default();
        for &workload in &named.workloads {
            let spec = &scenario.workloads[workload as usize];
            workloads.put(u64::from(spec.budget));
            workloads.put(spec.submit_ms / unit_ms);
        }
        let ids = named.workloads.iter().map(|&at| &*scenario.workloads[at as usize].id);
        let names = front_coded(ids);
        let policies = outcomes.iter().zip(&bars);
        Self {
            unit_ms,
            row_per_gpu: scenario.gpus_total() <= GPU_ROWS_MAX,
            budgets: budgets(scenario),
            hosts: hosts(scenario),
            absences: absences(scenario, unit_ms, ended_ms / unit_ms),
            names,
            workloads: workloads.into_text(),
            policies: policies
                .map(|(outcome, bars)| policy(scenario, outcome, bars, &named, unit_ms))
                .collect(),
        }
    }
}

/// The workloads whose names the page carries.
struct Named {
    /// Sorted by name.
    workloads: Vec<u32>,
    /// For each workload of the scenario its place among them.
    places: Vec<u32>,
}

impl Named {
    fn new(scenario: &Scenario, all: &[Bars]) -> Self {
        const ABSENT: u32 = u32::MAX;
        let mut places = vec![ABSENT; scenario.workloads.len()];
        for bar in all.iter().flat_map(|bars| &bars.bars) {
            if let What::Attempt { workload, .. } = bar.what {
                places[workload as usize] = 0;
            }
        }
        let mut workloads: Vec<u32> =
            (0..places.len() as u32).filter(|&at| places[at as usize] != ABSENT).collect();
        workloads.sort_unstable_by_key(|&at| &*scenario.workloads[at as usize].id);
        for (place, &workload) in workloads.iter().enumerate() {
            places[workload as usize] = place as u32;
        }
        Self { workloads, places }
    }
}

fn policy<'a>(
    scenario: &Scenario,
    outcome: &'a Outcome,
    bars: &Bars,
    named: &Named,
    unit_ms: u64,
) -> Policy<'a> {
    let summary = &outcome.summary;
    let units = |seconds: f64| (seconds * 1_000.0 / unit_ms as f64).round() as u64;
    Policy {
        name: &summary.policy,
        measured: units(summary.measured_seconds),
        ended: units(summary.ended_seconds),
        bar_count: bars.bars.len(),
        joined_below: bars.joined_below,
        bars: bars.pack(|workload| u64::from(named.places[workload as usize])),
        samples: Samples::new(&outcome.series.samples, scenario.budgets.len()),
        first_waits: waits(&summary.first_waits),
        total_waits: waits(&summary.total_waits),
    }
}

fn waits(summary: &WaitSummary) -> Vec<Wait<'static>> {
    let known = CLASSES.iter().filter_map(|&class| Some((class, summary.classes.get(class)?)));
    known.map(|(class, waits)| wait(class, waits)).collect()
}

fn wait<'a>(class: &'a str, waits: &WaitQuantiles) -> Wait<'a> {
    let quantiles = [waits.p50, waits.p90, waits.p99, waits.max];
    let quantiles = quantiles.map(|seconds| (seconds * 1_000.0).round() as u64);
    Wait { class, count: waits.count, quantiles }
}

fn budgets(scenario: &Scenario) -> Vec<Budget<'_>> {
    let list = scenario.budgets.iter();
    list.map(|spec| Budget {
        name: &spec.name,
        path: &spec.path,
        parent: spec.parent,
        leaf: spec.is_leaf,
    })
    .collect()
}

fn hosts(scenario: &Scenario) -> Vec<Host<'_>> {
    scenario.hosts.iter().map(|spec| Host { name: &spec.name, gpus: spec.gpus }).collect()
}

/// From a failure or a drain to the next repair.
fn absences(scenario: &Scenario, unit_ms: u64, ended: u64) -> Vec<Absence> {
    let mut open: Vec<Option<(u64, HostEventKind)>> = vec![None; scenario.hosts.len()];
    let mut absences = Vec::new();
    let mut close = |host: usize, from_ms: u64, to: u64, kind: HostEventKind| {
        let (from, drain) = (from_ms / unit_ms, kind == HostEventKind::Drain);
        if from < to {
            absences.push(Absence { host, from, to, drain });
        }
    };
    for event in &scenario.hosts_events {
        let before = open[event.host];
        open[event.host] = match (event.kind, before) {
            (HostEventKind::Repair, _) => None,
            (HostEventKind::Drain, Some(_)) => continue,
            (kind, _) => Some((event.at_ms, kind)),
        };
        if let Some((from_ms, kind)) = before {
            close(event.host, from_ms, (event.at_ms / unit_ms).min(ended), kind);
        }
    }
    for (host, open) in open.into_iter().enumerate() {
        if let Some((from_ms, kind)) = open {
            close(host, from_ms, ended, kind);
        }
    }
    absences
}
