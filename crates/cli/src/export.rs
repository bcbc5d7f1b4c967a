//! `bursar export trace`.

use crate::args::{ExportVerb, Server};
use crate::client::Client;
use crate::failure::Failure;
use crate::live::words;
use crate::output::{Output, finish_all};
use crate::shown::{note, say, say_raw};
use bursar_server::export::{History, Open, Written};
use bursar_store::Reader;
use serde_json::json;
use std::io::Write as _;
use std::path::Path;

pub(crate) fn export(verb: &ExportVerb) -> Result<(), Failure> {
    let ExportVerb::Trace { scenario, out, data, server } = verb;
    if server.json && out.is_some() {
        return Err(Failure::input("--json: it is for standard output; leave out --out"));
    }
    // Where it cannot be written, nobody is asked.
    let mut file = out.as_deref().map(Output::create).transpose()?;
    let written = match data {
        Some(data) => read(data, *scenario)?,
        None => ask(server, *scenario)?,
    };
    if server.json {
        let answer = json!({ "text": written.text, "notes": written.notes });
        say(&format!("{answer:#}\n"));
        return Ok(());
    }
    written.notes.iter().for_each(|told| note(told));
    match &mut file {
        Some(file) => file.write_all(written.text.as_bytes()).map_err(Failure::fault)?,
        None => say_raw(&written.text),
    }
    finish_all(file.into_iter().collect())
}

fn ask(server: &Server, scenario: bool) -> Result<Written, Failure> {
    let form = if scenario { "scenario" } else { "csv" };
    let answer = Client::new(server)?.get("/v1/export/trace", &[("form", form.to_owned())])?;
    let notes = answer["notes"].as_array().into_iter().flatten().map(words).collect();
    let until_ms = answer["until_ms"].as_u64().unwrap_or_default();
    // Nobody asks how many: the text is written as it is.
    let workloads = 0;
    Ok(Written { text: words(&answer["text"]), notes, until_ms, workloads })
}

fn read(data: &Path, scenario: bool) -> Result<Written, Failure> {
    let reader = Reader::beside(data).map_err(crate::keep::failed)?;
    let history = History::read(&reader, None)
        .map_err(|error| Failure::input(format!("{}: {error}", data.display())))?;
    Ok(if scenario { history.scenario(Open::AsSeen) } else { history.csv() })
}
