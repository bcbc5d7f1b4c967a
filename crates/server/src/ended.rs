//! How attempts ended: over which span each is charged, and what follows from its end.

use crate::clock::Clock;
use bursar_engine::{Exited, Moment, Outcome as Seen, PastRun};
use bursar_site::record::Outcome;
use bursar_site::views::Wanted;
use bursar_site::work::ENDED_BY_SIGNAL;
use bursar_site::{Attempt, Body, Work};

/// How many attempts in a row may come to nothing before their workload has failed.
const IN_VAIN_MAX: usize = 5;

/// What was lost so soon after its start came to nothing, unless it saved.
const HARDLY_BEGUN_MS: u64 = 60_000;

/// From when to when an attempt ran, in milliseconds of the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// None if it certainly never ran.
    pub(crate) since: Option<u64>,
    pub(crate) until: u64,
}

/// How long one moment was after another: by the clock that nobody can set, if both have it.
fn between(from: Moment, to: Moment) -> u64 {
    let boot = from.boot_ms.zip(to.boot_ms).map(|(from, to)| to.saturating_sub(from));
    boot.unwrap_or_else(|| to.unix_ms.saturating_sub(from.unix_ms))
}

impl Span {
    /// Of an attempt that its engine saw end. What may have run counts as having run, from its decision on if
    /// nothing else is known. An engine that has a queue of its own keeps moments of its own, whatever became of this
    /// machine.
    pub(crate) fn of(
        attempt: &Attempt,
        exited: &Exited,
        has_queue: bool,
        now: u64,
        clock: &impl Clock,
    ) -> Self {
        let is_lost = matches!(exited.outcome, Seen::Lost { .. });
        let seen = exited.started_at.map(|moment| clock.site_ms(moment));
        let told = seen.or_else(|| is_lost.then_some(attempt.decided_ms));
        let told = told.map(|since| since.max(attempt.decided_ms).min(now));
        let since = attempt.started_ms.or(told);
        let until = match (exited.started_at, since) {
            // It ran when the site began, and is charged from then on: since when it ran tells nothing.
            (_, Some(0)) => clock.site_ms(exited.ended_at),
            (Some(moment), Some(since)) => since + between(moment, exited.ended_at),
            (_, since) => clock.site_ms(exited.ended_at).max(since.unwrap_or(0)),
        };
        if !is_lost || has_queue || exited.ended_at.boot_ms.is_some() {
            return Self { since, until };
        }
        // Lost with its machine: until the last that is known of it, by its supervisor or by a daemon that saw it
        // run, and never later than the machine was booted again.
        let alive = known_alive(attempt, clock).unwrap_or(0);
        let booted = clock.site_ms(Moment { unix_ms: 0, boot_ms: Some(0) });
        Self { since, until: until.max(alive).min(booted.max(alive)).max(since.unwrap_or(0)) }
    }

    /// Of an attempt that ran, and of which its engine knows nothing any more.
    pub(crate) fn of_vanished(attempt: &Attempt, now: u64, clock: &impl Clock) -> Self {
        Self { since: attempt.started_ms, until: known_alive(attempt, clock).unwrap_or(now) }
    }
}

/// The latest moment before this boot of the machine at which a daemon saw an attempt run.
fn known_alive(attempt: &Attempt, clock: &impl Clock) -> Option<u64> {
    let alive = clock.alive_before_boot_ms()?;
    attempt.started_ms.filter(|started| *started <= alive).map(|_| alive)
}

/// Whether an attempt that was lost had hardly begun: whatever ended it would end the next one, too.
fn came_to_nothing(span: Span, attempt: &Attempt) -> bool {
    let ran = span.since.map_or(0, |since| span.until.saturating_sub(since));
    attempt.checkpoint_ms.is_none() && ran < HARDLY_BEGUN_MS
}

/// How many of the latest attempts of a workload that have ended were lost and came to nothing.
fn in_vain(work: &Work) -> usize {
    let asked_for = work.attempts.iter().rev().take_while(|one| one.number > work.attempts_before);
    let ended = asked_for.filter_map(|one| Some((one, one.ended_ms?)));
    let in_vain = ended.take_while(|(one, until)| {
        let span = Span { since: one.started_ms, until: *until };
        one.outcome == Some(Outcome::Lost) && came_to_nothing(span, one)
    });
    in_vain.count()
}

/// What was lost waits again if it can; but what is lost again and again as soon as it begins is not to be tried
/// for ever.
fn lost_or_failed(work: &Work, attempt: &Attempt, span: Span, has_queue: bool) -> Outcome {
    // Where an engine has a queue of its own, others use its hosts, too: there may always be a reason that passes.
    let for_ever = !has_queue && came_to_nothing(span, attempt) && in_vain(work) >= IN_VAIN_MAX;
    if for_ever { Outcome::Failed } else { Outcome::Lost }
}

/// The record of an attempt that was lost.
pub(crate) fn lost(
    work: &Work,
    attempt: &Attempt,
    why: &str,
    (span, now): (Span, u64),
    has_queue: bool,
) -> Body {
    Body::Stopped {
        workload: work.number,
        attempt: attempt.number,
        outcome: lost_or_failed(work, attempt, span, has_queue),
        ended_ms: (span.until < now).then_some(span.until),
        exit_code: None,
        detail: Some(why.to_owned()),
        run: None,
    }
}

/// From when to when a run that is over was, in milliseconds of the site; what was before the site counts from its begin.
pub(crate) fn span_of(run: &PastRun, clock: &impl Clock) -> (u64, u64) {
    match clock.site_ms(run.started_at) {
        0 => (0, clock.site_ms(run.ended_at)),
        since => (since, since + between(run.started_at, run.ended_at)),
    }
}

/// How a run ended that nobody ordered to leave: the outcome, the exit code, and what more was said.
pub(crate) fn outcome_of(seen: &Seen) -> (Outcome, Option<i32>, Option<String>) {
    match seen {
        Seen::Exit { code: 0 } => (Outcome::Completed, Some(0), None),
        Seen::Exit { code } => (Outcome::Failed, Some(*code), None),
        Seen::Signal { number } => {
            (Outcome::Failed, None, Some(format!("{ENDED_BY_SIGNAL}{number}")))
        }
        Seen::StartFailed { reason } => {
            (Outcome::Failed, None, Some(format!("could not be started: {reason}")))
        }
        Seen::Cancelled { reason } => (Outcome::Cancelled, None, Some(reason.clone())),
        Seen::Lost { reason } | Seen::NotStarted { reason } => {
            (Outcome::Lost, None, Some(reason.clone()))
        }
    }
}

/// The record of an attempt that its engine saw end.
pub(crate) fn stopped(
    work: &Work,
    attempt: &Attempt,
    wanted: &Wanted,
    (exited, span, now): (&Exited, Span, u64),
    has_queue: bool,
) -> Body {
    let requeued = work.requeue_by_ms.is_some();
    let left = (attempt.eviction.is_some() || requeued) && exited.was_told_to_leave;
    let (exit_code, detail) = match &exited.outcome {
        Seen::Exit { code } => (Some(*code), None),
        Seen::Signal { number } => (None, Some(format!("{ENDED_BY_SIGNAL}{number}"))),
        Seen::StartFailed { reason } => (None, Some(format!("could not be started: {reason}"))),
        Seen::NotStarted { reason } | Seen::Cancelled { reason } | Seen::Lost { reason } => {
            (None, Some(reason.clone()))
        }
    };
    let (outcome, detail) = match (&exited.outcome, wanted) {
        (_, Wanted::Stop { reason: "cancelled" }) | (Seen::Cancelled { .. }, _) => {
            (Outcome::Cancelled, detail)
        }
        (Seen::Lost { .. } | Seen::NotStarted { .. }, _) => {
            (lost_or_failed(work, attempt, span, has_queue), detail)
        }
        (Seen::StartFailed { .. }, _) => (Outcome::Failed, detail),
        (_, Wanted::Stop { .. }) => {
            let max = work.declared.max_runtime_ms.map(bursar_site::declare::span_text);
            let max = max.unwrap_or_default();
            (Outcome::Failed, Some(format!("it was stopped at its max_runtime of {max}")))
        }
        // Work that was told to leave and ends has left, whatever it says at the end: if it had finished,
        // it finds so when it resumes.
        (Seen::Exit { .. } | Seen::Signal { .. }, _) if left => {
            (Outcome::Left, detail.or_else(|| requeued.then(|| "requeued".into())))
        }
        (Seen::Exit { code: 0 }, _) => (Outcome::Completed, detail),
        (Seen::Exit { .. } | Seen::Signal { .. }, _) => (Outcome::Failed, detail),
    };
    let ended_ms = (span.until < now).then_some(span.until);
    let (workload, attempt) = (work.number, attempt.number);
    Body::Stopped { workload, attempt, outcome, ended_ms, exit_code, detail, run: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that was booted before the site was created.
    struct Booted;

    impl Clock for Booted {
        fn now_ms(&self) -> u64 {
            100_000
        }

        fn unix_ms(&self, site_ms: u64) -> u64 {
            site_ms
        }

        fn site_ms(&self, moment: Moment) -> u64 {
            moment.boot_ms.unwrap_or(moment.unix_ms)
        }
    }

    #[test]
    fn what_another_machine_lost_is_charged_until_then() {
        let attempt: Attempt = serde_json::from_value(serde_json::json!({
            "number": 1, "allocated": true, "decided_ms": 10_000, "placement": [["n1", [0]]], "rule": 8, "reason": "",
            "started_ms": 11_000, "protected_until_ms": null, "ended_ms": null, "outcome": null, "exit_code": null,
            "detail": null, "eviction": null, "checkpoint_ms": null, "charged_gpu_ms": 0, "lost_gpu_ms": 0,
        }))
        .expect("an attempt");
        let moment = |unix_ms| Moment { unix_ms, boot_ms: None };
        let exited = Exited {
            started_at: Some(moment(11_000)),
            ended_at: moment(47_000),
            outcome: Seen::Lost { reason: "its node failed".into() },
            was_told_to_leave: false,
        };
        let span = Span::of(&attempt, &exited, true, 100_000, &Booted);
        assert_eq!(span, Span { since: Some(11_000), until: 47_000 });
        // What ran before the site began is charged to its end, not for as long as it ran in all.
        let early = Attempt { decided_ms: 0, started_ms: Some(0), ..attempt.clone() };
        let exited_early =
            Exited { started_at: Some(Moment { unix_ms: 0, boot_ms: None }), ..exited.clone() };
        let span = Span::of(&early, &exited_early, true, 100_000, &Booted);
        assert_eq!(span, Span { since: Some(0), until: 47_000 });
        // With this machine: nothing ran before it was booted that is seen after it.
        let span = Span::of(&attempt, &exited, false, 100_000, &Booted);
        assert_eq!(span, Span { since: Some(11_000), until: 11_000 });
    }
}
