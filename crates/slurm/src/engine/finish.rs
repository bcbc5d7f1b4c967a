//! Finding out how attempts ended whose jobs have left the queue, or are in it anew.

use super::SlurmEngine;
use super::observe::Unseen;
use super::start::is_named;
use crate::outcome::{Ending, of_wait_status};
use crate::read::{Job, JobState, Run};
use crate::records::{End, How, Record, Stage};
use bursar_engine::{AttemptKey, Error};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long a job that is to go back into the queue is not told so again.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// How long the accounts are not asked again when they did not answer: nobody shall wait for them each second.
const ACCOUNTS_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// What is said of a job that was not cancelled by us.
pub(super) const CANCELLED: &str = "it was cancelled in Slurm";

impl SlurmEngine {
    pub(super) fn find_ends(&mut self, unseen: &Unseen, jobs: &[Job]) -> Result<(), Error> {
        if unseen.gone.is_empty() && unseen.put_back.is_empty() {
            return Ok(());
        }
        let mut put_back = unseen.put_back.clone();
        let mut to_account = Vec::new();
        let remembered = self.remembered(&self.jobs_of(&unseen.gone))?;
        for key in &unseen.gone {
            let Some(record) = self.records.get(key).cloned() else { continue };
            let job = remembered.iter().find(|job| is_named(job, &record));
            match job.map(|job| (job, &job.state)) {
                Some((job, JobState::Ended(ending))) if job.restarts == record.restarts => {
                    self.ended(key, &record, job, *ending)?;
                }
                Some((_, JobState::Ended(_))) | None => to_account.push(key.clone()),
                // It is in another partition now, or came back between two questions.
                Some((job, _)) => {
                    let mut again = Unseen::default();
                    self.follow(key, &record, Some(job), &mut again)?;
                    put_back.extend(again.put_back);
                }
            }
        }
        to_account.extend(put_back.keys().cloned());
        self.account(&to_account, &put_back, jobs)
    }

    fn jobs_of(&self, keys: &[AttemptKey]) -> BTreeSet<String> {
        keys.iter().filter_map(|key| self.records.get(key)?.job.clone()).collect()
    }

    /// The controller still knows how it ended.
    fn ended(
        &mut self,
        key: &AttemptKey,
        record: &Record,
        job: &Job,
        ending: Ending,
    ) -> Result<(), Error> {
        if let Stage::Returning(_) = record.stage {
            return self.put_back(key, &job.id);
        }
        let ended_s = job.ended.unwrap_or_else(|| crate::now_ms() / 1000);
        let ran = !job.nodes.is_empty() && job.started.is_some();
        let (code, signal) = of_wait_status(job.wait_status);
        let how = if ending == Ending::Cancelled && !record.stop {
            How::Cancelled(CANCELLED.to_owned())
        } else if ran {
            ending.outcome(code, signal).into()
        } else {
            How::NotStarted(format!("it was ended in Slurm before it ran ({})", job.reason))
        };
        let end = End {
            started_s: job.started.filter(|_| ran),
            ended_s,
            how,
            told: record.told_to_leave(),
        };
        let end = self.as_script_says(record, end);
        self.remark(key, ending)?;
        // Who cancels a job wants it gone, also when it is about to be put back.
        if ran && record.returns() && ending != Ending::Cancelled {
            self.records.change(key, |record| record.stage = Stage::Returning(end))?;
            return self.put_back(key, &job.id);
        }
        self.end(key, end)
    }

    /// Puts a job that has ended back into the queue, on hold. That it is there is seen, not believed.
    fn put_back(&mut self, key: &AttemptKey, job: &str) -> Result<(), Error> {
        let now = Instant::now();
        if self.stopped_at.get(key).is_none_or(|at| now.duration_since(*at) > AGAIN_AFTER) {
            self.stopped_at.insert(key.clone(), now);
            if let Err(error) = self.scontrol(["requeuehold", job])
                && error.is_refusal()
            {
                let note = format!("it could not be put back into Slurm's queue: {}", error.said());
                self.records.change(key, |record| {
                    if !record.notes.contains(&note) {
                        record.notes.push(note);
                    }
                })?;
            }
            self.changed();
        }
        Ok(())
    }

    /// Only the accounts know how these ended.
    fn account(
        &mut self,
        keys: &[AttemptKey],
        put_back: &BTreeMap<AttemptKey, Option<u64>>,
        jobs: &[Job],
    ) -> Result<(), Error> {
        if keys.is_empty() {
            return Ok(());
        }
        // While the accounts do not answer, they have no row.
        let failed = self.accounts_failed_at.filter(|at| at.elapsed() < ACCOUNTS_AGAIN_AFTER);
        let runs = match failed {
            Some(_) => Vec::new(),
            None => self.accounted(&self.jobs_of(keys)).unwrap_or_else(|_| {
                self.accounts_failed_at = Some(Instant::now());
                Vec::new()
            }),
        };
        for key in keys {
            let Some(record) = self.records.get(key).cloned() else { continue };
            let end = match (row_of(&runs, key, &record, self.site()), &record.stage) {
                // Slurm has a run that ended by itself end anew when its job is put back: that is what it charges.
                (Some((_, ending)), Stage::Returning(_))
                    if ending != Ending::Requeued
                        && put_back.contains_key(key)
                        && !self.is_missed_for_long(key) =>
                {
                    None
                }
                (Some((run, Ending::Requeued)), Stage::Returning(end)) => {
                    let ended_s = run.ended.unwrap_or(end.ended_s);
                    Some(End { ended_s, ..end.clone() })
                }
                // It was to go back, but Slurm has dropped it, or its accounts do not answer.
                (row, Stage::Returning(end)) => {
                    (row.is_some() || self.is_missed_for_long(key)).then(|| end.clone())
                }
                (Some((run, ending)), _) => {
                    self.remark(key, ending)?;
                    Some(self.as_script_says(&record, end_of_row(&record, run, ending)))
                }
                (None, _) => {
                    let late = self.is_missed_for_long(key);
                    late.then(|| end_without_row(&record, put_back.get(key)))
                }
            };
            let Some(end) = end else { continue };
            self.end(key, end)?;
            if put_back.contains_key(key) {
                let job = jobs.iter().find(|job| is_named(job, &record));
                self.tidy(&record, job);
            }
        }
        Ok(())
    }

    pub(super) fn is_missed_for_long(&mut self, key: &AttemptKey) -> bool {
        let since = self.missed_since.entry(key.clone()).or_insert_with(Instant::now);
        since.elapsed() > self.options.accounting_patience
    }

    /// A script of ours that did not come to run its command has said so.
    fn as_script_says(&self, record: &Record, end: End) -> End {
        match self.refused_by_script(record) {
            Some(reason) => End { started_s: None, how: How::StartFailed(reason), ..end },
            None => end,
        }
    }

    fn remark(&mut self, key: &AttemptKey, ending: Ending) -> Result<(), Error> {
        let Some(remark) = ending.remark() else { return Ok(()) };
        self.records.change(key, |record| {
            if !record.notes.iter().any(|note| note == remark) {
                record.notes.push(remark.to_owned());
            }
        })
    }
}

/// The run of this attempt: the one that began when it did, else the first one that ended with its claim. Slurm may have put
/// it back since and run it again, with the same claim: those are no attempts of ours.
fn row_of<'a>(
    runs: &'a [Run],
    key: &AttemptKey,
    record: &Record,
    site: Option<&str>,
) -> Option<(&'a Run, Ending)> {
    let claimed = |run: &&Run| run.note.as_ref().and_then(|note| note.claim_of(site)) == Some(key);
    let ended = || runs.iter().filter(claimed).filter_map(|run| Some((run, run.ending?)));
    let started_s = record.started_s();
    let same = started_s.and_then(|at| ended().find(|(run, _)| run.started == Some(at)));
    let ran = || ended().filter(|(run, _)| run.started.is_some() && !run.nodes.is_empty());
    same.or_else(|| ran().min_by_key(|(run, _)| (run.started, run.ended)))
        .or_else(|| ended().max_by_key(|(run, _)| run.ended))
}

fn end_of_row(record: &Record, run: &Run, ending: Ending) -> End {
    let now = crate::now_ms() / 1000;
    let ran = run.started.filter(|_| !run.nodes.is_empty());
    let how = match ran {
        _ if ending == Ending::Cancelled && !record.stop => How::Cancelled(CANCELLED.to_owned()),
        Some(_) => ending.outcome(run.code, run.signal).into(),
        None => How::NotStarted("it was ended in Slurm before it ran".to_owned()),
    };
    let ended_s = run.ended.unwrap_or(now);
    End { started_s: ran, ended_s, how, told: record.told_to_leave() }
}

/// The accounts know nothing of it: what the controller shows is all there is.
fn end_without_row(record: &Record, put_back: Option<&Option<u64>>) -> End {
    let told = record.told_to_leave();
    let started_s = record.started_s();
    let how = match (started_s, put_back) {
        (Some(_), Some(_)) if told => Ending::Requeued.outcome(0, 0).into(),
        (Some(_), _) => How::Lost("Slurm does not know how it ended".to_owned()),
        (None, _) => How::NotStarted("Slurm knows nothing of it any more".to_owned()),
    };
    let ended_s = put_back.copied().flatten().unwrap_or_else(|| crate::now_ms() / 1000);
    End { started_s, ended_s: ended_s.max(started_s.unwrap_or_default()), how, told }
}
