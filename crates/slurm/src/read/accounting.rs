//! The accounts: `sacct -D -X`, one row for each run of a job.

use super::table::{Mark, Unreadable, present};
use super::time::moment;
use super::tres::{Gpus, gpus_of_tres};
use crate::client::{Call, Program};
use crate::declare::Note;
use crate::outcome::Ending;

/// The fields that are asked for.
pub const ACCOUNTING_FIELDS: [&str; 10] = [
    "JobID",
    "JobIDRaw",
    "Submit",
    "Start",
    "End",
    "State",
    "ExitCode",
    "NodeList",
    "AllocTRES",
    "AdminComment",
];

/// A run of a job, as it is accounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// What commands call it: `1234`, or `1234_7` for a task of an array.
    pub job: String,
    /// When it was submitted or put back into the queue, in seconds since 1970.
    pub submitted: Option<u64>,
    /// When it began, in seconds since 1970.
    pub started: Option<u64>,
    /// When it ended, in seconds since 1970.
    pub ended: Option<u64>,
    /// How it ended; none if it has not.
    pub ending: Option<Ending>,
    /// The exit code.
    pub code: i32,
    /// The signal that ended it, or 0.
    pub signal: i32,
    /// Where it ran, as a list of nodes.
    pub nodes: String,
    /// With which GPUs.
    pub gpus: Gpus,
    /// What was written of it when it ended.
    pub note: Option<Note>,
}

/// The call that [`read_accounting`] reads the answer of: all runs of these jobs.
pub fn accounting_call(jobs: &[String], mark: &Mark) -> Call {
    let mark = format!("--delimiter={mark}");
    let fields = ACCOUNTING_FIELDS.join(",");
    let jobs = jobs.join(",");
    Call::new(Program::Sacct, ["-a", "-D", "-X", "-p", "-n", &mark, "-o", &fields, "-j", &jobs])
}

/// Reads the answer to [`accounting_call`].
///
/// # Errors
///
/// If it is none.
pub fn read_accounting(answer: &[u8], mark: &Mark) -> Result<Vec<Run>, Unreadable> {
    mark.rows(answer, ACCOUNTING_FIELDS.len())?.iter().map(|row| run(row)).collect()
}

fn run(row: &[String]) -> Result<Run, Unreadable> {
    let [job, _raw, submitted, started, ended, state, exit, nodes, tres, note] = row else {
        return Err(Unreadable("a row has not the fields that were asked for".to_owned()));
    };
    let (code, signal) = exit.trim().split_once(':').unwrap_or(("0", "0"));
    let number = |text: &str| text.parse().unwrap_or_default();
    // "CANCELLED by 1001"
    let state = state.split_whitespace().next().unwrap_or_default();
    Ok(Run {
        job: job.trim().to_owned(),
        submitted: moment(submitted),
        started: moment(started),
        ended: moment(ended),
        ending: Ending::of(state),
        code: number(code),
        signal: number(signal),
        nodes: present(nodes).unwrap_or_default().to_owned(),
        gpus: gpus_of_tres(tres),
        note: present(note).and_then(|note| note.parse().ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_are_read() {
        let answer = b"4_2@@6@@10@@20@@30@@CANCELLED by 20005@@0:15@@n[1-2]@@gres/gpu=3@@bursar:1;tag=1.a;claim=w.1@@\n";
        let runs = read_accounting(answer, &Mark::of("@@")).unwrap();
        let run = &runs[0];
        assert_eq!((&*run.job, run.started, run.ended), ("4_2", Some(20), Some(30)));
        assert_eq!((run.ending, run.code, run.signal), (Some(Ending::Cancelled), 0, 15));
        assert_eq!((&*run.nodes, run.gpus.count), ("n[1-2]", 3));
        assert_eq!(run.note.as_ref().unwrap().tag, "1.a");
    }

    proptest! {
        #[test]
        fn no_row_panics(fields in prop::collection::vec("[0-9:]{1,3}|.{0,8}", ACCOUNTING_FIELDS.len())) {
            let answer = fields.iter().map(|field| format!("{field}@@")).collect::<String>() + "\n";
            let _ = read_accounting(answer.as_bytes(), &Mark::of("@@"));
        }
    }
}
