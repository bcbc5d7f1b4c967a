//! What goes wrong, and with which exit code: 1 for faults on the way, 2 for bad input, 3 for a log that
//! does not verify, 130 when interrupted.

use crate::shown::one_line;
use std::fmt;

/// A failure of the command line: one line for a person.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was given cannot be used. Nothing was written.
    Input(String),
    /// Something failed on the way.
    Fault(String),
    /// A log breaks the rules; the report that was printed says how.
    Violations,
    /// Ctrl-C.
    Interrupted,
}

impl Failure {
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Fault(_) => 1,
            Self::Input(_) => 2,
            Self::Violations => 3,
            Self::Interrupted => 130,
        }
    }

    pub(crate) fn input(error: impl fmt::Display) -> Self {
        Self::Input(error.to_string())
    }

    pub(crate) fn fault(error: impl fmt::Display) -> Self {
        Self::Fault(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(message) | Self::Fault(message) => f.write_str(&one_line(message)),
            Self::Violations => f.write_str("the log breaks the rules"),
            Self::Interrupted => f.write_str("interrupted; nothing was written"),
        }
    }
}
