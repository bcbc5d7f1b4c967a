//! What a scenario says, resolved: names are indices, times are milliseconds, shares are exact integers.
//!
//! Plain data with public fields. Everything here has been checked by the reader: indices are in
//! range, sums fit, orders are total.

/// A cluster, its budgets, and the work that comes to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Free text from the file.
    pub about: Option<String>,
    /// One per host, counted groups expanded, in declared order.
    pub hosts: Vec<HostSpec>,
    /// The distinct GPU models, in declared order.
    pub models: Vec<ModelSpec>,
    /// Index 0 is the root (path ""). Parents stand before children, the children of one parent are
    /// sorted by name, and a subtree is contiguous.
    pub budgets: Vec<BudgetSpec>,
    /// The users that workloads name, in order of first appearance.
    pub users: Vec<String>,
    /// Sorted by (`submit_ms`, `tie`).
    pub workloads: Vec<WorkloadSpec>,
    /// The policy's settings, defaults filled in.
    pub settings: Settings,
    /// Sorted by time; in declared order within one moment.
    pub hosts_events: Vec<HostEvent>,
    /// Sorted by time; in declared order within one moment.
    pub budget_changes: Vec<BudgetChange>,
    /// The seed of everything drawn.
    pub seed: u64,
    /// The longest `span` of the generator blocks; `None` if there is none. Work goes on arriving until
    /// then, so it is where a steady state ends.
    pub span_ms: Option<u64>,
    /// What a person should know about how traces were read: rows skipped, jobs left out. One line each,
    /// whatever the traces held.
    pub notes: Vec<String>,
}

/// One host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// Unique within the cluster.
    pub name: String,
    /// How many GPUs it has; at least 1.
    pub gpus: u32,
    /// Index into [`Scenario::models`].
    pub model: usize,
    /// Topology domain, numbered in order of first appearance. Hosts that declare none share one.
    pub domain: usize,
}

/// One GPU model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSpec {
    /// Its name, such as `h100`.
    pub name: String,
    /// What one of its GPU-hours costs, in thousandths; 1000 unless declared.
    pub rate_milli: u64,
}

/// One node of the budget tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetSpec {
    /// The last part of the path; "" for the root.
    pub name: String,
    /// `program-a/a1`; "" for the root.
    pub path: String,
    /// Index of the parent; `None` for the root only.
    pub parent: Option<usize>,
    /// The weight among its siblings, times 1,000,000. 0 is legal: never funded.
    pub share_micro: u64,
    /// The users that belong to it.
    pub members: Vec<String>,
    /// The hard limit on what may ever be charged to it, in GPU-milliseconds.
    pub limit_gpu_ms: Option<u64>,
    /// Hard limits between two moments, by series and moment.
    pub terms: Vec<TermSpec>,
    /// Whether it has no children, so that workloads may name it.
    pub is_leaf: bool,
}

/// A hard limit on what is charged to a budget from one moment to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TermSpec {
    /// Which entry of `terms:` it comes from.
    pub series: u32,
    /// Its first moment.
    pub from_ms: u64,
    /// The first moment that is not of it any more; the largest number if it never ends.
    pub until_ms: u64,
    /// The limit, in GPU-milliseconds.
    pub limit_gpu_ms: u64,
    /// Whether what the one before left unspent is added to it.
    pub carry_over: bool,
}

/// One workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadSpec {
    /// Unique within the scenario.
    pub id: Box<str>,
    /// The place of the id in the total order of ids: byte order for lists, generators and our own CSV,
    /// order of rows for traces in foreign formats, which come after. Unique.
    pub tie: u64,
    /// When it is submitted.
    pub submit_ms: u64,
    /// Index of a leaf in [`Scenario::budgets`].
    pub budget: u32,
    /// Index into [`Scenario::users`].
    pub user: Option<u32>,
    /// All the GPUs of the gang; at least 1.
    pub gpus: u32,
    /// (hosts, GPUs on each) when the workload insists on it; their product is `gpus`.
    pub shape: Option<(u32, u32)>,
    /// Index into [`Scenario::models`] when the workload insists on one.
    pub model: Option<u32>,
    /// How much work there is; start-up comes on top. 0 only in traces, for what ended at once.
    pub runtime_ms: u64,
    /// The contract; 0 asks for unallocated GPUs. Never above the horizon.
    pub min_runtime_ms: u64,
    /// When an attempt is ended by force, counted from its start.
    pub max_runtime_ms: Option<u64>,
    /// Whether it is queued again after a preemption.
    pub resumable: bool,
    /// Orders the workloads of one leaf; high first.
    pub rank: i32,
    /// Batch work or a person's session.
    pub kind: Kind,
    /// How often it saves its state by itself.
    pub checkpoint_interval_ms: Option<u64>,
    /// Whether it saves its state when told that it must go.
    pub checkpoint_on_signal: bool,
    /// How long that takes.
    pub save_time_ms: u64,
    /// The grace it asks for, if less than the cluster's.
    pub grace_ms: Option<u64>,
    /// Its own start-up time, if not the cluster's.
    pub startup_ms: Option<u64>,
    /// How it ended in the trace that it comes from.
    pub ends: Ends,
    /// What its attempts really were, where that is known: the policy `recorded` plays them. In order; each begins when
    /// the one before has ended, or later.
    pub ran: Box<[Ran]>,
}

/// An attempt as it really was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// When it started; not before its workload was submitted.
    pub start_ms: u64,
    /// When it ended; none if it had not ended when this was written down.
    pub end_ms: Option<u64>,
    /// GPUs on each host, by its place in [`Scenario::hosts`].
    pub on: Box<[(u32, u32)]>,
}

/// What sort of work it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Runs by itself.
    Batch,
    /// Somebody sits in front of it.
    Session,
}

/// How a workload ends when it has done its runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// By itself, well.
    Completed,
    /// By itself, badly.
    Failed,
    /// By its user.
    Cancelled,
}

/// The policy's settings. Durations in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// W, the window over which occupancy is compared with allocation; 7 days.
    pub lookback_ms: u64,
    /// H, the longest `min_runtime`; 8 hours.
    pub horizon_ms: u64,
    /// How long a victim has to save and go; 30 seconds.
    pub grace_ms: u64,
    /// The margin of rule 6 in millionths; 50,000, never 0.
    pub margin_ppm: u64,
    /// Start-up time of every attempt; 0.
    pub startup_ms: u64,
    /// How many reservations stand at a time; 1.
    pub reservations: u32,
    /// A, after which a reservation counts any overserved side; half the horizon.
    pub reservation_age_ms: u64,
    /// How many hosts keep headroom for debug work: 3 % rounded half up, at least 1, from 32 hosts on.
    pub debug_hosts: u32,
}

/// Something that happens to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostEvent {
    /// When.
    pub at_ms: u64,
    /// Index into [`Scenario::hosts`].
    pub host: usize,
    /// What.
    pub kind: HostEventKind,
}

/// What happens to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostEventKind {
    /// It is gone from one moment to the next, with all that ran on it.
    Fail,
    /// It is back in service.
    Repair,
    /// It should be emptied.
    Drain,
}

/// A new share for a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetChange {
    /// When.
    pub at_ms: u64,
    /// Index into [`Scenario::budgets`]; never the root.
    pub budget: usize,
    /// The new share, times 1,000,000.
    pub share_micro: u64,
}

impl Scenario {
    /// The index of the budget with this path.
    pub fn budget_index(&self, path: &str) -> Option<usize> {
        self.budgets.iter().position(|budget| budget.path == path)
    }

    /// All GPUs of all hosts.
    pub fn gpus_total(&self) -> u64 {
        self.hosts.iter().map(|host| u64::from(host.gpus)).sum()
    }

    /// Where the scenario's generated work stops arriving, or else its last submission.
    pub fn last_arrival_ms(&self) -> u64 {
        let last = self.workloads.last().map_or(0, |workload| workload.submit_ms);
        self.span_ms.map_or(last, |span_ms| span_ms.max(last))
    }
}
