//! The metrics of docs/metrics.md, computed a second time from the event log alone.

use crate::logs::{Played, event, ms};
use crate::shrink::Fault;
use bursar_scenario::Scenario;
use std::collections::BTreeMap;

#[derive(Default)]
struct Books {
    /// Per budget: milli-GPU-ms charged (rates are thousandths).
    charged: Vec<u128>,
    unallocated: u128,
    occupied_gpu_ms: u128,
    /// Per attempt: a failed host's line and the requeueing that follows say the same.
    lost_gpu_ms: BTreeMap<(String, u64), u128>,
    preemptions: u64,
    running: BTreeMap<String, (u64, bool, u128)>,
    queued: BTreeMap<String, u64>,
    first_waits: BTreeMap<String, u64>,
    total_waits: BTreeMap<String, u64>,
}

fn close(name: &str, expected: f64, found: f64) -> Result<(), Fault> {
    let slack = 1e-9 * expected.abs().max(1.0);
    if (expected - found).abs() <= slack {
        return Ok(());
    }
    Err(Fault::new(
        format!("metric {name}"),
        format!("{expected} from the log, {found} in the summary"),
    ))
}

fn quantile(sorted: &[u64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).map_or(0.0, |&wait| wait as f64 / 1_000.0)
}

impl Books {
    fn stop(&mut self, scenario: &Scenario, id: &str, at: u64) {
        let Some((started, allocated, milli_rate)) = self.running.remove(id) else { return };
        let work =
            scenario.workloads.iter().find(|work| &*work.id == id).expect("it is in the scenario");
        let gpu_ms = u128::from(at - started) * u128::from(work.gpus);
        self.occupied_gpu_ms += gpu_ms;
        if !allocated {
            self.unallocated += gpu_ms * milli_rate;
            return;
        }
        let mut node = Some(work.budget as usize);
        while let Some(index) = node {
            self.charged[index] += gpu_ms * milli_rate;
            node = scenario.budgets[index].parent;
        }
    }

    fn read(&mut self, scenario: &Scenario, played: &Played) {
        self.charged = vec![0; scenario.budgets.len()];
        for line in played.lines() {
            let at = ms(&line["t"]);
            let Some(id) = line["workload"].as_str() else { continue };
            let id = id.to_owned();
            if let Some(lost) = line["lost_gpu_seconds"].as_f64() {
                let attempt = line["attempt"].as_u64().expect("an attempt");
                self.lost_gpu_ms.insert((id.clone(), attempt), (lost * 1_000.0).round() as u128);
            }
            match event(&line) {
                "submitted" => {
                    self.queued.insert(id, at);
                }
                "requeued" => {
                    self.stop(scenario, &id, at);
                    self.queued.insert(id, at);
                }
                "started" => {
                    let host = line["placement"][0]["host"].as_str().expect("a host");
                    let host =
                        scenario.hosts.iter().find(|other| other.name == host).expect("known");
                    let rate = u128::from(scenario.models[host.model].rate_milli);
                    let allocated = line["allocated"].as_bool().expect("a class");
                    let waited = at - self.queued.remove(&id).expect("it waited");
                    self.first_waits.entry(id.clone()).or_insert(waited);
                    *self.total_waits.entry(id.clone()).or_insert(0) += waited;
                    self.running.insert(id, (at, allocated, rate));
                }
                "preempted" => self.preemptions += 1,
                "completed" | "failed" | "cancelled" | "terminated" | "host_failed" => {
                    self.stop(scenario, &id, at);
                }
                _ => {}
            }
        }
    }
}

pub(crate) fn compare(scenario: &Scenario, played: &Played) -> Result<(), Fault> {
    let summary = &played.outcome.summary;
    let mut books = Books::default();
    books.read(scenario, played);
    let end = (summary.ended_seconds * 1_000.0).round() as u64;
    for id in books.running.keys().cloned().collect::<Vec<_>>() {
        books.stop(scenario, &id, end);
    }
    for (id, since) in std::mem::take(&mut books.queued) {
        books.first_waits.entry(id.clone()).or_insert(end - since);
        *books.total_waits.entry(id).or_insert(0) += end - since;
    }
    for (budget, charged) in scenario.budgets.iter().zip(&books.charged) {
        let name = if budget.path.is_empty() { "(all)" } else { &budget.path };
        close("charged", *charged as f64 / 1e6, summary.charged_gpu_seconds[name])?;
    }
    close("unallocated", books.unallocated as f64 / 1e6, summary.unallocated_gpu_seconds)?;
    close("lost", books.lost_gpu_ms.values().sum::<u128>() as f64 / 1e3, summary.lost_gpu_seconds)?;
    close("preemptions", books.preemptions as f64, summary.preemptions.total as f64)?;
    let hours = &summary.gpu_hours;
    let in_service = hours.total - hours.out_of_service;
    let occupied = books.occupied_gpu_ms as f64 / 3.6e6;
    close("occupied", occupied, hours.allocated + hours.unallocated)?;
    if in_service > 0.0 {
        close("occupancy", occupied / in_service, summary.occupancy)?;
    }
    for (name, waits, given) in [
        ("first wait", &books.first_waits, &summary.first_waits),
        ("total wait", &books.total_waits, &summary.total_waits),
    ] {
        let contract = |id: &str| {
            scenario.workloads.iter().any(|work| &*work.id == id && work.min_runtime_ms > 0)
        };
        let mut all: Vec<u64> =
            waits.iter().filter(|(id, _)| contract(id)).map(|(_, &wait)| wait).collect();
        all.sort_unstable();
        let Some(found) = given.classes.get("all") else { continue };
        close(name, all.len() as f64, found.count as f64)?;
        for (percent, figure) in
            [(50, found.p50), (90, found.p90), (99, found.p99), (100, found.max)]
        {
            close(name, quantile(&all, percent), figure)?;
        }
    }
    Ok(())
}
