//! What the clients of real releases printed, as it is read. Each folder of `fixtures` is a release; the mark in them is
//! `<5f0a>`. The array's name has a line end, a control character and bytes that are no UTF-8.

use bursar_engine::AttemptKey;
use bursar_slurm::Ending;
use bursar_slurm::read::{
    Gpus, Job, JobState, Mark, Node, Run, read_accounting, read_nodes, read_queue,
};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/22.05").join(name);
    fs::read(path).expect("a fixture")
}

fn mark() -> Mark {
    Mark::of("<5f0a>")
}

fn queue(name: &str) -> BTreeMap<String, Job> {
    let jobs = read_queue(&fixture(name), &mark()).expect("a queue");
    jobs.into_iter().map(|job| (job.id.clone(), job)).collect()
}

fn gpus(count: u32, model: Option<&str>) -> Gpus {
    Gpus { count, model: model.map(str::to_owned) }
}

#[test]
fn a_queue() {
    let jobs = queue("squeue-live");
    let ids: Vec<&str> = jobs.keys().map(String::as_str).collect();
    assert_eq!(ids, ["77_1", "77_2", "77_3", "77_4", "78", "79", "80"]);

    let waits = &jobs["77_1"];
    assert_eq!(
        (&waits.state, waits.held, &*waits.reason),
        (&JobState::Pending, true, "JobHeldUser")
    );
    assert_eq!(waits.name, "two\nlines|@ and \u{1f} \"q\" \u{fffd} AdminComment=bursar:1;tag=x");
    assert_eq!((&*waits.user, waits.uid, &*waits.account), ("alice", Some(20001), "research"));
    assert_eq!(waits.gpus, gpus(2, None));
    assert_eq!(waits.limit_ms, Some(36_000_000));
    assert_eq!(waits.arrival_name().as_deref(), Some("1796032495.780d6f6f1d569635_1"));
    let note = waits.note.as_ref().expect("a note");
    assert_eq!((note.min_runtime_s, note.resumable, note.throttle), (600, true, Some(2)));

    // A task that was started has a record of its own; its hold does nothing while it runs.
    let runs = &jobs["77_2"];
    assert_eq!((&runs.state, runs.held), (&JobState::Running, true));
    assert_eq!((runs.started, &*runs.nodes), (Some(1_796_032_496), &["n3".to_owned()][..]));
    assert_eq!(runs.gpus, gpus(2, Some("h100")));
    let claim = runs.note.as_ref().and_then(|note| note.claim.clone());
    assert_eq!(claim, AttemptKey::new("17", 1).ok());
    assert_eq!(runs.log.as_deref(), Some(Path::new("/shared/jobs/slurm-77_2.out")));

    let gang = &jobs["78"];
    assert_eq!((gang.shape, gang.hosts, &gang.gpus), (Some((2, 8)), 2, &gpus(16, Some("h100"))));
    assert_eq!(gang.dependency.as_deref(), Some("afterok:77_*(unfulfilled)"));
    assert_eq!(gang.note.as_ref().and_then(|note| note.budget.as_deref()), Some("lab/vision"));

    let later = &jobs["79"];
    assert_eq!((later.eligible, later.limit_ms), (Some(1_796_036_095), None));
    assert_eq!(jobs["80"].gpus, gpus(8, None));
}

#[test]
fn a_run_that_ended_and_one_that_was_put_back() {
    let ended = &queue("squeue-ended")["77_2"];
    assert_eq!(ended.state, JobState::Ended(Ending::Failed));
    assert_eq!((ended.started, ended.ended), (Some(1_796_032_496), Some(1_796_032_498)));
    assert_eq!((ended.wait_status, ended.restarts), (3 << 8, 0));
    let back = &queue("squeue-back")["77_2"];
    assert_eq!((&back.state, back.held, back.restarts), (&JobState::Pending, true, 1));
    assert_eq!(back.arrival_name(), ended.arrival_name());
}

#[test]
fn accounts() {
    let runs = read_accounting(&fixture("sacct"), &mark()).expect("accounts");
    let [first, second]: [Run; 2] = runs.try_into().expect("two runs");
    assert_eq!((first.ending, first.code, first.signal), (Some(Ending::Requeued), 3, 0));
    assert_eq!((first.started, first.ended), (Some(1_796_032_496), Some(1_796_032_504)));
    assert_eq!((&*first.job, &*first.nodes, &first.gpus), ("77_2", "n3", &gpus(2, Some("h100"))));
    // Cancelled before it ran.
    assert_eq!((second.ending, second.started), (Some(Ending::Cancelled), None));
    assert_eq!(second.nodes, "");
    let claim = |run: Run| run.note.and_then(|note| note.claim).map(|claim| claim.attempt());
    assert_eq!((claim(first), claim(second)), (Some(1), Some(2)));
}

#[test]
fn nodes() {
    let nodes = read_nodes(&fixture("sinfo"), &mark()).expect("nodes");
    let shown = |node: &Node| {
        let reason = node.reason.as_deref().unwrap_or("-");
        format!("{} {} {} {reason}", node.name, node.gpus.count, node.drains())
    };
    let shown: Vec<String> = nodes.iter().map(shown).collect();
    assert_eq!(
        shown,
        [
            "n1 8 false -",
            "n2 8 true bursar: cordoned",
            "n3 8 false -",
            "n4 8 true a | disk, \"broken"
        ]
    );
    assert!(
        nodes.iter().all(|node| node.gpus.model.as_deref() == Some("h100") && !node.is_broken())
    );
}
