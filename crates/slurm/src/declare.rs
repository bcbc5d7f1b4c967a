//! What is declared for a job, and what is noted with it.
//!
//! Users declare by `--comment`, by `#BURSAR` lines in their script or by options of sbatch; the gate
//! (`plugins/job_submit.lua`) reads that, refuses what it does not know, and writes a [`Note`] into the job's
//! `AdminComment`, which only administrators can change. This module reads notes, and writes those that the engine
//! changes.

use bursar_engine::AttemptKey;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// What begins every note, and the version of its form.
const MARK: &str = "bursar:1";

/// Longest tag and other values, in bytes; keys of attempts may be longer.
const VALUE_BYTES_MAX: usize = 256;

/// What an `AdminComment` says:
/// `bursar:1;tag=1764492388.5f0a;min-runtime=28800;resumable=1;budget=lab/vision;claim=17.2`.
///
/// Shown and read as that text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The name that was made up for the job: seconds since 1970, a point, and a random number.
    pub tag: String,
    /// How long it shall run undisturbed once it runs, in seconds.
    pub min_runtime_s: u64,
    /// Whether it can go on later from what it saved.
    pub resumable: bool,
    /// The budget that it names, if it names one.
    pub budget: Option<String>,
    /// How many tasks of its array may run at once.
    pub throttle: Option<u32>,
    /// The order of ours that it was submitted for, if we submitted it.
    pub order: Option<String>,
    /// The attempt that it is, or was last.
    pub claim: Option<AttemptKey>,
    /// The site whose attempt that is: others number theirs alike.
    pub site: Option<String>,
}

/// Why a text is no note of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no note of Bursar's: {0}")]
pub struct NoNote(&'static str);

impl Note {
    /// A note for a job of which nothing is known but its tag.
    pub fn new(tag: impl Into<String>) -> Self {
        Self {
            tag: tag.into(),
            min_runtime_s: 0,
            resumable: false,
            budget: None,
            throttle: None,
            order: None,
            claim: None,
            site: None,
        }
    }

    /// The attempt of this site that it is, or was last.
    pub(crate) fn claim_of(&self, site: Option<&str>) -> Option<&AttemptKey> {
        self.claim.as_ref().filter(|_| self.site.as_deref() == site)
    }

    /// What was declared, as [`Arrival::declared`](bursar_engine::Arrival::declared) has it.
    pub fn declared(&self) -> BTreeMap<String, String> {
        let resumable = if self.resumable { "yes" } else { "no" };
        let mut declared = BTreeMap::from([
            ("min-runtime".to_owned(), format!("{}s", self.min_runtime_s)),
            ("resumable".to_owned(), resumable.to_owned()),
        ]);
        if let Some(budget) = &self.budget {
            declared.insert("budget".to_owned(), budget.clone());
        }
        declared
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resumable = u8::from(self.resumable);
        write!(
            f,
            "{MARK};tag={};min-runtime={};resumable={resumable}",
            self.tag, self.min_runtime_s
        )?;
        if let Some(budget) = &self.budget {
            write!(f, ";budget={budget}")?;
        }
        if let Some(throttle) = self.throttle {
            write!(f, ";throttle={throttle}")?;
        }
        if let Some(order) = &self.order {
            write!(f, ";order={order}")?;
        }
        if let Some(claim) = &self.claim {
            write!(f, ";claim={claim}")?;
        }
        if let Some(site) = &self.site {
            write!(f, ";site={site}")?;
        }
        Ok(())
    }
}

impl FromStr for Note {
    type Err = NoNote;

    fn from_str(text: &str) -> Result<Self, NoNote> {
        let mut parts = text.trim().split(';');
        if parts.next() != Some(MARK) {
            return Err(NoNote("it does not begin like one"));
        }
        let mut note = Self::new("");
        let mut seen = Vec::new();
        for part in parts {
            let (key, value) = part.split_once('=').ok_or(NoNote("a part has no value"))?;
            if seen.contains(&key) {
                return Err(NoNote("a key is there twice"));
            }
            seen.push(key);
            let number = || value.parse().map_err(|_| NoNote("a number is none"));
            match key {
                "tag" => note.tag = plain(value)?,
                "min-runtime" => note.min_runtime_s = number()?,
                "resumable" => {
                    note.resumable = match value {
                        "0" => false,
                        "1" => true,
                        _ => return Err(NoNote("resumable is 0 or 1")),
                    }
                }
                "budget" => note.budget = Some(plain(value)?),
                "throttle" => {
                    note.throttle = Some(value.parse().map_err(|_| NoNote("a number is none"))?);
                }
                "order" => note.order = Some(plain(value)?),
                "claim" => {
                    note.claim = Some(key_of(value).ok_or(NoNote("the claim is no attempt"))?)
                }
                "site" => note.site = Some(plain(value)?),
                _ => return Err(NoNote("a key is not known")),
            }
        }
        if note.tag.is_empty() {
            return Err(NoNote("it has no tag"));
        }
        Ok(note)
    }
}

/// The key that is shown as `name`, if one is.
pub(crate) fn key_of(name: &str) -> Option<AttemptKey> {
    let (workload, attempt) = name.rsplit_once('.')?;
    let key = AttemptKey::new(workload, attempt.parse().ok()?).ok()?;
    (key.to_string() == name).then_some(key)
}

fn plain(value: &str) -> Result<String, NoNote> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._/-".contains(&byte);
    if value.is_empty() || value.len() > VALUE_BYTES_MAX || !value.bytes().all(fits) {
        return Err(NoNote("a value has characters that none of ours has"));
    }
    Ok(value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn notes_are_read_as_they_are_written() {
        let full = "bursar:1;tag=1764492388.5f0a;min-runtime=28800;resumable=1;budget=lab/vision;throttle=2;order=ab;claim=a.b.17;site=5f0a";
        let note: Note = full.parse().unwrap();
        assert_eq!(note.to_string(), full);
        assert_eq!(note.claim, Some(AttemptKey::new("a.b", 17).unwrap()));
        assert_eq!(note.declared()["min-runtime"], "28800s");
        assert_eq!(note.declared()["budget"], "lab/vision");
        let least = Note::new("1.a");
        assert_eq!(least.to_string().parse::<Note>().unwrap(), least);
    }

    #[test]
    fn what_is_not_of_our_making_is_no_note() {
        for bad in [
            "",
            "hello",
            "bursar:1",
            "bursar:2;tag=1.a",
            "bursar:1;tag=",
            "bursar:1;tag=a b",
            "bursar:1;tag=a;x=1",
            "bursar:1;tag=a;tag=b",
            "bursar:1;tag=a;resumable=yes",
            "bursar:1;tag=a;min-runtime=1h",
            "bursar:1;tag=a;claim=w",
            "bursar:1;tag=a;claim=w.01",
            "bursar:1;tag=a;",
            "bursar:1;tag=a;budget=\n",
        ] {
            assert!(bad.parse::<Note>().is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*", odd in "bursar:1(;(tag|claim|site|budget|x)=[a-z0-9.]{0,5}){0,4}") {
            for text in [&text, &odd] {
                if let Ok(note) = text.parse::<Note>() {
                    prop_assert_eq!(note.to_string().parse::<Note>(), Ok(note));
                }
            }
        }
    }
}
