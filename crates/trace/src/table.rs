//! A table with named columns, read row by row.

use std::sync::Arc;

use crate::collect::{Collector, Context, NoJob};
use crate::error::{Problem, RowError, TraceError, TraceErrorKind, clip, list_some};
use crate::fields::{Dialect, Fields};
use crate::input::Input;
use crate::job::TraceJob;
use crate::time::TimeBase;

/// How many column names an error lists.
const COLUMNS_LISTED_MAX: usize = 40;

/// The names of a table's columns.
#[derive(Debug)]
pub(crate) struct Header {
    names: Vec<String>,
}

impl Header {
    /// Column names as given; found without regard to case.
    pub(crate) fn new(names: Vec<String>) -> Self {
        Header { names }
    }

    /// The column called `name`, if there is one.
    pub(crate) fn find(&self, name: &str) -> Result<Option<Column>, TraceErrorKind> {
        let mut found = self
            .names
            .iter()
            .enumerate()
            .filter(|(_, present)| present.eq_ignore_ascii_case(name))
            .map(|(index, name)| Column { index, name: name.clone() });
        let first = found.next();
        if found.next().is_some() {
            let name = clip(name, 60);
            return Err(TraceErrorKind::Header(format!("two columns are called '{name}'")));
        }
        Ok(first)
    }

    /// The first of these columns that there is.
    pub(crate) fn find_any(&self, names: &[&str]) -> Result<Option<Column>, TraceErrorKind> {
        for name in names {
            if let Some(column) = self.find(name)? {
                return Ok(Some(column));
            }
        }
        Ok(None)
    }

    /// The first of these columns that there is; there must be one.
    pub(crate) fn require(&self, names: &[&str]) -> Result<Column, TraceErrorKind> {
        self.find_any(names)?.ok_or_else(|| TraceErrorKind::MissingColumn {
            wanted: names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(" or "),
            present: list_some(self.names.iter().map(String::as_str), COLUMNS_LISTED_MAX),
        })
    }

    /// The column for a job's group: the caller's choice, else the first of `usual` that there is.
    pub(crate) fn group(
        &self,
        chosen: Option<&str>,
        usual: &[&str],
    ) -> Result<Option<Column>, TraceErrorKind> {
        match chosen {
            Some(name) => self.require(&[name]).map(Some),
            None => self.find_any(usual),
        }
    }

    /// True where rows may have more fields than this: the last one is free text with delimiters.
    fn ends_in_free_text(&self) -> bool {
        self.names.last().is_some_and(|name| name.eq_ignore_ascii_case("jobname"))
    }
}

/// One column of a table.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    index: usize,
    name: String,
}

/// One row of a table.
pub(crate) struct Row<'a> {
    fields: &'a Fields,
}

impl<'a> Row<'a> {
    /// The value in `column`, for people to read: no control characters.
    pub(crate) fn text(&self, column: &Column) -> Result<&'a str, RowError> {
        let value = self.fields.get(column.index);
        let text = std::str::from_utf8(value)
            .map_err(|_| RowError::field(&column.name, value, "is not UTF-8 text"))?;
        let is_control = |byte: &u8| byte.is_ascii_control();
        if value.iter().any(is_control) || (!value.is_ascii() && text.chars().any(char::is_control))
        {
            return Err(RowError::field(&column.name, value, "has control characters"));
        }
        Ok(text)
    }

    /// The value in `column` as `parse` understands it.
    pub(crate) fn parse<T>(
        &self,
        column: &Column,
        parse: impl FnOnce(&str) -> Result<T, Problem>,
    ) -> Result<T, RowError> {
        let text = self.text(column)?;
        parse(text).map_err(|problem| self.wrong(column, problem))
    }

    /// As [`Row::parse`], if there is such a column and a value in it.
    pub(crate) fn parse_some<T>(
        &self,
        column: Option<&Column>,
        parse: impl FnOnce(&str) -> Result<T, Problem>,
    ) -> Result<Option<T>, RowError> {
        match column {
            Some(column) if !self.fields.get(column.index).is_empty() => {
                self.parse(column, parse).map(Some)
            }
            Some(_) | None => Ok(None),
        }
    }

    /// The job's id, which must not be empty.
    pub(crate) fn id(&self, column: &Column) -> Result<String, RowError> {
        let id = self.text(column)?;
        if id.is_empty() { Err(self.wrong(column, "is empty")) } else { Ok(id.to_owned()) }
    }

    /// The shared copy of a name, if there is one.
    pub(crate) fn name(
        &self,
        column: Option<&Column>,
        cx: &mut Context,
    ) -> Result<Option<Arc<str>>, RowError> {
        self.parse_some(column, |name| Ok(cx.names.share(name)))
    }

    /// The value in `column` is wrong.
    pub(crate) fn wrong(&self, column: &Column, problem: impl Into<Problem>) -> RowError {
        RowError::field(&column.name, self.fields.get(column.index), problem.into())
    }
}

/// Makes jobs of the rows of one format.
pub(crate) trait RowReader {
    /// The job in `row`, or why there is none.
    fn job(&mut self, row: &Row<'_>, cx: &mut Context) -> Result<TraceJob, NoJob>;

    /// What the times of its jobs are counted from.
    fn time_base(&self) -> TimeBase;
}

/// Reads a whole table; `columns` are the names where the file has no header line.
pub(crate) fn read_table(
    input: &mut Input<'_>,
    dialect: Dialect,
    columns: Option<Vec<String>>,
    mut collector: Collector,
    reader_for: impl FnOnce(&Header) -> Result<Box<dyn RowReader>, TraceErrorKind>,
) -> Result<Collector, TraceError> {
    let mut fields = Fields::default();
    let header = match columns {
        Some(names) => Header::new(names),
        None => read_header(input, dialect, &mut fields)?,
    };
    let mut reader = reader_for(&header).map_err(|kind| match input.line() {
        0 => input.fail(kind),
        _ => input.fail_line(kind),
    })?;
    let width = header.names.len();
    let any_wider = header.ends_in_free_text();
    loop {
        let line = match input.next_line()? {
            None => break,
            Some(line) if dialect.is_comment(line) => continue,
            Some(line) => line,
        };
        let result = match fields.split(line, dialect) {
            Err(problem) => Err(RowError::row(problem).into()),
            Ok(()) if fields.len() == width || (any_wider && fields.len() > width) => {
                reader.job(&Row { fields: &fields }, &mut collector.context)
            }
            Ok(()) => Err(RowError::row(format!(
                "has {} fields where the header has {width} columns",
                fields.len()
            ))
            .into()),
        };
        collector.add(input.line(), result).map_err(|kind| input.fail_line(kind))?;
    }
    collector.time_base = reader.time_base();
    Ok(collector)
}

fn read_header(
    input: &mut Input<'_>,
    dialect: Dialect,
    fields: &mut Fields,
) -> Result<Header, TraceError> {
    loop {
        let line = match input.next_line()? {
            None => return Ok(Header::new(Vec::new())),
            Some(line) if dialect.is_comment(line) => continue,
            Some(line) => line,
        };
        if let Err(problem) = fields.split(line, dialect) {
            return Err(input.fail_line(TraceErrorKind::Row(problem.to_owned())));
        }
        let names = (0..fields.len())
            .map(|index| String::from_utf8_lossy(fields.get(index)).into_owned())
            .collect();
        return Ok(Header::new(names));
    }
}
