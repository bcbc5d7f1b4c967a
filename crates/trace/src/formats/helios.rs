//! SenseTime Helios: the published `cluster_log.csv`, and two tables that others made of it.

use crate::collect::{Context, NoJob};
use crate::error::TraceErrorKind;
use crate::formats::acme::Logged;
use crate::formats::final_status;
use crate::job::TraceJob;
use crate::options::{ReadOptions, Unit};
use crate::table::{Column, Header, Row, RowReader};
use crate::time::TimeBase;
use crate::values::{count, microseconds_ms, seconds_ms};

/// The reader for whichever of the three tables this is.
pub(crate) fn reader(
    header: &Header,
    options: &ReadOptions,
) -> Result<Box<dyn RowReader>, TraceErrorKind> {
    if header.find("arrival_s")?.is_some() || header.find("num_chips")?.is_some() {
        if options.unit != Unit::Gpus {
            let text = format!("this form of helios counts GPUs only, not {}", options.unit);
            return Err(TraceErrorKind::Header(text));
        }
        return Ok(Box::new(Derived::new(header, options)?));
    }
    Ok(Box::new(Logged::new(header, options, &["vc"])?))
}

/// The derived tables: `job_id,arrival_s,service_sec,gpu_count` in seconds, and
/// `job_id,user,tenant,class,submit_time,num_chips,…,duration_s` whose `submit_time` is in microseconds.
struct Derived {
    id: Column,
    submit: Column,
    in_microseconds: bool,
    runtime: Column,
    gpus: Column,
    user: Option<Column>,
    group: Option<Column>,
    gpu_model: Option<Column>,
    max_runtime: Option<Column>,
    state: Option<Column>,
}

impl Derived {
    fn new(header: &Header, options: &ReadOptions) -> Result<Self, TraceErrorKind> {
        let in_seconds = header.find("arrival_s")?;
        Ok(Derived {
            id: header.require(&["job_id"])?,
            in_microseconds: in_seconds.is_none(),
            submit: match in_seconds {
                Some(column) => column,
                None => header.require(&["submit_time"])?,
            },
            runtime: header.require(&["service_sec", "duration_s"])?,
            gpus: header.require(&["gpu_count", "num_chips"])?,
            user: header.find("user")?,
            group: header.group(options.group_column.as_deref(), &["tenant"])?,
            gpu_model: header.find("chip_type")?,
            max_runtime: header.find("walltime_limit_s")?,
            state: header.find("final_status")?,
        })
    }
}

impl RowReader for Derived {
    fn job(&mut self, row: &Row<'_>, cx: &mut Context) -> Result<TraceJob, NoJob> {
        let gpus = row.parse(&self.gpus, count)?;
        let time_ms = if self.in_microseconds { microseconds_ms } else { seconds_ms };
        let job = TraceJob {
            id: row.id(&self.id)?,
            submit_ms: row.parse(&self.submit, time_ms)?,
            runtime_ms: row.parse(&self.runtime, seconds_ms)?,
            gpus,
            user: row.name(self.user.as_ref(), cx)?,
            group: row.name(self.group.as_ref(), cx)?,
            gpu_model: row.name(self.gpu_model.as_ref(), cx)?,
            max_runtime_ms: row.parse_some(self.max_runtime.as_ref(), seconds_ms)?,
            status: row.parse_some(self.state.as_ref(), final_status)?.unwrap_or_default(),
            ..TraceJob::default()
        };
        if gpus == 0 { Err(NoJob::WithoutGpus) } else { Ok(job) }
    }

    fn time_base(&self) -> TimeBase {
        TimeBase::Origin(None)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Format, JobStatus, ReadOptions, Unit, read};

    #[test]
    fn the_published_log() {
        let text = "job_id,user,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue,vc\n\
            11,uA,8,64,1,COMPLETED,2020-04-02 00:00:00,2020-04-02 00:00:10,2020-04-02 00:01:10,60,10,vcA\n\
            12,uB,0,4,1,COMPLETED,2020-04-02 00:00:00,2020-04-02 00:00:10,2020-04-02 00:01:10,60,10,vcB\n\
            13,uB,1,4,1,CANCELLED,2020-04-02 00:00:05,,2020-04-02 00:01:10,0,65,vcB\n\
            10,uB,1,4,1,NODE_FAIL,2020-04-01 23:59:00,2020-04-02 00:00:10,2020-04-02 00:01:10,60,10,vcB\n";
        let trace = read(text.as_bytes(), "h", &ReadOptions::default()).unwrap();
        assert_eq!((trace.format, trace.without_gpus, trace.never_started), (Format::Helios, 1, 1));
        assert_eq!(trace.origin, Some("2020-04-01T23:59:00Z".parse().unwrap()));
        let (first, second) = (&trace.jobs[0], &trace.jobs[1]);
        assert_eq!((&*first.id, first.status), ("10", JobStatus::Failed));
        assert_eq!((second.submit_ms, second.start_ms), (60_000, Some(70_000)));
        assert_eq!((second.runtime_ms, second.gpus), (60_000, 8));
        assert_eq!(second.group.as_deref(), Some("vcA"));
        let cpus = ReadOptions { unit: Unit::Cpus, ..ReadOptions::default() };
        assert_eq!(read(text.as_bytes(), "h", &cpus).unwrap().jobs[1].gpus, 64);
    }

    #[test]
    fn the_derived_tables() {
        let text = "job_id,arrival_s,service_sec,gpu_count\n1#0,0.0,172800.0,32\n2#1,1.5,1.0,1\n";
        let trace = read(text.as_bytes(), "h", &ReadOptions::default()).unwrap();
        assert_eq!(trace.format, Format::Helios);
        assert_eq!((trace.jobs[1].submit_ms, trace.jobs[0].runtime_ms), (1_500, 172_800_000));
        let text = "# made by hand\njob_id,user,tenant,class,submit_time,num_chips,chip_type,num_nodes,duration_s,walltime_limit_s,final_status\n\
                    7,u,vcA,x,5000000,16,,2,20.0,30.0,CANCELED\n";
        let trace = read(text.as_bytes(), "h", &ReadOptions::default()).unwrap();
        let job = &trace.jobs[0];
        assert_eq!((job.submit_ms, job.max_runtime_ms), (5_000, Some(30_000)));
        assert_eq!((job.status, job.group.as_deref()), (JobStatus::Cancelled, Some("vcA")));
    }
}
