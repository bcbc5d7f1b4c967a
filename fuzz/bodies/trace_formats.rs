//! A history in a format that the first byte names, read in a way that the second one does.
//!
//! Both are digits in the seeds: format `1` to `6` and `0` as in `Format::ALL`, and the way a sum of 1 (leave
//! out broken rows), 2 (CPUs as GPUs) and 4 (the first line has the names of the columns).

use crate::sound;
use bursar_trace::{Format, ReadOptions, Unit, read};

pub(crate) fn run(data: &[u8]) {
    let [format, way, text @ ..] = data else { return };
    let mut options = ReadOptions {
        format: Some(Format::ALL[usize::from(*format) % Format::ALL.len()]),
        skip_bad: way & 1 > 0,
        unit: if way & 2 > 0 { Unit::Cpus } else { Unit::Gpus },
        ..ReadOptions::default()
    };
    let mut rest = text;
    if way & 4 > 0 {
        let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
        let names = String::from_utf8_lossy(&text[..end]);
        options.columns = Some(names.split(',').map(String::from).collect());
        rest = text.get(end + 1..).unwrap_or_default();
    }
    match read(rest, "history", &options) {
        Ok(trace) => sound::history(&trace),
        Err(error) => sound::refusal(&error),
    }
}
