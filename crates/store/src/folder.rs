//! The data folder: who may enter it, who holds it, and a note of how far its journal came.
//!
//! ```text
//! folder/              0700
//!   journal.db         0600  the journal; -wal and -shm beside it while it is open, or after a kill
//!   lock                     held by the process that has the journal open; its id is in it
//!   mark                     how far the journal was known to be on the disk
//!   journal.schema-N.db      the journal as it was before an update, if there was one
//! ```
//!
//! **The lock** is an advisory one on the open file: it goes when its process goes, however it goes,
//! and the file stays. It holds among processes of one machine, and on network file systems as far
//! as those pass it on.
//!
//! **The mark** is there because SQLite cannot tell a journal that lost its end from one that never
//! had it: whoever deletes `journal.db-wal` after a kill, or copies `journal.db` alone, loses records
//! without a trace. The mark is written after each append, without a sync of its own: it may lag
//! behind the journal, but is never ahead of it. A missing or unreadable mark accuses nobody.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::chain::{Chain, Head};
use crate::error::{Result, StoreError, StoreErrorKind};

pub(crate) const JOURNAL: &str = "journal.db";
/// What SQLite wrote and has not yet moved into the journal.
pub(crate) const LOG: &str = "journal.db-wal";
/// What SQLite needs to take back a change that it had begun before it used a log.
pub(crate) const ROLLBACK: &str = "journal.db-journal";
const LOCK: &str = "lock";
const MARK: &str = "mark";

/// Temporary files are named `STEM.XXXXXX.new`. Those of the journal are swept when its folder is
/// taken.
pub(crate) const TEMPORARY_SUFFIX: &str = ".new";
pub(crate) const TEMPORARY_RANDOM: usize = 6;

/// A data folder that this process holds.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Held as long as it is open.
    _lock: File,
    mark: File,
}

impl Folder {
    /// Makes the folder, if there is none, and takes it.
    pub(crate) fn make(path: &Path) -> Result<Self> {
        let is_new = !exists(path)?;
        if is_new {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(path)
                .map_err(|error| StoreError::io(path, "create the folder", error))?;
            sync_folder(parent(path))?;
        }
        // One that has a journal is ours to close; of others, who knows what they are shared for.
        let is_foreign = !exists(&path.join(JOURNAL))? && !entries(path)?.iter().all(is_ours);
        if is_foreign && is_open_to_others(path)? {
            return Err(StoreError::new(path, StoreErrorKind::NotPrivate));
        }
        Self::take(path)
    }

    /// Makes the folder, if there is none, and takes it if there is nothing in it.
    pub(crate) fn make_empty(path: &Path) -> Result<Self> {
        if exists(path)? {
            // A restore that failed leaves the lock and a mark without content.
            let lone = |name: &String| match name.as_str() {
                LOCK | "lost+found" => true,
                MARK => path.join(MARK).metadata().is_ok_and(|mark| mark.len() == 0),
                name => is_temporary(name),
            };
            if !entries(path)?.iter().all(lone) {
                return Err(StoreError::new(path, StoreErrorKind::NotEmpty));
            }
        }
        Self::make(path)
    }

    /// Takes a folder that exists.
    pub(crate) fn take(path: &Path) -> Result<Self> {
        let lock = take_lock(&path.join(LOCK))?;
        make_private(path, 0o700)?;
        for name in entries(path)? {
            if is_temporary(&name) {
                let left = path.join(name);
                fs::remove_file(&left)
                    .map_err(|error| StoreError::io(&left, "remove a left-over", error))?;
            }
        }
        let mark = private_file(&path.join(MARK))?;
        // Whoever changes the working directory does not move the journal.
        let path = std::path::absolute(path)
            .map_err(|error| StoreError::io(path, "find the folder", error))?;
        Ok(Self { path, _lock: lock, mark })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.path.join(JOURNAL)
    }

    pub(crate) fn has_journal(&self) -> Result<bool> {
        exists(&self.journal())
    }

    /// The mark, if there is a readable one.
    pub(crate) fn mark(&self) -> Result<Option<(u64, Chain)>> {
        let mut bytes = [0; 128];
        let len = self
            .mark
            .read_at(&mut bytes, 0)
            .map_err(|error| StoreError::io(&self.path.join(MARK), "read", error))?;
        Ok(std::str::from_utf8(&bytes[..len]).ok().and_then(parse_mark))
    }

    /// Notes that the journal is on the disk up to `head`. A mark that cannot be written stays
    /// behind, which is harmless.
    pub(crate) fn set_mark(&self, head: &Head) {
        let _ = self.mark.write_all_at(format_mark(head.seq, head.chain).as_bytes(), 0);
    }
}

/// The mark of a folder that this process does not hold, if there is a readable one.
pub(crate) fn mark_of(folder: &Path) -> Option<(u64, Chain)> {
    let text = fs::read_to_string(folder.join(MARK)).ok()?;
    parse_mark(&text)
}

/// `seq chain check`, of a fixed length, so that it is overwritten in place.
fn format_mark(seq: u64, chain: Chain) -> String {
    let check = chain.with(&seq.to_le_bytes()).to_string();
    format!("{seq:020} {chain} {}\n", &check[..16])
}

fn parse_mark(text: &str) -> Option<(u64, Chain)> {
    let mut words = text.split(' ');
    let seq = words.next()?.parse().ok()?;
    let chain = Chain::from_hex(words.next()?)?;
    (format_mark(seq, chain) == text).then_some((seq, chain))
}

fn take_lock(path: &Path) -> Result<File> {
    let mut file = private_file(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            // Whoever took it just now may not have written its number yet.
            let mut text = String::new();
            let _ = file.read_to_string(&mut text);
            let pid = text.trim().parse().ok();
            return Err(StoreError::new(path, StoreErrorKind::InUse { pid }));
        }
        Err(error) => return Err(StoreError::io(path, "lock", error.into())),
    }
    file.set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .map_err(|error| StoreError::io(path, "write the process id", error))?;
    Ok(file)
}

fn private_file(path: &Path) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|error| StoreError::io(path, "open", error))
}

fn entries(path: &Path) -> Result<Vec<String>> {
    let names = || -> io::Result<Vec<String>> {
        let name =
            |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
        fs::read_dir(path)?.map(name).collect()
    };
    names().map_err(|error| StoreError::io(path, "read the folder", error))
}

/// Whether a name is of a temporary file (six random characters in the middle), or of what SQLite
/// puts beside one.
fn is_temporary(name: &str) -> bool {
    ["", "-journal", "-wal", "-shm"]
        .into_iter()
        .filter_map(|beside| name.strip_suffix(beside)?.strip_suffix(TEMPORARY_SUFFIX))
        .filter_map(|name| name.rsplit_once('.'))
        .any(|(stem, random)| {
            (stem == "journal" || stem.starts_with("journal."))
                && random.len() == TEMPORARY_RANDOM
                && random.bytes().all(|b| b.is_ascii_alphanumeric())
        })
}

fn is_ours(name: &String) -> bool {
    name == LOCK || name == MARK || name == "lost+found" || is_temporary(name)
}

/// Whether a file or folder is there; an error if that cannot be known.
pub(crate) fn exists(path: &Path) -> Result<bool> {
    path.try_exists().map_err(|error| StoreError::io(path, "look for it", error))
}

/// Takes the rights of others away. Only the owner can; in a folder of somebody else's, that is
/// left to them.
pub(crate) fn make_private(path: &Path, mode: u32) -> Result<()> {
    if is_open_to_others(path)? {
        fs::set_permissions(path, Permissions::from_mode(mode))
            .map_err(|error| StoreError::io(path, "close it to others", error))?;
    }
    Ok(())
}

/// Whether others have rights to what is ours.
fn is_open_to_others(path: &Path) -> Result<bool> {
    let metadata = path.metadata().map_err(|error| StoreError::io(path, "look at it", error))?;
    Ok(metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o077 != 0)
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(path: &Path) -> Result<()> {
    File::open(path)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| StoreError::io(path, "sync the folder", error))
}

/// The folder that a path lies in.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::NewRecord;

    #[test]
    fn one_holder_at_a_time_and_the_second_learns_who() {
        let dir = tempfile::tempdir().unwrap();
        let first = Folder::make(dir.path()).unwrap();
        let error = Folder::take(dir.path()).unwrap_err();
        assert!(
            matches!(error.kind(), StoreErrorKind::InUse { pid } if *pid == Some(std::process::id())),
            "{error}"
        );
        assert!(error.to_string().contains(&format!("process {}", std::process::id())));
        drop(first);
        Folder::take(dir.path()).unwrap();
    }

    #[test]
    fn a_new_folder_is_private_with_all_that_leads_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        Folder::make(&path).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o700);
        assert_eq!(path.join(LOCK).metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(path.join(MARK).metadata().unwrap().mode() & 0o777, 0o600);
        Folder::make_empty(&path).unwrap();
    }

    #[test]
    fn an_empty_folder_is_closed_and_one_with_other_things_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        fs::write(dir.path().join("letters"), "").unwrap();
        let error = Folder::make(dir.path()).unwrap_err();
        assert!(matches!(error.kind(), StoreErrorKind::NotPrivate), "{error}");
        assert_eq!(dir.path().metadata().unwrap().mode() & 0o777, 0o755);

        fs::write(dir.path().join(JOURNAL), "").unwrap();
        Folder::make(dir.path()).unwrap();
        assert_eq!(dir.path().metadata().unwrap().mode() & 0o777, 0o700);

        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        fs::remove_file(dir.path().join(JOURNAL)).unwrap();
        fs::remove_file(dir.path().join("letters")).unwrap();
        Folder::make(dir.path()).unwrap();
        assert_eq!(dir.path().metadata().unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn taking_sweeps_temporary_files() {
        let dir = tempfile::tempdir().unwrap();
        let swept =
            ["journal.Ab12cd.new", "journal.Ab12cd.new-journal", "journal.schema-1.000000.new"];
        let kept = ["journal.a.newer.db", "journal.db", "journal.schema-1.db", "other.new"];
        for name in swept.iter().chain(&kept) {
            fs::write(dir.path().join(name), "").unwrap();
        }
        Folder::take(dir.path()).unwrap();
        let mut left = entries(dir.path()).unwrap();
        left.sort();
        let mut expected = [&kept[..], &["lock", "mark"]].concat();
        expected.sort_unstable();
        assert_eq!(left, expected);
    }

    #[test]
    fn a_mark_is_read_back_and_a_torn_one_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::make(dir.path()).unwrap();
        assert_eq!(folder.mark().unwrap(), None);
        let new = NewRecord { at_ms: 1, kind: "k", version: 1, body: "{}" };
        let older = Head::EMPTY.then(&new);
        let newer = older.then(&new);
        folder.set_mark(&older);
        folder.set_mark(&newer);
        assert_eq!(folder.mark().unwrap(), Some((2, newer.chain)));

        let torn =
            format!("{}{}", &format_mark(2, newer.chain)[..30], &format_mark(1, older.chain)[30..]);
        folder.mark.write_all_at(torn.as_bytes(), 0).unwrap();
        assert_eq!(folder.mark().unwrap(), None);
    }
}
