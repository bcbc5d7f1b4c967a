//! Rounds of a daemon with an engine whose every answer is scripted: what becomes of attempts that cannot be started,
//! were lost, or ran on a machine that was off; and of a journal that cannot be written.

use bursar_engine::{
    AttemptKey, AttemptState, Engine, Error, ErrorKind, Exited, HostFacts, LogChunk, Moment,
    Observation, Outcome as Seen, Signal, StartOrder,
};
use bursar_server::accounts::Accounts;
use bursar_server::daemon::StartOptions;
use bursar_server::{Clock, Daemon, Journal, JournalError};
use bursar_site::record::{BudgetsChanged, Created, HostDoc, Outcome, SettingsDoc};
use bursar_site::{Body, Ending, Record, Stage, Work, declare};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

const MINUTE: u64 = 60_000;

/// What is outside the daemon.
#[derive(Default)]
struct Outside {
    now_ms: u64,
    alive_before_boot_ms: Option<u64>,
    records: Vec<Record>,
    /// What was written is kept and no append succeeds any more.
    full: bool,
    reads: u64,
    appends: u64,
    seen: BTreeMap<AttemptKey, AttemptState>,
    /// By workload: what a start of it is answered.
    refuses: BTreeMap<String, fn() -> Error>,
    starts: Vec<AttemptKey>,
}

#[derive(Clone, Default)]
struct World(Arc<Mutex<Outside>>);

impl World {
    fn lock(&self) -> MutexGuard<'_, Outside> {
        self.0.lock().expect("nobody panics with it")
    }
}

fn moment(unix_ms: u64, this_boot: bool) -> Moment {
    Moment { unix_ms, boot_ms: this_boot.then_some(unix_ms) }
}

impl Clock for World {
    fn now_ms(&self) -> u64 {
        self.lock().now_ms
    }

    fn unix_ms(&self, site_ms: u64) -> u64 {
        site_ms
    }

    fn site_ms(&self, moment: Moment) -> u64 {
        // The machine was booted two minutes ago, whenever it was.
        match moment.boot_ms {
            Some(0) => self.lock().now_ms.saturating_sub(2 * MINUTE),
            _ => moment.unix_ms,
        }
    }

    fn alive_before_boot_ms(&self) -> Option<u64> {
        self.lock().alive_before_boot_ms
    }
}

impl Journal for World {
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        let mut outside = self.lock();
        outside.appends += 1;
        if outside.full {
            return Err(JournalError("the disk is full".into()));
        }
        outside.records.extend_from_slice(records);
        Ok(())
    }

    fn is_at(&self, seq: u64) -> bool {
        self.lock().records.len() as u64 == seq
    }

    fn read(
        &self,
        from: u64,
        take: &mut dyn FnMut(Record) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        let records = {
            let mut outside = self.lock();
            outside.reads += 1;
            outside.records.clone()
        };
        records.into_iter().filter(|record| record.seq >= from).try_for_each(take)
    }

    fn put_snapshot(&mut self, _: u64, _: &[u8]) -> Result<(), JournalError> {
        Ok(())
    }

    fn latest_snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, JournalError> {
        Ok(None)
    }
}

impl Engine for World {
    fn hosts(&mut self) -> Result<Vec<HostFacts>, Error> {
        Ok(Vec::new())
    }

    fn observe(&mut self) -> Result<Vec<Observation>, Error> {
        let outside = self.lock();
        let one = |(key, state): (&AttemptKey, &AttemptState)| Observation {
            key: key.clone(),
            state: state.clone(),
            notes: Vec::new(),
        };
        Ok(outside.seen.iter().map(one).collect())
    }

    fn start(&mut self, order: &StartOrder) -> Result<(), Error> {
        let mut outside = self.lock();
        if let Some(refuse) = outside.refuses.get(order.key.workload()) {
            return Err(refuse());
        }
        outside.starts.push(order.key.clone());
        Ok(())
    }

    fn signal(&mut self, _: &AttemptKey, _: Signal) -> Result<(), Error> {
        Ok(())
    }

    fn stop(&mut self, _: &AttemptKey) -> Result<(), Error> {
        Ok(())
    }

    fn forget(&mut self, key: &AttemptKey) -> Result<(), Error> {
        self.lock().seen.remove(key);
        Ok(())
    }

    fn cordon(&mut self, _: &str, _: &str) -> Result<(), Error> {
        Ok(())
    }

    fn uncordon(&mut self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    fn read_log(&self, _: &AttemptKey, _: u64, _: usize) -> Result<LogChunk, Error> {
        Err(invalid())
    }
}

/// An order that contradicts itself.
fn invalid() -> Error {
    Error::new(ErrorKind::Invalid, "a limit of nothing")
}

fn first() -> Vec<Body> {
    let host = HostDoc { name: "h".into(), gpus: 4, model: "x".into(), domain: None };
    let created = Created {
        name: "test".into(),
        site_id: None,
        unix_ms: 0,
        settings: SettingsDoc::default(),
        hosts: vec![host],
        rates_milli: BTreeMap::new(),
    };
    let budgets = serde_json::from_str(r#"{"b": {"share": 1}}"#).expect("a tree");
    let change = BudgetsChanged::first(budgets, "boss", "first");
    vec![Body::Created(created), Body::BudgetsChanged(change)]
}

type Alive = Daemon<World, World, World>;

fn open(world: &World) -> Alive {
    open_from(world, 0)
}

fn open_from(world: &World, numbers_from: u64) -> Alive {
    let options = StartOptions {
        watches: false,
        reads_past_first: false,
        account_budgets: bursar_server::arrivals::AccountBudgets::default(),
        checkpoint_root: "/nowhere".into(),
        log_bytes_max: 1,
        log_files_max: 1,
        accounts: Accounts::default(),
        snapshot_every: 1_000,
        report_key: None,
        numbers_from,
        queue: bursar_server::queue::QueueLimits::default(),
        keep_logs: std::time::Duration::from_secs(86_400),
    };
    Daemon::open(world.clone(), world.clone(), |_| Ok(world.clone()), options, first).expect("up")
}

fn submit(daemon: &mut Alive, resumable: bool) -> u64 {
    let text = format!(
        "workload: {{name: w, gpus: 1, min_runtime: 30m, resumable: {resumable}, budget_owner: b, command: [x]}}"
    );
    let doc = declare::read_workload(&text).expect("a workload");
    let asked = daemon.ask_for("boss", |site| {
        let submission = site.submit("boss", doc, None, false)?;
        Ok((submission.bodies, submission.workload))
    });
    asked.expect("it is taken").1
}

fn key(workload: u64, attempt: u32) -> AttemptKey {
    AttemptKey::new(workload.to_string(), attempt).expect("a key")
}

fn work(daemon: &Alive, number: u64) -> &Work {
    daemon.site().work(number).expect("it is there")
}

fn see(world: &World, key: AttemptKey, outcome: Seen, from: Option<Moment>, to: Moment) {
    let exited = Exited { started_at: from, ended_at: to, outcome, was_told_to_leave: false };
    world.lock().seen.insert(key, AttemptState::Exited(exited));
}

fn lost() -> Seen {
    Seen::Lost { reason: "its supervisor was killed".into() }
}

#[test]
fn an_order_that_makes_no_sense_ends_its_attempt_and_nothing_else() {
    let world = World::default();
    let mut daemon = open(&world);
    let bad = submit(&mut daemon, true);
    let good = submit(&mut daemon, true);
    world.lock().refuses.insert(bad.to_string(), invalid);
    daemon.round().expect("one attempt's trouble is its own");
    daemon.round().expect("and stays so");
    let ended = work(&daemon, bad);
    assert_eq!(ended.stage, Stage::Ended(Ending::Failed));
    let detail = ended.attempts[0].detail.as_deref().expect("why");
    assert!(detail.starts_with("could not be started: "), "{detail}");
    assert_eq!((ended.attempts.len(), ended.charged_gpu_ms()), (1, 0));
    assert!(world.lock().starts.contains(&key(good, 1)));
    assert_eq!(daemon.site().now_ms(), 0, "at once");
}

#[test]
fn what_the_engine_took_and_nobody_sees_is_not_waited_for_for_ever() {
    let world = World::default();
    let mut daemon = open(&world);
    let number = submit(&mut daemon, false);
    daemon.round().expect("a round");
    assert_eq!(world.lock().starts.len(), 1);
    for minute in 1..=11 {
        world.lock().now_ms = minute * MINUTE;
        daemon.round().expect("a round");
    }
    // It may have run, in a history of the journal that is gone.
    assert_eq!(work(&daemon, number).stage, Stage::Ended(Ending::HostFailed));
}

#[test]
fn what_may_have_run_and_cannot_resume_does_not_run_again() {
    for started in [None, Some(moment(5 * MINUTE, true))] {
        let world = World::default();
        let mut daemon = open(&world);
        world.lock().now_ms = 4 * MINUTE;
        let number = submit(&mut daemon, false);
        daemon.round().expect("a round");
        world.lock().now_ms = 20 * MINUTE;
        see(&world, key(number, 1), lost(), started, moment(10 * MINUTE, true));
        daemon.round().expect("a round");
        daemon.round().expect("a round");
        let ended = work(&daemon, number);
        assert_eq!(ended.stage, Stage::Ended(Ending::HostFailed), "{started:?}");
        assert_eq!(ended.attempts.len(), 1);
        // If no more is known, from its decision on.
        let minutes = if started.is_some() { 5 } else { 6 };
        assert_eq!(ended.charged_gpu_ms(), minutes * MINUTE, "{started:?}");
    }
}

#[test]
fn what_is_lost_as_soon_as_it_begins_is_not_tried_for_ever() {
    let world = World::default();
    let mut daemon = open(&world);
    let number = submit(&mut daemon, true);
    for attempt in 1..=6 {
        assert!(!matches!(work(&daemon, number).stage, Stage::Ended(_)), "attempt {attempt}");
        daemon.round().expect("a round");
        let now = {
            let mut outside = world.lock();
            outside.now_ms += 10_000;
            outside.now_ms
        };
        see(
            &world,
            key(number, attempt),
            lost(),
            Some(moment(now - 5_000, true)),
            moment(now, true),
        );
        daemon.round().expect("a round");
    }
    let ended = work(&daemon, number);
    assert_eq!(ended.stage, Stage::Ended(Ending::Failed));
    assert_eq!(ended.attempts.len(), 6);
    // Who asks for it to run once more gets as many tries again.
    daemon.ask("boss", |site| site.requeue("boss", number)).expect("asked");
    daemon.round().expect("a round");
    let now = world.lock().now_ms + 10_000;
    world.lock().now_ms = now;
    see(&world, key(number, 7), lost(), Some(moment(now - 5_000, true)), moment(now, true));
    daemon.round().expect("a round");
    assert_eq!(work(&daemon, number).attempts[6].outcome, Some(Outcome::Lost));
}

#[test]
fn a_machine_that_was_off_is_not_charged() {
    for (last_sign, ends) in [(20, 30), (40, 40), (58 * 60, 57 * 60 + 58)] {
        let world = World::default();
        let mut daemon = open(&world);
        let number = submit(&mut daemon, true);
        daemon.round().expect("a round");
        let running = AttemptState::Running {
            started_at: moment(MINUTE, true),
            warned: false,
            told_to_leave: false,
        };
        world.lock().now_ms = 2 * MINUTE;
        world.lock().seen.insert(key(number, 1), running);
        daemon.round().expect("a round");
        // The daemon lived until minute 30; the machine is up again two days and ten hours later.
        drop(daemon);
        let now = 58 * 60 * MINUTE;
        {
            let mut outside = world.lock();
            outside.now_ms = now;
            outside.alive_before_boot_ms = Some(30 * MINUTE);
        }
        let from = Some(moment(MINUTE, false));
        see(&world, key(number, 1), lost(), from, moment(last_sign * MINUTE, false));
        let mut daemon = open(&world);
        daemon.round().expect("a round");
        let first = &work(&daemon, number).attempts[0];
        assert_eq!(first.ended_ms, Some(ends * MINUTE), "last sign {last_sign}");
        assert_eq!(first.charged_gpu_ms, (ends - 1) * MINUTE);
    }
}

#[test]
fn what_vanished_with_its_machine_ends_when_it_was_last_seen() {
    let world = World::default();
    let mut daemon = open(&world);
    let number = submit(&mut daemon, false);
    daemon.round().expect("a round");
    let running =
        AttemptState::Running { started_at: moment(0, true), warned: false, told_to_leave: false };
    world.lock().seen.insert(key(number, 1), running);
    daemon.round().expect("a round");
    drop(daemon);
    {
        let mut outside = world.lock();
        outside.now_ms = 500 * MINUTE;
        outside.alive_before_boot_ms = Some(7 * MINUTE);
        outside.seen.clear();
    }
    let mut daemon = open(&world);
    daemon.round().expect("a round");
    assert_eq!(work(&daemon, number).charged_gpu_ms(), 7 * MINUTE);
}

#[test]
fn a_full_disk_has_nothing_folded_again() {
    let world = World::default();
    let mut daemon = open(&world);
    let first = submit(&mut daemon, true);
    daemon.round().expect("a round");
    let reads = world.lock().reads;
    world.lock().full = true;
    for _ in 0..5 {
        let doc = "workload: {name: w, gpus: 1, budget_owner: b, command: [x]}";
        let doc = declare::read_workload(doc).expect("a workload");
        daemon
            .ask("boss", |site| Ok(site.submit("boss", doc, None, false)?.bodies.remove(0)))
            .expect_err("it cannot be written");
    }
    assert_eq!(daemon.site().works().count(), 1, "nobody is told of what was not written");
    // What the engine did cannot be written, either.
    let running =
        AttemptState::Running { started_at: moment(0, true), warned: false, told_to_leave: false };
    world.lock().seen.insert(key(first, 1), running);
    for _ in 0..5 {
        daemon.round().expect_err("it cannot be written");
        assert!(daemon.current().is_ok());
    }
    assert_eq!(world.lock().reads, reads, "nothing is read again");
    world.lock().full = false;
    daemon.round().expect("there is room again");
    assert!(work(&daemon, first).attempts[0].started_ms.is_some());
    assert_eq!(world.lock().reads, reads);
}

#[test]
fn a_plan_that_could_not_be_written_is_written_later() {
    let world = World::default();
    let mut daemon = open(&world);
    let number = submit(&mut daemon, true);
    let reads = world.lock().reads;
    world.lock().full = true;
    for _ in 0..5 {
        daemon.round().expect_err("the plan cannot be written");
    }
    assert_eq!(world.lock().reads, reads, "nothing is read again");
    assert!(world.lock().starts.is_empty(), "nothing goes out before it is written");
    // Who asks is shown what was written: for that, once, the journal is folded.
    assert!(daemon.current().expect("it is read").work(number).expect("there").attempts.is_empty());
    daemon.current().expect("it is read");
    assert_eq!(world.lock().reads, reads + 1);
    daemon.round().expect_err("the plan cannot be written");
    world.lock().full = false;
    daemon.round().expect("there is room again");
    assert_eq!(world.lock().starts, [key(number, 1)]);
    drop(daemon);
    // The journal folds to what was done.
    let daemon = open(&world);
    assert_eq!(work(&daemon, number).attempts.len(), 1);
}

#[test]
fn numbers_that_a_history_of_before_gave_away_are_not_given_again() {
    let world = World::default();
    let mut daemon = open(&world);
    assert_eq!(submit(&mut daemon, true), 1);
    drop(daemon);
    let mut daemon = open_from(&world, 18);
    assert_eq!(submit(&mut daemon, true), 18);
    assert_eq!(submit(&mut daemon, true), 19);
    drop(daemon);
    let mut daemon = open_from(&world, 7);
    assert_eq!(submit(&mut daemon, true), 20);
}
