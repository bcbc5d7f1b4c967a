//! The readings of a run, packed: one text per line that is drawn.

use crate::pack::differences;
use bursar_sim::Sample;
use serde::Serialize;

/// More readings than this cannot be told apart on a screen; of longer runs every n-th is kept.
const SAMPLES_MAX: usize = 1_500;

/// Readings, each line packed as differences.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Samples {
    /// How many.
    count: usize,
    /// Seconds.
    at: String,
    allocated: String,
    unallocated: String,
    idle: String,
    fragmented: String,
    waiting: String,
    /// Per budget, GPU-seconds.
    charged: Vec<String>,
    /// Per budget, GPU-seconds.
    allocation: Vec<String>,
    /// Per budget, ten-thousandths.
    ratio: Vec<String>,
}

impl Samples {
    pub(crate) fn new(samples: &[Sample], budgets: usize) -> Self {
        let step = samples.len().div_ceil(SAMPLES_MAX).max(1);
        // Counted from the end, so that the last reading is kept.
        let first = samples.len().saturating_sub(1) % step;
        let kept: Vec<&Sample> = samples.iter().skip(first).step_by(step).collect();
        let line = |value: &dyn Fn(&Sample) -> i64| differences(kept.iter().map(|at| value(at)));
        let lines = |value: &dyn Fn(&Sample, usize) -> f64| {
            (0..budgets).map(|budget| line(&|at| whole(value(at, budget)))).collect()
        };
        Self {
            count: kept.len(),
            at: line(&|at| (at.at_ms / 1_000) as i64),
            allocated: line(&|at| at.allocated_gpus as i64),
            unallocated: line(&|at| at.unallocated_gpus as i64),
            idle: line(&|at| at.idle_gpus as i64),
            fragmented: line(&|at| at.fragmented_gpus as i64),
            waiting: line(&|at| at.waiting_gpus as i64),
            charged: lines(&|at, budget| at.charged[budget] / 1_000.0),
            allocation: lines(&|at, budget| at.allocation[budget] / 1_000.0),
            ratio: lines(&|at, budget| at.usage_ratio[budget] * 10_000.0),
        }
    }
}

/// Rounded, and within what a script counts exactly.
fn whole(value: f64) -> i64 {
    const EXACT_MAX: f64 = 9_007_199_254_740_991.0;
    value.round().clamp(0.0, EXACT_MAX) as i64
}
