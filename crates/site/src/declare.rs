//! What a workload declares: the YAML that people write, and what is kept of it.

use crate::budgets::is_name;
use crate::error::Refused;
use crate::plain::{obeyed, printable};
use crate::record::SettingsDoc;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// A file with one workload.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadFile {
    /// The workload.
    pub workload: WorkloadDoc,
}

/// A workload as people write it. Durations are texts such as `8h` or `1h30m`, or numbers of seconds.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadDoc {
    /// A name for people.
    #[schema(min_length = 1, max_length = 128, example = "llm-pretrain-run-42")]
    pub name: String,
    /// GPUs of the whole gang.
    #[schema(minimum = 1, example = 64)]
    pub gpus: u32,
    /// The contract's length: protected from preemption until then.
    #[serde(default)]
    pub min_runtime: Option<Duration>,
    /// Whether it can continue from a checkpoint.
    #[serde(default)]
    pub resumable: Option<bool>,
    /// The budget that pays.
    #[schema(example = "program-a/a1")]
    pub budget_owner: String,
    /// What to run.
    #[serde(default)]
    #[schema(example = json!(["./train.sh"]))]
    pub command: Vec<String>,
    /// The GPU model that it must have.
    #[serde(default)]
    pub gpu_model: Option<String>,
    /// With `gpus_per_host`: an explicit shape.
    #[serde(default)]
    pub hosts: Option<u32>,
    /// With `hosts`: an explicit shape.
    #[serde(default)]
    pub gpus_per_host: Option<u32>,
    /// For whom it runs; the submitter unless given.
    #[serde(default)]
    pub user: Option<String>,
    /// Orders the workloads of one budget, high first.
    #[serde(default)]
    pub rank: i32,
    /// `batch` or `session`.
    #[serde(default)]
    pub kind: Kind,
    /// How long it needs to save and leave, at most the site's.
    #[serde(default)]
    pub grace: Option<Duration>,
    /// How often it saves by itself.
    #[serde(default)]
    pub checkpoint_interval: Option<Duration>,
    /// Whether it saves on the checkpoint signal.
    #[serde(default)]
    pub checkpoint_on_signal: bool,
    /// It is ended at this age.
    #[serde(default)]
    pub max_runtime: Option<Duration>,
    /// CPUs.
    #[serde(default)]
    pub cpus: Option<u32>,
    /// Memory in bytes, or with a unit such as `64GiB`.
    #[serde(default)]
    pub memory: Option<Bytes>,
    /// Environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Where it runs.
    #[serde(default)]
    pub workdir: Option<String>,
    /// Free words of the submitter.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Workloads that must have ended before.
    #[serde(default)]
    pub after: Vec<After>,
    /// Many of a kind: `0-9`, `1,3,5-7`, or `0-99%4` for at most four of them at once.
    #[serde(default)]
    pub array: Option<Array>,
}

/// Batch work, or somebody sits at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A job.
    #[default]
    Batch,
    /// A shell, notebook or editor.
    Session,
}

/// A workload that must have ended before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct After {
    /// Its number.
    pub workload: u64,
    /// How it must have ended.
    #[serde(default)]
    pub when: When,
}

/// How a workload that another waits for must have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// With success.
    #[default]
    Ok,
    /// In any way.
    Any,
}

/// The elements of an array, and how many of them may be in the queue or run at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// Their indices, ascending.
    pub indices: Vec<u64>,
    /// At most so many at once.
    pub at_once: Option<u32>,
}

/// Which element of an array a workload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Element {
    /// The array: the number of its first workload. The others' follow it without gaps.
    pub array: u64,
    /// Its index, as `BURSAR_ARRAY_INDEX` tells it.
    pub index: u64,
    /// How many workloads the array has.
    pub size: u32,
    /// At most so many of them at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_once: Option<u32>,
}

/// How many elements an array may have.
const ARRAY_MAX: usize = 10_000;

impl Array {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            let text = printable(text);
            format!("'{text}' is no array: write 0-9, 1,3,5-7 or 0-99%4 (at most 4 at once)")
        };
        let (list, at_once) = match text.trim().split_once('%') {
            None => (text.trim(), None),
            Some((list, most)) => match most.trim().parse() {
                Ok(most) if most > 0 => (list, Some(most)),
                _ => return Err(wrong()),
            },
        };
        let mut indices = std::collections::BTreeSet::new();
        for part in list.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let index = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
            let (first, last) = (index(first)?, index(last)?);
            if first > last {
                return Err(wrong());
            }
            if last - first >= ARRAY_MAX as u32 || indices.len() > ARRAY_MAX {
                return Err(format!("an array has at most {ARRAY_MAX} elements"));
            }
            indices.extend((first..=last).map(u64::from));
        }
        if indices.len() > ARRAY_MAX {
            return Err(format!("an array has at most {ARRAY_MAX} elements"));
        }
        Ok(Self { indices: indices.into_iter().collect(), at_once })
    }
}

impl<'de> Deserialize<'de> for Array {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match TextOrNumber::deserialize(deserializer)? {
            TextOrNumber::Text(text) => text,
            TextOrNumber::Number(index) => index.to_string(),
        };
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// A span of time, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(pub u64);

/// An amount of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

/// Text or number: how people write spans and amounts.
fn text_or_number(example: &str, says: &str) -> RefOr<Schema> {
    let text = ObjectBuilder::new().schema_type(Type::String);
    let number = ObjectBuilder::new().schema_type(Type::Number).minimum(Some(0));
    let one = OneOfBuilder::new()
        .item(text)
        .item(number)
        .description(Some(says))
        .examples([example])
        .build();
    Schema::OneOf(one).into()
}

impl PartialSchema for Duration {
    fn schema() -> RefOr<Schema> {
        text_or_number(
            "1h30m",
            "A span of time: a text such as `8h` or `1h30m`, or a number of seconds.",
        )
    }
}

impl ToSchema for Duration {}

impl PartialSchema for Bytes {
    fn schema() -> RefOr<Schema> {
        text_or_number(
            "64GiB",
            "An amount of memory: bytes, or a text with a unit such as `64GiB`.",
        )
    }
}

impl ToSchema for Bytes {}

impl PartialSchema for Array {
    fn schema() -> RefOr<Schema> {
        text_or_number(
            "0-9%4",
            "Indices of an array: `0-9`, `1,3,5-7`, or `0-99%4` for at most four at once.",
        )
    }
}

impl ToSchema for Array {}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a text or a number")]
enum TextOrNumber {
    Number(f64),
    Text(String),
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match TextOrNumber::deserialize(deserializer)? {
            TextOrNumber::Text(text) => text,
            TextOrNumber::Number(seconds) => seconds.to_string(),
        };
        bursar_trace::parse_duration_ms(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match TextOrNumber::deserialize(deserializer)? {
            TextOrNumber::Text(text) => text,
            TextOrNumber::Number(bytes) => bytes.to_string(),
        };
        parse_bytes(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

/// Reads a span of time as people write it: `8h`, `1h30m`, or seconds.
///
/// # Errors
/// A sentence that says what can be written.
pub fn duration(text: &str) -> Result<Duration, String> {
    bursar_trace::parse_duration_ms(text).map(Duration)
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = (text[..end].parse::<f64>(), text[end..].trim());
    let factor = match unit {
        "" | "B" => 1.0,
        "K" | "KiB" => 1024.0,
        "M" | "MiB" => 1024.0 * 1024.0,
        "G" | "GiB" => 1024.0 * 1024.0 * 1024.0,
        "T" | "TiB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "GB" => 1e9,
        "MB" => 1e6,
        "TB" => 1e12,
        _ => f64::NAN,
    };
    match number {
        Ok(number) if (number * factor).is_finite() && number * factor < 1e18 => {
            Ok((number * factor) as u64)
        }
        _ => Err(format!("'{}' is not an amount of memory: write 64GiB or bytes", printable(text))),
    }
}

/// What is kept of a declaration: every default filled in. Durations in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Declared {
    /// A name for people.
    pub name: String,
    /// For whom it runs.
    pub user: String,
    /// The budget that pays.
    pub budget: String,
    /// GPUs of the whole gang.
    pub gpus: u32,
    /// An explicit shape: hosts, GPUs on each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<(u32, u32)>,
    /// The GPU model that it must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_model: Option<String>,
    /// The contract's length.
    pub min_runtime_ms: u64,
    /// Whether it can continue from a checkpoint.
    pub resumable: bool,
    /// Orders the workloads of one budget, high first.
    pub rank: i32,
    /// Batch, or somebody sits at it.
    pub kind: Kind,
    /// How long it has to save and leave.
    pub grace_ms: u64,
    /// How often it saves by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_interval_ms: Option<u64>,
    /// Whether it saves on the checkpoint signal.
    pub checkpoint_on_signal: bool,
    /// It is ended at this age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runtime_ms: Option<u64>,
    /// CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Where it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Free words of the submitter.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Workloads that must have ended before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<After>,
    /// Which element of an array it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<Element>,
    /// What to run.
    pub command: Vec<String>,
}

/// A declaration that passed, with what its submitter should be told.
#[derive(Clone, Debug, PartialEq)]
pub struct Accepted {
    /// What is kept.
    pub declared: Declared,
    /// Defaults that were filled in, as sentences.
    pub defaults: Vec<String>,
    /// Advice: what fits badly together.
    pub advice: Vec<String>,
    /// The array that it stands for, if it does.
    pub array: Option<Array>,
}

/// How many bytes of command, environment and labels a workload may bring.
const TEXT_BYTES_MAX: usize = 128 * 1024;

/// Reads a workload file. The error names line and field.
pub fn read_workload(text: &str) -> Result<WorkloadDoc, Refused> {
    let file: WorkloadFile = crate::yaml::read(text).map_err(Refused::invalid)?;
    Ok(file.workload)
}

impl WorkloadDoc {
    /// Checks a declaration by itself and fills in what it leaves out.
    pub fn accept(self, submitter: &str, settings: &SettingsDoc) -> Result<Accepted, Refused> {
        self.check()?;
        let (mut defaults, mut advice) = (Vec::new(), Vec::new());
        let min_runtime_ms =
            self.min_runtime.map_or(settings.default_min_runtime_ms, |span| span.0);
        if self.min_runtime.is_none() {
            let span = span_text(min_runtime_ms);
            defaults
                .push(format!("min_runtime: {span} (this site's default; protected until then)"));
        }
        if min_runtime_ms > settings.horizon_ms {
            return Err(Refused::invalid(format!(
                "min_runtime: {} is above the horizon; declare at most {} (rule 1)",
                span_text(min_runtime_ms),
                span_text(settings.horizon_ms)
            )));
        }
        let resumable = self.resumable.unwrap_or(false);
        if self.resumable.is_none() {
            defaults.push("resumable: false (it ends when it is preempted)".into());
        }
        let grace_ms = self.grace.map_or(settings.grace_ms, |span| span.0);
        if grace_ms > settings.grace_ms {
            return Err(Refused::invalid(format!(
                "grace: {} is above what this site gives; declare at most {}",
                span_text(grace_ms),
                span_text(settings.grace_ms)
            )));
        }
        let max_runtime_ms = self.max_runtime.map(|span| span.0);
        if max_runtime_ms == Some(0) {
            return Err(Refused::invalid("max_runtime: 0 leaves no time to run; leave it out"));
        }
        if let Some(max) = max_runtime_ms.filter(|&max| max < min_runtime_ms) {
            advice.push(format!(
                "max_runtime {} ends it before min_runtime {} does: it is protected for {} only",
                span_text(max),
                span_text(min_runtime_ms),
                span_text(max)
            ));
        }
        if let Some(interval) = self.checkpoint_interval
            && min_runtime_ms > 0
            && interval.0 > min_runtime_ms
        {
            advice.push(format!(
                "checkpoint_interval {} is longer than min_runtime {}: a preemption can come before the first checkpoint",
                span_text(interval.0),
                span_text(min_runtime_ms)
            ));
        }
        if resumable && self.checkpoint_interval.is_none() && !self.checkpoint_on_signal {
            advice.push(
                "resumable, but neither checkpoint_interval nor checkpoint_on_signal: all work since its start counts as lost at a preemption"
                    .into(),
            );
        }
        if min_runtime_ms == 0 {
            advice.push(
                "min_runtime 0: unallocated, charged to nobody and never protected (rule 1)".into(),
            );
        }
        let declared = Declared {
            name: self.name,
            user: self.user.unwrap_or_else(|| submitter.to_owned()),
            budget: self.budget_owner,
            gpus: self.gpus,
            shape: self.hosts.zip(self.gpus_per_host),
            gpu_model: self.gpu_model,
            min_runtime_ms,
            resumable,
            rank: self.rank,
            kind: self.kind,
            grace_ms,
            checkpoint_interval_ms: self.checkpoint_interval.map(|span| span.0),
            checkpoint_on_signal: self.checkpoint_on_signal,
            max_runtime_ms,
            cpus: self.cpus,
            memory_bytes: self.memory.map(|bytes| bytes.0),
            env: self.env,
            workdir: self.workdir,
            labels: self.labels,
            after: self.after,
            element: None,
            command: self.command,
        };
        Ok(Accepted { declared, defaults, advice, array: self.array })
    }

    fn check(&self) -> Result<(), Refused> {
        let invalid = |problem: String| Err(Refused::invalid(problem));
        if self.name.is_empty() || self.name.chars().count() > 128 {
            return invalid("name: give it one of 1 to 128 characters".into());
        }
        let shown = [("name", Some(&self.name)), ("gpu_model", self.gpu_model.as_ref())];
        let shown = shown.into_iter().chain([("workdir", self.workdir.as_ref())]);
        let labels =
            self.labels.iter().flat_map(|(k, v)| [("labels", Some(k)), ("labels", Some(v))]);
        for (field, text) in shown.chain(labels) {
            if text.is_some_and(|text| text.chars().any(obeyed)) {
                return invalid(format!(
                    "{field}: control characters, line breaks and marks of direction are not allowed"
                ));
            }
        }
        if self.gpus == 0 {
            return invalid("gpus: 0 is not allowed; ask for at least 1".into());
        }
        if self.cpus == Some(0) || self.memory == Some(Bytes(0)) {
            let what = if self.cpus == Some(0) { "cpus" } else { "memory" };
            return invalid(format!(
                "{what}: 0 leaves nothing to run with; leave it out for no limit"
            ));
        }
        if self.command.is_empty() || self.command[0].is_empty() {
            return invalid("command: nothing to run; give a list such as [\"./train.sh\"]".into());
        }
        if let Some(user) = self.user.as_deref().filter(|user| !is_name(user)) {
            return invalid(format!("user: '{}' is no user name", printable(user)));
        }
        match (self.hosts, self.gpus_per_host) {
            (None, None) => {}
            (Some(hosts), Some(each)) => {
                if hosts.checked_mul(each) != Some(self.gpus) || hosts == 0 {
                    return invalid(format!(
                        "hosts: {hosts} x gpus_per_host: {each} is not gpus: {}",
                        self.gpus
                    ));
                }
            }
            _ => return invalid("hosts and gpus_per_host are given together or not at all".into()),
        }
        let texts = self.command.iter().chain(self.env.iter().flat_map(|(k, v)| [k, v]));
        let texts = texts.chain(self.labels.iter().flat_map(|(k, v)| [k, v])).chain(&self.workdir);
        let mut bytes = 0;
        for text in texts {
            if text.contains('\0') {
                return invalid(
                    "command, env, labels and workdir cannot hold a NUL character".into(),
                );
            }
            bytes += text.len();
        }
        if bytes > TEXT_BYTES_MAX {
            return invalid(format!(
                "command, env and labels come to {bytes} bytes; at most {TEXT_BYTES_MAX} are taken"
            ));
        }
        if let Some(name) = self.env.keys().find(|name| name.is_empty() || name.contains('=')) {
            return invalid(format!("env: '{}' is no name of a variable", printable(name)));
        }
        if let Some(workdir) = self.workdir.as_deref().filter(|path| !path.starts_with('/')) {
            return invalid(format!("workdir: '{}' is not absolute", printable(workdir)));
        }
        Ok(())
    }
}

/// A span as people write it.
pub fn span_text(ms: u64) -> String {
    bursar_core::SpanMs(ms).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(text: &str) -> Result<Accepted, Refused> {
        read_workload(text)?.accept("ann", &SettingsDoc::default())
    }

    #[test]
    fn the_yaml_of_the_design_is_taken_as_it_stands() {
        let accepted = accept(
            "
workload:
  name: llm-pretrain-run-42
  gpus: 64
  min_runtime: 8h        # protected from preemption until then
  resumable: true        # can continue from a checkpoint
  budget_owner: program-a/a1
  command: [\"./train.sh\"]
",
        )
        .expect("it is as people write it");
        assert_eq!(accepted.declared.min_runtime_ms, 8 * 3_600_000);
        assert_eq!(accepted.declared.user, "ann");
        assert!(accepted.defaults.is_empty(), "{:?}", accepted.defaults);
    }

    #[test]
    fn every_default_is_told() {
        let accepted =
            accept("workload: {name: w, gpus: 1, budget_owner: a, command: [x]}").expect("fine");
        assert_eq!(accepted.declared.min_runtime_ms, 3_600_000);
        assert!(accepted.defaults[0].starts_with("min_runtime: 1h"), "{:?}", accepted.defaults);
        assert!(accepted.defaults[1].starts_with("resumable: false"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let base = "name: w, budget_owner: a, command: [x]";
        for (fields, part) in [
            ("gpus: 0", "gpus: 0"),
            ("gpus: 1, min_runtime: 9h", "above the horizon"),
            ("gpus: 1, min_runtime: soon", "soon"),
            ("gpus: 1, grace: 10m", "grace: 10m"),
            ("gpus: 4, hosts: 3, gpus_per_host: 2", "hosts: 3 x gpus_per_host: 2"),
            ("gpus: 4, hosts: 3", "together"),
            ("gpus: 1, memory: lots", "lots"),
            ("gpus: 1, memory: 0.4", "memory: 0 leaves nothing"),
            ("gpus: 1, memory: 0GiB", "memory: 0 leaves nothing"),
            ("gpus: 1, cpus: 0", "cpus: 0 leaves nothing"),
            ("gpus: 1, colour: red", "colour"),
            ("gpus: 1, workdir: here", "workdir: 'here'"),
            ("gpus: 1, env: {\"A=B\": c}", "env: 'A=B'"),
            ("gpus: 1, array: 3-1", "'3-1' is no array"),
            ("gpus: 1, array: 0-9%0", "'0-9%0' is no array"),
            ("gpus: 1, array: 0-99999", "at most 10000 elements"),
        ] {
            let refused = accept(&format!("workload: {{{base}, {fields}}}")).expect_err(fields);
            assert!(refused.message.contains(part), "{fields}: {refused}");
            assert!(!refused.message.contains('\n'));
        }
    }

    #[test]
    fn arrays_are_lists_of_indices() {
        let array = |text: &str| Array::parse(text).expect(text);
        assert_eq!(array("0-3").indices, [0, 1, 2, 3]);
        assert_eq!(array("7, 1-2,2").indices, [1, 2, 7]);
        assert_eq!(array("5"), Array { indices: vec![5], at_once: None });
        assert_eq!(array("0-1%1"), Array { indices: vec![0, 1], at_once: Some(1) });
        for wrong in ["", "-", "1-", "a", "1;2", "0-9%", "0-9%x", "-1", "1.5", "0-4294967295"] {
            assert!(Array::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_fits_badly_is_advised() {
        let accepted = accept(
            "workload: {name: w, gpus: 1, budget_owner: a, command: [x], min_runtime: 10m, checkpoint_interval: 30m, resumable: true}",
        )
        .expect("allowed");
        assert!(accepted.advice[0].contains("longer than min_runtime"), "{:?}", accepted.advice);
    }
}
