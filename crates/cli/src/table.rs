//! What `simulate` prints: policies as columns, or the combinations of a grid as rows.

use crate::sweep::Row;
use bursar_scenario::Scenario;
use bursar_sim::{PolicySummary, Summary, WaitQuantiles};
use comfy_table::{CellAlignment, Table, presets};

/// Metrics per policy, waits, then owed and delivered per budget.
pub(crate) fn comparison(scenario: &Scenario, summary: &Summary) -> String {
    let mut text = overview(scenario, summary);
    text.push_str("owed and delivered GPU-hours per budget\n\n");
    text.push_str(&budgets(&summary.policies));
    text.push('\n');
    text
}

/// Metrics per policy, and waits.
pub(crate) fn overview(scenario: &Scenario, summary: &Summary) -> String {
    let policies = &summary.policies;
    let gpus = scenario.gpus_total();
    let hosts = scenario.hosts.len();
    let submitted = policies.iter().map(|policy| policy.simulator.workloads).max().unwrap_or(0);
    // A run that ends early has not seen all.
    let workloads = match scenario.workloads.len() as u64 {
        all if submitted < all => format!("{submitted} of {all}"),
        all => all.to_string(),
    };
    let seconds = policies.iter().map(|policy| policy.measured_seconds).fold(0.0, f64::max);
    let many = |count: u64, what: &str| {
        if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
    };
    let mut text = format!(
        "{}: {} on {}, {workloads} workloads, measured over {}\n\n",
        summary.scenario,
        many(gpus, "GPU"),
        many(hosts as u64, "host"),
        measured(seconds)
    );
    text.push_str(&metrics(policies));
    text.push_str(
        "\n\nwaits of work with a contract, from submission to the first start: p50 / p90 / p99 / max\n\n",
    );
    text.push_str(&waits(policies));
    text.push_str("\n\n");
    text
}

fn table(header: Vec<String>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    table
}

/// Rows of words below a header; all columns but the first two are aligned right.
pub(crate) fn rows<'a>(
    header: impl Iterator<Item = &'a str>,
    rows: impl Iterator<Item = Vec<String>>,
) -> String {
    let mut table = table(header.map(str::to_owned).collect());
    rows.for_each(|row| {
        table.add_row(row);
    });
    finish(table)
}

fn finish(mut table: Table) -> String {
    let columns = table.column_count();
    for column in 1..columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

fn header(first: &str, policies: &[PolicySummary]) -> Vec<String> {
    let names = policies.iter().map(|policy| policy.policy.clone());
    std::iter::once(first.to_owned()).chain(names).collect()
}

fn percent(value: f64) -> String {
    format!("{:.1} %", value * 100.0)
}

fn metrics(policies: &[PolicySummary]) -> String {
    type Row = (&'static str, fn(&PolicySummary) -> String);
    let rows: [Row; 16] = [
        ("delivered ratio", |p| percent(p.delivered_ratio)),
        ("worst budget", |p| percent(p.worst_delivered_ratio)),
        ("  which", |p| p.worst_budget.clone()),
        ("budgets at 95 % or more", |p| format!("{} of {}", p.budgets_at_95, p.budgets_owed)),
        ("availability", |p| percent(p.availability)),
        ("occupancy", |p| percent(p.occupancy)),
        ("unallocated share", |p| percent(p.unallocated_share)),
        ("goodput", |p| percent(p.goodput)),
        ("preemptions", |p| p.preemptions.total.to_string()),
        ("  of allocated work", |p| p.preemptions.allocated.to_string()),
        ("lost GPU-hours", |p| {
            format!("{:.0}", p.lost_share * (p.gpu_hours.allocated + p.gpu_hours.unallocated))
        }),
        ("  share of occupied", |p| percent(p.lost_share)),
        ("contracts broken", |p| (p.breaches["scheduler"] + p.breaches["operator"]).to_string()),
        ("  by failed hosts", |p| p.breaches["host_failure"].to_string()),
        ("promises met", |p| {
            format!("{} of {}", p.reservations.met, p.reservations.met + p.reservations.missed)
        }),
        ("books balance", |p| if p.conservation_exact { "exactly" } else { "NO" }.to_owned()),
    ];
    let mut table = table(header("", policies));
    for (name, value) in rows {
        let values = policies.iter().map(value);
        table.add_row(std::iter::once(name.to_owned()).chain(values).collect::<Vec<_>>());
    }
    finish(table)
}

/// The span of the metrics: in days, unless it is short.
fn measured(seconds: f64) -> String {
    match seconds {
        ..7_200.0 => format!("{:.1} minutes", seconds / 60.0),
        ..172_800.0 => format!("{:.1} hours", seconds / 3_600.0),
        _ => format!("{:.1} days", seconds / 86_400.0),
    }
}

/// A wait as people say it: two units at most.
pub(crate) fn wait(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..=119 => format!("{whole}s"),
        120..=7_199 => format!("{}m", (seconds / 60.0).round()),
        7_200..=172_799 => format!("{:.1}h", seconds / 3_600.0),
        _ => format!("{:.1}d", seconds / 86_400.0),
    }
}

fn quantiles(waits: Option<&WaitQuantiles>) -> String {
    waits.map_or_else(
        || "-".to_owned(),
        |w| format!("{} / {} / {} / {}", wait(w.p50), wait(w.p90), wait(w.p99), wait(w.max)),
    )
}

fn waits(policies: &[PolicySummary]) -> String {
    let mut table = table(header("", policies));
    for class in ["debug", "1", "2-8", "9-64", "65-256", ">256", "all", "unallocated"] {
        if policies.iter().all(|policy| !policy.first_waits.classes.contains_key(class)) {
            continue;
        }
        let name = match class {
            "debug" | "all" | "unallocated" => class.to_owned(),
            "1" => "1 GPU".to_owned(),
            size => format!("{size} GPUs"),
        };
        let values = policies.iter().map(|policy| quantiles(policy.first_waits.classes.get(class)));
        table.add_row(std::iter::once(name).chain(values).collect::<Vec<_>>());
    }
    finish(table)
}

fn budgets(policies: &[PolicySummary]) -> String {
    let mut table = table(header("budget", policies));
    let count = policies.first().map_or(0, |policy| policy.budgets.len());
    let most = policies.iter().flat_map(|policy| &policy.budgets);
    let most = most.map(|one| one.owed_gpu_hours.max(one.delivered_gpu_hours)).fold(0.0, f64::max);
    let digits = if most < 10.0 { 2 } else { 0 };
    for row in 0..count {
        let name = policies[0].budgets[row].budget.clone();
        let values = policies.iter().map(|policy| {
            let budget = &policy.budgets[row];
            format!(
                "{:.digits$} of {:.digits$}  {}",
                budget.delivered_gpu_hours,
                budget.owed_gpu_hours,
                percent(budget.delivered_ratio)
            )
        });
        table.add_row(std::iter::once(name).chain(values).collect::<Vec<_>>());
    }
    finish(table)
}

/// One row per combination and policy.
pub(crate) fn grid(rows: &[Row], several_policies: bool) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let keys = first.values.iter().map(|(key, _)| key.as_str());
    let policy = several_policies.then_some("policy");
    let metrics = [
        "delivered",
        "worst",
        "worst budget",
        "occupancy",
        "unallocated",
        "goodput",
        "lost",
        "preemptions",
        "debug p90",
        "wait p50",
        "wait p90",
        "broken",
    ];
    let mut table = table(keys.chain(policy).chain(metrics).map(str::to_owned).collect());
    for Row { values, summary, .. } in rows {
        let classes = &summary.first_waits.classes;
        let waits = |class: &str, pick: fn(&WaitQuantiles) -> f64| {
            classes.get(class).map_or_else(|| "-".to_owned(), |found| wait(pick(found)))
        };
        let values = values.iter().map(|(_, value)| value.clone());
        let metrics = [
            percent(summary.delivered_ratio),
            percent(summary.worst_delivered_ratio),
            summary.worst_budget.clone(),
            percent(summary.occupancy),
            percent(summary.unallocated_share),
            percent(summary.goodput),
            percent(summary.lost_share),
            summary.preemptions.total.to_string(),
            waits("debug", |w| w.p90),
            waits("all", |w| w.p50),
            waits("all", |w| w.p90),
            (summary.breaches["scheduler"] + summary.breaches["operator"]).to_string(),
        ];
        let policy = several_policies.then(|| summary.policy.clone());
        table.add_row(values.chain(policy).chain(metrics).collect::<Vec<_>>());
    }
    finish(table) + "\n"
}
