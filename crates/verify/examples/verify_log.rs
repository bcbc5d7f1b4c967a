//! `cargo run -p bursar-verify --example verify_log -- events.jsonl SCENARIO [key=value]...`

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [log, scenario, settings @ ..] = args.as_slice() else {
        eprintln!("usage: verify_log events.jsonl SCENARIO [key=value]...");
        return ExitCode::from(2);
    };
    let pair = |setting: &String| setting.split_once('=').map(|(k, v)| (k.into(), v.into()));
    let overrides: Vec<(String, String)> = settings.iter().filter_map(pair).collect();
    let result = bursar_scenario::load_path(Path::new(scenario), &overrides)
        .map_err(|error| error.to_string())
        .and_then(|scenario| {
            let file = File::open(log).map_err(|error| format!("{log}: {error}"))?;
            let begun = Instant::now();
            let report = bursar_verify::verify(BufReader::new(file), &scenario);
            eprintln!("verified in {:.2} s", begun.elapsed().as_secs_f64());
            report.map_err(|error| format!("{log}: {error}"))
        });
    match result {
        Ok(report) => {
            print!("{report}");
            if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}
