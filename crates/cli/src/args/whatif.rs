//! `bursar whatif`.

use super::live::Server;
use super::{CompareArgs, duration_ms, policy_name};
use clap::{Args, ValueHint};
use std::path::PathBuf;

const WHATIF_HELP: &str = "\
Examples:
  bursar whatif                              what happened beside what budgets would have done
  bursar whatif --last 30d --change budgets.yaml
  bursar whatif --last 30d --set lookback=3d --set horizon=4h
  bursar whatif --last 30d --hosts 16x8xh100 --hosts 4x8xb200
  bursar whatif --policy recorded --policy fair-tree
  bursar whatif --every 1m                   again and again, until Ctrl-C

All that the site has seen is played again; work that has not ended is taken to need its whole limit. `recorded` is what really happened. Where Slurm is only watched (slurm.mode: watch), that is what Slurm did.
With --last only that part is measured. The lookback before it is played, too, so that budgets come into it with usage; what ran before that is not known to the play.
With --change, --set, --hosts or --cluster every policy is played as things are and as they would be.
Only owners of the root may. With --data a site that is down, or up on this machine, is read without a token.

Exit codes: 0 done, 1 a fault on the way, 2 refused or bad input.";

/// What `whatif` takes.
#[derive(Debug, Args)]
#[command(after_help = WHATIF_HELP)]
pub(crate) struct WhatIfArgs {
    /// What to compare; `bursar policies` lists them.
    #[arg(long = "policy", value_name = "NAME", value_parser = policy_name, default_values = ["recorded", "budget"])]
    pub(crate) policies: Vec<String>,
    /// Measure only so much of the time up to now, such as 30d.
    #[arg(long, value_name = "TIME", value_parser = duration_ms)]
    pub(crate) last: Option<u64>,
    /// Another budget tree (YAML, as `bursar budget export` writes it), for all of the time.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) change: Option<PathBuf>,
    /// Work of this budget is that one's in the tree of --change.
    #[arg(long = "move", value_name = "OLD=NEW", value_parser = super::key_value, requires = "change")]
    pub(crate) moves: Vec<(String, String)>,
    /// Change a setting, such as horizon=4h.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = super::key_value)]
    pub(crate) overrides: Vec<(String, String)>,
    /// Another cluster: so many hosts of so many GPUs of a model, such as 16x8xh100. Repeat it for several kinds.
    #[arg(long, value_name = "HOSTSxGPUSxMODEL", value_parser = hosts, conflicts_with = "cluster")]
    pub(crate) hosts: Vec<Hosts>,
    /// Another cluster (YAML, as the `cluster` of a scenario: docs/formats.md).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) cluster: Option<PathBuf>,
    /// Again, so often.
    #[arg(long, value_name = "TIME", value_parser = duration_ms, conflicts_with_all = ["json", "data"])]
    pub(crate) every: Option<u64>,
    /// How many workloads are listed whose waits differ most.
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    pub(crate) rows: usize,
    /// Read this data folder instead of asking a site.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) data: Option<PathBuf>,
    /// Show no progress.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) compare: CompareArgs,
    #[command(flatten)]
    pub(crate) server: Server,
}

impl WhatIfArgs {
    /// Whether anything is to be other than it is.
    pub(crate) const fn changes(&self) -> bool {
        self.change.is_some() || self.changes_cluster() || !self.overrides.is_empty()
    }

    /// Whether the hosts are to be others.
    pub(crate) const fn changes_cluster(&self) -> bool {
        self.cluster.is_some() || !self.hosts.is_empty()
    }
}

/// Hosts of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hosts {
    pub(crate) count: u32,
    pub(crate) gpus: u32,
    pub(crate) model: String,
}

fn hosts(text: &str) -> Result<Hosts, String> {
    let mut parts = text.splitn(3, 'x');
    let mut number = || parts.next().and_then(|part| part.parse().ok()).filter(|n: &u32| *n > 0);
    match (number(), number(), parts.next()) {
        (Some(count), Some(gpus), Some(model)) if !model.is_empty() => {
            Ok(Hosts { count, gpus, model: model.to_owned() })
        }
        _ => Err("not HOSTSxGPUSxMODEL, such as 16x8xh100".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_in_a_word() {
        let found = hosts("16x8xh100-80x").expect("hosts");
        assert_eq!((found.count, found.gpus, &*found.model), (16, 8, "h100-80x"));
        for wrong in ["16x8", "x8xh100", "16x0xh100", "0x8xh100", "16x8x", "h100"] {
            assert!(hosts(wrong).is_err(), "{wrong}");
        }
    }
}
