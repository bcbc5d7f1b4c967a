//! A journal that measures, and what the driver tells after each step.

use crate::daemon::Daemon;
use crate::events::Hub;
use crate::metrics::Metrics;
use crate::{Clock, Journal, JournalError};
use bursar_engine::Engine;
use bursar_site::Record;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A journal whose appends are measured.
pub struct Measured<J> {
    journal: J,
    metrics: Arc<Metrics>,
}

impl<J> Measured<J> {
    /// Measures this journal.
    pub const fn new(journal: J, metrics: Arc<Metrics>) -> Self {
        Self { journal, metrics }
    }
}

impl<J> Deref for Measured<J> {
    type Target = J;

    fn deref(&self) -> &J {
        &self.journal
    }
}

impl<J: Journal> Journal for Measured<J> {
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        let begun = Instant::now();
        let appended = self.journal.append(records);
        self.metrics.appended(records.len(), begun.elapsed(), appended.is_ok());
        appended
    }

    fn is_at(&self, seq: u64) -> bool {
        self.journal.is_at(seq)
    }

    fn read(
        &self,
        from: u64,
        take: &mut dyn FnMut(Record) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        self.journal.read(from, take)
    }

    fn put_snapshot(&mut self, seq: u64, bytes: &[u8]) -> Result<(), JournalError> {
        self.journal.put_snapshot(seq, bytes)
    }

    fn latest_snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, JournalError> {
        self.journal.latest_snapshot()
    }
}

/// Who is told after each step of a driver.
pub trait Watcher<D>: Send {
    /// A round is over.
    fn round(&mut self, daemon: &D, took: Duration, went_well: bool);

    /// Requests were done.
    fn requests(&mut self, daemon: &D);
}

/// Feeds events and metrics.
#[derive(Clone)]
pub struct Watch {
    /// The way to those who follow.
    pub hub: Arc<Hub>,
    /// What is measured.
    pub metrics: Arc<Metrics>,
}

impl<J: Journal, E: Engine, C: Clock> Watcher<Daemon<J, E, C>> for Watch {
    fn round(&mut self, daemon: &Daemon<J, E, C>, took: Duration, went_well: bool) {
        self.metrics.round(took, daemon.plan_took(), went_well);
        // A round that failed may have left a site that is ahead of its journal: nobody is told of it.
        if went_well {
            self.hub.look(daemon);
        }
    }

    fn requests(&mut self, daemon: &Daemon<J, E, C>) {
        // As above: what a failed append left is folded anew first.
        if daemon.is_settled() {
            self.hub.look(daemon);
        }
    }
}
