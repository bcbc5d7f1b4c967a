//! The verbs that bring a site up, and keep what it knows.

use super::Server;
use clap::{Args, Subcommand, ValueHint};
use std::net::SocketAddr;
use std::path::PathBuf;

const UP_HELP: &str = "\
Examples:
  bursar up --demo                           watch it work: everything made up, nothing kept
  bursar up                                  this machine's GPUs, data in ~/.local/share/bursar
  bursar up --virtual-gpus 8                 no GPU needed: eight slots to try everything with
  bursar up --config /etc/bursar.yaml        SIGHUP reads the file again
  bursar up --data /srv/bursar --listen 127.0.0.1:8080 --budgets budgets.yaml

The owner's token is printed once, when the site is created; the site keeps only its hash. Stopping it (Ctrl-C) leaves running work alone: the next `bursar up` finds it again. The demo ends what it started.

Exit codes: 0 stopped, 1 a fault on the way, 2 bad input.";

/// What `up` takes. Flags win over the configuration.
#[derive(Debug, Args)]
#[command(after_help = UP_HELP)]
pub(crate) struct UpArgs {
    /// Show what it does: a lab with budgets and small processes, told line by line.
    #[arg(long, conflicts_with_all = ["config", "budgets", "token_out", "work"])]
    pub(crate) demo: bool,
    /// A configuration (YAML; docs/configuration.md).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Where everything is kept.
    #[arg(long, env = "BURSAR_DATA", value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) data: Option<PathBuf>,
    /// Where that is kept what work of other users has to reach, if the daemon is root: DATA-work.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) work: Option<PathBuf>,
    /// Where the API listens; 127.0.0.1:7373 unless given.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Pretend so many GPUs if the machine has none.
    #[arg(long, value_name = "N")]
    pub(crate) virtual_gpus: Option<u32>,
    /// Spread these over so many pretended hosts.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) virtual_hosts: Option<u32>,
    /// The first owner of all budgets, when the site is created; you unless given.
    #[arg(long, value_name = "USER")]
    pub(crate) owner: Option<String>,
    /// The first budgets (YAML, as `bursar budget export` writes them), when the site is created.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) budgets: Option<PathBuf>,
    /// Write the owner's first token into this file, for them alone, instead of printing it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_out: Option<PathBuf>,
    /// Let work run as root, where the daemon is root and the work is root's.
    #[arg(long)]
    pub(crate) allow_root_work: bool,
    /// Believe the machine's clock although it is more than a week ahead since the last start. Cannot be taken back.
    #[arg(long)]
    pub(crate) accept_clock_jump: bool,
    /// Govern nodes of Slurm although another Bursar held them lately: that one must be gone, or stops ordering now.
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Write the log as JSON lines.
    #[arg(long)]
    pub(crate) log_json: bool,
    /// Send traces of requests and rounds to a collector (OTLP), such as http://127.0.0.1:4318.
    #[cfg(feature = "otel")]
    #[arg(long, value_name = "URL")]
    pub(crate) otlp: Option<String>,
}

/// What `config` does.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Check a configuration without using it.
    #[command(
        after_help = "Examples:\n  bursar config check bursar.yaml && kill -HUP \"$(cat /run/bursar.pid)\"\n\nExit codes: 0 fine, 2 not."
    )]
    Check {
        /// The configuration.
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Where a site is kept on this machine.
#[derive(Debug, Args)]
pub(crate) struct Data {
    /// The site's data folder; ~/.local/share/bursar unless given.
    #[arg(long, env = "BURSAR_DATA", value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) data: Option<PathBuf>,
}

const BACKUP_HELP: &str = "\
Examples:
  bursar backup /backups/bursar-$(date +%F).db
  bursar backup night.db --data /srv/bursar

The site may be up meanwhile. The copy is checked whole before it takes its name; one of before is replaced.
It holds the journal: budgets, workloads, charges, hashes of tokens. Checkpoints and logs of work are files of their own (DATA/checkpoints, DATA/engine): copy them as you copy files.

Exit codes: 0 done, 1 a fault on the way, 2 bad input (no such site, a damaged one).";

/// What `backup` takes.
#[derive(Debug, Args)]
#[command(after_help = BACKUP_HELP)]
pub(crate) struct BackupArgs {
    /// The file to write.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) to: PathBuf,
    #[command(flatten)]
    pub(crate) data: Data,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

const RESTORE_HELP: &str = "\
Examples:
  bursar restore /backups/bursar-2026-11-30.db --data /srv/bursar-new
  bursar up --data /srv/bursar-new

The folder must be new or empty. Every record of the backup is checked. Work that ran when the backup was made is taken for lost; what can resume is started again.

Exit codes: 0 done, 1 a fault on the way, 2 bad input (nothing is restored).";

/// What `restore` takes.
#[derive(Debug, Args)]
#[command(after_help = RESTORE_HELP)]
pub(crate) struct RestoreArgs {
    /// The backup.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) from: PathBuf,
    /// A new or empty folder.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) data: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

const CHECK_HELP: &str = "\
Examples:
  bursar check                               the site in ~/.local/share/bursar, up or not
  bursar check --data /srv/bursar
  bursar check --backup night.db

Every record is checked against the chain of hashes; then all is folded again, and every decision in it decided again.

Exit codes: 0 whole, 1 a fault on the way, 2 damaged, or not decided so by this version.";

/// What `check` takes.
#[derive(Debug, Args)]
#[command(after_help = CHECK_HELP)]
pub(crate) struct CheckArgs {
    /// A backup, instead of a site.
    #[arg(long, value_name = "FILE", conflicts_with = "data", value_hint = ValueHint::FilePath)]
    pub(crate) backup: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data: Data,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `token` does.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// List your tokens; an owner of the root sees all.
    #[command(after_help = "Examples:\n  bursar token list\n  bursar token list --json")]
    List {
        #[command(flatten)]
        server: Server,
    },
    /// Make a token; its secret is shown this once.
    #[command(
        after_help = "Examples:\n  bursar token issue laptop --expires 30d\n  bursar token issue laptop --out ~/.config/bursar/token\n  bursar token issue grafana --user monitoring --read-only --json"
    )]
    Issue {
        /// A name for it, by which it is listed and revoked.
        name: String,
        /// For whom; only an owner of the root may name another than themselves.
        #[arg(long)]
        user: Option<String>,
        /// It is void after this time, such as 30d.
        #[arg(long, value_name = "TIME", value_parser = super::duration_ms)]
        expires: Option<u64>,
        /// It may read, but change nothing.
        #[arg(long)]
        read_only: bool,
        /// Write the secret into this file, for its owner alone, instead of printing it.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        out: Option<PathBuf>,
        #[command(flatten)]
        server: Server,
    },
    /// Make a new token for a site's owner who has lost theirs. The site must be down.
    #[command(
        after_help = "Examples:\n  bursar token recover --data /srv/bursar\n  bursar token recover --data /srv/bursar --out /root/bursar.token\n\nWhoever the data folder belongs to may do that, and root. Other tokens stay good: see bursar token list."
    )]
    Recover {
        #[command(flatten)]
        data: Data,
        /// Write the secret into this file, for its owner alone, instead of printing it.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        out: Option<PathBuf>,
    },
    /// Make a token void.
    #[command(after_help = "Examples:\n  bursar token revoke laptop")]
    Revoke {
        /// The token, by its name.
        name: String,
        #[command(flatten)]
        server: Server,
    },
}

/// What `export` does.
#[derive(Debug, Subcommand)]
pub(crate) enum ExportVerb {
    /// Write the site's history for `bursar simulate`: its workloads, or all of it as a scenario.
    #[command(
        after_help = "Examples:\n  bursar export trace > history.csv\n  bursar export trace --scenario --out site.yaml && bursar simulate site.yaml --policy budget --policy levels\n\nOnly owners of the root may. With --data a site that is down, or up on this machine, is read without a token."
    )]
    Trace {
        /// All of it: hosts, budgets and their changes, settings, drains, workloads.
        #[arg(long)]
        scenario: bool,
        /// Where to; standard output unless given.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        out: Option<PathBuf>,
        /// Read this data folder instead of asking a site.
        #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
        data: Option<PathBuf>,
        #[command(flatten)]
        server: Server,
    },
}

/// What `demo-train` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  bursar run --resumable --follow -- bursar demo-train --steps 60"
)]
pub(crate) struct DemoTrainArgs {
    /// Steps until it is done.
    #[arg(long, default_value_t = 60)]
    pub(crate) steps: u64,
    /// How long a step takes, in milliseconds.
    #[arg(long, default_value_t = 500)]
    pub(crate) step_ms: u64,
}
