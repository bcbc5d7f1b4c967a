//! The processes below the shim. It is their *subreaper*: whatever loses its parent becomes its child, so
//! that all of them are below it, whichever session or group they made for themselves.

use crate::local::cgroup;
use crate::local::process::{Process, wait_for_any};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// After how long processes that were killed and are still there are worth a note.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often to look where the system gives no word.
const PAUSE: Duration = Duration::from_millis(10);

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Exit(i32),
    Signal(i32),
}

/// All processes of an attempt.
#[derive(Debug)]
pub(super) struct Tree {
    /// The command; before it, the launcher. It leads its session and process group.
    leader: Pid,
    /// How it ended, once it was collected.
    status: Option<Status>,
}

impl Tree {
    pub(super) fn new(leader: Pid) -> Self {
        Self { leader, status: None }
    }

    /// How the command ended, if it did.
    pub(super) fn status(&self) -> Option<Status> {
        self.status
    }

    pub(super) fn leader(&self) -> Pid {
        self.leader
    }

    /// The living members of the process group of the command.
    pub(super) fn group(&self) -> io::Result<Vec<Process>> {
        let below = Process::below(me())?;
        Ok(below.into_iter().filter(|process| process.group == self.leader.as_raw_pid()).collect())
    }

    /// Collects all children that have ended. Whether there are others.
    pub(super) fn collect(&mut self) -> io::Result<bool> {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.leader => self.status = Some(status.into()),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return Ok(true),
                Err(Errno::CHILD) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Kills all of it and waits until nothing is left. Calls `stuck` with how many processes do not die,
    /// now and then while that is so.
    pub(super) fn end(
        &mut self,
        group: Option<&Path>,
        mut stuck: impl FnMut(usize),
    ) -> io::Result<()> {
        loop {
            if let Some(group) = group {
                let _ = cgroup::kill(group);
            }
            // A process that is started while others are killed becomes a child of the shim when its
            // parent is gone. That is collected, and then it is found.
            let mut handles = Vec::new();
            for process in Process::below(me())? {
                handles.extend(process.id.signal(Signal::KILL)?);
            }
            if !self.collect()? {
                return Ok(());
            }
            if handles.is_empty() {
                // Dead, but a debugger has not let go of it yet. Of that there is no word.
                std::thread::sleep(PAUSE);
                continue;
            }
            let asked = Instant::now();
            wait_for_any(&handles, PATIENCE)?;
            if !self.collect()? {
                return Ok(());
            }
            if asked.elapsed() >= PATIENCE {
                stuck(handles.len());
            }
        }
    }
}

fn me() -> i32 {
    rustix::process::getpid().as_raw_pid()
}

impl From<WaitStatus> for Status {
    fn from(status: WaitStatus) -> Self {
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Self::Exit(code),
            (None, Some(number)) => Self::Signal(number),
            // Nothing else ends a process.
            (None, None) => Self::Exit(0),
        }
    }
}
