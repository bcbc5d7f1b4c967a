//! The budget policy: rules 1, 4, 6, 7 and 8 of docs/policy.
//!
//! A decision is sought in this order: reservations that are due, broken or can be moved earlier;
//! allocated requests in the order of rule 4; unallocated requests. After each decision the search
//! starts anew, since a start changes the usage ratios.
//!
//! What was found to be blocked is remembered until something happens that could unblock it: for all
//! leaves (the *epoch* ends) when GPUs come free, reservations change or a ratio crossing is due (`wake`);
//! for those that may take from a budget when a protection of it ends or a contract of it is committed.
//! What follows from the facts of a moment is remembered as long as these stand. Otherwise a submission
//! costs a comparison. This memory changes no result, and tests play whole runs with and without it.

mod dues;
mod memory;
mod order;
mod preempt;
mod queue;
mod ratios;
mod reach;
mod reserve;
mod sides;
mod soft;
mod wake;
mod why;

use crate::cluster::Ask;
use crate::policy::{Decision, Policy};
use crate::reason::{StartReason, WaitReason};
use crate::state::{Notice, Settings, State};
use crate::units::{BudgetIx, HostIx, SpanMs, TimeMs, WorkloadIx};
use crate::workload::Status;
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
    /// Changes with every fact that decisions depend on.
    facts: u64,
    /// Ends whenever something may have unblocked any request.
    epoch: u64,
    /// Leaves with allocated requests that are not known to be blocked.
    open: Vec<bool>,
    /// The epoch that `open` was filled in.
    open_in: u64,
    /// Per leaf what marks of blocked requests must carry to be true.
    marks: Vec<u64>,
    /// Holders of reservations that could not be placed in this search, while more may be reserved.
    tried_holders: Vec<WorkloadIx>,
    /// The least gang of unallocated requests that found no idle GPUs in this epoch.
    free_blocked: Option<(u64, u32)>,
    /// Whether something came free since the reservations were last tried to be moved earlier.
    may_move: bool,
    /// For each host 1 + the place of the reservation that names it.
    reserved: Vec<u32>,
    /// Changes whenever that does.
    reserved_version: u64,
    /// Requests that back off from unallocated starts, by when that ends. Those that ask for a contract are in
    /// their queue all the same: an allocated start is open to them.
    backing_off: BTreeSet<(TimeMs, WorkloadIx)>,
    /// Whether nothing was left to decide when that was asked last, and nothing has changed.
    rests: bool,
    /// The moment for which it is known what is blocked.
    known_at: TimeMs,
    /// The next ratio crossing, when known.
    crossing: Option<wake::Crossing>,
    /// Per budget its usage ratio.
    ratios: Vec<ratios::Known>,
    /// Per budget: whether rule 6 could allow it any of its siblings.
    node_sides: Vec<Cell<sides::HasSide>>,
    /// Changes whenever somebody begins or ceases to wait, or shares do.
    queue_changes: u64,
    wakes: RefCell<wake::Wakes>,
    /// Whether any budget has a hard limit.
    has_limits: bool,
    soft: soft::SoftHosts,
    movable: RefCell<Movable>,
    dues: RefCell<dues::Dues>,
    /// Whether it was asked just now whether a reservation could make way.
    asks_way: Cell<bool>,
    /// Leaves whose requests may be blocked only because one could not.
    asked_way: Vec<bool>,
    interruptible: reach::Interruptible,
    reaches: Vec<RefCell<reach::Reach>>,
    scratch: preempt::Scratch,
    /// Whether nothing is remembered from one decision to the next.
    forgetful: bool,
}

/// Which reservations could do without a host, at a moment, as the facts stand.
#[derive(Clone, Debug, Default)]
struct Movable {
    at: TimeMs,
    facts: u64,
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

/// Whose GPUs a request is to have that are not idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// Of those who were told to leave for others, what these do not need.
    WhoLeave,
    /// Of those who run and may be told to leave for it.
    WhoRun,
}

/// Whether standing reservations of others keep a request from hosts that they could do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    /// They do.
    Stay,
    /// They would move.
    MakeWay,
}

impl BudgetPolicy {
    /// A policy for the budgets and hosts of `state`.
    #[must_use]
    pub fn new(state: &State) -> Self {
        let leaves = state.tree.leaves().len();
        Self {
            queues: vec![LeafQueue::default(); leaves],
            facts: 1,
            epoch: 1,
            open: vec![false; leaves],
            open_in: 0,
            marks: vec![0; leaves],
            tried_holders: Vec::new(),
            free_blocked: None,
            may_move: false,
            reserved: vec![0; state.cluster.hosts().len()],
            reserved_version: 0,
            backing_off: BTreeSet::new(),
            rests: false,
            known_at: TimeMs(0),
            crossing: None,
            ratios: vec![ratios::Known::default(); state.tree.len()],
            node_sides: vec![Cell::new(sides::HasSide::UNKNOWN); state.tree.len()],
            queue_changes: 1,
            wakes: RefCell::default(),
            has_limits: (0..state.tree.len())
                .any(|at| state.tree.node(BudgetIx(at as u32)).is_limited()),
            soft: soft::SoftHosts::default(),
            movable: RefCell::default(),
            dues: RefCell::default(),
            asks_way: Cell::new(false),
            asked_way: vec![false; leaves],
            interruptible: reach::Interruptible::of(state),
            reaches: vec![RefCell::default(); leaves],
            scratch: preempt::Scratch::default(),
            forgetful: false,
        }
    }

    /// A policy that goes on with a state in which work waits and runs and for which all has been decided, as
    /// one does that saw it come to that: what is remembered changes no result.
    #[must_use]
    pub fn resumed(state: &State) -> Self {
        let mut new = Self::new(state);
        for workload in state.waiting() {
            new.observe(state, &Notice::Requeued(workload));
        }
        new.note_reservations(state);
        new
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

    fn enqueue(&mut self, state: &State, workload: WorkloadIx) {
        self.queue_changes += 1;
        let leaf = Self::leaf_of(state, workload);
        let open = self.queues[leaf].insert(state, workload, self.marks[leaf]);
        let funded = state.tree.fraction(state.tree.leaves()[leaf]) > 0;
        if open && funded && self.open_in == self.epoch {
            self.open[leaf] = true;
        }
        self.crossing = None;
        self.free_blocked = None;
    }

    /// Whether a request is unallocated on purpose (rule 1).
    fn is_free(state: &State, workload: WorkloadIx) -> bool {
        state.workload(workload).protection() == SpanMs::ZERO
    }

    /// Rule 7: whether one more reservation may stand.
    fn may_reserve_more(state: &State) -> bool {
        state.reservations.len() < state.settings.reservations as usize
    }

    /// Rule 7: whether `holder` has hosts reserved.
    fn reservation_index(state: &State, holder: WorkloadIx) -> Option<usize> {
        state.reservations.iter().position(|reservation| reservation.holder == holder)
    }

    fn note_reservations(&mut self, state: &State) {
        self.reserved.fill(0);
        self.reserved_version += 1;
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
        // Nobody leaves for it where another pool will have room to spare.
        for &others in ways {
            for from in [From::WhoLeave, From::WhoRun] {
                for (pool, ask) in state.cluster.asks(gpus, shape, model) {
                    if !Self::has_room(state, index, pool) {
                        continue;
                    }
                    let found = self.place_by_preempting(state, index, (pool, ask), from, others);
                    let found = found.and_then(|start| self.unless_reserved(state, start, others));
                    if found.is_some() {
                        return found;
                    }
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
        self.tried_holders.clear();
        for leaf in 0..self.open.len() {
            if self.open[leaf] {
                self.asks_way.set(false);
                self.open[leaf] = self.may_have_next(state, leaf);
                self.asked_way[leaf] |= self.asks_way.get();
            }
        }
        while let Some(leaf) = self.next_leaf(state) {
            self.asks_way.set(false);
            let next = self.next_request(state, leaf);
            let decision = next.and_then(|entry| self.place(state, entry.workload));
            self.asked_way[leaf] |= self.asks_way.get();
            if decision.is_some() {
                return decision;
            }
            let Some(entry) = next else {
                self.open[leaf] = false;
                continue;
            };
            if Self::may_reserve_more(state) {
                if Self::reservation_index(state, entry.workload).is_some() {
                    // Those after it cannot be placed either, but may be promised hosts.
                    self.tried_holders.push(entry.workload);
                    continue;
                }
                if let Some(reservation) = self.find_reservation(state, entry.workload, None) {
                    return Some(Decision::Reserve(reservation));
                }
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

    /// Time has passed. What is known to be blocked stays so up to the next crossing; where that has come, or
    /// was never asked for, nothing is known any more.
    fn pass_time(&mut self, now: TimeMs) {
        if now > self.known_at {
            self.rests = false;
            match self.crossing {
                Some(crossing) if now < crossing.at => {}
                // It was looked for up to now, and there is none: it is only looked for again.
                Some(crossing) if now == crossing.at && !crossing.is_found => self.crossing = None,
                Some(_) | None => self.end_epoch(),
            }
            self.known_at = now;
        }
    }

    /// Those whose back-off is over may be tried again.
    fn catch_up(&mut self, state: &State) {
        while let Some(&(until, workload)) = self.backing_off.first() {
            if until > state.now() {
                break;
            }
            self.backing_off.pop_first();
            if Self::is_free(state, workload) {
                self.enqueue(state, workload);
            } else {
                self.free_blocked = None;
            }
        }
    }
}

impl Policy for BudgetPolicy {
    fn name(&self) -> &'static str {
        "budget"
    }

    fn observe(&mut self, state: &State, notice: &Notice) {
        self.pass_time(state.now());
        self.rests = false;
        match *notice {
            Notice::Submitted(workload) => self.enqueue(state, workload),
            Notice::Requeued(workload) => {
                let until = state.workload(workload).backs_off_until;
                let backs_off = until > state.now();
                if backs_off {
                    self.backing_off.insert((until, workload));
                }
                if !(backs_off && Self::is_free(state, workload)) {
                    self.enqueue(state, workload);
                }
            }
            Notice::Dequeued(workload) => {
                self.queue_changes += 1;
                let until = state.workload(workload).backs_off_until;
                let backed_off = self.backing_off.remove(&(until, workload));
                if !(backed_off && Self::is_free(state, workload)) {
                    self.queues[Self::leaf_of(state, workload)].remove(state, workload);
                }
                let decided = state.workload(workload);
                if decided.status == Status::Queued || !decided.allocated {
                    // Cancelled, or charged to nobody: what others may do stays as it is.
                    self.facts_changed();
                } else {
                    self.note_committed(state, decided.spec.budget);
                }
            }
            Notice::Reserved(_) | Notice::Unreserved(_) => {
                self.note_reservations(state);
                // The hosts that one gives up may be what another waits for.
                let others = state.reservations.len() > 1;
                self.may_move |= others || matches!(notice, Notice::Unreserved(_));
                self.end_epoch();
            }
            Notice::Stopped(workload, _) => {
                self.may_move = true;
                self.interruptible.remove(state, workload);
                self.note_stopped(state, workload);
            }
            Notice::Ended(..) => {}
            // Anybody may stand elsewhere than was known.
            Notice::Corrected(_)
            | Notice::Released(_)
            | Notice::HostDown(_)
            | Notice::HostUp(_)
            | Notice::DrainStarted(_)
            | Notice::Drained(_)
            | Notice::SharesChanged
            | Notice::TermsChanged => {
                self.queue_changes += 1;
                self.may_move = true;
                self.end_epoch();
            }
            Notice::ProtectionEnded(workload) => {
                self.interruptible.add(state, workload);
                self.note_interruptible(state, workload);
            }
            Notice::Preempted(workload) => {
                self.interruptible.remove(state, workload);
                self.unblock_on(state, &state.workload(workload).placement);
            }
            Notice::Started(workload) => {
                // The contract was committed when the start was decided. Unallocated work can be told to leave
                // from now on; and of work that was held, it is known only now until when it is protected.
                let started = state.workload(workload);
                if !started.allocated {
                    self.unblock_on(state, &started.placement);
                } else if started.decided < state.now() {
                    if Self::may_reserve_more(state) {
                        self.end_epoch();
                    } else {
                        self.unblock_asking(state);
                    }
                }
            }
        }
    }

    fn decide(&mut self, state: &State) -> Option<Decision> {
        if self.forgetful {
            self.end_epoch();
        }
        self.pass_time(state.now());
        if self.rests && !self.forgetful {
            return None;
        }
        self.catch_up(state);
        self.refresh_soft(state);
        let decision = self.decide_reservations(state);
        let decision = decision.or_else(|| self.decide_allocated(state));
        let decision = decision.or_else(|| self.decide_unallocated(state));
        self.rests = decision.is_none();
        decision
    }

    fn next_wake(&mut self, state: &State) -> TimeMs {
        let crossing = match self.crossing {
            Some(crossing) => crossing,
            None => self.next_crossing(state),
        };
        self.crossing = Some(crossing);
        let due = state.reservations.iter().map(|reservation| reservation.until);
        let back = self.backing_off.first().map(|&(until, _)| until);
        due.chain(back).filter(|&at| at > state.now()).fold(crossing.at, TimeMs::min)
    }

    fn why(&self, state: &State, workload: WorkloadIx) -> WaitReason {
        self.explain(state, workload)
    }

    fn rebuilt(&self, state: &State) -> Option<Box<dyn Policy>> {
        Some(Box::new(Self { forgetful: self.forgetful, may_move: true, ..Self::resumed(state) }))
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
    state.tree.path(leaf).any(|node| state.tree.node(node).is_limited())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::HostSpec;
    use crate::scheduler::{Event, Scheduler};
    use crate::state::Stop;
    use crate::tree::tests::tree;
    use crate::units::ModelIx;
    use crate::workload::WorkloadSpec;

    const MINUTE: u64 = 60_000;

    fn work(tie: u64, budget: u32, gpus: u32, contract: SpanMs) -> Event {
        Event::Submitted(Box::new(WorkloadSpec {
            tie,
            budget: BudgetIx(budget),
            gpus,
            shape: None,
            model: None,
            min_runtime: contract,
            max_runtime: None,
            expected_runtime: None,
            resumable: true,
            rank: 0,
            checkpoint_interval: None,
            checkpoint_on_signal: false,
            grace: None,
            startup: SpanMs::ZERO,
        }))
    }

    /// What a daemon does with an event: takes it in, commits the plan, confirms the starts, and asks when to
    /// wake. Who was submitted, and who has started.
    fn step(core: &mut Scheduler, minute: u64, event: Event) -> (WorkloadIx, Vec<WorkloadIx>) {
        let at = TimeMs(minute * MINUTE);
        let submitted = core.apply(at, event).expect("it fits");
        while let Some(decision) = core.decide() {
            core.commit(&decision, &mut |_| {});
        }
        let started = core.state().starting.clone();
        for &workload in &started {
            core.apply(at, Event::Started(workload)).expect("it was told to start");
        }
        assert!(core.decide().is_none());
        core.clear_notices();
        core.next_wake();
        (submitted.unwrap_or(WorkloadIx(0)), started)
    }

    #[test]
    fn what_is_known_of_a_cancelled_request_blocks_nobody() {
        let settings = Settings {
            lookback: SpanMs::hours(10),
            horizon: SpanMs::hours(8),
            grace: SpanMs::ZERO,
            margin_ppm: 1_000,
            reservations: 0,
            reservation_age: SpanMs::hours(4),
            debug_hosts: 0,
        };
        let host = HostSpec { gpus: 4, model: ModelIx(0), domain: 0 };
        let tree = tree(&[("a", 100), ("b", 100), ("c", 1)]);
        let state = State::new(settings, &[host; 2], vec![1], tree);
        let policy = Box::new(BudgetPolicy::new(&state));
        let mut core = Scheduler::new(state, policy);
        let (p, started) = step(&mut core, 0, work(1, 1, 4, SpanMs::hours(1)));
        assert_eq!(started, [p]);
        step(&mut core, 0, work(2, 3, 1, SpanMs::minutes(1)));
        step(&mut core, 2, Event::Tick);
        // c stands above b, but not above b with this contract: it is tried and blocked.
        let (x, started) = step(&mut core, 3, work(3, 2, 4, SpanMs::hours(8)));
        assert!(started.is_empty());
        step(&mut core, 4, Event::Cancelled(x));
        step(&mut core, 5, Event::Stopped(p, Stop::Completed));
        let (y, started) = step(&mut core, 6, work(4, 2, 4, SpanMs::hours(8)));
        assert_eq!(started, [y]);
    }
}
