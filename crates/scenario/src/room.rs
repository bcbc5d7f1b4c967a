//! What of the cluster one workload could ever have (rule 8): hosts of one model and one size, since a gang
//! stays on such; never more than one host for what fits one; and without the debug hosts if it is charged,
//! unless it is short and small. What could never start is a mistake of the scenario's, and said so.

use std::collections::BTreeMap;

use crate::budgets::is_always_charged;
use crate::model::{
    BudgetChange, BudgetSpec, HostSpec, ModelSpec, Scenario, Settings, WorkloadSpec,
};

/// Debug hosts take contracts up to this long, on one host.
const DEBUG_CONTRACT_MS: u64 = 15 * 60_000;

/// The hosts, as far as they matter here.
#[derive(Debug)]
pub(crate) struct Room {
    of_any: Extent,
    of_model: Vec<Extent>,
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

/// What there is of some pools, each of hosts of one model and one size.
#[derive(Clone, Debug, Default)]
struct Extent {
    /// The largest host.
    host_max: u32,
    all: Bounds,
    without_debug: Bounds,
}

/// The most that one workload could have of some pools.
#[derive(Clone, Debug, Default)]
struct Bounds {
    /// On one host.
    on_one: u32,
    /// On all hosts of one pool.
    on_pool: u64,
    /// By the size of hosts, the most hosts of that size in one pool.
    hosts: BTreeMap<u32, u32>,
}

impl Bounds {
    fn add(&mut self, size: u32, hosts: u32) {
        if hosts == 0 {
            return;
        }
        self.on_one = self.on_one.max(size);
        self.on_pool = self.on_pool.max(u64::from(size) * u64::from(hosts));
        let most = self.hosts.entry(size).or_default();
        *most = hosts.max(*most);
    }
}

impl Extent {
    fn add(&mut self, size: u32, hosts: u32, debug: u32) {
        self.host_max = self.host_max.max(size);
        self.all.add(size, hosts);
        self.without_debug.add(size, hosts - debug);
    }

    fn bounds(&self, hosts: Hosts) -> &Bounds {
        match hosts {
            Hosts::All => &self.all,
            Hosts::WithoutDebug => &self.without_debug,
        }
    }

    /// The most that could be had on some of these hosts. What is no more than one host has is never split.
    fn most(&self, hosts: Hosts) -> u64 {
        let bounds = self.bounds(hosts);
        match bounds.on_pool > u64::from(self.host_max) {
            true => bounds.on_pool,
            false => u64::from(bounds.on_one),
        }
    }

    /// Whether `gpus` could be had on some of these hosts.
    fn fits(&self, gpus: u32, hosts: Hosts) -> bool {
        let bounds = self.bounds(hosts);
        match gpus <= self.host_max {
            true => gpus <= bounds.on_one,
            false => u64::from(gpus) <= bounds.on_pool,
        }
    }

    /// How many hosts of one model and size have at least `gpus_per_host` GPUs.
    fn hosts_with(&self, gpus_per_host: u32, hosts: Hosts) -> u32 {
        let large = self.bounds(hosts).hosts.range(gpus_per_host..);
        large.map(|(_, &hosts)| hosts).max().unwrap_or(0)
    }
}

impl Room {
    pub(crate) fn new(
        (hosts, models): (&[HostSpec], &[ModelSpec]),
        budgets: &[BudgetSpec],
        changes: &[BudgetChange],
        settings: &Settings,
    ) -> Self {
        // Per model and size: how many hosts, and how many of these are debug hosts.
        let mut pools: BTreeMap<(usize, u32), (u32, u32)> = BTreeMap::new();
        let ordinary = hosts.len().saturating_sub(settings.debug_hosts as usize);
        for (index, host) in hosts.iter().enumerate() {
            let (hosts, debug) = pools.entry((host.model, host.gpus)).or_default();
            *hosts += 1;
            *debug += u32::from(index >= ordinary);
        }
        let mut room = Self {
            of_any: Extent::default(),
            of_model: vec![Extent::default(); models.len()],
            debug_hosts: settings.debug_hosts,
            is_charged: is_always_charged(budgets, changes),
        };
        for ((model, size), (hosts, debug)) in pools {
            room.of_any.add(size, hosts, debug);
            room.of_model[model].add(size, hosts, debug);
        }
        room
    }

    fn of(&self, model: Option<usize>) -> &Extent {
        model.map_or(&self.of_any, |model| &self.of_model[model])
    }

    /// Whether a gang of `gpus` could be placed on the idle cluster; if not, why, and what to do.
    pub(crate) fn check_gang(&self, gpus: u32, model: Option<(usize, &str)>) -> Result<(), String> {
        let extent = self.of(model.map(|(index, _)| index));
        if extent.fits(gpus, Hosts::All) {
            return Ok(());
        }
        let most = extent.most(Hosts::All);
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
        let there = self.of(model).hosts_with(gpus_per_host, Hosts::All);
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
        let extent = self.of(spec.model.map(|model| model as usize));
        let is_single = match spec.shape {
            Some((hosts, _)) => hosts == 1,
            None => spec.gpus <= extent.host_max,
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
            let there = extent.hosts_with(each, Hosts::WithoutDebug);
            let message = || {
                format!("{hosts} can never start: {debug}, and there are {there} others; {remedy}")
            };
            return if hosts <= there { Ok(()) } else { Err(("hosts", message())) };
        }
        let gpus = spec.gpus;
        if extent.fits(gpus, Hosts::WithoutDebug) {
            return Ok(());
        }
        let most = extent.most(Hosts::WithoutDebug);
        let others = match u64::from(gpus) < most {
            true => "none of the others is large enough for what is never split".into(),
            false => format!("the others have at most {most} for one workload"),
        };
        Err(("gpus", format!("{gpus} can never start: {debug}, and {others}; {remedy}")))
    }
}

impl Scenario {
    /// For each of these workloads whether it could ever start on this cluster, under these budgets and settings; if
    /// not, the key at fault, why, and what to do. What is read from a file always could: this is for work that comes from
    /// another cluster.
    pub fn check_room(&self, specs: &[WorkloadSpec]) -> Vec<Result<(), String>> {
        let (cluster, changes) = ((&*self.hosts, &*self.models), &self.budget_changes);
        let room = Room::new(cluster, &self.budgets, changes, &self.settings);
        let check = |spec: &WorkloadSpec| {
            let model = spec.model.map(|model| model as usize);
            match spec.shape {
                Some((hosts, each)) => room
                    .check_shape(hosts, each, model)
                    .map_err(|message| format!("hosts: {message}"))?,
                None => {
                    let named = model.map(|model| (model, &*self.models[model].name));
                    room.check_gang(spec.gpus, named)
                        .map_err(|message| format!("gpus: {message}"))?;
                }
            }
            room.check_start(spec).map_err(|(key, message)| format!("{key}: {message}"))
        };
        specs.iter().map(check).collect()
    }
}
