//! The records of a site's journal. Written by hand and versioned: no type of the core is in them, so
//! that a journal can be read for as long as there are sites.
//!
//! Fields are only ever added, with a default; a change of meaning is a new version of its kind.

use crate::budgets::{BudgetDoc, Share};
use crate::changes::Edit;
use crate::declare::Declared;
use crate::funding::Ruling;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The version of records that this binary writes.
pub const RECORD_VERSION: u32 = 1;

/// One record: what happened, when and through whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its place in the journal, from 1 without gaps.
    pub seq: u64,
    /// Milliseconds since the site was created; never less than before.
    pub at_ms: u64,
    /// Through whom, where a person or a token asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// What happened.
    pub body: Body,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Body {
    /// The first record: what the site is.
    Created(Created),
    /// The budget tree was changed.
    BudgetsChanged(BudgetsChanged),
    /// A change set is to hold from a later moment on. Its number is that of its record.
    ChangeScheduled {
        /// From when on, in milliseconds since the site was created.
        effective_ms: u64,
        /// Why.
        reason: String,
        /// What it will change.
        edits: Vec<Edit>,
    },
    /// A scheduled change set will not be made.
    ScheduleDropped {
        /// Its number.
        change: u64,
        /// Why: withdrawn by somebody, or it did not fit when its moment came.
        why: String,
    },
    /// Terms of the tree in force were laid out further.
    TermsLaidOut {
        /// All of them from now on.
        terms: Vec<TermSpan>,
        /// Until when, in milliseconds since the site was created.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until_ms: Option<u64>,
    },
    /// GPU-hours of a term went to the same term of a sibling.
    Transferred {
        /// The budget that gave.
        from: String,
        /// Which of its terms.
        from_series: u32,
        /// The budget that got.
        to: String,
        /// Which of its terms.
        to_series: u32,
        /// When these terms began.
        term_from_ms: u64,
        /// Thousandths of a GPU-hour at rate 1.
        milli_gpu_hours: u64,
        /// Why.
        reason: String,
    },
    /// Somebody asked for funding. Its number is that of this record.
    FundingAsked {
        /// For which budget; one that is not there yet is to be made.
        budget: String,
        /// Which share.
        share: Share,
        /// So many GPUs on average, if it was asked for so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gpus: Option<f64>,
        /// From when on, in milliseconds since the site was created.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from_ms: Option<u64>,
        /// Why.
        reason: String,
    },
    /// A funding request was decided. What it changes is a record of its own.
    FundingDecided {
        /// Its number.
        request: u64,
        /// What was decided.
        ruling: Ruling,
        /// Why.
        reason: String,
    },
    /// A workload was accepted.
    Submitted(Box<Submitted>),
    /// A workload that was held by its submitter may enter the queue.
    Released {
        /// The workload.
        workload: u64,
    },
    /// A workload of the engine's own queue stays out of ours for now: it has not run, and could not be started.
    HeldBack {
        /// The workload.
        workload: u64,
        /// Why.
        why: String,
        /// Until when, in milliseconds since the site was created; none if its engine says when.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until_ms: Option<u64>,
    },
    /// A workload is to leave its GPUs and wait again, or, where it has ended, to run once more.
    Requeued {
        /// The workload.
        workload: u64,
    },
    /// A workload is to end: it leaves the queue, or its attempt is to be stopped.
    Cancelled {
        /// The workload.
        workload: u64,
    },
    /// A workload that waits was found running in its engine's own queue, started by somebody else.
    Found {
        /// The workload.
        workload: u64,
        /// Hosts, and how many GPUs on each.
        placement: Vec<(String, u32)>,
        /// Since when, in milliseconds since the site was created.
        since_ms: u64,
    },
    /// Work that came through the engine's own queue ran there and was over before anybody saw it run: an attempt that
    /// nobody decided.
    Ran {
        /// The workload.
        workload: u64,
        /// Hosts, and how many GPUs on each.
        placement: Vec<(String, u32)>,
        /// From when, in milliseconds since the site was created …
        since_ms: u64,
        /// … and until when; never after the record's moment.
        ended_ms: u64,
        /// How it ended.
        outcome: Outcome,
        /// The exit code, where there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// What more the engine said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
        /// What its engine calls this run: it is told of once, whatever becomes of clocks.
        run: String,
        /// Whether the workload has ended with it: it is in the engine's queue no more.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        last: bool,
    },
    /// The engine was seen to run an attempt.
    Started {
        /// The workload.
        workload: u64,
        /// The attempt.
        attempt: u32,
        /// Since when, where that was seen late: never after the record's moment.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since_ms: Option<u64>,
    },
    /// The engine was seen to have ended an attempt.
    Stopped {
        /// The workload.
        workload: u64,
        /// The attempt.
        attempt: u32,
        /// How.
        outcome: Outcome,
        /// When, where that was seen late: never after the record's moment.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended_ms: Option<u64>,
        /// The exit code, where there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// What more the engine said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
        /// What its engine's accounts call this run, where they alone told of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<String>,
    },
    /// An attempt saved a checkpoint.
    Checkpointed {
        /// The workload.
        workload: u64,
        /// The attempt.
        attempt: u32,
    },
    /// A host is to be emptied (rule 9).
    DrainStarted {
        /// The host.
        host: String,
        /// Why.
        reason: String,
        /// Whether the engine closed it, and may open it again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_engine: bool,
    },
    /// A host is back in service, or its drain is called off.
    HostUp {
        /// The host.
        host: String,
    },
    /// A host failed.
    HostDown {
        /// The host.
        host: String,
        /// How that was noticed.
        reason: String,
        /// Whether the engine said so, and may say that it is back.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_engine: bool,
    },
    /// What the core decided at this moment was committed.
    Planned {
        /// How many decisions.
        decisions: u32,
        /// SHA-256 over their canonical text, in hexadecimal.
        hash: String,
    },
    /// Settings that no decision of the core depends on were changed.
    SettingsChanged {
        /// The contract of a workload that declares none.
        default_min_runtime_ms: u64,
        /// How long before its protection ends a workload is warned.
        warn_before_ms: u64,
    },
    /// A token was issued. Only its hash is kept.
    TokenIssued(TokenIssued),
    /// A token is void from now on.
    TokenRevoked {
        /// The token.
        token: String,
    },
}

impl Body {
    /// The kind as it is written.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Created(_) => "created",
            Self::BudgetsChanged(_) => "budgets_changed",
            Self::ChangeScheduled { .. } => "change_scheduled",
            Self::ScheduleDropped { .. } => "schedule_dropped",
            Self::TermsLaidOut { .. } => "terms_laid_out",
            Self::Transferred { .. } => "transferred",
            Self::FundingAsked { .. } => "funding_asked",
            Self::FundingDecided { .. } => "funding_decided",
            Self::Submitted(_) => "submitted",
            Self::Released { .. } => "released",
            Self::HeldBack { .. } => "held_back",
            Self::Requeued { .. } => "requeued",
            Self::Cancelled { .. } => "cancelled",
            Self::Found { .. } => "found",
            Self::Ran { .. } => "ran",
            Self::Started { .. } => "started",
            Self::Stopped { .. } => "stopped",
            Self::Checkpointed { .. } => "checkpointed",
            Self::DrainStarted { .. } => "drain_started",
            Self::HostUp { .. } => "host_up",
            Self::HostDown { .. } => "host_down",
            Self::Planned { .. } => "planned",
            Self::SettingsChanged { .. } => "settings_changed",
            Self::TokenIssued(_) => "token_issued",
            Self::TokenRevoked { .. } => "token_revoked",
        }
    }
}

/// What a site is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Created {
    /// A name for people.
    pub name: String,
    /// What tells it from all other sites: random. Sites of before have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site_id: Option<String>,
    /// The wall clock at moment 0, milliseconds since 1970.
    pub unix_ms: u64,
    /// The cluster-wide numbers of the rules.
    pub settings: SettingsDoc,
    /// Hosts in the order that placement prefers.
    pub hosts: Vec<HostDoc>,
    /// Rates per GPU model in thousandths; a model that is not named has 1000.
    #[serde(default)]
    pub rates_milli: BTreeMap<String, u64>,
}

impl Created {
    /// What tells this site from all others; for sites that were given nothing for that, what they are.
    #[must_use]
    pub fn id(&self) -> String {
        self.site_id.clone().unwrap_or_else(|| {
            let hosts = self.hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>();
            crate::plan::hash_of(&format!("{} {} {}", self.name, self.unix_ms, hosts.join(" ")))
        })
    }
}

/// The cluster-wide numbers, as the journal has them. Durations in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SettingsDoc {
    /// W.
    pub lookback_ms: u64,
    /// H.
    pub horizon_ms: u64,
    /// How long a preempted workload has at most to save and leave.
    pub grace_ms: u64,
    /// The margin of rule 6, in millionths.
    pub margin_ppm: u64,
    /// How many reservations may stand.
    pub reservations: u32,
    /// A.
    pub reservation_age_ms: u64,
    /// The last so many hosts are debug hosts.
    pub debug_hosts: u32,
    /// The contract of a workload that declares none. Shown at submit.
    pub default_min_runtime_ms: u64,
    /// How long before its protection ends a workload is warned.
    pub warn_before_ms: u64,
    /// Where days and months of terms begin and end; UTC unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

impl Default for SettingsDoc {
    fn default() -> Self {
        const MINUTE: u64 = 60_000;
        Self {
            lookback_ms: 7 * 24 * 60 * MINUTE,
            horizon_ms: 8 * 60 * MINUTE,
            grace_ms: 30_000,
            margin_ppm: 50_000,
            reservations: 1,
            reservation_age_ms: 4 * 60 * MINUTE,
            debug_hosts: 0,
            default_min_runtime_ms: 60 * MINUTE,
            warn_before_ms: 5 * MINUTE,
            time_zone: None,
        }
    }
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostDoc {
    /// Its name.
    pub name: String,
    /// How many GPUs it has.
    pub gpus: u32,
    /// Their model.
    pub model: String,
    /// Its topology domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
}

/// A change set: the whole tree as it is from now on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BudgetsChanged {
    /// The version that it makes.
    pub version: u64,
    /// Why.
    pub reason: String,
    /// The tree, by name below the root.
    pub budgets: BTreeMap<String, BudgetDoc>,
    /// Who owns the root: may divide all, and operate the cluster.
    pub owners: Vec<String>,
    /// The scheduled change set whose moment has come, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<u64>,
    /// Its terms, as a calendar laid them out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub terms: Vec<TermSpan>,
    /// Until when, in milliseconds since the site was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms_until_ms: Option<u64>,
}

impl BudgetsChanged {
    /// A site's first budgets, without terms.
    #[must_use]
    pub fn first(budgets: BTreeMap<String, BudgetDoc>, owner: &str, reason: &str) -> Self {
        Self {
            version: 1,
            reason: reason.to_owned(),
            budgets,
            owners: vec![owner.to_owned()],
            scheduled: None,
            terms: Vec::new(),
            terms_until_ms: None,
        }
    }
}

/// A term of a budget, from one moment to another. Moments are in milliseconds since the site was created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TermSpan {
    /// The budget.
    pub budget: String,
    /// Which of its terms, by their order.
    pub series: u32,
    /// Its first moment; the site's, if it began before.
    pub from_ms: u64,
    /// The first moment that is not of it any more; none if it does not end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// Thousandths of a GPU-hour at rate 1.
    pub limit_milli: u64,
    /// What was moved to it from siblings, or away.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub moved_milli: i64,
    /// Whether what the one before left is added.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub carry_over: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
const fn is_zero(value: &i64) -> bool {
    *value == 0
}

/// An accepted workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Submitted {
    /// Its number, unique for the site.
    pub workload: u64,
    /// What was declared, with every default filled in.
    pub declared: Declared,
    /// The client's key for this submission: the same key gives the same workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// SHA-256 of what was sent with it, before any default was filled in: defaults may change until it is sent
    /// again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_sha256: Option<String>,
    /// Why it does not enter the queue before somebody releases it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// What it is in the engine's own queue, if it came through that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrived: Option<Arrived>,
}

/// What a workload is in its engine's own queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Arrived {
    /// Its name there, never given again.
    pub name: String,
    /// What people know it by there: Slurm's `1234_7`.
    pub shown: String,
    /// The queue: Slurm's partition.
    pub queue: String,
}

/// How an attempt ended, as its engine saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It finished its work.
    Completed,
    /// It ended with an error.
    Failed,
    /// It was stopped because it was cancelled.
    Cancelled,
    /// It left after it was told to.
    Left,
    /// It was lost with its host, or without a trace.
    Lost,
}

/// A token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenIssued {
    /// Its name: what people see, and revoke.
    pub token: String,
    /// Whose it is.
    pub user: String,
    /// SHA-256 of the secret, in hexadecimal.
    pub secret_sha256: String,
    /// From when on it is void, in milliseconds since the site was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    /// Whether it may only read.
    #[serde(default)]
    pub read_only: bool,
}
