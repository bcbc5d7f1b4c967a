//! Ctrl-C leaves nothing.

use crate::{command, files, folder, scenario};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

fn interrupted(args: &[&str]) {
    let folder = folder();
    let child =
        command(folder.path(), args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while files(folder.path()).is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60), "no file was begun");
        sleep(Duration::from_millis(5));
    }
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let done = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(130), "{stderr}");
    assert_eq!(stderr, "bursar: interrupted; nothing was written\n");
    assert!(done.stdout.is_empty());
    assert_eq!(files(folder.path()), Vec::<String>::new());
}

#[test]
fn a_run_that_is_interrupted_leaves_nothing() {
    let month = scenario("month.yaml");
    let outputs = ["--summary", "s.json", "--events", "e.jsonl", "--html", "r.html"];
    let mut args = vec!["simulate", &month, "--policy", "budget", "--policy", "levels"];
    args.extend(outputs);
    interrupted(&args);
}

#[test]
fn a_grid_that_is_interrupted_leaves_nothing() {
    let month = scenario("month.yaml");
    interrupted(&[
        "simulate",
        &month,
        "--sweep",
        "lookback=1d,2d,3d,4d,5d,6d",
        "--summary",
        "s.json",
    ]);
}
