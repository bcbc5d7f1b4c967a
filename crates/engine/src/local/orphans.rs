//! What comes to the daemon when the shim of an attempt and its guard were killed: the daemon is the next *subreaper*
//! above them, as long as it is the process that started them.

use super::process::{Process, ProcessId, wait_for_any};
use rustix::process::{Pid, Signal, WaitOptions};
use std::collections::BTreeSet;
use std::io;
use std::process::Child;
use std::time::Duration;

/// How long to wait for killed processes to be gone before leaving the rest to the next call.
const PATIENCE: Duration = Duration::from_millis(200);

/// From now on what loses its parent below this process comes to it. Where that cannot be, it goes further up.
pub(super) fn adopt() {
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Whether a child of this process came to it by the death of others: all of an attempt is in sessions of its own, and
/// what this program starts by itself is not.
fn is_adopted(process: &Process, me: &Process, shims: &[Child]) -> bool {
    let started = |shim: &Child| i32::try_from(shim.id()).is_ok_and(|pid| pid == process.id.pid);
    process.parent == me.id.pid && process.session != me.session && !shims.iter().any(started)
}

fn me() -> io::Result<Process> {
    let me = Process::read(rustix::process::getpid().as_raw_pid())?;
    me.ok_or_else(|| io::Error::other("this process is not in /proc"))
}

/// Kills what was adopted, but for supervisors whose guard was killed, and all below it; how many are left.
pub(super) fn end(shims: &[Child], shim: &[String]) -> io::Result<usize> {
    let me = me()?;
    let all = Process::all()?;
    let adopted = all.values().filter(|process| is_adopted(process, &me, shims));
    let adopted: BTreeSet<i32> = adopted
        .filter(|process| !process.dead && !is_supervisor(process.id, shim))
        .map(|process| process.id.pid)
        .collect();
    let mut handles = Vec::new();
    for root in &adopted {
        for process in [all[root]].into_iter().chain(Process::below(*root)?) {
            handles.extend(process.id.signal(Signal::KILL)?);
        }
    }
    if handles.is_empty() {
        return Ok(0);
    }
    wait_for_any(&handles, PATIENCE)?;
    collect(shims);
    // Whoever is dead by now is not found again.
    Ok(handles.len())
}

/// Whether a process is the supervisor of an attempt, by its command.
fn is_supervisor(process: ProcessId, shim: &[String]) -> bool {
    let command = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
    let words = command.split(|byte| *byte == 0);
    shim.len() == words.zip(shim).take_while(|(word, known)| *word == known.as_bytes()).count()
}

/// Collects what was adopted and has ended.
pub(super) fn collect(shims: &[Child]) {
    let Ok(me) = me() else { return };
    // Orphans come to the first thread.
    let children = format!("/proc/self/task/{}/children", me.id.pid);
    let children = std::fs::read_to_string(children).unwrap_or_default();
    for pid in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
        if let Ok(Some(process)) = Process::read(pid)
            && process.dead
            && is_adopted(&process, &me, shims)
        {
            let _ = rustix::process::waitpid(Pid::from_raw(pid), WaitOptions::NOHANG);
        }
    }
}
