//! From nodes to values: blocks of known keys, and the few forms that single values have.
//!
//! Every reader here takes a node and says what is wrong in terms of what the user wrote; the block
//! that it stands in adds the key. Amounts are exact: decimals become integers of the last digit.

use std::collections::BTreeMap;

use crate::error::{ErrorKind, Fault, nearest, quote};
use crate::yaml::{Key, Node, Value};

pub(crate) use bursar_trace::{SPAN_MS_MAX as TIME_MAX_MS, parse_duration_ms as parse_duration};

/// A block whose keys are all known and stand there once.
pub(crate) struct Fields<'a> {
    pub(crate) line: usize,
    entries: Vec<(&'a Key, &'a Node)>,
}

impl<'a> Fields<'a> {
    /// Checks that `node` is a block of some of the `known` keys.
    pub(crate) fn of(node: &'a Node, known: &[&str]) -> Result<Self, Fault> {
        let Value::Map(pairs) = &node.value else {
            let message =
                format!("expected a block of keys ({}), found {}", known.join(", "), node.what());
            return Err(Fault::value(node.line, message));
        };
        let mut entries: Vec<(&Key, &Node)> = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            if !known.contains(&&*key.text) {
                return Err(unknown_key(key, known));
            }
            if let Some((first, _)) = entries.iter().find(|(present, _)| present.text == key.text) {
                return Err(duplicate("key", key, first.line));
            }
            entries.push((key, value));
        }
        Ok(Self { line: node.line, entries })
    }

    /// The value of `key`; nothing (`key:` alone) counts as absent.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Node> {
        self.entries
            .iter()
            .find(|(present, node)| &*present.text == key && node.value != Value::Null)
            .map(|(_, node)| *node)
    }

    /// Reads `key` when it is there.
    pub(crate) fn opt<T>(
        &self,
        key: &str,
        read: impl FnOnce(&'a Node) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        self.get(key).map(|node| read(node).map_err(|fault| fault.within(key))).transpose()
    }

    /// Reads `key`, which must be there.
    pub(crate) fn must<T>(
        &self,
        key: &str,
        read: impl FnOnce(&'a Node) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.opt(key, read)?.ok_or_else(|| self.missing(key))
    }

    pub(crate) fn missing(&self, key: &str) -> Fault {
        Fault::new(ErrorKind::Missing, self.line, format!("'{key}' is missing"))
    }
}

fn unknown_key(key: &Key, known: &[&str]) -> Fault {
    let near = nearest(&key.text, known.iter().copied()).unwrap_or_default();
    let message = format!("unknown key {}; the nearest valid key is '{near}'", quote(&key.text));
    Fault::new(ErrorKind::UnknownKey, key.line, message)
}

fn duplicate(what: &str, key: &Key, first: usize) -> Fault {
    let message = format!("duplicate {what} {}, first on line {first}", quote(&key.text));
    Fault::new(ErrorKind::Duplicate, key.line, message)
}

/// A block whose keys are names of the user's own, each there once; `what` they name.
pub(crate) fn named<'a>(node: &'a Node, what: &str) -> Result<Vec<(&'a Key, &'a Node)>, Fault> {
    let Value::Map(pairs) = &node.value else {
        let message = format!("expected a block with one key per {what}, found {}", node.what());
        return Err(Fault::value(node.line, message));
    };
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (key, _) in pairs {
        if let Some(first) = seen.insert(&key.text, key.line) {
            return Err(duplicate(what, key, first));
        }
    }
    Ok(pairs.iter().map(|(key, value)| (key, value)).collect())
}

/// A list.
pub(crate) fn list(node: &Node) -> Result<&[Node], Fault> {
    match &node.value {
        Value::List(items) => Ok(items),
        Value::Null | Value::Scalar(_) | Value::Map(_) => {
            Err(Fault::value(node.line, format!("expected a list, found {}", node.what())))
        }
    }
}

/// A single value, as written.
pub(crate) fn text(node: &Node) -> Result<&str, Fault> {
    match &node.value {
        Value::Scalar(text) => Ok(text),
        Value::Null | Value::List(_) | Value::Map(_) => {
            Err(Fault::value(node.line, format!("expected a single value, found {}", node.what())))
        }
    }
}

/// A name: not empty, without control characters, not endless, no blanks around it.
pub(crate) fn name(node: &Node) -> Result<&str, Fault> {
    let text = text(node)?;
    check_name(text).map_err(|message| Fault::value(node.line, message))?;
    Ok(text)
}

/// The rule behind [`name`].
pub(crate) fn check_name(text: &str) -> Result<(), String> {
    const LONGEST: usize = 256;
    if text.is_empty() {
        Err("a name must not be empty".into())
    } else if text.chars().any(char::is_control) {
        Err(format!("{} has a control character in it", quote(text)))
    } else if text.len() > LONGEST {
        Err(format!("{} is longer than {LONGEST} bytes", quote(text)))
    } else if text.trim() != text {
        Err(format!("{} begins or ends with a blank", quote(text)))
    } else {
        Ok(())
    }
}

/// `true` or `false`.
pub(crate) fn flag(node: &Node) -> Result<bool, Fault> {
    match text(node)? {
        "true" => Ok(true),
        "false" => Ok(false),
        other => {
            Err(Fault::value(node.line, format!("{} is neither true nor false", quote(other))))
        }
    }
}

/// One of a few words.
pub(crate) fn word<T: Copy>(node: &Node, words: &[(&str, T)]) -> Result<T, Fault> {
    let given = text(node)?;
    match words.iter().find(|(word, _)| *word == given) {
        Some((_, value)) => Ok(*value),
        None => {
            let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let message = format!("{} is not one of {}", quote(given), all.join(", "));
            Err(Fault::value(node.line, message))
        }
    }
}

/// A whole number between `least` and `most`.
pub(crate) fn whole(node: &Node, least: u64, most: u64) -> Result<u64, Fault> {
    let given = text(node)?;
    parse_whole(given, least, most).map_err(|message| Fault::value(node.line, message))
}

/// A whole number between `least` and `most` that fits 32 bits.
pub(crate) fn whole_u32(node: &Node, least: u32, most: u32) -> Result<u32, Fault> {
    let number = whole(node, least.into(), most.into())?;
    u32::try_from(number).map_err(|_| Fault::value(node.line, format!("{number} is too large")))
}

/// The rule behind [`whole`].
pub(crate) fn parse_whole(given: &str, least: u64, most: u64) -> Result<u64, String> {
    if given.is_empty() || !given.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(not_a_number(given, "a whole number"));
    }
    match given.parse::<u64>() {
        Ok(number) if number < least && least == 1 => {
            Err(format!("{number} is not allowed; give at least 1"))
        }
        Ok(number) if number < least => Err(format!("{number} is too small; the least is {least}")),
        Ok(number) if number <= most => Ok(number),
        Ok(_) | Err(_) => Err(format!("{given:.40} is too large; the most is {most}")),
    }
}

/// A decimal with at most `places` digits behind the point, as an integer of the last digit.
pub(crate) fn decimal(node: &Node, places: u32, most: u64) -> Result<u64, Fault> {
    let given = text(node)?;
    parse_decimal(given, places, most).map_err(|message| Fault::value(node.line, message))
}

/// The rule behind [`decimal`]; `most` is in whole units.
pub(crate) fn parse_decimal(given: &str, places: u32, most: u64) -> Result<u64, String> {
    let (front, back) = given.split_once('.').unwrap_or((given, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if (front.is_empty() && back.is_empty()) || !digits(front) || !digits(back) {
        return Err(not_a_number(given, "a number"));
    }
    let back = back.trim_end_matches('0');
    let spare = match u32::try_from(back.len()) {
        Ok(length) if length <= places => places - length,
        Ok(_) | Err(_) => {
            return Err(format!("{given:.40} has more than {places} digits behind the point"));
        }
    };
    let too_large = || format!("{given:.40} is too large; the most is {most}");
    let part = |part: &str| if part.is_empty() { Ok(0) } else { part.parse::<u64>() };
    let front = part(front).map_err(|_| too_large())?;
    let back = part(back).map_err(|_| too_large())?;
    let unit = 10_u64.pow(places);
    let amount = front.checked_mul(unit).and_then(|n| n.checked_add(back * 10_u64.pow(spare)));
    match amount {
        Some(amount) if amount <= most.saturating_mul(unit) => Ok(amount),
        Some(_) | None => Err(too_large()),
    }
}

/// Why a text is not the number that it should be.
fn not_a_number(given: &str, wanted: &str) -> String {
    let lower = given.to_ascii_lowercase();
    let bare = lower.trim_start_matches(['+', '-', '.']);
    if bare == "nan" || bare == "inf" || bare == "infinity" {
        format!("{} is not finite", quote(given))
    } else if given.starts_with('-') && bare.starts_with(|c: char| c.is_ascii_digit()) {
        format!("{} is negative", quote(given))
    } else {
        format!("{} is not {wanted}", quote(given))
    }
}

/// A time or a length of time, in milliseconds.
pub(crate) fn duration(node: &Node) -> Result<u64, Fault> {
    let given = text(node)?;
    parse_duration(given).map_err(|message| Fault::value(node.line, message))
}

/// A length of time above 0.
pub(crate) fn duration_positive(node: &Node) -> Result<u64, Fault> {
    match duration(node)? {
        0 => Err(Fault::value(node.line, "0 is not allowed; give a time above 0")),
        ms => Ok(ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        for (given, want) in [("0", 0), ("1", 1_000_000), ("0.1", 100_000), (".5", 500_000)] {
            assert_eq!(parse_decimal(given, 6, 10), Ok(want), "{given}");
        }
        assert_eq!(parse_decimal("2.50000000", 6, 10), Ok(2_500_000));
        let refused = [
            ("", "'' is not a number"),
            (".", "'.' is not a number"),
            ("1e3", "'1e3' is not a number"),
            ("-1", "'-1' is negative"),
            (".nan", "'.nan' is not finite"),
            ("-.inf", "'-.inf' is not finite"),
            ("0.1234567", "0.1234567 has more than 6 digits behind the point"),
            ("10.000001", "10.000001 is too large; the most is 10"),
            ("99999999999999999999999", "99999999999999999999999 is too large; the most is 10"),
        ];
        for (given, want) in refused {
            assert_eq!(parse_decimal(given, 6, 10), Err(want.into()), "{given}");
        }
    }
}
