//! What Slurm does not start, and what is wrong with a configuration: both say so, and soon.

use crate::eventually;
use crate::governed::{Governed, SLEEPS};

const BUDGETS: &str = "research: {share: 3}\nproduct: {share: 1}\n";

#[test]
fn a_start_that_slurm_refuses_backs_off_with_its_words_and_others_pass() {
    if bursar_slurm_lab::skipped() {
        return;
    }
    let governed = Governed::with(BUDGETS, "");
    // No node has as many processors; Slurm finds out when it is to start it.
    let asks = ["--gpus=1", "--cpus-per-task=65", "--comment=min-runtime=1m"];
    let never = governed.sbatch("alice", &asks, SLEEPS);
    let number = governed.number(&never);
    let why = eventually("that it waits a while", || {
        let why = governed.why(&never);
        why.contains("it is tried again in").then_some(why)
    });
    assert!(why.contains("BadConstraints") && !why.contains("None"), "{why}");
    let work = governed.site().work(number);
    let attempts = work["history"].as_array().map_or(0, Vec::len);
    assert!((2..=3).contains(&attempts), "{work:#}");
    assert_eq!(work["charged_gpu_ms"], 0, "{work:#}");
    // Behind it in the same budget, and on all GPUs.
    let next =
        governed.sbatch("alice", &["--nodes=4", "--gpus=32", "--comment=min-runtime=1m"], SLEEPS);
    governed.until_state(&next, "RUNNING");
    // It is there, waits, and can be cancelled by its user.
    assert_eq!(governed.state(&never), "PENDING");
    governed.lab.ok("alice", "scancel", &[&never]);
    governed.until_ended_without_a_run(&never, "cancelled");
}

#[test]
fn an_account_that_is_said_to_be_no_budget_is_told_at_once() {
    if bursar_slurm_lab::skipped() {
        return;
    }
    let mut governed = Governed::not_yet(BUDGETS, "");
    governed.tell_slurm("  accounts: {ml: research/nowhere}\n");
    governed.configure("watch");
    let said = governed.try_up(&[]).expect_err("a budget that is none");
    assert!(said.contains("slurm.accounts: ml: there is no budget 'research/nowhere'"), "{said}");
}

#[test]
fn what_its_user_holds_back_is_no_demand_while_it_is_watched() {
    if bursar_slurm_lab::skipped() {
        return;
    }
    let mut governed = Governed::not_yet(BUDGETS, "default_min_runtime: 5m");
    let runs = governed.sbatch("carol", &["--gpus=1"], SLEEPS);
    governed.until_state(&runs, "RUNNING");
    let held = governed.sbatch("alice", &["--gpus=1", "--hold"], SLEEPS);
    let later = governed.sbatch("alice", &["--gpus=1", "--begin=now+1hour"], SLEEPS);
    let depends = format!("--dependency=afterok:{runs}");
    let after = governed.sbatch("alice", &["--gpus=1", &depends], SLEEPS);
    governed.configure("watch");
    governed.up();
    governed.number(&runs);
    let names = || {
        let all = governed.site().get("/v1/workloads?all=true&limit=1000");
        let all = all["workloads"].as_array().expect("a list").clone();
        all.iter().map(|one| one["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    let known = names();
    for job in [&held, &later, &after] {
        assert!(!known.contains(&governed.field(job, "Name")), "{job}: {known:?}");
    }
    governed.lab.ok("alice", "scontrol", &["release", &held]);
    governed.number(&held);
    let known = names();
    for job in [&later, &after] {
        assert!(!known.contains(&governed.field(job, "Name")), "{job}: {known:?}");
    }
}
