//! The queue: `squeue -O`, one row for each job and each task of an array.

use super::hostlist::expand;
use super::table::{Mark, Unreadable, present};
use super::time::{limit_ms, moment};
use super::tres::{Gpus, gpus_of_gres, gpus_of_tres};
use crate::client::{Call, Program};
use crate::declare::Note;
use crate::outcome::Ending;
use std::path::PathBuf;

/// The fields that are asked for, by the names that `-O` has for them since 22.05.
pub const QUEUE_FIELDS: [&str; 28] = [
    "JobID",
    "JobArrayID",
    "ArrayJobID",
    "ArrayTaskID",
    "State",
    "Reason",
    "RestartCnt",
    "PriorityLong",
    "UserName",
    "Account",
    "Partition",
    "tres",
    "tres-per-node",
    "NumNodes",
    "TimeLimit",
    "SubmitTime",
    "EligibleTime",
    "StartTime",
    "EndTime",
    "NodeList",
    "exit_code",
    "Dependency",
    "Name",
    "Comment",
    "admin_comment",
    "UserID",
    "BatchFlag",
    "STDOUT",
];

/// Which jobs are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueWhat {
    /// Those of these partitions that have not ended.
    Live(Vec<String>),
    /// These, as far as the controller remembers them.
    Jobs(Vec<String>),
}

/// A job, or a task of an array, as the queue shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// What commands call it: `1234`, or `1234_7` for a task of an array.
    pub id: String,
    /// The array that it is a task of, and which.
    pub task: Option<(u64, u32)>,
    /// How far it is.
    pub state: JobState,
    /// Why it waits, in Slurm's words.
    pub reason: String,
    /// How often it was put back into the queue.
    pub restarts: u32,
    /// Whether its priority is 0: it is on hold.
    pub held: bool,
    /// Whose it is.
    pub user: String,
    /// What Slurm would charge.
    pub account: String,
    /// Where it was given to.
    pub partition: String,
    /// Its GPUs.
    pub gpus: Gpus,
    /// Hosts and GPUs on each, where it asks for that.
    pub shape: Option<(u32, u32)>,
    /// On how many hosts it runs; while it waits, on how many at least.
    pub hosts: u32,
    /// After how long Slurm ends it, in milliseconds.
    pub limit_ms: Option<u64>,
    /// When it was submitted, or put back into the queue; in seconds since 1970.
    pub submitted: Option<u64>,
    /// From when on Slurm would start it, where that is said, in seconds since 1970.
    pub eligible: Option<u64>,
    /// Since when it runs, or is expected to, in seconds since 1970.
    pub started: Option<u64>,
    /// When it ended, or will at the latest, in seconds since 1970.
    pub ended: Option<u64>,
    /// Where it runs or ran.
    pub nodes: Vec<String>,
    /// How it ended, as the system says it: the exit code times 256, or a signal.
    pub wait_status: u32,
    /// What it still depends on.
    pub dependency: Option<String>,
    /// What its submitter called it.
    pub name: String,
    /// Its comment.
    pub comment: Option<String>,
    /// What was declared, and what we wrote. None where that is not of our making.
    pub note: Option<Note>,
    /// The number of the user whose it is.
    pub uid: Option<u32>,
    /// Whether it has a batch script; an interactive one has not.
    pub has_script: bool,
    /// Where it writes its standard output.
    pub log: Option<PathBuf>,
}

/// How far a job is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It waits.
    Pending,
    /// It has its nodes, which are being prepared.
    Configuring,
    /// It runs, or is suspended.
    Running,
    /// It has ended or was put back, and something of it is still there.
    Completing,
    /// It has ended.
    Ended(Ending),
    /// Something that this version does not know.
    Unknown(String),
}

impl JobState {
    fn of(text: &str) -> Self {
        match text {
            "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "SPECIAL_EXIT"
            | "RESV_DEL_HOLD" => Self::Pending,
            "CONFIGURING" | "POWER_UP_NODE" => Self::Configuring,
            "RUNNING" | "SUSPENDED" | "STOPPED" | "RESIZING" | "SIGNALING" => Self::Running,
            "COMPLETING" | "STAGE_OUT" => Self::Completing,
            other => Ending::of(other).map_or_else(|| Self::Unknown(other.to_owned()), Self::Ended),
        }
    }
}

/// The call that [`read_queue`] reads the answer of.
pub fn queue_call(what: &QueueWhat, mark: &Mark) -> Call {
    let mut args = vec!["-h".to_owned(), "-r".to_owned(), "-a".to_owned()];
    match what {
        QueueWhat::Live(partitions) => {
            let live = "PD,CF,R,S,ST,RS,SI,CG,SO,RQ,RH,RF,SE,RD";
            args.extend(["-t".to_owned(), live.to_owned(), "-p".to_owned(), partitions.join(",")]);
        }
        QueueWhat::Jobs(jobs) => {
            args.extend(["-t".to_owned(), "all".to_owned(), "-j".to_owned(), jobs.join(",")]);
        }
    }
    args.extend(["-O".to_owned(), mark.long_format(&QUEUE_FIELDS)]);
    Call::new(Program::Squeue, args)
}

/// Reads the answer to [`queue_call`].
///
/// # Errors
///
/// If it is none.
pub fn read_queue(answer: &[u8], mark: &Mark) -> Result<Vec<Job>, Unreadable> {
    mark.rows(answer, QUEUE_FIELDS.len())?.iter().map(|row| job(row)).collect()
}

fn job(row: &[String]) -> Result<Job, Unreadable> {
    let [
        raw_id,
        _shown,
        array,
        task,
        state,
        reason,
        restarts,
        held,
        user,
        account,
        partition,
        tres,
        per_node,
        hosts,
        limit,
        submitted,
        eligible,
        started,
        ended,
        nodes,
        status,
        dependency,
        name,
        comment,
        note,
        uid,
        batch,
        log,
    ] = row
    else {
        return Err(Unreadable("a row has not the fields that were asked for".to_owned()));
    };
    let bad = |what: &str| {
        Unreadable(format!("the {what} of job {} cannot be read", raw_id.escape_debug()))
    };
    let raw: u64 = raw_id.trim().parse().map_err(|_| bad("id"))?;
    let task = match present(task) {
        Some(task) => {
            let array = array.trim().parse().map_err(|_| bad("array"))?;
            Some((array, task.parse().map_err(|_| bad("task"))?))
        }
        None => None,
    };
    let hosts = present(hosts).and_then(|hosts| hosts.split('-').next()?.parse().ok()).unwrap_or(1);
    let gpus = gpus_of_tres(tres);
    let each = gpus_of_gres(per_node);
    Ok(Job {
        id: task.map_or(raw.to_string(), |(array, task)| format!("{array}_{task}")),
        task,
        state: JobState::of(state.trim()),
        reason: reason.trim().to_owned(),
        restarts: restarts.trim().parse().map_err(|_| bad("restart count"))?,
        held: held.trim() == "0",
        user: user.clone(),
        account: present(account).unwrap_or_default().to_owned(),
        partition: partition.clone(),
        shape: (each.count > 0).then_some((hosts, each.count)),
        gpus: Gpus { model: gpus.model.or(each.model), count: gpus.count },
        hosts,
        limit_ms: limit_ms(limit),
        submitted: moment(submitted),
        eligible: moment(eligible),
        started: moment(started),
        ended: moment(ended),
        nodes: expand(nodes)?,
        wait_status: status.trim().parse().unwrap_or_default(),
        dependency: present(dependency).map(str::to_owned),
        name: name.clone(),
        comment: present(comment).map(str::to_owned),
        note: present(note).and_then(|note| note.parse().ok()),
        uid: uid.trim().parse().ok(),
        has_script: batch.trim() == "1",
        log: log_of(log, raw, task),
    })
}

/// Where a job writes. Of tasks of arrays squeue says it as of other jobs, which is not so.
fn log_of(log: &str, raw: u64, task: Option<(u64, u32)>) -> Option<PathBuf> {
    let log = present(log).filter(|log| log.starts_with('/'))?;
    match task {
        None => Some(log.into()),
        Some((array, task)) => {
            let folder = log.strip_suffix(&format!("/slurm-{raw}.out"))?;
            Some(format!("{folder}/slurm-{array}_{task}.out").into())
        }
    }
}

impl Job {
    /// The name that the work has with us, once it has a tag: the same for as long as it is there.
    pub fn arrival_name(&self) -> Option<String> {
        let tag = &self.note.as_ref()?.tag;
        Some(match self.task {
            Some((_, task)) => format!("{tag}_{task}"),
            None => tag.clone(),
        })
    }

    /// Whether it holds hosts.
    pub fn holds_hosts(&self) -> bool {
        match &self.state {
            JobState::Pending | JobState::Ended(_) => false,
            JobState::Configuring
            | JobState::Running
            | JobState::Completing
            | JobState::Unknown(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_row_panics(fields in prop::collection::vec("[0-9]{1,3}|.{0,8}", QUEUE_FIELDS.len())) {
            let answer = fields.iter().map(|field| format!("{field}@@")).collect::<String>() + "\n";
            let _ = read_queue(answer.as_bytes(), &Mark::of("@@"));
        }
    }
}
