//! A site with a past, for trying reports: `cargo run --release -p bursar --example history SCENARIO FOLDER [DAYS]`.
//!
//! Plays a scenario (scenarios/lab.yaml: 30 days of 1,024 GPUs) into a site's data folder, as a daemon and an engine would
//! have journaled it, ending now. `bursar report --data FOLDER` and `bursar whatif --data FOLDER` read it.

#[path = "../tests/support/played.rs"]
mod played;

use played::{Failure, Played};
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

const DAY_MS: u64 = 86_400_000;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [scenario, folder, rest @ ..] = &args[..] else {
        return Err("give a scenario and a folder that is to be made".into());
    };
    let scenario = bursar_scenario::load_path(Path::new(scenario), &[])?;
    let days = rest.first().map(|days| days.parse::<u64>()).transpose()?;
    let until_ms = days.map(|days| days * DAY_MS).or(scenario.span_ms);
    let until_ms = until_ms.unwrap_or_else(|| scenario.last_arrival_ms());
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
    let begun = Instant::now();
    let mut played = Played::begin(&scenario, Path::new(folder), "root", now_ms - until_ms)?;
    for day in 1..=until_ms.div_ceil(DAY_MS) {
        played.to((day * DAY_MS).min(until_ms))?;
        eprintln!(
            "day {day}: {} records, {} workloads, {:.0} s",
            played.site.seq(),
            played.site.works().count(),
            begun.elapsed().as_secs_f64()
        );
    }
    Ok(())
}
