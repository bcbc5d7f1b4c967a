//! Checking a journal: its structure, its chain, its snapshots, and that its end is there.

use std::ops::ControlFlow;
use std::path::Path;

use rusqlite::Connection;

use crate::chain::{Chain, Head};
use crate::error::{Result, StoreError, StoreErrorKind};
use crate::record::{head_at, last_head, walk};
use crate::snapshot;

/// How much of a journal is checked when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The structure of the file and every record: seconds for millions of records.
    Full,
    /// The last record, and that none are missing after it. For who reads the records afterwards,
    /// since reading checks each that it gives.
    Tail,
}

/// How far a check has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Records checked so far. 0 while the structure of the file is looked at.
    pub records: u64,
    /// Records there are.
    pub records_total: u64,
}

/// What a check found to be whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The last record.
    pub head: Head,
    /// Snapshots that are whole.
    pub snapshots: u32,
    /// Snapshots that are damaged: no harm beyond a longer replay, but the disk deserves a look.
    pub snapshots_damaged: u32,
    /// The size of the database.
    pub bytes: u64,
}

/// Records between two calls of the progress callback.
const PROGRESS_RECORDS: u64 = 8192;

/// Checks everything.
pub(crate) fn full(
    connection: &Connection,
    path: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Verified> {
    let total = last_head(connection, path).map_or(0, |head| head.seq);
    progress(Progress { records: 0, records_total: total });
    // Damage of the structure often shows in records: then the first bad one has a number.
    let structure = structure(connection, path);
    let mut head = Head::EMPTY;
    walk(connection, path, &mut head, |_, head| {
        if head.seq.is_multiple_of(PROGRESS_RECORDS) {
            progress(Progress { records: head.seq, records_total: total.max(head.seq) });
        }
        ControlFlow::Continue(())
    })?;
    structure?;
    let (snapshots, snapshots_damaged) = snapshot::count(connection, path)?;
    progress(Progress { records: head.seq, records_total: head.seq });
    let bytes = connection
        .query_row(
            "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size",
            [],
            |row| row.get(0).map(crate::record::unsigned),
        )
        .map_err(|error| StoreError::sqlite(path, "read", error))?;
    Ok(Verified { head, snapshots, snapshots_damaged, bytes })
}

/// SQLite's own check of its pages and of the types of columns.
pub(crate) fn structure(connection: &Connection, path: &Path) -> Result<()> {
    let said: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(|error| StoreError::sqlite(path, "check", error))?;
    if said == "ok" {
        Ok(())
    } else {
        Err(StoreError::corrupt(path, None, said.replace('\n', " ")))
    }
}

/// Checks the last record against the one before.
pub(crate) fn tail(connection: &Connection, path: &Path) -> Result<Head> {
    let last = last_head(connection, path)?;
    let Some(before) = last.seq.checked_sub(1) else { return Ok(last) };
    let mut head = head_at(connection, path, before)?
        .ok_or_else(|| StoreError::corrupt(path, Some(before), "it is missing"))?;
    walk(connection, path, &mut head, |_, _| ControlFlow::Continue(()))?;
    Ok(head)
}

/// Checks that the journal holds what its mark says it held.
pub(crate) fn mark(
    connection: &Connection,
    path: &Path,
    head: &Head,
    mark: Option<(u64, Chain)>,
) -> Result<()> {
    let Some((seq, chain)) = mark else { return Ok(()) };
    match head_at(connection, path, seq)? {
        None => Err(StoreError::corrupt(
            path,
            Some(head.seq + 1),
            format!(
                "records up to {seq} were in it and are gone (was {} removed, or an older copy put \
                 here?)",
                crate::folder::LOG
            ),
        )),
        Some(there) if there.chain != chain => Err(StoreError::new(
            path,
            StoreErrorKind::Corrupt {
                seq: Some(seq),
                what: "it is not the one that this folder's journal had (was another put here?)"
                    .to_owned(),
            },
        )),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rand::{Rng as _, RngExt as _, SeedableRng as _};
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::StoreErrorKind as Kind;
    use crate::testing::{bodies, expected, journal, refused, tamper};
    use crate::{NewRecord, Store};

    #[test]
    fn a_whole_journal_is_said_to_be_whole() {
        let (_dir, mut store) = journal(20_000);
        store.put_snapshot(9, b"state").unwrap();
        let mut calls = Vec::new();
        let verified = store.verify(&mut |progress| calls.push(progress.records)).unwrap();
        assert_eq!(verified.head, store.head());
        assert_eq!((verified.snapshots, verified.snapshots_damaged), (1, 0));
        assert!(verified.bytes > 1_000_000, "{verified:?}");
        assert_eq!(calls, [0, 8192, 16384, 20_000]);
    }

    #[test]
    fn damage_is_refused_with_the_first_bad_record() {
        let cases = [
            ("UPDATE record SET body = body || ' ' WHERE seq IN (7, 9)", 7, "checksum"),
            ("UPDATE record SET kind = 'counts' WHERE seq = 10", 10, "checksum"),
            ("UPDATE record SET version = 2 WHERE seq = 1", 1, "checksum"),
            ("UPDATE record SET at_ms = 31 WHERE seq = 3", 3, "checksum"),
            ("UPDATE record SET at_ms = 10 WHERE seq = 3", 3, "moment"),
            ("UPDATE record SET chain = zeroblob(32) WHERE seq = 5", 5, "checksum"),
            ("DELETE FROM record WHERE seq = 4", 4, "missing"),
            ("DELETE FROM record WHERE seq <= 4", 1, "missing"),
            ("DELETE FROM record WHERE seq >= 9", 9, "records up to 10 were in it"),
            ("UPDATE record SET seq = 11 WHERE seq = 10", 10, "missing"),
        ];
        for (sql, bad, words) in cases {
            let (dir, store) = journal(10);
            drop(store);
            tamper(dir.path(), sql);
            let text = refused!(
                Store::open(dir.path()),
                Kind::Corrupt { seq: Some(seq), .. } if *seq == bad
            );
            assert!(text.contains(words), "{sql}: {text}");
            assert!(text.contains("restore a backup into an empty folder"), "{sql}: {text}");
        }
    }

    #[test]
    fn reading_gives_what_is_good_and_then_names_the_bad_one() {
        let (dir, store) = journal(10);
        drop(store);
        tamper(dir.path(), "UPDATE record SET body = '' WHERE seq = 8");
        let store = Store::open_with(dir.path(), Check::Tail).unwrap();
        let mut records = store.read_from(3);
        for seq in 3..8 {
            assert_eq!(records.next().unwrap().unwrap().seq, seq);
        }
        refused!(records.next().unwrap(), Kind::Corrupt { seq: Some(8), .. });
        assert!(records.next().is_none());
        // It does not hang on what is before it, nor spoil what is after.
        assert_eq!(bodies(&store, 9).unwrap(), expected(9..=10));
        refused!(bodies(&store, 8), Kind::Corrupt { seq: Some(8), .. });
        refused!(store.verify(&mut |_| ()), Kind::Corrupt { seq: Some(8), .. });
        drop(store);

        tamper(dir.path(), "DELETE FROM record WHERE seq IN (4, 5)");
        let store = Store::open_with(dir.path(), Check::Tail).unwrap();
        refused!(bodies(&store, 5), Kind::Corrupt { seq: Some(4), .. });
        refused!(bodies(&store, 6), Kind::Corrupt { seq: Some(5), .. });
    }

    #[test]
    fn the_end_is_checked_however_little_else_is() {
        for sql in [
            "UPDATE record SET body = '' WHERE seq = 10",
            "DELETE FROM record WHERE seq IN (9, 10)",
            "DELETE FROM record",
        ] {
            let (dir, store) = journal(10);
            drop(store);
            tamper(dir.path(), sql);
            refused!(Store::open_with(dir.path(), Check::Tail), Kind::Corrupt { .. });
        }
    }

    #[test]
    fn another_journal_put_into_the_folder_is_noticed() {
        let (dir, store) = journal(5);
        drop(store);
        let (other, mut store) = journal(4);
        store.append(&[NewRecord { at_ms: 99, kind: "other", version: 1, body: "" }]).unwrap();
        drop(store);
        fs::copy(other.path().join("journal.db"), dir.path().join("journal.db")).unwrap();
        let text = refused!(Store::open(dir.path()), Kind::Corrupt { seq: Some(5), .. });
        assert!(text.contains("was another put here?"), "{text}");
    }

    #[test]
    fn what_is_no_journal_is_refused() {
        for (content, words) in [
            (&b""[..], "application id 0x00000000"),
            (&b"a letter, and a long one, which has nothing to do with databases at all ........"[..],
             "not an SQLite database"),
        ] {
            let (dir, store) = journal(1);
            drop(store);
            fs::write(dir.path().join("journal.db"), content).unwrap();
            let text = refused!(Store::open(dir.path()), Kind::NotAJournal { .. });
            assert!(text.contains(words), "{text}");
        }
    }

    /// Whatever byte is damaged: the journal is refused, or it is read as it was written.
    #[test]
    fn no_damaged_byte_gets_through() {
        let (dir, mut store) = journal(60);
        store.put_snapshot(30, b"a state").unwrap();
        drop(store);
        let path = dir.path().join("journal.db");
        let good = fs::read(&path).unwrap();
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let mut refusals = 0;
        for round in 0..400 {
            let mut bad = good.clone();
            let at = rng.random_range(0..bad.len());
            bad[at] ^= 1 << rng.random_range(0..8);
            fs::write(&path, &bad).unwrap();
            match Store::open(dir.path()) {
                Ok(store) => {
                    let kept = store.latest_snapshot().unwrap();
                    assert!(kept.is_none_or(|kept| kept.bytes == b"a state"), "round {round}");
                    assert_eq!(bodies(&store, 1).unwrap(), expected(1..=60), "round {round}");
                }
                Err(error) => {
                    assert!(error.to_string().contains("journal.db"), "round {round}: {error}");
                    refusals += 1;
                }
            }
            for beside in ["journal.db-wal", "journal.db-shm"] {
                let _ = fs::remove_file(dir.path().join(beside));
            }
        }
        assert!(refusals > 50, "only {refusals} of 400 were refused");
        let mut torn = good;
        torn.truncate(rng.next_u32() as usize % 4096 + 8192);
        fs::write(&path, &torn).unwrap();
        refused!(Store::open(dir.path()), Kind::Corrupt { .. });
    }
}
