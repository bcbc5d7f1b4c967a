//! The scripted engine: it passes the conformance suite, and with faults it still comes to rest.

use bursar_engine::testkit::conformance::{Subject, Work};
use bursar_engine::testkit::{FakeEngine, FakeFact, FakeWorld, Faults};
use bursar_engine::{AttemptKey, AttemptState, Engine, HostGpus, Outcome, Signal, StartOrder};
use std::collections::{BTreeMap, BTreeSet};

struct Fake {
    world: FakeWorld,
    engine: Option<FakeEngine>,
}

impl Fake {
    fn new() -> Self {
        let world = FakeWorld::new(1, FakeWorld::hosts(2, 8, "h100"));
        Self { engine: Some(world.engine()), world }
    }
}

fn order(key: &AttemptKey, command: &str) -> StartOrder {
    StartOrder {
        key: key.clone(),
        command: command.split(' ').map(str::to_owned).collect(),
        workdir: None,
        env: BTreeMap::new(),
        user: None,
        placement: vec![HostGpus { host: "h0".to_owned(), gpus: vec![0] }],
        memory_bytes: None,
        cpus: None,
        adopts: None,
        resumable: false,
        resume: false,
        checkpoint_dir: "/checkpoints".into(),
        protected_until_unix_ms: None,
        log_bytes_max: 100,
        log_files_max: 3,
    }
}

impl Subject for Fake {
    type Engine = FakeEngine;

    fn engine(&mut self) -> &mut FakeEngine {
        self.engine.as_mut().expect("the daemon is up")
    }

    fn down(&mut self) {
        self.engine = None;
    }

    fn up(&mut self) {
        self.engine = Some(self.world.engine());
    }

    fn order(&mut self, key: &AttemptKey, work: &Work) -> StartOrder {
        let command = match work {
            Work::Exit(code) => format!("fake run_ms=10 exit={code}"),
            Work::KilledBy(number) => format!("fake run_ms=10 killed_by={number}"),
            Work::WhenReleased(code) => format!("fake exit={code}"),
            Work::Endless | Work::Family => "./train.sh".to_owned(),
            Work::UntilCheckpoint(code) => format!("fake save_ms=5 saved_exit={code}"),
            Work::UntilWarning(code) => format!("fake warned_exit={code}"),
            Work::Print(bytes) => format!("fake run_ms=10 print={bytes}"),
            Work::MissingProgram | Work::MissingWorkdir => "fake".to_owned(),
        };
        let mut order = order(key, &command);
        if *work == Work::MissingProgram {
            order.command.push("fails=command not found".to_owned());
        }
        if *work == Work::MissingWorkdir {
            order.workdir = Some("/nonexistent/dir".into());
        }
        order
    }

    fn await_prepared(&mut self, _key: &AttemptKey) {}

    fn release(&mut self, key: &AttemptKey) {
        self.world.finish(key);
    }

    fn pause(&mut self) {
        let next = self.world.next_ms().unwrap_or(self.world.now_ms() + 1000);
        self.world.advance_to(next);
    }

    fn processes(&mut self, key: &AttemptKey) -> usize {
        usize::from(self.world.running().contains(key))
    }

    fn executions(&mut self, key: &AttemptKey) -> usize {
        let started = |record: &&bursar_engine::testkit::FakeRecord| {
            record.key == *key && matches!(record.fact, FakeFact::Started(_))
        };
        self.world.history().iter().filter(started).count()
    }

    fn claim_only(&mut self, order: &StartOrder) {
        self.down();
        self.world.claim(order);
        self.up();
    }

    fn kill_supervisor(&mut self, key: &AttemptKey) {
        self.world.lose(key);
    }
}

bursar_engine::conformance_tests!(Fake::new());

/// What a daemon does, at its simplest: every attempt is wanted until it has run long enough, then it is
/// told to leave, and forgotten when it has. Level-triggered: nothing is remembered of what was ordered.
fn drive(
    world: &FakeWorld,
    wanted: &BTreeSet<AttemptKey>,
    done: &mut BTreeMap<AttemptKey, Outcome>,
) {
    let mut engine = world.engine();
    let Ok(seen) = engine.observe() else { return };
    for key in wanted {
        if !done.contains_key(key) && !seen.iter().any(|seen| seen.key == *key) {
            let _ = engine.start(&order(key, "fake run_ms=20000"));
        }
    }
    for seen in seen {
        match seen.state {
            AttemptState::Running { started_at, told_to_leave: false, .. }
                if started_at.unix_ms + 10_000 < world.now_ms() =>
            {
                let _ = engine.signal(&seen.key, Signal::Checkpoint);
            }
            AttemptState::Exited(exited) => {
                // What was seen once is never seen otherwise.
                let before = done.insert(seen.key.clone(), exited.outcome.clone());
                assert!(before.is_none_or(|before| before == exited.outcome));
                let _ = engine.forget(&seen.key);
            }
            AttemptState::Starting | AttemptState::Running { .. } => {}
        }
    }
}

#[test]
fn a_loop_that_only_compares_gets_through_any_faults() {
    for seed in 0..200 {
        let world = FakeWorld::new(seed, FakeWorld::hosts(1, 8, "h100"));
        world.set_faults(Faults::MANY);
        let wanted: BTreeSet<_> = (1..8).map(|n| AttemptKey::new("w", n).unwrap()).collect();
        let mut done = BTreeMap::new();
        for round in 0..200 {
            world.advance_to(round * 500);
            drive(&world, &wanted, &mut done);
            if round == 30 && seed % 2 == 0 {
                world.fail_host("h0");
            }
            if round == 35 {
                world.repair_host("h0");
            }
        }
        world.set_faults(Faults::NONE);
        for round in 200..260 {
            world.advance_to(round * 500);
            drive(&world, &wanted, &mut done);
        }
        assert_eq!(done.len(), wanted.len(), "seed {seed}");
        assert_eq!(world.engine().observe().unwrap(), [], "seed {seed}");
        assert!(world.running().is_empty(), "seed {seed}");
        let mut ends = BTreeMap::new();
        let mut starts = BTreeSet::new();
        for record in world.history() {
            match record.fact {
                FakeFact::Started(_) => assert!(starts.insert(record.key), "seed {seed}: twice"),
                FakeFact::Ended(outcome) => drop(ends.insert(record.key, outcome)),
            }
        }
        assert_eq!(ends, done, "seed {seed}: what was seen is what happened");
    }
}

#[test]
fn the_same_seed_is_the_same_world() {
    let run = || {
        let world = FakeWorld::new(7, FakeWorld::hosts(1, 8, "h100"));
        world.set_faults(Faults::MANY);
        let wanted: BTreeSet<_> = (1..8).map(|n| AttemptKey::new("w", n).unwrap()).collect();
        let mut done = BTreeMap::new();
        for round in 0..100 {
            world.advance_to(round * 500);
            drive(&world, &wanted, &mut done);
        }
        world.history()
    };
    assert_eq!(run(), run());
}
