//! The folder of one attempt.

use super::durable;
use super::records::{ExitRecord, OrderRecord, RECORD_BYTES_MAX, StateRecord, VERSION};
use super::steps::{Step, reached};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

const ORDER: &str = "order.json";
const STATE: &str = "state.json";
const EXIT: &str = "exit.json";
const CONTROL: &str = "control";
const SHIM_LOG: &str = "shim.log";
const EMPTIED: &str = "emptied";

/// How the folder of an attempt is called while it is built.
pub(crate) const UNFINISHED: &str = ".new-";

/// What the shim can be told: one byte each, so that orders cannot mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Warn,
    Checkpoint,
    Stop,
}

impl Command {
    const ALL: [Self; 3] = [Self::Warn, Self::Checkpoint, Self::Stop];

    const fn byte(self) -> u8 {
        match self {
            Self::Warn => b'w',
            Self::Checkpoint => b'c',
            Self::Stop => b's',
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|command| command.byte() == byte)
    }
}

/// The folder of one attempt, by its absolute path.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Claims an attempt: makes its folder, whole, or nothing. `None` if it is there already. When this
    /// returns, the claim is there also after the power failed; what is in the folder may not be, but then
    /// nothing was started. The handle keeps `control` open for the shim.
    pub(crate) fn claim(
        attempts: &Path,
        name: &str,
        order: &OrderRecord,
    ) -> io::Result<Option<(Self, OwnedFd)>> {
        let unfinished = Self::at(attempts.join(format!("{UNFINISHED}{name}")));
        let built = unfinished.build(order).and_then(|control| {
            reached(Step::Built);
            let folder = Self::at(attempts.join(name));
            // Fails if it is there, since no such folder is ever empty.
            match fs::rename(&unfinished.path, &folder.path) {
                Ok(()) => Ok(Some((folder, control))),
                Err(error) if is_there(&error) => Ok(None),
                Err(error) => Err(error),
            }
        });
        match built {
            Ok(Some(claimed)) => match durable::sync_folder(attempts) {
                Ok(()) => Ok(Some(claimed)),
                // Nothing was started. Should this fail, too, it remains a claim without a shim.
                Err(error) => fs::remove_dir_all(&claimed.0.path).and(Err(error)),
            },
            // A new one under this name is built from nothing again, so that this may fail.
            other => {
                let _ = fs::remove_dir_all(&unfinished.path);
                other
            }
        }
    }

    fn build(&self, order: &OrderRecord) -> io::Result<OwnedFd> {
        if self.path.exists() {
            fs::remove_dir_all(&self.path)?;
        }
        DirBuilder::new().mode(0o700).create(&self.path)?;
        durable::write_new(&self.path.join(ORDER), &serde_json::to_vec(order)?)?;
        for name in [STATE, EXIT] {
            durable::reserve(&self.path, name, b"null", RECORD_BYTES_MAX)?;
        }
        durable::write_new(&self.path.join(SHIM_LOG), b"")?;
        let control = self.path.join(CONTROL);
        make_fifo(&control)?;
        // Open for both, so that neither side waits for the other.
        open(&control, OFlags::RDWR)
    }

    pub(crate) fn order(&self) -> io::Result<OrderRecord> {
        let order: Option<OrderRecord> = self.read(ORDER)?;
        let order = order.ok_or_else(|| io::Error::other("there is no order"))?;
        checked(order.version).map(|()| order)
    }

    pub(crate) fn state(&self) -> io::Result<Option<StateRecord>> {
        let state: Option<StateRecord> = self.read(STATE)?;
        state.map(|state| checked(state.version).map(|()| state)).transpose()
    }

    pub(crate) fn write_state(&self, state: &StateRecord) -> io::Result<()> {
        durable::swap(&self.path, STATE, &serde_json::to_vec(state)?, RECORD_BYTES_MAX)
    }

    pub(crate) fn exit(&self) -> io::Result<Option<ExitRecord>> {
        let exit: Option<ExitRecord> = self.read(EXIT)?;
        exit.map(|exit| checked(exit.version).map(|()| exit)).transpose()
    }

    pub(crate) fn write_exit(&self, exit: &ExitRecord) -> io::Result<()> {
        durable::swap(&self.path, EXIT, &serde_json::to_vec(exit)?, RECORD_BYTES_MAX)
    }

    /// None if there is no such file, or nothing in it.
    fn read<T: serde::de::DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        match fs::read(self.path.join(name)) {
            Ok(bytes) if bytes.iter().all(u8::is_ascii_whitespace) => Ok(None),
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The guard has ended all that the shim left.
    pub(crate) fn say_emptied(&self) -> io::Result<()> {
        File::create(self.path.join(EMPTIED)).map(drop)
    }

    /// Whether it has.
    pub(crate) fn was_emptied(&self) -> bool {
        self.path.join(EMPTIED).exists()
    }

    /// When it was claimed, by the wall clock.
    pub(crate) fn claimed_unix_ms(&self) -> Option<u64> {
        modified_unix_ms(&fs::metadata(self.path.join(ORDER)).ok()?)
    }

    /// When the shim last wrote how far it is, or what the work said, by the wall clock.
    pub(crate) fn written_unix_ms(&self) -> Option<u64> {
        let entries = fs::read_dir(&self.path).ok()?.flatten();
        let of_shim = |name: &OsStr| name == STATE || log_offset(name).is_some();
        let entries = entries.filter(|entry| of_shim(&entry.file_name()));
        entries.filter_map(|entry| modified_unix_ms(&entry.metadata().ok()?)).max()
    }

    /// Where the shim writes what it has to say itself.
    pub(crate) fn shim_log(&self) -> io::Result<File> {
        fs::OpenOptions::new().append(true).open(self.path.join(SHIM_LOG))
    }

    /// The end of what the shim had to say itself.
    pub(crate) fn shim_said(&self) -> String {
        let mut tail = Vec::new();
        let read = File::open(self.path.join(SHIM_LOG)).and_then(|mut file| {
            let bytes = file.metadata()?.len();
            file.seek(SeekFrom::Start(bytes.saturating_sub(500)))?;
            file.read_to_end(&mut tail)
        });
        match read {
            Ok(_) => String::from_utf8_lossy(&tail).trim().to_owned(),
            Err(_) => String::new(),
        }
    }

    /// Whether the shim of this attempt lives, or is just being started.
    pub(crate) fn is_supervised(&self) -> io::Result<bool> {
        self.writable_control().map(|control| control.is_some())
    }

    /// Whether an open file is the `control` of this folder.
    pub(crate) fn is_control(&self, file: BorrowedFd<'_>) -> io::Result<bool> {
        let (open, named) = (rustix::fs::fstat(file)?, rustix::fs::stat(self.path.join(CONTROL))?);
        Ok((open.st_dev, open.st_ino) == (named.st_dev, named.st_ino))
    }

    /// Tells the shim something. Whether there is one that will read it.
    pub(crate) fn tell(&self, command: Command) -> io::Result<bool> {
        let Some(control) = self.writable_control()? else { return Ok(false) };
        match rustix::io::write(&control, &[command.byte()]) {
            Ok(_) => Ok(true),
            Err(Errno::PIPE) => Ok(false),
            // Full of what it was told before: it knows enough.
            Err(Errno::AGAIN) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// A FIFO can be opened for writing alone only while somebody has it open for reading.
    fn writable_control(&self) -> io::Result<Option<OwnedFd>> {
        match open(&self.path.join(CONTROL), OFlags::WRONLY) {
            Ok(control) => Ok(Some(control)),
            Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Moves the folder to where those are whose attempts are over, and removes all but the log.
    pub(crate) fn retire(&self, ended: &Path) -> io::Result<()> {
        let name = self.path.file_name().unwrap_or_default();
        let retired = ended.join(name);
        fs::rename(&self.path, &retired)?;
        // It is retired now. If the machine fails before that is on the disk, it is retired again.
        let _ = durable::sync_folder(ended);
        for entry in fs::read_dir(&retired).into_iter().flatten().flatten() {
            if log_offset(&entry.file_name()).is_none() {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }
}

/// The name of the log file that begins at this byte of the log.
pub(crate) fn log_name(offset: u64) -> String {
    // As many digits as the largest offset has, so that names sort as offsets do.
    format!("log.{offset:020}")
}

/// At which byte of the log a file begins, if it is one of its files.
pub(crate) fn log_offset(name: &OsStr) -> Option<u64> {
    let digits = name.to_str()?.strip_prefix("log.")?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Makes a FIFO for the user of the daemon alone, unless it is there.
pub(crate) fn make_fifo(path: &Path) -> io::Result<()> {
    let mode = Mode::from_raw_mode(0o600);
    match rustix::fs::mkfifoat(CWD, path, mode) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Opens a FIFO without waiting for its other side.
pub(crate) fn open(path: &Path, access: OFlags) -> io::Result<OwnedFd> {
    let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Whether a record was read but makes no sense; it will not tomorrow either.
pub(crate) fn is_nonsense(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

fn modified_unix_ms(metadata: &fs::Metadata) -> Option<u64> {
    let since = metadata.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

fn is_there(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty)
}

fn checked(version: u32) -> io::Result<()> {
    if version == VERSION {
        return Ok(());
    }
    let text = format!("the record has version {version}, this program knows {VERSION}");
    Err(io::Error::new(io::ErrorKind::InvalidData, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_files_sort_as_they_follow() {
        assert_eq!(log_offset(OsStr::new(&log_name(7))), Some(7));
        assert_eq!(log_offset(OsStr::new(&log_name(u64::MAX))), Some(u64::MAX));
        assert!(log_name(9) < log_name(10));
        for other in ["log", "log.", "log.x", "log.-1", "shim.log", "log.99999999999999999999"] {
            assert_eq!(log_offset(OsStr::new(other)), None, "{other}");
        }
    }

    #[test]
    fn commands_are_read_back() {
        for command in Command::ALL {
            assert_eq!(Command::from_byte(command.byte()), Some(command));
        }
        assert_eq!(Command::from_byte(b'x'), None);
    }
}
