//! Work that comes through the engine's own queue, compared with what the site knows of it
//! ([ADR 11](../../../docs/adr/0011-work-of-another-queue.md)).

use bursar_engine::{Arrival, ArrivalState, Moment};
use bursar_site::declare::{Duration, WorkloadDoc};
use bursar_site::record::{Arrived, Outcome};
use bursar_site::{Body, Budgets, Ending, Incoming, Refused, Site, Stage, Work};
use std::collections::{BTreeMap, BTreeSet};

/// Which budgets an engine's accounts are.
#[derive(Clone, Debug, Default)]
pub struct AccountBudgets(pub BTreeMap<String, String>);

impl AccountBudgets {
    /// The budget of an account: what the site says, else the budget of that path, else the only leaf of that name. Where
    /// it is divided among users, it is that of this user.
    ///
    /// # Errors
    /// A sentence, if there is none or several may be meant.
    pub fn budget(&self, budgets: &Budgets, account: &str, user: &str) -> Result<String, String> {
        let path = self.of_account(budgets, account)?;
        let is_divided =
            budgets.get(&path).is_some_and(|budget| budget.children.contains_key(user));
        Ok(if is_divided { format!("{path}/{user}") } else { path })
    }

    fn of_account(&self, budgets: &Budgets, account: &str) -> Result<String, String> {
        if let Some(path) = self.0.get(account) {
            return Ok(path.clone());
        }
        if budgets.get(account).is_some() {
            return Ok(account.to_owned());
        }
        let is_leaf =
            |path: &&str| budgets.get(path).is_some_and(|budget| budget.children.is_empty());
        let named = |path: &&str| path.rsplit('/').next() == Some(account);
        let mut found = budgets.paths().filter(is_leaf).filter(named);
        match (found.next(), found.next()) {
            (Some(path), None) => Ok(path.to_owned()),
            (Some(one), Some(other)) => {
                Err(format!("account '{account}' may be {one} or {other}: name it under accounts"))
            }
            (None, _) => Err(format!("account '{account}' is no budget: name its under accounts")),
        }
    }
}

/// How long a workload must be missing from the engine's queue before it is taken for cancelled there, in
/// milliseconds: an engine may lose sight of it for a moment.
pub(crate) const MISSING_MS: u64 = 10_000;

/// What the engine's queue holds that the site does not know, or the other way round.
#[derive(Debug, Default)]
pub(crate) struct Comings {
    /// Records, and by whom.
    pub(crate) bodies: Vec<(Option<String>, Body)>,
    /// Arrivals that were not taken in, by name, and why.
    pub(crate) declined: BTreeMap<String, String>,
    /// Arrivals whose work was cancelled here.
    pub(crate) withdrawn: Vec<String>,
    /// Workloads that wait here and are not in the engine's queue.
    pub(crate) missing: BTreeSet<u64>,
}

/// By how much a start may differ between our books and an engine that knows whole seconds, in milliseconds: charges never
/// begin before their decision, which may come late in that second. Nothing runs anew so soon.
pub(crate) const SAME_START_MS: u64 = 1_500;

/// The records that follow from the engine's queue: what came, and what waits no longer for something else.
pub(crate) fn comings(
    site: &Site,
    arrivals: &[Arrival],
    accounts: &AccountBudgets,
    watches: bool,
    now: u64,
    site_ms: impl Fn(Moment) -> u64,
) -> Comings {
    let mut comings = Comings::default();
    let mut number = site.next_number();
    let mut known = BTreeSet::new();
    let mut in_order: Vec<&Arrival> = arrivals.iter().collect();
    // Of the same moment: as the engine has them.
    in_order.sort_by_key(|one| one.submitted_at.unix_ms);
    for arrival in in_order {
        let body = match site.arrival(&arrival.name) {
            None => {
                let taken = incoming(site, arrival, accounts);
                let taken = taken.and_then(|incoming| site.take_in(number, incoming));
                number += u64::from(taken.is_ok());
                taken.map(|body| (Some(arrival.user.clone()), body))
            }
            Some(work) => {
                known.insert(work.number);
                match work.stage {
                    Stage::Ended(Ending::Cancelled) => {
                        comings.withdrawn.push(arrival.name.clone());
                        continue;
                    }
                    Stage::Ended(_) if is_over(work, arrival, &site_ms) => continue,
                    Stage::Ended(_) => site.comes_again(work.number).map(|body| (None, body)),
                    Stage::Waits if work.held.is_some() => match told_of_held(work, arrival, now) {
                        None => continue,
                        Some(Told::Ready) => site.is_ready(work.number).map(|body| (None, body)),
                        Some(Told::Waits(why)) => {
                            site.hold_back(work.number, why, None).map(|body| (None, body))
                        }
                    },
                    // It was governed before: somebody else decides by now.
                    Stage::Live(_) if watches && !work.has_open_attempt() => match &arrival.state {
                        ArrivalState::NotYet(why) => {
                            site.hold_back(work.number, why.clone(), None).map(|body| (None, body))
                        }
                        ArrivalState::Waits | ArrivalState::Runs { .. } => continue,
                    },
                    Stage::Waits | Stage::Live(_) => continue,
                }
            }
        };
        match body {
            Ok(body) => comings.bodies.push(body),
            Err(refused) => {
                comings.declined.insert(arrival.name.clone(), refused.message);
            }
        }
    }
    let waits = |work: &&Work| {
        !matches!(work.stage, Stage::Ended(_))
            && !work.cancelled
            && work.latest().is_none_or(|attempt| attempt.ended_ms.is_some())
    };
    let waiting = site.arrivals().filter(waits).map(|work| work.number);
    comings.missing = waiting.filter(|number| !known.contains(number)).collect();
    comings
}

/// What is new of work that is held.
enum Told {
    /// It may enter the queue.
    Ready,
    /// It waits for something else than was known.
    Waits(String),
}

fn told_of_held(work: &Work, arrival: &Arrival, now: u64) -> Option<Told> {
    let is_over = work.held_until_ms.is_none_or(|until| until <= now);
    match &arrival.state {
        ArrivalState::Runs { .. } => Some(Told::Ready),
        ArrivalState::Waits => is_over.then_some(Told::Ready),
        ArrivalState::NotYet(why) => {
            (is_over && work.held.as_ref() != Some(why)).then(|| Told::Waits(why.clone()))
        }
    }
}

/// How long the second start in a row waits that came to nothing, in milliseconds. The first is made at once: what was in
/// its way may have passed.
const BACK_OFF_MS: u64 = 5_000;

/// How often that is doubled at most: 320 s.
const BACK_OFF_DOUBLED_MAX: u32 = 6;

/// What waits a while before it is started again, among the workloads of attempts that have just ended: that of which so
/// many starts in a row came to nothing. Meanwhile its GPUs are others', and others are asked for.
pub(crate) fn backing_off(site: &Site, ended: &[Body], now: u64) -> Vec<Body> {
    let lost = ended.iter().filter_map(|body| match body {
        Body::Stopped { workload, outcome: Outcome::Lost, .. } => site.work(*workload),
        _ => None,
    });
    let hold = |work: &Work| {
        let is_live = matches!(work.stage, Stage::Live(_)) && !work.has_open_attempt();
        let in_vain = work.attempts.iter().rev().take_while(|attempt| {
            attempt.started_ms.is_none() && attempt.outcome == Some(Outcome::Lost)
        });
        let times = u32::try_from(in_vain.count()).unwrap_or(u32::MAX);
        let doubled = times.checked_sub(2).filter(|_| is_live)?.min(BACK_OFF_DOUBLED_MAX);
        let until = now + (BACK_OFF_MS << doubled);
        let why = work.latest().and_then(|attempt| attempt.detail.clone()).unwrap_or_default();
        let why = format!("{times} starts in a row came to nothing, the last one since {why}");
        site.hold_back(work.number, why, Some(until)).ok()
    };
    lost.filter_map(hold).collect()
}

/// Whether what its engine says to run is a run that has ended, as was seen: an engine that was stopped amidst its work may
/// have forgotten that end.
fn is_over(work: &Work, arrival: &Arrival, site_ms: impl Fn(Moment) -> u64) -> bool {
    let ArrivalState::Runs { since, placement } = &arrival.state else { return false };
    let since = site_ms(*since);
    work.attempts.iter().any(|attempt| {
        let is_there = attempt
            .placement
            .iter()
            .any(|(host, _)| placement.iter().any(|(other, _)| other == host));
        attempt.ended_ms.is_some()
            && is_there
            && attempt.started_ms.is_some_and(|at| at.abs_diff(since) <= SAME_START_MS)
    })
}

/// Work that runs and that no order of ours started, which the site still has for waiting: the first that is to be
/// journaled, as what it takes may be what another is said to have.
pub(crate) fn found(
    site: &Site,
    arrivals: &[Arrival],
    site_ms: impl Fn(Moment) -> u64,
) -> Option<Body> {
    arrivals.iter().find_map(|arrival| {
        let ArrivalState::Runs { since, placement } = &arrival.state else { return None };
        let work = site.arrival(&arrival.name)?;
        if !matches!(work.stage, Stage::Live(_)) || runs_here(site, work.number) {
            return None;
        }
        // What others have by our books is looked at again in the next round: an order of ours will not come true.
        site.found(work.number, placement, site_ms(*since)).ok()
    })
}

fn runs_here(site: &Site, number: u64) -> bool {
    let latest = site.work(number).and_then(Work::latest);
    latest.is_some_and(|attempt| attempt.ended_ms.is_none())
}

/// The workloads whose arrivals run without an order of ours. An engine that says so of one has not lost it.
pub(crate) fn running(site: &Site, arrivals: &[Arrival]) -> BTreeSet<u64> {
    let runs = arrivals.iter().filter(|one| matches!(one.state, ArrivalState::Runs { .. }));
    runs.filter_map(|one| site.arrival(&one.name)).map(|work| work.number).collect()
}

pub(crate) fn incoming(
    site: &Site,
    arrival: &Arrival,
    accounts: &AccountBudgets,
) -> Result<Incoming, Refused> {
    let (doc, may_charge) = declaration(site, arrival, accounts).map_err(Refused::invalid)?;
    Ok(Incoming {
        arrived: Arrived {
            name: arrival.name.clone(),
            shown: arrival.shown.clone(),
            queue: arrival.queue.clone(),
        },
        doc,
        user: arrival.user.clone(),
        may_charge,
        not_yet: match &arrival.state {
            ArrivalState::NotYet(why) => Some(why.clone()),
            ArrivalState::Waits | ArrivalState::Runs { .. } => None,
        },
    })
}

/// What an arrival declares, and whether its engine has seen to it that its user may charge that budget.
fn declaration(
    site: &Site,
    arrival: &Arrival,
    accounts: &AccountBudgets,
) -> Result<(WorkloadDoc, bool), String> {
    let mut doc = WorkloadDoc {
        name: name_of(&arrival.title),
        gpus: arrival.gpus,
        hosts: arrival.shape.map(|(hosts, _)| hosts),
        gpus_per_host: arrival.shape.map(|(_, gpus)| gpus),
        gpu_model: arrival.gpu_model.clone(),
        max_runtime: arrival.max_runtime_ms.map(Duration),
        user: Some(arrival.user.clone()),
        // For people: the engine has what is really run.
        command: vec![format!("{} {}", arrival.queue, arrival.shown)],
        ..WorkloadDoc::default()
    };
    let mut budget = None;
    for (key, value) in &arrival.declared {
        let span = || {
            bursar_site::declare::duration(value).map(Some).map_err(|why| format!("{key}: {why}"))
        };
        let flag = || match value.as_str() {
            "" | "1" | "yes" | "true" => Ok(true),
            "0" | "no" | "false" => Ok(false),
            other => Err(format!("{key}: '{other}' is neither yes nor no")),
        };
        match key.as_str() {
            "budget" => budget = Some(value.clone()),
            "min-runtime" => doc.min_runtime = span()?,
            "resumable" => doc.resumable = Some(flag()?),
            "grace" => doc.grace = span()?,
            "checkpoint-interval" => doc.checkpoint_interval = span()?,
            "checkpoint-on-signal" => doc.checkpoint_on_signal = flag()?,
            "rank" => {
                doc.rank = value.parse().map_err(|_| format!("rank: '{value}' is no number"))?;
            }
            _ => return Err(format!("'{key}' cannot be declared")),
        }
    }
    let may_charge = budget.is_none();
    doc.budget_owner = match budget {
        Some(path) => path,
        None => accounts.budget(&site.budgets, &arrival.account, &arrival.user)?,
    };
    Ok((doc, may_charge))
}

/// A name that a site takes: of what somebody wrote, what can be printed.
fn name_of(title: &str) -> String {
    let name: String = title.chars().filter(|c| !c.is_control()).take(128).collect();
    if name.trim().is_empty() { "job".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_lead_to_budgets_and_to_their_users_in_them() {
        let tree = "lab: {share: 1, children: {vision: {share: 1}, ml: {share: 1, children: {ann: {share: 1}}}}}\n\
                    ops: {share: 1, children: {vision: {share: 1}}}\nfree: {share: 0}\n";
        let tree = bursar_site::yaml::read(tree).expect("a tree");
        let budgets = Budgets::new(1, tree, Vec::new()).expect("budgets");
        let named = [("ml", "lab/ml"), ("cv", "lab/vision")];
        let named = named.map(|(account, path)| (account.to_owned(), path.to_owned()));
        let accounts = AccountBudgets(BTreeMap::from(named));
        let of = |account: &str, user: &str| accounts.budget(&budgets, account, user);
        assert_eq!(of("cv", "ann"), Ok("lab/vision".to_owned()));
        assert_eq!(of("free", "ann"), Ok("free".to_owned()));
        assert_eq!(of("ml", "ann"), Ok("lab/ml/ann".to_owned()));
        // Nobody's part of it: work of others is refused, as it is divided.
        assert_eq!(of("ml", "bo"), Ok("lab/ml".to_owned()));
        assert!(
            of("vision", "ann").is_err_and(|why| why.contains("may be lab/vision or ops/vision"))
        );
        assert!(of("gone", "ann").is_err_and(|why| why.contains("is no budget")));
    }
}
