//! The end of governing: what waits on hold is given back to Slurm, in Bursar's order.

use crate::client::{Call, ClientError, Clients, Program};
use crate::gate::Gate;
use crate::read::{Job, JobState, Mark, QueueWhat, queue_call, read_queue};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// How many jobs are given back by one call.
const JOBS_A_CALL: usize = 500;

/// How often it is tried to give back what is still on hold.
const ROUNDS: usize = 3;

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandedBack {
    /// Jobs that were on hold, by their ids, in the order in which they were released.
    pub released: Vec<String>,
    /// Jobs that are on hold still, and what Slurm says of the last attempt.
    pub left: Vec<String>,
    /// What Slurm said, if it refused anything.
    pub said: Option<String>,
}

/// Why it could not be done.
#[derive(Debug, thiserror::Error)]
pub enum HandbackError {
    /// The gate's table could not be emptied: new jobs would go on entering on hold.
    #[error("the gate's table cannot be emptied: {0}")]
    Gate(#[from] io::Error),
    /// Slurm does not answer.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// It answers what cannot be read.
    #[error("squeue answered what cannot be read: {0}")]
    Unreadable(String),
}

/// Ends the governing of these partitions. First the gate is opened, whose table is in `gate`, so that nothing more
/// enters on hold; then all that waits on hold is released, in this `order` of their names, others behind by their age.
/// Each gets a `SiteFactor` one above the next one's: where Slurm's own factors are alike, its order is this one. What
/// runs is left alone, and so is what its user put on hold before it was ours.
///
/// # Errors
///
/// [`HandbackError`]. It can be called again: what is released stays so.
pub fn hand_back(
    clients: &impl Clients,
    partitions: &[String],
    gate: Option<&Path>,
    order: &[String],
) -> Result<HandedBack, HandbackError> {
    if let Some(folder) = gate {
        Gate::remove(folder)?;
    }
    let places: BTreeMap<&str, usize> =
        order.iter().enumerate().map(|(place, name)| (&**name, place)).collect();
    let mut done = HandedBack::default();
    let mut tried: Vec<String> = Vec::new();
    for round in 0..=ROUNDS {
        let jobs = held(clients, partitions, &places)?;
        done.left = jobs.iter().map(|job| job.id.clone()).collect();
        // The last look only tells what the last round did.
        if jobs.is_empty() || round == ROUNDS {
            break;
        }
        done.said = release(clients, &jobs)?.or(done.said);
        for id in &done.left {
            if !tried.contains(id) {
                tried.push(id.clone());
            }
        }
    }
    tried.retain(|id| !done.left.contains(id));
    Ok(HandedBack { released: tried, ..done })
}

/// What waits on hold and is ours, in order.
fn held(
    clients: &impl Clients,
    partitions: &[String],
    places: &BTreeMap<&str, usize>,
) -> Result<Vec<Job>, HandbackError> {
    let mut jobs = look(clients, partitions)?;
    jobs.retain(|job| job.held && job.note.is_some() && job.state == JobState::Pending);
    let place = |job: &Job| {
        let name = job.arrival_name();
        name.and_then(|name| places.get(&*name).copied()).unwrap_or(usize::MAX)
    };
    jobs.sort_by_key(|job| (place(job), job.submitted, job.id.parse::<u64>().ok()));
    Ok(jobs)
}

/// Releases these, in this order; what Slurm said, if it refused any.
fn release(clients: &impl Clients, jobs: &[Job]) -> Result<Option<String>, HandbackError> {
    let mut said = None;
    let commands: Vec<String> = jobs
        .iter()
        .zip((1..=jobs.len()).rev())
        .map(|(job, factor)| commands(job, factor))
        .collect();
    for part in commands.chunks(JOBS_A_CALL) {
        let no_args: [&str; 0] = [];
        let input = part.concat().into_bytes();
        // Of one that ended meanwhile it says so, and does the others.
        match clients.run(&Call { input, ..Call::new(Program::Scontrol, no_args) }) {
            Ok(_) => {}
            Err(error) if error.is_refusal() => said = Some(error.said()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(said)
}

fn commands(job: &Job, factor: usize) -> String {
    let id = &job.id;
    // What it was pinned to was decided here, and so was that it waits after it was put back.
    let claimed = job.note.as_ref().is_some_and(|note| note.claim.is_some());
    let hosts = if claimed { " ReqNodeList=" } else { "" };
    let begin = if job.restarts > 0 { " StartTime=now" } else { "" };
    format!("update JobId={id} SiteFactor={factor}{hosts}{begin}\nrelease {id}\n")
}

fn look(clients: &impl Clients, partitions: &[String]) -> Result<Vec<Job>, HandbackError> {
    let mark = Mark::new();
    let answer = clients.run(&queue_call(&QueueWhat::Live(partitions.to_vec()), &mark))?;
    read_queue(&answer, &mark).map_err(|why| HandbackError::Unreadable(why.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// A queue in which a release is done, or refused for a job that is stuck.
    struct Queue {
        /// Number, submission, tag, whether it is on hold.
        jobs: RefCell<Vec<(u64, u64, &'static str, bool)>>,
        stuck: Option<u64>,
        told: RefCell<String>,
    }

    impl Clients for Queue {
        fn run(&self, call: &Call) -> Result<Vec<u8>, ClientError> {
            if call.program == Program::Squeue {
                let row = |&(id, submitted, tag, held): &(u64, u64, &str, bool)| {
                    let note =
                        if tag.is_empty() { String::new() } else { format!("bursar:1;tag={tag}") };
                    let fields = format!(
                        "{id}@@{id}@@{id}@@N/A@@PENDING@@None@@0@@{}@@u@@a@@main@@gres/gpu=1@@N/A@@1@@1:00@@\
                         {submitted}@@N/A@@100@@200@@@@0@@(null)@@n@@(null)@@{note}@@5@@1@@/l@@\n",
                        u8::from(!held)
                    );
                    fields.replace("@@", mark(call))
                };
                return Ok(self.jobs.borrow().iter().map(row).collect::<String>().into_bytes());
            }
            let input = String::from_utf8(call.input.clone()).expect("text");
            *self.told.borrow_mut() += &input;
            let mut refused = false;
            for line in input.lines().filter_map(|line| line.strip_prefix("release ")) {
                let id: u64 = line.parse().expect("a number");
                refused |= self.stuck == Some(id);
                for job in self.jobs.borrow_mut().iter_mut() {
                    job.3 &= job.0 != id || self.stuck == Some(id);
                }
            }
            let said = "Slurm says no".to_owned();
            match refused {
                true => {
                    Err(ClientError::Refused { call: call.to_string(), said, output: Vec::new() })
                }
                false => Ok(Vec::new()),
            }
        }
    }

    /// What ends each field, as the call says it.
    fn mark(call: &Call) -> &str {
        let format = call.args.iter().find_map(|arg| arg.split_once("JobArrayID:"));
        format.and_then(|(_, rest)| rest.split(',').next()).expect("a mark")
    }

    fn queue(stuck: Option<u64>) -> Queue {
        let jobs = vec![
            (7, 10, "1.a", true),
            (8, 20, "1.b", true),
            (9, 5, "", true),
            (10, 1, "1.c", true),
        ];
        Queue { jobs: RefCell::new(jobs), stuck, told: RefCell::default() }
    }

    fn back(queue: &Queue) -> HandedBack {
        let order = ["1.b".to_owned(), "1.a".to_owned()];
        hand_back(queue, &["main".to_owned()], None, &order).expect("done")
    }

    #[test]
    fn what_waits_is_released_in_order_and_what_a_user_holds_is_his() {
        let queue = queue(None);
        let done = back(&queue);
        assert_eq!(
            (done.released, done.left, done.said),
            (vec!["8".into(), "7".into(), "10".into()], vec![], None)
        );
        let told = queue.told.borrow();
        assert!(
            told.starts_with(
                "update JobId=8 SiteFactor=3\nrelease 8\nupdate JobId=7 SiteFactor=2\n"
            ),
            "{told}"
        );
        assert!(!told.contains("JobId=9"), "{told}");
    }

    #[test]
    fn what_stays_on_hold_is_told() {
        let done = back(&queue(Some(7)));
        assert_eq!(
            (done.released, done.left),
            (vec!["8".to_owned(), "10".into()], vec!["7".to_owned()])
        );
        assert_eq!(done.said.as_deref(), Some("Slurm says no"));
    }
}
