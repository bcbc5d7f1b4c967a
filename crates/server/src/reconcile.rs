//! What is, compared with what should be.

use crate::daemon::StartOptions;
use bursar_engine::{
    AttemptKey, AttemptState, Exited, HostGpus, Moment, Observation, Outcome as Seen, Signal,
    StartOrder,
};
use bursar_site::record::Outcome;
use bursar_site::views::Wanted;
use bursar_site::work::ENDED_BY_SIGNAL;
use bursar_site::{Attempt, Body, Site, Stage, Work};
use std::collections::{BTreeMap, BTreeSet};

/// What the engine was seen to have done that the site does not know.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) bodies: Vec<Body>,
    /// Attempts that have ended and are known to have: the engine may forget them.
    pub(crate) forget: Vec<AttemptKey>,
}

fn key_of(work: &Work, attempt: &Attempt) -> Option<AttemptKey> {
    AttemptKey::new(work.number.to_string(), attempt.number).ok()
}

fn by_key(seen: &[Observation]) -> BTreeMap<&AttemptKey, &Observation> {
    seen.iter().map(|one| (&one.key, one)).collect()
}

/// How long one moment was after another: by the clock that nobody can set, if both have it.
fn between(from: Moment, to: Moment) -> u64 {
    let boot = from.boot_ms.zip(to.boot_ms).map(|(from, to)| to.saturating_sub(from));
    boot.unwrap_or_else(|| to.unix_ms.saturating_sub(from.unix_ms))
}

/// The records that follow from what the engine is seen to have, at the site's moment `now`; `runs` if it has a queue
/// of its own: the workloads that run there without an order of ours. Starts and ends are
/// charged as the engine saw them, however late that is heard of.
pub(crate) fn differences(
    site: &Site,
    seen: &[Observation],
    runs: Option<&BTreeSet<u64>>,
    now: u64,
    site_ms: impl Fn(Moment) -> u64,
) -> News {
    let seen = by_key(seen);
    let mut news = News::default();
    for (work, attempt, wanted) in site.wanted() {
        let (workload, number) = (work.number, attempt.number);
        let Some(key) = key_of(work, attempt) else { continue };
        let since = |moment| site_ms(moment).max(attempt.decided_ms).min(now);
        let started = |since: u64| Body::Started {
            workload,
            attempt: number,
            since_ms: (since < now).then_some(since),
        };
        match seen.get(&key).map(|one| &one.state) {
            Some(AttemptState::Running { started_at, .. }) if attempt.started_ms.is_none() => {
                news.bodies.push(started(since(*started_at)));
            }
            Some(AttemptState::Starting | AttemptState::Running { .. }) => {}
            Some(AttemptState::Exited(exited)) => {
                let ran_from = exited.started_at.map(|moment| {
                    let since = attempt.started_ms.unwrap_or_else(|| since(moment));
                    (moment, since)
                });
                if let Some((_, since)) = ran_from.filter(|_| attempt.started_ms.is_none()) {
                    news.bodies.push(started(since));
                }
                let ended = match ran_from {
                    Some((moment, since)) => since + between(moment, exited.ended_at),
                    None => site_ms(exited.ended_at),
                };
                let ended = (ended < now).then_some(ended);
                let tries_max = if runs.is_some() { usize::MAX } else { NOT_STARTED_MAX };
                news.bodies.push(stopped(work, attempt, &wanted, exited, ended, tries_max));
            }
            // It runs, and is to be claimed: somebody else started it.
            None if attempt.started_ms.is_some()
                && runs.is_some_and(|runs| runs.contains(&workload)) => {}
            None if attempt.started_ms.is_some() => news.bodies.push(Body::Stopped {
                workload,
                attempt: number,
                outcome: Outcome::Lost,
                ended_ms: None,
                exit_code: None,
                detail: Some("the engine knows nothing of it any more".into()),
            }),
            // Cancelled before the engine heard of it.
            None if matches!(wanted, Wanted::Stop { .. }) => news.bodies.push(Body::Stopped {
                workload,
                attempt: number,
                outcome: Outcome::Cancelled,
                ended_ms: None,
                exit_code: None,
                detail: None,
            }),
            None => {}
        }
    }
    for (key, one) in seen {
        if one.state.exited().is_some() && is_over(site, key) {
            news.forget.push(key.clone());
        }
    }
    news
}

/// Whether the site knows that an attempt has ended.
fn is_over(site: &Site, key: &AttemptKey) -> bool {
    let work = key.workload().parse().ok().and_then(|number| site.work(number));
    let Some(work) = work else { return true };
    match work.attempts.iter().find(|attempt| attempt.number == key.attempt()) {
        Some(attempt) => attempt.ended_ms.is_some(),
        None => true,
    }
}

/// How many attempts in a row may never have started before their workload has failed. Where an engine has a queue of
/// its own, others use the hosts, too, and there may always be a reason that passes.
const NOT_STARTED_MAX: usize = 5;

/// How many attempts of a workload that have ended lately never ran.
fn never_ran(work: &Work) -> usize {
    let ended = work.attempts.iter().rev().filter(|one| one.ended_ms.is_some());
    ended.take_while(|one| one.started_ms.is_none()).count()
}

fn stopped(
    work: &Work,
    attempt: &Attempt,
    wanted: &Wanted,
    exited: &Exited,
    ended_ms: Option<u64>,
    tries_max: usize,
) -> Body {
    let requeued = work.requeue_by_ms.is_some();
    let left = (attempt.eviction.is_some() || requeued) && exited.was_told_to_leave;
    let (exit_code, detail) = match &exited.outcome {
        Seen::Exit { code } => (Some(*code), None),
        Seen::Signal { number } => (None, Some(format!("{ENDED_BY_SIGNAL}{number}"))),
        Seen::StartFailed { reason } => (None, Some(format!("could not be started: {reason}"))),
        Seen::NotStarted { reason } | Seen::Lost { reason } => (None, Some(reason.clone())),
    };
    let (outcome, detail) = match (&exited.outcome, wanted) {
        (_, Wanted::Stop { reason: "cancelled" }) => (Outcome::Cancelled, detail),
        (Seen::Lost { .. }, _) => (Outcome::Lost, detail),
        (Seen::StartFailed { .. }, _) => (Outcome::Failed, detail),
        // It waits again; but what is never to be started must not be tried for ever.
        (Seen::NotStarted { .. }, _) if never_ran(work) < tries_max => (Outcome::Lost, detail),
        (Seen::NotStarted { .. }, _) => (Outcome::Failed, detail),
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
    let (workload, attempt) = (work.number, attempt.number);
    Body::Stopped { workload, attempt, outcome, ended_ms, exit_code, detail }
}

/// What is to be ordered now.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    pub(crate) start: Vec<StartOrder>,
    pub(crate) signal: Vec<(AttemptKey, Signal)>,
    pub(crate) stop: Vec<AttemptKey>,
}

impl Orders {
    pub(crate) fn of(
        site: &Site,
        seen: &[Observation],
        runs: &BTreeSet<u64>,
        options: &StartOptions,
        unix_ms: impl Fn(u64) -> u64,
    ) -> Self {
        let seen = by_key(seen);
        let mut orders = Self::default();
        let now = site.now_ms();
        for (work, attempt, wanted) in site.wanted() {
            let Some(key) = key_of(work, attempt) else { continue };
            let state = seen.get(&key).map(|one| &one.state);
            match wanted {
                Wanted::Run => match state {
                    None if attempt.started_ms.is_none() || runs.contains(&work.number) => {
                        orders.start.push(start_order(site, work, attempt, key, options, &unix_ms));
                    }
                    Some(AttemptState::Running { warned: false, .. })
                        if is_to_be_warned(site, attempt, now) =>
                    {
                        orders.signal.push((key, Signal::Warn));
                    }
                    _ => {}
                },
                Wanted::Leave { by_ms } if by_ms <= now => orders.stop.push(key),
                Wanted::Leave { .. } => orders.signal.push((key, Signal::Checkpoint)),
                Wanted::Stop { .. } => {
                    if state.is_some_and(|state| state.exited().is_none()) {
                        orders.stop.push(key);
                    }
                }
            }
        }
        // What runs and should not: started by a command that was late, after the site gave it up.
        for (key, one) in seen {
            if one.state.exited().is_none() && is_over(site, key) {
                orders.stop.push(key.clone());
            }
        }
        orders
    }
}

fn is_to_be_warned(site: &Site, attempt: &Attempt, now: u64) -> bool {
    let before = site.created.settings.warn_before_ms;
    let ends = attempt.protected_until_ms.filter(|_| attempt.allocated);
    ends.is_some_and(|ends| now >= ends.saturating_sub(before))
}

fn start_order(
    site: &Site,
    work: &Work,
    attempt: &Attempt,
    key: AttemptKey,
    options: &StartOptions,
    unix_ms: impl Fn(u64) -> u64,
) -> StartOrder {
    let declared = &work.declared;
    let contract = declared.max_runtime_ms.map_or(declared.min_runtime_ms, |max| {
        // Ended at its max_runtime, it is protected until then.
        declared.min_runtime_ms.min(max)
    });
    let protected = attempt.allocated.then(|| unix_ms(site.now_ms() + contract));
    debug_assert!(matches!(work.stage, Stage::Live(_)));
    let mut env = declared.env.clone();
    if let Some(element) = declared.element {
        env.insert("BURSAR_ARRAY".into(), element.array.to_string());
        env.insert("BURSAR_ARRAY_INDEX".into(), element.index.to_string());
    }
    if let Some(report) = &options.report_key {
        let token = report.token(key.workload(), key.attempt());
        env.insert(crate::report::TOKEN_VARIABLE.to_owned(), token);
    }
    StartOrder {
        key,
        command: declared.command.clone(),
        workdir: declared.workdir.as_ref().map(Into::into),
        env,
        user: options.as_user.then(|| declared.user.clone()),
        placement: attempt
            .placement
            .iter()
            .map(|(host, gpus)| HostGpus { host: host.clone(), gpus: gpus.clone() })
            .collect(),
        memory_bytes: declared.memory_bytes,
        cpus: declared.cpus,
        adopts: work.arrived.as_ref().map(|arrived| arrived.name.clone()),
        resumable: declared.resumable,
        resume: attempt.number > 1 && declared.resumable,
        checkpoint_dir: options.checkpoint_root.join(work.number.to_string()),
        protected_until_unix_ms: protected,
        log_bytes_max: options.log_bytes_max,
        log_files_max: options.log_files_max,
    }
}
