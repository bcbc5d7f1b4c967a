//! What a period cost and gave: availability, occupancy, what each budget was owed and delivered, who used what, waits,
//! preemptions and losses (docs/reports.md says what each figure is).
//!
//! Everything is read from the site's own books, which the fold keeps: attempts with their starts and ends, spans in
//! which workloads waited or ran, hosts in service, versions of the tree. Nothing is simulated. The attempts are the
//! ledger's lines: amounts of GPU-time of budgets and people are sums over them.
//!
//! A report is in two steps, so that the daemon is held up by the first alone: [`Site::facts`] copies what lies in the
//! period, [`Facts::report`] computes.
//!
//! [`Site::facts`]: crate::site::Site::facts

mod facts;
mod lines;
mod need;
mod owed;
mod sums;
mod waits;

pub use facts::{Asked, Begin, Facts};
pub use waits::Waits;

use crate::record::Outcome;
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// One hour, in milliseconds.
pub(crate) const HOUR_MS: u64 = 3_600_000;

/// What a period cost and gave. Amounts are whole GPU-milliseconds; moments are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Report {
    /// The site's name.
    pub site: String,
    /// Where the period begins, or the site, if that is later.
    pub from_unix_ms: u64,
    /// Where it ends, or now, if that is earlier. What happens at this very moment belongs to the next period.
    pub to_unix_ms: u64,
    /// The budget that was asked for, with all below it.
    pub budget: Option<String>,
    /// The whole cluster. Only owners of the root are told, and only if no budget was asked for.
    pub cluster: Option<ClusterRow>,
    /// Budgets of the period that one may see, parents before children. The root's path is empty.
    pub budgets: Vec<BudgetRow>,
    /// Who had workloads in it that one may see, by name.
    pub people: Vec<PersonRow>,
    /// First waits by class (docs/metrics.md).
    pub waits: BTreeMap<&'static str, Waits>,
    /// The lines of the ledger, in the order of workloads and attempts, if they were asked for.
    pub attempts: Option<Vec<AttemptRow>>,
    /// What its reader should know, a sentence each.
    pub notes: Vec<String>,
}

/// Where the GPU-time of the whole cluster went. GPU-time of GPUs, whatever their model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct ClusterRow {
    /// All GPUs times the period.
    pub total_gpu_ms: u64,
    /// Of it, on hosts that were in service. A draining host is until it is drained.
    pub in_service_gpu_ms: u64,
    /// On hosts that were drained or down.
    pub out_of_service_gpu_ms: u64,
    /// Given to work that was charged for it.
    pub allocated_gpu_ms: u64,
    /// Given to work that nobody was charged for.
    pub unallocated_gpu_ms: u64,
    /// In service and given to nobody.
    pub idle_gpu_ms: u64,
    /// To be done again, or for nothing; booked when the attempt was gone.
    pub lost_gpu_ms: u64,
    /// In service / total.
    pub availability: f64,
    /// Given to work / in service.
    pub occupancy: f64,
    /// Unallocated / given to work.
    pub unallocated_share: f64,
    /// (Given to work - lost) / in service.
    pub goodput: f64,
    /// The smaller of delivered and owed, summed over leaves / owed. 1 if nothing was owed.
    pub delivered_ratio: f64,
    /// Whether the parts add up: on no host was more given to work than was in service (rule 12).
    pub conservation_exact: bool,
}

/// What lines of the ledger add up to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct Sums {
    /// GPU-time that its attempts had, whatever the model.
    pub used_gpu_ms: u64,
    /// Of it, what nobody was charged for.
    pub unallocated_gpu_ms: u64,
    /// What was charged, at the models' rates.
    pub delivered_gpu_ms: u64,
    /// GPU-time to be done again, or for nothing; booked when the attempt was gone.
    pub lost_gpu_ms: u64,
    /// Workloads with a line.
    pub workloads: u64,
    /// Lines.
    pub attempts: u64,
    /// Attempts that were told to leave in the period.
    pub preemptions: u64,
    /// Of these, attempts that were charged.
    pub preemptions_allocated: u64,
    /// Preemptions by the number of their rule; 0 where another scheduler decided.
    pub preemptions_by_rule: BTreeMap<u8, u64>,
    /// Attempts that were stopped while they were protected, by cause.
    pub breaches: Breaches,
}

/// Protected attempts that were stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Breaches {
    /// By a scheduler: ours never does, another whose cluster is only watched may.
    pub scheduler: u64,
    /// By the failure of a host, or lost without a trace.
    pub host_failure: u64,
}

/// A budget: its own and all below it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct BudgetRow {
    /// Its path; empty for the root.
    pub path: String,
    /// Its fraction of everything when the period ended, for display; 0 if it was gone by then.
    pub fraction: f64,
    /// What its fraction of the capacity in service came to.
    pub allocation_gpu_ms: u64,
    /// What its workloads with a contract could have used, waiting or running.
    pub demand_gpu_ms: u64,
    /// For each leaf and hour the smaller of both, summed.
    pub owed_gpu_ms: u64,
    /// For each leaf the smaller of delivered and owed, summed.
    pub met_gpu_ms: u64,
    /// Met / owed; 1 if nothing was owed.
    pub delivered_ratio: f64,
    /// Unallocated / used.
    pub unallocated_share: f64,
    /// What its lines add up to.
    #[serde(flatten)]
    pub sums: Sums,
    /// First waits of its workloads with a contract: those that ended in the period, by a start or otherwise, and those
    /// that went on at its end.
    pub first_waits: Waits,
    /// How long each of its workloads with a contract waited in the period, of those that waited or started in it.
    pub waited: Waits,
}

/// A person, with all of their workloads that the asker may see.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct PersonRow {
    /// Who.
    pub user: String,
    /// What their lines add up to.
    #[serde(flatten)]
    pub sums: Sums,
    /// First waits, as for budgets.
    pub first_waits: Waits,
    /// Waited in the period, as for budgets.
    pub waited: Waits,
}

/// A line of the ledger: the part of one attempt that lies in the period.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct AttemptRow {
    /// The workload.
    pub workload: u64,
    /// The attempt.
    pub attempt: u32,
    /// The workload's name.
    pub name: String,
    /// The budget that pays.
    pub budget: String,
    /// For whom it ran.
    pub user: String,
    /// How many GPUs it had.
    pub gpus: u64,
    /// Their model.
    pub model: String,
    /// What one of its GPU-hours costs, in thousandths.
    pub rate_milli: u64,
    /// On which hosts, and how many on each: `h-0:8;h-1:4`.
    pub hosts: String,
    /// Whether it was charged (rule 1).
    pub allocated: bool,
    /// When it started.
    pub started_unix_ms: u64,
    /// When it ended; null while it has not.
    pub ended_unix_ms: Option<u64>,
    /// Where its part in the period begins.
    pub from_unix_ms: u64,
    /// Where that ends.
    pub to_unix_ms: u64,
    /// GPU-time of that part.
    pub used_gpu_ms: u64,
    /// What was charged for it, at the model's rate.
    pub delivered_gpu_ms: u64,
    /// What was lost with it, if it was gone in the period: all that it lost.
    pub lost_gpu_ms: u64,
    /// How it ended, if it has.
    pub outcome: Option<Outcome>,
    /// The rule by which it was told to leave, if that was in the period.
    pub preempted_by_rule: Option<u8>,
    /// What stopped it while it was protected, if anything did, in the period.
    pub breach: Option<Cause>,
}

/// What stopped a protected attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A scheduler.
    Scheduler,
    /// The failure of a host, or it was lost without a trace.
    HostFailure,
}

/// A part of a whole, for display; 0 of nothing.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// How much of what was owed was met: all of nothing.
pub(crate) fn met_share(met: u64, owed: u64) -> f64 {
    if owed == 0 { 1.0 } else { met as f64 / owed as f64 }
}
