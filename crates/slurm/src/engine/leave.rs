//! Telling work something, ending it, and letting go of it.

use super::SlurmEngine;
use super::start::is_named;
use crate::client::one_line;
use crate::options::{SignalTarget, SlurmSignal};
use crate::read::{Job, JobState};
use crate::records::{Stage, Told};
use bursar_engine::{AttemptKey, Error, ErrorKind, Signal};
use std::time::{Duration, Instant};

/// How long an attempt that is to stop is not told so again.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// How old a look at the queue may be that orders go by.
const LOOK_AGE_MAX: Duration = Duration::from_secs(1);

impl SlurmEngine {
    pub(super) fn signal_attempt(&mut self, key: &AttemptKey, signal: Signal) -> Result<(), Error> {
        let wanted = |told: &mut Told| {
            if *told == Told::No {
                *told = Told::Wanted;
            }
        };
        self.records.change(key, |record| {
            if !record.is_over() {
                match signal {
                    Signal::Warn => wanted(&mut record.warning),
                    Signal::Checkpoint => wanted(&mut record.checkpoint),
                }
            }
        })?;
        if self.job_now(key)?.is_some_and(|job| job.state == JobState::Running) {
            self.tell(key)?;
        }
        Ok(())
    }

    /// The job of an attempt that is not over.
    fn job_now(&mut self, key: &AttemptKey) -> Result<Option<Job>, Error> {
        let Some(record) = self.records.get(key).cloned().filter(|record| !record.is_over()) else {
            return Ok(None);
        };
        let jobs = self.recent(LOOK_AGE_MAX)?;
        let current = |job: &&Job| is_named(job, &record) && job.restarts == record.restarts;
        Ok(jobs.iter().find(current).cloned())
    }

    /// Delivers what a running attempt is to be told, if it has run for long enough to hear it.
    pub(super) fn tell(&mut self, key: &AttemptKey) -> Result<(), Error> {
        let Some(record) = self.records.get(key).cloned() else { return Ok(()) };
        let Stage::Running { started_s } = record.stage else { return Ok(()) };
        // Slurm's moments are whole seconds, cut off, of a clock that may not be ours.
        let long = self.options.signal_after + Duration::from_secs(1);
        let ran_ms = crate::now_ms().saturating_sub(started_s.saturating_mul(1000));
        let seen = self.seen_running.entry(key.clone()).or_insert_with(Instant::now).elapsed();
        let due = Duration::from_millis(ran_ms) >= long || seen >= long;
        let wants = record.checkpoint == Told::Wanted || record.warning == Told::Wanted;
        if record.stop || !due || !wants {
            return Ok(());
        }
        let Some(job) = self.job_now(key)? else { return Ok(()) };
        if record.checkpoint == Told::Wanted {
            self.records.change(key, |record| record.checkpoint = Told::Sent)?;
            if !self.send(&job, self.options.checkpoint_signal) {
                self.records.change(key, |record| record.checkpoint = Told::Wanted)?;
            }
        }
        if let Some(signal) = self.options.warn_signal.filter(|_| record.warning == Told::Wanted) {
            self.records.change(key, |record| record.warning = Told::Sent)?;
            if !self.send(&job, signal) {
                self.records.change(key, |record| record.warning = Told::Wanted)?;
            }
        }
        Ok(())
    }

    /// Sends a signal; false if it is known that it was not sent.
    fn send(&self, job: &Job, signal: SlurmSignal) -> bool {
        let mut args = vec![format!("--signal={signal}")];
        match self.options.signal_scope {
            SignalTarget::Script if job.has_script => args.push("--batch".to_owned()),
            SignalTarget::Both if job.has_script => args.push("--full".to_owned()),
            SignalTarget::Script | SignalTarget::Both | SignalTarget::Steps => {}
        }
        args.push(job.id.clone());
        match self.scancel(args) {
            Ok(()) => true,
            Err(error) => !error.is_refusal(),
        }
    }

    pub(super) fn stop_attempt(&mut self, key: &AttemptKey) -> Result<(), Error> {
        if self.records.get(key).is_none_or(|record| record.is_over()) {
            return Ok(());
        }
        self.records.change(key, |record| record.stop = true)?;
        if self.unqueue(key) {
            return self.end_unstarted(key, "it was stopped before Slurm was told to start it");
        }
        self.changed();
        match self.job_now(key)? {
            Some(job) => self.end_job(key, &job),
            None => Ok(()),
        }
    }

    /// Stops what is to be stopped and still there, now and then again.
    pub(super) fn stop_again(&mut self, key: &AttemptKey) -> Result<(), Error> {
        if !self.records.get(key).is_some_and(|record| record.stop) {
            return Ok(());
        }
        match self.job_now(key)? {
            Some(job) => self.end_job(key, &job),
            None => Ok(()),
        }
    }

    fn end_job(&mut self, key: &AttemptKey, job: &Job) -> Result<(), Error> {
        let Some(record) = self.records.get(key).cloned() else { return Ok(()) };
        let now = Instant::now();
        if self.stopped_at.get(key).is_some_and(|at| now.duration_since(*at) < AGAIN_AFTER) {
            return Ok(());
        }
        let ordered = match job.state {
            // If it comes to run all the same, that is seen, and it is stopped then.
            JobState::Pending if record.adopts => self.scontrol(["hold", &job.id]),
            JobState::Configuring if record.adopts && record.resumable => {
                self.stopped_at.insert(key.clone(), now);
                self.scontrol(["requeuehold", &job.id])
            }
            JobState::Pending | JobState::Configuring => self.scancel([&job.id]),
            JobState::Running | JobState::Unknown(_) => {
                self.stopped_at.insert(key.clone(), now);
                if record.returns() {
                    self.scontrol(["requeuehold", &job.id])
                } else {
                    self.scancel([&job.id])
                }
            }
            JobState::Completing | JobState::Ended(_) => Ok(()),
        };
        self.changed();
        // What has ended just now refuses; the next look tells.
        match ordered {
            Err(error) if !error.is_refusal() => Err(error.into()),
            _ => Ok(()),
        }
    }

    pub(super) fn forget_attempt(&mut self, key: &AttemptKey) -> Result<(), Error> {
        match self.records.get(key) {
            None => Ok(()),
            Some(record) if record.is_over() => self.records.forget(key),
            Some(_) => Err(Error::new(ErrorKind::NotEnded, format!("{key} has not ended"))),
        }
    }

    /// The job of an arrival that no attempt has.
    fn arrival_now(&mut self, name: &str, age_max: Duration) -> Result<Option<Job>, Error> {
        if self.records.all().any(|(_, record)| record.name == name && !record.is_over()) {
            return Ok(None);
        }
        let jobs = self.recent(age_max)?;
        Ok(jobs.iter().find(|job| job.arrival_name().is_some_and(|own| own == name)).cloned())
    }

    pub(super) fn withdraw_arrival(&mut self, name: &str) -> Result<(), Error> {
        let Some(job) = self.arrival_now(name, Duration::ZERO)? else { return Ok(()) };
        self.changed();
        match self.scancel([&job.id]) {
            Err(error) if !error.is_refusal() => Err(error.into()),
            _ => Ok(()),
        }
    }

    pub(super) fn decline_arrival(&mut self, name: &str, why: &str) -> Result<(), Error> {
        let Some(job) = self.arrival_now(name, LOOK_AGE_MAX)? else { return Ok(()) };
        let comment = format!("bursar: {}", one_line(why));
        if job.comment.as_deref() == Some(&comment) {
            return Ok(());
        }
        self.scontrol(["update", &format!("JobId={}", job.id), &format!("Comment={comment}")])?;
        self.changed();
        Ok(())
    }
}
