//! The attempts of a run as the bars of its timeline.
//!
//! Every attempt is a bar of its own, up to [`BARS_MAX`]. Where there are more, short ones are added up
//! ([`join`]), and the page says which.

use crate::cells::join;
use crate::pack::Packed;
use bursar_scenario::{Ends, HostEventKind, Scenario};
use bursar_sim::{AttemptRecord, Outcome};

/// How many bars a page holds per policy. At about 18 bytes each this is some 4 MB, and a browser
/// draws them within half a second even without a graphics card.
pub(crate) const BARS_MAX: usize = 240_000;

/// How many cells of time short attempts are added up in, at first; fewer if there still are too many
/// bars. A screen has about as many columns of pixels.
const CELLS_MAX: u64 = 2_048;

/// Why an attempt ended. The numbers are those of `assets/data.js`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    Completed = 0,
    Failed = 1,
    Cancelled = 2,
    Requeued = 3,
    Terminated = 4,
    HostFailed = 5,
    Running = 6,
    MaxRuntime = 7,
}

/// What a bar stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    /// One attempt of a workload, by its place in the scenario.
    Attempt { workload: u32, attempt: u32 },
    /// Short attempts of one leaf on one host, added up.
    Joined { leaf: u32, attempts: u32 },
}

/// One bar, times in units of the page.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bar {
    pub(crate) start: u64,
    pub(crate) what: What,
    pub(crate) end: u64,
    pub(crate) protected_until: u64,
    pub(crate) allocated: bool,
    pub(crate) why: End,
    pub(crate) placement: Vec<(u32, u32)>,
}

/// The bars of one run, in order of their start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bars {
    pub(crate) bars: Vec<Bar>,
    /// Attempts on one host and shorter than this are added up in cells of this length; 0 if none are.
    pub(crate) joined_below: u64,
}

impl Bars {
    pub(crate) fn new(scenario: &Scenario, outcome: &Outcome, unit_ms: u64, most: usize) -> Self {
        let ended_ms = (outcome.summary.ended_seconds * 1_000.0).round() as u64;
        let ends = HostFailures::new(scenario);
        let running_at_end = outcome.summary.unfinished > 0;
        let mut bars: Vec<Bar> = outcome
            .series
            .attempts
            .iter()
            .map(|record| {
                let running = running_at_end && record.end_ms == ended_ms && !record.preempted;
                let why = if running { End::Running } else { why(scenario, &ends, record) };
                bar(record, why, unit_ms)
            })
            .collect();
        bars.sort_unstable();
        let span = ended_ms / unit_ms;
        let leaf_of = |what: What| match what {
            What::Attempt { workload, .. } => scenario.workloads[workload as usize].budget,
            What::Joined { leaf, .. } => leaf,
        };
        let mut cell = (span / CELLS_MAX).max(1);
        let mut joined_below = 0;
        let mut shown = bars;
        if shown.len() > most {
            let all = std::mem::take(&mut shown);
            loop {
                shown = join(&all, cell, leaf_of);
                joined_below = cell;
                if shown.len() <= most || cell > span {
                    break;
                }
                cell *= 2;
            }
        }
        Self { bars: shown, joined_below }
    }

    /// Packs the bars; `place` tells where the name of a workload stands.
    pub(crate) fn pack(&self, place: impl Fn(u32) -> u64) -> String {
        let mut packed = Packed::default();
        let mut before = 0;
        for bar in &self.bars {
            packed.put(bar.start - before);
            before = bar.start;
            match bar.what {
                What::Attempt { workload, attempt } => {
                    packed.put(place(workload) + 1);
                    packed.put(u64::from(attempt));
                }
                What::Joined { leaf, attempts } => {
                    packed.put(0);
                    packed.put(u64::from(leaf));
                    packed.put(u64::from(attempts));
                }
            }
            packed.put(bar.end - bar.start);
            packed.put(bar.protected_until - bar.start);
            packed.put(2 * bar.why as u64 + u64::from(bar.allocated));
            let runs = runs(&bar.placement);
            packed.put(runs.len() as u64);
            let mut next = 0;
            for (host, hosts, gpus) in runs {
                packed.put_signed(i64::from(host) - next);
                packed.put(u64::from(hosts));
                packed.put(u64::from(gpus));
                next = i64::from(host) + i64::from(hosts);
            }
        }
        packed.into_text()
    }
}

/// Hosts in declared order as runs: first host, how many, GPUs on each.
fn runs(placement: &[(u32, u32)]) -> Vec<(u32, u32, u32)> {
    let mut runs: Vec<(u32, u32, u32)> = Vec::new();
    for &(host, gpus) in placement {
        match runs.last_mut() {
            Some((first, hosts, each)) if *first + *hosts == host && *each == gpus => *hosts += 1,
            _ => runs.push((host, 1, gpus)),
        }
    }
    runs
}

fn bar(record: &AttemptRecord, why: End, unit_ms: u64) -> Bar {
    let mut placement = record.placement.clone();
    placement.sort_unstable();
    let start = record.start_ms / unit_ms;
    let end = (record.end_ms / unit_ms).max(start);
    Bar {
        start,
        what: What::Attempt { workload: record.workload, attempt: record.attempt },
        end,
        protected_until: (record.protected_until_ms / unit_ms).clamp(start, end),
        allocated: record.allocated,
        why,
        placement,
    }
}

/// When which host failed.
struct HostFailures(Vec<(u64, u32)>);

impl HostFailures {
    fn new(scenario: &Scenario) -> Self {
        let failures =
            scenario.hosts_events.iter().filter(|event| event.kind == HostEventKind::Fail);
        let mut list: Vec<_> = failures.map(|event| (event.at_ms, event.host as u32)).collect();
        list.sort_unstable();
        Self(list)
    }

    fn has(&self, at_ms: u64, host: u32) -> bool {
        self.0.binary_search(&(at_ms, host)).is_ok()
    }
}

/// Why an attempt ended. Records say only whether it was told to leave; the rest follows from the
/// workload and from what happened to its hosts.
fn why(scenario: &Scenario, failures: &HostFailures, record: &AttemptRecord) -> End {
    let spec = &scenario.workloads[record.workload as usize];
    let lived_ms = record.end_ms - record.start_ms;
    if record.preempted {
        return if spec.resumable { End::Requeued } else { End::Terminated };
    }
    if record.placement.iter().any(|&(host, _)| failures.has(record.end_ms, host)) {
        return End::HostFailed;
    }
    if spec.max_runtime_ms == Some(lived_ms) {
        return End::MaxRuntime;
    }
    match spec.ends {
        Ends::Completed => End::Completed,
        Ends::Failed => End::Failed,
        Ends::Cancelled => End::Cancelled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_size_are_one_run() {
        assert_eq!(
            runs(&[(0, 8), (1, 8), (2, 8), (4, 8), (5, 2)]),
            [(0, 3, 8), (4, 1, 8), (5, 1, 2)]
        );
        assert_eq!(runs(&[]), []);
    }
}
