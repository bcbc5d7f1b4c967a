//! Logs: the file that a job writes its standard output to.

use super::SlurmEngine;
use crate::records::io_error;
use bursar_engine::{AttemptKey, Error, ErrorKind, LogChunk};
use rustix::fs::OFlags;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

/// Most that is read at once, in bytes.
const PART_BYTES_MAX: usize = 16 << 20;

impl SlurmEngine {
    pub(super) fn log_part(
        &self,
        key: &AttemptKey,
        offset: u64,
        bytes_max: usize,
    ) -> Result<LogChunk, Error> {
        let unknown = |why: &str| Error::new(ErrorKind::Unknown, format!("{key}: {why}"));
        let (path, uid) = self.records.log_of(key).ok_or_else(|| unknown("no log is known"))?;
        let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY).bits()).unwrap_or_default();
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(&path) {
            Ok(file) => file,
            Err(error) => return Err(unknown(&format!("{}: {error}", path.display()))),
        };
        let found = file.metadata().map_err(|error| io_error(&path, &error))?;
        // Users say where their jobs write, and shall not have us read to them what they may not.
        if !found.is_file() || found.uid() != uid {
            return Err(unknown("its log is no file of its user's"));
        }
        let offset = offset.min(found.len());
        let room = usize::try_from(found.len() - offset).unwrap_or(usize::MAX);
        let mut bytes = vec![0; room.min(bytes_max).min(PART_BYTES_MAX)];
        let mut read = 0;
        while read < bytes.len() {
            let at = offset + read as u64;
            match file.read_at(&mut bytes[read..], at).map_err(|error| io_error(&path, &error))? {
                0 => break,
                more => read += more,
            }
        }
        bytes.truncate(read);
        Ok(LogChunk { next_offset: offset + bytes.len() as u64, bytes, offset })
    }
}
