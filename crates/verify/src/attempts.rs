//! Workloads and their attempts: what each line does to them, and whether it can have happened.

use crate::books::Sure;
use crate::log::What;
use crate::replay::{Replay, kind_code};
use crate::report::{Check, seconds};
use crate::state::{HostState, Phase};
use bursar_scenario::HostEventKind;

impl Replay<'_> {
    fn expect_phase(&mut self, index: usize, phase: Phase) -> bool {
        let (what, workload) = (self.entries[index].what, self.entries[index].workload);
        let is = self.jobs[workload as usize].phase;
        self.may(index, is == phase, || format!("{what:?} while it is {is:?}, not {phase:?}"))
    }

    /// For what happens to the running attempt: it runs, and is the one that is meant.
    fn expect_running(&mut self, index: usize) -> bool {
        if !self.expect_phase(index, Phase::Running) {
            return false;
        }
        let entry = &self.entries[index];
        let (attempt, allocated) = (entry.attempt, entry.allocated);
        let job = &self.jobs[entry.workload as usize];
        let (attempts, class) = (job.attempts, job.allocated);
        let same = self.may(index, attempt.is_none_or(|attempt| attempt == attempts), || {
            format!("attempt {} while attempt {attempts} runs", attempt.unwrap_or(0))
        });
        if let Some(allocated) = allocated {
            let spot = self.spot_of(index);
            self.findings.check(Check::Class, spot, allocated == class, || {
                format!("allocated is {allocated}, but the attempt started with {class}")
            });
        }
        same
    }

    pub(crate) fn submitted(&mut self, index: usize) {
        let (at, workload) = (self.entries[index].at, self.entries[index].workload);
        if !self.expect_phase(index, Phase::Absent) {
            return;
        }
        let due = self.scenario.workloads[workload as usize].submit_ms;
        self.may(index, at == due, || format!("submitted, but due at {}", seconds(due)));
        self.enqueue(workload);
    }

    pub(crate) fn refused(&mut self, index: usize) {
        let (at, workload) = (self.entries[index].at, self.entries[index].workload);
        if !self.expect_phase(index, Phase::Absent) {
            return;
        }
        let spec = &self.scenario.workloads[workload as usize];
        let due = spec.submit_ms;
        self.may(index, at == due, || format!("refused, but due at {}", seconds(due)));
        let may_be_placed = self.pools.could_hold(spec);
        let may_be_declared = spec.min_runtime_ms <= self.scenario.settings.horizon_ms;
        let spot = self.spot_of(index);
        self.findings.check(Check::Refused, spot, !(may_be_placed && may_be_declared), || {
            "refused, but hosts could hold it and its contract may be declared".into()
        });
        self.jobs[workload as usize].phase = Phase::Refused;
    }

    fn enqueue(&mut self, workload: u32) {
        self.jobs[workload as usize].phase = Phase::Waiting;
        let contract = self.contract(workload);
        if contract > 0 && self.is_budget {
            let spec = &self.scenario.workloads[workload as usize];
            let ask = (spec.gpus, spec.shape, spec.model);
            let place = (contract, self.turnout(workload), workload);
            let queue = self.queues.entry(spec.budget as usize).or_default();
            queue.entry(ask).or_default().insert(place);
        }
    }

    fn dequeue(&mut self, workload: u32) {
        let spec = &self.scenario.workloads[workload as usize];
        let place = (self.contract(workload), self.turnout(workload), workload);
        let Some(queue) = self.queues.get_mut(&(spec.budget as usize)) else { return };
        let ask = (spec.gpus, spec.shape, spec.model);
        if let Some(waiting) = queue.get_mut(&ask) {
            waiting.remove(&place);
            if waiting.is_empty() {
                queue.remove(&ask);
            }
        }
    }

    pub(crate) fn started(&mut self, index: usize) {
        let entry = &self.entries[index];
        let workload = entry.workload;
        if !self.expect_phase(index, Phase::Waiting) {
            return;
        }
        let attempt = self.jobs[workload as usize].attempts + 1;
        let numbered = entry.attempt == Some(attempt);
        self.may(index, numbered, || {
            format!("attempt {} starts, {attempt} is next", entry.attempt.unwrap_or(0))
        });
        let placed = self.judge_shape(workload, &entry.placement);
        self.judge_host_use(workload, &entry.placement);
        let allocated = entry.allocated.unwrap_or(entry.protected_until.is_some());
        if self.is_budget {
            self.may(index, entry.allocated.is_some(), || "started without \"allocated\"".into());
            self.judge_start(index, allocated);
        }
        if !placed {
            return;
        }
        self.dequeue(workload);
        let contract = self.contract(workload);
        let protected_until = match (self.is_budget, allocated) {
            (true, true) => self.now.saturating_add(contract),
            (false, true) => entry.protected_until.unwrap_or(self.now),
            (_, false) => self.now,
        };
        let rate = self.rate(workload, entry.placement[0].0);
        let leaf = self.leaf(workload);
        if allocated {
            self.books.start(leaf, workload, rate, protected_until);
        }
        for &(host, gpus) in &entry.placement {
            let host = &mut self.hosts[host as usize];
            host.touch(self.now);
            host.used += i64::from(gpus);
            host.runs.insert(workload);
        }
        self.attempts += 1;
        let now = self.now;
        let job = &mut self.jobs[workload as usize];
        job.phase = Phase::Running;
        job.attempts = attempt;
        job.allocated = allocated;
        job.protected_until = protected_until;
        job.placement = entry.placement.clone();
        job.started = now;
        job.rate = rate;
        job.told = None;
        job.class = None;
    }

    pub(crate) fn protection_ended(&mut self, index: usize) {
        if !self.expect_running(index) || !self.is_budget {
            return;
        }
        let job = &self.jobs[self.entries[index].workload as usize];
        let (allocated, until, now) = (job.allocated, job.protected_until, self.now);
        let spot = self.spot_of(index);
        self.findings.check(Check::Class, spot, allocated && until == now, || {
            format!("protection ends at {}, not at {}", seconds(until), seconds(now))
        });
    }

    pub(crate) fn preempted(&mut self, index: usize) {
        let entry = &self.entries[index];
        let workload = entry.workload;
        if !self.expect_running(index) {
            return;
        }
        let told = self.jobs[workload as usize].told;
        if !self.may(index, told.is_none(), || "preempted twice".into()) {
            return;
        }
        let (now, job) = (self.now, &self.jobs[workload as usize]);
        let (until, allocated) = (job.protected_until, job.allocated);
        let is_protected = allocated && until > now;
        if is_protected {
            self.breaches.preempted += 1;
        }
        if self.is_budget {
            let spot = self.spot_of(index);
            self.findings.check(Check::Protected, spot, !is_protected, || {
                format!(
                    "preempted {} ms before its protection ends at {}",
                    until - now,
                    seconds(until)
                )
            });
            if let Some(&hold) = self.timeline.by_first_victim.get(&index) {
                self.judge_preemption(hold);
                self.stand(hold, Sure::Yes);
            } else if entry.by.is_none() {
                self.judge_drain_victim(index);
            }
        }
        self.jobs[workload as usize].told = Some(now);
        for &(host, gpus) in &self.jobs[workload as usize].placement {
            self.hosts[host as usize].leaving += i64::from(gpus);
        }
    }

    /// Rule 9: who is preempted for nobody must be on a draining host.
    fn judge_drain_victim(&mut self, index: usize) {
        let job = &self.jobs[self.entries[index].workload as usize];
        let drains =
            job.placement.iter().any(|p| self.hosts[p.0 as usize].state == HostState::Draining);
        let spot = self.spot_of(index);
        self.findings.check(Check::Drain, spot, drains, || {
            "preempted for nobody, and none of its hosts drains".into()
        });
    }

    pub(crate) fn requeued(&mut self, index: usize) {
        let workload = self.entries[index].workload;
        let resumable = self.scenario.workloads[workload as usize].resumable;
        self.may(index, resumable, || "requeued, but it is not resumable".into());
        if self.jobs[workload as usize].phase == Phase::HostFailed {
            self.compare_lost(index);
            self.enqueue(workload);
            return;
        }
        if !self.expect_running(index) {
            return;
        }
        let told = self.jobs[workload as usize].told;
        self.may(index, told.is_some(), || "requeued, but it was not preempted".into());
        self.judge_lost(index);
        self.end_attempt(workload);
        self.enqueue(workload);
    }

    pub(crate) fn cancelled(&mut self, index: usize) {
        let workload = self.entries[index].workload;
        if self.jobs[workload as usize].phase == Phase::Running {
            return self.ended(index);
        }
        if self.expect_phase(index, Phase::Waiting) {
            self.dequeue(workload);
            self.promises.retain(|promise| promise.holder != workload);
            self.jobs[workload as usize].phase = Phase::Over;
        }
    }

    pub(crate) fn ended(&mut self, index: usize) {
        let entry = &self.entries[index];
        let workload = entry.workload;
        if !self.expect_running(index) {
            return;
        }
        let spec = &self.scenario.workloads[workload as usize];
        let job = &self.jobs[workload as usize];
        let (told, now) = (job.told, self.now);
        let is_protected = job.allocated && job.protected_until > now;
        let age = now - job.started;
        let in_time = spec.max_runtime_ms.is_none_or(|most| age <= most);
        self.may(index, in_time, || format!("it ran for {} s, past its max_runtime", seconds(age)));
        if entry.what == What::Terminated {
            let good = told.is_some() && !spec.resumable;
            self.may(index, good, || {
                "terminated, but it was not preempted or could be resumed".into()
            });
        }
        if entry.what == What::HostFailed {
            let placement = &self.jobs[workload as usize].placement;
            let at_fault = placement.iter().any(|place| {
                let host = place.0 as usize;
                let fails = (now, host, kind_code(HostEventKind::Fail));
                self.hosts[host].state == HostState::Down || self.planned.contains(&fails)
            });
            self.may(index, at_fault, || "host_failed, but none of its hosts failed".into());
            self.breaches.host_failed += u64::from(is_protected);
        }
        self.judge_lost(index);
        self.end_attempt(workload);
        let job = &mut self.jobs[workload as usize];
        if entry.what == What::HostFailed && spec.resumable {
            job.phase = Phase::HostFailed;
            self.to_requeue.push(workload);
        } else {
            job.phase = Phase::Over;
        }
    }

    /// Takes the running attempt off its hosts and out of the books.
    pub(crate) fn end_attempt(&mut self, workload: u32) {
        let spec = &self.scenario.workloads[workload as usize];
        let now = self.now;
        let job = &self.jobs[workload as usize];
        let told = job.told;
        if let (Some(told), true) = (told, self.is_budget) {
            let most = self.scenario.settings.grace_ms;
            let grace = spec.grace_ms.unwrap_or(most).min(most);
            let spot = self.spot(workload);
            self.findings.check(Check::Grace, spot, now - told <= grace, || {
                format!("leaves {} ms after it was told; its grace is {grace} ms", now - told)
            });
        }
        let job = &mut self.jobs[workload as usize];
        let placement = std::mem::take(&mut job.placement);
        let gpu_ms = u128::from(spec.gpus) * u128::from(now - job.started);
        let (leaf, rate) = (spec.budget as usize, job.rate);
        if job.allocated {
            self.allocated_ms += gpu_ms;
            self.budget_charged[leaf] += rate * u128::from(now - job.started);
            self.books.stop(leaf, workload, rate, job.protected_until);
        } else {
            self.unallocated_ms += gpu_ms;
            self.budget_unallocated[leaf] += gpu_ms;
        }
        for &(host, gpus) in &placement {
            let host = &mut self.hosts[host as usize];
            host.touch(now);
            host.used -= i64::from(gpus);
            if told.is_some() {
                host.leaving -= i64::from(gpus);
                host.serve(i64::from(gpus));
            }
            host.runs.remove(&workload);
        }
    }
}
