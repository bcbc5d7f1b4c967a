//! The engine.

mod arrivals;
mod finish;
mod holding;
mod hosts;
mod judge;
mod leave;
mod logs;
mod look;
mod names;
mod news;
mod observe;
mod past;
mod start;
mod submit;
mod watch;

pub use watch::WatchEngine;

use self::names::Names;
use crate::client::{Call, ClientError, Clients, Program};
use crate::options::SlurmOptions;
use crate::read::{Job, Node};
use crate::records::{End, How, Records, Stage};
use bursar_engine::{
    Arrival, AttemptKey, Engine, Error, HostFacts, LogChunk, Moment, Observation, PastRun, Signal,
    StartOrder,
};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

/// The engine that has Slurm start, signal and end work.
///
/// Whoever drives it should call [`observe`](Engine::observe) before [`arrivals`](Engine::arrivals): work that goes back
/// into the queue is an arrival again once its attempt was seen to have ended.
pub struct SlurmEngine {
    clients: Box<dyn Clients>,
    options: SlurmOptions,
    records: Records,
    /// The queue as it was last seen, and when.
    queue: Option<(Instant, Vec<Job>)>,
    /// The nodes as they were last seen.
    nodes: Vec<Node>,
    /// Since when nodes do not answer.
    silent_since: BTreeMap<String, Instant>,
    /// Starts that wait for the next look.
    waiting: VecDeque<StartOrder>,
    /// How many starts may still be given to Slurm before the next look.
    releases_left: usize,
    /// Since when an attempt's end is looked for in the accounts.
    missed_since: BTreeMap<AttemptKey, Instant>,
    /// When the accounts did not answer last.
    accounts_failed_at: Option<Instant>,
    /// When an attempt was last told to stop, so that it is not told all the time.
    stopped_at: BTreeMap<AttemptKey, Instant>,
    /// Why an attempt that was released does not run yet.
    reasons: BTreeMap<AttemptKey, String>,
    /// Since when an attempt is seen to run.
    seen_running: BTreeMap<AttemptKey, Instant>,
    /// Names for jobs from before us.
    names: Names,
    /// How far the accounts were read.
    past: past::Past,
    /// Whether what waits was looked at since this engine was opened.
    has_looked: bool,
    /// The ids of the arrivals that were told lately, by their names, and when they were told last.
    waiting_ids: BTreeMap<String, (String, Instant)>,
    /// Whether the nodes were ours to govern when they were last looked at.
    holds: bool,
    news: news::News,
}

impl SlurmEngine {
    /// Opens the engine whose records are in this folder, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// `Invalid` if the options contradict themselves; `InUse` if another process has the folder; `Io` if it cannot be
    /// read or written. Slurm is not asked.
    pub fn open(
        folder: &Path,
        options: SlurmOptions,
        clients: impl Clients + 'static,
    ) -> Result<Self, Error> {
        options.check()?;
        let mut engine = Self {
            clients: Box::new(clients),
            releases_left: options.releases_max,
            options,
            records: Records::open(folder)?,
            queue: None,
            nodes: Vec::new(),
            silent_since: BTreeMap::new(),
            waiting: VecDeque::new(),
            missed_since: BTreeMap::new(),
            accounts_failed_at: None,
            stopped_at: BTreeMap::new(),
            reasons: BTreeMap::new(),
            seen_running: BTreeMap::new(),
            names: Names::open(folder),
            past: past::Past::open(folder),
            has_looked: false,
            waiting_ids: BTreeMap::new(),
            holds: false,
            news: news::News::default(),
        };
        for key in engine.records.keys() {
            if engine.records.get(&key).is_some_and(|record| record.stage == Stage::Claimed) {
                engine
                    .end_unstarted(&key, "Bursar was stopped before it told Slurm to start it")?;
            }
        }
        Ok(engine)
    }

    /// Which site's attempts these are, if there may be others'.
    fn site(&self) -> Option<&str> {
        self.options.holder.as_ref().map(|holder| &*holder.site)
    }

    fn run(&self, call: &Call) -> Result<Vec<u8>, ClientError> {
        self.clients.run(call)
    }

    fn scontrol<S: Into<String>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Result<(), ClientError> {
        self.run(&Call::new(Program::Scontrol, args)).map(drop)
    }

    /// Commands that do not depend on each other, one a line: one that fails does not keep the others from being done.
    fn scontrol_all(&self, commands: &[String]) -> Result<(), ClientError> {
        let input = commands.join("\n") + "\n";
        let args: [&str; 0] = [];
        let call = Call { input: input.into_bytes(), ..Call::new(Program::Scontrol, args) };
        self.run(&call).map(drop)
    }

    fn scancel<S: Into<String>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Result<(), ClientError> {
        self.run(&Call::new(Program::Scancel, args)).map(drop)
    }

    /// Writes down how an attempt ended, once and for all.
    fn end(&mut self, key: &AttemptKey, end: End) -> Result<(), Error> {
        self.reasons.remove(key);
        self.missed_since.remove(key);
        self.stopped_at.remove(key);
        self.seen_running.remove(key);
        let job = self.records.get(key).and_then(|record| record.job.clone());
        if let Some((job, started_s)) = job.zip(end.started_s) {
            self.past.know(&job, started_s, end.ended_s);
        }
        self.records.change(key, |record| record.stage = Stage::Over(end))
    }

    fn end_unstarted(&mut self, key: &AttemptKey, reason: &str) -> Result<(), Error> {
        let told = self.records.get(key).is_some_and(|record| record.told_to_leave());
        let how = How::NotStarted(reason.to_owned());
        self.end(key, End { started_s: None, ended_s: crate::now_ms() / 1000, how, told })
    }
}

impl Engine for SlurmEngine {
    fn hosts(&mut self) -> Result<Vec<HostFacts>, Error> {
        self.see_hosts()
    }

    fn observe(&mut self) -> Result<Vec<Observation>, Error> {
        self.see_attempts()
    }

    fn arrivals(&mut self) -> Result<Option<Vec<Arrival>>, Error> {
        self.see_arrivals().map(Some)
    }

    fn past_runs(&mut self, since: Moment) -> Result<Vec<PastRun>, Error> {
        self.see_past(since.unix_ms / 1000)
    }

    fn took_past_runs(&mut self) -> Result<(), Error> {
        self.took_past()
    }

    fn news_every(&self) -> Option<Duration> {
        Some(news::EVERY)
    }

    fn has_news(&mut self) -> bool {
        self.see_news()
    }

    fn decline(&mut self, name: &str, why: &str) -> Result<(), Error> {
        self.decline_arrival(name, why)
    }

    fn withdraw(&mut self, name: &str) -> Result<(), Error> {
        self.withdraw_arrival(name)
    }

    fn start(&mut self, order: &StartOrder) -> Result<(), Error> {
        self.start_attempt(order)
    }

    fn signal(&mut self, key: &AttemptKey, signal: Signal) -> Result<(), Error> {
        self.signal_attempt(key, signal)
    }

    fn stop(&mut self, key: &AttemptKey) -> Result<(), Error> {
        self.stop_attempt(key)
    }

    fn forget(&mut self, key: &AttemptKey) -> Result<(), Error> {
        self.forget_attempt(key)
    }

    fn cordon(&mut self, host: &str, why: &str) -> Result<(), Error> {
        self.cordon_host(host, why)
    }

    fn uncordon(&mut self, host: &str) -> Result<(), Error> {
        self.uncordon_host(host)
    }

    fn read_log(&self, key: &AttemptKey, offset: u64, bytes_max: usize) -> Result<LogChunk, Error> {
        self.log_part(key, offset, bytes_max)
    }
}
