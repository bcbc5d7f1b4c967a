//! Telling work something.

use super::tree::Tree;
use crate::local::records::OrderRecord;
use rustix::process::{Signal, kill_process, kill_process_group};
use std::io;

/// Sends the checkpoint signal. Only while the command was not collected, so that its number is its own.
pub(super) fn checkpoint(tree: &Tree, order: &OrderRecord) -> io::Result<()> {
    let signal = named(order.checkpoint_signal)?;
    // What is stopped (`SIGSTOP`) cannot save before it is continued.
    for signal in [signal, Signal::CONT] {
        if order.leader_only {
            kill_process(tree.leader(), signal)?;
        } else {
            kill_process_group(tree.leader(), signal)?;
        }
    }
    Ok(())
}

/// Sends the warning to those in the group who would not die of it; to how many.
pub(super) fn warn(tree: &Tree, order: &OrderRecord) -> io::Result<usize> {
    let signal = named(order.warn_signal)?;
    let mut warned = 0;
    for process in tree.group()? {
        let meant = !order.leader_only || process.id.pid == tree.leader().as_raw_pid();
        if meant && process.expects(signal) {
            warned += usize::from(process.id.signal(signal)?.is_some());
        }
    }
    Ok(warned)
}

fn named(number: i32) -> io::Result<Signal> {
    Signal::from_named_raw(number).ok_or_else(|| io::Error::other(format!("no signal {number}")))
}
