//! What the API shows, with moments as milliseconds since 1970.

use bursar_site::past::Kept;
use bursar_site::views::Standing;
use bursar_site::waiting::{Rooms, Why};
use bursar_site::work::{Attempt, Ending, Eviction};
use bursar_site::{Site, Work};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A workload in a list.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct WorkloadView {
    pub(crate) workload: u64,
    pub(crate) name: String,
    pub(crate) user: String,
    pub(crate) budget: String,
    pub(crate) gpus: u32,
    pub(crate) rank: i32,
    /// Free words of its submitter.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
    /// What it is in the engine's own queue, such as Slurm's, if it came through that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) arrived: Option<bursar_site::record::Arrived>,
    pub(crate) state: Standing,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ending: Option<Ending>,
    pub(crate) submitted_unix_ms: u64,
    pub(crate) attempts: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allocated: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) started_unix_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) protected_until_unix_ms: Option<u64>,
    pub(crate) charged_gpu_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<WhyView>,
}

/// What a workload waits for.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct WhyView {
    pub(crate) rule: u8,
    /// A short sentence.
    pub(crate) text: String,
    /// What more there is to say: who has the GPUs, what stands between it and them.
    pub(crate) more: Vec<String>,
    /// When the first protection of those ends who have GPUs that it could use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) frees_unix_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) starts_by_unix_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage_ratio: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ahead: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) takeable_gpus: Option<u32>,
}

/// All of a workload.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct WorkloadDetail {
    #[serde(flatten)]
    pub(crate) view: WorkloadView,
    pub(crate) declared: bursar_site::declare::Declared,
    pub(crate) history: Vec<AttemptView>,
    /// Why it was last told to leave for others, and what was kept; also while it waits again or runs again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) preempted: Option<PreemptedView>,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<EndView>,
    /// What it said last about its progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<serde_json::Value>,
}

/// One attempt.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct AttemptView {
    pub(crate) attempt: u32,
    pub(crate) allocated: bool,
    pub(crate) placement: Vec<(String, Vec<u32>)>,
    pub(crate) rule: u8,
    pub(crate) reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) started_unix_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) protected_until_unix_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended_unix_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<bursar_site::record::Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoint_unix_ms: Option<u64>,
    pub(crate) charged_gpu_ms: u64,
    pub(crate) lost_gpu_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) eviction: Option<EvictionView>,
}

/// Why an attempt was told to leave.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct EvictionView {
    pub(crate) at_unix_ms: u64,
    pub(crate) leave_by_unix_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<u64>,
    pub(crate) rule: u8,
    pub(crate) reason: String,
    /// The beneficiary's side of the tree, and its usage ratio after the swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) side: Option<(String, String)>,
    /// The own side, and its usage ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) against: Option<(String, String)>,
}

/// The last time that a workload was told to leave for others.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct PreemptedView {
    pub(crate) attempt: u32,
    #[serde(flatten)]
    pub(crate) eviction: EvictionView,
    pub(crate) kept: Kept,
    pub(crate) lost_gpu_ms: u64,
    /// When it had last saved by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoint_unix_ms: Option<u64>,
}

/// How a workload ended.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct EndView {
    /// One sentence.
    pub(crate) text: String,
    /// When its last attempt ended; none if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) at_unix_ms: Option<u64>,
    /// The exit code of its command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exit_code: Option<i32>,
    /// The signal that ended its command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signal: Option<i32>,
    /// The workload that it waited for, and that ended otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) because_of: Option<u64>,
}

fn eviction_view(eviction: &Eviction, unix: &dyn Fn(u64) -> u64) -> EvictionView {
    EvictionView {
        at_unix_ms: unix(eviction.at_ms),
        leave_by_unix_ms: unix(eviction.leave_by_ms),
        by: eviction.by,
        rule: eviction.rule,
        reason: eviction.reason.clone(),
        side: eviction.side.clone(),
        against: eviction.against.clone(),
    }
}

fn why_view(why: Why, unix: &dyn Fn(u64) -> u64) -> WhyView {
    WhyView {
        rule: why.rule,
        text: why.text,
        more: why.more,
        frees_unix_ms: why.frees_ms.map(unix),
        starts_by_unix_ms: why.until_ms.map(unix),
        usage_ratio: why.usage_ratio,
        ahead: why.ahead,
        takeable_gpus: why.takeable_gpus,
    }
}

pub(crate) fn workload(
    site: &Site,
    work: &Work,
    rooms: &mut Rooms,
    unix: &dyn Fn(u64) -> u64,
) -> WorkloadView {
    let live = work.latest().filter(|attempt| attempt.ended_ms.is_none());
    let charged: u64 = work.attempts.iter().map(|one| site.charged_so_far(one)).sum();
    WorkloadView {
        workload: work.number,
        name: work.declared.name.clone(),
        user: work.declared.user.clone(),
        budget: work.declared.budget.clone(),
        gpus: work.declared.gpus,
        rank: work.declared.rank,
        labels: work.declared.labels.clone(),
        arrived: work.arrived.clone(),
        state: site.standing(work),
        ending: site.ending(work),
        submitted_unix_ms: unix(work.submitted_ms),
        attempts: work.attempts.len(),
        allocated: live.map(|attempt| attempt.allocated),
        started_unix_ms: live.and_then(|attempt| attempt.started_ms).map(unix),
        protected_until_unix_ms: live
            .filter(|attempt| attempt.allocated)
            .and_then(|attempt| attempt.protected_until_ms)
            .map(unix),
        charged_gpu_ms: charged,
        why: site.why_among(work, rooms).map(|why| why_view(why, unix)),
    }
}

pub(crate) fn detail(site: &Site, work: &Work, unix: &dyn Fn(u64) -> u64) -> WorkloadDetail {
    let attempt = |one: &Attempt| AttemptView {
        attempt: one.number,
        allocated: one.allocated,
        placement: one.placement.clone(),
        rule: one.rule,
        reason: one.reason.clone(),
        started_unix_ms: one.started_ms.map(unix),
        protected_until_unix_ms: one.protected_until_ms.filter(|_| one.allocated).map(unix),
        ended_unix_ms: one.ended_ms.map(unix),
        outcome: one.outcome,
        exit_code: one.exit_code,
        detail: one.detail.clone(),
        checkpoint_unix_ms: one.checkpoint_ms.map(unix),
        charged_gpu_ms: site.charged_so_far(one),
        lost_gpu_ms: one.lost_gpu_ms,
        eviction: one.eviction.as_ref().map(|eviction| eviction_view(eviction, unix)),
    };
    let preempted = site.last_eviction(work).map(|(attempt, eviction)| PreemptedView {
        attempt: attempt.number,
        eviction: eviction_view(eviction, unix),
        kept: site.kept(work, attempt),
        lost_gpu_ms: attempt.lost_gpu_ms,
        checkpoint_unix_ms: attempt.checkpoint_ms.map(unix),
    });
    let end = site.end_of(work).map(|end| EndView {
        text: end.text,
        at_unix_ms: end.at_ms.map(unix),
        exit_code: end.exit_code,
        signal: end.signal,
        because_of: end.because_of,
    });
    WorkloadDetail {
        view: workload(site, work, &mut Rooms::default(), unix),
        declared: work.declared.clone(),
        history: work.attempts.iter().map(attempt).collect(),
        preempted,
        end,
        progress: None,
    }
}
