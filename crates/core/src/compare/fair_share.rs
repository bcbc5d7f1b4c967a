//! `fair-tree`: Slurm with PriorityType=priority/multifactor, Fair Tree and sched/backfill.
//!
//! Sources: `priority_multifactor.c` and `fair_tree.c` of Slurm, "Scheduling Configuration Guide".
//! Every PriorityCalcPeriod (5 min) the usage of all users decays by its half-life, what ran since is
//! added, and everybody is ranked anew ([`super::fair_tree`], with the daemon's ties). Jobs are served by
//! rank, then by submission, in order until one does not fit; the rest is backfilled (`easy`).
//! Nothing is preempted. Leaves of the budget tree are users, budgets above them accounts.
//!
//! Where this differs: fresh usage decays over the whole period in which it accrued, not over the part
//! of it in which the job ran; backfilling reserves for the first job alone, not for each one it tests
//! (the same EASY as `backfill`); no age, size or QOS factor, whose weights are 0 by default in Slurm too.
//!
//! Invariant: usage and ranks at a moment follow from the events before it, whenever `decide` is called:
//! every notice first brings the periods up to date that ended before it.

use super::decay::{Decay, USAGE_BITS};
use super::easy::Easy;
use super::fair_tree::{Association, Kind, Shares, Ties, fair_tree_order};
use super::{Change, Place, change_of, idle_gpus, place_of, start};
use crate::policy::{Decision, Policy};
use crate::reason::WaitReason;
use crate::state::{Notice, State};
use crate::units::{BudgetIx, SpanMs, TimeMs, WorkloadIx};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

const NAME: &str = "fair-tree";

/// Slurm's PriorityCalcPeriod by default.
pub const CALC_PERIOD: SpanMs = SpanMs::minutes(5);

/// One user.
#[derive(Clone, Debug, Default)]
struct User {
    line: BTreeSet<(Place, WorkloadIx)>,
    /// Decayed usage at the end of the last period, over 2^32.
    usage: u128,
    /// What was used since, in units.
    fresh: u128,
    /// Up to when.
    counted_to: TimeMs,
    /// What its running attempts use per millisecond.
    rate: u128,
    /// Higher comes first.
    rank: u32,
}

impl User {
    fn count_to(&mut self, moment: TimeMs) {
        self.fresh += self.rate * u128::from(moment.since(self.counted_to).0);
        self.counted_to = moment;
    }
}

/// Slurm's fair-share scheduling.
#[derive(Clone, Debug)]
pub struct FairShare {
    decay: Decay,
    /// By place among the leaves.
    users: Vec<User>,
    /// Places among the leaves, highest rank first.
    order: Vec<usize>,
    /// Attempts that use something: whose, and how much per millisecond.
    charges: BTreeMap<WorkloadIx, (usize, u64)>,
    /// The end of the last period.
    period_end: TimeMs,
    /// Usage or shares changed since the users were ranked.
    is_rank_due: bool,
    easy: Easy,
}

impl FairShare {
    /// With nothing used so far.
    #[must_use]
    pub fn new(state: &State, half_life: SpanMs) -> Self {
        let leaves = state.tree.leaves().len();
        Self {
            decay: Decay::new(half_life, CALC_PERIOD),
            users: vec![User::default(); leaves],
            order: (0..leaves).collect(),
            charges: BTreeMap::new(),
            period_end: TimeMs(state.now().0 / CALC_PERIOD.0 * CALC_PERIOD.0),
            is_rank_due: true,
            easy: Easy::new(),
        }
    }

    fn user_of(state: &State, workload: WorkloadIx) -> usize {
        let budget = state.workload(workload).spec.budget;
        state.tree.leaf_place(budget).expect("workloads are charged to leaves")
    }

    /// Ends the periods that are over by now, one after the other.
    fn catch_up(&mut self, now: TimeMs) {
        while now.since(self.period_end) >= CALC_PERIOD {
            if self.charges.is_empty() && self.users.iter().all(|u| u.usage == 0 && u.fresh == 0) {
                // Nothing to decay: all further periods are alike.
                self.period_end = TimeMs(now.0 / CALC_PERIOD.0 * CALC_PERIOD.0);
                break;
            }
            self.period_end = self.period_end + CALC_PERIOD;
            for user in &mut self.users {
                user.count_to(self.period_end);
                let fresh = core::mem::take(&mut user.fresh) << USAGE_BITS;
                user.usage = self.decay.apply(user.usage + fresh);
            }
            self.is_rank_due = true;
        }
    }

    fn rank(&mut self, state: &State) {
        self.is_rank_due = false;
        let nodes = (0..state.tree.len()).map(|index| {
            let node = BudgetIx(index as u32);
            let kind = match state.tree.leaf_place(node) {
                Some(place) => Kind::User { usage: self.users[place].usage },
                None => Kind::Account,
            };
            Association {
                parent: state.tree.parent(node).map_or(0, BudgetIx::at),
                shares: Shares::Of(state.tree.node(node).share_micro),
                kind,
            }
        });
        let ranks = fair_tree_order(&nodes.collect::<Vec<_>>(), Ties::AsDaemon);
        let mut changed = false;
        for (user, &leaf) in self.users.iter_mut().zip(state.tree.leaves()) {
            let rank = ranks[leaf.at()].unwrap_or(0);
            changed |= rank != user.rank;
            user.rank = rank;
        }
        if changed {
            let users = &self.users;
            self.order.sort_by_key(|&place| (Reverse(users[place].rank), place));
            self.easy.forget();
        }
    }

    fn place(&self, state: &State, workload: WorkloadIx) -> Place {
        let rank = self.users[Self::user_of(state, workload)].rank;
        place_of(state, workload, u64::from(u32::MAX - rank))
    }

    fn enqueue(&mut self, state: &State, workload: WorkloadIx) {
        let entry = (place_of(state, workload, 0), workload);
        self.users[Self::user_of(state, workload)].line.insert(entry);
    }

    fn dequeue(&mut self, state: &State, workload: WorkloadIx) {
        let entry = (place_of(state, workload, 0), workload);
        self.users[Self::user_of(state, workload)].line.remove(&entry);
        self.easy.forget();
    }

    fn stop_charging(&mut self, workload: WorkloadIx, now: TimeMs) {
        if let Some((user, units)) = self.charges.remove(&workload) {
            self.users[user].count_to(now);
            self.users[user].rate -= u128::from(units);
        }
        self.easy.vacates(workload);
        self.easy.forget();
    }
}

/// The first `count` requests: by rank, those of users of one rank by submission.
fn front(users: &[User], order: &[usize], count: usize) -> Vec<(Place, WorkloadIx)> {
    let mut front: Vec<(Place, WorkloadIx)> = Vec::new();
    for tied in order.chunk_by(|&a, &b| users[a].rank == users[b].rank) {
        let (from, left) = (front.len(), count - front.len());
        for &user in tied {
            let key = u64::from(u32::MAX - users[user].rank);
            let line = users[user].line.iter().take(left);
            front.extend(line.map(|&((_, at, tie), workload)| ((key, at, tie), workload)));
        }
        if tied.len() > 1 {
            front[from..].sort_unstable();
        }
        front.truncate(count);
        if front.len() == count {
            break;
        }
    }
    front
}

impl Policy for FairShare {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, state: &State, notice: &Notice) {
        self.catch_up(state.now());
        match change_of(state, notice) {
            Change::Waits(workload) => {
                self.enqueue(state, workload);
                if matches!(notice, Notice::Submitted(_)) {
                    self.easy.submitted(self.place(state, workload), workload);
                } else {
                    self.stop_charging(workload, state.now());
                }
            }
            Change::Decided(workload) => {
                self.dequeue(state, workload);
                self.easy.occupies(state, workload);
            }
            Change::Withdrawn(workload) => self.dequeue(state, workload),
            Change::Runs(workload) => {
                let (user, units) =
                    (Self::user_of(state, workload), state.workload(workload).units);
                self.charges.insert(workload, (user, units));
                self.users[user].count_to(state.now());
                self.users[user].rate += u128::from(units);
                self.easy.occupies(state, workload);
                self.easy.forget();
            }
            Change::Gone(workload) => self.stop_charging(workload, state.now()),
            Change::Cluster => {
                self.is_rank_due |= matches!(notice, Notice::SharesChanged);
                self.easy.forget();
            }
            Change::Leaves(_) | Change::Nothing => self.easy.forget(),
        }
    }

    fn decide(&mut self, state: &State) -> Option<Decision> {
        self.catch_up(state.now());
        if self.is_rank_due {
            self.rank(state);
        }
        let (users, order) = (&self.users, &self.order);
        let (workload, placement) = self.easy.decide(state, |count| front(users, order, count))?;
        Some(start(state, NAME, workload, placement, Vec::new()))
    }

    /// The next ranking, if it could let somebody start whom the present one does not.
    fn next_wake(&mut self, state: &State) -> TimeMs {
        let waiting = self.users.iter().filter(|user| !user.line.is_empty()).count();
        if waiting < 2 || idle_gpus(state) == 0 {
            return TimeMs::NEVER;
        }
        TimeMs(state.now().0 / CALC_PERIOD.0 * CALC_PERIOD.0) + CALC_PERIOD
    }

    fn why(&self, _state: &State, _workload: WorkloadIx) -> WaitReason {
        WaitReason::Compared(NAME)
    }

    fn clone_box(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}
