//! What is known of attempts, in files: one for each, whole whenever it is read.
//!
//! `attempts/KEY` is an attempt that is observed, `forgotten/KEY` one that is not any more. A key that has a file is
//! claimed for ever.

use bursar_engine::{AttemptKey, Error, ErrorKind, Exited, Moment, Outcome};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long another process may have the folder before that is an error.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// An attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    workload: String,
    attempt: u32,
    /// Whether it adopted an arrival; else we submitted it.
    pub(crate) adopts: bool,
    pub(crate) resumable: bool,
    /// The name of the arrival, or the word of our order.
    pub(crate) name: String,
    /// The name that its job has in the queue, once that is known: for an arrival, the same.
    pub(crate) tag: Option<String>,
    /// What commands call its job, once that is known.
    pub(crate) job: Option<String>,
    /// How often the job had been put back into the queue before this attempt.
    pub(crate) restarts: u32,
    pub(crate) stage: Stage,
    pub(crate) warning: Told,
    pub(crate) checkpoint: Told,
    /// Whether it is to be stopped.
    pub(crate) stop: bool,
    /// Where it writes, where that is known.
    pub(crate) log: Option<PathBuf>,
    /// The number of the user whom that file has to belong to.
    pub(crate) log_uid: Option<u32>,
    pub(crate) notes: Vec<String>,
}

/// How far an attempt is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// Its key is taken. Slurm was not told to start it.
    Claimed,
    /// Slurm was told to start it, or is being told.
    Released { at_ms: u64 },
    /// It was seen to run.
    Running { started_s: u64 },
    /// It has ended by itself, and its job is still to go back into the queue.
    Returning(End),
    /// It has ended, and all is done.
    Over(End),
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) started_s: Option<u64>,
    pub(crate) ended_s: u64,
    pub(crate) how: How,
    pub(crate) told: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum How {
    Exit(i32),
    Signal(i32),
    StartFailed(String),
    NotStarted(String),
    Cancelled(String),
    Lost(String),
}

/// Whether an attempt was told something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Told {
    No,
    Wanted,
    Sent,
}

impl From<Outcome> for How {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Exit { code } => Self::Exit(code),
            Outcome::Signal { number } => Self::Signal(number),
            Outcome::StartFailed { reason } => Self::StartFailed(reason),
            Outcome::NotStarted { reason } => Self::NotStarted(reason),
            Outcome::Cancelled { reason } => Self::Cancelled(reason),
            Outcome::Lost { reason } => Self::Lost(reason),
        }
    }
}

impl End {
    pub(crate) fn exited(&self) -> Exited {
        let outcome = match self.how.clone() {
            How::Exit(code) => Outcome::Exit { code },
            How::Signal(number) => Outcome::Signal { number },
            How::StartFailed(reason) => Outcome::StartFailed { reason },
            How::NotStarted(reason) => Outcome::NotStarted { reason },
            How::Cancelled(reason) => Outcome::Cancelled { reason },
            How::Lost(reason) => Outcome::Lost { reason },
        };
        Exited {
            started_at: self.started_s.map(moment_of),
            ended_at: moment_of(self.ended_s),
            outcome,
            was_told_to_leave: self.told,
        }
    }
}

/// A moment that Slurm gave, which knows whole seconds.
pub(crate) fn moment_of(seconds: u64) -> Moment {
    Moment { unix_ms: seconds.saturating_mul(1000), boot_ms: None }
}

impl Record {
    pub(crate) fn new(key: &AttemptKey, name: String, adopts: bool, resumable: bool) -> Self {
        Self {
            workload: key.workload().to_owned(),
            attempt: key.attempt(),
            adopts,
            resumable,
            tag: adopts.then(|| name.clone()),
            name,
            job: None,
            restarts: 0,
            stage: Stage::Claimed,
            warning: Told::No,
            checkpoint: Told::No,
            stop: false,
            log: None,
            log_uid: None,
            notes: Vec::new(),
        }
    }

    pub(crate) fn key(&self) -> Option<AttemptKey> {
        AttemptKey::new(self.workload.clone(), self.attempt).ok()
    }

    /// Whether it was told to leave, or is being stopped.
    pub(crate) fn told_to_leave(&self) -> bool {
        self.stop || self.checkpoint == Told::Sent
    }

    /// Whether its job goes back into the queue when the attempt ends now.
    pub(crate) fn returns(&self) -> bool {
        self.adopts && self.resumable && self.checkpoint == Told::Sent
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over(_))
    }

    pub(crate) fn started_s(&self) -> Option<u64> {
        match &self.stage {
            Stage::Claimed | Stage::Released { .. } => None,
            Stage::Running { started_s } => Some(*started_s),
            Stage::Returning(end) | Stage::Over(end) => end.started_s,
        }
    }
}

/// All records of an engine. While it is there nobody else has the folder.
pub(crate) struct Records {
    folder: PathBuf,
    live: BTreeMap<AttemptKey, Record>,
    _lock: File,
}

impl Records {
    pub(crate) fn open(folder: &Path) -> Result<Self, Error> {
        let made = |name: &str| fs::create_dir_all(folder.join(name));
        made("attempts")
            .and_then(|()| made("forgotten"))
            .map_err(|error| io_error(folder, &error))?;
        let path = folder.join("lock");
        let lock =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let lock = lock.map_err(|error| io_error(&path, &error))?;
        lock_it(&lock).map_err(|error| {
            let said = format!("{} is in use by another process ({error})", folder.display());
            Error::new(ErrorKind::InUse, said)
        })?;
        let mut records = Self { folder: folder.to_owned(), live: BTreeMap::new(), _lock: lock };
        let attempts = folder.join("attempts");
        for entry in fs::read_dir(&attempts).map_err(|error| io_error(&attempts, &error))? {
            let path = entry.map_err(|error| io_error(&attempts, &error))?.path();
            // What was being written when we were killed was not told to anybody.
            if path.extension().is_some_and(|extension| extension == "new") {
                let _ = fs::remove_file(&path);
                continue;
            }
            let record = read(&path).map_err(|error| io_error(&path, &error))?;
            let key =
                record.key().ok_or_else(|| io_error(&path, &io::ErrorKind::InvalidData.into()))?;
            records.live.insert(key, record);
        }
        Ok(records)
    }

    pub(crate) fn get(&self, key: &AttemptKey) -> Option<&Record> {
        self.live.get(key)
    }

    /// The observed attempts, by key.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&AttemptKey, &Record)> {
        self.live.iter()
    }

    pub(crate) fn keys(&self) -> Vec<AttemptKey> {
        self.live.keys().cloned().collect()
    }

    /// Whether a key was ever claimed.
    pub(crate) fn is_claimed(&self, key: &AttemptKey) -> bool {
        self.live.contains_key(key) || self.forgotten(key).exists()
    }

    fn path(&self, key: &AttemptKey) -> PathBuf {
        self.folder.join("attempts").join(format!("{key}.json"))
    }

    fn forgotten(&self, key: &AttemptKey) -> PathBuf {
        self.folder.join("forgotten").join(format!("{key}.json"))
    }

    /// Writes a record. When this returns it is there also after the power failed.
    pub(crate) fn put(&mut self, key: &AttemptKey, record: Record) -> Result<(), Error> {
        if self.live.get(key) == Some(&record) {
            return Ok(());
        }
        let path = self.path(key);
        let bytes = serde_json::to_vec(&record).map_err(|error| io_error(&path, &error.into()))?;
        write(&path, &bytes).map_err(|error| io_error(&path, &error))?;
        self.live.insert(key.clone(), record);
        Ok(())
    }

    /// Changes a record, if there is one.
    pub(crate) fn change(
        &mut self,
        key: &AttemptKey,
        change: impl FnOnce(&mut Record),
    ) -> Result<(), Error> {
        let Some(mut record) = self.live.get(key).cloned() else { return Ok(()) };
        change(&mut record);
        self.put(key, record)
    }

    /// Lets go of a record; its key stays claimed.
    pub(crate) fn forget(&mut self, key: &AttemptKey) -> Result<(), Error> {
        let (from, to) = (self.path(key), self.forgotten(key));
        fs::rename(&from, &to).map_err(|error| io_error(&from, &error))?;
        sync(&self.folder.join("forgotten")).map_err(|error| io_error(&to, &error))?;
        sync(&self.folder.join("attempts")).map_err(|error| io_error(&from, &error))?;
        self.live.remove(key);
        Ok(())
    }

    /// Where an attempt writes or wrote, and as whom; whether or not it was forgotten.
    pub(crate) fn log_of(&self, key: &AttemptKey) -> Option<(PathBuf, u32)> {
        let record = match self.live.get(key) {
            Some(record) => record.clone(),
            None => read(&self.forgotten(key)).ok()?,
        };
        record.log.zip(record.log_uid)
    }

    /// The hosts that are cordoned.
    pub(crate) fn cordons(&self) -> Result<Vec<String>, Error> {
        let path = self.folder.join("cordons");
        match fs::read_to_string(&path) {
            Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(io_error(&path, &error)),
        }
    }

    pub(crate) fn set_cordons(&self, hosts: &[String]) -> Result<(), Error> {
        let path = self.folder.join("cordons");
        let text: String = hosts.iter().map(|host| format!("{host}\n")).collect();
        write(&path, text.as_bytes()).map_err(|error| io_error(&path, &error))
    }
}

/// A process that is just being started has what its parent had open, for a moment: so not at the first attempt alone.
fn lock_it(lock: &File) -> rustix::io::Result<()> {
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        match flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            answer => return answer,
        }
    }
}

fn read(path: &Path) -> io::Result<Record> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    path.parent().map_or(Ok(()), sync)
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

pub(crate) fn io_error(path: &Path, error: &io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_outlive_their_engine() {
        let folder = tempfile::tempdir().unwrap();
        let key = AttemptKey::new("a.1", 2).unwrap();
        let mut records = Records::open(folder.path()).unwrap();
        assert_eq!(Records::open(folder.path()).err().unwrap().kind(), ErrorKind::InUse);
        assert!(!records.is_claimed(&key));
        let mut record = Record::new(&key, "1.a".to_owned(), true, true);
        records.put(&key, record.clone()).unwrap();
        record.stage =
            Stage::Over(End { started_s: Some(5), ended_s: 7, how: How::Exit(3), told: false });
        (record.log, record.log_uid) = (Some("/log".into()), Some(5));
        records.put(&key, record.clone()).unwrap();
        records.set_cordons(&["n1".to_owned()]).unwrap();
        drop(records);
        fs::write(folder.path().join("attempts/a.1.3.new"), "{half").unwrap();
        let mut records = Records::open(folder.path()).unwrap();
        assert_eq!(records.get(&key), Some(&record));
        assert_eq!(records.cordons().unwrap(), ["n1"]);
        records.forget(&key).unwrap();
        drop(records);
        let records = Records::open(folder.path()).unwrap();
        assert_eq!(records.get(&key), None);
        assert!(records.is_claimed(&key));
        assert_eq!(records.log_of(&key), Some(("/log".into(), 5)));
    }
}
