//! Rule 6: who may be made to leave for an allocated request, and who of these does.

use super::sides::Side;
use super::{BudgetPolicy, From, Others, Use};
use crate::cluster::{Ask, HostState, Placement};
use crate::policy::{Decision, Victim};
use crate::reason::{EvictReason, StartReason};
use crate::state::State;
use crate::units::{HostIx, TimeMs, WorkloadIx};
use crate::wide::Ratio;
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};

/// Buffers that are reused from call to call. They carry nothing over.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    /// GPUs that each host could give.
    available: Vec<u32>,
    sides: Vec<Option<Side>>,
    /// Those who might have to leave.
    candidates: Vec<WorkloadIx>,
}

/// What comes first when victims are chosen (rule 6).
#[derive(Clone, Copy, Debug)]
struct Choice {
    workload: WorkloadIx,
    allocated: bool,
    lost_gpu_ms: u128,
    ratio: Ratio,
    started: TimeMs,
    tie: u64,
    reason: EvictReason,
}

impl Choice {
    /// Unallocated first; then least lost; then the most overserved side; then the latest start; then id.
    fn order(&self, other: &Self) -> Ordering {
        (self.allocated.cmp(&other.allocated))
            .then_with(|| self.lost_gpu_ms.cmp(&other.lost_gpu_ms))
            .then_with(|| other.ratio.compare(self.ratio))
            .then_with(|| {
                (Reverse(self.started), self.tie).cmp(&(Reverse(other.started), other.tie))
            })
    }
}

impl BudgetPolicy {
    /// Rule 6: the GPUs that `index` needs, from idle ones and those of others that it may preempt.
    pub(super) fn place_by_preempting(
        &mut self,
        state: &State,
        index: WorkloadIx,
        place: (usize, Ask),
        from: From,
        others: Others,
    ) -> Option<Decision> {
        let mut scratch = core::mem::take(&mut self.scratch);
        let decision = match from {
            From::WhoLeave => self.wait_for_leaving(state, index, place, others, &mut scratch),
            From::WhoRun => self.preempt_with(state, index, place, others, &mut scratch),
        };
        self.scratch = scratch;
        decision
    }

    /// Others leave for somebody else and leave room to spare: the request waits for that, and evicts none.
    fn wait_for_leaving(
        &self,
        state: &State,
        index: WorkloadIx,
        (pool, ask): (usize, Ask),
        reservations: Others,
        scratch: &mut Scratch,
    ) -> Option<Decision> {
        let workload = state.workload(index);
        let facts = &state.cluster.pools()[pool];
        if facts.idle_soon() < workload.spec.gpus || facts.idle_soon() == facts.idle() {
            return None;
        }
        let how = Use { kind: Self::kind(state, index, ask), others: reservations };
        self.fill_idle_soon(state, index, pool, how, &mut scratch.available);
        let available = &scratch.available;
        let placement = state.cluster.place(pool, ask, |host| available[host.at()])?;
        let reason = StartReason::Idle { ratio: self.ratio(state, workload.spec.budget) };
        Some(start(index, placement, reason, Vec::new()))
    }

    /// GPUs of each host that are nobody's once those who leave are gone.
    fn fill_idle_soon(
        &self,
        state: &State,
        index: WorkloadIx,
        pool: usize,
        how: Use,
        available: &mut Vec<u32>,
    ) {
        available.clear();
        available.resize(state.cluster.hosts().len(), 0);
        // Few hosts have any, and those are among the ones that have soft GPUs.
        for (host, _) in state.cluster.pools()[pool].soft_hosts() {
            let gpus = state.cluster.host(host).idle_soon();
            if gpus > 0 && self.may_use(state, host, index, how) {
                available[host.at()] = gpus;
            }
        }
    }

    fn preempt_with(
        &self,
        state: &State,
        index: WorkloadIx,
        (pool, ask): (usize, Ask),
        reservations: Others,
        scratch: &mut Scratch,
    ) -> Option<Decision> {
        let workload = state.workload(index);
        let leaf = workload.spec.budget;
        let contract = super::contract_units(
            workload.spec.gpus,
            state.cluster.rate(pool),
            workload.protection(),
        );
        let idle_soon = state.cluster.pools()[pool].idle_soon();
        // Of its own leaf only lower ranks count; that they might all be lower is an upper bound.
        let own = if state.has_lower_rank(leaf, workload.spec.rank) {
            state.ledger.account(leaf).interruptible_gpus
        } else {
            0
        };
        let unallocated = state.takeable_unallocated_gpus();
        let how = Use { kind: Self::kind(state, index, ask), others: reservations };
        let may_use = |host: HostIx| self.may_use(state, host, index, how);
        let others = if self.leaf_has_sides(state, leaf) {
            self.sides(state, leaf, contract, true, &mut scratch.sides)
        } else {
            scratch.sides.clear();
            scratch.sides.resize(state.tree.leaves().len(), None);
            0
        };
        let enough = idle_soon + own + unallocated + others >= workload.spec.gpus;
        let soft_is_enough = || {
            let length = workload.protection();
            Self::reservation_index(state, index).is_some()
                || length <= self.longest_on_soft(state, &[(pool, ask)], length)
        };
        if !enough || (own + others == 0 && !soft_is_enough()) {
            return None;
        }
        self.fill_idle_soon(state, index, pool, how, &mut scratch.available);
        let available = &mut scratch.available;
        let base = available.clone();
        let sides = &scratch.sides;
        // Most often it does not fit even so, and no reason is told.
        let candidates = &mut scratch.candidates;
        candidates.clear();
        candidates.extend(state.takeable().iter().copied().filter(|&other| {
            let theirs = &state.workload(other).spec;
            !state.workload(other).allocated
                || if theirs.budget == leaf {
                    theirs.rank < workload.spec.rank
                } else {
                    state.tree.leaf_place(theirs.budget).is_some_and(|at| sides[at].is_some())
                }
        }));
        candidates.iter().for_each(|&other| add(state, other, &may_use, available));
        state.cluster.place(pool, ask, |host| available[host.at()])?;
        // Only work on a host that could be part of the placement can matter.
        let part = ask.smallest_part();
        let matters = |other: WorkloadIx| {
            state.workload(other).placement.iter().any(|&(host, _)| available[host.at()] >= part)
        };
        let mut choices: Vec<Choice> = candidates
            .iter()
            .filter(|&&other| matters(other))
            .filter_map(|&other| {
                let reason = Self::may_preempt(state, index, other, sides)?;
                Some(self.choice(state, other, reason))
            })
            .collect();
        choices.sort_unstable_by(Choice::order);
        let (placement, victims) = choose(state, pool, ask, &may_use, base, &choices)?;
        let victims: Vec<Victim> = victims
            .into_iter()
            .map(|choice| Victim { workload: choice.workload, reason: choice.reason })
            .collect();
        let ratio_after = self.ratio_with(state, leaf, contract);
        let reason = StartReason::Preempting { ratio_after, victims: victims.len() as u32 };
        Some(start(index, placement, reason, victims))
    }

    /// Rule 6: whether the allocated request `by` may preempt the running `other`, and why.
    fn may_preempt(
        state: &State,
        by: WorkloadIx,
        other: WorkloadIx,
        sides: &[Option<Side>],
    ) -> Option<EvictReason> {
        let theirs = state.workload(other);
        if !theirs.allocated {
            return Some(EvictReason::Unallocated { by });
        }
        let mine = state.workload(by);
        if mine.spec.budget == theirs.spec.budget {
            let (rank, rank_against) = (mine.spec.rank, theirs.spec.rank);
            let higher = rank > rank_against;
            return higher.then_some(EvictReason::Rank { by, rank, rank_against });
        }
        let place = state.tree.leaf_place(theirs.spec.budget)?;
        sides[place].map(|side| EvictReason::Swap {
            by,
            side: side.mine,
            against: side.theirs,
            ratio_after: side.ratio_after,
            ratio_against: side.ratio_theirs,
        })
    }

    fn choice(&self, state: &State, index: WorkloadIx, reason: EvictReason) -> Choice {
        let workload = state.workload(index);
        let by = reason.by().map(|by| state.workload(by).spec.budget);
        let ratio = match reason {
            EvictReason::Swap { ratio_against, .. } => ratio_against,
            _ => {
                let parting = by.and_then(|by| state.tree.parting(by, workload.spec.budget));
                let side = parting.map_or(workload.spec.budget, |(_, theirs)| theirs);
                self.ratio(state, side)
            }
        };
        let lost = workload.lost_if_stopped(state.now());
        Choice {
            workload: index,
            allocated: workload.allocated,
            lost_gpu_ms: u128::from(lost.0) * u128::from(workload.spec.gpus),
            ratio,
            started: workload.started,
            tie: workload.spec.tie,
            reason,
        }
    }

    /// Rule 7: the reservation of `index` is due: it takes its hosts from everything not protected.
    pub(super) fn take_reserved(
        &self,
        state: &State,
        index: WorkloadIx,
        placement: &Placement,
        until: TimeMs,
    ) -> Option<Decision> {
        let needed = |host: HostIx| {
            placement.iter().find(|&&(other, _)| other == host).map_or(0, |&(_, gpus)| gpus)
        };
        let reason = EvictReason::Promise { by: index, until };
        let mut choices: Vec<Choice> = Vec::new();
        for &(host, _) in placement {
            for &(other, _) in &state.cluster.host(host).runs {
                let workload = state.workload(other);
                let leaves = workload.status == crate::workload::Status::Running
                    && !workload.protected
                    && choices.iter().all(|choice| choice.workload != other);
                if leaves {
                    choices.push(self.choice(state, other, reason));
                }
            }
        }
        choices.sort_unstable_by(Choice::order);
        let mut missing: Vec<(HostIx, i64)> = placement
            .iter()
            .map(|&(host, gpus)| {
                let idle = state.cluster.host(host).idle_soon();
                (host, i64::from(gpus) - i64::from(idle))
            })
            .collect();
        let shift = |missing: &mut Vec<(HostIx, i64)>, choice: &Choice, sign: i64| {
            for &(host, gpus) in &state.workload(choice.workload).placement {
                if needed(host) > 0
                    && let Some(entry) = missing.iter_mut().find(|(other, _)| *other == host)
                {
                    entry.1 -= sign * i64::from(gpus);
                }
            }
        };
        let fits = |missing: &[(HostIx, i64)]| missing.iter().all(|&(_, gpus)| gpus <= 0);
        let mut taken: Vec<Choice> = Vec::new();
        for choice in choices {
            if fits(&missing) {
                break;
            }
            shift(&mut missing, &choice, 1);
            taken.push(choice);
        }
        if !fits(&missing) {
            return None;
        }
        for at in (0..taken.len()).rev() {
            shift(&mut missing, &taken[at], -1);
            if fits(&missing) {
                taken.remove(at);
            } else {
                shift(&mut missing, &taken[at], 1);
            }
        }
        let victims = taken
            .iter()
            .map(|choice| Victim { workload: choice.workload, reason: choice.reason })
            .collect();
        Some(start(index, placement.clone(), StartReason::Promised { until }, victims))
    }
}

fn start(
    workload: WorkloadIx,
    placement: Placement,
    reason: StartReason,
    victims: Vec<Victim>,
) -> Decision {
    Decision::Start { workload, placement, allocated: true, reason, victims }
}

/// Adds a victim's GPUs to what the usable hosts could give.
fn add(
    state: &State,
    victim: WorkloadIx,
    may_use: &impl Fn(HostIx) -> bool,
    available: &mut [u32],
) {
    for &(host, gpus) in &state.workload(victim).placement {
        if may_use(host) && state.cluster.host(host).state == HostState::Up {
            available[host.at()] += gpus;
        }
    }
}

/// Rule 6: victims are added in order until the request fits, then, from the last added, each that it
/// can do without is spared.
fn choose(
    state: &State,
    pool: usize,
    ask: Ask,
    may_use: &impl Fn(HostIx) -> bool,
    mut available: Vec<u32>,
    choices: &[Choice],
) -> Option<(Placement, Vec<Choice>)> {
    let fits = |available: &[u32]| state.cluster.place(pool, ask, |host| available[host.at()]);
    let completes = |choice: &Choice, available: &[u32]| {
        !ask.is_single()
            || state
                .workload(choice.workload)
                .placement
                .iter()
                .any(|&(host, _)| available[host.at()] >= ask.single_gpus())
    };
    let mut taken: Vec<Choice> = Vec::new();
    let mut fitted = false;
    for choice in choices {
        add(state, choice.workload, may_use, &mut available);
        taken.push(*choice);
        if completes(choice, &available) && fits(&available).is_some() {
            fitted = true;
            break;
        }
    }
    if !fitted {
        return None;
    }
    for at in (0..taken.len()).rev() {
        let mut without = available.clone();
        for &(host, gpus) in &state.workload(taken[at].workload).placement {
            without[host.at()] = without[host.at()].saturating_sub(gpus);
        }
        if fits(&without).is_some() {
            available = without;
            taken.remove(at);
        }
    }
    fits(&available).map(|placement| (placement, taken))
}
