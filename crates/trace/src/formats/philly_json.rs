//! Microsoft Philly as published: `cluster_job_log`, one JSON array of jobs with their attempts.
//!
//! A job's GPUs are those of its first attempt, its runtime the sum of its attempts: time between
//! them was spent waiting. Read entry by entry; the array is never in memory as a whole.

use std::fmt;

use jiff::tz::TimeZone;
use serde::de::{DeserializeSeed, Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::Value;

use crate::collect::{Collector, Context, NoJob};
use crate::error::{Place, RowError, TraceError, TraceErrorKind, clip};
use crate::formats::final_status;
use crate::input::{EntryBudget, Input};
use crate::job::TraceJob;
use crate::options::ReadOptions;
use crate::time::{TimeBase, absolute_ms, moment, moment_if_any};
use crate::values::{GPUS_MAX, SPAN_MS_MAX};

/// Reads all of `input`.
pub(crate) fn read(
    input: &mut Input<'_>,
    collector: Collector,
    options: &ReadOptions,
) -> Result<Collector, TraceError> {
    if let Some(column) = options.group_column.as_deref().filter(|column| *column != "vc") {
        let column = clip(column, 60);
        let text = format!("the philly log has no column '{column}' to group by; it has vc");
        return Err(input.fail(TraceErrorKind::Header(text)));
    }
    let name = input.name().to_owned();
    let budget = EntryBudget::default();
    let zone = options.time_zone.clone().unwrap_or(TimeZone::UTC);
    let mut entries = Entries {
        collector: collector.counting_rows(),
        budget: &budget,
        zone,
        row: 0,
        failure: None,
    };
    let mut json = serde_json::Deserializer::from_reader(input.entries(&budget));
    let read = entries.deserialize(&mut json).and_then(|()| json.end());
    let row = Place::Row(entries.row + 1);
    if let Err(error) = read {
        let (place, kind) = match (entries.failure.take(), budget.take_failure()) {
            (Some(kind), _) => (Place::Row(entries.row), kind),
            (None, Some(kind)) => (row, kind),
            (None, None) => {
                let text = clip(&error.to_string(), 160);
                (row, TraceErrorKind::Row(format!("is not readable as JSON: {text}")))
            }
        };
        return Err(TraceError::new(&name, place, kind));
    }
    let mut collector = entries.collector;
    collector.time_base = TimeBase::Absolute;
    Ok(collector)
}

/// Takes the array's entries as they are parsed.
struct Entries<'a> {
    collector: Collector,
    budget: &'a EntryBudget,
    zone: TimeZone,
    row: u64,
    failure: Option<TraceErrorKind>,
}

impl<'de> DeserializeSeed<'de> for &mut Entries<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for &mut Entries<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of jobs")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(entry) = entries.next_element::<Value>()? {
            self.budget.renew();
            self.row += 1;
            let result = job(&entry, &self.zone, &mut self.collector.context);
            if let Err(kind) = self.collector.add(self.row, result) {
                self.failure = Some(kind);
                return Err(A::Error::custom("a job is broken"));
            }
        }
        Ok(())
    }
}

fn job(entry: &Value, zone: &TimeZone, cx: &mut Context) -> Result<TraceJob, NoJob> {
    let id = text(entry, "jobid")?.ok_or_else(|| RowError::row("has no 'jobid'"))?;
    if id.is_empty() || id.chars().any(char::is_control) {
        return Err(wrong("jobid", id, "is empty or has control characters").into());
    }
    let submitted =
        text(entry, "submitted_time")?.ok_or_else(|| RowError::row("has no 'submitted_time'"))?;
    let submit_ms = moment(submitted, Some(zone))
        .map(absolute_ms)
        .map_err(|problem| wrong("submitted_time", submitted, problem))?;
    let status = match text(entry, "status")? {
        None => Default::default(),
        Some(state) => final_status(state).map_err(|problem| wrong("status", state, problem))?,
    };
    let attempts = list(entry, "attempts")?;
    let Some((first, last)) = attempts.first().zip(attempts.last()) else {
        return Err(NoJob::NeverStarted);
    };
    let mut gpus = 0usize;
    for host in list(first, "detail")? {
        gpus = gpus.saturating_add(list(host, "gpus")?.len());
    }
    let start_ms = time(first, "start_time", zone)?;
    if time(last, "end_time", zone)?.is_none() {
        return Err(NoJob::Unfinished);
    }
    let mut runtime_ms: u64 = 0;
    for attempt in attempts {
        let (start, end) = (time(attempt, "start_time", zone)?, time(attempt, "end_time", zone)?);
        let ran_ms = start.zip(end).and_then(|(start, end)| end.checked_sub(start));
        if ran_ms.is_none() {
            cx.note(
                "attempts without a start or an end, or that end before they start, counted as nothing",
            );
        }
        runtime_ms = runtime_ms.saturating_add(ran_ms.unwrap_or(0));
    }
    if runtime_ms > SPAN_MS_MAX {
        return Err(RowError::row("ran for more than 100 years").into());
    }
    let gpus = u32::try_from(gpus).ok().filter(|gpus| *gpus <= GPUS_MAX);
    let gpus = gpus.ok_or_else(|| RowError::row(format!("has more than {GPUS_MAX} GPUs")))?;
    if gpus == 0 {
        return Err(NoJob::WithoutGpus);
    }
    if attempts.len() > 1 {
        cx.note("jobs of several attempts, whose runtime is the sum");
    }
    let id = id.to_owned();
    let user = text(entry, "user")?.map(|name| cx.names.share(&clip(name, 200)));
    let group = text(entry, "vc")?.map(|name| cx.names.share(&clip(name, 200)));
    Ok(TraceJob {
        id,
        submit_ms,
        runtime_ms,
        gpus,
        user,
        group,
        status,
        start_ms,
        ..TraceJob::default()
    })
}

/// A string field; none when it is null or missing.
fn text<'a>(entry: &'a Value, field: &'static str) -> Result<Option<&'a str>, RowError> {
    match entry.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong(field, &other.to_string(), "is not a string")),
    }
}

/// An array field; empty when it is null or missing.
fn list<'a>(entry: &'a Value, field: &'static str) -> Result<&'a [Value], RowError> {
    match entry.get(field) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(other) => Err(wrong(field, &other.to_string(), "is not an array")),
    }
}

fn time(attempt: &Value, field: &'static str, zone: &TimeZone) -> Result<Option<u64>, RowError> {
    let Some(text) = text(attempt, field)? else { return Ok(None) };
    moment_if_any(text, Some(zone))
        .map(|moment| moment.map(absolute_ms))
        .map_err(|problem| wrong(field, text, problem))
}

fn wrong(field: &str, value: &str, problem: impl Into<crate::error::Problem>) -> RowError {
    RowError::field(field, value.as_bytes(), problem.into())
}

#[cfg(test)]
mod tests {
    use crate::{Format, JobStatus, ReadOptions, read};

    const GOOD: &str = r#"[
      {"status": "Pass", "vc": "v", "jobid": "a", "user": "u", "submitted_time": "2017-10-07 01:00:00",
       "attempts": [
         {"start_time": "2017-10-07 01:00:30", "end_time": "2017-10-07 01:01:30",
          "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0"]}]},
         {"start_time": "2017-10-07 02:00:00", "end_time": "2017-10-07 02:00:40",
          "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]},
      {"status": "Killed", "vc": "v", "jobid": "b", "user": "u", "submitted_time": "2017-10-07 00:00:00",
       "attempts": []},
      {"status": "Failed", "vc": "v", "jobid": "c", "user": null, "submitted_time": "2017-10-07 00:59:59",
       "attempts": [{"start_time": "2017-10-07 01:00:30", "end_time": null, "detail": []}]},
      {"status": "Killed", "vc": "w", "jobid": "d", "user": "u", "submitted_time": "2017-10-07 01:00:05",
       "attempts": [{"start_time": "2017-10-07 01:00:30", "end_time": "2017-10-07 01:00:31",
          "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]}]"#;

    #[test]
    fn the_published_log() {
        let trace = read(GOOD.as_bytes(), "log", &ReadOptions::default()).unwrap();
        assert_eq!((trace.format, trace.jobs.len()), (Format::Philly, 2));
        assert_eq!((trace.never_started, trace.unfinished), (1, 1));
        let job = &trace.jobs[0];
        assert_eq!((&*job.id, job.gpus, job.runtime_ms), ("a", 3, 100_000));
        assert_eq!((job.submit_ms, job.start_ms), (0, Some(30_000)));
        assert_eq!(trace.jobs[1].status, JobStatus::Cancelled);
        assert_eq!(trace.jobs[1].row, 4);
        assert_eq!(trace.origin, Some("2017-10-07T01:00:00Z".parse().unwrap()));
    }

    #[test]
    fn broken_entries_name_row_and_field() {
        for (from, to, expected) in [
            ("\"Pass\"", "7", "log row 1: field 'status': '7' is not a string"),
            (
                "2017-10-07 01:00:05",
                "soon",
                "log row 4: field 'submitted_time': 'soon' is not a date",
            ),
            ("\"jobid\": \"b\"", "\"x\": 1", "log row 2: has no 'jobid'"),
            ("\"attempts\": []}", "\"attempts\": [}", "log row 2: is not readable as JSON"),
        ] {
            let text = GOOD.replace(from, to);
            let error = read(text.as_bytes(), "log", &ReadOptions::default()).unwrap_err();
            let error = error.to_string();
            assert!(error.starts_with(expected) && !error.contains('\n'), "{error}");
        }
        let options = ReadOptions { skip_bad: true, ..ReadOptions::default() };
        let text = GOOD.replace("\"Pass\"", "7");
        assert_eq!(read(text.as_bytes(), "log", &options).unwrap().skipped_count, 1);
    }
}
