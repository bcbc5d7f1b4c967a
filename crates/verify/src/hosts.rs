//! Hosts: their events, what must hold at the end of a moment, and rule 9.

use crate::log::What;
use crate::replay::{Replay, kind_code};
use crate::report::Check;
use crate::state::{Faith, HostState, Phase};
use bursar_scenario::HostEventKind;

impl Replay<'_> {
    pub(crate) fn host_event(&mut self, index: usize) {
        let entry = &self.entries[index];
        let (host, now) = (entry.host as usize, self.now);
        let state = self.hosts[host].state;
        let (next, cause, good) = match entry.what {
            What::DrainStarted => {
                (HostState::Draining, Some(HostEventKind::Drain), state == HostState::Up)
            }
            What::HostDown => {
                (HostState::Down, Some(HostEventKind::Fail), state != HostState::Down)
            }
            What::HostUp => (HostState::Up, Some(HostEventKind::Repair), state != HostState::Up),
            _ => (HostState::Drained, None, state == HostState::Draining),
        };
        let name = self.host_name(entry.host);
        if !self.may(index, good, || format!("{:?} of {name} while it is {state:?}", entry.what)) {
            return;
        }
        if let Some(kind) = cause {
            let planned = self.planned.contains(&(now, host, kind_code(kind)));
            self.may(index, planned, || format!("the scenario does not {kind:?} {name} now"));
        }
        if next == HostState::Drained {
            let (used, held) = (self.hosts[host].used, self.hosts[host].held);
            let spot = self.host_spot();
            self.findings.check(Check::Drain, spot, used == 0 && held == 0, || {
                format!("{name} is drained with {used} GPUs used and {held} held")
            });
        }
        self.hosts[host].touch(now);
        self.hosts[host].state = next;
        self.touched.insert(host);
        if next != HostState::Up {
            for promise in &mut self.promises {
                if promise.faith == Faith::Good && promise.hosts.contains(&entry.host) {
                    promise.faith = Faith::Broken;
                }
            }
        }
        let in_service = self.hosts.iter().zip(&self.scenario.hosts);
        let capacity = in_service.filter(|(host, _)| host.is_in_service()).map(|(_, spec)| {
            u128::from(spec.gpus) * u128::from(self.scenario.models[spec.model].rate_milli)
        });
        let capacity = capacity.sum();
        self.books.set_capacity(capacity);
    }

    /// What must hold when all entries of a moment have been read.
    pub(crate) fn end_instant(&mut self) {
        for workload in std::mem::take(&mut self.to_requeue) {
            let requeued = self.jobs[workload as usize].phase != Phase::HostFailed;
            let spot = self.spot(workload);
            self.findings.check(Check::Log, spot, requeued, || {
                "its host failed and it is resumable, but it was not requeued".into()
            });
        }
        self.compare_hosts();
        if self.is_budget {
            self.judge_broken_promises();
            for host in 0..self.hosts.len() {
                if self.hosts[host].state == HostState::Draining {
                    self.judge_draining(host);
                }
            }
        }
    }

    /// The states of hosts follow the scenario, and nothing runs on a host out of service.
    fn compare_hosts(&mut self) {
        while let Some(event) = self.scenario.hosts_events.get(self.next_host_event) {
            if event.at_ms > self.now {
                break;
            }
            self.next_host_event += 1;
            self.touched.insert(event.host);
            let state = &mut self.expected[event.host];
            *state = match (event.kind, *state) {
                (HostEventKind::Fail, _) => HostState::Down,
                (HostEventKind::Repair, _) => HostState::Up,
                (HostEventKind::Drain, HostState::Up) => HostState::Draining,
                (HostEventKind::Drain, state) => state,
            };
        }
        let spot = self.host_spot();
        for host in std::mem::take(&mut self.touched) {
            let name = self.host_name(host as u32);
            let (is, should) = (self.hosts[host].state, self.expected[host]);
            let same = match is {
                HostState::Drained => HostState::Draining,
                other => other,
            };
            self.findings.check(Check::Log, spot, same == should, || {
                format!("{name} is {is:?}; after the scenario's events it is {should:?}")
            });
            let (used, serves) = (self.hosts[host].used, self.hosts[host].is_in_service());
            self.findings.check(Check::HostUse, spot, serves || used == 0, || {
                format!("{used} GPUs are used on {name}, which is {is:?}")
            });
        }
    }

    /// Rule 9: what may leave a draining host has been told, and an empty one is drained.
    fn judge_draining(&mut self, host: usize) {
        for workload in self.hosts[host].runs.iter().copied().collect::<Vec<_>>() {
            let job = &self.jobs[workload as usize];
            let stays = job.told.is_some() || (job.allocated && job.protected_until > self.now);
            let (spot, name) = (self.spot(workload), self.host_name(host as u32));
            self.findings.check(Check::Drain, spot, stays, || {
                format!("not protected on {name}, which drains, and was not told to leave")
            });
        }
        let (spot, name) = (self.host_spot(), self.host_name(host as u32));
        let empty = self.hosts[host].used == 0;
        let held = self.hosts[host].held > 0 || self.hosts[host].maybe_held > 0;
        self.findings.check(Check::Drain, spot, !empty || held, || {
            format!("{name} drains and is empty, but is not drained")
        });
    }
}
