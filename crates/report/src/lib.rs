//! Bursar's HTML report of a simulation: one file that needs nothing else, not even a network.
//!
//! [`render`] writes the page. What can be said in words and tables is in its markup; what is drawn
//! (the timeline of attempts, occupancy over time, waits) is drawn by the small scripts of `assets/`
//! from data that the page carries as JSON, packed by `pack`.
//!
//! Invariant: the same scenario and outcomes give the same bytes.
//!
//! Invariant: a name that a user chose is text and nothing else. The markup escapes it (`escape`),
//! the data escapes `<`, and the scripts only ever set `textContent`.
//!
//! Absent on purpose: any metric of its own. What is shown was measured by bursar-sim.

mod bars;
mod cells;
mod data;
mod escape;
mod figures;
mod pack;
mod page;
mod samples;
mod words;

use bursar_scenario::Scenario;
use bursar_sim::Outcome;
use std::io::{self, Write};

/// Writes the report of one scenario under one or several policies, in their order, as an HTML page.
///
/// `title` names the scenario, such as its file. Outcomes that were played without
/// `RunOptions { series: true, .. }` give a page of tables with empty pictures.
///
/// # Errors
/// What `out` gives when it cannot be written.
///
/// # Examples
/// ```
/// use bursar_sim::{EventSink, RunOptions, run};
///
/// let text = "
/// cluster: {hosts: [{count: 1, gpus: 4, model: h100}]}
/// budgets: {a: {share: 1}}
/// workloads:
///   - {id: w, submit: 0s, budget: a, gpus: 2, runtime: 2h, min_runtime: 1h}
/// ";
/// let scenario = bursar_scenario::load_str(text, ".".as_ref(), "small.yaml", &[])?;
/// let options = RunOptions { series: true, ..RunOptions::default() };
/// let outcome = run(&scenario, "budget", options, EventSink::None)?;
/// let mut page = Vec::new();
/// bursar_report::render(&scenario, &[outcome], "small.yaml", &mut page)?;
/// assert!(page.starts_with(b"<!doctype html>"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn render(
    scenario: &Scenario,
    outcomes: &[Outcome],
    title: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let data = data::Data::new(scenario, outcomes);
    let json = serde_json::to_string(&data).map_err(io::Error::other)?;
    page::write(scenario, outcomes, title, &escape::json_in_script(&json), out)
}

#[cfg(test)]
mod tests;
