//! Rule 8, as to what is possible at all: in which pools a request may be placed, what it takes there, and
//! whether given GPUs are enough for it. Hosts of one model and one size form a pool; a gang stays inside one.

use bursar_scenario::{Scenario, WorkloadSpec};
use std::collections::BTreeMap;

/// GPUs that a host could give: (host, how many).
pub(crate) type Offer = (u32, i64);

/// All hosts, sorted into pools.
#[derive(Debug)]
pub(crate) struct Pools {
    of_host: Vec<usize>,
    /// In the order in which their first hosts were declared.
    pools: Vec<Pool>,
}

#[derive(Debug)]
struct Pool {
    model: usize,
    /// GPUs of each host.
    gpus: u32,
    hosts: usize,
    /// The first of them.
    first: u32,
}

/// What a request takes of the hosts of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// So many GPUs of one host.
    One(u32),
    /// `each` GPUs of so many hosts, and `rest` GPUs of one more (0 for none).
    Gang { hosts: usize, each: u32, rest: u32 },
}

impl Pools {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let (mut known, mut pools) = (BTreeMap::new(), Vec::<Pool>::new());
        let of_host = scenario.hosts.iter().zip(0..).map(|(host, first)| {
            let pool = *known.entry((host.model, host.gpus)).or_insert_with(|| {
                pools.push(Pool { model: host.model, gpus: host.gpus, hosts: 0, first });
                pools.len() - 1
            });
            pools[pool].hosts += 1;
            pool
        });
        Self { of_host: of_host.collect(), pools }
    }

    /// The pool of a host.
    pub(crate) fn of(&self, host: u32) -> usize {
        self.of_host[host as usize]
    }

    /// What a request takes on hosts like this one; none if it may not be placed there. What fits one host
    /// of any pool that it may use is never split, and never on hosts that are too small for it.
    pub(crate) fn wants(&self, spec: &WorkloadSpec, host: u32) -> Option<Wants> {
        let may_use = |pool: &Pool| spec.model.is_none_or(|model| model as usize == pool.model);
        let pool = &self.pools[self.of(host)];
        if !may_use(pool) {
            return None;
        }
        if let Some((hosts, each)) = spec.shape {
            let wants = match hosts {
                1 => Wants::One(each),
                _ => Wants::Gang { hosts: hosts as usize, each, rest: 0 },
            };
            return (each <= pool.gpus && hosts as usize <= pool.hosts).then_some(wants);
        }
        if spec.gpus <= pool.gpus {
            return Some(Wants::One(spec.gpus));
        }
        let fits_one = self.pools.iter().any(|pool| may_use(pool) && spec.gpus <= pool.gpus);
        let (hosts, rest) = ((spec.gpus / pool.gpus) as usize, spec.gpus % pool.gpus);
        let fits = !fits_one && hosts + usize::from(rest > 0) <= pool.hosts;
        fits.then_some(Wants::Gang { hosts, each: pool.gpus, rest })
    }

    /// Whether a request may be placed in any pool.
    pub(crate) fn could_hold(&self, spec: &WorkloadSpec) -> bool {
        self.pools.iter().any(|pool| self.wants(spec, pool.first).is_some())
    }

    /// Whether what these hosts offer, each named at most once, is enough for a request.
    pub(crate) fn fits(&self, spec: &WorkloadSpec, offers: &[Offer]) -> bool {
        // Per pool: hosts that can give what the gang takes of each, and the most that any other has.
        let mut tallies: Vec<(usize, usize, i64)> = Vec::new();
        for &(host, gpus) in offers.iter().filter(|offer| offer.1 > 0) {
            match self.wants(spec, host) {
                None => {}
                Some(Wants::One(wanted)) if gpus >= i64::from(wanted) => return true,
                Some(Wants::One(_)) => {}
                Some(Wants::Gang { hosts, each, rest }) => {
                    let pool = self.of(host);
                    let known = tallies.iter().position(|tally| tally.0 == pool);
                    let at = known.unwrap_or_else(|| {
                        tallies.push((pool, 0, 0));
                        tallies.len() - 1
                    });
                    let (_, whole, other) = &mut tallies[at];
                    if gpus >= i64::from(each) {
                        *whole += 1;
                    } else {
                        *other = (*other).max(gpus);
                    }
                    let has_rest = rest == 0 || *whole > hosts || *other >= i64::from(rest);
                    if *whole >= hosts && has_rest {
                        return true;
                    }
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Whether a request (as written in a scenario) fits what these hosts offer, on a cluster of three hosts
    /// of 3 GPUs, one of 4 (a0 to a2, a3) and two of 4 of another model (b0, b1: 4 and 5).
    fn fits(request: &str, offers: &[Offer]) -> bool {
        let text = format!(
            "cluster: {{hosts: [{{count: 3, gpus: 3, model: a}}, {{gpus: 4, model: a}}, \
             {{count: 2, gpus: 4, model: b}}]}}\nbudgets: {{p: 1}}\nworkloads:\n  \
             - {{id: w, submit: 0s, budget: p, runtime: 1h, {request}}}"
        );
        let scenario = bursar_scenario::load_str(&text, Path::new(""), "test", &[]).expect("good");
        Pools::new(&scenario).fits(&scenario.workloads[0], offers)
    }

    #[test]
    fn what_fits_one_host_is_never_split() {
        assert!(fits("gpus: 4", &[(3, 4)]));
        assert!(fits("gpus: 4", &[(4, 4)]));
        assert!(!fits("gpus: 4", &[(0, 3), (1, 3), (2, 3), (3, 3)]));
        assert!(fits("gpus: 3", &[(0, 2), (4, 3)]));
    }

    #[test]
    fn a_gang_stays_in_one_pool() {
        // 5 are 3 + 2 on the small hosts, 4 + 1 on those of the other model; a3 is alone in its pool.
        assert!(fits("gpus: 5", &[(0, 3), (1, 2)]));
        assert!(fits("gpus: 5", &[(4, 4), (5, 1)]));
        assert!(!fits("gpus: 5", &[(0, 3), (3, 4), (5, 4)]));
        assert!(!fits("gpus: 5, gpu_model: a", &[(4, 4), (5, 4), (0, 3)]));
        assert!(!fits("gpus: 5", &[(0, 2), (1, 2), (2, 2)]));
        assert!(fits("gpus: 9", &[(0, 3), (1, 3), (2, 3)]));
    }

    #[test]
    fn an_explicit_shape_is_kept() {
        assert!(fits("hosts: 2, gpus_per_host: 2", &[(0, 2), (1, 3)]));
        assert!(!fits("hosts: 2, gpus_per_host: 2", &[(0, 2), (3, 2), (4, 2)]));
        assert!(fits("hosts: 1, gpus_per_host: 4", &[(3, 4)]));
        assert!(!fits("hosts: 1, gpus_per_host: 4", &[(0, 4)]));
    }
}
