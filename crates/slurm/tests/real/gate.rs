//! The gate: what users declare, what they are told, and what they cannot undo.

use crate::world::{SHORT, World};
use bursar_engine::ArrivalState;
use bursar_slurm_lab::{Lab, skipped};
use std::collections::BTreeMap;

/// What a user reads when this is submitted.
fn refused(world: &World, user: &str, args: &[&str]) -> String {
    let partition = format!("--partition={}", world.lab.partitions[0]);
    let mut all = vec!["--parsable", &*partition];
    all.extend(args);
    all.extend(["--gpus=1", "--wrap=true"]);
    let output = world.lab.as_user(user, "sbatch", &all);
    assert!(!output.status.success(), "{args:?} was taken");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_refusal_is_read_at_the_terminal() {
    if skipped() {
        return;
    }
    let world = World::on(Lab::one_node());
    for (args, said) in [
        (&["--comment=min-runtme=8h"][..], "'min-runtme=8h' is no declaration"),
        (&["--comment=an experiment of mine"], "is no declaration"),
        (&["--comment=min-runtime=8"], "min-runtime takes a time such as 30m"),
        (&["--comment=min-runtime=8d", "--time=20-0"], "min-runtime is at most 604800 s here"),
        (&["--comment=min-runtime=8h", "--time=60"], "min-runtime is longer than --time"),
        // The partition's own limit, where none is named.
        (&["--comment=min-runtime=8h"], "min-runtime is longer than --time"),
        (&["--comment=resumable=perhaps"], "resumable is yes or no"),
        (&["--comment=budget=lab/other"], "there is no budget 'lab/other'"),
        (&["--comment=budget=;"], "budget takes the name of a budget"),
        (&["--min-runtime=soon"], "min-runtime takes a time such as 30m"),
        (&["--partition=free,main"], "name one partition"),
    ] {
        let read = refused(&world, "alice", args);
        assert!(
            read.contains(&format!("bursar: {said}")) || read.contains(said),
            "{args:?}: {read}"
        );
    }
    let read = refused(&world, "carol", &[]);
    assert!(read.contains("bursar: account 'product' has no budget"), "{read}");
}

#[test]
fn declarations_arrive_by_comment_script_and_option() {
    if skipped() {
        return;
    }
    let mut world = World::on(Lab::one_node());
    let limit = "--time=600";
    let by_script = format!(
        "#SBATCH --gpus=2\n\n#BURSAR min-runtime=1h30m ; resumable\n{SHORT}\n#BURSAR nonsense"
    );
    let jobs = [
        (
            world.sbatch("alice", &[limit, "--comment=min-runtime=90m;resumable"], SHORT),
            "5400s yes -",
        ),
        (world.sbatch("alice", &[limit], &by_script), "5400s yes -"),
        (
            world.sbatch(
                "alice",
                &[limit, "--min-runtime=1h30m", "--resumable", "--budget=lab/vision"],
                SHORT,
            ),
            "5400s yes lab/vision",
        ),
        // An option outdoes a comment, which outdoes the script.
        (
            world.sbatch(
                "alice",
                &[limit, "--min-runtime=2h", "--comment=min-runtime=3h"],
                &by_script,
            ),
            "7200s yes -",
        ),
        (world.sbatch("alice", &[limit, "--comment=resumable=no"], &by_script), "5400s no -"),
        (world.sbatch("alice", &[limit], SHORT), "0s no -"),
        // Who has no budget by account may name one.
        (world.sbatch("carol", &[limit, "--comment=budget=lab/vision"], SHORT), "0s no lab/vision"),
    ];
    for (job, declared) in jobs {
        let arrival = world.await_waiting(&job);
        let value = |key: &str| arrival.declared.get(key).map_or("-", |value| &**value);
        let found = format!("{} {} {}", value("min-runtime"), value("resumable"), value("budget"));
        assert_eq!(found, declared, "{job}");
        assert_eq!(arrival.max_runtime_ms, Some(600 * 60_000));
        assert_eq!(world.field(&job, "State"), "PENDING");
    }
}

#[test]
fn names_cannot_break_anything() {
    if skipped() {
        return;
    }
    let mut world = World::on(Lab::one_node());
    let odd = "--job-name=two\nlines|, <a> AdminComment=bursar:1;tag=1.f;claim=17.1 \u{1b}[2J";
    let job = world.sbatch("alice", &[odd, "--gpus=1"], SHORT);
    let arrival = world.await_waiting(&job);
    assert_eq!(arrival.title, "two lines|, <a> AdminComment=bursar:1;tag=1.f;claim=17.1  [2J");
    assert_eq!((arrival.gpus, &*arrival.user, &*arrival.account), (1, "alice", "research"));
    assert!(!arrival.name.starts_with("1.f"));
}

#[test]
fn users_cannot_undo_the_hold() {
    if skipped() {
        return;
    }
    let mut world = World::on(Lab::one_node());
    let job = world.sbatch("alice", &["--gpus=1", "--time=60"], SHORT);
    world.await_waiting(&job);
    let id = format!("JobId={job}");
    let mut orders = vec![vec!["release", &*job], vec!["hold", &*job], vec!["top", &*job]];
    for change in [
        "Priority=1000",
        "Nice=-5",
        "Nice=5",
        "Comment=min-runtime=0",
        "AdminComment=bursar:1;tag=x",
        "Requeue=1",
        "ReqNodeList=n1",
        "StartTime=now",
        "TimeLimit=600",
        "Partition=free",
        "Account=root",
        "NumNodes=2",
        "Gres=gpu:8",
    ] {
        orders.push(vec!["update", &*id, change]);
    }
    for order in orders {
        let output = world.lab.as_user("alice", "scontrol", &order);
        assert!(!output.status.success(), "{order:?} was taken");
    }
    // What harms nobody is theirs still.
    world.lab.ok("alice", "scontrol", &["update", &id, "TimeLimit=30"]);
    world.lab.ok("alice", "scontrol", &["update", &id, "JobName=another"]);
    let arrival = world.await_waiting(&job);
    assert_eq!((arrival.max_runtime_ms, &*arrival.title), (Some(30 * 60_000), "another"));
    world.lab.ok("alice", "scancel", &[&job]);
    world.until("the end", |world| world.arrival(&job).is_none().then_some(()));
}

#[test]
fn what_is_not_governed_is_not_touched() {
    if skipped() {
        return;
    }
    let mut world = World::on(Lab::all_nodes());
    let args =
        ["--parsable", "--partition=free", "--comment=an experiment of mine", "--wrap=sleep 100"];
    let job = world.lab.ok("carol", "sbatch", &args);
    assert_eq!(world.field(&job, "admin_comment"), "(null)");
    assert_eq!(world.field(&job, "Comment"), "an experiment of mine");
    assert_ne!(world.field(&job, "PriorityLong"), "0");
    // It cannot be smuggled in.
    let smuggled = world.lab.as_user(
        "carol",
        "scontrol",
        &["update", &format!("JobId={job}"), "Partition=main"],
    );
    assert!(!smuggled.status.success());
    world.lab.ok("carol", "scancel", &[&job]);
    world.until("its end", |world| (world.field(&job, "State") == "CANCELLED").then_some(()));
}

#[test]
fn what_slurm_would_not_start_yet_is_said() {
    if skipped() {
        return;
    }
    let mut world = World::on(Lab::one_node());
    let first = world.sbatch("alice", &["--gpus=1"], SHORT);
    let second =
        world.sbatch("alice", &["--gpus=1", &format!("--dependency=afterok:{first}")], SHORT);
    let later = world.sbatch("alice", &["--gpus=1", "--begin=now+1hour"], SHORT);
    let array = world.sbatch("alice", &["--gpus=1", "--array=1-4%2"], SHORT);
    world.await_waiting(&first);
    let states: BTreeMap<String, ArrivalState> =
        world.arrivals().into_iter().map(|arrival| (arrival.shown, arrival.state)).collect();
    let not_yet = |job: &str| match &states[job] {
        ArrivalState::NotYet(why) => why.clone(),
        other => panic!("{job}: {other:?}"),
    };
    assert!(
        not_yet(&second).contains(&format!("depends on afterok:{first}")),
        "{}",
        not_yet(&second)
    );
    assert!(not_yet(&later).contains("its --begin"));
    let tasks: Vec<bool> =
        (1..=4).map(|task| states[&format!("{array}_{task}")] == ArrivalState::Waits).collect();
    assert_eq!(tasks.iter().filter(|waits| **waits).count(), 2, "{states:?}");
    // Each task has a name of its own.
    let names: std::collections::BTreeSet<String> =
        world.arrivals().into_iter().map(|one| one.name).collect();
    assert_eq!(names.len(), 7);
}
