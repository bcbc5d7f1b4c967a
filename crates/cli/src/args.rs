//! The command line.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// The treasurer of a GPU cluster: decides by budgets, simulates it, explains it.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Play a scenario under one or more policies and compare them.
    Simulate(SimulateArgs),
}

const SIMULATE_EXAMPLES: &str = "\
Examples:
  bursar simulate scenarios/lab.yaml
  bursar simulate scenarios/lab.yaml --policy budget --policy levels
  bursar simulate lab.yaml --set horizon=4h --set seed=7 --summary summary.json --html report.html
  bursar simulate lab.yaml --sweep lookback=1d,3d,7d,14d --sweep horizon=2h,4h,8h

Exit codes: 0 done, 1 a fault on the way, 2 bad input (nothing written), 130 interrupted.";

/// What `simulate` takes.
#[derive(Debug, Args)]
#[command(after_help = SIMULATE_EXAMPLES)]
pub(crate) struct SimulateArgs {
    /// The scenario (YAML; docs/formats.md).
    pub(crate) scenario: PathBuf,
    /// A policy to play; repeat it to compare.
    #[arg(long = "policy", value_name = "P", default_value = "budget")]
    pub(crate) policies: Vec<String>,
    /// Override a setting of the scenario, or its seed.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) overrides: Vec<(String, String)>,
    /// Play every combination of these values, one row each.
    #[arg(long = "sweep", value_name = "KEY=V1,V2", value_parser = key_value)]
    pub(crate) sweeps: Vec<(String, String)>,
    /// End the run, and the span of the metrics, at this moment (such as 14d).
    #[arg(long, value_name = "TIME", value_parser = duration_ms)]
    pub(crate) until: Option<u64>,
    /// Write all metrics as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) summary: Option<PathBuf>,
    /// Write everything that happens, one JSON object per line.
    #[arg(long, value_name = "FILE")]
    pub(crate) events: Option<PathBuf>,
    /// Write pictures as one self-contained page.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print the metrics as JSON instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => {
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(format!("'{text}' is not KEY=VALUE, such as horizon=4h")),
    }
}

fn duration_ms(text: &str) -> Result<u64, String> {
    bursar_trace::parse_duration_ms(text)
}
