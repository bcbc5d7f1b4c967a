//! Runs that nobody saw: while the daemon was down, and from before the site. What is charged is what `sacct -D` says.

use crate::eventually;
use crate::governed::{Governed, SLEEPS};
use serde_json::Value;
use std::time::{Duration, Instant};

const BUDGETS: &str = "research: {share: 3}\nproduct: {share: 1}\n";

const NODE: [&str; 2] = ["--nodes=1", "--gpus=8"];

/// Runs for a moment.
const SHORT: &str = "sleep 2";

/// The runs of a job that have ended, as Slurm accounts them: seconds and GPUs of each, the first one first.
fn accounted(governed: &Governed, job: &str) -> Vec<(u64, u64)> {
    let args = ["-a", "-D", "-X", "-P", "-n", "-j", job, "-o", "Start,End,ElapsedRaw,AllocTRES"];
    let text = governed.lab.ok("svc", "sacct", &args);
    let row = |line: &str| {
        let fields: Vec<&str> = line.split('|').collect();
        let (start, _end): (u64, u64) = (fields[0].parse().ok()?, fields[1].parse().ok()?);
        let gpus = fields[3].split(',').find_map(|part| part.strip_prefix("gres/gpu="))?;
        Some((start, (fields[2].parse().ok()?, gpus.parse().ok()?)))
    };
    let mut rows: Vec<(u64, (u64, u64))> = text.lines().filter_map(row).collect();
    rows.sort_unstable();
    rows.into_iter().map(|(_, row)| row).collect()
}

/// The same, as Bursar has them: what each attempt was charged in GPU-milliseconds, and its GPUs.
fn booked(work: &Value) -> Vec<(u64, u64)> {
    let attempt = |one: &Value| {
        one["ended_unix_ms"].as_u64()?;
        let gpus: usize = one["placement"]
            .as_array()?
            .iter()
            .map(|place| place[1].as_array().map_or(0, Vec::len))
            .sum();
        Some((one["charged_gpu_ms"].as_u64()?, gpus as u64))
    };
    let ran = |one: &&Value| one["started_unix_ms"].is_u64();
    work["history"].as_array().into_iter().flatten().filter(ran).filter_map(attempt).collect()
}

/// Waits until what is booked of a job are the rows of its runs, so many of them.
fn until_equal(governed: &Governed, job: &str, runs: usize) -> Value {
    let until = Instant::now() + crate::PATIENCE;
    loop {
        let work = governed.work(job);
        let rows = accounted(governed, job);
        let charges: Vec<(u64, u64)> =
            rows.iter().map(|(seconds, gpus)| (seconds * gpus * 1000, *gpus)).collect();
        if charges.len() == runs && booked(&work) == charges {
            return work;
        }
        assert!(Instant::now() < until, "job {job}: {rows:?}\n{work:#}\n{}", governed.all());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Runs it and waits for its end, whoever looks.
fn until_over(governed: &Governed, job: &str) {
    let over = || {
        let state = governed.state(job);
        (!["PENDING", "RUNNING", "COMPLETING", "CONFIGURING"].contains(&&*state)).then_some(())
    };
    eventually(&format!("the end of job {job}"), over);
}

/// An administrator has Slurm run a job that it put back, now.
fn run_now(governed: &Governed, job: &str) {
    eventually(&format!("job {job} waits again"), || {
        (governed.state(job) == "PENDING").then_some(())
    });
    governed.lab.ok("svc", "scontrol", &["update", &format!("JobId={job}"), "StartTime=now"]);
    let runs = || {
        let runs = governed.state(job) == "RUNNING";
        if !runs {
            governed.lab.as_user("svc", "scontrol", &["release", job]);
        }
        runs.then_some(())
    };
    eventually(&format!("job {job} runs again"), runs);
}

#[test]
fn what_ran_while_nobody_watched_is_charged_as_slurm_accounts_it() {
    if bursar_slurm_lab::skipped() {
        return;
    }
    let mut governed = Governed::not_yet(BUDGETS, "default_min_runtime: 5m");
    let seen = governed.sbatch("carol", &["--nodes=1", "--gpus=8", "--requeue"], SLEEPS);
    let full: Vec<String> = (0..3).map(|_| governed.sbatch("carol", &NODE, SLEEPS)).collect();
    full.iter().chain([&seen]).for_each(|job| governed.until_state(job, "RUNNING"));
    let waits = governed.sbatch("dave", &NODE, SHORT);
    // What ran before a site's moment 0 is charged from then on.
    governed.tell_slurm("  history: 10m\n");
    governed.configure("watch");
    governed.up();
    let known = [&seen, &waits].map(|job| governed.number(job));
    eventually("that it runs", || {
        (governed.site().work(known[0])["state"] == "protected").then_some(())
    });
    governed.kill();

    // It ends, waits again and runs once more; one that waited runs; others come and go.
    governed.lab.ok("svc", "scontrol", &["requeue", &seen]);
    until_over(&governed, &waits);
    run_now(&governed, &seen);
    governed.lab.ok("carol", "scancel", &[&full[0]]);
    let unseen = governed.sbatch("alice", &["--gpus=3"], SHORT);
    let fails = governed.sbatch("bob", &["--gpus=2"], "sleep 1; exit 3");
    until_over(&governed, &unseen);
    until_over(&governed, &fails);
    governed.lab.ok("carol", "scancel", &[&seen]);
    until_over(&governed, &seen);

    governed.up();
    let endings = [(&seen, 2, "cancelled"), (&waits, 1, "completed"), (&full[0], 1, "cancelled")];
    let more = [(&unseen, 1, "completed"), (&fails, 1, "failed")];
    for (job, runs, ending) in endings.into_iter().chain(more) {
        let work = until_equal(&governed, job, runs);
        assert_eq!(work["ending"], ending, "{work:#}");
        let allocated = work["history"].as_array().expect("a list").iter();
        assert!(allocated.clone().all(|one| one["allocated"] == true), "{work:#}");
    }
    assert_eq!([&seen, &waits].map(|job| governed.number(job)), known);
    // Nothing is booked twice, however often the accounts are looked at.
    governed.kill();
    governed.up();
    for (job, runs, _) in endings.into_iter().chain(more) {
        until_equal(&governed, job, runs);
    }
    let told = governed.site().ask_well(&["whatif", "--json"]);
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["summary"]["policies"]["recorded"]["conservation_exact"], true, "{told}");
}

#[test]
fn what_slurm_ran_while_the_governor_was_down_is_charged_and_shown() {
    if bursar_slurm_lab::skipped() {
        return;
    }
    let mut governed = Governed::with(BUDGETS, "");
    let protected = ["--nodes=1", "--gpus=8", "--comment=min-runtime=5m;resumable"];
    let full: Vec<String> = (0..4).map(|_| governed.sbatch("carol", &protected, SLEEPS)).collect();
    full.iter().for_each(|job| governed.until_state(job, "RUNNING"));
    let waits = governed.sbatch("dave", &protected, SHORT);
    let number = governed.number(&waits);
    let numbers: Vec<u64> = full.iter().map(|job| governed.number(job)).collect();
    eventually("that all run", || {
        let runs = |number: &u64| governed.site().work(*number)["state"] == "protected";
        numbers.iter().all(runs).then_some(())
    });
    governed.kill();

    // An administrator makes room and releases what waits; one that Bursar knows not of, too.
    governed.lab.ok("carol", "scancel", &[&full[0]]);
    governed.lab.ok("svc", "scontrol", &["release", &waits]);
    until_over(&governed, &waits);
    let unseen = governed.sbatch("alice", &["--gpus=2", "--comment=min-runtime=1m"], SHORT);
    let free = governed.sbatch("alice", &["--gpus=1"], SHORT);
    governed.lab.ok("svc", "scontrol", &["release", &unseen]);
    governed.lab.ok("svc", "scontrol", &["release", &free]);
    until_over(&governed, &unseen);
    until_over(&governed, &free);
    // The claim of the first run stands there in the second one, too.
    governed.lab.ok("svc", "scontrol", &["requeue", &full[1]]);
    run_now(&governed, &full[1]);
    governed.lab.ok("carol", "scancel", &[&full[1]]);
    until_over(&governed, &full[1]);

    governed.up();
    let jobs = [(&waits, 1), (&unseen, 1), (&full[0], 1), (&full[1], 2)];
    for (job, runs) in jobs {
        until_equal(&governed, job, runs);
    }
    assert_eq!(governed.number(&waits), number);
    let work = governed.work(&waits);
    assert_eq!(work["ending"], "completed", "{work:#}");
    let shown = governed.site().ask_well(&["show", &number.to_string()]);
    assert!(shown.contains(&format!("in Slurm: job {waits}, partition main")), "{shown}");
    let reason = work["history"][0]["reason"].as_str().expect("a reason");
    assert!(reason.contains("started elsewhere"), "{reason}");
    // Rule 1: without a contract nobody is charged, and it is there.
    let work = eventually("what ran for nobody", || {
        let work = governed.work(&free);
        (work["ending"] == "completed").then_some(work)
    });
    assert_eq!(
        (booked(&work), &work["history"][0]["allocated"]),
        (vec![(0, 1)], &Value::from(false))
    );
}

#[test]
fn a_new_site_begins_with_what_slurm_accounted() {
    if bursar_slurm_lab::skipped() {
        return;
    }
    let mut governed = Governed::not_yet(BUDGETS, "default_min_runtime: 5m");
    let before = governed.sbatch("carol", &["--nodes=4", "--gpus=32"], "sleep 4");
    until_over(&governed, &before);
    let runs = governed.sbatch("dave", &NODE, SLEEPS);
    governed.until_state(&runs, "RUNNING");
    let started: u64 = governed.field(&runs, "StartTime").parse().expect("seconds");
    governed.tell_slurm("  history: 1h\n");
    governed.configure("govern");
    governed.up();
    let work = until_equal(&governed, &before, 1);
    assert_eq!(work["ending"], "completed", "{work:#}");
    let budgets = governed.site().ask_well(&["budget", "show", "--json"]);
    let budgets: Value = serde_json::from_str(&budgets).expect("JSON");
    let product = budgets["budgets"].as_array().expect("a list").iter();
    let product = product.clone().find(|one| one["path"] == "product").expect("a budget");
    let (seconds, gpus) = accounted(&governed, &before)[0];
    assert!(product["charged_gpu_ms"].as_u64() >= Some(seconds * gpus * 1000), "{product}");
    // What runs began before the site was created, and is charged from then on.
    let work = governed.work(&runs);
    let since = work["started_unix_ms"].as_u64().expect("its start");
    assert!(since.abs_diff(started * 1000) < 100, "{work:#}");
}
