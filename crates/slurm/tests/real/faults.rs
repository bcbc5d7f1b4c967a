//! Everything is killed at bad moments, and clients fail before or after they had their effect.

use crate::world::{SAVES, SHORT, World, key};
use bursar_engine::{AttemptState, Engine, Outcome, Signal as Tell};
use bursar_slurm::SlurmOptions;
use bursar_slurm::client::{Call, ClientError, Clients, Program, SystemClients};
use bursar_slurm_lab::{self as lab, Lab, skipped};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Clients of which a call of this program fails: the nth, before or after it had its effect.
struct Failing {
    clients: SystemClients,
    program: Program,
    word: &'static str,
    after: bool,
    calls_left: Arc<AtomicU32>,
}

impl Clients for Failing {
    fn run(&self, call: &Call) -> Result<Vec<u8>, ClientError> {
        let meant = call.program == self.program && call.args.iter().any(|arg| arg == self.word);
        let fails = meant && self.calls_left.fetch_sub(1, Ordering::Relaxed) == 1;
        if fails && !self.after {
            return Err(ClientError::TimedOut { call: call.to_string(), limit_ms: 0 });
        }
        let answer = self.clients.run(call)?;
        if fails {
            return Err(ClientError::TimedOut { call: call.to_string(), limit_ms: 0 });
        }
        Ok(answer)
    }
}

#[test]
fn a_client_that_fails_loses_nothing_and_starts_nothing_twice() {
    if skipped() {
        return;
    }
    let mut world = World::on(Lab::one_node());
    let host = world.lab.hosts[0].clone();
    let mut attempt = 0;
    for (word, after) in
        [("update", false), ("update", true), ("release", false), ("release", true)]
    {
        let job = world.sbatch(
            "alice",
            &["--gpus=1", "--comment=resumable"],
            "echo ran >> ran-$SLURM_JOB_ID; sleep 1",
        );
        let arrival = world.await_waiting(&job);
        let clients = Failing {
            clients: world.lab.clients(),
            program: Program::Scontrol,
            word,
            after,
            calls_left: Arc::new(AtomicU32::new(1)),
        };
        world.restart_with(clients);
        let outcome = loop {
            attempt += 1;
            world.start(&key(attempt), &arrival, &[(&host, 1)]);
            let outcome = world.await_exit(&key(attempt)).outcome;
            if !matches!(outcome, Outcome::NotStarted { .. }) {
                break outcome;
            }
            // Never started, so it waits as before.
            assert_eq!(world.await_waiting(&job).name, arrival.name, "{word} {after}");
        };
        assert_eq!(outcome, Outcome::Exit { code: 0 }, "{word} {after}");
        let ran =
            fs::read_to_string(world.lab.jobs().join(format!("ran-{job}"))).expect("its mark");
        assert_eq!(ran, "ran\n", "{word} {after}");
    }
}

/// Clients that die with their daemon at the nth call that changes something, before or after it had its effect.
struct Deadly {
    clients: SystemClients,
    after: bool,
    calls_left: Arc<AtomicU32>,
}

impl Clients for Deadly {
    fn run(&self, call: &Call) -> Result<Vec<u8>, ClientError> {
        let changes = matches!(call.program, Program::Scontrol | Program::Scancel);
        let dies = changes && self.calls_left.fetch_sub(1, Ordering::Relaxed) == 1;
        assert!(!dies || self.after, "the daemon is killed here, as the test has it");
        let answer = self.clients.run(call);
        assert!(!dies, "the daemon is killed here, as the test has it");
        answer
    }
}

/// It saves in its first run, and ends in its second.
const TWO_RUNS: &str = "echo ran >> ran-$SLURM_JOB_ID\n\
    if [ -n \"$SLURM_RESTART_COUNT\" ]; then exit 0; fi\n\
    trap 'exit 3' USR1; while :; do sleep 0.05; done";

/// How long a job has from the signal until it is stopped.
const GRACE: Duration = Duration::from_secs(4);

/// Drives a job to its end as a daemon would, by what it sees, with an engine that dies at the nth change and comes back.
/// Gives how many changes there were before that.
fn drive(world: &mut World, nth: u32, after: bool) -> u32 {
    let host = world.lab.hosts[0].clone();
    let job = world.sbatch("alice", &["--gpus=1", "--comment=resumable"], TWO_RUNS);
    let arrival = world.await_waiting(&job);
    world.forget_everything();
    let calls_left = Arc::new(AtomicU32::new(nth));
    let clients =
        Deadly { clients: world.lab.clients(), after, calls_left: Arc::clone(&calls_left) };
    world.restart_with(clients);
    let (mut attempt, mut saved, mut ended) = (1, false, false);
    let mut told_since = None;
    world.until(&format!("the end of job {job}, killed at change {nth}"), |world| {
        let round = std::panic::AssertUnwindSafe(|| {
            match world.see(&key(attempt)).map(|seen| seen.state) {
                None => world.start(&key(attempt), &arrival, &[(&host, 1)]),
                Some(AttemptState::Starting) => {}
                Some(AttemptState::Running { told_to_leave, .. }) if !saved => {
                    // A signal is sent at most once, so it is lost with a daemon that dies just before.
                    let told = told_to_leave.then(|| *told_since.get_or_insert_with(Instant::now));
                    let engine = world.engine();
                    match told.filter(|since: &Instant| since.elapsed() > GRACE) {
                        Some(_) => engine.stop(&key(attempt)).expect("stop"),
                        None => engine.signal(&key(attempt), Tell::Checkpoint).expect("signal"),
                    }
                }
                Some(AttemptState::Running { .. }) => {}
                Some(AttemptState::Exited(exited)) => match exited.outcome {
                    Outcome::NotStarted { .. } => attempt += 1,
                    Outcome::Exit { code: 3 } | Outcome::Signal { number: 15 } => {
                        assert!(exited.was_told_to_leave && !saved, "{exited:?}");
                        (saved, attempt) = (true, attempt + 1);
                    }
                    Outcome::Exit { code: 0 } => ended = true,
                    other => panic!("it ended otherwise: {other:?}"),
                },
            }
        });
        if let Err(panic) = std::panic::catch_unwind(round) {
            let said = panic.downcast_ref::<&str>().copied().unwrap_or_default();
            assert!(said.contains("the daemon is killed here"), "{nth}: {said}");
            world.restart();
        }
        ended.then_some(())
    });
    assert!(saved, "{nth}");
    let ran = fs::read_to_string(world.lab.jobs().join(format!("ran-{job}"))).expect("its marks");
    assert_eq!(ran, "ran\nran\n", "change {nth}: two runs, and no other");
    let rows =
        world.until("both rows", |world| Some(world.accounts(&job)).filter(|rows| rows.len() > 1));
    assert_eq!(rows.len(), 2, "change {nth}: {rows:?}");
    nth.wrapping_sub(calls_left.load(Ordering::Relaxed))
}

/// Kills the daemon at each change that a job's way takes, one after the other.
fn killed_at_each_change(after: bool) {
    let lab = Lab::one_node();
    let mut options = SlurmOptions::new(lab.partitions.clone());
    options.signal_after = Duration::ZERO;
    let mut world = World::with(lab, options);
    let changes = drive(&mut world, u32::MAX, after);
    assert!((6..20).contains(&changes), "{changes} changes");
    for nth in 1..=changes {
        drive(&mut world, nth, after);
    }
}

#[test]
fn killed_before_each_change_a_job_runs_as_often_as_it_should() {
    if !skipped() {
        killed_at_each_change(false);
    }
}

#[test]
fn killed_after_each_change_a_job_runs_as_often_as_it_should() {
    if !skipped() {
        killed_at_each_change(true);
    }
}

#[test]
fn records_that_are_lost_are_read_from_the_jobs() {
    if skipped() {
        return;
    }
    let mut world = World::on(Lab::one_node());
    let host = world.lab.hosts[0].clone();
    let job = world.sbatch("alice", &["--gpus=1", "--comment=resumable"], SAVES);
    let arrival = world.await_waiting(&job);
    world.start(&key(1), &arrival, &[(&host, 1)]);
    let started = world.await_running(&key(1));
    world.forget_everything();
    assert_eq!(world.await_running(&key(1)), started);
    assert_eq!(world.arrival(&job), None);
    world.engine().stop(&key(1)).expect("stop");
    assert_eq!(world.await_exit(&key(1)).outcome, Outcome::Signal { number: 15 });
}

/// Kills a daemon of Slurm, which must be this program. `lab::up` brings it up again.
fn kill_daemon(pid_file: &str, program: &str) {
    let pid = fs::read_to_string(lab::folder().join("run").join(pid_file)).expect("its pid");
    let pid: i32 = pid.trim().parse().expect("its pid");
    let found = fs::read_link(format!("/proc/{pid}/exe")).expect("its program");
    assert!(found.ends_with(program), "{found:?}");
    kill_process(Pid::from_raw(pid).expect("a pid"), Signal::KILL).expect("to kill it");
    std::thread::sleep(Duration::from_millis(200));
}

#[test]
fn a_controller_that_is_killed_confuses_nobody() {
    if skipped() {
        return;
    }
    let mut world = World::on(Lab::all_nodes());
    let runs = world.sbatch("alice", &["--gpus=1", "--comment=resumable"], SAVES);
    let waits = world.sbatch("alice", &["--gpus=1"], SHORT);
    let running = world.await_waiting(&runs);
    world.start(&key(1), &running, &[("n1", 1)]);
    let started = world.await_running(&key(1));
    let waiting = world.await_waiting(&waits);
    // The controller writes its state down every five seconds.
    std::thread::sleep(Duration::from_secs(7));
    let lost = world.sbatch("alice", &["--gpus=1"], SHORT);
    let lost_arrival = world.await_waiting(&lost);
    kill_daemon("slurmctld.pid", "slurmctld-wlm");
    lab::up();
    let again = world.sbatch("bob", &["--gpus=1"], SHORT);
    // Whether the number was given out again is Slurm's affair; usually it was. The name never is.
    let again_arrival = world.await_waiting(&again);
    assert_ne!(again_arrival.name, lost_arrival.name);
    let names: BTreeSet<String> =
        world.arrivals().into_iter().map(|arrival| arrival.name).collect();
    assert!(names.contains(&waiting.name));
    if again == lost {
        assert!(!names.contains(&lost_arrival.name));
        // Orders for the one do nothing to the other.
        world.engine().withdraw(&lost_arrival.name).expect("withdraw");
        world.start(&key(2), &lost_arrival, &[("n2", 1)]);
        // Slurm has forgotten it, or says that it was cancelled.
        let outcome = world.await_exit(&key(2)).outcome;
        let never_ran = matches!(outcome, Outcome::NotStarted { .. } | Outcome::Cancelled { .. });
        assert!(never_ran, "{outcome:?}");
        assert_eq!(world.await_waiting(&again).name, again_arrival.name);
    }
    let seen = world.see(&key(1)).expect("it is known").state;
    let AttemptState::Running { started_at, .. } = seen else { panic!("{seen:?}") };
    assert_eq!(started_at.unix_ms, started * 1000);
    world.start(&key(3), &waiting, &[("n3", 1)]);
    assert_eq!(world.await_exit(&key(3)).outcome, Outcome::Exit { code: 0 });
    world.engine().stop(&key(1)).expect("stop");
    world.await_exit(&key(1));
}

#[test]
fn work_outlives_the_slurmd_of_its_host() {
    if skipped() {
        return;
    }
    let mut world = World::on(Lab::one_node());
    let host = world.lab.hosts[0].clone();
    let job = world.sbatch("alice", &["--gpus=1"], "sleep 4; exit 5");
    let arrival = world.await_waiting(&job);
    world.start(&key(1), &arrival, &[(&host, 1)]);
    let started = world.await_running(&key(1));
    kill_daemon(&format!("slurmd.{host}.pid"), "slurmd-wlm");
    assert_eq!(world.await_running(&key(1)), started);
    lab::up();
    let exited = world.await_exit(&key(1));
    assert_eq!(exited.outcome, Outcome::Exit { code: 5 });
    let row = world.until("its row", |world| world.accounts(&job).first().cloned());
    assert_eq!((row.0, row.1), (started, exited.ended_at.unix_ms / 1000));
}

#[test]
fn accounts_that_do_not_answer_stop_nothing() {
    if skipped() {
        return;
    }
    // All of it, so that nobody else needs the accounts.
    let lab = Lab::all_nodes();
    let mut options = SlurmOptions::new(lab.partitions.clone());
    options.accounting_patience = Duration::from_secs(2);
    let mut world = World::with(lab, options);
    let job = world.sbatch("alice", &["--gpus=1", "--comment=resumable"], SAVES);
    let arrival = world.await_waiting(&job);
    kill_daemon("slurmdbd.pid", "slurmdbd");
    world.start(&key(1), &arrival, &[("n1", 1)]);
    world.await_running(&key(1));
    world.engine().signal(&key(1), Tell::Checkpoint).expect("signal");
    let exited = world.await_exit(&key(1));
    assert_eq!(exited.outcome, Outcome::Exit { code: 3 });
    let back = world.await_waiting(&job);
    // A second run, put back by its user while nobody keeps accounts.
    world.start(&key(2), &back, &[("n1", 1)]);
    let started = world.await_running(&key(2));
    world.see(&key(2));
    world.lab.ok("alice", "scontrol", &["requeue", &job]);
    let exited = world.await_exit(&key(2));
    assert!(matches!(exited.outcome, Outcome::Lost { .. }), "{exited:?}");
    assert_eq!(exited.started_at.map(|at| at.unix_ms), Some(started * 1000));
    world.await_waiting(&job);
    lab::up();
    // What was not written down then is written down now, with the same seconds.
    let rows =
        world.until("both rows", |world| Some(world.accounts(&job)).filter(|rows| rows.len() == 2));
    assert_eq!((rows[1].0, rows[1].1), (started, exited.ended_at.unix_ms / 1000));
}
