//! Folders that are somebody else's, or another site's; tokens of an owner who has none.

use crate::{Site, bursar, command, finish, folder};
use serde_json::json;
use std::fs;

const FLAGS: [&str; 6] = ["--listen", "127.0.0.1:0", "--virtual-gpus", "4", "--virtual-hosts", "2"];

fn refused(args: &[&str]) -> String {
    let done = bursar(&[&["up"], args, &FLAGS].concat());
    assert_eq!(done.code, Some(1), "{}{}", done.stdout, done.stderr);
    done.stderr.trim_end().lines().last().unwrap_or_default().to_owned()
}

#[test]
fn a_folder_of_somebody_else_is_neither_used_nor_changed() {
    let dir = folder();
    let (data, work) = (dir.path().join("site"), dir.path().join("thesis"));
    let (data, work_text) = (data.to_str().expect("text"), work.to_str().expect("text"));
    fs::create_dir(&work).expect("made");
    fs::write(work.join("socket"), "of something else").expect("written");
    fs::write(work.join("thesis.tex"), "years of work").expect("written");
    let mode = crate::mode(&work);
    let said = refused(&["--data", data, "--work", work_text]);
    assert!(said.contains("is not Bursar's ('thesis.tex')"), "{said}");
    assert_eq!(crate::mode(&work), mode);
    assert_eq!(fs::read_to_string(work.join("socket")).expect("there"), "of something else");
    assert!(!work.join("checkpoints").exists());
}

#[test]
fn folders_of_one_site_are_not_anothers() {
    let dir = folder();
    let path = |name: &str| dir.path().join(name);
    let text = |name: &str| path(name).to_str().expect("text").to_owned();
    let flags = ["--work", &text("work"), "--owner", "root", "--allow-root-work"];
    let flags: Vec<&str> = flags.into_iter().chain(FLAGS[2..].iter().copied()).collect();
    let site = Site::up_with(&path("a"), &flags);
    let first = site.submit(json!({ "command": ["true"] }));
    site.until(first, "ended");
    let backup = text("early.db");
    assert_eq!(bursar(&["backup", &backup, "--data", &text("a")]).code, Some(0));
    let later =
        site.submit(json!({ "command": ["sh", "-c", "echo mine > $BURSAR_CHECKPOINT_DIR/saved"] }));
    site.until(later, "ended");
    let token = site.token.clone();
    assert_eq!(site.stop(), Some(0));

    let said = refused(&["--data", &text("b"), "--work", &text("work")]);
    assert!(said.contains("work belongs to another site"), "{said}");

    // An earlier state of the same site beside its folders: numbers are not given a second time.
    assert_eq!(bursar(&["restore", &backup, "--data", &text("c")]).code, Some(0));
    let mut site = Site::up_with(&path("c"), &flags);
    site.token = token;
    let next = site.submit(json!({ "command": ["sh", "-c", "ls $BURSAR_CHECKPOINT_DIR"] }));
    assert!(next > later, "{next} was given before, to somebody else");
    site.until(next, "ended");
    let log = site.get(&format!("/v1/workloads/{next}/log"));
    assert_eq!(log["text"], "", "nobody gets what somebody else saved");
}

#[test]
fn an_owner_without_a_token_gets_one() {
    let dir = folder();
    let data = dir.path().join("site");
    let data_text = data.to_str().expect("text");
    let site = Site::up(&data);
    let first = site.token.clone();
    site.kill();
    // Killed before anybody used it: perhaps nobody saw it.
    let site = Site::up(&data);
    assert!(site.said().contains("was never used and is void"), "{}", site.said());
    assert_eq!(crate::get(&site.url, &first, "/v1/me").expect("an answer").0, 401);
    site.get("/v1/me");
    let second = site.token.clone();
    let running = bursar(&["token", "recover", "--data", data_text]);
    assert_eq!(running.code, Some(2));
    assert!(running.stderr.contains("in use"), "{}", running.stderr);
    site.kill();
    let site = Site::up(&data);
    assert!(site.token.is_empty(), "one that was used stays");
    assert_eq!(site.stop(), Some(0));

    let recovered = bursar(&["token", "recover", "--data", data_text]);
    assert_eq!(recovered.code, Some(0), "{}", recovered.stderr);
    let (_, secret) = recovered.stdout.split_once("export BURSAR_TOKEN=").expect("a token");
    let mut site = Site::up(&data);
    for token in [secret.trim(), &second] {
        site.token = token.to_owned();
        assert_eq!(site.get("/v1/me")["operator"], true);
    }
    let mut list = command(&["token", "list"]);
    let list = finish(list.env("BURSAR_URL", &site.url).env("BURSAR_TOKEN", secret.trim()));
    assert!(list.stdout.contains("root-recovered-"), "{}", list.stdout);
}
