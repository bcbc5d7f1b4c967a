//! `bursar report` of a period: asks the site, or reads its folder, and shows or writes what it says. Nothing is
//! computed here.

#[cfg(feature = "parquet")]
mod parquet;
mod period;
mod sheet;
mod text;

use crate::args::{ReportArgs, Rows};
use crate::client::Client;
use crate::failure::Failure;
use crate::live::words;
use crate::output::{Output, check_distinct, finish_all};
use crate::shown::{note, say, say_raw};
use bursar_site::report::{Asked, Begin};
use bursar_store::Reader;
use period::Period;
use serde_json::{Value, json};
use sheet::Sheet;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use text::Colours;

pub(crate) fn report(args: &ReportArgs) -> Result<(), Failure> {
    let zone = period::zone(&args.time_zone)?;
    let asked = period::period(args, &zone)?;
    let (csv, parquet) = (args.csv.as_deref(), args.parquet());
    check_distinct(&[], &[csv, parquet])?;
    if args.server.json && [csv, parquet].iter().flatten().any(|path| *path == Path::new("-")) {
        return Err(Failure::input("--json: it is for standard output; write the other to a file"));
    }
    // Where it cannot be written, nobody is asked.
    let mut csv_file = csv.map(Output::create).transpose()?;
    let mut parquet_file = parquet.map(Output::create).transpose()?;
    let mut report = match &args.data {
        Some(data) => read(data, asked, args)?,
        None => ask(asked, args)?,
    };
    let name = zone.iana_name().unwrap_or(&args.time_zone).to_owned();
    report["time_zone"] = json!(name);
    let sheet = Sheet::of(&report, args.rows);
    if let Some(file) = &mut csv_file {
        file.write_all(sheet.csv(&zone).as_bytes()).map_err(Failure::fault)?;
    }
    #[cfg(feature = "parquet")]
    if let Some(file) = &mut parquet_file {
        file.write_all(&sheet.parquet()?).map_err(Failure::fault)?;
    }
    let wrote = csv_file.is_some() || parquet_file.is_some();
    let files = csv_file.into_iter().chain(parquet_file.take()).collect();
    if args.server.json {
        say(&format!("{report:#}\n"));
    } else {
        report["notes"].as_array().into_iter().flatten().map(words).for_each(|told| note(&told));
        if !wrote {
            show(&report, args, &zone);
        }
    }
    finish_all(files)
}

fn show(report: &Value, args: &ReportArgs, zone: &jiff::tz::TimeZone) {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if std::io::stdout().is_terminal() && !plain {
        say_raw(&text::text(&plain_words(report), args.rows, zone, Colours::Shown));
    } else {
        say(&text::text(report, args.rows, zone, Colours::None));
    }
}

/// The same with nothing in its words that a terminal would obey.
fn plain_words(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(crate::shown::one_line(text).into_owned()),
        Value::Array(all) => all.iter().map(plain_words).collect(),
        Value::Object(all) => Value::Object(
            all.iter().map(|(key, value)| (key.clone(), plain_words(value))).collect(),
        ),
        other => other.clone(),
    }
}

fn ask(asked: Period, args: &ReportArgs) -> Result<Value, Failure> {
    let mut query = match asked {
        Period::Last(ms) => vec![("last_ms", ms.to_string())],
        Period::Between(from, to) => {
            let to = to.map(|to| ("to_unix_ms", to.to_string()));
            std::iter::once(("from_unix_ms", from.to_string())).chain(to).collect()
        }
    };
    query.extend(args.budget.as_ref().map(|budget| ("budget", budget.clone())));
    if args.rows == Rows::Attempts {
        query.push(("attempts", "true".to_owned()));
    }
    Client::new(&args.server)?.get("/v1/report", &query)
}

/// From a site's folder, whether it is up or not: as an owner of the root, up to its latest record.
fn read(data: &Path, asked: Period, args: &ReportArgs) -> Result<Value, Failure> {
    let reader = Reader::beside(data).map_err(crate::keep::failed)?;
    let wrong =
        |error: &dyn std::fmt::Display| Failure::input(format!("{}: {error}", data.display()));
    let site = bursar_server::history::fold(&reader).map_err(|error| wrong(&error))?;
    let (zero, now_ms) = (site.created.unix_ms, site.now_ms());
    let (begin, to_unix_ms) = match asked {
        Period::Last(ms) => (Begin::Last(ms), None),
        Period::Between(from, to) => (Begin::At(from), to),
    };
    let asked = Asked {
        begin,
        to_unix_ms,
        now_ms,
        unix_ms: zero,
        user: site.budgets.owners.first().map_or("", |owner| owner),
        budget: args.budget.as_deref(),
        attempts: args.rows == Rows::Attempts,
    };
    let facts = site.facts(&asked).map_err(|refused| Failure::input(refused.message))?;
    serde_json::to_value(facts.report()).map_err(Failure::fault)
}
