//! What changed in the core, read into the site's own books: attempts, spells of waiting, evictions, hosts in service.

use crate::outcome::ending_of;
use crate::record::Outcome;
use crate::site::{Service, Site};
use crate::work::{Attempt, Eviction, Spell};
use bursar_core::{EvictReason, HostIx, Notice, StartReason, Stop, TimeMs, WorkloadIx};

impl Site {
    /// Reads what changed in the core into the site's own books.
    pub(crate) fn take_notices(&mut self, at: TimeMs) {
        let notices = self.scheduler.state().notices().to_vec();
        let mut ended = Vec::new();
        let mut stopped = None;
        for notice in notices {
            match notice {
                Notice::Started(place) => {
                    let core = self.scheduler.state().workload(place);
                    let (since, until) = (core.started, core.protected_until);
                    if self.attempt_at(place).is_none_or(|latest| latest.ended_ms.is_some()) {
                        // Nobody decided it: it was found running.
                        self.open_attempt(at, place);
                    }
                    if let Some(attempt) = self.attempt_at(place) {
                        attempt.started_ms = Some(since.0);
                        attempt.protected_until_ms = Some(until.0);
                    }
                    if let Some(spell) = self.spell_at(place) {
                        spell.from_ms = spell.from_ms.min(since.0);
                    }
                }
                Notice::Preempted(place) => self.note_eviction(at, place),
                Notice::Stopped(place, stop) => {
                    self.note_stopped(at, place, stop);
                    stopped = Some(place);
                }
                Notice::Released(place) => self.note_released(at, place),
                Notice::Ended(place, end) => {
                    // Its last attempt may have ended before that was heard of.
                    let with_attempt = stopped.take() == Some(place);
                    let last = self.attempt_at(place).and_then(|attempt| attempt.ended_ms);
                    let until_ms = last.filter(|_| with_attempt).unwrap_or(at.0);
                    if let Some(spell) = self.spell_at(place) {
                        spell.until_ms = Some(until_ms);
                    }
                    if let Some(number) = self.places.remove(&place) {
                        ended.push((number, ending_of(end)));
                    }
                }
                Notice::Submitted(_)
                | Notice::Dequeued(_)
                | Notice::Requeued(_)
                | Notice::Corrected(_)
                | Notice::ProtectionEnded(_)
                | Notice::Reserved(_)
                | Notice::Unreserved(_)
                | Notice::DrainStarted(_)
                | Notice::SharesChanged
                | Notice::TermsChanged => {}
                Notice::HostDown(host) | Notice::HostUp(host) | Notice::Drained(host) => {
                    self.note_service(at, host);
                }
            }
        }
        self.scheduler.clear_notices();
        for (number, ending) in ended {
            // What follows was accepted when it was submitted; a refusal now would be ours.
            let released = self.end(at, number, ending);
            debug_assert!(released.is_ok(), "{released:?}");
        }
    }

    fn note_service(&mut self, at: TimeMs, host: HostIx) {
        let is_in = self.scheduler.state().cluster.host(host).in_service();
        let last = self.service.iter().rev().find(|change| change.host == host.0);
        if last.is_none_or(|change| change.is_in) != is_in {
            self.service.push(Service { at_ms: at.0, host: host.0, is_in });
        }
    }

    /// The span that a workload in the core's hands is in.
    fn spell_at(&mut self, place: WorkloadIx) -> Option<&mut Spell> {
        let number = self.places.get(&place)?;
        self.works.get_mut(number)?.spells.last_mut()
    }

    fn attempt_at(&mut self, place: WorkloadIx) -> Option<&mut Attempt> {
        let number = self.places.get(&place)?;
        self.works.get_mut(number)?.attempts.last_mut()
    }

    fn note_eviction(&mut self, at: TimeMs, place: WorkloadIx) {
        let core = self.scheduler.state().workload(place);
        let Some(reason) = core.evict_reason else { return };
        let (side, against) = match reason {
            EvictReason::Swap { side, against, ratio_after, ratio_against, .. } => (
                Some((self.budgets.path(side).to_owned(), ratio_after.to_string())),
                Some((self.budgets.path(against).to_owned(), ratio_against.to_string())),
            ),
            _ => (None, None),
        };
        let eviction = Eviction {
            at_ms: at.0,
            leave_by_ms: core.leave_by.0,
            by: reason.by().and_then(|by| self.places.get(&by).copied()),
            rule: reason.rule(),
            reason: match reason {
                // A moment since the site's creation says nothing to people.
                EvictReason::Promise { .. } => {
                    "rule 7: these hosts were promised to another workload from now on".to_owned()
                }
                _ => reason.to_string(),
            },
            side,
            against,
        };
        if let Some(attempt) = self.attempt_at(place) {
            attempt.eviction = Some(eviction);
        }
    }

    fn note_stopped(&mut self, at: TimeMs, place: WorkloadIx, stop: Stop) {
        let Some(&number) = self.places.get(&place) else { return };
        let ended = self.scheduler.state().workload(place).ended;
        let work = self.works.get_mut(&number).expect("a place is a workload's");
        let (resumable, on_signal) = (work.declared.resumable, work.declared.checkpoint_on_signal);
        if let Some(attempt) = work.attempts.last_mut() {
            if attempt.outcome.is_none() && stop == Stop::HostFailed {
                attempt.outcome = Some(Outcome::Lost);
            }
            // What never ran has no end in the core's books.
            let ended = attempt.started_ms.map_or(at, |_| ended);
            attempt.close(ended.0, resumable, on_signal);
        }
        self.free_gpus(number);
    }

    /// A start that the engine was told of will not come, as its host failed.
    fn note_released(&mut self, at: TimeMs, place: WorkloadIx) {
        let Some(&number) = self.places.get(&place) else { return };
        let work = self.works.get_mut(&number).expect("a place is a workload's");
        let open = work.attempts.last_mut().filter(|attempt| attempt.ended_ms.is_none());
        if let Some(attempt) = open {
            attempt.outcome.get_or_insert(Outcome::Lost);
            attempt.ended_ms = Some(at.0);
            self.free_gpus(number);
        }
    }

    fn free_gpus(&mut self, number: u64) {
        for owner in self.gpu_owners.iter_mut().flatten() {
            if *owner == Some(number) {
                *owner = None;
            }
        }
    }

    /// The engine is to be told of a start: a new attempt, with GPUs of its own.
    pub(crate) fn open_attempt(&mut self, at: TimeMs, place: WorkloadIx) {
        let core = self.scheduler.state().workload(place);
        let number = self.places[&place];
        let reason = core.start_reason;
        let mut placement = Vec::new();
        for &(host, gpus) in &core.placement {
            let owners = &mut self.gpu_owners[host.at()];
            let free = (0..owners.len()).filter(|&gpu| owners[gpu].is_none());
            let taken: Vec<usize> = free.take(gpus as usize).collect();
            assert_eq!(taken.len(), gpus as usize, "the core gives away idle GPUs only");
            for &gpu in &taken {
                owners[gpu] = Some(number);
            }
            let name = self.created.hosts[host.at()].name.clone();
            placement.push((name, taken.into_iter().map(|gpu| gpu as u32).collect()));
        }
        let work = self.works.get_mut(&number).expect("a place is a workload's");
        // Asked of the attempt before, which left for another reason.
        work.requeue_by_ms = None;
        let before = work.attempts_before;
        let attempt = Attempt {
            number: before + core.attempt,
            allocated: core.allocated,
            decided_ms: core.decided.0.min(at.0),
            started_ms: None,
            protected_until_ms: None,
            ended_ms: None,
            placement,
            rule: reason.map_or(0, |reason| reason.rule()),
            reason: match reason {
                // A moment since the site's creation says nothing to people.
                Some(StartReason::Promised { .. }) => "rule 7: its reservation is due".to_owned(),
                reason => reason.map(|reason| reason.to_string()).unwrap_or_default(),
            },
            eviction: None,
            checkpoint_ms: None,
            outcome: None,
            asked_to_requeue: false,
            exit_code: None,
            detail: None,
            charged_gpu_ms: 0,
            lost_gpu_ms: 0,
            run: None,
        };
        self.works.get_mut(&number).expect("a place is a workload's").attempts.push(attempt);
    }
}
