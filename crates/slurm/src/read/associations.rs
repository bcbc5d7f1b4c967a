//! Accounts, shares and rights: `sacctmgr -n -P`, `|` between fields. Only names that administrators gave are asked for.

use super::table::{Unreadable, present};
use crate::client::{Call, Program};
use std::collections::BTreeMap;

/// What an account or a user of an account may have of what its parent has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FairShare {
    /// A weight among its siblings.
    Number(u64),
    /// `Fairshare=parent`: it has none of its own, what is below it counts where its parent's children do.
    Parent,
}

/// An account, or a user in one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Association {
    /// The account.
    pub account: String,
    /// The account above it; none of the root, and none where this is a user's.
    pub parent: Option<String>,
    /// The user; none where this is the account itself.
    pub user: Option<String>,
    /// Its share.
    pub share: FairShare,
    /// The only partition that it is good for.
    pub partition: Option<String>,
}

fn show(what: &[&str], format: &str) -> Call {
    let format = format!("format={format}");
    let words = ["-n", "-P", "show"].iter().chain(what).map(|word| (*word).to_owned());
    Call::new(Program::Sacctmgr, words.chain([format]))
}

/// The call that [`read_associations`] reads the answer of: all accounts of a cluster and their users.
pub fn associations_call(cluster: &str) -> Call {
    let cluster = format!("cluster={cluster}");
    show(&["assoc", &cluster], "Account,ParentName,User,Share,Partition")
}

/// Reads the answer to [`associations_call`].
///
/// # Errors
///
/// If it is none.
pub fn read_associations(answer: &[u8]) -> Result<Vec<Association>, Unreadable> {
    let read = |row: [&str; 5]| {
        let [account, parent, user, share, partition] = row;
        let share = match share {
            "parent" => FairShare::Parent,
            number => number.parse().map(FairShare::Number).map_err(|_| {
                let account = account.escape_debug();
                let number = number.escape_debug();
                Unreadable(format!("the share '{number}' of account {account} is no number"))
            })?,
        };
        if account.is_empty() {
            return Err(Unreadable("a row names no account".to_owned()));
        }
        Ok(Association {
            account: account.to_owned(),
            parent: present(parent).map(str::to_owned),
            user: present(user).map(str::to_owned),
            share,
            partition: present(partition).map(str::to_owned),
        })
    };
    rows(answer)?.into_iter().map(read).collect()
}

/// The call that [`read_administration`] reads the answer of: what a user may do.
pub fn administration_call(user: &str) -> Call {
    show(&["user", &format!("name={user}")], "User,AdminLevel")
}

/// Reads the answer to [`administration_call`]: `None`, `Operator` or `Administrator`; none of a user that the accounts do
/// not know.
///
/// # Errors
///
/// If it is none.
pub fn read_administration(answer: &[u8]) -> Result<Option<String>, Unreadable> {
    let rows = rows::<2>(answer)?;
    Ok(rows.first().map(|[_, level]| (*level).to_owned()))
}

/// The call that [`read_coordinators`] reads the answer of.
pub fn coordinators_call() -> Call {
    show(&["account", "withcoord"], "Account,Coordinators")
}

/// Reads the answer to [`coordinators_call`]: the coordinators of each account that has some.
///
/// # Errors
///
/// If it is none.
pub fn read_coordinators(answer: &[u8]) -> Result<BTreeMap<String, Vec<String>>, Unreadable> {
    let mut found = BTreeMap::new();
    for [account, names] in rows(answer)? {
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        names.sort();
        names.dedup();
        if !names.is_empty() {
            found.insert(account.to_owned(), names);
        }
    }
    Ok(found)
}

/// The call that [`read_preempting`] reads the answer of.
pub fn preempting_call() -> Call {
    show(&["qos"], "Name,Preempt")
}

/// Reads the answer to [`preempting_call`]: which QOS may displace jobs of which others.
///
/// # Errors
///
/// If it is none.
pub fn read_preempting(answer: &[u8]) -> Result<Vec<(String, String)>, Unreadable> {
    let rows = rows(answer)?.into_iter().filter(|[_, others]| present(others).is_some());
    Ok(rows.map(|[name, others]| (name.to_owned(), others.to_owned())).collect())
}

fn rows<const FIELDS: usize>(answer: &[u8]) -> Result<Vec<[&str; FIELDS]>, Unreadable> {
    let text = std::str::from_utf8(answer).map_err(|_| Unreadable("it is no UTF-8".to_owned()))?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split('|').map(str::trim).collect();
            <[&str; FIELDS]>::try_from(fields).map_err(|fields| {
                let shown: String = line.chars().take(80).flat_map(char::escape_default).collect();
                Unreadable(format!("'{shown}' has {} fields, not {FIELDS}", fields.len()))
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accounts_and_users() {
        let text = b"root|||1|\nroot||ann|1|\nlab|root||parent|\nlab||bob|0|gpu\n";
        let found = read_associations(text).unwrap();
        assert_eq!((&found[0].parent, &found[0].user), (&None, &None));
        assert_eq!((found[1].user.as_deref(), found[1].share), (Some("ann"), FairShare::Number(1)));
        assert_eq!((found[2].parent.as_deref(), found[2].share), (Some("root"), FairShare::Parent));
        assert_eq!(found[3].partition.as_deref(), Some("gpu"));
        for bad in
            [&b"root|||1"[..], b"root|||one|", b"|||1|", b"sacctmgr: error: x", b"\xff||||\n"]
        {
            assert!(read_associations(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn rights_coordinators_and_who_displaces_whom() {
        assert_eq!(
            read_administration(b"svc|Administrator\n"),
            Ok(Some("Administrator".to_owned()))
        );
        assert_eq!(read_administration(b"\n"), Ok(None));
        let found = read_coordinators(b"a|\nb|zoe,ann,ann\n").unwrap();
        assert_eq!(found["b"], ["ann", "zoe"]);
        assert_eq!(found.len(), 1);
        let found = read_preempting(b"normal|\nhigh|normal,low\n").unwrap();
        assert_eq!(found, [("high".to_owned(), "normal,low".to_owned())]);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*", odd in "[|a-c0-9,\n]{0,60}") {
            for text in [&text, &odd] {
                let answer = text.as_bytes();
                let _ = (read_associations(answer), read_administration(answer));
                let _ = (read_coordinators(answer), read_preempting(answer));
            }
        }
    }
}
