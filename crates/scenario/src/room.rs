//! What of the cluster one workload could ever have (rule 8): hosts of one model and one size, since a gang
//! stays on such; never more than one host for what fits one; and without the debug hosts if it is charged,
//! unless it is short and small. What could never start is a mistake of the scenario's, and said so.

use crate::budgets::is_always_charged;
use crate::cluster::Cluster;
use crate::model::{BudgetChange, BudgetSpec, Settings, WorkloadSpec};

/// Debug hosts take contracts up to this long, on one host.
const DEBUG_CONTRACT_MS: u64 = 15 * 60_000;

/// Hosts of one model and one size.
#[derive(Debug)]
struct Pool {
    model: usize,
    gpus: u32,
    hosts: u32,
    /// How many of these are debug hosts.
    debug: u32,
}

/// The hosts, as far as they matter here.
#[derive(Debug)]
pub(crate) struct Room {
    pools: Vec<Pool>,
    debug_hosts: u32,
    /// Per budget whether its work is charged whenever it starts.
    is_charged: Vec<bool>,
}

/// Which hosts count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hosts {
    All,
    WithoutDebug,
}

impl Pool {
    fn has(&self, hosts: Hosts) -> u32 {
        match hosts {
            Hosts::All => self.hosts,
            Hosts::WithoutDebug => self.hosts - self.debug,
        }
    }
}

impl Room {
    pub(crate) fn new(
        cluster: &Cluster,
        budgets: &[BudgetSpec],
        changes: &[BudgetChange],
        settings: &Settings,
    ) -> Self {
        let mut pools: Vec<Pool> = Vec::new();
        let ordinary = cluster.hosts.len().saturating_sub(settings.debug_hosts as usize);
        for (index, host) in cluster.hosts.iter().enumerate() {
            let same = |pool: &Pool| (pool.model, pool.gpus) == (host.model, host.gpus);
            let at = pools.iter().position(same).unwrap_or_else(|| {
                pools.push(Pool { model: host.model, gpus: host.gpus, hosts: 0, debug: 0 });
                pools.len() - 1
            });
            pools[at].hosts += 1;
            pools[at].debug += u32::from(index >= ordinary);
        }
        let is_charged = is_always_charged(budgets, changes);
        Self { pools, debug_hosts: settings.debug_hosts, is_charged }
    }

    fn of_model(&self, model: Option<usize>) -> impl Iterator<Item = &Pool> {
        self.pools.iter().filter(move |pool| model.is_none_or(|model| model == pool.model))
    }

    /// The largest host that a workload may use.
    fn host_max(&self, model: Option<usize>) -> u32 {
        self.of_model(model).map(|pool| pool.gpus).max().unwrap_or(0)
    }

    /// Whether `gpus` could be had on some of these hosts.
    fn fits(&self, gpus: u32, model: Option<usize>, hosts: Hosts) -> bool {
        let is_single = gpus <= self.host_max(model);
        self.of_model(model).any(|pool| match is_single {
            true => gpus <= pool.gpus && pool.has(hosts) > 0,
            false => gpus.div_ceil(pool.gpus) <= pool.has(hosts),
        })
    }

    /// The most that could be had on some of these hosts.
    fn most(&self, model: Option<usize>, hosts: Hosts) -> u64 {
        let host_max = u64::from(self.host_max(model));
        let of_pool = |pool: &Pool| {
            let (gpus, count) = (u64::from(pool.gpus), u64::from(pool.has(hosts)));
            // What is no more than one host has is never split.
            if gpus * count > host_max { gpus * count } else { gpus * count.min(1) }
        };
        self.of_model(model).map(of_pool).max().unwrap_or(0)
    }

    /// How many hosts of one model and size have at least `gpus_per_host` GPUs.
    fn hosts_with(&self, gpus_per_host: u32, model: Option<usize>, hosts: Hosts) -> u32 {
        let large = self.of_model(model).filter(|pool| pool.gpus >= gpus_per_host);
        large.map(|pool| pool.has(hosts)).max().unwrap_or(0)
    }

    /// Whether a gang of `gpus` could be placed on the idle cluster; if not, why, and what to do.
    pub(crate) fn check_gang(&self, gpus: u32, model: Option<(usize, &str)>) -> Result<(), String> {
        let index = model.map(|(index, _)| index);
        if self.fits(gpus, index, Hosts::All) {
            return Ok(());
        }
        let most = self.most(index, Hosts::All);
        let of = model.map_or("one model and".into(), |(_, name)| format!("'{name}' and one"));
        Err(format!(
            "{gpus} is more than the cluster has for one workload: hosts of {of} size have {most} \
             together (rule 8); ask for at most {most}, or declare more hosts"
        ))
    }

    /// Whether `hosts` hosts with `gpus_per_host` GPUs on each could be had; if not, why, and what to do.
    pub(crate) fn check_shape(
        &self,
        hosts: u32,
        gpus_per_host: u32,
        model: Option<usize>,
    ) -> Result<(), String> {
        let there = self.hosts_with(gpus_per_host, model, Hosts::All);
        if hosts <= there {
            return Ok(());
        }
        Err(format!(
            "{hosts} hosts with {gpus_per_host} GPUs each are asked for; of one model and size there are \
             {there} (rule 8); ask for fewer, or declare more hosts"
        ))
    }

    /// Whether a workload that fits the idle cluster could start where the debug hosts are not for it. If not,
    /// the key at fault, why, and what to do.
    pub(crate) fn check_start(&self, spec: &WorkloadSpec) -> Result<(), (&'static str, String)> {
        let contract_ms = spec.min_runtime_ms.min(spec.max_runtime_ms.unwrap_or(u64::MAX));
        let model = spec.model.map(|model| model as usize);
        let is_single = match spec.shape {
            Some((hosts, _)) => hosts == 1,
            None => spec.gpus <= self.host_max(model),
        };
        let is_debug = is_single && contract_ms <= DEBUG_CONTRACT_MS;
        if contract_ms == 0 || is_debug || !self.is_charged[spec.budget as usize] {
            return Ok(());
        }
        let debug = match self.debug_hosts {
            1 => "the last host is a debug host, which takes".into(),
            count => format!("the last {count} hosts are debug hosts, which take"),
        };
        let debug = format!("{debug} contracts of at most 15m on one host");
        let remedy = "ask for fewer, for min_runtime: 0, or for fewer debug_hosts in settings";
        if let Some((hosts, each)) = spec.shape {
            let there = self.hosts_with(each, model, Hosts::WithoutDebug);
            let message = || {
                format!("{hosts} can never start: {debug}, and there are {there} others; {remedy}")
            };
            return if hosts <= there { Ok(()) } else { Err(("hosts", message())) };
        }
        let gpus = spec.gpus;
        if self.fits(gpus, model, Hosts::WithoutDebug) {
            return Ok(());
        }
        let most = self.most(model, Hosts::WithoutDebug);
        let others = match u64::from(gpus) < most {
            true => "none of the others is large enough for what is never split".into(),
            false => format!("the others have at most {most} for one workload"),
        };
        Err(("gpus", format!("{gpus} can never start: {debug}, and {others}; {remedy}")))
    }
}
