//! `bursar whatif`.

use super::live::Server;
use super::{CompareArgs, duration_ms, policy_name};
use clap::Args;

/// What `whatif` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  bursar whatif                              what happened beside what budgets would have done\n  bursar whatif --set lookback=3d            the same with another setting\n  bursar whatif --policy recorded --policy fair-tree\n  bursar whatif --every 1m                   again and again, until Ctrl-C\n\nAll that the site has seen is played again from its beginning; work that has not ended is taken to need its whole limit. `recorded` is what really happened. Where Slurm is only watched (slurm.mode: watch), that is what Slurm did.\nOnly owners of the root may."
)]
pub(crate) struct WhatIfArgs {
    /// What to compare; `bursar policies` lists them.
    #[arg(long = "policy", value_name = "NAME", value_parser = policy_name, default_values = ["recorded", "budget"])]
    pub(crate) policies: Vec<String>,
    /// Change a setting for the policies that decide, such as horizon=4h.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = super::key_value)]
    pub(crate) overrides: Vec<(String, String)>,
    /// Again, so often.
    #[arg(long, value_name = "TIME", value_parser = duration_ms, conflicts_with = "json")]
    pub(crate) every: Option<u64>,
    /// How many workloads are listed whose waits differ most.
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    pub(crate) rows: usize,
    #[command(flatten)]
    pub(crate) compare: CompareArgs,
    #[command(flatten)]
    pub(crate) server: Server,
}
