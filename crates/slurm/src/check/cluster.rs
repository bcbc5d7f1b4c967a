//! The clients, the daemons, and what `slurm.conf` says that is not of one partition.

use super::{Facts, Finding, Wanted, some};
use crate::client::Program;
use crate::read::Config;
use std::collections::{BTreeMap, BTreeSet};

/// The oldest release that reads as it must.
const OLDEST: (u32, u32) = (22, 5);

/// What Slurm counts although nobody says so.
const COUNTED_ANYWAY: [&str; 8] =
    ["cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"];

/// Whether the clients are there, and young enough.
pub(super) fn clients(facts: &Facts, wanted: &Wanted, found: &mut Vec<Finding>) {
    let (mut versions, mut without) = (BTreeSet::new(), BTreeMap::new());
    for (program, version) in &facts.versions {
        let name = program.name();
        match version {
            Err(why) => without.entry(why).or_insert_with(Vec::new).push(name),
            Ok(said) => {
                let number = said.split_whitespace().last().unwrap_or_default();
                if release(number).is_none_or(|release| release < OLDEST) {
                    found.push(Finding::missing(
                        format!("client {name}"),
                        said.clone(),
                        "22.05 is the oldest release whose answers are known",
                    ));
                }
                versions.insert(number.to_owned());
            }
        }
    }
    for (why, names) in without {
        let through = match wanted.run_by.as_slice() {
            [] => String::new(),
            words => format!(" through '{}' (slurm.run_by)", words.join(" ")),
        };
        found.push(Finding::missing(
            "clients",
            format!("{} cannot be run{through}: {why}", names.join(", ")),
            "Bursar talks to Slurm by its command-line clients alone: they must be on the PATH of this machine (Debian: slurm-client)",
        ));
    }
    let ours: Vec<&str> = versions.iter().map(String::as_str).collect();
    let server = facts.config.as_ref().ok().and_then(|config| config.get("SLURM_VERSION"));
    match (&ours[..], server) {
        ([], _) => {}
        ([one], Some(server)) if *one != server => found.push(Finding::advice(
            "clients",
            format!("{one}, and slurmctld is {server}"),
            "clients of another release than the controller's may be refused",
        )),
        ([one], _) => found.push(Finding::good("clients", *one)),
        (several, _) => found.push(Finding::advice(
            "clients",
            format!("of several releases: {}", several.join(", ")),
            "clients of another release than the controller's may be refused",
        )),
    }
}

/// `22.05.8` as (22, 5).
fn release(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Whether the two daemons answer.
pub(super) fn daemons(facts: &Facts, found: &mut Vec<Finding>) {
    let scontrol = facts.versions.iter().find(|(program, _)| *program == Program::Scontrol);
    match &facts.config {
        // Without scontrol nobody knows.
        Err(_) if scontrol.is_some_and(|(_, version)| version.is_err()) => {}
        Err(why) => found.push(
            Finding::missing("slurmctld", why, "nothing starts or ends without it")
                .command("scontrol ping"),
        ),
        Ok(config) => {
            let cluster = config.get("ClusterName").unwrap_or_default();
            let said = facts.ping.as_ref().unwrap_or_else(|why| why);
            found.push(Finding::good("slurmctld", format!("{said}, cluster {cluster}")));
        }
    }
    let Ok(config) = &facts.config else { return };
    let kind = config.get("AccountingStorageType").unwrap_or("none");
    let why = "what a run is charged are the seconds of its row in the accounts";
    if kind != "accounting_storage/slurmdbd" {
        found.push(
            Finding::missing("slurmdbd", format!("AccountingStorageType is {kind}"), why)
                .line("slurm.conf", "AccountingStorageType=accounting_storage/slurmdbd"),
        );
        return;
    }
    found.push(match &facts.associations {
        Ok(all) => {
            let accounts = all.iter().filter(|one| one.user.is_none()).count().saturating_sub(1);
            Finding::good("slurmdbd", format!("it answers; {accounts} accounts below the root"))
        }
        Err(said) => Finding::missing("slurmdbd", said, why).command("sacctmgr show cluster"),
    });
}

/// What Slurm counts, and what it holds users to.
pub(super) fn accounting(facts: &Facts, config: &Config, found: &mut Vec<Finding>) {
    let counted = config.list("AccountingStorageTRES");
    let mut wanted = vec!["gres/gpu".to_owned()];
    if let Ok(nodes) = &facts.nodes {
        let models: BTreeSet<&str> =
            nodes.iter().filter_map(|node| node.gpus.model.as_deref()).collect();
        wanted.extend(models.iter().map(|model| format!("gres/gpu:{model}")));
    }
    let has = |one: &String| counted.iter().any(|counted| counted.eq_ignore_ascii_case(one));
    let lacks: Vec<&str> = wanted.iter().filter(|one| !has(one)).map(String::as_str).collect();
    if lacks.is_empty() {
        found.push(Finding::good("AccountingStorageTRES", wanted.join(",")));
    } else {
        let said = counted.iter().copied().filter(|one| !COUNTED_ANYWAY.contains(one));
        let line: Vec<&str> = said.chain(lacks.iter().copied()).collect();
        found.push(
            Finding::missing(
                "AccountingStorageTRES",
                format!("{} {} not counted", some(&lacks), if lacks.len() == 1 { "is" } else { "are" }),
                "GPUs that Slurm does not count are not charged; slurmctld must be started again for it",
            )
            .line("slurm.conf", format!("AccountingStorageTRES={}", line.join(","))),
        );
    }
    let enforced = config.list("AccountingStorageEnforce");
    // Limits and QOS go with associations.
    let held = ["associations", "limits", "qos", "safe", "all", "wckeys", "1"];
    if enforced.iter().any(|one| held.contains(one)) {
        found.push(Finding::good("AccountingStorageEnforce", enforced.join(",")));
    } else {
        found.push(
            Finding::advice(
                "AccountingStorageEnforce",
                "users may charge accounts that are not theirs",
                "the account of a job says whose budget it is charged to",
            )
            .line("slurm.conf", "AccountingStorageEnforce=associations,limits,qos"),
        );
    }
}

/// What works as it is, and would work better.
pub(super) fn settings(config: &Config, found: &mut Vec<Finding>) {
    let age_s = config.number("MinJobAge");
    if age_s.is_some_and(|age_s| age_s >= 3600) {
        found.push(Finding::good("MinJobAge", format!("{} s", age_s.unwrap_or_default())));
    } else {
        let is = age_s.map_or("it is not known".to_owned(), |age_s| format!("{age_s} s"));
        found.push(
            Finding::advice(
                "MinJobAge",
                is,
                "a job that saved and left while Bursar was down can be put back as long as slurmctld remembers it",
            )
            .line("slurm.conf", "MinJobAge=3600"),
        );
    }
    scheduler(config, found);
    let kind = config.get("ProctrackType").unwrap_or("none");
    if kind == "proctrack/cgroup" {
        found.push(Finding::good("ProctrackType", kind));
    } else {
        found.push(
            Finding::advice(
                "ProctrackType",
                kind,
                "what escapes from a job outlives it and keeps its GPUs busy",
            )
            .line("slurm.conf", "ProctrackType=proctrack/cgroup"),
        );
    }
    // The gate says of each job whether it may be put back.
    let requeue = config.get("JobRequeue").unwrap_or("not known");
    found.push(Finding::good(
        "JobRequeue",
        format!("{requeue}; the gate sets it for each job as declared"),
    ));
}

fn scheduler(config: &Config, found: &mut Vec<Finding>) {
    let parameters = config.list("SchedulerParameters");
    let value = |key: &str| {
        parameters
            .iter()
            .find_map(|one| one.strip_prefix(key)?.strip_prefix('=')?.parse::<u64>().ok())
    };
    let wanted = [
        ("batch_sched_delay", 1, "starts take up to 3 s after bursts of submissions"),
        ("bf_yield_interval", 200_000, "Slurm's backfill keeps every call waiting for up to 2 s"),
    ];
    let too_long = |(key, most, _): &(&str, u64, &str)| value(key).is_none_or(|is| is > *most);
    let lacks: Vec<_> = wanted.into_iter().filter(too_long).collect();
    if lacks.is_empty() {
        found.push(Finding::good(
            "SchedulerParameters",
            wanted.map(|(key, _, _)| format!("{key}={}", value(key).unwrap_or_default())).join(","),
        ));
        return;
    }
    let is_replaced =
        |one: &str| lacks.iter().any(|(key, _, _)| one.split('=').next() == Some(*key));
    let kept = parameters.iter().filter(|one| !is_replaced(one)).map(|one| (*one).to_owned());
    let added = lacks.iter().map(|(key, most, _)| format!("{key}={most}"));
    let line: Vec<String> = kept.chain(added).collect();
    let is: Vec<String> = lacks
        .iter()
        .map(|(key, _, _)| {
            value(key).map_or(format!("{key} is not set"), |is| format!("{key}={is}"))
        })
        .collect();
    let why: Vec<&str> = lacks.iter().map(|(_, _, why)| *why).collect();
    found.push(
        Finding::advice(
            "SchedulerParameters",
            is.join("; "),
            format!("as it is, {}", why.join(", and ")),
        )
        .line("slurm.conf", format!("SchedulerParameters={}", line.join(","))),
    );
}
