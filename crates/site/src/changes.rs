//! Change sets: what a change of the budget tree changes, one edit at a time.
//!
//! A change is asked for as a whole tree. What is kept for later, and shown to people, are the edits that lead
//! to it: they can still be made when others have changed something else meanwhile, and are refused when the
//! same thing was changed.

use crate::budgets::{BudgetDoc, Budgets, Share};
use crate::error::Refused;
use crate::terms::TermDoc;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use utoipa::ToSchema;

/// One edit of the tree. The root's path is empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "edit", rename_all = "snake_case")]
pub enum Edit {
    /// A budget that was not there. What is below it are edits of their own.
    Added {
        /// Its path.
        path: String,
        /// The budget, without what is below it.
        budget: BudgetDoc,
    },
    /// A budget that is gone.
    Removed {
        /// Its path.
        path: String,
        /// The budget, without what was below it.
        budget: BudgetDoc,
    },
    /// Another share.
    Share {
        /// Its path.
        path: String,
        /// Before.
        #[schema(value_type = f64)]
        from: Share,
        /// After.
        #[schema(value_type = f64)]
        to: Share,
    },
    /// Another hard limit, in GPU-hours.
    Limit {
        /// Its path.
        path: String,
        /// Before.
        from: Option<f64>,
        /// After.
        to: Option<f64>,
    },
    /// Other hard limits that hold for a time.
    Terms {
        /// Its path.
        path: String,
        /// Before.
        from: Vec<TermDoc>,
        /// After.
        to: Vec<TermDoc>,
    },
    /// Other owners.
    Owners {
        /// Its path.
        path: String,
        /// Before.
        from: Vec<String>,
        /// After.
        to: Vec<String>,
    },
    /// Other members.
    Members {
        /// Its path.
        path: String,
        /// Before.
        from: Vec<String>,
        /// After.
        to: Vec<String>,
    },
}

impl Edit {
    /// The budget that is edited.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Added { path, .. }
            | Self::Removed { path, .. }
            | Self::Share { path, .. }
            | Self::Limit { path, .. }
            | Self::Terms { path, .. }
            | Self::Owners { path, .. }
            | Self::Members { path, .. } => path,
        }
    }
}

impl fmt::Display for Edit {
    /// One line, as `budget diff` shows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn names(names: &[String]) -> String {
            if names.is_empty() { "nobody".into() } else { names.join(", ") }
        }
        fn hours(limit: Option<f64>) -> String {
            limit.map_or_else(|| "none".into(), |hours| format!("{hours} GPU-hours"))
        }
        fn terms(terms: &[TermDoc]) -> String {
            let each: Vec<String> = terms.iter().map(ToString::to_string).collect();
            if each.is_empty() { "none".into() } else { each.join("; ") }
        }
        fn share(share: Share) -> f64 {
            share.0 as f64 / 1e6
        }
        match self {
            Self::Added { path, budget } => {
                write!(f, "+ {path}: share {}", share(budget.share))?;
                if let Some(limit) = budget.limit {
                    write!(f, ", limit {}", hours(Some(limit)))?;
                }
                if !budget.terms.is_empty() {
                    write!(f, ", terms {}", terms(&budget.terms))?;
                }
                Ok(())
            }
            Self::Removed { path, budget } => {
                write!(f, "- {path}: share {}", share(budget.share))
            }
            Self::Share { path, from, to } => {
                write!(f, "~ {path}: share {} -> {}", share(*from), share(*to))
            }
            Self::Limit { path, from, to } => {
                write!(f, "~ {path}: limit {} -> {}", hours(*from), hours(*to))
            }
            Self::Terms { path, from, to } => {
                write!(f, "~ {path}: terms {} -> {}", terms(from), terms(to))
            }
            Self::Owners { path, from, to } => {
                let path = if path.is_empty() { "(root)" } else { path };
                write!(f, "~ {path}: owners {} -> {}", names(from), names(to))
            }
            Self::Members { path, from, to } => {
                write!(f, "~ {path}: members {} -> {}", names(from), names(to))
            }
        }
    }
}

type Flat = BTreeMap<Vec<String>, BudgetDoc>;

fn flatten(tree: &BTreeMap<String, BudgetDoc>, above: &[String], flat: &mut Flat) {
    for (name, budget) in tree {
        let mut path = above.to_vec();
        path.push(name.clone());
        flatten(&budget.children, &path, flat);
        flat.insert(path, BudgetDoc { children: BTreeMap::new(), ..budget.clone() });
    }
}

fn flat(tree: &BTreeMap<String, BudgetDoc>) -> Flat {
    let mut all = Flat::new();
    flatten(tree, &[], &mut all);
    all
}

/// The edits that lead from one tree to another: parents before children, except where they are removed.
#[must_use]
pub fn diff(old: &Budgets, new: &Budgets) -> Vec<Edit> {
    let mut edits = Vec::new();
    if old.owners != new.owners {
        let (from, to) = (old.owners.clone(), new.owners.clone());
        edits.push(Edit::Owners { path: String::new(), from, to });
    }
    let (before, after) = (flat(&old.tree), flat(&new.tree));
    for (path, budget) in before.iter().rev().filter(|(path, _)| !after.contains_key(*path)) {
        edits.push(Edit::Removed { path: path.join("/"), budget: budget.clone() });
    }
    for (names, budget) in after {
        let path = names.join("/");
        let Some(was) = before.get(&names) else {
            edits.push(Edit::Added { path, budget });
            continue;
        };
        if was.share != budget.share {
            edits.push(Edit::Share { path: path.clone(), from: was.share, to: budget.share });
        }
        if was.limit != budget.limit {
            edits.push(Edit::Limit { path: path.clone(), from: was.limit, to: budget.limit });
        }
        if was.terms != budget.terms {
            let (from, to) = (was.terms.clone(), budget.terms);
            edits.push(Edit::Terms { path: path.clone(), from, to });
        }
        if was.owners != budget.owners {
            let (from, to) = (was.owners.clone(), budget.owners);
            edits.push(Edit::Owners { path: path.clone(), from, to });
        }
        if was.members != budget.members {
            edits.push(Edit::Members { path, from: was.members.clone(), to: budget.members });
        }
    }
    edits
}

/// The tree that edits lead to from `budgets`, as the version after it.
///
/// # Errors
/// If something that is edited is not as it was when the edits were made.
pub fn apply(edits: &[Edit], budgets: &Budgets) -> Result<Budgets, Refused> {
    let moved = |path: &str| {
        Refused::conflict(format!(
            "budget '{path}' was changed since by somebody else; look at it and ask again"
        ))
    };
    let mut all = flat(&budgets.tree);
    let mut owners = budgets.owners.clone();
    for edit in edits {
        let path = edit.path();
        if let (Edit::Owners { from, to, .. }, "") = (edit, path) {
            if owners != *from {
                return Err(Refused::conflict("the root's owners were changed since"));
            }
            owners.clone_from(to);
            continue;
        }
        let names: Vec<String> = path.split('/').map(str::to_owned).collect();
        match edit {
            Edit::Added { budget, .. } => {
                let above = &names[..names.len() - 1];
                let orphan = !above.is_empty() && !all.contains_key(above);
                if orphan || all.insert(names, budget.clone()).is_some() {
                    return Err(moved(path));
                }
            }
            Edit::Removed { budget, .. } => {
                if all.remove(&names).as_ref() != Some(budget) {
                    return Err(moved(path));
                }
            }
            _ => {
                let one = all.get_mut(&names).ok_or_else(|| moved(path))?;
                let as_it_was = match edit {
                    Edit::Share { from, to, .. } => std::mem::replace(&mut one.share, *to) == *from,
                    Edit::Limit { from, to, .. } => std::mem::replace(&mut one.limit, *to) == *from,
                    Edit::Terms { from, to, .. } => {
                        std::mem::replace(&mut one.terms, to.clone()) == *from
                    }
                    Edit::Owners { from, to, .. } => {
                        std::mem::replace(&mut one.owners, to.clone()) == *from
                    }
                    Edit::Members { from, to, .. } => {
                        std::mem::replace(&mut one.members, to.clone()) == *from
                    }
                    Edit::Added { .. } | Edit::Removed { .. } => unreachable!("taken above"),
                };
                if !as_it_was {
                    return Err(moved(path));
                }
            }
        }
    }
    let mut tree = BTreeMap::new();
    for (names, budget) in all {
        // Parents come before their children in this order.
        let (name, above) = names.split_last().expect("a path has a name");
        let mut level = &mut tree;
        for step in above {
            let parent: &mut BudgetDoc =
                level.get_mut(step).ok_or_else(|| moved(&names.join("/")))?;
            level = &mut parent.children;
        }
        level.insert(name.clone(), budget);
    }
    Budgets::new(budgets.version + 1, tree, owners)
}

/// A version of the tree: who made it of the one before, when, why, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The version that it made.
    pub version: u64,
    /// When, in milliseconds since the site was created.
    pub at_ms: u64,
    /// Through whom; none for the site's first budgets.
    pub author: Option<String>,
    /// Why.
    pub reason: String,
    /// What it changed.
    pub edits: Vec<Edit>,
}

/// A change set that waits for its moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scheduled {
    /// Its number: that of the record that asked for it.
    pub id: u64,
    /// Through whom.
    pub author: String,
    /// When it was asked for, in milliseconds since the site was created.
    pub asked_ms: u64,
    /// From when on it holds.
    pub effective_ms: u64,
    /// Why.
    pub reason: String,
    /// What it will change.
    pub edits: Vec<Edit>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn budgets(text: &str) -> Budgets {
        let tree = serde_saphyr::from_str(text).expect("a tree");
        Budgets::new(4, tree, vec!["boss".into()]).expect("budgets")
    }

    const LAB: &str = "
a: {share: 2, owners: [ann], children: {a1: {share: 1, members: [max]}, a2: {share: 1}}}
b: {share: 1, limit: 50}
";

    fn shown(from: &str, to: &str) -> Vec<String> {
        let edits = diff(&budgets(from), &budgets(to));
        edits.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_changed_is_told_line_by_line() {
        let to = "
a: {share: 3, owners: [ann], children: {a1: {share: 1, members: [max, eva]}}}
b: {share: 1}
c: {share: 1, children: {c1: {share: 0.5, limit: 7}}}
";
        assert_eq!(
            shown(LAB, to),
            [
                "- a/a2: share 1",
                "~ a: share 2 -> 3",
                "~ a/a1: members max -> max, eva",
                "~ b: limit 50 GPU-hours -> none",
                "+ c: share 1",
                "+ c/c1: share 0.5, limit 7 GPU-hours",
            ]
        );
    }

    #[test]
    fn edits_can_be_made_beside_others_and_not_over_them() {
        let base = budgets(LAB);
        let wanted = diff(&base, &budgets(&LAB.replace("limit: 50", "limit: 70")));
        let beside = budgets(&LAB.replace("a2: {share: 1}", "a2: {share: 4}"));
        let both = apply(&wanted, &beside).expect("they do not meet");
        assert_eq!(both.get("b").expect("b").limit, Some(70.0));
        assert_eq!(both.get("a/a2").expect("a2").share, Share(4_000_000));
        assert_eq!(both.version, 5);
        let over = budgets(&LAB.replace("limit: 50", "limit: 60"));
        let refused = apply(&wanted, &over).expect_err("they meet");
        assert!(refused.message.contains("'b' was changed since"), "{refused}");
        let gone = budgets("a: {share: 1}");
        assert!(apply(&wanted, &gone).is_err());
    }

    #[test]
    fn a_budget_below_one_that_is_gone_is_not_added() {
        let wanted = diff(&budgets(LAB), &budgets(&LAB.replace("a2: {", "a3: {share: 1}, a2: {")));
        assert!(apply(&wanted, &budgets("b: {share: 1, limit: 50}")).is_err());
    }

    fn any_tree() -> impl Strategy<Value = BTreeMap<String, BudgetDoc>> {
        let names = proptest::collection::vec("[u-w]", 0..2);
        let leaf =
            (0u64..3, proptest::option::of(0u32..3), names).prop_map(|(share, limit, members)| {
                BudgetDoc {
                    share: Share(share * 500_000),
                    limit: limit.map(f64::from),
                    members,
                    ..BudgetDoc::default()
                }
            });
        let node = leaf.prop_recursive(3, 20, 3, |inner| {
            (0u64..3, proptest::collection::btree_map("[a-c]", inner, 0..3)).prop_map(
                |(share, children)| BudgetDoc {
                    share: Share(share * 1_000_000),
                    children,
                    ..BudgetDoc::default()
                },
            )
        });
        proptest::collection::btree_map("[a-d]", node, 1..4)
    }

    proptest! {
        #[test]
        fn edits_lead_where_they_were_made_for(old in any_tree(), new in any_tree()) {
            let old = Budgets::new(1, old, vec!["x".into()]).expect("a tree");
            let new = Budgets::new(2, new, vec!["y".into()]).expect("a tree");
            let edits = diff(&old, &new);
            prop_assert_eq!(apply(&edits, &old).expect("they were made from it"), new.clone());
            prop_assert!(diff(&new, &new).is_empty());
            let text = serde_json::to_string(&edits).expect("written");
            let again: Vec<Edit> = serde_json::from_str(&text).expect("read");
            prop_assert_eq!(again, edits);
        }
    }
}
