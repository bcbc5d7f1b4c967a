//! Rule 7: reservations are few, disjoint, only move earlier, and are kept.

use crate::books::Sure;
use crate::placement::Allowed;
use crate::replay::Replay;
use crate::report::{Check, Spot, seconds};
use crate::state::{Faith, HostState, Phase, Promise};

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
        let is_decided = self.jobs[holder as usize].hold() == Some(Sure::Yes);
        self.findings.check(Check::PromiseMade, spot, !is_decided, || {
            "gets a reservation, though its start is decided".into()
        });
        let until = entry.until.unwrap_or(now);
        let hosts: Vec<u32> = entry.placement.iter().map(|place| place.0).collect();
        for &host in &hosts {
            let (name, state) = (self.host_name(host), self.hosts[host as usize].state);
            self.findings.check(Check::PromiseMade, spot, state == HostState::Up, || {
                format!("{name} is reserved, which is {state:?}")
            });
        }
        let elsewhere = self.class_at(holder, &hosts) == Allowed::No;
        self.findings.check(Check::PromiseMade, spot, !elsewhere, || {
            "gets a reservation on hosts on which it would not be allocated".into()
        });
        let mut since = now;
        let old = self.promises.iter().position(|promise| promise.holder == holder);
        let is_new = old.is_none();
        if let Some(old) = old.map(|old| self.promises.remove(old)) {
            let is_good = old.faith == Faith::Good
                && old.doubt != Some(now)
                && self.class_at(holder, &old.hosts) == Allowed::Yes;
            self.findings.check(Check::PromiseMade, spot, until <= old.until || !is_good, || {
                let (was, is) = (seconds(old.until), seconds(until));
                format!("T moves from {was} to {is}, and none of its hosts failed or drains")
            });
            if is_good {
                since = old.since;
            }
        }
        self.judge_disjoint(holder, &hosts);
        let longest = self.longest_wait();
        self.findings.check(
            Check::PromiseMade,
            spot,
            until <= since.saturating_add(longest),
            || format!("T is {} ms away, at most {longest} are allowed", until - since),
        );
        let (entry, line) = (index, entry.line);
        let (faith, doubt) = (Faith::Good, None);
        self.promises.push(Promise { holder, hosts, until, since, entry, line, faith, doubt });
        let standing = self.promises.iter().filter(|promise| !self.is_open(promise)).count();
        let most = self.scenario.settings.reservations as usize;
        self.findings.check(Check::PromiseMade, spot, standing <= most || !is_new, || {
            format!("{standing} reservations stand, {most} may")
        });
    }

    /// Rules 1 and 7: whether a holder would be allocated on hosts of one pool, had it them now.
    fn class_at(&self, holder: u32, hosts: &[u32]) -> Allowed {
        let class = hosts.first().map(|&host| self.class_now(holder, host));
        match class {
            Some((true, Sure::Yes)) => Allowed::Yes,
            Some((false, Sure::Yes)) => Allowed::No,
            Some((_, Sure::Maybe)) | None => Allowed::Maybe,
        }
    }

    /// Rule 7: reservations of several holders are disjoint.
    fn judge_disjoint(&mut self, holder: u32, hosts: &[u32]) {
        let spot = self.spot(holder);
        for other in self.promises.iter().filter(|other| other.holder != holder) {
            let shared = hosts.iter().find(|host| other.hosts.contains(host));
            let open = self.is_open(other);
            self.findings.check(Check::PromiseMade, spot, shared.is_none() || open, || {
                let name =
                    shared.map_or("", |&host| self.scenario.hosts[host as usize].name.as_str());
                let id = &self.scenario.workloads[other.holder as usize].id;
                format!("{name} is reserved for {id} already (line {})", other.line)
            });
        }
    }

    /// At the end of a moment: what was broken in it was made anew or given up, unless its hosts are back; and
    /// whose reservation was not made anew has not lost a hold.
    pub(crate) fn judge_broken_promises(&mut self) {
        let (now, mut doubted) = (self.now, false);
        for promise in &mut self.promises {
            doubted |= promise.doubt.take() == Some(now);
        }
        if doubted {
            for (holder, hosts) in
                self.promises.iter().map(|p| (p.holder, p.hosts.clone())).collect::<Vec<_>>()
            {
                self.judge_disjoint(holder, &hosts);
            }
        }
        for index in 0..self.promises.len() {
            let promise = &self.promises[index];
            if promise.faith == Faith::Good || self.is_open(promise) {
                continue;
            }
            let up = |host: &u32| self.hosts[*host as usize].state == HostState::Up;
            let good = !promise.hosts.is_empty() && promise.hosts.iter().all(up);
            let (spot, until) = (self.spot(promise.holder), promise.until);
            self.findings.check(Check::PromiseKept, spot, good, || {
                let until = seconds(until);
                format!("a host of its reservation for {until} is lost, and it is not made anew")
            });
            self.promises[index].faith = Faith::Good;
        }
        for promise in &self.promises {
            let out = !self.is_open(promise)
                && self.class_at(promise.holder, &promise.hosts) == Allowed::No;
            let (spot, until) = (self.spot(promise.holder), promise.until);
            self.findings.check(Check::PromiseKept, spot, !out, || {
                let until = seconds(until);
                format!(
                    "its reservation for {until} stands on hosts on which it would not be allocated"
                )
            });
        }
    }

    /// How long T may be away: max(H, A).
    fn longest_wait(&self) -> u64 {
        let settings = &self.scenario.settings;
        settings.horizon_ms.max(settings.reservation_age_ms)
    }

    /// A reservation is given up: a host of it is lost, or its budget has lost its share or the room under a
    /// limit at the rate of its hosts.
    pub(crate) fn unreserved(&mut self, index: usize) {
        let holder = self.entries[index].workload;
        if !self.is_budget {
            return;
        }
        let Some(place) = self.promises.iter().position(|promise| promise.holder == holder) else {
            return;
        };
        let promise = self.promises.remove(place);
        let is_funded = self.class_at(holder, &promise.hosts);
        let is_unsure = is_funded == Allowed::Maybe || self.is_open(&promise);
        if promise.faith == Faith::Good && is_unsure {
            return self.findings.undecided(Check::PromiseKept);
        }
        let good = promise.faith != Faith::Good || is_funded == Allowed::No;
        let spot = self.spot(holder);
        self.findings.check(Check::PromiseKept, spot, good, || {
            let until = seconds(promise.until);
            format!(
                "its reservation for {until} is given up, though it is funded and none of its hosts \
                 failed or drains"
            )
        });
    }

    /// Rule 7: at its start, a holder is in time.
    pub(crate) fn judge_kept(&mut self, workload: u32) {
        let Some((until, since)) = self.jobs[workload as usize].promised.take() else { return };
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
            let good = promise.faith == Faith::Broken || now <= promise.until.saturating_add(grace);
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
