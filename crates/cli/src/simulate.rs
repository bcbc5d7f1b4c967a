//! `bursar simulate`: one scenario under one or several policies. Grids are in `sweep`.

use crate::args::SimulateArgs;
use crate::failure::Failure;
use crate::output::{Output, check_distinct, finish_all};
use crate::play::{self, Bar};
use crate::shown::{note, say};
use crate::table;
use bursar_scenario::Scenario;
use bursar_sim::{EventSink, Outcome, RunOptions, Summary};
use serde::Serialize;
use std::io::Write;

/// Runs the verb.
pub(crate) fn simulate(args: &SimulateArgs) -> Result<(), Failure> {
    check_policies(args)?;
    check_outputs(args)?;
    let scenario =
        bursar_scenario::load_path(&args.scenario, &args.overrides).map_err(Failure::input)?;
    scenario.notes.iter().for_each(|text| note(&format!("note: {text}")));
    let create = |path: &Option<_>| path.as_deref().map(Output::create).transpose();
    let (events, summary_file) = (create(&args.events)?, create(&args.summary)?);
    let html = create(&args.html)?;
    let name = args.scenario.display().to_string();

    let (outcomes, events) = play_all(&scenario, args, events)?;
    let mut files: Vec<Output> = events.into_iter().collect();
    if let Some(mut html) = html {
        bursar_report::render(&scenario, &outcomes, &name, &mut html).map_err(Failure::fault)?;
        files.push(html);
    }
    let policies = outcomes.into_iter().map(|outcome| outcome.summary).collect();
    let summary = Summary { scenario: name, seed: scenario.seed, policies };
    if let Some(mut file) = summary_file {
        write_json(&mut file, &summary)?;
        files.push(file);
    }
    finish_all(files)?;
    if args.json {
        say(&(serde_json::to_string_pretty(&summary).map_err(Failure::fault)? + "\n"));
    } else {
        say(&table::comparison(&scenario, &summary));
    }
    Ok(())
}

/// Every policy once: what is written is keyed by their names.
pub(crate) fn check_policies(args: &SimulateArgs) -> Result<(), Failure> {
    let policies = &args.policies;
    match policies.iter().enumerate().find(|(at, name)| policies[..*at].contains(name)) {
        Some((_, twice)) => Err(Failure::Input(format!("--policy {twice} is given twice"))),
        None => Ok(()),
    }
}

/// No two outputs in one place, and none in that of the scenario.
pub(crate) fn check_outputs(args: &SimulateArgs) -> Result<(), Failure> {
    let outputs = [&args.summary, &args.events, &args.html].map(|path| path.as_deref());
    check_distinct(&[&args.scenario], &outputs)
}

pub(crate) fn write_json(file: &mut Output, value: &impl Serialize) -> Result<(), Failure> {
    serde_json::to_writer_pretty(&mut *file, value).map_err(Failure::fault)?;
    file.write_all(b"\n").map_err(Failure::fault)
}

/// Plays every policy, each on a core of its own, and joins their events in the order of the policies.
fn play_all(
    scenario: &Scenario,
    args: &SimulateArgs,
    events: Option<Output>,
) -> Result<(Vec<Outcome>, Option<Output>), Failure> {
    // The first policy writes into the file itself, the others into what is appended to it.
    let mut logs: Vec<Option<Output>> = Vec::new();
    for _ in 1..args.policies.len() {
        logs.push(events.as_ref().map(Output::scratch).transpose()?);
    }
    logs.insert(0, events);
    let jobs: Vec<_> = args.policies.iter().zip(logs).collect();
    let ends_ms = vec![play::end_ms(scenario, args.until); jobs.len()];
    let played =
        play::all(jobs, &ends_ms, Bar::unless(args.quiet), |(policy, mut log), progress| {
            let options = RunOptions {
                until_ms: args.until,
                compare: args.compare.options(),
                series: args.html.is_some(),
                progress: Some(progress),
                ..RunOptions::default()
            };
            let sink = match &mut log {
                Some(log) => EventSink::Json(log),
                None => EventSink::None,
            };
            Ok((play::play(scenario, policy, options, sink)?, log))
        })?;
    let (mut outcomes, mut joined) = (Vec::new(), None::<Output>);
    for (outcome, log) in played {
        outcomes.push(outcome);
        match (&mut joined, log) {
            (Some(joined), Some(log)) => joined.append(log)?,
            (joined, log) => *joined = log,
        }
    }
    Ok((outcomes, joined))
}
