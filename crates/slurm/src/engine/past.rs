//! Runs that are over, as Slurm accounts them: also those that nobody saw, since they came and went while nobody looked.
//!
//! Accounts are written a moment late, and by a controller that may have been cut off from them; so each look goes back a
//! little behind the one before. Whoever is told a run twice knows it by its start.

use super::SlurmEngine;
use super::arrivals::placement;
use super::finish::CANCELLED;
use super::look::unreadable;
use super::names::Names;
use crate::outcome::Ending;
use crate::read::{Mark, PastRow, gpus_of_tres, past_call, read_past};
use crate::records::{io_error, moment_of};
use bursar_engine::{Arrival, ArrivalState, Error, Outcome, PastRun};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The file that says what of the accounts was taken, in the engine's folder.
const FILE: &str = "accounts.json";

/// How far a look goes back behind the one before it, in seconds.
const BEHIND_S: u64 = 900;

/// How much is asked for in one call, in seconds.
const A_CALL_S: u64 = 86_400;

/// What of the accounts was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Taken {
    /// Until when they were read, in seconds since 1970.
    until_s: u64,
    /// The runs that ended lately and are known: the job's number and its start, and its end. Kept by Slurm's own moments,
    /// whatever becomes of clocks here.
    known: BTreeMap<String, u64>,
}

/// How far the accounts were read.
#[derive(Debug)]
pub(super) struct Past {
    path: PathBuf,
    taken: Option<Taken>,
    /// What was told last, if nobody has said yet that all of it was taken.
    told: Option<Taken>,
}

/// The name of a run: a number is given again by a controller that was killed, but not for the same second.
fn name_of(job: &str, started_s: u64) -> String {
    format!("{job}@{started_s}")
}

impl Past {
    pub(super) fn open(folder: &Path) -> Self {
        let path = folder.join(FILE);
        // Where that is lost, all is read again.
        let read = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Self { path, taken: read, told: None }
    }

    fn from(&self, since_s: u64) -> u64 {
        let taken = self.taken.as_ref().filter(|taken| taken.until_s > 0);
        taken.map_or(since_s, |taken| taken.until_s.saturating_sub(BEHIND_S).max(since_s))
    }

    /// An attempt has ended as this run of a job.
    pub(super) fn know(&mut self, job: &str, started_s: u64, ended_s: u64) {
        let taken = self.taken.get_or_insert_default();
        taken.known.insert(name_of(job, started_s), ended_s);
    }

    fn is_known(&self, run: &PastRun) -> bool {
        self.taken.as_ref().is_some_and(|taken| taken.known.contains_key(&run.run))
    }

    fn tell(&mut self, runs: &[PastRun], until_s: u64) {
        let named = |run: &PastRun| (run.run.clone(), run.ended_at.unix_ms / 1000);
        self.told = Some(Taken { until_s, known: runs.iter().map(named).collect() });
    }

    /// What was told last need not be told again.
    pub(super) fn took(&mut self) -> Result<(), Error> {
        let Some(told) = self.told.take() else { return Ok(()) };
        let taken = self.taken.get_or_insert_default();
        taken.until_s = told.until_s;
        taken.known.extend(told.known);
        // What ended before is not read again.
        let oldest = told.until_s.saturating_sub(2 * BEHIND_S);
        taken.known.retain(|_, ended_s| *ended_s >= oldest);
        let text = serde_json::to_vec(taken).unwrap_or_default();
        let new = self.path.with_extension("new");
        fs::write(&new, text).map_err(|error| io_error(&new, &error))?;
        fs::rename(&new, &self.path).map_err(|error| io_error(&self.path, &error))
    }
}

impl SlurmEngine {
    /// All runs that ended since, or since they were last taken.
    pub(super) fn see_past(&mut self, since_s: u64) -> Result<Vec<PastRun>, Error> {
        let until_s = crate::now_ms() / 1000;
        let mut from_s = self.past.from(since_s);
        let (mut rows, mut seen) = (Vec::new(), BTreeSet::new());
        while from_s <= until_s {
            let to_s = until_s.min(from_s.saturating_add(A_CALL_S));
            let mark = Mark::new();
            let call = past_call(&self.options.partitions, from_s, to_s, &mark);
            let answer = self.run(&call)?;
            let part = read_past(&answer, &mark).map_err(|why| unreadable(&call, &why))?;
            // One that runs over the end of a part is in both.
            rows.extend(part.into_iter().filter(|row| {
                let row = &row.row;
                seen.insert((row.job.clone(), row.submitted, row.started, row.ended.is_some()))
            }));
            from_s = to_s + 1;
        }
        let mut runs = self.runs_of_rows(&rows, until_s);
        runs.retain(|run| !self.past.is_known(run));
        self.past.tell(&runs, until_s);
        Ok(runs)
    }

    pub(super) fn took_past(&mut self) -> Result<(), Error> {
        self.past.took()
    }

    fn runs_of_rows(&self, rows: &[PastRow], until_s: u64) -> Vec<PastRun> {
        let mut by_job: BTreeMap<&str, Vec<&PastRow>> = BTreeMap::new();
        for row in rows {
            by_job.entry(&row.row.job).or_default().push(row);
        }
        let mut runs = Vec::new();
        for rows in by_job.values_mut() {
            rows.sort_by_key(|row| (row.row.submitted, row.row.started));
            let mut from = 0;
            for at in 0..rows.len() {
                let is_last = rows.get(at + 1).is_none_or(|next| !follows(rows[at], next));
                if is_last {
                    runs.extend(self.runs_of_job(&rows[from..=at], until_s));
                    from = at + 1;
                }
            }
        }
        runs
    }

    /// The runs of one job, which was put back into the queue between them.
    fn runs_of_job(&self, rows: &[&PastRow], until_s: u64) -> Vec<PastRun> {
        let Some((number, task)) = rows.first().and_then(|row| row.number()) else {
            return Vec::new();
        };
        let named = |tag: &str| task.map_or(tag.to_owned(), |task| format!("{tag}_{task}"));
        // What it was noted as, else what it would have been named when it was first seen: at one of its moments.
        let noted = rows.iter().filter_map(|row| row.note.as_ref()).map(|note| named(&note.tag));
        let submits = rows.iter().filter_map(|row| row.row.submitted);
        let made_up = submits.map(|submit| named(&Names::made_up(number, submit)));
        let mut names: Vec<String> = Vec::new();
        for name in noted.chain(made_up) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let submitted = rows.iter().filter_map(|row| row.row.submitted).min();
        let run = |(at, row): (usize, &&PastRow)| {
            let later = at + 1 < rows.len();
            self.run_of(row, &names, submitted, later, until_s)
        };
        rows.iter().enumerate().filter_map(run).collect()
    }

    /// The run of a row, if it ran and is over, with GPUs.
    fn run_of(
        &self,
        row: &PastRow,
        names: &[String],
        submitted: Option<u64>,
        later: bool,
        until_s: u64,
    ) -> Option<PastRun> {
        let (started, ended, ending) = (row.row.started?, row.row.ended?, row.ending?);
        let is_order = row.note.as_ref().is_some_and(|note| note.order.is_some());
        if is_order || row.nodes.is_empty() || row.gpus.count == 0 || ended > until_s {
            return None;
        }
        let limit_ms = row.row.limit_minutes.parse::<u64>().ok();
        let limit_ms = limit_ms.and_then(|minutes| minutes.checked_mul(60_000));
        let (name, aliases) = names.split_first()?;
        let note = row.note.clone().unwrap_or_else(|| {
            self.options
                .note_within(limit_ms, name.split('_').next().unwrap_or_default().to_owned())
        });
        let placement = placement(&row.nodes, row.gpus.count);
        let title = row.row.name.chars().map(|one| if one.is_control() { ' ' } else { one });
        let returned = later || matches!(ending, Ending::Requeued | Ending::Preempted);
        Some(PastRun {
            run: name_of(&row.row.job, started),
            arrival: Arrival {
                name: name.clone(),
                shown: row.row.job.clone(),
                title: title.collect(),
                user: row.row.user.clone(),
                account: row.row.account.clone(),
                queue: row.row.partition.clone(),
                gpus: row.gpus.count,
                shape: None,
                gpu_model: gpus_of_tres(&row.row.asked).model,
                max_runtime_ms: limit_ms,
                declared: note.declared(),
                submitted_at: moment_of(submitted.unwrap_or(started)),
                state: ArrivalState::Runs {
                    since: moment_of(started),
                    placement: placement.clone(),
                },
            },
            aliases: aliases.to_vec(),
            started_at: moment_of(started),
            ended_at: moment_of(ended.max(started)),
            placement,
            outcome: match ending {
                Ending::Cancelled => Outcome::Cancelled { reason: CANCELLED.to_owned() },
                Ending::Requeued | Ending::Preempted => {
                    Outcome::Lost { reason: "Slurm put it back into its queue".to_owned() }
                }
                ending => ending.outcome(row.code, row.signal),
            },
            returned,
        })
    }
}

/// Whether the second row is of the same job, put back into the queue after the first: else a controller that was killed
/// has given its number to another.
fn follows(row: &PastRow, next: &PastRow) -> bool {
    if let (Some(one), Some(other)) = (&row.note, &next.note) {
        return one.tag == other.tag;
    }
    let put_back =
        matches!(row.ending, Some(Ending::Requeued | Ending::Preempted | Ending::NodeFail));
    // Within a second: who is put back is submitted anew at that moment.
    put_back && next.row.submitted.zip(row.row.ended).is_some_and(|(next, ended)| next >= ended)
}
