//! Whether a cluster is as governing it needs: what was asked of it ([`Facts`]), and what is to be thought of that
//! ([`findings`]).
//!
//! **Invariant: nothing is changed.** Slurm is only asked, and files are only read. What would help is said, as a line or
//! a command for a person.

mod cluster;
mod facts;
mod gate;
mod partitions;
mod rights;

pub use facts::{Facts, Seen, Wanted};

use serde::Serialize;

/// What is to be thought of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is as it should be.
    Good,
    /// It works as it is, and would work better.
    Advice,
    /// Governing does not work without it.
    Missing,
}

/// What would help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Remedy {
    /// A line of a file, as it should stand there.
    Line {
        /// The file.
        file: String,
        /// The line.
        line: String,
    },
    /// A command to run.
    Command {
        /// As a shell takes it.
        command: String,
    },
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub about: String,
    /// What is to be thought of it.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What would help.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Remedy>,
    /// Why it matters; empty where all is good.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

impl Finding {
    /// Something that is as it should be.
    pub fn good(about: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            about: about.into(),
            verdict: Verdict::Good,
            found: found.into(),
            remedy: None,
            why: String::new(),
        }
    }

    /// Something that would work better otherwise.
    pub fn advice(
        about: impl Into<String>,
        found: impl Into<String>,
        why: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Advice, why: why.into(), ..Self::good(about, found) }
    }

    /// Something that governing does not work without.
    pub fn missing(
        about: impl Into<String>,
        found: impl Into<String>,
        why: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Missing, ..Self::advice(about, found, why) }
    }

    /// The same, with a line that would help.
    #[must_use]
    pub fn line(self, file: impl Into<String>, line: impl Into<String>) -> Self {
        let remedy = Remedy::Line { file: file.into(), line: line.into() };
        Self { remedy: Some(remedy), ..self }
    }

    /// The same, with a command that would help.
    #[must_use]
    pub fn command(self, command: impl Into<String>) -> Self {
        Self { remedy: Some(Remedy::Command { command: command.into() }), ..self }
    }
}

/// What is to be thought of a cluster, in the order in which a person would put it right.
pub fn findings(facts: &Facts, wanted: &Wanted) -> Vec<Finding> {
    let mut found = Vec::new();
    cluster::clients(facts, wanted, &mut found);
    cluster::daemons(facts, &mut found);
    let Ok(config) = &facts.config else {
        // What follows from a configuration that could not be read is no finding.
        return found;
    };
    // Who only looks needs neither rights nor a gate, and what Slurm decides by itself is its own affair.
    if !wanted.watches {
        rights::rights(facts, wanted, config, &mut found);
        gate::gate(facts, wanted, config, &mut found);
    }
    partitions::partitions(facts, wanted, config, &mut found);
    cluster::accounting(facts, config, &mut found);
    if wanted.watches {
        found.retain(|one| !OF_GOVERNING.contains(&&*one.about));
        return found;
    }
    cluster::settings(config, &mut found);
    gate::options(facts, config, &mut found);
    found
}

/// What matters to who governs alone, among what is looked at of partitions.
const OF_GOVERNING: [&str; 2] = ["PreemptType", "jobs"];

/// A few names, and how many more there are.
pub(crate) fn some(names: &[&str]) -> String {
    match names.len() {
        0..=6 => names.join(", "),
        many => format!("{} and {} others", names[..5].join(", "), many - 5),
    }
}
