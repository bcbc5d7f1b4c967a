//! Daemons that die and clients that fail as a seed has it: no job is lost, none runs more often than it should, and
//! charges are what Slurm accounts. `BURSAR_SLURM_SEEDS=100` for more seeds, `BURSAR_SLURM_SEED=7` for that one.

use crate::world::{World, order};
use bursar_engine::{Arrival, AttemptKey, AttemptState, Engine, Exited, Outcome, Signal};
use bursar_slurm::SlurmOptions;
use bursar_slurm::client::{Call, ClientError, Clients, SystemClients};
use bursar_slurm_lab::{Lab, skipped};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What a daemon that is killed says.
const KILLED: &str = "the daemon is killed here, as the seed has it";

/// How long a job has from the signal until it is stopped.
const GRACE: Duration = Duration::from_secs(5);

/// A job: how often it should run, and how its last run ends.
const KINDS: [(usize, &str); 3] = [
    (1, "sleep 1; exit 0"),
    (1, "exit 4"),
    (
        2,
        "if [ -n \"$SLURM_RESTART_COUNT\" ]; then exit 0; fi; trap 'exit 3' USR1; while :; do sleep 0.05; done",
    ),
];

/// Clients that fail, are slow or die with their daemon, before or after they had their effect.
struct Chaotic {
    clients: SystemClients,
    random: Arc<Mutex<Pcg64Mcg>>,
}

impl Clients for Chaotic {
    fn run(&self, call: &Call) -> Result<Vec<u8>, ClientError> {
        // A daemon that died had it last, and left it as it was.
        let drawn =
            self.random.lock().unwrap_or_else(|dead| dead.into_inner()).random_range(0..100);
        let failed = || ClientError::TimedOut { call: call.to_string(), limit_ms: 0 };
        match drawn {
            0..3 => panic!("{KILLED}"),
            3..7 => return Err(failed()),
            7..10 => std::thread::sleep(Duration::from_millis(500)),
            _ => {}
        }
        let answer = self.clients.run(call)?;
        match drawn {
            97.. => panic!("{KILLED}"),
            93..97 => Err(failed()),
            _ => Ok(answer),
        }
    }
}

/// What a daemon's journal would have of a job.
struct Driven {
    job: String,
    arrival: Arrival,
    workload: String,
    attempt: u32,
    runs: usize,
    told_at: Option<Instant>,
    ended: bool,
    exits: Vec<Exited>,
}

impl Driven {
    fn key(&self) -> AttemptKey {
        AttemptKey::new(self.workload.clone(), self.attempt).expect("a good key")
    }

    /// Does what follows from what is seen. What fails is done again in the next round.
    fn follow(&mut self, world: &mut World, state: Option<&AttemptState>) {
        let (key, host) = (self.key(), world.lab.hosts[0].clone());
        let engine = world.engine();
        match state {
            None => {
                let mut order = order(&key, &self.arrival.name, &[(&host, 1)]);
                order.resumable = self.runs == 2;
                let _ = engine.start(&order);
            }
            Some(AttemptState::Starting) => {}
            Some(AttemptState::Running { told_to_leave, .. })
                if self.runs == 2 && self.exits.is_empty() =>
            {
                if *told_to_leave {
                    self.told_at.get_or_insert_with(Instant::now);
                }
                let _ = match self.told_at.filter(|at| at.elapsed() > GRACE) {
                    Some(_) => engine.stop(&key),
                    None => engine.signal(&key, Signal::Checkpoint),
                };
            }
            Some(AttemptState::Running { .. }) => {}
            Some(AttemptState::Exited(exited)) => {
                if !matches!(exited.outcome, Outcome::NotStarted { .. }) {
                    assert!(!matches!(exited.outcome, Outcome::Lost { .. }), "{key}: {exited:?}");
                    self.exits.push(exited.clone());
                }
                self.ended = self.exits.len() == self.runs;
                self.attempt += u32::from(!self.ended);
            }
        }
    }
}

fn play(seed: u64) {
    let lab = Lab::one_node();
    let mut options = SlurmOptions::new(lab.partitions.clone());
    options.signal_after = Duration::ZERO;
    let mut world = World::with(lab, options);
    let random = Arc::new(Mutex::new(Pcg64Mcg::seed_from_u64(seed)));
    let mut driven: Vec<Driven> = (0..6)
        .map(|number| {
            let (runs, script) = KINDS[number % KINDS.len()];
            let script = format!("echo ran >> ran-$SLURM_JOB_ID\n{script}");
            let comment = if runs == 2 { "--comment=resumable" } else { "--comment=resumable=no" };
            let job = world.sbatch("alice", &["--gpus=1", comment], &script);
            let arrival = world.await_waiting(&job);
            let workload = format!("{seed}-{number}");
            Driven {
                job,
                arrival,
                workload,
                attempt: 1,
                runs,
                told_at: None,
                ended: false,
                exits: Vec::new(),
            }
        })
        .collect();
    let chaotic =
        |world: &World| Chaotic { clients: world.lab.clients(), random: Arc::clone(&random) };
    let clients = chaotic(&world);
    world.restart_with(clients);
    world.until(&format!("the end of all jobs; BURSAR_SLURM_SEED={seed}"), |world| {
        let round = std::panic::AssertUnwindSafe(|| {
            let Ok(seen) = world.engine().observe() else { return };
            for one in driven.iter_mut().filter(|one| !one.ended) {
                let state = seen.iter().find(|seen| seen.key == one.key()).map(|seen| &seen.state);
                one.follow(world, state);
            }
        });
        if let Err(panic) = std::panic::catch_unwind(round) {
            let said = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            assert_eq!(said, KILLED, "BURSAR_SLURM_SEED={seed}");
            let clients = chaotic(world);
            world.restart_with(clients);
        }
        driven.iter().all(|one| one.ended).then_some(())
    });
    world.restart();
    for one in &driven {
        let (job, runs) = (&one.job, one.runs);
        let ran =
            fs::read_to_string(world.lab.jobs().join(format!("ran-{job}"))).expect("its marks");
        assert_eq!(ran.lines().count(), runs, "job {job}; BURSAR_SLURM_SEED={seed}");
        let rows = world
            .until("all rows", |world| Some(world.accounts(job)).filter(|rows| rows.len() >= runs));
        let charged: Vec<(u64, u64)> = one
            .exits
            .iter()
            .map(|exited| {
                (
                    exited.started_at.map_or(0, |at| at.unix_ms / 1000),
                    exited.ended_at.unix_ms / 1000,
                )
            })
            .collect();
        let accounted: Vec<(u64, u64)> = rows.iter().map(|row| (row.0, row.1)).collect();
        assert_eq!(charged, accounted, "job {job}; BURSAR_SLURM_SEED={seed}");
        assert_eq!(world.arrival(job), None, "job {job}; BURSAR_SLURM_SEED={seed}");
    }
}

#[test]
fn whatever_dies_or_fails_jobs_run_as_often_as_they_should() {
    if skipped() {
        return;
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    match number("BURSAR_SLURM_SEED") {
        Some(seed) => play(seed),
        None => (0..number("BURSAR_SLURM_SEEDS").unwrap_or(3)).for_each(play),
    }
}
