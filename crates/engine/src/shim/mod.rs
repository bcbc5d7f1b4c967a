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
mod launch;
mod output;
mod supervise;
mod tree;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// The variable by which the shim tells the process it starts to be the launcher, and its value.
const STAGE: (&str, &str) = ("BURSAR_SHIM_STAGE", "launch");

/// Exit code of a shim or launcher that could not do what it is there for.
const EXIT_FAILED: u8 = 125;

/// What the process does that [`LocalEngine`](crate::LocalEngine) starts with the folder of an attempt as
/// its last argument. To be called before anything else in a program: before threads are started and
/// before signals are handled. It runs itself again with the same arguments, as the launcher.
pub fn shim_main(dir: &Path) -> ExitCode {
    let launcher = std::env::var_os(STAGE.0).is_some_and(|stage| stage == STAGE.1);
    let done = if launcher { launch::run(dir) } else { supervise::run(dir) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The launcher's goes to the log of the work, the shim's to a file that the daemon reads.
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::from(EXIT_FAILED)
        }
    }
}
