//! Shanghai AI Lab's Acme (`trace_seren.csv`, `trace_kalos.csv`), and the log form that it shares
//! with Helios: submission, start and end as dates, duration in seconds.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::collect::{Context, NoJob};
use crate::error::{RowError, TraceErrorKind};
use crate::formats::{final_status, unit_column};
use crate::job::TraceJob;
use crate::options::ReadOptions;
use crate::table::{Column, Header, Row, RowReader};
use crate::time::{TimeBase, absolute_ms, moment, moment_if_any};
use crate::values::{SPAN_MS_MAX, count, seconds_ms};

/// Reads Acme; a job's group is its `type` (Pretrain, Evaluation, …), since no other is published.
pub(crate) struct Reader(Logged);

impl Reader {
    pub(crate) fn new(header: &Header, options: &ReadOptions) -> Result<Self, TraceErrorKind> {
        Logged::new(header, options, &["type"]).map(Reader)
    }
}

impl RowReader for Reader {
    fn job(&mut self, row: &Row<'_>, cx: &mut Context) -> Result<TraceJob, NoJob> {
        self.0.job(row, cx)
    }

    fn time_base(&self) -> TimeBase {
        self.0.time_base()
    }
}

/// Reads a table of jobs with `submit_time`, `start_time`, `end_time` and `duration`.
///
/// The runtime is the end less the start. `duration` serves only where one of them is missing: in Kalos
/// it includes the time in the queue, whatever the README says.
pub(crate) struct Logged {
    id: Column,
    submit: Column,
    start: Option<Column>,
    end: Option<Column>,
    duration: Option<Column>,
    gpus: Column,
    user: Option<Column>,
    group: Option<Column>,
    state: Option<Column>,
    zone: TimeZone,
}

impl Logged {
    pub(crate) fn new(
        header: &Header,
        options: &ReadOptions,
        groups: &[&str],
    ) -> Result<Self, TraceErrorKind> {
        let start = header.find("start_time")?;
        let end = header.find("end_time")?;
        let duration = match (&start, &end) {
            (Some(_), Some(_)) => header.find("duration")?,
            (_, _) => Some(header.require(&["duration"])?),
        };
        Ok(Logged {
            id: header.require(&["job_id"])?,
            submit: header.require(&["submit_time"])?,
            start,
            end,
            duration,
            gpus: header
                .require(&[unit_column(options.unit, ["gpu_num", "cpu_num", "node_num"])])?,
            user: header.find("user")?,
            group: header.group(options.group_column.as_deref(), groups)?,
            state: header.find("state")?,
            zone: options.time_zone.clone().unwrap_or(TimeZone::UTC),
        })
    }

    fn date(&self, row: &Row<'_>, column: Option<&Column>) -> Result<Option<Timestamp>, RowError> {
        let zone = Some(&self.zone);
        Ok(row.parse_some(column, |text| moment_if_any(text, zone))?.flatten())
    }
}

impl RowReader for Logged {
    fn job(&mut self, row: &Row<'_>, cx: &mut Context) -> Result<TraceJob, NoJob> {
        let gpus = row.parse(&self.gpus, count)?;
        let submit = row.parse(&self.submit, |text| moment(text, Some(&self.zone)))?;
        let start = self.date(row, self.start.as_ref())?;
        let end = self.date(row, self.end.as_ref())?;
        let duration_ms = row.parse_some(self.duration.as_ref(), seconds_ms)?;
        let mut job = TraceJob {
            id: row.id(&self.id)?,
            submit_ms: absolute_ms(submit),
            gpus,
            user: row.name(self.user.as_ref(), cx)?,
            group: row.name(self.group.as_ref(), cx)?,
            status: row.parse_some(self.state.as_ref(), final_status)?.unwrap_or_default(),
            start_ms: start.map(absolute_ms),
            ..TraceJob::default()
        };
        if gpus == 0 {
            return Err(NoJob::WithoutGpus);
        }
        let between_ms = match (start, end) {
            (None, _) if self.start.is_some() => return Err(NoJob::NeverStarted),
            (Some(start), Some(end)) => absolute_ms(end).checked_sub(absolute_ms(start)),
            (_, _) => None,
        };
        job.runtime_ms = match (between_ms, duration_ms) {
            (Some(between_ms), Some(duration_ms)) if between_ms.abs_diff(duration_ms) > 1_000 => {
                cx.note("jobs whose duration is not their end less their start, which is used");
                between_ms
            }
            (Some(between_ms), _) => between_ms,
            (None, Some(duration_ms)) => duration_ms,
            (None, None) => return Err(NoJob::Unfinished),
        };
        if job.runtime_ms > SPAN_MS_MAX {
            return Err(RowError::row("ran for more than 100 years").into());
        }
        Ok(job)
    }

    fn time_base(&self) -> TimeBase {
        TimeBase::Absolute
    }
}

#[cfg(test)]
mod tests {
    use crate::{Format, ReadOptions, read};

    #[test]
    fn seren_and_kalos() {
        let seren = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n\
            1,uA,1,8,128,Other,FAILED,2023-03-01 00:00:00+08:00,2023-03-01 00:00:30+08:00,2023-03-01 00:02:30+08:00,120,30,960.0\n\
            2,uB,0,0,1,Debug,COMPLETED,2023-03-01 00:00:00+08:00,2023-03-01 00:00:30+08:00,2023-03-01 00:02:30+08:00,120,30,0.0\n";
        let trace = read(seren.as_bytes(), "s", &ReadOptions::default()).unwrap();
        assert_eq!((trace.format, trace.without_gpus), (Format::Acme, 1));
        assert_eq!(trace.origin, Some("2023-02-28T16:00:00Z".parse().unwrap()));
        assert_eq!((trace.jobs[0].runtime_ms, trace.jobs[0].start_ms), (120_000, Some(30_000)));
        assert_eq!(trace.jobs[0].group.as_deref(), Some("Other"));
        assert!(trace.notes.is_empty());

        let kalos = "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,fail_time,stop_time,duration,queue,gpu_time\n\
            dlc1,uA,8,64,960,1000,100.0,Other,CANCELLED,2023-05-17 11:00:00+00:00,2023-05-17 11:00:10+00:00,2023-05-17 11:00:20+00:00,,2023-05-17 11:00:20+00:00,20,10.0,1280.0\n";
        let trace = read(kalos.as_bytes(), "k", &ReadOptions::default()).unwrap();
        assert_eq!(trace.jobs[0].runtime_ms, 10_000);
        assert!(trace.notes[0].starts_with("jobs whose duration is not"), "{:?}", trace.notes);
    }
}
