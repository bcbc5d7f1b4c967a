//! EASY backfilling: one reservation for the head of the line, computed from declared runtimes; whoever
//! does not delay it may pass.
//!
//! Sources: Lifka, "The ANL/IBM SP Scheduling System" (1995); Mu'alem & Feitelson, "Utilization,
//! Predictability, Workloads, and User Runtime Estimates in Scheduling the IBM SP2 with Backfilling"
//! (2001), whose *shadow time* and *extra nodes* are [`Shadow`]. Theirs is a machine of equal nodes where
//! a count is enough; here the head's hosts at the shadow time are known, and "extra" is what each host
//! can spare beside the head's part.
//!
//! Invariant: between two releases a blocked request stays blocked, since time only brings the shadow
//! nearer. Therefore only new requests are tried until something changes.
//!
//! Absent on purpose: reservations for more than the head (that is conservative backfilling).

use super::room::Room;
use super::{Place, declared_runtime, idle_gpus, place_idle};
use crate::cluster::Placement;
use crate::state::State;
use crate::units::{HostIx, SpanMs, TimeMs, WorkloadIx};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

/// How many requests behind the head are tried: the default of Slurm's bf_max_job_test. Far more than
/// ever start in one pass, few enough that a pass over a queue of any length takes microseconds.
pub(super) const DEPTH: usize = 500;

/// The head's reservation.
#[derive(Clone, Debug)]
struct Shadow {
    /// When the head starts at the latest, if everybody ends as declared.
    at: TimeMs,
    /// GPUs of each host that may be kept beyond that moment.
    spare: Vec<u32>,
}

/// The least gang that was found not to fit, by whether it would end before the shadow time.
#[derive(Clone, Copy, Debug)]
struct Smallest {
    short: u32,
    long: u32,
}

/// What is known of the line since the last release.
#[derive(Clone, Debug)]
enum Known {
    /// Nothing: it must be looked at from the head on.
    Nothing,
    /// Nothing is idle, so nobody can start.
    NothingIdle,
    /// Nobody waits.
    Empty,
    /// Everybody from the head up to a place was tried in vain.
    Tried { head: Place, last: Place, count: usize },
}

/// Backfilling on some order of requests.
#[derive(Clone, Debug)]
pub(super) struct Easy {
    /// Who has GPUs, by declared end.
    ends: BTreeSet<(TimeMs, WorkloadIx)>,
    end_of: BTreeMap<WorkloadIx, TimeMs>,
    known: Known,
    shadow: Option<Shadow>,
    blocked: Smallest,
    /// Requests that came in since, behind those that were tried.
    fresh: Vec<WorkloadIx>,
}

impl Easy {
    pub(super) fn new() -> Self {
        Self {
            ends: BTreeSet::new(),
            end_of: BTreeMap::new(),
            known: Known::Nothing,
            shadow: None,
            blocked: Smallest { short: u32::MAX, long: u32::MAX },
            fresh: Vec::new(),
        }
    }

    /// Something happened that could let anybody start.
    pub(super) fn forget(&mut self) {
        self.known = Known::Nothing;
        self.fresh.clear();
    }

    /// An attempt has GPUs from now on (decided, or running at last).
    pub(super) fn occupies(&mut self, state: &State, workload: WorkloadIx) {
        self.vacates(workload);
        let end = state.now() + declared_runtime(state, workload);
        self.ends.insert((end, workload));
        self.end_of.insert(workload, end);
    }

    /// An attempt has no GPUs any more.
    pub(super) fn vacates(&mut self, workload: WorkloadIx) {
        if let Some(end) = self.end_of.remove(&workload) {
            self.ends.remove(&(end, workload));
        }
    }

    /// A request waits at `place`, and no GPUs were released.
    pub(super) fn submitted(&mut self, place: Place, workload: WorkloadIx) {
        match &mut self.known {
            Known::Nothing | Known::NothingIdle => {}
            Known::Empty => self.forget(),
            Known::Tried { head, last, count } => {
                if place > *last && place > *head {
                    if *count < DEPTH {
                        (*last, *count) = (place, *count + 1);
                        self.fresh.push(workload);
                    }
                } else {
                    self.forget();
                }
            }
        }
    }

    /// The next start. `front(n)` gives the first n requests in order.
    pub(super) fn decide(
        &mut self,
        state: &State,
        mut front: impl FnMut(usize) -> Vec<(Place, WorkloadIx)>,
    ) -> Option<(WorkloadIx, Placement)> {
        if self.shadow.as_ref().is_some_and(|shadow| shadow.at <= state.now()) {
            // Somebody runs longer than declared: the reservation has to be computed anew.
            self.forget();
        }
        match self.known {
            Known::NothingIdle | Known::Empty => return None,
            Known::Tried { .. } => return self.try_fresh(state),
            Known::Nothing => {}
        }
        self.shadow = None;
        if idle_gpus(state) == 0 {
            self.known = Known::NothingIdle;
            return None;
        }
        let Some(&(head_place, head)) = front(1).first() else {
            self.known = Known::Empty;
            return None;
        };
        if let Some(placement) = place_idle(state, head) {
            return Some((head, placement));
        }
        self.shadow = self.find_shadow(state, head);
        self.blocked = Smallest { short: u32::MAX, long: u32::MAX };
        let line = front(DEPTH + 1);
        for &(_, workload) in line.iter().skip(1) {
            if let Some(placement) = self.try_backfill(state, workload) {
                return Some((workload, placement));
            }
        }
        let last = line.last().map_or(head_place, |&(place, _)| place);
        self.known = Known::Tried { head: head_place, last, count: line.len() - 1 };
        None
    }

    fn try_fresh(&mut self, state: &State) -> Option<(WorkloadIx, Placement)> {
        let mut fresh = core::mem::take(&mut self.fresh);
        let found = fresh.iter().copied().enumerate().find_map(|(at, workload)| {
            self.try_backfill(state, workload).map(|placement| (at, workload, placement))
        });
        let (at, workload, placement) = found?;
        // Asked again before this start is committed, the answer is the same.
        fresh.drain(..at);
        self.fresh = fresh;
        Some((workload, placement))
    }

    /// Where a request may start without delaying the head.
    fn try_backfill(&mut self, state: &State, workload: WorkloadIx) -> Option<Placement> {
        let spec = &state.workload(workload).spec;
        let end = state.now() + declared_runtime(state, workload);
        let ends_in_time = match &self.shadow {
            Some(shadow) => end <= shadow.at && end < TimeMs::NEVER,
            // The head cannot be placed even on an empty cluster: it waits for a repair.
            None => true,
        };
        let comparable = spec.shape.is_none() && state.cluster.is_uniform(None);
        let blocked = if ends_in_time { &mut self.blocked.short } else { &mut self.blocked.long };
        if comparable && spec.gpus >= *blocked {
            return None;
        }
        let spare = |host: HostIx| match &self.shadow {
            Some(shadow) if !ends_in_time => shadow.spare[host.at()],
            _ => u32::MAX,
        };
        let mut asks = state.cluster.asks(spec.gpus, spec.shape, spec.model);
        let placed = if ends_in_time {
            place_idle(state, workload)
        } else {
            asks.find_map(|(pool, ask)| {
                let idle = |host: HostIx| state.cluster.host(host).idle().min(spare(host));
                state.cluster.place(pool, ask, idle)
            })
        };
        if placed.is_none() && comparable {
            *blocked = spec.gpus;
        }
        placed
    }

    /// When and where the head can start if everybody ends as declared, overdue ones at any moment.
    fn find_shadow(&self, state: &State, head: WorkloadIx) -> Option<Shadow> {
        let spec = &state.workload(head).spec;
        let idle = |host: HostIx| state.cluster.host(host).idle();
        let mut rooms: Vec<Room> = state
            .cluster
            .asks(spec.gpus, spec.shape, spec.model)
            .map(|(pool, ask)| Room::new(state, pool, ask, idle))
            .collect();
        let soon = state.now() + SpanMs(1);
        let mut ends =
            self.ends.iter().map(|&(end, workload)| (end.max(soon), workload)).peekable();
        while let Some((at, workload)) = ends.next() {
            for &(host, gpus) in &state.workload(workload).placement {
                rooms.iter_mut().for_each(|room| room.give(state, host, gpus));
            }
            if ends.peek().is_some_and(|&(next, _)| next == at) {
                continue;
            }
            if let Some(room) = rooms.iter().find(|room| room.fits()) {
                let mut spare = vec![u32::MAX; state.cluster.hosts().len()];
                for (host, gpus) in room.place(state)? {
                    spare[host.at()] = room.available(host) - gpus;
                }
                return Some(Shadow { at, spare });
            }
        }
        None
    }
}
