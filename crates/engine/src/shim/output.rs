//! What the work writes, into files of limited size.
//!
//! The pipe is emptied at once, whatever the disk does. Between it and the disk is a buffer; what does not
//! fit into it, and what the disk refuses, is dropped and counted.

use crate::local::folder::{log_name, log_offset};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::mem;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Most that waits for the disk, in bytes. A disk that hangs for a second under a log of 4 MB per second,
/// which is much, loses nothing.
const BUFFER_BYTES_MAX: usize = 4 << 20;

/// The way from the pipe to the files.
#[derive(Debug)]
pub(super) struct Output {
    shared: Arc<Shared>,
    writer: JoinHandle<u64>,
}

#[derive(Debug, Default)]
struct Shared {
    buffer: Mutex<Buffer>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    /// Bytes after these that did not fit.
    dropped: u64,
    closed: bool,
}

impl Output {
    /// Starts the thread that writes to the files in `folder`.
    pub(super) fn start(folder: &Path, bytes_max: u64, files_max: u32) -> io::Result<Self> {
        let mut files = LogFiles::new(Files(folder.to_owned()), bytes_max, files_max);
        let shared = Arc::new(Shared::default());
        let writer = std::thread::Builder::new().name("log".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                while let Some((bytes, dropped)) = shared.take() {
                    files.write(&bytes);
                    files.dropped(dropped, "the disk was too slow");
                }
                files.close()
            }
        })?;
        Ok(Self { shared, writer })
    }

    /// Takes what the work wrote. Never waits for the disk.
    pub(super) fn push(&self, bytes: &[u8]) {
        let mut buffer = self.shared.lock();
        // Once something was dropped, all is until the writer has seen it: what is kept has one gap.
        if buffer.dropped > 0 || buffer.bytes.len() + bytes.len() > BUFFER_BYTES_MAX {
            buffer.dropped += bytes.len() as u64;
        } else {
            buffer.bytes.extend_from_slice(bytes);
        }
        drop(buffer);
        self.shared.changed.notify_one();
    }

    /// Waits until all is written; how many bytes were dropped.
    pub(super) fn close(self) -> u64 {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
        self.writer.join().unwrap_or(0)
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be written next, when there is something; none when there will be no more.
    fn take(&self) -> Option<(Vec<u8>, u64)> {
        let idle =
            |buffer: &mut Buffer| buffer.bytes.is_empty() && buffer.dropped == 0 && !buffer.closed;
        let waited = self.changed.wait_while(self.lock(), idle);
        let mut buffer = waited.unwrap_or_else(PoisonError::into_inner);
        if buffer.bytes.is_empty() && buffer.dropped == 0 {
            return None;
        }
        Some((mem::take(&mut buffer.bytes), mem::take(&mut buffer.dropped)))
    }
}

/// Where log files are made and removed.
trait Place {
    type File: Write;
    fn create(&mut self, offset: u64) -> io::Result<Self::File>;
    fn remove(&mut self, offset: u64) -> io::Result<()>;
}

/// A folder.
struct Files(PathBuf);

impl Place for Files {
    type File = File;

    fn create(&mut self, offset: u64) -> io::Result<File> {
        let path = self.0.join(log_name(offset));
        debug_assert!(path.file_name().and_then(log_offset).is_some());
        OpenOptions::new().append(true).create(true).mode(0o600).open(path)
    }

    fn remove(&mut self, offset: u64) -> io::Result<()> {
        std::fs::remove_file(self.0.join(log_name(offset)))
    }
}

/// Files that follow each other.
struct LogFiles<P: Place> {
    place: P,
    bytes_max: u64,
    files_max: usize,
    /// The open file, and where it begins.
    current: Option<(P::File, u64)>,
    /// Where the files begin that are kept.
    kept: Vec<u64>,
    /// Bytes written so far, over all files.
    written: u64,
    /// Bytes dropped that nothing in the log tells of yet, and why.
    untold: Option<(u64, String)>,
    dropped: u64,
}

impl<P: Place> LogFiles<P> {
    fn new(place: P, bytes_max: u64, files_max: u32) -> Self {
        Self {
            place,
            bytes_max: bytes_max.max(1),
            files_max: usize::try_from(files_max).unwrap_or(usize::MAX).max(1),
            current: None,
            kept: Vec::new(),
            written: 0,
            untold: None,
            dropped: 0,
        }
    }

    /// Writes what can be written and drops the rest.
    fn write(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if let Err((rest, error)) = self.tell_dropped().and_then(|()| self.put(bytes)) {
            let rest = rest.min(bytes.len());
            self.dropped(rest as u64, &error.to_string());
        }
    }

    /// Counts bytes that are not in the log, to be told of in it when it takes something again.
    fn dropped(&mut self, bytes: u64, why: &str) {
        if bytes == 0 {
            return;
        }
        self.dropped += bytes;
        let before = self.untold.take().map_or(0, |(before, _)| before);
        self.untold = Some((before + bytes, why.to_owned()));
    }

    fn tell_dropped(&mut self) -> Result<(), (usize, io::Error)> {
        let Some((bytes, why)) = &self.untold else { return Ok(()) };
        let line = format!("\n[bursar: {bytes} bytes of output were dropped: {why}]\n");
        // What is told in half is told again; what comes after it is dropped meanwhile.
        self.put(line.as_bytes()).map_err(|(_, error)| (usize::MAX, error))?;
        self.untold = None;
        Ok(())
    }

    /// On failure: how many bytes were not written.
    fn put(&mut self, mut bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        while !bytes.is_empty() {
            match self.put_some(bytes) {
                Ok(0) => return Err((bytes.len(), io::ErrorKind::WriteZero.into())),
                Ok(wrote) => bytes = &bytes[wrote..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err((bytes.len(), error)),
            }
        }
        Ok(())
    }

    fn put_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.current.as_ref().is_none_or(|(_, begins)| self.written - begins >= self.bytes_max) {
            self.rotate()?;
        }
        let Some((file, begins)) = &mut self.current else { return Ok(0) };
        let room = *begins + self.bytes_max - self.written;
        let wanted = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        let wrote = file.write(&bytes[..wanted])?;
        self.written += wrote as u64;
        Ok(wrote)
    }

    fn rotate(&mut self) -> io::Result<()> {
        // First, so that a full disk has room for what is new.
        while self.kept.len() >= self.files_max {
            let oldest = self.kept.remove(0);
            let _ = self.place.remove(oldest);
        }
        self.current = None;
        self.current = Some((self.place.create(self.written)?, self.written));
        self.kept.push(self.written);
        Ok(())
    }

    /// Says what was dropped last, if there is room; how many bytes were, over all.
    fn close(mut self) -> u64 {
        let _ = self.tell_dropped();
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeMap;
    use std::rc::Rc;

    /// A disk with room for so many bytes.
    #[derive(Clone, Default)]
    struct Disk {
        files: Rc<RefCell<BTreeMap<u64, Vec<u8>>>>,
        room: Rc<Cell<usize>>,
    }

    struct DiskFile(Disk, u64);

    impl Place for Disk {
        type File = DiskFile;
        fn create(&mut self, offset: u64) -> io::Result<DiskFile> {
            self.files.borrow_mut().entry(offset).or_default();
            Ok(DiskFile(self.clone(), offset))
        }
        fn remove(&mut self, offset: u64) -> io::Result<()> {
            self.files.borrow_mut().remove(&offset);
            Ok(())
        }
    }

    impl Write for DiskFile {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let Self(disk, offset) = self;
            let wrote = bytes.len().min(disk.room.get());
            if wrote == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            disk.room.set(disk.room.get() - wrote);
            disk.files.borrow_mut().get_mut(offset).unwrap().extend_from_slice(&bytes[..wrote]);
            Ok(wrote)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Disk {
        fn files(&self) -> Vec<(u64, String)> {
            let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
            self.files.borrow().iter().map(|(offset, bytes)| (*offset, text(bytes))).collect()
        }
        fn has_room_for(&self, bytes: usize) {
            self.room.set(bytes);
        }
    }

    #[test]
    fn files_are_limited_in_size_and_number() {
        let disk = Disk::default();
        disk.has_room_for(1000);
        let mut files = LogFiles::new(disk.clone(), 4, 2);
        files.write(b"abcdefghij");
        assert_eq!(disk.files(), [(4, "efgh".to_owned()), (8, "ij".to_owned())]);
        files.write(b"kl");
        files.write(b"m");
        assert_eq!(disk.files(), [(8, "ijkl".to_owned()), (12, "m".to_owned())]);
        assert_eq!(files.close(), 0);
    }

    #[test]
    fn a_full_disk_drops_output_and_says_so_later() {
        let disk = Disk::default();
        disk.has_room_for(3);
        let mut files = LogFiles::new(disk.clone(), 1000, 1);
        files.write(b"abcdef");
        files.write(b"ghi");
        assert_eq!(disk.files(), [(0, "abc".to_owned())]);
        disk.has_room_for(1000);
        files.write(b"jkl");
        let said = "abc\n[bursar: 6 bytes of output were dropped: no storage space]\njkl";
        assert_eq!(disk.files(), [(0, said.to_owned())]);
        assert_eq!(files.close(), 6);
    }

    #[test]
    fn a_disk_that_is_too_slow_drops_output() {
        let shared = Arc::new(Shared::default());
        let output = Output { shared: Arc::clone(&shared), writer: std::thread::spawn(|| 0) };
        output.push(&vec![b'x'; BUFFER_BYTES_MAX]);
        output.push(b"does not fit");
        output.push(b"nor");
        let (bytes, dropped) = shared.take().unwrap();
        assert_eq!((bytes.len(), dropped), (BUFFER_BYTES_MAX, 15));
        output.push(b"again");
        assert_eq!(shared.take().unwrap(), (b"again".to_vec(), 0));
        output.close();
        assert_eq!(shared.take(), None);
    }
}
