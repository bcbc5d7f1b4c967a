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
/// enters on hold; then all that is on hold is released, in this `order` of their names, others behind by their age. Each gets
/// a `SiteFactor` one above the next one's: where Slurm's own factors are alike, its order is this one. What runs is left
/// alone but for the hold that keeps it from running again by itself.
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
    let mut done = HandedBack::default();
    let places: BTreeMap<&str, usize> =
        order.iter().enumerate().map(|(place, name)| (&**name, place)).collect();
    for _ in 0..ROUNDS {
        let mut jobs = look(clients, partitions)?;
        // What is on hold and was never ours, its user put there.
        let ours = |job: &Job| job.held && job.note.is_some();
        jobs.retain(|job| ours(job) && !matches!(job.state, JobState::Ended(_)));
        let place = |job: &Job| {
            let name = job.arrival_name();
            name.and_then(|name| places.get(&*name).copied()).unwrap_or(usize::MAX)
        };
        jobs.sort_by_key(|job| (place(job), job.submitted, job.id.parse::<u64>().ok()));
        done.left = jobs.iter().map(|job| job.id.clone()).collect();
        if jobs.is_empty() {
            break;
        }
        let all = jobs.len();
        for (part, jobs) in jobs.chunks(JOBS_A_CALL).enumerate() {
            let commands = jobs
                .iter()
                .enumerate()
                .flat_map(|(at, job)| commands(job, all - part * JOBS_A_CALL - at));
            let input = commands.collect::<Vec<_>>().join("\n") + "\n";
            let no_args: [&str; 0] = [];
            let call = Call { input: input.into_bytes(), ..Call::new(Program::Scontrol, no_args) };
            // Of one that ended meanwhile it says so, and does the others.
            match clients.run(&call) {
                Ok(_) => {}
                Err(error) if error.is_refusal() => done.said = Some(error.said()),
                Err(error) => return Err(error.into()),
            }
        }
        let waited = jobs.iter().filter(|job| job.state == JobState::Pending);
        for job in waited {
            if !done.released.contains(&job.id) {
                done.released.push(job.id.clone());
            }
        }
        done.left.clear();
    }
    done.released.retain(|id| !done.left.contains(id));
    Ok(done)
}

fn commands(job: &Job, factor: usize) -> Vec<String> {
    let id = &job.id;
    let mut commands = Vec::new();
    if job.state == JobState::Pending {
        // What it was pinned to was decided here, and so was that it waits after it was put back.
        let mut update = format!("update JobId={id} SiteFactor={factor}");
        if job.note.as_ref().is_some_and(|note| note.claim.is_some()) {
            update.push_str(" ReqNodeList=");
        }
        if job.restarts > 0 {
            update.push_str(" StartTime=now");
        }
        commands.push(update);
    }
    commands.push(format!("release {id}"));
    commands
}

fn look(clients: &impl Clients, partitions: &[String]) -> Result<Vec<Job>, HandbackError> {
    let mark = Mark::new();
    let answer = clients.run(&queue_call(&QueueWhat::Live(partitions.to_vec()), &mark))?;
    read_queue(&answer, &mark).map_err(|why| HandbackError::Unreadable(why.to_string()))
}
