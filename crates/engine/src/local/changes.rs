//! Word that something changed, so that nobody has to look all the time.

use super::folder::{make_fifo, open};
use super::process::timespec;
use crate::error::Error;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// Tells when attempts of a [`LocalEngine`](super::LocalEngine) began, ended or changed otherwise. It may
/// be used on a thread of its own. Only one at a time: each change is told once.
///
/// A shim that is killed tells nothing, so look now and then all the same.
#[derive(Debug)]
pub struct Changes {
    fifo: OwnedFd,
}

impl Changes {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        make_fifo(path)?;
        // Open for both, so that it never reads as ended when the last shim is gone.
        Ok(Self { fifo: open(path, OFlags::RDWR)? })
    }

    /// Waits until something changed, at most this long; whether something did.
    ///
    /// # Errors
    ///
    /// `Io` if the system does not let one wait.
    pub fn wait(&self, time: Duration) -> Result<bool, Error> {
        let mut fds = [PollFd::new(&self.fifo, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&timespec(time))) {
            Ok(0) | Err(Errno::INTR) => Ok(false),
            Ok(_) => {
                let mut bytes = [0; 4096];
                match rustix::io::read(&self.fifo, &mut bytes) {
                    Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(true),
                    Err(error) => Err(Error::io("cannot read changes", error)),
                }
            }
            Err(error) => Err(Error::io("cannot wait for changes", error)),
        }
    }
}

/// Says that something changed, to whom it concerns, if there is anybody.
pub(crate) fn tell(path: &Path) {
    if let Ok(fifo) = open(path, OFlags::WRONLY) {
        let _ = rustix::io::write(&fifo, b".");
    }
}
