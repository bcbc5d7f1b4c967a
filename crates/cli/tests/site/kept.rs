//! Backups, restores, checks; old and damaged folders.

use crate::{Site, bursar, eventually, fixture, folder};
use serde_json::json;
use std::fs;
use std::path::Path;

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

fn one_line(text: &str) -> bool {
    text.trim_end().lines().count() == 1
}

#[test]
fn a_backup_of_a_site_that_is_up_is_restored_to_the_same() {
    let dir = folder();
    let data = dir.path().join("site");
    let site = Site::up(&data);
    let done = site.submit(json!({ "command": ["true"] }));
    let ended = site.until(done, "ended");
    let runs = site.submit(json!({ "command": ["sleep", "600"] }));
    site.until(runs, "protected");
    let backup = dir.path().join("night.db");
    let made = bursar(&["backup", text(&backup), "--data", text(&data)]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    assert_eq!(crate::mode(&backup), 0o600);
    // The site goes on meanwhile and after.
    let later = site.submit(json!({ "command": ["true"] }));
    site.until(later, "ended");
    let checked = bursar(&["check", "--data", text(&data)]);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    assert!(checked.stdout.contains("whole: "), "{}", checked.stdout);
    assert_eq!(bursar(&["check", "--backup", text(&backup)]).code, Some(0));

    // Not into a folder that holds something.
    let refused = bursar(&["restore", text(&backup), "--data", text(&data)]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("is not empty: restore into a new or an empty folder"));
    assert!(one_line(&refused.stderr), "{}", refused.stderr);

    let token = site.token.clone();
    site.ask_well(&["cancel", &runs.to_string()]);
    site.until(runs, "ended");
    assert_eq!(site.stop(), Some(0));
    let again = dir.path().join("again");
    let restored = bursar(&["restore", text(&backup), "--data", text(&again)]);
    assert_eq!(restored.code, Some(0), "{}", restored.stderr);
    assert!(restored.stdout.contains(&format!("bursar up --data {}", again.display())));
    let mut site = Site::up(&again);
    site.token = token;
    // What had ended is as it was; the same token opens; what ran is known to be lost.
    let as_restored = site.work(done);
    assert_eq!(as_restored["charged_gpu_ms"], ended["charged_gpu_ms"]);
    assert_eq!(as_restored["history"][0]["outcome"], "completed");
    let lost = site.until(runs, "ended");
    assert_eq!(lost["ending"], "host_failed", "{lost}");
    let (status, _) =
        crate::get(&site.url, &site.token, &format!("/v1/workloads/{later}")).expect("an answer");
    assert_eq!(status, 404);
}

#[test]
fn a_damaged_folder_is_refused_with_what_to_do() {
    let dir = folder();
    let data = dir.path().join("site");
    let site = Site::up(&data);
    for _ in 0..5 {
        let number = site.submit(json!({ "name": "a-name-that-is-there", "command": ["true"] }));
        site.until(number, "ended");
    }
    let backup = dir.path().join("b.db");
    assert_eq!(bursar(&["backup", text(&backup), "--data", text(&data)]).code, Some(0));
    assert_eq!(site.stop(), Some(0));
    let journal = data.join("journal.db");
    let mut bytes = fs::read(&journal).expect("a journal");
    let name = b"a-name-that-is-there";
    // All of them: some are copies that SQLite left behind and never reads.
    let places: Vec<usize> =
        (0..bytes.len() - name.len()).filter(|&at| bytes[at..].starts_with(name)).collect();
    assert!(places.len() >= 5, "{places:?}");
    places.into_iter().for_each(|at| bytes[at] = b'A');
    fs::write(&journal, &bytes).expect("written");

    let refused = [
        bursar(&["up", "--data", text(&data), "--virtual-gpus", "4", "--virtual-hosts", "2"]),
        bursar(&["check", "--data", text(&data)]),
        bursar(&["backup", text(&backup), "--data", text(&data)]),
    ];
    for done in refused {
        assert!(matches!(done.code, Some(1 | 2)), "{:?}", done.code);
        let said = done.stderr.lines().last().unwrap_or_default();
        assert!(said.contains("journal.db: damaged at record "), "{said}");
        assert!(said.contains("bursar restore BACKUP --data FOLDER"), "{said}");
    }
    // The good backup is still there, and does it.
    let again = dir.path().join("again");
    assert_eq!(bursar(&["restore", text(&backup), "--data", text(&again)]).code, Some(0));
    assert_eq!(bursar(&["check", "--data", text(&again)]).code, Some(0));
    let missing = bursar(&["check", "--data", text(&dir.path().join("nowhere"))]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.contains("holds no journal"), "{}", missing.stderr);
}

/// A site as an earlier version left it (fixtures/README.md).
#[test]
fn an_old_data_folder_is_brought_up() {
    let dir = folder();
    let data = dir.path().join("site");
    fs::create_dir(&data).expect("a folder");
    fs::copy(fixture("schema-1/journal.db"), data.join("journal.db")).expect("copied");
    let early = bursar(&["check", "--data", text(&data)]);
    assert_eq!(early.code, Some(2));
    assert!(early.stderr.contains("has schema 1, this version reads 2: bring the site up once"));
    let before = bursar(&["export", "trace", "--data", text(&data)]);
    assert_eq!(before.code, Some(2));

    let site = Site::up_with(&data, &["--virtual-gpus", "8", "--virtual-hosts", "2"]);
    eventually("that it is ready", || {
        let answer = ureq::get(format!("{}/readyz", site.url)).call().ok()?;
        answer.status().is_success().then_some(())
    });
    assert_eq!(site.stop(), Some(0));
    let then = records_of_schema_1(&fixture("schema-1/journal.db"));
    let reader = bursar_store::Reader::beside(&data).expect("a journal");
    let now: Vec<_> = reader
        .read_from(1)
        .map(|record| record.expect("a record"))
        .map(|one| (one.seq, one.at_ms, one.kind, one.version, one.body))
        .take(then.len())
        .collect();
    assert_eq!(now, then);
    assert!(then.len() > 100);
    drop(reader);
    // Every decision of then is decided so again.
    let checked = bursar(&["check", "--data", text(&data), "--json"]);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    let checked: serde_json::Value = serde_json::from_str(&checked.stdout).expect("JSON");
    assert_eq!(checked["site"], "demo");
    let trace = bursar(&["export", "trace", "--data", text(&data)]);
    let known = fs::read_to_string(fixture("schema-1/trace.csv")).expect("a fixture");
    assert_eq!(trace.stdout, known);
    assert!(data.join("journal.schema-1.db").exists());
}

type Written = (u64, u64, String, u32, String);

fn records_of_schema_1(path: &Path) -> Vec<Written> {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let old = rusqlite::Connection::open_with_flags(path, flags).expect("a database");
    let mut select = old
        .prepare("SELECT seq, at_ms, kind, version, body FROM record ORDER BY seq")
        .expect("records");
    let rows = select.query_map([], |row| {
        let number = |at: usize| row.get::<_, i64>(at).map(i64::cast_unsigned);
        Ok((number(0)?, number(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
    });
    rows.expect("rows").collect::<rusqlite::Result<_>>().expect("all of them")
}
