//! `kill -9`: of the daemon and of shims, after every step and at any moment.

use crate::subject::Local;
use bursar_engine::testkit::conformance::{Subject, Work, await_exit, await_running};
use bursar_engine::testkit::steps;
use bursar_engine::{AttemptKey, Engine, Exited, Outcome};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustix::process::Signal;
use std::time::Duration;

fn key(attempt: u32) -> AttemptKey {
    AttemptKey::new("killed", attempt).expect("a good key")
}

/// Brings an attempt to its end and checks what must be true however it came there.
fn bring_to_end(local: &mut Local, key: &AttemptKey) -> Exited {
    local.engine().stop(key).expect("stop");
    let exited = await_exit(local, key);
    let executions = local.executions(key);
    assert!(executions <= 1, "{key} was executed {executions} times: {exited:?}");
    if let Outcome::StartFailed { .. } | Outcome::NotStarted { .. } = exited.outcome {
        assert_eq!(executions, 0, "{exited:?}");
        assert_eq!(exited.started_at, None, "{exited:?}");
    }
    // What may have run counts as having run.
    if let Outcome::Lost { .. } = exited.outcome {
        assert!(exited.started_at.is_some(), "{exited:?}");
    }
    exited
}

#[test]
fn after_every_step_an_attempt_ran_at_most_once() {
    for step in steps() {
        for work in [Work::Exit(3), Work::Family] {
            let mut local = Local::new();
            let order = local.order(&key(1), &work);
            let mut daemon = local.daemon(Some(step), std::slice::from_ref(&order));
            daemon.await_starts(1);
            daemon.await_end();
            local.up();
            // The new daemon wants it, too.
            local.engine().start(&order).expect("start");
            if work != Work::Family {
                await_exit(&mut local, &key(1));
            }
            let exited = bring_to_end(&mut local, &key(1));
            let executed = local.executions(&key(1)) == 1;
            match step {
                "claimed" | "shim-begun" | "shim-recorded" | "launcher-spawned" => {
                    assert!(!executed, "{step}: {exited:?}");
                    assert!(matches!(exited.outcome, Outcome::NotStarted { .. }), "{exited:?}");
                }
                // Whether the launcher was told to go, nobody can know.
                "launcher-recorded" => assert!(!executed, "{step}: {exited:?}"),
                // Before the claim, after the start, or when all is written: nothing is lost.
                "built" | "spawned" | "end-recorded" if work != Work::Family => {
                    assert_eq!(exited.outcome, Outcome::Exit { code: 3 }, "{step}");
                }
                "ended" | "emptied" if work != Work::Family => {
                    assert!(executed, "{step}: {exited:?}");
                    assert!(matches!(exited.outcome, Outcome::Lost { .. }), "{step}: {exited:?}");
                }
                _ => {}
            }
            local.down();
            local.up();
            assert_eq!(await_exit(&mut local, &key(1)), exited, "{step}");
        }
    }
}

/// How many seeds; more by `BURSAR_ENGINE_SEEDS`.
fn seeds() -> u64 {
    std::env::var("BURSAR_ENGINE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(10)
}

#[test]
fn at_any_moment_attempts_run_at_most_once() {
    for seed in 0..seeds() {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut local = Local::new();
        let orders: Vec<_> = (1..=8)
            .map(|attempt| {
                let work = match random.random_range(0..4) {
                    0 => Work::Exit(3),
                    1 => Work::Family,
                    2 => Work::Endless,
                    _ => Work::UntilCheckpoint(4),
                };
                local.order(&key(attempt), &work)
            })
            .collect();
        // Three daemons after each other, each killed at some moment, and some shims with it.
        for _ in 0..3 {
            let mut daemon = local.daemon(None, &orders);
            daemon.await_starts(random.random_range(0..=orders.len()));
            std::thread::sleep(Duration::from_micros(random.random_range(0..20_000)));
            for order in &orders {
                if random.random_range(0..6) == 0
                    && let Some(shim) = local.shim(&order.key)
                    && local.is_ours(shim)
                {
                    let _ = rustix::process::kill_process(shim, Signal::KILL);
                }
            }
            daemon.kill();
        }
        local.up();
        for order in &orders {
            local.engine().start(order).expect("start");
        }
        for order in &orders {
            bring_to_end(&mut local, &order.key);
        }
    }
}

#[test]
fn a_shim_that_hangs_is_killed_by_the_second_stop() {
    let mut local = Local::with(|options| options.shim_stuck_after = Duration::ZERO);
    let order = local.order(&key(1), &Work::Family);
    local.engine().start(&order).expect("start");
    await_running(&mut local, &key(1));
    let shim = local.shim(&key(1)).expect("its shim");
    rustix::process::kill_process(shim, Signal::STOP).expect("to stop it");
    local.engine().stop(&key(1)).expect("stop");
    let exited = await_exit(&mut local, &key(1));
    assert!(matches!(exited.outcome, Outcome::Lost { .. }), "{exited:?}");
    assert!(exited.was_told_to_leave);
}

#[test]
fn a_daemon_that_is_killed_leaves_work_and_its_log_alone() {
    let mut local = Local::new();
    let script = "echo before; echo > \"$2\"; read x < \"$3\"; echo after; exit 2";
    let order = local.script(&key(1), script, "");
    let mut daemon = local.daemon(None, std::slice::from_ref(&order));
    daemon.await_starts(1);
    local.await_prepared(&key(1));
    daemon.kill();
    local.release(&key(1));
    local.up();
    assert_eq!(await_exit(&mut local, &key(1)).outcome, Outcome::Exit { code: 2 });
    let log = local.engine().read_log(&key(1), 0, 100).expect("its log");
    assert_eq!(log.bytes, b"before\nafter\n");
}

/// Work with a helper that left its session and has nothing in its environment; the file has the helper's number.
const HELPER: &str = r#"setsid env -i PATH="$PATH" sh -c 'echo $$ > "$0.new"; mv "$0.new" "$0"; exec sleep 100000' "$4" < /dev/null > /dev/null 2>&1 &
    while ! [ -e "$4" ]; do sleep 0.01; done; echo > "$2"; sleep 100000"#;

fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn what_left_its_session_does_not_outlive_its_supervisors() {
    for (guard_too, daemon_too) in [(false, false), (false, true), (true, false)] {
        let mut local = Local::with(|options| options.cgroup = bursar_engine::CgroupChoice::Off);
        let file = local.path("helper").to_str().expect("UTF-8").to_owned();
        let order = local.script(&key(1), HELPER, &file);
        local.engine().start(&order).expect("start");
        local.await_prepared(&key(1));
        let helper = std::fs::read_to_string(&file).expect("its number");
        let helper: i32 = helper.trim().parse().expect("a number");
        assert!(is_alive(helper));
        if daemon_too {
            local.down();
        }
        // The guard first: else it ends by itself.
        let guard = local.recorded(&key(1), "guard").expect("its guard");
        if guard_too {
            rustix::process::kill_process(guard, Signal::KILL).expect("to kill it");
        }
        local.kill_supervisor(&key(1));
        if daemon_too {
            local.up();
        }
        let exited = await_exit(&mut local, &key(1));
        let Outcome::Lost { reason } = &exited.outcome else { panic!("{exited:?}") };
        assert!(!is_alive(helper), "guard killed: {guard_too}, daemon down: {daemon_too}");
        assert_eq!(reason.contains("may still run"), guard_too, "{reason}");
    }
}
