//! The command line: every verb with its flags, examples and exit codes.
//!
//! Absent on purpose: any checking that needs a file. What can be refused from the words alone is
//! refused here; the verbs do the rest.

mod compare;
mod live;
mod report;
mod site;
mod slurm;
mod trace;
mod whatif;

use clap::{Args, Parser, Subcommand, ValueHint};
use std::path::PathBuf;

pub(crate) use compare::CompareArgs;
pub(crate) use live::{
    AuditArgs, BudgetFile, BudgetVerb, CancelArgs, FundingVerb, HostVerb, LogsArgs, QueueArgs,
    RunArgs, Server, SubmitArgs, WaitArgs, WorkloadArgs,
};
pub(crate) use report::{ReportArgs, Rows};
pub(crate) use site::{
    BackupArgs, CheckArgs, ConfigVerb, DemoTrainArgs, ExportVerb, RestoreArgs, TokenVerb, UpArgs,
};
pub(crate) use slurm::{SlurmClients, SlurmImportArgs, SlurmInitArgs, SlurmVerb, WatchdogArgs};
pub(crate) use trace::{ConvertArgs, DescribeArgs, ReadArgs, TraceVerb};
pub(crate) use whatif::{Hosts, WhatIfArgs};

/// The treasurer of a GPU cluster: decides by budgets, simulates it, explains it.
#[derive(Debug, Parser)]
#[command(name = "bursar", version, about, max_term_width = 100, after_help = HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Play a scenario under one or more policies and compare them.
    Simulate(Box<SimulateArgs>),
    /// Tell why one workload waited, started and was stopped, moment by moment.
    Explain(ExplainArgs),
    /// Check an event log against the rules, independently of what made it.
    Verify(VerifyArgs),
    /// Look into job histories, and convert them.
    #[command(subcommand, after_help = TRACE_HELP)]
    Trace(TraceVerb),
    /// Bring a site up on this machine: journal, engine, API.
    Up(Box<UpArgs>),
    /// Submit a workload from a file.
    Submit(SubmitArgs),
    /// Submit a command as a workload.
    Run(RunArgs),
    /// List workloads, and what each waits for.
    Queue(QueueArgs),
    /// Show all of a workload: what was declared, every attempt, every charge.
    #[command(after_help = SHOW_HELP)]
    Show(WorkloadArgs),
    /// Tell why a workload waits, why it was preempted, or how it ended.
    #[command(after_help = WHY_HELP)]
    Why(WorkloadArgs),
    /// Print what a workload writes.
    Logs(LogsArgs),
    /// End a workload.
    Cancel(CancelArgs),
    /// Have a workload save, leave and wait again; run one again that has ended.
    #[command(after_help = REQUEUE_HELP)]
    Requeue(WorkloadArgs),
    /// Let a held workload enter the queue.
    #[command(after_help = RELEASE_HELP)]
    Release(WorkloadArgs),
    /// Wait until a workload has ended; its exit code becomes this one's.
    Wait(WaitArgs),
    /// Tell what a period cost and gave; inside a workload, tell the site what it saved and how far it is.
    Report(Box<ReportArgs>),
    /// Show budgets, and change them.
    #[command(subcommand, after_help = BUDGET_HELP)]
    Budget(BudgetVerb),
    /// Ask for funding, and decide on what is asked for.
    #[command(subcommand, after_help = FUNDING_HELP)]
    Funding(FundingVerb),
    /// Show hosts, drain them and put them back.
    #[command(subcommand, after_help = HOST_HELP)]
    Host(HostVerb),
    /// List who asked for what.
    Audit(AuditArgs),
    /// Make tokens, list them and make them void.
    #[command(subcommand, after_help = TOKEN_HELP)]
    Token(TokenVerb),
    /// Write what a site knows for other verbs.
    #[command(subcommand, after_help = EXPORT_HELP)]
    Export(ExportVerb),
    /// Play again what the site has seen: what happened beside what budgets would have done.
    #[command(name = "whatif")]
    WhatIf(Box<WhatIfArgs>),
    /// Copy a site's journal, while it is up or not.
    Backup(BackupArgs),
    /// Make a data folder from a backup.
    Restore(RestoreArgs),
    /// Check a site's journal, while it is up or not.
    Check(CheckArgs),
    /// Check configurations.
    #[command(subcommand, after_help = CONFIG_HELP)]
    Config(ConfigVerb),
    /// Prepare a cluster of Slurm: check it, make budgets of its accounts, read its history.
    #[command(subcommand, after_help = SLURM_HELP)]
    Slurm(SlurmVerb),
    /// Train nothing, as the demo's workloads do.
    #[command(hide = true)]
    DemoTrain(DemoTrainArgs),
    /// List the policies.
    Policies(PoliciesArgs),
    /// Print a completion script for a shell.
    Completions(CompletionsArgs),
    /// Write manual pages into a folder.
    Man(ManArgs),
}

impl Verb {
    /// Whether it works with a live site, not with files.
    pub(crate) const fn is_live(&self) -> bool {
        match self {
            Self::Up(_)
            | Self::Submit(_)
            | Self::Run(_)
            | Self::Queue(_)
            | Self::Show(_)
            | Self::Why(_)
            | Self::Logs(_)
            | Self::Cancel(_)
            | Self::Requeue(_)
            | Self::Release(_)
            | Self::Wait(_)
            | Self::Budget(_)
            | Self::Funding(_)
            | Self::Host(_)
            | Self::Audit(_)
            | Self::Token(_)
            | Self::WhatIf(_)
            | Self::DemoTrain(_) => true,
            // Of a period it writes files.
            Self::Report(args) => !args.is_of_period(),
            Self::Simulate(_)
            | Self::Explain(_)
            | Self::Verify(_)
            | Self::Trace(_)
            | Self::Export(_)
            | Self::Backup(_)
            | Self::Restore(_)
            | Self::Check(_)
            | Self::Config(_)
            | Self::Slurm(_)
            | Self::Policies(_)
            | Self::Completions(_)
            | Self::Man(_) => false,
        }
    }
}

/// Examples and exit codes, one line each.
macro_rules! help {
    ($examples:literal) => {
        concat!(
            "Examples:\n",
            $examples,
            "\n\nExit codes: 0 done, 1 a fault on the way, 2 refused or bad input (nothing is written)."
        )
    };
}

const HELP: &str = "\
Examples:
  bursar up --demo
  bursar simulate scenarios/lab.yaml --policy budget --policy levels

With --json what goes wrong is an object on standard error, too: its code and its message.

Exit codes: 0 done, 1 a fault on the way, 2 bad input (nothing is written), 3 a log that breaks the \
rules (verify), 70 a fault of Bursar's, 130 interrupted (nothing is written).";

const SHOW_HELP: &str = help!("  bursar show 17\n  bursar show 17 --json");
const WHY_HELP: &str = help!("  bursar why 17\n  bursar why 17 --json");
const REQUEUE_HELP: &str = help!("  bursar requeue 17");
const RELEASE_HELP: &str = help!("  bursar release 17");
const TRACE_HELP: &str = help!("  bursar trace describe jobs.swf.gz");
const BUDGET_HELP: &str = help!("  bursar budget show\n  bursar budget export > budgets.yaml");
const FUNDING_HELP: &str = help!(
    "  bursar funding ask program-a/a1 --gpus 32 --reason \"the sweep for the paper\"\n  bursar funding list"
);
const HOST_HELP: &str = help!("  bursar host list\n  bursar host drain node-3");
const TOKEN_HELP: &str = help!("  bursar token issue laptop --expires 30d");
const EXPORT_HELP: &str = help!("  bursar export trace > history.csv");
const SLURM_HELP: &str = help!(
    "  bursar slurm init --partition gpu --out /etc/bursar\n  bursar slurm check --config /etc/bursar/bursar.yaml\n  bursar slurm import --since 30d --config /etc/bursar/bursar.yaml --out history"
);
const CONFIG_HELP: &str = help!("  bursar config check bursar.yaml");

const SIMULATE_HELP: &str = "\
Examples:
  bursar simulate scenarios/lab.yaml
  bursar simulate scenarios/lab.yaml --policy budget --policy levels
  bursar simulate lab.yaml --set horizon=4h --set seed=7 --summary summary.json --html report.html
  bursar simulate lab.yaml --sweep lookback=1d,3d,7d,14d --sweep horizon=2h,4h,8h

Exit codes: 0 done, 1 a fault on the way, 2 bad input (nothing is written), 130 interrupted (nothing \
is written).";

/// What `simulate` takes.
#[derive(Debug, Args)]
#[command(after_help = SIMULATE_HELP)]
pub(crate) struct SimulateArgs {
    /// The scenario (YAML; docs/formats.md).
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) scenario: PathBuf,
    /// A policy to play; repeat it to compare. `bursar policies` lists them.
    #[arg(long = "policy", value_name = "P", default_value = "budget", value_parser = policy_name)]
    pub(crate) policies: Vec<String>,
    /// Override a setting of the scenario, or its seed.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) overrides: Vec<(String, String)>,
    /// Play every combination of these values, one row each.
    #[arg(long = "sweep", value_name = "KEY=V1,V2", value_parser = sweep,
          conflicts_with_all = ["events", "html"])]
    pub(crate) sweeps: Vec<Sweep>,
    /// End the run, and the span of the metrics, at this moment (such as 14d).
    #[arg(long, value_name = "TIME", value_parser = moment_ms)]
    pub(crate) until: Option<u64>,
    /// Write all metrics as JSON.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) summary: Option<PathBuf>,
    /// Write everything that happens, one JSON object per line.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) events: Option<PathBuf>,
    /// Write pictures as one self-contained page.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
    /// Print the metrics as JSON instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) compare: CompareArgs,
}

/// One key of a grid, and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sweep {
    /// A setting of the scenario, or `seed`.
    pub(crate) key: String,
    /// In the order given.
    pub(crate) values: Vec<String>,
}

const EXPLAIN_HELP: &str = "\
Examples:
  bursar explain scenarios/lab.yaml --workload vision-video.mid.00042
  bursar explain scenarios/lab.yaml --workload vision-video.mid.00042 --at 3d2h
  bursar explain lab.yaml --workload run-7 --policy levels --json

Times are counted from the scenario's start. A wait is told when its rule changes, a promised moment \
moves or an expected one moves by much, not whenever a number in it does.

Exit codes: 0 done, 1 a fault on the way, 2 bad input (no such workload, too), 130 interrupted.";

/// What `explain` takes.
#[derive(Debug, Args)]
#[command(after_help = EXPLAIN_HELP)]
pub(crate) struct ExplainArgs {
    /// The scenario (YAML; docs/formats.md).
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) scenario: PathBuf,
    /// The workload.
    #[arg(long, value_name = "ID")]
    pub(crate) workload: String,
    /// The policy that decides.
    #[arg(long, value_name = "P", default_value = "budget", value_parser = policy_name)]
    pub(crate) policy: String,
    /// Tell only how it stands at this moment (such as 3d2h, or 3d 02:00:00).
    #[arg(long, value_name = "TIME", value_parser = moment_ms)]
    pub(crate) at: Option<u64>,
    /// Override a setting of the scenario, or its seed.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) overrides: Vec<(String, String)>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) compare: CompareArgs,
}

const VERIFY_HELP: &str = "\
Examples:
  bursar simulate lab.yaml --events events.jsonl && bursar verify events.jsonl lab.yaml
  bursar verify events.jsonl lab.yaml --set horizon=4h   (what was set for the simulation)
  bursar verify - lab.yaml < events.jsonl

Exit codes: 0 the rules were kept, 1 a fault on the way, 2 bad input, 3 at least one violation.";

/// What `verify` takes.
#[derive(Debug, Args)]
#[command(after_help = VERIFY_HELP)]
pub(crate) struct VerifyArgs {
    /// The event log (JSON lines); `-` for standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) events: PathBuf,
    /// The scenario that it came from.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) scenario: PathBuf,
    /// Override a setting of the scenario, or its seed, as the simulation did.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) overrides: Vec<(String, String)>,
    /// Print the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `policies` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  bursar policies\n  bursar policies --json\n\nExit codes: 0 done."
)]
pub(crate) struct PoliciesArgs {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

const COMPLETIONS_HELP: &str = "\
Examples:
  mkdir -p ~/.local/share/bash-completion/completions
  bursar completions bash > ~/.local/share/bash-completion/completions/bursar
  mkdir -p ~/.zfunc && bursar completions zsh > ~/.zfunc/_bursar
  mkdir -p ~/.config/fish/completions
  bursar completions fish > ~/.config/fish/completions/bursar.fish

Exit codes: 0 done, 2 no such shell.";

/// What `completions` takes.
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_HELP)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

/// What `man` takes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bursar man ~/.local/share/man/man1\n\n\
                        Exit codes: 0 done, 2 the folder cannot be written.")]
pub(crate) struct ManArgs {
    /// The folder; made if it does not exist.
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=').map(|(key, value)| (key.trim(), value.trim())) {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => {
            Ok((key.to_owned(), value.to_owned()))
        }
        _ => Err("not KEY=VALUE, such as horizon=4h".to_owned()),
    }
}

fn sweep(text: &str) -> Result<Sweep, String> {
    let (key, list) = key_value(text).map_err(|_| "not KEY=V1,V2, such as horizon=2h,4h")?;
    let values: Vec<String> = list.split(',').map(|value| value.trim().to_owned()).collect();
    if values.iter().any(String::is_empty) {
        return Err("an empty value between commas".to_owned());
    }
    match values.iter().enumerate().find(|(at, value)| values[..*at].contains(value)) {
        Some((_, twice)) => Err(format!("the value {twice} stands there twice")),
        None => Ok(Sweep { key, values }),
    }
}

/// The name of a policy that exists.
fn policy_name(text: &str) -> Result<String, String> {
    // Not in the list that people see: what `budget` is tested against.
    let known: Vec<&str> = bursar_sim::policy_names().collect();
    if known.contains(&text) || text == "budget-forgetful" {
        return Ok(text.to_owned());
    }
    Err(format!("there is no such policy; choose from {}", known.join(", ")))
}

pub(crate) fn duration_ms(text: &str) -> Result<u64, String> {
    bursar_trace::parse_duration_ms(text)
}

/// A moment as a duration since the start (`3d2h`), or as it is printed (`3d 02:00:00`).
pub(crate) fn moment_ms(text: &str) -> Result<u64, String> {
    let (days, clock) = match text.split_once("d ") {
        Some((days, clock)) => (days, clock),
        None => ("0", text),
    };
    let parts: Vec<&str> = clock.split(':').collect();
    let [hours, minutes, seconds] = parts[..] else { return duration_ms(text) };
    duration_ms(&format!("{days}d{hours}h{minutes}m{seconds}s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_shows_examples() {
        use clap::CommandFactory;
        fn walk(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            assert!(command.get_about().is_some(), "{path}: says nothing about itself");
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{path}: no example");
            let shows = help.contains(&format!("bursar{path}"));
            assert!(shows, "{path}: its example is another verb's");
            // A terminal breaks lines where they are full: ours end where sentences do.
            for line in help.lines().filter(|line| !line.is_empty() && !line.starts_with(' ')) {
                assert!(line.ends_with(['.', ':']), "{path}: '{line}' breaks off");
            }
            command.get_subcommands().for_each(|below| walk(below, &path));
        }
        let whole = Cli::command();
        whole.get_subcommands().for_each(|verb| walk(verb, ""));
    }

    #[test]
    fn moments_are_read_as_they_are_printed() {
        assert_eq!(moment_ms("2d3h"), Ok(183_600_000));
        assert_eq!(moment_ms("2d 03:15:01.500"), Ok(184_501_500));
        assert_eq!(moment_ms("00:00:09"), Ok(9_000));
        assert!(moment_ms("2d 03:15").is_err() && moment_ms("soon").is_err());
    }

    #[test]
    fn grids() {
        let good = sweep("horizon = 2h, 4h").unwrap();
        assert_eq!((good.key.as_str(), good.values.len()), ("horizon", 2));
        assert!(sweep("horizon=2h,,4h").is_err() && sweep("horizon=2h,2h").is_err());
        assert!(sweep("horizon").is_err() && sweep("=2h").is_err());
    }
}
