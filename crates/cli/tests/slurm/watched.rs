//! Watching only, the switch to governing, and back.

use crate::governed::{Governed, SAVES, SLEEPS};
use crate::{command, eventually, finish};
use std::collections::{BTreeMap, BTreeSet};

const BUDGETS: &str = "research: {share: 3}\nproduct: {share: 1}\n";

/// A whole node, of which nothing is declared.
const NODE: [&str; 2] = ["--nodes=1", "--gpus=8"];

/// What slurmctld computes anew all the time, whoever looks or not.
const VOLATILE: [&str; 14] = [
    // Why something waits; a hold would show in `Priority`.
    "Reason",
    "EligibleTime",
    "RunTime",
    "LastSchedEval",
    "StartTime",
    "EndTime",
    "SchedNodeList",
    "CPULoad",
    "FreeMem",
    "LastBusyTime",
    "Scheduler",
    "AccrueTime",
    "PreemptEligibleTime",
    "SlurmdStartTime",
];

/// All that slurmctld has of jobs, nodes, partitions and reservations.
fn state(governed: &Governed) -> Vec<String> {
    let mut all = Vec::new();
    for what in ["job", "node", "partition", "reservation"] {
        let text = governed.lab.ok("svc", "scontrol", &["-o", "-d", "show", what]);
        // What has ended is forgotten by itself.
        let is_there = |line: &&str| {
            what != "job" || line.contains("JobState=PENDING") || line.contains("JobState=RUNNING")
        };
        all.extend(text.lines().filter(is_there).map(|line| {
            let fields = line
                .split(' ')
                .filter(|field| !VOLATILE.contains(&field.split('=').next().unwrap_or_default()));
            fields.collect::<Vec<_>>().join(" ")
        }));
    }
    let accounts = ["-nP", "show", "assoc", "format=account,user,fairshare,grptres,maxjobs"];
    all.extend(governed.lab.ok("svc", "sacctmgr", &accounts).lines().map(str::to_owned));
    all
}

/// Jobs that are on hold.
fn held(governed: &Governed) -> Vec<String> {
    let args = ["-h", "-a", "-t", "PD", "-O", "JobID:|,Reason:|"];
    let text = governed.lab.ok("svc", "squeue", &args);
    text.lines().filter(|line| line.contains("Held")).map(str::to_owned).collect()
}

/// How often slurmctld was asked for a change, by the kind of message.
fn changes(governed: &Governed) -> BTreeMap<String, u64> {
    let text = governed.lab.ok("svc", "sdiag", &[]);
    let count = |line: &str| {
        let line = line.trim();
        let name = line.split_whitespace().next()?.to_owned();
        let reads =
            name.contains("_INFO") || name.contains("REQUEST_PING") || name.contains("STATS");
        let count = line.split("count:").nth(1)?.split_whitespace().next()?.parse().ok()?;
        let by_jobs =
            name.starts_with("MESSAGE_") || name.contains("COMPLETE") || name.contains("NODE_REG");
        (name.starts_with("REQUEST_") && !reads && !by_jobs).then_some((name, count))
    };
    text.lines().filter_map(count).collect()
}

#[test]
fn watching_changes_nothing_and_tells_what_budgets_would_have_done() {
    if bursar_slurm_lab::skipped() {
        return;
    }
    let mut governed = Governed::not_yet(BUDGETS, "default_min_runtime: 5m");
    // Product has taken everything; research waits behind two more of product's.
    let running: Vec<String> = (0..4).map(|_| governed.sbatch("carol", &NODE, SLEEPS)).collect();
    running.iter().for_each(|job| governed.until_state(job, "RUNNING"));
    let mut waiting: Vec<String> = (0..2).map(|_| governed.sbatch("dave", &NODE, SLEEPS)).collect();
    waiting.push(governed.sbatch("alice", &["--gpus=4", "--array=1-2"], SLEEPS));
    let (before, asked) = (state(&governed), changes(&governed));
    assert!(asked.contains_key("REQUEST_SUBMIT_BATCH_JOB"), "{asked:?}");

    governed.configure("watch");
    governed.up();
    let listed = || {
        let all = governed.site().get("/v1/workloads?all=true");
        all["workloads"].as_array().expect("a list").clone()
    };
    let all = eventually("all jobs", || Some(listed()).filter(|all| all.len() == 8));
    let of = |state: &str| all.iter().filter(|one| one["state"] == state).count();
    assert_eq!((of("protected") + of("running"), of("waiting")), (4, 4), "{all:?}");
    let why = governed.why(&waiting[0]);
    assert!(why.contains("Slurm decides: partition main is watched"), "{why}");
    // Nobody asks for changes there by Bursar.
    let number = governed.number(&running[0]).to_string();
    for args in [&["cancel", &number][..], &["host", "drain", "n1", "--reason", "x"]] {
        let refused = governed.site().ask(args);
        assert_eq!(refused.code, Some(2), "{args:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("only watches Slurm"), "{}", refused.stderr);
    }
    // A look is taken each second: many of them later all is as it was.
    let charge = |governed: &Governed| {
        governed.site().get("/v1/workloads/1")["charged_gpu_ms"].as_u64().expect("a charge")
    };
    let first = charge(&governed);
    eventually("that time passes", || (charge(&governed) > first + 8 * 5_000).then_some(()));
    let after = state(&governed);
    let words = |lines: &[String]| -> BTreeSet<String> {
        let words = |line: &String| {
            let first = line.split(' ').next().unwrap_or_default().to_owned();
            line.split(' ').map(|word| format!("{first} {word}")).collect::<Vec<_>>()
        };
        lines.iter().flat_map(words).collect()
    };
    let (was, is) = (words(&before), words(&after));
    let changed: Vec<_> = was.symmetric_difference(&is).collect();
    assert!(changed.is_empty(), "{changed:#?}");
    assert_eq!(changes(&governed), asked);

    // What budgets would have done, beside what Slurm did.
    let told = governed.site().ask_well(&["whatif", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let policies = &told["summary"]["policies"];
    assert_eq!(policies["recorded"]["conservation_exact"], true, "{told}");
    assert_eq!(policies["budget"]["conservation_exact"], true, "{told}");
    let shown = governed.site().ask_well(&["whatif"]);
    assert!(shown.contains("recorded") && shown.contains("delivered ratio"), "{shown}");

    // What starts and ends is charged as Slurm accounts it.
    governed.lab.ok("carol", "scancel", &[&running[0]]);
    governed.until_ended(&running[0], "cancelled");
    governed.until_state(&waiting[0], "RUNNING");
    let number = governed.number(&waiting[0]);
    eventually("that it is seen to run", || {
        (governed.site().work(number)["state"] == "protected").then_some(())
    });
    governed.lab.ok("dave", "scancel", &[&waiting[0]]);
    governed.until_ended(&waiting[0], "cancelled");
    let work = governed.site().work(number);
    let charged = work["charged_gpu_ms"].as_u64().expect("a charge");
    let accounted = eventually("its row", || {
        let args = ["-X", "-P", "-n", "-j", &waiting[0], "-o", "ElapsedRaw,State"];
        let text = governed.lab.ok("svc", "sacct", &args);
        let (elapsed, state) = text.split_once('|')?;
        state.starts_with("CANCELLED").then(|| elapsed.parse::<u64>().expect("seconds"))
    });
    assert_eq!(charged, accounted * 8_000, "{work}");
}

#[test]
fn governing_begins_with_what_was_watched_and_ends_in_order() {
    if bursar_slurm_lab::skipped() {
        return;
    }
    let mut governed = Governed::not_yet(BUDGETS, "default_min_runtime: 5m");
    let running: Vec<String> = (0..4).map(|_| governed.sbatch("carol", &NODE, SAVES)).collect();
    running.iter().for_each(|job| governed.until_state(job, "RUNNING"));
    let early = governed.sbatch("dave", &NODE, SLEEPS);
    governed.configure("watch");
    governed.up();
    let before: Vec<u64> = running.iter().map(|job| governed.number(job)).collect();
    eventually("that it is charged", || {
        (governed.site().work(before[0])["charged_gpu_ms"].as_u64()? > 0).then_some(())
    });
    let started = governed.site().work(before[0])["started_unix_ms"].as_u64().expect("its start");
    let waits = governed.number(&early);
    governed.stop();

    // The same jobs are the same workloads: what was watched is in the books.
    governed.configure("govern");
    governed.up();
    let late: Vec<String> = ["dave", "alice", "carol", "bob"]
        .into_iter()
        .map(|user| {
            governed.sbatch(user, &["--nodes=1", "--gpus=8", "--comment=min-runtime=5m"], SLEEPS)
        })
        .collect();
    late.iter().for_each(|job| assert_eq!(governed.field(job, "Reason"), "JobHeldUser"));
    assert_eq!(running.iter().map(|job| governed.number(job)).collect::<Vec<_>>(), before);
    assert_eq!(governed.number(&early), waits);
    let work = governed.site().work(before[0]);
    // One run, from the same start: shown by another daemon's reading of the clocks, which may be a moment off.
    assert_eq!(work["history"].as_array().map(Vec::len), Some(1), "{work}");
    let again = work["started_unix_ms"].as_u64().expect("its start");
    assert!(again.abs_diff(started) < 100, "{started}: {work}");
    eventually("that it is claimed", || {
        governed
            .field(&running[0], "admin_comment")
            .contains(&format!("claim={}.", before[0]))
            .then_some(())
    });
    late.iter().for_each(|job| {
        governed.number(job);
    });
    governed.stop();

    // And back: nothing stays on hold, and research, which was funded and had nothing, comes first.
    governed.configure("watch");
    governed.up();
    assert!(
        governed.site().said().contains("were released to Slurm, in their order"),
        "{}",
        governed.site().said()
    );
    assert_eq!(held(&governed), [] as [&str; 0]);
    let order =
        governed.lab.ok("svc", "squeue", &["-h", "-a", "-t", "PD", "-S", "-p,i", "-o", "%u"]);
    let order: Vec<&str> = order.lines().collect();
    assert_eq!(order[..2], ["alice", "bob"], "{}", governed.all());
    assert_eq!(order.len(), 5);
    // Slurm starts them by itself, in that order; and new ones do not enter on hold.
    governed.lab.ok("carol", "scancel", &[&running[0]]);
    governed.until_state(&late[1], "RUNNING");
    let new = governed.sbatch("alice", &NODE, SLEEPS);
    assert_ne!(governed.field(&new, "Reason"), "JobHeldUser");
    assert_eq!(governed.running(&running[1..]), 3);
}

#[test]
fn a_watchdog_releases_what_a_dead_daemon_holds_and_a_new_one_takes_over() {
    if bursar_slurm_lab::skipped() {
        return;
    }
    let mut governed = Governed::with(BUDGETS, "");
    let protected = ["--nodes=1", "--gpus=8", "--comment=min-runtime=5m"];
    let running: Vec<String> =
        (0..4).map(|_| governed.sbatch("carol", &protected, SLEEPS)).collect();
    running.iter().for_each(|job| governed.until_state(job, "RUNNING"));
    let waiting: Vec<String> =
        ["dave", "alice"].map(|user| governed.sbatch(user, &protected, SLEEPS)).into();
    let numbers: Vec<u64> = waiting.iter().map(|job| governed.number(job)).collect();
    let config = governed.path("bursar.yaml");
    let config = config.to_str().expect("UTF-8");
    let run = |args: &[&str]| finish(command(args).envs(governed.lab.environment()));
    // As long as the site is up, nothing is released behind its back.
    let refused = run(&["slurm", "release", "--config", config]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("the site is up (it should answer at"), "{}", refused.stderr);
    assert_eq!(held(&governed).len(), 2);

    governed.kill();
    // It has nobody to restart it.
    let run = |args: &[&str]| finish(command(args).envs(governed.lab.environment()));
    let args =
        ["slurm", "watchdog", "--config", config, "--after", "1s", "--every", "200ms", "--once"];
    let done = run(&args);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("2 jobs that waited were released to Slurm"), "{}", done.stderr);
    assert_eq!(held(&governed), [] as [&str; 0]);
    assert_eq!(governed.running(&running), 4);
    // New ones do not enter on hold; and research comes first, as it would have.
    governed.lab.ok("carol", "scancel", &[&running[0]]);
    governed.until_state(&waiting[1], "RUNNING");

    // A new daemon governs again: what Slurm started is known, what waits is the same work, and on hold.
    governed.up();
    eventually("that what waits is on hold", || (held(&governed).len() == 1).then_some(()));
    let known: Vec<u64> = waiting.iter().map(|job| governed.number(job)).collect();
    assert_eq!(known, numbers);
    eventually("that what Slurm started is known to run", || {
        (governed.site().work(numbers[1])["state"] == "protected").then_some(())
    });
    let reason = governed.site().work(numbers[1])["history"][0]["reason"].clone();
    assert!(reason.as_str().is_some_and(|text| text.contains("started elsewhere")), "{reason}");
}
