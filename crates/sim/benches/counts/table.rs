//! `limits.txt`: one row per figure, with what was recorded, its limit, and why it is there.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// More than this part below what was recorded, and a limit has become too wide to notice anything.
const MUCH_LESS: f64 = 0.1;

/// How far a figure may go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Limit {
    /// So many per cent above what was recorded.
    Percent(f64),
    /// This value, whatever was recorded.
    AtMost(f64),
}

/// What is to be said of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is within its limit.
    Kept,
    /// It is not.
    Exceeded,
    /// It is, by so much that the limit should be recorded anew.
    MuchLess,
}

/// One figure.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// A case; or two, of which the first is divided by the second.
    pub(crate) name: String,
    /// What it was when it was recorded last.
    pub(crate) recorded: f64,
    /// How far it may go.
    pub(crate) limit: Limit,
    /// What the instructions are divided by.
    pub(crate) unit: String,
}

impl Row {
    /// `name | recorded | limit | per | why`.
    fn parse(line: &str) -> Option<Self> {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        let [name, recorded, limit, unit, _why] = columns[..] else { return None };
        let limit = match limit.strip_prefix('+') {
            Some(percent) => Limit::Percent(percent.trim_end_matches('%').trim().parse().ok()?),
            None => Limit::AtMost(limit.parse().ok()?),
        };
        let recorded = recorded.parse().ok()?;
        Some(Self { name: name.to_owned(), recorded, limit, unit: unit.to_owned() })
    }

    /// The cases that it needs.
    pub(crate) fn cases(&self) -> impl Iterator<Item = &str> {
        self.name.split('/')
    }

    /// What it comes to, if `per_unit` tells the instructions per unit of a case.
    pub(crate) fn value(&self, per_unit: impl Fn(&str) -> f64) -> f64 {
        match self.name.split_once('/') {
            Some((above, below)) => per_unit(above) / per_unit(below),
            None => per_unit(&self.name),
        }
    }

    /// A value as the table has it: a count is whole, a ratio is not.
    pub(crate) fn shown(&self, value: f64) -> String {
        if self.name.contains('/') { format!("{value:.3}") } else { format!("{value:.0}") }
    }

    /// What is to be said of the value `now`.
    pub(crate) fn verdict(&self, now: f64) -> Verdict {
        let most = match self.limit {
            Limit::Percent(percent) => self.recorded * (1.0 + percent / 100.0),
            Limit::AtMost(limit) => limit,
        };
        if now > most {
            Verdict::Exceeded
        } else if now < self.recorded * (1.0 - MUCH_LESS) {
            Verdict::MuchLess
        } else {
            Verdict::Kept
        }
    }
}

/// The file, with its comments.
pub(crate) struct Table {
    path: PathBuf,
    lines: Vec<Line>,
}

enum Line {
    Text(String),
    Row { text: String, row: Row },
}

impl Table {
    /// Reads the table beside this source.
    pub(crate) fn load() -> Result<Self, String> {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/counts/limits.txt");
        let text = fs::read_to_string(&path).map_err(|error| format!("limits.txt: {error}"))?;
        let mut lines = Vec::new();
        for (number, text) in (1..).zip(text.lines()) {
            lines.push(if text.is_empty() || text.starts_with('#') {
                Line::Text(text.to_owned())
            } else {
                let row =
                    Row::parse(text).ok_or_else(|| format!("limits.txt line {number}: {text}"))?;
                Line::Row { text: text.to_owned(), row }
            });
        }
        Ok(Self { path, lines })
    }

    /// Its rows, in order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.lines.iter().filter_map(|line| match line {
            Line::Text(_) => None,
            Line::Row { row, .. } => Some(row),
        })
    }

    /// Writes the file again with these values as recorded; nothing else in it changes.
    pub(crate) fn record(&self, values: &BTreeMap<String, f64>) -> Result<(), String> {
        let mut text = String::new();
        for line in &self.lines {
            match line {
                Line::Text(comment) => text.push_str(comment),
                Line::Row { text: before, row } => {
                    let mut columns: Vec<&str> = before.split('|').collect();
                    let recorded = row.shown(values[&row.name]);
                    let recorded = format!(" {recorded:>8} ");
                    columns[1] = &recorded;
                    text.push_str(&columns.join("|"));
                }
            }
            text.push('\n');
        }
        print!("{text}");
        fs::write(&self.path, text).map_err(|error| format!("limits.txt: {error}"))
    }
}
