//! What an engine sees.

use crate::key::AttemptKey;

/// A host as its engine sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFacts {
    /// Its name.
    pub name: String,
    /// How many GPUs it has; they are numbered from 0. A GPU that fails does not change it.
    pub gpus: u32,
    /// The model of its GPUs, short and in small letters: `h100`.
    pub model: String,
    /// Whether it is there at all. What ran on a host that is not has stopped.
    pub healthy: bool,
    /// Why nothing new should start there although it is there: a GPU that does not answer, an operator of the
    /// engine's own who drained it. What runs may go on to the end of its contract.
    pub closed: Option<String>,
    /// Whether it was cordoned and not uncordoned since.
    pub cordoned: bool,
}

/// A moment on two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Milliseconds since 1970 by the wall clock, which may be set at any time.
    pub unix_ms: u64,
    /// Milliseconds since the machine was booted (`CLOCK_BOOTTIME`), which nobody can set. None if the
    /// machine was booted again since.
    pub boot_ms: Option<u64>,
}

/// An attempt as its engine sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Which one.
    pub key: AttemptKey,
    /// How far it is.
    pub state: AttemptState,
    /// What people should know about this attempt: a limit that is not enforced, output that was dropped,
    /// processes that do not die. One short line each.
    pub notes: Vec<String>,
}

/// How far an attempt is. It only ever moves down this list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptState {
    /// Claimed; the work does not run yet.
    Starting,
    /// The work runs, or what is left of it is being ended. It holds its GPUs.
    Running {
        /// When the command was executed.
        started_at: Moment,
        /// Whether the warning was delivered.
        warned: bool,
        /// Whether the checkpoint signal was delivered, or it is being stopped.
        told_to_leave: bool,
    },
    /// Nothing of it runs any more.
    Exited(Exited),
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exited {
    /// When the command was executed, if it was. If it may have been and that is not known, the earliest moment at
    /// which it can have been: only what certainly never ran has none.
    pub started_at: Option<Moment>,
    /// When the last of its processes was gone. For a lost attempt: by when it was.
    pub ended_at: Moment,
    /// How.
    pub outcome: Outcome,
    /// Whether it had been sent the checkpoint signal, or was stopped, before it ended.
    pub was_told_to_leave: bool,
}

/// In which way an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command ended by itself.
    Exit {
        /// Its exit code, 0 to 255.
        code: i32,
    },
    /// The command was ended by a signal.
    Signal {
        /// The number of the signal.
        number: i32,
    },
    /// The command was never executed.
    StartFailed {
        /// Why, for people.
        reason: String,
    },
    /// The command was never executed, through no fault of its own: what was to start it died before. It may be
    /// tried again as another attempt.
    NotStarted {
        /// Why, for people.
        reason: String,
    },
    /// Somebody ended the work in the engine's own queue, where people may; it is not to be tried again.
    Cancelled {
        /// What is known of that, for people.
        reason: String,
    },
    /// How the command ended is not known, only that it did.
    Lost {
        /// Why, for people.
        reason: String,
    },
}

impl AttemptState {
    /// How it ended, if it did.
    pub fn exited(&self) -> Option<&Exited> {
        match self {
            Self::Exited(exited) => Some(exited),
            Self::Starting | Self::Running { .. } => None,
        }
    }
}
