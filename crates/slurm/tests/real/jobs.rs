//! Jobs of users: started, signalled, put back, resumed, cancelled, and charged as Slurm accounts them.

use crate::world::{SAVES, SHORT, World, key, order};
use bursar_engine::{ArrivalState, AttemptState, Engine, Exited, Outcome, Signal};
use bursar_slurm::{SlurmOptions, SubmitOptions};
use bursar_slurm_lab::{Lab, skipped};
use std::time::Duration;

/// Its seconds are those that the accounts have for the run with this number.
fn assert_charged(world: &mut World, job: &str, run: usize, exited: &Exited) {
    let row = world.until("its row in the accounts", |world| world.accounts(job).get(run).cloned());
    let started = exited.started_at.map(|moment| moment.unix_ms);
    assert_eq!((started, exited.ended_at.unix_ms), (Some(row.0 * 1000), row.1 * 1000), "{row:?}");
}

#[test]
fn an_adopted_job_runs_on_the_planned_hosts() {
    if skipped() {
        return;
    }
    let mut world = World::on(Lab::all_nodes());
    let job = world.sbatch("alice", &["--nodes=2", "--gres=gpu:8", "--time=60"], SHORT);
    let arrival = world.await_waiting(&job);
    assert_eq!((arrival.gpus, arrival.shape), (16, Some((2, 8))));
    world.start(&key(1), &arrival, &[("n2", 8), ("n4", 8)]);
    let started = world.await_running(&key(1));
    assert_eq!(world.field(&job, "NodeList"), "n[2,4]");
    assert_eq!(world.arrival(&job), None, "what has an attempt is no arrival");
    // Ordered again it does nothing.
    world.start(&key(1), &arrival, &[("n1", 8), ("n3", 8)]);
    let exited = world.await_exit(&key(1));
    assert_eq!(exited.outcome, Outcome::Exit { code: 0 });
    assert_eq!(exited.started_at.map(|moment| moment.unix_ms / 1000), Some(started));
    assert_charged(&mut world, &job, 0, &exited);
    assert_eq!(world.arrival(&job), None);
}

#[test]
fn a_job_saves_goes_back_and_resumes() {
    if skipped() {
        return;
    }
    let mut world = World::on(Lab::one_node());
    let host = world.lab.hosts[0].clone();
    let job =
        world.sbatch("alice", &["--gpus=3", "--comment=resumable", "--open-mode=append"], SAVES);
    let arrival = world.await_waiting(&job);
    world.start(&key(1), &arrival, &[(&host, 3)]);
    world.await_running(&key(1));
    for _ in 0..3 {
        world.engine().signal(&key(1), Signal::Checkpoint).expect("signal");
    }
    let exited = world.await_exit(&key(1));
    assert_eq!(exited.outcome, Outcome::Exit { code: 3 });
    assert!(exited.was_told_to_leave);
    // It is there at once: there is no moment at which it is nowhere.
    let back = world.engine().arrivals().expect("arrivals").expect("a queue");
    let back = back.into_iter().find(|one| one.shown == job).expect("it is back");
    assert_eq!((&back.name, &back.state), (&arrival.name, &ArrivalState::Waits));
    assert_eq!(back.submitted_at, arrival.submitted_at);
    assert_charged(&mut world, &job, 0, &exited);

    world.start(&key(2), &back, &[(&host, 3)]);
    world.await_running(&key(2));
    world.until("its second run", |world| world.output(&job).contains("run 1 0,1,2").then_some(()));
    assert!(world.output(&job).contains("run 0,1,2\nsaved\n"), "{}", world.output(&job));
    let log = world.engine().read_log(&key(2), 0, 4).expect("its log");
    assert_eq!((&*log.bytes, log.next_offset), (&b"run "[..], 4));
    // The first attempt stays what it was.
    assert_eq!(world.await_exit(&key(1)), exited);
    world.engine().stop(&key(2)).expect("stop");
    let exited = world.await_exit(&key(2));
    assert_eq!(exited.outcome, Outcome::Signal { number: 15 });
    assert!(exited.was_told_to_leave);
    assert_charged(&mut world, &job, 1, &exited);
    assert_eq!(world.arrival(&job), None, "nobody asked for a checkpoint, so it was cancelled");
}

#[test]
fn a_job_that_does_not_listen_is_put_back() {
    if skipped() {
        return;
    }
    let mut world = World::on(Lab::one_node());
    let host = world.lab.hosts[0].clone();
    let job = world.sbatch("bob", &["--gpus=1", "--comment=resumable"], "trap '' USR1; sleep 1000");
    let arrival = world.await_waiting(&job);
    world.start(&key(1), &arrival, &[(&host, 1)]);
    world.await_running(&key(1));
    world.engine().signal(&key(1), Signal::Checkpoint).expect("signal");
    world.until("the signal", |world| match world.see(&key(1))?.state {
        AttemptState::Running { told_to_leave, .. } => told_to_leave.then_some(()),
        other => panic!("{other:?}"),
    });
    world.engine().stop(&key(1)).expect("stop");
    world.restart();
    let exited = world.await_exit(&key(1));
    assert_eq!(exited.outcome, Outcome::Signal { number: 15 });
    assert_charged(&mut world, &job, 0, &exited);
    assert_eq!(world.await_waiting(&job).name, arrival.name);
    world.engine().withdraw(&arrival.name).expect("withdraw");
    world.until("its end", |world| world.arrival(&job).is_none().then_some(()));
}

#[test]
fn tasks_of_an_array_are_started_one_by_one() {
    if skipped() {
        return;
    }
    let mut world = World::on(Lab::one_node());
    let host = world.lab.hosts[0].clone();
    let array =
        world.sbatch("alice", &["--gpus=1", "--array=1-3"], "sleep 1; exit $SLURM_ARRAY_TASK_ID");
    for task in [2_u32, 1] {
        let shown = format!("{array}_{task}");
        let arrival = world.await_waiting(&shown);
        world.start(&key(task), &arrival, &[(&host, 1)]);
        let exited = world.await_exit(&key(task));
        assert_eq!(exited.outcome, Outcome::Exit { code: i32::try_from(task).expect("small") });
        assert_charged(&mut world, &shown, 0, &exited);
    }
    let left: Vec<String> = world.arrivals().into_iter().map(|arrival| arrival.shown).collect();
    assert_eq!(left, [format!("{array}_3")]);
}

#[test]
fn a_start_that_does_not_come_is_taken_back() {
    if skipped() {
        return;
    }
    let lab = Lab::one_node();
    let mut options = SlurmOptions::new(lab.partitions.clone());
    options.start_limit = Duration::from_secs(2);
    let mut world = World::with(lab, options);
    let host = world.lab.hosts[0].clone();
    let first = world.sbatch("alice", &["--gpus=8"], SAVES);
    let second = world.sbatch("bob", &["--gpus=8"], SHORT);
    let (first, second_arrival) = (world.await_waiting(&first), world.await_waiting(&second));
    world.start(&key(1), &first, &[(&host, 8)]);
    world.await_running(&key(1));
    world.start(&key(2), &second_arrival, &[(&host, 8)]);
    let exited = world.await_exit(&key(2));
    let Outcome::NotStarted { reason } = &exited.outcome else { panic!("{exited:?}") };
    assert!(reason.contains("within 2 s") && reason.contains("Resources"), "{reason}");
    assert_eq!(exited.started_at, None);
    let again = world.await_waiting(&second);
    assert_eq!(again.name, second_arrival.name);
    assert_eq!(world.field(&second, "PriorityLong"), "0");
    world.engine().stop(&key(1)).expect("stop");
    world.await_exit(&key(1));
    world.start(&key(3), &again, &[(&host, 8)]);
    assert_eq!(world.await_exit(&key(3)).outcome, Outcome::Exit { code: 0 });
}

#[test]
fn cancelled_work_is_not_started_and_not_put_back() {
    if skipped() {
        return;
    }
    let mut world = World::on(Lab::one_node());
    let host = world.lab.hosts[0].clone();
    let job = world.sbatch("alice", &["--gpus=1", "--comment=resumable"], SAVES);
    let arrival = world.await_waiting(&job);
    world.lab.ok("alice", "scancel", &[&job]);
    // The order comes too late.
    world.start(&key(1), &arrival, &[(&host, 1)]);
    let cancelled = Outcome::Cancelled { reason: "it was cancelled in Slurm".to_owned() };
    let exited = world.await_exit(&key(1));
    assert_eq!((exited.outcome, exited.started_at), (cancelled.clone(), None));

    let job = world.sbatch("alice", &["--gpus=1", "--comment=resumable"], SAVES);
    let arrival = world.await_waiting(&job);
    world.start(&key(2), &arrival, &[(&host, 1)]);
    world.await_running(&key(2));
    world.lab.ok("alice", "scancel", &[&job]);
    let exited = world.await_exit(&key(2));
    assert_eq!(exited.outcome, cancelled);
    assert!(!exited.was_told_to_leave);
    assert_charged(&mut world, &job, 0, &exited);
    assert_eq!(world.arrival(&job), None);
}

#[test]
fn a_job_that_is_requeued_by_its_user_does_not_run_again_by_itself() {
    if skipped() {
        return;
    }
    let mut world = World::on(Lab::one_node());
    let host = world.lab.hosts[0].clone();
    let job = world.sbatch("alice", &["--gpus=1", "--comment=resumable"], SAVES);
    let arrival = world.await_waiting(&job);
    world.start(&key(1), &arrival, &[(&host, 1)]);
    world.await_running(&key(1));
    world.lab.ok("alice", "scontrol", &["requeue", &job]);
    let exited = world.await_exit(&key(1));
    assert!(!exited.was_told_to_leave);
    world.until("its hold", |world| (world.field(&job, "PriorityLong") == "0").then_some(()));
    assert_charged(&mut world, &job, 0, &exited);
    assert_eq!(world.await_waiting(&job).name, arrival.name);
}

#[test]
fn what_an_administrator_starts_is_seen() {
    if skipped() {
        return;
    }
    let mut world = World::on(Lab::one_node());
    let job = world.sbatch("alice", &["--gpus=5"], SAVES);
    let arrival = world.await_waiting(&job);
    world.lab.ok("svc", "scontrol", &["release", &job]);
    let runs = world.await_arrival(&job, |state| matches!(state, ArrivalState::Runs { .. }));
    assert_eq!(runs.name, arrival.name);
    let ArrivalState::Runs { since, placement } = runs.state else { panic!() };
    assert_eq!(placement, [(world.lab.hosts[0].clone(), 5)]);
    assert_eq!(
        since.unix_ms,
        1000 * world.field(&job, "StartTime").parse::<u64>().expect("a moment")
    );
    // An order that has it elsewhere, or with other GPUs, comes too late.
    let late = order(&key(1), &arrival.name, &[(&placement[0].0, 4)]);
    world.engine().start(&late).expect("start");
    assert!(matches!(world.await_exit(&key(1)).outcome, Outcome::NotStarted { .. }));
    assert!(world.arrival(&job).is_some());
    world.engine().withdraw(&arrival.name).expect("withdraw");
    world.until("its end", |world| world.arrival(&job).is_none().then_some(()));
    let run = world.until("its row", |world| {
        let runs = world.engine().runs_of(&arrival).expect("its runs");
        runs.into_iter().find(|run| run.ending.is_some())
    });
    assert_eq!(run.started.map(|started| started * 1000), Some(since.unix_ms));
    assert_eq!(
        (run.started, run.ended),
        (Some(world.accounts(&job)[0].0), Some(world.accounts(&job)[0].1))
    );
}

#[test]
fn what_an_administrator_started_is_taken_over_where_it_runs() {
    if skipped() {
        return;
    }
    let mut world = World::on(Lab::one_node());
    let job = world.sbatch("alice", &["--gpus=5"], SAVES);
    let arrival = world.await_waiting(&job);
    world.lab.ok("svc", "scontrol", &["release", &job]);
    let runs = world.await_arrival(&job, |state| matches!(state, ArrivalState::Runs { .. }));
    let ArrivalState::Runs { since, placement } = runs.state else { panic!() };
    let claim = order(&key(1), &arrival.name, &[(&placement[0].0, 5)]);
    world.engine().start(&claim).expect("start");
    let started = world.await_running(&key(1));
    assert_eq!(started * 1000, since.unix_ms);
    assert!(world.arrival(&job).is_none(), "it is an attempt of ours by now");
    world.engine().stop(&key(1)).expect("stop");
    let exited = world.await_exit(&key(1));
    assert_eq!(exited.started_at, Some(since));
    let (started_s, ended_s, _) =
        world.until("its row", |world| world.accounts(&job).into_iter().next());
    assert_eq!((since.unix_ms, exited.ended_at.unix_ms), (1000 * started_s, 1000 * ended_s));
}

#[test]
fn work_from_before_us_gets_its_names() {
    if skipped() {
        return;
    }
    let mut world = World::on(Lab::one_node());
    let id = |job: &str| format!("JobId={job}");
    let begin = "--begin=now+1hour";
    let array = world.sbatch("alice", &["--gpus=1", "--array=1-3", begin], SHORT);
    let job = world.sbatch("alice", &["--gpus=1"], SAVES);
    // As if the gate had not been there.
    for job in [&array, &job] {
        world.lab.ok("svc", "scontrol", &["update", &id(job), "AdminComment=written by the site"]);
        world.lab.ok("svc", "scontrol", &["release", job]);
    }
    world.until("it to run", |world| (world.field(&job, "State") == "RUNNING").then_some(()));
    let names = world.until("four names", |world| {
        let mut names: Vec<_> =
            world.arrivals().into_iter().map(|one| (one.shown, one.name)).collect();
        names.sort();
        (names.len() == 4).then_some(names)
    });
    let tags: Vec<&str> =
        names.iter().map(|(_, name)| name.split('_').next().expect("a tag")).collect();
    assert!(tags[0] == tags[1] && tags[1] == tags[2] && tags[2] != tags[3], "{names:?}");
    world.await_arrival(&job, |state| matches!(state, ArrivalState::Runs { .. }));
    let again = world.arrivals().into_iter().map(|one| (one.shown, one.name));
    let mut again: Vec<_> = again.collect();
    again.sort();
    assert_eq!(again, names, "names stay");
}

#[test]
fn what_waits_from_before_us_waits_for_us() {
    if skipped() {
        return;
    }
    let mut world = World::on(Lab::one_node());
    let host = world.lab.hosts[0].clone();
    let node = format!("NodeName={host}");
    world.lab.ok("svc", "scontrol", &["update", &node, "State=DRAIN", "Reason=not yet"]);
    let array = world.sbatch("alice", &["--gpus=1", "--array=1-3"], SHORT);
    let job = world.sbatch("alice", &["--gpus=1"], SHORT);
    // As if the gate had not been there.
    for job in [&array, &job] {
        let id = format!("JobId={job}");
        world.lab.ok("svc", "scontrol", &["update", &id, "AdminComment="]);
        world.lab.ok("svc", "scontrol", &["release", job]);
        assert_ne!(world.field(job, "PriorityLong"), "0");
    }
    let arrival = world.await_waiting(&job);
    world.lab.ok("svc", "scontrol", &["update", &node, "State=RESUME"]);
    world.start(&key(1), &arrival, &[(&host, 1)]);
    assert_eq!(world.await_exit(&key(1)).outcome, Outcome::Exit { code: 0 });
    // It took some seconds in which Slurm could have started the others.
    let tasks = world.field(&array, "State");
    assert!(tasks.lines().all(|state| state.trim_end_matches('|') == "PENDING"), "{tasks}");
}

#[test]
fn a_run_is_in_everybodys_reports() {
    if skipped() {
        return;
    }
    let mut world = World::on(Lab::one_node());
    let host = world.lab.hosts[0].clone();
    let job = world.sbatch("alice", &["--gpus=1"], "sleep 3");
    let arrival = world.await_waiting(&job);
    world.start(&key(1), &arrival, &[(&host, 1)]);
    // Not at its end alone: what is done to a job while it runs is accounted.
    world.await_running(&key(1));
    world.await_exit(&key(1));
    // By time, as sreport and most people ask. A run that was never eligible is not among these.
    world.until("its row", |world| {
        let rows = ["-a", "-X", "-n", "-P", "-S", "now-1hours", "-o", "JobID,State"];
        let rows = world.lab.ok("svc", "sacct", &rows);
        rows.lines().any(|row| row == format!("{job}|COMPLETED")).then_some(())
    });
}

#[test]
fn a_declined_job_says_why() {
    if skipped() {
        return;
    }
    let mut world = World::on(Lab::one_node());
    let job = world.sbatch("alice", &["--gpus=1"], SHORT);
    let arrival = world.await_waiting(&job);
    world.engine().decline(&arrival.name, "no host has\n9 GPUs").expect("decline");
    assert_eq!(world.field(&job, "Comment"), "bursar: no host has; 9 GPUs");
    assert_eq!(world.await_waiting(&job).name, arrival.name);
}

#[test]
fn so_many_starts_at_a_time() {
    if skipped() {
        return;
    }
    let lab = Lab::one_node();
    let mut options = SlurmOptions::new(lab.partitions.clone());
    options.releases_max = 2;
    let mut world = World::with(lab, options);
    let host = world.lab.hosts[0].clone();
    let jobs: Vec<String> =
        (0..5).map(|_| world.sbatch("alice", &["--gpus=1"], "exit 0")).collect();
    let arrivals: Vec<_> = jobs.iter().map(|job| world.await_waiting(job)).collect();
    world.engine().observe().expect("observe");
    for (attempt, arrival) in (1..).zip(&arrivals) {
        world.start(&key(attempt), arrival, &[(&host, 1)]);
    }
    let held =
        jobs.iter().filter(|job| world.field(job, "admin_comment").contains("claim=")).count();
    assert_eq!(held, 2);
    for attempt in 1..=5 {
        assert_eq!(world.await_exit(&key(attempt)).outcome, Outcome::Exit { code: 0 });
    }
}

#[test]
fn work_of_ours_is_submitted_as_its_user_and_nobody_can_pass_for_it() {
    if skipped() {
        return;
    }
    let lab = Lab::one_node();
    let mut options = SlurmOptions::new(lab.partitions.clone());
    let through = ["setpriv", "--reuid={user}", "--regid={user}", "--clear-groups", "--"];
    options.submit = Some(SubmitOptions {
        partition: lab.partitions[0].clone(),
        through: through.map(str::to_owned).to_vec(),
        log_dir: lab.jobs(),
    });
    let mut world = World::with(lab, options);
    let host = world.lab.hosts[0].clone();
    let mut ours = order(&key(1), "", &[(&host, 1)]);
    ours.adopts = None;
    ours.user = Some("alice".to_owned());
    ours.command = ["sh", "-c", "id -u; sleep 5"].map(str::to_owned).to_vec();
    ours.workdir = Some("/".into());
    world.engine().start(&ours).expect("start");
    world.await_running(&key(1));
    let id =
        world.lab.ok("svc", "squeue", &["-h", "-a", "-p", &world.lab.partitions[0], "-o", "%A"]);
    assert_eq!(world.field(&id, "UserName"), "alice");
    assert!(world.arrivals().is_empty(), "it did not come through the queue");
    // Everybody can read the word that it was found by.
    let word = format!("--comment={}", world.field(&id, "Comment"));
    let copy = world.sbatch("bob", &[&word], SHORT);
    world.until("its end", |world| {
        world.see(&key(1));
        (world.field(&copy, "State") == "CANCELLED").then_some(())
    });
    assert_eq!(world.await_exit(&key(1)).outcome, Outcome::Exit { code: 0 });
    let log = world.engine().read_log(&key(1), 0, 100).expect("its log");
    assert_eq!(
        String::from_utf8_lossy(&log.bytes),
        format!("{}\n", bursar_slurm_lab::uid("alice"))
    );
}
