//! How many workloads have not ended, of everybody and of each user.

use crate::site::Site;
use crate::work::{Stage, Work};
use std::collections::BTreeMap;

/// The counts. They follow from the workloads, so no snapshot has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Open {
    all: usize,
    of: BTreeMap<String, usize>,
}

impl Open {
    /// Of these workloads.
    pub(crate) fn count(works: &BTreeMap<u64, Work>) -> Self {
        let mut open = Self::default();
        for work in works.values().filter(|work| !matches!(work.stage, Stage::Ended(_))) {
            open.add(&work.declared.user);
        }
        open
    }

    /// One of a user's waits from now on.
    pub(crate) fn add(&mut self, user: &str) {
        self.all += 1;
        match self.of.get_mut(user) {
            Some(count) => *count += 1,
            None => drop(self.of.insert(user.to_owned(), 1)),
        }
    }

    /// One of a user's has ended.
    pub(crate) fn remove(&mut self, user: &str) {
        self.all = self.all.saturating_sub(1);
        if let Some(count) = self.of.get_mut(user) {
            *count -= 1;
            if *count == 0 {
                self.of.remove(user);
            }
        }
    }
}

impl Site {
    /// How many workloads have not ended: of everybody, and of this user.
    #[must_use]
    pub fn open_workloads(&self, user: &str) -> (usize, usize) {
        debug_assert!(self.works.len() > 1_000 || self.open == Open::count(&self.works));
        (self.open.all, self.open.of.get(user).copied().unwrap_or(0))
    }
}
