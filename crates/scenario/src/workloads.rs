//! `workloads:` and the items of a list. Files are read by [`crate::traces`], generator blocks by
//! [`crate::generate`].

use std::collections::VecDeque;
use std::path::Path;

use crate::error::{ErrorKind, Fault, quote};
use crate::fields::{self, Fields, duration, duration_positive, flag, text, whole_u32, word};
use crate::generate;
use crate::intake::{IdOrder, Intake, World, show_ms};
use crate::model::{Ends, Kind, Ran, WorkloadSpec};
use crate::traces::{Source, load, take};
use crate::yaml::{Node, Value};

/// No gang is larger than the largest cluster that is read.
const GPUS_MAX: u32 = 102_400_000;

const KEYS: [&str; 21] = [
    "id",
    "submit",
    "budget",
    "user",
    "gpus",
    "hosts",
    "gpus_per_host",
    "gpu_model",
    "runtime",
    "min_runtime",
    "max_runtime",
    "resumable",
    "rank",
    "kind",
    "checkpoint_interval",
    "checkpoint_on_signal",
    "save_time",
    "grace",
    "startup",
    "status",
    "ran",
];

/// Reads the trace files that `workloads:` names, in order.
pub(crate) fn load_sources(node: &Node, base_dir: &Path) -> Result<VecDeque<Source>, Fault> {
    match &node.value {
        Value::Scalar(_) => Ok(VecDeque::from([load(node, base_dir).map_err(within)?])),
        Value::Map(_) if is_generator(node) => Ok(VecDeque::new()),
        Value::Map(_) => Ok(VecDeque::from([load(node, base_dir).map_err(within)?])),
        Value::Null => Ok(VecDeque::new()),
        Value::List(items) => items
            .iter()
            .enumerate()
            .filter(|(_, item)| is_file(item))
            .map(|(index, item)| load(item, base_dir).map_err(|f| f.within(&label(index, item))))
            .collect(),
    }
}

/// Reads `workloads:` into `intake`; `sources` are those that [`load_sources`] gave.
pub(crate) fn read(
    node: &Node,
    mut sources: VecDeque<Source>,
    world: &World<'_>,
    intake: &mut Intake,
) -> Result<(), Fault> {
    let mut next_source = |intake: &mut Intake| match sources.pop_front() {
        Some(source) => take(source, world, intake),
        None => Ok(()),
    };
    match &node.value {
        Value::Null => Ok(()),
        Value::Map(_) if is_generator(node) => read_generator(node, world, intake).map_err(within),
        Value::Scalar(_) | Value::Map(_) => next_source(intake).map_err(within),
        Value::List(items) => {
            for (index, item) in items.iter().enumerate() {
                let read = if is_generator(item) {
                    read_generator(item, world, intake)
                } else if is_file(item) {
                    next_source(intake)
                } else {
                    read_item(item, world, intake)
                };
                read.map_err(|fault| fault.within(&label(index, item)))?;
            }
            Ok(())
        }
    }
}

fn within(fault: Fault) -> Fault {
    fault.within("workloads")
}

/// `workloads[3] 'run-7'`.
fn label(index: usize, item: &Node) -> String {
    match entry(item, "id").map(|node| &node.value) {
        Some(Value::Scalar(id)) => format!("workloads[{index}] {}", quote(id)),
        Some(_) | None => format!("workloads[{index}]"),
    }
}

fn entry<'a>(item: &'a Node, key: &str) -> Option<&'a Node> {
    let Value::Map(entries) = &item.value else { return None };
    entries.iter().find(|(present, _)| &*present.text == key).map(|(_, node)| node)
}

fn is_file(item: &Node) -> bool {
    entry(item, "file").is_some()
}

fn is_generator(item: &Node) -> bool {
    entry(item, "generate").is_some()
}

fn read_generator(node: &Node, world: &World<'_>, intake: &mut Intake) -> Result<(), Fault> {
    let block = Fields::of(node, &["generate"])?;
    block.must("generate", |node| generate::read(node, world, intake))
}

/// One workload of a list.
fn read_item(node: &Node, world: &World<'_>, intake: &mut Intake) -> Result<(), Fault> {
    let block = Fields::of(node, &KEYS)?;
    let value = |key: &str, message: String| {
        let line = block.get(key).map_or(block.line, |node| node.line);
        Fault::value(line, format!("{key}: {message}"))
    };
    let id = block.must("id", fields::name)?;
    let submit_ms = block.must("submit", duration)?;
    let budget = block.must("budget", |node| {
        world.leaf(text(node)?).map_err(|message| unknown_name(node, message))
    })?;
    let model = block.opt("gpu_model", |node| {
        world.cluster.model(text(node)?).map_err(|message| unknown_name(node, message))
    })?;
    let (gpus, shape) = read_size(&block, world, model)?;
    let min_runtime_ms = block.opt("min_runtime", duration)?.unwrap_or(0);
    world.check_min_runtime(min_runtime_ms).map_err(|message| value("min_runtime", message))?;
    let grace_ms = block.opt("grace", duration)?;
    if grace_ms.is_some_and(|grace_ms| grace_ms > world.settings.grace_ms) {
        let most = show_ms(world.settings.grace_ms);
        return Err(value("grace", format!("the cluster grants at most {most} (settings: grace)")));
    }
    let workload = WorkloadSpec {
        id: id.into(),
        tie: 0,
        submit_ms,
        budget,
        user: block.opt("user", fields::name)?.map(|user| intake.user(user)),
        gpus,
        shape,
        model: model.map(|model| model as u32),
        runtime_ms: block.must("runtime", duration_positive)?,
        min_runtime_ms,
        max_runtime_ms: block.opt("max_runtime", duration_positive)?,
        resumable: block.opt("resumable", flag)?.unwrap_or(false),
        rank: block.opt("rank", rank)?.unwrap_or(0),
        kind: block.opt("kind", kind)?.unwrap_or(Kind::Batch),
        checkpoint_interval_ms: block.opt("checkpoint_interval", duration_positive)?,
        checkpoint_on_signal: block.opt("checkpoint_on_signal", flag)?.unwrap_or(false),
        save_time_ms: block.opt("save_time", duration)?.unwrap_or(0),
        grace_ms,
        startup_ms: block.opt("startup", duration)?,
        ends: block.opt("status", ends)?.unwrap_or(Ends::Completed),
        ran: block.opt("ran", |node| ran(node, world, submit_ms, gpus))?.unwrap_or_default(),
    };
    world.check_start(&workload).map_err(|(key, message)| value(key, message))?;
    intake.push(workload, IdOrder::Bytes, block.line);
    Ok(())
}

/// `ran: [{start: 10, end: 70, on: {n1: 8}}]`: what its attempts really were.
fn ran(node: &Node, world: &World<'_>, submit_ms: u64, gpus: u32) -> Result<Box<[Ran]>, Fault> {
    let mut ran: Vec<Ran> = Vec::new();
    for item in fields::list(node)? {
        let block = Fields::of(item, &["start", "end", "on"])?;
        let earliest = match ran.last() {
            None => submit_ms,
            Some(Ran { end_ms: Some(end_ms), .. }) => *end_ms,
            Some(_) => return Err(Fault::value(item.line, "the attempt before it has no end")),
        };
        let start_ms = block.must("start", duration)?;
        let end_ms = block.opt("end", duration)?;
        if start_ms < earliest || end_ms.is_some_and(|end_ms| end_ms <= start_ms) {
            let message = "an attempt starts after its submission and after the end of the one before, and ends later";
            return Err(Fault::value(item.line, message));
        }
        let on = block.must("on", |node| {
            let mut on = Vec::new();
            for (host, count) in fields::named(node, "host")? {
                let line = host.line;
                let host = world
                    .cluster
                    .host(&host.text)
                    .map_err(|message| Fault::new(ErrorKind::UnknownName, line, message))?;
                on.push((host as u32, whole_u32(count, 1, GPUS_MAX)?));
            }
            Ok(on)
        })?;
        if on.iter().map(|&(_, count)| u64::from(count)).sum::<u64>() != u64::from(gpus) {
            let message = format!("on: the hosts' GPUs are not {gpus} together");
            return Err(Fault::value(item.line, message));
        }
        ran.push(Ran { start_ms, end_ms, on: on.into() });
    }
    Ok(ran.into())
}

fn unknown_name(node: &Node, message: String) -> Fault {
    Fault::new(ErrorKind::UnknownName, node.line, message)
}

/// `gpus`, or `hosts` and `gpus_per_host`, or all three if they agree.
fn read_size(
    block: &Fields<'_>,
    world: &World<'_>,
    model: Option<usize>,
) -> Result<(u32, Option<(u32, u32)>), Fault> {
    let count = |key: &str| block.opt(key, |node| whole_u32(node, 1, GPUS_MAX));
    let (gpus, hosts, gpus_per_host) = (count("gpus")?, count("hosts")?, count("gpus_per_host")?);
    let fault = |key: &str, message: String| {
        let line = block.get(key).map_or(block.line, |node| node.line);
        Fault::value(line, format!("{key}: {message}"))
    };
    let (hosts, gpus_per_host) = match (hosts, gpus_per_host) {
        (None, None) => {
            let gpus = gpus.ok_or_else(|| block.missing("gpus"))?;
            world.check_gang(gpus, model).map_err(|message| fault("gpus", message))?;
            return Ok((gpus, None));
        }
        (Some(hosts), Some(gpus_per_host)) => (hosts, gpus_per_host),
        (Some(_), None) => return Err(block.missing("gpus_per_host")),
        (None, Some(_)) => return Err(block.missing("hosts")),
    };
    let check = world.check_shape(hosts, gpus_per_host, model);
    check.map_err(|message| fault("hosts", message))?;
    let product = u64::from(hosts) * u64::from(gpus_per_host);
    match u32::try_from(product) {
        Ok(product) if gpus.is_none_or(|gpus| gpus == product) => {
            Ok((product, Some((hosts, gpus_per_host))))
        }
        Ok(_) | Err(_) => {
            let message = format!("hosts x gpus_per_host is {product}; leave gpus out");
            Err(fault("gpus", message))
        }
    }
}

pub(crate) fn rank(node: &Node) -> Result<i32, Fault> {
    let given = text(node)?;
    parse_rank(given).map_err(|message| Fault::value(node.line, message))
}

pub(crate) fn parse_rank(given: &str) -> Result<i32, String> {
    let digits = given.strip_prefix('-').unwrap_or(given);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{} is not a whole number", quote(given)));
    }
    given.parse().map_err(|_| format!("{} does not fit 32 bits", quote(given)))
}

pub(crate) fn kind(node: &Node) -> Result<Kind, Fault> {
    word(node, &[("batch", Kind::Batch), ("session", Kind::Session)])
}

fn ends(node: &Node) -> Result<Ends, Fault> {
    let words =
        [("completed", Ends::Completed), ("failed", Ends::Failed), ("cancelled", Ends::Cancelled)];
    word(node, &words)
}
