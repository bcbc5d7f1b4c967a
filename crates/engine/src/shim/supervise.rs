//! The supervisor: from an order to the record of how it ended.

use super::launch::{GO, READY};
use super::output::Output;
use super::tree::{Status, Tree};
use super::{STAGE, delivery};
use crate::local::folder::{Command, Folder};
use crate::local::process::ProcessId;
use crate::local::records::{
    ExitRecord, OrderRecord, OutcomeRecord, StateRecord, VERSION, one_line,
};
use crate::local::steps::{Step, reached};
use crate::local::{cgroup, changes, clock};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};
use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Room in the pipe that the work writes into, in bytes: what it may write at once before it waits for
/// the shim to be given a processor. The most that a user may ask for.
const PIPE_BYTES: usize = 1 << 20;

/// How often children that lost their parents are collected, of whose end there is no word. Until then
/// they cost a process number each.
const COLLECT_EVERY: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// How often to try again to write down how it ended.
const RETRY_EVERY: Duration = Duration::from_secs(1);

pub(super) fn run(dir: &Path) -> io::Result<()> {
    reached(Step::ShimBegun);
    super::block_signals()?;
    rustix::process::setsid()?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;

    let folder = Folder::at(dir.to_owned());
    // By hand, somebody could start a second one.
    let lock = File::open(dir)?;
    let locked = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive);
    if locked.is_err() || folder.state()?.is_some() || folder.exit()?.is_some() {
        return Err(io::Error::other("this attempt was started before"));
    }
    if !folder.is_control(rustix::stdio::stdin())? {
        return Err(io::Error::other("only the local engine can start an attempt"));
    }
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    rustix::io::ioctl_fionbio(&control, true)?;
    let order = folder.order()?;
    let mut state = StateRecord {
        version: VERSION,
        boot_id: clock::boot_id()?,
        shim: ProcessId::of(rustix::process::getpid())?,
        guard: rustix::process::getppid().and_then(|guard| ProcessId::of(guard).ok()),
        work: None,
        cgroup: None,
        going: None,
        started: None,
        warned: false,
        told_to_leave: false,
        notes: Vec::new(),
    };
    let launched = folder.write_state(&state).and_then(|()| {
        reached(Step::ShimRecorded);
        Shim::launch(&folder, &order, &mut state, control)
    });
    match launched {
        Ok(shim) => shim.supervise(),
        Err(error) => {
            // Not the leader, but all below this process end with it.
            let mut tree = Tree::new(rustix::process::getpid());
            let group = state.cgroup.clone();
            tree.end(group.as_deref(), |_| {})?;
            group.iter().for_each(|group| cgroup::remove(group));
            let reason = one_line(&format!("the supervisor cannot start it: {error}"));
            record_end(&folder, &order, state, OutcomeRecord::StartFailed(reason));
            Ok(())
        }
    }
}

/// The pipe is the user's: who opens `/dev/stdout` opens it anew, and would not be allowed to otherwise. Only root can
/// give it away, and only root needs to.
fn give(pipe: &io::PipeWriter, order: &OrderRecord) {
    let user = order.user.as_deref().and_then(|user| nix::unistd::User::from_name(user).ok()?);
    if let Some(user) = user {
        let _ = std::os::unix::fs::fchown(pipe, Some(user.uid.as_raw()), Some(user.gid.as_raw()));
    }
}

/// Writes down how it ended, when the disk lets it.
fn record_end(folder: &Folder, order: &OrderRecord, state: StateRecord, outcome: OutcomeRecord) {
    let now = clock::now().into();
    let exit = ExitRecord {
        version: VERSION,
        boot_id: state.boot_id,
        started: state.started,
        ended: state.started.map_or(now, |started| started.not_after(now)),
        outcome,
        told_to_leave: state.told_to_leave,
        notes: state.notes,
    };
    // Not if somebody removed the folder: nobody will ask.
    while folder.write_exit(&exit).is_err() && folder.path().exists() {
        std::thread::sleep(RETRY_EVERY);
    }
    reached(Step::EndRecorded);
    changes::tell(&order.changes);
}

/// How far the work is.
#[derive(Debug)]
enum Phase {
    /// The launcher prepares. The socket tells when it is done, or why not.
    Launching,
    /// The command runs; its handle.
    Running(OwnedFd),
    /// The command ended upon the checkpoint signal; others that got it have not yet.
    Leaving(Vec<OwnedFd>),
    /// It is over.
    Over,
}

/// The supervisor of one attempt.
struct Shim<'a> {
    folder: &'a Folder,
    order: &'a OrderRecord,
    state: StateRecord,
    control: OwnedFd,
    /// The socket to the launcher, and what came from it.
    channel: UnixStream,
    told: Vec<u8>,
    /// What the work writes, until the last of it has closed that.
    pipe: Option<PipeReader>,
    output: Output,
    tree: Tree,
    phase: Phase,
    /// What the daemon said that could not be told the work yet.
    pending: Vec<Command>,
    stopped: bool,
}

impl<'a> Shim<'a> {
    /// Starts the launcher and tells it to go.
    fn launch(
        folder: &'a Folder,
        order: &'a OrderRecord,
        state: &mut StateRecord,
        control: OwnedFd,
    ) -> io::Result<Self> {
        let (pipe, writer) = io::pipe()?;
        // Less room is no harm.
        let _ = rustix::pipe::fcntl_setpipe_size(&pipe, PIPE_BYTES);
        rustix::io::ioctl_fionbio(&pipe, true)?;
        give(&writer, order);
        let (mut channel, theirs) = UnixStream::pair()?;
        make_cgroup(order, state);
        // This program as it was started, even if it was replaced on the disk since. This thread lives as
        // long as the process: when it ends, the kernel kills the work.
        let launcher = std::process::Command::new("/proc/self/exe")
            .args(std::env::args_os().skip(1))
            .env(STAGE.0, STAGE.1.launch)
            .stdin(OwnedFd::from(theirs))
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .spawn()?;
        let pid = i32::try_from(launcher.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("a process without a number"))?;
        reached(Step::LauncherSpawned);
        if let Some(group) = state.cgroup.clone()
            && let Err(error) = cgroup::join(&group, pid.as_raw_pid())
        {
            state.note(format!("it is in no control group, its limits are not enforced: {error}"));
        }
        state.work = Some(ProcessId::of(pid)?);
        state.going = Some(clock::now().into());
        folder.write_state(state)?;
        reached(Step::LauncherRecorded);
        let output = Output::start(folder.path(), order.log_bytes_max, order.log_files_max)?;
        channel.set_nonblocking(true)?;
        // Should the launcher be dead already, this fails and its end says so. Nothing may fail after it.
        let _ = channel.write_all(GO);
        reached(Step::LauncherGone);
        Ok(Self {
            folder,
            order,
            state: state.clone(),
            control,
            channel,
            told: Vec::new(),
            pipe: Some(pipe),
            output,
            tree: Tree::new(pid),
            phase: Phase::Launching,
            pending: Vec::new(),
            stopped: false,
        })
    }

    fn supervise(mut self) -> io::Result<()> {
        let failed = loop {
            match self.step() {
                Ok(()) if matches!(self.phase, Phase::Over) => break None,
                Ok(()) => {}
                Err(error) => break Some(error),
            }
        };
        self.finish(failed.as_ref())
    }

    /// Looks at everything, goes on to the next phase if it is time, else waits.
    fn step(&mut self) -> io::Result<()> {
        self.obey()?;
        self.read_output();
        self.tree.collect()?;
        if self.advance()? { Ok(()) } else { self.wait() }
    }

    /// Waits until there is something to do.
    fn wait(&self) -> io::Result<()> {
        let on = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds = vec![on(self.control.as_fd())];
        fds.extend(self.pipe.as_ref().map(|pipe| on(pipe.as_fd())));
        match &self.phase {
            Phase::Launching => fds.push(on(self.channel.as_fd())),
            Phase::Running(leader) => fds.push(on(leader.as_fd())),
            Phase::Leaving(group) => fds.extend(group.iter().map(|process| on(process.as_fd()))),
            Phase::Over => {}
        }
        match rustix::event::poll(&mut fds, Some(&COLLECT_EVERY)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Does what the daemon said.
    fn obey(&mut self) -> io::Result<()> {
        let mut bytes = [0; 256];
        let read = match rustix::io::read(&self.control, &mut bytes) {
            Ok(read) => read,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        self.pending.extend(bytes[..read].iter().filter_map(|byte| Command::from_byte(*byte)));
        if self.pending.contains(&Command::Stop) {
            self.stopped = true;
        }
        // Not once the command was collected: its number may be another's.
        let tellable = matches!(self.phase, Phase::Running(_)) && self.tree.status().is_none();
        if tellable && !self.stopped {
            for command in mem::take(&mut self.pending) {
                self.deliver(command);
            }
        }
        Ok(())
    }

    /// Tells the work, unless it was told before.
    fn deliver(&mut self, command: Command) {
        let (done, what) = match command {
            Command::Warn if !self.state.warned => {
                self.state.warned = true;
                (delivery::warn(&self.tree, self.order).map(drop), "warning")
            }
            Command::Checkpoint if !self.state.told_to_leave => {
                self.state.told_to_leave = true;
                (delivery::checkpoint(&self.tree, self.order), "checkpoint signal")
            }
            Command::Warn | Command::Checkpoint | Command::Stop => return,
        };
        if let Err(error) = done {
            self.state.note(format!("the {what} was not delivered: {error}"));
        }
        self.record();
    }

    /// Writes down how far it is. If that fails, it is written the next time.
    fn record(&self) {
        let _ = self.folder.write_state(&self.state);
        changes::tell(&self.order.changes);
    }

    /// Takes what there is of output, but no more than a part of what an endless writer writes.
    fn read_output(&mut self) {
        let mut bytes = [0; 1 << 16];
        for _ in 0..2 * (PIPE_BYTES / bytes.len()) {
            let Some(pipe) = &mut self.pipe else { return };
            match pipe.read(&mut bytes) {
                Ok(0) => self.pipe = None,
                Ok(read) => self.output.push(&bytes[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    /// Goes on to the next phase if it is time; whether it did.
    fn advance(&mut self) -> io::Result<bool> {
        if self.stopped {
            self.state.told_to_leave = true;
            self.phase = Phase::Over;
            return Ok(true);
        }
        match &self.phase {
            Phase::Launching => {
                let ended = self.listen()?;
                if ended {
                    self.launched()?;
                }
                Ok(ended)
            }
            Phase::Running(_) if self.tree.status().is_some() => self.leave(),
            Phase::Leaving(_) => self.leave(),
            Phase::Running(_) | Phase::Over => Ok(false),
        }
    }

    /// Hears what the launcher says; whether it has said all.
    fn listen(&mut self) -> io::Result<bool> {
        match self.channel.read_to_end(&mut self.told) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            // It ended before it read that it should go.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Why the command was not executed, by what the launcher said, if it was not.
    fn not_executed(&self) -> Option<String> {
        match &self.told[..] {
            [READY] => None,
            [] => Some("its launcher was killed".to_owned()),
            [READY, reason @ ..] | reason => Some(one_line(&String::from_utf8_lossy(reason))),
        }
    }

    /// The launcher became the command, or ended.
    fn launched(&mut self) -> io::Result<()> {
        if self.not_executed().is_some() {
            self.phase = Phase::Over;
            return Ok(());
        }
        reached(Step::Executed);
        self.state.started = Some(clock::now().into());
        self.record();
        reached(Step::ExecutedRecorded);
        // If it was collected already, there is no handle on it any more.
        match self.tree.status() {
            Some(_) => self.leave().map(drop),
            None => {
                let leader = rustix::process::pidfd_open(self.tree.leader(), PidfdFlags::empty())?;
                self.phase = Phase::Running(leader);
                Ok(())
            }
        }
    }

    /// The command ended. Those who were told to save when it was have the rest of its grace.
    fn leave(&mut self) -> io::Result<bool> {
        reached(Step::Ended);
        // What was said before it ended counts, even if it was not heard until now.
        self.obey()?;
        let mut group = Vec::new();
        if self.state.told_to_leave && !self.stopped && !self.order.leader_only {
            for process in self.tree.group()? {
                group.extend(process.id.handle()?);
            }
        }
        let over = group.is_empty();
        self.phase = if over { Phase::Over } else { Phase::Leaving(group) };
        Ok(over)
    }

    /// Ends what is left, and writes down how it ended.
    fn finish(mut self, failed: Option<&io::Error>) -> io::Result<()> {
        let (folder, order, state) = (self.folder, self.order, &mut self.state);
        let group = state.cgroup.clone();
        self.tree.end(group.as_deref(), |left| {
            state.note(format!("{left} of its processes do not die"));
            let _ = folder.write_state(state);
            changes::tell(&order.changes);
        })?;
        reached(Step::Emptied);
        self.read_output();
        if let Some(group) = group {
            let killed = cgroup::killed_for_memory(&group);
            if killed > 0 {
                self.state
                    .note(format!("{killed} of its processes were killed for lack of memory"));
            }
            cgroup::remove(&group);
        }
        if matches!(self.phase, Phase::Over) && self.state.started.is_none() && self.stopped {
            // Stopped while it was launched: the launcher may have become the command before it died.
            self.listen()?;
            if self.not_executed().is_none() {
                self.state.started = Some(clock::now().into());
            }
        }
        let outcome = match (failed, self.state.started, self.tree.status()) {
            (Some(error), ..) => {
                OutcomeRecord::Lost(one_line(&format!("its supervisor failed: {error}")))
            }
            (None, None, _) if self.stopped => {
                OutcomeRecord::StartFailed("it was stopped before it started".to_owned())
            }
            (None, None, _) => OutcomeRecord::StartFailed(self.not_executed().unwrap_or_default()),
            (None, Some(_), Some(Status::Exit(code))) => OutcomeRecord::Exit(code),
            (None, Some(_), Some(Status::Signal(number))) => OutcomeRecord::Signal(number),
            (None, Some(_), None) => OutcomeRecord::Lost("its end was not seen".to_owned()),
        };
        let dropped = self.output.close();
        if dropped > 0 {
            self.state.note(format!("{dropped} bytes of its output were dropped"));
        }
        record_end(folder, order, self.state, outcome);
        Ok(())
    }
}

/// Makes the control group of the work, as far as that can be done.
fn make_cgroup(order: &OrderRecord, state: &mut StateRecord) {
    let Some(group) = &order.cgroup else {
        if order.memory_bytes.is_some() || order.cpus.is_some() {
            state.note("limits of memory and processors are not enforced: no control groups");
        }
        return;
    };
    match cgroup::create(group, order.memory_bytes, order.cpus) {
        Ok(notes) => {
            state.cgroup = Some(group.clone());
            notes.into_iter().for_each(|note| state.note(note));
        }
        Err(error) => state.note(format!("it has no control group: {error}")),
    }
}
