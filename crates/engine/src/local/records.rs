//! What is written into the folder of an attempt. Both sides may be of different versions: a shim lives as
//! long as its work, however often the daemon is replaced.

use super::process::ProcessId;
use crate::observation::{Exited, Moment, Outcome};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The version of these records. Fields may be added with a default without a new one.
pub(crate) const VERSION: u32 = 1;

/// Room that is taken on the disk for the record of a state, and for that of an exit, in bytes.
pub(crate) const RECORD_BYTES_MAX: usize = 12 << 10;

/// Notes that an attempt may have, and characters of each: together they fit that room, with the
/// longest path.
const NOTES_MAX: usize = 12;
const NOTE_CHARS_MAX: usize = 160;

/// What the shim is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OrderRecord {
    pub(crate) version: u32,
    /// What marks the processes of this attempt.
    pub(crate) token: String,
    pub(crate) command: Vec<String>,
    pub(crate) workdir: Option<PathBuf>,
    /// All of the environment that does not depend on the user.
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) user: Option<String>,
    /// Whether that may be root. Orders of before had no such rule and are not executed any more.
    #[serde(default)]
    pub(crate) allow_root: bool,
    pub(crate) checkpoint_dir: PathBuf,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) cpus: Option<u32>,
    /// Where to make a control group, and how to call it.
    pub(crate) cgroup: Option<PathBuf>,
    /// Signals by number.
    pub(crate) checkpoint_signal: i32,
    pub(crate) warn_signal: i32,
    pub(crate) leader_only: bool,
    pub(crate) log_bytes_max: u64,
    pub(crate) log_files_max: u32,
    /// How many files it may have open; none if that is as the daemon has it.
    #[serde(default)]
    pub(crate) open_files: Option<u64>,
    /// The FIFO that is written to when the state changes.
    pub(crate) changes: PathBuf,
}

/// How far the shim is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StateRecord {
    pub(crate) version: u32,
    pub(crate) boot_id: String,
    pub(crate) shim: ProcessId,
    /// The parent of the shim, which gets its processes if it is killed.
    #[serde(default)]
    pub(crate) guard: Option<ProcessId>,
    /// The launcher, which becomes the command. Only what is recorded here is told to go.
    pub(crate) work: Option<ProcessId>,
    pub(crate) cgroup: Option<PathBuf>,
    /// When it was recorded that the launcher is told to go: from then on the command may have been executed.
    #[serde(default)]
    pub(crate) going: Option<MomentRecord>,
    pub(crate) started: Option<MomentRecord>,
    pub(crate) warned: bool,
    pub(crate) told_to_leave: bool,
    pub(crate) notes: Vec<String>,
}

/// How an attempt ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ExitRecord {
    pub(crate) version: u32,
    pub(crate) boot_id: String,
    pub(crate) started: Option<MomentRecord>,
    pub(crate) ended: MomentRecord,
    pub(crate) outcome: OutcomeRecord,
    pub(crate) told_to_leave: bool,
    pub(crate) notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OutcomeRecord {
    Exit(i32),
    Signal(i32),
    StartFailed(String),
    NotStarted(String),
    Lost(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MomentRecord {
    pub(crate) unix_ms: u64,
    pub(crate) boot_ms: Option<u64>,
}

impl StateRecord {
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        add_note(&mut self.notes, note);
    }
}

impl ExitRecord {
    /// As an observation; moments of an earlier boot lose their place on its clock.
    pub(crate) fn exited(&self, boot_id: &str) -> Exited {
        let this_boot = self.boot_id == boot_id;
        let outcome = match &self.outcome {
            OutcomeRecord::Exit(code) => Outcome::Exit { code: *code },
            OutcomeRecord::Signal(number) => Outcome::Signal { number: *number },
            OutcomeRecord::StartFailed(reason) => Outcome::StartFailed { reason: reason.clone() },
            OutcomeRecord::NotStarted(reason) => Outcome::NotStarted { reason: reason.clone() },
            OutcomeRecord::Lost(reason) => Outcome::Lost { reason: reason.clone() },
        };
        Exited {
            started_at: self.started.map(|moment| moment.seen_from(this_boot)),
            ended_at: self.ended.seen_from(this_boot),
            outcome,
            was_told_to_leave: self.told_to_leave,
        }
    }
}

impl MomentRecord {
    /// A later moment, which is not to be before this one: the wall clock may have been set back.
    pub(crate) fn not_after(self, later: Self) -> Self {
        Self { unix_ms: later.unix_ms.max(self.unix_ms), ..later }
    }

    pub(crate) fn seen_from(self, this_boot: bool) -> Moment {
        let boot_ms = if this_boot { self.boot_ms } else { None };
        Moment { unix_ms: self.unix_ms, boot_ms }
    }
}

impl From<Moment> for MomentRecord {
    fn from(moment: Moment) -> Self {
        Self { unix_ms: moment.unix_ms, boot_ms: moment.boot_ms }
    }
}

/// Adds a note, on one line and not too long; the same one is not added twice, nor too many.
pub(crate) fn add_note(notes: &mut Vec<String>, note: impl Into<String>) {
    let note = one_line(&note.into());
    if !notes.contains(&note) && notes.len() < NOTES_MAX {
        notes.push(note);
    }
}

/// Text from elsewhere as one line that fits a record.
pub(crate) fn one_line(text: &str) -> String {
    let text: String =
        text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    let text = text.trim();
    if text.chars().count() <= NOTE_CHARS_MAX {
        return text.to_owned();
    }
    text.chars().take(NOTE_CHARS_MAX - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_record_fits_its_room() {
        let mut notes = Vec::new();
        for index in 0..100 {
            add_note(&mut notes, format!("{index}{}", "\u{10ffff}\n\"".repeat(100)));
        }
        let moment = MomentRecord { unix_ms: u64::MAX, boot_ms: Some(u64::MAX) };
        let exit = ExitRecord {
            version: VERSION,
            boot_id: "x".repeat(36),
            started: Some(moment),
            ended: moment,
            outcome: OutcomeRecord::StartFailed(one_line(&"\u{10ffff}".repeat(1000))),
            told_to_leave: true,
            notes,
        };
        assert!(serde_json::to_vec(&exit).unwrap().len() + 4096 <= RECORD_BYTES_MAX);
    }

    #[test]
    fn notes_are_one_line_each_and_said_once() {
        let mut notes = Vec::new();
        add_note(&mut notes, "a\nb\u{1b}[31m");
        add_note(&mut notes, "a\nb\u{1b}[31m");
        assert_eq!(notes, ["a b [31m"]);
    }
}
