//! What a workload still had to do at some moment, as far as it came to be known by the end of the period.

use super::facts::WorkFacts;
use crate::work::Spell;

/// What a workload needs, over time.
#[derive(Debug)]
pub(super) struct Need {
    pieces: Vec<Piece>,
    /// How long an attempt may run; for ever, where it has no limit.
    limit_ms: u64,
}

/// An attempt of it.
#[derive(Debug)]
struct Piece {
    started_ms: u64,
    /// When it ended; the end of time where it had not by the end of the period.
    ended_ms: u64,
    /// What of it was kept.
    kept_ms: u64,
    /// What attempts before it had kept of the same piece of work.
    before_ms: u64,
    /// What that piece of work took in all; the end of time where that is not known.
    needed_ms: u64,
}

impl Need {
    /// Of a workload, as it was known at `to_ms`.
    pub(super) fn of(work: &WorkFacts, to_ms: u64) -> Self {
        let limit_ms = work.max_runtime_ms.unwrap_or(u64::MAX);
        let mut pieces: Vec<Piece> = Vec::new();
        let mut begun = 0;
        let mut before_ms = 0;
        for attempt in work.attempts.iter().filter(|attempt| attempt.started_ms < to_ms) {
            let ended_ms = attempt.ended_ms.filter(|&ended| ended < to_ms);
            let kept_ms = ended_ms.map_or(u64::MAX, |ended| {
                (ended - attempt.started_ms)
                    .saturating_sub(attempt.lost_gpu_ms / attempt.gpus().max(1))
            });
            let started_ms = attempt.started_ms;
            let ended_ms = ended_ms.unwrap_or(u64::MAX);
            pieces.push(Piece { started_ms, ended_ms, kept_ms, before_ms, needed_ms: u64::MAX });
            // It ended with this attempt, unless it was only to wait again.
            let with_it = |spell: &Spell| spell.until_ms == Some(ended_ms);
            let is_over = work.spells.iter().any(with_it) && !attempt.asked_to_requeue;
            before_ms = before_ms.saturating_add(kept_ms);
            if is_over {
                // Whatever follows was asked to run once more, from the beginning.
                pieces[begun..].iter_mut().for_each(|piece| piece.needed_ms = before_ms);
                (begun, before_ms) = (pieces.len(), 0);
            }
        }
        Self { pieces, limit_ms }
    }

    /// What was left to do at a moment. Where that never came to be known, an attempt could have gone on to its limit.
    pub(super) fn left_ms(&self, at_ms: u64) -> u64 {
        let next = self.pieces.partition_point(|piece| piece.ended_ms <= at_ms);
        let Some(piece) = self.pieces.get(next) else { return self.limit_ms };
        let age_ms = at_ms.saturating_sub(piece.started_ms).min(piece.kept_ms);
        if piece.needed_ms == u64::MAX {
            self.limit_ms.saturating_sub(age_ms)
        } else {
            piece.needed_ms.saturating_sub(piece.before_ms + age_ms)
        }
    }

    /// How long it ran between two moments.
    pub(super) fn ran_ms(&self, from_ms: u64, to_ms: u64) -> u64 {
        let first = self.pieces.partition_point(|piece| piece.ended_ms <= from_ms);
        let overlaps = self.pieces[first..].iter().take_while(|piece| piece.started_ms < to_ms);
        overlaps.map(|piece| piece.ended_ms.min(to_ms) - piece.started_ms.max(from_ms)).sum()
    }
}
