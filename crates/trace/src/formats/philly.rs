//! Microsoft Philly as a table: `jobname,user,vc,gpu_num,state,submit_time,duration,…`, times in seconds.

use crate::collect::{Context, NoJob};
use crate::error::TraceErrorKind;
use crate::formats::final_status;
use crate::job::TraceJob;
use crate::options::ReadOptions;
use crate::table::{Column, Header, Row, RowReader};
use crate::time::TimeBase;
use crate::values::{count, seconds_ms};

/// Reads rows of it.
pub(crate) struct Reader {
    id: Column,
    submit: Column,
    runtime: Column,
    gpus: Column,
    user: Option<Column>,
    group: Option<Column>,
    state: Option<Column>,
}

impl Reader {
    pub(crate) fn new(header: &Header, options: &ReadOptions) -> Result<Self, TraceErrorKind> {
        Ok(Reader {
            id: header.require(&["jobname"])?,
            submit: header.require(&["submit_time"])?,
            runtime: header.require(&["duration"])?,
            gpus: header.require(&["gpu_num"])?,
            user: header.find("user")?,
            group: header.group(options.group_column.as_deref(), &["vc"])?,
            state: header.find("state")?,
        })
    }
}

impl RowReader for Reader {
    fn job(&mut self, row: &Row<'_>, cx: &mut Context) -> Result<TraceJob, NoJob> {
        let gpus = row.parse(&self.gpus, count)?;
        let job = TraceJob {
            id: row.id(&self.id)?,
            submit_ms: row.parse(&self.submit, seconds_ms)?,
            runtime_ms: row.parse(&self.runtime, seconds_ms)?,
            gpus,
            user: row.name(self.user.as_ref(), cx)?,
            group: row.name(self.group.as_ref(), cx)?,
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
    use crate::{Format, JobStatus, ReadOptions, read};

    #[test]
    fn rows_of_one_second_keep_their_order() {
        let text = "jobname,user,vc,gpu_num,state,submit_time,duration,extra\n\
                    z,u1,v1,8,COMPLETED,7,100,-1\n\
                    a,u2,v1,1,FAILED,7,5,-1\n\
                    m,u2,v2,0,CANCELLED,6,5,-1\n\
                    k,u2,v2,2,CANCELLED,5,5,-1\n";
        let trace = read(text.as_bytes(), "p", &ReadOptions::default()).unwrap();
        assert_eq!((trace.format, trace.without_gpus), (Format::Philly, 1));
        let order: Vec<_> = trace.jobs.iter().map(|job| (&*job.id, job.row)).collect();
        assert_eq!(order, [("k", 5), ("z", 2), ("a", 3)]);
        assert_eq!(trace.jobs[0].status, JobStatus::Cancelled);
        assert_eq!(trace.jobs[0].group.as_deref(), Some("v2"));
    }
}
