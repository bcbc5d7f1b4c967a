//! One module per format: how its columns become a job.

pub(crate) mod acme;
pub(crate) mod bursar_csv;
pub(crate) mod helios;
pub(crate) mod openb;
pub(crate) mod philly;
pub(crate) mod philly_json;
pub(crate) mod sacct;
pub(crate) mod swf;

use crate::collect::Collector;
use crate::detect::Shape;
use crate::error::{Problem, TraceError, TraceErrorKind};
use crate::input::Input;
use crate::job::{Format, JobStatus, Trace};
use crate::options::{ReadOptions, Unit};
use crate::table::{Header, RowReader, read_table};

/// Reads all of `input`, which has this shape.
pub(crate) fn read(
    input: &mut Input<'_>,
    shape: Shape,
    options: &ReadOptions,
) -> Result<Trace, TraceError> {
    let name = input.name().to_owned();
    let format = match &shape {
        Shape::Swf => Format::Swf,
        Shape::PhillyJson => Format::Philly,
        Shape::Table { format, .. } => *format,
    };
    if matches!(format, Format::BursarCsv | Format::Philly) && options.unit != Unit::Gpus {
        let text = format!("{format} counts GPUs only, not {}", options.unit);
        return Err(input.fail(TraceErrorKind::Header(text)));
    }
    let collector = |format| Collector::new(&name, format, options.skip_bad);
    let collected = match shape {
        Shape::Swf => swf::read(input, collector(Format::Swf), options),
        Shape::PhillyJson => philly_json::read(input, collector(Format::Philly), options),
        Shape::Table { format, dialect, columns } => {
            read_table(input, dialect, columns, collector(format), |header| {
                row_reader(format, header, options)
            })
        }
    };
    let mut trace = collected?.finish()?;
    let unit = match format {
        Format::Swf => Unit::Cpus,
        Format::BursarCsv
        | Format::Sacct
        | Format::Philly
        | Format::Helios
        | Format::Acme
        | Format::Openb => options.unit,
    };
    match unit {
        Unit::Gpus => {}
        Unit::Cpus | Unit::Nodes => trace.notes.push(format!("{unit} are counted as GPUs")),
    }
    Ok(trace)
}

fn row_reader(
    format: Format,
    header: &Header,
    options: &ReadOptions,
) -> Result<Box<dyn RowReader>, TraceErrorKind> {
    Ok(match format {
        Format::BursarCsv => Box::new(bursar_csv::Reader::new(header, options)?),
        Format::Sacct => Box::new(sacct::Reader::new(header, options)?),
        Format::Philly => Box::new(philly::Reader::new(header, options)?),
        Format::Helios => helios::reader(header, options)?,
        Format::Acme => Box::new(acme::Reader::new(header, options)?),
        Format::Openb => Box::new(openb::Reader::new(header, options)?),
        Format::Swf => return Err(TraceErrorKind::Header("swf has no header line".to_owned())),
    })
}

/// The column that counts in `unit`, of those for GPUs, CPUs and nodes.
fn unit_column(unit: Unit, columns: [&'static str; 3]) -> &'static str {
    match unit {
        Unit::Gpus => columns[0],
        Unit::Cpus => columns[1],
        Unit::Nodes => columns[2],
    }
}

/// A final state in the words that Slurm and most traces use.
fn final_status(state: &str) -> Result<JobStatus, Problem> {
    // Slurm adds who cancelled it: `CANCELLED by 1000`.
    let word = state.split_ascii_whitespace().next().unwrap_or_default().to_ascii_uppercase();
    match word.trim_end_matches('+') {
        "COMPLETED" | "PASS" | "SUCCEEDED" => Ok(JobStatus::Completed),
        "FAILED" | "TIMEOUT" | "NODE_FAIL" | "OUT_OF_MEMORY" | "BOOT_FAIL" | "DEADLINE" => {
            Ok(JobStatus::Failed)
        }
        "CANCELLED" | "CANCELED" | "KILLED" | "PREEMPTED" | "REQUEUED" | "REVOKED"
        | "SUSPENDED" | "STOPPED" => Ok(JobStatus::Cancelled),
        _ => Err("is no final state, such as COMPLETED, FAILED or CANCELLED".into()),
    }
}
