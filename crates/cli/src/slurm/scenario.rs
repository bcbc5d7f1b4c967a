//! A scenario of a cluster of Slurm, for a history that was read from it.

use super::init::{Tree, yaml};
use crate::failure::Failure;
use bursar_server::settings::SettingsWanted;
use bursar_slurm::read::Node;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Hosts of one kind, one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Hosts {
    count: u32,
    gpus: u32,
    model: String,
}

/// The hosts with GPUs, in their order; names are not kept.
pub(super) fn hosts(nodes: &[Node]) -> Vec<Hosts> {
    let mut groups: Vec<Hosts> = Vec::new();
    for node in nodes.iter().filter(|node| node.gpus.count > 0) {
        let model = node.gpus.model.clone().unwrap_or_else(|| "gpu".to_owned());
        match groups.last_mut() {
            Some(last) if last.gpus == node.gpus.count && last.model == model => last.count += 1,
            Some(_) | None => groups.push(Hosts { count: 1, gpus: node.gpus.count, model }),
        }
    }
    groups
}

/// A budget as scenarios have it: without people.
#[derive(Debug, Serialize)]
struct Budget {
    share: bursar_site::budgets::Share,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    children: BTreeMap<String, Budget>,
}

fn budgets(tree: &Tree) -> BTreeMap<String, Budget> {
    let budget = |doc: &bursar_site::BudgetDoc| Budget {
        share: doc.share,
        limit: doc.limit.map(|hours| hours.round() as u64),
        children: budgets(&doc.children),
    };
    tree.iter().map(|(name, doc)| (name.clone(), budget(doc))).collect()
}

#[derive(Debug, Serialize)]
struct Scenario<'a> {
    about: &'a str,
    cluster: Cluster<'a>,
    budgets: BTreeMap<String, Budget>,
    settings: BTreeMap<&'static str, serde_json::Value>,
    workloads: Workloads<'a>,
}

#[derive(Debug, Serialize)]
struct Cluster<'a> {
    hosts: &'a [Hosts],
}

#[derive(Debug, Serialize)]
struct Workloads<'a> {
    file: &'a str,
    format: &'a str,
    /// What the cluster has no room for any more is left out, and said so.
    skip_bad: bool,
    group_column: &'a str,
    mapping: Mapping<'a>,
}

#[derive(Debug, Serialize)]
struct Mapping<'a> {
    by: &'a str,
    rules: Vec<Rule<'a>>,
    contract: BTreeMap<&'static str, serde_json::Value>,
}

#[derive(Debug, Serialize)]
struct Rule<'a> {
    pattern: &'a str,
    budget: &'a str,
}

/// What a scenario is made of.
pub(super) struct Parts<'a> {
    pub(super) about: &'a str,
    pub(super) hosts: &'a [Hosts],
    pub(super) tree: &'a Tree,
    pub(super) settings: SettingsWanted,
    /// The file of the history, beside the scenario.
    pub(super) history: &'a str,
    /// Its column that names budgets.
    pub(super) column: &'a str,
    /// The budgets that it names.
    pub(super) charged: &'a BTreeSet<String>,
}

/// The scenario as text.
pub(super) fn text(parts: &Parts<'_>) -> Result<String, Failure> {
    let rules = parts.charged.iter().map(|path| Rule { pattern: path, budget: path }).collect();
    let cap_ms = parts.settings.default_min_runtime_ms.unwrap_or(3_600_000);
    let contract = BTreeMap::from([("min_runtime", serde_json::json!({ "cap": span(cap_ms) }))]);
    let scenario = Scenario {
        about: parts.about,
        cluster: Cluster { hosts: parts.hosts },
        budgets: budgets(parts.tree),
        settings: settings(&parts.settings),
        workloads: Workloads {
            file: parts.history,
            format: "sacct",
            skip_bad: true,
            group_column: parts.column,
            mapping: Mapping { by: "group", rules, contract },
        },
    };
    let head = "# Made by `bursar slurm import`. docs/formats.md has every key, docs/traces.md what becomes of a history.\n\
                # Slurm's jobs declared no contracts: `contract` makes them up.\n";
    Ok(head.to_owned() + &yaml(&scenario)?)
}

/// Those that the configuration gives; the others have their defaults.
fn settings(wanted: &SettingsWanted) -> BTreeMap<&'static str, serde_json::Value> {
    let mut found = BTreeMap::new();
    let spans = [
        ("lookback", wanted.lookback_ms),
        ("horizon", wanted.horizon_ms),
        ("grace", wanted.grace_ms),
        ("reservation_age", wanted.reservation_age_ms),
    ];
    for (key, ms) in spans {
        if let Some(ms) = ms {
            found.insert(key, span(ms).into());
        }
    }
    if let Some(margin) = wanted.margin_ppm {
        found.insert("margin", (margin as f64 / 1e6).into());
    }
    for (key, count) in [("reservations", wanted.reservations), ("debug_hosts", wanted.debug_hosts)]
    {
        if let Some(count) = count {
            found.insert(key, count.into());
        }
    }
    found
}

fn span(ms: u64) -> String {
    bursar_site::declare::span_text(ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bursar_slurm::read::{Mark, read_nodes};

    #[test]
    fn hosts_are_grouped_in_their_order() {
        let answer = "n1@@idle@@gpu:h100:8@@none@@(null)@@gpu@@\nn2@@idle@@gpu:h100:8@@none@@(null)@@gpu@@\nn3@@idle@@(null)@@none@@(null)@@gpu@@\nn4@@idle@@gpu:4@@none@@(null)@@gpu@@\nn5@@idle@@gpu:h100:8@@none@@(null)@@gpu@@\n";
        let nodes = read_nodes(answer.as_bytes(), &Mark::of("@@")).unwrap();
        let shown: Vec<String> = hosts(&nodes)
            .iter()
            .map(|one| format!("{}x{} {}", one.count, one.gpus, one.model))
            .collect();
        assert_eq!(shown, ["2x8 h100", "1x4 gpu", "1x8 h100"]);
    }

    #[test]
    fn a_scenario_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let tree: Tree = bursar_site::yaml::read(
            "a: {share: 0.5, limit: 7, owners: [x], children: {'a-b': {share: 1, members: [y]}}}",
        )
        .unwrap();
        let settings = SettingsWanted {
            lookback_ms: Some(86_400_000),
            margin_ppm: Some(50_000),
            ..SettingsWanted::default()
        };
        let parts = Parts {
            about: "p: of \"c\"",
            hosts: &[Hosts { count: 2, gpus: 8, model: "h100".into() }],
            tree: &tree,
            settings,
            history: "history.txt",
            column: "Budget",
            charged: &BTreeSet::from(["a/a-b".to_owned()]),
        };
        let row = "JobID|Submit|State|ElapsedRaw|AllocTRES|Budget\n1|2026-01-01T00:00:00Z|COMPLETED|90|gres/gpu:h100=4|a/a-b\n2|2026-01-01T00:00:00Z|COMPLETED|90|gres/gpu=40|a/a-b\n";
        std::fs::write(folder.path().join("history.txt"), row).unwrap();
        std::fs::write(folder.path().join("scenario.yaml"), text(&parts).unwrap()).unwrap();
        let read = bursar_scenario::load_path(&folder.path().join("scenario.yaml"), &[]).unwrap();
        assert_eq!(read.workloads.len(), 1);
        assert!(
            read.notes.iter().any(|note| note.contains("1 jobs do not fit")),
            "{:?}",
            read.notes
        );
    }
}
