//! What each budget was owed and delivered, how long its work waited and how often it was preempted, column beside column.

use super::Column;
use crate::table;
use bursar_sim::{Outcome, WaitQuantiles};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A leaf in all columns.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    budget: String,
    /// By column; a leaf that a tree does not have is not there.
    of: BTreeMap<String, Cell>,
}

/// A leaf in one column.
#[derive(Clone, Debug, Serialize)]
struct Cell {
    owed_gpu_hours: f64,
    delivered_gpu_hours: f64,
    delivered_ratio: f64,
    /// First waits of work with a contract that was submitted in the span, if there was any.
    first_waits: Option<WaitQuantiles>,
    /// Attempts that had to leave, and were gone in the span.
    preemptions: u64,
}

impl Row {
    /// All leaves, by path.
    pub(super) fn all(columns: &[Column<'_>], outcomes: &[Outcome], from_ms: u64) -> Vec<Self> {
        let found: Vec<BTreeMap<String, Cell>> = columns
            .iter()
            .zip(outcomes)
            .map(|(column, outcome)| cells(column, outcome, from_ms))
            .collect();
        let paths: BTreeSet<&String> = found.iter().flat_map(BTreeMap::keys).collect();
        let row = |path: &String| {
            let cell = |(column, cells): (&Column<'_>, &BTreeMap<String, Cell>)| {
                Some((column.name.clone(), cells.get(path)?.clone()))
            };
            Self { budget: path.clone(), of: columns.iter().zip(&found).filter_map(cell).collect() }
        };
        paths.into_iter().map(row).collect()
    }
}

fn cells(column: &Column<'_>, outcome: &Outcome, from_ms: u64) -> BTreeMap<String, Cell> {
    let mut preemptions: BTreeMap<&str, u64> = BTreeMap::new();
    let left = outcome.series.attempts.iter().filter(|one| one.preempted && one.end_ms >= from_ms);
    for attempt in left {
        let budget = column.scenario.workloads[attempt.workload as usize].budget;
        let path = &column.scenario.budgets[budget as usize].path;
        *preemptions.entry(path).or_default() += 1;
    }
    let cell = |leaf: &bursar_sim::BudgetSummary| Cell {
        owed_gpu_hours: leaf.owed_gpu_hours,
        delivered_gpu_hours: leaf.delivered_gpu_hours,
        delivered_ratio: leaf.delivered_ratio,
        first_waits: outcome.summary.first_waits.budgets.get(&leaf.budget).cloned(),
        preemptions: preemptions.get(leaf.budget.as_str()).copied().unwrap_or(0),
    };
    outcome.summary.budgets.iter().map(|leaf| (leaf.budget.clone(), cell(leaf))).collect()
}

/// A line for each leaf and column; the last cell says by how much the ratio is other than that of the first column.
pub(super) fn text(columns: &[&str], rows: &[Row]) -> String {
    let most = rows.iter().flat_map(|row| row.of.values());
    let most =
        most.map(|cell| cell.owed_gpu_hours.max(cell.delivered_gpu_hours)).fold(0.0, f64::max);
    let digits = if most < 10.0 { 2 } else { 0 };
    let head = [
        "budget",
        "under",
        "owed",
        "delivered",
        "ratio",
        "waits p50 / p90",
        "preempted",
        "differs",
    ];
    let lines = rows.iter().flat_map(|row| {
        let there = columns.iter().filter_map(|name| Some((*name, row.of.get(*name)?)));
        let first = there.clone().next().map(|(_, cell)| cell.delivered_ratio);
        there.enumerate().map(move |(nth, (name, cell))| {
            let waits = cell.first_waits.as_ref().map_or_else(
                || "-".to_owned(),
                |waits| format!("{} / {}", table::wait(waits.p50), table::wait(waits.p90)),
            );
            let differs =
                first.filter(|_| nth > 0).map(|first| (cell.delivered_ratio - first) * 100.0);
            vec![
                if nth == 0 { row.budget.clone() } else { String::new() },
                name.to_owned(),
                format!("{:.digits$}", cell.owed_gpu_hours),
                format!("{:.digits$}", cell.delivered_gpu_hours),
                format!("{:.1} %", cell.delivered_ratio * 100.0),
                waits,
                cell.preemptions.to_string(),
                differs.map_or_else(String::new, |points| format!("{points:+.1}")),
            ]
        })
    });
    let table = table::rows(head.into_iter(), lines);
    format!(
        "owed and delivered GPU-hours per budget; how the ratio differs, in points\n\n{table}\n"
    )
}
