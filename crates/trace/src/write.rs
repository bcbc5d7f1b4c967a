//! Writes jobs in our own CSV, so that reading it gives the same jobs.

use std::fmt::{self, Display};
use std::io::{self, Write};

use crate::job::TraceJob;

const COLUMNS: &str = "id,submit,budget,gpus,runtime,user,group,min_runtime,resumable,rank,kind,\
                       gpu_model,checkpoint_interval,startup,max_runtime,status,start";

/// Writes `jobs` as workload CSV, times in seconds from the trace's origin.
///
/// An id or name that a reader would not give back (control characters, blanks around it, none at
/// all for an id) is an error.
pub fn write_csv(out: &mut impl Write, jobs: &[TraceJob]) -> io::Result<()> {
    writeln!(out, "{COLUMNS}")?;
    for job in jobs {
        if job.id.is_empty() {
            return Err(unwritable("an empty id"));
        }
        let names = [&job.user, &job.group, &job.budget, &job.gpu_model];
        for name in names.into_iter().flatten().map(|name| &**name).chain([job.id.as_str()]) {
            if name.chars().any(char::is_control) {
                return Err(unwritable(&format!("control characters in {name:?}")));
            }
        }
        write!(
            out,
            "{},{},{},{},{}",
            Quoted(&job.id),
            Seconds(job.submit_ms),
            Quoted(job.budget.as_deref().unwrap_or_default()),
            job.gpus,
            Seconds(job.runtime_ms),
        )?;
        cell(out, job.user.as_deref().map(Quoted))?;
        cell(out, job.group.as_deref().map(Quoted))?;
        cell(out, job.min_runtime_ms.map(Seconds))?;
        cell(out, job.resumable)?;
        cell(out, job.rank)?;
        cell(out, job.kind)?;
        cell(out, job.gpu_model.as_deref().map(Quoted))?;
        cell(out, job.checkpoint_interval_ms.map(Seconds))?;
        cell(out, job.startup_ms.map(Seconds))?;
        cell(out, job.max_runtime_ms.map(Seconds))?;
        cell(out, Some(job.status))?;
        cell(out, job.start_ms.map(Seconds))?;
        writeln!(out)?;
    }
    Ok(())
}

fn cell(out: &mut impl Write, value: Option<impl Display>) -> io::Result<()> {
    match value {
        Some(value) => write!(out, ",{value}"),
        None => write!(out, ","),
    }
}

fn unwritable(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a workload CSV cannot hold {what}"))
}

/// Milliseconds as a decimal number of seconds.
struct Seconds(u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, ms) = (self.0 / 1_000, self.0 % 1_000);
        if ms == 0 { write!(f, "{seconds}") } else { write!(f, "{seconds}.{ms:03}") }
    }
}

/// A name, in quotes where it must be.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0;
        if name.contains([',', '"']) || name.starts_with('#') || name.trim() != name {
            write!(f, "\"{}\"", name.replace('"', "\"\""))
        } else {
            f.write_str(name)
        }
    }
}
