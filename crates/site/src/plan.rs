//! Deciding: what the core plans at a moment is committed, and hashed so that a replay can tell whether it
//! would decide the same.

use crate::site::Site;
use bursar_core::{Command, Decision, Event, Placement, TimeMs};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// What was decided at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// How many decisions.
    pub decisions: u32,
    /// SHA-256 over their canonical text, in hexadecimal.
    pub hash: String,
    /// The decisions, one a line, as they were hashed.
    pub text: String,
}

impl Site {
    /// Plans at a moment and commits what is decided. The caller journals it before anything is done about it
    /// (see [`crate::record::Body::Planned`]); a journal that cannot take it leaves a site that must be folded
    /// anew.
    pub fn plan(&mut self, at_ms: u64) -> Planned {
        let at = TimeMs(at_ms.max(self.now_ms()));
        let ticked = self.scheduler.apply(at, Event::Tick);
        debug_assert!(ticked.is_ok(), "time goes forwards");
        self.take_notices(at);
        let (mut text, mut decisions) = (String::new(), 0);
        while let Some(decision) = self.scheduler.decide() {
            self.write(&decision, &mut text);
            decisions += 1;
            let mut starts = Vec::new();
            self.scheduler.commit(&decision, &mut |command| match command {
                Command::Start { workload, .. } => starts.push(workload),
                // What must leave is read from the state, again and again, until it is gone.
                Command::Preempt { .. } | Command::HandOver(_) => {}
            });
            for place in starts {
                self.open_attempt(at, place);
            }
            self.take_notices(at);
        }
        Planned { decisions, hash: hash_of(&text), text }
    }

    /// The plan that was just committed is in the journal, as record `seq`.
    pub fn planned(&mut self, seq: u64) {
        assert_eq!(seq, self.seq + 1, "records follow each other");
        self.seq = seq;
    }

    /// The next moment at which something could be decided although nothing happens; none if never.
    pub fn next_wake_ms(&mut self) -> Option<u64> {
        let wake = self.scheduler.next_wake();
        (wake < TimeMs::NEVER).then_some(wake.0)
    }

    fn hosts_text(&self, placement: &Placement) -> String {
        let hosts = placement.iter();
        let texts =
            hosts.map(|&(host, gpus)| format!("{}:{gpus}", self.created.hosts[host.at()].name));
        texts.collect::<Vec<_>>().join(",")
    }

    /// One line for a decision, of names only: it must read the same in every binary that decides the same.
    fn write(&self, decision: &Decision, text: &mut String) {
        let line = match decision {
            Decision::Start { workload, placement, allocated, reason, victims } => {
                let mut line = format!(
                    "start {} on {} {} rule {}",
                    self.number_at(*workload),
                    self.hosts_text(placement),
                    if *allocated { "allocated" } else { "unallocated" },
                    reason.rule()
                );
                for victim in victims {
                    let number = self.number_at(victim.workload);
                    let _ = write!(line, " evict {number} rule {}", victim.reason.rule());
                }
                line
            }
            Decision::StartHeld { workload } => format!("ready {}", self.number_at(*workload)),
            Decision::Evict(victim) => {
                format!("evict {} rule {}", self.number_at(victim.workload), victim.reason.rule())
            }
            Decision::Drained(host) => format!("drained {}", self.created.hosts[host.at()].name),
            Decision::Reserve(reservation) => format!(
                "reserve {} on {} by {}",
                self.number_at(reservation.holder),
                self.hosts_text(&reservation.placement),
                reservation.until.0
            ),
            Decision::Unreserve { holder } => format!("unreserve {}", self.number_at(*holder)),
        };
        text.push_str(&line);
        text.push('\n');
    }
}

/// SHA-256 in hexadecimal.
pub(crate) fn hash_of(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
