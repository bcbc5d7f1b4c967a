//! What goes wrong, and with which exit code: 1 for faults on the way and for a check that finds
//! something missing, 2 for bad input, 3 for a log that
//! does not verify, 130 when interrupted, and the command's own where a workload was followed to its end.

use crate::shown::{note, one_line};
use std::fmt;

/// A failure of the command line: one line for a person.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was given cannot be used. Nothing was written.
    Input(String),
    /// Something failed on the way.
    Fault(String),
    /// What the site refused, with its status and its code for machines.
    Refused { status: u16, code: String, message: String },
    /// A workload that was followed did not complete; its exit code becomes ours.
    Ended { message: String, exit_code: u8 },
    /// So many things that a check asked for are not there; what was printed says which.
    Missing(usize),
    /// A log breaks the rules; the report that was printed says how.
    Violations,
    /// Ctrl-C.
    Interrupted,
}

impl Failure {
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Fault(_) | Self::Missing(_) => 1,
            Self::Input(_) => 2,
            Self::Refused { status, .. } if *status < 500 => 2,
            Self::Refused { .. } => 1,
            Self::Ended { exit_code, .. } => *exit_code,
            Self::Violations => 3,
            Self::Interrupted => 130,
        }
    }

    /// A stable name of its kind, for machines.
    fn code(&self) -> &str {
        match self {
            Self::Input(_) => "input",
            Self::Fault(_) => "fault",
            Self::Refused { code, .. } => code,
            Self::Ended { .. } => "ended",
            Self::Missing(_) => "missing",
            Self::Violations => "violations",
            Self::Interrupted => "interrupted",
        }
    }

    pub(crate) fn input(error: impl fmt::Display) -> Self {
        Self::Input(error.to_string())
    }

    pub(crate) fn fault(error: impl fmt::Display) -> Self {
        Self::Fault(error.to_string())
    }

    /// Says it on standard error: a line for people, or an object for programs.
    pub(crate) fn tell(&self, form: Form) {
        match form {
            Form::Words => note(&format!("bursar: {self}")),
            Form::Json => {
                let mut problem =
                    serde_json::json!({ "code": self.code(), "message": self.to_string() });
                if let Self::Refused { status, .. } = self {
                    problem["status"] = (*status).into();
                }
                note(&problem.to_string());
            }
        }
    }
}

/// How somebody wants to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Words,
    Json,
}

impl Form {
    /// As `--json` says, also where the rest of the line cannot be understood. What comes after `--` is a
    /// workload's.
    pub(crate) fn asked() -> Self {
        let mut words = std::env::args_os().skip(1).take_while(|word| word != "--");
        if words.any(|word| word == "--json") { Self::Json } else { Self::Words }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(message)
            | Self::Fault(message)
            | Self::Refused { message, .. }
            | Self::Ended { message, .. } => f.write_str(&one_line(message)),
            Self::Missing(1) => f.write_str("one thing is missing"),
            Self::Missing(many) => write!(f, "{many} things are missing"),
            Self::Violations => f.write_str("the log breaks the rules"),
            Self::Interrupted => f.write_str("interrupted; nothing was written"),
        }
    }
}
