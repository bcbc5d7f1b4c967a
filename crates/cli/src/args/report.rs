//! `bursar report`: of a period, for whoever answers for budgets; and of a workload, from inside it.

use super::duration_ms;
use super::live::Server;
use clap::{Args, ValueEnum, ValueHint};
use std::path::PathBuf;

const REPORT_HELP: &str = "\
Examples of a period:
  bursar report --last 7d
  bursar report --month 2026-11 --time-zone Europe/Berlin --budget program-a
  bursar report --from 2026-11-01 --to 2026-11-15 --rows people --csv people.csv
  bursar report --month 2026-11 --rows attempts --parquet november.parquet

Days and months begin at midnight of --time-zone. You see the budgets and workloads that you may see anyway; figures of the whole cluster are for owners of the root. What each figure is stands in docs/reports.md.

Examples inside a workload, without a token:
  bursar report --checkpoint
  bursar report --progress 'step 120 of 900'
  bursar report --checkpoint --workload 17    (from elsewhere, with a token)

These print nothing unless somebody looks on.

Exit codes: 0 done, 1 a fault on the way, 2 refused or bad input (nothing is written).";

/// What `report` takes.
#[derive(Debug, Args)]
#[command(after_help = REPORT_HELP)]
#[group(id = "what", required = true, multiple = true, args = ["checkpoint", "progress", "last", "month", "from"])]
pub(crate) struct ReportArgs {
    /// The time up to now, such as 7d.
    #[arg(long, value_name = "TIME", value_parser = duration_ms, help_heading = "A period",
          conflicts_with_all = ["month", "from", "to"])]
    pub(crate) last: Option<u64>,
    /// A month of the calendar, such as 2026-11.
    #[arg(long, value_name = "MONTH", help_heading = "A period", conflicts_with_all = ["from", "to"])]
    pub(crate) month: Option<String>,
    /// Where it begins: 2026-11-01, or 2026-11-01T09:00, or with an offset 2026-11-01T09:00:00Z.
    #[arg(long, value_name = "MOMENT", help_heading = "A period")]
    pub(crate) from: Option<String>,
    /// Where it ends: this moment (of a day, its midnight at the beginning) is not in it; now unless given.
    #[arg(long, value_name = "MOMENT", help_heading = "A period", requires = "from")]
    pub(crate) to: Option<String>,
    /// Whose midnights they are.
    #[arg(
        long,
        env = "BURSAR_TIME_ZONE",
        value_name = "ZONE",
        default_value = "UTC",
        help_heading = "A period"
    )]
    pub(crate) time_zone: String,
    /// One budget with all below it.
    #[arg(
        long,
        value_name = "PATH",
        help_heading = "A period",
        conflicts_with = "checkpoint",
        conflicts_with = "progress"
    )]
    pub(crate) budget: Option<String>,
    /// What the rows are of --csv, --parquet and, beside the sums, of what is printed.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Rows::Budgets, help_heading = "A period")]
    pub(crate) rows: Rows,
    /// Write the rows as CSV; `-` for standard output.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "A period",
          conflicts_with = "checkpoint", conflicts_with = "progress")]
    pub(crate) csv: Option<PathBuf>,
    /// Write the rows as Parquet.
    #[cfg(feature = "parquet")]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "A period",
          conflicts_with = "checkpoint", conflicts_with = "progress")]
    pub(crate) parquet: Option<PathBuf>,
    /// Read this data folder, as an owner of the root, instead of asking a site.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath, help_heading = "A period",
          conflicts_with = "checkpoint", conflicts_with = "progress")]
    pub(crate) data: Option<PathBuf>,
    /// A checkpoint was saved just now.
    #[arg(long, help_heading = "Inside a workload", conflicts_with_all = ["last", "month", "from"])]
    pub(crate) checkpoint: bool,
    /// How far it is, for `bursar show`. Only from inside.
    #[arg(long, value_name = "TEXT", help_heading = "Inside a workload",
          conflicts_with_all = ["workload", "last", "month", "from"])]
    pub(crate) progress: Option<String>,
    /// Which workload, if this does not run inside it.
    #[arg(long, value_name = "N", help_heading = "Inside a workload", conflicts_with_all = ["last", "month", "from"])]
    pub(crate) workload: Option<u64>,
    #[command(flatten)]
    pub(crate) server: Server,
}

impl ReportArgs {
    /// Whether it is about a period.
    pub(crate) const fn is_of_period(&self) -> bool {
        self.last.is_some() || self.month.is_some() || self.from.is_some()
    }

    /// Where Parquet goes.
    pub(crate) fn parquet(&self) -> Option<&std::path::Path> {
        #[cfg(feature = "parquet")]
        return self.parquet.as_deref();
        #[cfg(not(feature = "parquet"))]
        return None;
    }
}

/// What each row is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rows {
    /// Budgets, with all below them.
    Budgets,
    /// People.
    People,
    /// Attempts of workloads: the lines that all amounts are sums of.
    Attempts,
}
