//! What pictures are drawn from: samples over time and the attempts as bars.

/// One attempt, for a timeline.
#[derive(Clone, Debug)]
pub struct AttemptRecord {
    /// The workload, by its place in the scenario.
    pub workload: u32,
    /// The number of the attempt.
    pub attempt: u32,
    /// When it started.
    pub start_ms: u64,
    /// When it was gone; the end of the run if it was not.
    pub end_ms: u64,
    /// When its protection ended; its start if it had none.
    pub protected_until_ms: u64,
    /// Whether it was charged.
    pub allocated: bool,
    /// Whether it was told to leave.
    pub preempted: bool,
    /// Hosts and GPUs on each.
    pub placement: Vec<(u32, u32)>,
}

/// One reading.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When.
    pub at_ms: u64,
    /// GPUs charged to budgets.
    pub allocated_gpus: u64,
    /// GPUs charged to nobody.
    pub unallocated_gpus: u64,
    /// GPUs in service and not occupied.
    pub idle_gpus: u64,
    /// Of these, GPUs on hosts that are partly occupied.
    pub fragmented_gpus: u64,
    /// GPUs asked for by waiting work with a contract.
    pub waiting_gpus: u64,
    /// Per budget of the scenario: GPU-ms charged so far.
    pub charged: Vec<f64>,
    /// Per budget: GPU-ms allocated so far.
    pub allocation: Vec<f64>,
    /// Per budget: the usage ratio (rule 3).
    pub usage_ratio: Vec<f64>,
}

/// Samples and attempts of one run.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// In order of time, one per hour (or a longer regular step).
    pub samples: Vec<Sample>,
    /// In order of their end.
    pub attempts: Vec<AttemptRecord>,
}
