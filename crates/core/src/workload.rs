//! A workload: what was declared, and where it stands.

use crate::cluster::Placement;
use crate::policy::Reservation;
use crate::reason::{EvictReason, StartReason};
use crate::units::{BudgetIx, ModelIx, SpanMs, TimeMs, WorkloadIx};
use core::fmt;

/// What a workload declares, as the core needs it. The edges keep names, commands and the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WorkloadSpec {
    /// Orders workloads that are equal in everything else: the order of their ids (rule 4). Unique.
    pub tie: u64,
    /// The leaf that pays.
    pub budget: BudgetIx,
    /// GPUs of the whole gang.
    pub gpus: u32,
    /// An explicit shape: hosts, GPUs on each. Without it rule 8 decides.
    pub shape: Option<(u32, u32)>,
    /// The model it must have; any one model when absent.
    pub model: Option<ModelIx>,
    /// The contract's length. Zero asks to be unallocated (rule 1).
    pub min_runtime: SpanMs,
    /// The engine ends an attempt at this age.
    pub max_runtime: Option<SpanMs>,
    /// What the submitter or a trace expects it to run; read only by policies that need an oracle.
    pub expected_runtime: Option<SpanMs>,
    /// Whether it can continue after a preemption.
    pub resumable: bool,
    /// Orders workloads inside a leaf, high first.
    pub rank: i32,
    /// How often it saves by itself.
    pub checkpoint_interval: Option<SpanMs>,
    /// Whether it saves when it gets the checkpoint signal, within its grace.
    pub checkpoint_on_signal: bool,
    /// Its grace, where it is shorter than the cluster's.
    pub grace: Option<SpanMs>,
    /// How long an attempt takes before it works; only weighs in the choice of victims.
    pub startup: SpanMs,
}

/// Where a live workload stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Status {
    /// Waits for GPUs.
    Queued,
    /// Its GPUs are held until the work that is on them has left.
    Held,
    /// The engine was told to start it.
    Starting,
    /// Runs.
    Running,
    /// Was told to leave; runs until it is gone.
    Preempting,
    /// Has ended for good; its place is used again soon.
    Ended,
}

/// A live workload.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Workload {
    /// What it declares.
    pub spec: WorkloadSpec,
    /// Where it stands.
    pub status: Status,
    /// When it was first submitted; kept over preemptions (rule 6).
    pub first_submitted: TimeMs,
    /// Since when it waits this time.
    pub queued_since: TimeMs,
    /// The number of its latest attempt; 0 before the first.
    pub attempt: u32,
    /// The hosts of its current attempt.
    pub placement: Placement,
    /// The hosts that its latest attempt left.
    pub left: Placement,
    /// While it is held: GPUs that it waits for, per host.
    pub awaits: Placement,
    /// Its class, stamped when the attempt is decided (rule 1).
    pub allocated: bool,
    /// GPUs x rate of the current attempt, in units per millisecond.
    pub units: u64,
    /// When the current attempt started.
    pub started: TimeMs,
    /// When its protection ends or ended; its start for unallocated attempts.
    pub protected_until: TimeMs,
    /// Whether it is protected now.
    pub protected: bool,
    /// When the latest attempt that ran ended.
    pub ended: TimeMs,
    /// When the current attempt was decided.
    pub decided: TimeMs,
    /// The reservation that the decision kept, until the attempt runs: it stands again should a host be lost.
    pub promised: Option<Reservation>,
    /// Why the current attempt started.
    pub start_reason: Option<StartReason>,
    /// Why it was told to leave, and for whom.
    pub evict_reason: Option<EvictReason>,
    /// By when it must be gone.
    pub leave_by: TimeMs,
    /// How often in a row unallocated attempts of it were preempted (rule 6's back-off).
    pub unallocated_preemptions: u32,
    /// Until when it backs off.
    pub backs_off_until: TimeMs,
}

impl Workload {
    /// A workload that enters the queue.
    #[must_use]
    pub fn new(spec: WorkloadSpec, now: TimeMs) -> Self {
        Self {
            spec,
            status: Status::Queued,
            first_submitted: now,
            queued_since: now,
            attempt: 0,
            placement: Placement::default(),
            left: Placement::default(),
            awaits: Placement::default(),
            allocated: false,
            units: 0,
            started: now,
            protected_until: now,
            protected: false,
            ended: now,
            decided: now,
            promised: None,
            start_reason: None,
            evict_reason: None,
            leave_by: TimeMs::NEVER,
            unallocated_preemptions: 0,
            backs_off_until: now,
        }
    }

    /// How long an attempt is protected: never more than its max_runtime leaves (rule 3).
    #[must_use]
    pub fn protection(&self) -> SpanMs {
        match self.spec.max_runtime {
            Some(max) => max.min(self.spec.min_runtime),
            None => self.spec.min_runtime,
        }
    }

    /// Time lost per GPU if the running attempt had to leave at `now`: since its last checkpoint, or
    /// since its start when it knows none or cannot resume; nothing when it saves on the signal.
    #[must_use]
    pub fn lost_if_stopped(&self, now: TimeMs) -> SpanMs {
        let age = now.since(self.started);
        if !self.spec.resumable {
            return age;
        }
        if self.spec.checkpoint_on_signal {
            return SpanMs::ZERO;
        }
        match self.spec.checkpoint_interval {
            Some(interval) if interval.0 > 0 => {
                let work = age - self.spec.startup;
                SpanMs(work.0 % interval.0 + age.0.min(self.spec.startup.0))
            }
            _ => age,
        }
    }

    /// What [`Workload::lost_if_stopped`] may be expected to be at a later moment: exact for `at == now`,
    /// half an interval where the phase of its checkpoints may have shifted by then.
    #[must_use]
    pub fn loss_expected_at(&self, at: TimeMs, now: TimeMs) -> SpanMs {
        match self.spec.checkpoint_interval {
            Some(interval)
                if at > now && self.spec.resumable && !self.spec.checkpoint_on_signal =>
            {
                SpanMs(interval.0 / 2 + self.spec.startup.0)
            }
            _ => self.lost_if_stopped(at),
        }
    }

    /// Whether an attempt occupies GPUs now.
    #[must_use]
    pub fn occupies(&self) -> bool {
        matches!(self.status, Status::Running | Status::Preempting)
    }
}

/// Why a declaration or an event is refused. `Display` is a sentence for the person who sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A gang of no GPUs.
    NoGpus,
    /// Rule 1: nobody may hold more than the horizon.
    MinRuntimeAboveHorizon {
        /// What was declared.
        min_runtime: SpanMs,
        /// The cluster's horizon.
        horizon: SpanMs,
    },
    /// The budget has budgets below it.
    NotALeaf(BudgetIx),
    /// A budget that is to go, or to be divided, has workloads that wait or run.
    HasWork(BudgetIx),
    /// The policy keeps memory that cannot follow a change of the tree.
    FixedTree,
    /// There is no such budget, host or workload.
    Unknown(&'static str, u32),
    /// No set of hosts could ever hold the gang.
    TooLarge {
        /// What was asked for.
        gpus: u32,
        /// The largest gang that the cluster could hold.
        largest: u32,
    },
    /// The event is earlier than one that was applied before.
    InThePast {
        /// The event's moment.
        at: TimeMs,
        /// The core's moment.
        now: TimeMs,
    },
    /// The event does not fit where the workload stands.
    WrongState(WorkloadIx, &'static str),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoGpus => write!(f, "gpus: 0 is not allowed; ask for at least 1"),
            Self::MinRuntimeAboveHorizon { min_runtime, horizon } => write!(
                f,
                "min_runtime: {min_runtime} is above the horizon {horizon}; declare at most {horizon} (rule 1)"
            ),
            Self::NotALeaf(node) => {
                write!(f, "budget {} has budgets below it; name one of those", node.0)
            }
            Self::HasWork(node) => write!(
                f,
                "budget {} has workloads that wait or run; cancel them or let them end first",
                node.0
            ),
            Self::FixedTree => write!(f, "this policy cannot follow a change of the budget tree"),
            Self::Unknown(what, index) => write!(f, "there is no {what} {index}"),
            Self::TooLarge { gpus, largest } => write!(
                f,
                "gpus: {gpus} can never be placed; the largest gang this cluster can hold is {largest}"
            ),
            Self::InThePast { at, now } => {
                write!(f, "the event at {at} comes after one at {now}")
            }
            Self::WrongState(workload, what) => write!(f, "workload {}: {what}", workload.0),
        }
    }
}

impl core::error::Error for Refusal {}
