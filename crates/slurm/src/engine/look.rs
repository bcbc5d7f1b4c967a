//! Looking at Slurm.

use super::SlurmEngine;
use crate::client::{Call, ClientError};
use crate::read::{
    Job, Mark, QueueWhat, Run, Unreadable, accounting_call, queue_call, read_accounting, read_queue,
};
use bursar_engine::{Arrival, Error};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How many jobs are asked for by their ids in one call.
const JOBS_A_CALL: usize = 200;

impl SlurmEngine {
    /// The governed partitions' jobs that have not ended, as they are now.
    pub(super) fn look(&mut self) -> Result<&[Job], Error> {
        let what = QueueWhat::Live(self.options.partitions.clone());
        self.queue = None;
        let jobs = self.ask_queue(&what)?;
        Ok(&self.queue.insert((Instant::now(), jobs)).1)
    }

    /// The same, as they were at most this long ago.
    pub(super) fn recent(&mut self, age_max: Duration) -> Result<&[Job], Error> {
        if self.queue.as_ref().is_none_or(|(at, _)| at.elapsed() > age_max) {
            self.look()?;
        }
        Ok(self.queue.as_ref().map_or(&[], |(_, jobs)| jobs))
    }

    /// A change was ordered: what was seen is not so any more.
    pub(super) fn changed(&mut self) {
        self.queue = None;
    }

    /// A change of this job alone was ordered: it is not known how it is now.
    pub(super) fn touched(&mut self, id: &str) {
        if let Some((_, jobs)) = &mut self.queue {
            jobs.retain(|job| job.id != id);
        }
    }

    /// These jobs, ended or not, as far as the controller remembers them.
    pub(super) fn remembered(&self, jobs: &BTreeSet<String>) -> Result<Vec<Job>, Error> {
        let mut found = Vec::new();
        let jobs: Vec<String> = jobs.iter().cloned().collect();
        for part in jobs.chunks(JOBS_A_CALL) {
            match self.ask_queue(&QueueWhat::Jobs(part.to_vec())) {
                Ok(jobs) => found.extend(jobs),
                // That is said if none of them is known.
                Err(ClientError::Refused { said, .. }) if said.contains("Invalid job id") => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(found)
    }

    /// All runs of an arrival as they are accounted, the first one first: also those that no order of ours started, whose
    /// ends no observation tells. Each is known by its `started`.
    ///
    /// # Errors
    ///
    /// `Io` if the accounts do not answer.
    pub fn runs_of(&self, arrival: &Arrival) -> Result<Vec<Run>, Error> {
        let tag = arrival.name.split('_').next().unwrap_or_default();
        let mut runs = self.accounted(&BTreeSet::from([arrival.shown.clone()]))?;
        // Its number may have been another job's before.
        runs.retain(|run| run.note.as_ref().is_some_and(|note| note.tag == tag));
        runs.sort_by_key(|run| (run.started, run.ended));
        Ok(runs)
    }

    fn ask_queue(&self, what: &QueueWhat) -> Result<Vec<Job>, ClientError> {
        let mark = Mark::new();
        let call = queue_call(what, &mark);
        let answer = self.run(&call)?;
        read_queue(&answer, &mark).map_err(|why| unreadable(&call, &why))
    }

    /// All runs of these jobs, as they are accounted.
    pub(super) fn accounted(&self, jobs: &BTreeSet<String>) -> Result<Vec<Run>, Error> {
        let mut found = Vec::new();
        let jobs: Vec<String> = jobs.iter().cloned().collect();
        for part in jobs.chunks(JOBS_A_CALL) {
            let mark = Mark::new();
            let call = accounting_call(part, &mark);
            let answer = self.run(&call)?;
            found.extend(read_accounting(&answer, &mark).map_err(|why| unreadable(&call, &why))?);
        }
        Ok(found)
    }
}

pub(super) fn unreadable(call: &Call, why: &Unreadable) -> ClientError {
    ClientError::Unreadable { call: call.to_string(), why: why.to_string() }
}
