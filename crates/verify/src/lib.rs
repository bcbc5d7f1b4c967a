//! Bursar's independent checker: reads an event log and says whether the rules were kept.
//!
//! [`verify`] replays a log (docs/formats.md) against the scenario that it came from and judges each
//! entry by rules 1, 4 to 9 and 12, and what each attempt lost. It is written from the rules alone and shares nothing with what
//! made the log.
//!
//! Invariants: this crate depends on bursar-scenario, never on bursar-core or bursar-sim. Nothing is
//! compared in floats. Where the log leaves open what was decided when (see `timeline` and `fog`), the
//! reading that favours the planner counts, and the check is listed as undecided if it would fail otherwise.
//!
//! Absent on purpose: any planning. What is not checked: whether T was the earliest possible moment
//! (only that it never moves later and is at most max(H, A) away), in what order victims were chosen
//! (only that each was allowed and needed), the order of unallocated requests among themselves,
//! whether something that could have been preempted for a waiting request was, and when work
//! completes. Logs of other policies than `budget` are checked for what holds for all: a possible
//! history, gang shapes, no GPU given twice, and conservation; broken contracts are counted.

mod attempts;
mod books;
mod close;
mod exact;
mod fog;
mod holds;
mod hosts;
mod log;
mod losses;
mod placement;
mod pools;
mod promises;
mod replay;
mod report;
mod shares;
mod starts;
mod state;
mod swaps;
mod timeline;

use bursar_scenario::{Scenario, one_line};
use log::RawEntry;
use replay::Replay;
use report::{Findings, Spot};
use std::collections::HashMap;
use std::io::BufRead;
use timeline::Entry;

pub use report::{
    Breaches, BudgetTotals, Check, CheckCount, PolicyReport, Report, Totals, Violation,
};

/// Why a log cannot be read. One line that names the place.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The input fails.
    #[error("line {line}: {source}")]
    Io {
        /// The line of the log, from 1.
        line: u64,
        /// What the system says.
        source: std::io::Error,
    },
    /// A line is not an event.
    #[error("line {line}: {}", one_line(.message))]
    Malformed {
        /// The line of the log, from 1.
        line: u64,
        /// What is wrong with it. It may repeat what the line holds; `Display` escapes that.
        message: String,
    },
}

/// The names of a scenario.
struct Names<'a> {
    scenario: &'a Scenario,
    workloads: HashMap<&'a str, u32>,
    hosts: HashMap<&'a str, u32>,
}

impl<'a> Names<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let workloads = scenario.workloads.iter().zip(0..);
        let hosts = scenario.hosts.iter().zip(0..);
        Self {
            scenario,
            workloads: workloads.map(|(workload, index)| (&*workload.id, index)).collect(),
            hosts: hosts.map(|(host, index)| (host.name.as_str(), index)).collect(),
        }
    }

    /// The entry with its names resolved, or what is wrong with them.
    fn resolve(&self, raw: &RawEntry<'_>, line: u64) -> Result<Entry, String> {
        let workload = |id: &str| {
            self.workloads.get(id).copied().ok_or_else(|| format!("unknown workload \"{id}\""))
        };
        let host = |name: &str| {
            self.hosts.get(name).copied().ok_or_else(|| format!("unknown host \"{name}\""))
        };
        let mut entry = Entry {
            line,
            at: raw.t.0,
            what: raw.event,
            workload: 0,
            host: 0,
            by: raw.by.as_ref().map(|id| workload(&id.0)).transpose()?,
            attempt: raw.attempt,
            rule: raw.rule,
            allocated: raw.allocated,
            protected_until: raw.protected_until.map(|until| until.0),
            decided: raw.decided.map(|decided| decided.0),
            until: raw.until.map(|until| until.0),
            lost_gpu_ms: raw.lost_gpu_seconds.map(|lost| lost.0),
            placement: Box::default(),
        };
        if raw.event.is_of_host() {
            entry.host = raw.host.as_ref().map(|name| host(&name.0)).transpose()?.unwrap_or(0);
            return Ok(entry);
        }
        entry.workload = raw.workload.as_ref().map(|id| workload(&id.0)).transpose()?.unwrap_or(0);
        let spec = &self.scenario.workloads[entry.workload as usize];
        let path = &self.scenario.budgets[spec.budget as usize].path;
        if let Some(budget) = raw.budget.as_ref().filter(|budget| budget.0 != *path) {
            return Err(format!("budget \"{}\", but the scenario says \"{path}\"", budget.0));
        }
        if let Some(gpus) = raw.gpus.filter(|gpus| *gpus != spec.gpus) {
            return Err(format!("{gpus} GPUs, but the scenario says {}", spec.gpus));
        }
        if matches!(raw.event, log::What::Started | log::What::Reserved) {
            let places = raw.placement.iter().flatten();
            let places = places.map(|place| Ok((host(&place.host.0)?, place.gpus)));
            entry.placement = places.collect::<Result<_, String>>()?;
        }
        Ok(entry)
    }
}

/// The log of one policy, as far as it was read.
struct Run {
    policy: String,
    entries: Vec<Entry>,
    findings: Findings,
}

impl Run {
    fn finish(self, scenario: &Scenario, report: &mut Report) {
        let replay = Replay::new(scenario, &self.entries, self.findings);
        let (policy, findings) = replay.run(&self.policy);
        report.events += policy.events;
        report.violations_total += policy.violations_total;
        report.policies.push(policy);
        let mut listed = findings.listed;
        listed.sort_by_key(|violation| violation.line);
        report.violations.extend(listed);
    }
}

/// Checks the event log of a simulation of `scenario`.
///
/// The log is read to its end before anything is judged, one policy at a time, since what a line
/// means can depend on later ones. What is wrong with the *history* is a [`Violation`] in the report.
///
/// # Errors
/// A line that cannot be read, is not JSON, is no event or lacks what its event needs.
pub fn verify(mut reader: impl BufRead, scenario: &Scenario) -> Result<Report, VerifyError> {
    let names = Names::new(scenario);
    let mut report = Report::default();
    let mut run: Option<Run> = None;
    let mut buffer = Vec::new();
    let mut line = 1;
    while log::next_line(&mut reader, &mut buffer, line)? {
        if buffer.iter().all(u8::is_ascii_whitespace) {
            line += 1;
            continue;
        }
        let raw = log::parse(&buffer, line)?;
        let policy = &*raw.policy.0;
        if run.as_ref().is_some_and(|run| run.policy != policy) {
            let finished = run.take();
            if let Some(finished) = finished {
                finished.finish(scenario, &mut report);
            }
            if report.policies.iter().any(|other| other.policy == policy) {
                let message = format!("policy \"{policy}\" goes on after another one");
                return Err(VerifyError::Malformed { line, message });
            }
        }
        let run = run.get_or_insert_with(|| Run {
            policy: policy.into(),
            entries: Vec::new(),
            findings: Findings::new(policy),
        });
        match names.resolve(&raw, line) {
            Ok(entry) => run.entries.push(entry),
            Err(message) => {
                let workload = raw.workload.as_ref().map(|id| &*id.0);
                let spot = Spot { at: raw.t.0, line, workload };
                run.findings.check(Check::Log, spot, false, || message);
            }
        }
        line += 1;
    }
    if let Some(run) = run {
        run.finish(scenario, &mut report);
    }
    Ok(report)
}
