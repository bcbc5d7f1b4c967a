//! Our own workload CSV (docs/formats.md): what a person writes, and what `write_csv` gives.

use jiff::tz::TimeZone;

use crate::collect::{Context, NoJob};
use crate::error::{Problem, TraceErrorKind};
use crate::job::{JobKind, JobStatus, TraceJob};
use crate::options::ReadOptions;
use crate::table::{Column, Header, Row, RowReader};
use crate::time::{TimeBase, absolute_ms, moment};
use crate::values::{boolean, duration_ms, gpus, rank, seconds_ms};

/// Reads rows of it.
pub(crate) struct Reader {
    id: Column,
    submit: Column,
    budget: Column,
    gpus: Column,
    runtime: Column,
    user: Option<Column>,
    group: Option<Column>,
    min_runtime: Option<Column>,
    resumable: Option<Column>,
    rank: Option<Column>,
    kind: Option<Column>,
    gpu_model: Option<Column>,
    checkpoint_interval: Option<Column>,
    startup: Option<Column>,
    max_runtime: Option<Column>,
    status: Option<Column>,
    start: Option<Column>,
    clock: Clock,
}

impl Reader {
    pub(crate) fn new(header: &Header, options: &ReadOptions) -> Result<Self, TraceErrorKind> {
        Ok(Reader {
            id: header.require(&["id"])?,
            submit: header.require(&["submit"])?,
            budget: header.require(&["budget"])?,
            gpus: header.require(&["gpus"])?,
            runtime: header.require(&["runtime"])?,
            user: header.find("user")?,
            group: header.group(options.group_column.as_deref(), &["group"])?,
            min_runtime: header.find("min_runtime")?,
            resumable: header.find("resumable")?,
            rank: header.find("rank")?,
            kind: header.find("kind")?,
            gpu_model: header.find("gpu_model")?,
            checkpoint_interval: header.find("checkpoint_interval")?,
            startup: header.find("startup")?,
            max_runtime: header.find("max_runtime")?,
            status: header.find("status")?,
            start: header.find("start")?,
            clock: Clock { zone: options.time_zone.clone(), base: None },
        })
    }
}

/// What the times of a file are counted from: set by its first row, the same in all others.
struct Clock {
    zone: Option<TimeZone>,
    base: Option<TimeBase>,
}

impl Clock {
    fn time_ms(&mut self, text: &str) -> Result<u64, Problem> {
        let is_date =
            text.contains([':', 'T', 't']) || text.get(1..).is_some_and(|rest| rest.contains('-'));
        let (base, ms) = if is_date {
            (TimeBase::Absolute, absolute_ms(moment(text, self.zone.as_ref())?))
        } else {
            (TimeBase::Origin(None), seconds_ms(text)?)
        };
        match self.base {
            Some(earlier) if earlier != base => {
                Err("mixes dates with seconds from an origin: use one of them in all rows".into())
            }
            Some(_) | None => {
                self.base = Some(base);
                Ok(ms)
            }
        }
    }
}

impl RowReader for Reader {
    fn job(&mut self, row: &Row<'_>, cx: &mut Context) -> Result<TraceJob, NoJob> {
        let submit_ms = row.parse(&self.submit, |text| self.clock.time_ms(text))?;
        let start_ms = row.parse_some(self.start.as_ref(), |text| self.clock.time_ms(text))?;
        Ok(TraceJob {
            id: row.id(&self.id)?,
            row: 0,
            submit_ms,
            runtime_ms: row.parse(&self.runtime, duration_ms)?,
            gpus: row.parse(&self.gpus, gpus)?,
            user: row.name(self.user.as_ref(), cx)?,
            group: row.name(self.group.as_ref(), cx)?,
            budget: row.name(Some(&self.budget), cx)?,
            min_runtime_ms: row.parse_some(self.min_runtime.as_ref(), duration_ms)?,
            resumable: row.parse_some(self.resumable.as_ref(), boolean)?,
            rank: row.parse_some(self.rank.as_ref(), rank)?,
            kind: row.parse_some(self.kind.as_ref(), kind)?,
            gpu_model: row.name(self.gpu_model.as_ref(), cx)?,
            checkpoint_interval_ms: row
                .parse_some(self.checkpoint_interval.as_ref(), duration_ms)?,
            startup_ms: row.parse_some(self.startup.as_ref(), duration_ms)?,
            max_runtime_ms: row.parse_some(self.max_runtime.as_ref(), duration_ms)?,
            status: row.parse_some(self.status.as_ref(), status)?.unwrap_or_default(),
            start_ms,
        })
    }

    fn time_base(&self) -> TimeBase {
        self.clock.base.unwrap_or(TimeBase::Origin(None))
    }
}

fn kind(text: &str) -> Result<JobKind, Problem> {
    match text {
        "batch" => Ok(JobKind::Batch),
        "session" => Ok(JobKind::Session),
        _ => Err("is neither batch nor session".into()),
    }
}

fn status(text: &str) -> Result<JobStatus, Problem> {
    match text {
        "completed" => Ok(JobStatus::Completed),
        "failed" => Ok(JobStatus::Failed),
        "cancelled" | "canceled" => Ok(JobStatus::Cancelled),
        _ => Err("is not one of completed, failed and cancelled".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Trace, TraceError, read};

    const HEADER: &str = "id,submit,budget,gpus,runtime";

    fn trace(text: &str) -> Result<Trace, TraceError> {
        read(text.as_bytes(), "jobs.csv", &ReadOptions::default())
    }

    #[test]
    fn all_columns_in_any_order_and_unknown_ones_ignored() {
        let trace = trace(
            "runtime,color,id,submit,budget,gpus,user,group,min_runtime,resumable,rank,kind,gpu_model,\
             checkpoint_interval,startup,status,max_runtime,start\n\
             1h30m,red,b,10.25,p/x,8,ann,g,15m,true,-2,session,h100,600,30s,failed,2d,12\n\
             5,,a,3,p/y,1,,,,,,,,,,,,\n",
        )
        .unwrap();
        assert_eq!(trace.jobs[0].id, "a");
        assert_eq!(trace.jobs[0].row, 3);
        let job = &trace.jobs[1];
        assert_eq!(
            (job.submit_ms, job.runtime_ms, job.start_ms),
            (10_250, 5_400_000, Some(12_000))
        );
        assert_eq!(job.budget.as_deref(), Some("p/x"));
        assert_eq!((job.min_runtime_ms, job.resumable), (Some(900_000), Some(true)));
        assert_eq!((job.rank, job.kind), (Some(-2), Some(JobKind::Session)));
        assert_eq!(job.checkpoint_interval_ms, Some(600_000));
        assert_eq!((job.startup_ms, job.max_runtime_ms), (Some(30_000), Some(172_800_000)));
        assert_eq!(job.status, JobStatus::Failed);
    }

    #[test]
    fn dates_count_from_the_first_submission() {
        let trace = trace(&format!(
            "{HEADER}\nb,2026-01-01T00:00:01.5Z,p,1,1\na,2026-01-01T02:00:00+02:00,p,1,1\n"
        ))
        .unwrap();
        assert_eq!(trace.origin, Some("2026-01-01T00:00:00Z".parse().unwrap()));
        let times: Vec<_> = trace.jobs.iter().map(|job| (&*job.id, job.submit_ms)).collect();
        assert_eq!(times, [("a", 0), ("b", 1_500)]);
    }

    #[test]
    fn each_broken_row_is_one_line_that_names_the_place() {
        for (row, expected) in [
            ("x,0,p,0,5", "field 'gpus': '0' is not a whole number of at least 1"),
            ("x,0,p,2000000,5", "field 'gpus': '2000000' is more than 1000000"),
            ("x,NaN,p,1,5", "field 'submit': 'NaN' is not a finite number"),
            ("x,-inf,p,1,5", "field 'submit': '-inf' is not a finite number"),
            ("x,0,p,1,-5", "field 'runtime': '-5' is negative"),
            ("x,1e9999,p,1,5", "field 'submit': '1e9999' is not a number of seconds"),
            ("x,99999999999,p,1,5", "field 'submit': '99999999999' is more than 100 years"),
            (
                "x,10000-01-01T00:00:00Z,p,1,5",
                "field 'submit': '10000-01-01T00:00:00Z' is not a date and time (years 0001 to 9999)",
            ),
            ("x,2026-01-01T00:00:00,p,1,5", "field 'submit': '2026-01-01T00:00:00' names no zone"),
            ("x,2026-01-01T00:00:00Z,p,1,5", "mixes dates with seconds"),
            (",0,p,1,5", "field 'id': '' is empty"),
            ("ok,0,p,1,5", "field 'id': 'ok' is already the id of line 2"),
            ("x,0,p,1", "has 4 fields where the header has 5 columns"),
            ("x,0,\"p,1,5", "has a quote that is not closed on its line"),
        ] {
            let text = format!("{HEADER}\nok,0,p,1,5\n{row}\n");
            let error = trace(&text).unwrap_err().to_string();
            assert!(error.starts_with("jobs.csv line 3: "), "{error}");
            assert!(error.contains(expected) && !error.contains('\n'), "{error}");
            let options = ReadOptions { skip_bad: true, ..ReadOptions::default() };
            let skipping = read(text.as_bytes(), "jobs.csv", &options).unwrap();
            assert_eq!((skipping.jobs.len(), skipping.skipped_count), (1, 1));
            assert!(
                skipping.skipped[0].line == 3 && skipping.skipped[0].problem.contains(expected)
            );
        }
    }

    #[test]
    fn a_header_without_a_column_or_with_it_twice_is_refused() {
        let error = trace("id,submit,gpus,runtime\n").unwrap_err().to_string();
        assert!(error.starts_with("jobs.csv line 1: column 'budget' is missing"), "{error}");
        let error = trace("id,submit,budget,gpus,runtime,GPUS\n").unwrap_err().to_string();
        assert!(error.contains("two columns are called 'gpus'"), "{error}");
        let error = trace("id,submit,budget,gpus,runtime\n").unwrap_err().to_string();
        assert_eq!(error, "jobs.csv: has no job: it has no rows");
    }
}
