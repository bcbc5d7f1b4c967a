//! The journal as the daemon needs it: records in, records out. [`bursar_store::Store`] is one.

use bursar_site::record::RECORD_VERSION;
use bursar_site::{Body, Record};
use bursar_store::{NewRecord, Records, Store};

/// Why a journal could not take or give records.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JournalError(pub String);

/// Where records are kept. What was appended is durable when the call returns.
pub trait Journal: Send {
    /// Appends all of them or none.
    ///
    /// # Errors
    /// If they could not be written. They may have been all the same: who gets an error reads again.
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError>;

    /// Whether the last record is certainly number `seq`: after an append that failed, that nothing of it was
    /// written. Who does not know says no.
    fn is_at(&self, _seq: u64) -> bool {
        false
    }

    /// Gives every record from number `from` on to `take`, in order.
    ///
    /// # Errors
    /// If they cannot be read, or `take` refuses one.
    fn read(
        &self,
        from: u64,
        take: &mut dyn FnMut(Record) -> Result<(), JournalError>,
    ) -> Result<(), JournalError>;

    /// Keeps what the records up to `seq` fold to.
    ///
    /// # Errors
    /// If it could not be written. Nothing is lost by that.
    fn put_snapshot(&mut self, seq: u64, bytes: &[u8]) -> Result<(), JournalError>;

    /// The latest that was kept and is whole.
    ///
    /// # Errors
    /// If it cannot be read. The records are all there is need for.
    fn latest_snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, JournalError>;
}

/// What is written of a record beside its number, moment and kind.
#[derive(serde::Serialize, serde::Deserialize)]
struct Written {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    actor: Option<String>,
    #[serde(flatten)]
    body: Body,
}

fn failed(error: impl std::fmt::Display) -> JournalError {
    JournalError(error.to_string())
}

impl Journal for Store {
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        let mut bodies = Vec::with_capacity(records.len());
        for record in records {
            let written = Written { actor: record.actor.clone(), body: record.body.clone() };
            bodies.push(serde_json::to_string(&written).map_err(failed)?);
        }
        let new: Vec<NewRecord<'_>> = records
            .iter()
            .zip(&bodies)
            .map(|(record, body)| NewRecord {
                at_ms: record.at_ms,
                kind: record.body.kind(),
                version: RECORD_VERSION,
                body,
            })
            .collect();
        let first = Store::append(self, &new).map_err(failed)?;
        match records.first() {
            Some(record) if record.seq != first => Err(JournalError(format!(
                "record {} was written as {first}: another process wrote between",
                record.seq
            ))),
            _ => Ok(()),
        }
    }

    fn is_at(&self, seq: u64) -> bool {
        self.is_sound() && self.head().seq == seq
    }

    fn put_snapshot(&mut self, seq: u64, bytes: &[u8]) -> Result<(), JournalError> {
        Store::put_snapshot(self, seq, bytes).map_err(failed)
    }

    fn latest_snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, JournalError> {
        let found = Store::latest_snapshot(self).map_err(failed)?;
        Ok(found.map(|snapshot| (snapshot.seq, snapshot.bytes)))
    }

    fn read(
        &self,
        from: u64,
        take: &mut dyn FnMut(Record) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        read_all(self.read_from(from), take)
    }
}

/// Reads records and gives each to `take`.
pub(crate) fn read_all(
    records: Records<'_>,
    take: &mut dyn FnMut(Record) -> Result<(), JournalError>,
) -> Result<(), JournalError> {
    for stored in records {
        let stored = stored.map_err(failed)?;
        if stored.version > RECORD_VERSION {
            return Err(JournalError(format!(
                "record {} ({}) is of version {}, this binary knows up to {RECORD_VERSION}: use a newer one",
                stored.seq, stored.kind, stored.version
            )));
        }
        let written: Written = serde_json::from_str(&stored.body)
            .map_err(|error| JournalError(format!("record {}: {error}", stored.seq)))?;
        take(Record {
            seq: stored.seq,
            at_ms: stored.at_ms,
            actor: written.actor,
            body: written.body,
        })?;
    }
    Ok(())
}
