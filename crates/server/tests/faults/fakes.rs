//! A journal in memory, an engine of pretended processes, and a clock, all of which can fail. They outlive
//! the daemon, as the real ones do.

use bursar_engine::{
    Arrival, ArrivalState, AttemptKey, AttemptState, Engine, Error, ErrorKind, Exited, HostFacts,
    LogChunk, Moment, Observation, Outcome, PastRun, Signal, StartOrder,
};
use bursar_server::{Clock, Journal, JournalError};
use bursar_site::Record;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// A small generator of numbers; the same on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    pub(crate) fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

/// A pretended process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) gpus: Vec<(String, u32)>,
    pub(crate) starts_at: u64,
    pub(crate) ends_at: u64,
    pub(crate) told: bool,
    pub(crate) ended: Option<(u64, Outcome)>,
    /// When its end was first told to a daemon.
    pub(crate) heard_at: Option<u64>,
}

/// A job in the engine's own queue.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) gpus: u32,
    pub(crate) resumable: bool,
    pub(crate) declared: BTreeMap<String, String>,
    pub(crate) account: &'static str,
    pub(crate) submitted: u64,
    pub(crate) stage: JobStage,
}

/// A run that is over, as the engine accounts it.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) job: String,
    pub(crate) since: u64,
    pub(crate) ended: u64,
    pub(crate) place: (String, u32),
    /// Whether it ended with its host.
    pub(crate) with_host: bool,
    /// Whether the daemon said that it has it.
    pub(crate) taken: bool,
}

impl Ran {
    pub(crate) fn new(job: &str, since: u64, ended: u64, place: (String, u32)) -> Self {
        Self { job: job.to_owned(), since, ended, place, with_host: false, taken: false }
    }
}

/// Where a job is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobStage {
    Waits,
    /// Started by somebody else: since when, until when, where.
    Runs(u64, u64, (String, u32)),
    /// An attempt of ours has it.
    Claimed(AttemptKey),
    Gone,
}

/// What is outside the daemon.
#[derive(Debug)]
pub(crate) struct Outside {
    pub(crate) dice: Dice,
    /// The time that passes, which is the engine's.
    pub(crate) now_ms: u64,
    /// How far the site's clock is behind it, after it was set back at these moments.
    pub(crate) behind_ms: u64,
    pub(crate) jumps: Vec<u64>,
    pub(crate) faulty: bool,
    pub(crate) records: Vec<String>,
    pub(crate) processes: BTreeMap<AttemptKey, Process>,
    pub(crate) forgotten: Vec<AttemptKey>,
    pub(crate) snapshots: Option<(u64, Vec<u8>)>,
    pub(crate) journal_failures: u64,
    pub(crate) engine_failures: u64,
    pub(crate) never_started: u64,
    /// The engine's own queue, if it has one.
    pub(crate) jobs: Option<BTreeMap<String, Job>>,
    /// How many jobs were found running.
    pub(crate) found: u64,
    /// Runs of jobs that somebody else had started, and that were over before they were claimed.
    pub(crate) ran: Vec<Ran>,
    /// Hosts, as the engine has them.
    pub(crate) hosts: Vec<HostFacts>,
    pub(crate) hosts_lost: u64,
}

#[derive(Clone)]
pub(crate) struct World(pub(crate) Arc<Mutex<Outside>>);

impl World {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Outside> {
        self.0.lock().expect("no panic while it was held")
    }

    fn set_cordon(&self, name: &str, cordoned: bool) -> Result<(), Error> {
        let mut outside = self.lock();
        if outside.engine_fails() {
            return Err(lost());
        }
        let host = outside.hosts.iter_mut().find(|host| host.name == name);
        host.expect("a host of ours").cordoned = cordoned;
        Ok(())
    }

    /// Processes start and end as time passes.
    pub(crate) fn advance(&self, to_ms: u64) {
        let mut outside = self.lock();
        outside.now_ms = to_ms;
        let Outside { processes, jobs, ran, .. } = &mut *outside;
        for process in processes.values_mut() {
            if process.ended.is_none() && process.ends_at <= to_ms {
                let code = i32::from(process.ends_at % 11 == 0);
                process.ended = Some((process.ends_at, Outcome::Exit { code }));
            }
        }
        for (name, job) in jobs.iter_mut().flatten() {
            if let JobStage::Runs(since, ends, place) = job.stage.clone()
                && ends <= to_ms
            {
                ran.push(Ran::new(name, since, ends, place));
                job.stage = JobStage::Gone;
            }
        }
        outside.put_back();
    }
}

impl Outside {
    /// Jobs whose attempts have left wait again; those that ended are gone.
    fn put_back(&mut self) {
        let Self { processes, jobs, .. } = self;
        for job in jobs.iter_mut().flat_map(BTreeMap::values_mut) {
            let JobStage::Claimed(key) = &job.stage else { continue };
            let process = &processes[key];
            if let Some((_, outcome)) = &process.ended {
                let again = matches!(outcome, Outcome::NotStarted { .. });
                let lost = matches!(outcome, Outcome::Lost { .. });
                let waits = again || ((process.told || lost) && job.resumable);
                job.stage = if waits { JobStage::Waits } else { JobStage::Gone };
            }
        }
    }

    /// An attempt is claimed, and that is all of it.
    fn never_starts(&mut self, key: &AttemptKey, reason: String) {
        let process = Process {
            gpus: Vec::new(),
            starts_at: u64::MAX,
            ends_at: u64::MAX,
            told: false,
            ended: Some((self.now_ms, Outcome::NotStarted { reason })),
            heard_at: None,
        };
        self.processes.entry(key.clone()).or_insert(process);
    }

    /// How many GPUs of a host are in use.
    fn used(&self, host: &str) -> u32 {
        let alive = self.processes.values().filter(|process| process.ended.is_none());
        let ours = alive.flat_map(|one| &one.gpus).filter(|(other, _)| other == host).count();
        let jobs = self.jobs.iter().flat_map(BTreeMap::values);
        let others = jobs.map(|job| match &job.stage {
            JobStage::Runs(_, _, (other, gpus)) if other == host => *gpus,
            _ => 0,
        });
        ours as u32 + others.sum::<u32>()
    }

    /// A host fails, with all that runs on it, or is back.
    pub(crate) fn fail_or_repair(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        host.healthy = !host.healthy;
        if host.healthy {
            return;
        }
        self.hosts_lost += 1;
        let (name, now) = (host.name.clone(), self.now_ms);
        for process in self.processes.values_mut().filter(|process| process.ended.is_none()) {
            if process.gpus.iter().any(|(other, _)| *other == name) {
                let reason = "its host failed".to_owned();
                process.ended = Some((now.max(process.starts_at), Outcome::Lost { reason }));
            }
        }
        for (named, job) in self.jobs.iter_mut().flatten() {
            if let JobStage::Runs(since, _, place) = job.stage.clone()
                && place.0 == name
            {
                self.ran.push(Ran { with_host: true, ..Ran::new(named, since, now, place) });
                job.stage = JobStage::Gone;
            }
        }
        self.put_back();
    }

    /// Somebody starts a waiting job without asking.
    pub(crate) fn start_elsewhere(&mut self, host: &str) {
        let now = self.now_ms;
        let ends = now + 1 + self.dice.below(2_000_000);
        let waits = |job: &&Job| job.stage == JobStage::Waits && job.gpus <= 4;
        let Some(gpus) = self.jobs.iter().flat_map(BTreeMap::values).find(waits).map(|j| j.gpus)
        else {
            return;
        };
        let up = self.hosts.iter().any(|one| one.name == host && one.healthy);
        if up && self.used(host) + gpus <= 4 {
            let mut jobs = self.jobs.iter_mut().flat_map(BTreeMap::values_mut);
            let job = jobs.find(|job| waits(&&**job)).expect("there was one");
            job.stage = JobStage::Runs(now, ends, (host.to_owned(), gpus));
        }
    }

    fn engine_fails(&mut self) -> bool {
        let fails = self.faulty && self.dice.one_in(12);
        self.engine_failures += u64::from(fails);
        fails
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Io, "the order was lost, or its answer")
}

impl Journal for World {
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        let mut outside = self.lock();
        let fails = outside.faulty && outside.dice.one_in(15);
        let writes = !fails || outside.dice.one_in(2);
        if writes {
            for record in records {
                assert_eq!(record.seq, outside.records.len() as u64 + 1, "no gaps");
                let text = serde_json::to_string(record).expect("a record is written");
                outside.records.push(text);
            }
        }
        if fails {
            outside.journal_failures += 1;
            return Err(JournalError("no space left on device".into()));
        }
        Ok(())
    }

    fn put_snapshot(&mut self, seq: u64, bytes: &[u8]) -> Result<(), JournalError> {
        let mut outside = self.lock();
        if outside.faulty && outside.dice.one_in(5) {
            return Err(JournalError("no space left on device".into()));
        }
        assert!(seq <= outside.records.len() as u64, "a snapshot of what is written");
        outside.snapshots = Some((seq, bytes.to_vec()));
        Ok(())
    }

    fn latest_snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, JournalError> {
        let mut outside = self.lock();
        if outside.faulty && outside.dice.one_in(5) {
            return Err(JournalError("it cannot be read".into()));
        }
        Ok(outside.snapshots.clone())
    }

    fn read(
        &self,
        from: u64,
        take: &mut dyn FnMut(Record) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        let records = self.lock().records.clone();
        for text in records.into_iter().skip(from as usize - 1) {
            take(serde_json::from_str(&text).expect("a record is read"))?;
        }
        Ok(())
    }
}

impl Clock for World {
    fn now_ms(&self) -> u64 {
        let outside = self.lock();
        outside.now_ms.saturating_sub(outside.behind_ms)
    }

    fn unix_ms(&self, site_ms: u64) -> u64 {
        1_700_000_000_000 + site_ms
    }

    fn site_ms(&self, moment: Moment) -> u64 {
        moment.boot_ms.expect("it has one").saturating_sub(self.lock().behind_ms)
    }
}

fn moment(ms: u64) -> Moment {
    // Nobody should look at the clock that anybody may set.
    Moment { unix_ms: 1, boot_ms: Some(ms) }
}

fn arrival_of(name: &str, job: &Job, state: ArrivalState) -> Arrival {
    Arrival {
        name: name.to_owned(),
        shown: format!("job {name}"),
        title: "a\njob".into(),
        user: "ann".into(),
        account: job.account.into(),
        queue: "main".into(),
        gpus: job.gpus,
        shape: None,
        gpu_model: None,
        max_runtime_ms: None,
        declared: job.declared.clone(),
        submitted_at: moment(job.submitted),
        state,
    }
}

impl Engine for World {
    fn hosts(&mut self) -> Result<Vec<HostFacts>, Error> {
        let mut outside = self.lock();
        if outside.engine_fails() {
            return Err(lost());
        }
        Ok(outside.hosts.clone())
    }

    fn observe(&mut self) -> Result<Vec<Observation>, Error> {
        let mut outside = self.lock();
        if outside.engine_fails() {
            return Err(lost());
        }
        let now = outside.now_ms;
        for process in outside.processes.values_mut().filter(|process| process.ended.is_some()) {
            process.heard_at.get_or_insert(now);
        }
        let observation = |(key, process): (&AttemptKey, &Process)| Observation {
            key: key.clone(),
            state: match &process.ended {
                Some((at, outcome)) => AttemptState::Exited(Exited {
                    started_at: (process.starts_at <= *at).then(|| moment(process.starts_at)),
                    ended_at: moment(*at),
                    outcome: outcome.clone(),
                    was_told_to_leave: process.told,
                }),
                None if process.starts_at > now => AttemptState::Starting,
                None => AttemptState::Running {
                    started_at: moment(process.starts_at),
                    warned: false,
                    told_to_leave: process.told,
                },
            },
            notes: Vec::new(),
        };
        let known = outside.processes.iter().filter(|(key, _)| !outside.forgotten.contains(key));
        Ok(known.map(observation).collect())
    }

    fn arrivals(&mut self) -> Result<Option<Vec<Arrival>>, Error> {
        let mut outside = self.lock();
        if outside.engine_fails() {
            return Err(lost());
        }
        let Some(jobs) = &outside.jobs else { return Ok(None) };
        let arrival = |(name, job): (&String, &Job)| {
            let state = match &job.stage {
                JobStage::Waits => ArrivalState::Waits,
                JobStage::Runs(since, _, place) => {
                    ArrivalState::Runs { since: moment(*since), placement: vec![place.clone()] }
                }
                JobStage::Claimed(_) | JobStage::Gone => return None,
            };
            Some(arrival_of(name, job, state))
        };
        Ok(Some(jobs.iter().filter_map(arrival).collect()))
    }

    fn past_runs(&mut self, _: Moment) -> Result<Vec<PastRun>, Error> {
        let mut outside = self.lock();
        if outside.engine_fails() {
            return Err(lost());
        }
        let Some(jobs) = &outside.jobs else { return Ok(Vec::new()) };
        let run = |ran: &Ran| {
            let (since, placement) = (moment(ran.since), vec![ran.place.clone()]);
            let state = ArrivalState::Runs { since, placement: placement.clone() };
            (!ran.taken).then(|| PastRun {
                run: format!("{}@{}", ran.job, ran.since),
                arrival: arrival_of(&ran.job, &jobs[&ran.job], state),
                aliases: Vec::new(),
                started_at: since,
                ended_at: moment(ran.ended),
                placement,
                outcome: Outcome::Exit { code: 0 },
                returned: false,
            })
        };
        Ok(outside.ran.iter().filter_map(run).collect())
    }

    fn took_past_runs(&mut self) -> Result<(), Error> {
        let mut outside = self.lock();
        if outside.engine_fails() {
            return Err(lost());
        }
        outside.ran.iter_mut().for_each(|run| run.taken = true);
        Ok(())
    }

    fn withdraw(&mut self, name: &str) -> Result<(), Error> {
        let mut outside = self.lock();
        if outside.engine_fails() {
            return Err(lost());
        }
        let Outside { jobs, ran, now_ms, .. } = &mut *outside;
        if let Some(job) = jobs.as_mut().and_then(|jobs| jobs.get_mut(name))
            && !matches!(job.stage, JobStage::Claimed(_))
        {
            if let JobStage::Runs(since, _, place) = job.stage.clone() {
                ran.push(Ran::new(name, since, *now_ms, place));
            }
            job.stage = JobStage::Gone;
        }
        Ok(())
    }

    fn start(&mut self, order: &StartOrder) -> Result<(), Error> {
        let mut outside = self.lock();
        let fails = outside.engine_fails();
        if fails && outside.dice.one_in(2) {
            return Err(lost());
        }
        if let Some(name) = &order.adopts {
            let stage = outside.jobs.as_ref().map(|jobs| jobs[name].stage.clone());
            let claimed = JobStage::Claimed(order.key.clone());
            match &stage.expect("it has a queue") {
                JobStage::Runs(_, _, (host, gpus))
                    if !matches!(&*order.placement, [part] if part.host == *host
                        && part.gpus.len() == *gpus as usize) =>
                {
                    let reason = "it runs elsewhere".to_owned();
                    outside.never_starts(&order.key, reason);
                    return if fails { Err(lost()) } else { Ok(()) };
                }
                JobStage::Runs(since, ends_at, (host, gpus)) => {
                    let process = Process {
                        gpus: (0..*gpus).map(|gpu| (host.clone(), 100 + gpu)).collect(),
                        starts_at: *since,
                        ends_at: *ends_at,
                        told: false,
                        ended: None,
                        heard_at: None,
                    };
                    outside.processes.insert(order.key.clone(), process);
                    outside.found += 1;
                }
                JobStage::Waits => {}
                JobStage::Claimed(_) => {}
                JobStage::Gone => {
                    // It was cancelled there. The claim is taken all the same, so that its end is told.
                    outside.never_starts(&order.key, "it is gone from its queue".to_owned());
                }
            }
            let jobs = outside.jobs.as_mut().expect("it has a queue");
            let job = jobs.get_mut(name).expect("it is there");
            if job.stage != JobStage::Gone {
                job.stage = claimed;
            }
        }
        if !outside.processes.contains_key(&order.key) {
            let now = outside.now_ms;
            let starts_at = now + outside.dice.below(3) * 400;
            let ends_at = starts_at + 1 + outside.dice.below(4_000_000);
            let gpus: Vec<(String, u32)> = order
                .placement
                .iter()
                .flat_map(|place| place.gpus.iter().map(|gpu| (place.host.clone(), *gpu)))
                .collect();
            for (key, other) in &outside.processes {
                let shares = other.gpus.iter().any(|gpu| gpus.contains(gpu));
                assert!(
                    other.ended.is_some() || !shares,
                    "{:?} starts on GPUs that {key:?} runs on",
                    order.key
                );
                assert!(
                    other.ended.is_some() || key.workload() != order.key.workload(),
                    "{:?} starts while {key:?} runs",
                    order.key
                );
            }
            let (told, ended, heard_at) = (false, None, None);
            let mut process = Process { gpus, starts_at, ends_at, told, ended, heard_at };
            let full = order
                .placement
                .iter()
                .any(|part| outside.used(&part.host) + part.gpus.len() as u32 > 4);
            let down = |part: &bursar_engine::HostGpus| {
                outside.hosts.iter().any(|host| host.name == part.host && !host.healthy)
            };
            let down = order.placement.iter().any(down);
            assert!(
                !full || outside.jobs.is_some(),
                "{:?} starts where there is no room",
                order.key
            );
            if full || down || (outside.faulty && outside.dice.one_in(20)) {
                // Whoever was to start it died before.
                process.starts_at = u64::MAX;
                let reason = "it was claimed, not started".to_owned();
                process.ended = Some((now, Outcome::NotStarted { reason }));
                outside.never_started += 1;
            }
            outside.processes.insert(order.key.clone(), process);
        }
        outside.put_back();
        if fails { Err(lost()) } else { Ok(()) }
    }

    fn signal(&mut self, key: &AttemptKey, signal: Signal) -> Result<(), Error> {
        let mut outside = self.lock();
        if outside.engine_fails() {
            return Err(lost());
        }
        let (now, leaves_in) = (outside.now_ms, outside.dice.below(60_000));
        if let Some(process) = outside.processes.get_mut(key)
            && signal == Signal::Checkpoint
            && !process.told
        {
            process.told = true;
            // Some leave at once, some only when they are stopped.
            process.ends_at = process.ends_at.min(now.max(process.starts_at) + leaves_in);
        }
        Ok(())
    }

    fn stop(&mut self, key: &AttemptKey) -> Result<(), Error> {
        let mut outside = self.lock();
        if outside.engine_fails() {
            return Err(lost());
        }
        let now = outside.now_ms;
        if let Some(process) = outside.processes.get_mut(key)
            && process.ended.is_none()
        {
            process.told = true;
            process.ended = Some((now.max(process.starts_at), Outcome::Signal { number: 9 }));
        }
        outside.put_back();
        Ok(())
    }

    fn forget(&mut self, key: &AttemptKey) -> Result<(), Error> {
        let mut outside = self.lock();
        assert!(outside.processes.get(key).is_some_and(|process| process.ended.is_some()));
        outside.forgotten.push(key.clone());
        Ok(())
    }

    fn cordon(&mut self, host: &str, _: &str) -> Result<(), Error> {
        self.set_cordon(host, true)
    }

    fn uncordon(&mut self, host: &str) -> Result<(), Error> {
        self.set_cordon(host, false)
    }

    fn read_log(&self, _: &AttemptKey, _: u64, _: usize) -> Result<LogChunk, Error> {
        Err(lost())
    }
}
