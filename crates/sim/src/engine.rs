//! What an engine would do: how far an attempt gets, what it saves, what is lost.

use bursar_scenario::{Ends, Scenario, WorkloadSpec};

/// A workload as the simulated engine sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Job {
    /// Work that is saved, in milliseconds.
    saved_ms: u64,
    /// Time spent starting up, over all attempts.
    startup_spent_ms: u64,
    /// When the running attempt started.
    started_ms: u64,
    /// When the checkpoint signal came, if it did.
    signalled_ms: Option<u64>,
    /// When its grace ends.
    leave_by_ms: u64,
}

/// How an attempt comes to its natural end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    Completed,
    Failed,
    Cancelled,
}

/// What an attempt left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leftover {
    /// Milliseconds of work that must be done again (or for ever are lost), each on all its GPUs.
    pub(crate) lost_ms: u64,
    /// Milliseconds of start-up that were spent before already.
    pub(crate) repeated_ms: u64,
}

pub(crate) fn startup_ms(scenario: &Scenario, spec: &WorkloadSpec) -> u64 {
    spec.startup_ms.unwrap_or(scenario.settings.startup_ms)
}

impl Finish {
    pub(crate) fn of(spec: &WorkloadSpec) -> Self {
        match spec.ends {
            Ends::Completed => Self::Completed,
            Ends::Failed => Self::Failed,
            Ends::Cancelled => Self::Cancelled,
        }
    }
}

impl Job {
    /// An attempt starts: when and how it ends if nobody interferes.
    pub(crate) fn start(
        &mut self,
        scenario: &Scenario,
        spec: &WorkloadSpec,
        now_ms: u64,
    ) -> (u64, Finish) {
        self.started_ms = now_ms;
        self.signalled_ms = None;
        let needed = startup_ms(scenario, spec) + (spec.runtime_ms - self.saved_ms);
        match spec.max_runtime_ms {
            // Its engine ends it by force.
            Some(max) if max < needed => (now_ms + max, Finish::Failed),
            _ => (now_ms + needed, Finish::of(spec)),
        }
    }

    /// The checkpoint signal comes. When the attempt is gone: once it has saved, if it says how long that
    /// takes, otherwise at the end of its grace.
    pub(crate) fn signal(&mut self, spec: &WorkloadSpec, now_ms: u64, leave_by_ms: u64) -> u64 {
        self.signalled_ms = Some(now_ms);
        self.leave_by_ms = leave_by_ms;
        if self.saves_on_signal(spec) && spec.save_time_ms > 0 {
            now_ms + spec.save_time_ms
        } else {
            leave_by_ms
        }
    }

    fn saves_on_signal(&self, spec: &WorkloadSpec) -> bool {
        let grace = self.signalled_ms.map_or(0, |signalled| self.leave_by_ms - signalled);
        spec.resumable && spec.checkpoint_on_signal && spec.save_time_ms <= grace
    }

    /// Work that is still to do at `now_ms`, start-up included, running or not.
    pub(crate) fn remaining_ms(&self, scenario: &Scenario, spec: &WorkloadSpec) -> u64 {
        startup_ms(scenario, spec) + (spec.runtime_ms - self.saved_ms)
    }

    /// The attempt stops before it has finished its work. `orderly` is false when its host failed.
    pub(crate) fn stop(
        &mut self,
        scenario: &Scenario,
        spec: &WorkloadSpec,
        now_ms: u64,
        orderly: bool,
    ) -> Leftover {
        let startup = startup_ms(scenario, spec);
        let age = now_ms - self.started_ms;
        let repeated = self.repeat_startup(startup, age);
        if !spec.resumable {
            return Leftover { lost_ms: age, repeated_ms: 0 };
        }
        let worked = age.saturating_sub(startup);
        if orderly && self.saves_on_signal(spec) {
            let signalled = self.signalled_ms.unwrap_or(now_ms);
            let kept = (signalled - self.started_ms).saturating_sub(startup);
            // From the signal on it saves; that is not work, and it is not lost either.
            self.saved_ms += kept.min(spec.runtime_ms - self.saved_ms);
            return Leftover { lost_ms: 0, repeated_ms: repeated };
        }
        let kept = match spec.checkpoint_interval_ms {
            Some(interval) if interval > 0 => worked - worked % interval,
            _ => 0,
        };
        // More than there is to do was never saved; a record (see `recorded`) may say that it ran on all the same.
        self.saved_ms += kept.min(spec.runtime_ms - self.saved_ms);
        Leftover { lost_ms: worked - kept, repeated_ms: repeated }
    }

    /// Counts the start-up of an attempt of this age. Starting up once is no loss; every further
    /// millisecond of it is, and is returned.
    fn repeat_startup(&mut self, startup: u64, age: u64) -> u64 {
        let before = self.startup_spent_ms.min(startup);
        self.startup_spent_ms += age.min(startup);
        age.min(startup) - (self.startup_spent_ms.min(startup) - before)
    }

    /// The attempt has finished its work: what of it was start-up repeated.
    pub(crate) fn finish(
        &mut self,
        scenario: &Scenario,
        spec: &WorkloadSpec,
        now_ms: u64,
    ) -> Leftover {
        let startup = startup_ms(scenario, spec);
        let age = now_ms - self.started_ms;
        let repeated = self.repeat_startup(startup, age);
        Leftover { lost_ms: 0, repeated_ms: repeated }
    }
}
