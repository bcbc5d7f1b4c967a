//! The event loop: from one moment at which something can be decided to the next.

#[path = "books.rs"]
mod books;

use crate::build::{PolicyError, build_state, build_workload, policy};
use crate::engine::{Finish, Job};
use crate::events::{EventKind, EventLine, EventSink};
use crate::measure::{HOUR_MS, Measure, sample};
use crate::recorded::{self, RECORDED, Recorded};
use crate::series::Series;
use crate::summary::{PolicySummary, ReservationSummary};
use crate::waits::Waits;
use bursar_core::{BudgetIx, Command, Event, HostIx, Scheduler, Stop, TimeMs, WorkloadIx};
use bursar_scenario::{HostEventKind, Scenario, WorkloadSpec};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// What can go wrong in a run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The policy does not exist.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The record of what ran is to be played, and there is none.
    #[error("policy {RECORDED}: no workload of this scenario says what it ran (`ran`)")]
    NothingRecorded,
    /// The core refused what the simulated engine reported: a fault of Bursar's.
    #[error("the core refused an event at {at}: {refusal}")]
    Refused {
        /// When.
        at: TimeMs,
        /// Why.
        refusal: String,
    },
    /// The core plans without end at one moment: a fault of Bursar's.
    #[error("planning at {at} does not come to rest (rule 10)")]
    Restless {
        /// When.
        at: TimeMs,
    },
    /// The events could not be written.
    #[error("cannot write the events: {0}")]
    Write(#[from] std::io::Error),
    /// The caller asked to stop.
    #[error("stopped")]
    Stopped,
}

/// Looks at the scheduler after a moment's planning; its second argument gives the place of a live workload
/// of the scenario.
pub type Observer<'a> = dyn Fn(&Scheduler, &dyn Fn(u32) -> Option<WorkloadIx>) + Sync + 'a;

/// How to run.
#[derive(Clone, Copy, Default)]
pub struct RunOptions<'a> {
    /// Ends the run (and the span of the metrics) at this moment. By default a scenario that generates
    /// work ends where its generators do, and any other when all of its work has ended.
    pub until_ms: Option<u64>,
    /// The span of the metrics begins at this moment; what happens before it only makes the state that it begins with.
    /// Waits are those of work that is submitted from then on. Not after the end.
    pub from_ms: u64,
    /// Settings of the policies that Bursar is compared with.
    pub compare: bursar_core::compare::Options,
    /// Whether to keep samples and attempts for pictures.
    pub series: bool,
    /// Told how far the run is, in simulated milliseconds.
    pub progress: Option<&'a AtomicU64>,
    /// Set by the caller to stop the run.
    pub stop: Option<&'a AtomicBool>,
    /// Called after each moment's planning, for explanations.
    pub observer: Option<&'a Observer<'a>>,
}

/// What a run gives.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The metrics.
    pub summary: PolicySummary,
    /// Samples and attempts, if asked for.
    pub series: Series,
}

/// Runs one scenario under one policy.
///
/// # Errors
/// [`RunError`] when the policy does not exist, the events cannot be written or the caller stops the run.
pub fn run<'a>(
    scenario: &'a Scenario,
    policy_name: &'a str,
    options: RunOptions<'a>,
    sink: EventSink<'a>,
) -> Result<Outcome, RunError> {
    let began = Instant::now();
    let mut run = Run::new(scenario, policy_name, options, sink)?;
    run.play()?;
    let mut outcome = run.finish();
    outcome.summary.simulator.wall_seconds = began.elapsed().as_secs_f64();
    Ok(outcome)
}

/// Runs one scenario under several policies, each on its own core where there are several.
///
/// # Errors
/// The first [`RunError`] in the order of the policies.
pub fn run_all(
    scenario: &Scenario,
    policies: &[String],
    options: RunOptions<'_>,
) -> Result<Vec<Outcome>, RunError> {
    use rayon::prelude::*;
    policies.par_iter().map(|name| run(scenario, name, options, EventSink::None)).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timed {
    /// A running attempt comes to its natural end.
    Finish { workload: u32, attempt: u32 },
    /// A preempted attempt is gone.
    Leave { workload: u32, attempt: u32 },
    /// A protection ends. Only where a record is played: a policy asks to be woken for it.
    Unprotect,
}

/// What is kept per workload of the scenario.
#[derive(Clone, Debug)]
struct Record {
    job: Job,
    place: WorkloadIx,
    finish: Finish,
    finish_ms: u64,
    queued_ms: u64,
    first_wait_ms: Option<u64>,
    total_wait_ms: u64,
    /// When it first got the reservation that it holds.
    reserved_ms: Option<u64>,
    /// T of that reservation.
    promised_ms: u64,
    placement: Vec<(u32, u32)>,
    /// What its latest attempt lost.
    lost_gpu_ms: u64,
    live: bool,
    running: bool,
    /// Its attempt has stopped and what follows is not known yet.
    stopped: bool,
}

struct Run<'a> {
    scenario: &'a Scenario,
    options: RunOptions<'a>,
    sink: EventSink<'a>,
    policy: &'a str,
    scheduler: Scheduler,
    records: Vec<Record>,
    /// For each place of the core the workload that it stands for.
    workload_of: Vec<u32>,
    heap: BinaryHeap<Reverse<(u64, Timed)>>,
    next_submit: usize,
    next_host: usize,
    next_change: usize,
    measure: Measure,
    stop_ms: u64,
    now_ms: u64,
    events: u64,
    passes: u64,
    series: Series,
    first_waits: Waits,
    total_waits: Waits,
    summary: PolicySummary,
    reservations: ReservationSummary,
    open: u64,
    waiting_gpus: u64,
    /// Occupied GPU-ms as the attempts themselves add up to.
    attempts_gpu_ms: u128,
    lost: Lost,
    /// How many of the core's notices were read.
    told: usize,
    /// Per host whether it is drained or down.
    out_of_service: Vec<bool>,
    /// What really ran, if that is played.
    recorded: Option<Recorded>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    total: u128,
    allocated: u128,
    unallocated: u128,
    host_failures: u128,
    not_resumable: u128,
    startup_repeated: u128,
}

impl<'a> Run<'a> {
    fn new(
        scenario: &'a Scenario,
        policy_name: &'a str,
        options: RunOptions<'a>,
        sink: EventSink<'a>,
    ) -> Result<Self, RunError> {
        let state = build_state(scenario);
        let plays = policy_name == RECORDED;
        let recorded = plays.then(|| Recorded::of(scenario).ok_or(RunError::NothingRecorded));
        let recorded = recorded.transpose()?;
        // It is never asked if a record is played.
        let asked = if plays { bursar_core::compare::NAMES[0] } else { policy_name };
        let chosen = policy(asked, &state, &options.compare)?;
        let stop_ms = options.until_ms.or(scenario.span_ms).unwrap_or(u64::MAX);
        // Without generators the metrics end with the last submission, unless that is within the first day.
        let last_ms = scenario.workloads.last().map_or(0, |workload| workload.submit_ms);
        let until_ms = if stop_ms != u64::MAX {
            stop_ms
        } else if last_ms >= 24 * HOUR_MS {
            last_ms
        } else {
            u64::MAX
        };
        let measure = Measure::new(scenario, &state, (options.from_ms, until_ms));
        let record = Record {
            job: Job::default(),
            place: WorkloadIx(u32::MAX),
            finish: Finish::Completed,
            finish_ms: 0,
            queued_ms: 0,
            first_wait_ms: None,
            total_wait_ms: 0,
            reserved_ms: None,
            promised_ms: u64::MAX,
            placement: Vec::new(),
            lost_gpu_ms: 0,
            live: false,
            running: false,
            stopped: false,
        };
        Ok(Self {
            scenario,
            options,
            sink,
            policy: policy_name,
            scheduler: Scheduler::new(state, chosen),
            records: vec![record; scenario.workloads.len()],
            workload_of: Vec::new(),
            heap: BinaryHeap::new(),
            next_submit: 0,
            next_host: 0,
            next_change: 0,
            measure,
            stop_ms,
            now_ms: 0,
            events: 0,
            passes: 0,
            series: Series::default(),
            first_waits: Waits::default(),
            total_waits: Waits::default(),
            summary: PolicySummary { policy: policy_name.to_owned(), ..PolicySummary::default() },
            reservations: ReservationSummary::default(),
            open: 0,
            waiting_gpus: 0,
            attempts_gpu_ms: 0,
            lost: Lost::default(),
            told: 0,
            out_of_service: vec![false; scenario.hosts.len()],
            recorded,
        })
    }

    fn spec(&self, workload: u32) -> &'a WorkloadSpec {
        &self.scenario.workloads[workload as usize]
    }

    /// The next moment at which anything happens or can be decided.
    fn next_moment(&mut self) -> Option<u64> {
        let submit = self.scenario.workloads.get(self.next_submit).map(|spec| spec.submit_ms);
        let host = self.scenario.hosts_events.get(self.next_host).map(|event| event.at_ms);
        let change = self.scenario.budget_changes.get(self.next_change).map(|change| change.at_ms);
        let timed = self.heap.peek().map(|&Reverse((at, _))| at);
        // When all work has ended, repairs and changes that come later tell nothing.
        if submit.is_none() && self.open == 0 {
            return None;
        }
        let wake = self.scheduler.next_wake();
        // Where nothing is decided, what could be decided now stays so.
        let is_new = self.recorded.is_none() || wake.0 > self.now_ms;
        let wake = (wake != TimeMs::NEVER && is_new).then_some(wake.0);
        let start = self.recorded.as_ref().and_then(Recorded::next_ms);
        let moments = submit.into_iter().chain(host).chain(change).chain(timed).chain(wake);
        moments.chain(start).min()
    }

    fn play(&mut self) -> Result<(), RunError> {
        while let Some(at_ms) = self.next_moment() {
            if at_ms > self.stop_ms {
                break;
            }
            if self.options.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Err(RunError::Stopped);
            }
            self.pass_time(at_ms);
            self.happen(at_ms)?;
            self.settle(at_ms)?;
            if let Some(observer) = self.options.observer {
                let places = |workload: u32| {
                    let record = &self.records[workload as usize];
                    record.live.then_some(record.place)
                };
                observer(&self.scheduler, &places);
            }
            self.scheduler.clear_notices();
            self.told = 0;
            if let Some(progress) = self.options.progress {
                progress.store(at_ms, Ordering::Relaxed);
            }
        }
        let end_ms = if self.stop_ms == u64::MAX { self.now_ms } else { self.stop_ms };
        if self.measure.until_ms() == u64::MAX {
            self.measure.end_at(end_ms);
        }
        self.pass_time(end_ms);
        Ok(())
    }

    /// Time passes to `to_ms`; metrics of the span are closed while the state still is that of its end.
    fn pass_time(&mut self, to_ms: u64) {
        let Self { measure, scenario, scheduler, records, series, options, waiting_gpus, .. } =
            self;
        let state = scheduler.state();
        let until_ms = measure.until_ms();
        let gpus = measure.gpus();
        let mut remaining = |workload: u32, at_ms: u64| {
            let record = &records[workload as usize];
            if record.running {
                record.finish_ms.saturating_sub(at_ms)
            } else {
                record.job.remaining_ms(scenario, &scenario.workloads[workload as usize])
            }
        };
        let mut read = |at_ms: u64| {
            if options.series {
                let mut reading = sample(scenario, state, gpus, at_ms);
                reading.waiting_gpus = *waiting_gpus;
                series.samples.push(reading);
            }
        };
        measure.advance(scenario, state, to_ms, &mut remaining, &mut read);
        if self.now_ms <= until_ms && to_ms >= until_ms && !self.measure.is_closed() {
            let state = self.scheduler.state();
            self.measure.close(self.scenario, state);
            self.summary.budgets = self.measure.budgets(self.scenario, state);
        }
        self.now_ms = to_ms;
    }

    fn apply(&mut self, event: Event) -> Result<Option<WorkloadIx>, RunError> {
        self.events += 1;
        let at = TimeMs(self.now_ms);
        self.scheduler
            .apply(at, event)
            .map_err(|refusal| RunError::Refused { at, refusal: refusal.to_string() })
    }

    /// Everything that happens at this moment from outside, in a fixed order of kinds; the core's plan
    /// does not depend on it (rule 10).
    fn happen(&mut self, at_ms: u64) -> Result<(), RunError> {
        self.apply(Event::Tick)?;
        self.tell()?;
        while let Some(&Reverse((due, timed))) = self.heap.peek() {
            if due > at_ms {
                break;
            }
            self.heap.pop();
            self.end_attempt(timed)?;
        }
        while let Some(event) = self.scenario.hosts_events.get(self.next_host) {
            if event.at_ms > at_ms {
                break;
            }
            self.next_host += 1;
            let host = HostIx(event.host as u32);
            self.apply(match event.kind {
                HostEventKind::Fail => Event::HostFailed(host),
                HostEventKind::Repair => Event::HostRepaired(host),
                HostEventKind::Drain => Event::DrainRequested(host),
            })?;
            self.tell()?;
        }
        let mut shares = Vec::new();
        while let Some(change) = self.scenario.budget_changes.get(self.next_change) {
            if change.at_ms > at_ms {
                break;
            }
            self.next_change += 1;
            shares.push((BudgetIx(change.budget as u32), change.share_micro));
        }
        if !shares.is_empty() {
            self.apply(Event::SharesChanged(shares))?;
        }
        while let Some(spec) = self.scenario.workloads.get(self.next_submit) {
            if spec.submit_ms > at_ms {
                break;
            }
            self.next_submit += 1;
            self.submit(self.next_submit as u32 - 1)?;
        }
        self.tell()
    }

    fn submit(&mut self, workload: u32) -> Result<(), RunError> {
        let spec = build_workload(self.scenario, workload as usize);
        self.events += 1;
        let given = self.spec(workload);
        let place =
            match self.scheduler.apply(TimeMs(self.now_ms), Event::Submitted(Box::new(spec))) {
                Ok(place) => place.expect("a submission has a place"),
                Err(refusal) => {
                    self.summary.refused += 1;
                    let mut line = self.line(workload, EventKind::Refused);
                    line.reason = Some(refusal.to_string());
                    return Ok(self.sink.put(&line)?);
                }
            };
        if place.at() >= self.workload_of.len() {
            self.workload_of.resize(place.at() + 1, u32::MAX);
        }
        self.workload_of[place.at()] = workload;
        let record = &mut self.records[workload as usize];
        record.place = place;
        record.queued_ms = self.now_ms;
        record.live = true;
        self.open += 1;
        if given.min_runtime_ms > 0 {
            let remaining = record.job.remaining_ms(self.scenario, given);
            self.measure.enter(workload, self.now_ms, remaining);
        }
        Ok(())
    }

    fn end_attempt(&mut self, timed: Timed) -> Result<(), RunError> {
        let (Timed::Finish { workload, attempt } | Timed::Leave { workload, attempt }) = timed
        else {
            return Ok(());
        };
        let record = &self.records[workload as usize];
        if !record.live || !record.running {
            return Ok(());
        }
        let place = record.place;
        if self.scheduler.state().workload(place).attempt != attempt {
            return Ok(());
        }
        let stop = match timed {
            Timed::Leave { .. } | Timed::Unprotect => Stop::Left,
            Timed::Finish { .. } => match record.finish {
                Finish::Completed => Stop::Completed,
                Finish::Failed => Stop::Failed,
                Finish::Cancelled => Stop::Cancelled,
            },
        };
        self.apply(Event::Stopped(place, stop))?;
        self.tell()
    }

    /// Plans, commits and acts until the moment is at rest.
    fn settle(&mut self, at_ms: u64) -> Result<(), RunError> {
        if let Some(recorded) = &mut self.recorded {
            let due = recorded.due(at_ms);
            return self.play_record(due);
        }
        let rounds_max = 64 + 4 * self.scheduler.state().cluster.hosts().len();
        for _ in 0..rounds_max {
            self.passes += 1;
            // Starts on idle GPUs are confirmed at once, so that the log has the order of the decisions;
            // who must leave is told when the plan is complete.
            let (mut leaving, mut starting) = (Vec::new(), Vec::new());
            let mut decided = false;
            while let Some(decision) = self.scheduler.decide() {
                decided = true;
                self.scheduler.commit(&decision, &mut |command| match command {
                    Command::Preempt { .. } => leaving.push(command),
                    Command::Start { .. } | Command::HandOver(_) => starting.push(command),
                });
                self.tell()?;
                for command in starting.drain(..) {
                    self.act(command, at_ms)?;
                }
            }
            if !decided {
                return Ok(());
            }
            for command in leaving {
                self.act(command, at_ms)?;
            }
        }
        Err(RunError::Restless { at: TimeMs(at_ms) })
    }

    /// Starts what is recorded to have started, as far as the books have its GPUs free.
    fn play_record(&mut self, due: Vec<(u32, u32)>) -> Result<(), RunError> {
        let now = TimeMs(self.now_ms);
        for (workload, nth) in due {
            let record = &self.records[workload as usize];
            let (ran, _) = recorded::attempt(self.spec(workload), nth);
            let is_over = ran.end_ms.is_some_and(|end_ms| end_ms <= self.now_ms);
            if !record.live || is_over {
                // It was refused here, or its attempt before ended it.
                continue;
            }
            let (place, placement) = (record.place, recorded::placement(ran));
            let is_free = recorded::is_free(&self.scheduler.state().cluster, &placement);
            let Some(recorded) = &mut self.recorded else { continue };
            if record.running || !is_free {
                recorded.blocked.push((workload, nth));
                continue;
            }
            recorded.current[workload as usize] = nth;
            let found = self.scheduler.apply(now, Event::Found(place, placement, now));
            self.events += 1;
            if found.is_err() {
                // On a host that is down by the books, for example: it is tried until it would have ended.
                if let Some(recorded) = &mut self.recorded {
                    recorded.blocked.push((workload, nth));
                }
                continue;
            }
            self.tell()?;
        }
        Ok(())
    }

    /// When the attempt that has just started ends, and how, if that is recorded.
    fn recorded_end(&mut self, workload: u32, attempt: u32) -> Option<(u64, Finish)> {
        let nth = self.recorded.as_ref()?.current[workload as usize];
        let spec = self.spec(workload);
        let (ran, is_last) = recorded::attempt(spec, nth);
        let end_ms = ran.end_ms.unwrap_or(u64::MAX);
        if is_last {
            return Some((end_ms, Finish::of(spec)));
        }
        self.heap.push(Reverse((end_ms, Timed::Leave { workload, attempt })));
        Some((u64::MAX, Finish::of(spec)))
    }

    fn act(&mut self, command: Command, at_ms: u64) -> Result<(), RunError> {
        match command {
            Command::Start { workload, .. } => {
                self.apply(Event::Started(workload))?;
                self.tell()
            }
            Command::Preempt { workload: place, attempt, leave_by } => {
                let workload = self.workload_of[place.at()];
                let spec = self.spec(workload);
                let record = &mut self.records[workload as usize];
                let gone_ms = record.job.signal(spec, at_ms, leave_by.0);
                let timed = Timed::Leave { workload, attempt };
                if gone_ms <= at_ms {
                    return self.end_attempt(timed);
                }
                self.heap.push(Reverse((gone_ms, timed)));
                Ok(())
            }
            Command::HandOver(_) => Ok(()),
        }
    }

    fn push_finish(&mut self, at_ms: u64, workload: u32, attempt: u32) {
        self.heap.push(Reverse((at_ms, Timed::Finish { workload, attempt })));
    }

    fn line(&self, workload: u32, event: EventKind) -> EventLine<'a> {
        let spec = self.spec(workload);
        let mut line = EventLine::new(self.now_ms, self.policy, event);
        line.workload = Some(&spec.id);
        line.budget = Some(&self.scenario.budgets[spec.budget as usize].path);
        line.gpus = Some(spec.gpus);
        line
    }

    /// Reads the notices that are new and keeps the books on them.
    fn tell(&mut self) -> Result<(), RunError> {
        while self.told < self.scheduler.state().notices().len() {
            let notice = self.scheduler.state().notices()[self.told].clone();
            self.told += 1;
            self.note(&notice)?;
        }
        Ok(())
    }
}
