//! The `cluster:` block and `hosts_events:`.
//!
//! Host names: a group of one host with a name has that name; a larger group `gpu` is `gpu-0`,
//! `gpu-1` …; groups without a name are named after their model and number on from each other.

use std::collections::BTreeMap;

use crate::error::{ErrorKind, Fault, nearest, quote, some_of};
use crate::fields::{self, Fields, decimal, duration, list, named, whole_u32, word};
use crate::model::{HostEvent, HostEventKind, HostSpec, ModelSpec};
use crate::yaml::Node;

/// The largest cluster that is read: ten times the largest known.
const HOSTS_MAX: u32 = 100_000;
/// The largest host.
const HOST_GPUS_MAX: u32 = 1_024;
/// The dearest GPU, in units of the cheapest that people name.
const RATE_MAX: u64 = 1_000_000;

/// The hosts, the models among them, and the indices from names to both.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) hosts: Vec<HostSpec>,
    pub(crate) models: Vec<ModelSpec>,
    gpus_total: u64,
    by_name: BTreeMap<String, usize>,
    models_by_name: BTreeMap<String, usize>,
    /// Per model how many hosts have it.
    hosts_of_model: Vec<usize>,
    domains: BTreeMap<Option<String>, usize>,
}

impl Cluster {
    /// The place of the host of that name, or why there is none.
    pub(crate) fn host(&self, name: &str) -> Result<usize, String> {
        self.by_name.get(name).copied().ok_or_else(|| {
            let near = nearest(name, self.hosts.iter().map(|host| &*host.name));
            let near = quote(near.unwrap_or_default());
            format!("there is no host {}; the nearest is {near}", quote(name))
        })
    }

    /// All GPUs.
    pub(crate) fn gpus_total(&self) -> u64 {
        self.gpus_total
    }

    /// The model with this name.
    pub(crate) fn model(&self, name: &str) -> Result<usize, String> {
        self.models_by_name.get(name).copied().ok_or_else(|| {
            let names = some_of(self.models.iter().map(|model| &*model.name));
            format!("no host has GPU model {}; there is {names}", quote(name))
        })
    }

    /// The model with this name, which becomes known if it is new.
    fn add_model(&mut self, name: &str) -> usize {
        if let Some(&model) = self.models_by_name.get(name) {
            return model;
        }
        let model = self.models.len();
        self.models.push(ModelSpec { name: name.into(), rate_milli: 1_000 });
        self.models_by_name.insert(name.into(), model);
        self.hosts_of_model.push(0);
        model
    }

    fn add_group(&mut self, node: &Node) -> Result<(), Fault> {
        let group = Fields::of(node, &["count", "gpus", "model", "name", "domain"])?;
        let count = group.opt("count", |node| whole_u32(node, 1, HOSTS_MAX))?.unwrap_or(1);
        let gpus = group.must("gpus", |node| whole_u32(node, 1, HOST_GPUS_MAX))?;
        let model_name = group.must("model", fields::name)?;
        let name = group.opt("name", fields::name)?;
        let domain = group.opt("domain", fields::name)?.map(String::from);
        if self.hosts.len() as u64 + u64::from(count) > u64::from(HOSTS_MAX) {
            return Err(Fault::value(group.line, format!("more than {HOSTS_MAX} hosts in all")));
        }
        let model = self.add_model(model_name);
        let domains = self.domains.len();
        let domain = *self.domains.entry(domain).or_insert(domains);
        let first = match name {
            Some(_) => 0,
            None => self.hosts_of_model[model],
        };
        self.hosts_of_model[model] += count as usize;
        self.gpus_total += u64::from(count) * u64::from(gpus);
        for number in (first..).take(count as usize) {
            let name = match name {
                Some(name) if count == 1 => name.to_owned(),
                Some(name) => format!("{name}-{number}"),
                None => format!("{model_name}-{number}"),
            };
            if self.by_name.insert(name.clone(), self.hosts.len()).is_some() {
                let message = format!("duplicate host {}", quote(&name));
                return Err(Fault::new(ErrorKind::Duplicate, group.line, message));
            }
            self.hosts.push(HostSpec { name, gpus, model, domain });
        }
        Ok(())
    }
}

/// Reads `cluster:`.
pub(crate) fn read(node: &Node) -> Result<Cluster, Fault> {
    let block = Fields::of(node, &["hosts", "rates"])?;
    let mut cluster = Cluster::default();
    let groups = block.must("hosts", list)?;
    for (index, group) in groups.iter().enumerate() {
        cluster.add_group(group).map_err(|fault| fault.within(&format!("hosts[{index}]")))?;
    }
    if cluster.hosts.is_empty() {
        return Err(Fault::new(
            ErrorKind::Missing,
            block.line,
            "hosts: there is not a single host",
        ));
    }
    block.opt("rates", |node| {
        for (key, value) in named(node, "GPU model")? {
            let model = cluster
                .model(&key.text)
                .map_err(|message| Fault::new(ErrorKind::UnknownName, key.line, message))?;
            let rate_milli =
                decimal(value, 3, RATE_MAX).map_err(|fault| fault.within(&key.text))?;
            if rate_milli == 0 {
                let message = format!("{}: 0 is not allowed; nothing is free (rule 1)", key.text);
                return Err(Fault::value(value.line, message));
            }
            cluster.models[model].rate_milli = rate_milli;
        }
        Ok(())
    })?;
    Ok(cluster)
}

/// Reads `hosts_events:`, sorted by time.
pub(crate) fn read_events(node: &Node, cluster: &Cluster) -> Result<Vec<HostEvent>, Fault> {
    let mut events = Vec::new();
    for (index, item) in list(node)?.iter().enumerate() {
        let event = read_event(item, cluster);
        events.push(event.map_err(|fault| fault.within(&format!("hosts_events[{index}]")))?);
    }
    events.sort_by_key(|event| event.at_ms);
    Ok(events)
}

fn read_event(node: &Node, cluster: &Cluster) -> Result<HostEvent, Fault> {
    let block = Fields::of(node, &["at", "host", "event"])?;
    let at_ms = block.must("at", duration)?;
    let host = block.must("host", |node| {
        let found = cluster.host(fields::text(node)?);
        found.map_err(|message| Fault::new(ErrorKind::UnknownName, node.line, message))
    })?;
    let kind = block.must("event", |node| {
        let words = [
            ("fail", HostEventKind::Fail),
            ("repair", HostEventKind::Repair),
            ("drain", HostEventKind::Drain),
        ];
        word(node, &words)
    })?;
    Ok(HostEvent { at_ms, host, kind })
}

/// `debug_hosts` is checked against this: a host that can take anything must remain.
pub(crate) fn check_debug_hosts(debug_hosts: u32, hosts: usize) -> Result<(), String> {
    if debug_hosts as usize >= hosts {
        return Err(format!("{debug_hosts} of {hosts} hosts leaves none for anything else"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml;

    #[test]
    fn groups_are_expanded_and_named() {
        let node = yaml::parse(
            "rates: {b200: 2.5}\nhosts:\n\
             - {count: 2, gpus: 8, model: h100, domain: r1}\n\
             - {gpus: 4, model: b200, name: big}\n\
             - {count: 2, gpus: 4, model: b200, name: small, domain: r1}\n\
             - {count: 1, gpus: 8, model: h100}\n",
        );
        let cluster = read(&node.unwrap()).unwrap();
        let hosts: Vec<_> =
            cluster.hosts.iter().map(|h| (&*h.name, h.gpus, h.model, h.domain)).collect();
        let want = [
            ("h100-0", 8, 0, 0),
            ("h100-1", 8, 0, 0),
            ("big", 4, 1, 1),
            ("small-0", 4, 1, 0),
            ("small-1", 4, 1, 0),
            ("h100-2", 8, 0, 1),
        ];
        assert_eq!(hosts, want);
        assert_eq!((cluster.models[0].rate_milli, cluster.models[1].rate_milli), (1_000, 2_500));
    }
}
