//! Reading what work wrote. The name of a log file says at which byte of the whole it begins, so that
//! reading on across rotation needs no memory of it.

use super::folder::log_offset;
use crate::engine::LogChunk;
use crate::error::{Error, ErrorKind};
use crate::key::AttemptKey;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The logs of a [`LocalEngine`](super::LocalEngine), which can be read while that is busy.
#[derive(Clone, Debug)]
pub struct Logs {
    attempts: PathBuf,
    ended: PathBuf,
}

impl Logs {
    pub(crate) fn new(attempts: PathBuf, ended: PathBuf) -> Self {
        Self { attempts, ended }
    }

    /// As [`Engine::read_log`](crate::Engine::read_log).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn read(&self, key: &AttemptKey, offset: u64, bytes_max: usize) -> Result<LogChunk, Error> {
        let name = key.to_string();
        // It may be moved from the one to the other meanwhile, never back.
        for folder in [&self.attempts, &self.ended] {
            match read(&folder.join(&name), offset, bytes_max) {
                Ok(chunk) => return Ok(chunk),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(Error::io(format!("cannot read the log of {key}"), error));
                }
            }
        }
        Err(Error::new(ErrorKind::Unknown, format!("there is no log of {key}")))
    }
}

/// `NotFound` only if there is no such folder.
fn read(folder: &Path, offset: u64, bytes_max: usize) -> io::Result<LogChunk> {
    loop {
        match read_listed(folder, &list(folder)?, offset, bytes_max) {
            // Removed by rotation since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => return result,
        }
    }
}

fn list(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        files.extend(log_offset(&entry.file_name()).map(|begins| (begins, entry.path())));
    }
    files.sort();
    Ok(files)
}

fn read_listed(
    folder: &Path,
    files: &[(u64, PathBuf)],
    offset: u64,
    bytes_max: usize,
) -> io::Result<LogChunk> {
    // Where reading begins: at the first byte that is kept, or at the end if that comes first.
    let Some((first, _)) = files.first() else {
        fs::metadata(folder)?;
        return Ok(LogChunk { bytes: Vec::new(), offset: 0, next_offset: 0 });
    };
    let mut offset = offset.max(*first);
    let from = files.partition_point(|(begins, _)| *begins <= offset) - 1;
    let mut bytes = Vec::new();
    let mut next = offset;
    for (begins, path) in &files[from..] {
        let file = File::open(path)?;
        let ends = begins + file.metadata()?.len();
        if bytes.is_empty() && next > ends {
            // Past the end of the last file, or in a gap that a crash of the machine left.
            (offset, next) = (ends, ends);
        }
        if next < *begins {
            if !bytes.is_empty() {
                break;
            }
            (offset, next) = (*begins, *begins);
        }
        let wanted = usize::try_from(ends.saturating_sub(next)).unwrap_or(usize::MAX);
        let wanted = wanted.min(bytes_max - bytes.len());
        let had = bytes.len();
        bytes.resize(had + wanted, 0);
        let read = read_at_most(&file, &mut bytes[had..], next - begins)?;
        bytes.truncate(had + read);
        next += read as u64;
        if bytes.len() == bytes_max {
            break;
        }
    }
    Ok(LogChunk { bytes, offset, next_offset: next })
}

fn read_at_most(file: &File, into: &mut [u8], from: u64) -> io::Result<usize> {
    let mut had = 0;
    while had < into.len() {
        match file.read_at(&mut into[had..], from + had as u64) {
            Ok(0) => break,
            Ok(read) => had += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(had)
}

#[cfg(test)]
mod tests {
    use super::super::folder::log_name;
    use super::*;

    fn chunk(bytes: &str, offset: u64) -> LogChunk {
        let bytes = bytes.as_bytes().to_vec();
        LogChunk { next_offset: offset + bytes.len() as u64, bytes, offset }
    }

    #[test]
    fn reading_goes_on_across_files() {
        let folder = tempfile::tempdir().unwrap();
        let read = |offset, max| read(folder.path(), offset, max).unwrap();
        assert_eq!(read(5, 10), chunk("", 0));
        for (offset, text) in [(4, "efgh"), (8, "ijkl"), (12, "")] {
            fs::write(folder.path().join(log_name(offset)), text).unwrap();
        }
        fs::write(folder.path().join("shim.log"), "no").unwrap();
        assert_eq!(read(0, 100), chunk("efghijkl", 4));
        assert_eq!(read(6, 4), chunk("ghij", 6));
        assert_eq!(read(8, 100), chunk("ijkl", 8));
        assert_eq!(read(12, 100), chunk("", 12));
        assert_eq!(read(99, 100), chunk("", 12));
        assert_eq!(read(4, 0), chunk("", 4));
    }
}
