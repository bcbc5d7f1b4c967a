//! The jobs of a history, and the history itself.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::{Place, clip};

/// How many broken rows are listed; the rest are only counted.
pub const SKIPPED_LISTED_MAX: usize = 100;

/// One job of a history, times in whole milliseconds from the trace's origin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TraceJob {
    /// Unique in its trace: where the file repeats one, the second is `id#2`.
    pub id: String,
    /// Its line in the file, or which entry it is ([`Trace::numbering`]), from 1: orders jobs of one moment.
    pub row: u64,
    /// When it was submitted.
    pub submit_ms: u64,
    /// How long it ran; 0 where the history says that it ended within its first second.
    pub runtime_ms: u64,
    /// GPUs (or CPUs or nodes, see [`crate::Unit`]) that it held, at least 1.
    pub gpus: u32,
    /// Who submitted it.
    pub user: Option<Arc<str>>,
    /// Its account, virtual cluster, queue or whatever else the format groups jobs by.
    pub group: Option<Arc<str>>,
    /// Its budget, where the file or a [`crate::Mapping`] names one.
    pub budget: Option<Arc<str>>,
    /// Its contract: protected from preemption until this age.
    pub min_runtime_ms: Option<u64>,
    /// Its contract: can continue from a checkpoint.
    pub resumable: Option<bool>,
    /// Its rank inside its budget.
    pub rank: Option<i32>,
    /// Batch work or a person's session.
    pub kind: Option<JobKind>,
    /// GPU model that it demanded.
    pub gpu_model: Option<Arc<str>>,
    /// Time between its checkpoints.
    pub checkpoint_interval_ms: Option<u64>,
    /// Time that each of its attempts needs before work begins.
    pub startup_ms: Option<u64>,
    /// Time limit that it declared.
    pub max_runtime_ms: Option<u64>,
    /// How it ended.
    pub status: JobStatus,
    /// When it started, if the history says so.
    pub start_ms: Option<u64>,
}

/// Batch work, or a session with a person at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// Runs by itself.
    Batch,
    /// Somebody is waiting at the keyboard.
    Session,
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JobKind::Batch => "batch",
            JobKind::Session => "session",
        })
    }
}

/// How a job ended.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum JobStatus {
    /// By itself.
    #[default]
    Completed,
    /// By an error of its own, of its host, or by its time limit.
    Failed,
    /// Somebody or the scheduler stopped it.
    Cancelled,
}

impl fmt::Display for JobStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JobStatus::Completed => "completed",
            JobStatus::Failed => "failed",
            JobStatus::Cancelled => "cancelled",
        })
    }
}

/// The formats that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Format {
    /// Our own workload CSV.
    #[serde(rename = "csv")]
    BursarCsv,
    /// Standard Workload Format of the Parallel Workloads Archive.
    #[serde(rename = "swf")]
    Swf,
    /// Slurm's accounting, as `sacct -P` prints it.
    #[serde(rename = "sacct")]
    Sacct,
    /// Microsoft Philly, the original JSON log or its CSV form.
    #[serde(rename = "philly")]
    Philly,
    /// SenseTime Helios, the original log or its derived forms.
    #[serde(rename = "helios")]
    Helios,
    /// Shanghai AI Lab's Acme (Seren and Kalos).
    #[serde(rename = "acme")]
    Acme,
    /// Alibaba's GPU cluster trace of 2023 (openb).
    #[serde(rename = "openb")]
    Openb,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 7] = [
        Format::BursarCsv,
        Format::Swf,
        Format::Sacct,
        Format::Philly,
        Format::Helios,
        Format::Acme,
        Format::Openb,
    ];
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::BursarCsv => "csv",
            Format::Swf => "swf",
            Format::Sacct => "sacct",
            Format::Philly => "philly",
            Format::Helios => "helios",
            Format::Acme => "acme",
            Format::Openb => "openb",
        })
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Format::ALL.into_iter().find(|format| format.to_string() == text).ok_or_else(|| {
            let known = Format::ALL.map(|format| format.to_string()).join(", ");
            format!("'{}' is no format; formats are {known}", clip(text, 60))
        })
    }
}

/// What the rows of a history are numbered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbering {
    /// The lines of the file, after decompression.
    Lines,
    /// The entries of the file, where these are not lines (JSON).
    Entries,
}

impl Numbering {
    /// Where row `number` is.
    pub fn place(self, number: u64) -> Place {
        match self {
            Numbering::Lines => Place::Line(number),
            Numbering::Entries => Place::Row(number),
        }
    }
}

/// A row that was left out because it is broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BadRow {
    /// Its line in the file, or which entry it is ([`Trace::numbering`]), from 1.
    pub line: u64,
    /// What is wrong with it.
    pub problem: String,
}

/// A job history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// What it was read from, as errors call it.
    pub name: String,
    /// The format that it was in.
    pub format: Format,
    /// The moment at which its times are 0, if they are absolute.
    pub origin: Option<Timestamp>,
    /// What its rows are numbered by.
    pub numbering: Numbering,
    /// In order of submission, those of one moment by row.
    pub jobs: Vec<TraceJob>,
    /// The first [`SKIPPED_LISTED_MAX`] broken rows.
    pub skipped: Vec<BadRow>,
    /// All broken rows.
    pub skipped_count: u64,
    /// Jobs left out because they held no GPU.
    pub without_gpus: u64,
    /// Jobs left out because they ended before they started.
    pub never_started: u64,
    /// Jobs left out because the history does not say when they ended.
    pub unfinished: u64,
    /// What else a person should know about how it was read.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_the_names_that_they_are_written_by() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        assert!("SWF".parse::<Format>().unwrap_err().contains("formats are csv, swf"));
    }
}
