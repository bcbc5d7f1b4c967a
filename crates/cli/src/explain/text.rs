//! A workload's story for people.

use super::follow::{Entry, Event, HostGpus, Standing, Story};
use crate::shown::{Moment, one_line, span};
use bursar_core::Status;
use bursar_scenario::{Scenario, WorkloadSpec};

/// Hosts of a placement that are listed.
const HOSTS_LISTED_MAX: usize = 4;

/// Tells the story of one workload.
pub(super) struct Teller<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) spec: &'a WorkloadSpec,
    pub(super) policy: &'a str,
}

/// Seconds of the log as milliseconds: exact, since they are far below 2^53.
fn ms(seconds: f64) -> u64 {
    (seconds * 1_000.0).round() as u64
}

impl Teller<'_> {
    pub(super) fn budget(&self) -> &str {
        &self.scenario.budgets[self.spec.budget as usize].path
    }

    /// Moment by moment.
    pub(super) fn whole(&self, story: &Story) -> String {
        let mut text = self.head();
        for entry in &story.entries {
            text.push_str(&self.line(entry));
        }
        match story.standing {
            Some(standing) => {
                let state = of_status(standing.status, standing.protected);
                let until = Moment(standing.at_ms);
                text.push_str(&format!("  the run ends at {until}; it is still {state}\n"));
            }
            None if story.entries.is_empty() => {
                text.push_str("  the run ends before it is submitted\n");
            }
            None => {}
        }
        text
    }

    /// How it stands at one moment.
    pub(super) fn moment(&self, story: &Story, at_ms: u64) -> String {
        let mut text = self.head();
        text.push_str(&format!("  {}  {}", Moment(at_ms), self.state(story, at_ms)));
        let Some(standing) = story.standing else {
            text.push('\n');
            if let Some(last) = story.entries.iter().rfind(|entry| !entry.is_wait()) {
                text.push_str(&self.line(last));
            }
            return text;
        };
        let at_ms = at_ms.max(standing.since_ms);
        text.push_str(&format!(
            " since {} (for {})\n",
            Moment(standing.since_ms),
            span(at_ms - standing.since_ms)
        ));
        if standing.status == Status::Preempting {
            text.push_str(&format!("  it is gone by {}\n", Moment(standing.leave_by_ms)));
        }
        match standing.waits {
            Some(waits) => {
                text.push_str(&format!("  {}\n", waits.reason));
                let (at, span) = (Moment(standing.at_ms), span(at_ms - standing.at_ms));
                text.push_str(&format!(
                    "  (numbers as of {at}, {span} before: nothing was decided since)\n"
                ));
            }
            None => text.push_str(&self.last_start(story)),
        }
        text
    }

    /// Where it is at the end of the story, in a few words.
    pub(super) fn state(&self, story: &Story, at_ms: u64) -> String {
        match story.standing {
            Some(Standing { status, protected, .. }) => of_status(status, protected).to_owned(),
            None if at_ms < self.spec.submit_ms => {
                format!("not submitted before {}", Moment(self.spec.submit_ms))
            }
            None => "ended".to_owned(),
        }
    }

    /// The events since its latest start.
    fn last_start(&self, story: &Story) -> String {
        let is_start = |entry: &Entry| matches!(entry, Entry::Event(event) if event.event == "started" && event.workload == *self.spec.id);
        let from = story.entries.iter().rposition(is_start).unwrap_or(0);
        story.entries[from..].iter().map(|entry| self.line(entry)).collect()
    }

    fn head(&self) -> String {
        let spec = self.spec;
        let mut parts = vec![format!(
            "{} GPU{} of {}",
            spec.gpus,
            if spec.gpus == 1 { "" } else { "s" },
            one_line(self.budget())
        )];
        parts.push(match spec.min_runtime_ms {
            0 => "unallocated by choice".to_owned(),
            min => format!("min_runtime {}", span(min)),
        });
        parts.push(if spec.resumable { "resumable" } else { "not resumable" }.to_owned());
        if spec.rank != 0 {
            parts.push(format!("rank {}", spec.rank));
        }
        format!("{}: {}; policy {}\n\n", one_line(&spec.id), parts.join(", "), self.policy)
    }

    fn line(&self, entry: &Entry) -> String {
        let (at_ms, what, more) = match entry {
            Entry::Waits(waits) => (waits.at_ms, "waits", waits.reason.to_string()),
            Entry::Event(event) if event.workload != *self.spec.id => {
                let gpus = event.gpus.unwrap_or(0);
                let more = format!("{} leaves {gpus} GPUs for it", one_line(&event.workload));
                (ms(event.t), "preempts", join([Some(more), self.reason(event)]))
            }
            Entry::Event(event) => {
                let (what, more) = self.event(event);
                (ms(event.t), what, more)
            }
        };
        format!("  {:<12}  {what:<16}  {more}", Moment(at_ms).to_string()).trim_end().to_owned()
            + "\n"
    }

    fn event<'e>(&self, event: &'e Event) -> (&'e str, String) {
        let attempt = event.attempt.map(|attempt| format!("attempt {attempt}"));
        let hosts =
            (!event.placement.is_empty()).then(|| format!("on {}", hosts(&event.placement)));
        let lost = event.lost_gpu_seconds.filter(|&lost| lost > 0.0);
        let lost = lost.map(|lost| format!("lost {:.1} GPU-hours", lost / 3_600.0));
        let what = event.event.as_str();
        match what {
            "started" => {
                let class = match (event.allocated, event.protected_until) {
                    (Some(true), Some(until)) => {
                        let length = span(ms(until).saturating_sub(ms(event.t)));
                        format!("allocated, protected until {} ({length})", Moment(ms(until)))
                    }
                    (Some(true), None) => "allocated".to_owned(),
                    (Some(false) | None, _) => "unallocated, charged to nobody".to_owned(),
                };
                let decided = event.decided.map(|at| format!("decided at {}", Moment(ms(at))));
                let facts = [attempt, hosts, Some(class), decided];
                (what, join([Some(list(facts)), self.reason(event)]))
            }
            "protection_ended" => {
                ("protection ends", list([attempt, Some("interruptible from now on".to_owned())]))
            }
            "preempted" => {
                let by = event.by.as_ref().map(|by| format!("for {}", one_line(by)));
                (what, join([Some(list([attempt, by])), self.reason(event)]))
            }
            "reserved" => {
                let until = event.until.map(|until| {
                    let left = span(ms(until).saturating_sub(ms(event.t)));
                    format!("T is {} (in {left})", Moment(ms(until)))
                });
                (what, join([Some(list([until, hosts])), self.reason(event)]))
            }
            "unreserved" => ("promise given up", self.reason(event).unwrap_or_default()),
            "host_failed" => ("host failed", list([attempt, lost])),
            _ => (
                what,
                join([
                    Some(list([attempt.filter(|_| what != "submitted"), lost])),
                    self.reason(event),
                ]),
            ),
        }
    }

    fn reason(&self, event: &Event) -> Option<String> {
        let reason = one_line(event.reason.as_deref()?).into_owned();
        Some(match &event.sides {
            Some((here, there)) => {
                format!("{reason} (here: {}; the other side: {})", one_line(here), one_line(there))
            }
            None => reason,
        })
    }
}

fn of_status(status: Status, protected: bool) -> &'static str {
    match (status, protected) {
        (Status::Queued, _) => "waiting",
        (Status::Held, _) => "waiting for GPUs that are held for it",
        (Status::Starting, _) => "starting",
        (Status::Running, true) => "running, protected",
        (Status::Running, false) => "running, interruptible",
        (Status::Preempting, _) => "leaving",
        (Status::Ended, _) => "ended",
    }
}

fn list<const N: usize>(parts: [Option<String>; N]) -> String {
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn join<const N: usize>(parts: [Option<String>; N]) -> String {
    parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
}

fn hosts(placement: &[HostGpus]) -> String {
    let name = |place: &HostGpus| format!("{} ({})", one_line(&place.host), place.gpus);
    let mut parts: Vec<String> = placement.iter().take(HOSTS_LISTED_MAX).map(name).collect();
    if placement.len() > HOSTS_LISTED_MAX {
        parts.push(format!("{} more hosts", placement.len() - HOSTS_LISTED_MAX));
    }
    parts.join(" ")
}
