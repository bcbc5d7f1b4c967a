//! Where work tells what it saved and how far it is: a socket of this machine, and a secret that is good for
//! one attempt only.
//!
//! The secret is made from the attempt's number with a key that only the daemon can read. So nothing has to be
//! kept about it, it survives a restart, and whoever gets hold of it can say nothing but "this attempt saved".
//! Why it is not asked who is at the other end of the socket (`SO_PEERCRED`): where the daemon does not run as
//! root, all work has the same user, and one workload could speak for another.

#[cfg(target_os = "linux")]
mod socket;

use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

#[cfg(target_os = "linux")]
pub use socket::Progress;
#[cfg(target_os = "linux")]
pub(crate) use socket::{listen, router};

/// The variable that gives an attempt its secret.
pub const TOKEN_VARIABLE: &str = "BURSAR_REPORT_TOKEN";

const KEY_FILE: &str = "report.key";
const KEY_BYTES: usize = 32;

/// What the secrets of attempts are made with.
#[derive(Clone)]
pub struct ReportKey([u8; KEY_BYTES]);

impl std::fmt::Debug for ReportKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReportKey")
    }
}

impl ReportKey {
    /// The key of a data folder; made, for its owner alone, if there is none.
    ///
    /// # Errors
    /// If it cannot be read or made.
    pub fn open(data: &Path) -> io::Result<Self> {
        let path = data.join(KEY_FILE);
        match fs::read(&path) {
            Ok(bytes) => {
                let wrong = || {
                    io::Error::other(format!(
                        "{} is no key: remove it, another is made",
                        path.display()
                    ))
                };
                return bytes.try_into().map(Self).map_err(|_| wrong());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut key = [0; KEY_BYTES];
        getrandom::fill(&mut key).map_err(|error| io::Error::other(error.to_string()))?;
        let beside = data.join("report.key.new");
        let mut file =
            File::options().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(&key)?;
        file.sync_all()?;
        fs::rename(&beside, &path)?;
        Ok(Self(key))
    }

    /// The secret of an attempt.
    pub fn token(&self, workload: &str, attempt: u32) -> String {
        let attempt = format!("{workload}.{attempt}");
        let seal = self.seal(&attempt);
        format!("{attempt}.{seal}")
    }

    /// Hashed twice, so that nobody can make the seal of a longer text from the one of a shorter.
    fn seal(&self, attempt: &str) -> String {
        let inner = Sha256::new().chain_update(self.0).chain_update(attempt).finalize();
        let outer = Sha256::new().chain_update(self.0).chain_update(inner).finalize();
        outer.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whose secret this is: workload and attempt.
    #[cfg(any(test, target_os = "linux"))]
    fn read(&self, token: &str) -> Option<(u64, u32)> {
        let (attempt, seal) = token.rsplit_once('.')?;
        let good = self.seal(attempt);
        let differ = good.bytes().zip(seal.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
        if differ != 0 || good.len() != seal.len() {
            return None;
        }
        let (workload, attempt) = attempt.split_once('.')?;
        Some((workload.parse().ok()?, attempt.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_secret_is_good_for_its_attempt_only() {
        let dir = tempfile::tempdir().expect("a folder");
        let key = ReportKey::open(dir.path()).expect("a key");
        let mode = fs::metadata(dir.path().join(KEY_FILE)).expect("it is there").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        let token = key.token("17", 2);
        assert_eq!(key.read(&token), Some((17, 2)));
        // After a restart, too.
        let again = ReportKey::open(dir.path()).expect("the key");
        assert_eq!(again.token("17", 2), token);
        let seal = token.rsplit_once('.').expect("a seal").1;
        for forged in [
            format!("17.3.{seal}"),
            format!("18.2.{seal}"),
            format!("17.2.{}", &seal[1..]),
            format!("17.2.{}", "0".repeat(64)),
            "17.2.".to_owned(),
            seal.to_owned(),
            String::new(),
        ] {
            assert_eq!(key.read(&forged), None, "{forged}");
        }
        let elsewhere = tempfile::tempdir().expect("a folder");
        let other = ReportKey::open(elsewhere.path()).expect("a key");
        assert_eq!(other.read(&token), None);
    }

    #[test]
    fn a_broken_key_is_said() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(dir.path().join(KEY_FILE), "short").expect("written");
        let error = ReportKey::open(dir.path()).expect_err("it is no key").to_string();
        assert!(error.contains("report.key is no key: remove it"), "{error}");
    }
}
