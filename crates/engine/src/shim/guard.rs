//! The guard: the parent of the supervisor, for the case that somebody kills that. What loses its parent goes to the
//! nearest *subreaper* above it; while the supervisor lives that is the supervisor, and afterwards the guard. So
//! nothing gets away by a session of its own and an empty environment.
//!
//! It holds nothing and knows nothing but the folder: there is little that could go wrong with it.

use super::tree::Tree;
use super::{EXIT_FAILED, STAGE};
use crate::local::folder::Folder;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// Starts the supervisor, waits for its end, and ends what it left. Fails as that did.
pub(super) fn run(dir: &Path) -> io::Result<ExitCode> {
    super::block_signals()?;
    rustix::process::setsid()?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let (stage, value) = STAGE;
    // Called as this one is: by that the daemon knows it, should it lose its guard.
    let mut supervisor = Command::new("/proc/self/exe")
        .arg0(std::env::args_os().next().unwrap_or_default())
        .args(std::env::args_os().skip(1))
        .env(stage, value.supervise)
        .stdout(Stdio::null())
        .spawn()?;
    // Standard input is what tells that there is a supervisor: from here on it is that one's alone.
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    let pid = rustix::process::Pid::from_child(&supervisor);
    let ended = supervisor.wait()?;
    let folder = Folder::at(dir.to_owned());
    let group = folder.state().ok().flatten().and_then(|state| state.cgroup);
    let mut tree = Tree::new(pid);
    if tree.collect()? {
        tree.end(group.as_deref(), |_| {})?;
    }
    // If that cannot be said, it is taken for not done.
    let _ = folder.say_emptied();
    // What went wrong the supervisor has said.
    Ok(if ended.success() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILED) })
}
