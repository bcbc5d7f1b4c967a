//! What work wrote is kept for a while after its end, and then removed, a little at a time.

use std::fs::{self, ReadDir};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often a part is looked at, and how many attempts that is.
const EVERY: Duration = Duration::from_secs(5);
const PART: usize = 200;

/// How long to rest when all was looked at.
const REST: Duration = Duration::from_secs(600);

/// How far it is.
#[derive(Debug, Default)]
pub(super) struct Retention {
    looking: Option<ReadDir>,
    due: Option<Instant>,
}

impl Retention {
    /// Looks at a part of what is in `ended`, if it is time, and removes what was put there longer ago than `age`.
    pub(super) fn step(&mut self, ended: &Path, age: Duration) -> io::Result<()> {
        if self.due.is_some_and(|due| Instant::now() < due) {
            return Ok(());
        }
        self.due = Some(Instant::now() + EVERY);
        let looking = match self.looking.take() {
            Some(looking) => looking,
            None => fs::read_dir(ended)?,
        };
        self.looking = remove_old(looking, age)?;
        if self.looking.is_none() {
            self.due = Some(Instant::now() + REST);
        }
        Ok(())
    }
}

/// Removes what is old among the next ones; gives the rest, if there is any.
fn remove_old(mut looking: ReadDir, age: Duration) -> io::Result<Option<ReadDir>> {
    for _ in 0..PART {
        let Some(entry) = looking.next() else { return Ok(None) };
        let entry = entry?;
        // A folder is written to last when it is put there. A clock that was set back makes it young again.
        let old = entry.metadata()?.modified()?.elapsed().is_ok_and(|elapsed| elapsed > age);
        if old
            && let Err(error) = fs::remove_dir_all(entry.path())
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
    }
    Ok(Some(looking))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_old_goes_a_part_at_a_time() {
        let ended = tempfile::tempdir().unwrap();
        let old = std::time::SystemTime::now() - Duration::from_secs(40 * 86_400);
        for number in 0..PART + 50 {
            let folder = ended.path().join(format!("{number}.1"));
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("log"), "said").unwrap();
            if number % 2 == 0 {
                fs::File::open(&folder).unwrap().set_modified(old).unwrap();
            }
        }
        let left = || fs::read_dir(ended.path()).unwrap().count();
        let month = Duration::from_secs(30 * 86_400);
        let mut retention = Retention::default();
        retention.step(ended.path(), month).unwrap();
        let after_one = left();
        assert!(after_one < PART + 50 && after_one > (PART + 50) / 2, "{after_one}");
        retention.step(ended.path(), month).unwrap();
        assert_eq!(left(), after_one, "not at once again");
        retention.due = None;
        retention.step(ended.path(), month).unwrap();
        assert_eq!(left(), (PART + 50) / 2);
        assert!(!ended.path().join("0.1").exists() && ended.path().join("1.1").exists());
    }
}
