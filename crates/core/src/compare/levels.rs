//! `levels`: the old world that Bursar replaces.
//!
//! No published scheduler is claimed to be exactly this. Every leaf has
//! a *cap*: its fraction of the GPUs in service, rounded. Work that starts within its team's cap is
//! protected until it ends, however long that is. Work above the cap starts on idle GPUs only, and any
//! other team's work within its cap may evict it at any moment, the latest started first. When a team's
//! work within the cap ends, its oldest work above the cap takes the place.
//!
//! The queue is FIFO over everybody and not strict: one that does not fit is passed by all who do. There
//! is no time slicing and no reservation. That large gangs starve is the disease that this policy shows.
//!
//! Absent on purpose: ranks and back-off, which that world does not know.

use super::classes::{ClassKey, Classes, Head};
use super::room::{Room, make_room};
use super::{Change, Place, change_of, place_of, start};
use crate::policy::{Decision, Policy, Victim};
use crate::reason::{EvictReason, WaitReason};
use crate::state::{Notice, State};
use crate::tree::FRACTION_ONE;
use crate::units::{TimeMs, WorkloadIx};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

const NAME: &str = "levels";

/// How an attempt stands to its team's cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Protected until it ends.
    Within,
    /// Preemptible; not running yet.
    AboveStarting,
    /// Preemptible.
    Above,
    /// Was preemptible, and told to leave.
    Leaving,
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    leaf: usize,
    gpus: u32,
    standing: Standing,
    /// Its place among those above their caps: by start.
    place: Place,
}

#[derive(Clone, Debug, Default)]
struct Team {
    cap: u32,
    /// GPUs of its attempts within the cap.
    within: u32,
    /// Its running attempts above the cap, oldest first.
    above: BTreeSet<(Place, WorkloadIx)>,
    above_gpus: u32,
}

/// Caps of protected GPUs, and a queue in which everybody is HIGH.
#[derive(Clone, Debug)]
pub struct Levels {
    /// By place among the leaves.
    teams: Vec<Team>,
    attempts: BTreeMap<WorkloadIx, Attempt>,
    /// Everybody's running attempts above their caps, oldest first.
    above: BTreeSet<(Place, WorkloadIx)>,
    above_gpus: u32,
    classes: Classes,
}

impl Levels {
    /// With the caps that the shares and hosts of `state` give.
    #[must_use]
    pub fn new(state: &State) -> Self {
        let mut levels = Self {
            teams: vec![Team::default(); state.tree.leaves().len()],
            attempts: BTreeMap::new(),
            above: BTreeSet::new(),
            above_gpus: 0,
            classes: Classes::new(),
        };
        levels.set_caps(state);
        levels
    }

    /// Caps that fall end nothing; caps that rise promote.
    fn set_caps(&mut self, state: &State) {
        let in_service = state.cluster.hosts().iter().filter(|host| host.in_service());
        let gpus: u64 = in_service.map(|host| u64::from(host.spec.gpus)).sum();
        for (place, &leaf) in state.tree.leaves().iter().enumerate() {
            let exact = u128::from(state.tree.fraction(leaf)) * u128::from(gpus);
            let rounded = (exact + u128::from(FRACTION_ONE / 2)) / u128::from(FRACTION_ONE);
            self.teams[place].cap = u32::try_from(rounded).unwrap_or(u32::MAX);
            self.promote(place);
        }
    }

    fn has_room(&self, leaf: usize, gpus: u32) -> bool {
        self.teams[leaf].within + gpus <= self.teams[leaf].cap
    }

    fn decided(&mut self, state: &State, workload: WorkloadIx) {
        let ClassKey { leaf, gpus, .. } = ClassKey::of(state, workload);
        let standing =
            if self.has_room(leaf, gpus) { Standing::Within } else { Standing::AboveStarting };
        if standing == Standing::Within {
            self.teams[leaf].within += gpus;
        }
        let place = place_of(state, workload, 0);
        self.attempts.insert(workload, Attempt { leaf, gpus, standing, place });
    }

    fn runs(&mut self, state: &State, workload: WorkloadIx) {
        let Some(attempt) = self.attempts.get_mut(&workload) else { return };
        if attempt.standing == Standing::AboveStarting {
            attempt.standing = Standing::Above;
            attempt.place = place_of(state, workload, state.now().0);
            let attempt = *attempt;
            self.add_above(attempt, workload);
            self.promote(attempt.leaf);
        }
    }

    fn add_above(&mut self, attempt: Attempt, workload: WorkloadIx) {
        let team = &mut self.teams[attempt.leaf];
        self.above.insert((attempt.place, workload));
        team.above.insert((attempt.place, workload));
        self.above_gpus += attempt.gpus;
        team.above_gpus += attempt.gpus;
    }

    fn remove_above(&mut self, attempt: Attempt, workload: WorkloadIx) {
        let team = &mut self.teams[attempt.leaf];
        self.above.remove(&(attempt.place, workload));
        team.above.remove(&(attempt.place, workload));
        self.above_gpus -= attempt.gpus;
        team.above_gpus -= attempt.gpus;
    }

    /// A team's oldest attempts above the cap take what is free within it.
    fn promote(&mut self, leaf: usize) {
        let team = &self.teams[leaf];
        if team.above.is_empty() || team.within >= team.cap {
            return;
        }
        for (_, workload) in team.above.clone() {
            let Some(&attempt) = self.attempts.get(&workload) else { continue };
            if self.has_room(leaf, attempt.gpus) {
                self.remove_above(attempt, workload);
                self.teams[leaf].within += attempt.gpus;
                self.attempts.insert(workload, Attempt { standing: Standing::Within, ..attempt });
            }
        }
    }

    fn leaves(&mut self, workload: WorkloadIx) {
        if let Some(attempt) = self.attempts.get_mut(&workload)
            && attempt.standing == Standing::Above
        {
            attempt.standing = Standing::Leaving;
            let attempt = *attempt;
            self.remove_above(attempt, workload);
        }
    }

    fn gone(&mut self, workload: WorkloadIx) {
        let Some(attempt) = self.attempts.remove(&workload) else { return };
        match attempt.standing {
            Standing::Within => {
                self.teams[attempt.leaf].within -= attempt.gpus;
                self.promote(attempt.leaf);
            }
            Standing::Above => self.remove_above(attempt, workload),
            Standing::AboveStarting | Standing::Leaving => {}
        }
    }

    /// On idle GPUs; within the cap also on those of others' work above their caps.
    fn try_start(&mut self, state: &State, head: Head) -> Option<Decision> {
        if let Some(placement) = self.classes.place_idle(state, head) {
            return Some(start(state, NAME, head.workload, placement, Vec::new()));
        }
        if !self.has_room(head.key.leaf, head.key.gpus) {
            return None;
        }
        let others_gpus = self.above_gpus - self.teams[head.key.leaf].above_gpus;
        let mut asks = state.cluster.asks(head.key.gpus, head.key.shape, head.key.model);
        asks.find_map(|(pool, ask)| {
            if state.cluster.pools()[pool].idle_soon() + others_gpus < head.key.gpus {
                return None;
            }
            let idle = |host| state.cluster.host(host).idle_soon();
            let mut room = Room::new(state, pool, ask, idle);
            let others = self
                .above
                .iter()
                .rev()
                .map(|&(_, workload)| workload)
                .filter(|other| self.attempts[other].leaf != head.key.leaf);
            let (placement, leaving) = make_room(state, &mut room, others)?;
            let reason = EvictReason::Compared { by: Some(head.workload), policy: NAME };
            let victims = leaving.into_iter().map(|workload| Victim { workload, reason }).collect();
            Some(start(state, NAME, head.workload, placement, victims))
        })
    }
}

impl Policy for Levels {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, state: &State, notice: &Notice) {
        match change_of(state, notice) {
            Change::Waits(workload) => {
                if matches!(notice, Notice::Requeued(_)) {
                    self.gone(workload);
                    self.classes.released();
                }
                self.classes.insert(state, workload);
            }
            Change::Decided(workload) => {
                self.classes.remove(state, workload);
                self.decided(state, workload);
                self.classes.end_epoch();
            }
            Change::Withdrawn(workload) => self.classes.remove(state, workload),
            Change::Runs(workload) => {
                self.runs(state, workload);
                self.classes.end_epoch();
            }
            Change::Leaves(workload) => {
                self.leaves(workload);
                self.classes.end_epoch();
            }
            Change::Gone(workload) => {
                self.gone(workload);
                self.classes.released();
            }
            Change::Cluster => {
                self.set_caps(state);
                self.classes.released();
            }
            Change::Nothing => {}
        }
    }

    fn decide(&mut self, state: &State) -> Option<Decision> {
        loop {
            let head = self.classes.open().min_by_key(|head| head.place)?;
            if let Some(decision) = self.try_start(state, head) {
                return Some(decision);
            }
            self.classes.block(head.key);
        }
    }

    fn next_wake(&mut self, _state: &State) -> TimeMs {
        TimeMs::NEVER
    }

    fn why(&self, _state: &State, _workload: WorkloadIx) -> WaitReason {
        WaitReason::Compared(NAME)
    }

    fn clone_box(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}
