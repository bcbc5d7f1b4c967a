//! Folding a journal, record by record.

use crate::error::ReplayError;
use crate::record::Record;
use crate::site::Site;

/// A site that is being folded: from nothing, or from what a snapshot gave.
#[derive(Default)]
pub struct Fold {
    /// The first record, until the second makes a site of them.
    first: Option<Record>,
    site: Option<Site>,
}

impl Fold {
    /// Goes on from a site.
    #[must_use]
    pub const fn from(site: Site) -> Self {
        Self { first: None, site: Some(site) }
    }

    /// Folds the next record.
    ///
    /// # Errors
    /// If it does not follow, or this binary would have decided otherwise.
    pub fn take(&mut self, record: Record) -> Result<(), ReplayError> {
        match (&mut self.site, &self.first) {
            (Some(site), _) => site.apply(&record),
            (None, Some(first)) => Site::new(first, &record).map(|new| self.site = Some(new)),
            (None, None) => {
                self.first = Some(record);
                Ok(())
            }
        }
    }

    /// The site, if there were enough records to say what it is.
    #[must_use]
    pub fn site(self) -> Option<Site> {
        self.site
    }
}
