//! What users gave to Slurm, and what of it waits for us.

use super::SlurmEngine;
use super::names::number_of;
use crate::declare::Note;
use crate::read::{Job, JobState};
use crate::records::moment_of;
use bursar_engine::{Arrival, ArrivalState, Error};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How old a look at the queue may be that is told of.
const LOOK_AGE_MAX: Duration = Duration::from_millis(300);

/// How long the id of a job is known that has left the queue: whether it was cancelled is asked by its id.
const IDS_KEPT: Duration = Duration::from_secs(600);

/// How many jobs are given a tag in one call of [`see_arrivals`](SlurmEngine::see_arrivals).
const TAGS_A_LOOK: usize = 1000;

impl SlurmEngine {
    pub(super) fn see_arrivals(&mut self) -> Result<Vec<Arrival>, Error> {
        let jobs = self.recent(LOOK_AGE_MAX)?.to_vec();
        self.give_tags(&jobs);
        let live = self.records.all().filter(|(_, record)| !record.is_over());
        let live: BTreeSet<String> = live.map(|(_, record)| record.name.clone()).collect();
        let mut throttles = Throttles::of(&jobs, &live);
        let now_s = crate::now_ms() / 1000;
        let mut arrivals = Vec::new();
        for job in &jobs {
            let Some(note) = job.note.as_ref().filter(|note| note.order.is_none()) else {
                continue;
            };
            let Some(name) = job.arrival_name().filter(|name| !live.contains(name)) else {
                continue;
            };
            let state = match &job.state {
                JobState::Ended(_) => continue,
                JobState::Pending => {
                    match waits_for(job, now_s).or_else(|| throttles.take(job, note)) {
                        Some(why) => ArrivalState::NotYet(why),
                        None => ArrivalState::Waits,
                    }
                }
                JobState::Configuring
                | JobState::Running
                | JobState::Completing
                | JobState::Unknown(_) => ArrivalState::Runs {
                    since: moment_of(job.started.unwrap_or(now_s)),
                    placement: self.placement(job),
                },
            };
            arrivals.push((number_of(job), arrival(job, note, name, state)));
        }
        // Slurm's moments are whole seconds; within one, ids tell who came first.
        arrivals.sort_by_key(|(number, arrival)| (arrival.submitted_at.unix_ms, *number));
        let arrivals: Vec<Arrival> = arrivals.into_iter().map(|(_, arrival)| arrival).collect();
        let now = Instant::now();
        self.waiting_ids.retain(|_, (_, told)| now.duration_since(*told) < IDS_KEPT);
        let ids = arrivals.iter().map(|one| (one.name.clone(), (one.shown.clone(), now)));
        self.waiting_ids.extend(ids);
        Ok(arrivals)
    }

    /// Jobs from before us get their names, so many at a time, and those that wait are put on hold with it: Slurm would
    /// start them by itself. Tasks of an array that wait together share one record in Slurm, and get one tag.
    fn give_tags(&mut self, jobs: &[Job]) {
        let nameless = jobs.iter().filter(|job| job.note.is_none());
        // What is on hold already, its user or an administrator put there: it comes when they release it.
        let nameless = nameless.filter(|job| match job.state {
            JobState::Ended(_) => false,
            JobState::Pending => !job.held,
            _ => true,
        });
        let mut arrays: BTreeMap<u64, bool> = BTreeMap::new();
        for job in jobs {
            if let Some((array, _)) = job.task {
                let whole = arrays.entry(array).or_insert(true);
                *whole &= job.note.is_none();
            }
        }
        let (mut given, mut commands) = (BTreeSet::new(), Vec::new());
        for job in nameless {
            let id = match job.task {
                Some((array, _)) if arrays.get(&array) == Some(&true) => array.to_string(),
                _ => job.id.clone(),
            };
            if given.len() >= TAGS_A_LOOK {
                break;
            }
            if !given.insert(id.clone()) {
                continue;
            }
            let note = self.options.note_of(job, self.names.tag(job));
            // In one change: whoever finds the tag finds it on hold, or released by an administrator since.
            let hold = if job.state == JobState::Pending { " Priority=0" } else { "" };
            commands.push(format!("update JobId={id} AdminComment={note}{hold}"));
        }
        if !commands.is_empty() {
            // One that has ended meanwhile refuses; others are asked again at the next look.
            let _ = self.scontrol_all(&commands);
            self.changed();
        }
    }

    /// The hosts of a job that runs, and its GPUs on each.
    pub(super) fn placement(&self, job: &Job) -> Vec<(String, u32)> {
        placement(&job.nodes, job.gpus.count)
    }
}

/// So many GPUs on these hosts: Slurm has the sum alone. Where it is uneven, the first hosts are taken to have the rest.
pub(super) fn placement(nodes: &[String], gpus: u32) -> Vec<(String, u32)> {
    let hosts = u32::try_from(nodes.len()).unwrap_or(u32::MAX).max(1);
    let (each, rest) = (gpus / hosts, gpus % hosts);
    let parts = (0..hosts).map(|at| each + u32::from(at < rest));
    nodes.iter().cloned().zip(parts).collect()
}

/// Why Slurm would not start a job that is released, where that can be known.
pub(super) fn waits_for(job: &Job, now_s: u64) -> Option<String> {
    if let Some(dependency) = &job.dependency {
        let shown: String = dependency.chars().filter(|one| !one.is_control()).take(200).collect();
        if job.reason == "DependencyNeverSatisfied" {
            return Some(format!(
                "it can never start: what it depends on ended otherwise ({shown}); cancel it, or change the dependency"
            ));
        }
        return Some(format!("depends on {shown}"));
    }
    // What was put back has a moment, too, but that is Slurm's own and is taken away.
    job.eligible.filter(|begin| job.restarts == 0 && *begin > now_s)?;
    // No countdown: what changes each second would be written down each second.
    Some("waits for the moment of its --begin".to_owned())
}

/// How many more tasks of each array may run.
struct Throttles {
    running: BTreeMap<u64, u32>,
}

impl Throttles {
    fn of(jobs: &[Job], live: &BTreeSet<String>) -> Self {
        let mut running = BTreeMap::new();
        for job in jobs {
            let ordered = job.arrival_name().is_some_and(|name| live.contains(&name));
            if let Some((array, _)) = job.task.filter(|_| ordered || job.holds_hosts()) {
                *running.entry(array).or_insert(0_u32) += 1;
            }
        }
        Self { running }
    }

    /// Takes one of the places, or says that there is none.
    fn take(&mut self, job: &Job, note: &Note) -> Option<String> {
        let ((array, _), most) = job.task.zip(note.throttle)?;
        let running = self.running.entry(array).or_insert(0);
        if *running >= most {
            return Some(format!("{most} tasks of array {array} may run at once"));
        }
        *running += 1;
        None
    }
}

pub(super) fn arrival(job: &Job, note: &Note, name: String, state: ArrivalState) -> Arrival {
    Arrival {
        name,
        shown: job.id.clone(),
        title: job.name.chars().map(|one| if one.is_control() { ' ' } else { one }).collect(),
        user: job.user.clone(),
        account: job.account.clone(),
        queue: job.partition.clone(),
        gpus: job.gpus.count,
        shape: job.shape,
        gpu_model: job.gpus.model.clone(),
        max_runtime_ms: job.limit_ms,
        declared: note.declared(),
        submitted_at: moment_of(submitted_s(job, note)),
        state,
    }
}

/// When it was first submitted: Slurm's own moment is that of the last time that it was put back.
fn submitted_s(job: &Job, note: &Note) -> u64 {
    let tagged = note.tag.split('.').next().and_then(|seconds| seconds.parse::<u64>().ok());
    match (job.submitted, tagged.filter(|_| job.restarts > 0)) {
        (Some(submitted), Some(tagged)) => submitted.min(tagged),
        (submitted, tagged) => submitted.or(tagged).unwrap_or_default(),
    }
}
