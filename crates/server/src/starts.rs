//! Starts that the engine does not take, or of which nothing is seen. One attempt's trouble is its own: it stops no
//! round, and it does not last for ever.

use crate::ended::{Span, lost};
use crate::reconcile::key_of;
use bursar_engine::{AttemptKey, Error, ErrorKind, Observation, StartOrder};
use bursar_site::record::Outcome;
use bursar_site::views::Wanted;
use bursar_site::{Attempt, Body, Site, Work};
use std::collections::{BTreeMap, BTreeSet};

/// How long a start is ordered again that could not be carried out, as when a disk is full, and how often at least: a
/// daemon may not have run for a while.
const TRY_FOR: (u64, u32) = (60_000, 5);

/// The same for an attempt that the engine took, and of which nothing is seen.
const UNSEEN_FOR: (u64, u32) = (600_000, 10);

#[derive(Clone, Debug)]
enum Trouble {
    /// It was taken, and is not seen yet.
    Unseen,
    /// It could not be carried out.
    Failed(String),
    /// It can never be carried out.
    Invalid(String),
}

/// What became of starts that were ordered and are not seen yet.
#[derive(Debug, Default)]
pub(crate) struct Starts {
    /// Since when, how often it was ordered, and what came of it the last time.
    known: BTreeMap<AttemptKey, (u64, u32, Trouble)>,
}

impl Starts {
    /// What was ordered in a round: all else is settled.
    pub(crate) fn ordered(&mut self, orders: &[StartOrder]) {
        if self.known.is_empty() && orders.is_empty() {
            return;
        }
        let keys: BTreeSet<&AttemptKey> = orders.iter().map(|order| &order.key).collect();
        self.known.retain(|key, _| keys.contains(key));
    }

    /// What became of one, at the site's moment `now`.
    pub(crate) fn note(&mut self, key: &AttemptKey, done: Result<(), Error>, now: u64) {
        let trouble = match done {
            Ok(()) => Trouble::Unseen,
            Err(error) if matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Unknown) => {
                Trouble::Invalid(error.to_string())
            }
            Err(error) => Trouble::Failed(error.to_string()),
        };
        let before = self.known.get(key);
        if let Trouble::Failed(text) | Trouble::Invalid(text) = &trouble
            && !matches!(before, Some((_, _, Trouble::Failed(same))) if same == text)
        {
            let shown = crate::plain::one_line(text);
            tracing::warn!(failure = shown, "an attempt could not be started");
        }
        let (since, tries) = before.map_or((now, 0), |(since, tries, _)| (*since, *tries));
        self.known.insert(key.clone(), (since, tries + 1, trouble));
    }

    /// The ends of those that are not to be ordered again.
    pub(crate) fn given_up(
        &self,
        site: &Site,
        seen: &[Observation],
        now: u64,
        has_queue: bool,
    ) -> Vec<Body> {
        if self.known.is_empty() {
            return Vec::new();
        }
        let end = |(work, attempt, wanted): (&Work, &Attempt, Wanted)| {
            let key = key_of(work, attempt)?;
            let (since, tries, trouble) = self.known.get(&key)?;
            if seen.iter().any(|one| one.key == key)
                || attempt.started_ms.is_some()
                || !matches!(wanted, Wanted::Run)
            {
                return None;
            }
            ends(work, attempt, trouble, (now.saturating_sub(*since), *tries), (now, has_queue))
        };
        site.wanted().filter_map(end).flatten().collect()
    }
}

fn ends(
    work: &Work,
    attempt: &Attempt,
    trouble: &Trouble,
    tried: (u64, u32),
    (now, has_queue): (u64, bool),
) -> Option<Vec<Body>> {
    let has = |(ms, times): (u64, u32)| tried.0 >= ms && tried.1 >= times;
    let never_ran = Span { since: None, until: now };
    match trouble {
        Trouble::Invalid(why) => Some(vec![Body::Stopped {
            workload: work.number,
            attempt: attempt.number,
            outcome: Outcome::Failed,
            ended_ms: None,
            exit_code: None,
            detail: Some(format!("could not be started: {why}")),
            run: None,
        }]),
        Trouble::Failed(why) if has(TRY_FOR) => {
            let why = format!("could not be started: {why}");
            Some(vec![lost(work, attempt, &why, (never_ran, now), has_queue)])
        }
        // The engine has taken it, perhaps long ago and in another history of the journal: it may have run.
        Trouble::Unseen if has(UNSEEN_FOR) => {
            let since = attempt.decided_ms;
            let started = Body::Started {
                workload: work.number,
                attempt: attempt.number,
                since_ms: (since < now).then_some(since),
            };
            let span = Span { since: Some(since), until: now };
            let why = "the engine took it, and nothing is seen of it";
            Some(vec![started, lost(work, attempt, why, (span, now), has_queue)])
        }
        Trouble::Unseen | Trouble::Failed(_) => None,
    }
}
