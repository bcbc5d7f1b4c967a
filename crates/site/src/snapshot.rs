//! Snapshots: a site written down, so that a restart need not fold a journal from its beginning.
//!
//! A snapshot is a convenience and never the truth: it is good only for the very code that made it, and whoever
//! cannot read it folds the journal instead. Its bytes are the site's state: two sites with equal bytes are the
//! same and decide the same.

use crate::budgets::{BudgetDoc, Budgets};
use crate::changes::{Change, Scheduled};
use crate::funding::Funding;
use crate::record::{Created, TermSpan, TokenIssued};
use crate::site::{HostSaid, Service, Site};
use crate::work::Work;
use bursar_core::{BudgetPolicy, Scheduler, State, WorkloadIx};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What decides, as the build script names it.
pub const DECIDES_AS: &str = env!("BURSAR_DECIDES_AS");

/// Why a snapshot is of no use here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Other code made it.
    #[error("it was made by another binary ({0}); this one is {DECIDES_AS}")]
    Other(String),
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
}

/// The head comes first, so that it can be read whatever follows.
#[derive(Serialize, Deserialize)]
struct Head {
    decides_as: String,
}

#[derive(Serialize)]
struct Written<'a> {
    created: &'a Created,
    version: u64,
    tree: &'a BTreeMap<String, BudgetDoc>,
    owners: &'a [String],
    state: &'a State,
    seq: u64,
    works: &'a BTreeMap<u64, Work>,
    places: &'a BTreeMap<WorkloadIx, u64>,
    next_number: u64,
    keys: &'a BTreeMap<(String, String), u64>,
    tokens: &'a BTreeMap<String, (TokenIssued, bool)>,
    host_reasons: &'a BTreeMap<String, (String, bool)>,
    gpu_owners: &'a [Vec<Option<u64>>],
    dependents: &'a BTreeMap<u64, Vec<u64>>,
    changes: &'a [Change],
    run_again: &'a [u64],
    scheduled: &'a BTreeMap<u64, Scheduled>,
    terms: &'a [TermSpan],
    terms_until_ms: Option<u64>,
    funding: &'a BTreeMap<u64, Funding>,
    service: &'a [Service],
    host_log: &'a [HostSaid],
}

#[derive(Deserialize)]
struct Read {
    created: Created,
    version: u64,
    tree: BTreeMap<String, BudgetDoc>,
    owners: Vec<String>,
    state: State,
    seq: u64,
    works: BTreeMap<u64, Work>,
    places: BTreeMap<WorkloadIx, u64>,
    next_number: u64,
    keys: BTreeMap<(String, String), u64>,
    tokens: BTreeMap<String, (TokenIssued, bool)>,
    host_reasons: BTreeMap<String, (String, bool)>,
    gpu_owners: Vec<Vec<Option<u64>>>,
    dependents: BTreeMap<u64, Vec<u64>>,
    changes: Vec<Change>,
    run_again: Vec<u64>,
    scheduled: BTreeMap<u64, Scheduled>,
    terms: Vec<TermSpan>,
    terms_until_ms: Option<u64>,
    funding: BTreeMap<u64, Funding>,
    service: Vec<Service>,
    host_log: Vec<HostSaid>,
}

impl Site {
    /// The site as bytes, to be taken when the latest record is a plan: whoever goes on from it takes all that
    /// could be decided for decided.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        debug_assert!(self.scheduler.state().notices().is_empty(), "notices are taken at once");
        let written = Written {
            created: &self.created,
            version: self.budgets.version,
            tree: &self.budgets.tree,
            owners: &self.budgets.owners,
            state: self.scheduler.state(),
            seq: self.seq,
            works: &self.works,
            places: &self.places,
            next_number: self.next_number,
            keys: &self.keys,
            tokens: &self.tokens,
            host_reasons: &self.host_reasons,
            gpu_owners: &self.gpu_owners,
            dependents: &self.dependents,
            changes: &self.changes,
            run_again: &self.run_again,
            scheduled: &self.scheduled,
            terms: &self.terms,
            terms_until_ms: self.terms_until_ms,
            funding: &self.funding,
            service: &self.service,
            host_log: &self.host_log,
        };
        let head = Head { decides_as: DECIDES_AS.to_owned() };
        let mut bytes = rmp_serde::to_vec(&head).expect("a head can be written");
        // With names: what a struct leaves out when it is empty has no place of its own otherwise.
        rmp_serde::encode::write_named(&mut bytes, &written).expect("a site can be written");
        bytes
    }

    /// The site that a snapshot is of.
    ///
    /// # Errors
    /// If other code made it, or it cannot be read: then the journal is to be folded from its beginning.
    pub fn restored(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let unreadable =
            |error: rmp_serde::decode::Error| SnapshotError::Unreadable(error.to_string());
        let mut rest = bytes;
        let head: Head = rmp_serde::from_read(&mut rest).map_err(unreadable)?;
        if head.decides_as != DECIDES_AS {
            return Err(SnapshotError::Other(head.decides_as));
        }
        let read: Read = rmp_serde::from_slice(rest).map_err(unreadable)?;
        let budgets = Budgets::new(read.version, read.tree, read.owners)
            .map_err(|refused| SnapshotError::Unreadable(refused.message))?;
        let (models, rate_step) = crate::site::models_of(&read.created);
        let policy = BudgetPolicy::resumed(&read.state);
        let arrived = |work: &Work| Some((work.arrived.as_ref()?.name.clone(), work.number));
        Ok(Self {
            arrivals: read.works.values().filter_map(arrived).collect(),
            created: read.created,
            budgets,
            scheduler: Scheduler::new(read.state, Box::new(policy)),
            models,
            rate_step,
            seq: read.seq,
            open: crate::open::Open::count(&read.works),
            works: read.works,
            places: read.places,
            next_number: read.next_number,
            numbers_from: 0,
            keys: read.keys,
            tokens: read.tokens,
            host_reasons: read.host_reasons,
            gpu_owners: read.gpu_owners,
            dependents: read.dependents,
            changes: read.changes,
            run_again: read.run_again,
            scheduled: read.scheduled,
            terms: read.terms,
            terms_until_ms: read.terms_until_ms,
            funding: read.funding,
            service: read.service,
            host_log: read.host_log,
        })
    }
}
