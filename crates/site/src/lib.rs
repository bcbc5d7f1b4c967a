//! A live site: the fold of its journal over the decision core.
//!
//! Everything that happens to a site is a [`Record`]; folding the records in order gives the [`Site`], and
//! nothing else changes it (docs/adr/0008). A request is checked by [`requests`] and becomes a record, which
//! is journaled, then applied; [`Site::plan`] decides, and what it decided is a record with a hash.
//!
//! Absent on purpose: clocks, files, threads and engines. Those are the server's, which drives this as the
//! simulator drives the core.

mod arrivals;
mod behalf;
pub mod budgets;
pub mod changes;
pub mod declare;
mod entry;
pub mod error;
mod fold;
pub mod forecast;
pub mod funding;
mod handback;
mod notices;
mod open;
mod outcome;
pub mod past;
pub mod plain;
pub mod plan;
mod ran;
pub mod record;
pub mod report;
pub mod requests;
mod sent;
pub mod site;
pub mod snapshot;
pub mod terms;
mod tokens;
pub mod views;
pub mod waiting;
pub mod work;
pub mod yaml;

pub use arrivals::Incoming;
pub use budgets::{BudgetDoc, Budgets};
pub use bursar_core::HostState;
pub use error::{Refused, RefusedKind, ReplayError};
pub use fold::Fold;
pub use plan::Planned;
pub use ran::Ran;
pub use record::{Body, Record};
pub use site::Site;
pub use work::{Attempt, Ending, Spell, Stage, Work};
