//! The rows of a report as a table for other programs: CSV, or Parquet.

use super::period;
use crate::args::Rows;
use jiff::tz::TimeZone;
use serde_json::Value;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Words.
    Text,
    /// A whole number: a count, or GPU-milliseconds.
    Whole,
    /// A whole number, or nothing.
    MaybeWhole,
    /// A part of a whole.
    Part,
    /// Yes or no.
    Flag,
    /// A moment.
    Moment,
    /// A moment, or nothing.
    MaybeMoment,
}

/// A column: its name, and where its value stands in a row of the report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Names within names.
    path: &'static [&'static str],
}

impl Column {
    pub(super) fn of<'a>(&self, row: &'a Value) -> &'a Value {
        self.path.iter().fold(row, |value, name| &value[*name])
    }
}

const fn column(name: &'static str, kind: Kind, path: &'static [&'static str]) -> Column {
    Column { name, kind, path }
}

/// Columns that budgets and people share.
const SUMS: [Column; 13] = [
    column("delivered_gpu_ms", Kind::Whole, &["delivered_gpu_ms"]),
    column("used_gpu_ms", Kind::Whole, &["used_gpu_ms"]),
    column("unallocated_gpu_ms", Kind::Whole, &["unallocated_gpu_ms"]),
    column("lost_gpu_ms", Kind::Whole, &["lost_gpu_ms"]),
    column("workloads", Kind::Whole, &["workloads"]),
    column("attempts", Kind::Whole, &["attempts"]),
    column("preemptions", Kind::Whole, &["preemptions"]),
    column("preemptions_allocated", Kind::Whole, &["preemptions_allocated"]),
    column("breaches_scheduler", Kind::Whole, &["breaches", "scheduler"]),
    column("breaches_host_failure", Kind::Whole, &["breaches", "host_failure"]),
    column("first_waits", Kind::Whole, &["first_waits", "count"]),
    column("first_wait_p50_ms", Kind::Whole, &["first_waits", "p50_ms"]),
    column("first_wait_p90_ms", Kind::Whole, &["first_waits", "p90_ms"]),
];

const BUDGET: [Column; 8] = [
    column("budget", Kind::Text, &["path"]),
    column("fraction", Kind::Part, &["fraction"]),
    column("allocation_gpu_ms", Kind::Whole, &["allocation_gpu_ms"]),
    column("demand_gpu_ms", Kind::Whole, &["demand_gpu_ms"]),
    column("owed_gpu_ms", Kind::Whole, &["owed_gpu_ms"]),
    column("met_gpu_ms", Kind::Whole, &["met_gpu_ms"]),
    column("delivered_ratio", Kind::Part, &["delivered_ratio"]),
    column("unallocated_share", Kind::Part, &["unallocated_share"]),
];

const PERSON: [Column; 1] = [column("person", Kind::Text, &["user"])];

const ATTEMPT: [Column; 20] = [
    column("workload", Kind::Whole, &["workload"]),
    column("attempt", Kind::Whole, &["attempt"]),
    column("name", Kind::Text, &["name"]),
    column("budget", Kind::Text, &["budget"]),
    column("person", Kind::Text, &["user"]),
    column("gpus", Kind::Whole, &["gpus"]),
    column("model", Kind::Text, &["model"]),
    column("rate_milli", Kind::Whole, &["rate_milli"]),
    column("hosts", Kind::Text, &["hosts"]),
    column("allocated", Kind::Flag, &["allocated"]),
    column("started", Kind::Moment, &["started_unix_ms"]),
    column("ended", Kind::MaybeMoment, &["ended_unix_ms"]),
    column("from", Kind::Moment, &["from_unix_ms"]),
    column("to", Kind::Moment, &["to_unix_ms"]),
    column("used_gpu_ms", Kind::Whole, &["used_gpu_ms"]),
    column("delivered_gpu_ms", Kind::Whole, &["delivered_gpu_ms"]),
    column("lost_gpu_ms", Kind::Whole, &["lost_gpu_ms"]),
    column("outcome", Kind::Text, &["outcome"]),
    column("preempted_by_rule", Kind::MaybeWhole, &["preempted_by_rule"]),
    column("breach", Kind::Text, &["breach"]),
];

/// A table of a report.
pub(super) struct Sheet<'a> {
    pub(super) columns: Vec<Column>,
    pub(super) rows: &'a [Value],
}

impl<'a> Sheet<'a> {
    pub(super) fn of(report: &'a Value, rows: Rows) -> Self {
        let (columns, name) = match rows {
            Rows::Budgets => ([&BUDGET[..], &SUMS[..]].concat(), "budgets"),
            Rows::People => ([&PERSON[..], &SUMS[..]].concat(), "people"),
            Rows::Attempts => (ATTEMPT.to_vec(), "attempts"),
        };
        let rows = report[name].as_array().map_or(&[][..], |rows| rows);
        Self { columns, rows }
    }

    /// As CSV: a head, then a line for each row. Amounts are exact, moments RFC 3339 in the time zone.
    pub(super) fn csv(&self, zone: &TimeZone) -> String {
        let head: Vec<&str> = self.columns.iter().map(|column| column.name).collect();
        let mut text = head.join(",");
        text.push('\n');
        for row in self.rows {
            let cells = self.columns.iter().map(|column| cell(column, row, zone));
            text.push_str(&cells.collect::<Vec<_>>().join(","));
            text.push('\n');
        }
        text
    }
}

fn cell(column: &Column, row: &Value, zone: &TimeZone) -> String {
    let value = column.of(row);
    match (column.kind, value) {
        (_, Value::Null) => String::new(),
        (Kind::Moment | Kind::MaybeMoment, value) => {
            period::shown(value.as_u64().unwrap_or_default(), zone)
        }
        (Kind::Text, Value::String(text)) => quoted(text),
        (_, value) => value.to_string(),
    }
}

/// Words of a cell. What a spreadsheet would take for a formula is kept from it by an apostrophe.
fn quoted(text: &str) -> String {
    let guard = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
    if text.contains(['"', ',', '\n', '\r']) {
        return format!("\"{guard}{}\"", text.replace('"', "\"\""));
    }
    format!("{guard}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cells_are_read_back_and_no_spreadsheet_computes_them() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a, \"b\""), "\"a, \"\"b\"\"\"");
        assert_eq!(quoted("=1+1"), "'=1+1");
        assert_eq!(quoted("@sum(a,b)"), "\"'@sum(a,b)\"");
    }

    #[test]
    fn a_sheet_has_what_the_report_has() {
        let report = json!({"attempts": [{
            "workload": 7, "attempt": 1, "name": "w", "budget": "a/b", "user": "max", "gpus": 2, "model": "x",
            "rate_milli": 1000, "hosts": "h-0:2", "allocated": true, "started_unix_ms": 0, "ended_unix_ms": null,
            "from_unix_ms": 0, "to_unix_ms": 9_007_199_254_740_993u64, "used_gpu_ms": 9_007_199_254_740_993u64,
            "delivered_gpu_ms": 1, "lost_gpu_ms": 0, "outcome": null, "preempted_by_rule": 6, "breach": null,
        }]});
        let sheet = Sheet::of(&report, Rows::Attempts);
        let csv = sheet.csv(&TimeZone::UTC);
        let (head, row) = csv.trim_end().split_once('\n').expect("two lines");
        assert_eq!(head.split(',').count(), row.split(',').count());
        assert!(
            row.starts_with("7,1,w,a/b,max,2,x,1000,h-0:2,true,1970-01-01T00:00:00.000+00:00,,"),
            "{row}"
        );
        // Exact, also where a double would not be.
        assert!(row.contains(",9007199254740993,1,0,,6,"), "{row}");
    }
}
