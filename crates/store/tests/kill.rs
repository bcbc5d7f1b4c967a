//! A journal whose process is killed at any moment holds what it confirmed, and nothing torn.
//!
//! This binary runs itself again as a child that appends and says so; the parent kills it. Where the
//! kill falls is drawn from a seed: after so many confirmations and so many turns of a loop.
//! `BURSAR_KILL_ROUNDS` asks for more rounds, `BURSAR_KILL_SEED` for another draw.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use bursar_store::{Check, NewRecord, Store};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use rusqlite::Connection;

/// The record with this number, the same in both processes.
fn content(seq: u64) -> (u64, String) {
    let long = Pcg64Mcg::seed_from_u64(seq).random_range(0..3000);
    (seq / 3, format!(r#"{{"number":{seq},"text":"{}"}}"#, "x".repeat(long)))
}

fn state(seq: u64) -> Vec<u8> {
    let mut rng = Pcg64Mcg::seed_from_u64(seq);
    (0..rng.random_range(0..20_000)).map(|_| rng.random()).collect()
}

fn say(what: &str, seq: u64) {
    let mut out = std::io::stdout().lock();
    // The harness may have begun a line.
    writeln!(out, "\nchild: {what} {seq}").and_then(|()| out.flush()).unwrap();
}

fn append_for_ever(dir: &Path, seed: u64) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    say("starts", 0);
    let mut store = Store::open_or_create(dir, Check::Tail).unwrap();
    loop {
        let first = store.head().seq + 1;
        let last = first + rng.random_range(0..16);
        let contents: Vec<(u64, String)> = (first..=last).map(content).collect();
        let new: Vec<NewRecord<'_>> = contents
            .iter()
            .map(|(at_ms, body)| NewRecord { at_ms: *at_ms, kind: "count", version: 1, body })
            .collect();
        assert_eq!(store.append(&new).unwrap(), first);
        say("appended", last);
        if rng.random_ratio(1, 6) {
            store.put_snapshot(last, &state(last)).unwrap();
            say("kept", last);
        }
    }
}

#[test]
#[ignore = "the child of the other tests: does nothing by itself"]
fn child() {
    let Some(dir) = std::env::var_os("BURSAR_KILL_DIR") else { return };
    let seed = std::env::var("BURSAR_KILL_CHILD").unwrap().parse().unwrap();
    match seed {
        0 => {
            say("starts", 0);
            drop(Store::open(dir).unwrap());
            say("opened", 0);
        }
        seed => append_for_ever(Path::new(&dir), seed),
    }
}

fn spawn(dir: &Path, seed: u64) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--ignored", "--nocapture"])
        .env("BURSAR_KILL_DIR", dir)
        .env("BURSAR_KILL_CHILD", seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    (child, out)
}

/// What the child said: a word and a number.
fn parse(line: &str) -> Option<(&str, u64)> {
    let (word, seq) = line.strip_prefix("child: ")?.split_once(' ')?;
    Some((word, seq.parse().ok()?))
}

fn spin(turns: u32) {
    for turn in 0..turns {
        std::hint::black_box(turn);
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

#[test]
fn what_was_confirmed_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let site = dir.path().join("site");
    let seed = setting("BURSAR_KILL_SEED", 1);
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let (mut appended, mut kept) = (0, 0);
    for round in 1..=setting("BURSAR_KILL_ROUNDS", 20) {
        // The first rounds are likely to fall into the making of the journal.
        let lines = if round <= 3 { 1 } else { rng.random_range(1..60) };
        let turns = rng.random_range(0..4_000_000);
        let (mut child, out) = spawn(&site, round);
        let mut said = 0;
        for line in out.lines() {
            let line = line.unwrap();
            let Some((word, seq)) = parse(&line) else { continue };
            match word {
                "appended" => appended = seq,
                "kept" => kept = seq,
                _ => {}
            }
            said += 1;
            // What comes after is still in the pipe, and counts.
            if said == lines {
                spin(turns);
                child.kill().unwrap();
            }
        }
        let status = child.wait().unwrap();
        assert_eq!(status.code(), None, "seed {seed} round {round}: the child ended by itself");

        let store = Store::open_or_create(&site, Check::Full).unwrap();
        let head = store.head();
        assert!(
            head.seq >= appended,
            "seed {seed} round {round}: {appended} were confirmed, {} are there",
            head.seq
        );
        let mut next = 1;
        for record in store.read_from(1) {
            let record = record.unwrap();
            assert_eq!((record.seq, (record.at_ms, record.body)), (next, content(next)));
            next += 1;
        }
        assert_eq!(next, head.seq + 1);
        match store.latest_snapshot().unwrap() {
            Some(snapshot) => {
                assert!(snapshot.seq >= kept, "seed {seed} round {round}");
                assert_eq!(snapshot.bytes, state(snapshot.seq));
            }
            None => assert_eq!(kept, 0, "seed {seed} round {round}"),
        }
        assert_eq!(store.verify(&mut |_| ()).unwrap().snapshots_damaged, 0);
        appended = head.seq;
    }
    assert!(appended > 100, "only {appended} records were appended");
}

#[test]
fn a_migration_that_is_killed_is_done_anew() {
    const RECORDS: u64 = 4000;
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("old.db");
    let connection = Connection::open(&old).unwrap();
    connection.execute_batch(include_str!("../fixtures/schema-1.sql")).unwrap();
    connection.execute_batch("BEGIN; DELETE FROM record").unwrap();
    for seq in 1..=RECORDS {
        let (at_ms, body) = content(seq);
        let row = (seq.cast_signed(), at_ms.cast_signed(), body);
        connection.execute("INSERT INTO record VALUES (?1, ?2, 'count', 1, ?3)", row).unwrap();
    }
    connection.execute_batch("COMMIT").unwrap();
    connection.close().unwrap();

    let mut rng = Pcg64Mcg::seed_from_u64(setting("BURSAR_KILL_SEED", 1));
    for round in 0..8 {
        let site = dir.path().join(format!("site-{round}"));
        std::fs::create_dir(&site).unwrap();
        std::fs::copy(&old, site.join("journal.db")).unwrap();
        let (mut child, out) = spawn(&site, 0);
        for line in out.lines() {
            if parse(&line.unwrap()) == Some(("starts", 0)) {
                spin(rng.random_range(0..200_000_000));
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();

        let store = Store::open(&site).unwrap();
        assert_eq!(store.head().seq, RECORDS);
        for (record, seq) in store.read_from(1).zip(1..) {
            let record = record.unwrap();
            assert_eq!((record.at_ms, record.body), content(seq));
        }
        let kept = Connection::open(site.join("journal.schema-1.db")).unwrap();
        let count: u64 = kept
            .query_row("SELECT count(*) FROM record", [], |row| row.get::<_, u32>(0))
            .unwrap()
            .into();
        assert_eq!(count, RECORDS);
        drop(kept);
        let mut names: Vec<_> = std::fs::read_dir(&site)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.starts_with("journal.db"))
            .collect();
        names.sort();
        assert_eq!(names, ["journal.schema-1.db", "lock", "mark"]);
    }
}

/// A power cut, unlike a kill, may also take what was written and not yet synced. Of the log that is
/// some end; the part that an earlier append synced stays.
#[test]
fn what_was_synced_survives_a_torn_log() {
    let dir = tempfile::tempdir().unwrap();
    let site = dir.path().join("site");
    let image = dir.path().join("image");
    let mut rng = Pcg64Mcg::seed_from_u64(setting("BURSAR_KILL_SEED", 1));
    let mut store = Store::create(&site).unwrap();
    let wal = site.join("journal.db-wal");
    let log_length = || wal.metadata().map_or(0, |log| log.len());
    let take_image = |cut: u64, garbage: &[u8], mark: Option<&[u8]>| {
        let _ = std::fs::remove_dir_all(&image);
        std::fs::create_dir(&image).unwrap();
        std::fs::copy(site.join("journal.db"), image.join("journal.db")).unwrap();
        let mut log = std::fs::read(&wal).unwrap();
        log.truncate(usize::try_from(cut).unwrap());
        log.extend_from_slice(garbage);
        std::fs::write(image.join("journal.db-wal"), log).unwrap();
        if let Some(mark) = mark {
            std::fs::write(image.join("mark"), mark).unwrap();
        }
    };
    let mut refused = 0;
    for _ in 0..60 {
        let confirmed = store.head().seq;
        let synced = log_length();
        let mark = std::fs::read(site.join("mark")).unwrap();
        let contents: Vec<(u64, String)> =
            (confirmed + 1..=confirmed + rng.random_range(1..5)).map(content).collect();
        let new: Vec<NewRecord<'_>> = contents
            .iter()
            .map(|(at_ms, body)| NewRecord { at_ms: *at_ms, kind: "count", version: 1, body })
            .collect();
        store.append(&new).unwrap();
        let written = log_length();
        assert!(written > synced, "the log began anew: this test wants it to grow");

        let garbage: Vec<u8> = (0..rng.random_range(0..5000)).map(|_| rng.random()).collect();
        take_image(rng.random_range(synced..written), &garbage, Some(&mark));
        let survivor = Store::open(&image).unwrap();
        assert_eq!(survivor.head().seq, confirmed);
        drop(survivor);

        // A disk that lost what it had confirmed: the mark tells. Without one, nothing can.
        let cut = rng.random_range(0..=synced);
        take_image(cut, &[], None);
        let found = Store::open(&image).unwrap().head().seq;
        assert!(found <= confirmed);
        take_image(cut, &[], Some(&mark));
        let outcome = Store::open(&image);
        assert_eq!(outcome.is_ok(), found == confirmed);
        refused += u32::from(outcome.is_err());
    }
    assert!(refused > 30, "only {refused}");
}
