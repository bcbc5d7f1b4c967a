//! What was checked, and what was found.

use bursar_scenario::one_line;
use serde::Serialize;
use std::fmt;

/// Violations that are listed for one policy; all are counted.
const LISTED_MAX: usize = 200;

/// One thing that is checked. Each belongs to a rule of docs/policy; 0 is the log itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// The log is a possible history: order of time, states, attempts, names.
    Log,
    /// Rule 1: the class of an attempt, and its protection.
    Class,
    /// Rule 1: nothing is refused that could be placed and whose contract may be declared.
    Refused,
    /// Rule 4: nobody who comes first and needs no more is passed over.
    Order,
    /// Rule 5: nothing protected is preempted.
    Protected,
    /// Rule 6: a preemption was allowed.
    Swap,
    /// Rule 6: no victim could have been spared.
    Minimal,
    /// Rule 6: a victim is gone within its grace, and who it left for starts by then.
    Grace,
    /// Rule 6: what each attempt lost.
    Lost,
    /// Rule 7: who holds a reservation starts in time.
    PromiseKept,
    /// Rule 7: reservations are few and disjoint, and T moves only earlier.
    PromiseMade,
    /// Rule 7: nobody in the way starts on reserved hosts.
    PromiseHosts,
    /// Rule 8: the shape of a gang.
    Shape,
    /// Rule 8: debug hosts take only what they may.
    DebugHosts,
    /// Rule 8: the fullest host that fits, and few domains.
    Fullest,
    /// Rule 9: draining hosts.
    Drain,
    /// Rule 12: no GPU is given twice, and none of a host out of service.
    HostUse,
    /// Rule 12: all GPU-time is accounted for.
    Conservation,
}

impl Check {
    /// All of them, in order.
    pub const ALL: [Self; 18] = [
        Self::Log,
        Self::Class,
        Self::Refused,
        Self::Order,
        Self::Protected,
        Self::Swap,
        Self::Minimal,
        Self::Grace,
        Self::Lost,
        Self::PromiseKept,
        Self::PromiseMade,
        Self::PromiseHosts,
        Self::Shape,
        Self::DebugHosts,
        Self::Fullest,
        Self::Drain,
        Self::HostUse,
        Self::Conservation,
    ];

    /// The number of the rule in docs/policy; 0 for the log itself.
    pub const fn rule(self) -> u8 {
        match self {
            Self::Log => 0,
            Self::Class | Self::Refused => 1,
            Self::Order => 4,
            Self::Protected => 5,
            Self::Swap | Self::Minimal | Self::Grace | Self::Lost => 6,
            Self::PromiseKept | Self::PromiseMade | Self::PromiseHosts => 7,
            Self::Shape | Self::DebugHosts | Self::Fullest => 8,
            Self::Drain => 9,
            Self::HostUse | Self::Conservation => 12,
        }
    }

    /// What is checked, in a few words.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Log => "the log is a possible history",
            Self::Class => "class and protection of each attempt",
            Self::Refused => "nothing is refused that could ever start",
            Self::Order => "nobody smaller who comes first is passed over",
            Self::Protected => "nothing protected is preempted",
            Self::Swap => "the preemption is allowed",
            Self::Minimal => "no victim could be spared",
            Self::Grace => "victims leave, and starts follow, within grace",
            Self::Lost => "what each attempt lost",
            Self::PromiseKept => "holders start by T + grace",
            Self::PromiseMade => "reservations are disjoint, T only moves earlier",
            Self::PromiseHosts => "reserved hosts stay free for the holder",
            Self::Shape => "shape of the gang",
            Self::DebugHosts => "debug hosts take only what they may",
            Self::Fullest => "the fullest host that fits, few domains",
            Self::Drain => "draining hosts empty as they must",
            Self::HostUse => "no GPU is given twice or out of service",
            Self::Conservation => "GPU-time adds up to the millisecond",
        }
    }
}

/// Something that must not be.
#[derive(Clone, Debug, Serialize)]
pub struct Violation {
    /// Whose log.
    pub policy: String,
    /// The number of the rule in docs/policy; 0 for the log itself.
    pub rule: u8,
    /// Which of the rule's checks.
    pub check: Check,
    /// When, in seconds.
    pub t: f64,
    /// The line of the log, from 1.
    pub line: u64,
    /// To whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// What, with the numbers.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: t={}: rule {}: ", self.line, self.t, self.rule)?;
        if let Some(workload) = &self.workload {
            write!(f, "{}: ", one_line(workload))?;
        }
        f.write_str(&one_line(&self.message))
    }
}

/// How often something was checked.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CheckCount {
    /// The number of the rule.
    pub rule: u8,
    /// Which of the rule's checks.
    pub check: Check,
    /// How often.
    pub checked: u64,
    /// How often it could not be decided from the log alone.
    pub undecided: u64,
    /// How often it failed.
    pub violations: u64,
}

/// Where the GPU-time went, in GPU-milliseconds, from t=0 to the end of the log (rule 12).
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Totals {
    /// Charged to budgets.
    pub allocated_gpu_ms: u128,
    /// Charged to nobody.
    pub unallocated_gpu_ms: u128,
    /// In service and unused.
    pub idle_gpu_ms: u128,
    /// On hosts that are drained or down.
    pub out_of_service_gpu_ms: u128,
    /// GPUs x time.
    pub all_gpu_ms: u128,
}

/// What one budget used.
#[derive(Clone, Debug, Serialize)]
pub struct BudgetTotals {
    /// Its path; "" for the root.
    pub budget: String,
    /// GPU-ms x rate charged to it, in thousandths (rates are thousandths).
    pub charged_milli_gpu_ms: u128,
    /// GPU-ms of its workloads that were charged to nobody.
    pub unallocated_gpu_ms: u128,
}

/// Protected attempts that were stopped, by cause.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Breaches {
    /// By the scheduler.
    pub preempted: u64,
    /// By the failure of a host; not the scheduler's doing.
    pub host_failed: u64,
}

/// What was found in the log of one policy.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyReport {
    /// Its name.
    pub policy: String,
    /// Lines of the log.
    pub events: u64,
    /// Attempts that started.
    pub attempts: u64,
    /// The last moment of the log, in seconds.
    pub end: f64,
    /// Each check, also those that never came up.
    pub checks: Vec<CheckCount>,
    /// All violations, listed or not.
    pub violations_total: u64,
    /// Where the GPU-time went.
    pub totals: Totals,
    /// The same per budget, in the order of the scenario.
    pub budgets: Vec<BudgetTotals>,
    /// Broken contracts. A violation for the budget policy, a count for others.
    pub breaches: Breaches,
}

/// What was found in a log.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// One for each policy, in the order of the log.
    pub policies: Vec<PolicyReport>,
    /// Lines of the log.
    pub events: u64,
    /// All violations, listed or not.
    pub violations_total: u64,
    /// The first violations of each policy, in the order of the log.
    pub violations: Vec<Violation>,
}

impl Report {
    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.violations_total == 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for policy in &self.policies {
            writeln!(
                f,
                "policy {}: {} events, {} attempts, until t={}",
                one_line(&policy.policy),
                policy.events,
                policy.attempts,
                policy.end
            )?;
            for count in &policy.checks {
                write!(f, "  rule {:>2}  {:<48}", count.rule, count.check.title())?;
                write!(f, " checked {:>8}", count.checked)?;
                if count.undecided > 0 {
                    write!(f, ", undecided {}", count.undecided)?;
                }
                if count.violations > 0 {
                    write!(f, ", VIOLATED {}", count.violations)?;
                }
                writeln!(f)?;
            }
            let hours = |gpu_ms: u128| gpu_ms as f64 / 3_600_000.0;
            let totals = &policy.totals;
            writeln!(
                f,
                "  GPU-hours: allocated {:.1} + unallocated {:.1} + idle {:.1} + out of service {:.1} = {:.1}",
                hours(totals.allocated_gpu_ms),
                hours(totals.unallocated_gpu_ms),
                hours(totals.idle_gpu_ms),
                hours(totals.out_of_service_gpu_ms),
                hours(totals.all_gpu_ms),
            )?;
            writeln!(
                f,
                "  broken contracts: {} by the scheduler, {} by failed hosts",
                policy.breaches.preempted, policy.breaches.host_failed
            )?;
        }
        if self.is_clean() {
            return writeln!(f, "no violation in {} events", self.events);
        }
        for violation in &self.violations {
            writeln!(f, "{}: {violation}", one_line(&violation.policy))?;
        }
        let listed = self.violations.len();
        writeln!(f, "{} violations ({listed} listed)", self.violations_total)
    }
}

/// Where and to whom something is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot<'a> {
    pub(crate) at: u64,
    pub(crate) line: u64,
    pub(crate) workload: Option<&'a str>,
}

/// Collects what is found in the log of one policy.
#[derive(Debug)]
pub(crate) struct Findings {
    policy: String,
    counts: [CheckCount; Check::ALL.len()],
    pub(crate) listed: Vec<Violation>,
    pub(crate) total: u64,
}

impl Findings {
    pub(crate) fn new(policy: &str) -> Self {
        let zero = |check: Check| {
            let (rule, checked, undecided, violations) = (check.rule(), 0, 0, 0);
            CheckCount { rule, check, checked, undecided, violations }
        };
        let counts = Check::ALL.map(zero);
        Self { policy: policy.into(), counts, listed: Vec::new(), total: 0 }
    }

    /// One more check, which failed if `good` is not true.
    pub(crate) fn check(
        &mut self,
        check: Check,
        spot: Spot<'_>,
        good: bool,
        message: impl FnOnce() -> String,
    ) {
        self.counts[check as usize].checked += 1;
        if !good {
            self.fail(check, spot, message());
        }
    }

    /// A check that was counted before, or goes without saying, failed.
    pub(crate) fn fail(&mut self, check: Check, spot: Spot<'_>, message: String) {
        self.counts[check as usize].violations += 1;
        self.total += 1;
        if self.listed.len() < LISTED_MAX {
            self.listed.push(Violation {
                policy: self.policy.clone(),
                rule: check.rule(),
                check,
                t: spot.at as f64 / 1000.0,
                line: spot.line,
                workload: spot.workload.map(String::from),
                message,
            });
        }
    }

    /// A check that the log leaves open.
    pub(crate) fn undecided(&mut self, check: Check) {
        self.counts[check as usize].undecided += 1;
    }

    pub(crate) fn counts(&self) -> Vec<CheckCount> {
        self.counts.to_vec()
    }
}

/// Milliseconds as people read them in the log.
pub(crate) fn seconds(ms: u64) -> String {
    format!("{}", ms as f64 / 1000.0)
}
