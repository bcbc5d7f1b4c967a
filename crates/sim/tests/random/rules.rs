//! The properties: what holds in every world (issue 2, DESIGN section 3).

use crate::logs::{by_instant, event, first_difference, play, play_with};
use crate::shrink::Fault;
use crate::world::{Dice, World};
use bursar_core::{Event, Scheduler, TimeMs, WorkloadIx};
use bursar_scenario::Scenario;
use bursar_sim::RunOptions;
use bursar_verify::{Check, Violation};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::sync::{Arc, Mutex};

fn scenario_of(world: &World) -> Result<Scenario, Fault> {
    world.scenario().map_err(|error| Fault::new("world", error))
}

fn ensure(good: bool, kind: &str, detail: impl FnOnce() -> String) -> Result<(), Fault> {
    if good { Ok(()) } else { Err(Fault::new(kind, detail())) }
}

/// What a log does not show: that GPUs were held for somebody whose hold was dropped when one of its hosts
/// failed or drained, and that a holder's budget lost its share or the room under its limit.
fn is_out_of_sight(world: &World, found: &Violation) -> bool {
    let unfunded = world.changes.iter().any(|change| change.share == 0)
        || world
            .budgets
            .iter()
            .any(|budget| budget.limit_hours.is_some() || !budget.terms.is_empty());
    match found.check {
        Check::PromiseKept => unfunded || !world.host_events.is_empty(),
        Check::Order | Check::Minimal => !world.host_events.is_empty(),
        _ => false,
    }
}

/// Rules 1, 4 to 9 and 12, by the checker that shares no code with the planner.
pub(crate) fn verified(world: &World) -> Result<(), Fault> {
    let scenario = scenario_of(world)?;
    let played = play(&scenario, "budget")?;
    let report = bursar_verify::verify(Cursor::new(&played.log), &scenario)
        .map_err(|error| Fault::new("unreadable log", error.to_string()))?;
    if let Some(first) = report.violations.iter().find(|found| !is_out_of_sight(world, found)) {
        let kind = format!("rule {}: {:?}", first.rule, first.check);
        return Err(Fault::new(kind, first.to_string()));
    }
    let summary = &played.outcome.summary;
    ensure(summary.conservation_exact, "conservation", String::new)?;
    ensure(summary.breaches["scheduler"] == 0, "breach", || format!("{:?}", summary.breaches))?;
    ensure(summary.reservations.missed == 0, "promise missed", || {
        format!("{:?}", summary.reservations)
    })
}

/// Rule 10: once a moment is at rest, planning again changes nothing.
pub(crate) fn restful(world: &World) -> Result<(), Fault> {
    let scenario = scenario_of(world)?;
    for policy in ["budget", "budget-forgetful"] {
        let found: Arc<Mutex<Option<String>>> = Arc::default();
        let seen = Arc::clone(&found);
        let observer = move |scheduler: &Scheduler, _: &dyn Fn(u32) -> Option<WorkloadIx>| {
            let plan = scheduler.plan();
            if !plan.decisions.is_empty() {
                let at = scheduler.state().now();
                seen.lock().unwrap().get_or_insert_with(|| format!("at {at}: {plan:?}"));
            }
        };
        let options = RunOptions { observer: Some(&observer), ..RunOptions::default() };
        play_with(&scenario, policy, options)?;
        if let Some(plan) = found.lock().unwrap().take() {
            return Err(Fault::new(format!("{policy} plans again"), plan));
        }
    }
    Ok(())
}

/// What is remembered from decision to decision changes no result.
pub(crate) fn forgetful_is_same(world: &World) -> Result<(), Fault> {
    let scenario = scenario_of(world)?;
    let with = play(&scenario, "budget")?.log;
    let without =
        play(&scenario, "budget-forgetful")?.log.replace("\"budget-forgetful\"", "\"budget\"");
    let lines = |log: &'_ str| log.lines().map(String::from).collect::<Vec<_>>();
    match first_difference(&lines(&with), &lines(&without)) {
        Some(difference) => Err(Fault::new("memory changes the log", difference)),
        None => Ok(()),
    }
}

/// The plan at a later moment at which nothing happens, if it is not empty.
fn plan_later(before: &Scheduler, at_ms: u64) -> Option<String> {
    let mut copy = before.clone();
    copy.apply(TimeMs(at_ms), Event::Tick).expect("time may pass");
    let plan = copy.plan();
    let since = before.state().now().0;
    (!plan.decisions.is_empty())
        .then(|| format!("rests at {since} ms, yet at {at_ms} ms: {plan:?}"))
}

/// Looks at what a policy without memory would do between two moments of a run.
struct Between {
    last: Option<Scheduler>,
    dice: Dice,
    missed: Option<String>,
}

impl Between {
    fn look(&mut self, now: &Scheduler) {
        let Some(before) = self.last.replace(now.clone()) else { return };
        let (from, to) = (before.state().now().0, now.state().now().0);
        if from + 1 >= to || self.missed.is_some() {
            return;
        }
        let mut moments = [to - 1; 3];
        moments[1..].fill_with(|| self.dice.range(from + 1, to - 1));
        self.missed = moments.into_iter().find_map(|at| plan_later(&before, at));
    }
}

/// Whether nothing runs, so that nothing but the core could make a difference any more.
fn is_empty(scheduler: &Scheduler) -> bool {
    let occupancy = scheduler.state().occupancy();
    occupancy.allocated + occupancy.unallocated == 0
}

/// `next_wake`: between two moments of a run a policy without memory finds nothing to do either.
pub(crate) fn nothing_between(world: &World) -> Result<(), Fault> {
    let scenario = scenario_of(world)?;
    let dice = Dice::new(scenario.workloads.len() as u64);
    let between = Arc::new(Mutex::new(Between { last: None, dice, missed: None }));
    let looks = Arc::clone(&between);
    let observer = move |scheduler: &Scheduler, _: &dyn Fn(u32) -> Option<WorkloadIx>| {
        looks.lock().unwrap().look(scheduler);
    };
    let options = RunOptions { observer: Some(&observer), ..RunOptions::default() };
    let played = play_with(&scenario, "budget-forgetful", options)?;
    let Between { last, missed, .. } = &*between.lock().unwrap();
    if let Some(what) = missed {
        return Err(Fault::new("missed wake-up", what.clone()));
    }
    if let Some(end) = last
        && played.outcome.summary.unfinished > 0
        && is_empty(end)
    {
        let now = end.state().now().0;
        let later =
            [1, 10, 60, 600, 3_600, 14_400, 86_400, 864_000].map(|seconds| now + seconds * 1_000);
        if let Some(what) = later.into_iter().find_map(|at| plan_later(end, at)) {
            return Err(Fault::new("waits for ever", what));
        }
    }
    Ok(())
}

/// Rule 10: the order in which things of one instant are told is no input.
pub(crate) fn order_is_no_input(world: &World) -> Result<(), Fault> {
    let mut scenario = scenario_of(world)?;
    let kept = |line: &Value| event(line) != "submitted";
    let first = by_instant(&play(&scenario, "budget")?.log, kept);
    let dice = &mut Dice::new(scenario.workloads.len() as u64);
    let mut shuffled = world.clone();
    dice.shuffle(&mut shuffled.works);
    shuffled.budgets.reverse();
    let second = by_instant(&play(&scenario_of(&shuffled)?, "budget")?.log, kept);
    if let Some(difference) = first_difference(&first, &second) {
        return Err(Fault::new("order of the file", difference));
    }
    // Past the reader, which sorts: the core itself is told in another order.
    dice.shuffle(&mut scenario.workloads);
    scenario.workloads.sort_by_key(|work| work.submit_ms);
    let third = by_instant(&play(&scenario, "budget")?.log, kept);
    if let Some(difference) = first_difference(&first, &third) {
        return Err(Fault::new("order of submission", difference));
    }
    // What happens to different hosts (to one host, the order means something).
    let mut moved = scenario.hosts_events.clone();
    dice.shuffle(&mut moved);
    moved.sort_by_key(|event| event.at_ms);
    for host in 0..scenario.hosts.len() {
        let own = scenario.hosts_events.iter().filter(|event| event.host == host);
        for (place, event) in moved.iter_mut().filter(|event| event.host == host).zip(own) {
            *place = *event;
        }
    }
    scenario.hosts_events = moved;
    let fourth = by_instant(&play(&scenario, "budget")?.log, kept);
    match first_difference(&first, &fourth) {
        Some(difference) => Err(Fault::new("order of hosts' events", difference)),
        None => Ok(()),
    }
}

/// Names that sort like the old ones and share nothing with them.
fn renaming(names: &[String], dice: &mut Dice) -> BTreeMap<String, String> {
    let mut sorted = names.to_vec();
    sorted.sort();
    sorted.dedup();
    let mut last = String::from("K");
    let mut next = || {
        last = match dice.range(0, 2) {
            0 => format!("{last}!"),
            1 => format!("{last}-x"),
            _ => format!("{last}z"),
        };
        last.clone()
    };
    sorted.into_iter().map(|name| (name, next())).collect()
}

/// Rule 10: an order-preserving renaming gives the renamed plan.
pub(crate) fn names_are_mirrored(world: &World) -> Result<(), Fault> {
    let dice = &mut Dice::new(world.works.len() as u64);
    let ids = renaming(&world.works.iter().map(|work| work.id.clone()).collect::<Vec<_>>(), dice);
    let parts: Vec<String> =
        world.budgets.iter().flat_map(|budget| budget.path.split('/').map(String::from)).collect();
    let parts = renaming(&parts, dice);
    let path =
        |path: &str| path.split('/').map(|part| parts[part].as_str()).collect::<Vec<_>>().join("/");
    let mut renamed = world.clone();
    for work in &mut renamed.works {
        (work.id, work.budget) = (ids[&work.id].clone(), path(&work.budget));
    }
    renamed.budgets.iter_mut().for_each(|budget| budget.path = path(&budget.path));
    renamed.changes.iter_mut().for_each(|change| change.budget = path(&change.budget));
    let host = |name: &str| format!("{}-{name}", 9 - name.len());
    renamed.hosts.iter_mut().for_each(|at| at.name = host(&at.name));
    renamed.host_events.iter_mut().for_each(|event| event.host = host(&event.host));
    let rename = |line: &str| -> String {
        let mut line: Value = serde_json::from_str(line).expect("JSON");
        for key in ["workload", "by"] {
            if let Some(id) = line[key].as_str() {
                line[key] = ids[id].clone().into();
            }
        }
        if let Some(budget) = line["budget"].as_str() {
            line["budget"] = path(budget).into();
        }
        if let Some(name) = line["host"].as_str() {
            line["host"] = host(name).into();
        }
        for place in line["placement"].as_array_mut().into_iter().flatten() {
            place["host"] = host(place["host"].as_str().expect("a name")).into();
        }
        line.as_object_mut().expect("an object").retain(|_, value| !value.is_null());
        line.to_string()
    };
    let tidy = |line: &str| -> String {
        let mut line: Value = serde_json::from_str(line).expect("JSON");
        line.as_object_mut().expect("an object").retain(|_, value| !value.is_null());
        line.to_string()
    };
    let plain = play(&scenario_of(world)?, "budget")?.log;
    let mirror = play(&scenario_of(&renamed)?, "budget")?.log;
    let plain: Vec<String> = plain.lines().map(rename).collect();
    let mirror: Vec<String> = mirror.lines().map(tidy).collect();
    match first_difference(&plain, &mirror) {
        Some(difference) => Err(Fault::new("names", difference)),
        None => Ok(()),
    }
}

/// Every policy comes to the end of every world and loses nothing.
pub(crate) fn all_policies_end(world: &World) -> Result<(), Fault> {
    let scenario = scenario_of(world)?;
    for policy in bursar_core::compare::NAMES {
        let played = play(&scenario, policy)?;
        let summary = &played.outcome.summary;
        ensure(summary.conservation_exact, &format!("{policy}: conservation"), String::new)?;
        let lines = played.lines();
        let count = |names: &[&str]| {
            lines.iter().filter(|line| names.contains(&event(line))).count() as u64
        };
        let ends = lines.iter().filter(|line| event(line) == "host_failed");
        let resumable = |line: &&Value| {
            let id = line["workload"].as_str().expect("an id");
            scenario.workloads.iter().any(|work| &*work.id == id && work.resumable)
        };
        let ended = count(&["completed", "failed", "cancelled", "terminated"])
            + ends.filter(|line| !resumable(line)).count() as u64;
        let all = scenario.workloads.len() as u64;
        let late = all - count(&["submitted", "refused"]);
        let sum = ended + summary.unfinished + count(&["refused"]) + late;
        ensure(sum == all, &format!("{policy}: lost workloads"), || format!("{sum} of {all}"))?;
        let report = bursar_verify::verify(Cursor::new(&played.log), &scenario)
            .map_err(|error| Fault::new(format!("{policy}: unreadable log"), error.to_string()))?;
        let seen = |found: &&Violation| !is_out_of_sight(world, found);
        if let Some(first) = report.violations.iter().find(seen) {
            let kind = format!("{policy}: rule {}: {:?}", first.rule, first.check);
            return Err(Fault::new(kind, first.to_string()));
        }
    }
    Ok(())
}

/// Nobody waits at the end of a run who would fit on the hosts that are up: nothing runs any more then.
pub(crate) fn nobody_is_forgotten(world: &World) -> Result<(), Fault> {
    let scenario = scenario_of(world)?;
    // Strict queues may wait for ever behind a head that needs a failed host.
    for policy in bursar_core::compare::NAMES.iter().filter(|name| !["fifo", "sjf"].contains(name))
    {
        let played = play(&scenario, policy)?;
        let mut up: BTreeMap<&str, bool> =
            scenario.hosts.iter().map(|host| (host.name.as_str(), true)).collect();
        let mut running: BTreeSet<String> = BTreeSet::new();
        let mut waits: BTreeMap<String, bool> = BTreeMap::new();
        for line in played.lines() {
            if let Some(host) = line["host"].as_str() {
                let host = scenario.hosts.iter().find(|other| other.name == host).expect("a host");
                match event(&line) {
                    "host_up" => up.insert(&host.name, true),
                    "host_down" | "drain_started" | "drained" => up.insert(&host.name, false),
                    _ => None,
                };
            } else if let Some(id) = line["workload"].as_str() {
                match event(&line) {
                    "submitted" | "requeued" => waits.insert(id.into(), true),
                    "started" | "refused" => waits.insert(id.into(), false),
                    _ => None,
                };
                match event(&line) {
                    "started" => running.insert(id.into()),
                    "submitted" | "refused" | "protection_ended" | "preempted" | "reserved"
                    | "unreserved" => false,
                    _ => running.remove(id),
                };
            }
        }
        if !running.is_empty() {
            continue;
        }
        let normal = scenario.hosts.len() - scenario.settings.debug_hosts as usize;
        for work in scenario.workloads.iter().filter(|work| waits.get(&*work.id) == Some(&true)) {
            let single =
                work.shape.is_none() && scenario.hosts.iter().any(|host| host.gpus >= work.gpus);
            let fits = scenario.hosts.iter().any(|pool| {
                let usable = scenario.hosts[..normal].iter().filter(|host| {
                    up[host.name.as_str()] && (host.gpus, host.model) == (pool.gpus, pool.model)
                });
                let (count, allowed) = (
                    usable.count() as u32,
                    work.model.is_none_or(|model| model as usize == pool.model),
                );
                let (each, hosts) = match work.shape {
                    Some((hosts, each)) => (each, hosts),
                    None if single => (work.gpus, 1),
                    None => (pool.gpus.min(work.gpus), work.gpus.div_ceil(pool.gpus)),
                };
                allowed && each <= pool.gpus && hosts <= count
            });
            ensure(!fits, &format!("{policy}: forgotten"), || {
                format!("{} waits at the end, and the cluster is idle", work.id)
            })?;
        }
    }
    Ok(())
}

/// The summary says what the log says: charges, unallocated time, first waits, lost time, occupancy.
pub(crate) fn summary_follows_from_log(world: &World) -> Result<(), Fault> {
    let scenario = scenario_of(world)?;
    for policy in ["budget", "levels"] {
        let played = play(&scenario, policy)?;
        crate::metrics::compare(&scenario, &played)?;
    }
    Ok(())
}
