//! The verbs that prepare a cluster of Slurm to be governed.

use clap::{ArgGroup, Args, Subcommand, ValueHint};
use std::path::PathBuf;

const CHECK_HELP: &str = "\
Examples:
  bursar slurm check --config bursar.yaml
  bursar slurm check --config bursar.yaml --json

Slurm is asked, nothing is changed, and no daemon has to run. Run it as who `bursar up` will run, and where.

Exit codes: 0 nothing is missing, 1 something is, 2 bad input.";

const INIT_HELP: &str = "\
Examples:
  bursar slurm init --partition gpu --out /etc/bursar
  bursar slurm init --partition gpu,debug --run-by 'sudo -n -u slurm' --owner ops
  bursar slurm init --partition gpu --users --out trial

Accounts become budgets and Fairshare numbers their shares; coordinators become owners, users members. Slurm is asked, and nothing of it is changed.

Exit codes: 0 done, 1 a fault on the way, 2 bad input (nothing is written).";

const IMPORT_HELP: &str = "\
Examples:
  bursar slurm import --since 30d --config bursar.yaml --out history
  bursar slurm import --since 2026-10-01 --until 2026-11-01 --partition gpu --out october --anonymise
  bursar simulate history/scenario.yaml --policy budget --policy fair-tree

Jobs with GPUs that were submitted in the span are read from sacct, a day at a time. Without budgets in the configuration, those of Slurm's accounts are taken.

Exit codes: 0 done, 1 a fault on the way, 2 bad input, 130 interrupted (nothing is written).";

const RELEASE_HELP: &str = "\
Examples:
  bursar slurm release --config bursar.yaml

For when governing has to end and the site is down. The gate's table is taken away, so that jobs do not enter on hold any more, and all that is on hold is released to Slurm, in the order in which it would have started. What runs, runs on. While the site is up: set slurm.mode: watch and start it again, which does the same.

Exit codes: 0 done, 1 something is still on hold or Slurm does not answer, 2 bad input.";

const WATCHDOG_HELP: &str = "\
Examples:
  bursar slurm watchdog --config bursar.yaml --after 15m

It is a process of its own, for systemd or the like. When the site has not done its rounds for so long although Slurm answers, it does what `bursar slurm release` does, once. A site that comes back takes over what waits.

Exit codes: 130 interrupted, 2 bad input; with --once 0 when it was done.";

const GATE_HELP: &str = "\
Examples:
  bursar slurm gate > /etc/slurm/job_submit.lua
  bursar slurm gate | diff - /etc/slurm/job_submit.lua

Slurm uses it with JobSubmitPlugins=lua. It does nothing until `bursar up` has written its table.

Exit codes: 0 done.";

/// What `slurm` does.
#[derive(Debug, Subcommand)]
pub(crate) enum SlurmVerb {
    /// Check whether a cluster is as governing it needs, and say what to change.
    #[command(after_help = CHECK_HELP)]
    Check {
        /// The configuration, with a block `slurm`.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        config: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write a configuration and a budget tree, from Slurm's accounts.
    #[command(after_help = INIT_HELP)]
    Init(SlurmInitArgs),
    /// Read a cluster's history from its accounting, for the simulator.
    #[command(after_help = IMPORT_HELP)]
    Import(SlurmImportArgs),
    /// Release all that is on hold to Slurm, in order, while the site is down.
    #[command(after_help = RELEASE_HELP)]
    Release {
        /// The configuration, with a block `slurm`.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        config: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Release all that is on hold to Slurm when the site is down for too long.
    #[command(after_help = WATCHDOG_HELP)]
    Watchdog(WatchdogArgs),
    /// Print job_submit.lua of this version, to be installed beside slurm.conf.
    #[command(after_help = GATE_HELP)]
    Gate,
}

/// How Slurm's clients are run.
#[derive(Debug, Args)]
pub(crate) struct SlurmClients {
    /// slurm.conf, if it is not where Slurm looks by itself.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) conf: Option<PathBuf>,
    /// By what Slurm's clients are run, such as 'sudo -n -u slurm'.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) run_by: Option<String>,
}

impl SlurmClients {
    /// The words of the command.
    pub(crate) fn run_by(&self) -> Vec<String> {
        let words = self.run_by.as_deref().unwrap_or_default().split_whitespace();
        words.map(str::to_owned).collect()
    }
}

/// What `slurm watchdog` takes.
#[derive(Debug, Args)]
pub(crate) struct WatchdogArgs {
    /// The configuration, with a block `slurm`.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
    /// How long the site may be down.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = super::duration_ms)]
    pub(crate) after: u64,
    /// How often to look.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = super::duration_ms)]
    pub(crate) every: u64,
    /// End when all was released.
    #[arg(long)]
    pub(crate) once: bool,
}

/// What `slurm init` takes.
#[derive(Debug, Args)]
pub(crate) struct SlurmInitArgs {
    /// A partition to govern; repeat it for several.
    #[arg(long = "partition", value_name = "NAME", required = true, value_delimiter = ',')]
    pub(crate) partitions: Vec<String>,
    #[command(flatten)]
    pub(crate) clients: SlurmClients,
    /// The folder to write bursar.yaml and budgets.yaml into; made if it does not exist.
    #[arg(long, value_name = "FOLDER", default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) out: PathBuf,
    /// Who owns the root of the tree; whoever starts the site first, unless given.
    #[arg(long, value_name = "USER")]
    pub(crate) owner: Option<String>,
    /// Give each user of an account a budget of their own, by their own share.
    #[arg(long)]
    pub(crate) users: bool,
    /// Replace files that are there.
    #[arg(long)]
    pub(crate) force: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `slurm import` takes.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("cluster").required(true).args(["config", "partitions"]))]
pub(crate) struct SlurmImportArgs {
    /// From when on: a time ago (30d) or a date (2026-10-01, 2026-10-01T08:00).
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: String,
    /// Until when; now unless given.
    #[arg(long, value_name = "WHEN")]
    pub(crate) until: Option<String>,
    /// The configuration: its partitions, settings and budgets are taken.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["conf", "run_by"], value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// A partition, without a configuration; repeat it for several.
    #[arg(long = "partition", value_name = "NAME", value_delimiter = ',')]
    pub(crate) partitions: Vec<String>,
    #[command(flatten)]
    pub(crate) clients: SlurmClients,
    /// The folder to write history.txt and scenario.yaml into; made if it does not exist.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) out: PathBuf,
    /// Write made-up names for users and jobs.
    #[arg(long)]
    pub(crate) anonymise: bool,
    /// Replace files that are there.
    #[arg(long)]
    pub(crate) force: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}
