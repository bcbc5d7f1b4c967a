//! Runs of work of the engine's own queue that were over before anybody saw them
//! ([ADR 15](../../../docs/adr/0015-runs-that-nobody-saw.md)).

use crate::error::{Refused, RefusedKind};
use crate::record::{Body, Outcome};
use crate::site::Site;
use crate::work::{Attempt, Ending, Stage};
use bursar_core::{Event, PastRun, SpanMs, StartReason, TimeMs, WorkloadSpec};

/// A run that is over and that no attempt of its workload is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Hosts, and how many GPUs on each.
    pub placement: Vec<(String, u32)>,
    /// From when to when, in milliseconds since the site was created.
    pub span_ms: (u64, u64),
    /// How it ended.
    pub outcome: Outcome,
    /// The exit code, where there is one.
    pub exit_code: Option<i32>,
    /// What more the engine said.
    pub detail: Option<String>,
    /// What its engine calls it.
    pub run: String,
    /// Whether the workload has ended with it.
    pub last: bool,
}

impl Site {
    /// The record of a run that nobody saw of the workload of this number, which came through the engine's own queue: one
    /// that is here, or is taken in with it.
    ///
    /// # Errors
    /// If it ran on hosts that are not of this site, or its budget has been divided since.
    pub fn ran(&self, number: u64, ran: Ran) -> Result<Body, Refused> {
        let conflict = |message: String| Refused { kind: RefusedKind::Conflict, message };
        self.past_hosts(&ran.placement).map_err(conflict)?;
        if let Some(work) = self.works.get(&number) {
            let index = self.budgets.index(&work.declared.budget);
            if index.is_none_or(|at| self.scheduler.state().tree.leaf_place(at).is_none()) {
                return Err(conflict(format!(
                    "budget '{}' is divided by now, or gone",
                    work.declared.budget
                )));
            }
        }
        let (since_ms, ended_ms) = ran.span_ms;
        Ok(Body::Ran {
            workload: number,
            placement: ran.placement,
            since_ms: since_ms.min(ended_ms),
            ended_ms,
            outcome: ran.outcome,
            exit_code: ran.exit_code,
            detail: ran.detail,
            run: ran.run,
            last: ran.last,
        })
    }

    /// The first host and the sum of the GPUs.
    fn past_hosts(
        &self,
        placement: &[(String, u32)],
    ) -> Result<(bursar_core::HostIx, u32), String> {
        let unknown: Vec<&str> = placement
            .iter()
            .filter(|(name, _)| self.host_index(name).is_none())
            .map(|(name, _)| name.as_str())
            .collect();
        if !unknown.is_empty() {
            return Err(format!(
                "it ran on hosts that are not of this site: {}",
                unknown.join(", ")
            ));
        }
        let gpus = placement.iter().map(|(_, gpus)| gpus).sum();
        let first = placement.first().and_then(|(name, _)| self.host_index(name));
        first.filter(|_| gpus > 0).map(|host| (host, gpus)).ok_or("it ran without GPUs".to_owned())
    }

    /// Folds [`Body::Ran`]: an attempt that nobody decided, and that is over. It is allocated or not by rule 1, by what is
    /// known at the record's moment.
    pub(crate) fn fold_ran(&mut self, at: TimeMs, body: &Body) -> Result<(), String> {
        let Body::Ran { workload, placement, since_ms, ended_ms, .. } = body else {
            return Err("no run".into());
        };
        let Body::Ran { outcome, exit_code, detail, run: name, last, .. } = body else {
            return Err("no run".into());
        };
        let number = *workload;
        let (host, gpus) = self.past_hosts(placement)?;
        let work = self.works.get(&number).ok_or_else(|| format!("no workload {number}"))?;
        if *ended_ms > at.0 {
            return Err(format!("workload {number} is said to run until {ended_ms}"));
        }
        let spec = self.spec(number, &work.declared)?;
        let run = PastRun {
            budget: spec.budget,
            host,
            gpus,
            min_runtime: spec.min_runtime,
            protection: protection(&spec),
            since: TimeMs(*since_ms),
            ended: TimeMs(*ended_ms),
        };
        // The class is that of this moment, as the core sees it.
        self.event(at, Event::Tick)?;
        let allocated = self.scheduler.state().past_run_is_allocated(&run);
        self.event(at, Event::Ran(run))?;
        let contract = if allocated { run.protection.0 } else { 0 };
        let work = self.works.get_mut(&number).expect("it was just there");
        let mut attempt = Attempt {
            number: work.highest_attempt() + 1,
            allocated,
            decided_ms: *since_ms,
            started_ms: Some(*since_ms),
            protected_until_ms: Some(since_ms.saturating_add(contract)),
            ended_ms: None,
            // Which of a host's GPUs nobody knows any more.
            placement: placement
                .iter()
                .map(|(host, gpus)| (host.clone(), (0..*gpus).collect()))
                .collect(),
            rule: StartReason::Elsewhere.rule(),
            reason: StartReason::Elsewhere.to_string(),
            eviction: None,
            checkpoint_ms: None,
            outcome: Some(*outcome),
            exit_code: *exit_code,
            detail: detail.clone(),
            charged_gpu_ms: 0,
            lost_gpu_ms: 0,
            run: Some(name.clone()),
            asked_to_requeue: false,
        };
        attempt.close(*ended_ms, work.declared.resumable, work.declared.checkpoint_on_signal);
        // What runs now stays the latest one, whatever is heard of what ran before it.
        let place = work.attempts.len() - usize::from(work.has_open_attempt());
        work.attempts.insert(place, attempt);
        work.attempts_before += 1;
        if *last && !work.has_open_attempt() {
            self.end_with(at, number, *outcome)?;
        }
        Ok(())
    }

    /// A workload that does not run has ended as its last run did.
    fn end_with(&mut self, at: TimeMs, number: u64, outcome: Outcome) -> Result<(), String> {
        let ending = match outcome {
            Outcome::Completed => Ending::Completed,
            Outcome::Failed => Ending::Failed,
            Outcome::Cancelled => Ending::Cancelled,
            Outcome::Left => Ending::Terminated,
            Outcome::Lost => Ending::HostFailed,
        };
        let work = self.works.get_mut(&number).expect("it was just there");
        match work.stage {
            // It was taken for cancelled while it waited.
            Stage::Ended(_) => {
                work.stage = Stage::Ended(ending);
                return Ok(());
            }
            Stage::Waits => {}
            Stage::Live(place) => {
                // For the core it leaves the queue; how it ended the core was not asked.
                self.places.remove(&place);
                self.event(at, Event::Cancelled(place))?;
            }
        }
        self.end(at, number, ending)
    }
}

/// What a run is protected for: its contract, or what its limit leaves of it.
fn protection(spec: &WorkloadSpec) -> SpanMs {
    spec.max_runtime.map_or(spec.min_runtime, |most| spec.min_runtime.min(most))
}
