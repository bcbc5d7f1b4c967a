//! How Slurm's endings read here.

use bursar_engine::Outcome;

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// The ways in which a run ends, in Slurm's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With exit code 0.
    Completed,
    /// With another, or by a signal.
    Failed,
    /// By somebody's order.
    Cancelled,
    /// At its time limit.
    Timeout,
    /// With a node.
    NodeFail,
    /// Its nodes did not boot.
    BootFail,
    /// For another job.
    Preempted,
    /// It was put back into the queue.
    Requeued,
    /// It wanted more memory than it had.
    OutOfMemory,
    /// At its deadline.
    Deadline,
}

impl Ending {
    /// The ending that Slurm calls so; none if it is a state of work that is there.
    pub fn of(text: &str) -> Option<Self> {
        Some(match text {
            "COMPLETED" => Self::Completed,
            "FAILED" => Self::Failed,
            "CANCELLED" | "REVOKED" => Self::Cancelled,
            "TIMEOUT" => Self::Timeout,
            "NODE_FAIL" => Self::NodeFail,
            "BOOT_FAIL" | "LAUNCH_FAILED" | "RECONFIG_FAIL" => Self::BootFail,
            "PREEMPTED" => Self::Preempted,
            "REQUEUED" => Self::Requeued,
            "OUT_OF_MEMORY" => Self::OutOfMemory,
            "DEADLINE" => Self::Deadline,
            _ => return None,
        })
    }

    /// The outcome of a run that began, with this exit code or signal.
    pub fn outcome(self, code: i32, signal: i32) -> Outcome {
        let lost = |reason: &str| Outcome::Lost { reason: reason.to_owned() };
        match self {
            Self::NodeFail => lost("Slurm lost a node that it ran on (NODE_FAIL)"),
            Self::BootFail => lost("its nodes did not come up (BOOT_FAIL)"),
            _ if signal > 0 && self != Self::OutOfMemory => Outcome::Signal { number: signal },
            // A shell whose child got the signal first says so by its exit code.
            Self::Cancelled | Self::Timeout | Self::Preempted | Self::Requeued | Self::Deadline
                if (129..160).contains(&code) =>
            {
                Outcome::Signal { number: code - 128 }
            }
            _ if code != 0 && self != Self::OutOfMemory => Outcome::Exit { code: code & 0xff },
            Self::Completed => Outcome::Exit { code: 0 },
            Self::Failed => lost("it could not be run (FAILED without an exit code)"),
            Self::OutOfMemory => Outcome::Signal { number: SIGKILL },
            Self::Cancelled | Self::Timeout | Self::Preempted | Self::Requeued | Self::Deadline => {
                Outcome::Signal { number: SIGTERM }
            }
        }
    }

    /// What people should know about it beside its outcome.
    pub fn remark(self) -> Option<&'static str> {
        match self {
            Self::Timeout => Some("Slurm ended it at its time limit"),
            Self::Preempted => Some("Slurm preempted it"),
            Self::OutOfMemory => Some("it wanted more memory than it had"),
            Self::Deadline => Some("Slurm ended it at its deadline"),
            Self::Completed | Self::Failed | Self::Cancelled | Self::Requeued => None,
            Self::NodeFail | Self::BootFail => None,
        }
    }
}

/// The exit code and the signal of a status as `wait` gives it, which is how squeue prints it.
pub(crate) fn of_wait_status(status: u32) -> (i32, i32) {
    let part = |bits: u32| i32::try_from(bits).unwrap_or_default();
    (part((status >> 8) & 0xff), part(status & 0x7f))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_outcomes() {
        let of = |text: &str, code, signal| Ending::of(text).unwrap().outcome(code, signal);
        assert_eq!(of("COMPLETED", 0, 0), Outcome::Exit { code: 0 });
        assert_eq!(of("FAILED", 3, 0), Outcome::Exit { code: 3 });
        assert_eq!(of("FAILED", 0, 11), Outcome::Signal { number: 11 });
        assert_eq!(of("CANCELLED", 0, 0), Outcome::Signal { number: 15 });
        assert_eq!(of("CANCELLED", 143, 0), Outcome::Signal { number: 15 });
        assert_eq!(of("FAILED", 143, 0), Outcome::Exit { code: 143 });
        assert_eq!(of("REQUEUED", 3, 0), Outcome::Exit { code: 3 });
        assert_eq!(of("OUT_OF_MEMORY", 0, 125), Outcome::Signal { number: 9 });
        assert!(matches!(of("NODE_FAIL", 0, 0), Outcome::Lost { .. }));
        assert_eq!(Ending::of("RUNNING"), None);
        assert_eq!(of_wait_status(768), (3, 0));
        assert_eq!(of_wait_status(15), (0, 15));
        assert_eq!(of_wait_status(139), (0, 11));
    }
}
