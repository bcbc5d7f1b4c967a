//! What the caller can say about a history beside its content.

use std::fmt;
use std::str::FromStr;

use jiff::tz::TimeZone;

use crate::error::clip;
use crate::job::Format;

/// What counts as one GPU of the simulated cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    /// GPUs; jobs without one are left out and counted.
    #[default]
    Gpus,
    /// CPUs, for a history of a cluster without GPUs.
    Cpus,
    /// Whole hosts, likewise.
    Nodes,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unit::Gpus => "gpus",
            Unit::Cpus => "cpus",
            Unit::Nodes => "nodes",
        })
    }
}

impl FromStr for Unit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "gpus" => Ok(Unit::Gpus),
            "cpus" => Ok(Unit::Cpus),
            "nodes" => Ok(Unit::Nodes),
            other => {
                let other = clip(other, 60);
                Err(format!("'{other}' is no unit; units are gpus, cpus and nodes"))
            }
        }
    }
}

/// How to read a history. The default detects the format and refuses broken rows.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    /// The format, when it shall not be detected.
    pub format: Option<Format>,
    /// Count and list broken rows instead of refusing the file.
    pub skip_bad: bool,
    /// Names of the columns of a file that has no header line.
    pub columns: Option<Vec<String>>,
    /// Zone of times that name none; UTC by default (our own CSV then demands that they name one).
    pub time_zone: Option<TimeZone>,
    /// What counts as one GPU.
    pub unit: Unit,
    /// Column to take a job's group from, in place of the format's own choice (for SWF: `group`,
    /// `queue`, `partition`, `application`).
    pub group_column: Option<String>,
}
