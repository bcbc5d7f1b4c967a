//! What the daemon makes of an engine's own queue and accounts: what came, what is gone, and what ran unseen.

use super::{Daemon, Failure};
use crate::clock::Clock;
use crate::journal::Journal;
use crate::reconcile::lost_for_good;
use crate::{arrivals, past};
use bursar_engine::{Arrival, Engine, Moment};
use bursar_site::{Body, Stage};
use std::collections::{BTreeMap, BTreeSet};

/// What is remembered of an engine's own queue from round to round.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    /// Since when workloads are missing there.
    missing: BTreeMap<u64, u64>,
    /// Since when attempts that run by our books are told of by nobody.
    vanished: BTreeMap<u64, u64>,
    /// What its arrivals were told when they were not taken in.
    declined: BTreeMap<String, String>,
    /// When its accounts are looked at next.
    past_due: u64,
    /// When they were last read, and all of it was in the books.
    past_read: Option<u64>,
    /// When they did not answer, if they did not the last time.
    past_failed: Option<u64>,
    /// What was said of runs that are not charged.
    left_out: BTreeSet<String>,
}

impl Queue {
    /// What has been gone for so long that the engine has not just lost sight of it, and since when.
    fn gone(&self, now: u64) -> impl Iterator<Item = (u64, u64)> {
        let all = self.missing.iter().chain(&self.vanished);
        let gone = all.filter(move |&(_, since)| now - since >= arrivals::MISSING_MS);
        gone.map(|(&number, &since)| (number, since))
    }
}

/// How long what is gone may wait for the engine's accounts, in milliseconds: they correct later what is said before.
const PAST_PATIENCE_MS: u64 = 120_000;

impl<J: Journal, E: Engine, C: Clock> Daemon<J, E, C> {
    /// Takes in what came through the engine's own queue, and what left it.
    pub(super) fn look_at_arrivals(&mut self, arrivals: &[Arrival]) -> Result<(), Failure> {
        let now = self.now_ms();
        let (accounts, watches) = (&self.options.account_budgets, self.options.watches);
        let site_ms = |moment| self.clock.site_ms(moment);
        let comings = arrivals::comings(&self.site, arrivals, accounts, watches, now, site_ms);
        self.queue.missing.retain(|number, _| comings.missing.contains(number));
        for &number in &comings.missing {
            self.queue.missing.entry(number).or_insert(now);
        }
        self.put_by(comings.bodies)?;
        for (name, why) in &comings.declined {
            if self.queue.declined.get(name) != Some(why) {
                tracing::info!(name, why, "work of the engine's queue was not taken in");
                self.engine.decline(name, why)?;
            }
        }
        self.queue.declined = comings.declined;
        for name in &comings.withdrawn {
            self.engine.withdraw(name)?;
        }
        Ok(())
    }

    /// Takes in runs that were over before anybody saw them: now and then, and before anything that is gone from the
    /// engine's queue is taken for cancelled or lost.
    pub(super) fn look_at_past(
        &mut self,
        arrivals: &[Arrival],
        vanished: &BTreeSet<u64>,
    ) -> Result<(), Failure> {
        let now = self.now_ms();
        self.queue.vanished.retain(|number, _| vanished.contains(number));
        for &number in vanished {
            self.queue.vanished.entry(number).or_insert(now);
        }
        let is_asked_for = self.queue.gone(now).any(|(_, since)| {
            // Not again and again while they do not answer.
            self.queue.past_read.is_none_or(|at| at < since + arrivals::MISSING_MS)
        });
        let is_due = now >= self.queue.past_due;
        // A new site that is to begin with what was before it decides nothing without that.
        let must = self.options.reads_past_first && self.queue.past_read.is_none();
        let failed_lately =
            !must && self.queue.past_failed.is_some_and(|at| now < at + past::AGAIN_MS);
        if failed_lately || !(is_due || is_asked_for) {
            return Ok(());
        }
        let since = Moment { unix_ms: self.site.created.unix_ms, boot_ms: None };
        let runs = match self.engine.past_runs(since) {
            Ok(runs) => runs,
            Err(error) => {
                if self.queue.past_failed.is_none() {
                    tracing::warn!(%error, "the engine's accounts do not answer: what ran unseen is charged later");
                }
                self.queue.past_failed = Some(now);
                if must {
                    return Err(error.into());
                }
                return Ok(());
            }
        };
        let known = past::Known {
            site: &self.site,
            arrivals,
            accounts: &self.options.account_budgets,
            vanished,
            now,
            clock: &self.clock,
        };
        let found = known.judge(&runs);
        self.put_by(found.bodies)?;
        for (shown, why) in found.left_out {
            if self.queue.left_out.insert(shown.clone()) {
                tracing::info!(shown, why, "a run that nobody saw is not charged");
            }
        }
        if found.complete {
            // What could not be kept is told again.
            let _ = self.engine.took_past_runs();
        }
        // Rows come late: what ended just before we came is looked for again soon.
        let is_first = self.queue.past_read.is_none();
        let next = if found.complete && !is_first { past::LOOK_EVERY_MS } else { past::AGAIN_MS };
        (self.queue.past_due, self.queue.past_failed) = (now + next, None);
        self.queue.past_read = Some(now);
        Ok(())
    }

    /// What is gone from the engine's queue, and of which its accounts tell nothing, was cancelled there while it waited,
    /// or is lost.
    pub(super) fn give_up_missing(&mut self) -> Result<(), Failure> {
        let now = self.now_ms();
        let read = self.queue.past_read;
        // What ran by the books waits for the accounts as long as they do not answer: what is said of its end stays so.
        let is_certain = |number: u64, since: u64| {
            let runs = self.queue.vanished.contains_key(&number);
            let waited = !runs && now >= since + PAST_PATIENCE_MS;
            waited || read.is_some_and(|at| at >= since + arrivals::MISSING_MS)
        };
        let gone: BTreeSet<u64> = self
            .queue
            .gone(now)
            .filter(|&(number, since)| is_certain(number, since))
            .map(|(number, _)| number)
            .collect();
        if gone.is_empty() {
            return Ok(());
        }
        let waits = |number: &&u64| {
            let work = self.site.work(**number);
            self.queue.missing.contains_key(number)
                && work.is_some_and(|work| {
                    !matches!(work.stage, Stage::Ended(_)) && !work.has_open_attempt()
                })
        };
        let cancelled =
            gone.iter().filter(waits).map(|&workload| (None, Body::Cancelled { workload }));
        let mut bodies: Vec<(Option<String>, Body)> = cancelled.collect();
        let vanished: BTreeSet<u64> = gone
            .iter()
            .copied()
            .filter(|number| self.queue.vanished.contains_key(number))
            .collect();
        let lost = lost_for_good(&self.site, &vanished, now, &self.clock);
        bodies.extend(lost.into_iter().map(|body| (None, body)));
        self.put_by(bodies)
    }
}
