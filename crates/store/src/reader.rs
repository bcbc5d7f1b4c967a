//! Reading the journal beside its one writer, in its process or in another.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;

use crate::backup;
use crate::chain::Head;
use crate::check::{self, Progress, Verified};
use crate::error::{Result, StoreError, StoreErrorKind};
use crate::folder::{Folder, JOURNAL, exists, mark_of};
use crate::record::{Records, last_head};
use crate::schema::{self, Access};
use crate::snapshot::{self, Snapshot};

/// Reads a journal beside its [`Store`](crate::Store), in another thread if need be. As long as one is there the
/// folder stays held, even when the store is gone.
#[derive(Debug)]
pub struct Reader {
    connection: Connection,
    path: PathBuf,
    /// None if another process has the folder, or nobody.
    _folder: Option<Arc<Folder>>,
}

impl Reader {
    pub(crate) fn new(path: &Path, folder: Arc<Folder>) -> Result<Self> {
        let connection = schema::connect(path, Access::Read)?;
        Ok(Self { connection, path: path.to_owned(), _folder: Some(folder) })
    }

    /// Reads the journal of a folder that another process may have open, without holding it.
    ///
    /// # Errors
    /// [`StoreErrorKind::Missing`] without a journal, [`StoreErrorKind::OlderSchema`],
    /// [`StoreErrorKind::NewerSchema`] and [`StoreErrorKind::NotAJournal`] for one that this version
    /// cannot read, [`StoreErrorKind::Corrupt`] if its end is missing, and what the system says.
    pub fn beside(dir: impl AsRef<Path>) -> Result<Self> {
        let dir = dir.as_ref();
        let path = dir.join(JOURNAL);
        if !exists(&path)? {
            return Err(StoreError::new(dir, StoreErrorKind::Missing));
        }
        // Before the journal: a writer puts the mark after the record.
        let mark = mark_of(dir);
        let reader = Self::of_file(&path)?;
        check::mark(&reader.connection, &path, &reader.head()?, mark)?;
        Ok(reader)
    }

    /// Reads a backup as it lies there.
    ///
    /// # Errors
    /// As [`Reader::beside`]; [`StoreErrorKind::NotABackup`] for the file of a journal in use.
    pub fn of_backup(file: impl AsRef<Path>) -> Result<Self> {
        backup::must_stand_alone(file.as_ref())?;
        Self::of_file(file.as_ref())
    }

    fn of_file(path: &Path) -> Result<Self> {
        let connection = schema::connect(path, Access::Read)?;
        let found = schema::identify(&connection, path)?;
        if found < schema::SCHEMA {
            let known = schema::SCHEMA;
            return Err(StoreError::new(path, StoreErrorKind::OlderSchema { found, known }));
        }
        Ok(Self { connection, path: path.to_owned(), _folder: None })
    }

    /// The last record at this moment.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn head(&self) -> Result<Head> {
        last_head(&self.connection, &self.path)
    }

    /// As [`Store::read_from`](crate::Store::read_from); records that are appended while it reads are read, too.
    pub fn read_from(&self, seq: u64) -> Records<'_> {
        Records::new(&self.connection, &self.path, seq)
    }

    /// As [`Store::latest_snapshot`](crate::Store::latest_snapshot).
    ///
    /// # Errors
    /// As there.
    pub fn latest_snapshot(&self) -> Result<Option<Snapshot>> {
        snapshot::latest(&self.connection, &self.path)
    }

    /// As [`Store::verify`](crate::Store::verify).
    ///
    /// # Errors
    /// As there.
    pub fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<Verified> {
        check::full(&self.connection, &self.path, progress)
    }

    /// As [`Store::backup`](crate::Store::backup); the store goes on appending meanwhile.
    ///
    /// # Errors
    /// As there.
    pub fn backup(&self, to: impl AsRef<Path>) -> Result<Head> {
        backup::write(&self.connection, &self.path, to.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{body, extend, journal, refused};
    use crate::{Reader, Store, StoreErrorKind as Kind};

    #[test]
    fn stores_and_readers_can_move_to_other_threads() {
        fn moves<T: Send>() {}
        moves::<Store>();
        moves::<Reader>();
    }

    #[test]
    fn snapshots_are_seen_beside_the_store() {
        let (_dir, mut store) = journal(9);
        let reader = store.reader().unwrap();
        assert_eq!(reader.latest_snapshot().unwrap(), None);
        for seq in 1..=9 {
            store.put_snapshot(seq, &[9; 9]).unwrap();
            assert_eq!(reader.latest_snapshot().unwrap().unwrap().seq, seq);
        }
    }

    #[test]
    fn a_journal_is_read_beside_whoever_has_it() {
        let (dir, mut store) = journal(40);
        let reader = Reader::beside(dir.path()).unwrap();
        extend(&mut store, 50);
        assert_eq!(reader.head().unwrap(), store.head());
        assert_eq!(reader.verify(&mut |_| ()).unwrap().head, store.head());
        let out = tempfile::tempdir().unwrap();
        let to = out.path().join("b.db");
        assert_eq!(reader.backup(&to).unwrap(), store.head());
        // It is not in the way of who has it, nor of who comes next.
        drop(store);
        let mut store = Store::open(dir.path()).unwrap();
        extend(&mut store, 51);
        drop(store);
        assert_eq!(Reader::beside(dir.path()).unwrap().head().unwrap().seq, 51);
        assert_eq!(Reader::of_backup(&to).unwrap().head().unwrap().seq, 50);
        refused!(Reader::of_backup(dir.path()), Kind::Io { .. } | Kind::Sqlite { .. });
        refused!(Reader::beside(out.path()), Kind::Missing);
    }

    #[test]
    fn a_journal_that_lost_its_end_is_not_read() {
        let (dir, store) = journal(9);
        drop(store);
        let out = tempfile::tempdir().unwrap();
        let (_other, store) = journal(5);
        store.backup(out.path().join("b.db")).unwrap();
        std::fs::copy(out.path().join("b.db"), dir.path().join("journal.db")).unwrap();
        refused!(Reader::beside(dir.path()), Kind::Corrupt { seq: Some(6), .. });
    }

    #[test]
    fn a_reader_follows_in_another_thread_and_keeps_the_folder() {
        let (dir, mut store) = journal(1);
        let reader = store.reader().unwrap();
        assert_eq!(reader.head().unwrap(), store.head());
        let end = 300;
        let follower = std::thread::spawn(move || {
            let mut seen = 0;
            while seen < end {
                for record in reader.read_from(seen + 1) {
                    let record = record.unwrap();
                    assert_eq!((record.seq, &record.body), (seen + 1, &body(seen + 1)));
                    seen += 1;
                }
                std::thread::yield_now();
            }
            reader
        });
        for last in 2..=end {
            extend(&mut store, last);
        }
        let reader = follower.join().unwrap();
        assert_eq!(reader.head().unwrap(), store.head());
        assert_eq!(reader.verify(&mut |_| ()).unwrap().head, store.head());
        drop(store);
        refused!(Store::open(dir.path()), Kind::InUse { .. });
        drop(reader);
        Store::open(dir.path()).unwrap();
    }
}
