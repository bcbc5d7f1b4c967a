//! `bursar token`.

use crate::{Site, command, finish, folder, mode};

#[test]
fn tokens_are_issued_used_and_made_void() {
    let dir = folder();
    let site = Site::up(&dir.path().join("site"));
    let file = dir.path().join("laptop.token");
    let file_name = file.to_str().expect("text");
    let said = site.ask_well(&["token", "issue", "laptop", "--expires", "30d", "--out", file_name]);
    assert_eq!(said, format!("token laptop is in {file_name}\n"));
    assert_eq!(mode(&file), 0o600);
    let by_file = |args: &[&str]| {
        let args = [args, &["--token-file", file_name]].concat();
        finish(command(&args).env("BURSAR_URL", &site.url))
    };
    assert_eq!(by_file(&["queue"]).code, Some(0));

    let said =
        site.ask_well(&["token", "issue", "watcher", "--user", "sue", "--read-only", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let secret = answer["secret"].as_str().expect("a secret").to_owned();
    let by_sue = |args: &[&str]| {
        finish(command(args).env("BURSAR_URL", &site.url).env("BURSAR_TOKEN", &secret))
    };
    assert_eq!(by_sue(&["queue"]).code, Some(0));
    let refused = by_sue(&["token", "issue", "more"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("'watcher' may only read"), "{}", refused.stderr);

    let list = site.ask_well(&["token", "list"]);
    let row = |name: &str| list.lines().find(|line| line.contains(name)).map(str::to_owned);
    let laptop = row("laptop").expect("a row");
    assert!(laptop.contains("expires in 29d") || laptop.contains("expires in 30d"), "{laptop}");
    assert!(row("watcher").is_some_and(|row| row.contains("sue") && !row.contains("change")));
    assert!(!list.contains("bursar_"), "{list}");

    assert_eq!(site.ask_well(&["token", "revoke", "laptop"]), "token laptop is void\n");
    assert_eq!(by_file(&["queue"]).code, Some(2));

    // A secret that cannot be kept is not left good.
    let nowhere = site.ask(&["token", "issue", "lost", "--out", "/proc/no/such/token"]);
    assert_eq!(nowhere.code, Some(2));
    let list = site.ask_well(&["token", "list"]);
    assert!(list.lines().any(|line| line.contains("lost") && line.contains("void")), "{list}");
}

#[test]
fn the_first_token_can_go_to_a_file_and_is_found_where_people_keep_it() {
    let dir = folder();
    let home = dir.path().join("config");
    let file = home.join("bursar/token");
    let flags =
        ["--virtual-gpus", "1", "--owner", "root", "--token-out", file.to_str().expect("text")];
    let site = Site::up_with(&dir.path().join("site"), &flags);
    assert!(!site.said().contains("bursar_"), "{}", site.said());
    assert_eq!(mode(&file), 0o600);
    let mut queue = command(&["queue"]);
    let done = finish(queue.env("BURSAR_URL", &site.url).env("XDG_CONFIG_HOME", &home));
    assert_eq!((done.code, &*done.stdout), (Some(0), "nothing waits or runs\n"));
    let done = finish(command(&["queue"]).env("BURSAR_URL", &site.url));
    assert_eq!(done.code, Some(2));
    assert!(done.stderr.starts_with("bursar: no token: set BURSAR_TOKEN"), "{}", done.stderr);
}

/// The first token is told once: a start that fails must not have made it.
#[test]
fn an_address_in_use_costs_nobody_the_first_token() {
    let dir = folder();
    let data = dir.path().join("site");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let data_name = data.to_str().expect("text");
    let args = ["up", "--data", data_name, "--listen", &address, "--virtual-gpus", "1"];
    let refused = finish(&mut command(&args));
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("cannot listen on") && refused.stderr.contains("--listen"));
    assert!(!data.exists(), "nothing was created");
    let site = Site::up(&data);
    assert!(!site.token.is_empty(), "the first token is told");
}
