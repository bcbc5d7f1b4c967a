//! The decision core of Bursar: facts in by [`Event`], decisions out as [`Decision`]s, nothing else.
//!
//! ```text
//! event ──apply──▶ State (hosts, workloads, ledger, budget tree) ──decide──▶ Plan ──commit──▶ commands
//!                       ▲                                                          │
//!                       └──────────────────── Started / Stopped ◀── engine ◀───────┘
//! ```
//!
//! The rules that this crate implements are numbered in `docs/policy`; functions cite them as
//! "rule N". The same core runs in the simulator and in the daemon.
//!
//! Invariant: there is no clock, file, thread, float or hash-ordered map here. The crate is `no_std`,
//! so the first three cannot even be named; time arrives with every event.
//!
//! Invariant: amounts are exact integers. Ratios are compared by cross products ([`wide`]), never
//! divided.
#![no_std]

extern crate alloc;

pub mod budget;
pub mod classes;
pub mod cluster;
pub mod compare;
pub mod ledger;
pub mod policy;
pub mod reason;
pub mod scheduler;
pub mod state;
pub mod terms;
pub mod tree;
pub mod units;
pub mod wide;
pub mod window;
pub mod workload;

pub use budget::BudgetPolicy;
pub use cluster::{Cluster, HostSpec, HostState, Placement};
pub use policy::{Decision, Plan, Policy, Reservation, Victim};
pub use reason::{EvictReason, StartReason, WaitReason};
pub use scheduler::{Command, Event, Scheduler};
pub use state::{Notice, PastRun, Settings, State, Stop};
pub use terms::{OpenTerm, Term};
pub use tree::{BudgetNode, Tree};
pub use units::{BudgetIx, HostIx, ModelIx, SpanMs, TimeMs, WorkloadIx};
pub use wide::Ratio;
pub use workload::{Refusal, Status, WorkloadSpec};
