//! Reading the journal beside its one writer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;

use crate::backup;
use crate::chain::Head;
use crate::check::{self, Progress, Verified};
use crate::error::Result;
use crate::folder::Folder;
use crate::record::{Records, last_head};
use crate::schema::{self, Access};
use crate::snapshot::{self, Snapshot};

/// Reads a journal beside its [`Store`](crate::Store), in another thread if need be. As long as one is there the
/// folder stays held, even when the store is gone.
#[derive(Debug)]
pub struct Reader {
    connection: Connection,
    path: PathBuf,
    _folder: Arc<Folder>,
}

impl Reader {
    pub(crate) fn new(path: &Path, folder: Arc<Folder>) -> Result<Self> {
        let connection = schema::connect(path, Access::Read)?;
        Ok(Self { connection, path: path.to_owned(), _folder: folder })
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
