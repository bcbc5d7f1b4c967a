//! `bursar simulate`.

use crate::args::SimulateArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::table;
use bursar_scenario::Scenario;
use bursar_sim::{EventSink, Outcome, RunError, RunOptions, Summary, run};
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;
use std::io::{Write, copy};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Runs the verb.
pub(crate) fn simulate(args: &SimulateArgs) -> Result<(), Failure> {
    if !args.sweeps.is_empty() {
        return Err(Failure::Input("--sweep: not yet".to_owned()));
    }
    let scenario =
        bursar_scenario::load_path(&args.scenario, &args.overrides).map_err(Failure::input)?;
    let mut events = args.events.as_deref().map(Output::create).transpose()?;
    let mut summary_file = args.summary.as_deref().map(Output::create).transpose()?;
    let name = args.scenario.display().to_string();
    let outcomes = play(&scenario, args, events.as_mut())?;
    let summary = Summary {
        scenario: name,
        seed: scenario.seed,
        policies: outcomes.iter().map(|outcome| outcome.summary.clone()).collect(),
    };
    if let Some(file) = &mut summary_file {
        serde_json::to_writer_pretty(&mut *file, &summary).map_err(Failure::fault)?;
        file.write_all(b"\n").map_err(Failure::fault)?;
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&summary).map_err(Failure::fault)?);
    } else {
        print!("{}", table::comparison(&scenario, &summary));
    }
    for file in [events, summary_file].into_iter().flatten() {
        let path = file.path().to_owned();
        file.finish()?;
        eprintln!("wrote {}", path.display());
    }
    Ok(())
}

/// Plays every policy, each on a core of its own, and joins their events in the order of the policies.
fn play(
    scenario: &Scenario,
    args: &SimulateArgs,
    mut events: Option<&mut Output>,
) -> Result<Vec<Outcome>, Failure> {
    let stop = interrupt_flag()?;
    let progress: Vec<AtomicU64> = args.policies.iter().map(|_| AtomicU64::new(0)).collect();
    let end_ms = args.until.or(scenario.span_ms).unwrap_or_else(|| scenario.last_arrival_ms());
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        if !args.quiet {
            threads.spawn(|| show_progress(&progress, end_ms, &done));
        }
        let result: Result<Vec<_>, Failure> = args
            .policies
            .par_iter()
            .zip(&progress)
            .map(|(policy, progress)| {
                let options = RunOptions {
                    until_ms: args.until,
                    progress: Some(progress),
                    stop: Some(&stop),
                    ..RunOptions::default()
                };
                let mut log = match &events {
                    Some(output) => Some(Output::create(output.path())?),
                    None => None,
                };
                let sink = match &mut log {
                    Some(log) => EventSink::Json(log),
                    None => EventSink::None,
                };
                let outcome = run(scenario, policy, options, sink).map_err(|error| match error {
                    RunError::Policy(_) => Failure::input(error),
                    RunError::Stopped => Failure::Interrupted,
                    error => Failure::fault(error),
                })?;
                Ok((outcome, log))
            })
            .collect();
        done.store(true, Ordering::Relaxed);
        let mut outcomes = Vec::new();
        for (outcome, log) in result? {
            if let (Some(log), Some(events)) = (log, &mut events) {
                let mut part = log.reopen()?;
                copy(&mut part, *events).map_err(Failure::fault)?;
            }
            outcomes.push(outcome);
        }
        Ok(outcomes)
    })
}

/// A flag that Ctrl-C sets.
fn interrupt_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed)).map_err(Failure::fault)?;
    Ok(stop)
}

/// A bar on standard error, if that is a terminal, until `done`.
fn show_progress(progress: &[AtomicU64], end_ms: u64, done: &AtomicBool) {
    let style = ProgressStyle::with_template("{bar:30} {percent:>3}% of {msg} simulated, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(end_ms.max(1) * progress.len() as u64).with_style(style);
    let days = end_ms / 86_400_000;
    bar.set_message(if days > 0 { format!("{days} days") } else { format!("{} s", end_ms / 1_000) });
    while !done.load(Ordering::Relaxed) {
        let sum: u64 = progress.iter().map(|at| at.load(Ordering::Relaxed).min(end_ms)).sum();
        bar.set_position(sum);
        std::thread::park_timeout(Duration::from_millis(100));
    }
    bar.finish_and_clear();
}
