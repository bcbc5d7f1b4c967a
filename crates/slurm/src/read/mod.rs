//! Reading what the clients print.
//!
//! **Invariant: no text that a user chose can break a reading**, or be taken for another field. Fields are asked for
//! one by one, and ended by a mark that is drawn at random for each call.

mod accounting;
mod associations;
mod config;
mod history;
mod hostlist;
mod nodes;
mod partitions;
mod past;
mod queue;
mod table;
mod time;
mod tres;

pub use accounting::{ACCOUNTING_FIELDS, Run, accounting_call, read_accounting};
pub use associations::{
    Association, FairShare, administration_call, associations_call, coordinators_call,
    preempting_call, read_administration, read_associations, read_coordinators, read_preempting,
};
pub use config::{Config, config_call, read_config};
pub use history::{HISTORY_FIELDS, HistoryRow, history_call, read_history};
pub use hostlist::expand;
pub use nodes::{NODE_FIELDS, Node, node_call, read_nodes};
pub use partitions::{Partition, partitions_call, read_partitions};
pub use past::{PAST_FIELDS, PastRow, past_call, read_past};
pub use queue::{Job, JobState, QUEUE_FIELDS, QueueWhat, queue_call, read_queue};
pub use table::{Mark, Unreadable};
pub use time::{limit_ms, moment};
pub use tres::{Gpus, gpus_of_gres, gpus_of_tres};
