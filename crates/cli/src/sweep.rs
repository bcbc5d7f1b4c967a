//! `bursar simulate --sweep`: every combination of some settings, one row each.

use crate::args::SimulateArgs;
use crate::failure::Failure;
use crate::output::{Output, finish_all};
use crate::play::{self, Bar};
use crate::shown::{note, say};
use crate::simulate::{check_outputs, check_policies, write_json};
use crate::table;
use bursar_scenario::Scenario;
use bursar_sim::{EventSink, PolicySummary, RunOptions};
use rayon::prelude::*;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most combinations. More are a typing error.
const COMBINATIONS_MAX: usize = 10_000;
/// Workloads that are kept of combinations that wait for their turn; what is beyond is read again then.
const KEPT_WORKLOADS_MAX: usize = 1_000_000;

/// One combination and one policy.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    /// The swept values.
    #[serde(rename = "set", serialize_with = "as_map")]
    pub(crate) values: Vec<(String, String)>,
    /// The seed in force.
    pub(crate) seed: u64,
    /// What came of it; its first key is the policy.
    #[serde(flatten)]
    pub(crate) summary: PolicySummary,
}

fn as_map<S: Serializer>(pairs: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(pairs.len()))?;
    for (key, value) in pairs {
        map.serialize_entry(key, value)?;
    }
    map.end()
}

/// One combination, read and found good.
struct Point {
    values: Vec<(String, String)>,
    end_ms: u64,
    kept: Option<Scenario>,
}

/// Runs the verb.
pub(crate) fn sweep(args: &SimulateArgs) -> Result<(), Failure> {
    check_policies(args)?;
    check_outputs(args)?;
    let points = read_all(args)?;
    let file = args.summary.as_deref().map(Output::create).transpose()?;
    let rows = play_all(args, &points)?;
    if let Some(mut file) = file {
        write_json(&mut file, &rows)?;
        finish_all(vec![file])?;
    }
    if args.json {
        say(&(serde_json::to_string_pretty(&rows).map_err(Failure::fault)? + "\n"));
    } else {
        say(&table::grid(&rows, args.policies.len() > 1));
    }
    Ok(())
}

/// The grid, the last key changing fastest.
fn combinations(args: &SimulateArgs) -> Result<Vec<Vec<(String, String)>>, Failure> {
    let mut all: Vec<Vec<(String, String)>> = vec![Vec::new()];
    for (at, sweep) in args.sweeps.iter().enumerate() {
        let key = &sweep.key;
        if args.sweeps[..at].iter().any(|other| other.key == *key) {
            return Err(Failure::Input(format!("--sweep {key} is given twice")));
        }
        if args.overrides.iter().any(|(other, _)| other == key) {
            return Err(Failure::Input(format!("{key} is both in --set and in --sweep")));
        }
        let longer = all.iter().flat_map(|values| {
            sweep.values.iter().map(move |value| {
                let next = (key.clone(), value.clone());
                values.iter().cloned().chain([next]).collect()
            })
        });
        // One more than may be is enough to know.
        all = longer.take(COMBINATIONS_MAX + 1).collect();
    }
    if all.len() > COMBINATIONS_MAX {
        return Err(Failure::Input(format!("--sweep: more than {COMBINATIONS_MAX} combinations")));
    }
    Ok(all)
}

fn load(args: &SimulateArgs, values: &[(String, String)]) -> Result<Scenario, Failure> {
    let overrides: Vec<_> = args.overrides.iter().chain(values).cloned().collect();
    bursar_scenario::load_path(&args.scenario, &overrides).map_err(Failure::input)
}

/// Reads every combination before the first is played, so that a bad value ends all of it at once.
fn read_all(args: &SimulateArgs) -> Result<Vec<Point>, Failure> {
    let kept = AtomicUsize::new(0);
    let read = |values: Vec<(String, String)>| {
        crate::interrupt::check()?;
        let scenario = load(args, &values)?;
        let notes = scenario.notes.clone();
        let end_ms = play::end_ms(&scenario, args.until);
        let size = scenario.workloads.len();
        let fits = kept.fetch_add(size, Ordering::Relaxed) + size <= KEPT_WORKLOADS_MAX;
        Ok((Point { values, end_ms, kept: fits.then_some(scenario) }, notes))
    };
    let results: Vec<Result<_, Failure>> =
        combinations(args)?.into_par_iter().with_max_len(1).map(read).collect();
    // The first error in the order of the grid, whichever came first in time.
    let read: Vec<(Point, Vec<String>)> = results.into_iter().collect::<Result<_, _>>()?;
    let mut told: Vec<&String> = Vec::new();
    for text in read.iter().flat_map(|(_, notes)| notes) {
        if !told.contains(&text) {
            note(&format!("note: {text}"));
            told.push(text);
        }
    }
    Ok(read.into_iter().map(|(point, _)| point).collect())
}

/// Plays every combination under every policy.
fn play_all(args: &SimulateArgs, points: &[Point]) -> Result<Vec<Row>, Failure> {
    let policies = &args.policies;
    let jobs: Vec<(&Point, &String)> = points
        .iter()
        .flat_map(|point| policies.iter().map(move |policy| (point, policy)))
        .collect();
    let ends_ms: Vec<u64> = jobs.iter().map(|(point, _)| point.end_ms).collect();
    play::all(jobs, &ends_ms, Bar::unless(args.quiet), |(point, policy), progress| {
        let read_again;
        let scenario = match &point.kept {
            Some(scenario) => scenario,
            None => {
                read_again = load(args, &point.values)?;
                &read_again
            }
        };
        let options = RunOptions {
            until_ms: args.until,
            compare: args.compare.options(),
            progress: Some(progress),
            ..RunOptions::default()
        };
        let outcome = play::play(scenario, policy, options, EventSink::None)?;
        let (values, seed) = (point.values.clone(), scenario.seed);
        Ok(Row { values, seed, summary: outcome.summary })
    })
}
