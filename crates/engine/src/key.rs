//! The name of an attempt.

use crate::error::Error;
use std::fmt;

/// Longest workload id. With the number of the attempt it must fit a file name, which has 255 bytes.
const WORKLOAD_BYTES_MAX: usize = 200;

/// An attempt of a workload: what makes a start happen once. Ordered by workload, then attempt.
///
/// It is shown, and names its folder, as `workload.attempt`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptKey {
    workload: String,
    attempt: u32,
}

impl AttemptKey {
    /// An attempt of the workload with this id.
    ///
    /// # Errors
    ///
    /// `Invalid` if the id is not safe as part of a file name: 1 to 200 of `A-Z a-z 0-9 . _ -`, the first
    /// of them a letter, a digit or `_`.
    pub fn new(workload: impl Into<String>, attempt: u32) -> Result<Self, Error> {
        let workload = workload.into();
        let refused = |why: &str| {
            let shown: String = workload.chars().take(40).flat_map(char::escape_default).collect();
            Err(Error::invalid(format!("workload id '{shown}' {why}")))
        };
        if workload.is_empty() {
            return refused("is empty");
        }
        if workload.len() > WORKLOAD_BYTES_MAX {
            return refused(&format!("is longer than {WORKLOAD_BYTES_MAX} bytes"));
        }
        if workload.starts_with(['.', '-']) {
            return refused("starts with '.' or '-'");
        }
        let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !workload.bytes().all(safe) {
            return refused("has characters other than letters, digits, '.', '_' and '-'");
        }
        Ok(Self { workload, attempt })
    }

    /// The id of the workload.
    pub fn workload(&self) -> &str {
        &self.workload
    }

    /// The number of the attempt.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The key that is shown as `name`, if any is.
    #[cfg(target_os = "linux")]
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let (workload, attempt) = name.rsplit_once('.')?;
        let key = Self::new(workload, attempt.parse().ok()?).ok()?;
        (key.to_string() == name).then_some(key)
    }
}

impl fmt::Display for AttemptKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.workload, self.attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_that_are_safe_in_file_names() {
        for good in ["a", "llm-pretrain-run-42", "x.y_z", "0190-af", "_x", &"w".repeat(200)] {
            assert!(AttemptKey::new(good, 1).is_ok(), "{good}");
        }
        let long = "w".repeat(201);
        for bad in [
            "", ".", "..", "../x", "a/b", "/etc", ".hidden", "-rf", "a b", "a\n", "ä", "a\0", &long,
        ] {
            assert!(AttemptKey::new(bad, 1).is_err(), "{bad:?}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn names_are_read_back_and_only_as_they_are_written() {
        let key = AttemptKey::new("a.b", 12).unwrap();
        assert_eq!(key.to_string(), "a.b.12");
        assert_eq!(AttemptKey::from_name("a.b.12"), Some(key));
        for other in ["a", "a.", "a.01", "a.+1", "a.-1", ".1", "a.4294967296", ".new-a.1"] {
            assert_eq!(AttemptKey::from_name(other), None, "{other}");
        }
    }
}
