//! Standard Workload Format: a header of `;` comments, then lines of 18 numbers, -1 for unknown.
//!
//! Processors are the unit. A line without a runtime or without processors is a job that was
//! cancelled before it started; lines with status 2, 3 and 4 are parts of a job that has a line of its own.

use jiff::Timestamp;

use crate::collect::{Collector, Context, NoJob};
use crate::error::{RowError, TraceError, TraceErrorKind};
use crate::input::Input;
use crate::job::{JobStatus, TraceJob};
use crate::options::ReadOptions;
use crate::time::TimeBase;
use crate::values::{GPUS_MAX, SPAN_MS_MAX, integer, seconds_ms};

const NAMES: [&str; 18] = [
    "job number",
    "submit time",
    "wait time",
    "run time",
    "allocated processors",
    "average CPU time",
    "used memory",
    "requested processors",
    "requested time",
    "requested memory",
    "status",
    "user",
    "group",
    "application",
    "queue",
    "partition",
    "preceding job",
    "think time",
];
const JOB: usize = 0;
const SUBMIT: usize = 1;
const WAIT: usize = 2;
const RUN: usize = 3;
const ALLOCATED: usize = 4;
const REQUESTED: usize = 7;
const REQUESTED_TIME: usize = 8;
const STATUS: usize = 10;
const USER: usize = 11;
const GROUP: usize = 12;

/// Reads all of `input`.
pub(crate) fn read(
    input: &mut Input<'_>,
    mut collector: Collector,
    options: &ReadOptions,
) -> Result<Collector, TraceError> {
    let group = match options.group_column.as_deref() {
        None => GROUP,
        Some(name) => NAMES.iter().position(|known| *known == name).ok_or_else(|| {
            input.fail(TraceErrorKind::Header(format!(
                "swf has no column '{}'; it has {}",
                crate::error::clip(name, 60),
                NAMES.join(", ")
            )))
        })?,
    };
    let mut origin = None;
    loop {
        let result = match input.next_line()? {
            None => break,
            Some(line) if line.trim_ascii().is_empty() => continue,
            Some(line) => match line.trim_ascii_start().strip_prefix(b";") {
                Some(comment) => {
                    origin = origin.or(start_time(comment));
                    continue;
                }
                None => job(line, group, &mut collector.context),
            },
        };
        collector.add(input.line(), result).map_err(|kind| input.fail_line(kind))?;
    }
    collector.time_base = TimeBase::Origin(origin);
    Ok(collector)
}

/// The trace's origin, from the header line `UnixStartTime: 1272639895`; 0 stands for unknown.
fn start_time(comment: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(comment).ok()?.trim().strip_prefix("UnixStartTime:")?;
    let second = text.trim().parse().ok().filter(|second| *second > 0)?;
    Timestamp::from_second(second).ok()
}

fn job(line: &[u8], group: usize, cx: &mut Context) -> Result<TraceJob, NoJob> {
    let line = std::str::from_utf8(line).map_err(|_| RowError::row("is not UTF-8 text"))?;
    let mut fields = [""; 18];
    let mut count = 0;
    for field in line.split_ascii_whitespace() {
        if let Some(slot) = fields.get_mut(count) {
            *slot = field;
        }
        count += 1;
    }
    if count != fields.len() {
        return Err(RowError::row(format!("has {count} fields where swf has 18")).into());
    }
    let wrong = |index: usize, problem: crate::error::Problem| {
        RowError::field(NAMES[index], fields[index].as_bytes(), problem)
    };
    let whole = |index: usize| integer(fields[index]).map_err(|problem| wrong(index, problem));
    let known_ms = |index: usize| match fields[index] {
        "-1" | "-1.0" => Ok(None),
        field => seconds_ms(field).map(Some).map_err(|problem| wrong(index, problem)),
    };
    let processors = |index: usize| match whole(index)? {
        ..=0 => Ok(None),
        count => u32::try_from(count)
            .ok()
            .filter(|count| *count <= GPUS_MAX)
            .map(Some)
            .ok_or_else(|| wrong(index, format!("is more than {GPUS_MAX}").into())),
    };

    let number = whole(JOB)?;
    let status = match whole(STATUS)? {
        -1 | 1 => JobStatus::Completed,
        0 => JobStatus::Failed,
        5 => JobStatus::Cancelled,
        2..=4 => {
            return Err(NoJob::NotAJob("rows left out, being parts of a job that has its own row"));
        }
        _ => return Err(wrong(STATUS, "is no status: -1 to 5 are".into()).into()),
    };
    let submit_ms = seconds_ms(fields[SUBMIT]).map_err(|problem| wrong(SUBMIT, problem))?;
    let runtime_ms = known_ms(RUN)?.ok_or(NoJob::NeverStarted)?;
    let gpus = match processors(ALLOCATED)? {
        Some(allocated) => allocated,
        None => processors(REQUESTED)?.ok_or(NoJob::NeverStarted)?,
    };
    let start_ms = known_ms(WAIT)?
        .map(|wait_ms| submit_ms.saturating_add(wait_ms))
        .filter(|start_ms| *start_ms <= 2 * SPAN_MS_MAX);
    let name = |index: usize, cx: &mut Context| match fields[index] {
        "-1" => None,
        name => Some(cx.names.share(name)),
    };
    Ok(TraceJob {
        id: number.to_string(),
        submit_ms,
        runtime_ms,
        gpus,
        user: name(USER, cx),
        group: name(group, cx),
        max_runtime_ms: known_ms(REQUESTED_TIME)?.filter(|limit_ms| *limit_ms > 0),
        status,
        start_ms,
        ..TraceJob::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, read as read_trace};

    const TEXT: &str = "; Version: 2.2\n; UnixStartTime: 1000000000\n;\n\
        1 0 10 100 80 -1 -1 64 3600 -1 1 3 4 -1 2 -1 -1 -1\n\
        2 5 -1 50 -1 -1 -1 64 -1 -1 0 3 4 -1 2 -1 -1 -1\n\
        3 6 20 -1 -1 -1 -1 64 -1 -1 5 3 4 -1 2 -1 -1 -1\n\
        4 7 20 30 -1 -1 -1 -1 -1 -1 5 3 4 -1 2 -1 -1 -1\n\
        1 8 20 30 8 -1 -1 -1 -1 -1 2 3 4 -1 2 -1 -1 -1\n\
        1 9 20 30 8 -1 -1 -1 -1 -1 1 -1 4 -1 2 -1 -1 -1\n";

    #[test]
    fn jobs_of_the_archive() {
        let trace = read_trace(TEXT.as_bytes(), "t.swf", &ReadOptions::default()).unwrap();
        assert_eq!((trace.format, trace.never_started), (Format::Swf, 2));
        assert_eq!(trace.origin, Some(Timestamp::from_second(1_000_000_000).unwrap()));
        let ids: Vec<_> = trace.jobs.iter().map(|job| job.id.as_str()).collect();
        assert_eq!(ids, ["1", "2", "1#2"]);
        let (first, second) = (&trace.jobs[0], &trace.jobs[1]);
        assert_eq!((first.gpus, second.gpus), (80, 64));
        assert_eq!((first.start_ms, second.start_ms), (Some(10_000), None));
        assert_eq!((first.max_runtime_ms, second.max_runtime_ms), (Some(3_600_000), None));
        assert_eq!((first.status, second.status), (JobStatus::Completed, JobStatus::Failed));
        assert_eq!(first.group.as_deref(), Some("4"));
        assert_eq!((trace.jobs[2].user.as_deref(), trace.notes.len()), (None, 3));
    }

    #[test]
    fn the_group_can_be_another_column() {
        let options =
            ReadOptions { group_column: Some("queue".to_owned()), ..ReadOptions::default() };
        let trace = read_trace(TEXT.as_bytes(), "t.swf", &options).unwrap();
        assert_eq!(trace.jobs[0].group.as_deref(), Some("2"));
        let options = ReadOptions { group_column: Some("x".to_owned()), ..ReadOptions::default() };
        let error = read_trace(TEXT.as_bytes(), "t.swf", &options).unwrap_err().to_string();
        assert!(error.starts_with("t.swf: swf has no column 'x'"), "{error}");
    }

    #[test]
    fn broken_lines_name_the_field() {
        for (line, expected) in [
            (
                "1 x 0 1 1 -1 -1 1 -1 -1 1 1 1 -1 1 -1 -1 -1",
                "field 'submit time': 'x' is not a number",
            ),
            (
                "1 -1 0 1 1 -1 -1 1 -1 -1 1 1 1 -1 1 -1 -1 -1",
                "field 'submit time': '-1' is negative",
            ),
            (
                "1 0 0 nan 1 -1 -1 1 -1 -1 1 1 1 -1 1 -1 -1 -1",
                "field 'run time': 'nan' is not a finite",
            ),
            ("1 0 0 1 9999999 -1 -1 1 -1 -1 1 1 1 -1 1 -1 -1 -1", "is more than 1000000"),
            ("1 0 0 1 1 -1 -1 1 -1 -1 9 1 1 -1 1 -1 -1 -1", "field 'status': '9' is no status"),
            ("1 0 0 1", "has 4 fields where swf has 18"),
        ] {
            let text = format!("; x\n{line}\n");
            let error = read_trace(text.as_bytes(), "t.swf", &ReadOptions::default()).unwrap_err();
            let error = error.to_string();
            assert!(error.starts_with("t.swf line 2: ") && error.contains(expected), "{error}");
        }
    }
}
