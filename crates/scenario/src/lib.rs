//! Scenarios: a cluster, a budget tree and the work that comes to it, read from YAML.
//!
//! [`load_path`] and [`load_str`] give a [`Scenario`] in which everything is resolved and checked, or
//! a [`ScenarioError`] of one line that names the file, the line and the thing. Workloads come from a
//! list, from trace files (bursar-trace), from seeded generators (`generate/mod.rs` describes the block),
//! or from all of them.
//!
//! Invariants: no input panics or loops; the same text, files and overrides give the same scenario on
//! every machine; amounts never pass through floats, except where generators draw.
//!
//! Absent on purpose: any notion of policy, and any time but milliseconds since the scenario's start.

mod budgets;
mod cluster;
mod error;
mod fields;
mod generate;
mod intake;
mod model;
mod room;
mod settings;
mod traces;
mod workloads;
mod yaml;

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use error::Fault;
use fields::Fields;
use intake::{Intake, World};
use settings::RawSettings;
use traces::Source;

pub use bursar_trace::one_line;
pub use error::{ErrorKind, ScenarioError};
pub use model::{
    BudgetChange, BudgetSpec, Ends, HostEvent, HostEventKind, HostSpec, Kind, ModelSpec, Ran,
    Scenario, Settings, TermSpec, WorkloadSpec,
};

/// The largest scenario text. Half a million workloads fit; more belong in a trace file.
const TEXT_MAX_BYTES: u64 = 128 << 20;

const KEYS: [&str; 8] = [
    "about",
    "cluster",
    "budgets",
    "workloads",
    "settings",
    "hosts_events",
    "budget_changes",
    "seed",
];

/// Reads the scenario in a file. `overrides` are (key, value) pairs as given by `--set key=value`:
/// any key of `settings:`, or `seed`.
pub fn load_path(path: &Path, overrides: &[(String, String)]) -> Result<Scenario, ScenarioError> {
    let name = path.display().to_string();
    let io = |message: String| Fault::whole(ErrorKind::Io, message).into_error(&name);
    let file = File::open(path).map_err(|error| io(error.to_string()))?;
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(io("is a directory".into()));
    }
    let mut bytes = Vec::new();
    file.take(TEXT_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| io(error.to_string()))?;
    if bytes.len() as u64 > TEXT_MAX_BYTES {
        let most = TEXT_MAX_BYTES >> 20;
        return Err(io(format!("larger than {most} MiB; put long workload lists into a CSV file")));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
        Fault::new(ErrorKind::Syntax, line, "not UTF-8 text").into_error(&name)
    })?;
    let base_dir = path.parent().unwrap_or(Path::new(""));
    load_str(&text, base_dir, &name, overrides)
}

/// Reads a scenario from text. `name` stands for it in errors; files that it names are looked up in
/// `base_dir`.
pub fn load_str(
    text: &str,
    base_dir: &Path,
    name: &str,
    overrides: &[(String, String)],
) -> Result<Scenario, ScenarioError> {
    read(text, base_dir, overrides).map_err(|fault| fault.into_error(name))
}

fn read(text: &str, base_dir: &Path, overrides: &[(String, String)]) -> Result<Scenario, Fault> {
    let node = yaml::parse(text)?;
    let block = Fields::of(&node, &KEYS)?;
    let cluster = block.must("cluster", cluster::read)?;
    let sources = match block.get("workloads") {
        Some(node) => workloads::load_sources(node, base_dir)?,
        None => VecDeque::new(),
    };
    let named = sources.iter().flat_map(Source::budgets);
    let mut raw = RawSettings::read(block.get("settings"))?;
    raw.override_with(overrides)?;
    let calendar = raw.calendar()?;
    let budgets = block.must("budgets", |node| budgets::read(node, named, &calendar))?;
    let settings = raw.resolve(cluster.hosts.len())?;
    let seed_in_file = block.opt("seed", |node| fields::whole(node, 0, u64::MAX))?;
    let seed = raw.seed_override().or(seed_in_file).unwrap_or(0);
    let events = block.get("hosts_events").map(|node| cluster::read_events(node, &cluster));
    let changes = block.get("budget_changes").map(|node| budgets::read_changes(node, &budgets));

    // What is wrong with the changes is said after what is wrong with the work.
    let known = changes.as_ref().and_then(|changes| changes.as_ref().ok());
    let known = known.map_or(&[][..], |changes| changes);
    let world = World::new(&cluster, &budgets, known, &settings, seed);
    let mut intake = Intake::default();
    if let Some(node) = block.get("workloads") {
        workloads::read(node, sources, &world, &mut intake)?;
    }
    let (span_ms, notes) = (intake.span_ms, intake.take_notes());
    let (workloads, users) = intake.finish()?;
    Ok(Scenario {
        about: block.opt("about", fields::text)?.map(String::from),
        hosts_events: events.transpose()?.unwrap_or_default(),
        budget_changes: changes.transpose()?.unwrap_or_default(),
        hosts: cluster.hosts,
        models: cluster.models,
        budgets,
        users,
        workloads,
        settings,
        seed,
        span_ms,
        notes,
    })
}
