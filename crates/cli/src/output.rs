//! Files are written beside their final place and moved there when whole: an interrupted or failing
//! command leaves what was there before.

use crate::failure::Failure;
use crate::interrupt;
use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file that appears at its place only when it is whole.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    file: BufWriter<Making>,
}

/// A file in the making.
#[derive(Debug)]
enum Making {
    /// Moved to its place.
    Beside(NamedTempFile),
    /// Copied to its place, which is a device, a pipe or standard output.
    Apart(File),
}

impl Output {
    /// Opens a file that will be moved to `path`; `-` stands for standard output.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        if path.is_dir() {
            return Err(Failure::Input(format!("cannot write {}: it is a folder", path.display())));
        }
        if is_special(path) {
            return Self::apart(path.to_owned());
        }
        // What a link points at is replaced, not the link.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let file = tempfile::Builder::new().prefix(".bursar-").tempfile_in(folder_of(&path));
        let file = file.map_err(|error| cannot_create(&path, error.kind()))?;
        Ok(Self { path, file: buffered(Making::Beside(file)) })
    }

    /// A file without a name, for what is to follow in this one.
    pub(crate) fn scratch(&self) -> Result<Self, Failure> {
        if is_special(&self.path) {
            return Self::apart(PathBuf::new());
        }
        let file = tempfile::tempfile_in(folder_of(&self.path)).map_err(Failure::fault)?;
        Ok(Self { path: PathBuf::new(), file: buffered(Making::Apart(file)) })
    }

    fn apart(path: PathBuf) -> Result<Self, Failure> {
        let file = tempfile::tempfile().map_err(Failure::fault)?;
        Ok(Self { path, file: buffered(Making::Apart(file)) })
    }

    /// Where it will be, for people.
    pub(crate) fn place(&self) -> String {
        self.path.display().to_string()
    }

    /// Appends all of a scratch file.
    pub(crate) fn append(&mut self, part: Self) -> Result<(), Failure> {
        match part.file.into_inner().map_err(Failure::fault)? {
            Making::Apart(mut part) => {
                part.rewind().and_then(|()| io::copy(&mut part, self)).map_err(Failure::fault)?;
                Ok(())
            }
            Making::Beside(_) => Err(Failure::fault("only scratch files are joined")),
        }
    }

    /// Moves the file, whole and flushed, to its place.
    fn finish(self) -> Result<(), Failure> {
        let Self { path, file } = self;
        let cannot = |error: &dyn std::fmt::Display| {
            Failure::Fault(format!("cannot write {}: {error}", path.display()))
        };
        match file.into_inner().map_err(|error| cannot(error.error()))? {
            Making::Beside(file) => {
                make_readable(file.as_file()).map_err(|error| cannot(&error))?;
                file.persist(&path).map_err(|error| cannot(&error.error))?;
            }
            Making::Apart(mut file) => {
                file.rewind().map_err(|error| cannot(&error))?;
                let copied = if path == Path::new("-") {
                    io::copy(&mut file, &mut io::stdout().lock())
                } else {
                    File::options()
                        .append(true)
                        .open(&path)
                        .and_then(|mut to| io::copy(&mut file, &mut to))
                };
                match copied {
                    Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                        return Err(cannot(&error));
                    }
                    // A reader that has gone away has read enough.
                    Ok(_) | Err(_) => {}
                }
            }
        }
        Ok(())
    }
}

/// Puts all files in their places, and says so.
///
/// What goes to devices and pipes goes first: a copy can fail where a move does not, and then no file is moved.
pub(crate) fn finish_all(mut files: Vec<Output>) -> Result<(), Failure> {
    for file in &mut files {
        let place = file.place();
        file.flush().map_err(|error| Failure::Fault(format!("cannot write {place}: {error}")))?;
    }
    files.sort_by_key(|file| matches!(file.file.get_ref(), Making::Beside(_)));
    // All or none: from here on nothing is written any more, only moved.
    interrupt::check()?;
    for file in files {
        let place = file.place();
        file.finish()?;
        if place != "-" {
            crate::shown::note(&format!("wrote {place}"));
        }
    }
    Ok(())
}

/// Refuses outputs that are the same file as each other or as something that is read.
pub(crate) fn check_distinct(read: &[&Path], written: &[Option<&Path>]) -> Result<(), Failure> {
    let mut places: Vec<PathBuf> =
        read.iter().filter_map(|path| fs::canonicalize(path).ok()).collect();
    for path in written.iter().flatten().filter(|path| !is_special(path)) {
        let place = fs::canonicalize(path).or_else(|_| std::path::absolute(path));
        let place = place.unwrap_or_else(|_| path.to_path_buf());
        if places.contains(&place) {
            let shown = path.display();
            return Err(Failure::Input(format!(
                "cannot write {shown}: it is read, or written twice"
            )));
        }
        places.push(place);
    }
    Ok(())
}

/// Why no file can be made beside `path`, and what to do. The temporary name is nobody's business.
fn cannot_create(path: &Path, kind: io::ErrorKind) -> Failure {
    let (shown, folder) = (path.display(), folder_of(path).display());
    let why = match kind {
        io::ErrorKind::NotFound => format!("there is no folder {folder}; make it first"),
        io::ErrorKind::NotADirectory => format!("{folder} is not a folder"),
        io::ErrorKind::PermissionDenied => format!("no right to write in the folder {folder}"),
        kind => kind.to_string(),
    };
    Failure::Input(format!("cannot write {shown}: {why}"))
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or_else(|| Path::new("."))
}

fn buffered(file: Making) -> BufWriter<Making> {
    BufWriter::with_capacity(1 << 18, file)
}

/// Standard output, a device or a pipe: nothing that a file could be moved to.
fn is_special(path: &Path) -> bool {
    path == Path::new("-")
        || path.starts_with("/dev")
        || path.starts_with("/proc")
        || fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

/// Temporary files are private; what a person asked for is not.
#[cfg(unix)]
fn make_readable(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn make_readable(_file: &File) -> io::Result<()> {
    Ok(())
}

impl Write for Making {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Long writes stop, too, when asked to.
        if interrupt::asked() {
            return Err(io::Error::other("interrupted"));
        }
        match self {
            Self::Beside(file) => file.write(bytes),
            Self::Apart(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Beside(file) => file.flush(),
            Self::Apart(file) => file.flush(),
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
