//! What would become of a submission, told before it is made.

use crate::declare::{Accepted, Declared, When};
use crate::error::Refused;
use crate::site::Site;
use crate::work::{Ending, Stage};
use bursar_core::{Event, Status};

/// When a workload would start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
pub struct WouldStart {
    /// In at most so many milliseconds; the first of an array.
    pub in_ms: u64,
    /// Whether that is now.
    pub at_once: bool,
    /// How many workloads of the submission would start now.
    pub starting: u32,
}

impl Site {
    /// What a submission would cost if it ran for its contract, in GPU-milliseconds at rate 1.
    #[must_use]
    pub fn contract_gpu_ms(&self, accepted: &Accepted) -> u64 {
        let declared = &accepted.declared;
        // Ended at its max_runtime, it is protected until then only.
        let contract = declared.min_runtime_ms.min(declared.max_runtime_ms.unwrap_or(u64::MAX));
        u64::from(declared.gpus).saturating_mul(contract)
    }

    /// When a submission would start, told by a copy of the core that takes it now: at once, or by when it is
    /// promised; none if nothing can be promised, or it has to wait for other workloads first.
    #[must_use]
    pub fn would_start(&self, accepted: &Accepted) -> Option<WouldStart> {
        if !self.waits_for(&accepted.declared).is_empty() {
            return None;
        }
        // As many of an array as may be in the queue at once.
        let count = accepted.array.as_ref().map_or(1, |array| {
            let all = array.indices.len() as u32;
            array.at_once.map_or(all, |most| most.min(all))
        });
        let mut copy = self.scheduler.clone();
        let mut starting = 0;
        for at in 0..count {
            let spec = self.spec(self.next_number() + u64::from(at), &accepted.declared).ok()?;
            let now = copy.state().now();
            let place = copy.apply(now, Event::Submitted(Box::new(spec))).ok()??;
            while let Some(decision) = copy.decide() {
                copy.commit(&decision, &mut |_| {});
            }
            match copy.state().workload(place).status {
                Status::Queued | Status::Held if at > 0 => break,
                status @ (Status::Queued | Status::Held) => {
                    let until = crate::views::until_of(&copy.why(place));
                    let until = until.or((status == Status::Held).then_some(now));
                    return until.map(|until| WouldStart {
                        in_ms: until.since(now).0,
                        at_once: false,
                        starting: 0,
                    });
                }
                Status::Starting | Status::Running | Status::Preempting | Status::Ended => {
                    starting += 1;
                }
            }
        }
        Some(WouldStart { in_ms: 0, at_once: true, starting })
    }

    /// What is left of the tightest limit above a budget, in GPU-hours at rate 1; none if nothing limits it.
    #[must_use]
    pub fn left_of_limit(&self, budget: &str) -> Option<f64> {
        let state = self.scheduler.state();
        let units_per_hour = 3_600_000.0 * 1_000.0 / self.rate_step as f64;
        let left = state.tree.path(self.budgets.index(budget)?).filter_map(|node| {
            let room = state.ledger.room(&state.tree, node, state.now());
            room.unwrap_or(Some(0))
        });
        left.min().map(|units| units as f64 / units_per_hour)
    }

    /// Workloads that must end before a declaration enters the queue.
    #[must_use]
    pub fn waits_for(&self, declared: &Declared) -> Vec<u64> {
        let others = declared.after.iter().map(|after| after.workload);
        let open = |number: &u64| {
            self.work(*number).is_some_and(|other| !matches!(other.stage, Stage::Ended(_)))
        };
        others.filter(open).collect()
    }

    /// The first workload that a declaration waits for in vain, as it ended otherwise.
    pub(crate) fn unmet(&self, declared: &Declared) -> Option<u64> {
        let unmet = declared.after.iter().find(|after| {
            let stage = self.work(after.workload).map(|other| other.stage);
            match stage {
                None => true,
                Some(Stage::Ended(ending)) => after.when == When::Ok && ending != Ending::Completed,
                Some(Stage::Waits | Stage::Live(_)) => false,
            }
        });
        unmet.map(|after| after.workload)
    }

    /// How a workload ended that another waited for in vain.
    pub(crate) fn unmet_text(&self, number: u64) -> String {
        let ending = self.work(number).and_then(|other| self.ending(other));
        let how = match ending {
            Some(Ending::Completed) => "completed",
            Some(Ending::Failed) => "failed",
            Some(Ending::Cancelled) => "was cancelled",
            Some(Ending::Terminated) => "was preempted for good",
            Some(Ending::HostFailed) => "was lost with its host",
            Some(Ending::Unreachable) => "could never start itself",
            None => "is not there",
        };
        format!("workload {number} {how}, and it had to complete (when: ok)")
    }

    /// Refuses what would never start.
    pub(crate) fn must_be_reachable(&self, declared: &Declared) -> Result<(), Refused> {
        let Some(other) = self.unmet(declared) else { return Ok(()) };
        Err(Refused::conflict(format!(
            "after: {}, so this would never start; run that again, give when: any, or leave it out",
            self.unmet_text(other)
        )))
    }
}
