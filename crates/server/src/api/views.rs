//! What the API shows, with moments as milliseconds since 1970.

use bursar_site::views::{Standing, Why};
use bursar_site::work::{Attempt, Ending};
use bursar_site::{Site, Work};
use serde::Serialize;
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
    pub(crate) text: String,
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

fn why_view(why: Why, unix: &dyn Fn(u64) -> u64) -> WhyView {
    WhyView {
        rule: why.rule,
        text: why.text,
        starts_by_unix_ms: why.until_ms.map(unix),
        usage_ratio: why.usage_ratio,
        ahead: why.ahead,
        takeable_gpus: why.takeable_gpus,
    }
}

pub(crate) fn workload(site: &Site, work: &Work, unix: &dyn Fn(u64) -> u64) -> WorkloadView {
    let live = work.latest().filter(|attempt| attempt.ended_ms.is_none());
    let charged: u64 = work.attempts.iter().map(|one| site.charged_so_far(one)).sum();
    WorkloadView {
        workload: work.number,
        name: work.declared.name.clone(),
        user: work.declared.user.clone(),
        budget: work.declared.budget.clone(),
        gpus: work.declared.gpus,
        rank: work.declared.rank,
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
        why: site.why(work).map(|why| why_view(why, unix)),
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
        eviction: one.eviction.as_ref().map(|eviction| EvictionView {
            at_unix_ms: unix(eviction.at_ms),
            leave_by_unix_ms: unix(eviction.leave_by_ms),
            by: eviction.by,
            rule: eviction.rule,
            reason: eviction.reason.clone(),
            side: eviction.side.clone(),
            against: eviction.against.clone(),
        }),
    };
    WorkloadDetail {
        view: workload(site, work, unix),
        declared: work.declared.clone(),
        history: work.attempts.iter().map(attempt).collect(),
        progress: None,
    }
}
