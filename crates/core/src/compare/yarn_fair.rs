//! `yarn-fair`: the Fair Scheduler of Hadoop YARN, the descendant of the Hadoop Fair Scheduler of 2009.
//!
//! Sources: `FairScheduler.java`, `FSLeafQueue.java`, `FSParentQueue.java`, `policies/FairSharePolicy.java`
//! and `policies/ComputeFairShares.java` of Apache Hadoop 2.7; "Hadoop: Fair Scheduler" of its
//! documentation. Budgets are queues, their shares weights, one workload is an application with one
//! container, and GPUs are the one resource.
//!
//! - *Order* (`Fairness`): from the root down first the queue that is below its min share (least part
//!   of it used), then the one with the least usage / weight; ties: name. In a leaf applications are
//!   served by submission (all of those that wait use nothing, so the comparator falls through to that);
//!   one that does not fit is passed.
//! - *Fair share*: what each queue that has applications gets of its parent's share by weight
//!   (`water`). YARN fills over weights, min and max shares of *active* queues; demand, which its
//!   ancestor filled over, enters when starvation is judged.
//! - *Preemption* (`resToPreempt`): a leaf that was below its min share for the min share timeout, or below
//!   the threshold's part of its fair share for the fair share timeout, demand permitting, may preempt up
//!   to the full share. Victims come from leaves above their fair share, the most over first, newest first.
//!
//! Gangs: YARN's containers are small, ours are whole workloads. A starved queue preempts for its first
//! request that fits into what it lacks; a larger one gets nothing by preemption, which is what happens
//! to it in YARN. Victims are taken until that request fits on hosts, then spared where possible; YARN
//! counts resources and hopes. If the most over queue has nothing to take, the next is asked, where
//! YARN gives up for that round.
//!
//! Absent on purpose: reservation of single nodes, locality, application masters, max shares.

use super::classes::{ClassKey, Classes, Head};
use super::room::{Room, make_room};
use super::water::{Part, fair_shares};
use super::{Change, Options, Place, change_of, place_of, start};
use crate::policy::{Decision, Policy, Victim};
use crate::reason::{EvictReason, WaitReason};
use crate::state::{Notice, State};
use crate::tree::FRACTION_ONE;
use crate::units::{BudgetIx, TimeMs, WorkloadIx};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;

const NAME: &str = "yarn-fair";

/// Shares are counted in parts of a GPU, as YARN counts memory in megabytes.
const PARTS_PER_GPU: u64 = 1 << 20;
const MILLION: u128 = 1_000_000;

/// What the comparator reads of a queue.
#[derive(Clone, Copy, Debug, Default)]
struct Fairness {
    /// GPUs of its applications, but those that were told to leave.
    usage: u64,
    /// The same and what waits.
    demand: u64,
    weight: u64,
    min_share: u64,
    fair_share: u64,
}

impl Fairness {
    /// The min share as far as there is demand for it, in parts.
    fn needed(&self) -> u64 {
        self.min_share.min(self.demand * PARTS_PER_GPU)
    }

    /// `FairShareComparator`: who is served first.
    fn compare(&self, other: &Self) -> Ordering {
        let used = |queue: &Self| queue.usage * PARTS_PER_GPU;
        let needy = |queue: &Self| used(queue) < queue.needed();
        match (needy(self), needy(other)) {
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (true, true) => {
                let left = u128::from(used(self)) * u128::from(other.needed().max(1));
                left.cmp(&(u128::from(used(other)) * u128::from(self.needed().max(1))))
            }
            (false, false) => match (self.weight, other.weight) {
                (0, 0) => self.usage.cmp(&other.usage),
                (0, _) => Ordering::Greater,
                (_, 0) => Ordering::Less,
                (mine, theirs) => (u128::from(self.usage) * u128::from(theirs))
                    .cmp(&(u128::from(other.usage) * u128::from(mine))),
            },
        }
    }

    fn is_over_fair_share(&self) -> bool {
        self.usage * PARTS_PER_GPU > self.fair_share
    }
}

/// What a leaf has beyond what all queues have.
#[derive(Clone, Debug, Default)]
struct Leaf {
    /// Its running applications, oldest first.
    running: BTreeSet<(Place, WorkloadIx)>,
    /// Since when it is below its min share, and below the threshold of its fair share.
    below_min_since: Option<TimeMs>,
    below_fair_since: Option<TimeMs>,
    /// When it was last found to have waited for a timeout: at that moment it takes its full share.
    due: [Option<TimeMs>; 2],
}

/// YARN's Fair Scheduler.
#[derive(Clone, Debug)]
pub struct YarnFair {
    options: Options,
    /// By budget.
    queues: Vec<Fairness>,
    /// By place among the leaves.
    leaves: Vec<Leaf>,
    /// Who has GPUs: how many, and since when it runs.
    attempts: BTreeMap<WorkloadIx, (u32, Option<Place>)>,
    classes: Classes,
    /// Fair shares may have changed.
    is_share_due: bool,
    /// Nobody can preempt until something happens, or another timeout ends.
    is_preemption_blocked: bool,
    /// When starvation was last looked at.
    updated: TimeMs,
}

impl YarnFair {
    /// With queues as in the budget tree of `state`.
    #[must_use]
    pub fn new(state: &State, options: Options) -> Self {
        Self {
            options,
            queues: vec![Fairness::default(); state.tree.len()],
            leaves: vec![Leaf::default(); state.tree.leaves().len()],
            attempts: BTreeMap::new(),
            classes: Classes::new(),
            is_share_due: true,
            is_preemption_blocked: false,
            updated: state.now(),
        }
    }

    fn each_above(&mut self, state: &State, leaf: usize, change: impl Fn(&mut Fairness)) {
        let leaf = state.tree.leaves()[leaf];
        for node in state.tree.path(leaf) {
            let queue = &mut self.queues[node.at()];
            let was_active = queue.demand > 0;
            change(queue);
            self.is_share_due |= was_active != (queue.demand > 0);
        }
    }

    fn waits(&mut self, state: &State, workload: WorkloadIx) {
        self.classes.insert(state, workload);
        let ClassKey { leaf, gpus, .. } = ClassKey::of(state, workload);
        self.each_above(state, leaf, |queue| queue.demand += u64::from(gpus));
    }

    fn withdrawn(&mut self, state: &State, workload: WorkloadIx) {
        self.classes.remove(state, workload);
        let ClassKey { leaf, gpus, .. } = ClassKey::of(state, workload);
        self.each_above(state, leaf, |queue| queue.demand -= u64::from(gpus));
    }

    fn decided(&mut self, state: &State, workload: WorkloadIx) {
        self.classes.remove(state, workload);
        let ClassKey { leaf, gpus, .. } = ClassKey::of(state, workload);
        self.attempts.insert(workload, (gpus, None));
        self.each_above(state, leaf, |queue| queue.usage += u64::from(gpus));
    }

    fn runs(&mut self, state: &State, workload: WorkloadIx) {
        let leaf = ClassKey::of(state, workload).leaf;
        if let Some((_, place)) = self.attempts.get_mut(&workload) {
            let at = place_of(state, workload, state.now().0);
            *place = Some(at);
            self.leaves[leaf].running.insert((at, workload));
        }
    }

    /// Told to leave, or gone.
    fn leaves(&mut self, state: &State, workload: WorkloadIx) {
        let Some((gpus, place)) = self.attempts.remove(&workload) else { return };
        let leaf = ClassKey::of(state, workload).leaf;
        if let Some(place) = place {
            self.leaves[leaf].running.remove(&(place, workload));
        }
        self.each_above(state, leaf, |queue| {
            queue.usage -= u64::from(gpus);
            queue.demand -= u64::from(gpus);
        });
    }

    /// `recomputeShares`: from the root down, over the queues that have applications.
    fn update_shares(&mut self, state: &State) {
        self.is_share_due = false;
        let in_service = state.cluster.hosts().iter().filter(|host| host.in_service());
        let gpus: u64 = in_service.map(|host| u64::from(host.spec.gpus)).sum();
        let total = gpus * PARTS_PER_GPU;
        for (index, queue) in self.queues.iter_mut().enumerate() {
            let node = BudgetIx(index as u32);
            let fraction = u128::from(state.tree.fraction(node)) * u128::from(total);
            let part = fraction / u128::from(FRACTION_ONE) * u128::from(self.options.min_share_ppm);
            queue.min_share = u64::try_from(part / MILLION).unwrap_or(u64::MAX);
            queue.weight = state.tree.node(node).share_micro;
            queue.fair_share = 0;
        }
        self.queues[0].fair_share = total;
        for parent in (0..self.queues.len()).map(|index| BudgetIx(index as u32)) {
            let children = state.tree.children(parent);
            let active: Vec<BudgetIx> = children
                .iter()
                .copied()
                .filter(|child| self.queues[child.at()].demand > 0)
                .collect();
            let parts: Vec<Part> = active
                .iter()
                .map(|child| self.queues[child.at()])
                .map(|queue| Part { weight: queue.weight, min: queue.min_share, max: total })
                .collect();
            let shares = fair_shares(&parts, self.queues[parent.at()].fair_share);
            for (child, share) in active.iter().zip(shares) {
                self.queues[child.at()].fair_share = share;
            }
        }
    }

    /// `updateStarvationStats`, and whose timeout is over.
    fn update_starvation(&mut self, state: &State) {
        let now = state.now();
        let timeouts = self.timeouts();
        for (leaf, &node) in self.leaves.iter_mut().zip(state.tree.leaves()) {
            let queue = self.queues[node.at()];
            let used = queue.usage * PARTS_PER_GPU;
            let threshold = u128::from(queue.fair_share)
                * u128::from(self.options.fair_share_threshold_ppm)
                / MILLION;
            let wanted = u128::from(queue.demand * PARTS_PER_GPU).min(threshold);
            let since =
                |is_below: bool, since: Option<TimeMs>| is_below.then(|| since.unwrap_or(now));
            leaf.below_min_since = since(used < queue.needed(), leaf.below_min_since);
            leaf.below_fair_since = since(u128::from(used) < wanted, leaf.below_fair_since);
            let starved = [leaf.below_min_since, leaf.below_fair_since];
            for (at, timeout) in timeouts.into_iter().enumerate() {
                let Some(due) = starved[at].map(|since| since + timeout) else { continue };
                if due <= now {
                    leaf.due[at] = Some(now);
                    self.is_preemption_blocked &= due <= self.updated;
                }
            }
        }
        self.updated = now;
    }

    const fn timeouts(&self) -> [crate::units::SpanMs; 2] {
        [self.options.min_share_timeout, self.options.fair_share_timeout]
    }

    /// `resToPreempt`: GPUs that a leaf may preempt now, rounded down to whole ones.
    fn lacks(&self, state: &State, leaf: usize) -> u64 {
        let queue = self.queues[state.tree.leaves()[leaf].at()];
        let shares = [queue.min_share, queue.fair_share];
        let due = self.leaves[leaf].due.iter().zip(shares);
        let due = due.filter(|&(&due, _)| due == Some(state.now()));
        let targets = due.map(|(_, share)| share.min(queue.demand * PARTS_PER_GPU));
        let lacks = targets.map(|target| target.saturating_sub(queue.usage * PARTS_PER_GPU));
        lacks.max().unwrap_or(0) / PARTS_PER_GPU
    }

    /// From the root to the leaf whose turn it is among those that `may` be served.
    fn next_leaf(&self, state: &State, may: impl Fn(usize) -> bool) -> Option<usize> {
        let below = |node: BudgetIx| state.tree.leaves_below(node).any(&may);
        let mut node = BudgetIx(0);
        if !below(node) {
            return None;
        }
        while !state.tree.children(node).is_empty() {
            let children = state.tree.children(node).iter().copied().filter(|&child| below(child));
            node = children.min_by(|&a, &b| self.queues[a.at()].compare(&self.queues[b.at()]))?;
        }
        state.tree.leaf_place(node)
    }

    fn start_idle(&mut self, state: &State) -> Option<Decision> {
        let mut first: Vec<Option<Head>> = vec![None; self.leaves.len()];
        for head in self.classes.open() {
            let best = &mut first[head.key.leaf];
            if best.is_none_or(|best| head.place < best.place) {
                *best = Some(head);
            }
        }
        while let Some(leaf) = self.next_leaf(state, |leaf| first[leaf].is_some()) {
            let head = first[leaf]?;
            if let Some(placement) = self.classes.place_idle(state, head) {
                return Some(start(state, NAME, head.workload, placement, Vec::new()));
            }
            self.classes.block(head.key);
            let heads = self.classes.open().filter(|head| head.key.leaf == leaf);
            first[leaf] = heads.min_by_key(|head| head.place);
        }
        None
    }

    /// `preemptTasksIfNecessary`.
    fn start_by_preempting(&mut self, state: &State) -> Option<Decision> {
        let lacking: Vec<u64> =
            (0..self.leaves.len()).map(|leaf| self.lacks(state, leaf)).collect();
        let mut tried = vec![false; self.leaves.len()];
        while let Some(leaf) = self.next_leaf(state, |leaf| lacking[leaf] > 0 && !tried[leaf]) {
            tried[leaf] = true;
            let mut heads: Vec<Head> = self
                .classes
                .of_leaf(leaf)
                .filter(|head| u64::from(head.key.gpus) <= lacking[leaf])
                .collect();
            heads.sort_by_key(|head| head.place);
            let decision = heads.into_iter().find_map(|head| self.preempt_for(state, head));
            if decision.is_some() {
                return decision;
            }
        }
        self.is_preemption_blocked = true;
        None
    }

    fn preempt_for(&self, state: &State, head: Head) -> Option<Decision> {
        let mut asks = state.cluster.asks(head.key.gpus, head.key.shape, head.key.model);
        asks.find_map(|(pool, ask)| {
            let idle = |host| state.cluster.host(host).idle_soon();
            let mut room = Room::new(state, pool, ask, idle);
            let mut round = Round::new(self, state, pool);
            let victims = core::iter::from_fn(|| round.next());
            let (placement, leaving) = make_room(state, &mut room, victims)?;
            let reason = EvictReason::Compared { by: Some(head.workload), policy: NAME };
            let victims = leaving.into_iter().map(|workload| Victim { workload, reason }).collect();
            Some(start(state, NAME, head.workload, placement, victims))
        })
    }
}

/// One round of `preemptResources`: who goes next, with what was already taken counted off.
struct Round<'a> {
    yarn: &'a YarnFair,
    state: &'a State,
    queues: Vec<Fairness>,
    /// By place among the leaves: running applications in the pool, oldest first.
    running: Vec<Vec<WorkloadIx>>,
}

impl<'a> Round<'a> {
    fn new(yarn: &'a YarnFair, state: &'a State, pool: usize) -> Self {
        let in_pool = |workload: WorkloadIx| {
            let placement = &state.workload(workload).placement;
            placement.first().is_some_and(|&(host, _)| state.cluster.host(host).pool == pool)
        };
        let running = yarn.leaves.iter().map(|leaf| {
            leaf.running.iter().map(|&(_, workload)| workload).filter(|&w| in_pool(w)).collect()
        });
        Self { yarn, state, queues: yarn.queues.clone(), running: running.collect() }
    }

    /// `preemptContainer`: from the root down to the queue that is served last, then the newest there.
    fn next(&mut self) -> Option<WorkloadIx> {
        let tree = &self.state.tree;
        let may_lose = |leaf: usize| {
            let queue = &self.queues[tree.leaves()[leaf].at()];
            queue.is_over_fair_share() && !self.running[leaf].is_empty()
        };
        let below = |node: BudgetIx| tree.leaves_below(node).any(may_lose);
        let mut node = BudgetIx(0);
        if !below(node) {
            return None;
        }
        while !tree.children(node).is_empty() {
            let children = tree.children(node).iter().copied().filter(|&child| below(child));
            node = children.max_by(|&a, &b| self.queues[a.at()].compare(&self.queues[b.at()]))?;
        }
        let victim = self.running[tree.leaf_place(node)?].pop()?;
        let (gpus, _) = self.yarn.attempts[&victim];
        for above in tree.path(node) {
            self.queues[above.at()].usage -= u64::from(gpus);
        }
        Some(victim)
    }
}

impl Policy for YarnFair {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, state: &State, notice: &Notice) {
        self.is_preemption_blocked = false;
        match change_of(state, notice) {
            Change::Waits(workload) => {
                if matches!(notice, Notice::Requeued(_)) {
                    self.leaves(state, workload);
                    self.classes.released();
                }
                self.waits(state, workload);
            }
            Change::Decided(workload) => self.decided(state, workload),
            Change::Withdrawn(workload) => self.withdrawn(state, workload),
            Change::Runs(workload) => self.runs(state, workload),
            Change::Leaves(workload) => self.leaves(state, workload),
            Change::Gone(workload) => {
                self.leaves(state, workload);
                self.classes.released();
            }
            Change::Cluster => {
                self.is_share_due = true;
                self.classes.released();
            }
            Change::Nothing => {}
        }
    }

    fn decide(&mut self, state: &State) -> Option<Decision> {
        if self.is_share_due {
            self.update_shares(state);
        }
        self.update_starvation(state);
        if let Some(decision) = self.start_idle(state) {
            return Some(decision);
        }
        let is_due = self.leaves.iter().any(|leaf| leaf.due.contains(&Some(state.now())));
        if !is_due || self.is_preemption_blocked {
            return None;
        }
        self.start_by_preempting(state)
    }

    /// The next end of a timeout.
    fn next_wake(&mut self, state: &State) -> TimeMs {
        let timeouts = self.timeouts();
        let ends = self.leaves.iter().flat_map(|leaf| {
            let since = [leaf.below_min_since, leaf.below_fair_since];
            since.into_iter().zip(timeouts)
        });
        let ends = ends.filter_map(|(since, timeout)| since.map(|since| since + timeout));
        ends.filter(|&end| end > state.now()).min().unwrap_or(TimeMs::NEVER)
    }

    fn why(&self, _state: &State, _workload: WorkloadIx) -> WaitReason {
        WaitReason::Compared(NAME)
    }

    fn clone_box(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}
