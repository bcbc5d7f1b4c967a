//! Writes the report of a scenario: `report SCENARIO OUT.html [UNTIL_DAYS [POLICY...]]`. For looking at pages while working on them.

use bursar_sim::{RunOptions, run_all};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, scenario, out, rest @ ..] = &args[..] else {
        return Err("usage: report SCENARIO OUT.html [UNTIL_DAYS [POLICY...]]".into());
    };
    let days: f64 = rest.first().map_or(Ok(0.0), |days| days.parse())?;
    let policies = match rest {
        [_, policies @ ..] if !policies.is_empty() => policies.to_vec(),
        _ => vec!["budget".to_owned()],
    };
    let until_ms = (days > 0.0).then_some((days * 86_400_000.0) as u64);
    let loaded = bursar_scenario::load_path(Path::new(scenario), &[])?;
    let options = RunOptions { series: true, until_ms, ..RunOptions::default() };
    let outcomes = run_all(&loaded, &policies, options)?;
    let mut file = BufWriter::new(File::create(out)?);
    bursar_report::render(&loaded, &outcomes, scenario, &mut file)?;
    file.flush()?;
    let bytes = std::fs::metadata(out)?.len();
    let attempts: usize = outcomes.iter().map(|outcome| outcome.series.attempts.len()).sum();
    println!("{out}: {bytes} bytes, {attempts} attempts");
    Ok(())
}
