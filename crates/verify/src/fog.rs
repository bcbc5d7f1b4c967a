//! Where something may have been decided of which the log shows nothing.
//!
//! A request that waits for GPUs which others are leaving is held, and the log says so when it starts. If a
//! host that it is to have fails or drains before, it waits again and was never heard of. So before such an
//! event, from when the first of those was told to leave who had not left by then, any waiting request that
//! could be placed on that host may have been held. That time is a [`Fog`].

use crate::pools::{Pools, Wants};
use crate::timeline::Entry;
use std::collections::BTreeMap;

/// While it lies, some waiting requests may be held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fog {
    /// It lies from before this entry …
    pub(crate) from: usize,
    /// … to this one.
    pub(crate) over: usize,
    /// The host that such a hold has a part of.
    pub(crate) host: u32,
    /// Whether a gang may be held (for others leave hosts of the same pool), or else what fits one host.
    pub(crate) of_gangs: bool,
}

impl Fog {
    /// Whether a request that wants this of the host may be held.
    pub(crate) fn hides(&self, wants: Wants) -> bool {
        match wants {
            Wants::One(_) => !self.of_gangs,
            Wants::Gang { .. } => self.of_gangs,
        }
    }
}

/// An attempt that was told to leave: the entry that did, and the one that began it.
#[derive(Clone, Copy, Debug)]
struct Leaver {
    told: usize,
    start: usize,
}

/// Attempts that were told to leave and are not gone, or went at this very moment.
#[derive(Debug, Default)]
pub(crate) struct Leavers {
    still: BTreeMap<u32, Leaver>,
    gone: Vec<Leaver>,
    gone_at: u64,
}

impl Leavers {
    pub(crate) fn tell(&mut self, workload: u32, told: usize, start: usize) {
        self.still.entry(workload).or_insert(Leaver { told, start });
    }

    /// An attempt is over, whether it was told or not.
    pub(crate) fn leave(&mut self, workload: u32, at: u64) {
        if let Some(leaver) = self.still.remove(&workload) {
            if self.gone_at != at {
                self.gone.clear();
                self.gone_at = at;
            }
            self.gone.push(leaver);
        }
    }

    fn gone_at(&self, at: u64) -> &[Leaver] {
        if self.gone_at == at { &self.gone } else { &[] }
    }

    /// Whether somebody left this host at this moment who was told to.
    pub(crate) fn have_just_left(&self, entries: &[Entry], host: u32, at: u64) -> bool {
        let mut hosts = self.gone_at(at).iter().flat_map(|leaver| hosts_of(entries, *leaver));
        hosts.any(|left| left == host)
    }

    /// The fogs that end where entry `index` loses its host.
    pub(crate) fn fogs_before(&self, entries: &[Entry], pools: &Pools, index: usize) -> Vec<Fog> {
        let lost = entries[index].host;
        let (mut of_host, mut of_pool) = (None::<usize>, None::<usize>);
        for leaver in self.still.values().chain(self.gone_at(entries[index].at)) {
            for host in hosts_of(entries, *leaver) {
                let first =
                    |known: Option<usize>| known.map_or(leaver.told, |t| t.min(leaver.told));
                if host == lost {
                    of_host = Some(first(of_host));
                }
                if pools.of(host) == pools.of(lost) {
                    of_pool = Some(first(of_pool));
                }
            }
        }
        let fog = |told: usize, of_gangs| Fog { from: told + 1, over: index, host: lost, of_gangs };
        let singles = of_host.map(|told| fog(told, false));
        singles.into_iter().chain(of_pool.map(|told| fog(told, true))).collect()
    }

    /// The fogs that lie where the log ends.
    pub(crate) fn fogs_at_end(&self, entries: &[Entry], pools: &Pools, end: usize) -> Vec<Fog> {
        // The earliest leaver of each host, and of each pool with a host of it.
        let (mut of_hosts, mut of_pools) = (BTreeMap::new(), BTreeMap::new());
        for leaver in self.still.values() {
            for host in hosts_of(entries, *leaver) {
                let told = of_hosts.entry(host).or_insert(leaver.told);
                *told = leaver.told.min(*told);
                let (_, told) = of_pools.entry(pools.of(host)).or_insert((host, leaver.told));
                *told = leaver.told.min(*told);
            }
        }
        let fog = |host, told: usize, of_gangs| Fog { from: told + 1, over: end, host, of_gangs };
        let singles = of_hosts.into_iter().map(|(host, told)| fog(host, told, false));
        singles.chain(of_pools.into_values().map(|(host, told)| fog(host, told, true))).collect()
    }
}

fn hosts_of(entries: &[Entry], leaver: Leaver) -> impl Iterator<Item = u32> {
    entries[leaver.start].placement.iter().map(|place| place.0)
}
