//! What ran, with where it ran, how it ended and what we noted: `sacct -D -X` of a span, one row for each run of a job.

use super::history::{HISTORY_FIELDS, HistoryRow, history_row, span_call};
use super::hostlist::expand;
use super::table::{Mark, Unreadable, present};
use super::tres::{Gpus, gpus_of_tres};
use crate::client::Call;
use crate::declare::Note;
use crate::outcome::Ending;

/// The fields that are asked for beside [`HISTORY_FIELDS`].
pub const PAST_FIELDS: [&str; 3] = ["ExitCode", "NodeList", "AdminComment"];

/// A run of a job, as it is accounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastRow {
    /// What the history has of it.
    pub row: HistoryRow,
    /// How it ended; none if it has not.
    pub ending: Option<Ending>,
    /// The exit code.
    pub code: i32,
    /// The signal that ended it, or 0.
    pub signal: i32,
    /// Where it ran; empty if it never did.
    pub nodes: Vec<String>,
    /// With which GPUs.
    pub gpus: Gpus,
    /// What was written of it when it ended.
    pub note: Option<Note>,
}

impl PastRow {
    /// The numbers of its job or array, and of the task.
    pub fn number(&self) -> Option<(u64, Option<u32>)> {
        match self.row.job.split_once('_') {
            Some((array, task)) => Some((array.parse().ok()?, Some(task.parse().ok()?))),
            None => Some((self.row.job.parse().ok()?, None)),
        }
    }
}

/// The call that [`read_past`] reads the answer of: all runs in these partitions that ran or ended between two moments in
/// seconds since 1970.
pub fn past_call(partitions: &[String], from_s: u64, until_s: u64, mark: &Mark) -> Call {
    let fields: Vec<&str> = HISTORY_FIELDS.iter().chain(&PAST_FIELDS).copied().collect();
    span_call(&fields, partitions, from_s, until_s, mark)
}

/// Reads the answer to [`past_call`].
///
/// # Errors
///
/// If it is none.
pub fn read_past(answer: &[u8], mark: &Mark) -> Result<Vec<PastRow>, Unreadable> {
    let fields = HISTORY_FIELDS.len() + PAST_FIELDS.len();
    mark.rows(answer, fields)?.iter().map(|row| past_row(row)).collect()
}

fn past_row(fields: &[String]) -> Result<PastRow, Unreadable> {
    let (history, more) = fields.split_at(HISTORY_FIELDS.len().min(fields.len()));
    let [exit, nodes, note] = more else {
        return Err(Unreadable("a row has not the fields that were asked for".to_owned()));
    };
    let row = history_row(history)?;
    let (code, signal) = exit.trim().split_once(':').unwrap_or(("0", "0"));
    let number = |text: &str| text.parse().unwrap_or_default();
    // "CANCELLED by 1001"
    let state = row.state.split_whitespace().next().unwrap_or_default();
    Ok(PastRow {
        ending: Ending::of(state),
        code: number(code),
        signal: number(signal),
        nodes: present(nodes).map_or(Ok(Vec::new()), expand)?,
        gpus: gpus_of_tres(&row.had),
        note: present(note).and_then(|note| note.parse().ok()),
        row,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_are_read_with_their_notes() {
        let row = "4_2@@10@@20@@30@@10@@CANCELLED by 5@@60@@ann@@lab@@gpu@@gres/gpu=1@@gres/gpu=3@@a|b\nc@@0:15@@n[1-2]@@\
                   bursar:1;tag=1.a;claim=w.1@@\n5@@10@@Unknown@@Unknown@@0@@PENDING@@60@@ann@@lab@@gpu@@gres/gpu=1@@@@x@@\
                   0:0@@None assigned@@@@\n";
        let rows = read_past(row.as_bytes(), &Mark::of("@@")).unwrap();
        let ran = &rows[0];
        assert_eq!((ran.ending, ran.code, ran.signal), (Some(Ending::Cancelled), 0, 15));
        assert_eq!((ran.nodes.len(), ran.gpus.count, ran.number()), (2, 3, Some((4, Some(2)))));
        assert_eq!(ran.note.as_ref().unwrap().tag, "1.a");
        let waits = &rows[1];
        assert_eq!((waits.ending, waits.nodes.len(), waits.row.started), (None, 0, None));
        assert_eq!(waits.number(), Some((5, None)));
        assert!(read_past(b"sacct: error: x", &Mark::of("@@")).is_err());
    }

    proptest! {
        #[test]
        fn no_row_panics(fields in prop::collection::vec("[0-9:_]{1,3}|.{0,8}", 16)) {
            let answer = fields.iter().map(|field| format!("{field}@@")).collect::<String>() + "\n";
            let rows = read_past(answer.as_bytes(), &Mark::of("@@"));
            let _ = rows.map(|rows| rows.iter().map(PastRow::number).collect::<Vec<_>>());
        }
    }
}
