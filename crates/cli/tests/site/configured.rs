//! `bursar up --config`, and SIGHUP.

use crate::{Site, bursar, eventually, folder};
use serde_json::json;
use std::fs;
use std::path::Path;

fn write(path: &Path, text: &str) {
    fs::write(path, text).expect("written");
}

#[test]
fn a_configuration_is_checked_used_and_read_again() {
    let dir = folder();
    let file = dir.path().join("bursar.yaml");
    let name = file.to_str().expect("text");
    write(&dir.path().join("tree.yaml"), "lab: {share: 1, members: [root]}\nother: {share: 3}\n");
    let config = |rest: &str| {
        format!(
            "name: cellar\ndata: site\nlisten: 127.0.0.1:0\nvirtual_gpus: 4\nvirtual_hosts: 2\nowner: root\nallow_root_work: true\nbudgets: tree.yaml\n{rest}"
        )
    };
    write(&file, &config("setings: {}\n"));
    let refused = bursar(&["config", "check", name]);
    assert_eq!(refused.code, Some(2));
    let line = format!(
        "bursar: {name}: line 9: unknown key 'setings'; the nearest valid key is 'settings'\n"
    );
    assert_eq!(refused.stderr, line);
    assert_eq!(bursar(&["up", "--config", name]).stderr, line);

    write(
        &file,
        &config(
            "settings: {horizon: 2h, default_min_runtime: 20m, warn_before: 1m}\nlog: {filter: warn}\n",
        ),
    );
    assert_eq!(bursar(&["config", "check", name]).stdout, format!("{name}: fine\n"));
    let site = Site::spawn(&mut crate::command(&["up", "--config", name]));
    let me = site.get("/v1/me");
    assert_eq!(me["site"], "cellar");
    let settings = |key: &str| site.get("/v1/me")["settings"][key].as_u64().expect("a number");
    assert_eq!(settings("horizon_ms"), 7_200_000);
    assert_eq!(settings("reservation_age_ms"), 3_600_000);
    assert_eq!(settings("default_min_runtime_ms"), 1_200_000);
    assert_eq!(me["may_submit_to"], json!(["lab", "other"]));

    // What can be changed is; of the rest it is said what to do.
    write(
        &file,
        &config("settings: {horizon: 3h, default_min_runtime: 30m, warn_before: 2m}\nlog: {filter: info}\n")
            .replace("127.0.0.1:0", "127.0.0.1:1"),
    );
    site.signal(rustix::process::Signal::HUP);
    eventually("the new settings", || {
        (settings("default_min_runtime_ms") == 1_800_000).then_some(())
    });
    assert_eq!((settings("warn_before_ms"), settings("horizon_ms")), (120_000, 7_200_000));
    for told in [
        "listen: was changed, but it counts when `bursar up` is started again",
        "settings.horizon: 3h is wanted, but the site was created with 2h",
        // The new filter lets this through.
        "was read again",
    ] {
        eventually(told, || site.said().contains(told).then_some(()));
    }
    // A file that is wrong changes nothing.
    write(&file, "listen: nowhere\n");
    site.signal(rustix::process::Signal::HUP);
    eventually("that it is wrong", || site.said().contains("nothing was changed").then_some(()));
    assert_eq!(settings("default_min_runtime_ms"), 1_800_000);
    let token = site.token.clone();
    assert_eq!(site.stop(), Some(0));

    // What is for ever is refused at a start, with both values.
    write(&file, &config("settings: {horizon: 3h}\n"));
    let refused = bursar(&["up", "--config", name]);
    assert_eq!(refused.code, Some(1));
    let said = refused.stderr.lines().last().unwrap_or_default();
    assert!(
        said.contains("settings.horizon: 3h is wanted, but the site was created with 2h"),
        "{said}"
    );

    // Flags win over the file; what was changed is still so after a restart.
    write(&file, &config(""));
    let other = dir.path().join("other");
    let flags = ["up", "--config", name, "--data", other.to_str().expect("text")];
    let elsewhere = Site::spawn(&mut crate::command(&flags));
    assert!(other.join("journal.db").exists());
    drop(elsewhere);
    let mut site = Site::spawn(&mut crate::command(&["up", "--config", name]));
    site.token = token;
    assert_eq!(site.get("/v1/me")["settings"]["default_min_runtime_ms"], 1_800_000);
    assert_eq!(site.get("/v1/me")["settings"]["warn_before_ms"], 120_000);
}
