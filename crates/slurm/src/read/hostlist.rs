//! Lists of nodes: `n[1-3,07],login`, `rack[0-1]n[1-2]`.

use super::table::{Unreadable, present};

/// Most nodes that a list may stand for; more is no list of a cluster.
const NODES_MAX: usize = 100_000;

/// The names that a list stands for, in its order. None stands for an empty list.
///
/// # Errors
///
/// If it is no list.
pub fn expand(text: &str) -> Result<Vec<String>, Unreadable> {
    let bad = |why: &str| {
        let shown: String = text.chars().take(80).flat_map(char::escape_default).collect();
        Unreadable(format!("'{shown}' is no list of nodes: {why}"))
    };
    let Some(list) = present(text) else { return Ok(Vec::new()) };
    let mut names = Vec::new();
    for item in items(list).ok_or_else(|| bad("its brackets do not match"))? {
        if item.is_empty() {
            return Err(bad("a name is empty"));
        }
        names.extend(one(item).map_err(bad)?);
        if names.len() > NODES_MAX {
            return Err(bad("it is too long"));
        }
    }
    Ok(names)
}

/// The parts between the commas outside brackets.
fn items(text: &str) -> Option<Vec<&str>> {
    let (mut found, mut from, mut inside) = (Vec::new(), 0, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '[' if inside => return None,
            ']' if !inside => return None,
            '[' => inside = true,
            ']' => inside = false,
            ',' if !inside => {
                found.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    found.push(&text[from..]);
    (!inside).then_some(found)
}

/// The names of one item, which may have several brackets.
fn one(item: &str) -> Result<Vec<String>, &'static str> {
    let mut names = vec![String::new()];
    let mut rest = item;
    while let Some((before, after)) = rest.split_once('[') {
        let (ranges, after) = after.split_once(']').ok_or("its brackets do not match")?;
        let numbers = numbers(ranges)?;
        if names.len().saturating_mul(numbers.len()) > NODES_MAX {
            return Err("it is too long");
        }
        names = names
            .iter()
            .flat_map(|name| numbers.iter().map(move |number| format!("{name}{before}{number}")))
            .collect();
        rest = after;
    }
    for name in &mut names {
        name.push_str(rest);
    }
    Ok(names)
}

/// The numbers of a bracket, with their leading zeros: `1-3,07`.
fn numbers(ranges: &str) -> Result<Vec<String>, &'static str> {
    let mut found = Vec::new();
    for range in ranges.split(',') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|one| one.is_ascii_digit());
        if !digits(from) || !digits(to) {
            return Err("a range is not of numbers");
        }
        let width = from.len();
        let number = |text: &str| text.parse::<u64>().map_err(|_| "a number is too large");
        let (from, to) = (number(from)?, number(to)?);
        if to < from || to - from >= NODES_MAX as u64 {
            return Err("a range is empty or too long");
        }
        found.extend((from..=to).map(|number| format!("{number:0width$}")));
        if found.len() > NODES_MAX {
            return Err("it is too long");
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_are_expanded() {
        let expanded = |text: &str| expand(text).unwrap().join(" ");
        assert_eq!(expanded("n1"), "n1");
        assert_eq!(expanded("n[1-3,7]"), "n1 n2 n3 n7");
        assert_eq!(expanded("n[08-11],login"), "n08 n09 n10 n11 login");
        assert_eq!(expanded("r[0-1]n[1-2]-ib"), "r0n1-ib r0n2-ib r1n1-ib r1n2-ib");
        assert_eq!(expanded("(null)"), "");
        assert_eq!(expanded("None assigned"), "");
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let bad = [
            "n[1-",
            "n1]",
            "n[[1]]",
            "n[a-b]",
            "n[3-1]",
            "n1,,n2",
            "n[]",
            "n[1-99999999]",
            "n[1-999][1-999]",
            "n[1-18446744073709551616]",
        ];
        for bad in bad {
            assert!(expand(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*", odd in r"[n0-9\[\],-]{0,30}") {
            let _ = (expand(&text), expand(&odd));
        }
    }
}
