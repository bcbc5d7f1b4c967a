//! What can be wrong with a job history, as one line that names the place, the value and the fix.

use std::borrow::Cow;
use std::fmt;
use std::io;

use crate::text::one_line;

/// Longest value that an error repeats; longer ones are cut.
const VALUE_CHARS_MAX: usize = 60;

/// Where in a history something is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The file as a whole.
    File,
    /// A line of it, counted from 1 after decompression.
    Line(u64),
    /// An entry of it, counted from 1, where entries are not lines (JSON).
    Row(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File => Ok(()),
            Place::Line(line) => write!(f, " line {line}"),
            Place::Row(row) => write!(f, " row {row}"),
        }
    }
}

/// A history that cannot be read; its text is one line: `jobs.csv line 17: field 'gpus': …`.
#[derive(Debug, thiserror::Error)]
#[error("{}{place}: {}", one_line(.name), one_line(&.kind.to_string()))]
pub struct TraceError {
    name: String,
    place: Place,
    kind: Box<TraceErrorKind>,
}

impl TraceError {
    pub(crate) fn new(name: &str, place: Place, kind: TraceErrorKind) -> Self {
        TraceError { name: name.to_owned(), place, kind: Box::new(kind) }
    }

    /// Where the problem is.
    pub fn place(&self) -> Place {
        self.place
    }

    /// What the problem is.
    pub fn kind(&self) -> &TraceErrorKind {
        &self.kind
    }
}

/// The kinds of problem that a history can have.
#[derive(Debug, thiserror::Error)]
pub enum TraceErrorKind {
    /// The file cannot be opened.
    #[error("cannot be opened: {0}")]
    Open(io::Error),
    /// Reading failed.
    #[error("cannot be read: {0}")]
    Read(io::Error),
    /// A compressed input ends too early.
    #[error("the {packing} data ends too early; the file is truncated, copy it again")]
    Truncated {
        /// The compression.
        packing: &'static str,
    },
    /// A compressed input is damaged.
    #[error("the {packing} data is damaged ({reason}); copy the file again")]
    Damaged {
        /// The compression.
        packing: &'static str,
        /// What the decompressor said.
        reason: String,
    },
    /// A container or encoding that is not read.
    #[error("is {what}; only plain UTF-8 text, gzip and zstd are read: convert it first")]
    Container {
        /// What the file is.
        what: &'static str,
    },
    /// A line, or a JSON entry, is too long to be part of a history.
    #[error("is longer than {limit} bytes; no line of a job history is, check its line ends")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// The content is of no known format.
    #[error(
        "is of no known format; looked for {looked_for}; name the format if it is one of these"
    )]
    Unrecognised {
        /// The formats and what each is known by.
        looked_for: &'static str,
    },
    /// A column is missing.
    #[error("column {wanted} is missing; the columns are {present}")]
    MissingColumn {
        /// The column, or the columns of which one would do.
        wanted: String,
        /// The columns that are there.
        present: String,
    },
    /// Something else is wrong with the columns or the header.
    #[error("{0}")]
    Header(String),
    /// A value is wrong.
    #[error("field '{field}': '{value}' {problem}")]
    Field {
        /// The column, as the file names it.
        field: String,
        /// The value, cut when long.
        value: String,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// A row is wrong as a whole.
    #[error("{0}")]
    Row(String),
    /// Two rows have one id.
    #[error("field 'id': '{id}' is already the id of line {first_line}; ids must be unique")]
    DuplicateId {
        /// The id.
        id: String,
        /// The line that had it first.
        first_line: u64,
    },
    /// There is no job in it.
    #[error("has no job{detail}")]
    Empty {
        /// What it has instead, or nothing.
        detail: String,
    },
    /// Names that no rule of a mapping covers.
    #[error("no mapping rule covers {what}; add a rule for each, or a default budget")]
    Unmapped {
        /// The names.
        what: String,
    },
}

/// What is wrong with a value: the text that follows the quoted value.
pub(crate) type Problem = Cow<'static, str>;

/// What is wrong with a row, before its place is known.
#[derive(Debug)]
pub(crate) struct RowError(TraceErrorKind);

impl RowError {
    pub(crate) fn field(field: &str, value: &[u8], problem: impl Into<String>) -> Self {
        RowError(TraceErrorKind::Field {
            field: clip(field, VALUE_CHARS_MAX),
            value: clip(&String::from_utf8_lossy(value), VALUE_CHARS_MAX),
            problem: problem.into(),
        })
    }

    pub(crate) fn row(problem: impl Into<String>) -> Self {
        RowError(TraceErrorKind::Row(problem.into()))
    }

    pub(crate) fn duplicate(id: &str, first_line: u64) -> Self {
        RowError(TraceErrorKind::DuplicateId { id: clip(id, VALUE_CHARS_MAX), first_line })
    }

    pub(crate) fn into_kind(self) -> TraceErrorKind {
        self.0
    }

    pub(crate) fn kind(&self) -> &TraceErrorKind {
        &self.0
    }
}

/// `text` on one line and at most `chars_max` long: control characters are escaped.
pub(crate) fn clip(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", one_line(&text[..end])),
        None => one_line(text).into_owned(),
    }
}

/// Names as a list for people: the first `max` of them, and how many more there are.
pub(crate) fn list_some<'a>(names: impl ExactSizeIterator<Item = &'a str>, max: usize) -> String {
    let more = names.len().saturating_sub(max);
    let mut shown: Vec<String> =
        names.take(max).map(|name| format!("'{}'", clip(name, VALUE_CHARS_MAX))).collect();
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_that_names_the_place() {
        let kind = RowError::field("gpus", b"0", "is not a whole number of at least 1").into_kind();
        let error = TraceError::new("jobs.csv", Place::Line(17), kind);
        assert_eq!(
            error.to_string(),
            "jobs.csv line 17: field 'gpus': '0' is not a whole number of at least 1"
        );
    }

    #[test]
    fn no_kind_of_error_repeats_what_speaks_to_terminals() {
        let evil = "a\nb\x1b[2J\u{2028}\u{202e}\u{9b}".to_owned();
        let row = |error: RowError| error.into_kind();
        let kinds = [
            TraceErrorKind::Open(io::Error::other(evil.clone())),
            TraceErrorKind::Damaged { packing: "gzip", reason: evil.clone() },
            TraceErrorKind::MissingColumn { wanted: evil.clone(), present: evil.clone() },
            TraceErrorKind::Header(evil.clone()),
            TraceErrorKind::Empty { detail: evil.clone() },
            TraceErrorKind::Unmapped { what: evil.clone() },
            row(RowError::field(&evil, evil.as_bytes(), evil.clone())),
            row(RowError::row(evil.clone())),
            row(RowError::duplicate(&evil, 1)),
        ];
        for kind in kinds {
            let text = TraceError::new(&evil, Place::File, kind).to_string();
            assert_eq!(one_line(&text), text);
        }
    }

    #[test]
    fn hostile_names_and_values_stay_on_one_short_line() {
        let kind = RowError::field("a\nb", &[b'x'; 500], "is wrong").into_kind();
        let text = TraceError::new("evil\nname", Place::Row(2), kind).to_string();
        assert!(!text.contains('\n') && text.len() < 150, "{text}");
    }
}
