//! Typed reasons (rule 11): which rule, and the numbers that were compared. Edges render them.

use crate::units::{BudgetIx, HostIx, TimeMs, WorkloadIx};
use crate::wide::Ratio;
use core::fmt;

/// The name of a policy that Bursar is compared with.
pub type PolicyName = &'static str;

/// Why an attempt starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum StartReason {
    /// Rule 8: enough GPUs are idle.
    Idle {
        /// Usage ratio of its budget before the start.
        ratio: Ratio,
    },
    /// Rule 6: others leave for it.
    Preempting {
        /// Usage ratio of its budget with its contract committed.
        ratio_after: Ratio,
        /// How many leave.
        victims: u32,
    },
    /// Rule 7: its reservation is due.
    Promised {
        /// The moment that was promised.
        until: TimeMs,
    },
    /// Rule 1: unallocated, on idle GPUs.
    Unallocated,
    /// Nobody asked us: it was found running. Rule 2: it is charged all the same.
    Elsewhere,
    /// A policy that Bursar is compared with decided so.
    // Only simulations compare; what is written down is a live site's.
    #[cfg_attr(feature = "serde", serde(skip))]
    Compared(PolicyName),
}

impl StartReason {
    /// The number of the rule in docs/policy; 0 for policies that Bursar is compared with.
    #[must_use]
    pub const fn rule(&self) -> u8 {
        match self {
            Self::Idle { .. } => 8,
            Self::Preempting { .. } => 6,
            Self::Promised { .. } => 7,
            Self::Unallocated => 1,
            Self::Elsewhere => 2,
            Self::Compared(_) => 0,
        }
    }
}

impl fmt::Display for StartReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle { ratio } => {
                write!(f, "rule 8: its GPUs are idle and it is next (usage ratio {ratio})")
            }
            Self::Preempting { ratio_after, victims } => write!(
                f,
                "rule 6: {victims} interruptible leave for it (usage ratio with its contract {ratio_after})"
            ),
            Self::Promised { until } => write!(f, "rule 7: its reservation for {until} is due"),
            Self::Unallocated => f.write_str("rule 1: unallocated, on idle GPUs"),
            Self::Elsewhere => f.write_str("rule 2: started elsewhere, and charged like any other"),
            Self::Compared(policy) => write!(f, "decided by policy {policy}"),
        }
    }
}

/// Why an attempt must leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum EvictReason {
    /// Rule 6: it is unallocated and an allocated request needs its GPUs.
    Unallocated {
        /// For whom.
        by: WorkloadIx,
    },
    /// Rule 6 (a): the beneficiary's side stays below by the margin after the swap.
    Swap {
        /// For whom.
        by: WorkloadIx,
        /// The beneficiary's side where the paths part.
        side: BudgetIx,
        /// The victim's side.
        against: BudgetIx,
        /// Usage ratio of the beneficiary's side after the swap.
        ratio_after: Ratio,
        /// Usage ratio of the victim's side.
        ratio_against: Ratio,
    },
    /// Rule 6 (b): same leaf, higher rank.
    Rank {
        /// For whom.
        by: WorkloadIx,
        /// The beneficiary's rank.
        rank: i32,
        /// The victim's.
        rank_against: i32,
    },
    /// Rule 7: the reservation of `by` is due.
    Promise {
        /// For whom.
        by: WorkloadIx,
        /// The moment that was promised.
        until: TimeMs,
    },
    /// Rule 9: its host drains.
    Drain {
        /// The host.
        host: HostIx,
    },
    /// A policy that Bursar is compared with decided so.
    // Only simulations compare; what is written down is a live site's.
    #[cfg_attr(feature = "serde", serde(skip))]
    Compared {
        /// For whom, if for somebody.
        by: Option<WorkloadIx>,
        /// The policy's name.
        policy: PolicyName,
    },
}

impl EvictReason {
    /// The number of the rule in docs/policy; 0 for policies that Bursar is compared with.
    #[must_use]
    pub const fn rule(&self) -> u8 {
        match self {
            Self::Unallocated { .. } | Self::Swap { .. } | Self::Rank { .. } => 6,
            Self::Promise { .. } => 7,
            Self::Drain { .. } => 9,
            Self::Compared { .. } => 0,
        }
    }

    /// For whom it leaves.
    #[must_use]
    pub const fn by(&self) -> Option<WorkloadIx> {
        match self {
            Self::Unallocated { by }
            | Self::Swap { by, .. }
            | Self::Rank { by, .. }
            | Self::Promise { by, .. } => Some(*by),
            Self::Drain { .. } => None,
            Self::Compared { by, .. } => *by,
        }
    }
}

impl fmt::Display for EvictReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unallocated { .. } => {
                f.write_str("rule 6: unallocated, and an allocated request needs the GPUs")
            }
            Self::Swap { ratio_after, ratio_against, .. } => write!(
                f,
                "rule 6: usage ratio {ratio_against} here, {ratio_after} on the other side even after the swap"
            ),
            Self::Rank { rank, rank_against, .. } => {
                write!(f, "rule 6: rank {rank} comes before rank {rank_against} in this budget")
            }
            Self::Promise { until, .. } => {
                write!(f, "rule 7: these hosts were promised to another workload from {until} on")
            }
            Self::Drain { .. } => {
                f.write_str("rule 9: the host drains and its protection has ended")
            }
            Self::Compared { policy, .. } => write!(f, "decided by policy {policy}"),
        }
    }
}

/// What a waiting workload waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// Rule 7: hosts are reserved for it.
    Reserved {
        /// It starts by then, plus grace.
        until: TimeMs,
    },
    /// Its GPUs are held; those who leave have until then.
    Grace {
        /// By when the last is gone.
        until: TimeMs,
    },
    /// Rule 4: its budget is funded, others are served first, and nothing that it may take fits it.
    Order {
        /// Usage ratio of its budget.
        ratio: Ratio,
        /// Allocated requests before it in the order.
        ahead: u32,
        /// GPUs that it may take now: idle ones, unallocated ones and sides that rule 6 allows.
        takeable_gpus: u32,
        /// By when it starts if it stays where it is in the order, if that can be known now.
        until: Option<TimeMs>,
    },
    /// Rule 1: unallocated work waits for idle GPUs; nothing is promised.
    Idle {
        /// Idle GPUs that it may use.
        idle_gpus: u32,
    },
    /// Unallocated work that was preempted again and again backs off.
    BacksOff {
        /// Until then.
        until: TimeMs,
    },
    /// The policy in use explains nothing.
    Compared(&'static str),
}

impl WaitReason {
    /// The number of the rule in docs/policy; 0 for policies that Bursar is compared with.
    #[must_use]
    pub const fn rule(&self) -> u8 {
        match self {
            Self::Reserved { .. } => 7,
            Self::Grace { .. } | Self::BacksOff { .. } => 6,
            Self::Order { .. } => 4,
            Self::Idle { .. } => 1,
            Self::Compared(_) => 0,
        }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserved { until } => {
                write!(f, "rule 7: hosts are reserved for it; it starts by {until}")
            }
            Self::Grace { until } => {
                write!(f, "rule 6: its GPUs are held; the work on them leaves by {until}")
            }
            Self::Order { ratio, ahead, takeable_gpus, until } => {
                write!(
                    f,
                    "rule 4: {ahead} allocated requests come before it (usage ratio {ratio}); it may take {takeable_gpus} GPUs now, not where it fits"
                )?;
                match until {
                    Some(until) => write!(f, "; it starts by {until} if it stays where it is"),
                    None => Ok(()),
                }
            }
            Self::Idle { idle_gpus } => {
                write!(f, "rule 1: unallocated; {idle_gpus} GPUs are idle, not where it fits")
            }
            Self::BacksOff { until } => {
                write!(f, "rule 6: unallocated and preempted repeatedly; tried again at {until}")
            }
            Self::Compared(policy) => write!(f, "waits by policy {policy}"),
        }
    }
}
