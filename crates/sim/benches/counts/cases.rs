//! What is counted: each case by its name, and how many units of work it is.

use crate::count_inside;
use crate::queue::FullCluster;
use bursar_scenario::{Scenario, load_path};
use bursar_sim::{EventSink, RunOptions, SimulatorSummary, run};
use std::path::Path;

const HOUR_MS: u64 = 3_600_000;

/// Until when the lab is played: a part of its first day, with the backlog of its start.
const LAB_MS: u64 = 12 * HOUR_MS;

/// Until when the jobs of `jobs.yaml` are played under policies for which all of them take long.
const JOBS_MS: u64 = 3 * 24 * HOUR_MS;

/// Runs one case and gives the number of its units.
pub(crate) fn play(name: &str) -> Result<u64, String> {
    match name {
        "lab" => {
            let lab = scenario("../../scenarios/lab.yaml")?;
            Ok(simulate(&lab, "budget", Some(LAB_MS))?.events)
        }
        "queue-1k" => Ok(of_full_cluster(1_000)),
        "queue-10k" => Ok(of_full_cluster(10_000)),
        _ => {
            let policy = name.strip_prefix("jobs-").ok_or_else(|| format!("no case {name}"))?;
            let until_ms = (!matches!(policy, "fifo" | "sjf")).then_some(JOBS_MS);
            let jobs = scenario("benches/jobs.yaml")?;
            Ok(simulate(&jobs, policy, until_ms)?.workloads)
        }
    }
}

fn scenario(path: &str) -> Result<Scenario, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    load_path(&path, &[]).map_err(|error| error.to_string())
}

/// Counts a run of the simulator.
fn simulate(
    scenario: &Scenario,
    policy: &str,
    until_ms: Option<u64>,
) -> Result<SimulatorSummary, String> {
    let options = RunOptions { until_ms, ..RunOptions::default() };
    let mut outcome = None;
    count_inside(&mut || outcome = Some(run(scenario, policy, options, EventSink::None)));
    let outcome = outcome.expect("it was run").map_err(|error| error.to_string())?;
    Ok(outcome.summary.simulator)
}

/// Counts decisions on a full cluster where so many wait.
fn of_full_cluster(waiting: usize) -> u64 {
    let mut cluster = FullCluster::new(waiting);
    let mut events = 0;
    count_inside(&mut || events = cluster.play());
    events
}
