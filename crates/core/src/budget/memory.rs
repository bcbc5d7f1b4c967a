//! What is remembered of requests that were found to be blocked, and what may unblock them.

use super::ratios::{Pair, Test};
use super::{BudgetPolicy, is_limited};
use crate::cluster::Placement;
use crate::state::State;
use crate::units::{BudgetIx, HostIx, WorkloadIx};

impl BudgetPolicy {
    pub(super) fn end_epoch(&mut self) {
        self.epoch += 1;
        self.facts_changed();
    }

    pub(super) fn facts_changed(&mut self) {
        self.facts += 1;
        self.crossing = None;
    }

    /// More may be taken from `theirs`, or it stands higher: its protected work has become interruptible, or
    /// a contract of it is committed. That unblocks those alone who stand below it by the margin.
    pub(super) fn unblock_against(&mut self, state: &State, theirs: BudgetIx) {
        self.facts_changed();
        for theirs in state.tree.path(theirs) {
            let Some(parent) = state.tree.parent(theirs) else { break };
            if state.ledger.account(theirs).interruptible_gpus == 0 {
                continue;
            }
            for &mine in state.tree.children(parent) {
                let below = state.tree.leaves_below(mine);
                // Open leaves, too: they may be open for a part of their requests only.
                let waits = below.clone().any(|place| self.may_have_allocated(state, place));
                let pair = Pair { mine, theirs };
                if mine != theirs && waits && self.holds(state, Test::Swap, pair, 0) {
                    below.for_each(|place| self.unblock(state, place));
                }
            }
        }
    }

    /// Reservations may be able to make way that were not: that unblocks those who asked for it.
    pub(super) fn unblock_asking(&mut self, state: &State) {
        self.facts_changed();
        for place in 0..self.asked_way.len() {
            if self.asked_way[place] {
                self.unblock(state, place);
            }
        }
    }

    /// GPUs of hosts have come free for others, and nothing else has changed: that unblocks those who could use
    /// as many as any of these hosts has that are not protected.
    pub(super) fn unblock_on(&mut self, state: &State, hosts: &Placement) {
        if Self::may_reserve_more(state) {
            return self.end_epoch();
        }
        self.unblock_asking(state);
        self.free_blocked = None;
        let most = hosts.iter().map(|&(host, _)| Self::not_protected_on(state, host)).max();
        let most = most.unwrap_or(0);
        let leaves = state.tree.leaves().iter();
        for ((queue, open), &leaf) in self.queues.iter_mut().zip(&mut self.open).zip(leaves) {
            if queue.waiting_contracts == 0 || state.tree.fraction(leaf) == 0 {
                continue;
            }
            for list in queue.lists.iter_mut().filter(|list| list.part <= most) {
                list.unblock();
                *open |= !list.contracts.is_empty();
            }
        }
    }

    /// GPUs of a host that any request could have at the very most.
    pub(super) fn not_protected_on(state: &State, host: HostIx) -> u32 {
        let facts = state.cluster.host(host);
        let protected = facts.runs.iter().filter(|&&(run, _)| state.workload(run).protected);
        let protected: u32 = protected.map(|&(_, gpus)| gpus).sum();
        facts.spec.gpus - facts.held - facts.starting - facts.awaited - protected
    }

    /// An attempt has stopped. Its contract, if it was protected still, is given back.
    pub(super) fn note_stopped(&mut self, state: &State, workload: WorkloadIx) {
        let stopped = state.workload(workload);
        let leaf = stopped.spec.budget;
        let gives_back = stopped.allocated && stopped.protected_until > state.now();
        if gives_back && is_limited(state, leaf) {
            return self.end_epoch();
        }
        self.unblock_on(state, &stopped.left);
        if gives_back {
            // Those who share a budget with it stand lower against all others.
            for place in 0..self.queues.len() {
                let shares = state.tree.path(leaf).any(|node| {
                    node != BudgetIx(0) && state.tree.leaves_below(node).contains(&place)
                });
                if shares {
                    self.unblock(state, place);
                }
            }
        }
    }

    /// Whether contracts wait in a leaf that is funded.
    pub(super) fn may_have_allocated(&self, state: &State, place: usize) -> bool {
        self.queues[place].waiting_contracts > 0
            && state.tree.fraction(state.tree.leaves()[place]) > 0
    }

    pub(super) fn unblock(&mut self, state: &State, place: usize) {
        self.marks[place] += 1;
        self.open[place] = self.may_have_allocated(state, place);
        self.asked_way[place] = false;
    }

    /// Rule 6: work of `theirs` is interruptible from now on.
    pub(super) fn note_interruptible(&mut self, state: &State, workload: WorkloadIx) {
        if Self::may_reserve_more(state) {
            return self.end_epoch();
        }
        let place = Self::leaf_of(state, workload);
        let spec = &state.workload(workload).spec;
        if self.queues[place].has_higher_rank(spec.rank) {
            self.unblock(state, place);
        }
        self.unblock_against(state, spec.budget);
    }

    /// A contract of `theirs` is committed.
    pub(super) fn note_committed(&mut self, state: &State, theirs: BudgetIx) {
        // A side that comes to be above a holder counts for its reservation, which may then make way.
        let counts = state.reservations.iter().any(|reservation| {
            let holder = state.workload(reservation.holder).spec.budget;
            let parting = state.tree.parting(holder, theirs);
            parting.is_some_and(|(mine, theirs)| {
                self.holds(state, Test::Above, Pair { mine, theirs }, 0)
            })
        });
        if Self::may_reserve_more(state) {
            return self.end_epoch();
        }
        if counts {
            self.unblock_asking(state);
        }
        self.unblock_against(state, theirs);
    }
}
