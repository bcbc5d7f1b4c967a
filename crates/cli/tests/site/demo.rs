//! The demo shows what it promises.

use crate::{Site, command, get, within};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// It takes about half a minute on an idle machine.
const DEMO: Duration = Duration::from_secs(300);

fn works(url: &str, token: &str) -> Vec<Value> {
    let list = get(url, token, "/v1/workloads?all=true").expect("an answer").1;
    let numbers = list["workloads"].as_array().expect("a list").iter();
    let show = |work: &Value| get(url, token, &format!("/v1/workloads/{}", work["workload"]));
    numbers.map(|work| show(work).expect("an answer").1).collect()
}

/// From which step an attempt after the first went on.
fn resumed(url: &str, token: &str, work: &Value) -> Option<u64> {
    let attempts = work["history"].as_array()?.iter();
    let later = attempts.filter(|attempt| attempt["attempt"].as_u64() > Some(1));
    let steps = later.filter_map(|attempt| {
        let path = format!("/v1/workloads/{}/log?attempt={}", work["workload"], attempt["attempt"]);
        let log = get(url, token, &path)?.1;
        let line = log["text"].as_str()?.lines().find(|line| line.starts_with("resumed from"))?;
        line.split(' ').nth(3)?.parse().ok()
    });
    steps.max()
}

#[test]
fn the_demo_shows_queueing_protection_preemption_resume_and_drain() {
    let mut site = Site::spawn(&mut command(&["up", "--demo", "--listen", "127.0.0.1:0"]));
    let said = site.said();
    let (_, rest) = said.split_once("export BURSAR_TOKEN_FILE=").expect("where the token is");
    let token_file = PathBuf::from(rest.lines().next().expect("a path"));
    assert_eq!(crate::mode(&token_file), 0o600);
    let token = std::fs::read_to_string(&token_file).expect("a token");
    let (url, token) = (site.url.clone(), token.trim().to_owned());

    let (mut queued, mut protected, mut drained) = (false, false, false);
    let preempted = within(DEMO, "a preemption, a resume and a drain", || {
        let hosts = get(&url, &token, "/v1/hosts").expect("an answer").1;
        let hosts = hosts["hosts"].as_array().expect("hosts").clone();
        drained |= hosts.iter().any(|host| host["state"] == "drained");
        let works = works(&url, &token);
        queued |= works.iter().any(|work| work["state"] == "queued");
        protected |= works.iter().any(|work| work["state"] == "protected");
        let evictions = works
            .iter()
            .flat_map(|work| work["history"].as_array().expect("a history"))
            .map(|attempt| &attempt["eviction"]);
        let mut by_ratio = evictions.filter(|one| one["rule"] == 6 && one["side"].is_array());
        let preempted = by_ratio.next().cloned();
        let step = works.iter().filter_map(|work| resumed(&url, &token, work)).max();
        (queued && protected && drained && step > Some(0)).then_some(preempted).flatten()
    });
    // By whom, and the two ratios that were compared.
    assert!(preempted["by"].is_u64(), "{preempted}");
    let ratio = |side: &Value| side[1].as_str().and_then(|text| text.parse::<f64>().ok());
    let (ours, theirs) = (ratio(&preempted["side"]), ratio(&preempted["against"]));
    assert!(ours.expect("a ratio") + 0.05 <= theirs.expect("a ratio") + 0.0001, "{preempted}");

    // The same is told on the terminal.
    for word in ["submits", "waits", "starts", "preempted", "resumes", "drains", "drained"] {
        within(DEMO, word, || {
            site.said().lines().any(|line| line.contains(&format!("s  {word}"))).then_some(())
        });
    }
    let said = site.said();
    let resumes = said.lines().find(|line| line.contains("  resumes ")).expect("a line");
    assert!(resumes.contains(" from step "), "{resumes}");
    let by_ratio = said.lines().find(|line| line.contains("(rule 6): usage ratio of"));
    assert!(by_ratio.is_some_and(|line| line.contains(" for #")), "{said}");

    // Interrupted, it takes everything along.
    site.signal(rustix::process::Signal::INT);
    assert_eq!(site.ended(), Some(0), "{}", site.said());
    let folder = token_file.parent().expect("a folder");
    assert!(!folder.exists(), "{} is left", folder.display());
    let mark = folder.to_str().expect("text");
    for process in std::fs::read_dir("/proc").expect("processes").flatten() {
        let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
        let is_ours = String::from_utf8_lossy(&environment).contains(mark);
        assert!(!is_ours, "{} still runs", process.path().display());
    }
}
