//! GPUs that hosts could give, and whether a gang fits on them, kept up to date by counting.
//!
//! Finding out when (or by whose leaving) a gang comes to fit means adding GPUs host by host. Counting
//! the hosts that are large enough tells after each step in constant time whether [`Cluster::place`]
//! would find a placement, without looking for it.

use crate::cluster::{Ask, HostState, Placement};
use crate::state::State;
use crate::units::{HostIx, WorkloadIx};
use alloc::vec::Vec;

/// What the hosts of one pool could give, for one gang.
#[derive(Clone, Debug)]
pub(super) struct Room {
    pool: usize,
    ask: Ask,
    /// By host; 0 for hosts of other pools and hosts that take no work.
    available: Vec<u32>,
    /// Hosts that could be one of the gang's equal parts (or its single host).
    whole: u32,
    /// Hosts that could take the rest of the gang.
    partly: u32,
}

impl Room {
    /// With `gpus` of each host that is up.
    pub(super) fn new(state: &State, pool: usize, ask: Ask, gpus: impl Fn(HostIx) -> u32) -> Self {
        let available = Vec::new();
        let mut room = Self { pool, ask, available, whole: 0, partly: 0 };
        room.available.resize(state.cluster.hosts().len(), 0);
        for &host in &state.cluster.pools()[pool].hosts {
            room.give(state, host, gpus(host));
        }
        room
    }

    fn whole_gpus(&self) -> u32 {
        if self.ask.is_single() { self.ask.single_gpus() } else { self.ask.gpus_per_host }
    }

    fn set(&mut self, host: HostIx, after: u32) {
        let before = core::mem::replace(&mut self.available[host.at()], after);
        let count = |counter: u32, least: u32| {
            counter + u32::from(after >= least) - u32::from(before >= least)
        };
        self.whole = count(self.whole, self.whole_gpus());
        if self.ask.rest > 0 {
            self.partly = count(self.partly, self.ask.rest);
        }
    }

    /// GPUs that one host could give.
    pub(super) fn available(&self, host: HostIx) -> u32 {
        self.available[host.at()]
    }

    /// More GPUs; ignored on hosts that the gang cannot use.
    pub(super) fn give(&mut self, state: &State, host: HostIx, gpus: u32) {
        let facts = state.cluster.host(host);
        if facts.pool == self.pool && facts.state == HostState::Up {
            self.set(host, self.available(host) + gpus);
        }
    }

    /// Fewer GPUs: the reverse of [`Room::give`].
    pub(super) fn take(&mut self, state: &State, host: HostIx, gpus: u32) {
        let facts = state.cluster.host(host);
        if facts.pool == self.pool && facts.state == HostState::Up {
            self.set(host, self.available(host) - gpus);
        }
    }

    /// Whether the gang fits.
    pub(super) fn fits(&self) -> bool {
        if self.ask.is_single() {
            return self.whole > 0;
        }
        self.whole >= self.ask.hosts && (self.ask.rest == 0 || self.partly > self.ask.hosts)
    }

    /// Rule 8 on what is available.
    pub(super) fn place(&self, state: &State) -> Option<Placement> {
        state.cluster.place(self.pool, self.ask, |host| self.available(host))
    }
}

/// The fewest of `candidates` who must leave so that the gang fits, and where it then fits: they are
/// added in order until it does, and from the last added each that it can do without is spared.
pub(super) fn make_room(
    state: &State,
    room: &mut Room,
    candidates: impl Iterator<Item = WorkloadIx>,
) -> Option<(Placement, Vec<WorkloadIx>)> {
    let placement_of = |workload: WorkloadIx| state.workload(workload).placement.iter().copied();
    let mut leaving = Vec::new();
    let mut candidates = candidates;
    while !room.fits() {
        let workload = candidates.next()?;
        placement_of(workload).for_each(|(host, gpus)| room.give(state, host, gpus));
        leaving.push(workload);
    }
    for at in (0..leaving.len()).rev() {
        placement_of(leaving[at]).for_each(|(host, gpus)| room.take(state, host, gpus));
        if room.fits() {
            leaving.remove(at);
        } else {
            placement_of(leaving[at]).for_each(|(host, gpus)| room.give(state, host, gpus));
        }
    }
    room.place(state).map(|placement| (placement, leaving))
}
