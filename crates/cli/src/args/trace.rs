//! The verbs of `bursar trace`.

use super::duration_ms;
use bursar_trace::{
    ContractDefaults, DurationMs, Format, MapBy, MapRule, Mapping, MinRuntimeDefault, Unit,
};
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

const DESCRIBE_HELP: &str = "\
Examples:
  bursar trace describe jobs.swf.gz
  sacct -aP -S 2026-01-01 -o ALL > jobs.txt; bursar trace describe jobs.txt --skip-bad
  bursar trace describe cluster_log.csv --format helios --json

Exit codes: 0 done, 1 a fault on the way, 2 bad input.";

const CONVERT_HELP: &str = "\
Examples:
  bursar trace convert jobs.swf --unit cpus --to jobs.csv
  bursar trace convert cluster_job_log --budget-by group --map '6214e9=vision/{}' \\
      --default-budget rest --min-runtime-cap 1h --resumable-above 1h --to jobs.csv
  bursar trace convert jobs.csv.zst --skip-bad --to -

In a budget, {} stands for the name that the rule looked at; in a pattern, * for anything. Without flags \
that name budgets or contracts, the jobs keep what the history says.

Exit codes: 0 done, 1 a fault on the way, 2 bad input (nothing is written), 130 interrupted.";

/// What can be done with a job history.
#[derive(Debug, Subcommand)]
pub(crate) enum TraceVerb {
    /// Say what is inside: jobs, span, sizes, users, load over time.
    Describe(DescribeArgs),
    /// Write it as our own workload CSV, with budgets and contracts if asked for.
    Convert(ConvertArgs),
}

/// How to read a history.
#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    /// The history; gzip and zstd are unpacked.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Its format, if it shall not be detected: csv, swf, sacct, philly, helios, acme, openb.
    #[arg(long, value_name = "F")]
    pub(crate) format: Option<Format>,
    /// Leave out broken rows, count and list them, instead of refusing the file.
    #[arg(long)]
    pub(crate) skip_bad: bool,
    /// The columns of a file that has no header line.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub(crate) columns: Option<Vec<String>>,
    /// What counts as one GPU: gpus, cpus or nodes.
    #[arg(long, value_name = "UNIT", default_value_t)]
    pub(crate) unit: Unit,
    /// Take a job's group from this column.
    #[arg(long, value_name = "COLUMN")]
    pub(crate) group_column: Option<String>,
    /// The zone of times that name none (such as Asia/Shanghai).
    #[arg(long, value_name = "ZONE", value_parser = time_zone)]
    pub(crate) time_zone: Option<jiff::tz::TimeZone>,
}

/// What `trace describe` takes.
#[derive(Debug, Args)]
#[command(after_help = DESCRIBE_HELP)]
pub(crate) struct DescribeArgs {
    #[command(flatten)]
    pub(crate) read: ReadArgs,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `trace convert` takes.
#[derive(Debug, Args)]
#[command(after_help = CONVERT_HELP)]
pub(crate) struct ConvertArgs {
    #[command(flatten)]
    pub(crate) read: ReadArgs,
    /// The workload CSV to write; `-` for standard output.
    #[arg(long, value_name = "OUT.csv", value_hint = ValueHint::FilePath)]
    pub(crate) to: PathBuf,
    /// What of a job decides its budget: budget, user or group.
    #[arg(long, value_name = "WHAT")]
    budget_by: Option<MapBy>,
    /// The budget of jobs whose name matches; the first that matches counts.
    #[arg(long = "map", value_name = "PATTERN=BUDGET", requires = "budget_by")]
    rules: Vec<MapRule>,
    /// The budget of all other jobs.
    #[arg(long, value_name = "BUDGET", requires = "budget_by")]
    default_budget: Option<String>,
    /// Give jobs without a contract min_runtime = min(runtime, this) [default: 1h].
    #[arg(long, value_name = "TIME", value_parser = duration_ms)]
    min_runtime_cap: Option<u64>,
    /// Call jobs resumable that ran longer than this and do not say [default: 1h].
    #[arg(long, value_name = "TIME", value_parser = duration_ms)]
    resumable_above: Option<u64>,
    /// Time between checkpoints of resumable jobs.
    #[arg(long, value_name = "TIME", value_parser = duration_ms)]
    checkpoint_interval: Option<u64>,
    /// Jobs that ran less declare this as their min_runtime.
    #[arg(long, value_name = "TIME", value_parser = duration_ms)]
    debug_below: Option<u64>,
}

impl ConvertArgs {
    /// How jobs get budgets, if a flag asks for it.
    pub(crate) fn mapping(&self) -> Option<Mapping> {
        Some(Mapping {
            by: self.budget_by?,
            rules: self.rules.clone(),
            default: self.default_budget.clone(),
            contract: self.contract(),
        })
    }

    /// How jobs without a contract get one, if a flag asks for it.
    pub(crate) fn contract_asked(&self) -> Option<ContractDefaults> {
        let flags = [
            self.min_runtime_cap,
            self.resumable_above,
            self.checkpoint_interval,
            self.debug_below,
        ];
        flags.iter().any(Option::is_some).then(|| self.contract())
    }

    fn contract(&self) -> ContractDefaults {
        let mut contract = ContractDefaults::default();
        if let Some(cap) = self.min_runtime_cap {
            contract.min_runtime = MinRuntimeDefault { cap: DurationMs(cap) };
        }
        if let Some(above) = self.resumable_above {
            contract.resumable_above = DurationMs(above);
        }
        contract.checkpoint_interval = self.checkpoint_interval.map(DurationMs);
        contract.debug_below = self.debug_below.map(DurationMs);
        contract
    }
}

fn time_zone(text: &str) -> Result<jiff::tz::TimeZone, String> {
    jiff::tz::TimeZone::get(text).map_err(|error| error.to_string())
}
