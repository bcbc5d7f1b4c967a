//! Rule 8: where work may be placed, and whether it was placed as it should.

use crate::pools::Wants;
use crate::replay::Replay;
use crate::report::Check;
use crate::state::{HostState, Promise};

/// Debug hosts take contracts up to this long.
const DEBUG_CONTRACT_MS: u64 = 15 * 60 * 1000;

/// An answer that the log may leave open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    Yes,
    No,
    Maybe,
}

impl Replay<'_> {
    /// Whether the gang has a shape that rule 8 allows. False only if it cannot be followed at all.
    pub(crate) fn judge_shape(&mut self, workload: u32, placement: &[(u32, u32)]) -> bool {
        let fault = self.shape_fault(workload, placement);
        let spot = self.spot(workload);
        self.findings.check(Check::Shape, spot, fault.is_none(), || fault.unwrap_or_default());
        !placement.is_empty()
    }

    fn shape_fault(&self, workload: u32, placement: &[(u32, u32)]) -> Option<String> {
        let spec = &self.scenario.workloads[workload as usize];
        let hosts = &self.scenario.hosts;
        let sum: u64 = placement.iter().map(|place| u64::from(place.1)).sum();
        if sum != u64::from(spec.gpus) {
            return Some(format!("{sum} GPUs are placed, it asks for {}", spec.gpus));
        }
        let mut names: Vec<u32> = placement.iter().map(|place| place.0).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Some("a host is named twice".into());
        }
        let (first, pool) = (placement[0].0, self.pools.of(placement[0].0));
        let model = hosts[first as usize].model;
        if spec.model.is_some_and(|asked| asked as usize != model) {
            return Some(format!("it does not run on {}", self.scenario.models[model].name));
        }
        if let Some(other) = placement.iter().find(|place| self.pools.of(place.0) != pool) {
            let (one, other) = (self.host_name(first), self.host_name(other.0));
            return Some(format!("{one} and {other} are not of one model and size"));
        }
        if let Some((count, each)) = spec.shape {
            let good = placement.len() == count as usize && placement.iter().all(|p| p.1 == each);
            return (!good).then(|| format!("it insists on {count} hosts with {each} GPUs each"));
        }
        if placement.len() == 1 {
            return None;
        }
        let size = |place: &(u32, u32)| hosts[place.0 as usize].gpus;
        let alone = (0..hosts.len() as u32)
            .find(|&host| matches!(self.pools.wants(spec, host), Some(Wants::One(_))));
        if let Some(host) = alone {
            let (name, count) = (self.host_name(host), placement.len());
            return Some(format!("split over {count} hosts, though it fits on {name} alone"));
        }
        let partly = placement.iter().filter(|place| place.1 < size(place)).count();
        (partly > 1).then(|| format!("{partly} of its hosts are used in part"))
    }

    /// Rule 12, and 9: GPUs that are there, on hosts that are up.
    pub(crate) fn judge_host_use(&mut self, workload: u32, placement: &[(u32, u32)]) {
        let spot = self.spot(workload);
        for &(host, gpus) in placement {
            let (name, facts) = (self.host_name(host), &self.hosts[host as usize]);
            let (used, has, state) = (facts.used, facts.gpus, facts.state);
            self.findings.check(Check::HostUse, spot, used + i64::from(gpus) <= has, || {
                format!("takes {gpus} GPUs of {name}, where {used} of {has} are used")
            });
            let rule = match state {
                HostState::Draining => Check::Drain,
                HostState::Up | HostState::Drained | HostState::Down => Check::HostUse,
            };
            self.findings.check(rule, spot, state == HostState::Up, || {
                format!("starts on {name}, which is {state:?}")
            });
        }
    }

    pub(crate) fn is_debug_host(&self, host: u32) -> bool {
        host as usize + self.scenario.settings.debug_hosts as usize >= self.hosts.len()
    }

    /// Rule 8: whether an allocated request may use this host, were it idle and nobody's: the debug hosts take
    /// short contracts on one host only.
    pub(crate) fn suits_debug(&self, workload: u32, host: u32) -> bool {
        let spec = &self.scenario.workloads[workload as usize];
        let is_single = matches!(self.pools.wants(spec, host), Some(Wants::One(_)));
        !self.is_debug_host(host) || (self.contract(workload) <= DEBUG_CONTRACT_MS && is_single)
    }

    /// Rules 7 and 8: whether an allocated request may use a host now.
    pub(crate) fn may_use(&self, workload: u32, host: u32) -> Allowed {
        if self.hosts[host as usize].state != HostState::Up {
            return Allowed::No;
        }
        let spec = &self.scenario.workloads[workload as usize];
        if self.pools.wants(spec, host).is_none() || !self.suits_debug(workload, host) {
            return Allowed::No;
        }
        let contract = self.contract(workload);
        let grace = self.scenario.settings.grace_ms;
        let over = self.now.saturating_add(grace).saturating_add(contract);
        let in_the_way = |promise: &&Promise| {
            promise.holder != workload && promise.hosts.contains(&host) && over > promise.until
        };
        let mut answer = Allowed::Yes;
        for promise in self.promises.iter().filter(in_the_way) {
            if !self.is_open(promise) {
                return Allowed::No;
            }
            answer = Allowed::Maybe;
        }
        answer
    }

    /// Rule 8: debug hosts take unallocated work, and short contracts on one host.
    pub(crate) fn judge_debug_hosts(&mut self, workload: u32, placement: &[(u32, u32)]) {
        let spot = self.spot(workload);
        for &(host, _) in placement {
            if self.is_debug_host(host) {
                let contract = self.contract(workload);
                let good = contract <= DEBUG_CONTRACT_MS && placement.len() == 1;
                let (name, hosts) = (self.host_name(host), placement.len());
                self.findings.check(Check::DebugHosts, spot, good, || {
                    format!("a contract of {contract} ms on {hosts} hosts is on debug host {name}")
                });
            }
        }
    }

    /// Rule 8: one host is the fullest that fits; the rest of a gang is on the fullest of its domain,
    /// and whole hosts are in one domain if one has enough.
    pub(crate) fn judge_fullest(
        &mut self,
        workload: u32,
        placement: &[(u32, u32)],
        is_allocated: bool,
    ) {
        let may_use = |host: u32| {
            let allowed = if is_allocated {
                self.may_use(workload, host)
            } else if self.hosts[host as usize].state == HostState::Up {
                Allowed::Yes
            } else {
                Allowed::No
            };
            allowed == Allowed::Yes
        };
        let hosts = &self.scenario.hosts;
        let pool = self.pools.of(placement[0].0);
        let others = (0..hosts.len() as u32).filter(|&host| {
            self.pools.of(host) == pool
                && placement.iter().all(|place| place.0 != host)
                && may_use(host)
        });
        let size = hosts[placement[0].0 as usize].gpus;
        let partly = match placement {
            [single] => Some((*single, None)),
            _ if self.scenario.workloads[workload as usize].shape.is_some() => None,
            gang => {
                let part = gang.iter().find(|place| place.1 < size).copied();
                part.map(|part| (part, Some(hosts[part.0 as usize].domain)))
            }
        };
        let mut better = None;
        if let Some(((host, gpus), domain)) = partly {
            let (least, most) = self.hosts[host as usize].idle();
            better = others.clone().find(|&other| {
                let (other_least, other_most) = self.hosts[other as usize].idle();
                let same_domain = domain.is_none_or(|d| hosts[other as usize].domain == d);
                let fuller = other_most < least;
                let before = other < host && other_least == other_most && least == most;
                same_domain
                    && other_least >= i64::from(gpus)
                    && (fuller || (before && other_most == least))
            });
            if better.is_some() && self.is_hazy() {
                return self.findings.undecided(Check::Fullest);
            }
            let better = better.map(|b| (self.host_name(b), self.hosts[b as usize].idle().1));
            let (name, spot) = (self.host_name(host), self.spot(workload));
            self.findings.check(Check::Fullest, spot, better.is_none(), || {
                let (other, idle) = better.unwrap_or_default();
                format!(
                    "{gpus} on {name} with {most} idle GPUs, though {other} has {idle} and fits"
                )
            });
        }
        if placement.len() > 1 && better.is_none() {
            self.judge_domains(workload, placement, is_allocated);
        }
    }

    /// Rule 8: the whole hosts of a gang are in one domain if one has enough of them (and a host for
    /// the rest).
    fn judge_domains(&mut self, workload: u32, placement: &[(u32, u32)], is_allocated: bool) {
        let hosts = &self.scenario.hosts;
        let size = hosts[placement[0].0 as usize].gpus;
        let whole = placement.iter().filter(|place| place.1 == size);
        let mut domains: Vec<usize> = whole.map(|p| hosts[p.0 as usize].domain).collect();
        let wanted = domains.len();
        domains.sort_unstable();
        domains.dedup();
        let pool = self.pools.of(placement[0].0);
        let mut found = None;
        if domains.len() > 1 {
            let usable = |host: u32| match is_allocated {
                true => self.may_use(workload, host) == Allowed::Yes,
                false => self.hosts[host as usize].state == HostState::Up,
            };
            let rest = placement.iter().find(|place| place.1 < size).map_or(0, |place| place.1);
            let domain_max = hosts.iter().map(|host| host.domain).max().unwrap_or(0);
            let mut per_domain = vec![(0usize, 0usize); domain_max + 1];
            for host in (0..hosts.len() as u32).filter(|&h| self.pools.of(h) == pool) {
                let idle = self.hosts[host as usize].idle().0;
                if usable(host) {
                    let counts = &mut per_domain[hosts[host as usize].domain];
                    counts.0 += usize::from(idle == i64::from(size));
                    counts.1 += usize::from(idle >= i64::from(rest));
                }
            }
            let needed = wanted + usize::from(rest > 0);
            found = per_domain.iter().position(|counts| counts.0 >= wanted && counts.1 >= needed);
        }
        if found.is_some() && self.is_hazy() {
            return self.findings.undecided(Check::Fullest);
        }
        let (spot, count) = (self.spot(workload), domains.len());
        self.findings.check(Check::Fullest, spot, found.is_none(), || {
            format!("{wanted} whole hosts in {count} domains, though one domain has enough")
        });
    }
}
