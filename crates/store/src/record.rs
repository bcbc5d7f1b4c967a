//! Records, and reading them: in order, each checked against the chain as it passes.

use std::ops::ControlFlow;
use std::path::Path;
use std::vec;

use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension as _, Row};

use crate::chain::{Chain, Head};
use crate::error::{Result, StoreError};

/// A record to be appended. What its kind, version and body mean is the caller's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewRecord<'a> {
    /// Its moment, in milliseconds; not before that of the record in front of it.
    pub at_ms: u64,
    /// What sort of record it is.
    pub kind: &'a str,
    /// The version of the form of its body.
    pub version: u32,
    /// Its body, JSON by convention.
    pub body: &'a str,
}

impl<'r> NewRecord<'r> {
    /// Reads columns 1 to 4 of a row, without checking what they hold.
    pub(crate) fn of(row: &'r Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            at_ms: unsigned(row.get(1)?),
            kind: text(row, 2)?,
            version: row.get(3)?,
            body: text(row, 4)?,
        })
    }
}

/// A record of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its number: 1, 2, 3 … without gaps.
    pub seq: u64,
    /// Its moment, in milliseconds; never before that of an earlier record.
    pub at_ms: u64,
    /// What sort of record it is.
    pub kind: String,
    /// The version of the form of its body.
    pub version: u32,
    /// Its body, JSON by convention.
    pub body: String,
    /// The hash of this record and of all before it.
    pub chain: Chain,
}

/// Records are fetched in pages of at most this many, so that memory is bounded and no read
/// transaction stays open while the caller thinks (one would keep SQLite's WAL from starting anew).
const PAGE_RECORDS: usize = 1024;

/// A page ends early when its bodies have this many bytes.
const PAGE_BYTES: usize = 1 << 20;

/// Records in order, from a given one to the end; made by [`Store::read_from`](crate::Store::read_from).
///
/// Each record's number, moment and checksum are checked before it is given. After an error there
/// is nothing more.
#[derive(Debug)]
#[must_use = "records are read as the iterator goes"]
pub struct Records<'c> {
    connection: &'c Connection,
    path: &'c Path,
    from: u64,
    /// The last record of the page; nothing before the first page.
    head: Option<Head>,
    page: vec::IntoIter<Record>,
    failure: Option<StoreError>,
    is_done: bool,
}

impl<'c> Records<'c> {
    pub(crate) fn new(connection: &'c Connection, path: &'c Path, from: u64) -> Self {
        Self {
            connection,
            path,
            from: from.max(1),
            head: None,
            page: Vec::new().into_iter(),
            failure: None,
            is_done: false,
        }
    }

    /// The next page. Records before a damaged one are still given.
    fn fetch(&mut self) -> Vec<Record> {
        let mut page = Vec::new();
        let before = match self.head {
            Some(head) => Ok(Some(head)),
            None => head_at(self.connection, self.path, self.from - 1),
        };
        let mut head = match before {
            Ok(Some(head)) => head,
            Ok(None) => {
                self.failure = self.nothing_follows().err();
                return page;
            }
            Err(error) => {
                self.failure = Some(error);
                return page;
            }
        };
        let mut bytes = 0;
        let walked = walk(self.connection, self.path, &mut head, |new, head| {
            bytes += new.body.len();
            page.push(Record {
                seq: head.seq,
                at_ms: head.at_ms,
                kind: new.kind.to_owned(),
                version: new.version,
                body: new.body.to_owned(),
                chain: head.chain,
            });
            if page.len() < PAGE_RECORDS && bytes < PAGE_BYTES {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        self.failure = walked.err();
        self.head = Some(head);
        page
    }
}

impl Records<'_> {
    /// Makes sure that a journal without the record before the first one wanted has ended there.
    fn nothing_follows(&self) -> Result<()> {
        if last_head(self.connection, self.path)?.seq < self.from {
            return Ok(());
        }
        Err(StoreError::corrupt(self.path, Some(self.from - 1), "it is missing"))
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(record) = self.page.next() {
            return Some(Ok(record));
        }
        if self.is_done {
            return None;
        }
        if self.failure.is_none() {
            self.page = self.fetch().into_iter();
            if let Some(record) = self.page.next() {
                return Some(Ok(record));
            }
        }
        self.is_done = true;
        self.failure.take().map(Err)
    }
}

fn text<'r>(row: &'r Row<'_>, column: usize) -> rusqlite::Result<&'r str> {
    let value = row.get_ref(column)?;
    value.as_str().map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, value.data_type(), Box::new(error))
    })
}

/// SQLite's integers are signed, ours never are. A negative one is damage and becomes a number that
/// no check will take.
pub(crate) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// One of our numbers as SQLite's integer; `None` for those that it cannot hold.
pub(crate) fn signed(value: u64) -> Option<i64> {
    i64::try_from(value).ok()
}

/// Steps through the records after `head`, moving it along, until `visit` breaks or they end.
///
/// Each is checked first: that its number follows, that its moment does not go back, that its
/// checksum fits. `head` stays at the last good one.
pub(crate) fn walk(
    connection: &Connection,
    path: &Path,
    head: &mut Head,
    mut visit: impl FnMut(NewRecord<'_>, &Head) -> ControlFlow<()>,
) -> Result<()> {
    let cannot = |seq: u64, error: rusqlite::Error| damaged(path, seq, error);
    let mut statement = connection
        .prepare_cached(
            "SELECT seq, at_ms, kind, version, body, chain FROM record WHERE seq > ?1 ORDER BY seq",
        )
        .map_err(|error| cannot(head.seq + 1, error))?;
    let after = signed(head.seq).unwrap_or(i64::MAX);
    let mut rows = statement.query([after]).map_err(|error| cannot(head.seq + 1, error))?;
    loop {
        let seq = head.seq + 1;
        let Some(row) = rows.next().map_err(|error| cannot(seq, error))? else { return Ok(()) };
        let new = NewRecord::of(row).map_err(|error| cannot(seq, error))?;
        check_order(path, head, unsigned(column(row, 0, path, seq)?), new.at_ms)?;
        let next = head.then(&new);
        if next.chain != column(row, 5, path, seq)? {
            return Err(StoreError::corrupt(path, Some(seq), "its checksum does not fit"));
        }
        *head = next;
        if visit(new, head).is_break() {
            return Ok(());
        }
    }
}

fn column<T: FromSql>(row: &Row<'_>, index: usize, path: &Path, seq: u64) -> Result<T> {
    row.get(index).map_err(|error| damaged(path, seq, error))
}

/// Refuses a record that does not follow `head` in number and time.
pub(crate) fn check_order(path: &Path, head: &Head, seq: u64, at_ms: u64) -> Result<()> {
    let next = head.seq + 1;
    if seq != next {
        return Err(StoreError::corrupt(path, Some(next), format!("it is missing, {seq} follows")));
    }
    if at_ms < head.at_ms || signed(at_ms).is_none() {
        return Err(StoreError::corrupt(path, Some(seq), "its moment is before the last one"));
    }
    Ok(())
}

/// What to call a failure to read record `seq`: damage, unless the fault is elsewhere.
pub(crate) fn damaged(path: &Path, seq: u64, error: rusqlite::Error) -> StoreError {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType};
    use rusqlite::ErrorCode::DatabaseCorrupt;
    let is_content = matches!(
        error,
        FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..)
    );
    if is_content || error.sqlite_error_code() == Some(DatabaseCorrupt) {
        StoreError::corrupt(path, Some(seq), format!("it cannot be read ({error})"))
    } else {
        StoreError::sqlite(path, "read", error)
    }
}

/// The head as of record `seq`, as it is written there; `None` if there is no such record.
pub(crate) fn head_at(connection: &Connection, path: &Path, seq: u64) -> Result<Option<Head>> {
    if seq == 0 {
        return Ok(Some(Head::EMPTY));
    }
    let Some(key) = signed(seq) else { return Ok(None) };
    connection
        .prepare_cached("SELECT at_ms, chain FROM record WHERE seq = ?1")
        .and_then(|mut statement| {
            let head =
                |row: &Row<'_>| Ok(Head { seq, at_ms: unsigned(row.get(0)?), chain: row.get(1)? });
            statement.query_row([key], head).optional()
        })
        .map_err(|error| damaged(path, seq, error))
}

/// The head of the whole journal, as it is written there.
pub(crate) fn last_head(connection: &Connection, path: &Path) -> Result<Head> {
    let seq: Option<i64> = connection
        .prepare_cached("SELECT max(seq) FROM record")
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
        .map_err(|error| StoreError::sqlite(path, "read", error))?;
    let seq = seq.map_or(0, unsigned);
    head_at(connection, path, seq)?
        .ok_or_else(|| StoreError::corrupt(path, Some(seq), "it cannot be found"))
}
