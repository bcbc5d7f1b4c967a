//! What ran: `sacct -D -X` of a span, one row for each run of a job.

use super::table::{Mark, Unreadable};
use super::time::moment;
use super::tres::gpus_of_tres;
use crate::client::{Call, Program};

/// The fields that are asked for.
pub const HISTORY_FIELDS: [&str; 13] = [
    "JobID",
    "Submit",
    "Start",
    "End",
    "ElapsedRaw",
    "State",
    "TimelimitRaw",
    "User",
    "Account",
    "Partition",
    "ReqTRES",
    "AllocTRES",
    "JobName",
];

/// A run of a job, with its fields as Slurm has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRow {
    /// What commands call the job: `1234`, `1234_7`, or `1234_[1-9]` for tasks that wait together.
    pub job: String,
    /// When it was submitted or put back into the queue, in seconds since 1970; none if the accounts have lost it.
    pub submitted: Option<u64>,
    /// When it began, in seconds since 1970.
    pub started: Option<u64>,
    /// When it ended, in seconds since 1970.
    pub ended: Option<u64>,
    /// How long it ran, in seconds, as text.
    pub elapsed_s: String,
    /// `COMPLETED`, `CANCELLED by 1001` …
    pub state: String,
    /// Its limit in minutes, as text; also `UNLIMITED`, `Partition_Limit`.
    pub limit_minutes: String,
    /// Whose it was.
    pub user: String,
    /// What Slurm charged.
    pub account: String,
    /// Where it was given to.
    pub partition: String,
    /// What it asked for.
    pub asked: String,
    /// What it had; empty if it never ran.
    pub had: String,
    /// What its submitter called it.
    pub name: String,
}

impl HistoryRow {
    /// How many GPUs it had, or asked for if it never ran.
    pub fn gpus(&self) -> u32 {
        match gpus_of_tres(&self.had).count {
            0 => gpus_of_tres(&self.asked).count,
            count => count,
        }
    }
}

/// Without states sacct goes by the moment from which a job could have run, which the accounts often lack of jobs that were
/// held, as governed ones are. `R` stands for all that ran in the span, whatever became of them.
const STATES: &str = "R,CD,CA,F,TO,NF,OOM,PR,RQ,BF,DL";

/// The call that [`read_history`] reads the answer of: all runs in these partitions (all, if none is named) that ran or
/// ended between two moments in seconds since 1970.
pub fn history_call(partitions: &[String], from_s: u64, until_s: u64, mark: &Mark) -> Call {
    span_call(&HISTORY_FIELDS, partitions, from_s, until_s, mark)
}

/// The same, with any fields.
pub(super) fn span_call(
    fields: &[&str],
    partitions: &[String],
    from_s: u64,
    until_s: u64,
    mark: &Mark,
) -> Call {
    let mut args = ["-a", "-D", "-X", "-p", "-n"].map(str::to_owned).to_vec();
    args.push(format!("--delimiter={mark}"));
    args.extend(["-o".to_owned(), fields.join(",")]);
    args.extend(["-s".to_owned(), STATES.to_owned()]);
    args.extend([
        "-S".to_owned(),
        format!("uts{from_s}"),
        "-E".to_owned(),
        format!("uts{until_s}"),
    ]);
    if !partitions.is_empty() {
        args.extend(["-r".to_owned(), partitions.join(",")]);
    }
    Call::new(Program::Sacct, args)
}

/// Reads the answer to [`history_call`].
///
/// # Errors
///
/// If it is none.
pub fn read_history(answer: &[u8], mark: &Mark) -> Result<Vec<HistoryRow>, Unreadable> {
    mark.rows(answer, HISTORY_FIELDS.len())?.iter().map(|row| history_row(row)).collect()
}

pub(super) fn history_row(row: &[String]) -> Result<HistoryRow, Unreadable> {
    let [
        job,
        submitted,
        started,
        ended,
        elapsed,
        state,
        limit,
        user,
        account,
        partition,
        asked,
        had,
        name,
    ] = row
    else {
        return Err(Unreadable("a row has not the fields that were asked for".to_owned()));
    };
    let text = |field: &String| field.trim().to_owned();
    Ok(HistoryRow {
        job: text(job),
        submitted: moment(submitted),
        started: moment(started),
        ended: moment(ended),
        elapsed_s: text(elapsed),
        state: text(state),
        limit_minutes: text(limit),
        user: text(user),
        account: text(account),
        partition: text(partition),
        asked: text(asked),
        had: text(had),
        name: text(name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rows_with_any_name() {
        let row =
            "4_2@@10@@20@@30@@10@@COMPLETED@@60@@ann@@lab@@gpu@@gres/gpu=1@@gres/gpu=2@@a|b\nc@@\n";
        let rows = read_history(row.as_bytes(), &Mark::of("@@")).unwrap();
        assert_eq!((&*rows[0].job, rows[0].submitted, rows[0].ended), ("4_2", Some(10), Some(30)));
        assert_eq!((rows[0].gpus(), &*rows[0].name), (2, "a|b\nc"));
        let lost =
            read_history(row.replace("@@10@@20", "@@Unknown@@20").as_bytes(), &Mark::of("@@"));
        assert_eq!(lost.unwrap()[0].submitted, None);
        assert!(read_history(b"sacct: error: x", &Mark::of("@@")).is_err());
    }

    proptest! {
        #[test]
        fn no_row_panics(fields in prop::collection::vec("[0-9:]{1,3}|.{0,8}", HISTORY_FIELDS.len())) {
            let answer = fields.iter().map(|field| format!("{field}@@")).collect::<String>() + "\n";
            let rows = read_history(answer.as_bytes(), &Mark::of("@@"));
            let _ = rows.map(|rows| rows.iter().map(HistoryRow::gpus).collect::<Vec<_>>());
        }
    }
}
