//! Readers for job histories: what a cluster ran, as plain jobs for the simulator.
//!
//! A history comes in the format of whoever recorded it ([`Format`]); [`read`] detects which and gives
//! one [`Trace`]: jobs in order of submission, times in whole milliseconds from the trace's origin.
//! [`Mapping`] then makes budgets of its users or groups and gives contracts where it has none,
//! [`describe`] says what is inside, and [`write_csv`] writes it in our own format.
//!
//! Invariant: no input makes a reader panic, and none makes it hold more than one line of
//! [`LINE_BYTES_MAX`] bytes beyond the jobs that it has read.
//! Invariant: times and durations are exact integers; no value passes through a float.
//!
//! Absent on purpose: anything about hosts and budgets' shares (the scenario's), and any network access.

mod calendar;
mod collect;
mod describe;
mod detect;
mod error;
mod fields;
mod formats;
mod input;
mod job;
mod mapping;
mod names;
mod options;
mod table;
mod text;
mod time;
mod values;
mod write;

use std::fs::File;
use std::io::Read;
use std::path::Path;

pub use calendar::{Each, Recurrence, parse_moment, time_zone};
pub use describe::{Description, LoadBucket, NamedUse, Quantiles, SizeClass, describe};
pub use error::{Place, TraceError, TraceErrorKind};
pub use input::LINE_BYTES_MAX;
pub use job::{BadRow, Format, JobKind, JobStatus, Numbering, SKIPPED_LISTED_MAX, Trace, TraceJob};
pub use mapping::{ContractDefaults, DurationMs, MapBy, MapRule, Mapping, MinRuntimeDefault};
pub use options::{ReadOptions, Unit};
pub use text::one_line;
pub use values::{GPUS_MAX, SPAN_MS_MAX, parse_duration_ms};
pub use write::write_csv;

/// Reads the job history in the file at `path`.
pub fn read_path(path: impl AsRef<Path>, options: &ReadOptions) -> Result<Trace, TraceError> {
    let path = path.as_ref();
    let name = path.display().to_string();
    let file = File::open(path)
        .map_err(|e| TraceError::new(&name, Place::File, TraceErrorKind::Open(e)))?;
    read(file, &name, options)
}

/// Reads a job history from `reader`; `name` is what errors call it.
pub fn read(reader: impl Read, name: &str, options: &ReadOptions) -> Result<Trace, TraceError> {
    let mut input = input::Input::open(reader, name)?;
    let shape = detect::shape_of(&input, options)?;
    formats::read(&mut input, shape, options)
}
