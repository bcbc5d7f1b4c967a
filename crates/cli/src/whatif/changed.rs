//! The history as it would be: with another tree, other settings, another cluster. The head of the scenario (all but its
//! workloads) is read again with what is changed, so that everything is checked as in any scenario; the workloads of the
//! history are then put into it.

use crate::args::WhatIfArgs;
use crate::budget::read_tree;
use crate::failure::Failure;
use bursar_scenario::{Scenario, WorkloadSpec};
use bursar_site::BudgetDoc;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A history as it would be.
#[derive(Debug)]
pub(super) struct Changed {
    pub(super) scenario: Scenario,
    /// What is other than it is, in a few words each.
    pub(super) what: Vec<String>,
    /// What could not be taken over, a sentence each.
    pub(super) notes: Vec<String>,
}

/// The text of a scenario without its workloads, and whether it has any.
pub(super) fn head_of(text: &str) -> (&str, bool) {
    match text.split_once("\nworkloads:") {
        Some((head, rest)) => (head, !rest.trim_start().starts_with("[]")),
        None => (text, false),
    }
}

/// The history `base`, whose scenario begins with `head`, with what `args` change.
pub(super) fn changed(head: &str, base: &Scenario, args: &WhatIfArgs) -> Result<Changed, Failure> {
    let mut what: Vec<String> =
        args.overrides.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let mut notes = Vec::new();
    let mut sections = Sections::of(head);
    if let Some(file) = &args.change {
        let tree = read_tree(&read(file)?).map_err(|error| wrong(file, &error))?;
        sections.set("budgets", tree_json(&tree));
        sections.drop("budget_changes");
        what.push(format!("the budgets of {}", file.display()));
    }
    if args.changes_cluster() {
        let (cluster, told) = cluster(args)?;
        sections.set("cluster", cluster);
        // They name hosts that are no more.
        if sections.drop("hosts_events") {
            notes.push(
                "hosts that failed or were drained are left out: the cluster is another".into(),
            );
        }
        if !args.overrides.iter().any(|(key, _)| key == "debug_hosts")
            && base.settings.debug_hosts > 0
        {
            sections.drop_setting("debug_hosts");
            notes.push("debug_hosts: 3 % of the hosts from 32 hosts on, as the cluster is another (--set debug_hosts)".into());
        }
        what.push(told);
    }
    let mut scenario = sections.load(args)?;
    let budgets = budgets(&scenario, base, args)?;
    let models = models(&scenario, base);
    let (mut shortened, mut lost) = (0u64, 0u64);
    let mut workloads = Vec::with_capacity(base.workloads.len());
    for spec in &base.workloads {
        let model = match spec.model.map(|model| models[model as usize]) {
            Some(None) => {
                lost += 1;
                continue;
            }
            Some(Some(model)) => Some(model),
            None => None,
        };
        let horizon_ms = scenario.settings.horizon_ms;
        shortened += u64::from(spec.min_runtime_ms > horizon_ms);
        workloads.push(WorkloadSpec {
            budget: budgets[spec.budget as usize],
            model,
            min_runtime_ms: spec.min_runtime_ms.min(horizon_ms),
            grace_ms: spec.grace_ms.filter(|&grace| grace <= scenario.settings.grace_ms),
            ran: Box::default(),
            ..spec.clone()
        });
    }
    let fits = scenario.check_room(&workloads);
    let mut fits = fits.iter().map(Result::is_ok);
    let all = workloads.len();
    workloads.retain(|_| fits.next().unwrap_or(true));
    lost += (all - workloads.len()) as u64;
    let mut tell = |count: u64, told: &str| {
        if count > 0 {
            let plural = if count == 1 { "" } else { "s" };
            notes.push(format!("{count} workload{plural} {told}"));
        }
    };
    tell(shortened, "would have had a shorter contract: the horizon, as more may not be declared");
    tell(lost, "left out of what is changed: no host of that cluster could hold them");
    if workloads.is_empty() {
        return Err(Failure::input("no workload of the history fits that cluster"));
    }
    scenario.users.clone_from(&base.users);
    scenario.workloads = workloads;
    Ok(Changed { scenario, what, notes })
}

fn read(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(|error| wrong(file, &error.to_string()))
}

fn wrong(file: &Path, told: &str) -> Failure {
    Failure::input(format!("{}: {told}", file.display()))
}

/// The cluster that is asked for, as a scenario has it, and in a few words.
fn cluster(args: &WhatIfArgs) -> Result<(Value, String), Failure> {
    let Some(file) = &args.cluster else {
        let group = |one: &crate::args::Hosts| json!({ "count": one.count, "gpus": one.gpus, "model": one.model });
        let hosts: Vec<Value> = args.hosts.iter().map(group).collect();
        let words = |one: &crate::args::Hosts| format!("{}x{}x{}", one.count, one.gpus, one.model);
        let told: Vec<String> = args.hosts.iter().map(words).collect();
        return Ok((json!({ "hosts": hosts }), format!("hosts {}", told.join(" "))));
    };
    let text = read(file)?;
    let mut whole: Value = bursar_site::yaml::read(&text).map_err(|error| wrong(file, &error))?;
    let block = match whole.get_mut("cluster") {
        Some(block) => block.take(),
        None => whole,
    };
    if !block["hosts"].is_array() {
        let told =
            "give the hosts of the cluster, such as: hosts: [{count: 16, gpus: 8, model: h100}]";
        return Err(wrong(file, told));
    }
    Ok((block, format!("the cluster of {}", file.display())))
}

/// A tree as a scenario has it: who owns what says nothing there.
fn tree_json(tree: &BTreeMap<String, BudgetDoc>) -> Value {
    let budget = |budget: &BudgetDoc| {
        let mut fields = Map::new();
        fields.insert("share".into(), json!(budget.share));
        if !budget.members.is_empty() {
            fields.insert("members".into(), json!(budget.members));
        }
        if let Some(limit) = budget.limit {
            fields.insert("limit".into(), json!(limit.round() as u64));
        }
        if !budget.terms.is_empty() {
            fields.insert("terms".into(), json!(budget.terms));
        }
        if !budget.children.is_empty() {
            fields.insert("children".into(), tree_json(&budget.children));
        }
        Value::Object(fields)
    };
    tree.iter().map(|(name, one)| (name.clone(), budget(one))).collect::<Map<_, _>>().into()
}

/// The blocks of a scenario that `bursar export` wrote: each begins at the beginning of a line.
struct Sections<'a> {
    all: Vec<(&'a str, String)>,
}

impl<'a> Sections<'a> {
    fn of(head: &'a str) -> Self {
        let mut all: Vec<(&str, String)> = Vec::new();
        for line in head.lines().filter(|line| !line.starts_with('#')) {
            let begins = !line.starts_with([' ', '-']);
            match (line.split_once(':'), all.last_mut()) {
                (Some((key, _)), _) if begins => all.push((key, format!("{line}\n"))),
                (_, Some((_, text))) => *text += &format!("{line}\n"),
                (_, None) => {}
            }
        }
        Self { all }
    }

    fn set(&mut self, key: &'a str, value: Value) {
        self.drop(key);
        self.all.push((key, format!("{key}: {value}\n")));
    }

    fn drop(&mut self, key: &str) -> bool {
        let before = self.all.len();
        self.all.retain(|(other, _)| *other != key);
        self.all.len() < before
    }

    fn drop_setting(&mut self, key: &str) {
        for (_, text) in self.all.iter_mut().filter(|(section, _)| *section == "settings") {
            let others =
                text.lines().filter(|line| !line.trim_start().starts_with(&format!("{key}:")));
            *text = others.map(|line| format!("{line}\n")).collect();
        }
    }

    /// The scenario without any work.
    fn load(&self, args: &WhatIfArgs) -> Result<Scenario, Failure> {
        let head: String = self.all.iter().map(|(_, text)| text.as_str()).collect();
        let load = |workloads: &str| {
            let text = format!("{head}workloads: {workloads}\n");
            bursar_scenario::load_str(&text, Path::new("."), "what is changed", &args.overrides)
        };
        // A scenario has work: one of its own, whose budget is any leaf. Which there are is said by its budgets alone.
        let leaf = leaf(&head).unwrap_or_default();
        let work = json!([{ "id": "none", "submit": 0, "budget": leaf, "gpus": 1, "runtime": 1 }]);
        let mut scenario = load(&work.to_string()).map_err(Failure::input)?;
        scenario.workloads.clear();
        Ok(scenario)
    }
}

/// A budget without any below it.
fn leaf(head: &str) -> Option<String> {
    let whole: Value = bursar_site::yaml::read(head).ok()?;
    let mut level = whole.get("budgets")?.as_object()?;
    let mut path = Vec::new();
    loop {
        let (name, budget) = level.iter().next()?;
        path.push(name.as_str());
        match budget.get("children").and_then(Value::as_object).filter(|below| !below.is_empty()) {
            Some(below) => level = below,
            None => return Some(path.join("/")),
        }
    }
}

/// For each budget of the history its place in the changed tree.
fn budgets(changed: &Scenario, base: &Scenario, args: &WhatIfArgs) -> Result<Vec<u32>, Failure> {
    let places: BTreeMap<&str, u32> = (0..)
        .zip(&changed.budgets)
        .filter(|(_, one)| one.is_leaf)
        .map(|(at, one)| (&*one.path, at))
        .collect();
    for (old, new) in &args.moves {
        if base.budget_index(old).is_none() {
            return Err(Failure::input(format!("--move: the history has no budget '{old}'")));
        }
        if !places.contains_key(new.as_str()) {
            return Err(Failure::input(format!(
                "--move: '{new}' is no budget of the new tree without others below it"
            )));
        }
    }
    let moved = |path: &str| {
        let found = args.moves.iter().rev().find(|(old, _)| old == path);
        found.map_or_else(|| path.to_owned(), |(_, new)| new.clone())
    };
    let mut works = vec![0u64; base.budgets.len()];
    base.workloads.iter().for_each(|spec| works[spec.budget as usize] += 1);
    let place = |path: &str| places.get(moved(path).as_str()).copied();
    let homeless: Vec<String> = base
        .budgets
        .iter()
        .zip(&works)
        .filter(|(one, count)| **count > 0 && place(&one.path).is_none())
        .map(|(one, count)| format!("{} ({count})", one.path))
        .collect();
    if let Some(first) = homeless.first() {
        let name = first.split(' ').next().unwrap_or_default();
        return Err(Failure::input(format!(
            "--change: budgets of the history with workloads are none of the new tree, or have others below them there: {}; keep them, or say whose their work is with --move {name}=NEW",
            homeless.join(", ")
        )));
    }
    Ok(base.budgets.iter().map(|one| place(&one.path).unwrap_or(0)).collect())
}

/// For each GPU model of the history its place in the changed cluster, if it has any of it.
fn models(changed: &Scenario, base: &Scenario) -> Vec<Option<u32>> {
    let place = |name: &str| changed.models.iter().position(|model| model.name == name);
    base.models.iter().map(|model| place(&model.name).map(|at| at as u32)).collect()
}
