//! What can go wrong with an engine.

/// Why an engine did not do as it was told: one line, and what kind of problem it is.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    kind: ErrorKind,
    text: String,
}

/// The kinds of problem, by what helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The order cannot be carried out as it stands; the same order will fail again.
    Invalid,
    /// A host, or the log of an attempt, that this engine does not have.
    Unknown,
    /// The attempt has not ended.
    NotEnded,
    /// Another process uses the folder of this engine.
    InUse,
    /// This machine lacks something that the engine needs.
    Unsupported,
    /// The system refused or did not answer; the same order may succeed later.
    Io,
}

impl Error {
    /// An error of this kind, with one line for people.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, text)
    }

    /// What the system said about `what`.
    #[cfg(target_os = "linux")]
    pub(crate) fn io(what: impl std::fmt::Display, error: impl Into<std::io::Error>) -> Self {
        Self::new(ErrorKind::Io, format!("{what}: {}", error.into()))
    }

    /// What kind of problem it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}
