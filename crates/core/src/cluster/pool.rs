//! Hosts of one model and size, sorted by what they can give; and what a gang asks of them.

use crate::units::{HostIx, ModelIx};
use alloc::vec;
use alloc::vec::Vec;

/// Hosts of one model and size.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Pool {
    /// The model.
    pub model: ModelIx,
    /// GPUs of each host.
    pub gpus_per_host: u32,
    /// The hosts in the order of declaration.
    pub hosts: Vec<HostIx>,
    /// Hosts that are up, by their idle GPUs.
    pub(super) by_idle: Levels,
    /// Hosts that are up, by the GPUs that any allocated request may have.
    pub(super) by_soft: Levels,
    /// GPUs that are nobody's once those who were told to leave are gone, over all hosts.
    pub(super) idle_soon: u32,
}

/// Hosts of a pool by an amount of GPUs: for each amount a bit set of places.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Levels {
    sets: Vec<Vec<u64>>,
    counts: Vec<u32>,
}

impl Levels {
    pub(super) fn new(gpus_max: u32, hosts: usize) -> Self {
        let levels = gpus_max as usize + 1;
        Self { sets: vec![vec![0; hosts.div_ceil(64)]; levels], counts: vec![0; levels] }
    }

    pub(super) fn change(&mut self, place: usize, before: Option<u32>, after: Option<u32>) {
        let (word, bit) = (place / 64, 1u64 << (place % 64));
        if let Some(gpus) = before {
            self.sets[gpus as usize][word] &= !bit;
            self.counts[gpus as usize] -= 1;
        }
        if let Some(gpus) = after {
            self.sets[gpus as usize][word] |= bit;
            self.counts[gpus as usize] += 1;
        }
    }

    /// How many hosts have at least `gpus`.
    pub(super) fn with(&self, gpus: u32) -> u32 {
        self.counts.iter().skip(gpus as usize).sum()
    }

    /// Whether any host has at least `gpus`.
    pub(super) fn any_with(&self, gpus: u32) -> bool {
        self.counts[(gpus as usize).min(self.counts.len())..].iter().any(|&count| count > 0)
    }

    /// The places with at least `gpus`: least first, then in the order of declaration.
    pub(super) fn places_with(&self, gpus: u32) -> impl Iterator<Item = usize> + '_ {
        let levels = self.sets.iter().zip(&self.counts).skip(gpus as usize);
        levels.filter(|&(_, &count)| count > 0).flat_map(|(set, _)| bits(set))
    }
}

impl Pool {
    /// How many hosts that are up have at least `gpus` idle.
    #[must_use]
    pub fn hosts_with_idle(&self, gpus: u32) -> u32 {
        self.by_idle.with(gpus)
    }

    /// Whether idle and unallocated GPUs could be enough for `ask`, whichever hosts it may use.
    #[must_use]
    pub fn soft_may_fit(&self, ask: Ask) -> bool {
        if ask.is_single() {
            self.by_soft.any_with(ask.single_gpus())
        } else {
            self.by_soft.with(ask.gpus_per_host) >= ask.hosts
        }
    }

    /// The hosts that are up and have at least `gpus` that any allocated request may have.
    pub fn soft_hosts(&self, gpus: u32) -> impl Iterator<Item = HostIx> + '_ {
        self.by_soft.places_with(gpus).map(|place| self.hosts[place])
    }

    /// GPUs that are nobody's once those who were told to leave are gone, over all hosts that are up.
    #[must_use]
    pub const fn idle_soon(&self) -> u32 {
        self.idle_soon
    }

    /// Idle GPUs over all hosts that are up.
    #[must_use]
    pub fn idle(&self) -> u32 {
        self.by_idle.counts.iter().zip(0u32..).map(|(hosts, gpus)| hosts * gpus).sum()
    }
}

/// What a gang asks of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ask {
    /// Whole hosts, or hosts of an explicit shape.
    pub hosts: u32,
    /// GPUs on each of those.
    pub gpus_per_host: u32,
    /// GPUs on one further host; 0 for none.
    pub rest: u32,
}

impl Ask {
    /// The shape of `gpus` on hosts of `per_host` (rule 8), or the explicit one.
    #[must_use]
    pub fn on(gpus: u32, shape: Option<(u32, u32)>, per_host: u32) -> Self {
        match shape {
            Some((hosts, each)) => Self { hosts, gpus_per_host: each, rest: 0 },
            None if gpus <= per_host => Self { hosts: 0, gpus_per_host: 0, rest: gpus },
            None => Self { hosts: gpus / per_host, gpus_per_host: per_host, rest: gpus % per_host },
        }
    }

    /// Whether one host is enough.
    #[must_use]
    pub const fn is_single(&self) -> bool {
        self.hosts == 0 || (self.hosts == 1 && self.rest == 0)
    }

    /// GPUs on the single host of a single ask.
    #[must_use]
    pub const fn single_gpus(&self) -> u32 {
        if self.hosts == 0 { self.rest } else { self.gpus_per_host }
    }

    /// The fewest GPUs that any of its hosts gives.
    #[must_use]
    pub const fn smallest_part(&self) -> u32 {
        if self.rest > 0 { self.rest } else { self.gpus_per_host }
    }
}

/// The places of the bits that are set, lowest first.
fn bits(words: &[u64]) -> impl Iterator<Item = usize> + '_ {
    words.iter().enumerate().flat_map(|(index, &word)| {
        core::iter::successors((word != 0).then_some(word), |&word| {
            let rest = word & (word - 1);
            (rest != 0).then_some(rest)
        })
        .map(move |word| index * 64 + word.trailing_zeros() as usize)
    })
}
