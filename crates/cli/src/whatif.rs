//! `bursar whatif`: what a site has seen, played again under policies, beside what really happened.

use crate::args::WhatIfArgs;
use crate::client::Client;
use crate::failure::Failure;
use crate::live::words;
use crate::play::{self, Bar};
use crate::shown::{nobody_reads, note, say};
use crate::{interrupt, table};
use bursar_scenario::Scenario;
use bursar_sim::{EventSink, Outcome, RunOptions, Summary};
use serde::Serialize;
use serde_json::json;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

/// What the history is called in messages and tables.
const NAME: &str = "the site's history";

/// A workload whose first wait differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Difference {
    workload: String,
    budget: String,
    gpus: u32,
    /// Per policy, in their order: how long it waited for its first start, in seconds, and whether it still waits.
    waits: Vec<(f64, bool)>,
}

pub(crate) fn whatif(args: &WhatIfArgs) -> Result<(), Failure> {
    let policies = &args.policies;
    if let Some((_, twice)) =
        policies.iter().enumerate().find(|(at, name)| policies[..*at].contains(name))
    {
        return Err(Failure::Input(format!("--policy {twice} is given twice")));
    }
    if args.every.is_some_and(|ms| ms < 1_000) {
        return Err(Failure::input("--every: give at least 1s"));
    }
    let client = Client::new(&args.server)?;
    loop {
        let begun = Instant::now();
        once(args, &client)?;
        let Some(every_ms) = args.every.filter(|_| !nobody_reads()) else { return Ok(()) };
        while begun.elapsed() < Duration::from_millis(every_ms) {
            interrupt::check()?;
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn once(args: &WhatIfArgs, client: &Client) -> Result<(), Failure> {
    let answer = client.get("/v1/export/trace", &[("form", "whatif".to_owned())])?;
    let until_ms = answer["until_ms"].as_u64().unwrap_or_default();
    let text = words(&answer["text"]);
    let scenario =
        bursar_scenario::load_str(&text, std::path::Path::new("."), NAME, &args.overrides);
    let scenario = scenario.map_err(Failure::input)?;
    if scenario.workloads.is_empty() {
        note("nothing has been submitted yet: there is nothing to compare");
        return Ok(());
    }
    let outcomes = play_all(&scenario, args, until_ms)?;
    let differences = differences(&scenario, &outcomes, until_ms);
    let policies = outcomes.into_iter().map(|outcome| outcome.summary).collect();
    let summary = Summary { scenario: NAME.to_owned(), seed: scenario.seed, policies };
    let notes: Vec<String> = answer["notes"].as_array().into_iter().flatten().map(words).collect();
    if args.server.json {
        let shown = &differences[..args.rows.min(differences.len())];
        let all =
            json!({ "until_ms": until_ms, "notes": notes, "summary": summary, "waits": shown });
        say(&format!("{all:#}\n"));
        return Ok(());
    }
    notes.iter().for_each(|told| note(&format!("note: {told}")));
    if args.every.is_some() && std::io::stdout().is_terminal() {
        // The screen is this report's while it is renewed.
        say("\x1b[2J\x1b[H");
    }
    say(&table::comparison(&scenario, &summary));
    let names: Vec<&str> = args.policies.iter().map(String::as_str).collect();
    say(&shown(&names, &differences, args.rows));
    Ok(())
}

fn play_all(
    scenario: &Scenario,
    args: &WhatIfArgs,
    until_ms: u64,
) -> Result<Vec<Outcome>, Failure> {
    let jobs: Vec<&str> = args.policies.iter().map(String::as_str).collect();
    let ends_ms = vec![until_ms.max(1); jobs.len()];
    // A report that is renewed does not flicker.
    let bar = Bar::unless(args.server.json || args.every.is_some());
    play::all(jobs, &ends_ms, bar, |policy, progress| {
        let options = RunOptions {
            until_ms: Some(until_ms.max(1)),
            compare: args.compare.options(),
            series: true,
            progress: Some(progress),
            ..RunOptions::default()
        };
        play::play(scenario, policy, options, EventSink::None)
    })
}

/// The workloads whose first waits differ, those that differ most first.
fn differences(scenario: &Scenario, outcomes: &[Outcome], until_ms: u64) -> Vec<Difference> {
    let firsts: Vec<Vec<Option<u64>>> =
        outcomes.iter().map(|one| first_starts(scenario, one)).collect();
    let mut differences: Vec<(u64, Difference)> = Vec::new();
    for (at, spec) in scenario.workloads.iter().enumerate() {
        if spec.submit_ms >= until_ms {
            continue;
        }
        let wait = |start: Option<u64>| start.unwrap_or(until_ms).saturating_sub(spec.submit_ms);
        let all: Vec<u64> = firsts.iter().map(|starts| wait(starts[at])).collect();
        let spread = all.iter().max().unwrap_or(&0) - all.iter().min().unwrap_or(&0);
        if spread < 1_000 {
            continue;
        }
        let waits = firsts.iter().zip(&all);
        let waits =
            waits.map(|(starts, ms)| (*ms as f64 / 1_000.0, starts[at].is_none())).collect();
        let budget = scenario.budgets[spec.budget as usize].path.clone();
        let workload = spec.id.to_string();
        differences.push((spread, Difference { workload, budget, gpus: spec.gpus, waits }));
    }
    differences.sort_by_key(|(spread, _)| std::cmp::Reverse(*spread));
    differences.into_iter().map(|(_, difference)| difference).collect()
}

fn first_starts(scenario: &Scenario, outcome: &Outcome) -> Vec<Option<u64>> {
    let mut starts: Vec<Option<u64>> = vec![None; scenario.workloads.len()];
    for attempt in &outcome.series.attempts {
        let first = &mut starts[attempt.workload as usize];
        *first = Some(first.map_or(attempt.start_ms, |first| first.min(attempt.start_ms)));
    }
    starts
}

fn shown(policies: &[&str], differences: &[Difference], rows: usize) -> String {
    if differences.is_empty() || rows == 0 {
        return String::new();
    }
    let mut text = format!(
        "\nwaits that differ most: {} of {} workloads that would have waited otherwise\n\n",
        rows.min(differences.len()),
        differences.len()
    );
    text.push_str(&table::rows(
        ["workload", "budget", "GPUs"].into_iter().chain(policies.iter().copied()),
        differences.iter().take(rows).map(|one| {
            let waits = one.waits.iter().map(|(seconds, waits)| {
                let mark = if *waits { "still waits, " } else { "" };
                format!("{mark}{}", table::wait(*seconds))
            });
            let first = [one.workload.clone(), one.budget.clone(), one.gpus.to_string()];
            first.into_iter().chain(waits).collect()
        }),
    ));
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_is_beside_what_would_have() {
        // Two of b came first and took all; a is owed half.
        let text = "cluster: {hosts: [{gpus: 8, model: h100, name: n1}]}\n\
            budgets: {a: {share: 1}, b: {share: 1}}\n\
            settings: {grace: 1m, lookback: 1h, horizon: 1h}\n\
            workloads:\n\
            - {id: '1', submit: 0, budget: b, gpus: 8, runtime: 2h, min_runtime: 10m, resumable: true, ran: [{start: 0, end: 2h, on: {n1: 8}}]}\n\
            - {id: '2', submit: 60, budget: a, gpus: 8, runtime: 1h, min_runtime: 10m, ran: [{start: 2h, end: 3h, on: {n1: 8}}]}\n\
            - {id: '3', submit: 60, budget: b, gpus: 8, runtime: 1h, min_runtime: 10m}\n";
        let scenario =
            bursar_scenario::load_str(text, ".".as_ref(), "test", &[]).expect("a scenario");
        let until_ms = 10_000_000;
        let outcomes: Vec<Outcome> = ["recorded", "budget"]
            .into_iter()
            .map(|policy| {
                let options =
                    RunOptions { until_ms: Some(until_ms), series: true, ..RunOptions::default() };
                bursar_sim::run(&scenario, policy, options, EventSink::None).expect("it runs")
            })
            .collect();
        let found = differences(&scenario, &outcomes, until_ms);
        assert_eq!(found[0].workload, "2");
        assert_eq!(found[0].waits[0], (7_140.0, false));
        let (waits, still) = found[0].waits[1];
        assert!(waits < 1_800.0 && !still, "{found:?}");
        let told = shown(&["recorded", "budget"], &found, 1);
        assert!(told.contains("waits that differ most: 1 of"), "{told}");
    }
}
