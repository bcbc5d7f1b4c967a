//! `workloads: FILE`: traces read by bursar-trace, made into workloads.
//!
//! Reading comes before the budgets are known ([`load`]), since `budgets: auto` makes them of what the
//! traces name; checking against budgets and cluster comes after ([`take`]).
//!
//! A trace in a foreign format names no budgets. Its `mapping:` gives them; without one, users go to the
//! leaf that has them as members, and all work to the only leaf if there is but one.

use std::collections::BTreeSet;
use std::path::Path;

use bursar_trace::{
    ContractDefaults, DurationMs, Format, JobKind, JobStatus, MapBy, MapRule, Mapping,
    MinRuntimeDefault, ReadOptions, Trace, TraceJob, read_path,
};
use jiff::tz::TimeZone;

use crate::error::{ErrorKind, Fault, nearest, quote};
use crate::fields::{self, Fields, check_name, duration, flag, list, text};
use crate::intake::{IdOrder, Intake, World};
use crate::model::{Ends, Kind, WorkloadSpec};
use crate::yaml::{Node, Value};

/// How many jobs that do not fit the scenario are listed; the rest are only counted.
const SKIPPED_LISTED_MAX: usize = 20;

/// The keys of a trace.
const KEYS: [&str; 9] = [
    "file",
    "format",
    "skip_bad",
    "unit",
    "columns",
    "time_zone",
    "group_column",
    "groups",
    "mapping",
];

/// A trace that has been read.
pub(crate) struct Source {
    line: usize,
    trace: Trace,
    skip_bad: bool,
    mapped: bool,
}

impl Source {
    /// The budgets that its jobs name.
    pub(crate) fn budgets(&self) -> impl Iterator<Item = &str> {
        self.trace.jobs.iter().filter_map(|job| job.budget.as_deref())
    }
}

/// Reads the file that `node` names: a path, or a block with `file`.
pub(crate) fn load(node: &Node, base_dir: &Path) -> Result<Source, Fault> {
    if let Value::Scalar(_) = node.value {
        return load_with(node, base_dir, ReadOptions::default(), None, None);
    }
    let block = Fields::of(node, &KEYS)?;
    let texts = |node| -> Result<Vec<String>, Fault> {
        list(node)?.iter().map(|item| text(item).map(String::from)).collect()
    };
    let options = ReadOptions {
        format: block.opt("format", parsed)?,
        skip_bad: block.opt("skip_bad", flag)?.unwrap_or(false),
        columns: block.opt("columns", texts)?,
        unit: block.opt("unit", parsed)?.unwrap_or_default(),
        time_zone: block.opt("time_zone", time_zone)?,
        group_column: block.opt("group_column", text)?.map(String::from),
    };
    let groups = block.opt("groups", texts)?;
    let mapping = block.opt("mapping", read_mapping)?;
    block.must("file", |node| load_with(node, base_dir, options, groups, mapping))
}

fn load_with(
    node: &Node,
    base_dir: &Path,
    options: ReadOptions,
    groups: Option<Vec<String>>,
    mapping: Option<Mapping>,
) -> Result<Source, Fault> {
    let trace_fault = |message: String| Fault::new(ErrorKind::Trace, node.line, message);
    let path = base_dir.join(fields::name(node)?);
    // Devices and pipes could block for ever; a scenario is to be read again and again.
    if std::fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(trace_fault(format!("{} is not a file", path.display())));
    }
    let mut trace = read_path(&path, &options).map_err(|error| trace_fault(error.to_string()))?;
    if let Some(groups) = groups {
        keep_groups(&mut trace, &groups).map_err(trace_fault)?;
    }
    if let Some(mapping) = &mapping {
        mapping.apply(&mut trace).map_err(|error| trace_fault(error.to_string()))?;
    }
    let (skip_bad, mapped) = (options.skip_bad, mapping.is_some());
    Ok(Source { line: node.line, trace, skip_bad, mapped })
}

/// Leaves only the jobs of these groups, each of which must have some.
fn keep_groups(trace: &mut Trace, groups: &[String]) -> Result<(), String> {
    let present: BTreeSet<&str> =
        trace.jobs.iter().filter_map(|job| job.group.as_deref()).collect();
    if let Some(group) = groups.iter().find(|group| !present.contains(group.as_str())) {
        let near = quote(nearest(group, present.into_iter()).unwrap_or_default());
        return Err(format!("groups: no job is of group {}; the nearest is {near}", quote(group)));
    }
    let wanted: BTreeSet<&str> = groups.iter().map(String::as_str).collect();
    trace.jobs.retain(|job| job.group.as_deref().is_some_and(|group| wanted.contains(group)));
    Ok(())
}

/// The name of a time zone, for times that name none.
fn time_zone(node: &Node) -> Result<TimeZone, Fault> {
    let name = text(node)?;
    TimeZone::get(name).map_err(|_| {
        let message = format!("there is no time zone {}; one is Asia/Shanghai", quote(name));
        Fault::new(ErrorKind::UnknownName, node.line, message)
    })
}

/// A word that the type itself knows how to read.
fn parsed<T: std::str::FromStr<Err = String>>(node: &Node) -> Result<T, Fault> {
    text(node)?.parse().map_err(|message: String| Fault::value(node.line, message))
}

/// `{by: group, rules: [{pattern: 'a*', budget: p/{}} or 'a*=p/{}'], default: rest, contract: {…}}`.
fn read_mapping(node: &Node) -> Result<Mapping, Fault> {
    let block = Fields::of(node, &["by", "rules", "default", "contract"])?;
    let rules = |node| list(node)?.iter().map(read_rule).collect::<Result<Vec<MapRule>, Fault>>();
    Ok(Mapping {
        by: block.must("by", parsed::<MapBy>)?,
        rules: block.opt("rules", rules)?.unwrap_or_default(),
        default: block.opt("default", text)?.map(String::from),
        contract: block.opt("contract", read_contract)?.unwrap_or_default(),
    })
}

fn read_rule(node: &Node) -> Result<MapRule, Fault> {
    if let Value::Scalar(_) = node.value {
        return parsed(node);
    }
    let block = Fields::of(node, &["pattern", "budget"])?;
    Ok(MapRule {
        pattern: block.must("pattern", text)?.to_owned(),
        budget: block.must("budget", text)?.to_owned(),
    })
}

fn read_contract(node: &Node) -> Result<ContractDefaults, Fault> {
    let keys = ["min_runtime", "resumable_above", "checkpoint_interval", "debug_below"];
    let block = Fields::of(node, &keys)?;
    let default = ContractDefaults::default();
    let span = |key| Ok(block.opt(key, duration)?.map(DurationMs));
    let cap = block.opt("min_runtime", |node| {
        let block = Fields::of(node, &["cap"])?;
        block.must("cap", duration)
    })?;
    Ok(ContractDefaults {
        min_runtime: cap
            .map_or(default.min_runtime, |ms| MinRuntimeDefault { cap: DurationMs(ms) }),
        resumable_above: span("resumable_above")?.unwrap_or(default.resumable_above),
        checkpoint_interval: span("checkpoint_interval")?,
        debug_below: span("debug_below")?,
    })
}

/// Checks the jobs of `source` and takes them in.
pub(crate) fn take(
    mut source: Source,
    world: &World<'_>,
    intake: &mut Intake,
) -> Result<(), Fault> {
    let line = source.line;
    let trace_fault = |message: String| Fault::new(ErrorKind::Trace, line, message);
    let own = source.trace.format == Format::BursarCsv;
    if !own && !source.mapped {
        let mapping = mapping_of(world, &source.trace.name).map_err(trace_fault)?;
        mapping.apply(&mut source.trace).map_err(|error| trace_fault(error.to_string()))?;
    }
    note_what_is_missing(&source.trace, intake);
    let (name, numbering) = (source.trace.name, source.trace.numbering);
    let order = if own { IdOrder::Bytes } else { IdOrder::Rows };
    let mut skipped = 0;
    for job in source.trace.jobs {
        match workload(&job, own, world, intake) {
            Ok(workload) => intake.push(workload, order, 0),
            Err(misfit) => {
                let message = || {
                    let (place, id) = (numbering.place(job.row), quote(&job.id));
                    format!("{name}{place} job {id}: {}", misfit.message(world))
                };
                if !source.skip_bad {
                    return Err(trace_fault(message()));
                }
                skipped += 1;
                if skipped <= SKIPPED_LISTED_MAX {
                    intake.note(&format!("skipped {}", message()));
                }
            }
        }
    }
    if skipped > 0 {
        intake.note(&format!("{name}: {skipped} jobs do not fit the scenario and were skipped"));
    }
    Ok(())
}

/// The mapping of a trace that the scenario gives none for.
fn mapping_of(world: &World<'_>, name: &str) -> Result<Mapping, String> {
    let leaves = || world.budgets.iter().filter(|budget| budget.is_leaf);
    let rules: Vec<MapRule> = leaves()
        .flat_map(|leaf| {
            let budget = &leaf.path;
            leaf.members
                .iter()
                .map(|member| MapRule { pattern: member.clone(), budget: budget.clone() })
        })
        .collect();
    let only = match (leaves().next(), leaves().nth(1)) {
        (Some(leaf), None) => Some(leaf.path.clone()),
        (None, _) | (Some(_), Some(_)) => None,
    };
    if rules.is_empty() && only.is_none() {
        return Err(format!(
            "{name} names no budgets; add a mapping such as {{by: group, default: p/{{}}}}, or members to budgets"
        ));
    }
    Ok(Mapping { by: MapBy::User, rules, default: only, contract: ContractDefaults::default() })
}

/// A person should know what a trace held that the simulation will not.
fn note_what_is_missing(trace: &Trace, intake: &mut Intake) {
    let name = &trace.name;
    let mut note = |count: u64, what: &str| {
        if count > 0 {
            intake.note(&format!("{name}: {count} {what}"));
        }
    };
    note(trace.skipped_count, "broken rows were skipped");
    note(trace.without_gpus, "jobs without GPUs were left out");
    note(trace.never_started, "jobs that never started were left out");
    note(trace.unfinished, "jobs without an end were left out");
    for row in &trace.skipped {
        let place = trace.numbering.place(row.line);
        intake.note(&format!("skipped {name}{place}: {}", row.problem));
    }
    trace.notes.iter().for_each(|note| intake.note(&format!("{name}: {note}")));
}

/// Why a job does not fit the scenario.
enum Misfit<'a> {
    /// No leaf has the path that it names. What it could have meant is looked up only if it is shown: a
    /// trace may name a million.
    NoLeaf(&'a str),
    /// Anything else, as it is shown.
    Other(String),
}

impl Misfit<'_> {
    fn message(&self, world: &World<'_>) -> String {
        match self {
            Self::NoLeaf(path) => format!("budget: {}", world.no_leaf(path)),
            Self::Other(message) => message.clone(),
        }
    }
}

impl From<String> for Misfit<'_> {
    fn from(message: String) -> Self {
        Self::Other(message)
    }
}

fn workload<'a>(
    job: &'a TraceJob,
    own: bool,
    world: &World<'_>,
    intake: &mut Intake,
) -> Result<WorkloadSpec, Misfit<'a>> {
    check_name(&job.id).map_err(|message| format!("id: {message}"))?;
    let path = job.budget.as_deref().ok_or_else(|| "budget: none is named".to_owned())?;
    let budget = world.find_leaf(path).ok_or(Misfit::NoLeaf(path))?;
    let model = job.gpu_model.as_deref().map(|model| world.cluster.model(model)).transpose();
    let model = model.map_err(|message| format!("gpu_model: {message}"))?;
    if job.gpus == 0 {
        return Err("gpus: 0 is not allowed; give at least 1".to_owned().into());
    }
    world.check_gang(job.gpus, model).map_err(|message| format!("gpus: {message}"))?;
    let mut min_runtime_ms = job.min_runtime_ms.unwrap_or(0);
    if own {
        let check = world.check_min_runtime(min_runtime_ms);
        check.map_err(|message| format!("min_runtime: {message}"))?;
    }
    // Elsewhere nobody declared contracts; those that a mapping makes up end at the horizon.
    min_runtime_ms = min_runtime_ms.min(world.settings.horizon_ms);
    let workload = WorkloadSpec {
        id: job.id.as_str().into(),
        tie: 0,
        submit_ms: job.submit_ms,
        budget,
        user: job.user.as_deref().map(|user| intake.user(user)),
        gpus: job.gpus,
        shape: None,
        model: model.map(|model| model as u32),
        runtime_ms: job.runtime_ms,
        min_runtime_ms,
        max_runtime_ms: job.max_runtime_ms.filter(|ms| *ms > 0),
        resumable: job.resumable.unwrap_or(false),
        rank: job.rank.unwrap_or(0),
        kind: match job.kind {
            Some(JobKind::Session) => Kind::Session,
            Some(JobKind::Batch) | None => Kind::Batch,
        },
        checkpoint_interval_ms: job.checkpoint_interval_ms.filter(|ms| *ms > 0),
        checkpoint_on_signal: false,
        save_time_ms: 0,
        grace_ms: None,
        startup_ms: job.startup_ms,
        ran: Box::default(),
        ends: match job.status {
            JobStatus::Completed => Ends::Completed,
            JobStatus::Failed => Ends::Failed,
            JobStatus::Cancelled => Ends::Cancelled,
        },
    };
    world.check_start(&workload).map_err(|(key, message)| format!("{key}: {message}"))?;
    Ok(workload)
}
