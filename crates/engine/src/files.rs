//! How many files this process may have open, and what its work is given.

use std::sync::OnceLock;

/// What was allowed when this process began.
static BEFORE: OnceLock<Option<u64>> = OnceLock::new();

/// Allows this process as many open files as the system lets it have: a few thousand connections must not take the
/// files that the rounds need. Returns how many that is, if there is a limit. Work is given what was allowed before:
/// some programs do badly with more.
pub fn allow_open_files() -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        BEFORE.get_or_init(|| limit.current);
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit.maximum,
            Err(_) => limit.current,
        }
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// How many files work may have open; none if nothing was changed.
#[cfg(target_os = "linux")]
pub(crate) fn allowed_before() -> Option<u64> {
    BEFORE.get().copied().flatten()
}
