//! A tree of budgets made of Slurm's accounts and their shares.
//!
//! An account is a budget, its `Fairshare` is its share among its siblings, its users are members. Work belongs to
//! leaves alone, so the users of an account that is divided get a leaf beside its parts. The root account is the root.

mod names;

use crate::read::{Association, FairShare};
use names::{budget_name, join, leads_to, some_of, unique};
use std::collections::{BTreeMap, BTreeSet};

/// A budget that was made of an account or a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannedBudget {
    /// Its weight among its siblings, in millionths.
    pub share_micro: u64,
    /// The account's coordinators, unless they own a budget above.
    pub owners: Vec<String>,
    /// The account's users.
    pub members: Vec<String>,
    /// The budgets that it is divided into, by name.
    pub children: BTreeMap<String, PlannedBudget>,
}

/// A tree, and how Slurm's accounts are found in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannedTree {
    /// Below the root, by name.
    pub budgets: BTreeMap<String, PlannedBudget>,
    /// The budget of each account whose name does not lead there.
    pub accounts: BTreeMap<String, String>,
    /// The budget of each account that has users.
    pub targets: BTreeMap<String, String>,
    /// What a person should know of how it was made, a sentence each.
    pub notes: Vec<String>,
}

/// Whether the users of an account divide it among themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserBudgets {
    /// An account is one budget, in which all its users have the same right.
    None,
    /// Each user has a budget, by their own share in the account.
    Each,
}

/// The largest share that a budget may have, in millionths.
const SHARE_MICRO_MAX: u64 = 1_000_000_000 * 1_000_000;

/// Makes a tree of a cluster's accounts.
///
/// # Errors
///
/// A sentence, if there are no accounts below the root.
pub fn plan_budgets(
    associations: &[Association],
    coordinators: &BTreeMap<String, Vec<String>>,
    users: UserBudgets,
) -> Result<PlannedTree, String> {
    let accounts = Accounts::of(associations);
    let root =
        accounts.root.clone().ok_or("Slurm's accounts have no root; is slurmdbd the right one?")?;
    let mut planner =
        Planner { accounts: &accounts, coordinators, users, tree: PlannedTree::default() };
    let mut budgets = BTreeMap::new();
    planner.divide(&root, "", &BTreeSet::new(), &mut budgets);
    if budgets.is_empty() {
        return Err(
            "there are no accounts below the root; make some with: sacctmgr add account lab"
                .to_owned(),
        );
    }
    planner.tree.budgets = budgets;
    let at_root = accounts.users_of(&root);
    if !at_root.is_empty() {
        planner.note(format!(
            "account {root} is the root and no budget: jobs that its users ({}) charge to it are not taken in unless slurm.accounts names a budget for it",
            some_of(at_root.iter().map(|(user, _)| *user))
        ));
    }
    let mut tree = planner.tree;
    fit_shares(&mut tree.budgets, "", &mut tree.notes);
    let leads =
        |account: &String, path: &String| leads_to(&tree.budgets, account).as_ref() == Some(path);
    let unclear = tree.targets.iter().filter(|(account, path)| !leads(account, path));
    tree.accounts = unclear.map(|(account, path)| (account.clone(), path.clone())).collect();
    Ok(tree)
}

/// Slurm's accounts, each with what is directly below it.
#[derive(Default)]
struct Accounts<'a> {
    root: Option<String>,
    share: BTreeMap<&'a str, FairShare>,
    below: BTreeMap<&'a str, BTreeSet<&'a str>>,
    users: BTreeMap<&'a str, BTreeMap<&'a str, FairShare>>,
}

impl<'a> Accounts<'a> {
    fn of(associations: &'a [Association]) -> Self {
        let mut found = Self::default();
        for one in associations {
            let account = one.account.as_str();
            match (&one.user, &one.parent) {
                (Some(user), _) => {
                    let users = found.users.entry(account).or_default();
                    // What holds in all partitions counts more than what holds in one.
                    if one.partition.is_none() || !users.contains_key(user.as_str()) {
                        users.insert(user, one.share);
                    }
                }
                (None, Some(parent)) => {
                    found.share.insert(account, one.share);
                    found.below.entry(parent).or_default().insert(account);
                }
                (None, None) => found.root = Some(account.to_owned()),
            }
        }
        found
    }

    fn below(&self, account: &str) -> Vec<&'a str> {
        self.below.get(account).into_iter().flatten().copied().collect()
    }

    fn users_of(&self, account: &str) -> Vec<(&'a str, FairShare)> {
        self.users.get(account).into_iter().flatten().map(|(user, share)| (*user, *share)).collect()
    }
}

struct Planner<'a> {
    accounts: &'a Accounts<'a>,
    coordinators: &'a BTreeMap<String, Vec<String>>,
    users: UserBudgets,
    tree: PlannedTree,
}

type Siblings = BTreeMap<String, PlannedBudget>;

impl Planner<'_> {
    fn note(&mut self, note: String) {
        self.tree.notes.push(note);
    }

    /// Makes budgets of the accounts below one.
    fn divide(&mut self, account: &str, path: &str, above: &BTreeSet<&str>, into: &mut Siblings) {
        // An account that had itself above it would never end; Slurm has none, and what we read may be anything.
        if above.contains(account) {
            return;
        }
        let mut above = above.clone();
        above.insert(account);
        for below in self.accounts.below(account) {
            match self.accounts.share.get(below) {
                Some(FairShare::Number(share)) => self.account(below, *share, path, &above, into),
                Some(FairShare::Parent) | None => self.lifted(below, path, &above, into),
            }
        }
    }

    /// `Fairshare=parent`: what is below it counts beside it.
    fn lifted(&mut self, account: &str, path: &str, above: &BTreeSet<&str>, into: &mut Siblings) {
        self.note(format!(
            "account {account} has Fairshare=parent, so what is below it stands beside its siblings, as in Slurm"
        ));
        let users = self.accounts.users_of(account);
        if !users.is_empty() {
            let name = self.name_for(account, account, into);
            self.leaf(account, &name, path, &users, into);
        }
        self.divide(account, path, above, into);
    }

    fn account(
        &mut self,
        account: &str,
        share: u64,
        path: &str,
        above: &BTreeSet<&str>,
        into: &mut Siblings,
    ) {
        let name = self.name_for(account, account, into);
        let whole = join(path, &name);
        let users = self.accounts.users_of(account);
        let mut budget = PlannedBudget {
            share_micro: share.saturating_mul(1_000_000),
            owners: self.owners(account, above),
            ..PlannedBudget::default()
        };
        let divided = !self.accounts.below(account).is_empty();
        self.divide(account, &whole, above, &mut budget.children);
        match self.users {
            UserBudgets::Each if !users.is_empty() => {
                self.each_user(account, &whole, &users, &mut budget.children);
            }
            UserBudgets::None if divided && !users.is_empty() => {
                let own = self.name_for(account, &format!("{name}-own"), &budget.children);
                self.note(format!(
                    "account {account} has users ({}) beside its sub-accounts: their work belongs to the leaf {whole}/{own}, whose share is the sum of theirs",
                    some_of(users.iter().map(|(user, _)| *user))
                ));
                self.leaf(account, &own, &whole, &users, &mut budget.children);
            }
            UserBudgets::None | UserBudgets::Each => {
                budget.members = self.people(users.iter().map(|(user, _)| *user));
                if !users.is_empty() {
                    self.tree.targets.insert(account.to_owned(), whole);
                }
            }
        }
        into.insert(name, budget);
    }

    /// A leaf for the users of an account, whose share is the sum of theirs.
    fn leaf(
        &mut self,
        account: &str,
        name: &str,
        path: &str,
        users: &[(&str, FairShare)],
        into: &mut Siblings,
    ) {
        let share = users.iter().fold(0_u64, |sum, (_, share)| sum.saturating_add(number(*share)));
        let members = self.people(users.iter().map(|(user, _)| *user));
        let leaf = PlannedBudget {
            share_micro: share.saturating_mul(1_000_000),
            members,
            ..PlannedBudget::default()
        };
        into.insert(name.to_owned(), leaf);
        self.tree.targets.insert(account.to_owned(), join(path, name));
    }

    /// A leaf for each user of an account.
    fn each_user(
        &mut self,
        account: &str,
        whole: &str,
        users: &[(&str, FairShare)],
        into: &mut Siblings,
    ) {
        for (user, share) in users {
            let people = self.people([*user]);
            if people.is_empty() {
                continue;
            }
            let name = unique(user, into);
            if name != *user {
                self.note(format!(
                    "user {user} of account {account}: their budget is {whole}/{name}"
                ));
            }
            let leaf = PlannedBudget {
                share_micro: number(*share).saturating_mul(1_000_000),
                members: people,
                ..PlannedBudget::default()
            };
            into.insert(name, leaf);
        }
        self.tree.targets.insert(account.to_owned(), whole.to_owned());
    }

    /// The coordinators of an account who coordinate none above it: an owner owns what is below, too.
    fn owners(&mut self, account: &str, above: &BTreeSet<&str>) -> Vec<String> {
        let of = |account: &str| self.coordinators.get(account).into_iter().flatten();
        let owned: BTreeSet<&String> = above.iter().flat_map(|above| of(above)).collect();
        let owners: Vec<&str> =
            of(account).filter(|name| !owned.contains(name)).map(String::as_str).collect();
        self.people(owners)
    }

    /// Those whose names can be a user's with us.
    fn people<'n>(&mut self, people: impl IntoIterator<Item = &'n str>) -> Vec<String> {
        let mut fit = Vec::new();
        for person in people {
            if budget_name(person) == person {
                fit.push(person.to_owned());
            } else {
                self.note(format!(
                    "'{}' can be no user's name with Bursar and was left out",
                    person.escape_debug()
                ));
            }
        }
        fit
    }

    /// A name that no sibling has. That it is not the account's own is said.
    fn name_for(&mut self, account: &str, wanted: &str, siblings: &Siblings) -> String {
        let name = unique(wanted, siblings);
        if wanted == account && name != account {
            self.note(format!(
                "account '{}' is budget {name}: names of budgets have letters, digits, '-', '_', '.' and '@' only, and differ from their siblings'",
                account.escape_debug()
            ));
        }
        name
    }
}

/// The weight of a user: one who has their account's counts as one of several alike.
const fn number(share: FairShare) -> u64 {
    match share {
        FairShare::Number(share) => share,
        FairShare::Parent => 1,
    }
}

/// Shares above what a budget may have are made smaller together with their siblings'.
fn fit_shares(budgets: &mut Siblings, path: &str, notes: &mut Vec<String>) {
    if budgets.values().any(|budget| budget.share_micro > SHARE_MICRO_MAX) {
        let place = if path.is_empty() { "the root" } else { path };
        notes.push(format!(
            "the shares below {place} are thousandths of Slurm's, which are too large"
        ));
        budgets.values_mut().for_each(|budget| budget.share_micro /= 1000);
    }
    for (name, budget) in budgets {
        fit_shares(&mut budget.children, &join(path, name), notes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::read_associations;

    fn plan(text: &str, users: UserBudgets) -> PlannedTree {
        let read = read_associations(text.as_bytes()).unwrap();
        plan_budgets(&read, &BTreeMap::new(), users).unwrap()
    }

    fn shown(budgets: &Siblings, path: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, budget) in budgets {
            let whole = join(path, name);
            let share = budget.share_micro as f64 / 1e6;
            lines.push(format!("{whole}={share}"));
            lines.extend(shown(&budget.children, &whole));
        }
        lines
    }

    #[test]
    fn odd_names_and_large_shares() {
        let text = "root|||1|\n-a/b|root||2000000000|\n-a/b||ann|1|\na-b|root||1|\na-b||bo b|1|\n";
        let tree = plan(text, UserBudgets::None);
        assert_eq!(shown(&tree.budgets, ""), ["a-b=2000000", "a-b-2=0.001"]);
        assert_eq!(tree.accounts["-a/b"], "a-b");
        assert_eq!(tree.accounts["a-b"], "a-b-2");
        assert!(tree.budgets["a-b-2"].members.is_empty());
        assert_eq!(tree.notes.len(), 4, "{:?}", tree.notes);
    }

    #[test]
    fn users_may_have_budgets_of_their_own() {
        let text = "root|||1|\nlab|root||3|\nlab||ann|2|\nlab||bo|parent|\nml|lab||5|\nml||ann|1|gpu\nml||ann|7|\n";
        let tree = plan(text, UserBudgets::Each);
        let want = ["lab=3", "lab/ann=2", "lab/bo=1", "lab/ml=5", "lab/ml/ann=7"];
        assert_eq!(shown(&tree.budgets, ""), want);
        assert_eq!(tree.accounts, BTreeMap::from([("ml".to_owned(), "lab/ml".to_owned())]));
        let tree = plan(text, UserBudgets::None);
        assert_eq!(shown(&tree.budgets, ""), ["lab=3", "lab/lab-own=3", "lab/ml=5"]);
        assert_eq!(tree.accounts, BTreeMap::from([("lab".to_owned(), "lab/lab-own".to_owned())]));
    }

    #[test]
    fn what_is_no_tree_is_said() {
        let said = |text: &str| {
            let read = read_associations(text.as_bytes()).unwrap();
            plan_budgets(&read, &BTreeMap::new(), UserBudgets::None).unwrap_err()
        };
        assert!(said("").contains("no root"));
        assert!(said("root|||1|\nroot||root|1|\n").contains("sacctmgr add account"));
        // Accounts that are above each other hang from nothing.
        assert!(said("root|||1|\na|b||1|\nb|a||1|\n").contains("no accounts"));
        let tree = plan("root|||1|\nroot|root||1|\nx|root||1|\n", UserBudgets::None);
        assert!(tree.budgets.contains_key("x"));
    }
}
