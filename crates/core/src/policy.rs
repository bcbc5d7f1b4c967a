//! What a policy is: it watches facts change and, asked, names the next thing to do. The budget policy
//! and every policy that Bursar is compared with implement this trait.

use crate::cluster::Placement;
use crate::reason::{EvictReason, StartReason, WaitReason};
use crate::state::{Notice, State};
use crate::units::{HostIx, TimeMs, WorkloadIx};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Decides order, starts, preemptions and reservations.
pub trait Policy: Send {
    /// The name by which people choose it.
    fn name(&self) -> &'static str;

    /// Something changed; `state` is how it is now.
    fn observe(&mut self, state: &State, notice: &Notice);

    /// The next decision, or none if nothing should change now. Pure in its result: what a policy
    /// remembers between calls may only make it faster (rule 10).
    fn decide(&mut self, state: &State) -> Option<Decision>;

    /// The next moment at which `decide` could say something new although nothing happens before.
    fn next_wake(&mut self, state: &State) -> TimeMs;

    /// What a waiting workload waits for (rule 11).
    fn why(&self, state: &State, workload: WorkloadIx) -> WaitReason;

    /// The same policy for a state whose budget tree has changed, with all that waits in it; none if it cannot
    /// follow such a change.
    fn rebuilt(&self, state: &State) -> Option<Box<dyn Policy>> {
        let _ = state;
        None
    }

    /// A copy, for planning without committing.
    fn clone_box(&self) -> Box<dyn Policy>;
}

/// One who must leave, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Who.
    pub workload: WorkloadIx,
    /// Why.
    pub reason: EvictReason,
}

/// A promise (rule 7).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Reservation {
    /// For whom.
    pub holder: WorkloadIx,
    /// The hosts and the GPUs on each; none if they are lost and it is to be made anew.
    pub placement: Placement,
    /// T: the moment at which the holder takes them.
    pub until: TimeMs,
    /// When the holder first got a reservation.
    pub made: TimeMs,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A waiting workload gets these GPUs; it starts when the victims (if any) are gone.
    Start {
        /// Who.
        workload: WorkloadIx,
        /// Where.
        placement: Placement,
        /// Whether it is charged (rule 1).
        allocated: bool,
        /// Why.
        reason: StartReason,
        /// Who must leave for it.
        victims: Vec<Victim>,
    },
    /// A held workload can start: all it waited for is gone.
    StartHeld {
        /// Who.
        workload: WorkloadIx,
    },
    /// An attempt must leave, for nobody in particular (rule 9).
    Evict(Victim),
    /// A draining host is empty.
    Drained(HostIx),
    /// Rule 7: hosts are promised.
    Reserve(Reservation),
    /// A reservation that cannot be kept (its hosts failed or drain) is given up.
    Unreserve {
        /// Whose.
        holder: WorkloadIx,
    },
}

/// Decisions in the order in which they are to be committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What to do.
    pub decisions: Vec<Decision>,
}
