//! Random worlds against the rules. Every test walks a fixed range of seeds; what fails is shrunk and
//! printed as the scenario that shows it.
//!
//! `BURSAR_SEEDS=0..5000 cargo test -p bursar-sim --release --test random -- --ignored --nocapture` hunts
//! further; `BURSAR_ONLY=verified,restful` chooses among the properties.

mod drive;
mod logs;
mod metrics;
mod rules;
mod shrink;
mod world;

use shrink::{Property, check, shrink};
use std::collections::BTreeMap;
use world::{Size, World};

const PROPERTIES: &[(&str, Property)] = &[
    ("verified", rules::verified),
    ("restful", rules::restful),
    ("forgetful_is_same", rules::forgetful_is_same),
    ("nothing_between", rules::nothing_between),
    ("order_is_no_input", rules::order_is_no_input),
    ("names_are_mirrored", rules::names_are_mirrored),
    ("all_policies_end", rules::all_policies_end),
    ("nobody_is_forgotten", rules::nobody_is_forgotten),
    ("summary_follows_from_log", rules::summary_follows_from_log),
    ("plan_is_kept", drive::plan_is_kept),
    ("late_engine", drive::plan_is_kept_by_a_late_engine),
];

fn holds(name: &str, seeds: std::ops::Range<u64>) {
    let found = PROPERTIES.iter().find(|(property, _)| *property == name);
    let &(_, property) = found.expect("a property");
    if std::env::var("BURSAR_LIST").is_ok() {
        let fails = |seed: &u64| {
            let world = World::draw(*seed, Size::SMALL);
            world.scenario().is_ok() && check(property, &world).is_err()
        };
        println!("LIST {name}: {:?}", seeds.filter(fails).collect::<Vec<_>>());
        return;
    }
    for seed in seeds {
        let world = World::draw(seed, Size::SMALL);
        if world.scenario().is_err() {
            continue;
        }
        if let Err(fault) = check(property, &world) {
            let (world, fault) = shrink(property, world, fault);
            panic!("seed {seed}: {}: {}\n{}", fault.kind, fault.detail, world.yaml());
        }
    }
}

/// Worlds per property: together they take about half a minute in a debug build.
const SEEDS: std::ops::Range<u64> = 0..200;

#[test]
fn the_checker_finds_nothing() {
    holds("verified", SEEDS);
}

#[test]
fn planning_again_changes_nothing() {
    holds("restful", SEEDS);
}

#[test]
fn memory_changes_no_result() {
    holds("forgetful_is_same", SEEDS);
}

#[test]
fn no_wake_up_is_missed() {
    holds("nothing_between", SEEDS);
}

#[test]
fn the_order_of_one_instant_is_no_input() {
    holds("order_is_no_input", SEEDS);
}

#[test]
fn renamed_worlds_give_renamed_plans() {
    holds("names_are_mirrored", SEEDS);
}

#[test]
fn every_policy_comes_to_the_end() {
    holds("all_policies_end", SEEDS);
}

#[test]
fn nobody_waits_on_an_idle_cluster() {
    holds("nobody_is_forgotten", SEEDS);
}

#[test]
fn the_summary_follows_from_the_log() {
    holds("summary_follows_from_log", SEEDS);
}

#[test]
fn plans_are_what_is_committed() {
    holds("plan_is_kept", SEEDS);
}

#[test]
fn plans_are_kept_with_a_late_engine() {
    holds("late_engine", SEEDS);
}

#[test]
fn worlds_are_worth_drawing() {
    let drawn: Vec<World> = (0..200).map(|seed| World::draw(seed, Size::SMALL)).collect();
    let good = drawn.iter().filter(|world| world.scenario().is_ok()).count();
    let why = drawn.iter().find_map(|world| world.scenario().err());
    assert!(good >= 195, "only {good} of 200 worlds are scenarios: {why:?}");
}

/// Prints the log of the scenario in `BURSAR_FILE`.
#[test]
#[ignore = "a tool"]
fn show() {
    let file = std::env::var("BURSAR_FILE").expect("a scenario");
    let policy = std::env::var("BURSAR_POLICY").unwrap_or_else(|_| "budget".into());
    let scenario = bursar_scenario::load_path(file.as_ref(), &[]).expect("a scenario");
    let played = logs::play(&scenario, &policy).expect("it runs");
    print!("{}", played.log);
    let found = drive::drive_scenario(&scenario, drive::Dice::new(1), false);
    println!("driven: {found:?}");
    let report =
        bursar_verify::verify(std::io::Cursor::new(&played.log), &scenario).expect("it reads");
    println!("{report}");
}

#[test]
#[ignore = "a hunt takes as long as it is given"]
fn hunt() {
    let variable = |name: &str| std::env::var(name).ok();
    let seeds = variable("BURSAR_SEEDS").unwrap_or_else(|| "0..1000".into());
    let (from, to) = seeds.split_once("..").expect("a range");
    let (from, to): (u64, u64) = (from.parse().expect("a seed"), to.parse().expect("a seed"));
    let number = |name: &str, default: u64| {
        variable(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let size =
        Size { hosts_max: number("BURSAR_HOSTS", 10), works_max: number("BURSAR_WORKS", 60) };
    let only = variable("BURSAR_ONLY");
    let mut found: BTreeMap<String, (u64, String)> = BTreeMap::new();
    for seed in from..to {
        let mut world = World::draw(seed, size);
        if variable("BURSAR_EVEN").is_some() {
            let gpus = world.hosts[0].gpus;
            world.hosts.iter_mut().for_each(|host| host.gpus = gpus);
        }
        if variable("BURSAR_PLAIN").is_some() {
            world.changes.clear();
            world.unlimit();
        }
        if variable("BURSAR_CALM").is_some() {
            world.host_events.clear();
        }
        if world.scenario().is_err() {
            continue;
        }
        for (name, property) in PROPERTIES {
            if only.as_ref().is_some_and(|only| !only.split(',').any(|one| one == *name)) {
                continue;
            }
            let Err(fault) = check(*property, &world) else { continue };
            let key = format!("{name}: {}", fault.kind);
            if let Some((count, _)) = found.get_mut(&key) {
                *count += 1;
                continue;
            }
            println!("seed {seed}: {key}: {}", fault.detail);
            found.insert(key.clone(), (1, String::new()));
            if variable("BURSAR_WHOLE").is_some() {
                continue;
            }
            let (small, fault) = shrink(*property, world.clone(), fault);
            println!("{}\n{}", fault.detail, small.yaml());
            found.insert(key, (1, fault.detail));
        }
    }
    for (key, (count, _)) in &found {
        println!("{count:>6} x {key}");
    }
    assert!(found.is_empty(), "{} kinds of faults", found.len());
}
