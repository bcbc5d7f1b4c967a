//! The budget tree as people write it, and who may change what of it.

use crate::error::Refused;
use crate::plain::printable;
use crate::record::TermSpan;
use crate::terms::{self, TermDoc};
use bursar_core::tree::BudgetNode;
use bursar_core::{BudgetIx, Term, TimeMs};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A budget and what is below it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetDoc {
    /// Its weight among its siblings, with at most six decimals. Zero: never funded.
    #[schema(value_type = f64, minimum = 0, maximum = 1_000_000_000, example = 2)]
    pub share: Share,
    /// A hard limit in GPU-hours on all that it is ever charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1_000_000_000_000u64)]
    pub limit: Option<f64>,
    /// Hard limits that hold for a time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub terms: Vec<TermDoc>,
    /// Who may divide it and see all of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<String>,
    /// Who may submit to it and everything below it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
    /// The budgets that it is divided into.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(no_recursion)]
    pub children: BTreeMap<String, BudgetDoc>,
}

/// A share, kept in millionths and written as a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(pub u64);

impl Serialize for Share {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(1_000_000) {
            serializer.serialize_u64(self.0 / 1_000_000)
        } else {
            serializer.serialize_f64(self.0 as f64 / 1e6)
        }
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = f64::deserialize(deserializer)?;
        if !(0.0..=1e9).contains(&value) {
            let problem = format!("{value} is not between 0 and 1000000000");
            return Err(serde::de::Error::custom(problem));
        }
        Ok(Self((value * 1e6).round() as u64))
    }
}

/// The tree in force, with its version and who owns the root.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budgets {
    /// How often the tree was changed.
    pub version: u64,
    /// Below the root, by name.
    pub tree: BTreeMap<String, BudgetDoc>,
    /// Who owns the root: may divide all, and operate the cluster.
    pub owners: Vec<String>,
    /// Every budget by path, in the order of the core's indices (from 1; 0 is the root).
    paths: Vec<String>,
}

/// How deep budgets may lie: far deeper than any lab, and no stack overflows.
const DEPTH_MAX: usize = 16;
/// How many budgets a tree may have.
const BUDGETS_MAX: usize = 20_000;
/// How long a name may be.
const NAME_CHARS_MAX: usize = 64;

impl Budgets {
    /// The tree of a change set. What is wrong with it names the budget.
    pub fn new(
        version: u64,
        tree: BTreeMap<String, BudgetDoc>,
        owners: Vec<String>,
    ) -> Result<Self, Refused> {
        let mut budgets = Self { version, tree, owners, paths: Vec::new() };
        if budgets.tree.is_empty() {
            return Err(Refused::invalid("budgets: a site needs at least one budget"));
        }
        let mut paths = vec![String::new()];
        check(&budgets.tree, "", 1, &mut paths)?;
        budgets.paths = paths;
        Ok(budgets)
    }

    /// The nodes for the core: the root first, parents before children, siblings by name.
    #[must_use]
    pub fn nodes(
        &self,
        units_per_gpu_hour: u128,
        terms: &[TermSpan],
        before: impl Fn(&TermSpan) -> u128,
    ) -> Vec<BudgetNode> {
        let mut nodes = vec![BudgetNode {
            path: String::new(),
            parent: None,
            share_micro: 1_000_000,
            limit_units: None,
            terms: Vec::new(),
        }];
        push_nodes(&self.tree, BudgetIx(0), "", units_per_gpu_hour, &mut nodes);
        for span in terms {
            let Some(node) = self.index(&span.budget) else { continue };
            let limit = i128::from(span.limit_milli) + i128::from(span.moved_milli);
            nodes[node.at()].terms.push(Term {
                series: span.series,
                from: TimeMs(span.from_ms),
                until: span.until_ms.map_or(TimeMs::NEVER, TimeMs),
                units: u128::try_from(limit).unwrap_or(0) * units_per_gpu_hour / 1_000,
                carries: span.carry_over,
                before: before(span),
            });
        }
        nodes
    }

    /// The path of a budget of the core.
    #[must_use]
    pub fn path(&self, budget: BudgetIx) -> &str {
        &self.paths[budget.at()]
    }

    /// The core's index of a path.
    #[must_use]
    pub fn index(&self, path: &str) -> Option<BudgetIx> {
        let at = self.paths.iter().skip(1).position(|other| other == path)?;
        Some(BudgetIx(at as u32 + 1))
    }

    /// A budget by its path.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&BudgetDoc> {
        let mut names = path.split('/');
        let mut budget = self.tree.get(names.next()?)?;
        for name in names {
            budget = budget.children.get(name)?;
        }
        Some(budget)
    }

    /// All paths, in the order of the core's indices, without the root.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().skip(1).map(String::as_str)
    }

    /// The budgets on the way to a path, itself last.
    pub(crate) fn on_the_way<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a BudgetDoc> {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        ends.filter_map(|end| self.get(&path[..end]))
    }

    /// Whether a person owns the root.
    #[must_use]
    pub fn is_root_owner(&self, user: &str) -> bool {
        self.owners.iter().any(|owner| owner == user)
    }

    /// Whether a person owns a budget, or one above it.
    #[must_use]
    pub fn is_owner(&self, user: &str, path: &str) -> bool {
        self.is_root_owner(user)
            || self.on_the_way(path).any(|budget| budget.owners.iter().any(|owner| owner == user))
    }

    /// Whether a person may submit to a budget: a member or owner of it, or of one above it.
    #[must_use]
    pub fn is_member(&self, user: &str, path: &str) -> bool {
        self.is_owner(user, path)
            || self.on_the_way(path).any(|budget| budget.members.iter().any(|one| one == user))
    }

    /// Whether a person has any part in the site.
    #[must_use]
    pub fn knows(&self, user: &str) -> bool {
        self.is_root_owner(user) || self.paths().any(|path| self.is_member(user, path))
    }

    /// Whether a person may put `new` in place of this tree: an owner may change what lies below the budgets
    /// that they own (they divide what they hold, and do not change what they hold), the root's owners all.
    pub fn may_change(&self, user: &str, new: &Self) -> Result<(), Refused> {
        if self.is_root_owner(user) {
            return Ok(());
        }
        if self.owners != new.owners {
            return Err(Refused::forbidden("only owners of the root may change who owns it"));
        }
        may_change(user, "", &self.tree, &new.tree)
    }
}

fn may_change(
    user: &str,
    above: &str,
    old: &BTreeMap<String, BudgetDoc>,
    new: &BTreeMap<String, BudgetDoc>,
) -> Result<(), Refused> {
    let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name)));
    for name in names {
        let path = join(above, name);
        let (Some(before), Some(after)) = (old.get(name), new.get(name)) else {
            return Err(Refused::forbidden(format!(
                "budget '{path}': only an owner of a budget above it may add or remove it"
            )));
        };
        if (before.share, before.limit, &before.terms) != (after.share, after.limit, &after.terms)
            || before.owners != after.owners
            || before.members != after.members
        {
            return Err(Refused::forbidden(format!(
                "budget '{path}': only an owner of a budget above it may change it"
            )));
        }
        let owns = before.owners.iter().any(|owner| owner == user);
        if !owns {
            may_change(user, &path, &before.children, &after.children)?;
        }
    }
    Ok(())
}

pub(crate) fn join(above: &str, name: &str) -> String {
    if above.is_empty() { name.to_owned() } else { format!("{above}/{name}") }
}

fn check(
    budgets: &BTreeMap<String, BudgetDoc>,
    above: &str,
    depth: usize,
    paths: &mut Vec<String>,
) -> Result<(), Refused> {
    for (name, budget) in budgets {
        let path = join(above, name);
        if depth > DEPTH_MAX {
            return Err(Refused::invalid(format!("budget '{path}' lies deeper than {DEPTH_MAX}")));
        }
        if !is_name(name) {
            return Err(Refused::invalid(format!(
                "budget name '{}' may have letters, digits, '-', '_' and '.' only, at most {NAME_CHARS_MAX} of them",
                printable(name)
            )));
        }
        if let Some(limit) = budget.limit
            && !(0.0..=1e12).contains(&limit)
        {
            return Err(Refused::invalid(format!(
                "budget '{path}': limit: {limit} is not a number of GPU-hours from 0 to 1e12"
            )));
        }
        terms::check(&path, &budget.terms)?;
        for user in budget.owners.iter().chain(&budget.members) {
            if !is_name(user) {
                let user = printable(user);
                return Err(Refused::invalid(format!("budget '{path}': '{user}' is no user name")));
            }
        }
        paths.push(path.clone());
        if paths.len() > BUDGETS_MAX {
            return Err(Refused::invalid(format!("more than {BUDGETS_MAX} budgets")));
        }
        check(&budget.children, &path, depth + 1, paths)?;
    }
    Ok(())
}

/// Whether a text can name a budget, a person or a host.
pub(crate) fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
    !text.is_empty()
        && text.chars().count() <= NAME_CHARS_MAX
        && text.chars().all(allowed)
        && !text.starts_with(['.', '-'])
}

fn push_nodes(
    budgets: &BTreeMap<String, BudgetDoc>,
    parent: BudgetIx,
    above: &str,
    units_per_gpu_hour: u128,
    nodes: &mut Vec<BudgetNode>,
) {
    for (name, budget) in budgets {
        let path = join(above, name);
        let index = BudgetIx(nodes.len() as u32);
        nodes.push(BudgetNode {
            path: path.clone(),
            parent: Some(parent),
            share_micro: budget.share.0,
            limit_units: budget.limit.map(|hours| {
                // Thousandths of a GPU-hour are exact enough for a limit, and an integer from here on.
                (hours * 1_000.0).round() as u128 * units_per_gpu_hour / 1_000
            }),
            terms: Vec::new(),
        });
        push_nodes(&budget.children, index, &path, units_per_gpu_hour, nodes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> BTreeMap<String, BudgetDoc> {
        serde_saphyr::from_str(text).expect("a tree")
    }

    fn budgets(text: &str) -> Budgets {
        Budgets::new(1, tree(text), vec!["boss".into()]).expect("budgets")
    }

    const LAB: &str = "
a: {share: 2, owners: [ann], children: {a1: {share: 1, members: [max]}, a2: {share: 1}}}
b: {share: 1, members: [bob]}
";

    #[test]
    fn parents_come_first_and_siblings_by_name() {
        let lab = budgets(LAB);
        assert_eq!(lab.paths().collect::<Vec<_>>(), ["a", "a/a1", "a/a2", "b"]);
        let nodes = lab.nodes(3_600_000, &[], |_| 0);
        assert_eq!(nodes[2].path, "a/a1");
        assert_eq!(nodes[2].parent, Some(BudgetIx(1)));
        assert_eq!(lab.index("a/a2"), Some(BudgetIx(3)));
        assert_eq!(lab.index(""), None);
    }

    #[test]
    fn rights_follow_the_tree_downwards() {
        let lab = budgets(LAB);
        assert!(lab.is_owner("ann", "a/a1") && !lab.is_owner("ann", "b"));
        assert!(lab.is_member("max", "a/a1") && !lab.is_member("max", "a/a2"));
        assert!(lab.is_member("boss", "b") && !lab.knows("eve"));
    }

    #[test]
    fn an_owner_divides_what_they_hold_and_nothing_else() {
        let lab = budgets(LAB);
        let changed = |from: &str, to: &str| budgets(&LAB.replace(from, to));
        assert!(lab.may_change("ann", &changed("a2: {share: 1}", "a2: {share: 3}")).is_ok());
        assert!(lab.may_change("ann", &changed("a2: {share: 1}", "a3: {share: 3}")).is_ok());
        for (from, to) in [
            ("a: {share: 2", "a: {share: 3"),
            ("members: [bob]", "members: [ann]"),
            ("\nb:", "\nc:"),
        ] {
            let refused = lab.may_change("ann", &changed(from, to)).expect_err("it is not hers");
            assert!(refused.message.contains("only an owner of a budget above"), "{refused}");
            assert!(lab.may_change("boss", &changed(from, to)).is_ok());
        }
        assert!(lab.may_change("max", &changed("a2: {share: 1}", "a2: {share: 3}")).is_err());
    }

    #[test]
    fn bad_trees_name_the_budget() {
        let refused = |text: &str| {
            let tree: Result<BTreeMap<String, BudgetDoc>, _> = serde_saphyr::from_str(text);
            match tree {
                Ok(tree) => Budgets::new(1, tree, vec![]).expect_err("bad").message,
                Err(error) => error.to_string(),
            }
        };
        assert!(refused("a/b: {share: 1}").contains("'a/b'"));
        assert!(refused("a: {share: -1}").contains("share: -1"));
        assert!(refused("a: {share: .nan}").contains("share"));
        assert!(refused("a: {share: 1, limit: -3}").contains("limit: -3"));
        assert!(refused("{}").contains("at least one"));
    }
}
