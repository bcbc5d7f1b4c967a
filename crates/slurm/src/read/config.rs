//! The configuration in force: `scontrol show config`, one line for each key.

use super::table::{Unreadable, present};
use crate::client::{Call, Program};
use std::collections::BTreeMap;

/// The configuration that slurmctld has in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config(BTreeMap<String, String>);

impl Config {
    /// A value; none where Slurm shows that there is none.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str).and_then(present)
    }

    /// The parts of a value between its commas.
    pub fn list(&self, key: &str) -> Vec<&str> {
        let parts = self.get(key).unwrap_or_default().split(',');
        parts.map(str::trim).filter(|part| !part.is_empty()).collect()
    }

    /// The number that a value begins with: of `300 sec` 300, of `root(0)` none.
    pub fn number(&self, key: &str) -> Option<u64> {
        let value = self.get(key)?;
        value.split_whitespace().next()?.parse().ok()
    }
}

/// The call that [`read_config`] reads the answer of.
pub fn config_call() -> Call {
    Call::new(Program::Scontrol, ["show", "config"])
}

/// Reads the answer to [`config_call`].
///
/// # Errors
///
/// If it is none: it names no version.
pub fn read_config(answer: &[u8]) -> Result<Config, Unreadable> {
    let text = String::from_utf8_lossy(answer);
    let mut found = BTreeMap::new();
    for line in text.lines() {
        if let Some((key, value)) = line.split_once('=') {
            found.insert(key.trim().to_owned(), value.trim().to_owned());
        }
    }
    if !found.contains_key("SLURM_VERSION") {
        return Err(Unreadable("it has no line 'SLURM_VERSION = …'".to_owned()));
    }
    Ok(Config(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_lists_and_numbers() {
        let text = "Configuration data as of now\nAuthInfo  = socket=/run/s,cred_expire=30\n\
                    SLURM_VERSION = 22.05.8\nMinJobAge = 300 sec\nPreemptMode = (null)\n\n\
                    Slurmctld(primary) at c is UP\n";
        let config = read_config(text.as_bytes()).unwrap();
        assert_eq!(config.list("AuthInfo"), ["socket=/run/s", "cred_expire=30"]);
        assert_eq!((config.number("MinJobAge"), config.get("PreemptMode")), (Some(300), None));
        assert!(read_config(b"slurm_load_ctl_conf error").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            let _ = read_config(format!("SLURM_VERSION = {text}\n{text}").as_bytes()).map(|config| {
                config.number("SLURM_VERSION")
            });
        }
    }
}
