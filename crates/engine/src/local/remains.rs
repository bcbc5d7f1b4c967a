//! Ending what is left of an attempt whose shim does not do it.

use super::cgroup;
use super::process::{Process, ProcessId, wait_for_any};
use super::records::OrderRecord;
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// The variable that marks the processes of an attempt.
pub(crate) const MARK: &str = "BURSAR_CLAIM";

/// How often to look for processes again that were started while others were killed.
const ROUNDS_MAX: u32 = 5;

/// How long to wait for killed processes to be gone before leaving the rest to the next call. The kernel
/// needs microseconds, unless a process hangs in a driver.
const PATIENCE: Duration = Duration::from_millis(200);

/// Kills every process of an attempt that can be found; how many were still there at last. `work` is its
/// command and `guard` what gets its orphans, if they are known and of this boot.
pub(crate) fn end(
    work: Option<ProcessId>,
    guard: Option<ProcessId>,
    order: Option<&OrderRecord>,
) -> io::Result<usize> {
    let mark = order.map(|order| format!("{MARK}={}", order.token));
    let group = order.and_then(|order| order.cgroup.as_deref());
    let mut left = 0;
    for _ in 0..ROUNDS_MAX {
        if let Some(group) = group {
            let _ = cgroup::kill(group);
        }
        let found = find(work, guard, mark.as_deref(), group)?;
        left = found.len();
        if left == 0 {
            break;
        }
        let mut handles = Vec::new();
        for process in found {
            handles.extend(process.signal(Signal::KILL)?);
        }
        wait_for_all(handles)?;
    }
    Ok(left)
}

fn wait_for_all(mut handles: Vec<OwnedFd>) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    while !handles.is_empty() {
        let time = until.saturating_duration_since(Instant::now());
        if time.is_zero() {
            break;
        }
        wait_for_any(&handles, time)?;
        handles.retain(|handle| !has_ended(handle));
    }
    Ok(())
}

fn has_ended(handle: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec};
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::new(handle, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// The living processes of the attempt.
fn find(
    work: Option<ProcessId>,
    guard: Option<ProcessId>,
    mark: Option<&str>,
    group: Option<&Path>,
) -> io::Result<Vec<ProcessId>> {
    let all = Process::all()?;
    let me = i32::try_from(std::process::id()).unwrap_or(0);
    let grouped: BTreeSet<i32> = group.into_iter().flat_map(cgroup::processes).collect();
    // The number of a session means this attempt only while its leader is there, be it dead.
    let is_there = |one: &ProcessId| all.get(&one.pid).is_some_and(|now| now.id == *one);
    let (work, guard) = (work.filter(is_there), guard.filter(is_there));
    let belongs = |process: &Process| {
        grouped.contains(&process.id.pid)
            || work.is_some_and(|work| process.session == work.pid || process.group == work.pid)
            || guard.is_some_and(|guard| process.parent == guard.pid)
            || mark.is_some_and(|mark| process.was_given(mark))
    };
    let mut found: BTreeMap<i32, ProcessId> = BTreeMap::new();
    let mut look_at: Vec<&Process> = all.values().filter(|process| belongs(process)).collect();
    while let Some(process) = look_at.pop() {
        let pid = process.id.pid;
        // The guard may carry the mark, too; it ends when nothing is left.
        let is_guard = guard.is_some_and(|guard| guard.pid == pid);
        if pid > 1 && pid != me && !is_guard && found.insert(pid, process.id).is_none() {
            look_at.extend(all.values().filter(|child| child.parent == pid));
        }
    }
    Ok(found.values().copied().filter(|found| !all[&found.pid].dead).collect())
}
