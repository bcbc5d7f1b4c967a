//! Two of them on one cluster, by mistake.

use crate::governed::{Governed, SLEEPS};
use crate::{eventually, get};

const BUDGETS: &str = "research: {share: 3}\nproduct: {share: 1}\n";

/// Whether its latest round went well.
fn is_ready(governed: &Governed) -> bool {
    let answer = get(&governed.site().url, "", "/readyz").expect("an answer");
    answer.0 < 400
}

#[test]
fn one_cluster_has_one_bursar() {
    if bursar_slurm_lab::skipped() {
        return;
    }
    let first = Governed::with(BUDGETS, "");
    let job = first.sbatch("alice", &["--gpus=8", "--comment=min-runtime=5m"], SLEEPS);
    first.until_state(&job, "RUNNING");
    // With its own data, as on another machine.
    let mut second = first.beside(BUDGETS);
    let said = second.try_up(&[]).expect_err("it is governed");
    assert!(said.contains("another Bursar governs these nodes: site "), "{said}");
    assert!(said.contains("--take-over"), "{said}");
    assert!(is_ready(&first));
    // Told that it may, it governs, and the other one orders nothing more.
    second.try_up(&["--take-over"]).expect("it comes up");
    eventually("that the second one is ready", || is_ready(&second).then_some(()));
    eventually("that the first one is not", || (!is_ready(&first)).then_some(()));
    let said = first.site().said();
    assert!(said.contains("another Bursar governs these nodes"), "{said}");
    // What ran under the first one runs on, and is charged.
    let found = second.work(&job);
    assert_eq!(second.state(&job), "RUNNING", "{}", second.all());
    let found = eventually("that it is found", || {
        let work = second.site().work(found["workload"].as_u64()?);
        (work["history"][0]["started_unix_ms"].is_u64()).then_some(work)
    });
    assert_eq!(found["history"].as_array().map(Vec::len), Some(1), "{found}");
    // The number is one that the first one gave, too.
    let next = second.sbatch("bob", &["--gpus=8", "--comment=min-runtime=5m"], SLEEPS);
    second.until_state(&next, "RUNNING");
    assert_eq!(second.state(&job), "RUNNING", "{}", second.all());
    assert!(!is_ready(&first));
}
