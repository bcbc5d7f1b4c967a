//! An engine on the cluster, and users who submit to it.

use bursar_engine::{
    Arrival, ArrivalState, AttemptKey, AttemptState, Engine, Exited, HostGpus, Observation,
    StartOrder,
};
use bursar_slurm::client::Clients;
use bursar_slurm::{SlurmEngine, SlurmOptions};
use bursar_slurm_lab::Lab;
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything may take. Nothing takes long, but test machines are busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// A script that saves when it is told to, and leaves with exit code 3.
pub(crate) const SAVES: &str = "trap 'echo saved; exit 3' USR1; echo run $SLURM_RESTART_COUNT $CUDA_VISIBLE_DEVICES; \
                                while :; do sleep 0.05; done";

/// One that ends by itself.
pub(crate) const SHORT: &str = "sleep 1; exit 0";

pub(crate) struct World {
    pub(crate) lab: Lab,
    folder: TempDir,
    options: SlurmOptions,
    engine: Option<SlurmEngine>,
}

impl World {
    pub(crate) fn on(lab: Lab) -> Self {
        let options = SlurmOptions::new(lab.partitions.clone());
        Self::with(lab, options)
    }

    pub(crate) fn with(lab: Lab, options: SlurmOptions) -> Self {
        let folder = TempDir::new().expect("a folder");
        let mut world = Self { lab, folder, options, engine: None };
        world.restart();
        world
    }

    /// The daemon is killed, and another comes.
    pub(crate) fn restart(&mut self) {
        let clients = self.lab.clients();
        self.restart_with(clients);
    }

    pub(crate) fn restart_with(&mut self, clients: impl Clients + 'static) {
        self.engine = None;
        let engine = SlurmEngine::open(self.folder.path(), self.options.clone(), clients);
        self.engine = Some(engine.expect("open"));
    }

    /// The records are lost, and a new daemon comes.
    pub(crate) fn forget_everything(&mut self) {
        self.engine = None;
        self.folder = TempDir::new().expect("a folder");
        self.restart();
    }

    pub(crate) fn engine(&mut self) -> &mut SlurmEngine {
        self.engine.as_mut().expect("the daemon is up")
    }

    /// Submits a script, to the first partition; gives its id.
    pub(crate) fn sbatch(&self, user: &str, args: &[&str], script: &str) -> String {
        let path = self.lab.jobs().join(format!("{}.sh", unique()));
        fs::write(&path, format!("#!/bin/bash\n{script}\n")).expect("a script");
        let partition = format!("--partition={}", self.lab.partitions[0]);
        let mut all = vec!["--parsable", &*partition];
        all.extend(args);
        // The gate takes no work without GPUs.
        if !args.iter().any(|arg| arg.contains("gpu")) && !script.contains("--gpus") {
            all.push("--gpus=1");
        }
        let path = path.to_str().expect("UTF-8");
        all.push(path);
        self.lab.ok(user, "sbatch", &all)
    }

    pub(crate) fn arrivals(&mut self) -> Vec<Arrival> {
        self.engine().observe().expect("observe");
        self.engine().arrivals().expect("arrivals").expect("a queue")
    }

    /// The arrival that people know by this, if it is there.
    pub(crate) fn arrival(&mut self, shown: &str) -> Option<Arrival> {
        self.arrivals().into_iter().find(|arrival| arrival.shown == shown)
    }

    /// Waits until it is there and looks like this.
    pub(crate) fn await_arrival(
        &mut self,
        shown: &str,
        like: impl Fn(&ArrivalState) -> bool,
    ) -> Arrival {
        let mut seen = None;
        self.until(&format!("arrival {shown}"), |world| {
            seen = world.arrival(shown);
            seen.clone().filter(|arrival| like(&arrival.state))
        })
    }

    pub(crate) fn await_waiting(&mut self, shown: &str) -> Arrival {
        self.await_arrival(shown, |state| *state == ArrivalState::Waits)
    }

    /// Starts an arrival there, resumable.
    pub(crate) fn start(&mut self, key: &AttemptKey, arrival: &Arrival, placement: &[(&str, u32)]) {
        let order = order(key, &arrival.name, placement);
        self.engine().start(&order).expect("start");
    }

    pub(crate) fn see(&mut self, key: &AttemptKey) -> Option<Observation> {
        let seen = self.engine().observe().expect("observe");
        seen.into_iter().find(|one| one.key == *key)
    }

    pub(crate) fn await_running(&mut self, key: &AttemptKey) -> u64 {
        self.until(&format!("{key} to run"), |world| match world.see(key)?.state {
            AttemptState::Running { started_at, .. } => Some(started_at.unix_ms / 1000),
            AttemptState::Starting => None,
            AttemptState::Exited(exited) => panic!("{key} has ended: {exited:?}"),
        })
    }

    pub(crate) fn await_exit(&mut self, key: &AttemptKey) -> Exited {
        self.until(&format!("{key} to end"), |world| world.see(key)?.state.exited().cloned())
    }

    /// Asks again and again until there is an answer.
    pub(crate) fn until<T>(
        &mut self,
        what: &str,
        mut ask: impl FnMut(&mut Self) -> Option<T>,
    ) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = ask(self) {
                return answer;
            }
            assert!(Instant::now() < end, "waited in vain for {what}:\n{}", self.queue());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The queue, for people.
    pub(crate) fn queue(&self) -> String {
        self.lab.ok("svc", "squeue", &["-a", "-r", "-t", "all", "-o", "%i %P %T %r %Q %N %k"])
    }

    /// One field of a job.
    pub(crate) fn field(&self, job: &str, field: &str) -> String {
        self.lab
            .ok("svc", "squeue", &["-h", "-a", "-t", "all", "-j", job, "-O", &format!("{field}:|")])
            .trim_end_matches('|')
            .to_owned()
    }

    /// What the accounts have of a job: start, end and state of each run that ended.
    pub(crate) fn accounts(&self, job: &str) -> Vec<(u64, u64, String)> {
        let args = ["-a", "-D", "-X", "-P", "-n", "-j", job, "-o", "Start,End,State"];
        let text = self.lab.ok("svc", "sacct", &args);
        let rows = text.lines().filter_map(|line| {
            let fields: Vec<&str> = line.split('|').collect();
            Some((fields[0].parse().ok()?, fields[1].parse().ok()?, fields[2].to_owned()))
        });
        rows.collect()
    }

    /// What a job wrote.
    pub(crate) fn output(&self, job: &str) -> String {
        fs::read_to_string(self.lab.jobs().join(format!("slurm-{job}.out"))).unwrap_or_default()
    }
}

pub(crate) fn key(attempt: u32) -> AttemptKey {
    AttemptKey::new("17", attempt).expect("a good key")
}

pub(crate) fn order(key: &AttemptKey, adopts: &str, placement: &[(&str, u32)]) -> StartOrder {
    let part = |(host, gpus): &(&str, u32)| HostGpus {
        host: (*host).to_owned(),
        gpus: (0..*gpus).collect(),
    };
    StartOrder {
        key: key.clone(),
        command: Vec::new(),
        workdir: None,
        env: BTreeMap::new(),
        user: None,
        placement: placement.iter().map(part).collect(),
        memory_bytes: None,
        cpus: None,
        adopts: Some(adopts.to_owned()),
        resumable: true,
        resume: false,
        checkpoint_dir: "/nonexistent".into(),
        protected_until_unix_ms: None,
        log_bytes_max: 1,
        log_files_max: 1,
    }
}

fn unique() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}
