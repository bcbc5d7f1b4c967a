//! Disks that are full, and disks that fail.
//!
//! The first is a small file system in a user namespace of its own, the second a limit on the size
//! of files: writes beyond it fail as those to a broken disk do. Both run this binary again as a
//! child. Where the system offers no namespaces, the first says so and passes.

use std::path::Path;
use std::process::{Command, Output};

use bursar_store::{NewRecord, Store, StoreError, StoreErrorKind, restore};
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

const BODY: usize = 5000;

fn append(store: &mut Store) -> Result<u64, StoreError> {
    let body = format!("{}{}", store.head().seq + 1, "x".repeat(BODY));
    store.append(&[NewRecord { at_ms: 0, kind: "count", version: 1, body: &body }])
}

fn append_until_refused(store: &mut Store) -> StoreError {
    for _ in 0..100_000 {
        if let Err(error) = append(store) {
            return error;
        }
    }
    panic!("no end of room");
}

fn check(store: &Store) {
    let mut seq = 0;
    for record in store.read_from(1) {
        seq += 1;
        assert!(record.unwrap().body.starts_with(&format!("{seq}xxx")));
    }
    assert_eq!(seq, store.head().seq);
}

fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Pcg64Mcg::seed_from_u64(1).fill_bytes(&mut bytes);
    bytes
}

fn is_full(error: &StoreError) -> bool {
    matches!(error.kind(), StoreErrorKind::Full { .. })
}

/// In a file system of two megabytes.
fn run_full(dir: &Path) {
    let filler = dir.join("filler");
    let site = dir.join("site");
    std::fs::write(&filler, noise(600_000)).unwrap();
    let mut store = Store::create(&site).unwrap();
    let error = append_until_refused(&mut store);
    assert!(is_full(&error), "{error:?}");
    let head = store.head();
    check(&store);
    assert!(is_full(&append(&mut store).unwrap_err()));
    assert_eq!(store.head(), head);

    let error = store.backup(dir.join("backup.db")).unwrap_err();
    assert!(is_full(&error), "{error:?}");
    std::fs::remove_file(&filler).unwrap();
    let mut names: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["site"]);

    // With room again, it goes on.
    assert_eq!(append(&mut store).unwrap(), head.seq + 1);
    store.put_snapshot(head.seq, b"state").unwrap();
    let error = store.put_snapshot(head.seq + 1, &noise(3_000_000)).unwrap_err();
    assert!(is_full(&error), "{error:?}");
    append(&mut store).unwrap();
    check(&store);
    let head = store.head();
    drop(store);

    let store = Store::open(&site).unwrap();
    assert_eq!(store.head(), head);
    check(&store);
    assert_eq!(store.latest_snapshot().unwrap().unwrap().bytes, b"state");
    drop(store);

    // A folder that has no room for a restored journal does not hold half of one.
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    let from = outside.path().join("backup.db");
    Store::open(&site).unwrap().backup(&from).unwrap();
    std::fs::write(&filler, noise(2_000_000)).unwrap_err();
    let error = restore(&from, dir.join("second")).unwrap_err();
    assert!(is_full(&error), "{error:?}");
    assert!(!dir.join("second/journal.db").exists());
}

/// Where no file may grow beyond half a megabyte.
fn run_failing(dir: &Path) {
    let mut store = Store::create(dir.join("site")).unwrap();
    let error = append_until_refused(&mut store);
    assert!(matches!(error.kind(), StoreErrorKind::Io { .. }), "{error:?}");
    let head = store.head();
    let error = append(&mut store).unwrap_err();
    assert!(matches!(error.kind(), StoreErrorKind::Poisoned { .. }), "{error:?}");
    assert_eq!(store.head(), head);
    check(&store);
    // What is there can still be saved.
    assert_eq!(store.backup(dir.join("backup.db")).unwrap(), head);
    std::fs::write(dir.join("confirmed"), head.seq.to_string()).unwrap();
}

#[test]
#[ignore = "the child of the other tests: does nothing by itself"]
fn child() {
    let Some(dir) = std::env::var_os("BURSAR_FULL_DIR") else { return };
    match std::env::var("BURSAR_FULL_CHILD").unwrap().as_str() {
        "full" => run_full(Path::new(&dir)),
        "failing" => run_failing(Path::new(&dir)),
        other => panic!("{other}"),
    }
}

/// Runs `child` from a shell, after `setup`.
fn run(program: &[&str], setup: &str, dir: &Path, what: &str) -> Output {
    Command::new(program[0])
        .args(&program[1..])
        .arg(format!(r#"{setup} && exec "$0" child --exact --ignored"#))
        .arg(std::env::current_exe().unwrap())
        .env("BURSAR_FULL_DIR", dir)
        .env("BURSAR_FULL_CHILD", what)
        .output()
        .unwrap()
}

fn assert_passed(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{errors}");
}

#[test]
fn a_full_disk_loses_nothing_and_the_store_goes_on_when_there_is_room() {
    const NAMESPACE: [&str; 6] = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"];
    const MOUNT: &str = r#"mount -t tmpfs -o size=2m tmpfs "$BURSAR_FULL_DIR""#;
    let dir = tempfile::tempdir().unwrap();
    let trial = Command::new(NAMESPACE[0])
        .args(&NAMESPACE[1..])
        .arg(MOUNT)
        .env("BURSAR_FULL_DIR", dir.path())
        .output();
    if !trial.is_ok_and(|output| output.status.success()) {
        println!("skipped: no user namespace to mount a small file system in");
        return;
    }
    assert_passed(&run(&NAMESPACE, MOUNT, dir.path(), "full"));
}

#[test]
fn a_failing_disk_stops_the_store_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // Without the trap, the limit would be a signal that kills.
    let setup = "trap '' XFSZ && ulimit -f 1000";
    assert_passed(&run(&["sh", "-c"], setup, dir.path(), "failing"));

    let confirmed: u64 =
        std::fs::read_to_string(dir.path().join("confirmed")).unwrap().parse().unwrap();
    let mut store = Store::open(dir.path().join("site")).unwrap();
    assert!(store.head().seq >= confirmed && confirmed > 20, "{confirmed}");
    check(&store);
    append(&mut store).unwrap();
}
