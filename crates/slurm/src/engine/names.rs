//! Names for jobs that have no tag: those that are only watched, and those from before us. The same name is given when
//! watching becomes governing, so that a job stays what it is.

use crate::read::Job;
use crate::records::io_error;
use bursar_engine::Error;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The file of names, in the engine's folder.
const FILE: &str = "names.json";

/// What is remembered of a job, or of an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Named {
    /// When it was first submitted, in seconds since 1970.
    submitted_s: u64,
    tag: String,
    /// Whether it was told of as work that waits or runs. What is known since before is.
    #[serde(default = "yes")]
    told: bool,
}

const fn yes() -> bool {
    true
}

/// Tags by the numbers of jobs, as long as these are in the queue. A number is given again by a controller that was
/// killed, and the moment of submission changes when a job is put back: a job that was never put back and has another
/// moment is another job.
#[derive(Debug)]
pub(super) struct Names {
    path: PathBuf,
    known: BTreeMap<u64, Named>,
    /// Whether there is more or less than was written down.
    changed: bool,
}

impl Names {
    pub(super) fn open(folder: &Path) -> Self {
        let path = folder.join(FILE);
        // Names that are lost are made up again, the same for all that was never put back.
        let read = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Self { path, known: read.unwrap_or_default(), changed: false }
    }

    /// The tag of a job: the one that it is known by, or a new one.
    pub(super) fn tag(&mut self, job: &Job) -> String {
        let number = number_of(job).0;
        let submitted_s = job.submitted.unwrap_or_default();
        let is_it = |named: &&Named| {
            job.restarts > 0 || job.task.is_some() || named.submitted_s == submitted_s
        };
        if let Some(named) = self.known.get(&number).filter(is_it) {
            return named.tag.clone();
        }
        let tag = Self::made_up(number, submitted_s);
        self.known.insert(number, Named { submitted_s, tag: tag.clone(), told: false });
        self.changed = true;
        tag
    }

    /// Whether a job, or its array, was told of; jobs that have other names than ours always count as told of.
    pub(super) fn is_told(&self, job: &Job) -> bool {
        self.known.get(&number_of(job).0).is_none_or(|named| named.told)
    }

    /// A job is told of.
    pub(super) fn tell(&mut self, job: &Job) {
        if let Some(named) = self.known.get_mut(&number_of(job).0).filter(|named| !named.told) {
            (named.told, self.changed) = (true, true);
        }
    }

    /// The tag of a job that was never put back.
    pub(super) fn made_up(number: u64, submitted_s: u64) -> String {
        format!("{submitted_s}.{number}")
    }

    /// Forgets all jobs but these, and writes the rest down if that is new.
    pub(super) fn keep(&mut self, jobs: &[Job]) -> Result<(), Error> {
        let there: BTreeSet<u64> = jobs.iter().map(|job| number_of(job).0).collect();
        let before = self.known.len();
        self.known.retain(|number, _| there.contains(number));
        if !self.changed && self.known.len() == before {
            return Ok(());
        }
        let text = serde_json::to_vec(&self.known).unwrap_or_default();
        let new = self.path.with_extension("new");
        fs::write(&new, text).map_err(|error| io_error(&new, &error))?;
        fs::rename(&new, &self.path).map_err(|error| io_error(&self.path, &error))?;
        self.changed = false;
        Ok(())
    }
}

/// The numbers in a job's id: of the job or its array, and of the task.
pub(super) fn number_of(job: &Job) -> (u64, u32) {
    job.task.unwrap_or_else(|| (job.id.parse().unwrap_or(u64::MAX), 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{Mark, read_queue};

    fn job(id: u64, submitted: u64, restarts: u32) -> Job {
        let template = "7@@7@@7@@N/A@@PENDING@@None@@0@@1@@u@@a@@main@@gres/gpu=1@@N/A@@1@@1:00@@90@@N/A@@100@@200@@@@0@@\
                        (null)@@n@@(null)@@(null)@@5@@1@@/l@@\n";
        let jobs = read_queue(template.as_bytes(), &Mark::of("@@")).expect("a queue");
        Job { id: id.to_string(), submitted: Some(submitted), restarts, ..jobs[0].clone() }
    }

    #[test]
    fn a_job_keeps_its_name_and_no_other_gets_it() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let mut names = Names::open(folder.path());
        assert_eq!(names.tag(&job(7, 100, 0)), "100.7");
        names.keep(&[job(7, 100, 0)]).expect("written");
        // Put back: its moment is another, it is not.
        let mut names = Names::open(folder.path());
        assert_eq!(names.tag(&job(7, 500, 1)), "100.7");
        // The controller was killed and gave the number to somebody else.
        assert_eq!(names.tag(&job(7, 600, 0)), "600.7");
        // As many as before, and others: they are written down, too.
        assert_eq!(names.tag(&job(8, 700, 0)), "700.8");
        names.keep(&[job(8, 700, 0)]).expect("written");
        let mut names = Names::open(folder.path());
        assert_eq!((names.known.len(), &*names.tag(&job(8, 900, 1))), (1, "700.8"));
        names.keep(&[]).expect("written");
        assert!(Names::open(folder.path()).known.is_empty());
    }
}
