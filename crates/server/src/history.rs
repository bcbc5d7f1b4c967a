//! A journal read apart from the daemon that may be writing it.

use crate::journal::{JournalError, read_all};
use bursar_site::{Record, Site};
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
    let mut first: Option<Record> = None;
    let mut site: Option<Site> = None;
    records(reader, &mut |record| {
        let folded = match (&mut site, &first) {
            (Some(site), _) => site.apply(&record),
            (None, Some(first)) => Site::new(first, &record).map(|new| site = Some(new)),
            (None, None) => {
                first = Some(record);
                Ok(())
            }
        };
        folded.map_err(|error| JournalError(error.to_string()))
    })?;
    site.ok_or_else(|| JournalError("the journal does not say what its site is".into()))
}
