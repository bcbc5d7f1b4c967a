//! An event log, judged against one small scenario.

use bursar_scenario::{Scenario, load_str};
use bursar_verify::verify;
use std::path::Path;
use std::sync::OnceLock;

const WORLD: &str = include_str!("event_logs.yaml");

pub(crate) fn run(data: &[u8]) {
    static SCENARIO: OnceLock<Scenario> = OnceLock::new();
    let scenario = SCENARIO.get_or_init(|| {
        load_str(WORLD, Path::new(""), "event_logs.yaml", &[]).expect("it is a scenario")
    });
    // What it says may quote the log's own control characters: the command line escapes them.
    let said = match verify(data, scenario) {
        Ok(report) => report.to_string(),
        Err(error) => error.to_string(),
    };
    assert!(!said.is_empty());
}
