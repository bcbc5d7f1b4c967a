//! Snapshots: what the records up to a number fold to, packed, so that a replay need not begin at 1.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};

use crate::chain::Chain;
use crate::error::{Result, StoreError};
use crate::record::{head_at, signed, unsigned};

/// A state that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The last record that is in it: the replay goes on with the one after.
    pub seq: u64,
    /// The state, as it was given.
    pub bytes: Vec<u8>,
}

/// So many are kept: if the last one turns out to be damaged, there is one before it.
const KEPT: i64 = 2;

/// What SQLite holds in one value, less some room for what packing can add.
const BYTES_MAX: usize = 900_000_000;

/// Fast, and within a few percent of what slower levels give on JSON.
const LEVEL: i32 = 3;

/// A snapshot ready to be written.
pub(crate) struct Packed {
    seq: u64,
    packed: Vec<u8>,
    length: usize,
    sum: Chain,
}

/// Packs a snapshot; outside of a transaction, since it takes its time.
pub(crate) fn pack(connection: &Connection, path: &Path, seq: u64, bytes: &[u8]) -> Result<Packed> {
    let invalid = |what: String| Err(StoreError::invalid(path, what));
    let head = match head_at(connection, path, seq)? {
        Some(head) if seq > 0 => head,
        _ => return invalid(format!("a snapshot at record {seq} needs that record")),
    };
    let last = seqs(connection, path)?.first().copied().unwrap_or(0);
    if seq < last {
        return invalid(format!("a snapshot at record {seq} cannot follow one at {last}"));
    }
    if bytes.len() > BYTES_MAX {
        return invalid(format!(
            "a snapshot of {} bytes is above the limit of {BYTES_MAX}",
            bytes.len()
        ));
    }
    let packed = zstd::bulk::compress(bytes, LEVEL)
        .map_err(|error| StoreError::io(path, "pack a snapshot", error))?;
    Ok(Packed { seq, packed, length: bytes.len(), sum: head.chain.with(bytes) })
}

impl Packed {
    /// Writes it, and drops those that are older than the last two.
    pub(crate) fn insert(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection.execute(
            "INSERT OR REPLACE INTO snapshot (seq, packed, length, sum) VALUES (?1, ?2, ?3, ?4)",
            params![signed(self.seq), self.packed, i64::try_from(self.length).ok(), self.sum],
        )?;
        connection.execute(
            "DELETE FROM snapshot WHERE seq NOT IN (SELECT seq FROM snapshot ORDER BY seq DESC LIMIT ?1)",
            [KEPT],
        )?;
        Ok(())
    }
}

/// The latest one that is whole.
pub(crate) fn latest(connection: &Connection, path: &Path) -> Result<Option<Snapshot>> {
    let _still = hold_still(connection, path)?;
    for seq in seqs(connection, path)? {
        if let Some(bytes) = unpack(connection, path, seq)? {
            return Ok(Some(Snapshot { seq, bytes }));
        }
    }
    Ok(None)
}

/// How many are whole, and how many damaged.
pub(crate) fn count(connection: &Connection, path: &Path) -> Result<(u32, u32)> {
    let _still = hold_still(connection, path)?;
    let (mut whole, mut damaged) = (0, 0);
    for seq in seqs(connection, path)? {
        match unpack(connection, path, seq)? {
            Some(_) => whole += 1,
            None => damaged += 1,
        }
    }
    Ok((whole, damaged))
}

/// A read transaction: a writer beside us may drop one that we have just heard of.
fn hold_still<'c>(connection: &'c Connection, path: &Path) -> Result<Transaction<'c>> {
    connection
        .unchecked_transaction()
        .map_err(|error| StoreError::sqlite(path, "read the snapshots", error))
}

/// The numbers of those there are, latest first.
fn seqs(connection: &Connection, path: &Path) -> Result<Vec<u64>> {
    let run = || -> rusqlite::Result<Vec<u64>> {
        connection
            .prepare_cached("SELECT seq FROM snapshot ORDER BY seq DESC")?
            .query_map([], |row| row.get(0).map(unsigned))?
            .collect()
    };
    run().map_err(|error| StoreError::sqlite(path, "read the snapshots", error))
}

/// The bytes of one; `None` if they are not those that were kept at that record.
fn unpack(connection: &Connection, path: &Path, seq: u64) -> Result<Option<Vec<u8>>> {
    let Some(head) = head_at(connection, path, seq)? else { return Ok(None) };
    let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1).map(unsigned)?, row.get(2)?));
    let found: Option<(Vec<u8>, u64, Chain)> = connection
        .query_row("SELECT packed, length, sum FROM snapshot WHERE seq = ?1", [signed(seq)], row)
        .optional()
        .map_err(|error| StoreError::sqlite(path, "read a snapshot", error))?;
    let Some((packed, length, sum)) = found else { return Ok(None) };
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(BYTES_MAX);
    let bytes = zstd::bulk::decompress(&packed, length).ok();
    Ok(bytes.filter(|bytes| head.chain.with(bytes) == sum))
}

#[cfg(test)]
mod tests {
    use crate::StoreErrorKind as Kind;
    use crate::testing::{journal, noise, refused, tamper};
    use crate::{Snapshot, Store};

    fn latest(store: &Store) -> Option<(u64, Vec<u8>)> {
        store.latest_snapshot().unwrap().map(|Snapshot { seq, bytes }| (seq, bytes))
    }

    #[test]
    fn the_last_two_are_kept() {
        let (dir, mut store) = journal(10);
        assert_eq!(latest(&store), None);
        let long = noise(300_000);
        for (seq, bytes) in [(2, &b"two"[..]), (4, b""), (4, b"four"), (9, &long)] {
            store.put_snapshot(seq, bytes).unwrap();
            assert_eq!(latest(&store), Some((seq, bytes.to_vec())));
        }
        drop(store);
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(latest(&store), Some((9, long)));
        assert_eq!(store.verify(&mut |_| ()).unwrap().snapshots, 2);
    }

    #[test]
    fn one_needs_its_record_and_does_not_go_back() {
        let (_dir, mut store) = journal(10);
        for seq in [0, 11, u64::MAX] {
            let text = refused!(store.put_snapshot(seq, b"state"), Kind::Invalid { .. });
            assert!(text.ends_with("needs that record"), "{text}");
        }
        store.put_snapshot(5, b"state").unwrap();
        let text = refused!(store.put_snapshot(4, b"state"), Kind::Invalid { .. });
        assert!(text.ends_with("a snapshot at record 4 cannot follow one at 5"), "{text}");
    }

    #[test]
    fn a_damaged_one_is_passed_over_and_told_of() {
        for sql in [
            "UPDATE snapshot SET sum = zeroblob(32) WHERE seq = 9",
            "UPDATE snapshot SET packed = zeroblob(9) WHERE seq = 9",
            "UPDATE snapshot SET length = 2 WHERE seq = 9",
            "UPDATE snapshot SET length = 1 << 62 WHERE seq = 9; UPDATE snapshot SET seq = 8 WHERE seq = 9",
            "UPDATE snapshot SET seq = 12 WHERE seq = 9",
        ] {
            let (dir, mut store) = journal(10);
            store.put_snapshot(3, b"three").unwrap();
            store.put_snapshot(9, b"nine").unwrap();
            drop(store);
            tamper(dir.path(), sql);
            let store = Store::open(dir.path()).unwrap();
            assert_eq!(latest(&store), Some((3, b"three".to_vec())), "{sql}");
            let verified = store.verify(&mut |_| ()).unwrap();
            assert_eq!((verified.snapshots, verified.snapshots_damaged), (1, 1), "{sql}");
        }
    }
}
