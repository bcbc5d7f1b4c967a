//! What can go wrong with a journal, as one line that names the file, the fault and the fix.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Why something could not be done with a journal. Its text is one line:
/// `/data/journal.db: record 17 is damaged: …; restore …`.
#[derive(Debug, thiserror::Error)]
#[error("{}: {kind}", .path.display())]
pub struct StoreError {
    path: PathBuf,
    kind: Box<StoreErrorKind>,
}

/// The kinds of fault that a [`StoreError`] reports.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// Another process (or another [`Store`](crate::Store) of this one) holds the folder.
    #[error("is in use by {}: only one process may hold a journal, stop that one first",
        .pid.map_or("another process".to_owned(), |pid| format!("process {pid}")))]
    InUse {
        /// The process that holds it, where it could be read.
        pid: Option<u32>,
    },
    /// The folder holds no journal.
    #[error("holds no journal: create one, or restore a backup into this folder")]
    Missing,
    /// A journal was to be created where there is one.
    #[error("holds a journal already: open that one, or name another folder")]
    Exists,
    /// A backup was to be restored into a folder that holds something.
    #[error("is not empty: restore into a new or an empty folder")]
    NotEmpty,
    /// A folder with other things in it is open to other users.
    #[error("can be entered by other users and is not empty: chmod 700 it, or name another folder")]
    NotPrivate,
    /// A backup was to be written beside the journal that it should outlive.
    #[error("lies in the folder of the journal itself: write backups elsewhere")]
    BackupInside,
    /// The file to restore belongs to a journal that is, or was last, in use.
    #[error(
        "is not a backup but part of a journal in use: open its folder, or make a backup of it"
    )]
    NotABackup,
    /// The file is not a journal of this crate.
    #[error("is not a journal of bursar ({what}): restore a backup into an empty folder")]
    NotAJournal {
        /// What shows it.
        what: String,
    },
    /// The file was written by a later version.
    #[error(
        "has schema {found}, this version knows schemas up to {known}: use the version that wrote \
         it or a later one, or restore a backup made before the update"
    )]
    NewerSchema {
        /// The schema of the file.
        found: u32,
        /// The latest that this version knows.
        known: u32,
    },
    /// The file was written by an earlier version, and is only read here, not moved on.
    #[error(
        "has schema {found}, this version reads {known}: bring the site up once (bursar up --data \
         FOLDER), or restore the backup (bursar restore BACKUP --data FOLDER)"
    )]
    OlderSchema {
        /// The schema of the file.
        found: u32,
        /// The one that this version reads.
        known: u32,
    },
    /// The file is damaged.
    #[error("{}{what}; restore a backup into an empty folder (bursar restore BACKUP --data FOLDER), and keep this one to look into",
        .seq.map_or(String::new(), |seq| format!("damaged at record {seq}: ")))]
    Corrupt {
        /// The first record that cannot be trusted, where the damage is to a record.
        seq: Option<u64>,
        /// What is wrong.
        what: String,
    },
    /// The disk is full. What was to be written is not there; try again with more room.
    #[error("no room to {action}: free disk space and try again")]
    Full {
        /// What was being done.
        action: &'static str,
    },
    /// Another program has the database open and locked. Nothing was changed.
    #[error("cannot {action}, another program has locked the database: close it and try again")]
    Busy {
        /// What was being done.
        action: &'static str,
    },
    /// The operating system refused.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// Its reason.
        source: io::Error,
    },
    /// SQLite refused, for a reason that has no kind of its own.
    #[error("cannot {action}: {source}")]
    Sqlite {
        /// What was being done.
        action: &'static str,
        /// Its reason.
        source: rusqlite::Error,
    },
    /// The caller asked for what cannot be, such as a record older than the last one.
    #[error("{what}")]
    Invalid {
        /// What cannot be.
        what: String,
    },
    /// An earlier write failed in a way that leaves open what is on the disk.
    #[error(
        "takes no more records since a write failed ({reason}): look at the disk, then open the \
         journal again"
    )]
    Poisoned {
        /// The failure, as text.
        reason: String,
    },
}

/// What this crate returns.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

impl StoreError {
    pub(crate) fn new(path: &Path, kind: StoreErrorKind) -> Self {
        Self { path: path.to_owned(), kind: Box::new(kind) }
    }

    pub(crate) fn io(path: &Path, action: &'static str, source: io::Error) -> Self {
        let full =
            matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        Self::new(
            path,
            if full {
                StoreErrorKind::Full { action }
            } else {
                StoreErrorKind::Io { action, source }
            },
        )
    }

    pub(crate) fn corrupt(path: &Path, seq: Option<u64>, what: impl Into<String>) -> Self {
        Self::new(path, StoreErrorKind::Corrupt { seq, what: what.into() })
    }

    pub(crate) fn invalid(path: &Path, what: impl Into<String>) -> Self {
        Self::new(path, StoreErrorKind::Invalid { what: what.into() })
    }

    /// Gives what SQLite says the kind that callers act on.
    pub(crate) fn sqlite(path: &Path, action: &'static str, source: rusqlite::Error) -> Self {
        let kind = match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => StoreErrorKind::Full { action },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                StoreErrorKind::Busy { action }
            }
            Some(ErrorCode::DatabaseCorrupt) => {
                StoreErrorKind::Corrupt { seq: None, what: format!("cannot {action}: {source}") }
            }
            Some(ErrorCode::NotADatabase) => {
                StoreErrorKind::NotAJournal { what: "not an SQLite database".to_owned() }
            }
            Some(ErrorCode::SystemIoFailure) => {
                StoreErrorKind::Io { action, source: io::Error::other(source) }
            }
            _ => StoreErrorKind::Sqlite { action, source },
        };
        Self::new(path, kind)
    }

    /// The file or folder that the fault is about.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the fault is.
    pub fn kind(&self) -> &StoreErrorKind {
        &self.kind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_file_fault_and_fix_in_one_line() {
        let path = Path::new("/data/journal.db");
        let cases = [
            (
                StoreError::corrupt(path, Some(17), "its checksum does not fit"),
                "/data/journal.db: damaged at record 17: its checksum does not fit; restore a \
                 backup into an empty folder (bursar restore BACKUP --data FOLDER), and keep this \
                 one to look into",
            ),
            (
                StoreError::new(path, StoreErrorKind::InUse { pid: Some(4) }),
                "/data/journal.db: is in use by process 4: only one process may hold a journal, \
                 stop that one first",
            ),
            (
                StoreError::io(path, "append", io::Error::from(io::ErrorKind::StorageFull)),
                "/data/journal.db: no room to append: free disk space and try again",
            ),
            (
                StoreError::new(path, StoreErrorKind::NewerSchema { found: 9, known: 2 }),
                "/data/journal.db: has schema 9, this version knows schemas up to 2: use the \
                 version that wrote it or a later one, or restore a backup made before the update",
            ),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }
}
