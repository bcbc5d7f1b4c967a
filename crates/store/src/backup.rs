//! Copies: a backup while the journal is in use, and a journal from a backup.
//!
//! Every file is written beside its place under a temporary name, checked, synced, and then renamed;
//! a process that is killed leaves at most a `NAME.XXXXXX.new`.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use tempfile::NamedTempFile;

use crate::chain::Head;
use crate::check;
use crate::error::{Result, StoreError, StoreErrorKind};
use crate::folder::{Folder, TEMPORARY_RANDOM, TEMPORARY_SUFFIX, parent, sync_folder};
use crate::schema::{self, Access};

/// Makes a journal from a backup in a new or empty folder, checks it in full, and gives its last
/// record. A backup of an older schema is moved on to the present one; the backup itself is only
/// read.
///
/// # Errors
/// [`StoreErrorKind::NotEmpty`], [`StoreErrorKind::NotABackup`] for the file of a journal in use,
/// [`StoreErrorKind::NotAJournal`], [`StoreErrorKind::NewerSchema`] and [`StoreErrorKind::Corrupt`]
/// for a file that cannot be used, [`StoreErrorKind::Full`], and what the system says. The folder
/// holds no journal then.
pub fn restore(from: impl AsRef<Path>, dir: impl AsRef<Path>) -> Result<Head> {
    let from = from.as_ref();
    // Asked before it is opened: to close a file of a database in use would drop SQLite's locks.
    must_stand_alone(from)?;
    let mut source =
        File::open(from).map_err(|error| StoreError::io(from, "open the backup", error))?;
    let folder = Folder::make_empty(dir.as_ref())?;
    let place = folder.journal();
    let mut file = temporary_for(&place)?;
    io::copy(&mut source, &mut file)
        .map_err(|error| StoreError::io(&place, "copy the backup", error))?;
    let mut connection = schema::connect(file.path(), Access::Write)?;
    let head = prepare(&mut connection, from)?;
    close(connection, &place)?;
    put(file, &place)?;
    folder.set_mark(&head);
    Ok(head)
}

/// Checks a copy of a backup, and moves it on to the present schema. Faults are those of `from`.
fn prepare(connection: &mut Connection, from: &Path) -> Result<Head> {
    let found = schema::identify(connection, from)?;
    if found < schema::SCHEMA {
        check::structure(connection, from)?;
        schema::migrate(connection, from, found)?;
    }
    Ok(check::full(connection, from, &mut |_| ())?.head)
}

/// Writes a checked copy of the journal at `path` to `to`.
pub(crate) fn write(connection: &Connection, path: &Path, to: &Path) -> Result<Head> {
    let canonical = |path: &Path| {
        path.canonicalize().map_err(|error| StoreError::io(path, "find the folder", error))
    };
    if canonical(parent(to))? == canonical(parent(path))? {
        return Err(StoreError::new(to, StoreErrorKind::BackupInside));
    }
    let (file, copy) = copy_to_temporary(connection, path, to)?;
    // The copy is the journal's, and so are its faults.
    let head = check::full(&copy, path, &mut |_| ())?.head;
    close(copy, to)?;
    put(file, to)?;
    Ok(head)
}

/// Writes a copy of a journal of any schema, whose structure was checked, to `to`.
pub(crate) fn copy(connection: &Connection, path: &Path, to: &Path) -> Result<()> {
    let (file, copy) = copy_to_temporary(connection, path, to)?;
    close(copy, to)?;
    put(file, to)
}

fn copy_to_temporary(
    connection: &Connection,
    path: &Path,
    to: &Path,
) -> Result<(NamedTempFile, Connection)> {
    let cannot = |error| StoreError::sqlite(to, "write the copy", error);
    let file = temporary_for(to)?;
    let mut copy = schema::connect(file.path(), Access::Write)?;
    // Nobody sees it before it is synced as a whole.
    copy.pragma_update(None, "synchronous", "off").map_err(cannot)?;
    let step = {
        let backup = Backup::new(connection, &mut copy).map_err(cannot)?;
        // All at once, in one read transaction: a writer goes on meanwhile and does not disturb it.
        backup.step(-1)
    };
    match step {
        Ok(StepResult::Done) => {}
        Ok(_) => {
            return Err(StoreError::new(path, StoreErrorKind::Busy { action: "copy the journal" }));
        }
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseCorrupt) => {
            return Err(StoreError::sqlite(path, "copy the journal", error));
        }
        Err(error) => return Err(cannot(error)),
    }
    // One file that can be read by itself, where it must not be written, too.
    copy.pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(())).map_err(cannot)?;
    Ok((file, copy))
}

/// Closes a database, and says what could not be written.
pub(crate) fn close(connection: Connection, path: &Path) -> Result<()> {
    connection.close().map_err(|(_, error)| StoreError::sqlite(path, "finish the copy", error))
}

/// An empty file, for the owner alone, beside the one that it is to become.
pub(crate) fn temporary_for(place: &Path) -> Result<NamedTempFile> {
    let stem = place.file_stem().unwrap_or_default().to_string_lossy();
    tempfile::Builder::new()
        .prefix(&format!("{stem}."))
        .suffix(TEMPORARY_SUFFIX)
        .rand_bytes(TEMPORARY_RANDOM)
        .tempfile_in(parent(place))
        .map_err(|error| StoreError::io(place, "write beside", error))
}

/// Syncs a file and puts it in its place.
pub(crate) fn put(file: NamedTempFile, place: &Path) -> Result<()> {
    let cannot = |error| StoreError::io(place, "write", error);
    file.as_file().sync_all().map_err(cannot)?;
    file.persist(place).map_err(|error| cannot(error.error))?;
    sync_folder(parent(place))
}

/// Refuses the file of a journal that is, or was last, in use.
pub(crate) fn must_stand_alone(file: &Path) -> Result<()> {
    if ["-wal", "-journal"].iter().any(|beside| beside_exists(file, beside)) {
        return Err(StoreError::new(file, StoreErrorKind::NotABackup));
    }
    Ok(())
}

fn beside_exists(path: &Path, suffix: &str) -> bool {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    fs::metadata(PathBuf::from(name)).is_ok_and(|metadata| metadata.len() > 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::StoreErrorKind as Kind;
    use crate::testing::{bodies, expected, extend, journal, noise, refused, tamper};
    use crate::{Check, Store};

    fn names(dir: &Path) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|entry| name(entry).into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_backup_is_restored_to_the_same_journal() {
        let (_dir, mut store) = journal(500);
        store.put_snapshot(400, &noise(50_000)).unwrap();
        let out = tempfile::tempdir().unwrap();
        let to = out.path().join("night.db");
        fs::write(&to, "the one of the night before").unwrap();
        let head = store.backup(&to).unwrap();
        assert_eq!(head, store.head());
        assert_eq!(names(out.path()), ["night.db"]);
        assert_eq!(to.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        extend(&mut store, 600);

        let dir = out.path().join("site");
        assert_eq!(restore(&to, &dir).unwrap(), head);
        assert_eq!(names(&dir), ["journal.db", "lock", "mark"]);
        assert_eq!(dir.join("journal.db").metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let mut restored = Store::open(&dir).unwrap();
        assert_eq!(bodies(&restored, 1).unwrap(), expected(1..=500));
        assert_eq!(restored.latest_snapshot().unwrap().unwrap().bytes, noise(50_000));
        // The same goes on to the same.
        extend(&mut restored, 600);
        assert_eq!(restored.head().chain, store.read_from(600).next().unwrap().unwrap().chain);
    }

    #[test]
    fn a_backup_is_taken_while_the_store_appends() {
        let (_dir, mut store) = journal(2000);
        let out = tempfile::tempdir().unwrap();
        let reader = store.reader().unwrap();
        let path = out.path().to_owned();
        let taker = std::thread::spawn(move || {
            (0..4).map(|n| reader.backup(path.join(n.to_string())).unwrap().seq).collect::<Vec<_>>()
        });
        let mut last = 2000;
        while !taker.is_finished() {
            last += 7;
            extend(&mut store, last);
        }
        let seqs = taker.join().unwrap();
        assert!(seqs.is_sorted() && seqs[0] >= 2000 && seqs[3] <= last, "{seqs:?}");
        for (n, seq) in seqs.into_iter().enumerate() {
            let dir = out.path().join(format!("site-{n}"));
            assert_eq!(restore(out.path().join(n.to_string()), &dir).unwrap().seq, seq);
            assert_eq!(bodies(&Store::open(&dir).unwrap(), 1).unwrap(), expected(1..=seq));
        }
    }

    #[test]
    fn a_backup_goes_elsewhere() {
        let (dir, store) = journal(3);
        for name in ["journal.db", "mark", "copy.db"] {
            let text = refused!(store.backup(dir.path().join(name)), Kind::BackupInside);
            assert!(text.contains(name), "{text}");
        }
        let text = refused!(store.backup("/no/such/folder/b.db"), Kind::Io { .. });
        assert!(text.starts_with("/no/such/folder: cannot find the folder"), "{text}");
        refused!(store.backup(tempfile::tempdir().unwrap().path()), Kind::Io { .. });
        assert_eq!(bodies(&store, 1).unwrap(), expected(1..=3));
    }

    #[test]
    fn a_damaged_journal_does_not_replace_a_good_backup() {
        let (dir, store) = journal(30);
        let out = tempfile::tempdir().unwrap();
        let to = out.path().join("b.db");
        store.backup(&to).unwrap();
        let good = fs::read(&to).unwrap();
        drop(store);
        tamper(dir.path(), "UPDATE record SET body = '' WHERE seq = 8");
        let store = Store::open_with(dir.path(), Check::Tail).unwrap();
        let text = refused!(store.backup(&to), Kind::Corrupt { seq: Some(8), .. });
        assert!(text.contains("journal.db: damaged at record 8"), "{text}");
        assert_eq!(fs::read(&to).unwrap(), good);
        assert_eq!(names(out.path()), ["b.db"]);
    }

    #[test]
    fn what_cannot_be_restored_leaves_a_folder_that_can_be_restored_into() {
        let (_dir, store) = journal(30);
        let out = tempfile::tempdir().unwrap();
        let from = out.path().join("b.db");
        let dir = out.path().join("site");
        refused!(restore(&from, &dir), Kind::Io { .. });
        store.backup(&from).unwrap();
        let good = fs::read(&from).unwrap();

        let mut bad = good.clone();
        let at = bad.windows(11).rposition(|part| part == br#""number":17"#).unwrap();
        bad[at + 10] = b'8';
        fs::write(&from, &bad).unwrap();
        let text = refused!(restore(&from, &dir), Kind::Corrupt { seq: Some(17), .. });
        assert!(text.contains("b.db: damaged at record 17"), "{text}");
        fs::write(&from, &good[..5000]).unwrap();
        refused!(restore(&from, &dir), Kind::Corrupt { .. });
        fs::write(&from, "a letter").unwrap();
        refused!(restore(&from, &dir), Kind::NotAJournal { .. });

        assert_eq!(names(&dir), ["lock", "mark"]);
        fs::write(&from, &good).unwrap();
        restore(&from, &dir).unwrap();
        refused!(restore(&from, &dir), Kind::NotEmpty);
    }

    #[test]
    fn only_an_empty_folder_takes_a_backup_and_only_a_backup_is_taken() {
        let (dir, store) = journal(3);
        let out = tempfile::tempdir().unwrap();
        let text = refused!(
            restore(dir.path().join("journal.db"), out.path().join("site")),
            Kind::NotABackup
        );
        assert!(text.contains("part of a journal in use"), "{text}");
        assert!(!out.path().join("site").exists());
        let from = out.path().join("b.db");
        store.backup(&from).unwrap();
        refused!(restore(&from, dir.path()), Kind::NotEmpty);
        refused!(restore(&from, out.path()), Kind::NotEmpty);
    }
}
