//! The figures of a run as rows of text, one column per policy.

use crate::words::{gpu_hours, grouped, percent, span};
use bursar_sim::PolicySummary;

/// One row of the table of key figures.
pub(crate) struct Figure {
    /// What it is called.
    pub(crate) name: &'static str,
    /// What it means, in one sentence.
    pub(crate) meaning: &'static str,
    /// Its value under a policy.
    pub(crate) value: fn(&PolicySummary) -> String,
}

/// The key figures, the most telling first.
pub(crate) const FIGURES: [Figure; 12] = [
    Figure {
        name: "delivered ratio",
        meaning: "the part of what was owed to all leaves that they received",
        value: |p| percent(p.delivered_ratio),
    },
    Figure {
        name: "worst budget",
        meaning: "the least delivered ratio of a leaf that was owed something, and which it was",
        value: |p| {
            if p.worst_budget.is_empty() {
                return "none owed".to_owned();
            }
            format!("{} {}", percent(p.worst_delivered_ratio), p.worst_budget)
        },
    },
    Figure {
        name: "budgets at 95 % or more",
        meaning: "leaves that received at least 95 % of what they were owed",
        value: |p| format!("{} of {}", p.budgets_at_95, p.budgets_owed),
    },
    Figure {
        name: "availability",
        meaning: "in-service GPU-time of all GPU-time",
        value: |p| percent(p.availability),
    },
    Figure {
        name: "occupancy",
        meaning: "GPU-time given to some workload, of all in-service GPU-time",
        value: |p| percent(p.occupancy),
    },
    Figure {
        name: "unallocated share",
        meaning: "the part of occupied GPU-time that was charged to nobody",
        value: |p| percent(p.unallocated_share),
    },
    Figure {
        name: "goodput",
        meaning: "occupied less lost GPU-time, of all in-service GPU-time",
        value: |p| percent(p.goodput),
    },
    Figure {
        name: "lost GPU-time",
        meaning: "work since the last checkpoint and start-up repeated, in GPU-hours over the whole run; in brackets the part of \
                  occupied GPU-time within the measured span",
        value: |p| {
            format!("{} ({})", gpu_hours(p.lost_gpu_seconds / 3_600.0), percent(p.lost_share))
        },
    },
    Figure {
        name: "preemptions",
        meaning: "attempts that were told to leave; in brackets those that were allocated",
        value: |p| {
            let preemptions = &p.preemptions;
            let (all, allocated) = (preemptions.total as f64, preemptions.allocated as f64);
            format!("{} ({} allocated)", grouped(all), grouped(allocated))
        },
    },
    Figure {
        name: "breaches",
        meaning: "attempts that were stopped while protected: by the scheduler or an operator, and by failed hosts",
        value: |p| {
            let by = |cause: &str| p.breaches.get(cause).copied().unwrap_or(0) as f64;
            let decided = grouped(by("scheduler") + by("operator"));
            format!("{decided}; {} by failed hosts", grouped(by("host_failure")))
        },
    },
    Figure {
        name: "promises met",
        meaning: "reservations whose holder started by the promised moment",
        value: |p| {
            let promises = &p.reservations;
            match promises.met + promises.missed {
                0 => "none made".to_owned(),
                all => format!("{} of {}", grouped(promises.met as f64), grouped(all as f64)),
            }
        },
    },
    Figure {
        name: "debug wait, p90",
        meaning: "nine in ten debug runs started within this time of their submission",
        value: |p| {
            p.first_waits
                .classes
                .get("debug")
                .map_or_else(|| "no debug runs".to_owned(), |waits| span(waits.p90))
        },
    },
];
