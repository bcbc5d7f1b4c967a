//! The books of a run: what each notice of the core means for events, waits, losses and promises.

use super::{Lost, Record, Run, RunError, Timed};
use crate::build::rate_step;
use crate::engine::Leftover;
use crate::events::{EventKind, EventLine, HostGpus, Seconds};
use crate::measure::HOUR_MS;
use crate::run::Outcome;
use crate::series::AttemptRecord;
use crate::summary::{LostGpuHours, SimulatorSummary};
use crate::waits::classes;
use bursar_core::state::End;
use bursar_core::{BudgetIx, HostIx, Notice, Status, Stop, TimeMs, WorkloadIx};
use std::cmp::Reverse;

impl<'a> Run<'a> {
    pub(super) fn note(&mut self, notice: &Notice) -> Result<(), RunError> {
        match *notice {
            Notice::Submitted(place) => self.note_submitted(place),
            Notice::Dequeued(place) => {
                self.change_waiting(place, false);
                Ok(())
            }
            Notice::Requeued(place) => self.note_requeued(place),
            Notice::Started(place) => self.note_started(place),
            Notice::ProtectionEnded(place) => {
                let ended_ms = self.scheduler.state().workload(place).protected_until.0;
                let mut line = self.attempt_line(place, EventKind::ProtectionEnded);
                line.t = Seconds(ended_ms);
                self.put(&line)
            }
            Notice::Preempted(place) => self.note_preempted(place),
            Notice::Stopped(place, stop) => self.note_stopped(place, stop),
            Notice::Ended(place, end) => self.note_ended(place, end),
            Notice::Reserved(place) => self.note_reserved(place),
            Notice::Unreserved(place) => self.note_unreserved(place),
            Notice::HostDown(host) => self.note_host(host, EventKind::HostDown),
            Notice::HostUp(host) => self.note_host(host, EventKind::HostUp),
            Notice::DrainStarted(host) => self.note_host(host, EventKind::DrainStarted),
            Notice::Drained(host) => self.note_host(host, EventKind::Drained),
            Notice::Released(_)
            | Notice::Corrected(_)
            | Notice::SharesChanged
            | Notice::TermsChanged => Ok(()),
        }
    }

    fn put(&mut self, line: &EventLine<'_>) -> Result<(), RunError> {
        if self.sink.wants() {
            self.sink.put(line)?;
        }
        Ok(())
    }

    fn workload_at(&self, place: WorkloadIx) -> u32 {
        self.workload_of[place.at()]
    }

    fn record_at(&mut self, place: WorkloadIx) -> &mut Record {
        let workload = self.workload_at(place);
        &mut self.records[workload as usize]
    }

    fn attempt_line(&self, place: WorkloadIx, event: EventKind) -> EventLine<'a> {
        let mut line = self.line(self.workload_at(place), event);
        line.attempt = Some(self.scheduler.state().workload(place).attempt);
        line
    }

    fn change_waiting(&mut self, place: WorkloadIx, more: bool) {
        let spec = &self.scheduler.state().workload(place).spec;
        if spec.min_runtime.0 > 0 {
            let gpus = u64::from(spec.gpus);
            self.waiting_gpus =
                if more { self.waiting_gpus + gpus } else { self.waiting_gpus - gpus };
        }
    }

    fn note_submitted(&mut self, place: WorkloadIx) -> Result<(), RunError> {
        self.change_waiting(place, true);
        let line = self.line(self.workload_at(place), EventKind::Submitted);
        self.put(&line)
    }

    fn note_requeued(&mut self, place: WorkloadIx) -> Result<(), RunError> {
        self.change_waiting(place, true);
        let now_ms = self.now_ms;
        let record = self.record_at(place);
        if !std::mem::take(&mut record.stopped) {
            // Its GPUs were held and a host of them was lost: it waits on as before, but a promise that had
            // become that hold is gone.
            record.reserved_ms = None;
            return Ok(());
        }
        record.queued_ms = now_ms;
        let lost = record.lost_gpu_ms;
        let mut line = self.attempt_line(place, EventKind::Requeued);
        line.lost_gpu_seconds = Some(Seconds(lost));
        self.put(&line)
    }

    fn note_started(&mut self, place: WorkloadIx) -> Result<(), RunError> {
        let workload = self.workload_at(place);
        let (scenario, now_ms) = (self.scenario, self.now_ms);
        let spec = self.spec(workload);
        let state = self.scheduler.state();
        let facts = state.workload(place);
        let (allocated, attempt) = (facts.allocated, facts.attempt);
        let until = facts.protected_until;
        let gpus = u64::from(spec.gpus);
        if self.sink.wants() {
            let mut line = self.attempt_line(place, EventKind::Started);
            let reason = facts.start_reason.as_ref();
            line.allocated = Some(allocated);
            line.protected_until = Some(allocated.then_some(Seconds(until.0)));
            let waited = facts.decided < facts.started;
            line.decided = waited.then_some(Seconds(facts.decided.0));
            line.placement = self.placement_line(&facts.placement);
            line.rule = reason.map(bursar_core::StartReason::rule);
            line.reason = reason.map(ToString::to_string);
            self.put(&line)?;
        }
        let keep_placement = self.options.series;
        let placement = if keep_placement {
            let facts = self.scheduler.state().workload(place);
            facts.placement.iter().map(|&(host, gpus)| (host.0, gpus)).collect()
        } else {
            Vec::new()
        };
        let recorded = self.recorded_end(workload, attempt);
        let record = &mut self.records[workload as usize];
        record.placement = placement;
        let wait_ms = now_ms - record.queued_ms;
        record.first_wait_ms.get_or_insert(wait_ms);
        record.total_wait_ms += wait_ms;
        record.running = true;
        let simulated = record.job.start(scenario, spec, now_ms);
        let (finish_ms, finish) = recorded.unwrap_or(simulated);
        record.finish_ms = finish_ms;
        record.finish = finish;
        if finish_ms < u64::MAX {
            self.push_finish(finish_ms, workload, attempt);
        }
        if self.recorded.is_some() && allocated {
            self.heap.push(Reverse((until.0, Timed::Unprotect)));
        }
        self.keep_promise(workload);
        self.measure.change(|gpus_now| {
            gpus_now.idle -= gpus;
            if allocated {
                gpus_now.allocated += gpus;
            } else {
                gpus_now.unallocated += gpus;
            }
        });
        Ok(())
    }

    /// A holder has started: was it in time?
    fn keep_promise(&mut self, workload: u32) {
        let grace_ms = self.scenario.settings.grace_ms;
        let now_ms = self.now_ms;
        let record = &mut self.records[workload as usize];
        let reserved_ms = record.reserved_ms.take();
        let Some(reserved_ms) = reserved_ms.filter(|&at_ms| self.measure.has_begun_by(at_ms))
        else {
            return;
        };
        let waited = (now_ms - reserved_ms) as f64 / 1_000.0;
        let longest = &mut self.reservations.longest_wait_seconds;
        *longest = longest.max(waited);
        if now_ms <= record.promised_ms.saturating_add(grace_ms) {
            self.reservations.met += 1;
        } else {
            self.reservations.missed += 1;
        }
    }

    fn placement_line(&self, placement: &[(HostIx, u32)]) -> Vec<HostGpus<'a>> {
        let scenario = self.scenario;
        let host = |host: HostIx| scenario.hosts[host.at()].name.as_str();
        placement.iter().map(|&(at, gpus)| HostGpus { host: host(at), gpus }).collect()
    }

    fn note_preempted(&mut self, place: WorkloadIx) -> Result<(), RunError> {
        let facts = self.scheduler.state().workload(place);
        let reason = facts.evict_reason;
        let (allocated, until) = (facts.allocated, facts.protected_until);
        let rule = reason.as_ref().map_or(0, bursar_core::EvictReason::rule);
        if self.measures() {
            self.summary.preemptions.total += 1;
            self.summary.preemptions.allocated += u64::from(allocated);
            *self.summary.preemptions.by_rule.entry(rule).or_insert(0) += 1;
        }
        if allocated && until > TimeMs(self.now_ms) {
            self.breach("scheduler");
        }
        if !self.sink.wants() {
            return Ok(());
        }
        let mut line = self.attempt_line(place, EventKind::Preempted);
        line.allocated = Some(allocated);
        line.rule = Some(rule);
        line.reason = reason.as_ref().map(ToString::to_string);
        let by = reason.as_ref().and_then(bursar_core::EvictReason::by);
        line.by = by.map(|by| &*self.spec(self.workload_at(by)).id);
        self.put(&line)
    }

    fn note_stopped(&mut self, place: WorkloadIx, stop: Stop) -> Result<(), RunError> {
        let workload = self.workload_at(place);
        let (scenario, now_ms) = (self.scenario, self.now_ms);
        let spec = self.spec(workload);
        let facts = self.scheduler.state().workload(place);
        let (allocated, started_ms) = (facts.allocated, facts.started.0);
        let (protected_until, attempt) = (facts.protected_until.0, facts.attempt);
        let preempted = matches!(stop, Stop::Left);
        if preempted && self.recorded.is_some() {
            // Nobody of ours told it to leave, but it had to.
            if self.measures() {
                self.summary.preemptions.total += 1;
                self.summary.preemptions.allocated += u64::from(allocated);
            }
            if allocated && protected_until > now_ms {
                self.breach("scheduler");
            }
        }
        let record = &mut self.records[workload as usize];
        record.running = false;
        record.stopped = true;
        let left = match stop {
            Stop::Left => record.job.stop(scenario, spec, now_ms, true),
            Stop::HostFailed => record.job.stop(scenario, spec, now_ms, false),
            Stop::Completed | Stop::Failed | Stop::Cancelled => {
                record.job.finish(scenario, spec, now_ms)
            }
        };
        if self.options.series {
            let placement = std::mem::take(&mut record.placement);
            self.series.attempts.push(AttemptRecord {
                workload,
                attempt,
                start_ms: started_ms,
                end_ms: now_ms,
                protected_until_ms: protected_until.min(now_ms),
                allocated,
                preempted,
                placement,
            });
        }
        self.lose(workload, allocated, stop, left);
        self.count_attempt(u64::from(spec.gpus), started_ms, now_ms);
        let gpus = u64::from(spec.gpus);
        self.measure.change(|gpus_now| {
            // A failed host's GPUs were taken from the idle ones before its work was taken off it.
            gpus_now.idle = gpus_now.idle.wrapping_add(gpus);
            if allocated {
                gpus_now.allocated -= gpus;
            } else {
                gpus_now.unallocated -= gpus;
            }
        });
        if stop == Stop::HostFailed {
            if allocated && protected_until > now_ms {
                self.breach("host_failure");
            }
            let lost = self.records[workload as usize].lost_gpu_ms;
            let mut line = self.attempt_line(place, EventKind::HostFailed);
            line.lost_gpu_seconds = Some(Seconds(lost));
            self.put(&line)?;
        }
        Ok(())
    }

    /// Whether the span of the metrics has begun.
    const fn measures(&self) -> bool {
        self.measure.has_begun_by(self.now_ms)
    }

    fn breach(&mut self, cause: &str) {
        if self.measures() {
            *self.summary.breaches.entry(cause.to_owned()).or_insert(0) += 1;
        }
    }

    /// Occupied GPU-time of an attempt, as far as it lies in the span of the metrics.
    pub(super) fn count_attempt(&mut self, gpus: u64, started_ms: u64, ended_ms: u64) {
        let until_ms = self.measure.until_ms();
        let started_ms = started_ms.max(self.measure.begin_ms());
        let span = ended_ms.min(until_ms).saturating_sub(started_ms);
        self.attempts_gpu_ms += u128::from(gpus) * u128::from(span);
    }

    fn lose(&mut self, workload: u32, allocated: bool, stop: Stop, left: Leftover) {
        let (gpus, resumable) = (self.spec(workload).gpus, self.spec(workload).resumable);
        let gpu_ms = |ms: u64| u128::from(ms) * u128::from(gpus);
        let (work, repeated) = (gpu_ms(left.lost_ms), gpu_ms(left.repeated_ms));
        self.measure.lose(self.now_ms, work + repeated);
        self.records[workload as usize].lost_gpu_ms =
            u64::try_from(work + repeated).unwrap_or(u64::MAX);
        if !self.measures() {
            return;
        }
        let Lost { total, allocated: charged, unallocated, .. } = &mut self.lost;
        *total += work + repeated;
        if allocated {
            *charged += work + repeated;
        } else {
            *unallocated += work + repeated;
        }
        self.lost.startup_repeated += repeated;
        if stop == Stop::HostFailed {
            self.lost.host_failures += work;
        } else if !resumable {
            self.lost.not_resumable += work;
        }
    }

    fn note_ended(&mut self, place: WorkloadIx, end: End) -> Result<(), RunError> {
        let workload = self.workload_at(place);
        let kind = match end {
            End::Completed => Some(EventKind::Completed),
            End::Failed => Some(EventKind::Failed),
            End::Cancelled => Some(EventKind::Cancelled),
            End::Terminated => Some(EventKind::Terminated),
            // The attempt's own line has said so.
            End::HostFailed => None,
        };
        if let Some(kind) = kind {
            let lost = self.records[workload as usize].lost_gpu_ms;
            let mut line = self.attempt_line(place, kind);
            line.lost_gpu_seconds = (lost > 0).then_some(Seconds(lost));
            self.put(&line)?;
        }
        self.measure.leave(self.scenario, self.scheduler.state(), workload, self.now_ms);
        self.records[workload as usize].live = false;
        self.open -= 1;
        self.add_waits(workload, self.now_ms);
        Ok(())
    }

    /// Adds the waits of a workload; one that still waits counts with the wait so far.
    fn add_waits(&mut self, workload: u32, now_ms: u64) {
        let spec = self.spec(workload);
        if !self.measure.has_begun_by(spec.submit_ms) {
            return;
        }
        let classes = classes(self.scenario, spec);
        let record = &self.records[workload as usize];
        let waiting = if record.live && !record.running { now_ms - record.queued_ms } else { 0 };
        let first = record.first_wait_ms.unwrap_or(waiting);
        self.first_waits.add(&classes, spec.budget, first);
        self.total_waits.add(&classes, spec.budget, record.total_wait_ms + waiting);
    }

    fn note_reserved(&mut self, place: WorkloadIx) -> Result<(), RunError> {
        let state = self.scheduler.state();
        let found = state.reservations.iter().find(|reservation| reservation.holder == place);
        let Some(reservation) = found.cloned() else { return Ok(()) };
        if reservation.placement.is_empty() {
            // Its hosts are lost; which ones it gets instead follows.
            return Ok(());
        }
        let now_ms = self.now_ms;
        let workload = self.workload_at(place);
        let record = &mut self.records[workload as usize];
        if record.reserved_ms.is_none() {
            record.reserved_ms = Some(now_ms);
            self.reservations.made += u64::from(self.measure.has_begun_by(now_ms));
        }
        record.promised_ms = reservation.until.0;
        if !self.sink.wants() {
            return Ok(());
        }
        let mut line = self.line(workload, EventKind::Reserved);
        line.until = Some(Seconds(reservation.until.0));
        line.placement = self.placement_line(&reservation.placement);
        line.rule = Some(7);
        line.reason = Some(format!("rule 7: these hosts are its own by {}", reservation.until));
        self.put(&line)
    }

    fn note_unreserved(&mut self, place: WorkloadIx) -> Result<(), RunError> {
        let status = self.scheduler.state().workload(place).status;
        if status != Status::Queued {
            // It starts, or has ended: nothing is given up.
            return Ok(());
        }
        let workload = self.workload_at(place);
        self.records[workload as usize].reserved_ms = None;
        let mut line = self.line(workload, EventKind::Unreserved);
        line.rule = Some(7);
        line.reason = Some(
            "rule 7: its hosts were lost, or it would not be charged any more (rule 1)".to_owned(),
        );
        self.put(&line)
    }

    fn note_host(&mut self, host: HostIx, kind: EventKind) -> Result<(), RunError> {
        let mut line = EventLine::new(self.now_ms, self.policy, kind);
        line.host = Some(&self.scenario.hosts[host.at()].name);
        self.put(&line)?;
        let gpus = u64::from(self.scenario.hosts[host.at()].gpus);
        match kind {
            EventKind::HostDown if self.out_of_service[host.at()] => {}
            EventKind::HostDown | EventKind::Drained => {
                self.out_of_service[host.at()] = true;
                // What still runs on a failed host is taken off next, and comes back as idle.
                self.measure.change(|gpus_now| {
                    gpus_now.idle = gpus_now.idle.wrapping_sub(gpus);
                    gpus_now.out_of_service += gpus;
                });
            }
            EventKind::HostUp if self.out_of_service[host.at()] => {
                self.out_of_service[host.at()] = false;
                self.measure.change(|gpus_now| {
                    gpus_now.idle += gpus;
                    gpus_now.out_of_service -= gpus;
                });
            }
            _ => {}
        }
        Ok(())
    }

    /// Closes the books.
    pub(super) fn finish(mut self) -> Outcome {
        let end_ms = self.now_ms;
        for workload in 0..self.records.len() as u32 {
            let record = &self.records[workload as usize];
            if !record.live {
                continue;
            }
            self.summary.unfinished += 1;
            let (running, place) = (record.running, record.place);
            let late = record.reserved_ms.is_some_and(|at_ms| self.measure.has_begun_by(at_ms))
                && record.promised_ms.saturating_add(self.scenario.settings.grace_ms) < end_ms;
            self.reservations.missed += u64::from(late);
            self.add_waits(workload, end_ms);
            if running {
                self.close_running(workload, place, end_ms);
            }
        }
        self.summarize();
        Outcome { summary: self.summary, series: self.series }
    }

    /// An attempt that still runs at the end of the run.
    fn close_running(&mut self, workload: u32, place: WorkloadIx, end_ms: u64) {
        let facts = self.scheduler.state().workload(place);
        let (started_ms, attempt) = (facts.started.0, facts.attempt);
        let (allocated, until_ms) = (facts.allocated, facts.protected_until.0);
        self.count_attempt(u64::from(self.spec(workload).gpus), started_ms, end_ms);
        if self.options.series {
            let placement = std::mem::take(&mut self.records[workload as usize].placement);
            self.series.attempts.push(AttemptRecord {
                workload,
                attempt,
                start_ms: started_ms,
                end_ms,
                protected_until_ms: until_ms.min(end_ms),
                allocated,
                preempted: false,
                placement,
            });
        }
    }

    fn summarize(&mut self) {
        let hours = |gpu_ms: u128| gpu_ms as f64 / HOUR_MS as f64;
        let state = self.scheduler.state();
        let at = TimeMs(self.now_ms);
        let to_seconds = rate_step(self.scenario) as f64 / 1_000.0 / 1_000.0;
        let summary = &mut self.summary;
        for (index, budget) in self.scenario.budgets.iter().enumerate() {
            let account = state.ledger.account(BudgetIx(index as u32));
            let name = if index == 0 { "(all)" } else { &budget.path };
            let charged = account.charged.total(at) as f64 * to_seconds;
            summary.charged_gpu_seconds.insert(name.to_owned(), charged);
        }
        let unallocated = state.ledger.account(BudgetIx(0)).unallocated.total(at);
        summary.unallocated_gpu_seconds = unallocated as f64 * to_seconds;
        summary.lost_gpu_seconds = self.lost.total as f64 / 1_000.0;
        let measured_ms = self.measure.until_ms() - self.measure.begin_ms();
        summary.measured_seconds = measured_ms as f64 / 1_000.0;
        summary.ended_seconds = self.now_ms as f64 / 1_000.0;
        let total_gpus = self.scenario.gpus_total();
        summary.conservation_exact = self.measure.is_conserved(total_gpus)
            && self.measure.occupied_gpu_ms() == self.attempts_gpu_ms;
        summary.gpu_hours = self.measure.gpu_hours();
        let gpu_hours = &summary.gpu_hours;
        let in_service = gpu_hours.total - gpu_hours.out_of_service;
        let occupied = gpu_hours.allocated + gpu_hours.unallocated;
        let lost = hours(self.measure.lost_in_span());
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        summary.occupancy = share(occupied, in_service);
        summary.availability = share(in_service, gpu_hours.total);
        summary.unallocated_share = share(gpu_hours.unallocated, occupied);
        summary.goodput = share(occupied - lost, in_service);
        summary.lost_share = share(lost, occupied);
        summary.lost_gpu_hours = LostGpuHours {
            allocated: hours(self.lost.allocated),
            unallocated: hours(self.lost.unallocated),
            host_failures: hours(self.lost.host_failures),
            not_resumable: hours(self.lost.not_resumable),
            startup_repeated: hours(self.lost.startup_repeated),
        };
        let owed: f64 = summary.budgets.iter().map(|budget| budget.owed_gpu_hours).sum();
        let delivered: f64 = summary
            .budgets
            .iter()
            .map(|budget| budget.delivered_gpu_hours.min(budget.owed_gpu_hours))
            .sum();
        summary.delivered_ratio = if owed > 0.0 { delivered / owed } else { 1.0 };
        let with_owed = || summary.budgets.iter().filter(|budget| budget.owed_gpu_hours > 0.0);
        summary.budgets_owed = with_owed().count() as u32;
        summary.budgets_at_95 =
            with_owed().filter(|budget| budget.delivered_ratio >= 0.95).count() as u32;
        let worst = with_owed().min_by(|a, b| a.delivered_ratio.total_cmp(&b.delivered_ratio));
        (summary.worst_budget, summary.worst_delivered_ratio) = worst
            .map_or((String::new(), 1.0), |worst| (worst.budget.clone(), worst.delivered_ratio));
        for cause in ["scheduler", "operator", "host_failure"] {
            summary.breaches.entry(cause.to_owned()).or_insert(0);
        }
        summary.first_waits = std::mem::take(&mut self.first_waits).summarize(self.scenario);
        summary.total_waits = std::mem::take(&mut self.total_waits).summarize(self.scenario);
        summary.reservations = std::mem::take(&mut self.reservations);
        summary.simulator = SimulatorSummary {
            workloads: self.next_submit as u64,
            events: self.events,
            passes: self.passes,
            wall_seconds: 0.0,
        };
    }
}
