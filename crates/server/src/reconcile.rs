//! What is, compared with what should be.

use crate::clock::Clock;
use crate::daemon::StartOptions;
use crate::ended::{Span, lost, stopped};
use bursar_engine::{AttemptKey, AttemptState, HostGpus, Observation, Signal, StartOrder};
use bursar_site::record::Outcome;
use bursar_site::views::Wanted;
use bursar_site::{Attempt, Body, Site, Stage, Work};
use std::collections::{BTreeMap, BTreeSet};

/// An engine with a queue of its own may know whole seconds alone, in milliseconds.
const A_SECOND: u64 = 1000;

/// What the engine was seen to have done that the site does not know.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) bodies: Vec<Body>,
    /// Attempts that have ended and are known to have: the engine may forget them.
    pub(crate) forget: Vec<AttemptKey>,
    /// Workloads that run by our books, and of which an engine with a queue of its own says nothing: its accounts may.
    pub(crate) vanished: BTreeSet<u64>,
    /// When there is more news of what was seen now.
    pub(crate) more_at: Option<u64>,
}

pub(crate) fn key_of(work: &Work, attempt: &Attempt) -> Option<AttemptKey> {
    AttemptKey::new(work.number.to_string(), attempt.number).ok()
}

fn by_key(seen: &[Observation]) -> BTreeMap<&AttemptKey, &Observation> {
    seen.iter().map(|one| (&one.key, one)).collect()
}

/// The records that follow from what the engine is seen to have, at the site's moment `now`; `runs` if it has a queue
/// of its own: the workloads that run there without an order of ours. Starts and ends are charged as the engine saw
/// them, however late that is heard of.
pub(crate) fn differences(
    site: &Site,
    seen: &[Observation],
    runs: Option<&BTreeSet<u64>>,
    now: u64,
    clock: &impl Clock,
) -> News {
    let seen = by_key(seen);
    let mut news = News::default();
    for (work, attempt, wanted) in site.wanted() {
        let (workload, number) = (work.number, attempt.number);
        let Some(key) = key_of(work, attempt) else { continue };
        let started = |since: u64| Body::Started {
            workload,
            attempt: number,
            since_ms: (since < now).then_some(since),
        };
        match seen.get(&key).map(|one| &one.state) {
            Some(AttemptState::Running { started_at, .. }) if attempt.started_ms.is_none() => {
                let since = clock.site_ms(*started_at).max(attempt.decided_ms).min(now);
                news.bodies.push(started(since));
            }
            Some(AttemptState::Starting | AttemptState::Running { .. }) => {}
            Some(AttemptState::Exited(exited)) => {
                let has_queue = runs.is_some();
                let span = Span::of(attempt, exited, has_queue, now, clock);
                if let Some(since) = span.since.filter(|_| attempt.started_ms.is_none()) {
                    news.bodies.push(started(since));
                }
                // Its seconds are whole, and counted from the decision if they began before it: so the last of them may
                // not be over. It is charged, too.
                if has_queue && (now + 1..now + A_SECOND).contains(&span.until) {
                    news.more_at = Some(news.more_at.map_or(span.until, |at| at.min(span.until)));
                    continue;
                }
                let end = (exited, span, now);
                news.bodies.push(stopped(work, attempt, &wanted, end, has_queue));
            }
            // It runs, and is to be claimed: somebody else started it.
            None if attempt.started_ms.is_some()
                && runs.is_some_and(|runs| runs.contains(&workload)) => {}
            None if attempt.started_ms.is_some() && runs.is_some() => {
                news.vanished.insert(workload);
            }
            None if attempt.started_ms.is_some() => {
                let span = Span::of_vanished(attempt, now, clock);
                let why = "the engine knows nothing of it any more";
                news.bodies.push(lost(work, attempt, why, (span, now), false));
            }
            // Cancelled before the engine heard of it.
            None if matches!(wanted, Wanted::Stop { .. }) => news.bodies.push(Body::Stopped {
                workload,
                attempt: number,
                outcome: Outcome::Cancelled,
                ended_ms: None,
                exit_code: None,
                detail: None,
                run: None,
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

/// The ends of attempts of which neither the engine nor its accounts know anything.
pub(crate) fn lost_for_good(
    site: &Site,
    vanished: &BTreeSet<u64>,
    now: u64,
    clock: &impl Clock,
) -> Vec<Body> {
    let works = vanished.iter().filter_map(|&number| site.work(number));
    let open = works.filter_map(|work| Some((work, work.latest()?)));
    open.filter(|(_, attempt)| attempt.started_ms.is_some() && attempt.ended_ms.is_none())
        .map(|(work, attempt)| {
            let span = Span::of_vanished(attempt, now, clock);
            let why = "the engine knows nothing of it any more";
            lost(work, attempt, why, (span, now), true)
        })
        .collect()
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
        user: options.accounts.as_user.then(|| declared.user.clone()),
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
