//! How long a restart takes with a long journal: `cargo run --release -p bursar-server --example restart [RECORDS]`.
//!
//! Plays a site of 1,024 GPUs until its journal has a million records, then opens the data folder with the
//! latest snapshot, as a restart does, and without any, as the first start of a new binary does. Both check the
//! whole chain first, as `bursar up` does.

use bursar_engine::{LocalEngine, LocalOptions};
use bursar_server::daemon::StartOptions;
use bursar_server::{Daemon, SystemClock};
use bursar_site::record::{BudgetsChanged, Created, HostDoc, Outcome, SettingsDoc};
use bursar_site::views::Wanted;
use bursar_site::{Body, BudgetDoc, Record, Site, declare};
use bursar_store::{Check, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

const MINUTE: u64 = 60_000;
const BATCH: usize = 2_000;

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

struct Play {
    site: Site,
    store: Store,
    waiting: Vec<Record>,
    now_ms: u64,
    dice: Dice,
    /// When attempts end, and whose.
    ends: BTreeSet<(u64, u64, u32)>,
}

type Failure = Box<dyn std::error::Error>;

impl Play {
    fn begin(mut store: Store) -> Result<Self, Failure> {
        let host =
            |at: u32| HostDoc { name: format!("h-{at}"), gpus: 8, model: "x".into(), domain: None };
        let created = Created {
            name: "restart".into(),
            site_id: None,
            unix_ms: 1_700_000_000_000,
            settings: SettingsDoc::default(),
            hosts: (0..128).map(host).collect(),
            rates_milli: BTreeMap::new(),
        };
        let budgets: BTreeMap<String, BudgetDoc> = serde_json::from_str(
            r#"{"a": {"share": 2, "children": {"a1": {"share": 1}, "a2": {"share": 1}, "a3": {"share": 2}}}, "b": {"share": 1}, "c": {"share": 1}}"#,
        )?;
        let change = BudgetsChanged::first(budgets, "boss", "the first");
        let record = |seq, body| Record { seq, at_ms: 0, actor: None, body };
        let first = [record(1, Body::Created(created)), record(2, Body::BudgetsChanged(change))];
        store.append_records(&first)?;
        let site = Site::new(&first[0], &first[1])?;
        let (waiting, ends, dice) = (Vec::new(), BTreeSet::new(), Dice(42));
        Ok(Self { site, store, waiting, now_ms: 0, dice, ends })
    }

    fn put(&mut self, body: Body) -> Result<(), Failure> {
        let (seq, at_ms) = (self.site.seq() + 1, self.now_ms);
        let record = Record { seq, at_ms, actor: Some("boss".into()), body };
        self.site.apply(&record)?;
        self.waiting.push(record);
        Ok(())
    }

    fn submit(&mut self) -> Result<(), Failure> {
        let budget = ["a/a1", "a/a2", "a/a3", "b", "c"][self.dice.below(5) as usize];
        let gpus = [1, 1, 1, 2, 4, 8, 16][self.dice.below(7) as usize];
        let text = format!(
            "workload: {{name: w, gpus: {gpus}, min_runtime: 1h, resumable: true, checkpoint_interval: 10m, budget_owner: {budget}, command: [./train.sh, --seed, \"7\"]}}"
        );
        let submission = self.site.submit("boss", declare::read_workload(&text)?, None, false)?;
        submission.bodies.into_iter().try_for_each(|body| self.put(body))
    }

    fn step(&mut self) -> Result<(), Failure> {
        let arrival = self.now_ms + self.dice.below(15 * MINUTE);
        let next = self.ends.first().map_or(arrival, |&(at, ..)| at.min(arrival));
        let wake = self.site.next_wake_ms().unwrap_or(u64::MAX);
        self.now_ms = next.min(wake).max(self.now_ms);
        if self.now_ms == arrival {
            self.submit()?;
        }
        while let Some(&(at, workload, attempt)) =
            self.ends.first().filter(|end| end.0 <= self.now_ms)
        {
            self.ends.remove(&(at, workload, attempt));
            self.stop(workload, attempt, Outcome::Completed)?;
        }
        let wanted: Vec<(u64, u32, bool, Wanted)> = self
            .site
            .wanted()
            .map(|(work, one, wanted)| (work.number, one.number, one.started_ms.is_some(), wanted))
            .collect();
        for (workload, attempt, runs, wanted) in wanted {
            match wanted {
                Wanted::Run if !runs => {
                    let ends = self.now_ms + 20 * MINUTE + self.dice.below(240 * MINUTE);
                    self.ends.insert((ends, workload, attempt));
                    self.put(Body::Started { workload, attempt, since_ms: None })?;
                }
                Wanted::Run => {}
                Wanted::Leave { .. } | Wanted::Stop { .. } => {
                    self.ends.retain(|&(_, one, _)| one != workload);
                    self.stop(workload, attempt, Outcome::Left)?;
                }
            }
        }
        let planned = self.site.plan(self.now_ms);
        let body = Body::Planned { decisions: planned.decisions, hash: planned.hash };
        let seq = self.site.seq() + 1;
        self.waiting.push(Record { seq, at_ms: self.now_ms, actor: None, body });
        self.site.planned(seq);
        if self.waiting.len() >= BATCH {
            self.write()?;
        }
        Ok(())
    }

    fn stop(&mut self, workload: u64, attempt: u32, outcome: Outcome) -> Result<(), Failure> {
        let (ended_ms, exit_code, detail) = (None, Some(0), None);
        self.put(Body::Stopped {
            workload,
            attempt,
            outcome,
            ended_ms,
            exit_code,
            detail,
            run: None,
        })
    }

    fn write(&mut self) -> Result<(), Failure> {
        self.store.append_records(&self.waiting)?;
        self.waiting.clear();
        Ok(())
    }
}

/// [`bursar_server::Journal::append`], whose name the store has, too.
trait AppendRecords {
    fn append_records(&mut self, records: &[Record]) -> Result<(), Failure>;
}

impl AppendRecords for Store {
    fn append_records(&mut self, records: &[Record]) -> Result<(), Failure> {
        Ok(bursar_server::Journal::append(self, records)?)
    }
}

fn open(data: &Path, label: &str) -> Result<f64, Failure> {
    let begun = Instant::now();
    let store = Store::open_or_create(data.join("site"), Check::Full)?;
    let engine = LocalEngine::open(&data.join("engine"), LocalOptions::new(vec!["true".into()]))?;
    let options = StartOptions {
        watches: false,
        reads_past_first: false,
        checkpoint_root: data.join("checkpoints"),
        log_bytes_max: 1,
        log_files_max: 1,
        accounts: bursar_server::accounts::Accounts::default(),
        snapshot_every: u64::MAX,
        report_key: None,
        account_budgets: bursar_server::arrivals::AccountBudgets::default(),
        numbers_from: 0,
        queue: bursar_server::queue::QueueLimits::default(),
        keep_logs: std::time::Duration::from_secs(86_400),
    };
    let clock = |site: &Site| {
        SystemClock::open(
            data,
            site.created.unix_ms,
            site.now_ms(),
            bursar_server::clock::Jump::Refused,
        )
    };
    let daemon = Daemon::open(store, engine, clock, options, Vec::new)?;
    let took = begun.elapsed().as_secs_f64();
    println!("{label:45} {took:8.2} s, at record {}", daemon.site().seq());
    Ok(took)
}

fn main() -> Result<(), Failure> {
    let records: u64 = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse())?;
    let data = tempfile::tempdir()?;
    let store = Store::open_or_create(data.path().join("site"), Check::Tail)?;
    let mut play = Play::begin(store)?;
    // The daemon takes one every 100,000 records; a restart folds at most these.
    let last = records.saturating_sub(100_000);
    let (mut bytes, begun) = (None, Instant::now());
    while play.site.seq() < records {
        play.step()?;
        if bytes.is_none() && play.site.seq() >= last {
            play.write()?;
            let begun = Instant::now();
            let snapshot = play.site.snapshot();
            let seq = play.site.seq();
            bursar_server::Journal::put_snapshot(&mut play.store, seq, &snapshot)?;
            println!("{:45} {:8.2} s", "keeping a snapshot", begun.elapsed().as_secs_f64());
            bytes = Some(snapshot.len());
        }
    }
    play.write()?;
    println!(
        "{} records, {} workloads, played in {:.1} s; snapshot of {} bytes before packing",
        play.site.seq(),
        play.site.works().count(),
        begun.elapsed().as_secs_f64(),
        bytes.unwrap_or(0)
    );
    drop(play);
    let with = open(data.path(), "opened from the snapshot")?;
    let mut store = Store::open_or_create(data.path().join("site"), Check::Tail)?;
    let head = store.head().seq;
    // One of other code is not used.
    bursar_server::Journal::put_snapshot(&mut store, head, b"\x91\xa5other")?;
    bursar_server::Journal::put_snapshot(&mut store, head, b"\x91\xa5other")?;
    drop(store);
    let without = open(data.path(), "opened by folding the whole journal")?;
    println!("the snapshot makes a restart {:.0} times as quick", without / with);
    Ok(())
}
