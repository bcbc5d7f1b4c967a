//! What each attempt lost, from its times and what it declares (docs/metrics.md): work since its last
//! checkpoint, and start-up repeated.
//!
//! A log says of an attempt that ends what it lost, or nothing if that is nothing. Where a host fails, the
//! requeueing that follows says the same again.

use crate::log::What;
use crate::replay::Replay;
use crate::report::{Check, seconds};
use bursar_scenario::WorkloadSpec;

/// From here on a decimal number of seconds in the log is not exact any more.
const INEXACT_FROM_MS: u64 = 1 << 53;

/// What is kept of a workload from attempt to attempt.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Work that is saved.
    saved_ms: u64,
    /// Start-up over all attempts, as far as it is the first.
    startup_ms: u64,
    /// What the latest attempt lost.
    lost_gpu_ms: u64,
}

/// An attempt that ends.
struct Ended {
    age_ms: u64,
    /// How old it was when it was told to leave, and how long it had from then on.
    told: Option<(u64, u64)>,
    /// How long starting up takes.
    startup_ms: u64,
}

impl Progress {
    /// Start-up that was there before: the attempt begins with it, and a workload needs it once.
    fn repeated_ms(&mut self, ended: &Ended) -> u64 {
        let began_ms = ended.age_ms.min(ended.startup_ms);
        let first_ms = began_ms.min(ended.startup_ms - self.startup_ms);
        self.startup_ms += first_ms;
        began_ms - first_ms
    }

    /// What an attempt loses that has to leave before its work is done, per GPU.
    fn stop(&mut self, spec: &WorkloadSpec, ended: &Ended, is_orderly: bool) -> u64 {
        let repeated_ms = self.repeated_ms(ended);
        if !spec.resumable {
            return ended.age_ms;
        }
        let worked_ms = ended.age_ms.saturating_sub(ended.startup_ms);
        let saves = spec.checkpoint_on_signal && is_orderly;
        if let Some((told_ms, _)) = ended.told.filter(|told| saves && spec.save_time_ms <= told.1) {
            // From the signal on it saves, which is neither work nor lost.
            let kept_ms = told_ms.saturating_sub(ended.startup_ms);
            self.saved_ms += kept_ms.min(spec.runtime_ms - self.saved_ms);
            return repeated_ms;
        }
        let since_ms = match spec.checkpoint_interval_ms {
            Some(interval_ms) if interval_ms > 0 => worked_ms % interval_ms,
            Some(_) | None => worked_ms,
        };
        let kept_ms = worked_ms - since_ms;
        self.saved_ms += kept_ms.min(spec.runtime_ms - self.saved_ms);
        since_ms + repeated_ms
    }
}

impl Replay<'_> {
    /// Entry `index` ends the running attempt of its workload: what did it lose, and does the entry say so?
    pub(crate) fn judge_lost(&mut self, index: usize) {
        let entry = &self.entries[index];
        let spec = &self.scenario.workloads[entry.workload as usize];
        let settings = &self.scenario.settings;
        let grace_ms = spec.grace_ms.unwrap_or(settings.grace_ms).min(settings.grace_ms);
        let now = self.now;
        let job = &mut self.jobs[entry.workload as usize];
        let ended = Ended {
            age_ms: now - job.started,
            told: job.told.map(|told| (told - job.started, grace_ms)),
            startup_ms: spec.startup_ms.unwrap_or(settings.startup_ms),
        };
        let progress = &mut job.progress;
        let lost_ms = match entry.what {
            What::Requeued | What::Terminated => progress.stop(spec, &ended, true),
            What::HostFailed => progress.stop(spec, &ended, false),
            _ => progress.repeated_ms(&ended),
        };
        let lost_gpu_ms = u128::from(lost_ms) * u128::from(spec.gpus);
        progress.lost_gpu_ms = u64::try_from(lost_gpu_ms).unwrap_or(u64::MAX);
        self.compare_lost(index);
    }

    /// Whether an entry says what the latest attempt of its workload lost.
    pub(crate) fn compare_lost(&mut self, index: usize) {
        let entry = &self.entries[index];
        let lost = self.jobs[entry.workload as usize].progress.lost_gpu_ms;
        let said = entry.lost_gpu_ms.unwrap_or(0);
        let slack = if lost < INEXACT_FROM_MS { 0 } else { lost >> 50 };
        let spot = self.spot_of(index);
        self.findings.check(Check::Lost, spot, lost.abs_diff(said) <= slack, || {
            format!("lost_gpu_seconds is {}; the attempt lost {}", seconds(said), seconds(lost))
        });
    }
}
