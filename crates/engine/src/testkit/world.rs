//! A cluster in virtual time: what really happens, whatever an engine says of it.

use super::fake::{FakeEngine, Faults, Order};
use super::work::{FakeWork, OnCheckpoint};
use crate::engine::Signal;
use crate::key::AttemptKey;
use crate::observation::{AttemptState, Exited, HostFacts, Moment, Observation, Outcome};
use crate::order::{HostGpus, StartOrder};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Numbers of signals on Linux.
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// A cluster in virtual time. Clones are the same cluster; it outlives the engines that lead to it.
#[derive(Clone, Debug)]
pub struct FakeWorld(Arc<Mutex<World>>);

/// Something that really happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeRecord {
    /// When, in milliseconds of virtual time.
    pub at_ms: u64,
    /// To which attempt.
    pub key: AttemptKey,
    /// What.
    pub fact: FakeFact,
}

/// What can really happen to an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FakeFact {
    /// Its command was executed there.
    Started(Vec<HostGpus>),
    /// It ended, or could not be started.
    Ended(Outcome),
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) now_ms: u64,
    pub(super) random: Pcg64Mcg,
    pub(super) faults: Faults,
    pub(super) hosts: Vec<HostFacts>,
    attempts: BTreeMap<AttemptKey, FakeAttempt>,
    /// Orders on their way, by when they arrive, in the order in which they were given.
    orders: BTreeMap<(u64, u64), Order>,
    given: u64,
    /// The moment that was shown last. What is shown is never older.
    shown_ms: u64,
    history: Vec<FakeRecord>,
}

/// An attempt; moments in milliseconds of virtual time.
#[derive(Debug)]
struct FakeAttempt {
    order: StartOrder,
    work: FakeWork,
    claimed_ms: u64,
    starts_ms: Option<u64>,
    ends: Option<(u64, Outcome)>,
    warned_ms: Option<u64>,
    told_ms: Option<u64>,
    forgotten_ms: Option<u64>,
    /// Whether the start, and the end, are in the history.
    recorded: (bool, bool),
}

impl FakeWorld {
    /// A cluster of these hosts, at moment 0, without faults.
    pub fn new(seed: u64, hosts: Vec<HostFacts>) -> Self {
        Self(Arc::new(Mutex::new(World {
            now_ms: 0,
            random: Pcg64Mcg::new(u128::from(seed) << 1 | 1),
            faults: Faults::NONE,
            hosts,
            attempts: BTreeMap::new(),
            orders: BTreeMap::new(),
            given: 0,
            shown_ms: 0,
            history: Vec::new(),
        })))
    }

    /// As many healthy hosts of one kind as that, called `h0`, `h1` ….
    pub fn hosts(count: u32, gpus: u32, model: &str) -> Vec<HostFacts> {
        let host = |index| HostFacts {
            name: format!("h{index}"),
            gpus,
            model: model.to_owned(),
            healthy: true,
            closed: None,
            cordoned: false,
        };
        (0..count).map(host).collect()
    }

    /// A way to this cluster, with the faults of [`set_faults`](FakeWorld::set_faults).
    pub fn engine(&self) -> FakeEngine {
        FakeEngine::new(self.clone())
    }

    /// From now on, what is ordered and shown has these faults. [`Faults::NONE`] heals; what is on its way
    /// arrives all the same.
    pub fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    /// The virtual time, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.lock().now_ms
    }

    /// The next moment at which anything happens by itself, if anything will.
    pub fn next_ms(&self) -> Option<u64> {
        self.lock().next_ms()
    }

    /// Lets time pass up to this moment.
    ///
    /// # Panics
    ///
    /// If that is in the past.
    pub fn advance_to(&self, ms: u64) {
        let mut world = self.lock();
        assert!(ms >= world.now_ms, "time does not go back");
        while let Some(next) = world.next_ms().filter(|next| *next <= ms) {
            world.now_ms = world.now_ms.max(next);
            world.happen();
        }
        world.now_ms = ms;
    }

    /// A host fails, with all that runs there.
    ///
    /// # Panics
    ///
    /// If there is no such host.
    pub fn fail_host(&self, host: &str) {
        let mut world = self.lock();
        world.host(host).healthy = false;
        world.lose(|order| order.placement.iter().any(|part| part.host == host), "its host failed");
    }

    /// A host is well again.
    ///
    /// # Panics
    ///
    /// If there is no such host.
    pub fn repair_host(&self, host: &str) {
        self.lock().host(host).healthy = true;
    }

    /// An attempt gets lost, as when its supervisor is killed.
    pub fn lose(&self, key: &AttemptKey) {
        self.lock().lose(|order| order.key == *key, "its supervisor was killed");
    }

    /// An attempt that would run on ends now, as it would have ended by itself.
    pub fn finish(&self, key: &AttemptKey) {
        let mut world = self.lock();
        let now_ms = world.now_ms;
        if let Some(attempt) = world.attempts.get_mut(key) {
            let outcome = attempt.own_outcome();
            attempt.end(now_ms, outcome);
        }
        world.happen();
    }

    /// An attempt is claimed and never started, as when the daemon is killed in between.
    pub fn claim(&self, order: &StartOrder) {
        let mut world = self.lock();
        world.start(order);
        let now_ms = world.now_ms;
        if let Some(attempt) = world.attempts.get_mut(&order.key) {
            attempt.starts_ms = None;
            let reason = "it was claimed, not started".to_owned();
            attempt.ends = Some((now_ms, Outcome::NotStarted { reason }));
        }
        world.happen();
    }

    /// All that really happened, in the order in which it did.
    pub fn history(&self) -> Vec<FakeRecord> {
        self.lock().history.clone()
    }

    /// The attempts whose commands really run now.
    pub fn running(&self) -> BTreeSet<AttemptKey> {
        let world = self.lock();
        let running = |attempt: &&FakeAttempt| attempt.runs_at(world.now_ms);
        world.attempts.values().filter(running).map(|attempt| attempt.order.key.clone()).collect()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl World {
    fn host(&mut self, name: &str) -> &mut HostFacts {
        let found = self.hosts.iter_mut().find(|host| host.name == name);
        found.unwrap_or_else(|| panic!("no host {name}"))
    }

    /// A number from 0 to `max`, both included.
    pub(super) fn draw(&mut self, max: u64) -> u64 {
        if max == 0 { 0 } else { self.random.random_range(0..=max) }
    }

    pub(super) fn chance(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.random.random_range(0..1000) < per_mille
    }

    /// Puts an order on its way.
    pub(super) fn send(&mut self, order: Order) {
        let delay = self.draw(self.faults.delay_ms_max);
        self.given += 1;
        self.orders.insert((self.now_ms + delay, self.given), order);
        self.happen();
    }

    fn next_ms(&self) -> Option<u64> {
        let order = self.orders.keys().next().map(|(at, _)| *at);
        let attempts = self.attempts.values().filter_map(|attempt| attempt.next_ms());
        attempts.chain(order).min()
    }

    /// Does what is due.
    fn happen(&mut self) {
        while let Some(entry) = self.orders.first_entry()
            && entry.key().0 <= self.now_ms
        {
            match entry.remove() {
                Order::Start(order) => self.start(&order),
                Order::Signal(key, signal) => self.signal(&key, signal),
                Order::Stop(key) => self.stop(&key),
                Order::Forget(key) => self.forget(&key),
                Order::Cordon(host, cordoned) => self.host(&host).cordoned = cordoned,
            }
        }
        let mut happened = Vec::new();
        for attempt in self.attempts.values_mut() {
            happened.extend(attempt.settle(self.now_ms));
        }
        happened.sort_by(|a, b| (a.at_ms, &a.key).cmp(&(b.at_ms, &b.key)));
        self.history.append(&mut happened);
    }

    fn start(&mut self, order: &StartOrder) {
        if self.attempts.contains_key(&order.key) {
            return;
        }
        let work = FakeWork::of(&order.command);
        let down =
            |part: &HostGpus| !self.hosts.iter().any(|host| host.name == part.host && host.healthy);
        let missing = order.workdir.as_ref().filter(|dir| dir.starts_with("/nonexistent"));
        let fails = if order.placement.iter().any(down) {
            Some("its host is down".to_owned())
        } else if let Some(dir) = missing {
            Some(format!("cannot work in {}: No such file or directory", dir.display()))
        } else if self.chance(self.faults.start_fails_per_mille) {
            Some("the seed would have it so".to_owned())
        } else {
            work.fails.clone()
        };
        let starts_ms = self.now_ms + self.draw(self.faults.start_ms_max);
        self.attempts.insert(
            order.key.clone(),
            FakeAttempt {
                order: order.clone(),
                work,
                claimed_ms: self.now_ms,
                starts_ms: fails.is_none().then_some(starts_ms),
                ends: fails.map(|reason| (self.now_ms, Outcome::StartFailed { reason })),
                warned_ms: None,
                told_ms: None,
                forgotten_ms: None,
                recorded: (false, false),
            },
        );
    }

    fn signal(&mut self, key: &AttemptKey, signal: Signal) {
        let now_ms = self.now_ms;
        let Some(attempt) = self.attempts.get_mut(key).filter(|attempt| !attempt.ended_at(now_ms))
        else {
            return;
        };
        let at_ms = attempt.starts_ms.unwrap_or(now_ms).max(now_ms);
        match signal {
            Signal::Warn if attempt.warned_ms.is_none() => {
                attempt.warned_ms = Some(at_ms);
                if let Some(code) = attempt.work.warned_exit {
                    attempt.end(at_ms, Outcome::Exit { code });
                }
            }
            Signal::Checkpoint if attempt.told_ms.is_none() => {
                attempt.told_ms = Some(at_ms);
                if let OnCheckpoint::Leave { save_ms, exit } = attempt.work.on_checkpoint {
                    let outcome = match exit {
                        Some(code) => Outcome::Exit { code },
                        None => Outcome::Signal { number: SIGTERM },
                    };
                    attempt.end(at_ms + save_ms, outcome);
                }
            }
            Signal::Warn | Signal::Checkpoint => {}
        }
    }

    fn stop(&mut self, key: &AttemptKey) {
        let now_ms = self.now_ms;
        let Some(attempt) = self.attempts.get_mut(key).filter(|attempt| !attempt.ended_at(now_ms))
        else {
            return;
        };
        attempt.told_ms = Some(attempt.told_ms.unwrap_or(now_ms).min(now_ms));
        let outcome = if attempt.runs_at(now_ms) {
            Outcome::Signal { number: SIGKILL }
        } else {
            attempt.starts_ms = None;
            Outcome::StartFailed { reason: "it was stopped before it started".to_owned() }
        };
        attempt.ends = Some((now_ms, outcome));
    }

    fn forget(&mut self, key: &AttemptKey) {
        let now_ms = self.now_ms;
        if let Some(attempt) = self.attempts.get_mut(key).filter(|attempt| attempt.ended_at(now_ms))
        {
            attempt.forgotten_ms.get_or_insert(now_ms);
        }
    }

    fn lose(&mut self, which: impl Fn(&StartOrder) -> bool, why: &str) {
        let now_ms = self.now_ms;
        for attempt in self.attempts.values_mut().filter(|attempt| which(&attempt.order)) {
            if !attempt.ended_at(now_ms) {
                let reason = why.to_owned();
                let started = attempt.runs_at(now_ms);
                attempt.starts_ms = attempt.starts_ms.filter(|_| started);
                attempt.ends = Some((now_ms, Outcome::Lost { reason }));
            }
        }
        self.happen();
    }

    /// What is shown now: how it was at some moment not long ago, never older than what was shown before.
    pub(super) fn show(&mut self) -> Vec<Observation> {
        let oldest = self.now_ms.saturating_sub(self.faults.stale_ms_max).max(self.shown_ms);
        self.shown_ms = oldest + self.draw(self.now_ms - oldest);
        let at_ms = self.shown_ms;
        self.attempts.values().filter_map(|attempt| attempt.seen_at(at_ms)).collect()
    }

    /// Whether an attempt is known to have ended; none if it is not known at all.
    pub(super) fn has_ended(&self, key: &AttemptKey) -> Option<bool> {
        let attempt = self.attempts.get(key).filter(|attempt| attempt.forgotten_ms.is_none());
        attempt.map(|attempt| attempt.ended_at(self.now_ms))
    }

    /// How much an attempt wrote, and how its log is kept: bytes of each file, and files.
    pub(super) fn log(&self, key: &AttemptKey) -> Option<(u64, u64, u64)> {
        let attempt = self.attempts.get(key)?;
        let ran = attempt.starts_ms.is_some_and(|starts_ms| starts_ms <= self.now_ms);
        let bytes = if ran { attempt.work.print_bytes } else { 0 };
        Some((bytes, attempt.order.log_bytes_max, u64::from(attempt.order.log_files_max)))
    }
}

impl FakeAttempt {
    fn ended_at(&self, ms: u64) -> bool {
        self.ends.as_ref().is_some_and(|(at, _)| *at <= ms)
    }

    fn runs_at(&self, ms: u64) -> bool {
        self.starts_ms.is_some_and(|at| at <= ms) && !self.ended_at(ms)
    }

    fn own_outcome(&self) -> Outcome {
        match self.work.killed_by {
            Some(number) => Outcome::Signal { number },
            None => Outcome::Exit { code: self.work.exit },
        }
    }

    /// It will end then, unless it does before.
    fn end(&mut self, at_ms: u64, outcome: Outcome) {
        if self.ends.as_ref().is_none_or(|(ends_ms, _)| at_ms < *ends_ms) {
            self.ends = Some((at_ms, outcome));
        }
    }

    /// The next moment at which something is to be recorded.
    fn next_ms(&self) -> Option<u64> {
        let starts = self.starts_ms.filter(|_| !self.recorded.0);
        let ends = self.ends.as_ref().map(|(at, _)| *at).filter(|_| !self.recorded.1);
        starts.into_iter().chain(ends).min()
    }

    /// Records what is due.
    fn settle(&mut self, now_ms: u64) -> Vec<FakeRecord> {
        let mut happened = Vec::new();
        let record = |at_ms, fact| FakeRecord { at_ms, key: self.order.key.clone(), fact };
        if let Some(starts_ms) = self.starts_ms.filter(|at| *at <= now_ms && !self.recorded.0) {
            happened.push(record(starts_ms, FakeFact::Started(self.order.placement.clone())));
            self.recorded.0 = true;
            if let Some(run_ms) = self.work.run_ms {
                let outcome = self.own_outcome();
                self.end(starts_ms + run_ms, outcome);
            }
        }
        let record = |at_ms, fact| FakeRecord { at_ms, key: self.order.key.clone(), fact };
        if let Some((at_ms, outcome)) = self.ends.clone().filter(|(at, _)| *at <= now_ms)
            && !self.recorded.1
        {
            happened.push(record(at_ms, FakeFact::Ended(outcome)));
            self.recorded.1 = true;
        }
        happened
    }

    /// How it looked at a moment.
    fn seen_at(&self, ms: u64) -> Option<Observation> {
        if self.claimed_ms > ms || self.forgotten_ms.is_some_and(|at| at <= ms) {
            return None;
        }
        let by = |at: Option<u64>| at.is_some_and(|at| at <= ms);
        let moment = |ms| Moment { unix_ms: ms, boot_ms: Some(ms) };
        let state = match (&self.ends, self.starts_ms.filter(|at| *at <= ms)) {
            (Some((ends_ms, outcome)), starts_ms) if *ends_ms <= ms => {
                AttemptState::Exited(Exited {
                    started_at: starts_ms.map(moment),
                    ended_at: moment(*ends_ms),
                    outcome: outcome.clone(),
                    was_told_to_leave: by(self.told_ms),
                })
            }
            (_, Some(starts_ms)) => AttemptState::Running {
                started_at: moment(starts_ms),
                warned: by(self.warned_ms),
                told_to_leave: by(self.told_ms),
            },
            (_, None) => AttemptState::Starting,
        };
        Some(Observation { key: self.order.key.clone(), state, notes: Vec::new() })
    }
}
