//! Ctrl-C (and SIGTERM, SIGHUP): runs stop at the next moment, files in the making disappear. Asked
//! twice, the process ends at once, whatever it is at; then a temporary file may be left.

use crate::failure::Failure;
use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

/// From now on a first interrupt only sets the flag. Called before the first file is made.
pub(crate) fn watch() -> Result<(), Failure> {
    let handler = || {
        if ASKED.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(Failure::Interrupted.exit_code()));
        }
    };
    ctrlc::set_handler(handler).map_err(Failure::fault)
}

/// The flag itself, for runs to look at.
pub(crate) fn flag() -> &'static AtomicBool {
    &ASKED
}

/// Whether to stop.
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// An error if asked to stop.
pub(crate) fn check() -> Result<(), Failure> {
    if asked() { Err(Failure::Interrupted) } else { Ok(()) }
}
