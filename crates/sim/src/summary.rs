//! `summary.json`: the metrics of docs/metrics.md, per policy.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// All policies of one run, in the order in which they were asked for.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The scenario's name.
    pub scenario: String,
    /// The seed in force.
    pub seed: u64,
    /// One entry per policy, keyed by its name.
    #[serde(serialize_with = "by_policy")]
    pub policies: Vec<PolicySummary>,
}

fn by_policy<S: Serializer>(list: &[PolicySummary], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(list.len()))?;
    for summary in list {
        map.serialize_entry(&summary.policy, summary)?;
    }
    map.end()
}

/// What one policy did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PolicySummary {
    /// The policy.
    pub policy: String,
    /// The span that the metrics cover starts at 0 and ends here: when work stops arriving. Waits cover
    /// the whole run.
    pub measured_seconds: f64,
    /// When the run ended.
    pub ended_seconds: f64,
    /// Sum of min(delivered, owed) over leaves / sum of owed.
    pub delivered_ratio: f64,
    /// The leaf with the least delivered ratio.
    pub worst_budget: String,
    /// Its delivered ratio.
    pub worst_delivered_ratio: f64,
    /// Leaves that are owed something.
    pub budgets_owed: u32,
    /// Of these, leaves delivered at least 95 %.
    pub budgets_at_95: u32,
    /// Occupied / in-service GPU-time.
    pub occupancy: f64,
    /// In-service / all GPU-time.
    pub availability: f64,
    /// Unallocated / occupied GPU-time.
    pub unallocated_share: f64,
    /// (Occupied - lost) / in-service GPU-time.
    pub goodput: f64,
    /// Lost / occupied GPU-time.
    pub lost_share: f64,
    /// GPU-hours of the span, by what the GPUs did.
    pub gpu_hours: GpuHours,
    /// Lost GPU-hours, by cause.
    pub lost_gpu_hours: LostGpuHours,
    /// GPU-seconds charged over the whole run, per budget; `(all)` is the root.
    pub charged_gpu_seconds: BTreeMap<String, f64>,
    /// GPU-seconds of unallocated work over the whole run.
    pub unallocated_gpu_seconds: f64,
    /// GPU-seconds lost over the whole run.
    pub lost_gpu_seconds: f64,
    /// Per leaf.
    pub budgets: Vec<BudgetSummary>,
    /// Waits from submission to the first start.
    pub first_waits: WaitSummary,
    /// Waits from every (re)queueing to the next start, summed per workload.
    pub total_waits: WaitSummary,
    /// Attempts that were told to leave.
    pub preemptions: Preemptions,
    /// Attempts that were stopped while protected, by cause.
    pub breaches: BTreeMap<String, u64>,
    /// Promises (rule 7).
    pub reservations: ReservationSummary,
    /// Whether allocated + unallocated + idle + out of service = GPUs x time held to the GPU-ms, and the
    /// same followed from the attempts alone (rule 12).
    pub conservation_exact: bool,
    /// Workloads that had not ended when the run did.
    pub unfinished: u64,
    /// Submissions that the core refused.
    pub refused: u64,
    /// What the simulation took.
    pub simulator: SimulatorSummary,
}

/// GPU-hours by what the GPUs did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GpuHours {
    /// Charged to budgets.
    pub allocated: f64,
    /// Charged to nobody.
    pub unallocated: f64,
    /// In service, not occupied.
    pub idle: f64,
    /// On hosts that are drained or down.
    pub out_of_service: f64,
    /// All GPUs x time.
    pub total: f64,
}

/// Lost GPU-hours by cause.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LostGpuHours {
    /// Work since the last checkpoint, and start-up repeated, of allocated attempts that were preempted.
    pub allocated: f64,
    /// The same of unallocated attempts.
    pub unallocated: f64,
    /// Of both, what failed hosts caused.
    pub host_failures: f64,
    /// Of both, work that cannot resume.
    pub not_resumable: f64,
    /// Of both, start-up repeated.
    pub startup_repeated: f64,
}

/// One leaf.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BudgetSummary {
    /// Its path.
    pub budget: String,
    /// Its fraction of everything at the end of the span.
    pub fraction: f64,
    /// GPU-hours that it was owed.
    pub owed_gpu_hours: f64,
    /// GPU-hours that it was charged.
    pub delivered_gpu_hours: f64,
    /// GPU-hours that its fraction came to.
    pub allocation_gpu_hours: f64,
    /// GPU-hours that it used unallocated.
    pub unallocated_gpu_hours: f64,
    /// min(1, delivered / owed).
    pub delivered_ratio: f64,
}

/// Waits of several classes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WaitSummary {
    /// `debug`, `1`, `2-8`, `9-64`, `65-256`, `>256`, `all`: work with a contract; `unallocated`: the rest.
    pub classes: BTreeMap<String, WaitQuantiles>,
    /// Work with a contract, per leaf.
    pub budgets: BTreeMap<String, WaitQuantiles>,
}

/// Quantiles in seconds. Who still waited at the end of the run counts with the wait so far.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WaitQuantiles {
    /// How many.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90 %.
    pub p90: f64,
    /// 99 %.
    pub p99: f64,
    /// Longest.
    pub max: f64,
}

/// Attempts that were told to leave.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Preemptions {
    /// All.
    pub total: u64,
    /// Of these, allocated attempts.
    pub allocated: u64,
    /// By the number of the rule; 0 for policies that Bursar is compared with.
    pub by_rule: BTreeMap<u8, u64>,
}

/// Promises (rule 7).
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReservationSummary {
    /// Holders that got one.
    pub made: u64,
    /// Holders that started by T plus grace.
    pub met: u64,
    /// Holders that started later, or still wait past it.
    pub missed: u64,
    /// The longest time from a first reservation to the start.
    pub longest_wait_seconds: f64,
}

/// What the simulation took.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SimulatorSummary {
    /// Workloads submitted.
    pub workloads: u64,
    /// Facts applied to the core.
    pub events: u64,
    /// Times that the core planned.
    pub passes: u64,
    /// Real time. The only figure that differs from run to run.
    pub wall_seconds: f64,
}
