//! What work finds itself in, and what becomes of it.

use crate::subject::{Local, SHIM, options};
use bursar_engine::testkit::conformance::{Subject, Work, await_exit, await_running, await_state};
use bursar_engine::{
    AttemptKey, AttemptState, Engine, ErrorKind, LocalEngine, Outcome, Signal, SignalScope,
    StartOrder,
};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

fn key() -> AttemptKey {
    AttemptKey::new("work", 1).expect("a good key")
}

/// Runs a script to its end; how that was, and what it wrote.
fn run(local: &mut Local, order: &mut StartOrder) -> (Outcome, String) {
    order.log_bytes_max = 1 << 20;
    local.engine().start(order).expect("start");
    let exited = await_exit(local, &order.key);
    let log = local.engine().read_log(&order.key, 0, 1 << 20).expect("its log");
    (exited.outcome, String::from_utf8(log.bytes).expect("UTF-8"))
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("not root: this test says nothing");
    }
    root
}

#[test]
fn virtual_gpus_are_spread_over_virtual_hosts() {
    let mut local = Local::with(|options| options.virtual_hosts = 2);
    let hosts = |local: &mut Local| {
        let facts = local.engine().hosts().expect("hosts").into_iter();
        facts.map(|host| (host.name, host.gpus, host.cordoned)).collect::<Vec<_>>()
    };
    let told = |first, second| {
        vec![("virtual-1".to_owned(), 2, first), ("virtual-2".to_owned(), 2, second)]
    };
    assert_eq!(hosts(&mut local), told(false, false));
    local.engine().cordon("virtual-2", "a test").expect("cordoned");
    assert_eq!(hosts(&mut local), told(false, true));
    local.down();
    local.up();
    assert_eq!(hosts(&mut local), told(false, true));
    local.engine().uncordon("virtual-2").expect("uncordoned");
    assert_eq!(hosts(&mut local), told(false, false));
    assert_eq!(
        local.engine().cordon("here", "a test").expect_err("it is none").kind(),
        ErrorKind::Unknown
    );

    let mut order = local.script(&key(), "echo gpus $CUDA_VISIBLE_DEVICES", "");
    order.placement[0].host = "virtual-2".to_owned();
    order.placement[0].gpus = vec![0, 2];
    let refused = local.engine().start(&order).expect_err("it has two");
    assert!(refused.to_string().contains("host virtual-2 has no GPU 2, only 2"), "{refused}");
    order.placement[0].gpus = vec![1];
    assert_eq!(run(&mut local, &mut order).1, "gpus 1\n");

    let mut options = options();
    options.virtual_hosts = 3;
    let dir = tempfile::tempdir().expect("a folder");
    let refused = LocalEngine::open(dir.path(), options).expect_err("4 over 3");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("give a multiple of 3"), "{refused}");
}

#[test]
fn work_is_told_who_it_is_and_nothing_of_the_daemon() {
    let mut local = Local::with(|options| options.socket = Some("/run/bursar.sock".into()));
    let mut order = local.script(&key(), "exec env", "");
    order.env = [("MINE".to_owned(), "a b\nc".to_owned())].into();
    order.placement[0].gpus = vec![2, 3];
    order.resume = true;
    order.protected_until_unix_ms = Some(1_700_000_000_123);
    let (outcome, said) = run(&mut local, &mut order);
    assert_eq!(outcome, Outcome::Exit { code: 0 });
    let dir = local.path("checkpoints/work").display().to_string();
    for line in [
        "BURSAR_WORKLOAD=work",
        "BURSAR_ATTEMPT=1",
        "BURSAR_RESUME=1",
        &format!("BURSAR_CHECKPOINT_DIR={dir}"),
        "BURSAR_PROTECTED_UNTIL=1700000000",
        "BURSAR_SOCKET=/run/bursar.sock",
        "CUDA_VISIBLE_DEVICES=2,3",
        "MINE=a b",
    ] {
        assert!(said.lines().any(|said| said == line), "{line} is missing in\n{said}");
    }
    assert!(said.lines().any(|line| line.starts_with("HOME=")), "{said}");
    assert!(!said.contains("CARGO"), "{said}");
    assert!(!said.contains("STAGE"), "{said}");
    assert!(fs::metadata(dir).expect("its checkpoint folder").is_dir());
    let record = fs::metadata(local.record(&key(), "order.json")).expect("the order");
    assert_eq!(record.permissions().mode() & 0o777, 0o600, "it holds the environment");
}

#[test]
fn work_begins_with_ordinary_signals_and_files() {
    let mut local = Local::new();
    let script =
        "grep -E '^Sig(Blk|Ign):' /proc/self/status; cut -d' ' -f5,6 /proc/$$/stat; echo $$; pwd
                  cd /proc/$$/fd; for fd in *; do printf '%s ' $fd; readlink $fd || echo gone; done";
    let mut order = local.script(&key(), script, "");
    let (outcome, said) = run(&mut local, &mut order);
    assert_eq!(outcome, Outcome::Exit { code: 0 }, "{said}");
    let lines: Vec<&str> = said.lines().collect();
    for (line, name) in lines.iter().zip(["SigBlk:", "SigIgn:"]) {
        let mask = line.strip_prefix(name).expect("its mask").trim();
        // What has no name may have been ignored by whoever runs these tests, and still is.
        let named = u64::from_str_radix(mask, 16).expect("a mask") & 0x7fff_ffff;
        assert_eq!(named, 0, "{line}");
    }
    assert_eq!(lines[2], format!("{0} {0}", lines[3]), "it leads its group and session");
    assert_eq!(lines[4], "/");
    assert!(lines.contains(&"0 /dev/null"), "{said}");
    // What it has beside its standard files was left open by whoever runs these tests.
    for line in &lines[5..] {
        let (fd, file) = line.split_once(' ').expect("a file");
        let inherited = fs::read_link(format!("/proc/self/fd/{fd}"));
        let inherited = inherited.is_ok_and(|link| link.to_str() == Some(file));
        // The folder that the shell lists is gone when it is looked at.
        assert!(inherited || file == "gone" || matches!(fd, "0" | "1" | "2"), "{said}");
    }
}

#[test]
fn work_runs_as_its_user() {
    if !is_root() {
        return;
    }
    let mut local = Local::new();
    // Its user has to get at the folder in which it counts.
    for path in [local.path("."), local.path("runs")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("permissions");
    }
    // Opening its own output anew, as many programs do.
    let script = "id -un; id -Gn; echo $HOME $USER > /dev/stdout; touch $BURSAR_CHECKPOINT_DIR/saved; echo heard > /dev/stderr; true";
    let mut order = local.script(&key(), script, "");
    order.user = Some("daemon".to_owned());
    let (outcome, said) = run(&mut local, &mut order);
    assert_eq!(outcome, Outcome::Exit { code: 0 }, "{said}");
    assert!(said.starts_with("daemon\ndaemon\n"), "{said}");
    assert!(said.contains(" daemon\n") && said.contains("heard"), "{said}");
    let saved = fs::metadata(local.path("checkpoints").join(order.key.workload()).join("saved"))
        .expect("what it saved");
    assert_ne!(saved.uid(), 0);

    let other = AttemptKey::new("work", 2).expect("a good key");
    let mut order = local.script(&other, "", "");
    order.user = Some("nobody-of-that-name".to_owned());
    let (outcome, _) = run(&mut local, &mut order);
    let Outcome::StartFailed { reason } = outcome else { panic!("{outcome:?}") };
    assert_eq!(reason, "there is no user nobody-of-that-name");

    // Root is none of them, unless that is allowed.
    let other = AttemptKey::new("of-root", 3).expect("a good key");
    let mut order = local.script(&other, "", "");
    order.user = Some("root".to_owned());
    let (outcome, _) = run(&mut local, &mut order);
    let Outcome::StartFailed { reason } = outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("may not run as root"), "{reason}");
    local.options().allow_root = true;
    local.down();
    local.up();
    let other = AttemptKey::new("of-root", 4).expect("a good key");
    let mut order = local.script(&other, "", "");
    order.user = Some("root".to_owned());
    assert_eq!(run(&mut local, &mut order).0, Outcome::Exit { code: 0 });
}

#[test]
fn a_program_that_cannot_run_says_why() {
    let mut local = Local::new();
    let script = local.path("script");
    fs::write(&script, "#!/no/such/interpreter\n").expect("a script");
    let folder = local.path("runs").display().to_string();
    let no_interpreter = script.display().to_string();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("permissions");
    for (attempt, program, why) in
        [(1, no_interpreter, "interpreter"), (2, folder, "Permission denied")]
    {
        let key = AttemptKey::new("work", attempt).expect("a good key");
        let mut order = local.script(&key, "", "");
        order.command = vec![program];
        let (outcome, _) = run(&mut local, &mut order);
        let Outcome::StartFailed { reason } = outcome else { panic!("{outcome:?}") };
        assert!(reason.contains(why), "{reason}");
    }
}

/// A shell that knows no signals runs a program that saves when it gets the checkpoint signal, which takes
/// until it is released.
fn saving_below_a_shell(local: &mut Local) -> StartOrder {
    let script = r#"sh -c 'trap "read x < $1; echo saved; exit" TERM; echo > $0
                          while :; do sleep 0.02; done' "$2" "$3"; exit 9"#;
    local.script(&key(), script, "")
}

fn log(local: &mut Local) -> String {
    let log = local.engine().read_log(&key(), 0, 1000).expect("its log");
    String::from_utf8(log.bytes).expect("UTF-8")
}

fn await_told(local: &mut Local) {
    await_state(local, &key(), "told", |state| match state {
        AttemptState::Running { told_to_leave: true, .. } => Some(()),
        AttemptState::Running { .. } | AttemptState::Starting => None,
        AttemptState::Exited(exited) => panic!("{exited:?}"),
    });
}

#[test]
fn what_a_shell_runs_has_its_grace_although_the_shell_ends() {
    let mut local = Local::new();
    let order = saving_below_a_shell(&mut local);
    local.engine().start(&order).expect("start");
    await_running(&mut local, &key());
    local.engine().signal(&key(), Signal::Checkpoint).expect("checkpoint");
    await_told(&mut local);
    // Also seen by a daemon that comes meanwhile.
    local.down();
    local.up();
    await_told(&mut local);
    local.release(&key());
    let exited = await_exit(&mut local, &key());
    assert_eq!(exited.outcome, Outcome::Signal { number: 15 }, "the shell's");
    assert!(log(&mut local).ends_with("saved\n"));
}

#[test]
fn grace_ends_when_it_is_stopped() {
    let mut local = Local::new();
    let order = saving_below_a_shell(&mut local);
    local.engine().start(&order).expect("start");
    await_running(&mut local, &key());
    local.engine().signal(&key(), Signal::Checkpoint).expect("checkpoint");
    await_told(&mut local);
    local.engine().stop(&key()).expect("stop");
    await_exit(&mut local, &key());
    assert!(!log(&mut local).contains("saved"));
}

#[test]
fn the_checkpoint_signal_can_be_for_the_command_alone() {
    let mut local = Local::with(|options| options.signal_scope = SignalScope::Leader);
    // The child would say that it got it; the command does not end before the child could have.
    let script = r#"trap 'echo leader; exit 3' TERM
                    sh -c 'trap "echo child" TERM; echo > "$0"; while :; do sleep 0.02; done' "$2" &
                    while :; do sleep 0.02; done"#;
    let order = local.script(&key(), script, "");
    local.engine().start(&order).expect("start");
    await_running(&mut local, &key());
    local.engine().signal(&key(), Signal::Checkpoint).expect("checkpoint");
    assert_eq!(await_exit(&mut local, &key()).outcome, Outcome::Exit { code: 3 });
    assert_eq!(log(&mut local), "leader\n");
}

#[test]
fn a_signal_that_is_ordered_again_is_not_delivered_again() {
    let mut local =
        Local::with(|options| options.checkpoint_signal = "USR1".parse().expect("a signal"));
    let script = r#"n=0; trap 'n=$((n + 1)); echo > "$2"' USR1; trap 'exit $n' USR2
                    echo > "$2"; while :; do sleep 0.02; done"#;
    let order = local.script(&key(), script, "");
    local.engine().start(&order).expect("start");
    await_running(&mut local, &key());
    for _ in 0..5 {
        local.engine().signal(&key(), Signal::Checkpoint).expect("checkpoint");
    }
    // It got the first; the others come before the warning, which ends it.
    local.await_prepared(&key());
    local.engine().signal(&key(), Signal::Warn).expect("warn");
    assert_eq!(await_exit(&mut local, &key()).outcome, Outcome::Exit { code: 1 });
}

#[test]
fn what_a_command_leaves_behind_ends_with_it() {
    let mut local = Local::new();
    // One in a session of its own, without parents and environment.
    let script = r#"(env -i setsid sh -c 'echo $$ > "$0"; exec sleep 100000' "$3" &)
                    read pid < "$3"; echo $pid; exit 4"#;
    let mut order = local.script(&key(), script, "");
    let (outcome, said) = run(&mut local, &mut order);
    assert_eq!(outcome, Outcome::Exit { code: 4 });
    let pid = said.trim();
    assert!(!fs::exists(format!("/proc/{pid}")).expect("/proc"), "process {pid} was left");
}

#[test]
fn an_endless_writer_waits_for_nobody() {
    let mut local = Local::new();
    let mut order = local.script(&key(), "head -c $4 /dev/zero; exit 5", "30000000");
    order.log_bytes_max = 100_000;
    order.log_files_max = 2;
    local.engine().start(&order).expect("start");
    assert_eq!(await_exit(&mut local, &key()).outcome, Outcome::Exit { code: 5 });
    let log = local.engine().read_log(&key(), 0, 1 << 20).expect("its log");
    assert!(log.bytes.len() <= 200_000);
    let seen = local.engine().observe().expect("observe");
    // A slow disk loses some, and says so.
    let dropped = seen[0].notes.iter().any(|note| note.contains("dropped"));
    assert!(log.next_offset == 30_000_000 || dropped, "{log:?} {seen:?}");
}

#[test]
fn a_folder_has_one_engine_at_a_time() {
    let mut local = Local::new();
    let other = LocalEngine::open(&local.records(), options()).expect_err("it is open");
    assert_eq!(other.kind(), ErrorKind::InUse, "{other}");
    local.down();
    LocalEngine::open(&local.records(), options()).expect("it is not any more");
}

#[test]
fn a_shim_that_does_not_run_starts_nothing() {
    for (shim, why) in [("/no/such/shim", "/no/such/shim"), ("/bin/false", "claimed, not started")]
    {
        let mut local = Local::with(|options| options.shim = vec![shim.to_owned()]);
        let order = local.order(&key(), &Work::Exit(0));
        local.engine().start(&order).expect("start");
        let exited = await_exit(&mut local, &key());
        let (Outcome::StartFailed { reason } | Outcome::NotStarted { reason }) = &exited.outcome
        else {
            panic!("{exited:?}")
        };
        assert!(reason.contains(why), "{reason}");
        // One that does is not tried later.
        local.options().shim = vec![SHIM.to_owned()];
        local.down();
        local.up();
        local.engine().start(&order).expect("start");
        assert_eq!(await_exit(&mut local, &key()), exited);
        assert_eq!(local.executions(&key()), 0);
    }
}

#[test]
fn a_shim_cannot_be_run_by_hand() {
    let mut local = Local::new();
    let order = local.order(&key(), &Work::Exit(0));
    let by_hand = |local: &Local| {
        let folder = local.record(&key(), "");
        let run = std::process::Command::new(SHIM).arg(folder).output().expect("to run it");
        assert!(!run.status.success());
        String::from_utf8(run.stderr).expect("UTF-8")
    };
    local.claim_only(&order);
    let said = by_hand(&local);
    assert!(said.contains("only the local engine"), "{said}");
    await_exit(&mut local, &key());
    let said = by_hand(&local);
    assert!(said.contains("started before"), "{said}");
    assert_eq!(local.executions(&key()), 0);
}

#[test]
fn records_that_make_no_sense_are_no_news() {
    let mut local = Local::new();
    let order = local.order(&key(), &Work::WhenReleased(2));
    local.engine().start(&order).expect("start");
    await_running(&mut local, &key());
    local.down();
    local.release(&key());
    fs::write(local.record(&key(), "exit.json"), "{\"version\":").expect("to spoil it");
    local.up();
    let exited = await_exit_or_lost(&mut local);
    assert!(matches!(exited, Outcome::Lost { .. } | Outcome::Exit { code: 2 }), "{exited:?}");
}

/// The shim may have written the true record over the spoiled one.
fn await_exit_or_lost(local: &mut Local) -> Outcome {
    await_state(local, &key(), "ended", |state| state.exited().map(|exited| exited.outcome.clone()))
}

#[test]
fn a_shim_whose_folder_was_removed_ends_with_its_work() {
    let mut local = Local::new();
    let order = local.order(&key(), &Work::WhenReleased(0));
    local.engine().start(&order).expect("start");
    await_running(&mut local, &key());
    local.down();
    fs::remove_dir_all(local.record(&key(), "")).expect("to remove it");
    local.release(&key());
    // That nothing of it is left is checked when this is dropped.
}

#[test]
fn what_ran_before_the_machine_was_booted_is_lost() {
    let mut local = Local::new();
    let order = local.order(&key(), &Work::Endless);
    local.engine().start(&order).expect("start");
    await_running(&mut local, &key());
    local.kill_supervisor(&key());
    await_no_processes(&mut local);
    local.down();
    let path = local.record(&key(), "state.json");
    let state = fs::read_to_string(&path).expect("its state");
    let mut state: serde_json::Value = serde_json::from_str(&state).expect("its state");
    state["boot_id"] = "another".into();
    // It ran for half an hour, and the machine was off for an hour after that.
    let hour = std::time::Duration::from_secs(3_600);
    let off = std::time::SystemTime::now() - uptime() - hour;
    let off_ms = off.duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_millis() as u64;
    state["started"]["unix_ms"] = (off_ms - 1_800_000).into();
    fs::write(&path, state.to_string()).expect("to change it");
    for entry in fs::read_dir(local.record(&key(), "")).expect("its folder").flatten() {
        if entry.file_type().expect("a type").is_file() {
            let file = fs::File::options().write(true).open(entry.path()).expect("a file");
            file.set_modified(off).expect("to set its time");
        }
    }
    local.up();
    let exited = await_exit(&mut local, &key());
    let Outcome::Lost { reason } = &exited.outcome else { panic!("{exited:?}") };
    assert!(reason.contains("booted"), "{reason}");
    // Until the last that is known of it, not until the machine was booted.
    assert_eq!((exited.ended_at.unix_ms, exited.ended_at.boot_ms), (off_ms, None));
    assert_eq!(exited.started_at.expect("its start").boot_ms, None);
    assert_eq!(exited.started_at.expect("its start").unix_ms, off_ms - 1_800_000);
}

fn uptime() -> std::time::Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    std::time::Duration::from_secs(u64::try_from(time.tv_sec).expect("after the boot"))
}

/// The kernel kills a command whose shim was killed, without the engine.
fn await_no_processes(local: &mut Local) {
    while local.processes(&key()) > 0 {
        local.pause();
    }
}

#[test]
fn the_log_of_a_forgotten_attempt_can_be_purged() {
    let mut local = Local::new();
    let mut order = local.order(&key(), &Work::Print(10));
    run(&mut local, &mut order);
    local.engine().purge(&key()).expect("nothing yet");
    assert!(local.engine().read_log(&key(), 0, 10).is_ok(), "it is not forgotten");
    local.engine().forget(&key()).expect("forget");
    let left: Vec<_> =
        fs::read_dir(local.path("engine/ended/work.1")).expect("it").flatten().collect();
    assert!(
        left.iter().all(|file| file.file_name().to_string_lossy().starts_with("log.")),
        "{left:?}"
    );
    let logs = local.engine().logs();
    assert_eq!(logs.read(&key(), 0, 100).expect("its log").bytes, b"0123456789");
    local.engine().purge(&key()).expect("purge");
    assert_eq!(logs.read(&key(), 0, 100).expect_err("no log").kind(), ErrorKind::Unknown);
    local.engine().purge(&key()).expect("purge again");
}

#[test]
fn work_gets_no_files_of_the_daemon() {
    let mut local = Local::new();
    let secret = local.path("secret");
    let file = fs::File::create(&secret).expect("a file");
    // As whoever started the daemon may have left it.
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).expect("to leave it open");
    let mut order = local.script(&key(), "ls -l /proc/$$/fd", "");
    let (outcome, said) = run(&mut local, &mut order);
    assert_eq!(outcome, Outcome::Exit { code: 0 }, "{said}");
    assert!(!said.contains(secret.to_str().expect("UTF-8")), "{said}");
}

#[test]
fn a_folder_of_somebody_elses_checkpoints_is_not_given_away() {
    if !is_root() {
        return;
    }
    let mut local = Local::new();
    let mut order = local.script(&key(), "", "");
    order.user = Some("daemon".to_owned());
    fs::create_dir_all(&order.checkpoint_dir).expect("a folder");
    std::os::unix::fs::chown(&order.checkpoint_dir, Some(12_345), None).expect("to give it away");
    let error = local.engine().start(&order).expect_err("it is not theirs");
    assert_eq!(error.kind(), bursar_engine::ErrorKind::Invalid);
    assert!(error.to_string().contains("belongs to user number 12345"), "{error}");
    assert!(local.engine().observe().expect("observe").is_empty(), "nothing was claimed");
    // Nor is one of root's with something in it; an empty one was about to be given.
    std::os::unix::fs::chown(&order.checkpoint_dir, Some(0), None).expect("to give it back");
    fs::write(order.checkpoint_dir.join("saved"), "").expect("written");
    assert!(local.engine().start(&order).is_err());
    fs::remove_file(order.checkpoint_dir.join("saved")).expect("removed");
    local.engine().start(&order).expect("it is theirs now");
    await_exit(&mut local, &key());
}
