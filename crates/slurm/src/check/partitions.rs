//! The governed partitions, their nodes, and what waits and runs there.

use super::{Facts, Finding, Wanted, some};
use crate::read::{Config, Job, JobState, Partition};
use std::collections::{BTreeMap, BTreeSet};

/// Whether the partitions are there, and Bursar's alone.
pub(super) fn partitions(
    facts: &Facts,
    wanted: &Wanted,
    config: &Config,
    found: &mut Vec<Finding>,
) {
    let all = match &facts.partitions {
        Ok(all) => all,
        Err(said) => {
            found.push(Finding::missing(
                "partitions",
                said,
                "nothing can be governed that cannot be seen",
            ));
            return;
        }
    };
    for name in &wanted.partitions {
        let about = format!("partition {name}");
        let Some(one) = all.iter().find(|one| one.name == *name) else {
            let there: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
            found.push(Finding::missing(
                about,
                format!("there is no such partition; there are {}", some(&there)),
                format!("jobs of partitions are what is governed; put it right in {}", wanted.file),
            ));
            continue;
        };
        found.push(gpus(facts, one, about));
        if one.state != "UP" {
            found.push(
                Finding::missing(
                    format!("partition {name}"),
                    format!("it is {}", one.state),
                    "Slurm starts nothing in it",
                )
                .command(format!("scontrol update PartitionName={name} State=UP")),
            );
        }
        if let Some(others) = sharing(one, all, wanted) {
            found.push(others);
        }
    }
    preemption(facts, wanted, all, config, found);
    jobs(facts, found);
}

/// How many GPUs a partition has.
fn gpus(facts: &Facts, one: &Partition, about: String) -> Finding {
    let nodes = match &facts.nodes {
        Ok(nodes) => nodes,
        Err(said) => return Finding::missing(about, said, "work is placed on nodes"),
    };
    let names: BTreeSet<&str> = one.nodes.iter().map(String::as_str).collect();
    let here: Vec<_> = nodes.iter().filter(|node| names.contains(node.name.as_str())).collect();
    let mut kinds: BTreeMap<(u32, &str), u32> = BTreeMap::new();
    for node in here.iter().filter(|node| node.gpus.count > 0) {
        let model = node.gpus.model.as_deref().unwrap_or("gpu");
        *kinds.entry((node.gpus.count, model)).or_insert(0) += 1;
    }
    let total: u64 = here.iter().map(|node| u64::from(node.gpus.count)).sum();
    if total == 0 {
        return Finding::missing(
            about,
            format!("{} nodes, none with a GPU", here.len()),
            "Bursar divides GPUs; nodes name theirs by Gres=gpu:MODEL:N and a gres.conf",
        );
    }
    let kinds: Vec<String> = kinds
        .iter()
        .map(|((gpus, model), nodes)| format!("{nodes} nodes with {gpus} {model}"))
        .collect();
    let mut said = format!("{total} GPUs: {}", kinds.join(", "));
    let idle: Vec<&str> =
        here.iter().filter(|node| node.gpus.count == 0).map(|node| node.name.as_str()).collect();
    if !idle.is_empty() {
        said = format!("{said}; none on {}", some(&idle));
    }
    let out: Vec<&str> = here
        .iter()
        .filter(|node| node.is_broken() || node.drains() || node.is_silent())
        .map(|node| node.name.as_str())
        .collect();
    if !out.is_empty() {
        said = format!("{said}; out of service: {}", some(&out));
    }
    Finding::good(about, said)
}

/// Whether partitions that are not governed have the same nodes.
fn sharing(one: &Partition, all: &[Partition], wanted: &Wanted) -> Option<Finding> {
    let nodes: BTreeSet<&String> = one.nodes.iter().collect();
    let shares = |other: &&Partition| {
        !wanted.partitions.contains(&other.name)
            && other.nodes.iter().any(|node| nodes.contains(node))
    };
    let others: Vec<&str> = all.iter().filter(shares).map(|other| other.name.as_str()).collect();
    if others.is_empty() {
        return None;
    }
    let governed: Vec<&str> =
        wanted.partitions.iter().map(String::as_str).chain(others.iter().copied()).collect();
    let plural = if others.len() == 1 { "has" } else { "have" };
    Some(
        Finding::advice(
            format!("partition {}", one.name),
            format!("{} {plural} nodes of it, and {} not governed", some(&others), if others.len() == 1 { "is" } else { "are" }),
            "jobs there take GPUs unseen: starts that were planned do not happen, and nobody is charged",
        )
        .line(&*wanted.file, format!("partitions: [{}]", governed.join(", "))),
    )
}

/// Whether Slurm itself has jobs leave.
fn preemption(
    facts: &Facts,
    wanted: &Wanted,
    all: &[Partition],
    config: &Config,
    found: &mut Vec<Finding>,
) {
    const ABOUT: &str = "PreemptType";
    const WHY: &str =
        "two would preempt: Slurm by its own rules takes GPUs from work that Bursar protects";
    let kind = config.get(ABOUT).unwrap_or("preempt/none");
    match kind {
        "preempt/none" => found.push(Finding::good(ABOUT, kind)),
        "preempt/qos" => match &facts.preempting {
            Ok(pairs) if pairs.is_empty() => {
                found.push(Finding::good(ABOUT, format!("{kind}, and no QOS displaces another")));
            }
            Ok(pairs) => {
                for (name, others) in pairs {
                    found.push(
                        Finding::missing(
                            ABOUT,
                            format!("{kind}: QOS {name} displaces jobs of {others}"),
                            WHY,
                        )
                        .command(format!("sacctmgr modify qos {name} set preempt=''")),
                    );
                }
            }
            Err(said) => found.push(Finding::advice(
                ABOUT,
                format!("{kind}; which QOS displaces which cannot be found out: {said}"),
                WHY,
            )),
        },
        _ => {
            let governed = all.iter().filter(|one| wanted.partitions.contains(&one.name));
            let on: Vec<&Partition> = governed.filter(|one| one.preempt_mode != "OFF").collect();
            if on.is_empty() {
                found.push(Finding::good(ABOUT, format!("{kind}, and off in what is governed")));
            }
            for one in on {
                found.push(
                    Finding::missing(
                        ABOUT,
                        format!(
                            "{kind}, with PreemptMode={} in partition {}",
                            one.preempt_mode, one.name
                        ),
                        WHY,
                    )
                    .line("slurm.conf", format!("PartitionName={} … PreemptMode=OFF", one.name)),
                );
            }
        }
    }
}

/// What is in the queue already.
fn jobs(facts: &Facts, found: &mut Vec<Finding>) {
    const ABOUT: &str = "jobs";
    let jobs = match &facts.jobs {
        Ok(jobs) => jobs,
        Err(said) => {
            found.push(Finding::missing(
                ABOUT,
                said,
                "they cannot be governed if they cannot be seen",
            ));
            return;
        }
    };
    if jobs.is_empty() {
        found.push(Finding::good(ABOUT, "none waits or runs in what is to be governed"));
        return;
    }
    let waits = |job: &&Job| job.state == JobState::Pending;
    let waiting = jobs.iter().filter(waits).count();
    let new: Vec<&Job> = jobs.iter().filter(|job| job.note.is_none()).collect();
    let both = format!("{waiting} wait, {} run", jobs.len() - waiting);
    if new.is_empty() {
        found.push(Finding::good(ABOUT, format!("{both}; all came through the gate")));
        return;
    }
    let loose = new.iter().filter(|job| job.state == JobState::Pending && !job.held).count();
    let mut said =
        format!("{both}; {} came before the gate, and bursar up takes them in", new.len());
    if loose > 0 {
        said = format!("{said}; {loose} of them are not on hold");
    }
    if loose == 0 {
        found.push(Finding::good(ABOUT, said));
        return;
    }
    let mut ids: Vec<&str> = new
        .iter()
        .filter(|job| job.state == JobState::Pending && !job.held)
        .map(|job| job.id.split('_').next().unwrap_or(&job.id))
        .collect();
    ids.dedup();
    ids.truncate(50);
    found.push(
        Finding::advice(
            ABOUT,
            said,
            "Slurm may start those itself at any moment, before their turn",
        )
        .command(format!("scontrol hold {}", ids.join(","))),
    );
}
