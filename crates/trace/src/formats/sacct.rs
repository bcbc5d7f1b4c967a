//! Slurm's accounting as `sacct -P` prints it: `|` between fields, column names in the first line.
//!
//! Job steps are left out. The rows of an array are jobs of their own; with `sacct -D` so is each
//! run of a requeued job, told apart as `id#2`. GPUs come from `AllocTRES`, else from `ReqTRES`.

use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::collect::{Context, NoJob};
use crate::error::{Problem, RowError, TraceErrorKind};
use crate::formats::final_status;
use crate::job::{JobStatus, TraceJob};
use crate::options::{ReadOptions, Unit};
use crate::table::{Column, Header, Row, RowReader};
use crate::time::{TimeBase, absolute_ms, moment_if_any};
use crate::values::{GPUS_MAX, SPAN_MS_MAX, count, in_span, seconds_ms};

/// The order in which a well-known set of anonymised dumps, which have no header, gives its fields.
const HEADLESS: [&str; 26] = [
    "jobid",
    "jobidraw",
    "cluster",
    "partition",
    "qos",
    "account",
    "group",
    "gid",
    "user",
    "uid",
    "submit",
    "eligible",
    "start",
    "end",
    "elapsed",
    "exitcode",
    "state",
    "nnodes",
    "ncpus",
    "reqcpus",
    "reqmem",
    "reqtres",
    "alloctres",
    "timelimit",
    "nodelist",
    "jobname",
];

/// The columns of a file that begins with this line of data, if it is one of the known dumps.
pub(crate) fn columns_of_headless(line: &[u8]) -> Option<Vec<String>> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b'|').collect();
    let starts_with_digit = |index: usize| {
        fields.get(index).and_then(|field| field.first()).is_some_and(u8::is_ascii_digit)
    };
    let is_known = fields.len() >= HEADLESS.len()
        && starts_with_digit(0)
        && starts_with_digit(10)
        && fields.get(10).is_some_and(|submit| submit.len() >= 19 && submit[10] == b'T');
    is_known.then(|| HEADLESS.map(str::to_owned).to_vec())
}

/// Reads rows of it; a job's group is its `Account`.
pub(crate) struct Reader {
    id: Column,
    submit: Column,
    start: Option<Column>,
    end: Option<Column>,
    elapsed: Option<Column>,
    elapsed_seconds: Option<Column>,
    state: Column,
    limit: Option<Column>,
    limit_minutes: Option<Column>,
    user: Option<Column>,
    group: Option<Column>,
    allocated: Option<Column>,
    requested: Option<Column>,
    /// Plain counts of CPUs or nodes, which serve where the TRES columns say nothing.
    plain: Option<Column>,
    unit: Unit,
    zone: TimeZone,
}

impl Reader {
    pub(crate) fn new(header: &Header, options: &ReadOptions) -> Result<Self, TraceErrorKind> {
        let elapsed = header.find("elapsed")?;
        let elapsed_seconds = header.find("elapsedraw")?;
        let (start, end) = (header.find("start")?, header.find("end")?);
        if elapsed.is_none() && elapsed_seconds.is_none() && (start.is_none() || end.is_none()) {
            header.require(&["Elapsed", "ElapsedRaw"])?;
        }
        let (allocated, requested) = (header.find("alloctres")?, header.find("reqtres")?);
        let plain = match options.unit {
            Unit::Gpus => None,
            Unit::Cpus => header.find_any(&["alloccpus", "ncpus", "reqcpus"])?,
            Unit::Nodes => header.find_any(&["allocnodes", "nnodes", "reqnodes"])?,
        };
        if allocated.is_none() && requested.is_none() && plain.is_none() {
            header.require(&["AllocTRES", "ReqTRES"])?;
        }
        Ok(Reader {
            id: header.require(&["JobID", "JobIDRaw"])?,
            submit: header.require(&["Submit"])?,
            start,
            end,
            elapsed,
            elapsed_seconds,
            state: header.require(&["State"])?,
            limit: header.find("timelimit")?,
            limit_minutes: header.find("timelimitraw")?,
            user: header.find("user")?,
            group: header.group(options.group_column.as_deref(), &["account", "group"])?,
            allocated,
            requested,
            plain,
            unit: options.unit,
            zone: options.time_zone.clone().unwrap_or(TimeZone::UTC),
        })
    }

    fn date(&self, row: &Row<'_>, column: Option<&Column>) -> Result<Option<Timestamp>, RowError> {
        let zone = Some(&self.zone);
        Ok(row.parse_some(column, |text| moment_if_any(text, zone))?.flatten())
    }

    fn units(&self, row: &Row<'_>) -> Result<Resources, RowError> {
        for column in [&self.allocated, &self.requested] {
            let unit = self.unit;
            let found = row.parse_some(column.as_ref(), |text| tres(text, unit))?;
            if let Some(resources) = found.filter(|resources| resources.count > 0) {
                return Ok(resources);
            }
        }
        let count = row.parse_some(self.plain.as_ref(), count)?.unwrap_or(0);
        Ok(Resources { count, model: None })
    }

    fn elapsed_ms(
        &self,
        row: &Row<'_>,
        start: Option<Timestamp>,
        end: Option<Timestamp>,
    ) -> Result<Option<u64>, RowError> {
        if let Some(elapsed_ms) = row.parse_some(self.elapsed_seconds.as_ref(), seconds_ms)? {
            return Ok(Some(elapsed_ms));
        }
        if let Some(elapsed_ms) = row.parse_some(self.elapsed.as_ref(), clock_ms)? {
            return Ok(Some(elapsed_ms));
        }
        let between = start
            .zip(end)
            .and_then(|(start, end)| absolute_ms(end).checked_sub(absolute_ms(start)))
            .filter(|between_ms| *between_ms <= SPAN_MS_MAX);
        Ok(between)
    }
}

impl RowReader for Reader {
    fn job(&mut self, row: &Row<'_>, cx: &mut Context) -> Result<TraceJob, NoJob> {
        let id = row.id(&self.id)?;
        if id.contains('.') {
            return Err(NoJob::NotAJob("job steps left out"));
        }
        let submit = row
            .parse(&self.submit, |text| moment_if_any(text, Some(&self.zone)))?
            .ok_or_else(|| row.wrong(&self.submit, "is no date and time"))?;
        let start = self.date(row, self.start.as_ref())?;
        let end = self.date(row, self.end.as_ref())?;
        let state = row.parse(&self.state, state)?;
        let limit_ms = match row.parse_some(self.limit.as_ref(), limit_ms)? {
            Some(limit_ms) => limit_ms,
            None => row.parse_some(self.limit_minutes.as_ref(), limit_of_minutes_ms)?.flatten(),
        };
        let elapsed_ms = self.elapsed_ms(row, start, end)?;
        let units = self.units(row)?;
        if units.count == 0 {
            return Err(NoJob::WithoutGpus);
        }
        let status = match state {
            State::Pending => return Err(NoJob::NeverStarted),
            State::Running => {
                cx.note("jobs that were still running, whose runtime is what had elapsed");
                JobStatus::Completed
            }
            State::Final(status) => status,
        };
        let runtime_ms = elapsed_ms.ok_or(NoJob::Unfinished)?;
        if status == JobStatus::Cancelled && runtime_ms == 0 {
            return Err(NoJob::NeverStarted);
        }
        Ok(TraceJob {
            id,
            submit_ms: absolute_ms(submit),
            runtime_ms,
            gpus: units.count,
            user: row.name(self.user.as_ref(), cx)?,
            group: row.name(self.group.as_ref(), cx)?,
            gpu_model: units.model.map(|model| -> Arc<str> { cx.names.share(&model) }),
            max_runtime_ms: limit_ms,
            status,
            start_ms: start.map(absolute_ms),
            ..TraceJob::default()
        })
    }

    fn time_base(&self) -> TimeBase {
        TimeBase::Absolute
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Pending,
    Running,
    Final(JobStatus),
}

fn state(text: &str) -> Result<State, Problem> {
    match text.split_ascii_whitespace().next().unwrap_or_default() {
        "PENDING" | "CONFIGURING" | "REQUEUE_HOLD" | "RESV_DEL_HOLD" => Ok(State::Pending),
        "RUNNING" | "COMPLETING" | "RESIZING" | "STAGE_OUT" | "SIGNALING" => Ok(State::Running),
        _ => final_status(text).map(State::Final),
    }
}

/// What a job had of the unit, and of which GPU model.
#[derive(Debug, PartialEq, Eq)]
struct Resources {
    count: u32,
    model: Option<String>,
}

/// Reads `billing=8,cpu=64,gres/gpu=8,gres/gpu:h100=8,node=1`: the plain total wins over the typed
/// counts, the model is that of the only typed one.
fn tres(text: &str, unit: Unit) -> Result<Resources, Problem> {
    const WRONG: &str = "is not a list of resources such as cpu=8,gres/gpu=2,node=1";
    let mut total = None;
    let mut typed: u32 = 0;
    let mut models: Vec<&str> = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (name, amount) = part.split_once('=').ok_or(WRONG)?;
        let wanted = match unit {
            Unit::Gpus => "gres/gpu",
            Unit::Cpus => "cpu",
            Unit::Nodes => "node",
        };
        let count =
            || count(amount).map_err(|problem| format!("has a number of {wanted} that {problem}"));
        let model = name.strip_prefix(wanted).and_then(|rest| rest.strip_prefix(':'));
        if name == wanted {
            total = Some(count()?);
        } else if let Some(model) = model {
            typed = typed.saturating_add(count()?);
            models.push(model);
        }
    }
    let model = match models.as_slice() {
        [model] => Some((*model).to_owned()),
        [] | [_, _, ..] => None,
    };
    let count = total.unwrap_or(typed);
    if count > GPUS_MAX {
        return Err(format!("has more than {GPUS_MAX}").into());
    }
    Ok(Resources { count, model })
}

/// `[DD-]HH:MM:SS[.fraction]`, also `MM:SS`.
fn clock_ms(text: &str) -> Result<u64, Problem> {
    const WRONG: &str = "is not a time such as 1-02:30:00";
    let (days, clock) = text.split_once('-').unwrap_or(("0", text));
    let mut parts = clock.rsplit(':');
    let seconds = parts.next().unwrap_or_default();
    let minutes = parts.next().ok_or(WRONG)?;
    let hours = parts.next().unwrap_or("0");
    if parts.next().is_some() {
        return Err(WRONG.into());
    }
    let whole = |part: &str, unit_ms: u64| match part.parse::<u64>() {
        Ok(count) if part.bytes().all(|b| b.is_ascii_digit()) => Ok(count.saturating_mul(unit_ms)),
        Ok(_) | Err(_) => Err(Problem::from(WRONG)),
    };
    let total_ms = whole(days, 86_400_000)?
        .saturating_add(whole(hours, 3_600_000)?)
        .saturating_add(whole(minutes, 60_000)?)
        .saturating_add(seconds_ms(seconds).map_err(|_| WRONG)?);
    in_span(total_ms)
}

/// A time limit; none where it is unlimited or the partition's.
fn limit_ms(text: &str) -> Result<Option<u64>, Problem> {
    match text {
        "UNLIMITED" | "Partition_Limit" | "INVALID" => Ok(None),
        text => clock_ms(text).map(Some),
    }
}

fn limit_of_minutes_ms(text: &str) -> Result<Option<u64>, Problem> {
    match text {
        "UNLIMITED" | "Partition_Limit" | "INVALID" => Ok(None),
        text => {
            let minutes = text.parse::<u64>().map_err(|_| "is not a number of minutes")?;
            in_span(minutes.saturating_mul(60_000)).map(Some)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Trace, TraceError, read};

    const HEADED: &str = "JobID|User|Account|Partition|Submit|Start|End|Elapsed|State|Timelimit|AllocTRES|ReqTRES|JobName\n\
        10|ann|phys|gpu|2026-01-01T00:00:00|2026-01-01T00:10:00|2026-01-02T00:10:00|1-00:00:00|COMPLETED|2-00:00:00|billing=9,cpu=8,gres/gpu:h100=8,gres/gpu=8,node=1||a|b\n\
        10.batch||phys||2026-01-01T00:10:00|2026-01-01T00:10:00|2026-01-02T00:10:00|1-00:00:00|COMPLETED||cpu=8,gres/gpu=8||batch\n\
        11_1|bob|chem|gpu|2026-01-01T00:01:00|2026-01-01T00:10:00|2026-01-01T00:11:30|00:01:30|CANCELLED by 7|UNLIMITED||cpu=4,gres/gpu:a100=2|arr\n\
        11_2|bob|chem|gpu|2026-01-01T00:01:00|None|2026-01-01T00:11:30|00:00:00|CANCELLED by 7|Partition_Limit||gres/gpu=2|arr\n\
        11_[3-9]|bob|chem|gpu|2026-01-01T00:01:00|Unknown|Unknown|00:00:00|PENDING|UNLIMITED||gres/gpu=2|arr\n\
        12|bob|chem|cpu|2026-01-01T00:01:00|2026-01-01T00:01:00|2026-01-01T00:02:00|01:00.5|FAILED|05:00|cpu=4,node=2||c\n\
        10|ann|phys|gpu|2026-01-02T00:10:00|2026-01-02T00:20:00|Unknown|00:05:00|RUNNING|2-00:00:00|gres/gpu=8||a\n";

    fn with(text: &str, options: &ReadOptions) -> Result<Trace, TraceError> {
        read(text.as_bytes(), "s", options)
    }

    #[test]
    fn jobs_steps_arrays_and_requeues() {
        let trace = with(HEADED, &ReadOptions::default()).unwrap();
        assert_eq!(trace.format, Format::Sacct);
        let ids: Vec<_> = trace.jobs.iter().map(|job| job.id.as_str()).collect();
        assert_eq!(ids, ["10", "11_1", "10#2"]);
        assert_eq!((trace.without_gpus, trace.never_started), (1, 2));
        let job = &trace.jobs[0];
        assert_eq!((job.gpus, job.gpu_model.as_deref()), (8, Some("h100")));
        assert_eq!((job.runtime_ms, job.start_ms), (86_400_000, Some(600_000)));
        assert_eq!((job.max_runtime_ms, job.group.as_deref()), (Some(172_800_000), Some("phys")));
        let array = &trace.jobs[1];
        assert_eq!((array.gpus, array.status), (2, JobStatus::Cancelled));
        assert_eq!(array.max_runtime_ms, None);
        assert_eq!(trace.notes.len(), 3, "{:?}", trace.notes);
        assert_eq!(trace.origin, Some("2026-01-01T00:00:00Z".parse().unwrap()));
    }

    #[test]
    fn other_units_zones_and_groups() {
        let options = ReadOptions {
            unit: Unit::Nodes,
            group_column: Some("Partition".to_owned()),
            time_zone: Some(TimeZone::get("Asia/Tokyo").unwrap_or(TimeZone::UTC)),
            ..ReadOptions::default()
        };
        let trace = with(HEADED, &options).unwrap();
        let job = &trace.jobs[1];
        assert_eq!((&*job.id, job.gpus, job.group.as_deref()), ("12", 2, Some("cpu")));
        assert_eq!((job.runtime_ms, job.max_runtime_ms), (60_500, Some(300_000)));
    }

    #[test]
    fn columns_may_be_given() {
        let columns = ["JobIDRaw", "State", "Submit", "ElapsedRaw", "ReqTRES", "TimelimitRaw"];
        let options = ReadOptions {
            columns: Some(columns.map(str::to_owned).to_vec()),
            ..ReadOptions::default()
        };
        let trace = with("5|COMPLETED|2026-01-01T00:00:00|90|gres/gpu=4|60\n", &options).unwrap();
        assert_eq!((trace.jobs[0].gpus, trace.jobs[0].runtime_ms), (4, 90_000));
        assert_eq!(trace.jobs[0].max_runtime_ms, Some(3_600_000));
    }

    #[test]
    fn missing_columns_and_broken_values() {
        let error = with("JobID|Submit|State|Elapsed\n", &ReadOptions::default()).unwrap_err();
        let error = error.to_string();
        assert!(
            error.starts_with("s line 1: column 'AllocTRES' or 'ReqTRES' is missing"),
            "{error}"
        );
        let head = "JobID|Submit|State|Elapsed|AllocTRES\n";
        for (row, expected) in [
            ("1|yesterday|FAILED|00:00:01|gres/gpu=1", "field 'Submit': 'yesterday' is not a date"),
            ("1|Unknown|FAILED|00:00:01|gres/gpu=1", "field 'Submit': 'Unknown' is no date"),
            ("1|2026-01-01T00:00:00|BROKEN|00:00:01|gres/gpu=1", "'BROKEN' is no final state"),
            ("1|2026-01-01T00:00:00|FAILED|1:2:3:4|gres/gpu=1", "'1:2:3:4' is not a time"),
            ("1|2026-01-01T00:00:00|FAILED|99999999-00:00:00|x=1", "is more than 100 years"),
            ("1|2026-01-01T00:00:00|FAILED|00:00:01|gres/gpu=-1", "number of gres/gpu that is not"),
            (
                "1|2026-01-01T00:00:00|FAILED|00:00:01|gres/gpu:a=9999999",
                "that is more than 1000000",
            ),
            ("1|2026-01-01T00:00:00|FAILED|00:00:01|gres/gpu", "is not a list of resources"),
            ("1|2026-01-01T00:00:00|FAILED", "has 3 fields where the header has 5"),
        ] {
            let error = with(&format!("{head}{row}\n"), &ReadOptions::default()).unwrap_err();
            let error = error.to_string();
            assert!(error.starts_with("s line 2: ") && error.contains(expected), "{error}");
        }
    }
}
