//! Folders that are one site's: a mark in each says whose. What another site, or somebody else, has in a folder is
//! neither used nor changed, and never given to the users of this one.

use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The file that says whose a folder is.
const MARK: &str = "bursar-site.json";

/// What sites of before there were marks had in their folders.
const KNOWN: [&str; 9] = [
    "checkpoints",
    "socket",
    "attempts",
    "ended",
    "changes",
    "lock",
    "cordoned",
    "bursar-site.json.new",
    MARK,
];

/// Folders in which there is something of workloads.
const HOLD_WORK: [&str; 3] = ["checkpoints", "attempts", "ended"];

#[derive(Serialize, Deserialize)]
struct Mark {
    site: String,
}

/// A site, for its folders.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    /// What tells it from all others.
    pub(crate) id: String,
    /// Whether it is just being created: nothing can be its own yet.
    pub(crate) is_new: bool,
}

/// Who may have written what is in a folder without a mark.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Within {
    /// Anybody: it was named by somebody, who may have been mistaken.
    Anywhere,
    /// The site alone: it is in its data folder.
    Data,
}

impl Owner {
    /// Whether a folder may be used: it is this site's, or nobody's. Changes nothing.
    ///
    /// # Errors
    /// One sentence that says whose it is, and what to do.
    pub(crate) fn check(&self, folder: &Path, within: Within) -> Result<(), String> {
        let name = folder.display();
        let cannot = |error: io::Error| format!("{name}: {error}");
        match marked(folder)? {
            Some(id) if id == self.id => {}
            Some(_) => {
                return Err(format!(
                    "{name} belongs to another site: give this one a folder of its own, or put the journal back that belongs to it"
                ));
            }
            None if within == Within::Data => {}
            None => {
                let foreign = |name: &OsString| {
                    let text = name.to_string_lossy();
                    !KNOWN.contains(&&*text) && !text.starts_with("cordoned.")
                };
                if let Some(other) = names(folder).map_err(cannot)?.into_iter().find(foreign) {
                    return Err(format!(
                        "{name} has something in it that is not Bursar's ('{}'), and is not touched: give a new or an empty folder",
                        other.to_string_lossy()
                    ));
                }
            }
        }
        for part in HOLD_WORK.into_iter().filter(|_| self.is_new) {
            if !self::names(&folder.join(part)).map_err(cannot)?.is_empty() {
                return Err(format!(
                    "{name}/{part} has something of another site in it: move it away, or put the journal back that belongs to it"
                ));
            }
        }
        Ok(())
    }

    /// Marks a folder, which is there, as this site's.
    ///
    /// # Errors
    /// If that cannot be written.
    pub(crate) fn mark(&self, folder: &Path) -> io::Result<()> {
        let path = folder.join(MARK);
        if path.try_exists()? {
            return Ok(());
        }
        let beside = folder.join(format!("{MARK}.new"));
        let mut file = fs::File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside)?;
        file.write_all(serde_json::to_string(&Mark { site: self.id.clone() })?.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, &path)
    }
}

/// Which site a folder is of, if it is marked.
///
/// # Errors
/// One sentence, if that cannot be read.
pub(crate) fn marked(folder: &Path) -> Result<Option<String>, String> {
    let path = folder.join(MARK);
    match fs::read_to_string(&path) {
        Ok(text) => match serde_json::from_str::<Mark>(&text) {
            Ok(mark) => Ok(Some(mark.site)),
            Err(_) => Err(format!("{} cannot be read: put it back as it was", path.display())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// What is in a folder; nothing if it is not there.
fn names(folder: &Path) -> io::Result<Vec<OsString>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.file_name())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The highest number of a workload of which anything is in these folders; 0 if there is none. A journal that was put
/// back to an earlier state must not give these numbers to others.
///
/// # Errors
/// If they cannot be looked into.
pub(crate) fn highest_workload(work: &Path, engine: &Path) -> io::Result<u64> {
    let folders = [work.join("checkpoints"), engine.join("attempts"), engine.join("ended")];
    let mut highest = 0;
    for folder in folders {
        for name in names(&folder)? {
            // Checkpoints by number, attempts as `number.attempt`.
            let number = name.to_str().and_then(|name| name.split('.').next()?.parse().ok());
            highest = highest.max(number.unwrap_or(0));
        }
    }
    Ok(highest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(id: &str, is_new: bool) -> Owner {
        Owner { id: id.into(), is_new }
    }

    #[test]
    fn a_folder_is_one_sites() {
        let dir = tempfile::tempdir().expect("a folder");
        let work = dir.path().join("work");
        owner("a", true).check(&work, Within::Anywhere).expect("it is not there yet");
        fs::create_dir_all(work.join("checkpoints")).expect("made");
        owner("a", true).check(&work, Within::Anywhere).expect("nothing of anybody is in it");
        owner("a", true).mark(&work).expect("marked");
        fs::create_dir(work.join("checkpoints/17")).expect("made");
        owner("a", false).check(&work, Within::Anywhere).expect("its own");
        for is_new in [true, false] {
            let refused = owner("b", is_new).check(&work, Within::Anywhere).expect_err("another's");
            assert!(refused.contains("belongs to another site"), "{refused}");
        }
        assert_eq!(highest_workload(&work, &dir.path().join("none")).expect("read"), 17);
    }

    #[test]
    fn what_is_somebody_elses_is_left_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(dir.path().join("socket"), "of something else").expect("written");
        fs::write(dir.path().join("thesis.tex"), "years of work").expect("written");
        let refused = owner("a", false).check(dir.path(), Within::Anywhere).expect_err("foreign");
        assert!(refused.contains("'thesis.tex'") && !refused.contains('\n'), "{refused}");
        owner("a", false).check(dir.path(), Within::Data).expect("in its own folder");
    }

    #[test]
    fn folders_of_before_are_taken_on_by_their_site_only() {
        let dir = tempfile::tempdir().expect("a folder");
        let engine = dir.path().join("engine");
        fs::create_dir_all(engine.join("ended/12.3")).expect("made");
        owner("a", false).check(&engine, Within::Data).expect("it was there before marks were");
        let refused = owner("a", true).check(&engine, Within::Data).expect_err("it is new");
        assert!(refused.contains("ended has something of another site"), "{refused}");
        assert_eq!(highest_workload(dir.path(), &engine).expect("read"), 12);
        // Nor is it a new site's whose journal was removed.
        owner("a", false).mark(&engine).expect("marked");
        assert_eq!(marked(&engine), Ok(Some("a".into())));
        owner("a", true).check(&engine, Within::Data).expect_err("it is not new");
    }
}
