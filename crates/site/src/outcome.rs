//! How attempts and workloads end, in the core's words and in the journal's.

use crate::record::Outcome;
use crate::work::Ending;
use bursar_core::Stop;
use bursar_core::state::End;

pub(crate) const fn stop_of(outcome: Outcome) -> Stop {
    match outcome {
        Outcome::Completed => Stop::Completed,
        Outcome::Failed => Stop::Failed,
        Outcome::Cancelled => Stop::Cancelled,
        Outcome::Left => Stop::Left,
        Outcome::Lost => Stop::HostFailed,
    }
}

pub(crate) const fn ending_of(end: End) -> Ending {
    match end {
        End::Completed => Ending::Completed,
        End::Failed => Ending::Failed,
        End::Cancelled => Ending::Cancelled,
        End::Terminated => Ending::Terminated,
        End::HostFailed => Ending::HostFailed,
    }
}
