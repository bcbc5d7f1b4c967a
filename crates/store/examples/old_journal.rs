//! Writes the journal of a site as schema 1 had it: fixtures of old data folders are made with it.
//!
//! ```sh
//! cargo run -p bursar-store --example old_journal -- DATA_FOLDER journal.db
//! ```

use bursar_store::Reader;
use rusqlite::{Connection, params};
use std::error::Error;

/// The schema, up to the records that the fixture of this crate puts into it.
const SCHEMA_1: &str = include_str!("../fixtures/schema-1.sql");

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(from), Some(to), None) = (words.next(), words.next(), words.next()) else {
        return Err("old_journal: DATA_FOLDER FILE".into());
    };
    let reader = Reader::beside(from)?;
    let mut connection = Connection::open(to)?;
    connection.execute_batch(SCHEMA_1)?;
    let transaction = connection.transaction()?;
    transaction.execute_batch("DELETE FROM record; DELETE FROM snapshot;")?;
    for record in reader.read_from(1) {
        let record = record?;
        transaction.execute(
            "INSERT INTO record (seq, at_ms, kind, version, body) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![
                i64::try_from(record.seq)?,
                i64::try_from(record.at_ms)?,
                record.kind,
                record.version,
                record.body
            ],
        )?;
    }
    transaction.commit()?;
    connection.execute_batch("VACUUM")?;
    Ok(())
}
