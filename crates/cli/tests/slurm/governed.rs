//! A cluster that is governed, and its users.

use crate::{PATIENCE, Site, command, eventually, folder};
use bursar_slurm_lab::Lab;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Sleeps until it is told to save, and writes how far it came: one line for each tenth of a second of work.
pub(crate) const SAVES: &str = "saved=$PWD/saved-$SLURM_JOB_ID; step=$(cat $saved 2>/dev/null || echo 0); \
    echo run ${SLURM_RESTART_COUNT:-0} from $step on $SLURM_JOB_NODELIST; \
    trap 'echo $step >$saved; echo saved $step; exit 3' USR1; \
    while :; do sleep 0.1; step=$((step + 1)); done";

/// Does what it is told to at once, and knows no signal.
pub(crate) const SLEEPS: &str = "exec sleep 1000";

pub(crate) struct Governed {
    pub(crate) lab: Arc<Lab>,
    pub(crate) site: Option<Site>,
    folder: tempfile::TempDir,
    token: String,
    budgets: String,
    settings: String,
    /// By what Slurm's clients are run, and what else the configuration says about Slurm.
    run_by: Vec<String>,
    keys: String,
    /// Where the API listens: whoever reads the configuration finds it there.
    port: u16,
    /// What daemons said that were killed.
    said: String,
}

impl Governed {
    /// All nodes, governed by a new site with these budgets; `settings` is what else its settings say.
    pub(crate) fn with(budgets: &str, settings: &str) -> Self {
        let run_by = bursar_slurm_lab::through("svc");
        let mut governed = Self::down(budgets, &format!("grace: 10s, {settings}"), &run_by, "");
        governed.up();
        governed
    }

    /// The same, not up yet. `grace` is among the settings, `keys` are more lines about Slurm, and its clients are run
    /// by these words.
    pub(crate) fn down(budgets: &str, settings: &str, run_by: &[String], keys: &str) -> Self {
        let settings = format!("default_min_runtime: 0s, {settings}");
        let governed = Self::on(Arc::new(Lab::all_nodes()), budgets, &settings, run_by, keys);
        governed.configure("govern");
        governed
    }

    /// Another one on the same nodes, not up yet.
    pub(crate) fn beside(&self, budgets: &str) -> Self {
        let run_by = bursar_slurm_lab::through("svc");
        let settings = "grace: 10s, default_min_runtime: 0s";
        let governed = Self::on(Arc::clone(&self.lab), budgets, settings, &run_by, "");
        governed.configure("govern");
        governed
    }

    /// All nodes, which nobody governs, and a site that is not created yet.
    pub(crate) fn not_yet(budgets: &str, settings: &str) -> Self {
        let lab = Arc::new(Lab::all_nodes());
        bursar_slurm::Gate::remove(&bursar_slurm_lab::folder().join("etc")).expect("no gate");
        let run_by = bursar_slurm_lab::through("svc");
        Self::on(lab, budgets, &format!("grace: 10s, {settings}"), &run_by, "")
    }

    fn on(lab: Arc<Lab>, budgets: &str, settings: &str, run_by: &[String], keys: &str) -> Self {
        let port = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        Self {
            lab,
            site: None,
            folder: folder(),
            token: String::new(),
            budgets: budgets.to_owned(),
            settings: settings.to_owned(),
            run_by: run_by.to_vec(),
            keys: keys.to_owned(),
            port: port.local_addr().expect("its address").port(),
            said: String::new(),
        }
    }

    /// More lines about Slurm for the configuration.
    pub(crate) fn tell_slurm(&mut self, keys: &str) {
        self.keys += keys;
    }

    /// Writes the configuration, which counts when the daemon comes up next.
    pub(crate) fn configure(&self, mode: &str) {
        let Self { budgets, settings, run_by, keys, port, .. } = self;
        let etc = bursar_slurm_lab::folder().join("etc");
        let run_by: Vec<String> = run_by.iter().map(|word| format!("{word:?}")).collect();
        let config = format!(
            "data: site\nlisten: 127.0.0.1:{port}\nowner: svc\nbudgets: budgets.yaml\ntoken_out: token\n\
             settings: {{lookback: 10m, horizon: 10m, warn_before: 1s, {settings}}}\n\
             slurm:\n  mode: {mode}\n  partitions: [main]\n  gate: {}\n  run_by: [{}]\n{keys}",
            etc.display(),
            run_by.join(", ")
        );
        fs::write(self.path("bursar.yaml"), config).expect("a configuration");
        fs::write(self.path("budgets.yaml"), budgets).expect("budgets");
    }

    /// The daemon comes up, again if it was up before.
    pub(crate) fn up(&mut self) {
        let site = self.command_up(&[], Site::spawn);
        self.is_up(site);
    }

    /// The same, if Slurm lets it: what it said, if not.
    pub(crate) fn try_up(&mut self, flags: &[&str]) -> Result<(), String> {
        let site = self.command_up(flags, Site::try_spawn)?;
        self.is_up(site);
        Ok(())
    }

    /// Kills the daemon. What it had Slurm's clients do goes on.
    pub(crate) fn kill(&mut self) {
        if let Some(site) = self.site.take() {
            self.said += &site.said();
            site.kill();
        }
    }

    /// Ends the daemon as an operator does. What runs, runs on.
    pub(crate) fn stop(&mut self) {
        if let Some(site) = self.site.take() {
            self.said += &site.said();
            assert_eq!(site.stop(), Some(0), "{}", self.said);
        }
    }

    /// What all its daemons said.
    pub(crate) fn said(&self) -> String {
        format!("{}{}", self.said, self.site().said())
    }

    fn command_up<T>(
        &mut self,
        flags: &[&str],
        spawn: impl FnOnce(&mut std::process::Command) -> T,
    ) -> T {
        self.site = None;
        let config = self.path("bursar.yaml");
        let mut bursar = command(&["up", "--config", config.to_str().expect("UTF-8")]);
        spawn(bursar.args(flags).envs(self.lab.environment()))
    }

    fn is_up(&mut self, mut site: Site) {
        if self.token.is_empty() {
            let token = fs::read_to_string(self.path("token")).expect("the first token");
            token.trim().clone_into(&mut self.token);
        }
        site.token.clone_from(&self.token);
        self.site = Some(site);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn site(&self) -> &Site {
        self.site.as_ref().expect("the daemon is up")
    }

    /// Submits a script to the governed partition; gives the job's id.
    pub(crate) fn sbatch(&self, user: &str, args: &[&str], script: &str) -> String {
        // What was written before stays when a job comes back.
        let mut all = vec!["--parsable", "--partition=main", "--open-mode=append"];
        all.extend(args);
        let path = self.script(script);
        all.push(path.to_str().expect("UTF-8"));
        self.lab.ok(user, "sbatch", &all)
    }

    /// What sbatch writes when it refuses.
    pub(crate) fn refused(&self, user: &str, args: &[&str]) -> String {
        let mut all = vec!["--partition=main"];
        all.extend(args);
        let path = self.script(SLEEPS);
        all.push(path.to_str().expect("UTF-8"));
        let output = self.lab.as_user(user, "sbatch", &all);
        assert!(!output.status.success(), "{all:?}: {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn script(&self, script: &str) -> PathBuf {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = self.lab.jobs().join(format!("{}-{number}.sh", std::process::id()));
        fs::write(&path, format!("#!/bin/bash\n{script}\n")).expect("a script");
        path
    }

    /// The number of the workload that Slurm's job is, once it is known.
    pub(crate) fn number(&self, job: &str) -> u64 {
        let name = self.field(job, "Name");
        eventually(&format!("job {job} in Bursar's queue"), || {
            let all = self.site().get("/v1/workloads?all=true&limit=1000");
            let mut all = all["workloads"].as_array().expect("a list").iter();
            all.find(|one| one["name"] == *name)?["workload"].as_u64()
        })
    }

    /// The workload that Slurm's job is, as the API shows it.
    pub(crate) fn work(&self, job: &str) -> Value {
        self.site().work(self.number(job))
    }

    /// What `bursar why` says of a job.
    pub(crate) fn why(&self, job: &str) -> String {
        self.site().ask_well(&["why", &self.number(job).to_string()])
    }

    /// A field of a job, as squeue shows it.
    pub(crate) fn field(&self, job: &str, field: &str) -> String {
        let format = format!("{field}:|");
        let output =
            self.lab.as_user("svc", "squeue", &["-h", "-a", "-t", "all", "-j", job, "-O", &format]);
        String::from_utf8_lossy(&output.stdout).trim().trim_end_matches('|').to_owned()
    }

    pub(crate) fn state(&self, job: &str) -> String {
        self.field(job, "State")
    }

    pub(crate) fn until_state(&self, job: &str, state: &str) {
        let until = Instant::now() + PATIENCE;
        while self.state(job) != state {
            assert!(Instant::now() < until, "job {job} is not {state}:\n{}", self.all());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until Bursar knows the end of a job, which must be this.
    pub(crate) fn until_ended(&self, job: &str, state: &str) {
        let number = self.number(job);
        let work = eventually(&format!("the end of job {job}"), || {
            let work = self.site().work(number);
            (work["history"].as_array()?.last()?["ended_unix_ms"].is_u64()).then_some(work)
        });
        assert_eq!(work["ending"], state, "{work}\n{}", self.all());
    }

    /// The same, of a job that never ran.
    pub(crate) fn until_ended_without_a_run(&self, job: &str, state: &str) {
        let number = self.number(job);
        eventually(&format!("the end of job {job}"), || {
            (self.site().work(number)["ending"] == state).then_some(())
        });
    }

    /// How many of these jobs run.
    pub(crate) fn running<'a>(&self, jobs: impl IntoIterator<Item = &'a String>) -> usize {
        jobs.into_iter().filter(|job| self.state(job) == "RUNNING").count()
    }

    /// What a job wrote so far.
    pub(crate) fn output(&self, job: &str) -> String {
        fs::read_to_string(self.lab.jobs().join(format!("slurm-{job}.out"))).unwrap_or_default()
    }

    /// The queue as Slurm has it, and what Bursar says: for the message of a test that fails.
    pub(crate) fn all(&self) -> String {
        let queue =
            self.lab.ok("svc", "squeue", &["-a", "-r", "-t", "all", "-o", "%i %u %T %r %N %k"]);
        format!("{queue}\n{}", self.site().ask_well(&["queue", "--all"]))
    }
}
