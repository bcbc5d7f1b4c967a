//! As which accounts of this machine work may run, where it runs as its user.

use bursar_engine::Account;
use bursar_site::{Refused, RefusedKind, Site};

/// What the configuration says about accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Whether attempts run as the user who submitted them (only root can).
    pub as_user: bool,
    /// Whether work may run as root.
    pub allow_root: bool,
}

impl Accounts {
    /// Whether `user` may have work run as `person`. What budgets say about that was asked before.
    ///
    /// # Errors
    /// If it would run as root and must not, or as an account of the system for somebody else and it is not an
    /// owner of the root who asks.
    pub fn check(&self, site: &Site, user: &str, person: &str) -> Result<(), Refused> {
        if !self.as_user {
            return Ok(());
        }
        let refuse = |message: String| Err(Refused { kind: RefusedKind::Forbidden, message });
        // Where accounts cannot be looked up now, the supervisor looks again.
        match bursar_engine::account(person).unwrap_or(Account::Unknown) {
            Account::Root if !self.allow_root => refuse(format!(
                "user: work may not run as '{person}', who is root here; submit as a person, or have the daemon started with --allow-root-work (allow_root_work: true)"
            )),
            Account::Root | Account::System
                if person != user && !site.budgets.is_root_owner(user) =>
            {
                refuse(format!(
                    "user: '{person}' is an account of the system; only an owner of the root may submit for it"
                ))
            }
            Account::Root | Account::System | Account::Person | Account::Unknown => Ok(()),
        }
    }
}
