//! A site whose work runs under Slurm ([ADR 11](../../../docs/adr/0011-work-of-another-queue.md)).

use crate::arrivals::AccountBudgets;
use crate::daemon::Daemon;
use crate::watch::{Watch, Watcher};
use crate::{Clock, Journal};
use bursar_engine::Engine;
use bursar_site::Site;
use bursar_slurm::{Gate, GatePartition, Holder, SlurmEngine, SlurmOptions, client::SystemClients};
use sha2::{Digest as _, Sha256};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is said about a cluster of Slurm that is to be governed.
#[derive(Clone, Debug)]
pub struct SlurmWanted {
    /// How the engine goes about.
    pub options: SlurmOptions,
    /// How Slurm's clients are run.
    pub clients: SystemClients,
    /// Which budgets Slurm's accounts are.
    pub accounts: AccountBudgets,
    /// The folder of `slurm.conf`, where the gate finds its table; none if somebody else writes it.
    pub gate: Option<PathBuf>,
    /// Whether jobs that do not say so may be resumed.
    pub resumable: bool,
}

impl SlurmWanted {
    /// Opens the engine of this site, whose records lie in `folder`.
    ///
    /// # Errors
    /// One line that says what cannot be had.
    pub fn open(&self, folder: &Path, site: &str) -> Result<SlurmEngine, String> {
        let mut options = self.options.clone();
        options.holder = Some(Holder { site: site.to_owned(), place: place_of(folder) });
        SlurmEngine::open(folder, options, self.clients.clone()).map_err(|error| error.to_string())
    }

    /// What the gate is to know of this site, and of the user as whom Slurm is called.
    #[must_use]
    pub fn gate_of(&self, site: &Site, uid: u32) -> Gate {
        let settings = &site.created.settings;
        let partition = |name: &String| GatePartition {
            name: name.clone(),
            horizon_s: settings.horizon_ms / 1000,
            min_runtime_s: settings.default_min_runtime_ms / 1000,
            resumable: self.resumable,
        };
        let is_leaf =
            |path: &&str| site.budgets.get(path).is_some_and(|budget| budget.children.is_empty());
        let budgets = site.budgets.paths().filter(is_leaf).map(str::to_owned).collect();
        Gate {
            uids: vec![uid],
            partitions: self.options.partitions.iter().map(partition).collect(),
            budgets: Some(budgets),
            // Which accounts have budgets is more than a list: a refusal comes from the site.
            accounts: None,
        }
    }
}

/// What tells this folder of this machine from all copies of it.
fn place_of(folder: &Path) -> String {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let digest = Sha256::digest(folder.as_os_str().as_encoded_bytes());
    let digest: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let name = rustix::system::uname();
    let name: String = name.nodename().to_string_lossy().chars().take(64).collect();
    let plain =
        |one: char| if one.is_ascii_alphanumeric() || ".-".contains(one) { one } else { '-' };
    format!("{}/{digest}", name.chars().map(plain).collect::<String>())
}

/// Keeps the gate's table as the site is.
pub(crate) struct GateKeeper {
    wanted: SlurmWanted,
    folder: PathBuf,
    /// The user as whom Slurm is called.
    uid: u32,
    /// The table that was written last.
    written: Option<Gate>,
    /// For which versions of budgets and settings it was looked at last.
    looked: Option<(u64, u64)>,
}

impl GateKeeper {
    /// For this site, if its table is ours to write.
    ///
    /// # Errors
    /// If it is not known as whom Slurm is called.
    pub(crate) fn new(wanted: &SlurmWanted) -> Result<Option<Self>, String> {
        let Some(folder) = wanted.gate.clone() else { return Ok(None) };
        let uid = wanted.clients.uid().map_err(|error| format!("slurm.run_by: {error}"))?;
        Ok(Some(Self { wanted: wanted.clone(), folder, uid, written: None, looked: None }))
    }

    /// Writes the table if it is not as the site is.
    ///
    /// # Errors
    /// What the system says, with the folder.
    pub(crate) fn look(&mut self, site: &Site) -> Result<(), String> {
        let look = (site.budgets.version, site.created.settings.default_min_runtime_ms);
        if self.looked == Some(look) {
            return Ok(());
        }
        let gate = self.wanted.gate_of(site, self.uid);
        if self.written.as_ref() != Some(&gate) {
            gate.write(&self.folder)
                .map_err(|error| format!("{}: {error}", self.folder.display()))?;
            self.written = Some(gate);
        }
        self.looked = Some(look);
        Ok(())
    }
}

/// How long the driver waits at most before it looks at Slurm again: its controller answers others, too.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Tells those who follow, and keeps the gate.
pub(crate) struct Watching {
    pub(crate) watch: Watch,
    pub(crate) gate: Option<GateKeeper>,
}

impl Watching {
    fn keep_gate(&mut self, site: &Site) {
        if let Some(Err(error)) = self.gate.as_mut().map(|gate| gate.look(site)) {
            tracing::warn!(error, "the table of Slurm's gate cannot be written");
        }
    }
}

impl<J: Journal, E: Engine, C: Clock> Watcher<Daemon<J, E, C>> for Watching {
    fn round(&mut self, daemon: &Daemon<J, E, C>, took: Duration, went_well: bool) {
        self.watch.round(daemon, took, went_well);
        if went_well {
            self.keep_gate(daemon.site());
        }
    }

    fn requests(&mut self, daemon: &Daemon<J, E, C>) {
        self.watch.requests(daemon);
    }
}
