//! A seeded world: requests and an engine, played into a site and its journal.

use bursar_site::budgets::Share;
use bursar_site::funding::HowMuch;
use bursar_site::record::{BudgetsChanged, Created, HostDoc, Outcome, SettingsDoc};
use bursar_site::terms::Every;
use bursar_site::views::Wanted;
use bursar_site::{Body, BudgetDoc, Record, Site, declare};
use std::collections::BTreeMap;

const MINUTE: u64 = 60_000;

/// A small generator of numbers; the same on every machine.
pub(crate) struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A site, its journal, and an engine that does what is wanted when it likes.
pub(crate) struct World {
    /// The site.
    pub(crate) site: Site,
    /// Its journal.
    pub(crate) records: Vec<Record>,
    dice: Dice,
    now_ms: u64,
    /// Attempts that the engine runs.
    running: BTreeMap<(u64, u32), ()>,
}

fn tree(text: &str) -> BTreeMap<String, BudgetDoc> {
    serde_saphyr::from_str(text).expect("a tree")
}

impl World {
    /// Plays so many steps.
    pub(crate) fn play(seed: u64, steps: u64) -> Self {
        let host = |at: u32| HostDoc {
            name: format!("h-{at}"),
            gpus: 4,
            model: if at < 3 { "x" } else { "y" }.into(),
            domain: None,
        };
        let settings = SettingsDoc {
            lookback_ms: 6 * 60 * MINUTE,
            horizon_ms: 60 * MINUTE,
            reservation_age_ms: 30 * MINUTE,
            ..SettingsDoc::default()
        };
        let created = Created {
            name: "test".into(),
            site_id: None,
            unix_ms: 0,
            settings,
            hosts: (0..4).map(host).collect(),
            rates_milli: BTreeMap::new(),
        };
        let budgets = tree(
            "a: {share: 2, owners: [ann], children: {a1: {share: 1}, a2: {share: 1}}}\nb: {share: 1}",
        );
        let change = BudgetsChanged::first(budgets, "boss", "the first");
        let record = |seq, body| Record { seq, at_ms: 0, actor: Some("boss".into()), body };
        let records =
            vec![record(1, Body::Created(created)), record(2, Body::BudgetsChanged(change))];
        let site = Site::new(&records[0], &records[1]).expect("it begins");
        let dice = Dice(seed.wrapping_mul(77) + 5);
        let mut world = Self { site, records, dice, now_ms: 0, running: BTreeMap::new() };
        for _ in 0..steps {
            world.step();
        }
        world
    }

    fn put(&mut self, body: Body) {
        self.put_by("boss", body);
    }

    fn put_by(&mut self, actor: &str, body: Body) {
        let seq = self.records.len() as u64 + 1;
        let record = Record { seq, at_ms: self.now_ms, actor: Some(actor.into()), body };
        self.site.apply(&record).unwrap_or_else(|error| panic!("{error}: {record:?}"));
        self.records.push(record);
    }

    /// As the daemon: some records, then a plan that is journaled.
    fn step(&mut self) {
        // Time passes: to the next moment that the core names, or by some minutes.
        let wake = self.site.next_wake_ms().filter(|_| self.dice.below(3) == 0);
        let passes = self.now_ms + self.dice.below(12 * MINUTE);
        self.now_ms = wake.map_or(passes, |wake| wake.clamp(self.now_ms, passes));
        for _ in 0..self.dice.below(3) {
            self.request();
        }
        self.act();
        // What has ended has left room that nobody was given yet.
        if self.dice.below(4) == 0 {
            self.find_running();
        }
        if let Some(body) = self.site.due_terms(self.now_ms) {
            self.put(body);
        }
        while let Some((author, body)) = self.site.due_change(self.now_ms) {
            self.put_by(&author, body);
        }
        let planned = self.site.plan(self.now_ms);
        let seq = self.records.len() as u64 + 1;
        let body = Body::Planned { decisions: planned.decisions, hash: planned.hash };
        let record = Record { seq, at_ms: self.now_ms, actor: None, body };
        for work in self.site.works() {
            let open = work.latest().filter(|one| one.ended_ms.is_none());
            if let (Some(by), Some(started)) =
                (work.requeue_by_ms, open.and_then(|one| one.started_ms))
            {
                assert!(
                    by >= started,
                    "{} is to leave for what its last attempt was asked",
                    work.number
                );
            }
        }
        // The site has planned already; only its place in the journal is new.
        self.site.planned(seq);
        self.records.push(record);
    }

    fn request(&mut self) {
        let body = match self.dice.below(19) {
            15 => self.transfer(),
            16 => return self.ask_or_decide(),
            12 | 13 => {
                let number = 1 + self.dice.below(self.site.next_number());
                self.site.requeue("boss", number)
            }
            14 => {
                let held = self.site.works().find(|work| work.held.is_some());
                let number = held.map_or(0, |work| work.number);
                self.site.release_held("boss", number)
            }
            0 => {
                let number = 1 + self.dice.below(self.site.next_number());
                self.site.cancel("boss", number)
            }
            1 => {
                let host = format!("h-{}", self.dice.below(4));
                match self.dice.below(3) {
                    0 => self.site.drain("boss", &host, "test"),
                    _ => self.site.undrain("boss", &host),
                }
            }
            2 => {
                let shares = [self.dice.below(4), self.dice.below(4), self.dice.below(3)];
                let extra = if self.dice.below(2) == 0 { ", a3: {share: 1}" } else { "" };
                let terms = [
                    "",
                    ", terms: [{each: day, limit: 20, carry_over: true}]",
                    ", terms: [{each: day, limit: 30}, {from: 1970-01-01T10:00:00Z, until: 1970-01-02T03:30:00Z, limit: 12.5}]",
                ];
                let term = |dice: &mut Dice| terms[dice.below(3) as usize];
                let dice = &mut self.dice;
                let (a, a1, a2) = (term(dice), term(dice), term(dice));
                let text = format!(
                    "a: {{share: 2, owners: [ann]{a}, children: {{a1: {{share: {}{a1}}}, a2: {{share: {}{a2}}}{extra}}}}}\nb: {{share: {}}}",
                    shares[0], shares[1], shares[2]
                );
                let base = self.site.budgets.version;
                let later = self.now_ms + self.dice.below(40 * MINUTE);
                match self.dice.below(2) {
                    0 => self.site.change_budgets("boss", base, tree(&text), None, "they change"),
                    _ => self.site.schedule_budgets("boss", base, tree(&text), None, "soon", later),
                }
            }
            _ => {
                let budgets = ["a/a1", "a/a2", "a/a3", "b"];
                let budget = budgets[self.dice.below(4) as usize];
                let gpus = [1, 1, 2, 3, 4, 8][self.dice.below(6) as usize];
                let minutes = [0, 5, 20, 60][self.dice.below(4) as usize];
                let resumable = self.dice.below(3) > 0;
                let after = match self.dice.below(8) {
                    0 if self.site.next_number() > 1 => {
                        let number = 1 + self.dice.below(self.site.next_number() - 1);
                        format!(", after: [{{workload: {number}, when: any}}]")
                    }
                    _ => String::new(),
                };
                let rank = self.dice.below(2);
                let array = match self.dice.below(12) {
                    0 => ", array: 0-4%2",
                    1 => ", array: \"2,7\"",
                    _ => "",
                };
                let hold = self.dice.below(20) == 0;
                let text = format!(
                    "workload: {{name: w, gpus: {gpus}, min_runtime: {minutes}m, resumable: {resumable}, budget_owner: {budget}, rank: {rank}, command: [x]{after}{array}}}"
                );
                let doc = declare::read_workload(&text).expect("a workload");
                let done = self.site.submit("boss", doc, None, hold);
                for body in done.map_or(vec![], |done| done.bodies) {
                    self.put(body);
                }
                return;
            }
        };
        // What is refused is not journaled: that is the point of asking first.
        if let Ok(body) = body {
            self.put(body);
        }
    }

    fn transfer(&mut self) -> Result<Body, bursar_site::Refused> {
        let (from, to) = match self.dice.below(2) {
            0 => ("a/a1", "a/a2"),
            _ => ("a/a2", "a/a1"),
        };
        let hours = 0.5 + self.dice.below(8) as f64;
        self.site.transfer("ann", from, to, hours, Some(Every::Day), "it needs it")
    }

    /// Somebody asks for funding, or an owner decides on it.
    fn ask_or_decide(&mut self) {
        let open = self.site.funding_for("boss").find(|one| one.decision.is_none());
        let Some(id) = open.map(|one| one.id) else {
            let budget = ["a/a1", "a/a3", "b"][self.dice.below(3) as usize];
            let amount = 1 + self.dice.below(9);
            let wanted = match self.dice.below(2) {
                0 => HowMuch { share: Some(Share(amount * 500_000)), gpus: None },
                _ => HowMuch { share: None, gpus: Some(amount as f64 / 2.0) },
            };
            let later = (self.dice.below(3) == 0).then(|| self.now_ms + 20 * MINUTE);
            if let Ok(body) = self.site.ask_funding("boss", budget, wanted, later, "more") {
                self.put(body);
            }
            return;
        };
        let bodies = match self.dice.below(4) {
            0 => self.site.decline_funding("boss", id, "no").map(|body| vec![body]),
            1 => self.site.withdraw_funding("boss", id).map(|body| vec![body]),
            _ => self.site.grant_funding("boss", id, None, "yes"),
        };
        for body in bodies.unwrap_or_default() {
            self.put(body);
        }
    }

    /// Somebody else started one that waits.
    fn find_running(&mut self) {
        let waits = |work: &&bursar_site::Work| {
            matches!(work.stage, bursar_site::Stage::Live(_))
                && work.latest().is_none_or(|latest| latest.ended_ms.is_some())
        };
        let Some(work) = self.site.works().find(waits) else { return };
        let (number, gpus) = (work.number, work.declared.gpus);
        let host = format!("h-{}", self.dice.below(4));
        let since = self.now_ms.saturating_sub(self.dice.below(20 * MINUTE));
        if let Ok(body) = self.site.found(number, &[(host, gpus)], since) {
            self.put(body);
            let attempt = self.site.work(number).and_then(|work| work.latest()).expect("it runs");
            assert!(attempt.started_ms.is_some_and(|started| started <= self.now_ms));
            self.running.insert((number, attempt.number), ());
        }
    }

    /// The engine does some of what is wanted, and some of its attempts end.
    fn act(&mut self) {
        let wanted: Vec<(u64, u32, Wanted)> = self
            .site
            .wanted()
            .map(|(work, attempt, wanted)| (work.number, attempt.number, wanted))
            .collect();
        for (workload, attempt, wanted) in wanted {
            let key = (workload, attempt);
            let runs = self.running.contains_key(&key);
            // Some of it is heard of late.
            let late = self.dice.below(3) * self.dice.below(3_600_000);
            let late = (late > 0).then(|| self.now_ms.saturating_sub(late));
            let stopped = |outcome| Body::Stopped {
                workload,
                attempt,
                outcome,
                ended_ms: late,
                exit_code: None,
                detail: None,
                run: None,
            };
            match wanted {
                Wanted::Run if !runs => match self.dice.below(8) {
                    0 => {}
                    1 => self.put(stopped(Outcome::Failed)),
                    _ => {
                        self.running.insert(key, ());
                        self.put(Body::Started { workload, attempt, since_ms: late });
                    }
                },
                Wanted::Run => match self.dice.below(24) {
                    0 | 1 => self.put(stopped(Outcome::Completed)),
                    2 => self.put(stopped(Outcome::Lost)),
                    3 => self.put(Body::Checkpointed { workload, attempt }),
                    _ => {}
                },
                Wanted::Leave { .. } if self.dice.below(3) > 0 => self.put(stopped(Outcome::Left)),
                Wanted::Stop { .. } if self.dice.below(2) > 0 => {
                    self.put(stopped(Outcome::Cancelled))
                }
                Wanted::Leave { .. } | Wanted::Stop { .. } => {}
            }
        }
    }
}
