//! The launcher: the process that becomes the work. Everything that must be done in the process of the
//! work itself, before its command, is done here, in a program of our own and not between fork and exec.

use crate::local::folder::Folder;
use crate::local::records::OrderRecord;
use nix::sys::signal::SigSet;
use nix::unistd::{User, initgroups, setresgid, setresuid};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the shim says when the launcher is recorded.
pub(super) const GO: &[u8] = b"!";

/// What the launcher says before it executes the command: what follows is why it could not.
pub(super) const READY: u8 = b'!';

/// Waits to be told to go, and becomes the command. Returns only if it does not.
pub(super) fn run(dir: &Path) -> io::Result<()> {
    // Standard input is a socket to the shim. The copy closes when the command is executed.
    let channel = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let mut channel = UnixStream::from(channel);
    if channel.read(&mut [0])? == 0 {
        // The shim is dead.
        return Ok(());
    }
    match become_work(dir, &mut channel) {
        Ok(()) => Ok(()),
        Err(reason) => channel.write_all(reason.as_bytes()),
    }
}

fn become_work(dir: &Path, channel: &mut UnixStream) -> Result<(), String> {
    // The shim blocks signals, and what is blocked is inherited.
    SigSet::empty().thread_set_mask().map_err(said("cannot unblock signals"))?;
    let folder = Folder::at(dir.to_owned());
    let order = folder.order().map_err(said("cannot read the order"))?;
    let state = folder.state().map_err(said("cannot read the state"))?;
    let shim = state.map(|state| state.shim.pid).ok_or("there is no state")?;
    rustix::process::setsid().map_err(said("cannot make a session"))?;
    if let Some(current) = order.open_files {
        let maximum = getrlimit(Resource::Nofile).maximum;
        // As it was before the daemon took more for itself.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum });
    }
    let user = user(&order)?;
    // After this it cannot be taken back, nor is it reset: a change of user would.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(said("cannot be tied to the supervisor"))?;
    let parent = rustix::process::getppid().map(rustix::process::Pid::as_raw_pid);
    if parent != Some(shim) {
        return Ok(());
    }
    std::fs::create_dir_all(&order.checkpoint_dir)
        .map_err(said(format!("cannot make {}", order.checkpoint_dir.display())))?;
    let mut env = user.as_ref().map(environment).unwrap_or_default();
    let home = user.map_or_else(|| PathBuf::from("/"), |user| user.dir);
    env.extend(order.env);
    match &order.workdir {
        Some(workdir) => std::env::set_current_dir(workdir)
            .map_err(said(format!("cannot work in {}", workdir.display())))?,
        // A home that is not there is common for users that are no people.
        None => std::env::set_current_dir(home)
            .or_else(|_| std::env::set_current_dir("/"))
            .map_err(said("cannot work in /"))?,
    }
    channel.write_all(&[READY]).map_err(said("the supervisor is gone"))?;
    let program = &order.command[0];
    let path = env.get("PATH").cloned().unwrap_or_default();
    let error = Command::new(program)
        .args(&order.command[1..])
        .env_clear()
        .envs(env)
        .stdin(Stdio::null())
        .exec();
    Err(explain(program, &path, &error))
}

/// Becomes the user of the order; who that is, if the system knows.
fn user(order: &OrderRecord) -> Result<Option<User>, String> {
    let me = nix::unistd::geteuid();
    let Some(name) = &order.user else {
        return Ok(User::from_uid(me).ok().flatten());
    };
    let found = User::from_name(name).map_err(said(format!("cannot look up user {name}")))?;
    let user = found.ok_or_else(|| format!("there is no user {name}"))?;
    if user.uid.is_root() && !order.allow_root {
        return Err(format!(
            "work may not run as {name}, who is root here (allow_root_work is not set)"
        ));
    }
    if user.uid == me {
        return Ok(Some(user));
    }
    if !me.is_root() {
        return Err(format!("cannot become user {name}: the daemon does not run as root"));
    }
    let cannot = |what| said(format!("cannot become user {name}: {what}"));
    let c_name = CString::new(name.as_str()).map_err(|error| error.to_string())?;
    initgroups(&c_name, user.gid).map_err(cannot("groups"))?;
    setresgid(user.gid, user.gid, user.gid).map_err(cannot("group"))?;
    setresuid(user.uid, user.uid, user.uid).map_err(cannot("user"))?;
    Ok(Some(user))
}

/// What a login would set.
fn environment(user: &User) -> BTreeMap<String, String> {
    let path = |path: &Path| path.to_string_lossy().into_owned();
    [
        ("HOME", path(&user.dir)),
        ("SHELL", path(&user.shell)),
        ("USER", user.name.clone()),
        ("LOGNAME", user.name.clone()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn explain(program: &str, path: &str, error: &io::Error) -> String {
    let by_path = program.contains('/');
    // The system also says "permission denied" if it may not even look into a folder of the path.
    let nowhere = || !path.split(':').any(|folder| Path::new(folder).join(program).exists());
    match error.kind() {
        io::ErrorKind::NotFound if by_path && Path::new(program).exists() => {
            format!("cannot run {program}: the interpreter that its first line names is not there")
        }
        io::ErrorKind::NotFound => format!("command not found: {program}"),
        io::ErrorKind::PermissionDenied if !by_path && nowhere() => {
            format!("command not found: {program}")
        }
        _ => format!("cannot run {program}: {error}"),
    }
}

fn said<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> String {
    let what = what.into();
    move |error| format!("{what}: {}", error.into())
}
