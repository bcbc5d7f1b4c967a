//! The lines of the ledger: what of each attempt lies in the period.

use super::facts::{AttemptFacts, Facts, WorkFacts};
use super::{AttemptRow, Cause};
use crate::record::Outcome;
use std::collections::BTreeMap;

/// GPU-milliseconds that `gpu_ms` are charged at a rate: whole ones, so that the parts of an attempt in periods that
/// follow each other add up to the charge of the whole.
fn charged(gpu_ms: u64, rate_milli: u64) -> u64 {
    let charged = u128::from(gpu_ms) * u128::from(rate_milli) / 1_000;
    u64::try_from(charged).unwrap_or(u64::MAX)
}

impl Facts {
    /// All lines, in the order of workloads and attempts, each with the place of its workload.
    pub(super) fn lines(&self) -> Vec<(usize, AttemptRow)> {
        let models: BTreeMap<&str, &str> =
            self.hosts.iter().map(|host| (host.name.as_str(), host.model.as_str())).collect();
        let mut lines = Vec::new();
        for (at, work) in self.works.iter().enumerate() {
            let rows = work.attempts.iter().filter_map(|attempt| self.line(work, attempt, &models));
            lines.extend(rows.map(|row| (at, row)));
        }
        lines
    }

    fn is_in(&self, at_ms: u64) -> bool {
        (self.from_ms..self.to_ms).contains(&at_ms)
    }

    fn line(
        &self,
        work: &WorkFacts,
        attempt: &AttemptFacts,
        models: &BTreeMap<&str, &str>,
    ) -> Option<AttemptRow> {
        let until_ms = attempt.ended_ms.unwrap_or(self.to_ms).min(self.to_ms);
        let from_ms = attempt.started_ms.max(self.from_ms);
        let is_gone = attempt.ended_ms.is_some_and(|ended| self.is_in(ended));
        if attempt.started_ms >= self.to_ms || (from_ms >= until_ms && !is_gone) {
            return None;
        }
        let to_ms = until_ms.max(from_ms);
        let gpus = attempt.gpus();
        let model = attempt.placement.first().and_then(|(host, _)| models.get(host.as_str()));
        let model = model.copied().unwrap_or_default();
        let rate_milli = self.rate_milli(model);
        // What is charged is counted from the start of the attempt: see `charged`.
        let charged_by =
            |at_ms: u64| charged(gpus * at_ms.saturating_sub(attempt.started_ms), rate_milli);
        let delivered = if attempt.allocated { charged_by(to_ms) - charged_by(from_ms) } else { 0 };
        let (preempted_by_rule, breach) = self.disturbed(attempt);
        let hosts = attempt.placement.iter().map(|(host, gpus)| format!("{host}:{gpus}"));
        // How it ended is said of what has ended by the end of the period.
        let ended_ms = attempt.ended_ms.filter(|&ended| ended < self.to_ms);
        Some(AttemptRow {
            workload: work.number,
            attempt: attempt.number,
            name: work.name.clone(),
            budget: work.budget.clone(),
            user: work.user.clone(),
            gpus,
            model: model.to_owned(),
            rate_milli,
            hosts: hosts.collect::<Vec<_>>().join(";"),
            allocated: attempt.allocated,
            started_unix_ms: self.unix_ms + attempt.started_ms,
            ended_unix_ms: ended_ms.map(|ended| self.unix_ms + ended),
            from_unix_ms: self.unix_ms + from_ms,
            to_unix_ms: self.unix_ms + to_ms,
            used_gpu_ms: gpus * (to_ms - from_ms),
            delivered_gpu_ms: delivered,
            lost_gpu_ms: if is_gone { attempt.lost_gpu_ms } else { 0 },
            outcome: attempt.outcome.filter(|_| ended_ms.is_some()),
            preempted_by_rule,
            breach,
        })
    }

    /// By which rule it was told to leave in the period, and what stopped it while it was protected.
    fn disturbed(&self, attempt: &AttemptFacts) -> (Option<u8>, Option<Cause>) {
        let is_protected = |at_ms: u64| attempt.allocated && at_ms < attempt.protected_until_ms;
        let ended = |outcome| {
            let ended_ms = attempt.ended_ms.filter(|&ended| self.is_in(ended));
            ended_ms.filter(|_| attempt.outcome == Some(outcome))
        };
        // One that was told to leave after it had ended, as was heard of late, was told when it ended.
        let told = attempt.evicted.map(|(at_ms, rule)| {
            (attempt.ended_ms.map_or(at_ms, |ended| ended.min(at_ms)), at_ms, rule)
        });
        if let Some((_, at_ms, rule)) = told.filter(|&(told_ms, ..)| self.is_in(told_ms)) {
            return (Some(rule), is_protected(at_ms).then_some(Cause::Scheduler));
        }
        // Another scheduler told it to leave: nothing of ours did, and nobody asked for it.
        let left =
            ended(Outcome::Left).filter(|_| attempt.evicted.is_none() && !attempt.asked_to_requeue);
        if let Some(at_ms) = left {
            return (Some(0), is_protected(at_ms).then_some(Cause::Scheduler));
        }
        let lost = ended(Outcome::Lost).filter(|&at_ms| is_protected(at_ms));
        (None, lost.map(|_| Cause::HostFailure))
    }
}
