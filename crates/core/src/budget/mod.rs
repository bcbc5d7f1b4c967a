//! The budget policy: rules 1, 4, 6, 7 and 8 of docs/policy.
//!
//! A decision is sought in this order: reservations that are due, broken or can be moved earlier;
//! allocated requests in the order of rule 4; unallocated requests. After each decision the search
//! starts anew, since a start changes the usage ratios.
//!
//! What was found to be blocked is remembered until something happens that could unblock it (the
//! *epoch* ends): GPUs or protections end, a contract is committed, or a ratio crossing is due
//! (`wake`). Within an epoch a submission costs a comparison. This memory changes no result, and
//! tests play whole runs with and without it.

mod order;
mod preempt;
mod queue;
mod reserve;
mod wake;
mod why;

use crate::cluster::Ask;
use crate::policy::{Decision, Policy};
use crate::reason::{StartReason, WaitReason};
use crate::state::{Notice, Settings, State};
use crate::units::{BudgetIx, HostIx, SpanMs, TimeMs, WorkloadIx};
use crate::wide::Ratio;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use queue::LeafQueue;

/// The policy that Bursar exists for.
#[derive(Clone, Debug)]
pub struct BudgetPolicy {
    /// One queue per leaf, by its place among the leaves.
    queues: Vec<LeafQueue>,
    /// Ends whenever something may have unblocked a request.
    epoch: u64,
    /// Leaves with allocated requests that were not found blocked in this epoch.
    open: Vec<bool>,
    /// The epoch that `open` was filled in.
    open_in: u64,
    /// The least gang of unallocated requests that found no idle GPUs in this epoch.
    free_blocked: Option<(u64, u32)>,
    /// Whether something came free since the reservations were last tried to be moved earlier.
    may_move: bool,
    /// For each host 1 + the place of the reservation that names it.
    reserved: Vec<u32>,
    /// Unallocated requests that back off, by when that ends.
    backing_off: BTreeSet<(TimeMs, WorkloadIx)>,
    /// The next ratio crossing, when known.
    crossing: Option<TimeMs>,
    /// Per budget its usage ratio at that moment of that epoch.
    ratios: Vec<Cell<(TimeMs, u64, Ratio)>>,
    /// Per leaf: whether rule 6 could allow it any side, at that moment of that epoch.
    leaf_sides: Vec<Cell<(TimeMs, u64, bool)>>,
    soft_longest: RefCell<SoftLongest>,
    movable: RefCell<Movable>,
    reaches: Vec<RefCell<preempt::Reach>>,
    scratch: preempt::Scratch,
    /// Whether nothing is remembered from one decision to the next.
    forgetful: bool,
}

/// Which reservations could do without a host, at a moment of an epoch.
#[derive(Clone, Debug, Default)]
struct Movable {
    at: TimeMs,
    epoch: u64,
    answers: Vec<Option<bool>>,
}

/// Rule 8: what may run on the debug hosts, and what may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// At most 15 minutes of protection, on one host.
    Debug,
    /// Everything else that is allocated.
    Ordinary,
}

/// How a request looks at hosts.
#[derive(Clone, Copy, Debug)]
struct Use {
    kind: Kind,
    others: Others,
}

/// Whether standing reservations of others keep a request from hosts that they could do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    /// They do.
    Stay,
    /// They would move.
    MakeWay,
}

/// The longest contract that may start where so many GPUs are idle or unallocated, at a moment of an
/// epoch.
#[derive(Clone, Debug, Default)]
struct SoftLongest {
    at: TimeMs,
    epoch: u64,
    /// Per pool, by GPUs.
    by_pool: Vec<Vec<SpanMs>>,
}

impl BudgetPolicy {
    /// A policy for the budgets and hosts of `state`.
    #[must_use]
    pub fn new(state: &State) -> Self {
        let leaves = state.tree.leaves().len();
        Self {
            queues: vec![LeafQueue::default(); leaves],
            epoch: 1,
            open: vec![false; leaves],
            open_in: 0,
            free_blocked: None,
            may_move: false,
            reserved: vec![0; state.cluster.hosts().len()],
            backing_off: BTreeSet::new(),
            crossing: None,
            ratios: vec![Cell::new((TimeMs(0), 0, Ratio::default())); state.tree.len()],
            leaf_sides: vec![Cell::new((TimeMs(0), 0, false)); leaves],
            soft_longest: RefCell::default(),
            movable: RefCell::default(),
            reaches: vec![RefCell::default(); leaves],
            scratch: preempt::Scratch::default(),
            forgetful: false,
        }
    }

    /// The same policy without any memory of what is blocked: slow, and what the other is tested against.
    #[must_use]
    pub fn forgetful(state: &State) -> Self {
        Self { forgetful: true, ..Self::new(state) }
    }

    fn leaf_of(state: &State, workload: WorkloadIx) -> usize {
        let budget = state.workload(workload).spec.budget;
        state.tree.leaf_place(budget).expect("workloads are charged to leaves")
    }

    /// Rule 3, remembered for the moment and the epoch: whatever changes a ratio ends the epoch.
    fn ratio(&self, state: &State, node: BudgetIx) -> Ratio {
        let known = &self.ratios[node.at()];
        let (now, epoch, ratio) = known.get();
        if (now, epoch) == (state.now(), self.epoch) {
            return ratio;
        }
        let ratio = state.ledger.usage_ratio(node, state.now());
        known.set((state.now(), self.epoch, ratio));
        ratio
    }

    /// The same, were `contract` more committed.
    fn ratio_with(&self, state: &State, node: BudgetIx, contract: u128) -> Ratio {
        let Ratio { used, allocated } = self.ratio(state, node);
        Ratio { used: used + (contract << 32), allocated }
    }

    fn end_epoch(&mut self) {
        self.epoch += 1;
        self.crossing = None;
    }

    fn enqueue(&mut self, state: &State, workload: WorkloadIx) {
        let leaf = Self::leaf_of(state, workload);
        let open = self.queues[leaf].insert(state, workload, self.epoch);
        let funded = state.tree.fraction(state.tree.leaves()[leaf]) > 0;
        if open && funded && self.open_in == self.epoch {
            self.open[leaf] = true;
        }
        self.crossing = None;
        self.free_blocked = None;
    }

    /// Rule 7: whether `holder` has hosts reserved.
    fn reservation_index(state: &State, holder: WorkloadIx) -> Option<usize> {
        state.reservations.iter().position(|reservation| reservation.holder == holder)
    }

    fn note_reservations(&mut self, state: &State) {
        self.reserved.fill(0);
        for (index, reservation) in state.reservations.iter().enumerate() {
            for &(host, _) in &reservation.placement {
                self.reserved[host.at()] = index as u32 + 1;
            }
        }
    }

    /// Rule 8: whether a contract is short and small enough for the debug hosts.
    fn kind(state: &State, workload: WorkloadIx, ask: Ask) -> Kind {
        let contract = state.workload(workload).protection();
        if ask.is_single() && contract <= Settings::DEBUG_RUNTIME_MAX {
            Kind::Debug
        } else {
            Kind::Ordinary
        }
    }

    /// Rule 8: the debug hosts are the last ones declared.
    fn is_debug_host(state: &State, host: HostIx) -> bool {
        host.at() + state.settings.debug_hosts as usize >= state.cluster.hosts().len()
    }

    /// Rules 7 and 8: whether an allocated request may use GPUs of a host that is up. A reserved host
    /// may be used by its holder, and by whom it is certain to be rid of in time.
    fn may_use(&self, state: &State, host: HostIx, workload: WorkloadIx, how: Use) -> bool {
        if how.kind == Kind::Ordinary && Self::is_debug_host(state, host) {
            return false;
        }
        let Some(index) = self.reserved[host.at()].checked_sub(1) else { return true };
        let reservation = &state.reservations[index as usize];
        let contract = state.workload(workload).protection();
        reservation.holder == workload
            || state.now() + state.settings.grace + contract <= reservation.until
            || (how.others == Others::MakeWay && self.is_movable(state, index as usize))
    }

    /// Rules 8 and 6: a start on idle GPUs, else one that others leave for. Where only a reservation stands
    /// in the way that could be as early elsewhere, that moves first.
    fn place(&mut self, state: &State, index: WorkloadIx) -> Option<Decision> {
        let in_the_way = state.reservations.iter().any(|other| other.holder != index);
        let ways: &[Others] =
            if in_the_way { &[Others::Stay, Others::MakeWay] } else { &[Others::Stay] };
        let idle = ways.iter().find_map(|&others| self.place_idle(state, index, others));
        if idle.is_some() {
            return idle;
        }
        let spec = &state.workload(index).spec;
        let (gpus, shape, model) = (spec.gpus, spec.shape, spec.model);
        for &others in ways {
            for (pool, ask) in state.cluster.asks(gpus, shape, model) {
                if !Self::has_room(state, index, pool) {
                    continue;
                }
                let found = self.place_by_preempting(state, index, pool, ask, others);
                let found = found.and_then(|start| self.unless_reserved(state, start, others));
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// Rule 1: whether a contract at a pool's rate has room under the limits of its budget.
    fn has_room(state: &State, index: WorkloadIx, pool: usize) -> bool {
        !is_limited(state, state.workload(index).spec.budget)
            || state.would_be_allocated(index, state.cluster.rate(pool))
    }

    /// Rule 8: a start on idle GPUs.
    fn place_idle(&self, state: &State, index: WorkloadIx, others: Others) -> Option<Decision> {
        let spec = &state.workload(index).spec;
        let mut asks = state.cluster.asks(spec.gpus, spec.shape, spec.model);
        let placement = asks.find_map(|(pool, ask)| {
            if !Self::has_room(state, index, pool) {
                return None;
            }
            let how = Use { kind: Self::kind(state, index, ask), others };
            state.cluster.place_idle(pool, ask, |host| self.may_use(state, host, index, how))
        })?;
        let ratio = self.ratio(state, spec.budget);
        let decision = Decision::Start {
            workload: index,
            placement,
            allocated: true,
            reason: StartReason::Idle { ratio },
            victims: Vec::new(),
        };
        self.unless_reserved(state, decision, others)
    }

    /// A start as it is, or, if others must make way for it first, that.
    fn unless_reserved(&self, state: &State, start: Decision, others: Others) -> Option<Decision> {
        match (&start, others) {
            (Decision::Start { placement, .. }, Others::MakeWay) => self.make_way(state, placement),
            _ => Some(start),
        }
    }

    /// Rules 4, 6, 7, 8: the next start or reservation of an allocated request.
    fn decide_allocated(&mut self, state: &State) -> Option<Decision> {
        self.reopen(state);
        while let Some(leaf) = self.next_leaf(state) {
            let Some(entry) = self.next_request(state, leaf) else {
                self.open[leaf] = false;
                continue;
            };
            if let Some(decision) = self.place(state, entry.workload) {
                return Some(decision);
            }
            if state.reservations.len() < state.settings.reservations as usize
                && Self::reservation_index(state, entry.workload).is_none()
                && let Some(reservation) = self.find_reservation(state, entry.workload, None)
            {
                return Some(Decision::Reserve(reservation));
            }
            self.block(state, leaf, entry);
        }
        None
    }

    /// Rule 1: the next start of an unallocated request, on idle GPUs only.
    fn decide_unallocated(&mut self, state: &State) -> Option<Decision> {
        let idle: u32 = state.cluster.pools().iter().map(crate::cluster::Pool::idle).sum();
        if idle == 0 {
            return None;
        }
        let mut blocked = match self.free_blocked {
            Some((epoch, gpus)) if epoch == self.epoch => gpus,
            _ => u32::MAX,
        };
        let uniform = state.cluster.is_uniform(None);
        let mut tried: Vec<WorkloadIx> = Vec::new();
        loop {
            let next = self.next_unallocated(state, blocked, idle, &tried);
            let Some(index) = next else { break };
            let spec = &state.workload(index).spec;
            let placed = state
                .cluster
                .asks(spec.gpus, spec.shape, spec.model)
                .find_map(|(pool, ask)| state.cluster.place_idle(pool, ask, |_| true));
            if let Some(placement) = placed {
                return Some(Decision::Start {
                    workload: index,
                    placement,
                    allocated: false,
                    reason: StartReason::Unallocated,
                    victims: Vec::new(),
                });
            }
            if uniform && spec.shape.is_none() {
                blocked = blocked.min(spec.gpus);
            } else {
                tried.push(index);
            }
        }
        self.free_blocked = tried.is_empty().then_some((self.epoch, blocked));
        None
    }

    /// Ends the epoch when a moment has come that could unblock something.
    fn catch_up(&mut self, state: &State) {
        if self.crossing.is_some_and(|crossing| crossing <= state.now()) {
            self.end_epoch();
        }
        while let Some(&(until, workload)) = self.backing_off.first() {
            if until > state.now() {
                break;
            }
            self.backing_off.pop_first();
            self.enqueue(state, workload);
        }
    }
}

impl Policy for BudgetPolicy {
    fn name(&self) -> &'static str {
        "budget"
    }

    fn observe(&mut self, state: &State, notice: &Notice) {
        match *notice {
            Notice::Submitted(workload) => self.enqueue(state, workload),
            Notice::Requeued(workload) => {
                let until = state.workload(workload).backs_off_until;
                if until > state.now() {
                    self.backing_off.insert((until, workload));
                } else {
                    self.enqueue(state, workload);
                }
                self.end_epoch();
            }
            Notice::Dequeued(workload) => {
                let until = state.workload(workload).backs_off_until;
                if !self.backing_off.remove(&(until, workload)) {
                    self.queues[Self::leaf_of(state, workload)].remove(state, workload);
                }
                self.end_epoch();
            }
            Notice::Reserved(_) | Notice::Unreserved(_) => {
                self.note_reservations(state);
                self.end_epoch();
            }
            Notice::Stopped(..)
            | Notice::HostDown(_)
            | Notice::HostUp(_)
            | Notice::DrainStarted(_)
            | Notice::Drained(_)
            | Notice::SharesChanged => {
                self.may_move = true;
                self.end_epoch();
            }
            Notice::ProtectionEnded(_) | Notice::Preempted(_) => self.end_epoch(),
            // The contract was committed when the start was decided.
            Notice::Started(workload) => {
                if !state.workload(workload).allocated {
                    // From now on it can be told to leave.
                    self.end_epoch();
                }
            }
            Notice::Ended(..) => {}
        }
    }

    fn decide(&mut self, state: &State) -> Option<Decision> {
        if self.forgetful {
            self.end_epoch();
        }
        self.catch_up(state);
        if let Some(decision) = self.decide_reservations(state) {
            return Some(decision);
        }
        if let Some(decision) = self.decide_allocated(state) {
            return Some(decision);
        }
        self.decide_unallocated(state)
    }

    fn next_wake(&mut self, state: &State) -> TimeMs {
        let crossing = match self.crossing {
            Some(crossing) => crossing,
            None => self.next_crossing(state),
        };
        self.crossing = Some(crossing);
        let due = state.reservations.iter().map(|reservation| reservation.until);
        let back = self.backing_off.first().map(|&(until, _)| until);
        due.chain(back).filter(|&at| at > state.now()).fold(crossing, TimeMs::min)
    }

    fn why(&self, state: &State, workload: WorkloadIx) -> WaitReason {
        self.explain(state, workload)
    }

    fn clone_box(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}

/// The rate of the cheapest pool that may hold a request: the least that its contract commits.
fn least_rate(state: &State, key: queue::AskKey) -> u64 {
    let asks = state.cluster.asks(key.gpus, key.shape, key.model);
    asks.map(|(pool, _)| state.cluster.rate(pool)).min().unwrap_or(1)
}

/// GPU-time of a contract in units.
fn contract_units(gpus: u32, rate: u64, length: SpanMs) -> u128 {
    u128::from(gpus) * u128::from(rate) * u128::from(length.0)
}

/// Whether a leaf or something above it has a hard limit.
fn is_limited(state: &State, leaf: BudgetIx) -> bool {
    state.tree.path(leaf).any(|node| state.tree.node(node).limit_units.is_some())
}
