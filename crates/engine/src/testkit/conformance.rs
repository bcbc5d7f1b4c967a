//! What any engine owes to whoever drives it.
//!
//! Each check is a function over a [`Subject`]: an engine, and the few things about it that a test must know
//! which an engine does not tell. [`conformance_tests!`](crate::conformance_tests) makes a test of each.

use crate::engine::{Engine, Signal};
use crate::error::ErrorKind;
use crate::key::AttemptKey;
use crate::observation::{AttemptState, Exited, Observation, Outcome};
use crate::order::StartOrder;
use std::time::{Duration, Instant};

/// How long anything may take before a check fails, if the subject says nothing else. Nothing takes long, but test
/// machines are busy.
const PATIENCE: Duration = Duration::from_secs(30);

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// What work is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// End at once, with this exit code.
    Exit(i32),
    /// End at once, by this signal.
    KilledBy(i32),
    /// End with this exit code when [`Subject::release`] lets it.
    WhenReleased(i32),
    /// Run on, knowing no signal.
    Endless,
    /// Run on, with children and grandchildren in sessions and groups of their own.
    Family,
    /// Run on until the checkpoint signal, and end with this exit code.
    UntilCheckpoint(i32),
    /// Run on until the warning, and end with this exit code.
    UntilWarning(i32),
    /// Write so many bytes, `0123456789` over and over, and end.
    Print(u64),
    /// A program that is not there.
    MissingProgram,
    /// A program that is, in a folder that is not.
    MissingWorkdir,
}

/// An engine under test.
pub trait Subject {
    /// What is tested.
    type Engine: Engine;

    /// The engine.
    fn engine(&mut self) -> &mut Self::Engine;

    /// The daemon is killed. The engine is not asked for before [`up`](Subject::up).
    fn down(&mut self);

    /// Another one comes, with the same records.
    fn up(&mut self);

    /// An order to start this work as that attempt: on one GPU of the first host, with log files of 100
    /// bytes of which 3 are kept.
    fn order(&mut self, key: &AttemptKey, work: &Work) -> StartOrder;

    /// Waits until running work is prepared: its children are there, its signals are caught.
    fn await_prepared(&mut self, key: &AttemptKey);

    /// Lets [`Work::WhenReleased`] end; it may be called while the daemon is down.
    fn release(&mut self, key: &AttemptKey);

    /// Returns when something may have changed.
    fn pause(&mut self);

    /// How many processes this attempt has now.
    fn processes(&mut self, key: &AttemptKey) -> usize;

    /// How often the command of this attempt was executed.
    fn executions(&mut self, key: &AttemptKey) -> usize;

    /// Claims an attempt and goes no further, as if the daemon were killed there; then another comes.
    fn claim_only(&mut self, order: &StartOrder);

    /// Kills what watches over an attempt.
    fn kill_supervisor(&mut self, key: &AttemptKey);

    /// How long anything may take before a check fails.
    fn patience(&self) -> Duration {
        PATIENCE
    }

    /// The signal by which work that knows none is seen to end when it is stopped.
    fn stop_signal(&self) -> i32 {
        SIGKILL
    }
}

/// Makes a test of each check. The argument gives a new subject.
#[macro_export]
macro_rules! conformance_tests {
    ($subject:expr) => {
        $crate::conformance_tests!($subject;
            an_attempt_starts_once,
            exit_codes_are_seen,
            signals_that_end_work_are_seen,
            stop_ends_all_processes,
            orders_for_nobody_do_nothing,
            the_checkpoint_signal_arrives,
            an_early_checkpoint_signal_is_not_lost,
            the_warning_arrives_where_it_is_expected,
            the_warning_harms_nobody,
            a_restart_finds_running_work,
            an_end_without_witness_is_known,
            a_claim_without_a_start_fails,
            a_dead_supervisor_leaves_nothing,
            what_is_forgotten_stays_claimed,
            logs_are_rotated_and_read_on,
            a_missing_program_fails_to_start,
            a_missing_workdir_fails_to_start,
            bad_orders_claim_nothing,
            hosts_can_be_cordoned,
            many_attempts_do_not_mix,
        );
    };
    ($subject:expr; $($check:ident,)*) => {
        $(
            #[test]
            fn $check() {
                $crate::testkit::conformance::$check(&mut $subject);
            }
        )*
    };
}

/// The attempt of most checks.
fn key() -> AttemptKey {
    AttemptKey::new("work", 1).expect("a good key")
}

fn observation(subject: &mut impl Subject, key: &AttemptKey) -> Option<Observation> {
    let seen = subject.engine().observe().expect("observe");
    seen.into_iter().find(|seen| seen.key == *key)
}

/// Waits until an attempt is seen that far.
///
/// # Panics
///
/// If that takes too long.
pub fn await_state<T>(
    subject: &mut impl Subject,
    key: &AttemptKey,
    what: &str,
    found: impl Fn(&AttemptState) -> Option<T>,
) -> T {
    let until = Instant::now() + subject.patience();
    loop {
        let seen = observation(subject, key);
        if let Some(result) = seen.as_ref().and_then(|seen| found(&seen.state)) {
            return result;
        }
        assert!(Instant::now() < until, "{key} is not {what}: {seen:?}");
        subject.pause();
    }
}

/// Waits until an attempt has ended.
///
/// # Panics
///
/// If that takes too long, or it still has processes.
pub fn await_exit(subject: &mut impl Subject, key: &AttemptKey) -> Exited {
    let exited = await_state(subject, key, "ended", |state| state.exited().cloned());
    assert_eq!(subject.processes(key), 0, "{key} has ended: {exited:?}");
    if let Some(started) = exited.started_at {
        assert!(started.unix_ms <= exited.ended_at.unix_ms, "{exited:?}");
        assert!(started.boot_ms <= exited.ended_at.boot_ms, "{exited:?}");
    }
    exited
}

/// Waits until an attempt runs and is prepared.
///
/// # Panics
///
/// If that takes too long.
pub fn await_running(subject: &mut impl Subject, key: &AttemptKey) {
    await_state(subject, key, "running", |state| {
        assert!(state.exited().is_none(), "{key} has ended: {state:?}");
        matches!(state, AttemptState::Running { .. }).then_some(())
    });
    subject.await_prepared(key);
}

fn start(subject: &mut impl Subject, work: &Work) -> AttemptKey {
    let order = subject.order(&key(), work);
    subject.engine().start(&order).expect("start");
    key()
}

fn run(subject: &mut impl Subject, work: &Work) -> AttemptKey {
    let key = start(subject, work);
    await_running(subject, &key);
    key
}

fn end(subject: &mut impl Subject, key: &AttemptKey) -> Exited {
    subject.engine().stop(key).expect("stop");
    await_exit(subject, key)
}

/// Starting the same key again is no second start: not while it runs, not when it has ended, not after a
/// restart, and not with another command.
pub fn an_attempt_starts_once(subject: &mut impl Subject) {
    let key = run(subject, &Work::WhenReleased(3));
    let before = observation(subject, &key);
    let again = |subject: &mut _, work| drop(start(subject, work));
    again(subject, &Work::WhenReleased(3));
    again(subject, &Work::Exit(4));
    subject.down();
    subject.up();
    again(subject, &Work::Exit(4));
    assert_eq!(observation(subject, &key), before);
    subject.release(&key);
    let exited = await_exit(subject, &key);
    assert_eq!(exited.outcome, Outcome::Exit { code: 3 });
    again(subject, &Work::Exit(4));
    subject.down();
    subject.up();
    again(subject, &Work::Exit(4));
    assert_eq!(await_exit(subject, &key), exited);
    assert_eq!(subject.executions(&key), 1);
}

/// An exit code is seen as it is, and only once the command was seen to be executed.
pub fn exit_codes_are_seen(subject: &mut impl Subject) {
    for (attempt, code) in [(1, 0), (2, 1), (3, 255)] {
        let key = AttemptKey::new("work", attempt).expect("a good key");
        let order = subject.order(&key, &Work::Exit(code));
        subject.engine().start(&order).expect("start");
        let exited = await_exit(subject, &key);
        assert_eq!(exited.outcome, Outcome::Exit { code });
        assert!(exited.started_at.is_some());
        assert!(!exited.was_told_to_leave);
    }
}

/// The signal that ended a command is seen as it is.
pub fn signals_that_end_work_are_seen(subject: &mut impl Subject) {
    let key = start(subject, &Work::KilledBy(SIGTERM));
    let exited = await_exit(subject, &key);
    assert_eq!(exited.outcome, Outcome::Signal { number: SIGTERM });
    assert!(!exited.was_told_to_leave);
}

/// Stopping an attempt ends all that it ever started, wherever that went.
pub fn stop_ends_all_processes(subject: &mut impl Subject) {
    let key = run(subject, &Work::Family);
    assert!(subject.processes(&key) > 0);
    let exited = end(subject, &key);
    assert_eq!(exited.outcome, Outcome::Signal { number: subject.stop_signal() });
    assert!(exited.was_told_to_leave);
    subject.engine().stop(&key).expect("stop again");
    assert_eq!(await_exit(subject, &key), exited);
}

/// Orders for attempts that are not known, or have ended, do nothing and are no errors.
pub fn orders_for_nobody_do_nothing(subject: &mut impl Subject) {
    let nobody = key();
    let order_all = |engine: &mut dyn Engine| {
        engine.stop(&nobody).expect("stop");
        engine.signal(&nobody, Signal::Warn).expect("warn");
        engine.signal(&nobody, Signal::Checkpoint).expect("checkpoint");
    };
    order_all(subject.engine());
    subject.engine().forget(&nobody).expect("forget");
    assert_eq!(subject.engine().observe().expect("observe"), []);
    let log = subject.engine().read_log(&nobody, 0, 10).expect_err("no log");
    assert_eq!(log.kind(), ErrorKind::Unknown);
    let key = start(subject, &Work::Exit(2));
    let exited = await_exit(subject, &key);
    order_all(subject.engine());
    assert_eq!(await_exit(subject, &key), exited);
}

/// The checkpoint signal arrives at work that waits for it, and it is seen that it did. Ordered again it
/// does nothing more.
pub fn the_checkpoint_signal_arrives(subject: &mut impl Subject) {
    let key = run(subject, &Work::UntilCheckpoint(7));
    for _ in 0..3 {
        subject.engine().signal(&key, Signal::Checkpoint).expect("checkpoint");
    }
    let exited = await_exit(subject, &key);
    assert_eq!(exited.outcome, Outcome::Exit { code: 7 });
    assert!(exited.was_told_to_leave);
}

/// A checkpoint signal that is ordered before the command is executed arrives when it is.
pub fn an_early_checkpoint_signal_is_not_lost(subject: &mut impl Subject) {
    let key = start(subject, &Work::Endless);
    subject.engine().signal(&key, Signal::Checkpoint).expect("checkpoint");
    let exited = await_exit(subject, &key);
    assert_eq!(exited.outcome, Outcome::Signal { number: SIGTERM });
    assert!(exited.was_told_to_leave);
}

/// The warning arrives at work that waits for it.
pub fn the_warning_arrives_where_it_is_expected(subject: &mut impl Subject) {
    let key = run(subject, &Work::UntilWarning(8));
    subject.engine().signal(&key, Signal::Warn).expect("warn");
    let exited = await_exit(subject, &key);
    assert_eq!(exited.outcome, Outcome::Exit { code: 8 });
    assert!(!exited.was_told_to_leave, "to be warned is not to be told to leave");
}

/// The warning does nothing to work that does not know it.
pub fn the_warning_harms_nobody(subject: &mut impl Subject) {
    let key = run(subject, &Work::Endless);
    subject.engine().signal(&key, Signal::Warn).expect("warn");
    await_state(subject, &key, "warned", |state| match state {
        AttemptState::Running { warned, told_to_leave, .. } => {
            assert!(!told_to_leave);
            warned.then_some(())
        }
        AttemptState::Starting | AttemptState::Exited(_) => panic!("it was harmed: {state:?}"),
    });
    assert!(subject.processes(&key) > 0);
    assert_eq!(end(subject, &key).outcome, Outcome::Signal { number: subject.stop_signal() });
}

/// A daemon that comes back sees what runs as the one before did, and can tell it to leave.
pub fn a_restart_finds_running_work(subject: &mut impl Subject) {
    let key = run(subject, &Work::UntilCheckpoint(6));
    let before = observation(subject, &key);
    subject.down();
    subject.up();
    assert_eq!(observation(subject, &key), before);
    subject.engine().signal(&key, Signal::Checkpoint).expect("checkpoint");
    assert_eq!(await_exit(subject, &key).outcome, Outcome::Exit { code: 6 });
    assert_eq!(subject.executions(&key), 1);
}

/// How work ended while there was no daemon is known to the next one.
pub fn an_end_without_witness_is_known(subject: &mut impl Subject) {
    let key = run(subject, &Work::WhenReleased(5));
    subject.down();
    subject.release(&key);
    subject.up();
    let exited = await_exit(subject, &key);
    assert_eq!(exited.outcome, Outcome::Exit { code: 5 });
    assert!(!exited.was_told_to_leave);
}

/// An attempt that was claimed by a daemon which was killed before it started it never starts; that it was no
/// fault of its own is told.
pub fn a_claim_without_a_start_fails(subject: &mut impl Subject) {
    let order = subject.order(&key(), &Work::Exit(0));
    subject.claim_only(&order);
    for _ in 0..2 {
        let exited = await_exit(subject, &key());
        assert!(matches!(exited.outcome, Outcome::NotStarted { .. }), "{exited:?}");
        assert_eq!(exited.started_at, None);
        subject.engine().start(&order).expect("start");
    }
    assert_eq!(subject.executions(&key()), 0);
}

/// Work whose supervisor is killed ends with all that it started, and is lost.
pub fn a_dead_supervisor_leaves_nothing(subject: &mut impl Subject) {
    let key = run(subject, &Work::Family);
    subject.kill_supervisor(&key);
    let exited = await_exit(subject, &key);
    assert!(matches!(exited.outcome, Outcome::Lost { .. }), "{exited:?}");
    assert!(exited.started_at.is_some());
    assert!(!exited.was_told_to_leave);
    subject.down();
    subject.up();
    assert_eq!(await_exit(subject, &key), exited);
}

/// An attempt that was forgotten is not seen any more, keeps its log, and is not started again. One that
/// runs cannot be forgotten.
pub fn what_is_forgotten_stays_claimed(subject: &mut impl Subject) {
    let endless = run(subject, &Work::Endless);
    let refused = subject.engine().forget(&endless).expect_err("it runs");
    assert_eq!(refused.kind(), ErrorKind::NotEnded);
    end(subject, &endless);

    let key = AttemptKey::new("work", 2).expect("a good key");
    let order = subject.order(&key, &Work::Print(20));
    subject.engine().start(&order).expect("start");
    await_exit(subject, &key);
    for _ in 0..2 {
        subject.engine().forget(&key).expect("forget");
        assert_eq!(observation(subject, &key), None);
        subject.engine().start(&order).expect("start");
        assert_eq!(observation(subject, &key), None);
        assert_eq!(subject.executions(&key), 1);
        let log = subject.engine().read_log(&key, 0, 100).expect("its log");
        assert_eq!(log.bytes, b"01234567890123456789");
        subject.down();
        subject.up();
    }
    assert!(observation(subject, &endless).is_some());
}

/// A log takes as much room as was ordered, and can be read on over any number of files.
pub fn logs_are_rotated_and_read_on(subject: &mut impl Subject) {
    // 11 files of 100 bytes, the last one half full, of which 3 are kept.
    let (written, kept_from) = (1050, 800);
    let key = start(subject, &Work::Print(written));
    await_exit(subject, &key);
    let all: Vec<u8> = (kept_from..written).map(|at| b'0' + (at % 10) as u8).collect();
    for bytes_max in [usize::MAX >> 1, 100, 7, 1] {
        let (mut bytes, mut offset) = (Vec::new(), 0);
        loop {
            let chunk = subject.engine().read_log(&key, offset, bytes_max).expect("its log");
            assert_eq!(chunk.offset, if offset == 0 { kept_from } else { offset });
            assert_eq!(chunk.next_offset, chunk.offset + chunk.bytes.len() as u64);
            if chunk.bytes.is_empty() {
                break;
            }
            assert!(chunk.bytes.len() <= bytes_max);
            bytes.extend(chunk.bytes);
            offset = chunk.next_offset;
        }
        assert_eq!(offset, written);
        assert_eq!(bytes, all, "in parts of {bytes_max}");
    }
    let beyond = subject.engine().read_log(&key, 5000, 10).expect("its log");
    assert_eq!((beyond.bytes.len(), beyond.offset, beyond.next_offset), (0, written, written));
}

/// A program that is not there is a failed start that says so.
pub fn a_missing_program_fails_to_start(subject: &mut impl Subject) {
    fails_to_start(subject, &Work::MissingProgram, "not found");
}

/// A folder that is not there is a failed start that says so.
pub fn a_missing_workdir_fails_to_start(subject: &mut impl Subject) {
    fails_to_start(subject, &Work::MissingWorkdir, "/nonexistent");
}

fn fails_to_start(subject: &mut impl Subject, work: &Work, why: &str) {
    let key = start(subject, work);
    let exited = await_exit(subject, &key);
    let Outcome::StartFailed { reason } = &exited.outcome else { panic!("{exited:?}") };
    assert!(reason.contains(why), "{reason}");
    assert_eq!(exited.started_at, None);
    assert_eq!(subject.executions(&key), 0);
}

/// Orders that cannot be carried out are refused at once and leave nothing behind.
pub fn bad_orders_claim_nothing(subject: &mut impl Subject) {
    for path in ["../work", "/work", "a/../b", ".", "work\0"] {
        assert!(AttemptKey::new(path, 1).is_err(), "{path:?}");
    }
    let good = subject.order(&key(), &Work::Exit(9));
    let changes: [fn(&mut StartOrder); 4] = [
        |order| order.command.clear(),
        |order| order.placement[0].host = "elsewhere".to_owned(),
        |order| order.placement[0].gpus = vec![1_000_000],
        |order| order.workdir = Some("relative".into()),
    ];
    for change in changes {
        let mut order = good.clone();
        change(&mut order);
        let refused = subject.engine().start(&order).expect_err("a bad order");
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        assert_eq!(observation(subject, &key()), None);
    }
    subject.engine().start(&good).expect("start");
    assert_eq!(await_exit(subject, &key()).outcome, Outcome::Exit { code: 9 });
}

/// A cordon is seen until it is taken away, also after a restart; setting it twice is as once.
pub fn hosts_can_be_cordoned(subject: &mut impl Subject) {
    let hosts = subject.engine().hosts().expect("hosts");
    let host = hosts[0].clone();
    assert!(host.healthy && !host.cordoned && host.gpus > 0, "{host:?}");
    for cordoned in [true, false] {
        for _ in 0..2 {
            let engine = subject.engine();
            let ordered = if cordoned {
                engine.cordon(&host.name, "a test")
            } else {
                engine.uncordon(&host.name)
            };
            ordered.expect("an order for a host");
            assert_eq!(subject.engine().hosts().expect("hosts")[0].cordoned, cordoned);
            subject.down();
            subject.up();
        }
    }
    let unknown = subject.engine().cordon("elsewhere", "a test").expect_err("no such host");
    assert_eq!(unknown.kind(), ErrorKind::Unknown);
}

/// Attempts with similar names are not mixed up.
pub fn many_attempts_do_not_mix(subject: &mut impl Subject) {
    let names = [("a", 1), ("a", 10), ("a", 100), ("a.1", 1), ("a.1", 0), ("b_-", 1)];
    let keys = names.map(|(workload, attempt)| AttemptKey::new(workload, attempt).expect("good"));
    for (code, key) in (0..).zip(&keys) {
        let order = subject.order(key, &Work::Exit(code));
        subject.engine().start(&order).expect("start");
    }
    for (code, key) in (0..).zip(&keys) {
        assert_eq!(await_exit(subject, key).outcome, Outcome::Exit { code });
        assert_eq!(subject.executions(key), 1);
    }
    assert_eq!(subject.engine().observe().expect("observe").len(), keys.len());
}
