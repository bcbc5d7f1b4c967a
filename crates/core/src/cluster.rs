//! Hosts, who is on them, and where a gang fits (rule 8).
//!
//! Hosts of one model and size form a *pool*; a gang is placed inside one pool. For each pool the hosts
//! with exactly `n` idle GPUs are a bit set, so that "the fullest host that fits" is a scan of a few
//! words, whatever the size of the queue.
//!
//! Five counters describe a host: `used` (running, leaving ones included), `dying` (of those, told to
//! leave), `held` (free, kept for workloads that wait for more), `awaited` (of the dying, spoken for by such
//! workloads) and `starting` (taken by starts that the engine has not confirmed).

use crate::units::{HostIx, ModelIx, WorkloadIx};
use alloc::vec;
use alloc::vec::Vec;

/// Hosts and the GPUs taken on each, in the order of declaration.
pub type Placement = Vec<(HostIx, u32)>;

/// One host as declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HostSpec {
    /// How many GPUs it has.
    pub gpus: u32,
    /// Their model.
    pub model: ModelIx,
    /// The topology domain it is in.
    pub domain: u32,
}

/// Whether a host takes and runs work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum HostState {
    /// In service.
    Up,
    /// In service, but takes no new work (rule 9).
    Draining,
    /// Out of service: drained and given to its repairer.
    Drained,
    /// Out of service: failed.
    Down,
}

/// A host and what is on it.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Host {
    /// As declared.
    pub spec: HostSpec,
    /// Whether it takes and runs work.
    pub state: HostState,
    /// The pool it belongs to.
    pub pool: usize,
    /// GPUs that run something.
    pub used: u32,
    /// Of these, GPUs whose work was told to leave.
    pub dying: u32,
    /// Free GPUs that are kept for workloads which wait until others are gone.
    pub held: u32,
    /// Of the dying, GPUs that such workloads wait for.
    pub awaited: u32,
    /// GPUs of starts that the engine was told of and has not confirmed.
    pub starting: u32,
    /// Of `used`, GPUs of unallocated work that was not told to leave.
    pub unallocated: u32,
    /// Who runs here, with how many GPUs.
    pub runs: Vec<(WorkloadIx, u32)>,
    /// Changes whenever the host does: what follows from it alone may be remembered by this.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub version: u64,
}

impl Host {
    /// GPUs that can be given away at this moment.
    #[must_use]
    pub fn idle(&self) -> u32 {
        if self.state == HostState::Up { self.free() } else { 0 }
    }

    /// GPUs that nobody has, whether or not work may start there.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.spec.gpus - self.used - self.starting - self.held
    }

    /// GPUs that are nobody's once those who were told to leave are gone.
    #[must_use]
    pub fn idle_soon(&self) -> u32 {
        if self.state == HostState::Up { self.idle() + self.dying - self.awaited } else { 0 }
    }

    /// GPUs that any allocated request may have: idle soon, or unallocated (rule 1).
    #[must_use]
    pub fn soft(&self) -> u32 {
        if self.state == HostState::Up { self.idle_soon() + self.unallocated } else { 0 }
    }

    /// Whether its GPUs count as capacity (rule 9: a draining host does until drained).
    #[must_use]
    pub fn in_service(&self) -> bool {
        matches!(self.state, HostState::Up | HostState::Draining)
    }
}

/// What a workload was when it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Was {
    /// Told to leave.
    Dying,
    /// Running, charged to nobody.
    Unallocated,
    /// Running, charged.
    Allocated,
}

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
    by_idle: Levels,
    /// Hosts that are up, by the GPUs that any allocated request may have.
    by_soft: Levels,
    /// GPUs that are nobody's once those who were told to leave are gone, over all hosts.
    idle_soon: u32,
}

/// Hosts of a pool by an amount of GPUs: for each amount a bit set of places.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Levels {
    sets: Vec<Vec<u64>>,
    counts: Vec<u32>,
}

impl Levels {
    fn new(gpus_max: u32, hosts: usize) -> Self {
        let levels = gpus_max as usize + 1;
        Self { sets: vec![vec![0; hosts.div_ceil(64)]; levels], counts: vec![0; levels] }
    }

    fn change(&mut self, place: usize, before: Option<u32>, after: Option<u32>) {
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
    fn with(&self, gpus: u32) -> u32 {
        self.counts.iter().skip(gpus as usize).sum()
    }

    /// The places with at least `gpus`: least first, then in the order of declaration.
    fn places_with(&self, gpus: u32) -> impl Iterator<Item = usize> + '_ {
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

    /// The hosts that are up and have GPUs that any allocated request may have, with how many these are.
    pub fn soft_hosts(&self) -> impl Iterator<Item = (HostIx, u32)> + '_ {
        let Levels { sets, counts } = &self.by_soft;
        let levels = sets.iter().zip(counts).zip(0u32..).skip(1);
        levels
            .filter(|&((_, &count), _)| count > 0)
            .flat_map(move |((set, _), gpus)| bits(set).map(move |place| (self.hosts[place], gpus)))
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

/// All hosts.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Cluster {
    hosts: Vec<Host>,
    pools: Vec<Pool>,
    places: Vec<u32>,
    rates: Vec<u64>,
    domains: u32,
    version: u64,
}

impl Cluster {
    /// A cluster of idle hosts, with the rate units of each model.
    #[must_use]
    pub fn new(specs: &[HostSpec], rates: Vec<u64>) -> Self {
        let mut pools: Vec<Pool> = Vec::new();
        let mut hosts = Vec::with_capacity(specs.len());
        let mut places = Vec::with_capacity(specs.len());
        for (index, spec) in specs.iter().enumerate() {
            let same = |pool: &Pool| (pool.model, pool.gpus_per_host) == (spec.model, spec.gpus);
            let pool = pools.iter().position(same).unwrap_or_else(|| {
                pools.push(Pool {
                    model: spec.model,
                    gpus_per_host: spec.gpus,
                    hosts: Vec::new(),
                    by_idle: Levels::new(0, 0),
                    by_soft: Levels::new(0, 0),
                    idle_soon: 0,
                });
                pools.len() - 1
            });
            places.push(pools[pool].hosts.len() as u32);
            pools[pool].hosts.push(HostIx(index as u32));
            pools[pool].idle_soon += spec.gpus;
            hosts.push(Host {
                spec: *spec,
                state: HostState::Up,
                pool,
                used: 0,
                dying: 0,
                held: 0,
                awaited: 0,
                starting: 0,
                unallocated: 0,
                runs: Vec::new(),
                version: 0,
            });
        }
        for pool in &mut pools {
            let hosts = pool.hosts.len();
            pool.by_idle = Levels::new(pool.gpus_per_host, hosts);
            pool.by_soft = Levels::new(pool.gpus_per_host, hosts);
            for place in 0..hosts {
                pool.by_idle.change(place, None, Some(pool.gpus_per_host));
                pool.by_soft.change(place, None, Some(pool.gpus_per_host));
            }
        }
        let domains = specs.iter().map(|spec| spec.domain + 1).max().unwrap_or(1);
        Self { hosts, pools, places, rates, domains, version: 0 }
    }

    /// All hosts, in the order of declaration.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// One host.
    #[must_use]
    pub fn host(&self, host: HostIx) -> &Host {
        &self.hosts[host.at()]
    }

    /// All pools, in the order in which their first hosts were declared.
    #[must_use]
    pub fn pools(&self) -> &[Pool] {
        &self.pools
    }

    /// Changes whenever a host does: what follows from the hosts alone may be remembered by it.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Rate units of a pool: what one of its GPUs is charged per millisecond.
    #[must_use]
    pub fn rate(&self, pool: usize) -> u64 {
        self.rates[self.pools[pool].model.at()]
    }

    /// Capacity in service, in units per millisecond.
    #[must_use]
    pub fn capacity_units(&self) -> u128 {
        let in_service = self.hosts.iter().filter(|host| host.in_service());
        in_service
            .map(|host| u128::from(host.spec.gpus) * u128::from(self.rates[host.spec.model.at()]))
            .sum()
    }

    /// The place of a host inside its pool.
    #[must_use]
    pub fn place_in_pool(&self, host: HostIx) -> usize {
        self.places[host.at()] as usize
    }

    /// The largest gang that could ever be placed, given a model.
    #[must_use]
    pub fn largest_gang(&self, model: Option<ModelIx>) -> u32 {
        let pools = self.pools.iter().filter(|pool| model.is_none_or(|model| model == pool.model));
        pools.map(|pool| pool.gpus_per_host * pool.hosts.len() as u32).max().unwrap_or(0)
    }

    /// The pools that may hold a gang, with what it asks of each. What fits one host of some pool is
    /// never split over hosts of another (rule 8).
    pub fn asks(
        &self,
        gpus: u32,
        shape: Option<(u32, u32)>,
        model: Option<ModelIx>,
    ) -> impl Iterator<Item = (usize, Ask)> + '_ {
        let allowed = move |pool: &Pool| model.is_none_or(|model| model == pool.model);
        let fits_one = shape.is_none()
            && self.pools.iter().any(|pool| allowed(pool) && gpus <= pool.gpus_per_host);
        self.pools.iter().enumerate().filter_map(move |(index, pool)| {
            if !allowed(pool) || (fits_one && gpus > pool.gpus_per_host) {
                return None;
            }
            let ask = Ask::on(gpus, shape, pool.gpus_per_host);
            let hosts = ask.hosts + u32::from(ask.rest > 0);
            let fits = ask.gpus_per_host <= pool.gpus_per_host && hosts <= pool.hosts.len() as u32;
            fits.then_some((index, ask))
        })
    }

    /// Whether all hosts of a model (or all hosts) are of one pool, so that a smaller gang always fits
    /// where a larger one does.
    #[must_use]
    pub fn is_uniform(&self, model: Option<ModelIx>) -> bool {
        let allowed = |pool: &&Pool| model.is_none_or(|model| model == pool.model);
        self.pools.iter().filter(allowed).count() <= 1
    }

    /// Changes one host and keeps the sets right.
    fn change(&mut self, host: HostIx, change: impl FnOnce(&mut Host)) {
        let levels = |host: &Host| {
            let up = host.state == HostState::Up;
            (up.then(|| host.idle()), up.then(|| host.soft()), host.idle_soon())
        };
        self.version += 1;
        let place = self.places[host.at()] as usize;
        let facts = &mut self.hosts[host.at()];
        let (idle_before, soft_before, soon_before) = levels(facts);
        change(facts);
        facts.version = self.version;
        let (idle, soft, soon) = levels(facts);
        let pool = &mut self.pools[facts.pool];
        pool.idle_soon = pool.idle_soon + soon - soon_before;
        if idle != idle_before {
            pool.by_idle.change(place, idle_before, idle);
        }
        if soft != soft_before {
            pool.by_soft.change(place, soft_before, soft);
        }
    }

    /// A host changes its state.
    pub fn set_state(&mut self, host: HostIx, state: HostState) {
        self.change(host, |host| host.state = state);
    }

    /// GPUs are kept for a workload that waits for others to be gone: what is dying and not spoken for
    /// counts first, so that idle GPUs stay for others. Returns what it awaits on each host.
    pub fn hold(&mut self, placement: &Placement) -> Placement {
        let mut awaits = Placement::new();
        for &(host, gpus) in placement {
            let facts = &self.hosts[host.at()];
            let awaited = gpus.min(facts.dying - facts.awaited);
            self.change(host, |host| {
                host.awaited += awaited;
                host.held += gpus - awaited;
            });
            if awaited > 0 {
                awaits.push((host, awaited));
            }
        }
        awaits
    }

    /// GPUs that a workload awaited have come free and are kept for it.
    pub fn serve(&mut self, host: HostIx, gpus: u32) {
        self.change(host, |host| {
            host.awaited -= gpus;
            host.held += gpus;
        });
    }

    /// What is kept for a workload, and what it awaits, is given up.
    pub fn unhold(&mut self, placement: &Placement, awaits: &Placement) {
        for &(host, gpus) in placement {
            let awaited = awaits.iter().find(|&&(other, _)| other == host);
            let awaited = awaited.map_or(0, |&(_, awaited)| awaited);
            self.change(host, |host| {
                host.awaited -= awaited;
                host.held -= gpus - awaited;
            });
        }
    }

    /// The engine is told to start on GPUs that were kept.
    pub fn begin_start(&mut self, placement: &Placement) {
        for &(host, gpus) in placement {
            self.change(host, |host| {
                host.held -= gpus;
                host.starting += gpus;
            });
        }
    }

    /// The engine is told to start on idle GPUs.
    pub fn begin_start_on_idle(&mut self, placement: &Placement) {
        for &(host, gpus) in placement {
            self.change(host, |host| host.starting += gpus);
        }
    }

    /// A start is confirmed, or failed.
    pub fn end_start(&mut self, placement: &Placement) {
        for &(host, gpus) in placement {
            self.change(host, |host| host.starting -= gpus);
        }
    }

    /// A workload runs.
    pub fn occupy(&mut self, workload: WorkloadIx, placement: &Placement, allocated: bool) {
        for &(host, gpus) in placement {
            self.change(host, |host| {
                host.used += gpus;
                host.unallocated += if allocated { 0 } else { gpus };
                host.runs.push((workload, gpus));
            });
        }
    }

    /// A workload was told to leave.
    pub fn mark_dying(&mut self, placement: &Placement, allocated: bool) {
        for &(host, gpus) in placement {
            self.change(host, |host| {
                host.dying += gpus;
                host.unallocated -= if allocated { 0 } else { gpus };
            });
        }
    }

    /// A workload is gone.
    pub fn vacate(&mut self, workload: WorkloadIx, placement: &Placement, was: Was) {
        for &(host, gpus) in placement {
            self.change(host, |host| {
                host.used -= gpus;
                match was {
                    Was::Dying => host.dying -= gpus,
                    Was::Unallocated => host.unallocated -= gpus,
                    Was::Allocated => {}
                }
                host.runs.retain(|&(run, _)| run != workload);
            });
        }
    }

    /// Rule 8 on idle GPUs: where `ask` fits now, among the hosts of `pool` that `may_use` allows.
    #[must_use]
    pub fn place_idle(
        &self,
        pool_index: usize,
        ask: Ask,
        may_use: impl Fn(HostIx) -> bool,
    ) -> Option<Placement> {
        let pool = &self.pools[pool_index];
        if ask.is_single() {
            let gpus = ask.single_gpus();
            let hosts = pool.by_idle.places_with(gpus).map(|place| pool.hosts[place]);
            let host = hosts.into_iter().find(|&host| may_use(host))?;
            return Some(vec![(host, gpus)]);
        }
        if pool.hosts_with_idle(ask.gpus_per_host) < ask.hosts {
            return None;
        }
        self.place(
            pool_index,
            ask,
            |host| {
                if may_use(host) { self.hosts[host.at()].idle() } else { 0 }
            },
        )
    }

    /// Rule 8 on any view of the hosts: `available` says how many GPUs each may give (0 for hosts that
    /// must not be used).
    #[must_use]
    pub fn place(
        &self,
        pool_index: usize,
        ask: Ask,
        available: impl Fn(HostIx) -> u32,
    ) -> Option<Placement> {
        self.place_at_cost(pool_index, ask, available, |_| 0)
    }

    /// The same where hosts differ in what taking them costs: after the number of domains, the least cost
    /// decides, before all else of rule 8.
    #[must_use]
    pub fn place_at_cost(
        &self,
        pool_index: usize,
        ask: Ask,
        available: impl Fn(HostIx) -> u32,
        cost: impl Fn(HostIx) -> u128,
    ) -> Option<Placement> {
        let pool = &self.pools[pool_index];
        if ask.is_single() {
            let gpus = ask.single_gpus();
            let fits = pool.hosts.iter().filter(|&&host| available(host) >= gpus);
            let host = fits.min_by_key(|&&host| (cost(host), available(host), host))?;
            return Some(vec![(*host, gpus)]);
        }
        let mut chosen = self.place_hosts(pool, ask, &available, &cost)?;
        if ask.rest > 0 {
            let taken = |host: HostIx| chosen.iter().any(|&(other, _)| other == host);
            let near = |host: HostIx| {
                let domain = self.hosts[host.at()].spec.domain;
                chosen.iter().any(|&(other, _)| self.hosts[other.at()].spec.domain == domain)
            };
            let fits =
                pool.hosts.iter().filter(|&&host| available(host) >= ask.rest && !taken(host));
            let host =
                *fits.min_by_key(|&&host| (!near(host), cost(host), available(host), host))?;
            chosen.push((host, ask.rest));
        }
        chosen.sort_unstable();
        Some(chosen)
    }

    /// The hosts of a gang that are taken alike: fewest domains, then the domain that is left least
    /// fragmented (with the fewest such hosts to spare), then the order of declaration.
    fn place_hosts(
        &self,
        pool: &Pool,
        ask: Ask,
        available: &impl Fn(HostIx) -> u32,
        cost: &impl Fn(HostIx) -> u128,
    ) -> Option<Placement> {
        let each = ask.gpus_per_host;
        let mut by_domain: Vec<Vec<HostIx>> = vec![Vec::new(); self.domains as usize];
        let mut partly = vec![false; self.domains as usize];
        for &host in &pool.hosts {
            let (gpus, domain) = (available(host), self.hosts[host.at()].spec.domain as usize);
            if gpus >= each {
                by_domain[domain].push(host);
            } else if ask.rest > 0 && gpus >= ask.rest {
                partly[domain] = true;
            }
        }
        for hosts in &mut by_domain {
            hosts.sort_by_key(|&host| (cost(host), host));
        }
        let first_declared = |domain: usize| by_domain[domain].iter().min().copied();
        let mut needed = ask.hosts as usize;
        let mut chosen = Placement::new();
        // The rest of the gang counts when a single domain is looked for.
        let whole_fits = |domain: usize, needed: usize| {
            let whole = by_domain[domain].len();
            whole >= needed && (ask.rest == 0 || partly[domain] || whole > needed)
        };
        let mut open: Vec<usize> =
            (0..by_domain.len()).filter(|&domain| !by_domain[domain].is_empty()).collect();
        while needed > 0 {
            let fitting = open.iter().copied().filter(|&domain| by_domain[domain].len() >= needed);
            let last = fitting.min_by_key(|&domain| {
                let hosts = &by_domain[domain];
                let total: u128 = hosts.iter().take(needed).map(|&host| cost(host)).sum();
                (!whole_fits(domain, needed), total, hosts.len(), first_declared(domain))
            });
            let domain = match last {
                Some(domain) => domain,
                // No domain holds what is left: the largest one first, so that few are used.
                None => open.iter().copied().max_by_key(|&domain| {
                    (by_domain[domain].len(), core::cmp::Reverse(first_declared(domain)))
                })?,
            };
            open.retain(|&other| other != domain);
            for &host in by_domain[domain].iter().take(needed) {
                chosen.push((host, each));
            }
            needed -= by_domain[domain].len().min(needed);
        }
        Some(chosen)
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

#[cfg(test)]
mod tests;
