//! Who runs, who has to leave, and who does not.

use crate::eventually;
use crate::governed::{Governed, SAVES, SLEEPS};

const BUDGETS: &str =
    "research: {share: 3}\nproduct: {share: 1}\nguests: {share: 0, members: [bob]}\n";

/// A whole node, protected for five minutes.
const PROTECTED: [&str; 3] = ["--nodes=1", "--gpus=8", "--comment=min-runtime=5m"];

/// Everything is closed, so that what is submitted meanwhile waits.
fn closed(governed: &Governed) {
    for host in ["n1", "n2", "n3", "n4"] {
        governed.site().ask_well(&["host", "drain", host, "--reason", "not yet"]);
    }
    eventually("that all nodes are closed", || {
        let states = governed.lab.ok("svc", "sinfo", &["-h", "-N", "-p", "main", "-o", "%T"]);
        states.lines().all(|state| state.contains("drain")).then_some(())
    });
}

fn opened(governed: &Governed) {
    for host in ["n1", "n2", "n3", "n4"] {
        governed.site().ask_well(&["host", "undrain", host]);
    }
}

#[test]
fn budgets_order_the_queue() {
    if bursar_slurm_lab::skipped() {
        return;
    }
    let governed = Governed::with(BUDGETS, "");
    closed(&governed);
    // Who has a quarter comes first, and asks for twice as many nodes as there are; so do the others.
    let product: Vec<String> =
        (0..5).map(|n| governed.sbatch(["carol", "dave"][n % 2], &PROTECTED, SLEEPS)).collect();
    let research: Vec<String> =
        (0..5).map(|n| governed.sbatch(["alice", "bob"][n % 2], &PROTECTED, SLEEPS)).collect();
    for job in product.iter().chain(&research) {
        governed.number(job);
    }
    opened(&governed);
    let running = || (governed.running(&research), governed.running(&product));
    eventually("that three nodes are research's and one is product's", || {
        (running() == (3, 1)).then_some(())
    });
    // Within a budget: who came first.
    assert_eq!(governed.running(&research[..3]), 3, "{}", governed.all());
    assert_eq!(governed.running(&product[..1]), 1, "{}", governed.all());
    // A node that becomes free is for whom it was funded.
    governed.lab.ok("carol", "scancel", &[&product[0]]);
    governed.until_state(&product[1], "RUNNING");
    governed.lab.ok("alice", "scancel", &[&research[0]]);
    governed.until_state(&research[3], "RUNNING");
    assert_eq!(running(), (3, 1), "{}", governed.all());
    // Whoever waits is told for what.
    let why = governed.why(&product[2]);
    assert!(why.contains("waits: ") && why.contains("rule "), "{why}");
}

#[test]
fn who_is_protected_stays_and_who_is_not_saves_and_comes_back() {
    if bursar_slurm_lab::skipped() {
        return;
    }
    let governed = Governed::with(BUDGETS, "");
    // Product takes all: two nodes are under contract, two are not.
    let under_contract: Vec<String> =
        (0..2).map(|_| governed.sbatch("carol", &PROTECTED, SLEEPS)).collect();
    let interruptible = ["--nodes=1", "--gpus=8", "--comment=min-runtime=2s;resumable"];
    let taken: Vec<String> =
        (0..2).map(|_| governed.sbatch("dave", &interruptible, SAVES)).collect();
    for job in under_contract.iter().chain(&taken) {
        governed.until_state(job, "RUNNING");
    }
    // Research is funded for three nodes and asks for four.
    let claims: Vec<String> =
        (0..4).map(|_| governed.sbatch("alice", &PROTECTED, SLEEPS)).collect();
    for job in &claims[..2] {
        governed.until_state(job, "RUNNING");
    }
    // Whoever had to leave saved, and waits on hold with what it saved.
    for job in &taken {
        governed.until_state(job, "PENDING");
        eventually("what it saved", || governed.output(job).contains("saved").then_some(()));
    }
    assert_eq!(governed.running(&under_contract), 2, "{}", governed.all());
    let why = governed.why(&claims[2]);
    assert!(why.contains("protect"), "{why}");
    // They come back when there is room, and go on from there. Whoever is cancelled in the midst of its start does not.
    for job in claims.iter().rev() {
        governed.lab.ok("alice", "scancel", &[job]);
    }
    for job in &claims {
        governed.until_ended(job, "cancelled");
    }
    for job in &taken {
        governed.until_state(job, "RUNNING");
        let saved = governed.output(job);
        let step = saved.lines().find_map(|line| line.strip_prefix("saved ")).expect("a step");
        assert_ne!(step, "0");
        let resumed = format!("run 1 from {step} on ");
        eventually(&resumed, || governed.output(job).contains(&resumed).then_some(()));
    }
    assert_eq!(governed.running(&under_contract), 2, "{}", governed.all());
    for job in &taken {
        let work = governed.work(job);
        assert_eq!(work["history"].as_array().map(Vec::len), Some(2), "{work}");
    }
}

#[test]
fn unallocated_work_fills_what_is_idle_and_leaves_at_once() {
    if bursar_slurm_lab::skipped() {
        return;
    }
    let governed = Governed::with(BUDGETS, "");
    let kept = governed.sbatch("carol", &PROTECTED, SLEEPS);
    governed.until_state(&kept, "RUNNING");
    // A contract that nobody funds is none; and min-runtime 0 asks for none.
    let unfunded = governed.sbatch(
        "bob",
        &["--nodes=1", "--gpus=8", "--comment=budget=guests;min-runtime=5m;resumable"],
        SAVES,
    );
    let idle = ["--nodes=1", "--gpus=8", "--comment=min-runtime=0;resumable=no"];
    let filling: Vec<String> = (0..2).map(|_| governed.sbatch("dave", &idle, SLEEPS)).collect();
    for job in filling.iter().chain([&unfunded]) {
        governed.until_state(job, "RUNNING");
        assert_eq!(governed.work(job)["charged_gpu_ms"], 0);
    }
    // All of them are in the way of three nodes that are funded.
    let funded: Vec<String> =
        (0..3).map(|_| governed.sbatch("alice", &PROTECTED, SLEEPS)).collect();
    for job in &funded {
        governed.until_state(job, "RUNNING");
    }
    assert_eq!(governed.state(&kept), "RUNNING");
    governed.until_state(&unfunded, "PENDING");
    for job in &filling {
        governed.until_ended(job, "terminated");
        assert_eq!(governed.work(job)["charged_gpu_ms"], 0);
    }
}

#[test]
fn a_gang_gets_the_nodes_that_it_was_promised() {
    if bursar_slurm_lab::skipped() {
        return;
    }
    let governed = Governed::with(BUDGETS, "reservation_age: 10s");
    let args = |least: &str| {
        [
            "--nodes=1".to_owned(),
            "--gpus=8".to_owned(),
            format!("--comment=min-runtime={least};resumable"),
        ]
    };
    let submit = |user: &str, least: &str| {
        let args = args(least);
        governed.sbatch(user, &args.each_ref().map(String::as_str), SAVES)
    };
    // Four nodes whose contracts end one after the other.
    let before: Vec<String> =
        ["5s", "10s", "15s", "20s"].iter().map(|least| submit("alice", least)).collect();
    for job in &before {
        governed.until_state(job, "RUNNING");
    }
    let gang = governed.sbatch(
        "carol",
        &["--nodes=4", "--gpus-per-node=8", "--comment=min-runtime=5m"],
        SLEEPS,
    );
    let promise = eventually("the promise", || {
        let why = governed.work(&gang)["why"].clone();
        (why["rule"] == 7).then_some(why)
    });
    assert_eq!(
        promise["text"],
        "n1, n2, n3, n4 are reserved for it; it waits for workloads 1, 2, 3 and 4 there"
    );
    let promised = promise["starts_by_unix_ms"].as_u64().expect("a moment");
    // Small work that would be in its way past the moment waits behind it.
    let small = submit("bob", "5m");
    governed.until_state(&gang, "RUNNING");
    assert_eq!(governed.state(&small), "PENDING", "{}", governed.all());
    assert_eq!(governed.field(&gang, "NodeList"), "n[1-4]");
    // In time, but for the moment that the others take to leave and Slurm to start it; a busy machine takes longer.
    let attempt = governed.work(&gang)["history"][0].clone();
    assert_eq!(attempt["reason"], "rule 7: its reservation is due");
    let started = attempt["started_unix_ms"].as_u64().expect("its start");
    assert!(started < promised + 60_000, "promised {promised}: {attempt}");
    for job in &before {
        eventually("what it saved", || governed.output(job).contains("saved").then_some(()));
    }
}

#[test]
fn a_node_is_drained_at_the_end_of_protection() {
    if bursar_slurm_lab::skipped() {
        return;
    }
    let governed = Governed::with(BUDGETS, "");
    let args = ["--nodes=1", "--gpus=8", "--comment=min-runtime=15s;resumable"];
    let job = governed.sbatch("alice", &args, SAVES);
    governed.until_state(&job, "RUNNING");
    let host = governed.field(&job, "NodeList");
    governed.site().ask_well(&["host", "drain", &host, "--reason", "fans"]);
    eventually("that Slurm has it draining", || {
        let state =
            governed.lab.ok("svc", "sinfo", &["-h", "-N", "-n", &host, "-p", "main", "-o", "%T"]);
        (state == "draining").then_some(())
    });
    let reason =
        governed.lab.ok("svc", "sinfo", &["-h", "-N", "-n", &host, "-p", "main", "-o", "%E"]);
    assert_eq!(reason, "bursar: fans");
    // It goes on elsewhere, when its contract has ended and not before.
    let resumed = eventually("that it goes on", || {
        let output = governed.output(&job);
        output.lines().find(|line| line.starts_with("run 1 from ")).map(str::to_owned)
    });
    assert!(!resumed.ends_with(&format!("on {host}")), "{resumed}");
    let attempts = governed.work(&job)["history"].clone();
    let ran_ms = attempts[0]["ended_unix_ms"].as_u64().expect("its end")
        - attempts[0]["started_unix_ms"].as_u64().expect("its start");
    assert!((15_000..60_000).contains(&ran_ms), "{attempts}");
    eventually("that it is drained", || {
        let state =
            governed.lab.ok("svc", "sinfo", &["-h", "-N", "-n", &host, "-p", "main", "-o", "%T"]);
        (state == "drained").then_some(())
    });
    governed.site().ask_well(&["host", "undrain", &host]);
    eventually("that it is open", || {
        let state =
            governed.lab.ok("svc", "sinfo", &["-h", "-N", "-n", &host, "-p", "main", "-o", "%T"]);
        (state == "idle" || state == "mixed").then_some(())
    });
}

#[test]
fn sbatch_refuses_what_cannot_be() {
    if bursar_slurm_lab::skipped() {
        return;
    }
    let governed = Governed::with(BUDGETS, "");
    for (args, why) in [
        (
            &["--gpus=8", "--comment=min-runtime=8"][..],
            "min-runtime takes a time such as 30m, 8h or 1d12h",
        ),
        (&["--gpus=8", "--comment=min-runtime=1h"], "min-runtime is at most 600 s here"),
        (
            &["--gpus=8", "--time=2", "--comment=min-runtime=5m"],
            "min-runtime is longer than --time",
        ),
        (&["--gpus=8", "--comment=budget=nobody"], "there is no budget 'nobody'"),
        (&["--gpus=8", "--comment=urgent"], "'urgent' is no declaration"),
        (&["--gpus=8", "--partition=main,free"], "name one partition"),
        (&["--gpus=8", "--min-runtime=forever"], "min-runtime takes a time"),
        (
            &["--gpus=8", "--hold"],
            "Bursar decides when a job starts, and --hold has no meaning here",
        ),
        (&["--gpus=8", "-w", "n3"], "Bursar decides where a job runs"),
        (&["--gpus=8", "-x", "n3"], "Bursar decides where a job runs"),
        (&["--cpus-per-task=2"], "ask for GPUs (--gpus)"),
        (&["--gpus=1", ":", "--gpus=1"], "a heterogeneous job cannot be governed"),
    ] {
        let said = governed.refused("alice", args);
        assert!(said.contains(&format!("bursar: {why}")), "{args:?}: {said}");
    }
    // Options of sbatch are declarations, too; and nobody releases what is held.
    let job = governed.sbatch(
        "alice",
        &["--gpus=8", "--nodes=1", "--min-runtime=5m", "--begin=now+1hour"],
        SLEEPS,
    );
    let released = governed.lab.as_user("alice", "scontrol", &["release", &job]);
    assert!(!released.status.success(), "{released:?}");
    let work = governed.work(&job);
    assert_eq!(work["declared"]["min_runtime_ms"], 300_000, "{work}");
}
