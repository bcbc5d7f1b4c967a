//! What a request could have at the very most, were its contract as short as can be and all hosts open to it.
//! Gangs are found blocked by this before anybody is looked at one by one.

use super::BudgetPolicy;
use super::ratios::{Pair, Test};
use super::soft::SoftHosts;
use crate::cluster::{Ask, HostState};
use crate::state::{Settings, State};
use crate::units::{BudgetIx, HostIx, SpanMs, TimeMs, WorkloadIx};
use alloc::vec;
use alloc::vec::Vec;

/// The allocated work of each leaf that is neither protected nor leaving, by the place of the leaf; in no
/// particular order.
#[derive(Clone, Debug)]
pub(super) struct Interruptible(Vec<Vec<WorkloadIx>>);

impl Interruptible {
    pub(super) fn of(state: &State) -> Self {
        let mut known = Self(vec![Vec::new(); state.tree.leaves().len()]);
        state.takeable().iter().for_each(|&workload| known.add(state, workload));
        known
    }

    /// The protection of an attempt has ended.
    pub(super) fn add(&mut self, state: &State, workload: WorkloadIx) {
        let known = &mut self.0[BudgetPolicy::leaf_of(state, workload)];
        // Of a policy that was built after the fact, but before it was told, it is known already.
        if state.workload(workload).allocated && !known.contains(&workload) {
            known.push(workload);
        }
    }

    /// It was told to leave, or has stopped.
    pub(super) fn remove(&mut self, state: &State, workload: WorkloadIx) {
        let known = &mut self.0[BudgetPolicy::leaf_of(state, workload)];
        if let Some(place) = known.iter().position(|&other| other == workload) {
            known.swap_remove(place);
        }
    }
}

/// How many hosts could give how many GPUs to a leaf, at a moment, as the facts stand.
#[derive(Clone, Debug, Default)]
pub(super) struct Reach {
    at: TimeMs,
    facts: u64,
    pools: Vec<PoolReach>,
    /// What each host could give beside its soft GPUs; zeros between two uses.
    more: Vec<u32>,
    /// The hosts where that is anything.
    hosts: Vec<HostIx>,
}

/// The same for one pool.
#[derive(Clone, Debug, Default)]
pub(super) struct PoolReach {
    /// By GPUs: how many hosts that are not debug hosts reach as many.
    pub(super) normal: Vec<u32>,
    /// The most that any debug host reaches.
    pub(super) debug: u32,
}

impl PoolReach {
    /// The longest contract that may have room; zero for none.
    fn longest(&self, ask: Ask) -> SpanMs {
        if !ask.is_single() {
            let enough = self.normal[ask.gpus_per_host as usize] >= ask.hosts;
            return if enough { SpanMs(u64::MAX) } else { SpanMs::ZERO };
        }
        if self.normal[ask.single_gpus() as usize] > 0 {
            SpanMs(u64::MAX)
        } else if self.debug >= ask.single_gpus() {
            Settings::DEBUG_RUNTIME_MAX
        } else {
            SpanMs::ZERO
        }
    }
}

impl Reach {
    /// Begins with what any allocated request could have.
    fn begin(&mut self, state: &State, soft: &SoftHosts) {
        soft.reach(&mut self.pools);
        self.more.resize(state.cluster.hosts().len(), 0);
    }

    /// Adds what a running attempt has.
    fn add(&mut self, state: &State, workload: WorkloadIx) {
        for &(host, gpus) in &state.workload(workload).placement {
            let more = &mut self.more[host.at()];
            if *more == 0 {
                self.hosts.push(host);
            }
            *more += gpus;
        }
    }

    /// All that counts was added.
    fn end(&mut self, state: &State) {
        for host in self.hosts.drain(..) {
            let more = core::mem::take(&mut self.more[host.at()]);
            let facts = state.cluster.host(host);
            if facts.state != HostState::Up {
                continue;
            }
            let (soft, pool) = (facts.soft(), &mut self.pools[facts.pool]);
            if BudgetPolicy::is_debug_host(state, host) {
                pool.debug = pool.debug.max(soft + more);
            } else {
                let levels = &mut pool.normal[soft as usize + 1..=(soft + more) as usize];
                levels.iter_mut().for_each(|hosts| *hosts += 1);
            }
        }
    }
}

impl BudgetPolicy {
    /// The longest contract of a leaf for which what it could take could be enough; zero for none. Remembered
    /// for the moment and the facts.
    pub(super) fn longest_in_reach(
        &self,
        state: &State,
        leaf: BudgetIx,
        asks: &[(usize, Ask)],
    ) -> SpanMs {
        let place = state.tree.leaf_place(leaf).expect("requests are of leaves");
        let mut reach = self.reaches[place].borrow_mut();
        if (reach.at, reach.facts) != (state.now(), self.facts) {
            (reach.at, reach.facts) = (state.now(), self.facts);
            self.fill_reach(state, leaf, place, &mut reach);
        }
        let each = asks.iter().map(|&(pool, ask)| reach.pools[pool].longest(ask));
        each.max().unwrap_or(SpanMs::ZERO)
    }

    fn fill_reach(&self, state: &State, leaf: BudgetIx, place: usize, reach: &mut Reach) {
        reach.begin(state, &self.soft);
        let mut add = |work: &[WorkloadIx]| work.iter().for_each(|&one| reach.add(state, one));
        add(&self.interruptible.0[place]);
        for mine in state.tree.path(leaf) {
            let Some(parent) = state.tree.parent(mine) else { break };
            if !self.has_side(state, mine) {
                continue;
            }
            for &theirs in state.tree.children(parent) {
                if theirs != mine
                    && state.ledger.account(theirs).interruptible_gpus > 0
                    && self.holds(state, Test::Swap, Pair { mine, theirs }, 0)
                {
                    let below = state.tree.leaves_below(theirs);
                    self.interruptible.0[below].iter().for_each(|work| add(work));
                }
            }
        }
        reach.end(state);
    }
}
