//! Small journals for tests, and ways to damage them.

use std::path::Path;

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::{NewRecord, Result, Store};

/// A folder with a journal of records 1 to `records`.
pub(crate) fn journal(records: u64) -> (TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::create(dir.path()).unwrap();
    extend(&mut store, records);
    (dir, store)
}

/// Appends records up to number `last`, all at once.
pub(crate) fn extend(store: &mut Store, last: u64) {
    let bodies: Vec<(u64, String)> =
        (store.head().seq + 1..=last).map(|seq| (seq * 10, body(seq))).collect();
    let new: Vec<NewRecord<'_>> = bodies
        .iter()
        .map(|(at_ms, body)| NewRecord { at_ms: *at_ms, kind: "count", version: 1, body })
        .collect();
    store.append(&new).unwrap();
}

pub(crate) fn body(seq: u64) -> String {
    format!(r#"{{"number":{seq},"text":"{}"}}"#, "x".repeat(usize::try_from(seq % 50).unwrap()))
}

/// What is in a journal, from record `from` on.
pub(crate) fn bodies(store: &Store, from: u64) -> Result<Vec<String>> {
    store.read_from(from).map(|record| Ok(record?.body)).collect()
}

pub(crate) fn expected(seqs: std::ops::RangeInclusive<u64>) -> Vec<String> {
    seqs.map(body).collect()
}

/// Runs SQL on a closed journal, past what keeps records from being changed.
pub(crate) fn tamper(dir: &Path, sql: &str) {
    let connection = Connection::open(dir.join("journal.db")).unwrap();
    connection
        .execute_batch(
            "DROP TRIGGER IF EXISTS record_is_never_changed; DROP TRIGGER IF EXISTS record_is_never_deleted;",
        )
        .unwrap();
    connection.execute_batch(sql).unwrap();
    connection.close().unwrap();
}

/// Bytes that do not pack.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Pcg64Mcg::seed_from_u64(7).fill_bytes(&mut bytes);
    bytes
}

/// Asserts that a result is an error of a kind, and gives its text.
macro_rules! refused {
    ($result:expr, $kind:pat $(if $guard:expr)?) => {{
        let error = $result.map(|_| ()).unwrap_err();
        assert!(matches!(error.kind(), $kind $(if $guard)?), "{error:?}");
        error.to_string()
    }};
}

pub(crate) use refused;
