//! Terms: hard limits that hold for a time, as owners write them, as they are laid out, and how they stand.
//!
//! The site is told moments, not calendars: what a calendar made of `each: month` is in the journal with the change
//! that wanted it, for some months ahead, and more of it follows in time (docs/adr/0013).

use crate::budgets::{BudgetDoc, Budgets, join};
use crate::error::Refused;
use crate::plain::printable;
use crate::record::{Body, Created, TermSpan};
use crate::site::Site;
use bursar_core::{BudgetIx, Event, TimeMs};
pub use bursar_trace::time_zone;
use bursar_trace::{Each, Recurrence, parse_moment};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A hard limit that holds for a time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TermDoc {
    /// How often it is renewed: each day, week (from Monday), month or quarter of the site's time zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each: Option<Every>,
    /// Its first day or moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-11-01")]
    pub from: Option<String>,
    /// The first day or moment that is not of it any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-12-24")]
    pub until: Option<String>,
    /// GPU-hours at rate 1, to the thousandth.
    #[schema(minimum = 0, maximum = 1_000_000_000_000u64)]
    pub limit: f64,
    /// Whether what the one before left unspent is added to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub carry_over: bool,
}

/// How often a term is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Every {
    /// Each day.
    Day,
    /// Each week, from Monday on.
    Week,
    /// Each month.
    Month,
    /// Each quarter of a year.
    Quarter,
}

impl Every {
    /// As it is written.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.each().word()
    }

    const fn each(self) -> Each {
        match self {
            Self::Day => Each::Day,
            Self::Week => Each::Week,
            Self::Month => Each::Month,
            Self::Quarter => Each::Quarter,
        }
    }
}

impl std::fmt::Display for TermDoc {
    /// `500 GPU-hours each month`, as `budget diff` shows it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} GPU-hours", self.limit)?;
        if let Some(each) = self.each {
            write!(f, " each {}", each.word())?;
        }
        if let Some(from) = &self.from {
            write!(f, " from {from}")?;
        }
        if let Some(until) = &self.until {
            write!(f, " until {until}")?;
        }
        if self.carry_over { write!(f, ", carried over") } else { Ok(()) }
    }
}

/// How many terms a budget may have.
const TERMS_MAX: usize = 16;
/// For how long terms are laid out.
const LAID_OUT: SignedDuration = SignedDuration::from_hours(400 * 24);
/// How long before that ends more are laid out, in milliseconds.
const LAY_AHEAD_MS: u64 = 60 * 86_400_000;

/// Whether the terms of a budget can be laid out, and if not why.
pub(crate) fn check(path: &str, terms: &[TermDoc]) -> Result<(), Refused> {
    let wrong = |what: String| Err(Refused::invalid(format!("budget '{path}': terms: {what}")));
    if terms.len() > TERMS_MAX {
        return wrong(format!("{} are more than {TERMS_MAX}", terms.len()));
    }
    for term in terms {
        if !(0.0..=1e12).contains(&term.limit) {
            return wrong(format!(
                "limit: {} is not a number of GPU-hours from 0 to 1e12",
                term.limit
            ));
        }
        if term.each.is_none() && term.from.is_none() && term.until.is_none() {
            return wrong(
                "a term needs each, from or until; one that always holds is 'limit'".into(),
            );
        }
        if term.carry_over && term.each.is_none() {
            return wrong("carry_over needs each: no other term follows this one".into());
        }
        match recurrence(term, &TimeZone::UTC) {
            Ok(Recurrence { from: Some(from), until: Some(until), .. }) if from >= until => {
                return wrong(format!(
                    "until: '{}' is not after from; it is the first moment that is not of it",
                    printable(term.until.as_deref().unwrap_or_default())
                ));
            }
            Ok(_) => {}
            Err(message) => return wrong(message),
        }
    }
    Ok(())
}

fn recurrence(term: &TermDoc, zone: &TimeZone) -> Result<Recurrence, String> {
    let moment = |key: &str, text: &Option<String>| {
        let parsed = text.as_deref().map(|text| parse_moment(text, zone)).transpose();
        parsed.map_err(|message| format!("{key}: {message}"))
    };
    Ok(Recurrence {
        each: term.each.map(Every::each),
        from: moment("from", &term.from)?,
        until: moment("until", &term.until)?,
    })
}

/// What a calendar makes of the terms of a tree from a moment on, and until when.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LaidOut {
    /// The terms.
    pub terms: Vec<TermSpan>,
    /// Until when, in milliseconds since the site was created; none if there is nothing to lay out.
    pub until_ms: Option<u64>,
}

/// Lays out the terms of a tree from `now_ms` on. What was moved between those that are known stays moved.
#[must_use]
pub fn lay_out(
    created: &Created,
    tree: &BTreeMap<String, BudgetDoc>,
    now_ms: u64,
    known: &[TermSpan],
) -> LaidOut {
    let zone = created.settings.time_zone.as_deref();
    let zone = zone.and_then(|name| bursar_trace::time_zone(name).ok()).unwrap_or(TimeZone::UTC);
    let ms = i64::try_from(created.unix_ms).unwrap_or(i64::MAX);
    let begin = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX);
    let now = SignedDuration::from_millis(i64::try_from(now_ms).unwrap_or(i64::MAX));
    let now = begin.checked_add(now).unwrap_or(Timestamp::MAX);
    let end = now.checked_add(LAID_OUT).unwrap_or(Timestamp::MAX);
    let since = |at: Timestamp| {
        u64::try_from(at.as_millisecond().saturating_sub(begin.as_millisecond())).unwrap_or(0)
    };
    let mut laid = LaidOut::default();
    let mut paths = Vec::new();
    gather(tree, "", &mut paths);
    for (path, doc) in paths {
        for (series, term) in (0u32..).zip(&doc.terms) {
            let Ok(when) = recurrence(term, &zone) else { continue };
            laid.until_ms = Some(since(end));
            for (from, until) in when.spans(&zone, now, end) {
                let mut span = TermSpan {
                    budget: path.clone(),
                    series,
                    from_ms: since(from),
                    until_ms: (until < Timestamp::MAX).then(|| since(until)),
                    limit_milli: (term.limit * 1_000.0).round() as u64,
                    moved_milli: 0,
                    carry_over: term.carry_over,
                };
                if let Some(before) = known.iter().find(|other| other.is_same(&span)) {
                    span.moved_milli = before.moved_milli;
                }
                laid.terms.push(span);
            }
        }
    }
    laid
}

fn gather<'a>(
    tree: &'a BTreeMap<String, BudgetDoc>,
    above: &str,
    paths: &mut Vec<(String, &'a BudgetDoc)>,
) {
    for (name, doc) in tree {
        let path = join(above, name);
        paths.push((path.clone(), doc));
        gather(&doc.children, &path, paths);
    }
}

impl TermSpan {
    fn is_same(&self, other: &Self) -> bool {
        (&self.budget, self.series, self.from_ms, self.until_ms)
            == (&other.budget, other.series, other.from_ms, other.until_ms)
    }

    /// Whether a moment is of it.
    #[must_use]
    pub fn has(&self, at_ms: u64) -> bool {
        self.from_ms <= at_ms && self.until_ms.is_none_or(|until| at_ms < until)
    }
}

/// A term of a budget that holds now, and how it stands.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct TermView {
    /// What was written: `500 GPU-hours each month`.
    pub text: String,
    /// Its first moment, in milliseconds since 1970; when the site was created, if it began before.
    pub from_unix_ms: u64,
    /// The first moment that is not of it any more; none if it does not end.
    pub until_unix_ms: Option<u64>,
    /// The limit, with what was carried into it and moved.
    pub limit_gpu_hours: f64,
    /// What the one before left.
    pub carried_gpu_hours: f64,
    /// What was transferred to it, or, below 0, away from it.
    pub moved_gpu_hours: f64,
    /// What was charged in it.
    pub charged_gpu_hours: f64,
    /// What contracts of what runs still protect.
    pub committed_gpu_hours: f64,
    /// What is left for contracts; 0 if more was charged than the limit is.
    pub left_gpu_hours: f64,
    /// What was charged beyond the limit.
    pub overdrawn_gpu_hours: f64,
    /// When it is exhausted, if as much goes on to be charged as on average within the lookback; none if it ends
    /// before.
    pub exhausted_unix_ms: Option<u64>,
}

impl Site {
    /// Puts terms that were laid out in place of those that are known.
    pub(crate) fn take_terms(&mut self, terms: &[TermSpan], until_ms: Option<u64>) {
        self.terms = terms.to_vec();
        self.terms_until_ms = until_ms;
    }

    /// The nodes for the core, with terms: those that began before now count what was charged in them.
    pub(crate) fn nodes_with(&self, budgets: &Budgets, at: TimeMs) -> Vec<bursar_core::BudgetNode> {
        let before = |span: &TermSpan| {
            if span.from_ms >= at.0 {
                0
            } else {
                self.charged_units(&span.budget, span.from_ms, at.0)
            }
        };
        budgets.nodes(self.units_per_gpu_hour(), &self.terms, before)
    }

    /// What one GPU-hour at rate 1 is in units of the ledger.
    pub(crate) fn units_per_gpu_hour(&self) -> u128 {
        3_600_000 * 1_000 / u128::from(self.rate_step)
    }

    /// What a budget and those below it were charged from a moment to another, at which nothing more is known, in units:
    /// summed over attempts.
    fn charged_units(&self, path: &str, from_ms: u64, to_ms: u64) -> u128 {
        let is_below = |budget: &str| {
            budget.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let works = self.works.values().filter(|work| is_below(&work.declared.budget));
        let attempts = works.flat_map(|work| &work.attempts).filter(|one| one.allocated);
        attempts
            .filter_map(|attempt| {
                let from = attempt.started_ms?.max(from_ms);
                let span = attempt.ended_ms.unwrap_or(to_ms).checked_sub(from)?;
                let gpus: usize = attempt.placement.iter().map(|(_, gpus)| gpus.len()).sum();
                let host = self.host_index(&attempt.placement.first()?.0)?;
                let rate =
                    crate::site::rate_of(&self.created, &self.created.hosts[host.at()].model);
                Some(gpus as u128 * u128::from(rate / self.rate_step) * u128::from(span))
            })
            .sum()
    }

    /// Whether any GPU-hours went from a term to another of those that are laid out.
    #[must_use]
    pub fn has_transfers(&self) -> bool {
        self.terms.iter().any(|span| span.moved_milli != 0)
    }

    /// More terms, if those that were laid out end soon.
    #[must_use]
    pub fn due_terms(&self, now_ms: u64) -> Option<Body> {
        let until = self.terms_until_ms?;
        if now_ms.saturating_add(LAY_AHEAD_MS) < until {
            return None;
        }
        let laid = lay_out(&self.created, &self.budgets.tree, now_ms, &self.terms);
        Some(Body::TermsLaidOut { terms: laid.terms, until_ms: laid.until_ms })
    }

    pub(crate) fn fold_terms(
        &mut self,
        at: TimeMs,
        terms: &[TermSpan],
        until_ms: Option<u64>,
    ) -> Result<(), String> {
        self.take_terms(terms, until_ms);
        let nodes = self.nodes_with(&self.budgets, at);
        self.event(at, Event::TreeChanged(nodes))
    }

    /// GPU-hours of a term go to the same term of a sibling.
    ///
    /// # Errors
    /// If they are no siblings of which `user` owns both, have no such term now, or there is not so much left.
    pub fn transfer(
        &self,
        user: &str,
        from: &str,
        to: &str,
        gpu_hours: f64,
        each: Option<Every>,
        reason: &str,
    ) -> Result<Body, Refused> {
        crate::requests::check_reason(reason)?;
        let parent = |path: &str| path.rsplit_once('/').map(|(above, _)| above.to_owned());
        for path in [from, to] {
            if self.budgets.get(path).is_none() || !self.budgets.is_owner(user, path) {
                return Err(Refused::forbidden(format!(
                    "there is no budget '{}' that you own; a transfer needs an owner of both",
                    printable(path)
                )));
            }
        }
        if from == to || parent(from) != parent(to) {
            return Err(Refused::invalid(format!(
                "to: '{to}' is no sibling of '{from}'; transfers are between budgets below the same one"
            )));
        }
        let milli = (gpu_hours * 1_000.0).round();
        if !(1.0..=1e15).contains(&milli) {
            return Err(Refused::invalid(format!(
                "gpu_hours: {gpu_hours} is not between 0.001 and 1e12"
            )));
        }
        let milli = milli as u64;
        let pairs: Vec<(&TermSpan, &TermSpan)> = self
            .terms_now(from)
            .filter(|one| each.is_none() || self.doc_of(one).and_then(|doc| doc.each) == each)
            .filter_map(|one| {
                let same = |other: &&TermSpan| {
                    (other.from_ms, other.until_ms) == (one.from_ms, one.until_ms)
                };
                Some((one, self.terms_now(to).find(same)?))
            })
            .collect();
        let (giver, taker) = match pairs[..] {
            [pair] => pair,
            [] => {
                return Err(Refused::invalid(format!(
                    "'{from}' and '{to}' have no term now that begins and ends at the same moments"
                )));
            }
            _ => {
                return Err(Refused::invalid(
                    "each: they share several terms now; name one: day, week, month or quarter",
                ));
            }
        };
        let left = self.left_units(giver) * 1_000 / self.units_per_gpu_hour();
        if u128::from(milli) > left {
            return Err(Refused::conflict(format!(
                "'{from}' has {} GPU-hours left in this term; give at most that",
                left as f64 / 1_000.0
            )));
        }
        Ok(Body::Transferred {
            from: from.to_owned(),
            from_series: giver.series,
            to: to.to_owned(),
            to_series: taker.series,
            term_from_ms: giver.from_ms,
            milli_gpu_hours: milli,
            reason: reason.to_owned(),
        })
    }

    pub(crate) fn fold_transfer(
        &mut self,
        at: TimeMs,
        (from, from_series): (&str, u32),
        (to, to_series): (&str, u32),
        term_from_ms: u64,
        milli: u64,
    ) -> Result<(), String> {
        let milli = i64::try_from(milli).map_err(|_| "more than there is")?;
        for (path, series, change) in [(from, from_series, -milli), (to, to_series, milli)] {
            let is_it = |span: &&mut TermSpan| {
                span.budget == path && span.series == series && span.from_ms == term_from_ms
            };
            let span = self.terms.iter_mut().find(is_it);
            span.ok_or_else(|| format!("'{path}' has no such term"))?.moved_milli += change;
        }
        let nodes = self.nodes_with(&self.budgets, at);
        self.event(at, Event::TreeChanged(nodes))
    }

    fn terms_now<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a TermSpan> {
        let now = self.now_ms();
        self.terms.iter().filter(move |span| span.budget == path && span.has(now))
    }

    fn doc_of(&self, span: &TermSpan) -> Option<&TermDoc> {
        self.budgets.get(&span.budget)?.terms.get(span.series as usize)
    }

    /// The term of the core that a span is.
    fn open_of(&self, span: &TermSpan) -> Option<(BudgetIx, &bursar_core::OpenTerm)> {
        let node = self.budgets.index(&span.budget)?;
        let state = self.scheduler.state();
        let is_it = |open: &&bursar_core::OpenTerm| {
            (open.term.series, open.term.from.0) == (span.series, span.from_ms)
        };
        Some((node, state.ledger.terms(node).iter().find(is_it)?))
    }

    /// What a term has left for contracts, in units.
    fn left_units(&self, span: &TermSpan) -> u128 {
        let Some((node, open)) = self.open_of(span) else { return 0 };
        let (state, now) = (self.scheduler.state(), self.scheduler.state().now());
        let total = state.ledger.account(node).charged.total(now);
        let taken = open.charged(total) + state.ledger.committed_units(node, now);
        open.units().saturating_sub(taken)
    }

    /// The terms of a budget that hold now.
    #[must_use]
    pub fn term_views(&self, path: &str) -> Vec<TermView> {
        let (state, now) = (self.scheduler.state(), self.scheduler.state().now());
        let unit = self.units_per_gpu_hour() as f64;
        let hours = |units: u128| units as f64 / unit;
        let unix = |ms: u64| self.created.unix_ms + ms;
        self.terms_now(path)
            .filter_map(|span| {
                let (node, open) = self.open_of(span)?;
                let account = state.ledger.account(node);
                let charged = open.charged(account.charged.total(now));
                let left = self.left_units(span);
                let lookback = state.ledger.lookback().0.min(now.0).max(1);
                let recent = account.charged.sum(now);
                let lasts_ms = (left * u128::from(lookback)).checked_div(recent);
                let exhausted = lasts_ms
                    .and_then(|ms| u64::try_from(ms).ok())
                    .map(|ms| now.0.saturating_add(ms))
                    .filter(|&at| span.has(at));
                Some(TermView {
                    text: self.doc_of(span).map(ToString::to_string).unwrap_or_default(),
                    from_unix_ms: unix(span.from_ms),
                    until_unix_ms: span.until_ms.map(unix),
                    limit_gpu_hours: hours(open.units()),
                    carried_gpu_hours: hours(open.carried),
                    moved_gpu_hours: span.moved_milli as f64 / 1_000.0,
                    charged_gpu_hours: hours(charged),
                    committed_gpu_hours: hours(state.ledger.committed_units(node, now)),
                    left_gpu_hours: hours(left),
                    overdrawn_gpu_hours: hours(charged.saturating_sub(open.units())),
                    exhausted_unix_ms: exhausted.map(unix),
                })
            })
            .collect()
    }
}
