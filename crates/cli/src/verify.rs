//! `bursar verify`.

use crate::args::VerifyArgs;
use crate::failure::Failure;
use crate::shown::{note, say};
use std::fs::File;
use std::io::{BufRead, BufReader, stdin};
use std::path::Path;

/// Runs the verb.
pub(crate) fn verify(args: &VerifyArgs) -> Result<(), Failure> {
    let name = args.events.display();
    let reader: Box<dyn BufRead> = if args.events == Path::new("-") {
        Box::new(stdin().lock())
    } else {
        let cannot = |error| Failure::Input(format!("{name}: {error}"));
        Box::new(BufReader::with_capacity(1 << 18, File::open(&args.events).map_err(cannot)?))
    };
    let scenario =
        bursar_scenario::load_path(&args.scenario, &args.overrides).map_err(Failure::input)?;
    scenario.notes.iter().for_each(|text| note(&format!("note: {text}")));
    let report = bursar_verify::verify(reader, &scenario)
        .map_err(|error| Failure::Input(format!("{name} {error}")))?;
    if report.events == 0 {
        return Err(Failure::Input(format!("{name}: holds no event")));
    }
    if args.json {
        say(&(serde_json::to_string_pretty(&report).map_err(Failure::fault)? + "\n"));
    } else {
        say(&report.to_string());
    }
    if report.is_clean() { Ok(()) } else { Err(Failure::Violations) }
}
