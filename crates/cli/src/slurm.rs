//! `bursar slurm`, and what the configuration says about a cluster of Slurm that is to be governed.

mod check;
mod history;
mod import;
mod init;
mod release;
mod scenario;

use crate::args::{SlurmClients, SlurmVerb};
use crate::config::Config;
use crate::failure::Failure;
use bursar_server::arrivals::AccountBudgets;
use bursar_server::slurm::{SlurmMode, SlurmWanted};
use bursar_site::declare::Duration;
use bursar_slurm::client::{Call, ClientError, Clients as _, SystemClients};
use bursar_slurm::read::Unreadable;
use bursar_slurm::{JOB_SUBMIT_LUA, SignalTarget, SlurmOptions};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// `bursar slurm …`.
pub(crate) fn slurm(verb: &SlurmVerb) -> Result<(), Failure> {
    match verb {
        SlurmVerb::Check { config, json } => check::check(config, *json),
        SlurmVerb::Init(args) => init::init(args),
        SlurmVerb::Import(args) => import::import(args),
        SlurmVerb::Release { config, json } => release::release(config, *json),
        SlurmVerb::Watchdog(args) => release::watchdog(args),
        SlurmVerb::Gate => {
            crate::shown::say_raw(JOB_SUBMIT_LUA);
            Ok(())
        }
    }
}

/// A configuration, and what it says about Slurm, which it must.
fn configured(file: &Path) -> Result<(Config, SlurmWanted), Failure> {
    let config = Config::read(file)?;
    let name = file.display();
    let block = config.slurm.as_ref().ok_or_else(|| {
        Failure::input(format!(
            "{name}: 'slurm' is missing; add a block such as slurm: {{partitions: [gpu]}}, or write one with bursar slurm init"
        ))
    })?;
    let wanted = block.wanted().map_err(|what| Failure::input(format!("{name}: {what}")))?;
    Ok((config, wanted))
}

/// The clients as flags say.
fn clients(args: &SlurmClients) -> Result<SystemClients, Failure> {
    let mut clients = SystemClients { through: args.run_by(), ..SystemClients::default() };
    if let Some(conf) = &args.conf {
        let conf = std::path::absolute(conf).map_err(Failure::fault)?;
        if !conf.is_file() {
            return Err(Failure::input(format!(
                "--conf: there is no file {}; give that of slurm.conf",
                conf.display()
            )));
        }
        clients.env.insert("SLURM_CONF".into(), conf.display().to_string());
    }
    Ok(clients)
}

/// Asks Slurm something.
fn ask<T>(
    clients: &SystemClients,
    call: &Call,
    read: impl FnOnce(&[u8]) -> Result<T, Unreadable>,
) -> Result<T, Failure> {
    let answer = clients.run(call).map_err(Failure::fault)?;
    let unreadable =
        |why: Unreadable| ClientError::Unreadable { call: call.to_string(), why: why.0 };
    read(&answer).map_err(|why| Failure::fault(unreadable(why)))
}

/// Refuses partitions that are not there.
fn must_exist(
    partitions: &[String],
    clients: &SystemClients,
    where_named: &str,
) -> Result<(), Failure> {
    use bursar_slurm::read::{partitions_call, read_partitions};
    let there = ask(clients, &partitions_call(), read_partitions)?;
    let names: Vec<&str> = there.iter().map(|one| one.name.as_str()).collect();
    match partitions.iter().find(|name| !names.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(Failure::input(format!(
            "{where_named}: there is no partition '{name}'; give one of {}",
            names.join(", ")
        ))),
    }
}

/// `slurm:` of `bursar.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SlurmBlock {
    mode: Mode,
    /// The partitions that are governed.
    pub(crate) partitions: Vec<String>,
    /// Which budgets Slurm's accounts are, where the names do not say so.
    accounts: BTreeMap<String, String>,
    /// `slurm.conf`, if it is not where Slurm looks by itself.
    pub(crate) conf: Option<PathBuf>,
    /// The folder where the gate's table is written, if we are to write it: that of `slurm.conf`.
    pub(crate) gate: Option<PathBuf>,
    /// By what Slurm's clients are run: `[sudo, -n, -u, slurm]`.
    run_by: Vec<String>,
    /// Whether jobs that do not say so may be resumed.
    resumable: bool,
    checkpoint_signal: Option<String>,
    warn_signal: Option<String>,
    signal_to: Option<SignalTo>,
    answer_within: Option<Duration>,
    start_within: Option<Duration>,
    starts_at_once: Option<usize>,
    /// How much of Slurm's accounts is in the books of a new site from the beginning.
    history: Option<Duration>,
}

/// The most of Slurm's accounts that a site begins with: all of it is in its journal, and in memory.
const HISTORY_MS_MAX: u64 = 90 * 24 * 3_600_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    #[default]
    Govern,
    Watch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SignalTo {
    Script,
    Steps,
    Both,
}

impl SlurmBlock {
    /// Paths in it are relative to where its file lies.
    pub(crate) fn resolve(&mut self, folder: &Path) {
        for path in [&mut self.conf, &mut self.gate].into_iter().flatten() {
            *path = folder.join(&*path);
        }
    }

    /// What is wanted, or the key that is wrong.
    pub(crate) fn wanted(&self) -> Result<SlurmWanted, String> {
        if self.partitions.is_empty() {
            return Err(
                "slurm.partitions: name those that are to be governed, such as [gpu]".into()
            );
        }
        let mut options = SlurmOptions::new(self.partitions.clone());
        let signal = |key: &str, name: &String| {
            name.parse().map_err(|error| format!("slurm.{key}: {error}; give USR1"))
        };
        if let Some(name) = &self.checkpoint_signal {
            options.checkpoint_signal = signal("checkpoint_signal", name)?;
        }
        if let Some(name) = &self.warn_signal {
            options.warn_signal = Some(signal("warn_signal", name)?);
        }
        options.signal_scope = match self.signal_to.unwrap_or(SignalTo::Script) {
            SignalTo::Script => SignalTarget::Script,
            SignalTo::Steps => SignalTarget::Steps,
            SignalTo::Both => SignalTarget::Both,
        };
        if let Some(limit) = self.start_within {
            if limit.0 < 1000 {
                return Err("slurm.start_within: Slurm needs some seconds; give 60s".into());
            }
            options.start_limit = std::time::Duration::from_millis(limit.0);
        }
        if let Some(most) = self.starts_at_once {
            if most == 0 {
                return Err("slurm.starts_at_once: 0 starts nothing; give 50".into());
            }
            options.releases_max = most;
        }
        let history_ms = self.history.map_or(0, |history| history.0);
        if history_ms > HISTORY_MS_MAX {
            return Err("slurm.history: at most 90d; give 7d, or as much as the lookback".into());
        }
        let mut clients =
            SystemClients { through: self.run_by.clone(), ..SystemClients::default() };
        if let Some(limit) = self.answer_within {
            if limit.0 < 1000 {
                return Err("slurm.answer_within: Slurm needs some seconds; give 20s".into());
            }
            clients.limit = std::time::Duration::from_millis(limit.0);
        }
        if let Some(conf) = &self.conf {
            clients.env.insert("SLURM_CONF".into(), conf.display().to_string());
        }
        Ok(SlurmWanted {
            mode: match self.mode {
                Mode::Govern => SlurmMode::Govern,
                Mode::Watch => SlurmMode::Watch,
            },
            options,
            clients,
            accounts: AccountBudgets(self.accounts.clone()),
            gate: self.gate.clone(),
            resumable: self.resumable,
            history_ms,
        })
    }
}
