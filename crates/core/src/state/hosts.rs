//! Hosts fail, drain and come back (rule 9).

use super::{Notice, State, Stop};
use crate::cluster::{HostState, Placement};
use crate::policy::Reservation;
use crate::units::{HostIx, WorkloadIx};
use crate::workload::{Refusal, Status};
use alloc::vec::Vec;

impl State {
    /// Those decided for a host that can no longer take them.
    fn held_on(&self, host: HostIx) -> Vec<WorkloadIx> {
        self.held.iter().copied().filter(|&index| self.is_placed_on(index, host)).collect()
    }

    /// Starts on a host that the engine has not confirmed.
    fn starting_on(&self, host: HostIx) -> Vec<WorkloadIx> {
        self.starting.iter().copied().filter(|&index| self.is_placed_on(index, host)).collect()
    }

    fn is_placed_on(&self, index: WorkloadIx, host: HostIx) -> bool {
        self.workloads[index.at()].placement.iter().any(|&(other, _)| other == host)
    }

    /// What was decided and will not come waits again where it was. A promise that the decision kept stands
    /// again; its hosts are lost, so it is made anew (rule 7).
    pub(super) fn release(&mut self, decided: &[WorkloadIx]) {
        for &index in decided {
            self.drop_hold(index);
            let workload = &mut self.workloads[index.at()];
            workload.status = Status::Queued;
            let promised = workload.promised.take();
            self.notices.push(Notice::Requeued(index));
            if let Some(promise) = promised {
                self.reserve(Reservation { placement: Placement::new(), ..promise });
            }
        }
    }

    fn capacity_changed(&mut self) {
        let capacity = self.cluster.capacity_units();
        self.ledger.set_allocation(&self.tree, capacity, self.now);
    }

    fn known_host(&self, host: HostIx) -> Result<HostState, Refusal> {
        let found = self.cluster.hosts().get(host.at()).map(|host| host.state);
        found.ok_or(Refusal::Unknown("host", host.0))
    }

    /// Rule 9: a host failed. What ran on it has stopped.
    pub(crate) fn fail_host(&mut self, host: HostIx) -> Result<(), Refusal> {
        if self.known_host(host)? == HostState::Down {
            return Ok(());
        }
        self.release(&self.held_on(host));
        self.release(&self.starting_on(host));
        let runs: Vec<WorkloadIx> =
            self.cluster.host(host).runs.iter().map(|&(index, _)| index).collect();
        self.notices.push(Notice::HostDown(host));
        self.draining.retain(|&other| other != host);
        self.cluster.set_state(host, HostState::Down);
        for index in runs {
            self.stopped(index, Stop::HostFailed, self.now)?;
        }
        self.capacity_changed();
        Ok(())
    }

    /// A host is back in service, or its drain is called off.
    pub(crate) fn repair_host(&mut self, host: HostIx) -> Result<(), Refusal> {
        if self.known_host(host)? == HostState::Up {
            return Ok(());
        }
        self.draining.retain(|&other| other != host);
        self.cluster.set_state(host, HostState::Up);
        self.notices.push(Notice::HostUp(host));
        self.capacity_changed();
        Ok(())
    }

    /// Rule 9: a host takes no new work from now on.
    pub(crate) fn drain_host(&mut self, host: HostIx) -> Result<(), Refusal> {
        if self.known_host(host)? != HostState::Up {
            return Ok(());
        }
        self.release(&self.held_on(host));
        self.cluster.set_state(host, HostState::Draining);
        self.draining.push(host);
        self.draining.sort_unstable();
        self.notices.push(Notice::DrainStarted(host));
        Ok(())
    }

    /// Rule 9: a draining host is empty and leaves service.
    pub(crate) fn finish_drain(&mut self, host: HostIx) {
        self.draining.retain(|&other| other != host);
        self.cluster.set_state(host, HostState::Drained);
        self.notices.push(Notice::Drained(host));
        self.capacity_changed();
    }
}
