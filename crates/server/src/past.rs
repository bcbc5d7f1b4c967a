//! Runs of work of the engine's own queue that were over before anybody saw them, or that nobody saw end
//! ([ADR 15](../../../docs/adr/0015-runs-that-nobody-saw.md)).

use crate::arrivals::{AccountBudgets, SAME_START_MS, incoming};
use crate::clock::Clock;
use crate::ended::{outcome_of, span_of};
use bursar_engine::{Arrival, PastRun};
use bursar_site::{Attempt, Body, Ending, Ran, Site, Stage, Work};
use std::collections::{BTreeMap, BTreeSet};

/// How often the engine's accounts are looked at for runs that nobody saw, in milliseconds. Such a look is dearer than one
/// at the queue; what is found is charged from when it was, however late.
pub(crate) const LOOK_EVERY_MS: u64 = 60_000;

/// How soon it is tried again when the accounts did not answer.
pub(crate) const AGAIN_MS: u64 = 10_000;

/// The shortest run: an engine may know whole seconds alone.
const A_SECOND: u64 = 1000;

/// By how much the start of a run may have moved since it was seen, as clocks were set, in milliseconds.
const CLOCK_SET_MS: u64 = 3_600_000;

/// Why a workload that is taken in with a run that is over does not enter the queue.
const OVER: &str = "it ran before it was seen here";

/// What follows from runs that are over.
#[derive(Debug, Default)]
pub(crate) struct Past {
    /// Records, and by whom.
    pub(crate) bodies: Vec<(Option<String>, Body)>,
    /// Runs that are not charged, and why: nobody's budget, or nowhere here.
    pub(crate) left_out: Vec<(String, String)>,
    /// Whether all that was told was judged; else it must be told again.
    pub(crate) complete: bool,
}

/// What is known when runs are judged.
pub(crate) struct Known<'a, C> {
    pub(crate) site: &'a Site,
    /// What the engine's queue holds.
    pub(crate) arrivals: &'a [Arrival],
    pub(crate) accounts: &'a AccountBudgets,
    /// Workloads that run by our books, and of whose attempts the engine says nothing.
    pub(crate) vanished: &'a BTreeSet<u64>,
    pub(crate) now: u64,
    pub(crate) clock: &'a C,
}

/// A run, in the site's milliseconds.
struct Run<'a> {
    told: &'a PastRun,
    span: (u64, u64),
    /// The work that it is of, if it is known.
    number: Option<u64>,
}

impl<C: Clock> Known<'_, C> {
    /// The records that follow from these runs.
    pub(crate) fn judge(&self, runs: &[PastRun]) -> Past {
        let mut past = Past { complete: true, ..Past::default() };
        let mut unseen = Vec::new();
        let mut shown = ByShown::default();
        let ends = self.ends_of_vanished(runs);
        for told in runs {
            let span = span_of(told, self.clock);
            if span.1 > self.now {
                past.complete = false;
                continue;
            }
            // Before the site.
            if span.1 == 0 {
                continue;
            }
            let mut works: Vec<&Work> =
                names(told).filter_map(|name| self.site.arrival(name)).collect();
            if works.is_empty() {
                works = shown.of(self.site, told);
            }
            let is_told = |work: &&Work| {
                work.attempts.iter().any(|attempt| attempt.run.as_ref() == Some(&told.run))
            };
            if works.iter().any(is_told) {
                continue;
            }
            let ended =
                works.iter().find(|work| ends.get(&work.number) == Some(&told.run.as_str()));
            if let Some((work, attempt)) = ended.and_then(|work| Some((work, work.latest()?))) {
                let body = body_of((work.number, attempt.clone()), told, span, self.now);
                past.bodies.push((None, body));
                continue;
            }
            match works.iter().find_map(|work| self.seen(work, told, span)) {
                Some(Seen::Known) => {}
                Some(Seen::Unclear) => past.complete = false,
                None => {
                    unseen.push(Run { told, span, number: works.first().map(|work| work.number) })
                }
            }
        }
        unseen.sort_by_key(|run| run.span);
        self.take_in(unseen, &mut past);
        past
    }

    /// How attempts ended that run by our books and of which the engine knows nothing: each as the run that began when it did,
    /// or next to it.
    fn ends_of_vanished<'a>(&self, runs: &'a [PastRun]) -> BTreeMap<u64, &'a str> {
        let mut ends: BTreeMap<u64, (u64, &str)> = BTreeMap::new();
        if self.vanished.is_empty() {
            return BTreeMap::new();
        }
        for told in runs {
            let works = names(told).filter_map(|name| self.site.arrival(name));
            for work in works.filter(|work| self.vanished.contains(&work.number)) {
                let open = work.latest().filter(|attempt| attempt.ended_ms.is_none());
                let Some(started) = open.and_then(|attempt| attempt.started_ms) else { continue };
                let moved = started.abs_diff(span_of(told, self.clock).0);
                let nearest = ends.get(&work.number).is_none_or(|(other, _)| moved < *other);
                if moved <= CLOCK_SET_MS && nearest {
                    ends.insert(work.number, (moved, &told.run));
                }
            }
        }
        ends.into_iter().map(|(number, (_, run))| (number, run)).collect()
    }

    /// Whether a run is one of the attempts of its work.
    fn seen(&self, work: &Work, told: &PastRun, span: (u64, u64)) -> Option<Seen> {
        let end = span.1.max(span.0 + A_SECOND);
        for attempt in &work.attempts {
            let Some(started) = attempt.started_ms else {
                // It is being started: the next look tells whether it was this run.
                if attempt.ended_ms.is_none() && end + A_SECOND > attempt.decided_ms {
                    return Some(Seen::Unclear);
                }
                continue;
            };
            let is_there = attempt
                .placement
                .iter()
                .any(|(host, _)| told.placement.iter().any(|(other, _)| other == host));
            if !is_there || !is_same((started, attempt.ended_ms), (span.0, end)) {
                continue;
            }
            // What still runs by our books has just ended, or is followed by this run: the next look tells.
            return Some(if attempt.ended_ms.is_some() { Seen::Known } else { Seen::Unclear });
        }
        None
    }

    fn take_in(&self, unseen: Vec<Run<'_>>, past: &mut Past) {
        let present: BTreeSet<&str> = self.arrivals.iter().map(|one| one.name.as_str()).collect();
        let mut number = self.site.next_number();
        let mut new: BTreeMap<&str, u64> = BTreeMap::new();
        for (at, run) in unseen.iter().enumerate() {
            let told = run.told;
            let known = run.number.or_else(|| names(told).find_map(|name| new.get(name).copied()));
            let mut body = None;
            let number_of_it = known.unwrap_or(number);
            if known.is_none() {
                let taken = incoming(self.site, &told.arrival, self.accounts);
                let taken = taken.and_then(|mut incoming| {
                    incoming.not_yet = Some(OVER.to_owned());
                    self.site.take_in(number, incoming)
                });
                match taken {
                    Ok(taken) => body = Some((Some(told.arrival.user.clone()), taken)),
                    Err(refused) => {
                        past.left_out.push((told.arrival.shown.clone(), refused.message));
                        continue;
                    }
                }
            }
            let follows = unseen[at + 1..].iter().any(|other| same_work(run, other));
            let waits = names(told).any(|name| present.contains(name));
            let ran = Ran {
                last: !told.returned && !waits && !follows && self.ends(run),
                ..ran(told, run.span)
            };
            match self.site.ran(number_of_it, ran) {
                Ok(ran) => {
                    if let Some(body) = body {
                        new.extend(names(told).map(|name| (name, number)));
                        number += 1;
                        past.bodies.push(body);
                    }
                    past.bodies.push((None, ran));
                }
                Err(refused) => past.left_out.push((told.arrival.shown.clone(), refused.message)),
            }
        }
    }

    /// Whether its work would have ended with a run that is its last in the accounts.
    fn ends(&self, run: &Run<'_>) -> bool {
        let Some(work) = run.number.and_then(|number| self.site.work(number)) else { return true };
        let is_later = |attempt: &Attempt| attempt.started_ms.is_some_and(|at| at > run.span.0);
        let may_end = match work.stage {
            Stage::Waits | Stage::Live(_) => true,
            // Taken for cancelled while it waited, since it was gone; or ended when it was put back, though it ran again.
            Stage::Ended(Ending::Completed | Ending::Failed | Ending::Unreachable) => false,
            Stage::Ended(Ending::Cancelled | Ending::HostFailed | Ending::Terminated) => true,
        };
        may_end && !work.attempts.iter().any(is_later)
    }
}

/// Whether a run of a work, from one moment to another, is the attempt that began, and perhaps ended, then.
fn is_same((started, ended): (u64, Option<u64>), (from, to): (u64, u64)) -> bool {
    // A charge never begins before its decision, within the engine's second or not: the shortest of runs then overlap its
    // row by next to nothing. Nothing runs anew so soon.
    let is_near = started.abs_diff(from) <= SAME_START_MS
        && ended.is_none_or(|ended| ended.abs_diff(to) <= SAME_START_MS);
    // One work runs once at a time, so what overlaps is the same; but for a little, which is what a clock was set by.
    let until = ended.map_or(u64::MAX, |ended| ended.max(started + 1));
    let overlap = until.min(to).saturating_sub(started.max(from));
    let shorter = (until - started).min(to - from);
    is_near || (overlap > 0 && overlap >= shorter / 2)
}

/// Workloads by what people know them by in the engine's queue, for work whose name is not known: an engine may have made
/// one up when it first saw it.
#[derive(Default)]
struct ByShown<'a>(Option<BTreeMap<&'a str, Vec<&'a Work>>>);

impl<'a> ByShown<'a> {
    /// The workloads of the same user that this run may be of, the latest first: numbers may be given again.
    fn of(&mut self, site: &'a Site, told: &PastRun) -> Vec<&'a Work> {
        let by_shown = self.0.get_or_insert_with(|| {
            let mut by_shown: BTreeMap<&str, Vec<&Work>> = BTreeMap::new();
            for work in site.arrivals() {
                if let Some(arrived) = &work.arrived {
                    by_shown.entry(&arrived.shown).or_default().push(work);
                }
            }
            by_shown
        });
        let all = by_shown.get(told.arrival.shown.as_str()).into_iter().flatten().copied();
        let mut works: Vec<&Work> =
            all.filter(|work| work.declared.user == told.arrival.user).collect();
        works.sort_by_key(|work| std::cmp::Reverse(work.number));
        works
    }
}

/// What a run is of what is in the books.
enum Seen {
    /// An attempt that has ended, or whose end the engine tells.
    Known,
    /// Perhaps an attempt: a later look tells.
    Unclear,
}

fn names(told: &PastRun) -> impl Iterator<Item = &str> {
    std::iter::once(told.arrival.name.as_str()).chain(told.aliases.iter().map(String::as_str))
}

fn same_work(one: &Run<'_>, other: &Run<'_>) -> bool {
    (one.number.is_some() && one.number == other.number)
        || names(one.told).any(|name| names(other.told).any(|named| named == name))
}

fn ran(told: &PastRun, span_ms: (u64, u64)) -> Ran {
    let (outcome, exit_code, detail) = outcome_of(&told.outcome);
    Ran {
        placement: told.placement.clone(),
        span_ms,
        outcome,
        exit_code,
        detail,
        run: told.run.clone(),
        last: false,
    }
}

/// The end of an attempt that only the accounts know of.
fn body_of(
    (workload, attempt): (u64, Attempt),
    told: &PastRun,
    span: (u64, u64),
    now: u64,
) -> Body {
    let (outcome, exit_code, detail) = outcome_of(&told.outcome);
    let since = attempt.started_ms.unwrap_or(span.0);
    // For as long as it ran, wherever its start was put.
    let until = if since == 0 { span.1 } else { since + (span.1 - span.0) }.min(now);
    let ended_ms = (until < now).then_some(until);
    let (attempt, run) = (attempt.number, Some(told.run.clone()));
    Body::Stopped { workload, attempt, outcome, ended_ms, exit_code, detail, run }
}

#[cfg(test)]
mod tests {
    use super::is_same;

    #[test]
    fn a_run_is_the_attempt_that_it_overlaps_or_lies_next_to() {
        let row = (6_000, 7_000);
        // A second that was charged from the decision on, which came late in it.
        assert!(is_same((6_686, Some(7_686)), row) && is_same((6_999, Some(7_999)), row));
        assert!(is_same((6_000, Some(7_000)), row) && is_same((6_400, None), row));
        // It ran anew after that, or before.
        assert!(!is_same((9_000, Some(10_000)), row) && !is_same((3_000, Some(4_000)), row));
        let row = (60_000, 120_000);
        assert!(is_same((60_900, Some(120_900)), row) && is_same((50_000, Some(100_000)), row));
        assert!(!is_same((119_000, Some(180_000)), row) && !is_same((10_000, Some(61_000)), row));
        assert!(!is_same((200_000, None), row));
    }
}
