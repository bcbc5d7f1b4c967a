//! Reports: an example worked out by hand (docs/reports.md), and what must hold of every period of any history.

#![allow(dead_code, reason = "the world is made for another test, too")]

#[path = "../replay/world.rs"]
mod world;

use bursar_site::record::{BudgetsChanged, Created, HostDoc, Outcome, SettingsDoc};
use bursar_site::report::{Asked, Begin, BudgetRow, Cause, Report};
use bursar_site::views::Wanted;
use bursar_site::{Body, Record, Site, declare};
use std::collections::BTreeMap;
use world::World;

const MINUTE: u64 = 60_000;
/// A GPU-hour.
const HOUR: u64 = 60 * MINUTE;

/// A site that is told what happens, minute by minute.
struct Script {
    site: Site,
    now_ms: u64,
}

impl Script {
    fn begin(rates_milli: BTreeMap<String, u64>) -> Self {
        let host =
            |at: u32| HostDoc { name: format!("h-{at}"), gpus: 4, model: "x".into(), domain: None };
        let created = Created {
            name: "lab".into(),
            site_id: None,
            unix_ms: 0,
            settings: SettingsDoc {
                lookback_ms: 6 * HOUR,
                horizon_ms: HOUR,
                reservation_age_ms: HOUR / 2,
                ..SettingsDoc::default()
            },
            hosts: (0..2).map(host).collect(),
            rates_milli,
        };
        let budgets = serde_saphyr::from_str(
            "a: {share: 3, members: [max, mia]}\nb: {share: 1, members: [bob]}",
        );
        let change = BudgetsChanged::first(budgets.expect("a tree"), "boss", "the first");
        let record = |seq, body| Record { seq, at_ms: 0, actor: None, body };
        let site =
            Site::new(&record(1, Body::Created(created)), &record(2, Body::BudgetsChanged(change)));
        Self { site: site.expect("it begins"), now_ms: 0 }
    }

    fn put(&mut self, body: Body) {
        let (seq, at_ms) = (self.site.seq() + 1, self.now_ms);
        self.site.apply(&Record { seq, at_ms, actor: None, body }).expect("it fits");
    }

    fn at(&mut self, minutes: u64, bodies: Vec<Body>) {
        self.now_ms = minutes * MINUTE;
        bodies.into_iter().for_each(|body| self.put(body));
        loop {
            self.site.plan(self.now_ms);
            self.site.planned(self.site.seq() + 1);
            let starts: Vec<(u64, u32)> = self
                .site
                .wanted()
                .filter(|(_, one, wanted)| *wanted == Wanted::Run && one.started_ms.is_none())
                .map(|(work, one, _)| (work.number, one.number))
                .collect();
            if starts.is_empty() {
                return;
            }
            for (workload, attempt) in starts {
                self.put(Body::Started { workload, attempt, since_ms: None });
            }
        }
    }

    fn submit(&self, user: &str, budget: &str, min_runtime: &str) -> Vec<Body> {
        let text = format!(
            "workload: {{name: w, gpus: 4, min_runtime: {min_runtime}, resumable: true, budget_owner: {budget}, command: [x]}}"
        );
        let workload = declare::read_workload(&text).expect("a workload");
        self.site.submit(user, workload, None, false).expect("it is taken").bodies
    }

    fn stopped(workload: u64, attempt: u32) -> Vec<Body> {
        let (ended_ms, exit_code, detail) = (None, Some(0), None);
        let outcome = Outcome::Completed;
        vec![Body::Stopped { workload, attempt, outcome, ended_ms, exit_code, detail, run: None }]
    }

    /// The example of docs/reports.md.
    fn play(rates_milli: BTreeMap<String, u64>) -> Self {
        let mut script = Self::begin(rates_milli);
        let works = script.submit("max", "a", "1h");
        script.at(0, works);
        let works = script.submit("bob", "b", "30m");
        script.at(30, works);
        let works = script.submit("mia", "a", "1h");
        script.at(60, works);
        script.at(90, Self::stopped(2, 1));
        let (host, reason) = ("h-1".to_owned(), "a fan".to_owned());
        script.at(135, vec![Body::HostDown { host: host.clone(), reason, by_engine: false }]);
        script.at(150, Self::stopped(1, 1));
        script.at(180, vec![Body::HostUp { host }]);
        script.at(240, Vec::new());
        script
    }
}

fn report(site: &Site, user: &str, span: (u64, u64), now_ms: u64) -> Report {
    let asked = Asked {
        begin: Begin::At(span.0),
        to_unix_ms: Some(span.1),
        now_ms,
        unix_ms: 0,
        user,
        budget: None,
        attempts: true,
    };
    site.facts(&asked).expect("a period").report()
}

fn row<'a>(report: &'a Report, path: &str) -> &'a BudgetRow {
    report.budgets.iter().find(|row| row.path == path).expect("a budget")
}

fn gpu_hours(row: &BudgetRow) -> [f64; 6] {
    let hours = |ms: u64| ms as f64 / HOUR as f64;
    [
        hours(row.allocation_gpu_ms),
        hours(row.demand_gpu_ms),
        hours(row.owed_gpu_ms),
        hours(row.sums.delivered_gpu_ms),
        hours(row.met_gpu_ms),
        hours(row.sums.lost_gpu_ms),
    ]
}

#[test]
fn the_example_worked_out_by_hand() {
    let site = Script::play(BTreeMap::new()).site;
    let told = report(&site, "boss", (75 * MINUTE, 225 * MINUTE), 240 * MINUTE);
    let cluster = told.cluster.as_ref().expect("the root's owner");
    let hours = |ms: u64| ms as f64 / HOUR as f64;
    assert_eq!(
        [
            hours(cluster.total_gpu_ms),
            hours(cluster.in_service_gpu_ms),
            hours(cluster.out_of_service_gpu_ms),
            hours(cluster.allocated_gpu_ms),
            hours(cluster.unallocated_gpu_ms),
            hours(cluster.idle_gpu_ms),
            hours(cluster.lost_gpu_ms),
        ],
        [20.0, 17.0, 3.0, 14.0, 0.0, 3.0, 3.0]
    );
    assert!(cluster.conservation_exact);
    assert_eq!(cluster.goodput, 11.0 / 17.0);
    assert_eq!(gpu_hours(row(&told, "a")), [12.75, 15.0, 11.25, 13.0, 11.25, 3.0]);
    assert_eq!(gpu_hours(row(&told, "b")), [4.25, 1.0, 1.0, 1.0, 1.0, 0.0]);
    assert_eq!(gpu_hours(row(&told, "")), [17.0, 16.0, 12.25, 14.0, 12.25, 3.0]);
    let a = row(&told, "a");
    assert_eq!((a.first_waits.count, a.first_waits.longest_ms), (1, 30 * MINUTE));
    assert_eq!((a.waited.count, a.waited.longest_ms), (1, 30 * MINUTE));
    assert_eq!(row(&told, "b").waited.count, 0);
    assert_eq!((a.sums.breaches.host_failure, a.sums.breaches.scheduler), (1, 0));
    assert_eq!((a.sums.workloads, a.sums.attempts, a.sums.preemptions), (2, 3, 0));
    let people: Vec<(&str, f64)> = told
        .people
        .iter()
        .map(|one| (one.user.as_str(), hours(one.sums.delivered_gpu_ms)))
        .collect();
    assert_eq!(people, [("bob", 1.0), ("max", 5.0), ("mia", 8.0)]);
    let lines = told.attempts.as_ref().expect("lines");
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[2].breach, Some(Cause::HostFailure));
    assert_eq!((lines[2].hosts.as_str(), lines[3].hosts.as_str()), ("h-1:4", "h-0:4"));
    // It goes on: nothing is said of its end.
    assert_eq!((lines[3].ended_unix_ms, lines[3].outcome), (None, None));
}

#[test]
fn rates_are_charged_and_owed() {
    let rates = BTreeMap::from([("x".to_owned(), 2_500)]);
    let site = Script::play(rates).site;
    let told = report(&site, "boss", (75 * MINUTE, 225 * MINUTE), 240 * MINUTE);
    assert_eq!(
        gpu_hours(row(&told, "a")),
        [12.75 * 2.5, 15.0 * 2.5, 11.25 * 2.5, 13.0 * 2.5, 11.25 * 2.5, 3.0]
    );
    assert_eq!(row(&told, "a").sums.used_gpu_ms, 13 * HOUR, "hours of GPUs, whatever they cost");
}

#[test]
fn everybody_is_told_what_they_may_see() {
    let site = Script::play(BTreeMap::new()).site;
    let told = report(&site, "max", (75 * MINUTE, 225 * MINUTE), 240 * MINUTE);
    assert_eq!(told.cluster, None);
    assert_eq!(told.budgets.iter().map(|row| row.path.as_str()).collect::<Vec<_>>(), ["a"]);
    assert_eq!(gpu_hours(row(&told, "a")), [12.75, 15.0, 11.25, 13.0, 11.25, 3.0]);
    let people: Vec<&str> = told.people.iter().map(|one| one.user.as_str()).collect();
    assert_eq!(people, ["max", "mia"]);
    let told = report(&site, "eve", (75 * MINUTE, 225 * MINUTE), 240 * MINUTE);
    assert!(told.budgets.is_empty() && told.people.is_empty() && told.cluster.is_none());
    let asked = |user, budget| Asked {
        begin: Begin::Last(HOUR),
        to_unix_ms: None,
        now_ms: 240 * MINUTE,
        unix_ms: 0,
        user,
        budget: Some(budget),
        attempts: false,
    };
    assert!(site.facts(&asked("max", "a")).is_ok());
    for (user, budget) in [("max", "b"), ("eve", "a"), ("boss", "c"), ("max", "")] {
        let refused = site.facts(&asked(user, budget)).expect_err("it is not for them");
        assert!(refused.message.contains("there is no budget"), "{refused}");
    }
    let told = site.facts(&asked("boss", "b")).expect("the root's owner").report();
    assert_eq!(told.budgets.len(), 1);
    assert!(told.cluster.is_none(), "one budget says nothing of the whole");
    let empty = Asked { to_unix_ms: Some(0), budget: None, ..asked("boss", "") };
    assert!(site.facts(&empty).is_err());
}

/// What of a row adds up over periods that follow each other.
fn additive(report: &Report) -> BTreeMap<String, [u64; 6]> {
    let all = report.budgets.iter().map(|row| {
        let sums = &row.sums;
        let parts = [
            sums.used_gpu_ms,
            sums.unallocated_gpu_ms,
            sums.delivered_gpu_ms,
            sums.lost_gpu_ms,
            sums.preemptions,
            sums.breaches.host_failure + sums.breaches.scheduler,
        ];
        (row.path.clone(), parts)
    });
    all.filter(|(_, parts)| parts.iter().any(|part| *part > 0)).collect()
}

#[test]
fn every_figure_is_a_sum_of_lines_and_periods_add_up() {
    let mut unallocated = 0;
    let mut preempted = 0;
    for seed in 0..40 {
        let world = World::play(seed, 250);
        let site = &world.site;
        let end = site.now_ms();
        let whole = report(site, "boss", (0, end), end);
        let lines = whole.attempts.as_ref().expect("lines");
        let root = row(&whole, "");
        // The ledger of the core knows the same.
        assert_eq!(u128::from(root.sums.delivered_gpu_ms), site.charged_gpu_ms(), "seed {seed}");
        for budget in &whole.budgets {
            let below = |path: &str| {
                let rest = path.strip_prefix(&budget.path);
                budget.path.is_empty()
                    || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            let own = || lines.iter().filter(|line| below(&line.budget));
            let sum = |of: fn(&bursar_site::report::AttemptRow) -> u64| own().map(of).sum::<u64>();
            assert_eq!(budget.sums.used_gpu_ms, sum(|line| line.used_gpu_ms));
            assert_eq!(budget.sums.delivered_gpu_ms, sum(|line| line.delivered_gpu_ms));
            assert_eq!(budget.sums.lost_gpu_ms, sum(|line| line.lost_gpu_ms));
            assert_eq!(budget.sums.attempts, own().count() as u64);
            assert!(budget.met_gpu_ms <= budget.owed_gpu_ms, "seed {seed}: {budget:?}");
            assert!(budget.owed_gpu_ms <= budget.demand_gpu_ms.min(budget.allocation_gpu_ms));
        }
        let used: u64 = whole.people.iter().map(|one| one.sums.used_gpu_ms).sum();
        assert_eq!(used, root.sums.used_gpu_ms, "seed {seed}");
        let cluster = whole.cluster.as_ref().expect("the root's owner");
        assert!(cluster.conservation_exact, "seed {seed}: {cluster:?}");
        // Cut anywhere.
        for part in [3, 5, 7] {
            let cut = end * part / 10 + part;
            let first = report(site, "boss", (0, cut), end);
            let second = report(site, "boss", (cut, end), end);
            let mut both = additive(&first);
            for (path, parts) in additive(&second) {
                let sums = both.entry(path).or_default();
                sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
            }
            assert_eq!(both, additive(&whole), "seed {seed}, cut at {cut}");
            let allocation = |report: &Report| row(report, "").allocation_gpu_ms;
            let parts = allocation(&first) + allocation(&second);
            // Each leaf's is rounded down, once a period.
            assert!(allocation(&whole).abs_diff(parts) <= 8, "seed {seed}");
        }
        unallocated += root.sums.unallocated_gpu_ms;
        preempted += root.sums.preemptions;
    }
    assert!(unallocated > 0 && preempted > 100, "{unallocated}, {preempted}");
}

/// A month that is over keeps its figures, whatever happens later.
#[test]
fn a_period_that_is_over_keeps_its_figures() {
    let mut compared = 0;
    for seed in 0..60 {
        let world = World::play(seed, 250);
        let records = &world.records;
        let mut site = Site::new(&records[0], &records[1]).expect("it begins");
        // What is heard of only later, as after a crash, is known then: the latest record after which nothing is heard of
        // from before it.
        let mut heard_ms = u64::MAX;
        let mut cut = None;
        for at in (records.len() / 4..records.len()).rev() {
            let of = match &records[at].body {
                Body::Started { since_ms, .. } => *since_ms,
                Body::Stopped { ended_ms, .. } => *ended_ms,
                Body::Found { since_ms, .. } => Some(*since_ms),
                _ => None,
            };
            heard_ms = heard_ms.min(of.unwrap_or(u64::MAX));
            if at < records.len() * 9 / 10 && records[at - 1].at_ms <= heard_ms {
                cut = Some(at);
                break;
            }
        }
        let Some(cut) = cut else { continue };
        for record in &records[2..cut] {
            site.apply(record).expect("a replay");
        }
        // What happens at the moment of the cut itself belongs to the next period.
        let end = site.now_ms();
        compared += 1;
        let then = report(&site, "boss", (0, end), end);
        let later = report(&world.site, "boss", (0, end), world.site.now_ms());
        for (then, later) in then.budgets.iter().zip(&later.budgets) {
            assert_eq!(then, later, "seed {seed}");
        }
        assert!(then == later, "seed {seed}");
    }
    assert!(compared > 3, "{compared}");
}
