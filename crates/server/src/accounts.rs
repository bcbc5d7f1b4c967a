//! As which accounts of this machine work may run, where it runs as its user.

use bursar_engine::Account;
use bursar_site::{Refused, RefusedKind, Site};

/// What the configuration says about accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Whether attempts run as the user who submitted them (only root can).
    pub as_user: bool,
    /// Whether work may run as root that is not root's own.
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
        // Who is root here and owns the site could do all of it by hand; for anybody else it is another matter.
        let by_itself = person == user && site.budgets.is_root_owner(user);
        // Where accounts cannot be looked up now, the supervisor looks again.
        match bursar_engine::account(person).unwrap_or(Account::Unknown) {
            Account::Root if !self.allow_root && !by_itself => refuse(format!(
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

#[cfg(test)]
mod tests {
    use super::*;
    use bursar_site::record::{BudgetsChanged, Created, HostDoc, SettingsDoc};
    use bursar_site::{Body, Record};
    use std::collections::BTreeMap;

    fn site(owner: &str) -> Site {
        let host = HostDoc { name: "h".into(), gpus: 8, model: "x".into(), domain: None };
        let created = Created {
            name: "test".into(),
            unix_ms: 0,
            settings: SettingsDoc::default(),
            hosts: vec![host],
            rates_milli: BTreeMap::new(),
            site_id: None,
        };
        let change = BudgetsChanged::first(
            serde_json::from_str(r#"{"a": {"share": 1}}"#).expect("a tree"),
            owner,
            "first",
        );
        let record = |seq, body| Record { seq, at_ms: 0, actor: None, body };
        let first = record(1, Body::Created(created));
        Site::new(&first, &record(2, Body::BudgetsChanged(change))).expect("a site")
    }

    #[test]
    fn as_root_runs_what_root_submits_to_a_site_of_its_own() {
        let accounts = Accounts { as_user: true, allow_root: false };
        let may = |owner: &str, user: &str, person: &str| {
            accounts.check(&site(owner), user, person).is_ok()
        };
        assert!(may("root", "root", "root"));
        assert!(!may("boss", "root", "root"), "who is called root and owns nothing");
        assert!(!may("boss", "boss", "root"), "an owner who is somebody else");
        assert!(may("boss", "boss", "no-such-account"));
    }
}
