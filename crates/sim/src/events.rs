//! `events.jsonl`: one line per thing that happened (docs/formats.md).

use serde::{Serialize, Serializer};
use std::io::{self, Write};

/// A moment in seconds: whole seconds are written as integers, others with their milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(pub u64);

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(1_000) {
            serializer.serialize_u64(self.0 / 1_000)
        } else {
            serializer.serialize_f64(self.0 as f64 / 1_000.0)
        }
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A workload was submitted.
    Submitted,
    /// A declaration was refused.
    Refused,
    /// An attempt started.
    Started,
    /// An attempt's protection ended.
    ProtectionEnded,
    /// An attempt was told to leave.
    Preempted,
    /// A workload waits again.
    Requeued,
    /// A workload has done its work.
    Completed,
    /// A workload ended with an error or at its max_runtime.
    Failed,
    /// A workload was cancelled by its owner.
    Cancelled,
    /// A preempted workload could not be resumed.
    Terminated,
    /// An attempt ended because its host failed.
    HostFailed,
    /// A host takes no new work.
    DrainStarted,
    /// A draining host is empty.
    Drained,
    /// A host failed.
    HostDown,
    /// A host is back in service.
    HostUp,
    /// Hosts are promised to a workload.
    Reserved,
    /// A promise was given up: its hosts were lost, or its holder would not be charged any more.
    Unreserved,
}

/// GPUs on a host.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct HostGpus<'a> {
    /// The host.
    pub host: &'a str,
    /// How many of its GPUs.
    pub gpus: u32,
}

/// One line. Keys that do not apply are left out.
#[derive(Clone, Debug, Serialize)]
pub struct EventLine<'a> {
    /// When.
    pub t: Seconds,
    /// Under which policy.
    pub policy: &'a str,
    /// What.
    pub event: EventKind,
    /// The workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<&'a str>,
    /// Its attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Its budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<&'a str>,
    /// Its GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Whether the attempt is charged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated: Option<bool>,
    /// When its protection ends; null when it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protected_until: Option<Option<Seconds>>,
    /// When the start was decided, if it had to wait for others to leave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided: Option<Seconds>,
    /// Where.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub placement: Vec<HostGpus<'a>>,
    /// For whom it leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<&'a str>,
    /// The host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<&'a str>,
    /// T of a reservation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Seconds>,
    /// GPU-seconds that an attempt lost: since its last checkpoint, plus start-up repeated. A failed host's
    /// line and the requeueing that follows say the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_gpu_seconds: Option<Seconds>,
    /// The number of the rule in docs/policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<u8>,
    /// The reason as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl<'a> EventLine<'a> {
    /// A line with nothing but its moment, policy and kind.
    #[must_use]
    pub const fn new(at_ms: u64, policy: &'a str, event: EventKind) -> Self {
        Self {
            t: Seconds(at_ms),
            policy,
            event,
            workload: None,
            attempt: None,
            budget: None,
            gpus: None,
            allocated: None,
            protected_until: None,
            decided: None,
            placement: Vec::new(),
            by: None,
            host: None,
            until: None,
            lost_gpu_seconds: None,
            rule: None,
            reason: None,
        }
    }
}

/// Where events go.
pub enum EventSink<'a> {
    /// Nowhere.
    None,
    /// One JSON object per line.
    Json(&'a mut (dyn Write + Send)),
}

impl EventSink<'_> {
    /// Whether lines need to be made at all.
    #[must_use]
    pub const fn wants(&self) -> bool {
        matches!(self, Self::Json(_))
    }

    pub(crate) fn put(&mut self, line: &EventLine<'_>) -> io::Result<()> {
        match self {
            Self::None => Ok(()),
            Self::Json(writer) => {
                serde_json::to_writer(&mut *writer, line)?;
                writer.write_all(b"\n")
            }
        }
    }
}
