//! The form of the database: opening one, knowing its version, making a new one, moving an old one on.
//!
//! | version | records | snapshots |
//! |---|---|---|
//! | 1 | number, moment, kind, version, body | the bytes as given |
//! | 2 | the same and a checksum chain; never changed or deleted | packed, with a checksum |
//!
//! A migration runs in one transaction, after a copy of the old journal was put beside it. To add
//! a version: a new `schema-N.sql` with the whole of it, a function that fills it from the one
//! before, and a fixture of the one before in `fixtures/`.

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};

use crate::chain::Head;
use crate::error::{Result, StoreError, StoreErrorKind};
use crate::record::{NewRecord, check_order, damaged, signed, unsigned};

/// The schema that this version writes.
pub(crate) const SCHEMA: u32 = 2;

/// 'BURS', in the header of each journal.
const APPLICATION_ID: u32 = 0x4255_5253;

const SCHEMA_2: &str = include_str!("schema-2.sql");

/// What a connection may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read and write.
    Write,
    /// Only read.
    Read,
}

/// Opens a database that exists. Whether it is a journal is not looked at.
pub(crate) fn connect(path: &Path, access: Access) -> Result<Connection> {
    let mode = match access {
        Access::Write => OpenFlags::SQLITE_OPEN_READ_WRITE,
        Access::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
    };
    let name = std::path::absolute(path).map_err(|error| StoreError::io(path, "open", error))?;
    let open = || {
        // A name with a slash in front is never taken for an URI, whatever else is in it.
        let connection = Connection::open_with_flags(name, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        connection.pragma_update(None, "cell_size_check", true)?;
        connection.pragma_update(None, "temp_store", "memory")?;
        Ok(connection)
    };
    open().map_err(|error| StoreError::sqlite(path, "open", error))
}

/// Sets how a journal is written: to a log beside it that is synced at every commit.
pub(crate) fn make_durable(connection: &Connection, path: &Path) -> Result<()> {
    let set = || {
        let mode: String =
            connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
        connection.pragma_update(None, "synchronous", "full")?;
        // macOS needs to be asked for a sync that reaches the disk; elsewhere this does nothing.
        connection.pragma_update(None, "fullfsync", true)?;
        connection.pragma_update(None, "checkpoint_fullfsync", true)?;
        // After a burst, or a backup that held it open, the log shrinks to this.
        connection.pragma_update_and_check(None, "journal_size_limit", 64 << 20, |_| Ok(()))?;
        Ok(mode)
    };
    match set().map_err(|error| StoreError::sqlite(path, "set up", error))? {
        mode if mode == "wal" => Ok(()),
        mode => Err(StoreError::invalid(
            path,
            format!("this file system gives no write-ahead log (only '{mode}'): use a local disk"),
        )),
    }
}

/// The schema of a journal. Refuses what is none, and what only a later version can read.
pub(crate) fn identify(connection: &Connection, path: &Path) -> Result<u32> {
    let pragma = |name: &str| -> Result<u32> {
        connection
            .pragma_query_value(None, name, |row| row.get::<_, i32>(0))
            .map(i32::cast_unsigned)
            .map_err(|error| StoreError::sqlite(path, "open", error))
    };
    let none = |what: String| StoreError::new(path, StoreErrorKind::NotAJournal { what });
    let application = pragma("application_id")?;
    if application != APPLICATION_ID {
        return Err(none(format!(
            "application id {application:#010x}, not {APPLICATION_ID:#010x}"
        )));
    }
    match pragma("user_version")? {
        0 => Err(none("no schema version".to_owned())),
        found if found > SCHEMA => {
            Err(StoreError::new(path, StoreErrorKind::NewerSchema { found, known: SCHEMA }))
        }
        found => Ok(found),
    }
}

/// Puts an empty journal into an empty file.
pub(crate) fn initialise(connection: &mut Connection, path: &Path) -> Result<()> {
    let mut run = || {
        let transaction = connection.transaction()?;
        transaction.execute_batch(SCHEMA_2)?;
        transaction.commit()
    };
    run().map_err(|error| StoreError::sqlite(path, "create", error))
}

/// Moves a journal of schema `found` on to [`SCHEMA`]: wholly, or not at all.
pub(crate) fn migrate(connection: &mut Connection, path: &Path, found: u32) -> Result<()> {
    let cannot = |error| StoreError::sqlite(path, "move to the new schema", error);
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(cannot)?;
    if found == 1 {
        from_1_to_2(&transaction, path)?;
    }
    transaction.commit().map_err(cannot)
}

/// Chains the records as they are. Snapshots only shorten a replay: those of version 1, which have
/// no checksum, are left behind.
fn from_1_to_2(connection: &Connection, path: &Path) -> Result<()> {
    let cannot = |error| StoreError::sqlite(path, "move to schema 2", error);
    connection
        .execute_batch("ALTER TABLE record RENAME TO record_1; DROP TABLE snapshot;")
        .and_then(|()| connection.execute_batch(SCHEMA_2))
        .map_err(cannot)?;
    let mut select = connection
        .prepare("SELECT seq, at_ms, kind, version, body FROM record_1 ORDER BY seq")
        .map_err(cannot)?;
    let mut rows = select.query([]).map_err(cannot)?;
    let mut head = Head::EMPTY;
    loop {
        let seq = head.seq + 1;
        let Some(row) = rows.next().map_err(|error| damaged(path, seq, error))? else { break };
        let new = NewRecord::of(row).map_err(|error| damaged(path, seq, error))?;
        let found = row.get(0).map(unsigned).map_err(|error| damaged(path, seq, error))?;
        check_order(path, &head, found, new.at_ms)?;
        head = head.then(&new);
        insert(connection, &head, &new).map_err(cannot)?;
    }
    drop(rows);
    drop(select);
    connection.execute_batch("DROP TABLE record_1").map_err(cannot)
}

/// Writes the record that makes `head` the head.
pub(crate) fn insert(
    connection: &Connection,
    head: &Head,
    new: &NewRecord<'_>,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO record (seq, at_ms, kind, version, body, chain) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            signed(head.seq),
            signed(head.at_ms),
            new.kind,
            new.version,
            new.body,
            head.chain
        ])
        .map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::StoreErrorKind as Kind;
    use crate::testing::{bodies, journal, refused, tamper};
    use crate::{Record, Store, restore};

    const FIXTURE_1: &str = include_str!("../fixtures/schema-1.sql");

    /// A folder as version 1 of the schema left it, after `sql`.
    fn folder_1(sql: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let connection = Connection::open(dir.path().join("journal.db")).unwrap();
        connection.execute_batch(FIXTURE_1).unwrap();
        connection.execute_batch(sql).unwrap();
        dir
    }

    /// The last hash was computed apart from this crate.
    fn assert_is_fixture(store: &Store) {
        let records: Vec<Record> = store.read_from(1).collect::<Result<_>>().unwrap();
        let told: Vec<_> = records
            .iter()
            .map(|r| format!("{} {} {} {} {}", r.seq, r.at_ms, r.kind, r.version, r.body))
            .collect();
        assert_eq!(
            told,
            [
                r#"1 0 created 1 {"hosts":2}"#,
                r#"2 0 submitted 1 {"workload":"a","gpus":8}"#,
                r#"3 1500 plan 1 {"starts":["a"]}"#,
                r#"4 1500 started 2 {"workload":"a","note":"Grüße \u0001"}"#,
                r#"5 9000 ended 1 {}"#,
            ]
        );
        assert_eq!(
            store.head().chain.to_string(),
            "8b9b23fabbec49dadafd8959e0de923899eac6d75f7384e80874db80e1fb1438"
        );
        assert_eq!(store.latest_snapshot().unwrap(), None);
    }

    #[test]
    fn a_journal_of_schema_1_is_moved_on_and_the_old_one_kept() {
        let dir = folder_1("");
        let mut store = Store::open(dir.path()).unwrap();
        assert_is_fixture(&store);
        store.append(&[NewRecord { at_ms: 9000, kind: "more", version: 1, body: "{}" }]).unwrap();
        store.put_snapshot(6, b"state").unwrap();
        drop(store);
        assert_eq!(Store::open(dir.path()).unwrap().head().seq, 6);

        let kept = dir.path().join("journal.schema-1.db");
        assert_eq!(kept.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let old = connect(&kept, Access::Read).unwrap();
        assert_eq!(identify(&old, &kept).unwrap(), 1);
        let count: i64 = old
            .query_row("SELECT count(*) + (SELECT count(*) FROM snapshot) FROM record", [], |row| {
                row.get(0)
            })
            .unwrap();
        assert_eq!(count, 7);
    }

    #[test]
    fn the_schema_after_a_migration_is_that_of_a_new_journal() {
        let schema = |dir: &Path| -> Vec<String> {
            let connection = Connection::open(dir.join("journal.db")).unwrap();
            let mut select =
                connection.prepare("SELECT sql FROM sqlite_schema ORDER BY type, name").unwrap();
            select
                .query_map([], |row| row.get(0))
                .unwrap()
                .collect::<rusqlite::Result<_>>()
                .unwrap()
        };
        let old = folder_1("");
        drop(Store::open(old.path()).unwrap());
        let (new, store) = journal(0);
        drop(store);
        assert_eq!(schema(old.path()), schema(new.path()));
    }

    #[test]
    fn a_backup_of_schema_1_is_restored() {
        let old = folder_1("");
        let dir = tempfile::tempdir().unwrap();
        let from = old.path().join("journal.db");
        let before = fs::read(&from).unwrap();
        let head = restore(&from, dir.path()).unwrap();
        assert_eq!(fs::read(&from).unwrap(), before);
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(store.head(), head);
        assert_is_fixture(&store);
    }

    #[test]
    fn a_damaged_journal_of_schema_1_is_left_as_it_is() {
        for (sql, bad) in [
            ("DELETE FROM record WHERE seq = 3", 3),
            ("UPDATE record SET at_ms = 1 WHERE seq = 5", 5),
            ("UPDATE record SET at_ms = -1 WHERE seq = 2", 2),
            ("UPDATE record SET version = -1 WHERE seq = 2", 2),
            ("UPDATE record SET body = CAST(x'ff' AS TEXT) WHERE seq = 4", 4),
        ] {
            let dir = folder_1(sql);
            refused!(
                Store::open(dir.path()),
                Kind::Corrupt { seq: Some(seq), .. } if *seq == bad
            );
            let path = dir.path().join("journal.db");
            let connection = connect(&path, Access::Write).unwrap();
            assert_eq!(identify(&connection, &path).unwrap(), 1, "{sql}");
        }
    }

    #[test]
    fn a_newer_schema_is_refused_and_not_touched() {
        let (dir, store) = journal(3);
        drop(store);
        tamper(dir.path(), "PRAGMA user_version = 3");
        let before = fs::read(dir.path().join("journal.db")).unwrap();
        let text = refused!(Store::open(dir.path()), Kind::NewerSchema { found: 3, known: SCHEMA });
        assert!(text.contains("use the version that wrote it or a later one"), "{text}");
        assert_eq!(fs::read(dir.path().join("journal.db")).unwrap(), before);
    }

    #[test]
    fn another_programs_database_is_refused() {
        let (dir, store) = journal(3);
        drop(store);
        tamper(dir.path(), "PRAGMA application_id = 5");
        let text = refused!(Store::open(dir.path()), Kind::NotAJournal { .. });
        assert!(text.contains("application id 0x00000005"), "{text}");
        tamper_back(dir.path());
        assert_eq!(bodies(&Store::open(dir.path()).unwrap(), 1).unwrap().len(), 3);
    }

    fn tamper_back(dir: &Path) {
        let connection = Connection::open(dir.join("journal.db")).unwrap();
        connection.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
    }
}
