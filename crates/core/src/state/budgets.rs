//! The budget tree changes: shares, limits, budgets that come and go.

use super::{Notice, State};
use crate::reason::EvictReason;
use crate::tree::{BudgetNode, Tree};
use crate::units::BudgetIx;
use crate::workload::{Refusal, Status};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

impl State {
    /// Puts a new tree in place of the old one from now on. Budgets are known by their paths: what one was
    /// charged stays with it, what is new accrues from now (rule 3), what is gone is forgotten but for what
    /// those above were charged for it. A budget with live workloads must stay, and stay a leaf.
    pub(crate) fn change_tree(&mut self, nodes: Vec<BudgetNode>) -> Result<(), Refusal> {
        let tree = Tree::new(nodes);
        let new_places: BTreeMap<&str, BudgetIx> = (0..tree.len())
            .map(|at| BudgetIx(at as u32))
            .map(|node| (tree.node(node).path.as_str(), node))
            .collect();
        let moved: Vec<Option<BudgetIx>> = (0..self.tree.len())
            .map(|at| new_places.get(self.tree.node(BudgetIx(at as u32)).path.as_str()).copied())
            .collect();
        for workload in self.workloads.iter().filter(|workload| workload.status != Status::Ended) {
            let place = moved[workload.spec.budget.at()].and_then(|node| tree.leaf_place(node));
            if place.is_none() {
                return Err(Refusal::HasWork(workload.spec.budget));
            }
        }
        let mut ranks = vec![BTreeMap::new(); tree.leaves().len()];
        for (place, known) in core::mem::take(&mut self.takeable_ranks).into_iter().enumerate() {
            let leaf = moved[self.tree.leaves()[place].at()];
            if let Some(place) = leaf.and_then(|leaf| tree.leaf_place(leaf)) {
                ranks[place] = known;
            }
        }
        self.takeable_ranks = ranks;
        for workload in self.workloads.iter_mut().filter(|one| one.status != Status::Ended) {
            let node = moved[workload.spec.budget.at()].expect("it was checked");
            workload.spec.budget = node;
            if let Some(EvictReason::Swap { side, against, .. }) = &mut workload.evict_reason {
                // Only told to people; a budget that is gone is told as the root.
                for node in [side, against] {
                    *node = moved[node.at()].unwrap_or(BudgetIx(0));
                }
            }
        }
        self.ledger.change_tree(&tree, &moved, self.cluster.capacity_units(), self.now);
        self.tree = tree;
        self.next_turn = self.turn_after(self.now);
        self.notices.push(Notice::SharesChanged);
        Ok(())
    }
}
