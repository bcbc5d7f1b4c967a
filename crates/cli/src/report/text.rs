//! A report for people.

use super::period;
use crate::args::Rows;
use crate::live::{gpu_hours, words};
use crate::table;
use jiff::tz::TimeZone;
use serde_json::Value;

/// A word that is coloured where the terminal takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colours {
    /// Where somebody looks on.
    Shown,
    /// Everywhere else.
    None,
}

/// The least delivered ratio that calls for nobody's attention.
const WELL_DELIVERED: f64 = 0.95;

pub(super) fn text(report: &Value, rows: Rows, zone: &TimeZone, colours: Colours) -> String {
    let mut text = head(report, zone);
    if report["cluster"].is_object() {
        text += &pyramid(&report["cluster"], colours);
        text.push('\n');
    }
    text += "budgets, in GPU-hours: owed and delivered at the models' rates, used and lost as hours of GPUs\n\n";
    text += &budgets(report);
    text += "\n\npeople, in GPU-hours\n\n";
    text += &people(report);
    text.push('\n');
    if rows == Rows::Attempts {
        text += "\nattempts, in GPU-hours\n\n";
        text += &attempts(report, zone);
        text.push('\n');
    }
    text
}

fn head(report: &Value, zone: &TimeZone) -> String {
    let at = |name: &str| report[name].as_u64().unwrap_or_default();
    let (from, to) = (at("from_unix_ms"), at("to_unix_ms"));
    let of = match report["budget"].as_str() {
        Some(budget) => format!("{}, {budget}", words(&report["site"])),
        None => words(&report["site"]),
    };
    format!(
        "{of}: {} to {} ({}), {:.1} hours\n\n",
        period::told(from, zone),
        period::told(to, zone),
        words(&report["time_zone"]),
        (to - from) as f64 / 3_600_000.0
    )
}

fn percent(value: &Value) -> String {
    format!("{:.1} %", value.as_f64().unwrap_or(0.0) * 100.0)
}

/// A ratio that is red where little was delivered.
fn ratio(value: &Value, colours: Colours) -> String {
    let shown = percent(value);
    let is_low = value.as_f64().is_some_and(|ratio| ratio < WELL_DELIVERED);
    match colours {
        Colours::Shown if is_low => format!("\x1b[31m{shown}\x1b[0m"),
        Colours::Shown | Colours::None => shown,
    }
}

/// Each level inside the one before.
fn pyramid(cluster: &Value, colours: Colours) -> String {
    let hours = |name: &str| gpu_hours(&cluster[name]);
    let rows = [
        (
            "availability",
            percent(&cluster["availability"]),
            format!(
                "{} of {} GPU-hours in service",
                hours("in_service_gpu_ms"),
                hours("total_gpu_ms")
            ),
        ),
        (
            "occupancy",
            percent(&cluster["occupancy"]),
            format!(
                "of these given to work: {} charged, {} unallocated ({})",
                hours("allocated_gpu_ms"),
                hours("unallocated_gpu_ms"),
                percent(&cluster["unallocated_share"])
            ),
        ),
        (
            "impact",
            ratio(&cluster["delivered_ratio"], colours),
            "of what funded budgets were owed was delivered".to_owned(),
        ),
        (
            "goodput",
            percent(&cluster["goodput"]),
            format!("of what was in service was not lost; {} GPU-hours were", hours("lost_gpu_ms")),
        ),
        ("utilization", "-".to_owned(), "what GPUs did is not measured here".to_owned()),
    ];
    let mut text: String = rows
        .iter()
        .map(|(name, value, why)| {
            // Colours take no room.
            let room = 8 + value.len()
                - value.trim_start_matches("\x1b[31m").trim_end_matches("\x1b[0m").len();
            format!("{name:<14}{value:>room$}   {why}\n")
        })
        .collect();
    if cluster["conservation_exact"] == false {
        text +=
            "the books do NOT balance: on some host more was given to work than was in service\n";
    }
    text
}

fn waits(row: &Value) -> String {
    let found = &row["first_waits"];
    if found["count"].as_u64().unwrap_or(0) == 0 {
        return "-".to_owned();
    }
    let wait = |name: &str| table::wait(found[name].as_f64().unwrap_or(0.0) / 1_000.0);
    format!("{} / {}", wait("p50_ms"), wait("p90_ms"))
}

fn breaches(row: &Value) -> u64 {
    let of = |cause: &str| row["breaches"][cause].as_u64().unwrap_or(0);
    of("scheduler") + of("host_failure")
}

fn budgets(report: &Value) -> String {
    let head = [
        "budget",
        "fraction",
        "allocation",
        "owed",
        "delivered",
        "ratio",
        "used",
        "unallocated",
        "lost",
        "waits p50 / p90",
        "preempted",
        "broken",
    ];
    let rows = report["budgets"].as_array().into_iter().flatten().map(|row| {
        let path = words(&row["path"]);
        vec![
            if path.is_empty() { "(all)".to_owned() } else { path },
            percent(&row["fraction"]),
            gpu_hours(&row["allocation_gpu_ms"]),
            gpu_hours(&row["owed_gpu_ms"]),
            gpu_hours(&row["delivered_gpu_ms"]),
            percent(&row["delivered_ratio"]),
            gpu_hours(&row["used_gpu_ms"]),
            percent(&row["unallocated_share"]),
            gpu_hours(&row["lost_gpu_ms"]),
            waits(row),
            row["preemptions"].to_string(),
            breaches(row).to_string(),
        ]
    });
    table::rows(head.into_iter(), rows)
}

fn people(report: &Value) -> String {
    let head = [
        "person",
        "delivered",
        "used",
        "unallocated",
        "lost",
        "workloads",
        "waits p50 / p90",
        "preempted",
        "broken",
    ];
    let rows = report["people"].as_array().into_iter().flatten().map(|row| {
        vec![
            words(&row["user"]),
            gpu_hours(&row["delivered_gpu_ms"]),
            gpu_hours(&row["used_gpu_ms"]),
            gpu_hours(&row["unallocated_gpu_ms"]),
            gpu_hours(&row["lost_gpu_ms"]),
            row["workloads"].to_string(),
            waits(row),
            row["preemptions"].to_string(),
            breaches(row).to_string(),
        ]
    });
    table::rows(head.into_iter(), rows)
}

fn attempts(report: &Value, zone: &TimeZone) -> String {
    let head =
        ["workload", "budget", "person", "GPUs", "from", "to", "used", "delivered", "lost", "how"];
    let rows = report["attempts"].as_array().into_iter().flatten().map(|row| {
        let moment = |name: &str| period::told(row[name].as_u64().unwrap_or_default(), zone);
        let how = match (row["preempted_by_rule"].as_u64(), row["outcome"].as_str()) {
            (Some(0), _) => "preempted by another scheduler".to_owned(),
            (Some(rule), _) => format!("preempted by rule {rule}"),
            (None, Some(outcome)) => outcome.to_owned(),
            (None, None) => "runs".to_owned(),
        };
        vec![
            format!("{}.{}", row["workload"], row["attempt"]),
            words(&row["budget"]),
            words(&row["user"]),
            row["gpus"].to_string(),
            moment("from_unix_ms"),
            moment("to_unix_ms"),
            gpu_hours(&row["used_gpu_ms"]),
            gpu_hours(&row["delivered_gpu_ms"]),
            gpu_hours(&row["lost_gpu_ms"]),
            how,
        ]
    });
    table::rows(head.into_iter(), rows)
}
