//! The waiting requests of one leaf: in the order of rule 4 (rank, first submission, id), split by what
//! they ask for, and searchable for "the first whose contract is shorter than …".
//!
//! Requests of a leaf that ask for the same GPUs differ in one thing that matters for whether they can
//! be placed: the contract's length. A shorter one fits wherever a longer one does (rules 6 and 7), so
//! once a request is blocked, only shorter ones after it need to be looked at.

use crate::cluster::Ask;
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

impl Entry {
    pub(super) fn rank(&self) -> i32 {
        i32::try_from(-self.order.0).expect("the order is that of a rank")
    }
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

    /// The shortest contract of all; the longest span if there is none.
    pub(super) const fn shortest(&self) -> SpanMs {
        self.shortest
    }

    /// The first of all.
    pub(super) fn first(&self) -> Option<Entry> {
        self.chunks.first().map(|chunk| chunk.entries[0])
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
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
    /// The pools that may hold it, with what it asks of each.
    pub(super) asks: Vec<(usize, Ask)>,
    /// The fewest GPUs that any host of it gives.
    pub(super) part: u32,
    /// Those with a contract.
    pub(super) contracts: OrderedList,
    /// Those that are unallocated on purpose.
    pub(super) free: OrderedList,
    /// Contracts of this length or longer are known to be blocked …
    blocked_from: SpanMs,
    /// … as long as the leaf's mark is this one.
    blocked_in: u64,
}

impl AskList {
    /// Contracts at least this long need not be tried while the leaf's mark is `mark`.
    pub(super) fn blocked_from(&self, mark: u64) -> SpanMs {
        if self.blocked_in == mark { self.blocked_from } else { SpanMs(u64::MAX) }
    }

    pub(super) fn unblock(&mut self) {
        self.blocked_from = SpanMs(u64::MAX);
    }

    pub(super) fn block(&mut self, from: SpanMs, mark: u64) {
        self.blocked_from = self.blocked_from(mark).min(from);
        self.blocked_in = mark;
    }
}

/// The waiting requests of one leaf.
#[derive(Clone, Debug, Default)]
pub(super) struct LeafQueue {
    pub(super) lists: Vec<AskList>,
    /// The places of those in which contracts wait.
    with_contracts: Vec<u32>,
    /// Contracts waiting, by what they would commit in units, once for each rate at which they could: which
    /// crossings and which hard limits matter (rules 1 and 6).
    pub(super) contract_costs: BTreeMap<u128, u32>,
    pub(super) waiting_contracts: u32,
    pub(super) waiting_free: u32,
}

impl LeafQueue {
    fn list(&mut self, state: &State, key: AskKey) -> &mut AskList {
        let at = self.lists.iter().position(|list| list.key == key).unwrap_or_else(|| {
            let asks: Vec<_> = state.cluster.asks(key.gpus, key.shape, key.model).collect();
            self.lists.push(AskList {
                key,
                part: asks.iter().map(|(_, ask)| ask.smallest_part()).min().unwrap_or(0),
                asks,
                contracts: OrderedList::default(),
                free: OrderedList::default(),
                blocked_from: SpanMs(u64::MAX),
                blocked_in: u64::MAX,
            });
            self.lists.len() - 1
        });
        &mut self.lists[at]
    }

    /// What the least contract that waits would commit.
    pub(super) fn least_cost(&self) -> Option<u128> {
        self.contract_costs.first_key_value().map(|(&cost, _)| cost)
    }

    /// Whether a contract of a higher rank than `rank` waits.
    pub(super) fn has_higher_rank(&self, rank: i32) -> bool {
        let firsts = self.lists.iter().filter_map(|list| list.contracts.first());
        firsts.map(|entry| -entry.order.0).any(|waiting| waiting > i64::from(rank))
    }

    fn note_lists(&mut self) {
        self.with_contracts.clear();
        let waits = |&at: &u32| !self.lists[at as usize].contracts.is_empty();
        self.with_contracts.extend((0..self.lists.len() as u32).filter(waits));
    }

    /// The places of the lists in which contracts wait.
    pub(super) fn contract_lists(&self) -> &[u32] {
        &self.with_contracts
    }

    /// No contract can be placed.
    pub(super) fn block_all(&mut self, mark: u64) {
        for &at in &self.with_contracts {
            let list = &mut self.lists[at as usize];
            list.block(list.contracts.shortest(), mark);
        }
    }

    /// A request starts to wait. Says whether it could be placed for all that is known under `mark`.
    pub(super) fn insert(&mut self, state: &State, workload: WorkloadIx, mark: u64) -> bool {
        let (key, entry) = entry_of(state, workload);
        let list = self.list(state, key);
        if entry.contract == SpanMs::ZERO {
            list.free.insert(entry);
            self.waiting_free += 1;
            return false;
        }
        let is_first = list.contracts.is_empty();
        list.contracts.insert(entry);
        let mut open = entry.contract < list.blocked_from(mark);
        if is_first {
            self.note_lists();
        }
        let spec = &state.workload(workload).spec;
        if !open
            && (super::BudgetPolicy::may_reserve_more(state)
                || state.has_lower_rank(spec.budget, spec.rank))
        {
            // What was found blocked may have had a lower rank, and so fewer rights.
            self.lists.iter_mut().for_each(AskList::unblock);
            open = true;
        }
        self.waiting_contracts += 1;
        for cost in costs_of(state, key, entry) {
            *self.contract_costs.entry(cost).or_insert(0) += 1;
        }
        open
    }

    /// A request waits no longer.
    pub(super) fn remove(&mut self, state: &State, workload: WorkloadIx) {
        let (key, entry) = entry_of(state, workload);
        let list = self.list(state, key);
        if entry.contract == SpanMs::ZERO {
            list.free.remove(entry.order);
            self.waiting_free -= 1;
            return;
        }
        list.contracts.remove(entry.order);
        if list.contracts.is_empty() {
            self.note_lists();
        }
        self.waiting_contracts -= 1;
        if self.waiting_contracts == 0 {
            // Nobody is looked at in an empty queue when GPUs come free: what was known does not stay true.
            self.lists.iter_mut().for_each(AskList::unblock);
        }
        for cost in costs_of(state, key, entry) {
            let count = self.contract_costs.get_mut(&cost).expect("it was counted");
            *count -= 1;
            if *count == 0 {
                self.contract_costs.remove(&cost);
            }
        }
    }
}

/// What a contract would commit in each pool that could hold it.
fn costs_of(state: &State, key: AskKey, entry: Entry) -> impl Iterator<Item = u128> + '_ {
    state.cluster.asks(key.gpus, key.shape, key.model).map(move |(pool, _)| {
        super::contract_units(key.gpus, state.cluster.rate(pool), entry.contract)
    })
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
