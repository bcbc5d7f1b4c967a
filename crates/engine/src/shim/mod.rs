//! The shim: what stands between the daemon and the work of one attempt, and outlives the daemon.
//!
//! It is a loop over what can happen: the daemon says something (`control`), the work writes something
//! (a pipe), the launcher says that it could not execute the command (a socket that closes when it could),
//! a process ends (a `pidfd`). Only the log is written on a thread of its own, since a disk may hang.
//!
//! **Invariant: the work never waits for the shim.** Its output is read at once and dropped if the disk
//! does not take it.
//!
//! **Invariant: when `exit.json` tells an end, nothing of the work is there.**

mod delivery;
mod guard;
mod launch;
mod output;
mod supervise;
mod tree;

use nix::sys::signal::{SigSet, Signal};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// What the program is to be when it runs itself again.
struct Stages {
    supervise: &'static str,
    launch: &'static str,
}

/// The variable that says which stage it is, and its values. Without it the program is the guard.
const STAGE: (&str, Stages) =
    ("BURSAR_SHIM_STAGE", Stages { supervise: "supervise", launch: "launch" });

/// Exit code of a shim or launcher that could not do what it is there for.
const EXIT_FAILED: u8 = 125;

/// What the process does that [`LocalEngine`](crate::LocalEngine) starts with the folder of an attempt as
/// its last argument. To be called before anything else in a program: before files are opened, threads are
/// started and signals are handled. It runs itself again with the same arguments, first as the supervisor, then as
/// the launcher.
pub fn shim_main(dir: &Path) -> ExitCode {
    close_inherited();
    let stage = std::env::var_os(STAGE.0);
    let is = |name: &str| stage.as_ref().is_some_and(|stage| stage == name);
    let done = if is(STAGE.1.launch) {
        launch::run(dir).map(|()| ExitCode::SUCCESS)
    } else if is(STAGE.1.supervise) {
        supervise::run(dir).map(|()| ExitCode::SUCCESS)
    } else {
        guard::run(dir)
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            // The launcher's goes to the log of the work, the shim's to a file that the daemon reads.
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::from(EXIT_FAILED)
        }
    }
}

/// Closes what whoever started the daemon left open in it: work has no business with that.
fn close_inherited() {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers =
        open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    // The folder itself is among them, and is closed when this list is complete.
    let numbers: Vec<i32> = numbers.filter(|number| *number > 2).collect();
    for number in numbers {
        let _ = nix::unistd::close(number);
    }
}

/// What is meant for the work or the daemon is not for those between them: they end when the work does.
fn block_signals() -> io::Result<()> {
    let ignored = [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGTSTP,
    ];
    Ok(ignored.into_iter().collect::<SigSet>().thread_block()?)
}
