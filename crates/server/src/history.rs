//! A journal read apart from the daemon that may be writing it.

use crate::journal::{JournalError, read_all};
use bursar_site::{Fold, Record, Site};
use bursar_store::Reader;

/// Gives every record of a journal to `take`, in order.
///
/// # Errors
/// If they cannot be read, or `take` refuses one.
pub fn records(
    reader: &Reader,
    take: &mut dyn FnMut(Record) -> Result<(), JournalError>,
) -> Result<(), JournalError> {
    read_all(reader.read_from(1), take)
}

/// The site of a journal. Every plan in it is planned again.
///
/// # Errors
/// If it cannot be read or folded.
pub fn fold(reader: &Reader) -> Result<Site, JournalError> {
    let mut fold = Fold::default();
    records(reader, &mut |record| {
        fold.take(record).map_err(|error| JournalError(error.to_string()))
    })?;
    fold.site().ok_or_else(|| JournalError("the journal does not say what its site is".into()))
}
