//! Which format a history is in, from its first lines.

use crate::error::{TraceError, TraceErrorKind};
use crate::fields::{Dialect, Fields};
use crate::formats::sacct;
use crate::input::{Input, looks_like_json};
use crate::job::Format;
use crate::options::ReadOptions;

const LOOKED_FOR: &str = "csv (a header with id, submit, budget, gpus, runtime), \
    swf (lines of 18 numbers), sacct (a '|' header with JobID, or the 26 known fields), \
    philly (a header with jobname, vc, gpu_num, duration, or JSON with attempts), \
    helios (job_id, gpu_num, vc, submit_time; or job_id, arrival_s, service_sec, gpu_count; \
    or job_id, tenant, num_chips, duration_s), \
    acme (job_id, gpu_num, type, submit_time), \
    openb (name, num_gpu, gpu_milli, creation_time)";

/// The columns by which a comma-separated table is known.
const KNOWN_BY: [(Format, &[&str]); 7] = [
    (Format::Openb, &["name", "num_gpu", "gpu_milli", "creation_time"]),
    (Format::Philly, &["jobname", "vc", "gpu_num", "submit_time", "duration"]),
    (Format::Helios, &["job_id", "vc", "gpu_num", "submit_time"]),
    (Format::Acme, &["job_id", "gpu_num", "type", "submit_time"]),
    (Format::Helios, &["job_id", "arrival_s", "service_sec", "gpu_count"]),
    (Format::Helios, &["job_id", "tenant", "num_chips", "submit_time"]),
    (Format::BursarCsv, &["id", "submit", "gpus", "runtime"]),
];

/// A format, and the way a file is written in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A table; `columns` where the file has no header line.
    Table { format: Format, dialect: Dialect, columns: Option<Vec<String>> },
    /// Lines of 18 numbers.
    Swf,
    /// Philly's JSON array.
    PhillyJson,
}

/// The shape of `input`, by the caller's choice or by its content.
pub(crate) fn shape_of(input: &Input<'_>, options: &ReadOptions) -> Result<Shape, TraceError> {
    let head = input.head();
    let is_json = looks_like_json(head);
    let first = first_line(head);
    let table = |format, dialect| {
        let columns = match (&options.columns, first) {
            (Some(columns), _) => Some(columns.clone()),
            (None, Some(line)) if format == Format::Sacct => sacct::columns_of_headless(line),
            (None, _) => None,
        };
        Ok(Shape::Table { format, dialect, columns })
    };
    match options.format {
        Some(Format::Swf) => return Ok(Shape::Swf),
        Some(Format::Philly) if is_json => return Ok(Shape::PhillyJson),
        Some(Format::Sacct) => return table(Format::Sacct, Dialect::Pipe),
        Some(
            format @ (Format::BursarCsv
            | Format::Philly
            | Format::Helios
            | Format::Acme
            | Format::Openb),
        ) => return table(format, Dialect::Comma),
        None => {}
    }
    if head.trim_ascii_start().starts_with(b";") {
        return Ok(Shape::Swf);
    }
    let Some(first) = first else {
        let what = if head.is_empty() { "it is empty" } else { "it is all blanks and comments" };
        return Err(input.fail(TraceErrorKind::Empty { detail: format!(": {what}") }));
    };
    if is_json && has(head, b"\"jobid\"") {
        return Ok(Shape::PhillyJson);
    }
    if is_swf(first) {
        return Ok(Shape::Swf);
    }
    if let Some(columns) = &options.columns {
        let dialect = if first.contains(&b'|') { Dialect::Pipe } else { Dialect::Comma };
        if let Some(format) = format_by_columns(columns, dialect) {
            return table(format, dialect);
        }
    }
    for dialect in [Dialect::Pipe, Dialect::Comma] {
        if let Some(format) = format_by_columns(&names_in(first, dialect), dialect) {
            return table(format, dialect);
        }
    }
    if sacct::columns_of_headless(first).is_some() {
        return table(Format::Sacct, Dialect::Pipe);
    }
    if std::str::from_utf8(first).is_err() {
        return Err(input.fail(TraceErrorKind::Container { what: "not UTF-8 text" }));
    }
    Err(input.fail(TraceErrorKind::Unrecognised { looked_for: LOOKED_FOR }))
}

/// The first line that is neither blank nor a comment, as far as it is at hand.
fn first_line(head: &[u8]) -> Option<&[u8]> {
    head.split(|byte| *byte == b'\n')
        .map(|line| line.trim_ascii())
        .find(|line| !line.is_empty() && !line.starts_with(b"#") && !line.starts_with(b";"))
}

fn names_in(line: &[u8], dialect: Dialect) -> Vec<String> {
    let mut fields = Fields::default();
    match fields.split(line, dialect) {
        Ok(()) => (0..fields.len())
            .map(|index| String::from_utf8_lossy(fields.get(index)).into_owned())
            .collect(),
        Err(_) => Vec::new(),
    }
}

fn format_by_columns(names: &[String], dialect: Dialect) -> Option<Format> {
    let is_there = |wanted: &str| names.iter().any(|name| name.eq_ignore_ascii_case(wanted));
    match dialect {
        Dialect::Pipe => {
            let has_id = is_there("jobid") || is_there("jobidraw");
            (names.len() > 1 && has_id).then_some(Format::Sacct)
        }
        Dialect::Comma => KNOWN_BY
            .iter()
            .find(|(_, wanted)| wanted.iter().all(|name| is_there(name)))
            .map(|(format, _)| *format)
            // Nearly ours: reading it tells which column is missing.
            .or_else(|| {
                let ours = ["id", "submit", "budget", "gpus", "runtime"];
                let there = ours.iter().filter(|name| is_there(name)).count();
                (there >= 3).then_some(Format::BursarCsv)
            }),
    }
}

fn is_swf(line: &[u8]) -> bool {
    let Ok(line) = std::str::from_utf8(line) else { return false };
    let mut count = 0;
    for field in line.split_ascii_whitespace() {
        if field.parse::<f64>().is_err() {
            return false;
        }
        count += 1;
    }
    count == 18
}

fn has(head: &[u8], part: &[u8]) -> bool {
    head.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(text: &str) -> Result<Shape, TraceError> {
        let input = Input::open(text.as_bytes(), "x")?;
        shape_of(&input, &ReadOptions::default())
    }

    #[test]
    fn known_by_the_first_line() {
        for (text, format) in [
            ("# c\n\nid,submit,budget,gpus,runtime\n", Format::BursarCsv),
            ("ID , budget, gpus\n", Format::BursarCsv),
            ("JobID|State|Elapsed\n", Format::Sacct),
            ("jobname,user,vc,gpu_num,state,submit_time,duration\n", Format::Philly),
            ("job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time\n", Format::Helios),
            ("job_id,arrival_s,service_sec,gpu_count\n", Format::Helios),
            ("job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time\n", Format::Acme),
            ("name,cpu_milli,num_gpu,gpu_milli,creation_time\n", Format::Openb),
        ] {
            let Shape::Table { format: found, .. } = shape(text).unwrap() else {
                panic!("{text} is no table")
            };
            assert_eq!(found, format, "{text}");
        }
        let swf = "  1 0 0 222 80 -1 -1 80 14400 1200000 1 1 1 -1 1 -1 -1 -1\n";
        assert_eq!(shape(swf).unwrap(), Shape::Swf);
        assert_eq!(shape("; Version: 2\n; x\n1 2 3\n").unwrap(), Shape::Swf);
        assert_eq!(shape("[{\"jobid\": \"a\"}]").unwrap(), Shape::PhillyJson);
    }

    #[test]
    fn what_is_unknown_lists_what_was_looked_for() {
        let text = shape("a,b,c\n1,2,3\n").unwrap_err().to_string();
        for format in Format::ALL {
            assert!(text.contains(&format!("{format} (")), "{text}");
        }
        assert!(!text.contains('\n'));
        assert!(shape("").unwrap_err().to_string().contains("x: has no job: it is empty"));
        assert!(shape("\n\n# only a comment\n").unwrap_err().to_string().contains("no job"));
    }
}
