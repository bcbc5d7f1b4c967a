//! Files are written beside their final place and moved there when whole: an interrupted or failing
//! command leaves what was there before.

use crate::failure::Failure;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file that appears at its place only when it is whole.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    file: BufWriter<NamedTempFile>,
}

impl Output {
    /// Opens a file that will be moved to `path`.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or_else(|| Path::new("."));
        let cannot = |error: std::io::Error| {
            Failure::Input(format!("cannot write {}: {error}", path.display()))
        };
        if path.is_dir() {
            return Err(Failure::Input(format!("cannot write {}: it is a folder", path.display())));
        }
        let file = tempfile::Builder::new().prefix(".bursar-").tempfile_in(folder).map_err(cannot)?;
        Ok(Self { path: path.to_owned(), file: BufWriter::with_capacity(1 << 18, file) })
    }

    /// Where it will be.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Ends writing and reads it again from its start; the file itself never appears.
    pub(crate) fn reopen(self) -> Result<File, Failure> {
        let file = self.file.into_inner().map_err(Failure::fault)?;
        file.reopen().map_err(Failure::fault)
    }

    /// Moves the whole file to its place.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let Self { path, file } = self;
        let cannot = |error: &dyn std::fmt::Display| {
            Failure::Fault(format!("cannot write {}: {error}", path.display()))
        };
        let file = file.into_inner().map_err(|error| cannot(&error))?;
        make_readable(file.as_file()).map_err(|error| cannot(&error))?;
        file.persist(&path).map_err(|error| cannot(&error.error))?;
        Ok(())
    }
}

/// Temporary files are private; what a person asked for is not.
#[cfg(unix)]
fn make_readable(file: &File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn make_readable(_file: &File) -> std::io::Result<()> {
    Ok(())
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}
