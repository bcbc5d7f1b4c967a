//! `bursar whatif`: what a site has seen, played again under policies, beside what really happened.

mod budgets;
mod changed;

use crate::args::WhatIfArgs;
use crate::client::Client;
use crate::failure::Failure;
use crate::live::words;
use crate::play::{self, Bar};
use crate::shown::{nobody_reads, note, say};
use crate::{interrupt, table};
use bursar_scenario::Scenario;
use bursar_server::export::{History, Open, Written};
use bursar_sim::{EventSink, Outcome, PolicySummary, RECORDED, RunOptions, Summary};
use bursar_store::Reader;
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// What the history is called in messages and tables.
const NAME: &str = "the site's history";

/// A workload whose first wait differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Difference {
    workload: String,
    budget: String,
    gpus: u32,
    /// Per column, in their order: how long it waited for its first start, in seconds, and whether it still waits.
    waits: Vec<(f64, bool)>,
}

/// What is played: a column of the report.
struct Column<'a> {
    name: String,
    policy: &'a str,
    scenario: &'a Scenario,
}

/// The history, and what of it is measured.
struct Told {
    text: String,
    notes: Vec<String>,
    /// Where it ends, in its own milliseconds …
    until_ms: u64,
    /// … and from when on it is measured.
    from_ms: u64,
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
    if args.last == Some(0) {
        return Err(Failure::input("--last: give more than 0, such as 30d"));
    }
    let client = args.data.is_none().then(|| Client::new(&args.server)).transpose()?;
    loop {
        let begun = Instant::now();
        once(args, client.as_ref())?;
        let Some(every_ms) = args.every.filter(|_| !nobody_reads()) else { return Ok(()) };
        while begun.elapsed() < Duration::from_millis(every_ms) {
            interrupt::check()?;
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn once(args: &WhatIfArgs, client: Option<&Client>) -> Result<(), Failure> {
    let mut told = match (client, &args.data) {
        (Some(client), _) => ask(args, client)?,
        (None, data) => read(args, data.as_deref().unwrap_or(Path::new(".")))?,
    };
    let (head, has_work) = changed::head_of(&told.text);
    if !has_work {
        note("nothing has been submitted yet: there is nothing to compare");
        return Ok(());
    }
    let base = bursar_scenario::load_str(&told.text, Path::new("."), NAME, &[]);
    let base = base.map_err(Failure::input)?;
    let other = args.changes().then(|| changed::changed(head, &base, args)).transpose()?;
    let columns = columns(args, &base, other.as_ref().map(|other| &other.scenario));
    let outcomes = play_all(&columns, args, &told)?;
    let differences = differences(&columns, &outcomes, (told.from_ms, told.until_ms));
    let budgets = budgets::Row::all(&columns, &outcomes, told.from_ms);
    let named = |(outcome, column): (Outcome, &Column<'_>)| PolicySummary {
        policy: column.name.clone(),
        ..outcome.summary
    };
    let policies: Vec<PolicySummary> = outcomes.into_iter().zip(&columns).map(named).collect();
    let summary = Summary { scenario: NAME.to_owned(), seed: base.seed, policies };
    let what = other.as_ref().map_or(&[][..], |other| &other.what);
    told.notes.extend(other.iter().flat_map(|other| other.notes.clone()));
    if args.server.json {
        let shown = &differences[..args.rows.min(differences.len())];
        let all = json!({
            "from_ms": told.from_ms, "until_ms": told.until_ms, "changed": what, "notes": told.notes,
            "summary": summary, "budgets": budgets, "waits": shown,
        });
        say(&format!("{all:#}\n"));
        return Ok(());
    }
    told.notes.iter().for_each(|told| note(&format!("note: {told}")));
    if args.every.is_some() && std::io::stdout().is_terminal() {
        // The screen is this report's while it is renewed.
        say("\x1b[2J\x1b[H");
    }
    if !what.is_empty() {
        say(&format!("changed: {}\n\n", what.join(", ")));
    }
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    say(&table::overview(&base, &summary));
    say(&budgets::text(&names, &budgets));
    say(&shown(&names, &differences, args.rows));
    Ok(())
}

/// The history as the site tells it.
fn ask(args: &WhatIfArgs, client: &Client) -> Result<Told, Failure> {
    let mut query = vec![("form", "whatif".to_owned())];
    if let Some(last_ms) = args.last {
        let me = client.get("/v1/me", &[])?;
        let lookback_ms = me["settings"]["lookback_ms"].as_u64().unwrap_or_default();
        let lookback_ms = lookback(args, lookback_ms)?;
        query.push(("last_ms", last_ms.saturating_add(lookback_ms).to_string()));
    }
    let answer = client.get("/v1/export/trace", &query)?;
    let notes = answer["notes"].as_array().into_iter().flatten().map(words).collect();
    let until_ms = answer["until_ms"].as_u64().unwrap_or_default();
    Ok(Told { text: words(&answer["text"]), notes, until_ms, from_ms: from(args, until_ms) })
}

/// The same from a site's folder.
fn read(args: &WhatIfArgs, data: &Path) -> Result<Told, Failure> {
    let reader = Reader::beside(data).map_err(crate::keep::failed)?;
    let site = bursar_server::history::fold(&reader)
        .map_err(|error| Failure::input(format!("{}: {error}", data.display())))?;
    let last_ms = match args.last {
        Some(last_ms) => {
            let lookback_ms = lookback(args, site.created.settings.lookback_ms)?;
            Some(last_ms.saturating_add(lookback_ms))
        }
        None => None,
    };
    let Written { text, notes, until_ms } =
        History::of(&site, site.now_ms(), last_ms).scenario(Open::ToLimit);
    Ok(Told { text, notes, until_ms, from_ms: from(args, until_ms) })
}

/// How long before what is measured is played: the longest lookback of those that are compared.
fn lookback(args: &WhatIfArgs, of_site_ms: u64) -> Result<u64, Failure> {
    let mut longest_ms = of_site_ms;
    for (_, value) in args.overrides.iter().filter(|(key, _)| key == "lookback") {
        let given = bursar_trace::parse_duration_ms(value);
        longest_ms =
            longest_ms.max(given.map_err(|why| Failure::input(format!("--set lookback: {why}")))?);
    }
    Ok(longest_ms)
}

/// Where what is measured begins.
fn from(args: &WhatIfArgs, until_ms: u64) -> u64 {
    args.last.map_or(0, |last_ms| until_ms.saturating_sub(last_ms))
}

/// What happened, then each policy as things are, then as they would be.
fn columns<'a>(
    args: &'a WhatIfArgs,
    base: &'a Scenario,
    other: Option<&'a Scenario>,
) -> Vec<Column<'a>> {
    let mut columns = Vec::new();
    for policy in &args.policies {
        columns.push(Column { name: policy.clone(), policy, scenario: base });
        if let Some(scenario) = other.filter(|_| policy != RECORDED) {
            columns.push(Column { name: format!("{policy}, changed"), policy, scenario });
        }
    }
    columns
}

fn play_all(
    columns: &[Column<'_>],
    args: &WhatIfArgs,
    told: &Told,
) -> Result<Vec<Outcome>, Failure> {
    let until_ms = told.until_ms.max(1);
    // A report that is renewed does not flicker.
    let bar = Bar::unless(args.quiet || args.server.json || args.every.is_some());
    let ends_ms = vec![until_ms; columns.len()];
    play::all(columns.iter().collect(), &ends_ms, bar, |column: &Column<'_>, progress| {
        let options = RunOptions {
            until_ms: Some(until_ms),
            from_ms: told.from_ms.min(until_ms - 1),
            compare: args.compare.options(),
            series: true,
            progress: Some(progress),
            ..RunOptions::default()
        };
        play::play(column.scenario, column.policy, options, EventSink::None)
    })
}

/// The workloads whose first waits differ, those that differ most first: of those that were submitted in the span and are
/// in all columns.
fn differences(
    columns: &[Column<'_>],
    outcomes: &[Outcome],
    (from_ms, until_ms): (u64, u64),
) -> Vec<Difference> {
    let firsts: Vec<BTreeMap<&str, Option<u64>>> = columns
        .iter()
        .zip(outcomes)
        .map(|(column, outcome)| first_starts(column.scenario, outcome))
        .collect();
    let Some(base) = columns.first().map(|column| column.scenario) else { return Vec::new() };
    let mut differences: Vec<(u64, Difference)> = Vec::new();
    for spec in &base.workloads {
        if spec.submit_ms >= until_ms || spec.submit_ms < from_ms {
            continue;
        }
        let starts: Option<Vec<Option<u64>>> =
            firsts.iter().map(|starts| starts.get(&*spec.id).copied()).collect();
        let Some(starts) = starts else { continue };
        let wait = |start: &Option<u64>| start.unwrap_or(until_ms).saturating_sub(spec.submit_ms);
        let all: Vec<u64> = starts.iter().map(wait).collect();
        let spread = all.iter().max().unwrap_or(&0) - all.iter().min().unwrap_or(&0);
        if spread < 1_000 {
            continue;
        }
        let waits = starts.iter().zip(&all);
        let waits = waits.map(|(start, ms)| (*ms as f64 / 1_000.0, start.is_none())).collect();
        let budget = base.budgets[spec.budget as usize].path.clone();
        let workload = spec.id.to_string();
        differences.push((spread, Difference { workload, budget, gpus: spec.gpus, waits }));
    }
    differences.sort_by_key(|(spread, _)| std::cmp::Reverse(*spread));
    differences.into_iter().map(|(_, difference)| difference).collect()
}

/// For each workload when it first started, if it did.
fn first_starts<'a>(scenario: &'a Scenario, outcome: &Outcome) -> BTreeMap<&'a str, Option<u64>> {
    let mut starts: Vec<Option<u64>> = vec![None; scenario.workloads.len()];
    for attempt in &outcome.series.attempts {
        let first = &mut starts[attempt.workload as usize];
        *first = Some(first.map_or(attempt.start_ms, |first| first.min(attempt.start_ms)));
    }
    scenario.workloads.iter().map(|spec| &*spec.id).zip(starts).collect()
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
        let columns = ["recorded", "budget"].map(|policy| Column {
            name: policy.to_owned(),
            policy,
            scenario: &scenario,
        });
        let found = differences(&columns, &outcomes, (0, until_ms));
        assert!(differences(&columns, &outcomes, (60_001, until_ms)).is_empty(), "all came before");
        assert_eq!(found[0].workload, "2");
        assert_eq!(found[0].waits[0], (7_140.0, false));
        let (waits, still) = found[0].waits[1];
        assert!(waits < 1_800.0 && !still, "{found:?}");
        let told = shown(&["recorded", "budget"], &found, 1);
        assert!(told.contains("waits that differ most: 1 of"), "{told}");
    }
}
