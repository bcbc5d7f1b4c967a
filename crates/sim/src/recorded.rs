//! The policy `recorded`: nothing is decided, what really ran is played, so that it can be measured as everything else
//! is and be shown beside what a policy would have done.

use bursar_core::{Cluster, HostIx, Placement};
use bursar_scenario::{Ran, Scenario, WorkloadSpec};

/// Its name among the policies.
pub const RECORDED: &str = "recorded";

/// What of a record is still to be played.
pub(crate) struct Recorded {
    /// Starts, the latest first.
    starts: Vec<(u64, u32, u32)>,
    /// Started by the record, but what they ran on is still another's by the books: moments are rounded.
    pub(crate) blocked: Vec<(u32, u32)>,
    /// The attempt that each workload has started last.
    pub(crate) current: Vec<u32>,
}

impl Recorded {
    /// Of a scenario; none if nothing of it is known to have run.
    pub(crate) fn of(scenario: &Scenario) -> Option<Self> {
        let mut starts: Vec<(u64, u32, u32)> = Vec::new();
        for (workload, spec) in (0..).zip(&scenario.workloads) {
            starts.extend((0..).zip(&*spec.ran).map(|(nth, ran)| (ran.start_ms, workload, nth)));
        }
        if starts.is_empty() && !scenario.workloads.is_empty() {
            return None;
        }
        starts.sort_unstable_by(|a, b| b.cmp(a));
        let current = vec![0; scenario.workloads.len()];
        Some(Self { starts, blocked: Vec::new(), current })
    }

    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.starts.last().map(|start| start.0)
    }

    /// What is to be started by now, in the order of the record.
    pub(crate) fn due(&mut self, now_ms: u64) -> Vec<(u32, u32)> {
        let mut due = std::mem::take(&mut self.blocked);
        while let Some(&(at_ms, workload, nth)) =
            self.starts.last().filter(|(at, ..)| *at <= now_ms)
        {
            debug_assert!(at_ms <= now_ms);
            due.push((workload, nth));
            self.starts.pop();
        }
        due
    }
}

/// The attempt of a workload, and whether it is the last that is known.
pub(crate) fn attempt(spec: &WorkloadSpec, nth: u32) -> (&Ran, bool) {
    (&spec.ran[nth as usize], nth as usize + 1 == spec.ran.len())
}

/// Where an attempt ran.
pub(crate) fn placement(ran: &Ran) -> Placement {
    ran.on.iter().map(|&(host, gpus)| (HostIx(host), gpus)).collect()
}

/// Whether these GPUs are free by the books.
pub(crate) fn is_free(cluster: &Cluster, placement: &Placement) -> bool {
    placement.iter().all(|&(host, gpus)| cluster.host(host).free() >= gpus)
}
