//! Rule 7: reservations are few, disjoint, only move earlier, and are kept.

use crate::replay::Replay;
use crate::report::{Check, Spot, seconds};
use crate::state::{HostState, Phase, Promise};

impl Replay<'_> {
    pub(crate) fn reserved(&mut self, index: usize) {
        let entry = &self.entries[index];
        let (holder, now) = (entry.workload, self.now);
        let spot = self.spot(holder);
        if !self.is_budget {
            return;
        }
        let phase = self.jobs[holder as usize].phase;
        self.findings.check(Check::Log, spot, phase == Phase::Waiting, || {
            format!("gets a reservation while it is {phase:?}")
        });
        let until = entry.until.unwrap_or(now);
        let hosts: Vec<u32> = entry.placement.iter().map(|place| place.0).collect();
        for &host in &hosts {
            let (name, state) = (self.host_name(host), self.hosts[host as usize].state);
            self.findings.check(Check::PromiseMade, spot, state == HostState::Up, || {
                format!("{name} is reserved, which is {state:?}")
            });
        }
        for other in self.promises.iter().filter(|other| other.holder != holder) {
            let shared = hosts.iter().find(|host| other.hosts.contains(host));
            let open = self.jobs[other.holder as usize].hold().is_some();
            self.findings.check(Check::PromiseMade, spot, shared.is_none() || open, || {
                let name =
                    shared.map_or("", |&host| self.scenario.hosts[host as usize].name.as_str());
                let id = &self.scenario.workloads[other.holder as usize].id;
                format!("{name} is reserved for {id} already (line {})", other.line)
            });
        }
        let mut since = now;
        if let Some(old) = self.promises.iter().position(|promise| promise.holder == holder) {
            let old = self.promises.remove(old);
            self.findings.check(
                Check::PromiseMade,
                spot,
                until <= old.until || old.is_broken,
                || {
                    let (was, is) = (seconds(old.until), seconds(until));
                    format!("T moves from {was} to {is}, and none of its hosts failed or drains")
                },
            );
            if !old.is_broken {
                since = old.since;
            }
        }
        let longest = self.longest_wait();
        self.findings.check(
            Check::PromiseMade,
            spot,
            until <= since.saturating_add(longest),
            || format!("T is {} ms away, at most {longest} are allowed", until - since),
        );
        let (entry, line) = (index, entry.line);
        self.promises.push(Promise { holder, hosts, until, since, entry, line, is_broken: false });
        let open = |promise: &&Promise| self.jobs[promise.holder as usize].hold().is_none();
        let standing = self.promises.iter().filter(open).count();
        let most = self.scenario.settings.reservations as usize;
        self.findings.check(Check::PromiseMade, spot, standing <= most, || {
            format!("{standing} reservations stand, {most} may")
        });
    }

    /// How long T may be away: max(H, A).
    fn longest_wait(&self) -> u64 {
        let settings = &self.scenario.settings;
        settings.horizon_ms.max(settings.reservation_age_ms)
    }

    pub(crate) fn unreserved(&mut self, index: usize) {
        let holder = self.entries[index].workload;
        if !self.is_budget {
            return;
        }
        let Some(place) = self.promises.iter().position(|promise| promise.holder == holder) else {
            return;
        };
        let promise = self.promises.remove(place);
        // It may be over because the start is decided, which the log says later.
        let grace = self.scenario.settings.grace_ms;
        let last = self.now.saturating_add(grace);
        let later = self.entries[index..].iter().take_while(|entry| entry.at <= last);
        let goes_on = self.is_at_end(last)
            || later.into_iter().any(|entry| {
                use crate::log::What::{Cancelled, Started};
                entry.workload == holder && matches!(entry.what, Started | Cancelled)
            });
        if goes_on && !promise.is_broken {
            self.jobs[holder as usize].promised = Some((promise.until, promise.since));
        }
        let spot = self.spot(holder);
        self.findings.check(Check::PromiseKept, spot, goes_on || promise.is_broken, || {
            format!(
                "its reservation for {} is given up, and none of its hosts failed or drains",
                seconds(promise.until)
            )
        });
        self.just_ended.push(promise);
    }

    fn is_at_end(&self, last: u64) -> bool {
        self.entries.last().is_none_or(|entry| entry.at < last)
    }

    /// Rule 7: at its start, a holder is in time.
    pub(crate) fn judge_kept(&mut self, workload: u32, is_troubled: bool) {
        let Some((until, since)) = self.jobs[workload as usize].promised.take() else { return };
        if is_troubled {
            return self.findings.undecided(Check::PromiseKept);
        }
        let (now, grace) = (self.now, self.scenario.settings.grace_ms);
        let spot = self.spot(workload);
        self.findings.check(Check::PromiseKept, spot, now <= until.saturating_add(grace), || {
            let late = now - until;
            format!("T was {}, it starts {late} ms later; grace is {grace}", seconds(until))
        });
        let longest = self.longest_wait().saturating_add(grace);
        self.findings.check(Check::PromiseKept, spot, now - since <= longest, || {
            format!("waited {} ms from its reservation, {longest} are allowed", now - since)
        });
    }

    /// At the end of the log: reservations that should have begun.
    pub(crate) fn judge_unkept_promises(&mut self) {
        let (now, grace) = (self.now, self.scenario.settings.grace_ms);
        for promise in std::mem::take(&mut self.promises) {
            let id = &*self.scenario.workloads[promise.holder as usize].id;
            let spot = Spot { at: now, line: promise.line, workload: Some(id) };
            let good = promise.is_broken || now <= promise.until.saturating_add(grace);
            self.findings.check(Check::PromiseKept, spot, good, || {
                format!(
                    "T was {}, and it has not started by {}",
                    seconds(promise.until),
                    seconds(now)
                )
            });
        }
    }
}
