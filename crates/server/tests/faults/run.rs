//! One seeded run: people, faults, and what must hold at every step.

use crate::fakes::{Dice, Job, JobStage, Outside, Ran, World};
use bursar_engine::{AttemptKey, HostFacts};
use bursar_server::daemon::StartOptions;
use bursar_server::{Daemon, Failure};
use bursar_site::record::{BudgetsChanged, Created, HostDoc, Outcome, SettingsDoc};
use bursar_site::{Attempt, Body, Ending, Record, Stage, declare};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const MINUTE: u64 = 60_000;

/// What happened in a run, to be sure that it was worth running.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) crashes: u64,
    pub(crate) journal_failures: u64,
    pub(crate) engine_failures: u64,
    pub(crate) never_started: u64,
    pub(crate) evictions: u64,
    pub(crate) completed: u64,
    pub(crate) cancelled: u64,
    /// Charges that had to be what the engine saw, to the millisecond.
    pub(crate) exact: u64,
    pub(crate) exact_gpu_ms: u64,
    /// Work that was found running.
    pub(crate) found: u64,
    /// Runs that were over before they were claimed, and charged exactly.
    pub(crate) unseen: u64,
    pub(crate) hosts_lost: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, other: &Self) {
        self.crashes += other.crashes;
        self.journal_failures += other.journal_failures;
        self.engine_failures += other.engine_failures;
        self.never_started += other.never_started;
        self.evictions += other.evictions;
        self.unseen += other.unseen;
        self.completed += other.completed;
        self.cancelled += other.cancelled;
        self.exact += other.exact;
        self.exact_gpu_ms += other.exact_gpu_ms;
        self.found += other.found;
        self.hosts_lost += other.hosts_lost;
    }
}

type Alive = Daemon<World, World, World>;

fn first() -> Vec<Body> {
    let host =
        |at: u32| HostDoc { name: format!("h-{at}"), gpus: 4, model: "x".into(), domain: None };
    let settings = SettingsDoc {
        lookback_ms: 6 * 60 * MINUTE,
        horizon_ms: 60 * MINUTE,
        reservation_age_ms: 30 * MINUTE,
        ..SettingsDoc::default()
    };
    let created = Created {
        name: "test".into(),
        site_id: None,
        unix_ms: 1_700_000_000_000,
        settings,
        hosts: (0..3).map(host).collect(),
        rates_milli: BTreeMap::new(),
    };
    let budgets = serde_json::from_str(
        r#"{"a": {"share": 2, "children": {"a1": {"share": 1}, "a2": {"share": 1}}}, "b": {"share": 1}}"#,
    )
    .expect("a tree");
    let change = BudgetsChanged::first(budgets, "boss", "first");
    vec![Body::Created(created), Body::BudgetsChanged(change)]
}

fn open(world: &World) -> Result<Alive, Failure> {
    let options = StartOptions {
        watches: false,
        reads_past_first: false,
        checkpoint_root: "/nowhere".into(),
        log_bytes_max: 1,
        log_files_max: 1,
        accounts: bursar_server::accounts::Accounts::default(),
        snapshot_every: 15,
        report_key: None,
        numbers_from: 0,
        queue: bursar_server::queue::QueueLimits::default(),
        keep_logs: std::time::Duration::from_secs(86_400),
        account_budgets: bursar_server::arrivals::AccountBudgets::default(),
    };
    Daemon::open(world.clone(), world.clone(), |_| Ok(world.clone()), options, first)
}

fn open_again(world: &World) -> Alive {
    // What fails at the start is tried again, as a supervisor of services does.
    (0..100).find_map(|_| open(world).ok()).expect("it opens at last")
}

/// Plays a run and returns what happened.
pub(crate) fn play(seed: u64, queue: bool) -> Seen {
    let outside = Outside {
        dice: Dice::new(seed + 1),
        now_ms: 0,
        behind_ms: 0,
        jumps: Vec::new(),
        faulty: false,
        records: Vec::new(),
        processes: BTreeMap::new(),
        forgotten: Vec::new(),
        snapshots: None,
        journal_failures: 0,
        engine_failures: 0,
        never_started: 0,
        jobs: queue.then(BTreeMap::new),
        found: 0,
        ran: Vec::new(),
        hosts: (0..3)
            .map(|at| HostFacts {
                name: format!("h-{at}"),
                gpus: 4,
                model: "x".into(),
                healthy: true,
                cordoned: false,
                closed: None,
            })
            .collect(),
        hosts_lost: 0,
    };
    let world = World(Arc::new(Mutex::new(outside)));
    let mut daemon = open_again(&world);
    world.lock().faulty = true;
    let (mut dice, mut seen) = (Dice::new(seed + 7_000), Seen::default());
    let mut acknowledged: Vec<u64> = Vec::new();
    for _ in 0..150 {
        pass_time(&world, &mut dice);
        people_use_the_queue(&world, &mut dice);
        hosts_fail(&world, &mut dice);
        for _ in 0..dice.below(3) {
            for record in request(&mut daemon, &mut dice).unwrap_or_default() {
                if let Body::Submitted(submitted) = record.body {
                    acknowledged.push(submitted.workload);
                }
            }
        }
        // A round that fails is followed by another.
        let _ = daemon.round();
        if dice.one_in(12) {
            seen.crashes += 1;
            // What was in memory is gone, and the clock may be behind by then.
            drop(daemon);
            if dice.one_in(3) {
                let mut outside = world.lock();
                let now = outside.now_ms;
                outside.behind_ms = (outside.behind_ms + dice.below(MINUTE)).min(now);
                outside.jumps.push(now);
            }
            daemon = open_again(&world);
        }
        assert_safe(&daemon, &acknowledged, seed);
    }
    {
        let mut outside = world.lock();
        outside.faulty = false;
        for host in &mut outside.hosts {
            (host.healthy, host.closed) = (true, None);
        }
    }
    come_to_the_end(&world, daemon, &acknowledged, &mut seen, seed);
    let outside = world.lock();
    seen.journal_failures = outside.journal_failures;
    seen.engine_failures = outside.engine_failures;
    seen.never_started = outside.never_started;
    seen.found = outside.found;
    seen.hosts_lost = outside.hosts_lost;
    seen
}

/// Hosts fail and come back; the engine's operators close them and open them.
fn hosts_fail(world: &World, dice: &mut Dice) {
    let mut outside = world.lock();
    let at = dice.below(3) as usize;
    let ill = outside.hosts.iter().any(|host| !host.healthy);
    if dice.one_in(if ill { 4 } else { 40 }) {
        let at = outside.hosts.iter().position(|host| !host.healthy).unwrap_or(at);
        outside.fail_or_repair(at);
    }
    if dice.one_in(25) {
        let closed = &mut outside.hosts[at].closed;
        *closed = if closed.is_some() { None } else { Some("fans".into()) };
    }
}

/// What happens in the engine's own queue, if it has one: jobs come, are cancelled there, and are started there.
fn people_use_the_queue(world: &World, dice: &mut Dice) {
    let mut outside = world.lock();
    let now = outside.now_ms;
    let Outside { jobs, ran, .. } = &mut *outside;
    let Some(jobs) = jobs else { return };
    for _ in 0..dice.below(3) {
        let declared = [("min-runtime", ["0", "5m", "1200", "1h"][dice.below(4) as usize])];
        let mut declared: BTreeMap<String, String> =
            declared.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let resumable = dice.below(3) > 0;
        if resumable {
            declared.insert("resumable".into(), "1".into());
        }
        if dice.one_in(20) {
            // Never taken in.
            declared.insert("min-runtime".into(), "9h".into());
        }
        let job = Job {
            gpus: [1, 1, 2, 4, 8][dice.below(5) as usize],
            resumable,
            declared,
            account: ["a1", "a2", "b"][dice.below(3) as usize],
            submitted: now,
            stage: JobStage::Waits,
        };
        jobs.insert(format!("{now}.{}", jobs.len()), job);
    }
    if dice.one_in(4) {
        let at = dice.below(jobs.len().max(1) as u64) as usize;
        if let Some((name, job)) = jobs.iter_mut().nth(at)
            && !matches!(job.stage, JobStage::Claimed(_))
        {
            if let JobStage::Runs(since, _, place) = job.stage.clone() {
                ran.push(Ran::new(name, since, now, place));
            }
            job.stage = JobStage::Gone;
        }
    }
    if dice.one_in(3) {
        let host = format!("h-{}", dice.below(3));
        outside.start_elsewhere(&host);
    }
}

fn pass_time(world: &World, dice: &mut Dice) {
    let now = world.lock().now_ms;
    // Mostly seconds, at times minutes, seldom a jump of hours.
    let span = match dice.below(20) {
        0 => 3 * 60 * MINUTE,
        1..=5 => 15 * MINUTE,
        _ => 5_000,
    };
    world.advance(now + dice.below(span));
}

fn request(daemon: &mut Alive, dice: &mut Dice) -> Result<Vec<Record>, Failure> {
    let number = 1 + dice.below(daemon.site().next_number());
    let host = format!("h-{}", dice.below(3));
    let kind = dice.below(17);
    let budget = ["a/a1", "a/a2", "b"][dice.below(3) as usize];
    let gpus = [1, 1, 2, 4, 8][dice.below(5) as usize];
    let minutes = [0, 5, 20, 60][dice.below(4) as usize];
    let (rank, resumable) = (dice.below(2), dice.below(3) > 0);
    let share = dice.below(4);
    let array = if dice.one_in(8) { ", array: 0-2%1" } else { "" };
    if kind > 5 {
        let text = format!(
            "workload: {{name: w, gpus: {gpus}, min_runtime: {minutes}m, resumable: {resumable}, rank: {rank}, budget_owner: {budget}, command: [x]{array}}}"
        );
        let doc = declare::read_workload(&text).expect("a workload");
        let asked = daemon.ask_for("boss", |site| {
            let submission = site.submit("boss", doc, None, false)?;
            Ok((submission.bodies, submission.workload))
        });
        let (records, number) = asked?;
        for (record, number) in records.iter().zip(number..) {
            let Body::Submitted(submitted) = &record.body else { panic!("a submission") };
            assert_eq!(submitted.workload, number, "what is told is what is journaled");
        }
        return Ok(records);
    }
    let later = daemon.site().now_ms() + 1 + dice.below(30 * MINUTE);
    let record = daemon.ask("boss", |site| match kind {
        3 => site.requeue("boss", number),
        0 => site.cancel("boss", number),
        1 => site.drain("boss", &host, "test"),
        2 => site.undrain("boss", &host),
        _ => {
            let mut tree = site.budgets.tree.clone();
            tree.get_mut("b").expect("b").share = bursar_site::budgets::Share(share * 1_000_000);
            let base = site.budgets.version;
            match kind {
                4 => site.change_budgets("boss", base, tree, None, "they change"),
                _ => site.schedule_budgets("boss", base, tree, None, "they change soon", later),
            }
        }
    });
    record.map(|record| vec![record])
}

fn assert_safe(daemon: &Alive, acknowledged: &[u64], seed: u64) {
    let site = daemon.site();
    for number in acknowledged {
        assert!(site.work(*number).is_some(), "seed {seed}: workload {number} is lost");
    }
    for work in site.works() {
        for attempt in &work.attempts {
            if let (Some(eviction), Some(until)) = (&attempt.eviction, attempt.protected_until_ms) {
                assert!(
                    !attempt.allocated || eviction.at_ms >= until,
                    "seed {seed}: workload {} was promised to stay until {until}: {attempt:?}",
                    work.number
                );
            }
        }
    }
}

/// Whether a job of the engine's own queue is over, or was refused.
fn is_settled(job: &Job) -> bool {
    job.stage == JobStage::Gone || job.declared["min-runtime"] == "9h"
}

/// Rule 2: an attempt is charged as long as its engine saw it run, whenever that was heard of.
fn assert_charged_as_seen(outside: &Outside, number: u64, attempt: &Attempt, seen: &mut Seen) {
    let key = AttemptKey::new(number.to_string(), attempt.number).expect("a key");
    let Some(process) = outside.processes.get(&key) else {
        // Nobody was told of it before it was cancelled; or it was found running, and ended before it was claimed.
        let found = attempt.reason.contains("started elsewhere");
        assert!(found || (attempt.started_ms, attempt.charged_gpu_ms) == (None, 0), "{attempt:?}");
        return;
    };
    let (ended, _) = process.ended.as_ref().expect("it has ended");
    let ran = if attempt.allocated { ended.saturating_sub(process.starts_at) } else { 0 };
    let truth = attempt.gpus() * ran;
    // While the site's clock is behind what it has said already, it stands: nothing can be charged then.
    let heard = process.heard_at.expect("heard");
    // What was heard is written down in that round; in the next, if the journal failed in between.
    let standing = process.starts_at.saturating_sub(10 * MINUTE)..=heard + MINUTE;
    if outside.jumps.iter().any(|jump| standing.contains(jump)) {
        let most = attempt.gpus() * outside.behind_ms;
        assert!(attempt.charged_gpu_ms <= truth, "{attempt:?} {process:?}");
        assert!(truth - attempt.charged_gpu_ms <= most, "{attempt:?} {process:?}");
    } else {
        assert_eq!(
            attempt.charged_gpu_ms, truth,
            "jumps {:?} {attempt:?} {process:?}",
            outside.jumps
        );
        seen.exact += u64::from(truth > 0);
        seen.exact_gpu_ms += truth;
    }
}

/// Whatever ran in the engine's own queue is in the books, once, for as long as it ran.
fn assert_all_runs_are_charged(world: &World, daemon: &Alive, seen: &mut Seen, seed: u64) {
    let outside = world.lock();
    for ran in &outside.ran {
        if outside.jobs.as_ref().expect("it has a queue")[&ran.job].declared["min-runtime"] == "9h"
        {
            continue;
        }
        assert!(ran.taken, "seed {seed}: nobody heard of {ran:?}");
        let work = daemon.site().arrival(&ran.job);
        let work = work.unwrap_or_else(|| panic!("seed {seed}: nobody is charged for {ran:?}"));
        // Those that the engine knows as attempts are looked at elsewhere.
        let is_adopted = |one: &&Attempt| {
            let key = AttemptKey::new(work.number.to_string(), one.number).expect("a key");
            outside.processes.contains_key(&key)
        };
        let elsewhere = work.attempts.iter().filter(|one| one.reason.contains("started elsewhere"));
        let elsewhere: Vec<&Attempt> = elsewhere.filter(|one| !is_adopted(one)).collect();
        // By our books it ran until its host failed, which was heard of before.
        let with_host = |one: &&Attempt| one.outcome == Some(Outcome::Lost) && one.detail.is_none();
        if elsewhere.iter().any(with_host) {
            continue;
        }
        let spans: Vec<u64> =
            elsewhere.iter().filter_map(|one| Some(one.ended_ms? - one.started_ms?)).collect();
        let jumps = &outside.jumps;
        assert!(!spans.is_empty(), "seed {seed}: jumps {jumps:?}: {ran:?}: {work:?}");
        // A host that fails takes all with it for us when we hear of it; and while the site's clock stands, nothing is
        // charged.
        let standing = ran.since.saturating_sub(10 * MINUTE)..=ran.ended + 60 * MINUTE;
        if ran.with_host || outside.jumps.iter().any(|jump| standing.contains(jump)) {
            continue;
        }
        let runs = outside.ran.iter().filter(|other| other.job == ran.job).count();
        let is_exact = spans.len() == runs && spans.contains(&(ran.ended - ran.since));
        assert!(is_exact, "seed {seed}: jumps {jumps:?}: {ran:?}: {work:?}");
        seen.unseen += 1;
    }
}

fn come_to_the_end(
    world: &World,
    mut daemon: Alive,
    acknowledged: &[u64],
    seen: &mut Seen,
    seed: u64,
) {
    for host in ["h-0", "h-1", "h-2"] {
        let _ = daemon.ask("boss", |site| site.undrain("boss", host));
    }
    let _ = daemon.ask("boss", |site| {
        let mut tree = site.budgets.tree.clone();
        tree.get_mut("b").expect("b").share = bursar_site::budgets::Share(1_000_000);
        site.change_budgets("boss", site.budgets.version, tree, None, "healed")
    });
    for _ in 0..20_000 {
        let wake = daemon.round().expect("nothing fails any more");
        if daemon.site().works().all(|work| matches!(work.stage, Stage::Ended(_)))
            && world.lock().jobs.iter().flat_map(BTreeMap::values).all(is_settled)
            && world.lock().ran.iter().all(|ran| ran.taken)
        {
            break;
        }
        let (now, behind) = {
            let outside = world.lock();
            (outside.now_ms, outside.behind_ms)
        };
        let wake = wake.map(|at| at + behind);
        let ends: Vec<u64> = {
            let outside = world.lock();
            let alive = outside.processes.values().filter(|process| process.ended.is_none());
            alive.flat_map(|process| [process.starts_at, process.ends_at]).collect()
        };
        let next = ends.into_iter().chain(wake).filter(|&at| at > now).min();
        world.advance(next.unwrap_or(now + 1_000));
    }
    assert_safe(&daemon, acknowledged, seed);
    let mut charged = 0;
    for work in daemon.site().works() {
        match work.stage {
            Stage::Ended(Ending::Completed) => seen.completed += 1,
            Stage::Ended(Ending::Cancelled) => seen.cancelled += 1,
            Stage::Ended(_) => {}
            Stage::Waits | Stage::Live(_) => {
                panic!("seed {seed}: {work:?} does not come to an end")
            }
        }
        let failed = work.stage == Stage::Ended(Ending::Failed);
        let ran = work.attempts.iter().any(|attempt| attempt.started_ms.is_some());
        assert!(!failed || ran, "seed {seed}: failed without a try: {work:?}");
        charged += work.charged_gpu_ms();
        for attempt in &work.attempts {
            assert_charged_as_seen(&world.lock(), work.number, attempt, seen);
        }
        let evicted = work.attempts.iter().filter(|attempt| attempt.eviction.is_some());
        seen.evictions += evicted.count() as u64;
    }
    assert_eq!(u128::from(charged), daemon.site().charged_gpu_ms(), "seed {seed}: rule 12");
    for (name, job) in world.lock().jobs.iter().flatten() {
        // What was there for longer than a moment was taken in, once, unless it was refused; and it is over.
        assert!(is_settled(job), "seed {seed}: job {name} is left: {job:?}");
        let ours = daemon
            .site()
            .arrivals()
            .filter(|work| work.arrived.as_ref().is_some_and(|arrived| arrived.name == *name));
        assert!(ours.count() <= 1, "seed {seed}: job {name} was taken in twice");
    }
    assert_all_runs_are_charged(world, &daemon, seen, seed);
    // One last round lets the engine forget; then what ran and what was journaled must be the same.
    daemon.round().expect("nothing fails");
    let outside = world.lock();
    for (key, process) in &outside.processes {
        assert!(process.ended.is_some(), "seed {seed}: {key:?} runs on unseen");
        assert!(outside.forgotten.contains(key), "seed {seed}: {key:?} is not forgotten");
    }
    drop(outside);
    let again = open(world).expect("it opens");
    // As it was, from the latest snapshot, and from the first record on: the same to the byte.
    let bytes = again.site().snapshot();
    assert!(world.lock().snapshots.take().is_some(), "seed {seed}: a snapshot was kept");
    let whole = open(world).expect("it opens");
    assert!(bytes == whole.site().snapshot(), "seed {seed}: the snapshot is not the replay");
    let shown = |daemon: &Alive| {
        let works: Vec<_> = daemon.site().works().collect();
        format!("{works:?} {:?}", daemon.site().budget_views("boss"))
    };
    assert_eq!(
        shown(&daemon),
        shown(&again),
        "seed {seed}: state after recovery is not the replay"
    );
}
