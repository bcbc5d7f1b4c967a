//! Files that are whole whenever they are read, and room for them on the disk.

use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Writes a new file. Until it is synced, it may be empty after the power failed.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(bytes)
}

/// Takes room on the disk for a text file that [`swap`] will write. It is really written, since some file
/// systems promise room that they do not have. The file is there at once, with `text` in it.
pub(crate) fn reserve(folder: &Path, name: &str, text: &[u8], room: usize) -> io::Result<()> {
    write_new(&folder.join(name), &padded(text, room))?;
    write_new(&room_of(folder, name), &padded(b"", room))
}

/// Replaces a text file for which room was taken. A full disk does not matter while the text fits. When
/// this returns, the text is there also after the power failed.
pub(crate) fn swap(folder: &Path, name: &str, text: &[u8], room: usize) -> io::Result<()> {
    let beside = room_of(folder, name);
    if text.len() > room {
        return replace(folder, name, text);
    }
    match OpenOptions::new().write(true).open(&beside) {
        Ok(file) => {
            file.write_all_at(&padded(text, room), 0)?;
            file.sync_all()?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return replace(folder, name, text);
        }
        Err(error) => return Err(error),
    }
    let path = folder.join(name);
    match rustix::fs::renameat_with(CWD, &beside, CWD, &path, RenameFlags::EXCHANGE) {
        Ok(()) => sync_folder(folder),
        // Not every file system can. From here on there is no room beside it.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOENT) => {
            std::fs::rename(&beside, &path)?;
            sync_folder(folder)
        }
        Err(error) => Err(error.into()),
    }
}

/// Replaces `folder/name` by a file with these bytes.
fn replace(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let beside = folder.join(format!("{name}.new"));
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&beside, folder.join(name))?;
    sync_folder(folder)
}

fn room_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.room"))
}

/// Blanks after a JSON text mean nothing.
fn padded(text: &[u8], room: usize) -> Vec<u8> {
    let mut bytes = text.to_vec();
    bytes.resize(room.max(text.len()), b' ');
    bytes
}

/// Makes what was made, renamed and removed in a folder last.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_taken_once_and_used_again_and_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let read = || std::fs::read_to_string(&path).unwrap().trim_end().to_owned();
        reserve(folder.path(), "f", b"null", 100).unwrap();
        assert_eq!(read(), "null");
        for text in ["first", "2", "the third"] {
            swap(folder.path(), "f", text.as_bytes(), 100).unwrap();
            assert_eq!(read(), text);
            assert_eq!(std::fs::metadata(&path).unwrap().len(), 100);
        }
        let long = "x".repeat(200);
        swap(folder.path(), "f", long.as_bytes(), 100).unwrap();
        assert_eq!(read(), long);
        std::fs::remove_file(room_of(folder.path(), "f")).unwrap();
        swap(folder.path(), "f", b"without room", 100).unwrap();
        assert_eq!(read(), "without room");
        assert!(write_new(&path, b"").is_err());
    }
}
