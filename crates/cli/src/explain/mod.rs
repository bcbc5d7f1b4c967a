//! `bursar explain`: plays the scenario and follows one workload through it.
//!
//! What happened to it comes from the event log, why it waited from the core itself, asked after each
//! moment (rule 11). Nothing here finds reasons; it only leaves out repetitions.

mod follow;
mod text;

use crate::args::ExplainArgs;
use crate::failure::Failure;
use crate::interrupt;
use crate::play::{self, Bar};
use crate::shown::{note, say};
use bursar_core::{Scheduler, WorkloadIx};
use bursar_scenario::{Scenario, WorkloadSpec};
use bursar_sim::{EventSink, RunOptions, Seconds};
use follow::{Follower, Lines, Story};
use serde::Serialize;
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs the verb.
pub(crate) fn explain(args: &ExplainArgs) -> Result<(), Failure> {
    let scenario =
        bursar_scenario::load_path(&args.scenario, &args.overrides).map_err(Failure::input)?;
    let index = find(&scenario, args)?;
    scenario.notes.iter().for_each(|text| note(&format!("note: {text}")));
    let story = follow(&scenario, index, args)?;
    let spec = &scenario.workloads[index as usize];
    let teller = text::Teller { scenario: &scenario, spec, policy: &args.policy };
    let told = match (args.at, args.json) {
        (None, false) => teller.whole(&story),
        (Some(at_ms), false) => teller.moment(&story, at_ms),
        (None, true) => in_json(&teller, json!({ "moments": story.entries })),
        (Some(at_ms), true) => {
            let standing = story.standing.as_ref();
            let as_of = standing.map(|standing| Seconds(standing.at_ms));
            let last = story.entries.iter().rfind(|entry| !entry.is_wait());
            in_json(
                &teller,
                json!({ "at": Seconds(at_ms), "as_of": as_of, "state": teller.state(&story, at_ms),
                        "waits": standing.and_then(|standing| standing.waits), "last_event": last }),
            )
        }
    };
    say(&told);
    Ok(())
}

/// The workload of that id.
fn find(scenario: &Scenario, args: &ExplainArgs) -> Result<u32, Failure> {
    let (id, workloads) = (args.workload.as_str(), &scenario.workloads);
    if let Some(index) = workloads.iter().position(|workload| &*workload.id == id) {
        return Ok(index as u32);
    }
    let nearest = workloads
        .iter()
        .filter(|workload| workload.id.len() <= 256 && id.len() <= 256)
        .min_by_key(|workload| strsim::osa_distance(id, &workload.id));
    let hint = match nearest {
        Some(workload) => format!("; the nearest is '{}'", workload.id),
        None => String::new(),
    };
    let name = args.scenario.display();
    Err(Failure::Input(format!("{name}: there is no workload '{id}'{hint}")))
}

/// Plays the scenario until the workload has ended, or until the moment asked for.
fn follow(scenario: &Scenario, index: u32, args: &ExplainArgs) -> Result<Story, Failure> {
    let spec = &scenario.workloads[index as usize];
    let follower = Follower::new(&spec.id);
    let over = AtomicBool::new(false);
    let observer = |scheduler: &Scheduler, places: &dyn Fn(u32) -> Option<WorkloadIx>| {
        let place = places(index);
        let ended = follower.observe(scheduler, place);
        if ended || interrupt::asked() {
            over.store(true, Ordering::Relaxed);
        }
    };
    let end_ms = args.at.unwrap_or_else(|| play::end_ms(scenario, None));
    play::all(vec![()], &[end_ms], Bar::unless(args.quiet), |(), progress| {
        let options = RunOptions {
            until_ms: args.at,
            compare: args.compare.options(),
            progress: Some(progress),
            stop: Some(&over),
            observer: Some(&observer),
            ..RunOptions::default()
        };
        let mut lines = Lines::new(&follower);
        match play::play(scenario, &args.policy, options, EventSink::Json(&mut lines)) {
            Err(Failure::Interrupted) if !interrupt::asked() => Ok(()),
            other => other.map(drop),
        }
    })?;
    Ok(follower.story())
}

/// What the workload declares.
#[derive(Serialize)]
struct Declares<'a> {
    workload: &'a str,
    policy: &'a str,
    budget: &'a str,
    gpus: u32,
    submit: Seconds,
    min_runtime: Seconds,
    resumable: bool,
    rank: i32,
}

fn in_json(teller: &text::Teller<'_>, rest: serde_json::Value) -> String {
    let spec: &WorkloadSpec = teller.spec;
    let declares = Declares {
        workload: &spec.id,
        policy: teller.policy,
        budget: teller.budget(),
        gpus: spec.gpus,
        submit: Seconds(spec.submit_ms),
        min_runtime: Seconds(spec.min_runtime_ms),
        resumable: spec.resumable,
        rank: spec.rank,
    };
    let mut whole = json!(declares);
    if let (Some(whole), serde_json::Value::Object(rest)) = (whole.as_object_mut(), rest) {
        whole.extend(rest);
    }
    format!("{whole:#}\n")
}
