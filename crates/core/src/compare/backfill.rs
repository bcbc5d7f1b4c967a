//! `backfill`: first in, first out, with EASY backfilling on declared runtimes (`easy`).
//!
//! A runtime is `max_runtime`, else `expected_runtime`; work that declares neither never ends, so it may
//! pass the head only on hosts that the head does not need.

use super::easy::Easy;
use super::{Change, Place, change_of, place_of, start};
use crate::policy::{Decision, Policy};
use crate::reason::WaitReason;
use crate::state::{Notice, State};
use crate::units::{TimeMs, WorkloadIx};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

const NAME: &str = "backfill";

/// FIFO with EASY backfilling.
#[derive(Clone, Debug)]
pub struct Backfill {
    line: BTreeSet<(Place, WorkloadIx)>,
    easy: Easy,
}

impl Backfill {
    /// With nobody waiting and nobody running.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "policies are made by name, never by default")]
    pub fn new() -> Self {
        Self { line: BTreeSet::new(), easy: Easy::new() }
    }
}

impl Policy for Backfill {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, state: &State, notice: &Notice) {
        match change_of(state, notice) {
            Change::Waits(workload) => {
                let place = place_of(state, workload, 0);
                self.line.insert((place, workload));
                if matches!(notice, Notice::Submitted(_)) {
                    self.easy.submitted(place, workload);
                } else {
                    self.easy.vacates(workload);
                    self.easy.forget();
                }
            }
            Change::Decided(workload) => {
                self.line.remove(&(place_of(state, workload, 0), workload));
                self.easy.occupies(state, workload);
                self.easy.forget();
            }
            Change::Withdrawn(workload) => {
                self.line.remove(&(place_of(state, workload, 0), workload));
                self.easy.forget();
            }
            Change::Runs(workload) => {
                self.easy.occupies(state, workload);
                self.easy.forget();
            }
            Change::Gone(workload) => {
                self.easy.vacates(workload);
                self.easy.forget();
            }
            Change::Leaves(_) | Change::Cluster => self.easy.forget(),
            Change::Nothing => {}
        }
    }

    fn decide(&mut self, state: &State) -> Option<Decision> {
        let line = &self.line;
        let front = |count: usize| line.iter().take(count).copied().collect::<Vec<_>>();
        let (workload, placement) = self.easy.decide(state, front)?;
        Some(start(state, NAME, workload, placement, Vec::new()))
    }

    fn next_wake(&mut self, _state: &State) -> TimeMs {
        TimeMs::NEVER
    }

    fn why(&self, _state: &State, _workload: WorkloadIx) -> WaitReason {
        WaitReason::Compared(NAME)
    }

    fn clone_box(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}
