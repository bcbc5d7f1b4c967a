//! Starting.
//!
//! A start is: the record; the claim, in the job itself, with where it is to run; the record that it is released; the
//! release. Killed between any two of these, whoever comes next knows from the record whether Slurm may have been told.

use super::SlurmEngine;
use super::finish::CANCELLED;
use crate::outcome::Ending;
use crate::read::{Job, JobState};
use crate::records::{End, How, Record, Stage};
use bursar_engine::{AttemptKey, Error, ErrorKind, StartOrder};
use std::collections::BTreeMap;
use std::time::Duration;

/// How old a look at the queue may be that a start goes by.
const LOOK_AGE_MAX: Duration = Duration::from_secs(1);

/// How long after a job was put back it may run again, in seconds.
const PUT_BACK_S: u64 = 2;

impl SlurmEngine {
    pub(super) fn start_attempt(&mut self, order: &StartOrder) -> Result<(), Error> {
        order.check()?;
        if self.records.is_claimed(&order.key) {
            return Ok(());
        }
        self.check_placement(order)?;
        if order.adopts.is_none() {
            self.check_submission(order)?;
        }
        let name = order.adopts.clone().unwrap_or_else(crate::random_hex);
        let mut record = Record::new(&order.key, name, order.adopts.is_some(), order.resumable);
        record.log = self.log_of_submission(order);
        self.records.put(&order.key, record)?;
        if self.releases_left == 0 {
            self.waiting.push_back(order.clone());
            return Ok(());
        }
        self.begin(order)
    }

    /// Starts what waited for this look.
    pub(super) fn start_waiting(&mut self) -> Result<(), Error> {
        self.releases_left = self.options.releases_max;
        while self.releases_left > 0 {
            let Some(order) = self.waiting.pop_front() else { break };
            self.begin(&order)?;
        }
        Ok(())
    }

    /// Carries a recorded start out, as far as Slurm lets us. What Slurm refuses ends the attempt.
    fn begin(&mut self, order: &StartOrder) -> Result<(), Error> {
        self.releases_left = self.releases_left.saturating_sub(1);
        if let Err(why) = self.claim_and_release(order)? {
            self.end_unstarted(&order.key, &why)?;
        }
        Ok(())
    }

    /// The inner error is why it was not started; the outer one that this could not be recorded.
    fn claim_and_release(&mut self, order: &StartOrder) -> Result<Result<(), String>, Error> {
        let key = &order.key;
        let Some(record) = self.records.get(key).cloned() else { return Ok(Ok(())) };
        if record.stage != Stage::Claimed {
            return Ok(Ok(()));
        }
        if !record.adopts {
            if let Err(why) = self.submit(order, &record) {
                return Ok(Err(why));
            }
            self.changed();
        }
        let job = match self.job_named(&record) {
            Ok(job) => job,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let Some(job) = job else {
            let known = self.waiting_ids.get(&record.name).map(|(id, _)| id.clone());
            return self.not_claimed(key, &record, known, "Slurm does not show its job");
        };
        if matches!(job.state, JobState::Running) && record.adopts {
            return self.claim_running(order, &job);
        }
        if !matches!(job.state, JobState::Pending) {
            return Ok(Err(format!("job {} runs already, or has ended", job.id)));
        }
        // Nobody may start it while its claim is being written.
        if !job.held
            && let Err(error) = self.scontrol(["hold", &job.id])
        {
            return self.not_claimed(key, &record, Some(job.id), &error.said());
        }
        if let Err(error) = self.scontrol(self.claim(order, &job)) {
            return self.not_claimed(key, &record, Some(job.id), &error.said());
        }
        self.records.change(key, |record| {
            record.tag = job.arrival_name();
            record.job = Some(job.id.clone());
            record.log_uid = job.uid;
            record.restarts = job.restarts;
            record.stage = Stage::Released { at_ms: crate::now_ms() };
        })?;
        // The others of this round are as they were seen: a look for each would cost more than its start.
        self.touched(&job.id);
        // It may have been released even if that is not what is said: looking tells.
        if let Err(error) = self.scontrol(["release", &job.id]) {
            self.reasons.insert(key.clone(), error.said());
        }
        Ok(Ok(()))
    }

    /// Its job cannot be had: perhaps it was cancelled since the order was decided. Then it is not tried again.
    fn not_claimed(
        &mut self,
        key: &AttemptKey,
        record: &Record,
        id: Option<String>,
        why: &str,
    ) -> Result<Result<(), String>, Error> {
        let Some(jobs) = id.and_then(|id| self.remembered(&[id].into()).ok()) else {
            return Ok(Err(why.to_owned()));
        };
        let why = match jobs.iter().find(|job| is_named(job, record)).map(|job| &job.state) {
            Some(JobState::Ended(Ending::Cancelled)) => CANCELLED,
            // A controller that was killed just after the submission.
            None => "Slurm does not know it any more",
            Some(_) => return Ok(Err(why.to_owned())),
        };
        let how = How::Cancelled(why.to_owned());
        let ended_s = crate::now_ms() / 1000;
        self.end(key, End { started_s: None, ended_s, how, told: false })?;
        Ok(Ok(()))
    }

    /// Claims a job that somebody else started, if it runs where the attempt is said to run.
    fn claim_running(
        &mut self,
        order: &StartOrder,
        job: &Job,
    ) -> Result<Result<(), String>, Error> {
        let wanted: BTreeMap<&str, usize> =
            order.placement.iter().map(|part| (&*part.host, part.gpus.len())).collect();
        let placement = self.placement(job);
        let found: BTreeMap<&str, usize> =
            placement.iter().map(|(host, gpus)| (&**host, *gpus as usize)).collect();
        if wanted != found {
            return Ok(Err(format!("job {} runs elsewhere: somebody else started it", job.id)));
        }
        let mut note = job.note.clone().unwrap_or_else(|| crate::declare::Note::new("none"));
        (note.claim, note.site) = (Some(order.key.clone()), self.site().map(str::to_owned));
        let (id, note) = (format!("JobId={}", job.id), format!("AdminComment={note}"));
        if let Err(error) = self.scontrol(["update", &id, &note]) {
            return Ok(Err(error.said()));
        }
        self.records.change(&order.key, |record| {
            record.job = Some(job.id.clone());
            record.log_uid = job.uid;
            record.restarts = job.restarts;
            record.stage = Stage::Released { at_ms: crate::now_ms() };
        })?;
        self.changed();
        Ok(Ok(()))
    }

    /// The job that has the name of an attempt.
    fn job_named(&mut self, record: &Record) -> Result<Option<Job>, Error> {
        let jobs = self.recent(LOOK_AGE_MAX)?;
        Ok(jobs.iter().find(|job| is_named(job, record)).cloned())
    }

    /// Whose it is, where it runs and that it may be put back, in one transaction of the controller.
    fn claim(&self, order: &StartOrder, job: &Job) -> Vec<String> {
        let mut note = job.note.clone().unwrap_or_else(|| crate::declare::Note::new("none"));
        (note.claim, note.site) = (Some(order.key.clone()), self.site().map(str::to_owned));
        let mut args = vec![
            "update".to_owned(),
            format!("JobId={}", job.id),
            format!("AdminComment={note}"),
            format!("Requeue={}", u8::from(order.adopts.is_some() && order.resumable)),
        ];
        if self.options.pin && !order.placement.is_empty() {
            let hosts: Vec<&str> = order.placement.iter().map(|part| &*part.host).collect();
            args.push(format!("ReqNodeList={}", hosts.join(",")));
        }
        // Slurm lets what was put back wait for two minutes. It needs two seconds: a node refuses a launch whose credential
        // is not younger than the second in which it revoked the one before.
        if job.restarts > 0 {
            let now_s = crate::now_ms() / 1000;
            let wait_s = (job.submitted.unwrap_or(now_s) + PUT_BACK_S).saturating_sub(now_s);
            args.push(match wait_s {
                0 => "StartTime=now".to_owned(),
                wait_s => format!("StartTime=now+{}seconds", wait_s.min(PUT_BACK_S)),
            });
        }
        args
    }

    fn check_placement(&mut self, order: &StartOrder) -> Result<(), Error> {
        let unknown = |engine: &Self| {
            let known = |host: &str| engine.nodes.iter().find(|node| node.name == host);
            order.placement.iter().find_map(|part| match known(&part.host) {
                None => {
                    Some(format!("{}: there is no host {}", order.key, part.host.escape_debug()))
                }
                Some(node) => {
                    let gpu = part.gpus.iter().find(|gpu| **gpu >= node.gpus.count)?;
                    Some(format!("{}: host {} has no GPU {gpu}", order.key, part.host))
                }
            })
        };
        if unknown(self).is_some() {
            self.look_at_nodes()?;
        }
        match unknown(self) {
            Some(why) => Err(Error::new(ErrorKind::Invalid, why)),
            None => Ok(()),
        }
    }

    /// Takes an attempt out of those that wait for the next look; whether it was among them.
    pub(super) fn unqueue(&mut self, key: &AttemptKey) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|order| order.key != *key);
        self.waiting.len() < before
    }
}

/// Whether this job is that of an attempt. The word of an order is shown to everybody once the job is in the queue, so it
/// counts only until the job's own name is known.
pub(super) fn is_named(job: &Job, record: &Record) -> bool {
    let known = record.tag.as_ref().map(|tag| job.arrival_name().as_ref() == Some(tag));
    known.unwrap_or_else(|| {
        let order = job.note.as_ref().and_then(|note| note.order.as_ref());
        order == Some(&record.name)
    })
}
