//! What became of a workload: why it was last preempted and what was kept, and how it ended.

use crate::record::Outcome;
use crate::site::Site;
use crate::work::{Attempt, Ending, Eviction, Stage, Work};
use serde::Serialize;
use utoipa::ToSchema;

/// What was kept of an attempt that was told to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// It is still there, and saves or is about to leave.
    Leaving,
    /// All of it.
    All,
    /// What it had saved before.
    SomeLost,
    /// Nothing.
    Nothing,
}

/// How a workload ended.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// How.
    pub ending: Ending,
    /// When its last attempt ended, in milliseconds since the site was created; none if there was none.
    pub at_ms: Option<u64>,
    /// One sentence.
    pub text: String,
    /// The exit code of its command, where there is one.
    pub exit_code: Option<i32>,
    /// The signal that ended its command, where one did.
    pub signal: Option<i32>,
    /// The workload that it waited for and that ended otherwise.
    pub because_of: Option<u64>,
}

impl Site {
    /// The last attempt of a workload that was told to leave for others, and why.
    #[must_use]
    pub fn last_eviction<'a>(&self, work: &'a Work) -> Option<(&'a Attempt, &'a Eviction)> {
        let told = |attempt: &'a Attempt| Some((attempt, attempt.eviction.as_ref()?));
        work.attempts.iter().rev().find_map(told)
    }

    /// What was kept of an attempt that was told to leave.
    #[must_use]
    pub fn kept(&self, work: &Work, attempt: &Attempt) -> Kept {
        let Some(ended) = attempt.ended_ms else { return Kept::Leaving };
        if attempt.lost_gpu_ms == 0 {
            return Kept::All;
        }
        let ran = attempt.started_ms.map_or(0, |started| ended - started);
        let is_all = attempt.lost_gpu_ms >= attempt.gpus() * ran;
        let had_before = work.declared.resumable && attempt.number > 1;
        if is_all && !had_before { Kept::Nothing } else { Kept::SomeLost }
    }

    /// How a workload ended, if it has.
    #[must_use]
    pub fn end_of(&self, work: &Work) -> Option<End> {
        let Stage::Ended(ending) = work.stage else { return None };
        let latest = work.latest();
        let because_of = (ending == Ending::Unreachable).then(|| self.unmet(&work.declared));
        let because_of = because_of.flatten();
        let exit_code = latest.and_then(|latest| latest.exit_code);
        let signal = latest.and_then(Attempt::signal);
        // `requeued` is no end: it is why the attempt before left.
        let detail =
            latest.and_then(|latest| latest.detail.as_deref()).filter(|_| signal.is_none());
        let told = detail.map_or(String::new(), |detail| format!(": {detail}"));
        let text = match ending {
            Ending::Completed => "it completed".to_owned(),
            Ending::Failed => match (signal, exit_code) {
                (Some(signal), _) => format!("it failed: its command was ended by signal {signal}"),
                (None, Some(code)) if detail.is_none() => {
                    format!("it failed: its command ended with exit code {code}")
                }
                (None, _) => format!("it failed{told}"),
            },
            Ending::Cancelled => match latest {
                Some(_) => "it was cancelled".to_owned(),
                None => "it was cancelled before it ran".to_owned(),
            },
            Ending::Terminated => {
                "it was preempted, and ended there since it is not resumable".to_owned()
            }
            Ending::HostFailed => {
                let what = match latest.map(|latest| latest.outcome) {
                    Some(Some(Outcome::Lost)) => told,
                    _ => String::new(),
                };
                format!("its host or its process was lost, and it is not resumable{what}")
            }
            Ending::Unreachable => match because_of {
                Some(other) => format!("it can never start: {}", self.unmet_text(other)),
                None => {
                    "it can never start: a workload that it waited for ended otherwise".to_owned()
                }
            },
        };
        let at_ms = latest.and_then(|latest| latest.ended_ms);
        Some(End { ending, at_ms, text, exit_code, signal, because_of })
    }
}
