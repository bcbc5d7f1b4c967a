//! Work that tells what it saved and how far it is.

use crate::{Site, bursar, command, eventually, finish, folder};
use serde_json::{Value, json};

const BURSAR: &str = env!("CARGO_BIN_EXE_bursar");

#[test]
fn work_reports_without_anybodys_token_and_only_about_itself() {
    let dir = folder();
    let site = Site::up(&dir.path().join("site"));
    let seen = dir.path().join("env");
    let script = format!(
        "until \"$1\" report --checkpoint --progress 'step 3 of 9'; do sleep 0.2; done; env > {0}.new && mv {0}.new {0} && sleep 600",
        seen.display()
    );
    let number = site.submit(json!({ "command": ["sh", "-c", script, "work", BURSAR] }));
    eventually("what the work sees", || seen.exists().then_some(()));
    let work = site.work(number);
    assert!(work["history"][0]["checkpoint_unix_ms"].is_u64(), "{work}");
    assert_eq!(work["progress"]["text"], "step 3 of 9");
    let shown = site.ask_well(&["show", &number.to_string()]);
    assert!(shown.contains("it says: step 3 of 9"), "{shown}");

    let env = std::fs::read_to_string(&seen).expect("written");
    let value = |name: &str| {
        let line = env.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
        line.unwrap_or_else(|| panic!("{name} is not set")).to_owned()
    };
    let (socket, secret) = (value("BURSAR_SOCKET"), value("BURSAR_REPORT_TOKEN"));
    // The secret opens nothing else.
    let (status, _) = crate::get(&site.url, &secret, "/v1/me").expect("an answer");
    assert_eq!(status, 401);
    let report = |secret: &str| {
        let mut command = command(&["report", "--checkpoint"]);
        finish(command.env("BURSAR_SOCKET", &socket).env("BURSAR_REPORT_TOKEN", secret))
    };
    assert_eq!(report(&secret).code, Some(0));
    let forged = secret.replacen(&format!("{number}.1."), &format!("{}.1.", number + 1), 1);
    let refused = report(&forged);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("send the attempt's own secret"), "{}", refused.stderr);

    // After its end it has nothing to say.
    site.ask_well(&["cancel", &number.to_string()]);
    site.until(number, "ended");
    let refused = report(&secret);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("attempt 1 of workload 1 does not run"), "{}", refused.stderr);

    // Nor has who is outside.
    let outside = bursar(&["report", "--checkpoint"]);
    assert_eq!(outside.code, Some(2));
    assert!(outside.stderr.contains("does not run inside a workload"), "{}", outside.stderr);
    let checkpoints = site.get("/v1/audit");
    let entries = checkpoints["entries"].as_array().expect("entries").iter();
    let told: Vec<&Value> =
        entries.filter(|entry| entry["what"]["kind"] == "checkpointed").collect();
    assert!(told.iter().all(|entry| entry["actor"] == format!("workload/{number}")), "{told:?}");
    assert!(!told.is_empty());
}

#[test]
fn a_daemon_that_comes_back_takes_reports_of_work_that_stayed() {
    let dir = folder();
    let data = dir.path().join("site");
    let site = Site::up(&data);
    let go = dir.path().join("go");
    let script = format!(
        "while [ ! -e {} ]; do sleep 0.1; done; \"$1\" report --checkpoint && sleep 600",
        go.display()
    );
    let number = site.submit(json!({ "command": ["sh", "-c", script, "work", BURSAR] }));
    site.until(number, "protected");
    let token = site.token.clone();
    site.kill();
    let mut site = Site::up(&data);
    site.token = token;
    std::fs::write(&go, "").expect("written");
    eventually("its report", || {
        site.work(number)["history"][0]["checkpoint_unix_ms"].is_u64().then_some(())
    });
    site.ask_well(&["cancel", &number.to_string()]);
    site.until(number, "ended");
}

/// Root's daemon runs work of others, who cannot enter its data folder.
#[test]
fn work_of_another_user_saves_and_reports() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not tested: only root can start work as somebody else");
        return;
    }
    let dir = folder();
    // As everybody may pass through where data usually lies.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).expect("a folder");
    let data = dir.path().join("site");
    let site = Site::up_with(&data, &["--virtual-gpus", "1", "--owner", "nobody"]);
    assert_eq!((crate::mode(&data), crate::mode(&dir.path().join("site-work"))), (0o700, 0o711));
    // The binary may lie where only root can go: plain `curl` would do, if everybody had it.
    let script = "id -un && echo saved > \"$BURSAR_CHECKPOINT_DIR/step\" && test -S \"$BURSAR_SOCKET\" && echo fine";
    let number = site.submit(json!({ "command": ["sh", "-c", script] }));
    let work = site.until(number, "ended");
    assert_eq!(work["ending"], "completed", "{work}");
    let log = site.get(&format!("/v1/workloads/{number}/log"));
    assert_eq!(log["text"], "nobody\nfine\n");
}
