//! Places at which a test lets this process be killed.

/// The variable that names the step at which to die.
#[cfg(feature = "testkit")]
pub(crate) const DIE_AT: &str = "BURSAR_ENGINE_DIE_AT";

/// What was just done, in the order in which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Daemon: the folder is built, under another name.
    Built,
    /// Daemon: it has its name.
    Claimed,
    /// Daemon: the shim was started.
    Spawned,
    /// Shim: it runs, nothing is written.
    ShimBegun,
    /// Shim: its process is recorded.
    ShimRecorded,
    /// Shim: the launcher waits to be told to go.
    LauncherSpawned,
    /// Shim: the launcher is recorded.
    LauncherRecorded,
    /// Shim: it was told.
    LauncherGone,
    /// Shim: the command was executed, which is not recorded.
    Executed,
    /// Shim: that is recorded.
    ExecutedRecorded,
    /// Shim: the command ended.
    Ended,
    /// Shim: nothing of it is left.
    Emptied,
    /// Shim: its end is recorded.
    EndRecorded,
}

impl Step {
    /// All steps, by name.
    #[cfg(feature = "testkit")]
    pub(crate) const NAMES: [(&'static str, Self); 13] = [
        ("built", Self::Built),
        ("claimed", Self::Claimed),
        ("spawned", Self::Spawned),
        ("shim-begun", Self::ShimBegun),
        ("shim-recorded", Self::ShimRecorded),
        ("launcher-spawned", Self::LauncherSpawned),
        ("launcher-recorded", Self::LauncherRecorded),
        ("launcher-gone", Self::LauncherGone),
        ("executed", Self::Executed),
        ("executed-recorded", Self::ExecutedRecorded),
        ("ended", Self::Ended),
        ("emptied", Self::Emptied),
        ("end-recorded", Self::EndRecorded),
    ];
}

/// Says that a step was done. Without the feature `testkit` this does nothing.
#[inline]
pub(crate) fn reached(step: Step) {
    #[cfg(feature = "testkit")]
    {
        let named = |name: &str| Step::NAMES.iter().find(|(known, _)| *known == name);
        let Some((_, fatal)) = std::env::var(DIE_AT).ok().as_deref().and_then(named) else {
            return;
        };
        if *fatal == step {
            let me = rustix::process::getpid();
            // A process that is killed is gone before the call returns.
            let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
        }
    }
    #[cfg(not(feature = "testkit"))]
    let _ = step;
}
