//! Alibaba's GPU cluster trace of 2023: `openb_pod_list_*.csv`, times in seconds.
//!
//! A part of one GPU counts as a whole one: Bursar gives out whole GPUs only.

use crate::collect::{Context, NoJob};
use crate::error::{Problem, TraceErrorKind};
use crate::job::{JobStatus, TraceJob};
use crate::options::{ReadOptions, Unit};
use crate::table::{Column, Header, Row, RowReader};
use crate::time::TimeBase;
use crate::values::{GPUS_MAX, count, integer, seconds_ms};

/// Reads rows of it; a pod's group is its `qos` class.
pub(crate) struct Reader {
    id: Column,
    cpu_milli: Option<Column>,
    gpus: Column,
    gpu_milli: Column,
    gpu_spec: Option<Column>,
    group: Option<Column>,
    phase: Option<Column>,
    created: Column,
    deleted: Column,
    scheduled: Column,
}

impl Reader {
    pub(crate) fn new(header: &Header, options: &ReadOptions) -> Result<Self, TraceErrorKind> {
        let cpu_milli = match options.unit {
            Unit::Gpus => None,
            Unit::Cpus => Some(header.require(&["cpu_milli"])?),
            Unit::Nodes => {
                let text = "openb pods are parts of nodes: the unit can be gpus or cpus only";
                return Err(TraceErrorKind::Header(text.to_owned()));
            }
        };
        Ok(Reader {
            id: header.require(&["name"])?,
            cpu_milli,
            gpus: header.require(&["num_gpu"])?,
            gpu_milli: header.require(&["gpu_milli"])?,
            gpu_spec: header.find("gpu_spec")?,
            group: header.group(options.group_column.as_deref(), &["qos"])?,
            phase: header.find("pod_phase")?,
            created: header.require(&["creation_time"])?,
            deleted: header.require(&["deletion_time"])?,
            scheduled: header.require(&["scheduled_time"])?,
        })
    }
}

impl RowReader for Reader {
    fn job(&mut self, row: &Row<'_>, cx: &mut Context) -> Result<TraceJob, NoJob> {
        let gpus = match &self.cpu_milli {
            Some(column) => row.parse(column, whole_cpus)?,
            None => row.parse(&self.gpus, count)?,
        };
        let gpu_milli = row.parse(&self.gpu_milli, count)?;
        let submit_ms = row.parse(&self.created, seconds_ms)?;
        let deleted_ms = row.parse_some(Some(&self.deleted), seconds_ms)?;
        let start_ms = row.parse_some(Some(&self.scheduled), seconds_ms)?;
        let mut job = TraceJob {
            id: row.id(&self.id)?,
            submit_ms,
            gpus,
            group: row.name(self.group.as_ref(), cx)?,
            status: row.parse_some(self.phase.as_ref(), status)?.unwrap_or_default(),
            start_ms,
            ..TraceJob::default()
        };
        if gpus == 0 {
            return Err(NoJob::WithoutGpus);
        }
        let start_ms = start_ms.ok_or(NoJob::NeverStarted)?;
        let deleted_ms = deleted_ms.ok_or(NoJob::Unfinished)?;
        job.runtime_ms = deleted_ms
            .checked_sub(start_ms)
            .ok_or_else(|| row.wrong(&self.deleted, "is before scheduled_time"))?;
        if self.cpu_milli.is_none() && gpus == 1 && gpu_milli < 1_000 {
            cx.note("jobs that asked for a part of one GPU, counted as a whole one");
        }
        job.gpu_model = match row.name(self.gpu_spec.as_ref(), cx)? {
            Some(models) if models.contains('|') => {
                cx.note("jobs that accept several GPU models, taken as any model");
                None
            }
            Some(model) if &*model == "nan" => None,
            model => model,
        };
        Ok(job)
    }

    fn time_base(&self) -> TimeBase {
        TimeBase::Origin(None)
    }
}

fn whole_cpus(milli: &str) -> Result<u32, Problem> {
    let milli = integer(milli)?;
    u64::try_from(milli)
        .ok()
        .and_then(|milli| u32::try_from(milli.div_ceil(1_000)).ok())
        .filter(|cpus| *cpus <= GPUS_MAX)
        .ok_or_else(|| "is not a number of thousandths of a CPU".into())
}

/// A pod that is deleted while it runs was a service, or stopped by its owner: it did its work.
fn status(phase: &str) -> Result<JobStatus, Problem> {
    match phase {
        "Succeeded" | "Running" => Ok(JobStatus::Completed),
        "Failed" | "Unknown" => Ok(JobStatus::Failed),
        "Pending" => Ok(JobStatus::Cancelled),
        _ => Err("is no pod phase, such as Running, Succeeded or Failed".into()),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Format, JobStatus, ReadOptions, Unit, read};

    const TEXT: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n\
        pod-a,12000,1,1,1000,,LS,Running,0,100,5\n\
        pod-b,6000,1,1,460,V100M16|V100M32,BE,Failed,10,40,10\n\
        pod-c,1500,1,0,0,,BE,Running,10,40,10\n\
        pod-d,1500,1,8,1000,T4,BE,Pending,10,40,\n\
        pod-e,1500,1,8,1000,T4,BE,Succeeded,20,40,21\n";

    #[test]
    fn pods_become_jobs() {
        let trace = read(TEXT.as_bytes(), "o", &ReadOptions::default()).unwrap();
        assert_eq!((trace.format, trace.jobs.len()), (Format::Openb, 3));
        assert_eq!((trace.without_gpus, trace.never_started), (1, 1));
        assert_eq!((trace.jobs[0].runtime_ms, trace.jobs[0].start_ms), (95_000, Some(5_000)));
        assert_eq!((trace.jobs[1].gpus, trace.jobs[1].status), (1, JobStatus::Failed));
        assert_eq!(trace.jobs[2].gpu_model.as_deref(), Some("T4"));
        assert_eq!(trace.notes.len(), 2);
        assert!(
            trace
                .notes
                .iter()
                .any(|note| note.starts_with("jobs that asked for a part of one GPU")
                    && note.ends_with(": 1"))
        );
    }

    #[test]
    fn cpus_as_the_unit() {
        let options = ReadOptions { unit: Unit::Cpus, ..ReadOptions::default() };
        let trace = read(TEXT.as_bytes(), "o", &options).unwrap();
        let cpus: Vec<u32> = trace.jobs.iter().map(|job| job.gpus).collect();
        assert_eq!(cpus, [12, 6, 2, 2]);
    }
}
