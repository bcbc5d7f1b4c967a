//! What the job of an attempt says of the attempt. Nothing is ordered or asked here.

use crate::read::{Job, JobState};
use crate::records::{Record, Stage};

/// What is to be thought of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It waits to start, or something of it is still being ended.
    Patience,
    /// It runs.
    Runs { started_s: u64 },
    /// It has waited for too long.
    TooLate,
    /// It was not started, and cannot be any more.
    NotStarted { reason: String },
    /// It ran and is over: its job was put back into the queue at that moment.
    PutBack { at_s: Option<u64> },
    /// It ran, and Slurm knows nothing of that any more.
    Unremembered,
    /// Its job is not in the queue.
    Gone,
}

/// Judges by the job that has the attempt's name. `limit_ms` is how long a start may take.
pub(super) fn judge(record: &Record, job: Option<&Job>, now_ms: u64, limit_ms: u64) -> Verdict {
    let Some(job) = job else { return Verdict::Gone };
    let seen_running = matches!(record.stage, Stage::Running { .. } | Stage::Returning(_));
    if job.restarts > record.restarts {
        return match job.state {
            JobState::Completing => Verdict::Patience,
            _ => Verdict::PutBack { at_s: job.submitted },
        };
    }
    match &job.state {
        JobState::Ended(_) => Verdict::Gone,
        JobState::Pending if seen_running => Verdict::Unremembered,
        JobState::Pending if job.held => Verdict::NotStarted { reason: "it is on hold".to_owned() },
        JobState::Pending => match record.stage {
            Stage::Released { at_ms } if now_ms.saturating_sub(at_ms) > limit_ms => {
                Verdict::TooLate
            }
            _ => Verdict::Patience,
        },
        JobState::Configuring => Verdict::Patience,
        JobState::Running | JobState::Completing | JobState::Unknown(_) => {
            match job.started.or(record.started_s()) {
                Some(started_s) => Verdict::Runs { started_s },
                None => Verdict::Patience,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Ending;
    use crate::records::{End, How};
    use bursar_engine::AttemptKey;

    fn job(state: JobState, restarts: u32, held: bool) -> Job {
        let answer = "7@@7@@7@@N/A@@PENDING@@None@@0@@1@@u@@a@@main@@gres/gpu=1@@N/A@@1@@1:00@@90@@N/A@@100@@200@@@@0@@\
                      (null)@@n@@(null)@@bursar:1;tag=1.a@@5@@1@@/l@@\n";
        let jobs =
            crate::read::read_queue(answer.as_bytes(), &crate::read::Mark::of("@@")).unwrap();
        Job { state, restarts, held, ..jobs[0].clone() }
    }

    fn record(stage: Stage) -> Record {
        let key = AttemptKey::new("w", 1).unwrap();
        let mut record = Record::new(&key, "1.a".to_owned(), true, true);
        (record.stage, record.restarts) = (stage, 1);
        record
    }

    #[test]
    fn jobs_tell_of_attempts() {
        let released = || Stage::Released { at_ms: 50_000 };
        let running = || Stage::Running { started_s: 99 };
        let returning = || {
            Stage::Returning(End { started_s: Some(9), ended_s: 9, how: How::Exit(0), told: true })
        };
        let put_back = || Verdict::PutBack { at_s: Some(90) };
        let on_hold = || Verdict::NotStarted { reason: "it is on hold".to_owned() };
        let runs = || Verdict::Runs { started_s: 100 };
        use JobState::{Completing, Configuring, Ended, Pending, Running};
        for (stage, job, now_ms, verdict) in [
            (released(), None, 0, Verdict::Gone),
            (released(), Some(job(Pending, 1, false)), 60_000, Verdict::Patience),
            (released(), Some(job(Pending, 1, false)), 110_001, Verdict::TooLate),
            (released(), Some(job(Pending, 1, false)), 0, Verdict::Patience),
            (released(), Some(job(Pending, 1, true)), 60_000, on_hold()),
            (released(), Some(job(Configuring, 1, false)), 999_999, Verdict::Patience),
            // However late it is.
            (released(), Some(job(Running, 1, false)), 999_999, runs()),
            (released(), Some(job(Completing, 1, false)), 60_000, runs()),
            (released(), Some(job(Ended(Ending::Failed), 1, false)), 60_000, Verdict::Gone),
            (released(), Some(job(Completing, 2, false)), 60_000, Verdict::Patience),
            (released(), Some(job(Pending, 2, true)), 60_000, put_back()),
            (running(), Some(job(Running, 1, true)), 60_000, runs()),
            (running(), Some(job(Pending, 2, true)), 60_000, put_back()),
            // Another run: not ours.
            (running(), Some(job(Running, 2, false)), 60_000, put_back()),
            (running(), Some(job(Pending, 1, true)), 60_000, Verdict::Unremembered),
            (returning(), Some(job(Pending, 2, true)), 60_000, put_back()),
            (returning(), None, 60_000, Verdict::Gone),
        ] {
            assert_eq!(
                judge(&record(stage.clone()), job.as_ref(), now_ms, 60_000),
                verdict,
                "{stage:?} {job:?}"
            );
        }
    }
}
