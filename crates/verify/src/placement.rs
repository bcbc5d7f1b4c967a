//! Rule 8: where work may be placed; and whether a request fits somewhere.

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
        let model = hosts[placement[0].0 as usize].model;
        if placement.iter().any(|place| hosts[place.0 as usize].model != model) {
            return Some("its hosts are of different models".into());
        }
        if spec.model.is_some_and(|asked| asked as usize != model) {
            return Some(format!("it does not run on {}", self.scenario.models[model].name));
        }
        if let Some((count, each)) = spec.shape {
            let good = placement.len() == count as usize && placement.iter().all(|p| p.1 == each);
            return (!good).then(|| format!("it insists on {count} hosts with {each} GPUs each"));
        }
        if placement.len() == 1 {
            return None;
        }
        let size = |place: &(u32, u32)| hosts[place.0 as usize].gpus;
        if let Some(place) = placement.iter().find(|place| size(place) >= spec.gpus) {
            let (name, count) = (self.host_name(place.0), placement.len());
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

    /// Whether a request is for one host, given that it runs on hosts like this one.
    fn is_single(&self, workload: u32, host: u32) -> bool {
        let spec = &self.scenario.workloads[workload as usize];
        match spec.shape {
            Some((count, _)) => count == 1,
            None => spec.gpus <= self.scenario.hosts[host as usize].gpus,
        }
    }

    /// Rules 7 and 8: whether an allocated request may use a host now.
    pub(crate) fn may_use(&self, workload: u32, host: u32) -> Allowed {
        if self.hosts[host as usize].state != HostState::Up {
            return Allowed::No;
        }
        let contract = self.contract(workload);
        if self.is_debug_host(host)
            && !(contract <= DEBUG_CONTRACT_MS && self.is_single(workload, host))
        {
            return Allowed::No;
        }
        let grace = self.scenario.settings.grace_ms;
        let over = self.now.saturating_add(grace).saturating_add(contract);
        let in_the_way = |promise: &&Promise| {
            promise.holder != workload && promise.hosts.contains(&host) && over > promise.until
        };
        match self.promises.iter().find(in_the_way) {
            None if self.just_ended.iter().any(|promise| in_the_way(&promise)) => Allowed::Maybe,
            None => Allowed::Yes,
            // Its start may be decided, and the reservation be over.
            Some(promise) if self.jobs[promise.holder as usize].hold().is_some() => Allowed::Maybe,
            Some(_) => Allowed::No,
        }
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

    /// GPUs of a host that are neither used nor held: (for certain, at most).
    fn idle(&self, host: u32) -> (i64, i64) {
        let host = &self.hosts[host as usize];
        let taken = |held: i64| (held - host.leaving).max(0);
        let free = host.gpus - host.used;
        (free - taken(host.held + host.maybe_held), free - taken(host.held))
    }

    /// Rule 8: one host is the fullest that fits; the rest of a gang is on the fullest of its domain,
    /// and whole hosts are in one domain if one has enough.
    pub(crate) fn judge_fullest(
        &mut self,
        workload: u32,
        placement: &[(u32, u32)],
        is_allocated: bool,
    ) {
        if self.vague > 0 {
            return self.findings.undecided(Check::Fullest);
        }
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
        let pool = self.pools[placement[0].0 as usize];
        let others = (0..hosts.len() as u32).filter(|&host| {
            self.pools[host as usize] == pool
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
            let (least, most) = self.idle(host);
            better = others.clone().find(|&other| {
                let (other_least, other_most) = self.idle(other);
                let same_domain = domain.is_none_or(|d| hosts[other as usize].domain == d);
                let fuller = other_most < least;
                let before = other < host && other_least == other_most && least == most;
                same_domain
                    && other_least >= i64::from(gpus)
                    && (fuller || (before && other_most == least))
            });
            let better = better.map(|b| (self.host_name(b), self.idle(b).1));
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
        let pool = self.pools[placement[0].0 as usize];
        let mut found = None;
        if domains.len() > 1 {
            let usable = |host: u32| match is_allocated {
                true => self.may_use(workload, host) == Allowed::Yes,
                false => self.hosts[host as usize].state == HostState::Up,
            };
            let rest = placement.iter().find(|place| place.1 < size).map_or(0, |place| place.1);
            let domain_max = hosts.iter().map(|host| host.domain).max().unwrap_or(0);
            let mut per_domain = vec![(0usize, 0usize); domain_max + 1];
            for host in (0..hosts.len() as u32).filter(|&h| self.pools[h as usize] == pool) {
                let idle = self.idle(host).0;
                if usable(host) {
                    let counts = &mut per_domain[hosts[host as usize].domain];
                    counts.0 += usize::from(idle == i64::from(size));
                    counts.1 += usize::from(idle >= i64::from(rest));
                }
            }
            let needed = wanted + usize::from(rest > 0);
            found = per_domain.iter().position(|counts| counts.0 >= wanted && counts.1 >= needed);
        }
        let (spot, count) = (self.spot(workload), domains.len());
        self.findings.check(Check::Fullest, spot, found.is_none(), || {
            format!("{wanted} whole hosts in {count} domains, though one domain has enough")
        });
    }

    /// Whether the GPUs listed, at most one entry a host, can hold a request by the shapes of rule 8.
    pub(crate) fn fits(&self, workload: u32, gpus_of: &[(u32, i64)]) -> bool {
        let spec = &self.scenario.workloads[workload as usize];
        let hosts = &self.scenario.hosts;
        let suits =
            |host: u32| spec.model.is_none_or(|model| model as usize == hosts[host as usize].model);
        if let Some((count, each)) = spec.shape {
            let mut by_model = vec![0u32; self.scenario.models.len()];
            for &(host, gpus) in gpus_of {
                if suits(host) && gpus >= i64::from(each) {
                    by_model[hosts[host as usize].model] += 1;
                }
            }
            return by_model.iter().any(|&found| found >= count);
        }
        // Per pool: whole hosts, and the most that a host used in part can give.
        let mut pools: Vec<(usize, i64, i64, i64)> = Vec::new();
        let wanted = i64::from(spec.gpus);
        for &(host, gpus) in gpus_of {
            if gpus <= 0 || !suits(host) {
                continue;
            }
            let size = i64::from(hosts[host as usize].gpus);
            if wanted <= size {
                if gpus >= wanted {
                    return true;
                }
                continue;
            }
            let number = self.pools[host as usize];
            let index = pools.iter().position(|pool| pool.0 == number).unwrap_or_else(|| {
                pools.push((number, size, 0, 0));
                pools.len() - 1
            });
            if gpus == size {
                pools[index].2 += 1;
            } else {
                pools[index].3 = pools[index].3.max(gpus);
            }
        }
        pools.iter().any(|&(_, size, whole, part)| {
            let (needs, rest) = (wanted / size, wanted % size);
            whole >= needs && (rest == 0 || whole > needs || part >= rest)
        })
    }
}
