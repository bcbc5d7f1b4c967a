//! How much may be queued: a script that never stops submitting must not take the memory of the daemon.

use bursar_site::{Refused, RefusedKind, Site};

/// How many workloads may wait or run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Of everybody.
    pub all: usize,
    /// Of one user.
    pub of_one: usize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self { all: 100_000, of_one: 20_000 }
    }
}

impl QueueLimits {
    /// Whether so many more workloads of a user may be queued.
    ///
    /// # Errors
    /// If there are too many by then.
    pub fn check(&self, site: &Site, user: &str, more: usize) -> Result<(), Refused> {
        let (all, own) = site.open_workloads(user);
        let refuse = |message: String| Err(Refused { kind: RefusedKind::Conflict, message });
        if own + more > self.of_one {
            return refuse(format!(
                "queue: {own} workloads of '{user}' wait or run, and this site takes {} of one user; let some end, or ask its operator (queue.of_one_user)",
                self.of_one
            ));
        }
        if all + more > self.all {
            return refuse(format!(
                "queue: {all} workloads wait or run, and this site takes {}; come again later, or ask its operator (queue.most)",
                self.all
            ));
        }
        Ok(())
    }
}
