//! The journal as its one writer has it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

use crate::backup;
use crate::chain::Head;
use crate::check::{self, Check, Progress, Verified};
use crate::error::{Result, StoreError, StoreErrorKind};
use crate::folder::{Folder, JOURNAL, LOG, ROLLBACK, exists, make_private};
use crate::reader::Reader;
use crate::record::{NewRecord, Records, signed};
use crate::schema::{self, Access};
use crate::snapshot::{self, Snapshot};

/// A record tells what happened; bulk belongs elsewhere. Far above any plan, far below what SQLite
/// can hold.
const RECORD_BYTES_MAX: usize = 64 << 20;

/// The journal of one site, open for reading and writing.
///
/// A write that fails leaves the journal as it was. After a full disk ([`StoreErrorKind::Full`]) or
/// a lock that another program held ([`StoreErrorKind::Busy`]) that is certain, and the store takes
/// the next write. After any other failure of a write it is not: the disk may hold more than it
/// confirmed. Then the store takes no more writes ([`StoreErrorKind::Poisoned`]; reading goes on)
/// until it is opened again, and whoever opens it reads what is really there.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
    folder: Arc<Folder>,
    head: Head,
    /// Why nothing more is written.
    poison: Option<String>,
}

impl Store {
    /// Makes a journal in a folder that has none. The folder is made, too, if it does not exist;
    /// only its owner may enter it.
    ///
    /// # Errors
    /// [`StoreErrorKind::Exists`], [`StoreErrorKind::NotPrivate`] for a folder with other things in
    /// it that others may enter, [`StoreErrorKind::InUse`], and what the system says.
    pub fn create(dir: impl AsRef<Path>) -> Result<Self> {
        let folder = Folder::make(dir.as_ref())?;
        if folder.has_journal()? {
            return Err(StoreError::new(dir.as_ref(), StoreErrorKind::Exists));
        }
        Self::create_in(folder)
    }

    /// Opens the journal in a folder, and checks it in full; an old one is moved on to the present
    /// schema, after a copy was put beside it.
    ///
    /// # Errors
    /// [`StoreErrorKind::Missing`] without a journal, [`StoreErrorKind::InUse`],
    /// [`StoreErrorKind::Corrupt`] and [`StoreErrorKind::NotAJournal`] for one that cannot be
    /// trusted, [`StoreErrorKind::NewerSchema`], and what the system says.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(dir, Check::Full)
    }

    /// Opens the journal in a folder, and checks it as far as asked for.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_with(dir: impl AsRef<Path>, check: Check) -> Result<Self> {
        let dir = dir.as_ref();
        if !exists(&dir.join(JOURNAL))? {
            return Err(StoreError::new(dir, StoreErrorKind::Missing));
        }
        Self::open_in(Folder::take(dir)?, check)
    }

    /// Opens the journal in a folder, or makes one if there is none.
    ///
    /// # Errors
    /// As [`Store::create`] and [`Store::open`].
    pub fn open_or_create(dir: impl AsRef<Path>, check: Check) -> Result<Self> {
        let folder = Folder::make(dir.as_ref())?;
        if folder.has_journal()? { Self::open_in(folder, check) } else { Self::create_in(folder) }
    }

    fn create_in(folder: Folder) -> Result<Self> {
        let path = folder.journal();
        if let Some((seq @ 1.., _)) = folder.mark()? {
            let what = format!("the file is gone, though the folder had {seq} records");
            return Err(StoreError::corrupt(&path, None, what));
        }
        for log in [LOG, ROLLBACK] {
            // It would be taken for the log of the new one.
            if exists(&folder.path().join(log))? {
                let what = format!("the file is gone, though {log} is there");
                return Err(StoreError::corrupt(&path, None, what));
            }
        }
        let file = backup::temporary_for(&path)?;
        let mut connection = schema::connect(file.path(), Access::Write)?;
        schema::initialise(&mut connection, file.path())?;
        drop(connection);
        backup::put(file, &path)?;
        Self::open_in(folder, Check::Full)
    }

    fn open_in(folder: Folder, check: Check) -> Result<Self> {
        let path = folder.journal();
        make_private(&path, 0o600)?;
        let mut connection = schema::connect(&path, Access::Write)?;
        let found = schema::identify(&connection, &path)?;
        schema::make_durable(&connection, &path)?;
        if found < schema::SCHEMA {
            check::structure(&connection, &path)?;
            let kept = folder.path().join(format!("journal.schema-{found}.db"));
            backup::copy(&connection, &path, &kept)?;
            schema::migrate(&mut connection, &path, found)?;
        }
        let head = match check {
            Check::Full => check::full(&connection, &path, &mut |_| ())?.head,
            Check::Tail => check::tail(&connection, &path)?,
        };
        check::mark(&connection, &path, &head, folder.mark()?)?;
        folder.set_mark(&head);
        Ok(Self { connection, path, folder: Arc::new(folder), head, poison: None })
    }

    /// The folder that holds the journal.
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// The last record.
    pub fn head(&self) -> Head {
        self.head
    }

    /// Appends records, all or none, and gives the number of the first. They are on the disk when
    /// this returns. Without records it does nothing and gives the number that comes next.
    ///
    /// # Errors
    /// [`StoreErrorKind::Invalid`] for a moment before the last one or a record of more than 64
    /// MiB, [`StoreErrorKind::Full`], [`StoreErrorKind::Busy`], [`StoreErrorKind::Poisoned`], and
    /// what the system says. Of the records nothing is there, but see [`Store`] for what is certain.
    pub fn append(&mut self, records: &[NewRecord<'_>]) -> Result<u64> {
        let first = self.head.seq + 1;
        let mut head = self.head;
        for new in records {
            if new.kind.len().saturating_add(new.body.len()) > RECORD_BYTES_MAX {
                let what = format!("a record has {RECORD_BYTES_MAX} bytes at most");
                return Err(StoreError::invalid(&self.path, what));
            }
            if new.at_ms < head.at_ms || signed(new.at_ms).is_none() {
                let what =
                    format!("a record at {} ms cannot follow one at {} ms", new.at_ms, head.at_ms);
                return Err(StoreError::invalid(&self.path, what));
            }
            head.at_ms = new.at_ms;
        }
        if records.is_empty() {
            return Ok(first);
        }
        let mut head = self.head;
        self.write("append", |transaction| {
            for new in records {
                head = head.then(new);
                schema::insert(transaction, &head, new)?;
            }
            Ok(())
        })?;
        self.head = head;
        self.folder.set_mark(&head);
        Ok(first)
    }

    /// Keeps the state that the records up to `seq` fold to, so that a replay can begin there. The
    /// last two are kept.
    ///
    /// # Errors
    /// [`StoreErrorKind::Invalid`] for a number that has no record, or that is before the last
    /// snapshot's; otherwise as [`Store::append`].
    pub fn put_snapshot(&mut self, seq: u64, bytes: &[u8]) -> Result<()> {
        let packed = snapshot::pack(&self.connection, &self.path, seq, bytes)?;
        self.write("keep a snapshot", |transaction| packed.insert(transaction))
    }

    /// The latest snapshot that is whole. A damaged one is passed over: the one before it, or
    /// none, only makes for a longer replay.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn latest_snapshot(&self) -> Result<Option<Snapshot>> {
        snapshot::latest(&self.connection, &self.path)
    }

    /// The records from number `seq` to the end, each checked as it passes.
    pub fn read_from(&self, seq: u64) -> Records<'_> {
        Records::new(&self.connection, &self.path, seq)
    }

    /// Checks everything: the structure of the file, each record, each snapshot.
    ///
    /// # Errors
    /// [`StoreErrorKind::Corrupt`] with the first bad record, and what the system says.
    pub fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<Verified> {
        check::full(&self.connection, &self.path, progress)
    }

    /// Writes a copy of the journal, as of now, to the file `to`; what was there is replaced. The
    /// copy is checked in full and synced before it takes its place: one of a damaged journal never
    /// replaces a good one. Only the owner may read it.
    ///
    /// # Errors
    /// [`StoreErrorKind::BackupInside`], [`StoreErrorKind::Corrupt`], [`StoreErrorKind::Full`], and
    /// what the system says.
    pub fn backup(&self, to: impl AsRef<Path>) -> Result<Head> {
        backup::write(&self.connection, &self.path, to.as_ref())
    }

    /// A reader for another thread.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn reader(&self) -> Result<Reader> {
        Reader::new(&self.path, Arc::clone(&self.folder))
    }

    /// Whether every write so far ended with certainty: it was done, or it was not.
    pub fn is_sound(&self) -> bool {
        self.poison.is_none()
    }

    /// One durable transaction, with an end that [`Store`] documents.
    fn write(
        &mut self,
        action: &'static str,
        run: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<()> {
        if let Some(reason) = &self.poison {
            let reason = reason.clone();
            return Err(StoreError::new(&self.path, StoreErrorKind::Poisoned { reason }));
        }
        let outcome = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .and_then(|transaction| {
                run(&transaction)?;
                transaction.commit()
            });
        let Err(error) = outcome else { return Ok(()) };
        // Dropped without a commit, the transaction was rolled back; if even that failed, SQLite
        // still is in it.
        let is_certain = self.connection.is_autocommit()
            && matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
            );
        if !is_certain {
            self.poison = Some(error.to_string());
        }
        Err(StoreError::sqlite(&self.path, action, error))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::StoreErrorKind as Kind;
    use crate::testing::{bodies, expected, extend, journal, noise, refused};

    fn record(at_ms: u64, body: &str) -> NewRecord<'_> {
        NewRecord { at_ms, kind: "count", version: 1, body }
    }

    #[test]
    fn what_was_appended_is_read_back_after_opening_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::create(dir.path()).unwrap();
        assert_eq!(store.head(), Head::EMPTY);
        let first = NewRecord { at_ms: 7, kind: "made", version: 3, body: "{\"a\":\"\u{0}é\"}" };
        assert_eq!(store.append(&[first, record(7, ""), record(u64::MAX >> 1, "[]")]).unwrap(), 1);
        assert_eq!(store.append(&[record(u64::MAX >> 1, "4")]).unwrap(), 4);
        let head = store.head();
        assert_eq!((head.seq, head.at_ms), (4, u64::MAX >> 1));
        drop(store);

        let store = Store::open(dir.path()).unwrap();
        assert_eq!(store.head(), head);
        let records: Vec<_> = store.read_from(0).collect::<Result<_>>().unwrap();
        assert_eq!(records.iter().map(|record| record.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
        let made = &records[0];
        assert_eq!(
            (made.at_ms, made.kind.as_str(), made.version, made.body.as_str()),
            (7, "made", 3, "{\"a\":\"\u{0}é\"}")
        );
        assert_eq!(records[3].chain, head.chain);
    }

    #[test]
    fn reading_begins_anywhere_and_crosses_pages() {
        let (_dir, store) = journal(5000);
        for from in [1, 2, 1024, 1025, 1026, 4999, 5000] {
            assert_eq!(bodies(&store, from).unwrap(), expected(from..=5000), "from {from}");
        }
        for from in [5001, 5002, u64::MAX] {
            assert_eq!(bodies(&store, from).unwrap(), [""; 0], "from {from}");
        }
    }

    #[test]
    fn long_bodies_make_short_pages() {
        let (_dir, mut store) = journal(0);
        let long = "y".repeat(700_000);
        for _ in 0..5 {
            store.append(&[record(0, &long), record(0, "short")]).unwrap();
        }
        assert_eq!(bodies(&store, 1).unwrap().len(), 10);
    }

    #[test]
    fn nothing_of_a_refused_append_is_there() {
        let (_dir, mut store) = journal(3);
        let text =
            refused!(store.append(&[record(40, "{}"), record(39, "{}")]), Kind::Invalid { .. });
        assert!(text.ends_with("a record at 39 ms cannot follow one at 40 ms"), "{text}");
        refused!(store.append(&[record(29, "{}")]), Kind::Invalid { .. });
        refused!(store.append(&[record(1 << 63, "{}")]), Kind::Invalid { .. });
        let bulk = "z".repeat(RECORD_BYTES_MAX + 1);
        refused!(store.append(&[record(40, &bulk)]), Kind::Invalid { .. });
        assert_eq!(store.append(&[]).unwrap(), 4);
        assert_eq!(bodies(&store, 1).unwrap(), expected(1..=3));
        extend(&mut store, 4);
        assert_eq!(bodies(&store, 1).unwrap(), expected(1..=4));
    }

    #[test]
    fn a_full_database_is_said_and_the_store_goes_on() {
        let (dir, mut store) = journal(3);
        let pages = |store: &Store, max: i64| {
            store
                .connection
                .pragma_update_and_check(None, "max_page_count", max, |row| row.get::<_, i64>(0))
                .unwrap()
        };
        pages(&store, 12);
        let bulk = "z".repeat(20_000);
        let all = [record(40, "small"), record(40, &bulk), record(40, &bulk), record(40, &bulk)];
        let text = refused!(store.append(&all), Kind::Full { .. });
        assert!(text.ends_with("no room to append: free disk space and try again"), "{text}");
        assert_eq!(bodies(&store, 1).unwrap(), expected(1..=3));
        refused!(store.put_snapshot(3, &noise(99_999)), Kind::Full { .. });
        extend(&mut store, 4);

        pages(&store, 1_000_000);
        assert_eq!(store.append(&all).unwrap(), 5);
        drop(store);
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(store.head().seq, 8);
        assert_eq!(bodies(&store, 1).unwrap()[..4], expected(1..=4));
    }

    #[test]
    fn a_lock_of_another_program_is_said_and_the_store_goes_on() {
        let (dir, mut store) = journal(3);
        store.connection.busy_timeout(std::time::Duration::ZERO).unwrap();
        let other = Connection::open(dir.path().join(JOURNAL)).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        refused!(store.append(&[record(40, "")]), Kind::Busy { .. });
        other.execute_batch("COMMIT").unwrap();
        extend(&mut store, 4);
        assert_eq!(bodies(&store, 1).unwrap(), expected(1..=4));
    }

    /// A fault that no kind is known for: here, somebody appended past us.
    #[test]
    fn after_an_unknown_fault_it_takes_no_more_until_opened_again() {
        let (dir, mut store) = journal(3);
        let other = Connection::open(dir.path().join(JOURNAL)).unwrap();
        let head = store.head().then(&record(40, "theirs"));
        schema::insert(&other, &head, &record(40, "theirs")).unwrap();
        drop(other);

        refused!(store.append(&[record(40, "ours")]), Kind::Sqlite { .. });
        let text = refused!(store.append(&[record(40, "ours")]), Kind::Poisoned { .. });
        assert!(text.contains("UNIQUE constraint failed"), "{text}");
        refused!(store.put_snapshot(3, b"state"), Kind::Poisoned { .. });
        assert_eq!(bodies(&store, 1).unwrap()[3], "theirs");
        drop(store);
        let mut store = Store::open(dir.path()).unwrap();
        assert_eq!(store.append(&[record(40, "ours")]).unwrap(), 5);
    }

    #[test]
    fn records_cannot_be_changed_or_deleted_by_hand() {
        let (dir, store) = journal(3);
        drop(store);
        let by_hand = Connection::open(dir.path().join(JOURNAL)).unwrap();
        by_hand.execute_batch("UPDATE record SET body = '{}' WHERE seq = 2").unwrap_err();
        by_hand.execute_batch("DELETE FROM record WHERE seq = 3").unwrap_err();
    }

    #[test]
    fn create_open_and_open_or_create_know_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("site");
        let text = refused!(Store::open(&path), Kind::Missing);
        assert!(text.contains("site: holds no journal: create one"), "{text}");
        assert!(!path.exists());

        let store = Store::open_or_create(&path, Check::Tail).unwrap();
        assert_eq!(path.join(JOURNAL).metadata().unwrap().permissions().mode() & 0o777, 0o600);
        for beside in ["journal.db-wal", "journal.db-shm"] {
            assert_eq!(path.join(beside).metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        refused!(Store::open(&path), Kind::InUse { pid: Some(_) });
        refused!(Store::create(&path), Kind::InUse { pid: Some(_) });
        drop(store);
        refused!(Store::create(&path), Kind::Exists);
        fs::set_permissions(path.join(JOURNAL), fs::Permissions::from_mode(0o644)).unwrap();
        Store::open_or_create(&path, Check::Full).unwrap();
        assert_eq!(path.join(JOURNAL).metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_commit_is_synced() {
        let (_dir, store) = journal(1);
        let pragma = |name: &str| -> String {
            let sql = format!("SELECT CAST({name} AS TEXT) FROM pragma_{name}");
            store.connection.query_row(&sql, [], |row| row.get(0)).unwrap()
        };
        assert_eq!((pragma("journal_mode").as_str(), pragma("synchronous").as_str()), ("wal", "2"));
    }

    #[test]
    fn a_folder_may_have_any_name() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["file:a", "a?mode=ro", "#b", "%2e", "c d\n", ":memory:", "é\u{feff}"] {
            let path = dir.path().join(name);
            let mut store = Store::create(&path).unwrap();
            extend(&mut store, 3);
            store.backup(dir.path().join(format!("{name}?x=y"))).unwrap();
            drop(store);
            assert_eq!(Store::open(&path).unwrap().head().seq, 3);
            assert!(path.join(JOURNAL).exists());
        }
    }

    #[test]
    fn a_folder_whose_journal_is_gone_does_not_get_a_new_one() {
        let (dir, store) = journal(3);
        drop(store);
        fs::remove_file(dir.path().join(JOURNAL)).unwrap();
        fs::write(dir.path().join(LOG), "frames").unwrap();
        let text = refused!(Store::open_or_create(dir.path(), Check::Full), Kind::Corrupt { .. });
        assert!(text.contains("the file is gone, though the folder had 3 records"), "{text}");
        fs::remove_file(dir.path().join("mark")).unwrap();
        let text = refused!(Store::open_or_create(dir.path(), Check::Full), Kind::Corrupt { .. });
        assert!(text.contains("the file is gone, though journal.db-wal is there"), "{text}");
        fs::remove_file(dir.path().join(LOG)).unwrap();
        assert_eq!(Store::create(dir.path()).unwrap().head(), Head::EMPTY);
    }
}
