//! The `budgets:` tree and `budget_changes:`.
//!
//! The tree is laid out in one list, depth first, siblings sorted by name: a parent stands before its
//! children. Shares stay the exact decimals that were written.

use bursar_trace::{Each, Recurrence, parse_moment};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

use crate::error::{ErrorKind, Fault, nearest, quote, some_of};
use crate::fields::{self, Fields, check_name, decimal, duration, list, named};
use crate::model::{BudgetChange, BudgetSpec, TermSpec};
use crate::yaml::{Key, Node, Value};

/// How deep organisations nest; real ones stay below eight.
const DEPTH_MAX: usize = 16;
/// How many budgets there may be.
const BUDGETS_MAX: usize = 100_000;
/// The largest share. A weight beyond is a mistake.
const SHARE_MAX: u64 = 1_000_000_000;
/// The largest hard limit, in GPU-hours: 100,000 hosts of 8 for a century.
const LIMIT_MAX: u64 = 1_000_000_000_000;
/// One GPU-hour in GPU-milliseconds.
const GPU_HOUR_MS: u64 = 3_600_000;

/// Reads `budgets:`. The root comes first. The word `auto` makes a budget with a share of 1 of every
/// path that the trace files name.
pub(crate) fn read<'a>(
    node: &Node,
    named_by_traces: impl Iterator<Item = &'a str>,
    calendar: &Calendar,
) -> Result<Vec<BudgetSpec>, Fault> {
    let auto = matches!(&node.value, Value::Scalar(word) if &**word == "auto");
    let tree;
    let node = if auto {
        let paths: BTreeSet<&str> = named_by_traces.collect();
        tree = tree_of(&paths, node.line).map_err(|message| Fault::value(node.line, message))?;
        &tree
    } else {
        node
    };
    let mut budgets = vec![BudgetSpec {
        name: String::new(),
        path: String::new(),
        parent: None,
        share_micro: 1_000_000,
        members: Vec::new(),
        limit_gpu_ms: None,
        terms: Vec::new(),
        is_leaf: false,
    }];
    add_children(&mut budgets, 0, node, 1, calendar)?;
    if budgets.len() == 1 {
        let message = match auto {
            true => {
                "auto: no trace names a budget; give one a mapping such as {by: group, default: '{}'}"
            }
            false => "there is not a single budget; declare one such as p: {share: 1}",
        };
        return Err(Fault::new(ErrorKind::Missing, node.line, message));
    }
    Ok(budgets)
}

fn add_children(
    budgets: &mut Vec<BudgetSpec>,
    parent: usize,
    node: &Node,
    depth: usize,
    calendar: &Calendar,
) -> Result<(), Fault> {
    if depth > DEPTH_MAX {
        let message = format!("budgets nest deeper than {DEPTH_MAX} levels");
        return Err(Fault::value(node.line, message));
    }
    let mut children = named(node, "budget")?;
    children.sort_by(|(a, _), (b, _)| a.text.cmp(&b.text));
    for (key, node) in children {
        let name = &*key.text;
        check_name(name).map_err(|message| Fault::value(key.line, message))?;
        if name.contains('/') {
            let message = format!("{}: a budget's name must not contain '/'", quote(name));
            return Err(Fault::value(key.line, message));
        }
        if budgets.len() > BUDGETS_MAX {
            return Err(Fault::value(key.line, format!("more than {BUDGETS_MAX} budgets")));
        }
        add_budget(budgets, parent, name, node, depth, calendar)
            .map_err(|fault| fault.within(name))?;
    }
    Ok(())
}

fn add_budget(
    budgets: &mut Vec<BudgetSpec>,
    parent: usize,
    name: &str,
    node: &Node,
    depth: usize,
    calendar: &Calendar,
) -> Result<(), Fault> {
    let path = match &*budgets[parent].path {
        "" => name.to_owned(),
        above => format!("{above}/{name}"),
    };
    let mut budget = BudgetSpec {
        name: name.to_owned(),
        path,
        parent: Some(parent),
        share_micro: 0,
        members: Vec::new(),
        limit_gpu_ms: None,
        terms: Vec::new(),
        is_leaf: true,
    };
    if let Value::Scalar(_) = node.value {
        // The short form, `a: 2` for `a: {share: 2}`.
        budget.share_micro = share(node)?;
        budgets.push(budget);
        return Ok(());
    }
    let block = Fields::of(node, &["share", "members", "limit", "terms", "children"])?;
    budget.share_micro = block.must("share", share)?;
    let members = block.opt("members", |node| list(node)?.iter().map(fields::name).collect())?;
    let members: Vec<&str> = members.unwrap_or_default();
    budget.members = members.into_iter().map(String::from).collect();
    budget.limit_gpu_ms =
        block.opt("limit", |node| decimal(node, 0, LIMIT_MAX))?.map(|hours| hours * GPU_HOUR_MS);
    budget.terms = block.opt("terms", |node| terms(node, calendar))?.unwrap_or_default();
    let index = budgets.len();
    budgets.push(budget);
    block.opt("children", |node| add_children(budgets, index, node, depth + 1, calendar))?;
    budgets[index].is_leaf = budgets.len() == index + 1;
    Ok(())
}

/// What dates mean in a scenario.
#[derive(Debug)]
pub(crate) struct Calendar {
    pub(crate) zone: TimeZone,
    /// The wall clock at moment 0, if it is said.
    pub(crate) begins: Option<Timestamp>,
}

/// For how long terms are laid out that come again and again: longer than any work waits.
const TERMS_DAYS: i64 = 10 * 366;

/// Reads the `terms:` of a budget.
fn terms(node: &Node, calendar: &Calendar) -> Result<Vec<TermSpec>, Fault> {
    let mut all = Vec::new();
    for (series, node) in (0..).zip(list(node)?) {
        let block = Fields::of(node, &["each", "from", "until", "limit", "carry_over"])?;
        let moment = |node: &Node| {
            let parsed = parse_moment(fields::text(node)?, &calendar.zone);
            parsed.map_err(|message| Fault::value(node.line, message))
        };
        let when = Recurrence {
            each: block.opt("each", |node| fields::word(node, &Each::WORDS))?,
            from: block.opt("from", moment)?,
            until: block.opt("until", moment)?,
        };
        let limit = block.must("limit", |node| decimal(node, 3, LIMIT_MAX))?;
        let carry_over = block.opt("carry_over", fields::flag)?.unwrap_or(false);
        let fault = |message: &str| Fault::value(node.line, message.to_owned());
        if when.each.is_none() && when.from.is_none() && when.until.is_none() {
            return Err(fault(
                "a term needs each, from or until; one that always holds is 'limit'",
            ));
        }
        if when.from.zip(when.until).is_some_and(|(from, until)| from >= until) {
            return Err(fault("until is not after from; it is the first moment that is not of it"));
        }
        if carry_over && when.each.is_none() {
            return Err(fault("carry_over needs each: no other term follows this one"));
        }
        let Some(begins) = calendar.begins else {
            let message = "terms need the wall clock at moment 0; give one such as settings: {begins: 2026-11-01}";
            return Err(fault(message));
        };
        let end = begins.checked_add(SignedDuration::from_hours(24 * TERMS_DAYS));
        let since = |at: Timestamp| {
            let ms = at.as_millisecond().saturating_sub(begins.as_millisecond());
            u64::try_from(ms).unwrap_or(0)
        };
        for (from, until) in when.spans(&calendar.zone, begins, end.unwrap_or(Timestamp::MAX)) {
            let until_ms = if until == Timestamp::MAX { u64::MAX } else { since(until) };
            // A GPU-hour has 3600 thousandths of a thousand GPU-milliseconds.
            let limit_gpu_ms = limit * (GPU_HOUR_MS / 1_000);
            all.push(TermSpec { series, from_ms: since(from), until_ms, limit_gpu_ms, carry_over });
        }
    }
    Ok(all)
}

/// A tree of names.
#[derive(Default)]
struct Names<'a>(BTreeMap<&'a str, Names<'a>>);

impl Names<'_> {
    /// The block that a person would write for it.
    fn block(&self, line: usize) -> Node {
        let key = |text: &str| Key { line, text: text.into() };
        let entry = |(name, below): (&&str, &Names<'_>)| {
            let share = Node { line, value: Value::Scalar("1".into()) };
            let block = vec![(key("share"), share), (key("children"), below.block(line))];
            (key(name), Node { line, value: Value::Map(block) })
        };
        Node { line, value: Value::Map(self.0.iter().map(entry).collect()) }
    }
}

/// The tree that has these paths as its leaves, as if it had been written.
fn tree_of(paths: &BTreeSet<&str>, line: usize) -> Result<Node, String> {
    let mut root = Names::default();
    for path in paths {
        if path.split('/').count() > DEPTH_MAX {
            return Err(format!("auto: {} nests deeper than {DEPTH_MAX} levels", quote(path)));
        }
        for (end, _) in path.match_indices('/') {
            if paths.contains(&path[..end]) {
                let inner = quote(&path[..end]);
                return Err(format!(
                    "auto: jobs name both {inner} and {}; name leaves",
                    quote(path)
                ));
            }
        }
        let mut at = &mut root;
        for part in path.split('/') {
            at = at.0.entry(part).or_default();
        }
    }
    Ok(root.block(line))
}

fn share(node: &Node) -> Result<u64, Fault> {
    decimal(node, 6, SHARE_MAX)
}

/// Reads `budget_changes:`, sorted by time.
pub(crate) fn read_changes(
    node: &Node,
    budgets: &[BudgetSpec],
) -> Result<Vec<BudgetChange>, Fault> {
    let by_path: BTreeMap<&str, usize> =
        (1..).zip(&budgets[1..]).map(|(index, budget)| (&*budget.path, index)).collect();
    let mut changes = Vec::new();
    for (index, item) in list(node)?.iter().enumerate() {
        let read = || {
            let block = Fields::of(item, &["at", "budget", "share"])?;
            let at_ms = block.must("at", duration)?;
            let budget = block.must("budget", |node| {
                let path = fields::text(node)?;
                by_path.get(path).copied().ok_or_else(|| {
                    let message = unknown(budgets, path, |_| true);
                    Fault::new(ErrorKind::UnknownName, node.line, message)
                })
            })?;
            Ok(BudgetChange { at_ms, budget, share_micro: block.must("share", share)? })
        };
        let change = read().map_err(|f: Fault| f.within(&format!("budget_changes[{index}]")))?;
        changes.push(change);
    }
    changes.sort_by_key(|change| change.at_ms);
    Ok(changes)
}

/// Why there is no leaf with this path. Looks through all budgets: for errors that are shown.
pub(crate) fn no_leaf(budgets: &[BudgetSpec], path: &str) -> String {
    let inner = budgets.iter().skip(1).position(|budget| budget.path == path);
    let Some(inner) = inner else { return unknown(budgets, path, |budget| budget.is_leaf) };
    let children = budgets.iter().filter(|budget| budget.parent == Some(inner + 1));
    let children = some_of(children.map(|budget| &*budget.path));
    format!("{} is divided among {children}; name a leaf", quote(path))
}

/// Says that no budget has this path. Whoever writes only the last part of a path means that one.
fn unknown(budgets: &[BudgetSpec], path: &str, wanted: impl Fn(&BudgetSpec) -> bool) -> String {
    let candidates = || budgets.iter().skip(1).filter(|budget| wanted(budget));
    let near = candidates()
        .find(|budget| budget.name == path)
        .map(|budget| &*budget.path)
        .or_else(|| nearest(path, candidates().map(|budget| &*budget.path)));
    let near = quote(near.unwrap_or_default());
    format!("there is no budget {}; the nearest is {near}", quote(path))
}

/// For each budget the sum of its children's shares.
pub(crate) fn shares_below(budgets: &[BudgetSpec]) -> Vec<u128> {
    let mut sums = vec![0; budgets.len()];
    for budget in budgets {
        if let Some(parent) = budget.parent {
            sums[parent] += u128::from(budget.share_micro);
        }
    }
    sums
}

/// Share among siblings over the whole path, as a fraction of everything; `sums` are the [`shares_below`].
/// For generators only: the core has its own, exact one.
pub(crate) fn fraction(budgets: &[BudgetSpec], sums: &[u128], leaf: usize) -> f64 {
    let mut fraction = 1.0;
    let mut at = leaf;
    while let Some(parent) = budgets[at].parent {
        if sums[parent] == 0 {
            return 0.0;
        }
        fraction *= budgets[at].share_micro as f64 / sums[parent] as f64;
        at = parent;
    }
    fraction
}

/// For each budget whether its contracts are charged whenever they start (rule 1): it has no hard limit on its
/// path, and however shares change, its fraction is never rounded to 0.
pub(crate) fn is_always_charged(budgets: &[BudgetSpec], changes: &[BudgetChange]) -> Vec<bool> {
    /// The common denominator of fractions in the core.
    const WHOLE: u128 = 1 << 32;
    // The least and the largest share that each ever has.
    let mut shares: Vec<(u128, u128)> =
        budgets.iter().map(|b| (u128::from(b.share_micro), u128::from(b.share_micro))).collect();
    for change in changes {
        let (least, most) = &mut shares[change.budget];
        *least = u128::from(change.share_micro).min(*least);
        *most = u128::from(change.share_micro).max(*most);
    }
    let mut siblings = vec![0; budgets.len()];
    for (budget, share) in budgets.iter().zip(&shares) {
        if let Some(parent) = budget.parent {
            siblings[parent] += share.1;
        }
    }
    // A lower bound of each fraction, in parts of the square of the denominator.
    let mut fractions = vec![WHOLE * WHOLE; budgets.len()];
    for (index, budget) in budgets.iter().enumerate() {
        if let Some(parent) = budget.parent {
            let (least, most) = shares[index];
            let all = siblings[parent] - most + least;
            fractions[index] = (fractions[parent] * least).checked_div(all).unwrap_or(0);
        }
        if budget.limit_gpu_ms.is_some() || !budget.terms.is_empty() {
            fractions[index] = 0;
        }
    }
    fractions.into_iter().map(|fraction| fraction >= WHOLE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml;

    const CALENDAR: Calendar = Calendar { zone: TimeZone::UTC, begins: None };

    #[test]
    fn the_tree_is_laid_out_parents_first_and_siblings_by_name() {
        let text =
            "z: 1\na: {share: 0.5, limit: 10, members: [u], children: {d: {share: 0}, c: 2}}\n";
        let budgets = read(&yaml::parse(text).unwrap(), [].into_iter(), &CALENDAR).unwrap();
        let flat: Vec<_> =
            budgets.iter().map(|b| (&*b.path, b.parent, b.share_micro, b.is_leaf)).collect();
        let want = [
            ("", None, 1_000_000, false),
            ("a", Some(0), 500_000, false),
            ("a/c", Some(1), 2_000_000, true),
            ("a/d", Some(1), 0, true),
            ("z", Some(0), 1_000_000, true),
        ];
        assert_eq!(flat, want);
        assert_eq!(budgets[1].limit_gpu_ms, Some(36_000_000));
        assert_eq!(budgets[1].members, ["u"]);
        let sums = shares_below(&budgets);
        assert!((fraction(&budgets, &sums, 2) - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(fraction(&budgets, &sums, 3), 0.0);
    }

    #[test]
    fn auto_makes_leaves_of_the_paths_that_traces_name() {
        let node = yaml::parse("auto").unwrap();
        let auto = |paths: &[&'static str]| read(&node, paths.iter().copied(), &CALENDAR);
        let budgets = auto(&["b", "a/y", "a/x", "a/y"]).unwrap();
        let flat: Vec<_> = budgets.iter().map(|b| (&*b.path, b.parent, b.is_leaf)).collect();
        let want = [
            ("", None, false),
            ("a", Some(0), false),
            ("a/x", Some(1), true),
            ("a/y", Some(1), true),
            ("b", Some(0), true),
        ];
        assert_eq!(flat, want);
        for bad in [&["a", "a/x"][..], &["a/x", "a"], &["a//b"], &["/"], &[], &["a", "a-b", "a/b"]]
        {
            assert!(auto(bad).is_err(), "{bad:?}");
        }
        assert!(auto(&["/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q"]).is_err());
    }

    #[test]
    fn what_is_always_charged_is_never_unfunded_or_limited() {
        let text = "a: {share: 1, children: {x: 0, y: 0.000001, z: 2}}\nb: {share: 1, limit: 5, \
                    children: {x: 1}}\nc: 4000\nd: 0.000001\n";
        let budgets = read(&yaml::parse(text).unwrap(), [].into_iter(), &CALENDAR).unwrap();
        let of = |changes: &[(usize, u64)]| {
            let changes: Vec<BudgetChange> = changes
                .iter()
                .map(|&(budget, share_micro)| BudgetChange { at_ms: 1, budget, share_micro })
                .collect();
            let all = budgets.iter().zip(is_always_charged(&budgets, &changes));
            all.filter(|(_, is)| *is).map(|(budget, _)| &*budget.path).collect::<Vec<_>>()
        };
        // d holds a part in four billion, which is one step; a/y half a part of 2,000,000 of a's.
        assert_eq!(of(&[]), ["", "a", "a/z", "c", "d"]);
        assert_eq!(of(&[(1, 0)]), ["", "c", "d"]);
        let c = budgets.iter().position(|budget| budget.path == "c").unwrap();
        assert_eq!(of(&[(c, 5_000_000_000)]), ["", "a", "a/z", "c"]);
    }

    #[test]
    fn what_is_no_leaf_is_explained() {
        let budgets = read(
            &yaml::parse("p: {share: 1, children: {p1: 1, p2: 1}}").unwrap(),
            [].into_iter(),
            &CALENDAR,
        );
        let budgets = budgets.unwrap();
        let inner = no_leaf(&budgets, "p");
        assert_eq!(inner, "'p' is divided among p/p1, p/p2; name a leaf");
        let last = no_leaf(&budgets, "p2");
        assert_eq!(last, "there is no budget 'p2'; the nearest is 'p/p2'");
        assert_eq!(no_leaf(&budgets, ""), "there is no budget ''; the nearest is 'p/p1'");
    }

    #[test]
    fn terms_are_laid_out_in_the_labs_time() {
        let zone = bursar_trace::time_zone("Europe/Zurich").unwrap();
        let begins = Some("2026-10-20T12:00:00Z".parse().unwrap());
        let calendar = Calendar { zone, begins };
        let read = |terms: &str| {
            let text = format!("p: {{share: 1, terms: [{terms}]}}");
            let read = read(&yaml::parse(&text).unwrap(), [].into_iter(), &calendar);
            read.map(|mut budgets| budgets.remove(1).terms)
        };
        let hour = GPU_HOUR_MS;
        let days = read("{each: day, limit: 2.5, carry_over: true}").unwrap();
        assert_eq!(days.len(), 3_661);
        let first = TermSpec {
            series: 0,
            from_ms: 0,
            until_ms: 10 * hour,
            limit_gpu_ms: 9_000_000,
            carry_over: true,
        };
        assert_eq!(days[0], first);
        // Clocks go back on 25 October.
        let lengths: Vec<u64> =
            days[1..7].iter().map(|term| (term.until_ms - term.from_ms) / hour).collect();
        assert_eq!(lengths, [24, 24, 24, 24, 25, 24]);
        let two =
            read("{from: 2026-10-21, until: 2026-10-22, limit: 1}, {until: 2026-11-01, limit: 9}");
        let spans: Vec<(u32, u64, u64)> =
            two.unwrap().iter().map(|t| (t.series, t.from_ms / hour, t.until_ms / hour)).collect();
        assert_eq!(spans, [(0, 10, 34), (1, 0, 275)]);
        let open = read("{from: 2026-10-21, limit: 1}").unwrap();
        assert_eq!((open[0].from_ms, open[0].until_ms), (10 * hour, u64::MAX));
    }

    #[test]
    fn bad_terms_say_what_they_need() {
        let begins = Some("2026-10-20T12:00:00Z".parse().unwrap());
        let refused = |terms: &str, begins| {
            let calendar = Calendar { zone: TimeZone::UTC, begins };
            let text = format!("p: {{share: 1, terms: [{terms}]}}");
            let read = read(&yaml::parse(&text).unwrap(), [].into_iter(), &calendar);
            read.unwrap_err().into_error("s").to_string()
        };
        let table = [
            ("{limit: 1}", "a term needs each, from or until"),
            ("{each: day}", "'limit' is missing"),
            ("{each: fortnight, limit: 1}", "'fortnight'"),
            ("{from: 2026-11-02, until: 2026-11-02, limit: 1}", "until is not after from"),
            ("{from: soon, limit: 1}", "'soon' is no day or moment"),
            ("{until: 2026-11-02, limit: 1, carry_over: true}", "carry_over needs each"),
            ("{each: day, limit: 1, carryover: true}", "'carry_over'"),
        ];
        for (terms, want) in table {
            let said = refused(terms, begins);
            assert!(said.contains(want), "{terms}: {said}");
        }
        assert!(refused("{each: day, limit: 1}", None).contains("settings: {begins: 2026-11-01}"));
    }
}
