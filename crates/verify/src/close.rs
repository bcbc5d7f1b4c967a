//! The end of a log: what never came, and rule 12's sum.

use crate::replay::Replay;
use crate::report::{BudgetTotals, Check, Findings, PolicyReport, Spot, Totals, seconds};
use crate::state::Phase;
use crate::timeline::Fault;

impl Replay<'_> {
    pub(crate) fn finish(mut self, policy: &str) -> (PolicyReport, Findings) {
        self.end_instant();
        let end = self.now;
        for workload in 0..self.jobs.len() as u32 {
            self.finish_workload(workload);
        }
        if self.is_budget {
            self.judge_unkept_promises();
            for Fault { entry, workload, message } in std::mem::take(&mut self.timeline.faults) {
                let entry = &self.entries[entry];
                let id = &*self.scenario.workloads[workload as usize].id;
                let spot = Spot { at: entry.at, line: entry.line, workload: Some(id) };
                self.findings.fail(Check::Log, spot, message.into());
            }
        }
        let totals = self.totals(end);
        let budgets =
            self.scenario.budgets.iter().enumerate().map(|(index, budget)| BudgetTotals {
                budget: budget.path.clone(),
                charged_milli_gpu_ms: self.books.charged(index),
                unallocated_gpu_ms: self.budget_unallocated[index],
            });
        let report = PolicyReport {
            policy: policy.into(),
            events: self.entries.len() as u64,
            attempts: self.attempts,
            end: end as f64 / 1000.0,
            checks: self.findings.counts(),
            violations_total: self.findings.total,
            totals,
            budgets: budgets.collect(),
            breaches: self.breaches,
        };
        (report, self.findings)
    }

    fn finish_workload(&mut self, workload: u32) {
        let spec = &self.scenario.workloads[workload as usize];
        let phase = self.jobs[workload as usize].phase;
        let spot = self.spot(workload);
        let seen = phase != Phase::Absent || spec.submit_ms > self.now;
        self.findings.check(Check::Log, spot, seen, || {
            format!("due at {}, but never submitted", seconds(spec.submit_ms))
        });
        if phase == Phase::Running {
            self.end_attempt(workload);
        }
    }

    /// Rule 12. Used GPU-time comes from the attempts, idle and lost GPU-time from the hosts.
    fn totals(&mut self, end: u64) -> Totals {
        for host in &mut self.hosts {
            host.touch(end);
        }
        let idle: i128 = self.hosts.iter().map(|host| host.idle_ms).sum();
        let lost: i128 = self.hosts.iter().map(|host| host.out_of_service_ms).sum();
        let all = u128::from(self.scenario.gpus_total()) * u128::from(end);
        let sum = (self.allocated_ms + self.unallocated_ms) as i128 + idle + lost;
        let (allocated, unallocated) = (self.allocated_ms, self.unallocated_ms);
        let spot = self.host_spot();
        self.findings.check(Check::Conservation, spot, sum == all as i128 && idle >= 0, || {
            format!(
                "allocated {allocated} + unallocated {unallocated} + idle {idle} + out of service \
                 {lost} = {sum} GPU-ms, but GPUs x time is {all}"
            )
        });
        // From the leaves up: each node is charged what its leaves are.
        for index in (1..self.budget_charged.len()).rev() {
            if let Some(parent) = self.scenario.budgets[index].parent {
                self.budget_charged[parent] += self.budget_charged[index];
                self.budget_unallocated[parent] += self.budget_unallocated[index];
            }
        }
        for index in 0..self.budget_charged.len() {
            let (of_attempts, in_books) = (self.budget_charged[index], self.books.charged(index));
            let path = &self.scenario.budgets[index].path;
            self.findings.check(Check::Conservation, spot, of_attempts == in_books, || {
                format!("{path:?}: charged {in_books}, its attempts come to {of_attempts}")
            });
        }
        Totals {
            allocated_gpu_ms: allocated,
            unallocated_gpu_ms: unallocated,
            idle_gpu_ms: u128::try_from(idle).unwrap_or(0),
            out_of_service_gpu_ms: u128::try_from(lost).unwrap_or(0),
            all_gpu_ms: all,
        }
    }
}
