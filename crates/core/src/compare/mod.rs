//! Policies that Bursar is compared with: what clusters run today, each faithful to its source.
//!
//! | name | source |
//! |---|---|
//! | `fifo`, `sjf` | strict head-of-line, as in the Helios study (Hu et al., SC'21) on the Philly trace ([`fifo`]) |
//! | `backfill` | EASY (Lifka 1995; Mu'alem & Feitelson 2001) ([`backfill`]) |
//! | `levels` | caps of protected GPUs per team, everything above them preemptible ([`levels`]) |
//! | `fair-tree` | Slurm's Fair Tree on decayed usage, with backfill ([`fair_share`], [`fair_tree`]) |
//! | `yarn-fair` | Hadoop YARN's Fair Scheduler with preemption ([`yarn_fair`]) |
//!
//! They decide on the same facts and with the same placement as the budget policy; contracts mean
//! nothing to them, except that a start is stamped allocated by rule 1 so that reports can compare
//! what was delivered. Bursar's rank inside a budget is unknown to all of them.
//!
//! Invariant: what a policy here remembers follows from the notices alone, and a blocked request is
//! tried again only when something happened that could unblock it. A queue of thousands costs nothing
//! while nothing is released.

pub mod backfill;
mod classes;
mod decay;
mod easy;
pub mod fair_share;
pub mod fair_tree;
pub mod fifo;
pub mod levels;
mod room;
mod rounded;
mod water;
pub mod yarn_fair;

use crate::budget::BudgetPolicy;
use crate::cluster::Placement;
use crate::policy::{Decision, Policy, Victim};
use crate::reason::StartReason;
use crate::state::{Notice, State};
use crate::units::{SpanMs, TimeMs, WorkloadIx};
use crate::workload::Status;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Every policy that [`by_name`] knows; the first one is the default.
pub const NAMES: &[&str] =
    &["budget", "fifo", "backfill", "sjf", "levels", "fair-tree", "yarn-fair"];

/// What can be set for the policies that have settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// `fair-tree`: how long until usage counts half (Slurm's PriorityDecayHalfLife); zero for never.
    pub half_life: SpanMs,
    /// `yarn-fair`: how long a queue is below its min share until it may preempt.
    pub min_share_timeout: SpanMs,
    /// `yarn-fair`: how long a queue is below the threshold until it may preempt.
    pub fair_share_timeout: SpanMs,
    /// `yarn-fair`: the part of its fair share below which a queue is starved, in millionths.
    pub fair_share_threshold_ppm: u64,
    /// `yarn-fair`: the part of its fraction of the cluster that is a queue's min share, in millionths.
    pub min_share_ppm: u64,
}

impl Default for Options {
    /// Slurm's and YARN's own defaults, but for the two timeouts: YARN's are "never", which would
    /// compare a scheduler without preemption. A minute and ten minutes are our choice.
    fn default() -> Self {
        Self {
            half_life: SpanMs::hours(7 * 24),
            min_share_timeout: SpanMs::minutes(1),
            fair_share_timeout: SpanMs::minutes(10),
            fair_share_threshold_ppm: 500_000,
            min_share_ppm: 0,
        }
    }
}

/// The policy of that name for the budgets and hosts of `state`, if there is one.
#[must_use]
pub fn by_name(name: &str, state: &State, options: &Options) -> Option<Box<dyn Policy>> {
    let policy: Box<dyn Policy> = match name {
        "budget" => Box::new(BudgetPolicy::new(state)),
        "fifo" => Box::new(fifo::HeadOfLine::fifo()),
        "sjf" => Box::new(fifo::HeadOfLine::sjf()),
        "backfill" => Box::new(backfill::Backfill::new()),
        "levels" => Box::new(levels::Levels::new(state)),
        "fair-tree" => Box::new(fair_share::FairShare::new(state, options.half_life)),
        "yarn-fair" => Box::new(yarn_fair::YarnFair::new(state, *options)),
        _ => return None,
    };
    Some(policy)
}

/// A place in a queue: some key of the policy's own, then first submission, then the order of ids.
type Place = (u64, TimeMs, u64);

fn place_of(state: &State, workload: WorkloadIx, key: u64) -> Place {
    let facts = state.workload(workload);
    (key, facts.first_submitted, facts.spec.tie)
}

/// What the submitter declared that an attempt will take: `max_runtime`, else `expected_runtime`, else
/// it never ends.
fn declared_runtime(state: &State, workload: WorkloadIx) -> SpanMs {
    let spec = &state.workload(workload).spec;
    spec.max_runtime.or(spec.expected_runtime).unwrap_or(SpanMs(u64::MAX))
}

/// Where a request fits on idle GPUs now.
fn place_idle(state: &State, workload: WorkloadIx) -> Option<Placement> {
    let spec = &state.workload(workload).spec;
    state
        .cluster
        .asks(spec.gpus, spec.shape, spec.model)
        .find_map(|(pool, ask)| state.cluster.place_idle(pool, ask, |_| true))
}

/// GPUs that are idle now, over all pools.
fn idle_gpus(state: &State) -> u32 {
    state.cluster.pools().iter().map(crate::cluster::Pool::idle).sum()
}

/// A start, stamped by rule 1.
fn start(
    state: &State,
    policy: &'static str,
    workload: WorkloadIx,
    placement: Placement,
    victims: Vec<Victim>,
) -> Decision {
    let pool = state.cluster.host(placement[0].0).pool;
    let allocated = state.would_be_allocated(workload, state.cluster.rate(pool));
    let reason = StartReason::Compared(policy);
    Decision::Start { workload, placement, allocated, reason, victims }
}

/// What a notice means for a policy that only knows who waits and who has GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Waits from now on. If it had GPUs, or a hold on some, they are given back.
    Waits(WorkloadIx),
    /// Does not wait any more, and got GPUs.
    Decided(WorkloadIx),
    /// Does not wait any more, and got none.
    Withdrawn(WorkloadIx),
    /// Runs.
    Runs(WorkloadIx),
    /// Was told to leave.
    Leaves(WorkloadIx),
    /// Has no GPUs any more.
    Gone(WorkloadIx),
    /// Hosts or shares changed, so that something might fit (or be due) that was not.
    Cluster,
    /// Nothing that matters.
    Nothing,
}

fn change_of(state: &State, notice: &Notice) -> Change {
    match *notice {
        Notice::Submitted(workload) | Notice::Requeued(workload) => Change::Waits(workload),
        Notice::Dequeued(workload) => match state.workload(workload).status {
            Status::Queued | Status::Ended => Change::Withdrawn(workload),
            Status::Held | Status::Starting | Status::Running | Status::Preempting => {
                Change::Decided(workload)
            }
        },
        Notice::Started(workload) => Change::Runs(workload),
        Notice::Preempted(workload) => Change::Leaves(workload),
        Notice::Stopped(workload, _) | Notice::Ended(workload, _) => Change::Gone(workload),
        Notice::HostDown(_)
        | Notice::HostUp(_)
        | Notice::DrainStarted(_)
        | Notice::Drained(_)
        | Notice::SharesChanged
        | Notice::TermsChanged => Change::Cluster,
        Notice::Corrected(_)
        | Notice::ProtectionEnded(_)
        | Notice::Released(_)
        | Notice::Reserved(_)
        | Notice::Unreserved(_) => Change::Nothing,
    }
}
