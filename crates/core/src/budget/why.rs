//! Rule 11: what a waiting request waits for, with the numbers.

use super::BudgetPolicy;
use crate::reason::WaitReason;
use crate::state::State;
use crate::units::{BudgetIx, TimeMs, WorkloadIx};
use crate::workload::Status;
use alloc::vec::Vec;
use core::cmp::Ordering;

impl BudgetPolicy {
    pub(super) fn explain(&self, state: &State, index: WorkloadIx) -> WaitReason {
        let workload = state.workload(index);
        if workload.status == Status::Held {
            return WaitReason::Grace { until: Self::leaves_by(state, index) };
        }
        if let Some(at) = Self::reservation_index(state, index) {
            return WaitReason::Reserved { until: state.reservations[at].until };
        }
        let budget = workload.spec.budget;
        if !self.would_be_allocated(state, index) {
            if workload.backs_off_until > state.now() {
                return WaitReason::BacksOff { until: workload.backs_off_until };
            }
            let idle_gpus = state.cluster.pools().iter().map(crate::cluster::Pool::idle).sum();
            return WaitReason::Idle { idle_gpus };
        }
        let ahead = self.ahead_of(state, index);
        WaitReason::Order {
            ratio: self.ratio(state, budget),
            ahead,
            takeable_gpus: self.takeable_gpus(state, index),
            until: self.starts_by(state, index, ahead),
        }
    }

    /// Rule 1: whether a request would be allocated in any pool that may hold it.
    pub(super) fn would_be_allocated(&self, state: &State, index: WorkloadIx) -> bool {
        let spec = &state.workload(index).spec;
        let mut asks = state.cluster.asks(spec.gpus, spec.shape, spec.model);
        asks.any(|(pool, _)| state.would_be_allocated(index, state.cluster.rate(pool)))
    }

    /// By when the work on the hosts of a held request is gone.
    fn leaves_by(state: &State, index: WorkloadIx) -> TimeMs {
        let hosts = state.workload(index).placement.iter();
        hosts
            .flat_map(|&(host, _)| &state.cluster.host(host).runs)
            .map(|&(other, _)| state.workload(other))
            .filter(|other| other.status == Status::Preempting)
            .map(|other| other.leave_by)
            .fold(state.now(), TimeMs::max)
    }

    /// How many allocated requests come before this one in the order of this moment (rule 4).
    fn ahead_of(&self, state: &State, index: WorkloadIx) -> u32 {
        let leaf = state.workload(index).spec.budget;
        let waiting = |node: BudgetIx| -> u32 {
            let places = state.tree.leaves_below(node);
            self.queues[places].iter().map(|queue| queue.waiting_contracts).sum()
        };
        let before = |a: BudgetIx, b: BudgetIx| {
            let ratio = |node| self.ratio(state, node);
            let share = |node: BudgetIx| state.tree.node(node).share_micro;
            ratio(a).compare(ratio(b)).then_with(|| share(b).cmp(&share(a))).then_with(|| a.cmp(&b))
                == Ordering::Less
        };
        let mut ahead = 0;
        for mine in state.tree.path(leaf) {
            let Some(parent) = state.tree.parent(mine) else { break };
            let siblings = state.tree.children(parent).iter().copied();
            ahead += siblings
                .filter(|&other| other != mine && before(other, mine))
                .map(waiting)
                .sum::<u32>();
        }
        let mine = state.workload(index);
        let order = |other: WorkloadIx| {
            let other = state.workload(other);
            (-i64::from(other.spec.rank), other.first_submitted, other.spec.tie)
        };
        let own = (-i64::from(mine.spec.rank), mine.first_submitted, mine.spec.tie);
        let queue = &self.queues[Self::leaf_of(state, index)];
        let entries = queue.lists.iter().flat_map(|list| list.contracts.iter());
        ahead + entries.filter(|entry| order(entry.workload) < own).count() as u32
    }

    /// GPUs that it might take now, wherever they are: idle, unallocated, and of sides that rule 6 allows.
    fn takeable_gpus(&self, state: &State, index: WorkloadIx) -> u32 {
        let spec = &state.workload(index).spec;
        let length = state.workload(index).protection();
        let mut sides = Vec::new();
        let asks = state.cluster.asks(spec.gpus, spec.shape, spec.model);
        asks.map(|(pool, _)| {
            let contract = super::contract_units(spec.gpus, state.cluster.rate(pool), length);
            let others = self.sides(state, spec.budget, contract, true, &mut sides);
            state.cluster.pools()[pool].idle_soon() + others
        })
        .max()
        .unwrap_or(0)
            + state.takeable_unallocated_gpus()
    }

    /// Rule 11: by when it starts if it stays where it is in the order. Each of those before it gets the
    /// next reservation once the one before has started, and waits at most max(H, A) plus grace for it.
    fn starts_by(&self, state: &State, index: WorkloadIx, ahead: u32) -> Option<TimeMs> {
        let settings = &state.settings;
        self.find_reservation(state, index, None)?;
        let longest = settings.horizon.max(settings.reservation_age) + settings.grace;
        let turns = u64::from(ahead) / u64::from(settings.reservations.max(1)) + 1;
        let standing = state.reservations.iter().map(|reservation| reservation.until);
        let first = standing.max().unwrap_or_else(|| state.now());
        let wait = longest.0.checked_mul(turns)?;
        Some(TimeMs(first.0.checked_add(wait)?))
    }
}
