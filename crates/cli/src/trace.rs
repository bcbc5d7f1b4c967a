//! `bursar trace`.

use crate::args::{ConvertArgs, DescribeArgs, ReadArgs, TraceVerb};
use crate::failure::Failure;
use crate::output::{Output, check_distinct, finish_all};
use crate::shown::{note, say};
use bursar_trace::{ReadOptions, Trace};
use std::io::{ErrorKind, Write};

/// Runs the verb.
pub(crate) fn trace(verb: &TraceVerb) -> Result<(), Failure> {
    match verb {
        TraceVerb::Describe(args) => describe(args),
        TraceVerb::Convert(args) => convert(args),
    }
}

fn describe(args: &DescribeArgs) -> Result<(), Failure> {
    let trace = read(&args.read)?;
    let description = bursar_trace::describe(&trace);
    if args.json {
        say(&(serde_json::to_string_pretty(&description).map_err(Failure::fault)? + "\n"));
    } else {
        say(&description.to_string());
    }
    Ok(())
}

fn convert(args: &ConvertArgs) -> Result<(), Failure> {
    check_distinct(&[&args.read.file], &[Some(&args.to)])?;
    let mut trace = read(&args.read)?;
    trace.notes.iter().for_each(|text| note(&format!("note: {text}")));
    match (args.mapping(), args.contract_asked()) {
        (Some(mapping), _) => mapping.apply(&mut trace).map_err(Failure::input)?,
        (None, Some(contract)) => trace.jobs.iter_mut().for_each(|job| contract.fill(job)),
        (None, None) => {}
    }
    let mut output = Output::create(&args.to)?;
    let written = bursar_trace::write_csv(&mut output, &trace.jobs).and_then(|()| output.flush());
    written.map_err(|error| match error.kind() {
        ErrorKind::InvalidData => Failure::input(error),
        _ => Failure::fault(error),
    })?;
    finish_all(vec![output])
}

/// Reads a history, and tells of every broken row that was left out.
fn read(args: &ReadArgs) -> Result<Trace, Failure> {
    let options = ReadOptions {
        format: args.format,
        skip_bad: args.skip_bad,
        columns: args.columns.clone(),
        time_zone: args.time_zone.clone(),
        unit: args.unit,
        group_column: args.group_column.clone(),
    };
    let trace = bursar_trace::read_path(&args.file, &options).map_err(Failure::input)?;
    for row in &trace.skipped {
        let place = trace.numbering.place(row.line);
        note(&format!("skipped {}{place}: {}", trace.name, row.problem));
    }
    let more = trace.skipped_count - trace.skipped.len() as u64;
    if more > 0 {
        note(&format!("skipped {more} more rows of {}", trace.name));
    }
    Ok(trace)
}
