//! The checksum chain: each record carries a hash over the hash before it and its own content, so
//! that a record that was changed, lost or put elsewhere shows, and one hash stands for all before.

use std::fmt;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use sha2::{Digest, Sha256};

use crate::record::NewRecord;

/// The hash (SHA-256) of a record and of all before it. Displays as 64 hex digits.
///
/// It guards against damage, not against somebody who may write the file and computes it anew.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Chain([u8; Chain::LEN]);

impl Chain {
    pub(crate) const LEN: usize = 32;

    /// What the first record is chained to.
    pub const START: Self = Self([0; Self::LEN]);

    /// The hash as bytes.
    pub fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// The chain with one more record. Lengths go in too: no two contents have the same bytes.
    fn then(self, seq: u64, new: &NewRecord<'_>) -> Self {
        let NewRecord { at_ms, kind, version, body } = *new;
        let mut head = [0; Self::LEN + 36];
        head[..32].copy_from_slice(&self.0);
        head[32..40].copy_from_slice(&seq.to_le_bytes());
        head[40..48].copy_from_slice(&at_ms.to_le_bytes());
        head[48..52].copy_from_slice(&version.to_le_bytes());
        head[52..60].copy_from_slice(&(kind.len() as u64).to_le_bytes());
        head[60..68].copy_from_slice(&(body.len() as u64).to_le_bytes());
        Self(
            Sha256::new()
                .chain_update(head)
                .chain_update(kind)
                .chain_update(body)
                .finalize()
                .into(),
        )
    }

    /// The chain with bytes of any kind, for what hangs on a record but is none.
    pub(crate) fn with(self, bytes: &[u8]) -> Self {
        Self(Sha256::new().chain_update(self.0).chain_update(bytes).finalize().into())
    }

    /// Reads back what `Display` wrote.
    pub(crate) fn from_hex(text: &str) -> Option<Self> {
        if text.len() != 2 * Self::LEN || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let mut bytes = [0; Self::LEN];
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chain({self})")
    }
}

impl ToSql for Chain {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Blob(&self.0)))
    }
}

impl FromSql for Chain {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let bytes = value.as_blob()?;
        let found = bytes.len();
        bytes.try_into().map(Self).map_err(|_| FromSqlError::InvalidBlobSize {
            expected_size: Self::LEN,
            blob_size: found,
        })
    }
}

/// Where a journal ends: its last record. Before the first one, all zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The number of the last record; 0 if there is none.
    pub seq: u64,
    /// Its moment.
    pub at_ms: u64,
    /// The hash of it and of all before it.
    pub chain: Chain,
}

impl Head {
    /// The head of a journal without records.
    pub const EMPTY: Self = Self { seq: 0, at_ms: 0, chain: Chain::START };

    /// The head once a record is added.
    pub(crate) fn then(self, new: &NewRecord<'_>) -> Self {
        let seq = self.seq + 1;
        Self { seq, at_ms: new.at_ms, chain: self.chain.then(seq, new) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(at_ms: u64, kind: &'static str, version: u32, body: &'static str) -> NewRecord<'static> {
        NewRecord { at_ms, kind, version, body }
    }

    #[test]
    fn every_part_of_a_record_is_in_its_hash() {
        let plain = Head::EMPTY.then(&new(5, "kind", 1, "{}"));
        let others = [
            Head::EMPTY.then(&new(6, "kind", 1, "{}")),
            Head::EMPTY.then(&new(5, "kine", 1, "{}")),
            Head::EMPTY.then(&new(5, "kind", 2, "{}")),
            Head::EMPTY.then(&new(5, "kind", 1, "{ }")),
            Head::EMPTY.then(&new(5, "kind{", 1, "}")),
            plain.then(&new(5, "kind", 1, "{}")),
        ];
        for other in others {
            assert_ne!(plain.chain, other.chain);
        }
    }

    /// Journals out there rest on this value: a change of it is a change of the schema.
    #[test]
    fn the_hash_is_fixed() {
        let head = Head::EMPTY.then(&new(5, "kind", 1, "{}")).then(&new(9, "other", 2, "[1]"));
        assert_eq!(
            head.chain.to_string(),
            "462b04491b2c84b56c176e23d84b41926e6bd51dc9511811ae847f7948c43ec3"
        );
    }

    #[test]
    fn hex_goes_both_ways() {
        let chain = Head::EMPTY.then(&new(5, "kind", 1, "{}")).chain;
        assert_eq!(Chain::from_hex(&chain.to_string()), Some(chain));
        assert_eq!(Chain::from_hex("12"), None);
        assert_eq!(Chain::from_hex(&"g".repeat(64)), None);
        assert_eq!(Chain::from_hex(&"é".repeat(32)), None);
    }
}
