//! Observing attempts, and what follows from it.

use super::SlurmEngine;
use super::judge::{Verdict, judge};
use super::start::is_named;
use crate::read::{Job, JobState};
use crate::records::{End, How, Record, Stage, Told, moment_of};
use bursar_engine::{AttemptKey, AttemptState, Error, Observation};
use std::collections::BTreeMap;

/// How many jobs are put on hold by one call.
const HOLDS_A_CALL: usize = 200;

impl SlurmEngine {
    pub(super) fn see_attempts(&mut self) -> Result<Vec<Observation>, Error> {
        self.must_hold()?;
        self.start_waiting()?;
        let mut jobs = self.look()?.to_vec();
        if self.claim_watched(&jobs)? {
            jobs = self.look()?.to_vec();
        }
        self.take_over(&jobs)?;
        let mut unseen = Unseen::default();
        let mut to_hold = Vec::new();
        let by_name = by_name(&jobs);
        for key in self.records.keys() {
            let Some(record) = self.records.get(&key).cloned() else { continue };
            if record.is_over() || record.stage == Stage::Claimed {
                continue;
            }
            let job = record.tag.as_ref().and_then(|tag| by_name.get(tag).copied());
            self.follow(&key, &record, job, &mut unseen)?;
            let is_back = unseen.put_back.contains_key(&key);
            if let Some(job) = job.filter(|job| is_back && !job.held && !job.holds_hosts()) {
                to_hold.push(job.id.clone());
            }
        }
        self.cancel_strays(&jobs);
        // What was put back without an order of ours, by a node that failed or by its user: Slurm lets it wait for two
        // minutes, so it is held in time. Holding it while it runs would do, too, but takes the moment from which it was
        // eligible out of the accounts, and runs without one are missing in most reports.
        to_hold.extend(self.released_before(&jobs));
        for part in to_hold.chunks(HOLDS_A_CALL) {
            let _ = self.scontrol(["hold", &part.join(",")]);
        }
        self.find_ends(&unseen, &jobs)?;
        Ok(self.records.all().map(|(key, record)| self.observation(key, record)).collect())
    }

    /// Does what follows from the job of an attempt.
    pub(super) fn follow(
        &mut self,
        key: &AttemptKey,
        record: &Record,
        job: Option<&Job>,
        unseen: &mut Unseen,
    ) -> Result<(), Error> {
        let limit_ms = u64::try_from(self.options.start_limit.as_millis()).unwrap_or(u64::MAX);
        match judge(record, job, crate::now_ms(), limit_ms) {
            Verdict::Patience => {
                let pending = job.filter(|job| job.state == JobState::Pending);
                if let Some(reason) = pending.and_then(telling) {
                    self.reasons.insert(key.clone(), reason.to_owned());
                }
                self.stop_again(key)
            }
            Verdict::Runs { started_s } => {
                self.records.change(key, |record| {
                    if !matches!(record.stage, Stage::Returning(_)) {
                        record.stage = Stage::Running { started_s };
                    }
                    if record.log.is_none() {
                        record.log = job.and_then(|job| job.log.clone());
                    }
                })?;
                if job.is_some_and(|job| job.state == JobState::Running) {
                    self.tell(key)?;
                }
                self.stop_again(key)
            }
            Verdict::TooLate => {
                let id = job.map(|job| job.id.clone()).unwrap_or_default();
                let limit = self.options.start_limit.as_secs();
                let known = job.and_then(telling).map(str::to_owned);
                let said = known.or_else(|| self.reasons.get(key).cloned());
                let said = said.map_or(String::new(), |said| format!(": {said}"));
                let why = format!("Slurm did not start it within {limit} s{said}");
                self.reasons.insert(key.clone(), why);
                // Whether that came in time, the next look tells.
                let _ = self.scontrol(["hold", &id]);
                self.changed();
                Ok(())
            }
            Verdict::NotStarted { reason } => {
                let said = job.and_then(telling).map(|why| format!("Slurm put it on hold: {why}"));
                let why = said.or_else(|| self.reasons.get(key).cloned()).unwrap_or(reason);
                let why = if record.stop { "it was stopped before it ran".to_owned() } else { why };
                self.end_unstarted(key, &why)?;
                self.tidy(record, job);
                Ok(())
            }
            Verdict::Unremembered => {
                self.tidy(record, job);
                let how = How::Lost(
                    "Slurm's controller lost the run: it was stopped amidst it".to_owned(),
                );
                let (started_s, told) = (record.started_s(), record.told_to_leave());
                self.end(key, End { started_s, ended_s: crate::now_ms() / 1000, how, told })
            }
            Verdict::PutBack { at_s } => {
                unseen.put_back.insert(key.clone(), at_s);
                Ok(())
            }
            Verdict::Gone => {
                unseen.gone.push(key.clone());
                Ok(())
            }
        }
    }

    /// A job waits again: it stays on hold, and nothing of the attempt stays with it. What fails here does no harm:
    /// the next start says all of it anew.
    pub(super) fn tidy(&mut self, record: &Record, job: Option<&Job>) {
        let waiting = job.filter(|job| job.state == JobState::Pending);
        let Some((job, note)) = waiting.and_then(|job| Some((job, job.note.clone()?))) else {
            return;
        };
        if !record.adopts {
            let _ = self.scancel([job.id.clone()]);
            return;
        }
        if !job.held {
            let _ = self.scontrol(["hold", &job.id]);
        }
        let note = crate::declare::Note { claim: None, site: None, ..note };
        let id = format!("JobId={}", job.id);
        let _ = self.scontrol(["update", &id, "ReqNodeList=", &format!("AdminComment={note}")]);
        self.changed();
    }

    /// What waits without its hold when governing begins: it was given back to Slurm before. Looked for once.
    fn released_before(&mut self, jobs: &[Job]) -> Vec<String> {
        if std::mem::replace(&mut self.has_looked, true) {
            return Vec::new();
        }
        let live = self.records.all().filter(|(_, record)| !record.is_over());
        let live: std::collections::BTreeSet<&String> =
            live.filter_map(|(_, record)| record.tag.as_ref()).collect();
        let waits = jobs.iter().filter(|job| job.state == JobState::Pending && !job.held);
        let ours = waits.filter(|job| job.arrival_name().is_some_and(|name| !live.contains(&name)));
        ours.map(|job| job.id.clone()).collect()
    }

    /// What was only watched and is to be governed now: the job that runs gets its name, and its attempt's claim. Whether
    /// there were any.
    fn claim_watched(&self, jobs: &[Job]) -> Result<bool, Error> {
        let mut commands = Vec::new();
        for (key, record) in self.records.all() {
            let (Stage::Running { started_s }, Some(id)) = (&record.stage, &record.job) else {
                continue;
            };
            let is_it =
                |job: &&Job| job.note.is_none() && job.id == *id && job.started == Some(*started_s);
            let Some(job) = jobs.iter().find(is_it).filter(|job| job.holds_hosts()) else {
                continue;
            };
            let tag = record.name.split('_').next().unwrap_or_default().to_owned();
            let note = crate::declare::Note {
                claim: Some(key.clone()),
                site: self.site().map(str::to_owned),
                resumable: record.resumable,
                ..self.options.note_of(job, tag)
            };
            let requeue = u8::from(record.resumable);
            commands.push(format!("update JobId={id} AdminComment={note} Requeue={requeue}"));
        }
        if commands.is_empty() {
            return Ok(false);
        }
        // One that has ended meanwhile refuses.
        let _ = self.scontrol_all(&commands);
        Ok(true)
    }

    /// Work that runs for an attempt which no record here knows: the records were lost, the job says whose it is.
    fn take_over(&mut self, jobs: &[Job]) -> Result<(), Error> {
        for job in jobs.iter().filter(|job| !job.held || job.holds_hosts()) {
            let Some(note) = &job.note else { continue };
            // What another site claimed is found running, as what an administrator started.
            let claim = note.claim_of(self.site()).cloned();
            let Some(key) = claim.filter(|key| !self.records.is_claimed(key)) else { continue };
            let adopts = note.order.is_none();
            let name = note.order.clone().or_else(|| job.arrival_name()).unwrap_or_default();
            let mut record = Record::new(&key, name, adopts, note.resumable);
            record.tag = job.arrival_name();
            record.job = Some(job.id.clone());
            record.log_uid = job.uid;
            record.restarts = job.restarts;
            record.stage = Stage::Released { at_ms: crate::now_ms() };
            self.records.put(&key, record)?;
        }
        Ok(())
    }

    /// What was submitted for an order that was given up, and came late.
    fn cancel_strays(&mut self, jobs: &[Job]) {
        let waiting = jobs.iter().filter(|job| job.state == JobState::Pending && job.held);
        let stray = |job: &&Job| {
            let order = job.note.as_ref().and_then(|note| note.order.as_ref());
            let mut live = self.records.all().filter(|(_, record)| !record.is_over());
            order.is_some() && !live.any(|(_, record)| is_named(job, record))
        };
        let strays: Vec<String> = waiting.filter(stray).map(|job| job.id.clone()).collect();
        for part in strays.chunks(HOLDS_A_CALL) {
            let _ = self.scancel(part.to_vec());
        }
    }

    fn observation(&self, key: &AttemptKey, record: &Record) -> Observation {
        let mut notes = record.notes.clone();
        let state = match &record.stage {
            Stage::Claimed => AttemptState::Starting,
            Stage::Released { .. } => {
                let reason = self.reasons.get(key).filter(|reason| !reason.is_empty());
                notes
                    .extend(reason.map(|reason| format!("Slurm has not started it yet: {reason}")));
                AttemptState::Starting
            }
            Stage::Running { started_s } => running(*started_s, record),
            Stage::Returning(end) => match end.started_s {
                Some(started_s) => running(started_s, record),
                None => AttemptState::Starting,
            },
            Stage::Over(end) => AttemptState::Exited(end.exited()),
        };
        Observation { key: key.clone(), state, notes }
    }
}

pub(super) fn running(started_s: u64, record: &Record) -> AttemptState {
    AttemptState::Running {
        started_at: moment_of(started_s),
        warned: record.warning == Told::Sent,
        told_to_leave: record.told_to_leave(),
    }
}

/// Slurm's reason why a job waits, where it tells anything: it is none until Slurm has tried to start it, and a hold of
/// ours is no reason of Slurm's.
fn telling(job: &Job) -> Option<&str> {
    let says_nothing = ["", "None", "Priority", "JobHeldUser", "JobHeldAdmin"];
    Some(&*job.reason).filter(|reason| !says_nothing.contains(reason))
}

/// Attempts whose jobs do not show how they ended.
#[derive(Default)]
pub(super) struct Unseen {
    /// Put back into the queue, and when.
    pub(super) put_back: BTreeMap<AttemptKey, Option<u64>>,
    /// Not in the queue.
    pub(super) gone: Vec<AttemptKey>,
}

/// The jobs by their names.
fn by_name(jobs: &[Job]) -> BTreeMap<String, &Job> {
    jobs.iter().filter_map(|job| Some((job.arrival_name()?, job))).collect()
}
