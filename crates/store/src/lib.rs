//! The journal of a site: append-only records in embedded SQLite, with snapshots and backups.
//!
//! A record has a number (1, 2, 3 … without gaps), a moment that never goes back, a kind, a version
//! and a body. This crate knows nothing of what they mean; `docs/adr/0008-one-journal.md` says what
//! the site makes of them.
//!
//! **Invariant: what [`Store::append`] returned for is on the disk**, all of a call or none of it,
//! whatever happens to the process after.
//!
//! **Invariant: a journal that cannot be trusted is not opened.** Every record carries a hash over
//! itself and the one before ([`Chain`]); damage is named by the first bad record and never mended
//! here, since a journal that was guessed at would replay to another history.
//!
//! **Invariant: one process holds a folder**, and one [`Store`] in it writes. Any number of
//! [`Reader`]s of that store read beside it, in other threads.
//!
//! Absent on purpose: a query by anything but the number, deletion, and any reading of bodies.
//! Whether a record was appended before is the caller's to know.
//!
//! ```
//! use bursar_store::{NewRecord, Store};
//!
//! let dir = tempfile::tempdir()?;
//! let mut store = Store::create(dir.path().join("site"))?;
//! store.append(&[NewRecord { at_ms: 0, kind: "created", version: 1, body: r#"{"hosts":2}"# }])?;
//! for record in store.read_from(1) {
//!     assert_eq!(record?.kind, "created");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod backup;
mod chain;
mod check;
mod error;
mod folder;
mod reader;
mod record;
mod schema;
mod snapshot;
mod store;
#[cfg(test)]
mod testing;

pub use backup::restore;
pub use chain::{Chain, Head};
pub use check::{Check, Progress, Verified};
pub use error::{Result, StoreError, StoreErrorKind};
pub use reader::Reader;
pub use record::{NewRecord, Record, Records};
pub use snapshot::Snapshot;
pub use store::Store;
