//! The waiting requests of one leaf: in the order of rule 4 (rank, first submission, id), split by what
//! they ask for, and searchable for "the first whose contract is shorter than …".
//!
//! Requests of a leaf that ask for the same GPUs differ in one thing that matters for whether they can
//! be placed: the contract's length. A shorter one fits wherever a longer one does (rules 6 and 7), so
//! once a request is blocked, only shorter ones after it need to be looked at.

use crate::state::State;
use crate::units::{ModelIx, SpanMs, TimeMs, WorkloadIx};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// What requests of one list ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AskKey {
    pub(super) gpus: u32,
    pub(super) shape: Option<(u32, u32)>,
    pub(super) model: Option<ModelIx>,
}

/// The order inside a leaf (rule 4).
pub(super) type OrderKey = (i64, TimeMs, u64);

/// One waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) order: OrderKey,
    /// The contract's length; zero for requests that are unallocated on purpose.
    pub(super) contract: SpanMs,
    pub(super) workload: WorkloadIx,
}

/// Few enough to insert by moving, many enough that ten thousand requests are a short list of chunks.
const CHUNK_ENTRIES_MAX: usize = 64;

#[derive(Clone, Debug)]
struct Chunk {
    entries: Vec<Entry>,
    shortest: SpanMs,
}

impl Chunk {
    fn measure(&mut self) {
        let shortest = self.entries.iter().map(|entry| entry.contract).min();
        self.shortest = shortest.unwrap_or(SpanMs(u64::MAX));
    }
}

/// Requests in order.
#[derive(Clone, Debug)]
pub(super) struct OrderedList {
    chunks: Vec<Chunk>,
    /// The shortest contract of all.
    shortest: SpanMs,
}

impl Default for OrderedList {
    fn default() -> Self {
        Self { chunks: Vec::new(), shortest: SpanMs(u64::MAX) }
    }
}

impl OrderedList {
    fn chunk_for(&self, order: OrderKey) -> usize {
        let after = self.chunks.partition_point(|chunk| chunk.entries[0].order <= order);
        after.saturating_sub(1)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(super) fn insert(&mut self, entry: Entry) {
        self.shortest = self.shortest.min(entry.contract);
        if self.chunks.is_empty() {
            self.chunks.push(Chunk { entries: vec![entry], shortest: entry.contract });
            return;
        }
        let at = self.chunk_for(entry.order);
        let chunk = &mut self.chunks[at];
        let place = chunk.entries.partition_point(|other| other.order < entry.order);
        chunk.entries.insert(place, entry);
        chunk.shortest = chunk.shortest.min(entry.contract);
        if chunk.entries.len() > CHUNK_ENTRIES_MAX {
            let entries = chunk.entries.split_off(CHUNK_ENTRIES_MAX / 2);
            chunk.measure();
            let mut next = Chunk { entries, shortest: SpanMs::ZERO };
            next.measure();
            self.chunks.insert(at + 1, next);
        }
    }

    pub(super) fn remove(&mut self, order: OrderKey) {
        let at = self.chunk_for(order);
        let chunk = &mut self.chunks[at];
        let found = chunk.entries.binary_search_by_key(&order, |entry| entry.order);
        chunk.entries.remove(found.expect("a request that leaves the queue is in it"));
        if chunk.entries.is_empty() {
            self.chunks.remove(at);
        } else {
            chunk.measure();
        }
        let shortest = self.chunks.iter().map(|chunk| chunk.shortest).min();
        self.shortest = shortest.unwrap_or(SpanMs(u64::MAX));
    }

    /// The first whose contract is shorter than `bound`.
    pub(super) fn first_shorter(&self, bound: SpanMs) -> Option<Entry> {
        if self.shortest >= bound {
            return None;
        }
        let chunk = self.chunks.iter().find(|chunk| chunk.shortest < bound)?;
        chunk.entries.iter().find(|entry| entry.contract < bound).copied()
    }

    /// All, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        self.chunks.iter().flat_map(|chunk| chunk.entries.iter().copied())
    }
}

/// All requests of a leaf that ask for the same.
#[derive(Clone, Debug)]
pub(super) struct AskList {
    pub(super) key: AskKey,
    /// Those with a contract.
    pub(super) contracts: OrderedList,
    /// Those that are unallocated on purpose.
    pub(super) free: OrderedList,
    /// Contracts of this length or longer are known to be blocked …
    blocked_from: SpanMs,
    /// … as long as the policy's epoch is this one.
    blocked_in: u64,
}

impl AskList {
    /// Contracts at least this long need not be tried in `epoch`.
    pub(super) fn blocked_from(&self, epoch: u64) -> SpanMs {
        if self.blocked_in == epoch { self.blocked_from } else { SpanMs(u64::MAX) }
    }

    fn unblock(&mut self) {
        self.blocked_from = SpanMs(u64::MAX);
    }

    pub(super) fn block(&mut self, from: SpanMs, epoch: u64) {
        self.blocked_from = self.blocked_from(epoch).min(from);
        self.blocked_in = epoch;
    }
}

/// The waiting requests of one leaf.
#[derive(Clone, Debug, Default)]
pub(super) struct LeafQueue {
    pub(super) lists: Vec<AskList>,
    /// Contracts waiting, by their GPU-time (GPUs x length): which crossings matter (rule 6).
    pub(super) contract_costs: BTreeMap<u128, u32>,
    pub(super) waiting_contracts: u32,
    pub(super) waiting_free: u32,
}

impl LeafQueue {
    fn list(&mut self, key: AskKey) -> &mut AskList {
        let at = self.lists.iter().position(|list| list.key == key).unwrap_or_else(|| {
            self.lists.push(AskList {
                key,
                contracts: OrderedList::default(),
                free: OrderedList::default(),
                blocked_from: SpanMs(u64::MAX),
                blocked_in: u64::MAX,
            });
            self.lists.len() - 1
        });
        &mut self.lists[at]
    }

    /// A request starts to wait. Says whether it could be placed for all that is known in `epoch`.
    pub(super) fn insert(&mut self, state: &State, workload: WorkloadIx, epoch: u64) -> bool {
        let (key, entry) = entry_of(state, workload);
        let list = self.list(key);
        if entry.contract == SpanMs::ZERO {
            list.free.insert(entry);
            self.waiting_free += 1;
            return false;
        }
        list.contracts.insert(entry);
        let mut open = entry.contract < list.blocked_from(epoch);
        let spec = &state.workload(workload).spec;
        let may_reserve = state.reservations.len() < state.settings.reservations as usize;
        if !open && (may_reserve || state.has_lower_rank(spec.budget, spec.rank)) {
            // What was found blocked may have had a lower rank, and so fewer rights.
            self.lists.iter_mut().for_each(AskList::unblock);
            open = true;
        }
        self.waiting_contracts += 1;
        *self.contract_costs.entry(cost_of(key, entry)).or_insert(0) += 1;
        open
    }

    /// A request waits no longer.
    pub(super) fn remove(&mut self, state: &State, workload: WorkloadIx) {
        let (key, entry) = entry_of(state, workload);
        let list = self.list(key);
        if entry.contract == SpanMs::ZERO {
            list.free.remove(entry.order);
            self.waiting_free -= 1;
            return;
        }
        list.contracts.remove(entry.order);
        self.waiting_contracts -= 1;
        let cost = cost_of(key, entry);
        if let Some(count) = self.contract_costs.get_mut(&cost) {
            *count -= 1;
            if *count == 0 {
                self.contract_costs.remove(&cost);
            }
        }
    }
}

fn cost_of(key: AskKey, entry: Entry) -> u128 {
    u128::from(key.gpus) * u128::from(entry.contract.0)
}

fn entry_of(state: &State, index: WorkloadIx) -> (AskKey, Entry) {
    let workload = state.workload(index);
    let spec = &workload.spec;
    let key = AskKey { gpus: spec.gpus, shape: spec.shape, model: spec.model };
    let order = (-i64::from(spec.rank), workload.first_submitted, spec.tie);
    (key, Entry { order, contract: workload.protection(), workload: index })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_search_equals_a_walk(
            rows in proptest::collection::vec((0u64..500, 1u64..50), 1..400),
            removed in proptest::collection::vec(0usize..400, 0..200), bound in 0u64..60,
        ) {
            let mut list = OrderedList::default();
            let mut plain: Vec<Entry> = Vec::new();
            for (index, (submitted, contract)) in rows.iter().enumerate() {
                let entry = Entry {
                    order: (0, TimeMs(*submitted), index as u64),
                    contract: SpanMs(*contract),
                    workload: WorkloadIx(index as u32),
                };
                list.insert(entry);
                plain.push(entry);
            }
            plain.sort_by_key(|entry| entry.order);
            for index in removed {
                if index < plain.len() {
                    list.remove(plain.remove(index).order);
                }
            }
            prop_assert_eq!(list.iter().collect::<Vec<_>>(), plain.clone());
            let bound = SpanMs(bound);
            let found = plain.iter().find(|entry| entry.contract < bound).copied();
            prop_assert_eq!(list.first_shorter(bound), found);
        }
    }
}
