//! Waiting requests in classes: those of one leaf that ask for the same GPUs differ only in their turn,
//! so a class whose first request cannot start has none that can.
//!
//! Which classes were found blocked is remembered until the *epoch* ends. A pass over a queue of any
//! length costs one step per class.

use super::{Place, place_of};
use crate::state::State;
use crate::units::{ModelIx, WorkloadIx};
use alloc::collections::{BTreeMap, BTreeSet};

/// What the requests of a class have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClassKey {
    /// The place among the leaves.
    pub(super) leaf: usize,
    pub(super) gpus: u32,
    pub(super) shape: Option<(u32, u32)>,
    pub(super) model: Option<ModelIx>,
}

impl ClassKey {
    pub(super) fn of(state: &State, workload: WorkloadIx) -> Self {
        let spec = &state.workload(workload).spec;
        let leaf = state.tree.leaf_place(spec.budget).expect("workloads are charged to leaves");
        Self { leaf, gpus: spec.gpus, shape: spec.shape, model: spec.model }
    }
}

#[derive(Clone, Debug, Default)]
struct Class {
    /// Never empty.
    line: BTreeSet<(Place, WorkloadIx)>,
    blocked_in: u64,
}

/// The first request of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) key: ClassKey,
    pub(super) place: Place,
    pub(super) workload: WorkloadIx,
}

/// All waiting requests.
#[derive(Clone, Debug)]
pub(super) struct Classes {
    classes: BTreeMap<ClassKey, Class>,
    epoch: u64,
    /// No class is open in this epoch; saves looking.
    is_all_blocked: bool,
    /// The least gang that found no idle GPUs since the last release, on a cluster of one pool.
    idle_blocked: u32,
}

impl Classes {
    pub(super) fn new() -> Self {
        Self { classes: BTreeMap::new(), epoch: 1, is_all_blocked: true, idle_blocked: u32::MAX }
    }

    pub(super) fn insert(&mut self, state: &State, workload: WorkloadIx) {
        let class = self.classes.entry(ClassKey::of(state, workload)).or_default();
        class.line.insert((place_of(state, workload, 0), workload));
        if class.blocked_in != self.epoch {
            self.is_all_blocked = false;
        }
    }

    pub(super) fn remove(&mut self, state: &State, workload: WorkloadIx) {
        let key = ClassKey::of(state, workload);
        if let Some(class) = self.classes.get_mut(&key) {
            class.line.remove(&(place_of(state, workload, 0), workload));
            if class.line.is_empty() {
                self.classes.remove(&key);
            }
        }
    }

    /// Something may have unblocked any class, though no GPUs became idle.
    pub(super) fn end_epoch(&mut self) {
        self.epoch += 1;
        self.is_all_blocked = self.classes.is_empty();
    }

    /// GPUs may have become idle.
    pub(super) fn released(&mut self) {
        self.idle_blocked = u32::MAX;
        self.end_epoch();
    }

    pub(super) fn block(&mut self, key: ClassKey) {
        if let Some(class) = self.classes.get_mut(&key) {
            class.blocked_in = self.epoch;
        }
    }

    /// Heads of the classes that were not found blocked in this epoch.
    pub(super) fn open(&mut self) -> impl Iterator<Item = Head> + '_ {
        let epoch = self.epoch;
        if !self.is_all_blocked {
            self.is_all_blocked = self.classes.values().all(|class| class.blocked_in == epoch);
        }
        let none_open = self.is_all_blocked;
        let classes = self.classes.iter().filter(move |_| !none_open);
        classes.filter(move |(_, class)| class.blocked_in != epoch).filter_map(head)
    }

    /// Heads of all classes of a leaf.
    pub(super) fn of_leaf(&self, leaf: usize) -> impl Iterator<Item = Head> + '_ {
        let first = ClassKey { leaf, gpus: 0, shape: None, model: None };
        self.classes.range(first..).take_while(move |(key, _)| key.leaf == leaf).filter_map(head)
    }

    /// Where the first of a class fits on idle GPUs; remembers how small a gang did not.
    pub(super) fn place_idle(
        &mut self,
        state: &State,
        head: Head,
    ) -> Option<crate::cluster::Placement> {
        let comparable = head.key.shape.is_none() && state.cluster.is_uniform(None);
        if comparable && head.key.gpus >= self.idle_blocked {
            return None;
        }
        let placed = super::place_idle(state, head.workload);
        if placed.is_none() && comparable {
            self.idle_blocked = head.key.gpus;
        }
        placed
    }
}

fn head((&key, class): (&ClassKey, &Class)) -> Option<Head> {
    class.line.first().map(|&(place, workload)| Head { key, place, workload })
}
