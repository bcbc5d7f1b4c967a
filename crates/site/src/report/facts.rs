//! What a report is computed from: a copy of the site's books, as far as they reach into the period.

use crate::changes::Change;
use crate::error::Refused;
use crate::record::{HostDoc, Outcome};
use crate::site::{Service, Site};
use crate::work::{Attempt, Spell, Work};
use std::collections::BTreeMap;

/// Where a period begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// At a moment, in milliseconds since 1970; before the site began, with the site.
    At(u64),
    /// So many milliseconds before its end.
    Last(u64),
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Where the period begins.
    pub begin: Begin,
    /// Where it ends, in milliseconds since 1970; now if that is later, or none is given.
    pub to_unix_ms: Option<u64>,
    /// The moment at which it is asked, in milliseconds since the site was created.
    pub now_ms: u64,
    /// The wall clock at the site's moment 0, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Who asks: they get what they may see.
    pub user: &'a str,
    /// One budget with all below it.
    pub budget: Option<&'a str>,
    /// Whether to give the lines of the ledger, too.
    pub attempts: bool,
}

/// The facts of a period.
#[derive(Clone, Debug)]
pub struct Facts {
    pub(super) site: String,
    /// The wall clock at moment 0.
    pub(super) unix_ms: u64,
    pub(super) from_ms: u64,
    pub(super) to_ms: u64,
    pub(super) budget: Option<String>,
    pub(super) attempts: bool,
    /// Whether the whole cluster is told of.
    pub(super) is_whole: bool,
    pub(super) hosts: Vec<HostDoc>,
    pub(super) rates_milli: BTreeMap<String, u64>,
    pub(super) service: Vec<Service>,
    pub(super) changes: Vec<Change>,
    pub(super) works: Vec<WorkFacts>,
    pub(super) scope: Scope,
    pub(super) notes: Vec<String>,
}

/// Which budgets are shown: those at or below one of these, and below what was asked for.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    /// All, the root too.
    all: bool,
    /// Paths of which the asker is a member.
    below: Vec<String>,
    asked: Option<String>,
}

impl Scope {
    pub(super) fn shows(&self, path: &str) -> bool {
        let asked = self.asked.as_deref().is_none_or(|asked| is_within(path, asked));
        asked && (self.all || self.below.iter().any(|above| is_within(path, above)))
    }
}

fn is_within(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A workload, as far as a report needs it.
#[derive(Clone, Debug)]
pub(super) struct WorkFacts {
    pub(super) number: u64,
    pub(super) name: String,
    pub(super) user: String,
    pub(super) budget: String,
    pub(super) gpus: u64,
    pub(super) hosts_asked: Option<u32>,
    pub(super) model: Option<String>,
    pub(super) min_runtime_ms: u64,
    pub(super) max_runtime_ms: Option<u64>,
    pub(super) spells: Vec<Spell>,
    pub(super) attempts: Vec<AttemptFacts>,
}

/// An attempt that ran.
#[derive(Clone, Debug)]
pub(super) struct AttemptFacts {
    pub(super) number: u32,
    pub(super) allocated: bool,
    pub(super) started_ms: u64,
    pub(super) ended_ms: Option<u64>,
    pub(super) protected_until_ms: u64,
    pub(super) placement: Vec<(String, u32)>,
    /// When it was told to leave, and by which rule.
    pub(super) evicted: Option<(u64, u8)>,
    pub(super) asked_to_requeue: bool,
    pub(super) outcome: Option<Outcome>,
    pub(super) lost_gpu_ms: u64,
}

impl AttemptFacts {
    /// None if it never ran.
    fn of(attempt: &Attempt) -> Option<Self> {
        let started_ms = attempt.started_ms?;
        Some(Self {
            number: attempt.number,
            allocated: attempt.allocated,
            started_ms,
            ended_ms: attempt.ended_ms,
            protected_until_ms: attempt.protected_until_ms.unwrap_or(started_ms),
            placement: attempt
                .placement
                .iter()
                .map(|(host, gpus)| (host.clone(), gpus.len() as u32))
                .collect(),
            evicted: attempt.eviction.as_ref().map(|eviction| (eviction.at_ms, eviction.rule)),
            asked_to_requeue: attempt.asked_to_requeue,
            outcome: attempt.outcome,
            lost_gpu_ms: attempt.lost_gpu_ms,
        })
    }

    pub(super) fn gpus(&self) -> u64 {
        self.placement.iter().map(|&(_, gpus)| u64::from(gpus)).sum()
    }
}

impl WorkFacts {
    fn of(work: &Work) -> Self {
        let one = &work.declared;
        Self {
            number: work.number,
            name: one.name.clone(),
            user: one.user.clone(),
            budget: one.budget.clone(),
            gpus: u64::from(one.gpus),
            hosts_asked: one.shape.map(|(hosts, _)| hosts),
            model: one.gpu_model.clone(),
            min_runtime_ms: one.min_runtime_ms,
            max_runtime_ms: one.max_runtime_ms,
            spells: work.spells.clone(),
            attempts: work.attempts.iter().filter_map(AttemptFacts::of).collect(),
        }
    }
}

impl Site {
    /// What a report is computed from.
    ///
    /// # Errors
    /// If the period is empty, or there is no such budget that the asker may see.
    pub fn facts(&self, asked: &Asked<'_>) -> Result<Facts, Refused> {
        let now_unix = asked.unix_ms + asked.now_ms;
        let to_unix = asked.to_unix_ms.unwrap_or(now_unix).min(now_unix);
        let from_unix = match asked.begin {
            Begin::At(from) => from,
            Begin::Last(span) => to_unix.saturating_sub(span),
        };
        let from_ms = from_unix.saturating_sub(asked.unix_ms);
        let to_ms = to_unix.saturating_sub(asked.unix_ms);
        if from_ms >= to_ms {
            return Err(Refused::invalid(
                "from: the period is empty; it must begin before it ends and before now, and end after the site began",
            ));
        }
        let mut notes = Vec::new();
        if from_unix < asked.unix_ms {
            notes.push("the site began within the period: nothing is known of before".to_owned());
        }
        if asked.to_unix_ms.is_some_and(|to| to > now_unix) {
            notes.push("the period is not over: the figures are those up to now".to_owned());
        }
        let user = asked.user;
        let all = self.budgets.is_root_owner(user);
        // Of budgets that are gone, too: who owns what was above them owned them.
        let known: Vec<&str> = self.changes.iter().flat_map(paths_of).collect();
        if let Some(path) = asked.budget
            && !(known.contains(&path) && self.budgets.is_member(user, path))
        {
            return Err(Refused::not_found(format!(
                "budget: there is no budget '{path}' that you may see"
            )));
        }
        let mut below: Vec<String> = Vec::new();
        if !all {
            let mut members: Vec<&str> =
                known.into_iter().filter(|path| self.budgets.is_member(user, path)).collect();
            members.sort_unstable();
            members.dedup();
            // What is below one of them needs no entry of its own.
            for path in members {
                if below.last().is_none_or(|above| !is_within(path, above)) {
                    below.push(path.to_owned());
                }
            }
        }
        let scope = Scope { all, below, asked: asked.budget.map(str::to_owned) };
        let in_period = |work: &&Work| {
            let reaches = |spell: &Spell| {
                spell.from_ms < to_ms && spell.until_ms.is_none_or(|until| until >= from_ms)
            };
            work.spells.iter().any(reaches)
        };
        let asked_for = |work: &&Work| {
            asked.budget.is_none_or(|path| is_within(&work.declared.budget, path))
                && self.may_see(user, work)
        };
        Ok(Facts {
            site: self.created.name.clone(),
            unix_ms: asked.unix_ms,
            from_ms,
            to_ms,
            budget: asked.budget.map(str::to_owned),
            attempts: asked.attempts,
            is_whole: all && asked.budget.is_none(),
            hosts: self.created.hosts.clone(),
            rates_milli: self.created.rates_milli.clone(),
            service: self.service.clone(),
            changes: self.changes.iter().filter(|change| change.at_ms < to_ms).cloned().collect(),
            works: self.works().filter(in_period).filter(asked_for).map(WorkFacts::of).collect(),
            scope,
            notes,
        })
    }
}

/// The budgets that a change brought.
fn paths_of(change: &Change) -> impl Iterator<Item = &str> {
    change.edits.iter().filter_map(|edit| match edit {
        crate::changes::Edit::Added { path, .. } => Some(path.as_str()),
        _ => None,
    })
}

impl Facts {
    /// What one GPU-hour of a model costs, in thousandths.
    pub(super) fn rate_milli(&self, model: &str) -> u64 {
        self.rates_milli.get(model).copied().unwrap_or(1_000)
    }
}
