//! Processes, told apart from others that get the same number later.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// A process: its number, and when it was started, in clock ticks since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    pub(crate) pid: i32,
    pub(crate) start_ticks: u64,
}

/// What `/proc/<pid>/stat` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// Whether it has ended and only waits to be collected. One of which the first thread has ended and
    /// others run on is not dead.
    pub(crate) dead: bool,
}

impl Process {
    /// The process with this number, if there is one.
    pub(crate) fn read(pid: i32) -> io::Result<Option<Self>> {
        match std::fs::read(format!("/proc/{pid}/stat")) {
            Ok(stat) => {
                parse(&stat).map(Some).ok_or_else(|| io::Error::other("odd /proc/<pid>/stat"))
            }
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All processes that can be seen, by number.
    pub(crate) fn all() -> io::Result<BTreeMap<i32, Self>> {
        let mut all = BTreeMap::new();
        for entry in std::fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            if let Some(process) = Self::read(pid)? {
                all.insert(pid, process);
            }
        }
        Ok(all)
    }

    /// All living processes below one, in order of number.
    pub(crate) fn below(ancestor: i32) -> io::Result<Vec<Self>> {
        let all = Self::all()?;
        let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for process in all.values() {
            children.entry(process.parent).or_default().push(process.id.pid);
        }
        // Numbers may be reused between two reads, and parents with them: each is looked at once.
        let (mut below, mut look_at) = (BTreeSet::new(), vec![ancestor]);
        while let Some(pid) = look_at.pop() {
            for child in children.get(&pid).into_iter().flatten() {
                if *child != ancestor && below.insert(*child) {
                    look_at.push(*child);
                }
            }
        }
        Ok(below.iter().map(|pid| all[pid]).filter(|process| !process.dead).collect())
    }

    /// Whether a signal does what the process wants: it catches, blocks or ignores it.
    pub(crate) fn expects(&self, signal: Signal) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id.pid));
        status.is_ok_and(|status| expects(&status, signal))
    }

    /// Whether it was started with this in its environment, as `NAME=value`.
    pub(crate) fn was_given(&self, variable: &str) -> bool {
        let environ = std::fs::read(format!("/proc/{}/environ", self.id.pid));
        environ.is_ok_and(|all| all.split(|byte| *byte == 0).any(|one| one == variable.as_bytes()))
    }
}

impl ProcessId {
    /// The process with this number as it is now.
    pub(crate) fn of(pid: Pid) -> io::Result<Self> {
        let process = Process::read(pid.as_raw_pid())?;
        process.map(|process| process.id).ok_or_else(|| io::Error::other("the process is gone"))
    }

    /// A handle on exactly this process, or none if it is gone.
    pub(crate) fn handle(self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(None) };
        let handle = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Only now: whatever process the handle is on keeps its number while this is read.
        let same =
            Process::read(self.pid)?.is_some_and(|process| process.id == self && !process.dead);
        Ok(same.then_some(handle))
    }

    /// Sends it a signal; gives the handle if it was still there.
    pub(crate) fn signal(self, signal: Signal) -> io::Result<Option<OwnedFd>> {
        let Some(handle) = self.handle()? else { return Ok(None) };
        match rustix::process::pidfd_send_signal(&handle, signal) {
            Ok(()) => Ok(Some(handle)),
            Err(rustix::io::Errno::SRCH) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Waits until one of these processes has ended, or the time is over.
pub(crate) fn wait_for_any(handles: &[OwnedFd], time: Duration) -> io::Result<()> {
    let mut fds: Vec<PollFd<'_>> =
        handles.iter().map(|handle| PollFd::new(handle, PollFlags::IN)).collect();
    match rustix::event::poll(&mut fds, Some(&timespec(time))) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A span of time as the system wants it.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

/// A process may end between any two steps of reading about it.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

/// The line is `pid (name) state ppid pgrp session …`; the name may hold anything, brackets too.
fn parse(stat: &[u8]) -> Option<Process> {
    let stat = String::from_utf8_lossy(stat);
    let (pid, _) = stat.split_once(' ')?;
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
    let threads: u32 = fields.get(17)?.parse().ok()?;
    Some(Process {
        id: ProcessId { pid: pid.parse().ok()?, start_ticks: fields.get(19)?.parse().ok()? },
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        dead: matches!(*fields.first()?, "Z" | "X" | "x") && threads <= 1,
    })
}

fn expects(status: &str, signal: Signal) -> bool {
    let bit = 1_u64 << (signal.as_raw() - 1);
    ["SigCgt:", "SigBlk:", "SigIgn:"].iter().any(|field| {
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let mask = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask & bit != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_brackets_do_not_confuse() {
        let line = b"42 (a) R 1 (x) S 7 8 9 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 2 3\n";
        let process = parse(line).unwrap();
        assert_eq!(process.id, ProcessId { pid: 42, start_ticks: 98765 });
        assert_eq!((process.parent, process.group, process.session), (7, 8, 9));
        assert!(!process.dead);
        let ended = |threads: u32| {
            let line =
                format!("42 (a) Z 1 8 9 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 {threads} 0 98765 2");
            parse(line.as_bytes()).unwrap().dead
        };
        assert!(ended(1));
        assert!(!ended(2));
        assert!(parse(b"").is_none());
        assert!(parse(b"42 (x").is_none());
    }

    #[test]
    fn this_process_is_found_with_its_handle() {
        let me = ProcessId::of(rustix::process::getpid()).unwrap();
        assert!(me.handle().unwrap().is_some());
        let earlier = ProcessId { start_ticks: me.start_ticks - 1, ..me };
        assert!(earlier.handle().unwrap().is_none());
        assert!(Process::all().unwrap().contains_key(&me.pid));
    }

    #[test]
    fn masks_are_read() {
        let status =
            "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000800\nSigCgt:\t0000000000004000\n";
        assert!(expects(status, Signal::USR2));
        assert!(expects(status, Signal::TERM));
        assert!(!expects(status, Signal::USR1));
        assert!(!expects("", Signal::USR1));
    }
}
