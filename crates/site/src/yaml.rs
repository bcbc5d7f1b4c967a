//! Reading what people write as YAML, and telling them what is wrong with it: the line, the field, its value and
//! what would do instead.
//!
//! Absent on purpose: what the reader's library says about itself. Its advice is for who programs.

use crate::plain::{line, shortened};
use serde::de::DeserializeOwned;
use serde_path_to_error::{Path, Segment};
use serde_saphyr::{Error, Options};

/// Reads a text of YAML.
///
/// # Errors
/// One line that names the line, the field and the value.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    read_with(text, Options::default())
}

/// Reads a text of YAML within limits.
///
/// # Errors
/// One line that names the line, the field and the value.
pub fn read_with<T: DeserializeOwned>(text: &str, options: Options) -> Result<T, String> {
    let mut path = None;
    let read = serde_saphyr::with_deserializer_from_str_with_options(text, options, |reader| {
        serde_path_to_error::deserialize(reader).map_err(|error| {
            path = Some(error.path().clone());
            error.into_inner()
        })
    });
    read.map_err(|error| explain(text, path.as_ref(), error.without_snippet()))
}

/// Names a field of a document by its path, such as `workload.after[0].when`; empty for all of it.
#[must_use]
pub fn field(path: &Path) -> String {
    let mut name = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => name += &format!("[{index}]"),
            Segment::Map { key } | Segment::Enum { variant: key } => {
                if !name.is_empty() {
                    name.push('.');
                }
                name += &shortened(key);
            }
            Segment::Unknown => {}
        }
    }
    name
}

/// The path without a last part that is the key itself.
fn above<'a>(path: &'a str, key: &str) -> &'a str {
    let above = path.strip_suffix(&*shortened(key)).unwrap_or(path);
    above.strip_suffix('.').unwrap_or(above)
}

fn explain(text: &str, path: Option<&Path>, error: &Error) -> String {
    if let Error::AliasError { error, .. } = error {
        return explain(text, path, error);
    }
    let path_text = path.map(field).unwrap_or_default();
    let value = path.and_then(|path| value_at(text, path));
    let (place, what) = match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            let near = nearest(field, expected);
            let what =
                format!("unknown key '{}'; the nearest valid key is '{near}'", shortened(field));
            (above(&path_text, field).to_owned(), what)
        }
        Error::SerdeMissingField { field, .. } => {
            (path_text, format!("'{field}' is missing; it must be given"))
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            let what = format!("'{}' is not allowed; {}", shortened(variant), one_of(expected));
            (path_text, what)
        }
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or("the key");
            let what = format!("duplicate key '{}'; keep one of them", shortened(key));
            (above(&path_text, key).to_owned(), what)
        }
        Error::InvalidScalar { ty, .. } => (path_text, no_scalar(value.as_ref(), ty)),
        Error::InvalidBooleanStrict { .. } => (path_text, no_scalar(value.as_ref(), "boolean")),
        Error::Unexpected { expected, .. } => (path_text, not_so(value.as_ref(), expected)),
        Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } => {
            (path_text, not_so(value.as_ref(), expected))
        }
        Error::NullIntoString { .. } => (path_text, not_so(value.as_ref(), "string")),
        Error::Eof { .. } => (path_text, "the text is empty or ends too early".to_owned()),
        Error::MultipleDocuments { .. } => {
            (String::new(), "a second document begins here; only one is read".to_owned())
        }
        Error::Message { msg, .. } => (path_text, line(msg)),
        Error::ExternalMessage { msg, .. } => {
            (String::new(), format!("this is no valid YAML: {}", line(msg)))
        }
        other => (path_text, line(&bare(&other.to_string()))),
    };
    let at = error.location().map(|at| format!("line {}: ", at.line())).unwrap_or_default();
    let place = if place.is_empty() { place } else { format!("{place}: ") };
    format!("{at}{place}{what}")
}

/// What the library says of what it says seldom: its first sentence, without the place, which is told already.
fn bare(said: &str) -> String {
    let first = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("unreadable");
    let first = match first.strip_prefix("error: line ").and_then(|rest| rest.split_once(": ")) {
        Some((_, rest)) => rest,
        None => first,
    };
    first.split(", set ").next().unwrap_or(first).to_owned()
}

/// The known name that is nearest to one that is not known.
#[must_use]
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> &'a str {
    let name: String = name.chars().take(256).collect();
    let near = known.iter().min_by_key(|known| strsim::damerau_levenshtein(&name, known));
    near.copied().unwrap_or_default()
}

fn one_of(known: &[&str]) -> String {
    match known {
        [] => "nothing is".to_owned(),
        [only] => format!("write {only}"),
        [first @ .., last] => format!("write {} or {last}", first.join(", ")),
    }
}

/// What stands at a path, if the text can be read without knowing what it should be.
fn value_at(text: &str, path: &Path) -> Option<serde_json::Value> {
    let mut value: serde_json::Value = serde_saphyr::from_str(text).ok()?;
    for segment in path {
        value = match segment {
            Segment::Seq { index } => value.get_mut(*index)?.take(),
            Segment::Map { key } | Segment::Enum { variant: key } => value.get_mut(key)?.take(),
            Segment::Unknown => return None,
        };
    }
    Some(value)
}

/// A value as a sentence begins with it.
fn shown(value: Option<&serde_json::Value>) -> String {
    use serde_json::Value;
    match value {
        None => "it".to_owned(),
        Some(Value::Null) => "nothing".to_owned(),
        Some(Value::String(text)) => format!("'{}'", shortened(text)),
        Some(Value::Bool(_) | Value::Number(_)) => {
            format!("'{}'", value.expect("some").to_string().trim_matches('"'))
        }
        Some(Value::Array(_)) => "a list".to_owned(),
        Some(Value::Object(_)) => "a block of keys".to_owned(),
    }
}

/// A single value that is no number, or not one of the right size.
fn no_scalar(value: Option<&serde_json::Value>, kind: &str) -> String {
    let number = value.and_then(serde_json::Value::as_f64);
    let (what, such) = match kind {
        "boolean" => return format!("{} is neither true nor false", shown(value)),
        "floating point" | "f64" | "f32" => ("a number", "0.5"),
        _ => ("a whole number", "4"),
    };
    let most = match kind {
        "u8" => f64::from(u8::MAX),
        "u16" => f64::from(u16::MAX),
        "u32" => f64::from(u32::MAX),
        "i32" => f64::from(i32::MAX),
        _ => f64::INFINITY,
    };
    match number {
        Some(number) if number < 0.0 && kind.starts_with('u') => {
            format!("{} is below 0; give {what} such as {such}", shown(value))
        }
        Some(number) if number > most => {
            format!("{} is too large; give {what} up to {most}", shown(value))
        }
        _ => format!("{} is not {what}; give one such as {such}", shown(value)),
    }
}

/// Something of another kind than what is asked for.
fn not_so(value: Option<&serde_json::Value>, expected: &str) -> String {
    let wanted = match expected {
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i32" | "i64" | "an integer" => {
            return no_scalar(value, expected);
        }
        "f64" | "f32" => return no_scalar(value, "f64"),
        "a boolean" | "bool" => return no_scalar(value, "boolean"),
        "mapping start" | "map" | "a map" => "a block of keys".to_owned(),
        "sequence start" | "seq" | "a sequence" => "a list, such as [a, b]".to_owned(),
        "string scalar" | "scalar" | "string" | "a string" | "value" => "a text".to_owned(),
        other if other.starts_with("struct ") => "a block of keys".to_owned(),
        other => other.to_owned(),
    };
    format!("expected {wanted}, found {}", shown(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declare::WorkloadFile;

    fn said(text: &str) -> String {
        read::<WorkloadFile>(text).map(drop).expect_err(text)
    }

    #[test]
    fn line_field_value_and_what_is_allowed() {
        let base = "workload:\n  name: w\n  budget_owner: a\n  command: [x]\n";
        for (rest, want) in [
            ("gpus: two", "line 5: workload.gpus: 'two' is not a whole number; give one such as 4"),
            ("gpus: -1", "line 5: workload.gpus: '-1' is below 0; give a whole number such as 4"),
            (
                "gpus: 99999999999",
                "line 5: workload.gpus: '99999999999' is too large; give a whole number up to 4294967295",
            ),
            ("gpus: [1]", "line 5: workload.gpus: expected a text, found a list"),
            ("gpsu: 1", "line 5: workload: unknown key 'gpsu'; the nearest valid key is 'gpus'"),
            ("gpus: 1\n  gpus: 2", "line 6: workload: duplicate key 'gpus'; keep one of them"),
            (
                "gpus: 1\n  kind: bach",
                "line 6: workload.kind: 'bach' is not allowed; write batch or session",
            ),
            (
                "gpus: 1\n  resumable: perhaps",
                "line 6: workload.resumable: 'perhaps' is neither true nor false",
            ),
            (
                "gpus: 1\n  env: here",
                "line 6: workload.env: expected a block of keys, found 'here'",
            ),
            (
                "gpus: 1\n  after: 7",
                "line 6: workload.after: expected a list, such as [a, b], found '7'",
            ),
            (
                "gpus: 1\n  after: [{workload: x}]",
                "line 6: workload.after[0].workload: 'x' is not a whole number; give one such as 4",
            ),
            (
                "gpus: 1\n  after: [{workload: 1, when: maybe}]",
                "line 6: workload.after[0].when: 'maybe' is not allowed; write ok or any",
            ),
            ("gpus: 1\n  min_runtime: soon", "line 6: workload.min_runtime: 'soon'"),
            ("gpus: 1\n  memory: lots", "line 6: workload.memory: 'lots' is not an amount"),
        ] {
            let said = said(&format!("{base}  {rest}\n"));
            assert!(said.starts_with(want), "{rest}: {said}");
        }
    }

    #[test]
    fn whole_files_that_are_none() {
        for (text, want) in [
            ("", "empty"),
            ("job: {}", "unknown key 'job'; the nearest valid key is 'workload'"),
            ("workload: {name: w", "no valid YAML"),
            ("workload: 7", "workload: expected a block of keys, found '7'"),
            ("just words", "expected a block of keys, found 'just words'"),
            ("workload: {name: w, gpus: 1}", "workload: 'budget_owner' is missing"),
            ("workload: {name: w}\n---\nworkload: {}", "is missing"),
        ] {
            let said = said(text);
            assert!(said.contains(want), "{text}: {said}");
            assert!(!said.contains('\n') && !said.contains("Policy"), "{said}");
        }
        let long = format!("workload: {{{}: 1}}", "long words ".repeat(50));
        let said = said(&long);
        assert!(said.contains("long words…'"), "{said}");
    }
}
