//! Collects what happens to one workload, in the order in which it does.

use bursar_core::{EvictReason, Scheduler, Status, WaitReason, WorkloadIx};
use bursar_sim::Seconds;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One thing that happened to it, or one thing that it began to wait for.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Entry {
    Event(Box<Event>),
    Waits(Waits),
}

impl Entry {
    pub(super) const fn is_wait(&self) -> bool {
        matches!(self, Self::Waits(_))
    }
}

/// A line of the event log that names it, as the one that it is about or as the one for whom.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Event {
    pub(super) t: f64,
    pub(super) event: String,
    pub(super) workload: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gpus: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) allocated: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) protected_until: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) decided: Option<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) placement: Vec<HostGpus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lost_gpu_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rule: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// Of a swap: the victim's side and the other one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sides: Option<(String, String)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct HostGpus {
    pub(super) host: String,
    pub(super) gpus: u32,
}

/// What it waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    pub(super) at_ms: u64,
    pub(super) reason: WaitReason,
}

impl Serialize for Waits {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Line {
            t: Seconds,
            event: &'static str,
            rule: u8,
            #[serde(rename = "for")]
            what: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            until: Option<Seconds>,
            reason: String,
        }
        let (what, until_ms) = kind(&self.reason);
        Line {
            t: Seconds(self.at_ms),
            event: "waits",
            rule: self.reason.rule(),
            what,
            until: until_ms.map(Seconds),
            reason: self.reason.to_string(),
        }
        .serialize(serializer)
    }
}

/// What sort of wait it is, and until when if that is known.
pub(super) fn kind(reason: &WaitReason) -> (&'static str, Option<u64>) {
    match reason {
        WaitReason::Reserved { until } => ("reservation", Some(until.0)),
        WaitReason::Grace { until } => ("grace", Some(until.0)),
        WaitReason::Order { until, .. } => ("order", until.map(|until| until.0)),
        WaitReason::Idle { .. } => ("idle", None),
        WaitReason::BacksOff { until } => ("back-off", Some(until.0)),
        WaitReason::Compared(_) => ("policy", None),
    }
}

/// How it stands after a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) at_ms: u64,
    pub(super) status: Status,
    pub(super) since_ms: u64,
    pub(super) protected: bool,
    pub(super) leave_by_ms: u64,
    pub(super) waits: Option<Waits>,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Story {
    pub(super) entries: Vec<Entry>,
    /// How it stood last, while it lived.
    pub(super) standing: Option<Standing>,
    /// What it was last said to wait for, since it last had GPUs.
    told: Option<Waits>,
    /// Entries that an observation has seen.
    seen: usize,
    lived: bool,
}

/// Follows one workload. Shared by the two ends of a run that tell of it, the log and the observer.
pub(super) struct Follower {
    needles: [Vec<u8>; 2],
    id: String,
    story: Mutex<Story>,
}

impl Follower {
    pub(super) fn new(id: &str) -> Self {
        let quoted = serde_json::Value::from(id).to_string();
        let needles = ["workload", "by"].map(|key| format!("\"{key}\":{quoted}").into_bytes());
        Self { needles, id: id.to_owned(), story: Mutex::default() }
    }

    pub(super) fn story(self) -> Story {
        self.story.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Story> {
        self.story.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the core after a moment; says whether the workload has ended.
    pub(super) fn observe(&self, scheduler: &Scheduler, place: Option<WorkloadIx>) -> bool {
        let mut story = self.lock();
        let state = scheduler.state();
        let Some(place) = place else {
            story.standing = None;
            let refused =
                matches!(story.entries.last(), Some(Entry::Event(last)) if last.event == "refused");
            return story.lived || refused;
        };
        story.lived = true;
        let facts = state.workload(place);
        self.name_sides(&mut story, scheduler, facts.evict_reason);
        let waiting = matches!(facts.status, Status::Queued | Status::Held);
        let waits = waiting.then(|| Waits { at_ms: state.now().0, reason: scheduler.why(place) });
        if let Some(waits) = waits {
            if story.told.is_none_or(|told| is_news(told, waits)) {
                story.entries.push(Entry::Waits(waits));
                story.told = Some(waits);
            }
        } else {
            story.told = None;
        }
        story.seen = story.entries.len();
        story.standing = Some(Standing {
            at_ms: state.now().0,
            status: facts.status,
            since_ms: if waiting { facts.queued_since.0 } else { facts.started.0 },
            protected: facts.protected,
            leave_by_ms: facts.leave_by.0,
            waits,
        });
        false
    }

    /// Says between which budgets a swap of this moment was decided.
    fn name_sides(&self, story: &mut Story, scheduler: &Scheduler, reason: Option<EvictReason>) {
        let Some(EvictReason::Swap { side, against, .. }) = reason else { return };
        let tree = &scheduler.state().tree;
        let path = |budget| tree.node(budget).path.clone();
        let fresh = story.seen..;
        for entry in &mut story.entries[fresh] {
            if let Entry::Event(event) = entry
                && event.event == "preempted"
                && event.workload == self.id
            {
                event.sides = Some((path(against), path(side)));
            }
        }
    }

    fn take_line(&self, line: &[u8]) -> io::Result<()> {
        let names_it = |needle: &Vec<u8>| line.windows(needle.len()).any(|part| part == needle);
        if !self.needles.iter().any(names_it) {
            return Ok(());
        }
        let event: Event = serde_json::from_slice(line)?;
        let mut story = self.lock();
        if event.workload == self.id {
            // After a start or a stop the wait begins anew.
            story.told = None;
        }
        story.entries.push(Entry::Event(Box::new(event)));
        Ok(())
    }
}

/// Whether a wait differs enough from the one that was told last: another kind, another promised
/// moment, or an expected one that moved by more than a quarter of the wait that was left.
fn is_news(told: Waits, now: Waits) -> bool {
    let ((told_kind, told_until), (kind, until)) = (kind(&told.reason), kind(&now.reason));
    if told_kind != kind || told_until.is_some() != until.is_some() {
        return true;
    }
    let (Some(told_until), Some(until)) = (told_until, until) else { return false };
    match now.reason {
        WaitReason::Order { .. } => {
            let left = told_until.saturating_sub(now.at_ms).max(60_000);
            told_until.abs_diff(until) > left / 4
        }
        WaitReason::Reserved { .. }
        | WaitReason::Grace { .. }
        | WaitReason::BacksOff { .. }
        | WaitReason::Idle { .. }
        | WaitReason::Compared(_) => told_until != until,
    }
}

/// Takes the event log and keeps the lines that matter.
pub(super) struct Lines<'a> {
    follower: &'a Follower,
    line: Vec<u8>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(follower: &'a Follower) -> Self {
        Self { follower, line: Vec::new() }
    }
}

impl Write for Lines<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.follower.take_line(&self.line)?;
                self.line.clear();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
