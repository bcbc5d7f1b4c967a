//! `bursar`: the one binary.

mod args;
mod failure;
mod output;
mod simulate;
mod table;

use args::{Cli, Verb};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.verb {
        Verb::Simulate(args) => simulate::simulate(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bursar: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}
