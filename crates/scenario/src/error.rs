//! The one error type of this crate, and the working form it has while it climbs out of the parser.
//!
//! A [`Fault`] knows its place and collects path labels on the way up (`workloads[3] 'run-7'`), so
//! that labels cost nothing while all is well. [`ScenarioError`] is what callers see: one line,
//! always, whatever characters the input held.

use std::borrow::Cow;
use std::fmt;

use bursar_trace::one_line;

/// What sort of mistake a [`ScenarioError`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file could not be read.
    Io,
    /// The text is not YAML, or uses what this crate bounds or refuses (tags, cycles, depth).
    Syntax,
    /// A key that has no meaning where it stands.
    UnknownKey,
    /// A key, name or id that stands there twice.
    Duplicate,
    /// Something required is not there.
    Missing,
    /// A value of the wrong form or out of its range.
    Value,
    /// A name (of a budget, a host, a GPU model) that nothing else declares.
    UnknownName,
    /// A trace file named by the scenario could not be used.
    Trace,
}

/// Why a scenario was refused. Displays as one line that names the file, the line and the thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// The sort of mistake.
    pub kind: ErrorKind,
    /// The name of the scenario, as given by the caller.
    pub name: String,
    /// The line in the scenario, counted from 1, when the mistake is at one.
    pub line: Option<usize>,
    /// What is wrong, without file and line.
    pub message: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(&self.name))?;
        if let Some(line) = self.line {
            write!(f, " line {line}")?;
        }
        write!(f, ": {}", one_line(&self.message))
    }
}

impl std::error::Error for ScenarioError {}

/// Where in the input a fault lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A line of the scenario, counted from 1.
    Line(usize),
    /// An override (`--set`) or the scenario as a whole.
    Whole,
}

/// An error under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: ErrorKind,
    pub(crate) place: Place,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn new(kind: ErrorKind, line: usize, message: impl Into<String>) -> Self {
        Self { kind, place: Place::Line(line), message: message.into() }
    }

    pub(crate) fn whole(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, place: Place::Whole, message: message.into() }
    }

    pub(crate) fn value(line: usize, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Value, line, message)
    }

    /// The same fault, said to lie within `label`.
    pub(crate) fn within(mut self, label: &str) -> Self {
        self.message = format!("{label}: {}", self.message);
        self
    }

    /// The fault as callers see it, which is one line whatever the input held: see `Display`.
    pub(crate) fn into_error(self, name: &str) -> ScenarioError {
        ScenarioError {
            kind: self.kind,
            name: name.to_owned(),
            line: match self.place {
                Place::Line(line) => Some(line),
                Place::Whole => None,
            },
            message: self.message,
        }
    }
}

/// A user's text in quotes, cut when long: an error line is for reading.
pub(crate) fn quote(text: &str) -> String {
    format!("'{}'", cut(text))
}

fn cut(text: &str) -> Cow<'_, str> {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// Names as a list for people: the first ones, and how many more there are.
pub(crate) fn some_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const LISTED_MAX: usize = 8;
    let mut names = names.peekable();
    let mut shown: Vec<String> = Vec::new();
    while shown.len() < LISTED_MAX && names.peek().is_some() {
        shown.extend(names.next().map(|name| cut(name).into_owned()));
    }
    match names.count() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The candidate nearest to `given` by Damerau-Levenshtein distance; the first of equals.
pub(crate) fn nearest<'a>(
    given: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    // Distances cost the product of both lengths; no name that is worth comparing is longer.
    const LONGEST: usize = 256;
    let given: String = given.chars().take(LONGEST).collect();
    candidates
        .filter(|candidate| candidate.len() <= LONGEST)
        .min_by_key(|candidate| strsim::osa_distance(&given, candidate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_whatever_it_quotes() {
        let fault = Fault::value(7, format!("gpus: {} is wrong", quote("a\nb\u{2028}\x1b[31m")));
        let text = fault.within("workloads[0] 'x\ry'").into_error("a\nb.yaml").to_string();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.starts_with("a\\u{a}b.yaml line 7: workloads[0] 'x\\u{d}y': gpus: 'a\\u{a}b"));
    }

    #[test]
    fn the_nearest_key_swallows_a_swap_of_neighbours() {
        let keys = ["gpus", "user", "runtime"];
        assert_eq!(nearest("gpsu", keys.into_iter()), Some("gpus"));
        assert_eq!(nearest("run_time", keys.into_iter()), Some("runtime"));
        assert_eq!(nearest("x", [].into_iter()), None);
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (0..20_000).map(|number| number.to_string()).collect();
        let some = |count: usize| some_of(names[..count].iter().map(String::as_str));
        assert_eq!(some(2), "0, 1");
        assert_eq!(some(8), "0, 1, 2, 3, 4, 5, 6, 7");
        assert_eq!(some(20_000), "0, 1, 2, 3, 4, 5, 6, 7 and 19992 more");
    }

    #[test]
    fn long_values_are_cut() {
        assert_eq!(quote(&"é".repeat(100)).chars().count(), 63);
    }
}
