//! What a site refuses, for the person who asked.

use std::fmt;

/// Why a request was refused. One lowercase sentence that names the field, the value and the fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// What kind of thing is wrong; edges turn it into a status code or an exit code.
    pub kind: RefusedKind,
    /// The sentence.
    pub message: String,
}

/// Kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusedKind {
    /// The request itself is wrong, whoever sends it.
    Invalid,
    /// It may be right, but this person may not.
    Forbidden,
    /// It names something that does not exist, or that this person may not see.
    NotFound,
    /// It does not fit how things are by now: a stale version, a workload that has ended.
    Conflict,
    /// The request fits no cluster of this size, now or later.
    NeverFits,
}

impl RefusedKind {
    /// A stable name for machines.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::NeverFits => "never_fits",
        }
    }
}

impl Refused {
    /// A request that is wrong in itself, with the field, what is wrong with it, and what would be right.
    #[must_use]
    pub fn invalid(message: impl fmt::Display) -> Self {
        Self { kind: RefusedKind::Invalid, message: message.to_string() }
    }

    /// What whoever asks may not do.
    #[must_use]
    pub fn forbidden(message: impl fmt::Display) -> Self {
        Self { kind: RefusedKind::Forbidden, message: message.to_string() }
    }

    /// What is not there, as far as whoever asks may know.
    #[must_use]
    pub fn not_found(message: impl fmt::Display) -> Self {
        Self { kind: RefusedKind::NotFound, message: message.to_string() }
    }

    /// What does not fit how things are by now.
    #[must_use]
    pub fn conflict(message: impl fmt::Display) -> Self {
        Self { kind: RefusedKind::Conflict, message: message.to_string() }
    }
}

/// A journal that this binary cannot fold: it is damaged, newer, or would be decided otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {seq}: {what}")]
pub struct ReplayError {
    /// The record.
    pub seq: u64,
    /// What is wrong with it.
    pub what: String,
}
