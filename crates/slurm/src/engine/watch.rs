//! Watching only: what Slurm does by itself is told as if it were in the queue of an engine that nobody orders about.
//! Nothing is changed in Slurm; its clients that could do so are not even run.

use super::SlurmEngine;
use super::names::{Names, number_of};
use super::observe::running;
use crate::client::{Call, ClientError, Clients, Program};
use crate::declare::Note;
use crate::options::SlurmOptions;
use crate::outcome::{Ending, of_wait_status};
use crate::read::{Job, JobState, Run};
use crate::records::{End, How, Record, Stage, moment_of};
use bursar_engine::{
    Arrival, ArrivalState, AttemptKey, AttemptState, Engine, Error, ErrorKind, HostFacts, LogChunk,
    Moment, Observation, PastRun, Signal, StartOrder,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Runs only what reads.
struct ReadOnly<C>(C);

impl<C: Clients> Clients for ReadOnly<C> {
    fn run(&self, call: &Call) -> Result<Vec<u8>, ClientError> {
        let verb = call.args.iter().find(|word| !word.starts_with('-')).map(String::as_str);
        let reads = match call.program {
            Program::Squeue | Program::Sinfo | Program::Sacct | Program::Id => true,
            // With -r it resets its counts.
            Program::Sdiag => call.args.iter().all(|word| word != "-r" && word != "--reset"),
            Program::Scontrol => matches!(verb, Some("show" | "ping")),
            Program::Sacctmgr => matches!(verb, Some("show" | "list")),
            Program::Scancel | Program::Sbatch => false,
        };
        if reads {
            return self.0.run(call);
        }
        let said = "Slurm is only watched: nothing is changed there".to_owned();
        Err(ClientError::Refused { call: call.to_string(), said, output: Vec::new() })
    }
}

/// The engine that only watches a Slurm cluster. Work is found where Slurm started it; orders do nothing, but for those
/// that adopt what runs.
pub struct WatchEngine {
    slurm: SlurmEngine,
    names: Names,
}

impl WatchEngine {
    /// Opens the engine whose records are in this folder, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// As [`SlurmEngine::open`].
    pub fn open(
        folder: &Path,
        options: SlurmOptions,
        clients: impl Clients + 'static,
    ) -> Result<Self, Error> {
        let slurm = SlurmEngine::open(folder, options, ReadOnly(clients))?;
        Ok(Self { slurm, names: Names::open(folder) })
    }

    /// The queue as it is, each job with its name.
    fn look(&mut self) -> Result<Vec<Job>, Error> {
        let mut jobs = self.slurm.look()?.to_vec();
        for job in &mut jobs {
            if job.note.is_none() {
                job.note = Some(self.slurm.options.note_of(job, self.names.tag(job)));
            }
        }
        self.names.keep(&jobs)?;
        Ok(jobs)
    }

    /// The ends of attempts that do not run any more.
    fn find_ends(&mut self, gone: &[AttemptKey]) -> Result<(), Error> {
        let records: Vec<(AttemptKey, Record)> = gone
            .iter()
            .filter_map(|key| Some((key.clone(), self.slurm.records.get(key)?.clone())))
            .collect();
        let ids: BTreeSet<String> =
            records.iter().filter_map(|(_, record)| record.job.clone()).collect();
        let remembered = self.slurm.remembered(&ids)?;
        let (mut missing, mut ends) = (Vec::new(), Vec::new());
        for (key, record) in records {
            let of_run = |job: &&Job| {
                Some(&job.id) == record.job.as_ref()
                    && job.restarts == record.restarts
                    && job.started == record.started_s()
            };
            match remembered.iter().find(of_run).map(|job| (job, &job.state)) {
                Some((job, JobState::Ended(ending))) => {
                    let (code, signal) = of_wait_status(job.wait_status);
                    ends.push((key, end(&record, job.ended, *ending, (code, signal))));
                }
                // It is still there: between two questions it was not.
                Some(_) => {}
                None => missing.push((key, record)),
            }
        }
        if !missing.is_empty() {
            let ids = missing.iter().filter_map(|(_, record)| record.job.clone()).collect();
            let runs = self.slurm.accounted(&ids).unwrap_or_default();
            for (key, record) in missing {
                let of_run = |run: &&Run| {
                    Some(&run.job) == record.job.as_ref() && run.started == record.started_s()
                };
                match runs.iter().filter(of_run).find_map(|run| Some((run, run.ending?))) {
                    Some((run, ending)) => {
                        ends.push((key, end(&record, run.ended, ending, (run.code, run.signal))));
                    }
                    None if self.slurm.is_missed_for_long(&key) => {
                        let how = How::Lost("Slurm does not know how it ended".to_owned());
                        let started_s = record.started_s();
                        let ended_s = crate::now_ms() / 1000;
                        ends.push((key, End { started_s, ended_s, how, told: false }));
                    }
                    None => {}
                }
            }
        }
        ends.into_iter().try_for_each(|(key, end)| self.slurm.end(&key, end))
    }
}

/// Whether Slurm would not start a job even if all was idle: it is on hold, begins later, or depends on others.
fn is_held_back(job: &Job, now_s: u64) -> bool {
    job.state == JobState::Pending && (job.held || super::arrivals::waits_for(job, now_s).is_some())
}

/// How a run ended.
fn end(record: &Record, ended_s: Option<u64>, ending: Ending, (code, signal): (i32, i32)) -> End {
    let how = match ending {
        Ending::Cancelled => How::Cancelled(super::finish::CANCELLED.to_owned()),
        // It waits again.
        Ending::Requeued | Ending::Preempted => {
            How::Lost("Slurm put it back into its queue".to_owned())
        }
        ending => ending.outcome(code, signal).into(),
    };
    let started_s = record.started_s();
    let ended_s = ended_s.unwrap_or_else(|| crate::now_ms() / 1000);
    End { started_s, ended_s: ended_s.max(started_s.unwrap_or_default()), how, told: false }
}

impl Engine for WatchEngine {
    fn hosts(&mut self) -> Result<Vec<HostFacts>, Error> {
        let mut hosts = self.slurm.see_hosts()?;
        // A drain is Slurm's affair: what runs there goes on.
        hosts.iter_mut().for_each(|host| (host.closed, host.cordoned) = (None, false));
        Ok(hosts)
    }

    fn observe(&mut self) -> Result<Vec<Observation>, Error> {
        let jobs = self.look()?;
        let by_id: BTreeMap<&str, &Job> = jobs.iter().map(|job| (&*job.id, job)).collect();
        let mut gone = Vec::new();
        for key in self.slurm.records.keys() {
            let Some(record) = self.slurm.records.get(&key).filter(|one| !one.is_over()) else {
                continue;
            };
            let job = record.job.as_deref().and_then(|id| by_id.get(id));
            let runs = job.is_some_and(|job| {
                job.holds_hosts()
                    && job.restarts == record.restarts
                    && job.started == record.started_s()
            });
            if !runs {
                gone.push(key);
            }
        }
        if !gone.is_empty() {
            self.find_ends(&gone)?;
        }
        let observation = |(key, record): (&AttemptKey, &Record)| {
            let state = match &record.stage {
                Stage::Over(end) => AttemptState::Exited(end.exited()),
                _ => running(record.started_s().unwrap_or_default(), record),
            };
            Observation { key: key.clone(), state, notes: record.notes.clone() }
        };
        Ok(self.slurm.records.all().map(observation).collect())
    }

    fn arrivals(&mut self) -> Result<Option<Vec<Arrival>>, Error> {
        let mut jobs = self.look()?;
        jobs.sort_by_key(|job| (job.submitted, number_of(job)));
        let live = self.slurm.records.all().filter(|(_, record)| !record.is_over());
        let live: BTreeSet<String> = live.map(|(_, record)| record.name.clone()).collect();
        let now_s = crate::now_ms() / 1000;
        // What its user holds back is no demand yet. What was told of once is there as long as it is there.
        let all = jobs.clone();
        jobs.retain(|job| !is_held_back(job, now_s) || self.names.is_told(job));
        jobs.iter().for_each(|job| self.names.tell(job));
        self.names.keep(&all)?;
        let arrival = |job: &Job| {
            let note: &Note = job.note.as_ref()?;
            let name = job.arrival_name().filter(|name| !live.contains(name))?;
            let state = match &job.state {
                JobState::Ended(_) => return None,
                JobState::Pending => {
                    let partition = &job.partition;
                    ArrivalState::NotYet(format!("Slurm decides: partition {partition} is watched"))
                }
                _ => ArrivalState::Runs {
                    since: moment_of(job.started?),
                    placement: self.slurm.placement(job),
                },
            };
            Some(super::arrivals::arrival(job, note, name, state))
        };
        Ok(Some(jobs.iter().filter_map(arrival).collect()))
    }

    fn past_runs(&mut self, since: Moment) -> Result<Vec<PastRun>, Error> {
        self.slurm.see_past(since.unix_ms / 1000)
    }

    fn took_past_runs(&mut self) -> Result<(), Error> {
        self.slurm.took_past()
    }

    fn start(&mut self, order: &StartOrder) -> Result<(), Error> {
        order.check()?;
        if self.slurm.records.is_claimed(&order.key) {
            return Ok(());
        }
        let Some(name) = order.adopts.clone() else {
            let what = format!("{}: Slurm is only watched, nothing is started", order.key);
            return Err(Error::new(ErrorKind::Invalid, what));
        };
        let jobs = self.look()?;
        let job = jobs.iter().find(|job| job.arrival_name().as_ref() == Some(&name));
        let started = job.filter(|job| job.holds_hosts()).and_then(|job| Some((job, job.started?)));
        // What runs no more is in the accounts: how it ended is told by them.
        let Some((job, started_s)) = started else { return Ok(()) };
        let mut record = Record::new(&order.key, name, true, order.resumable);
        record.job = Some(job.id.clone());
        record.log_uid = job.uid;
        record.log.clone_from(&job.log);
        record.restarts = job.restarts;
        record.stage = Stage::Running { started_s };
        self.slurm.records.put(&order.key, record)
    }

    fn signal(&mut self, _: &AttemptKey, _: Signal) -> Result<(), Error> {
        Ok(())
    }

    fn stop(&mut self, _: &AttemptKey) -> Result<(), Error> {
        Ok(())
    }

    fn forget(&mut self, key: &AttemptKey) -> Result<(), Error> {
        self.slurm.forget_attempt(key)
    }

    fn cordon(&mut self, _: &str, _: &str) -> Result<(), Error> {
        Ok(())
    }

    fn uncordon(&mut self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    fn read_log(&self, key: &AttemptKey, offset: u64, bytes_max: usize) -> Result<LogChunk, Error> {
        self.slurm.log_part(key, offset, bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients that answer everything.
    struct All;

    impl Clients for All {
        fn run(&self, _: &Call) -> Result<Vec<u8>, ClientError> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn only_what_reads_is_run() {
        let runs = |program, words: &[&str]| {
            ReadOnly(All).run(&Call::new(program, words.iter().copied())).is_ok()
        };
        for words in [&["show", "job"][..], &["-a", "-o", "show", "partition"], &["ping"]] {
            assert!(runs(Program::Scontrol, words), "{words:?}");
        }
        // Commands may come on standard input, too.
        for words in [
            &[][..],
            &["update", "JobId=1", "Comment=show"],
            &["hold", "1"],
            &["-o", "release", "1"],
            &["requeuehold", "show"],
        ] {
            assert!(!runs(Program::Scontrol, words), "{words:?}");
        }
        assert!(runs(Program::Sacctmgr, &["-nP", "show", "assoc"]));
        assert!(!runs(Program::Sacctmgr, &["-i", "modify", "user", "show"]));
        assert!(!runs(Program::Scancel, &["1"]) && !runs(Program::Sbatch, &["x"]));
        assert!(runs(Program::Squeue, &["-a"]) && runs(Program::Sacct, &[]));
    }
}
