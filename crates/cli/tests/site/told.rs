//! What people are told: exit codes, why, errors for programs, and where a site is.

use crate::{Site, bursar, command, finish, folder};
use serde_json::{Value, json};

#[test]
fn who_follows_ends_as_the_command_did() {
    let dir = folder();
    let site = Site::up(&dir.path().join("site"));
    let run = |script: &str, flags: &[&str]| {
        let args = [&["run", "--follow", "--workdir", "/"], flags, &["--", "sh", "-c", script]];
        site.ask(&args.concat())
    };
    let done = run("echo out; exit 7", &["--label", "team=vision", "--env", "A=b"]);
    assert_eq!((done.code, &*done.stdout), (Some(7), "out\n"));
    assert!(done.stderr.contains("accepted: it starts at once"), "{}", done.stderr);
    assert!(done.stderr.contains("its command ended with exit code 7"), "{}", done.stderr);
    assert_eq!(run("kill -TERM $$", &[]).code, Some(143));
    assert_eq!(run("true", &[]).code, Some(0));
    assert_eq!(site.ask(&["wait", "1"]).code, Some(7));
    let missing = site.ask(&["run", "--follow", "--workdir", "/no/such", "--", "true"]);
    assert_eq!(missing.code, Some(1));
    assert!(missing.stderr.contains("could not be started"), "{}", missing.stderr);

    let why = site.ask_well(&["why", "1"]);
    assert!(why.starts_with("workload 1 ended ") && why.contains("exit code 7"), "{why}");
    let why: Value = serde_json::from_str(&site.ask_well(&["why", "1", "--json"])).expect("JSON");
    assert_eq!((&why["ended"]["exit_code"], &why["ending"]), (&json!(7), &json!("failed")));
    assert!(why["history"].is_null(), "{why}");
    let show = site.ask_well(&["show", "1"]);
    for part in ["command: sh -c 'echo out; exit 7'", "labels: team=vision", "environment: A\n"] {
        assert!(show.contains(part), "{part}: {show}");
    }
    let rows = site.ask_well(&["queue", "--all", "--label", "team=vision"]);
    assert_eq!(rows.lines().count(), 2, "{rows}");
}

#[test]
fn what_runs_and_what_waits_says_until_when_and_for_whom() {
    let dir = folder();
    let site = Site::up(&dir.path().join("site"));
    let long = site.submit(json!({"gpus": 2, "command": ["sleep", "600"]}));
    site.until(long, "protected");
    let why = site.ask_well(&["why", &long.to_string()]);
    assert!(why.starts_with("workload 1 runs, protected until ") && why.contains("(in "), "{why}");
    let after = site.ask_well(&["run", "--after", "1", "--dry-run", "--", "true"]);
    assert!(after.contains("it waits for workload 1 to end first"), "{after}");
    assert!(after.contains("of budget main"), "{after}");
    let array = site.ask_well(&["run", "--array", "0-9%4", "--dry-run", "--", "true"]);
    assert!(array.contains("2 of 10 start at once"), "{array}");
    site.ask_well(&["cancel", "1"]);
    site.until(long, "ended");
    let never = site.ask(&["run", "--after", "1", "--", "true"]);
    assert_eq!(never.code, Some(2));
    assert!(never.stderr.contains("after: workload 1 was cancelled"), "{}", never.stderr);
    let drained = site.ask_well(&["host", "drain", "virtual-2"]);
    assert_eq!(drained, "virtual-2 is empty now, and out of service\n");
}

#[test]
fn errors_are_objects_for_programs_and_name_what_to_do() {
    let dir = folder();
    let site = Site::up(&dir.path().join("site"));
    let done = site.ask(&["show", "99", "--json"]);
    let told: Value = serde_json::from_str(&done.stderr).expect("JSON");
    assert_eq!(
        (done.code, &told["code"], &told["status"]),
        (Some(2), &json!("not_found"), &json!(404))
    );
    assert!(told["message"].as_str().is_some_and(|text| text.contains("workload 99")), "{told}");
    let wrong = bursar(&["show", "abc", "--json"]);
    let told: Value = serde_json::from_str(&wrong.stderr).expect("JSON");
    assert_eq!((wrong.code, &told["code"]), (Some(2), &json!("input")));
    assert!(told["message"].as_str().is_some_and(|text| text.contains("not a number")), "{told}");

    let mut queue = command(&["queue"]);
    let by = queue.env("BURSAR_URL", site.url.trim_start_matches("http://"));
    let refused = finish(by.env("BURSAR_TOKEN", "bursar_nobodys"));
    assert_eq!(refused.code, Some(2));
    for part in [&*site.url, "the variable BURSAR_TOKEN", "does not know it"] {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    assert!(site.said().contains(&format!("export BURSAR_URL={}", site.url)), "{}", site.said());

    let nobody = site.ask(&["queue", "--budget", "mian"]);
    assert!(nobody.stderr.contains("the nearest is 'main'"), "{}", nobody.stderr);
    let file = dir.path().join("w.yaml");
    std::fs::write(&file, "workload:\n  name: w\n  gpus: two\n").expect("written");
    let submit = site.ask(&["submit", file.to_str().expect("text")]);
    assert!(
        submit.stderr.contains("line 3: workload.gpus: 'two' is not a whole number"),
        "{}",
        submit.stderr
    );

    // A tree that does not say what it was made from takes nothing away unasked.
    std::fs::write(&file, "other: {share: 1}\n").expect("written");
    let name = file.to_str().expect("text");
    let import = ["budget", "import", name, "--reason", "mine"];
    let refused = site.ask(&import);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("would remove main; give --base 1"), "{}", refused.stderr);
    let exported = site.ask_well(&["budget", "export", "--json"]);
    let exported: Value = serde_json::from_str(&exported).expect("JSON");
    assert_eq!(exported["version"], 1);
    site.ask_well(&[&import[..], &["--force-base"]].concat());
    let nowhere = bursar(&["check", "--data", "/no/such/site"]);
    assert_eq!(nowhere.code, Some(2));
    assert!(nowhere.stderr.contains("--data"), "{}", nowhere.stderr);
    assert_eq!(bursar(&["restore", "/no/such", "--data", name]).code, Some(2));
}
