//! The hosts, and cordons.

use super::SlurmEngine;
use super::look::unreadable;
use crate::read::{Mark, Node, node_call, read_nodes};
use bursar_engine::{Error, ErrorKind, HostFacts};
use std::time::Instant;

/// What the reason of a drain of ours begins with.
const OURS: &str = "bursar:";

impl SlurmEngine {
    pub(super) fn look_at_nodes(&mut self) -> Result<(), Error> {
        let mark = Mark::new();
        let call = node_call(&self.options.partitions, &mark);
        let answer = self.run(&call)?;
        self.nodes = read_nodes(&answer, &mark).map_err(|why| unreadable(&call, &why))?;
        let now = Instant::now();
        let silent = self.nodes.iter().filter(|node| node.is_silent());
        self.silent_since = silent
            .map(|node| {
                let since = self.silent_since.get(&node.name).copied().unwrap_or(now);
                (node.name.clone(), since)
            })
            .collect();
        Ok(())
    }

    pub(super) fn see_hosts(&mut self) -> Result<Vec<HostFacts>, Error> {
        self.look_at_nodes()?;
        self.hold()?;
        let cordons = self.records.cordons()?;
        let facts = |node: &Node| {
            let silent = self.silent_since.get(&node.name);
            let silent = silent.is_some_and(|since| since.elapsed() > self.options.silence_max);
            HostFacts {
                name: node.name.clone(),
                gpus: node.gpus.count,
                model: node.gpus.model.clone().unwrap_or_default(),
                healthy: !node.is_broken() && !silent,
                closed: (node.drains() && !is_ours(node)).then(|| {
                    let reason = node.reason.as_deref().unwrap_or("no reason is given");
                    format!("drained in Slurm: {reason}")
                }),
                cordoned: cordons.contains(&node.name) || is_ours(node),
            }
        };
        Ok(self.nodes.iter().map(facts).collect())
    }

    /// The node of that name, as it is now.
    fn node(&mut self, host: &str) -> Result<Node, Error> {
        self.look_at_nodes()?;
        let node = self.nodes.iter().find(|node| node.name == host).cloned();
        node.ok_or_else(|| {
            Error::new(ErrorKind::Unknown, format!("there is no host {}", host.escape_debug()))
        })
    }

    pub(super) fn cordon_host(&mut self, host: &str, why: &str) -> Result<(), Error> {
        let node = self.node(host)?;
        let mut cordons = self.records.cordons()?;
        if !cordons.iter().any(|one| one == host) {
            cordons.push(host.to_owned());
            self.records.set_cordons(&cordons)?;
        }
        // What an administrator drained stays as he left it.
        if !node.drains() {
            let (node, why) = (format!("NodeName={host}"), crate::client::one_line(why));
            self.scontrol(["update", &node, "State=DRAIN", &format!("Reason={OURS} {why}")])?;
        }
        Ok(())
    }

    pub(super) fn uncordon_host(&mut self, host: &str) -> Result<(), Error> {
        let node = self.node(host)?;
        if is_ours(&node) {
            self.scontrol(["update", &format!("NodeName={host}"), "State=RESUME"])?;
        }
        let mut cordons = self.records.cordons()?;
        if cordons.iter().any(|one| one == host) {
            cordons.retain(|one| one != host);
            self.records.set_cordons(&cordons)?;
        }
        Ok(())
    }
}

fn is_ours(node: &Node) -> bool {
    node.drains() && node.reason.as_deref().is_some_and(|reason| reason.starts_with(OURS))
}
