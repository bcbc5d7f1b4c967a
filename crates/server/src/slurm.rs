//! A site whose work runs under Slurm ([ADR 11](../../../docs/adr/0011-work-of-another-queue.md)).

use crate::arrivals::AccountBudgets;
use crate::daemon::Daemon;
use crate::settings::SettingsWanted;
use crate::watch::{Watch, Watcher};
use crate::{Clock, Journal};
use bursar_engine::Engine;
use bursar_site::Site;
use bursar_site::record::SettingsDoc;
use bursar_slurm::client::{Clients as _, SystemClients};
use bursar_slurm::read::{Partition, partitions_call, read_partitions};
use bursar_slurm::{
    Gate, GatePartition, HandedBack, Holder, SlurmEngine, SlurmOptions, Undeclared, WatchEngine,
    hand_back,
};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What Bursar does on a cluster of Slurm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlurmMode {
    /// It decides.
    #[default]
    Govern,
    /// It looks, and changes nothing.
    Watch,
}

/// What is said about a cluster of Slurm that is to be governed, or watched.
#[derive(Clone, Debug)]
pub struct SlurmWanted {
    /// Which of both.
    pub mode: SlurmMode,
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
    /// How long before its creation a new site begins, in milliseconds: what Slurm accounts since then is in its books
    /// before it decides anything.
    pub history_ms: u64,
}

impl SlurmWanted {
    /// With what counts for jobs for which nothing was declared.
    #[must_use]
    pub fn with_usual(&self, settings: &SettingsWanted) -> Self {
        let usual = SettingsDoc::default();
        let least = settings.default_min_runtime_ms.unwrap_or(usual.default_min_runtime_ms);
        let most = settings.horizon_ms.unwrap_or(usual.horizon_ms);
        let min_runtime_s = least.min(most) / 1000;
        let undeclared = Undeclared { min_runtime_s, resumable: self.resumable };
        let options = SlurmOptions { undeclared, ..self.options.clone() };
        Self { options, ..self.clone() }
    }

    /// What it does, in a line for whoever starts it.
    #[must_use]
    pub fn told(&self) -> String {
        let partitions = self.options.partitions.join(", ");
        match self.mode {
            SlurmMode::Govern => format!("it governs {partitions} of Slurm (slurm.mode: govern)"),
            SlurmMode::Watch => format!(
                "it watches {partitions} of Slurm and changes nothing there (slurm.mode: watch)"
            ),
        }
    }

    /// Opens the engine of this site, whose records lie in `folder`.
    ///
    /// # Errors
    /// One line that says what cannot be had.
    pub fn open(&self, folder: &Path, site: &str) -> Result<Box<dyn Engine>, String> {
        self.check_nodes()?;
        let (mut options, clients) = (self.options.clone(), self.clients.clone());
        Ok(match self.mode {
            SlurmMode::Govern => {
                options.holder = Some(Holder { site: site.to_owned(), place: place_of(folder) });
                Box::new(SlurmEngine::open(folder, options, clients).map_err(text)?)
            }
            SlurmMode::Watch => {
                Box::new(WatchEngine::open(folder, options, clients).map_err(text)?)
            }
        })
    }

    /// The partitions are there, and, since all work may be placed on all nodes of a site, have the same nodes.
    fn check_nodes(&self) -> Result<(), String> {
        self.check_conf()?;
        let answer =
            self.clients.run(&partitions_call()).map_err(|error| format!("slurm: {error}"))?;
        let all = read_partitions(&answer).map_err(|why| format!("slurm: {why}"))?;
        must_share_nodes(&self.options.partitions, &all)
    }

    /// What is wrong with the files that were named: said before a client tells of it in its own way.
    fn check_conf(&self) -> Result<(), String> {
        let conf = self.clients.env.get("SLURM_CONF").map(PathBuf::from);
        // Whom the clients run as may see what we do not.
        if let Some(conf) = &conf
            && matches!(conf.try_exists(), Ok(false))
        {
            return Err(format!(
                "slurm.conf: there is no file {}; give that of slurm.conf, or leave it out where Slurm finds it by itself",
                conf.display()
            ));
        }
        let Some(gate) = self.gate.as_ref().filter(|_| self.mode == SlurmMode::Govern) else {
            return Ok(());
        };
        if !gate.is_dir() {
            return Err(format!(
                "slurm.gate: there is no folder {}; give that of slurm.conf on the controller, or leave it out if somebody else writes the table there",
                gate.display()
            ));
        }
        // Where the controller's own files are elsewhere, as with configuration by slurmctld itself, none of this can be told.
        let beside = conf.as_deref().and_then(Path::parent);
        if let Some(beside) = beside
            && beside.join("job_submit.lua").is_file()
            && !gate.join("slurm.conf").is_file()
        {
            return Err(format!(
                "slurm.gate: {} is not the folder of slurm.conf, {}: slurmctld reads the table beside its job_submit.lua",
                gate.display(),
                beside.display()
            ));
        }
        Ok(())
    }

    /// The accounts that are said to be budgets which are none.
    #[must_use]
    pub fn not_budgets(&self, is_budget: impl Fn(&str) -> bool) -> Vec<String> {
        let wrong = self.accounts.0.iter().filter(|(_, path)| !is_budget(path));
        wrong
            .map(|(account, path)| {
                format!("slurm.accounts: {account}: there is no budget '{path}'; name one of bursar budget show")
            })
            .collect()
    }

    /// If it was governed before and is only watched now: gives all that waits back to Slurm, in the order of the site.
    /// What people should know of that.
    ///
    /// # Errors
    /// One line that says what could not be done.
    pub fn hand_back(&self, site: &Site) -> Result<Option<String>, String> {
        // Another site's table is another site's affair.
        let governed = self.gate.as_deref().and_then(Gate::site_in);
        if self.mode != SlurmMode::Watch || governed.is_none() || governed != site.created.site_id {
            return Ok(None);
        }
        let done = hand_back(
            &self.clients,
            &self.options.partitions,
            self.gate.as_deref(),
            &site.handback_order(),
        );
        let done = done.map_err(|error| format!("slurm.mode: governing cannot end: {error}"))?;
        Ok(Some(told_of(&done)))
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
            site: site.created.site_id.clone(),
            uids: vec![uid],
            partitions: self.options.partitions.iter().map(partition).collect(),
            budgets: Some(budgets),
            // Which accounts have budgets is more than a list: a refusal comes from the site.
            accounts: None,
        }
    }
}

fn must_share_nodes(wanted: &[String], all: &[Partition]) -> Result<(), String> {
    let nodes = |name: &String| -> Option<BTreeSet<&String>> {
        let found = all.iter().find(|one| one.name == *name)?;
        Some(found.nodes.iter().collect())
    };
    if let Some(gone) = wanted.iter().find(|name| nodes(name).is_none()) {
        let there: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        return Err(format!(
            "slurm.partitions: there is no partition '{gone}'; give one of {}",
            there.join(", ")
        ));
    }
    let first = nodes(&wanted[0]);
    match wanted.iter().find(|name| nodes(name) != first) {
        Some(other) => Err(format!(
            "slurm.partitions: {} and {other} have different nodes; give each set of nodes a site of its own, with its own data and listen",
            wanted[0]
        )),
        None => Ok(()),
    }
}

/// What became of jobs that were given back, in one line.
#[must_use]
pub fn told_of(done: &HandedBack) -> String {
    let mut told = format!(
        "governing has ended: {} jobs that waited were released to Slurm, in their order",
        done.released.len()
    );
    if !done.left.is_empty() {
        let said = done.said.as_deref().unwrap_or("no more is known");
        let some: Vec<&str> = done.left.iter().take(5).map(String::as_str).collect();
        let some = some.join(", ");
        told += &format!("; {} are still on hold, such as {some} ({said})", done.left.len());
    }
    told
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
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
        let governs = wanted.mode == SlurmMode::Govern;
        let Some(folder) = wanted.gate.clone().filter(|_| governs) else { return Ok(None) };
        let uid = wanted.clients.uid().map_err(|error| format!("slurm.run_by: {error}"))?;
        Ok(Some(Self { wanted: wanted.clone(), folder, uid, written: None, looked: None }))
    }

    /// Writes the table if it is not as the site is, whoever changed or removed it.
    ///
    /// # Errors
    /// What the system says, with the folder.
    pub(crate) fn look(&mut self, site: &Site) -> Result<(), String> {
        let look = (site.budgets.version, site.created.settings.default_min_runtime_ms);
        let gate = match self.written.take().filter(|_| self.looked == Some(look)) {
            Some(gate) => gate,
            None => self.wanted.gate_of(site, self.uid),
        };
        let wrote = gate.write(&self.folder);
        let wrote = wrote.map_err(|error| format!("{}: {error}", self.folder.display()))?;
        if wrote && self.looked == Some(look) {
            tracing::warn!("the table of Slurm's gate was changed or removed: it is written again");
        }
        (self.written, self.looked) = (Some(gate), Some(look));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_of_a_site_have_the_same_nodes() {
        let partition = |name: &str, nodes: &[&str]| Partition {
            name: name.into(),
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            ..Partition::default()
        };
        let all = [
            partition("gpu", &["n1", "n2"]),
            partition("long", &["n2", "n1"]),
            partition("old", &["n2", "n3"]),
        ];
        let check = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            must_share_nodes(&names, &all)
        };
        assert_eq!(check(&["gpu", "long"]), Ok(()));
        let said = check(&["gpu", "long", "old"]).expect_err("others");
        assert!(said.starts_with("slurm.partitions: gpu and old have different nodes"), "{said}");
        let said = check(&["gpu", "none"]).expect_err("none");
        assert_eq!(
            said,
            "slurm.partitions: there is no partition 'none'; give one of gpu, long, old"
        );
    }
}
