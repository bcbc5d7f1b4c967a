//! The table that tells the gate in Slurm what is governed, and the plugins themselves.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// `job_submit.lua`, to be installed beside `slurm.conf` as it is.
pub const JOB_SUBMIT_LUA: &str = include_str!("../plugins/job_submit.lua");

/// The source of the SPANK plugin that gives sbatch the options `--min-runtime`, `--resumable` and `--budget`.
pub const SPANK_PLUGIN_C: &str = include_str!("../plugins/spank_bursar.c");

/// The name that the table has to have, beside `job_submit.lua`.
pub const GATE_FILE: &str = "bursar.gate";

/// What is governed, and by whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// The site that governs. The gate does not care; who ends the governing looks whether it is its own.
    pub site: Option<String>,
    /// The user ids that Bursar calls Slurm as; they may change what users may not.
    pub uids: Vec<u32>,
    /// The governed partitions.
    pub partitions: Vec<GatePartition>,
    /// The budgets that a job may name. None: any name passes.
    pub budgets: Option<Vec<String>>,
    /// The accounts that have a budget. None: any account passes.
    pub accounts: Option<Vec<String>>,
}

/// A governed partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatePartition {
    /// Its name.
    pub name: String,
    /// The longest `min-runtime` that is taken, in seconds.
    pub horizon_s: u64,
    /// The `min-runtime` of jobs that name none, in seconds.
    pub min_runtime_s: u64,
    /// Whether jobs that do not say so are resumable.
    pub resumable: bool,
}

impl Gate {
    /// The table as text.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if a name is empty or has blanks: no name of Slurm's or ours does.
    pub fn text(&self) -> io::Result<String> {
        let word = |text: &str| {
            let fits = !text.is_empty()
                && !text.contains(|one: char| one.is_whitespace() || one.is_control());
            let refused = || {
                let why = format!("'{}' is no name for the gate", text.escape_debug());
                io::Error::new(io::ErrorKind::InvalidInput, why)
            };
            if fits { Ok(text.to_owned()) } else { Err(refused()) }
        };
        let mut text = "bursar-gate 1\n".to_owned();
        if let Some(site) = &self.site {
            let _ = writeln!(text, "site {}", word(site)?);
        }
        for uid in &self.uids {
            let _ = writeln!(text, "uid {uid}");
        }
        for one in &self.partitions {
            let (name, resumable) = (word(&one.name)?, u8::from(one.resumable));
            let (horizon, min) = (one.horizon_s, one.min_runtime_s);
            let _ = writeln!(
                text,
                "partition {name} horizon={horizon} min-runtime={min} resumable={resumable}"
            );
        }
        for budget in self.budgets.iter().flatten() {
            let _ = writeln!(text, "budget {}", word(budget)?);
        }
        for account in self.accounts.iter().flatten() {
            let _ = writeln!(text, "account {}", word(account)?);
        }
        text.push_str("end\n");
        Ok(text)
    }

    /// The site that the table in this folder is of, if there is a table that says so.
    pub fn site_in(folder: &Path) -> Option<String> {
        let text = fs::read_to_string(folder.join(GATE_FILE)).ok()?;
        text.lines().find_map(|line| line.strip_prefix("site ")).map(str::to_owned)
    }

    /// Takes the table away: nothing is governed any more, and Slurm need not be told.
    ///
    /// # Errors
    ///
    /// What the system says; that there is none is no error.
    pub fn remove(folder: &Path) -> io::Result<()> {
        match fs::remove_file(folder.join(GATE_FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes the table into this folder, if it is not there as it should be; whether it was written. It is whole
    /// whenever it is read, and Slurm need not be told.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn write(&self, folder: &Path) -> io::Result<bool> {
        let (path, beside) = (folder.join(GATE_FILE), folder.join(format!("{GATE_FILE}.new")));
        let text = self.text()?;
        if fs::read_to_string(&path).is_ok_and(|found| found == text) {
            return Ok(false);
        }
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o644).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, &path)?;
        fs::File::open(folder)?.sync_all()?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_lines_of_words() {
        let mut gate = Gate {
            site: Some("5f0a".to_owned()),
            uids: vec![20005],
            partitions: vec![GatePartition {
                name: "main".to_owned(),
                horizon_s: 604_800,
                min_runtime_s: 0,
                resumable: false,
            }],
            budgets: Some(vec!["lab/vision".to_owned()]),
            accounts: None,
        };
        let text = "bursar-gate 1\nsite 5f0a\nuid 20005\npartition main horizon=604800 min-runtime=0 resumable=0\n\
                    budget lab/vision\nend\n";
        assert_eq!(gate.text().unwrap(), text);
        let folder = tempfile::tempdir().unwrap();
        assert!(gate.write(folder.path()).unwrap());
        assert!(!gate.write(folder.path()).unwrap());
        assert_eq!(fs::read_to_string(folder.path().join(GATE_FILE)).unwrap(), text);
        assert_eq!(Gate::site_in(folder.path()), Some("5f0a".to_owned()));
        gate.budgets = Some(vec!["a\nuid 1".to_owned()]);
        assert!(gate.write(folder.path()).is_err());
    }
}
