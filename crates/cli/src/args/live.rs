//! The verbs that work with a live site.

use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// Where the site is, and who asks.
#[derive(Clone, Debug, Args)]
pub(crate) struct Server {
    /// The site's address.
    #[arg(long, env = "BURSAR_URL", default_value = "http://127.0.0.1:7373", value_name = "URL")]
    pub(crate) url: String,
    /// A file that holds the token; without it the variable BURSAR_TOKEN, or ~/.config/bursar/token.
    #[arg(long, env = "BURSAR_TOKEN_FILE", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The number of a workload.
fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "not a number; `bursar queue` lists workloads by theirs".to_owned())
}

/// A workload that must have ended before, and how.
fn after(text: &str) -> Result<(u64, String), String> {
    let (workload, when) = text.split_once(':').unwrap_or((text, "ok"));
    if !matches!(when, "ok" | "any") {
        return Err("write N, or N:any".to_owned());
    }
    Ok((number(workload)?, when.to_owned()))
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("not KEY=VALUE, such as team=vision".to_owned()),
    }
}

/// A variable as it is given, or as it is here.
fn variable(text: &str) -> Result<(String, String), String> {
    if text.contains('=') {
        return pair(text);
    }
    match std::env::var(text) {
        Ok(value) => Ok((text.to_owned(), value)),
        Err(_) => Err("it is not set here; give NAME=VALUE".to_owned()),
    }
}

const SUBMIT_HELP: &str = "\
Examples:
  bursar submit train.yaml
  bursar submit train.yaml --dry-run      what it would cost and when it would start
  cat train.yaml | bursar submit -

Exit codes: 0 accepted, 1 a fault on the way, 2 refused.";

/// What `submit` takes.
#[derive(Debug, Args)]
#[command(after_help = SUBMIT_HELP)]
pub(crate) struct SubmitArgs {
    /// The workload (YAML; docs/daemon.md); `-` for standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Only tell what would happen.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Keep it out of the queue until `bursar release`; it may even be one that has no room here.
    #[arg(long)]
    pub(crate) hold: bool,
    /// A key of yours: the same key submits once, however often it is sent.
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

const RUN_HELP: &str = "\
Examples:
  bursar run --gpus 2 --min-runtime 15m --budget a/a1 -- python train.py
  bursar run --gpus 1 --budget a/a1 --resumable --follow -- ./train.sh --epochs 3
  bursar run --after 17 --label team=vision --env WANDB_API_KEY -- ./evaluate.sh

Ctrl-C ends the following, not the workload.

Exit codes: 0 accepted, 1 a fault on the way, 2 refused. With --follow the command's own; 128 and the signal's number if a signal ended it; 1 every other end that is no completion.";

/// What `run` takes.
#[derive(Debug, Args)]
#[command(after_help = RUN_HELP)]
pub(crate) struct RunArgs {
    /// GPUs.
    #[arg(long, default_value_t = 1)]
    pub(crate) gpus: u32,
    /// The budget that pays; yours if you may submit to one only.
    #[arg(long, value_name = "PATH")]
    pub(crate) budget: Option<String>,
    /// Protected from preemption until then; the site's default unless given.
    #[arg(long, value_name = "TIME")]
    pub(crate) min_runtime: Option<String>,
    /// It is ended at this age.
    #[arg(long, value_name = "TIME")]
    pub(crate) max_runtime: Option<String>,
    /// It can continue from a checkpoint: requeued after a preemption.
    #[arg(long)]
    pub(crate) resumable: bool,
    /// A name for people; the command's unless given.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Orders your workloads in one budget, high first.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) rank: i32,
    /// It saves by itself so often.
    #[arg(long, value_name = "TIME")]
    pub(crate) checkpoint_interval: Option<String>,
    /// It saves when it is told to leave (SIGTERM).
    #[arg(long)]
    pub(crate) checkpoint_on_signal: bool,
    /// It waits until this workload has completed; `N:any`: until it has ended. May be repeated.
    #[arg(long, value_name = "N", value_parser = after)]
    pub(crate) after: Vec<(u64, String)>,
    /// A label, for `show` and `queue --label`. May be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) labels: Vec<(String, String)>,
    /// A variable of its environment; `--env NAME` takes yours. May be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,
    /// Where it runs; here unless given.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) workdir: Option<PathBuf>,
    /// Keep it out of the queue until `bursar release`; it may even be one that has no room here.
    #[arg(long, conflicts_with = "follow")]
    pub(crate) hold: bool,
    /// A key of yours: the same key submits once, however often it is sent.
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Only tell what would happen.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Many of a kind: `0-9`, `1,3,5-7`, or `0-99%4` for at most four at once; each is told its
    /// BURSAR_ARRAY_INDEX.
    #[arg(long, value_name = "INDICES", conflicts_with = "follow")]
    pub(crate) array: Option<String>,
    /// Print what it writes until it has ended.
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// The command.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// What `queue` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  bursar queue\n  bursar queue --all --user ann\n  bursar queue --budget a --json\n  bursar queue --label team=vision\n\nExit codes: 0 done, 1 a fault on the way, 2 refused."
)]
pub(crate) struct QueueArgs {
    /// Also those that have ended.
    #[arg(long)]
    pub(crate) all: bool,
    /// Only this budget and what is below it.
    #[arg(long, value_name = "PATH")]
    pub(crate) budget: Option<String>,
    /// Only this person's.
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// Only those with this label.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) label: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// What names one workload.
#[derive(Debug, Args)]
pub(crate) struct WorkloadArgs {
    /// Its number.
    #[arg(value_name = "WORKLOAD", value_parser = number)]
    pub(crate) workload: u64,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// What `cancel` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  bursar cancel 17\n  bursar cancel 17 --array\n\nExit codes: 0 done, 1 a fault on the way, 2 refused."
)]
pub(crate) struct CancelArgs {
    /// Its number.
    #[arg(value_name = "WORKLOAD", value_parser = number)]
    pub(crate) workload: u64,
    /// All of the array that it is of.
    #[arg(long)]
    pub(crate) array: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// What `logs` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  bursar logs 17\n  bursar logs 17 -f\n  bursar logs 17 --attempt 1\n  bursar logs 17 -f --json      one object a line for each part\n\nExit codes: 0 done, 1 a fault on the way, 2 refused."
)]
pub(crate) struct LogsArgs {
    /// Its number.
    #[arg(value_name = "WORKLOAD", value_parser = number)]
    pub(crate) workload: u64,
    /// Go on until the workload has ended.
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// This attempt's; the latest unless given.
    #[arg(long, value_name = "N")]
    pub(crate) attempt: Option<u32>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// What `wait` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  bursar wait 17 && echo trained\n\nExit codes: the command's own; 128 and the signal's number if a signal ended it; 1 every other end that is no completion, or a fault on the way; 2 refused."
)]
pub(crate) struct WaitArgs {
    /// Its number.
    #[arg(value_name = "WORKLOAD", value_parser = number)]
    pub(crate) workload: u64,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// What `budget` does.
#[derive(Debug, Subcommand)]
pub(crate) enum BudgetVerb {
    /// Show the budgets that you may see: fractions, usage ratios, what they run.
    #[command(after_help = "Examples:\n  bursar budget show\n  bursar budget show --json")]
    Show {
        #[command(flatten)]
        server: Server,
    },
    /// Print the tree as YAML, to edit and import again.
    #[command(
        after_help = "Examples:\n  bursar budget export > budgets.yaml\n  bursar budget export --at program-a > program-a.yaml   (what its owners may divide)"
    )]
    Export {
        /// Only what lies below this budget.
        #[arg(long, value_name = "PATH")]
        at: Option<String>,
        #[command(flatten)]
        server: Server,
    },
    /// Tell what a tree would change.
    #[command(
        after_help = "Examples:\n  bursar budget diff budgets.yaml\n  bursar budget diff program-a.yaml --at program-a"
    )]
    Diff {
        #[command(flatten)]
        file: BudgetFile,
        #[command(flatten)]
        server: Server,
    },
    /// Put a tree in place of the one in force, now or at a later moment.
    #[command(
        after_help = "Examples:\n  bursar budget import budgets.yaml --reason \"vision gets more until June\"\n  bursar budget import program-a.yaml --at program-a --reason \"a2 hired\" --effective 2027-01-01"
    )]
    Import {
        #[command(flatten)]
        file: BudgetFile,
        /// Why; everybody whom it concerns can read it.
        #[arg(long)]
        reason: String,
        /// From when on it is to hold (a date, with a time if need be); from now on unless given.
        #[arg(long, value_name = "MOMENT")]
        effective: Option<String>,
        /// Take the version in force as what it was made from, whatever it removes.
        #[arg(long, conflicts_with = "base")]
        force_base: bool,
        #[command(flatten)]
        server: Server,
    },
    /// Tell who changed what, when and why.
    #[command(
        after_help = "Examples:\n  bursar budget history\n  bursar budget history --limit 3 --json"
    )]
    History {
        /// How many versions at most, the latest first.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
        #[command(flatten)]
        server: Server,
    },
    /// List change sets that wait for their moment.
    #[command(after_help = "Examples:\n  bursar budget scheduled")]
    Scheduled {
        #[command(flatten)]
        server: Server,
    },
    /// Give GPU-hours of a term to the same term of a sibling, for this once.
    #[command(
        after_help = "Examples:\n  bursar budget transfer program-a/a1 program-a/a2 120 --reason \"a1 is done for November\"\n  bursar budget transfer a b 10 --each month"
    )]
    Transfer {
        /// The budget that gives.
        from: String,
        /// The budget that gets: below the same one.
        to: String,
        /// How many GPU-hours at rate 1.
        gpu_hours: f64,
        /// Of which term, where they share several.
        #[arg(long, value_parser = ["day", "week", "month", "quarter"])]
        each: Option<String>,
        /// Why.
        #[arg(long, default_value = "")]
        reason: String,
        #[command(flatten)]
        server: Server,
    },
    /// Withdraw a change set that waits for its moment.
    #[command(after_help = "Examples:\n  bursar budget withdraw 4711")]
    Withdraw {
        /// Its number, as `scheduled` lists it.
        change: u64,
        #[command(flatten)]
        server: Server,
    },
}

/// What `funding` does.
#[derive(Debug, Subcommand)]
pub(crate) enum FundingVerb {
    /// Ask for a larger (or smaller) part, or for a new budget below one of yours.
    #[command(
        after_help = "Examples:\n  bursar funding ask program-a/a1 --gpus 32 --reason \"the sweep for the paper\"\n  bursar funding ask program-a/pilot --share 0.5 --from 2027-01-01 --reason \"a new project\""
    )]
    Ask {
        /// For which budget.
        budget: String,
        #[command(flatten)]
        how_much: HowMuch,
        /// From when on (a date, with a time if need be); at once unless given.
        #[arg(long, value_name = "MOMENT")]
        from: Option<String>,
        /// What it is for: owners decide by it, and everybody whom it concerns can read it.
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        server: Server,
    },
    /// List requests that wait for a decision.
    #[command(
        after_help = "Examples:\n  bursar funding list\n  bursar funding list --all --budget program-a"
    )]
    List {
        /// Decided ones, too.
        #[arg(long)]
        all: bool,
        /// Only those for this budget and what is below it.
        #[arg(long, value_name = "PATH")]
        budget: Option<String>,
        #[command(flatten)]
        server: Server,
    },
    /// Show a request, and what became of it.
    #[command(after_help = "Examples:\n  bursar funding show 4711")]
    Show {
        /// Its number.
        request: u64,
        #[command(flatten)]
        server: Server,
    },
    /// Tell what granting a request would do: the last days played again, as they were and as they would have been.
    #[command(
        after_help = "Examples:\n  bursar funding effect 4711\n  bursar funding effect 4711 --share 1.5 --last 30d\n\nThe simulator plays what the site has seen, and what waits now, under both trees.\nWork that nobody has submitted yet is not in it.\nOnly owners of a budget above may ask."
    )]
    Effect {
        /// Its number.
        request: u64,
        /// As if it were granted with this share.
        #[arg(long)]
        share: Option<f64>,
        /// How far back to look.
        #[arg(long, value_name = "TIME", default_value = "7d", value_parser = super::duration_ms)]
        last: u64,
        #[command(flatten)]
        server: Server,
    },
    /// Grant a request, as it was asked for or otherwise.
    #[command(
        after_help = "Examples:\n  bursar funding grant 4711\n  bursar funding grant 4711 --gpus 16 --reason \"half of it until the review\""
    )]
    Grant {
        /// Its number.
        request: u64,
        #[command(flatten)]
        how_much: OtherAmount,
        /// What to say to it.
        #[arg(long, default_value = "")]
        reason: String,
        #[command(flatten)]
        server: Server,
    },
    /// Decline a request.
    #[command(
        after_help = "Examples:\n  bursar funding decline 4711 --reason \"after the deadline\""
    )]
    Decline {
        /// Its number.
        request: u64,
        /// Why; everybody whom it concerns can read it.
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        server: Server,
    },
    /// Take back a request of yours.
    #[command(after_help = "Examples:\n  bursar funding withdraw 4711")]
    Withdraw {
        /// Its number.
        request: u64,
        #[command(flatten)]
        server: Server,
    },
}

/// How much is asked for.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct HowMuch {
    /// So many GPUs on average: the share that gives them, as all other shares and the hosts are now.
    #[arg(long)]
    pub(crate) gpus: Option<f64>,
    /// A share among its siblings.
    #[arg(long)]
    pub(crate) share: Option<f64>,
}

/// How much is granted, if it is not what was asked for.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct OtherAmount {
    /// So many GPUs on average.
    #[arg(long)]
    pub(crate) gpus: Option<f64>,
    /// A share among its siblings.
    #[arg(long)]
    pub(crate) share: Option<f64>,
}

/// A tree in a file.
#[derive(Debug, Args)]
pub(crate) struct BudgetFile {
    /// The tree, as `export` writes it; `-` for standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// It is what lies below this budget.
    #[arg(long, value_name = "PATH")]
    pub(crate) at: Option<String>,
    /// The version that it was made from; as the file says, or the one in force.
    #[arg(long, value_name = "VERSION")]
    pub(crate) base: Option<u64>,
}

/// What `host` does.
#[derive(Debug, Subcommand)]
pub(crate) enum HostVerb {
    /// List hosts, and by when each would be empty if it were drained now.
    #[command(after_help = "Examples:\n  bursar host list")]
    List {
        #[command(flatten)]
        server: Server,
    },
    /// Empty a host as contracts end (rule 9).
    #[command(after_help = "Examples:\n  bursar host drain node-3 --reason \"fan 2 is loud\"")]
    Drain {
        /// The host.
        host: String,
        /// Why.
        #[arg(long, default_value = "")]
        reason: String,
        #[command(flatten)]
        server: Server,
    },
    /// Put a host back into service.
    #[command(after_help = "Examples:\n  bursar host undrain node-3")]
    Undrain {
        /// The host.
        host: String,
        #[command(flatten)]
        server: Server,
    },
}

/// What `audit` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  bursar audit\n  bursar audit --after 1200 --json\n\nExit codes: 0 done, 1 a fault on the way, 2 refused."
)]
pub(crate) struct AuditArgs {
    /// Only records after this one.
    #[arg(long, default_value_t = 0, value_name = "SEQ")]
    pub(crate) after: u64,
    #[command(flatten)]
    pub(crate) server: Server,
}
