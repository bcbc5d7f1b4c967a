//! `fifo` and `sjf`: strict head-of-line scheduling, no backfilling, no preemption.
//!
//! Source: the baselines of Hu et al., "Characterization and Prediction of Deep Learning Workloads in
//! Large-Scale GPU Datacenters" (SC'21), as run on the Microsoft Philly trace. FIFO serves by
//! submission, SJF by the runtime that an oracle knows (`expected_runtime`), ties by submission. The
//! first in line starts if it fits; if not, nobody else does.
//!
//! Invariant: a head that was found blocked stays blocked until GPUs are released or another request
//! becomes the head. Until then every decision costs one comparison and a submission one insertion.

use super::{Change, Place, change_of, place_idle, place_of, start};
use crate::policy::{Decision, Policy};
use crate::reason::WaitReason;
use crate::state::{Notice, State};
use crate::units::{TimeMs, WorkloadIx};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;

/// What orders the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OrderBy {
    Submission,
    Runtime,
}

/// One line, served strictly from its head.
#[derive(Clone, Debug)]
pub struct HeadOfLine {
    order_by: OrderBy,
    line: BTreeSet<(Place, WorkloadIx)>,
    /// The head does not fit, and nothing has changed that since.
    is_blocked: bool,
}

impl HeadOfLine {
    /// First in, first out.
    #[must_use]
    pub fn fifo() -> Self {
        Self::by(OrderBy::Submission)
    }

    /// The shortest first.
    #[must_use]
    pub fn sjf() -> Self {
        Self::by(OrderBy::Runtime)
    }

    fn by(order_by: OrderBy) -> Self {
        Self { order_by, line: BTreeSet::new(), is_blocked: false }
    }

    fn entry(&self, state: &State, workload: WorkloadIx) -> (Place, WorkloadIx) {
        let spec = &state.workload(workload).spec;
        let key = match self.order_by {
            OrderBy::Submission => 0,
            // Without an oracle the declared limit stands in for it; without either it comes last.
            OrderBy::Runtime => {
                spec.expected_runtime.or(spec.max_runtime).map_or(u64::MAX, |runtime| runtime.0)
            }
        };
        (place_of(state, workload, key), workload)
    }
}

impl Policy for HeadOfLine {
    fn name(&self) -> &'static str {
        match self.order_by {
            OrderBy::Submission => "fifo",
            OrderBy::Runtime => "sjf",
        }
    }

    fn observe(&mut self, state: &State, notice: &Notice) {
        match change_of(state, notice) {
            Change::Waits(workload) => {
                let entry = self.entry(state, workload);
                let is_new_head = self.line.first().is_none_or(|head| entry < *head);
                self.line.insert(entry);
                // A hold that was given back releases GPUs.
                if is_new_head || matches!(notice, Notice::Requeued(_)) {
                    self.is_blocked = false;
                }
            }
            Change::Decided(workload) | Change::Withdrawn(workload) => {
                let entry = self.entry(state, workload);
                self.line.remove(&entry);
                self.is_blocked = false;
            }
            Change::Gone(_) | Change::Cluster => self.is_blocked = false,
            Change::Runs(_) | Change::Leaves(_) | Change::Nothing => {}
        }
    }

    fn decide(&mut self, state: &State) -> Option<Decision> {
        if self.is_blocked {
            return None;
        }
        let &(_, head) = self.line.first()?;
        match place_idle(state, head) {
            Some(placement) => {
                Some(start(state, self.name(), head, placement, alloc::vec::Vec::new()))
            }
            None => {
                self.is_blocked = true;
                None
            }
        }
    }

    fn next_wake(&mut self, _state: &State) -> TimeMs {
        TimeMs::NEVER
    }

    fn why(&self, _state: &State, _workload: WorkloadIx) -> WaitReason {
        WaitReason::Compared(self.name())
    }

    fn clone_box(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}
