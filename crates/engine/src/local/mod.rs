//! Work as processes of this machine.
//!
//! ```text
//! daemon (LocalEngine) ──spawns──▶ shim, session of its own ──spawns──▶ launcher ══exec══▶ the work
//!        │    ▲                      │ reads its output into log files, waits for it,
//!        │    └── changes (FIFO) ────┤ ends what it leaves behind, writes exit.json
//!        └─────── control (FIFO) ───▶┘
//! ```
//!
//! # An attempt is a folder
//!
//! | in `attempts/<workload>.<n>/` | what it is |
//! |---|---|
//! | `order.json` | what was ordered; readable by the daemon's user alone, since it holds the environment |
//! | `control` | a FIFO that the shim inherits open: somebody can write to it exactly as long as the shim lives |
//! | `state.json` | how far the shim is: its process and that of the work, each with its start time; `null` at first |
//! | `log.<offset>` | what the work wrote, from that byte on |
//! | `exit.json` | how it ended; `null` at first. Room on the disk for these two is taken at the claim, so that a full disk cannot lose them |
//! | `shim.log` | what the shim itself had to say, usually nothing |
//!
//! The folder is built under another name and renamed, which is the claim: it is whole or not there, and
//! it is on the disk before anything runs. Forgetting an attempt renames its folder into `ended/`, where it
//! keeps the log and remains a claim.
//!
//! # What is killed when
//!
//! | what dies | what happens |
//! |---|---|
//! | the daemon, before the shim was started | nobody can write to `control`, there is no state: `NotStarted` |
//! | the daemon, later | nothing; it finds the attempt by its folder |
//! | the shim, before the launcher was told to go | the launcher ends by itself: `NotStarted` |
//! | the shim, later | the kernel kills the command (`PR_SET_PDEATHSIG`); the *guard*, its parent, gets what it leaves and kills it, and so does the engine when it looks; it says `Lost` |
//! | the guard | nothing; the shim goes on |
//! | the shim and its guard | what they leave comes to the daemon that started them, which kills it; if that has ended since, see below |
//! | the command | the shim kills what it left behind: the shim is the *subreaper* of everything below it, so that nothing escapes by a session or a double fork |
//! | the machine | `Lost`; process numbers of an earlier boot mean nothing and are not touched |
//!
//! What is left of an attempt whose shim is dead is found by its cgroup, by its session and process group
//! if their leader is still the recorded one, and by the mark `BURSAR_CLAIM` in the environment it was
//! started with. A process is signalled through a handle (`pidfd`) that was opened before its start time
//! was compared, so that no number that was given to another process is hit. Without a cgroup, a process
//! that left its session, cleared its environment *and* outlived its shim, the guard *and* the daemon that started
//! them is not found; the reason of the loss says that this may be so.
//!
//! # Signals
//!
//! The checkpoint signal is `SIGTERM`: what Slurm sends at the beginning of the grace of a preempted job
//! and Kubernetes to a pod that must go, so what people have written for these works here, and work that
//! does not know it leaves at once. It goes to the process group; when the command ends upon it (a shell
//! does, without a `trap`), the others that got it have the rest of the grace to save.
//!
//! The warning is `SIGUSR2`. A process that does not know it would die of it, in the middle of what its
//! contract protects; so it goes only to processes that catch, block or ignore it.
//!
//! # Where it degrades
//!
//! Memory and processor limits need cgroup v2 with these controllers given to the daemon (under systemd:
//! `Delegate=yes` and `DelegateSubgroup=supervisor`); without them a note says that a limit is not
//! enforced. Under systemd the unit also needs `KillMode=process`, or work dies with the daemon.
//! `CUDA_VISIBLE_DEVICES` is advice: nothing keeps work from other GPUs. Before Linux 5.4, and on other
//! systems, [`LocalEngine::open`] says `Unsupported`. The folder must be on a local file system.

use crate::signal::{SignalScope, UnixSignal};
use std::path::PathBuf;
use std::time::Duration;

mod advice;
#[cfg(target_os = "linux")]
mod attempt;
#[cfg(target_os = "linux")]
pub(crate) mod cgroup;
#[cfg(target_os = "linux")]
pub(crate) mod changes;
#[cfg(target_os = "linux")]
pub(crate) mod clock;
#[cfg(target_os = "linux")]
mod durable;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod engine;
#[cfg(target_os = "linux")]
pub(crate) mod folder;
#[cfg(target_os = "linux")]
mod gpus;
#[cfg(target_os = "linux")]
mod logs;
#[cfg(target_os = "linux")]
mod orphans;
#[cfg(target_os = "linux")]
pub(crate) mod process;
#[cfg(target_os = "linux")]
pub(crate) mod records;
#[cfg(target_os = "linux")]
mod remains;
#[cfg(target_os = "linux")]
mod retention;
#[cfg(target_os = "linux")]
pub(crate) mod steps;

pub use advice::local_advice;
#[cfg(target_os = "linux")]
pub use changes::Changes;
#[cfg(not(target_os = "linux"))]
pub use elsewhere::{Changes, LocalEngine, Logs, shim_main};
#[cfg(target_os = "linux")]
pub use engine::LocalEngine;
#[cfg(target_os = "linux")]
pub use logs::Logs;

/// How a [`LocalEngine`] works.
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// The command line that runs the shim when the folder of an attempt is appended to it:
    /// `["/usr/bin/bursar", "shim"]`. The program should be an absolute path.
    pub shim: Vec<String>,
    /// The name of this machine as a host. None: what it is called.
    pub host: Option<String>,
    /// Where its GPUs come from.
    pub gpus: GpuSource,
    /// Over how many hosts virtual GPUs are spread evenly: `virtual-1`, `virtual-2` … With one, and for GPUs
    /// that are there, this machine is the host. Work that gets GPUs of several runs once, on the first.
    pub virtual_hosts: u32,
    /// What to call their model. None: what the driver says, shortened, or `virtual`.
    pub gpu_model: Option<String>,
    /// What [`Signal::Checkpoint`](crate::Signal::Checkpoint) is. `SIGTERM` by default.
    pub checkpoint_signal: UnixSignal,
    /// What [`Signal::Warn`](crate::Signal::Warn) is. `SIGUSR2` by default.
    pub warn_signal: UnixSignal,
    /// Who gets the checkpoint signal.
    pub signal_scope: SignalScope,
    /// The socket that work can report to, given to it as `BURSAR_SOCKET`.
    pub socket: Option<PathBuf>,
    /// Variables that work gets from the engine's own environment where the order does not set them:
    /// `PATH`, `LANG` and `TZ` by default. Everything else that the daemon knows stays with it.
    pub keep_env: Vec<String>,
    /// The folder whose direct subfolders may be checkpoint folders that the engine makes and gives to
    /// their users. Nobody but the engine's user may be able to write to it. Checkpoint folders elsewhere
    /// are made by the user of the work.
    pub checkpoint_root: Option<PathBuf>,
    /// Whether work may run as root, if its order says so and the engine itself is root. Not by default.
    pub allow_root: bool,
    /// Whether attempts get control groups.
    pub cgroup: CgroupChoice,
    /// After how long a shim that was told to stop its work, and did not, is killed by the next
    /// [`stop`](crate::Engine::stop). 30 seconds by default.
    pub shim_stuck_after: Duration,
}

impl LocalOptions {
    /// The defaults, for a shim that is run by this command line.
    pub fn new(shim: Vec<String>) -> Self {
        Self {
            shim,
            host: None,
            gpus: GpuSource::Detected { virtual_if_none: 0 },
            virtual_hosts: 1,
            gpu_model: None,
            checkpoint_signal: UnixSignal::Term,
            warn_signal: UnixSignal::Usr2,
            signal_scope: SignalScope::Group,
            socket: None,
            keep_env: ["PATH", "LANG", "TZ"].map(str::to_owned).to_vec(),
            checkpoint_root: None,
            allow_root: false,
            cgroup: CgroupChoice::Own,
            shim_stuck_after: Duration::from_secs(30),
        }
    }
}

/// Where the GPUs of this machine come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuSource {
    /// Those that NVIDIA's driver knows; if there are none, that many of model `virtual`.
    Detected {
        /// How many virtual ones.
        virtual_if_none: u32,
    },
    /// That many of model `virtual`, whatever there is.
    Virtual {
        /// How many.
        count: u32,
    },
}

/// Whether attempts get control groups (cgroup v2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CgroupChoice {
    /// Below the group that the daemon is in, where it may: beside it if that is called `supervisor`.
    Own,
    /// Below this folder.
    Under(PathBuf),
    /// They get none.
    Off,
}
