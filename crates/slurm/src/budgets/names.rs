//! Names and paths of budgets.

use super::Siblings;

/// The most letters of a budget's name.
const NAME_CHARS_MAX: usize = 64;

/// The path of a budget below another.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

/// A few names, and how many more there are.
pub(super) fn some_of<'a>(people: impl Iterator<Item = &'a str>) -> String {
    let people: Vec<&str> = people.collect();
    match people.len() {
        0..=5 => people.join(", "),
        many => format!("{} and {} others", people[..4].join(", "), many - 4),
    }
}

/// A name that a budget can have: what cannot stand in one becomes `-`.
pub(super) fn budget_name(text: &str) -> String {
    let fit = |one: char| {
        let fits = one.is_ascii_alphanumeric() || matches!(one, '-' | '_' | '.' | '@');
        if fits { one } else { '-' }
    };
    let name: String = text.chars().take(NAME_CHARS_MAX).map(fit).collect();
    match name.trim_start_matches(['.', '-']) {
        "" => "account".to_owned(),
        name => name.to_owned(),
    }
}

/// A name like the wanted one that no sibling has.
pub(super) fn unique(wanted: &str, siblings: &Siblings) -> String {
    let base = budget_name(wanted);
    let short: String = base.chars().take(NAME_CHARS_MAX - 8).collect();
    let others = (2_u64..).map(|number| format!("{short}-{number}"));
    let mut candidates = std::iter::once(base).chain(others);
    candidates.find(|name| !siblings.contains_key(name)).unwrap_or_default()
}

/// Where the name of an account leads by itself: to the budget of that path, else to the only leaf of that name.
pub(super) fn leads_to(budgets: &Siblings, account: &str) -> Option<String> {
    fn leaves(budgets: &Siblings, path: &str, name: &str, found: &mut Vec<String>) {
        for (own, budget) in budgets {
            let whole = join(path, own);
            if budget.children.is_empty() && own == name {
                found.push(whole.clone());
            }
            leaves(&budget.children, &whole, name, found);
        }
    }
    if budgets.contains_key(account) {
        return Some(account.to_owned());
    }
    let mut found = Vec::new();
    leaves(budgets, "", account, &mut found);
    if found.len() == 1 { found.pop() } else { None }
}
