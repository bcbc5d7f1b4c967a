//! Whether anything may have changed: Slurm's controller counts what is submitted, started and ended, and tells that for
//! half a millisecond of its time, whatever the length of its queue. So a look, which costs twenty times as much where two
//! thousand jobs wait, need not be taken more often to see soon that GPUs are free or a job has come.

use super::SlurmEngine;
use crate::client::{Call, Program};
use crate::read::JobState;
use crate::records::Stage;
use std::time::{Duration, Instant};

/// How often the counts are asked for.
pub(super) const EVERY: Duration = Duration::from_millis(200);

/// How long after the latest change looks are taken as often while something is about to change: a job that ends holds its
/// GPUs for some tenths of a second more, and no count tells when it lets go of them.
const SETTLES_WITHIN: Duration = Duration::from_secs(3);

/// What is known of changes.
#[derive(Default)]
pub(super) struct News {
    counts: String,
    changed_at: Option<Instant>,
}

/// What a controller has counted: the lines that say so in the answer of sdiag. Which ones there are is its own affair.
fn counts_of(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    let counts = ["submitted", "started", "completed", "canceled", "failed"];
    let counted = |line: &&str| {
        let what = line.trim().strip_prefix("Jobs ").and_then(|rest| rest.split(':').next());
        what.is_some_and(|what| counts.contains(&what))
    };
    text.lines().filter(counted).map(str::trim).collect::<Vec<_>>().join("\n")
}

impl SlurmEngine {
    pub(super) fn see_news(&mut self) -> bool {
        let args: [&str; 0] = [];
        // Who gets no answer looks when it is time.
        let Ok(answer) = self.run(&Call::new(Program::Sdiag, args)) else { return false };
        let counts = counts_of(&answer);
        let now = Instant::now();
        if counts != self.news.counts {
            self.news = News { counts, changed_at: Some(now) };
            return true;
        }
        let lately = |at: Instant| now.duration_since(at) < SETTLES_WITHIN;
        self.news.changed_at.is_some_and(lately) && self.is_settling()
    }

    /// Whether something is about to change, by the last look.
    fn is_settling(&self) -> bool {
        let leaves =
            |state: &JobState| matches!(state, JobState::Completing | JobState::Configuring);
        // After an order nothing of what was seen counts any more.
        let Some((_, jobs)) = &self.queue else { return true };
        let mut records = self.records.all();
        jobs.iter().any(|job| leaves(&job.state))
            || records.any(|(_, record)| matches!(record.stage, Stage::Released { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::counts_of;

    #[test]
    fn counts_are_read_and_nothing_else() {
        let answer = b"sdiag output at Mon Nov 30 13:36:33 2026\nServer thread count:  3\n\nJobs submitted: 1\n\
            Jobs started:   0\nJobs completed: 2\nJobs canceled:  0\nJobs failed:    0\n\n\
            Job states ts:  Mon Nov 30\nJobs pending:   1\n\tLast cycle:   31\n";
        let counts = counts_of(answer);
        assert_eq!(counts.lines().count(), 5);
        assert!(counts.contains("Jobs completed: 2") && !counts.contains("pending"), "{counts}");
        assert_eq!(counts_of(b"\xff"), "");
    }
}
