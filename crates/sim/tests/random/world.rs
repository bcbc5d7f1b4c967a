//! Random worlds: small clusters, budget trees and work, drawn from one number and written as the YAML
//! that a person would write. The same number gives the same world on every machine.

use bursar_scenario::Scenario;
use std::fmt::Write;
use std::path::Path;

/// SplitMix64: enough for drawing worlds, and the same everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From `low` to `high`, both included.
    pub(crate) fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.range(0, 99) < chance
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.range(0, from.len() as u64 - 1) as usize]
    }

    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, self.range(0, at as u64) as usize);
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) gpus: u64,
    pub(crate) model: &'static str,
    pub(crate) domain: u64,
}

/// A budget by its path, parents before children.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    pub(crate) path: String,
    pub(crate) share: u64,
    pub(crate) limit_hours: Option<u64>,
    /// Hard limits for a time, as they are written.
    pub(crate) terms: Vec<String>,
}

/// Times are in seconds.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) id: String,
    pub(crate) submit: u64,
    pub(crate) budget: String,
    pub(crate) gpus: u64,
    pub(crate) shape: Option<(u64, u64)>,
    pub(crate) model: Option<&'static str>,
    pub(crate) runtime: u64,
    pub(crate) min_runtime: u64,
    pub(crate) max_runtime: Option<u64>,
    pub(crate) resumable: bool,
    pub(crate) rank: i64,
    pub(crate) checkpoint: Option<u64>,
    pub(crate) on_signal: bool,
    pub(crate) save_time: u64,
    pub(crate) grace: Option<u64>,
    pub(crate) startup: Option<u64>,
    pub(crate) status: &'static str,
}

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) lookback: u64,
    pub(crate) horizon: u64,
    pub(crate) grace: u64,
    pub(crate) margin: &'static str,
    pub(crate) startup: u64,
    pub(crate) reservations: u64,
    pub(crate) reservation_age: u64,
    pub(crate) debug_hosts: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct HostEvent {
    pub(crate) at: u64,
    pub(crate) host: String,
    pub(crate) event: &'static str,
}

#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) at: u64,
    pub(crate) budget: String,
    pub(crate) share: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) hosts: Vec<Host>,
    pub(crate) rate_of_b: &'static str,
    pub(crate) budgets: Vec<Budget>,
    pub(crate) settings: Settings,
    pub(crate) works: Vec<Work>,
    pub(crate) host_events: Vec<HostEvent>,
    pub(crate) changes: Vec<Change>,
    /// When days turn, in seconds.
    pub(crate) midnight_after: u64,
}

/// How large and how hostile worlds are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) hosts_max: u64,
    pub(crate) works_max: u64,
}

impl Size {
    pub(crate) const SMALL: Self = Self { hosts_max: 10, works_max: 60 };
}

/// What is common to all draws of one world.
struct Mood {
    /// Every moment is a multiple of this, so that much happens at once.
    grain: u64,
    span: u64,
}

impl World {
    pub(crate) fn draw(seed: u64, size: Size) -> Self {
        let dice = &mut Dice::new(seed);
        let grain = dice.pick(&[1, 1, 60, 300, 600]);
        let mood = Mood { grain, span: dice.pick(&[1_800, 7_200, 14_400, 28_800]) };
        let hosts = draw_hosts(dice, size);
        let budgets = draw_budgets(dice);
        let settings = draw_settings(dice, hosts.len() as u64);
        let mut world = Self {
            hosts,
            rate_of_b: dice.pick(&["1", "2", "2.5", "0.333"]),
            budgets,
            settings,
            works: Vec::new(),
            host_events: Vec::new(),
            changes: Vec::new(),
            midnight_after: 0,
        };
        let works = dice.range(5, size.works_max);
        for number in 0..works {
            let work = world.draw_work(dice, &mood, number);
            world.works.push(work);
        }
        world.draw_host_events(dice, &mood);
        world.draw_changes(dice, &mood);
        world.draw_terms(dice, &mood);
        world
    }

    /// Days that turn while work runs, and limits between two moments that may follow or overlap each other.
    fn draw_terms(&mut self, dice: &mut Dice, mood: &Mood) {
        if !dice.percent(35) {
            return;
        }
        self.midnight_after = dice.range(0, mood.span);
        for budget in &mut self.budgets {
            while dice.percent(25) {
                let limit = dice.range(0, 30);
                budget.terms.push(if dice.percent(40) {
                    format!("{{each: day, limit: {limit}, carry_over: {}}}", dice.percent(50))
                } else {
                    let from = dice.range(0, mood.span) / mood.grain * mood.grain;
                    let until = from + mood.grain + dice.range(0, mood.span);
                    let at = |s: u64| time_of(DAY_S - self.midnight_after + s);
                    format!("{{from: {}, until: {}, limit: {limit}}}", at(from), at(until))
                });
            }
        }
    }

    /// No hard limits any more.
    pub(crate) fn unlimit(&mut self) {
        for budget in &mut self.budgets {
            budget.limit_hours = None;
            budget.terms.clear();
        }
    }

    fn leaves(&self) -> Vec<&Budget> {
        let is_leaf = |budget: &&Budget| {
            let below = format!("{}/", budget.path);
            !self.budgets.iter().any(|other| other.path.starts_with(&below))
        };
        self.budgets.iter().filter(is_leaf).collect()
    }

    /// A contract that no hosts but the debug hosts could hold would be refused: it asks for less, or for none.
    fn within_reach(
        &self,
        model: Option<&'static str>,
        gpus: u64,
        shape: Option<(u64, u64)>,
        min_runtime: u64,
    ) -> (u64, Option<(u64, u64)>, u64) {
        let of_model = |host: &&Host| model.is_none_or(|model| host.model == model);
        let host_max = self.hosts.iter().filter(of_model).map(|host| host.gpus).max();
        let ordinary = &self.hosts[..self.hosts.len() - self.settings.debug_hosts as usize];
        let pools = ordinary.iter().filter(of_model).map(|pool| {
            let same = |host: &&Host| (host.gpus, host.model) == (pool.gpus, pool.model);
            (pool.gpus, ordinary.iter().filter(same).count() as u64)
        });
        let pools: Vec<(u64, u64)> = pools.collect();
        let single = pools.iter().map(|&(each, _)| each).max();
        let (Some(host_max), Some(single), true) = (host_max, single, min_runtime > 0) else {
            return (gpus, shape, if single.is_none() { 0 } else { min_runtime });
        };
        if let Some((hosts, each)) = shape {
            let fits = pools.iter().any(|&(size, count)| size >= each && count >= hosts);
            return if fits { (gpus, shape, min_runtime) } else { (gpus, shape, 0) };
        }
        let most = if gpus <= host_max {
            single
        } else {
            pools.iter().map(|&(each, count)| each * count).max().unwrap_or(single)
        };
        (gpus.min(most), None, min_runtime)
    }

    fn draw_work(&self, dice: &mut Dice, mood: &Mood, number: u64) -> Work {
        let settings = &self.settings;
        let grained = |seconds: u64| (seconds / mood.grain * mood.grain).max(mood.grain);
        let leaves = self.leaves();
        let model = dice
            .percent(25)
            .then(|| self.hosts[dice.range(0, self.hosts.len() as u64 - 1) as usize].model);
        // The largest gang of one pool.
        let pools = self.hosts.iter().filter(|host| model.is_none_or(|model| host.model == model));
        let largest = pools
            .map(|pool| {
                let same = |host: &&Host| (host.gpus, host.model) == (pool.gpus, pool.model);
                (self.hosts.iter().filter(same).count() as u64 * pool.gpus, pool.gpus)
            })
            .max()
            .expect("there is a host");
        let gpus = match dice.range(0, 9) {
            0..=3 => dice.range(1, 2).min(largest.1),
            4..=6 => dice.range(1, largest.1),
            7 => largest.1,
            _ => dice.range(1, largest.0),
        };
        let shape = (dice.percent(10)
            && gpus % 2 == 0
            && largest.0 >= 2 * largest.1
            && gpus / 2 <= largest.1)
            .then_some((2, gpus / 2));
        let min_runtime = match dice.range(0, 9) {
            0 | 1 => 0,
            2 => settings.horizon,
            3 => dice.range(1, 900).min(settings.horizon),
            _ => grained(dice.range(1, settings.horizon)).min(settings.horizon),
        };
        let (gpus, shape, min_runtime) = self.within_reach(model, gpus, shape, min_runtime);
        let runtime = match dice.range(0, 9) {
            0 => dice.pick(&[1, 1, 2, 90, 120]),
            1 => min_runtime.max(1),
            2 => 4 * settings.horizon,
            _ => grained(dice.range(1, 3 * settings.horizon)),
        };
        let resumable = dice.percent(70);
        let submit = match dice.range(0, 4) {
            0 => 0,
            1 => dice.range(0, 5) * mood.span / 5 / mood.grain * mood.grain,
            _ => dice.range(0, mood.span) / mood.grain * mood.grain,
        };
        Work {
            id: format!("w{number}"),
            submit,
            budget: leaves[dice.range(0, leaves.len() as u64 - 1) as usize].path.clone(),
            gpus,
            shape,
            model,
            runtime,
            min_runtime,
            max_runtime: dice.percent(15).then(|| grained(dice.range(1, 2 * settings.horizon))),
            resumable,
            rank: if dice.percent(25) { dice.range(0, 4) as i64 - 2 } else { 0 },
            checkpoint: dice.percent(60).then(|| grained(dice.range(1, settings.horizon))),
            on_signal: dice.percent(20),
            save_time: dice.pick(&[0, 0, 1, 10, 45, 400]),
            grace: dice.percent(15).then(|| dice.range(0, settings.grace)),
            startup: dice.percent(15).then(|| dice.pick(&[0, 1, 30, 300, 2_000])),
            status: dice.pick(&["completed", "completed", "completed", "failed", "cancelled"]),
        }
    }

    fn draw_host_events(&mut self, dice: &mut Dice, mood: &Mood) {
        let count = if dice.percent(40) { 0 } else { dice.range(1, 12) };
        for _ in 0..count {
            let at = mood.grain + dice.range(0, mood.span * 3 / 2) / mood.grain * mood.grain;
            let host = self.hosts[dice.range(0, self.hosts.len() as u64 - 1) as usize].name.clone();
            let event = dice.pick(&["fail", "drain", "drain", "repair"]);
            self.host_events.push(HostEvent { at, host: host.clone(), event });
            if event != "repair" && dice.percent(80) {
                let back = at + dice.range(0, mood.span / 2) / mood.grain * mood.grain;
                self.host_events.push(HostEvent { at: back, host, event: "repair" });
            }
        }
        if dice.percent(4) {
            let at = mood.grain + dice.range(0, mood.span);
            let event = dice.pick(&["drain", "fail"]);
            let all =
                self.hosts.iter().map(|host| HostEvent { at, host: host.name.clone(), event });
            self.host_events.extend(all);
        }
        self.host_events.sort_by_key(|event| event.at);
    }

    fn draw_changes(&mut self, dice: &mut Dice, mood: &Mood) {
        let count = if dice.percent(60) { 0 } else { dice.range(1, 8) };
        for _ in 0..count {
            let at = mood.grain + dice.range(0, mood.span * 3 / 2) / mood.grain * mood.grain;
            let budget = dice.range(0, self.budgets.len() as u64 - 1) as usize;
            let share = dice.pick(&[0, 1, 1, 2, 5, 13]);
            self.changes.push(Change { at, budget: self.budgets[budget].path.clone(), share });
        }
        if dice.percent(4) {
            let from = dice.range(1, mood.span);
            for second in 0..90 {
                let budget = dice.range(0, self.budgets.len() as u64 - 1) as usize;
                let (budget, share) = (self.budgets[budget].path.clone(), dice.range(0, 3));
                self.changes.push(Change { at: from + second, budget, share });
            }
        }
        self.changes.sort_by_key(|change| change.at);
    }

    /// The scenario, or why there is none.
    pub(crate) fn scenario(&self) -> Result<Scenario, String> {
        let mut scenario = bursar_scenario::load_str(&self.yaml(), Path::new(""), "world", &[])
            .map_err(|error| error.to_string())?;
        // Traces have work that ended at once; lists cannot say it. Here a second stands for that.
        for work in scenario.workloads.iter_mut().filter(|work| work.runtime_ms == 1_000) {
            work.runtime_ms = 0;
        }
        Ok(scenario)
    }

    pub(crate) fn yaml(&self) -> String {
        let mut text = String::from("cluster:\n  hosts:\n");
        let out = &mut text;
        for Host { name, gpus, model, domain } in &self.hosts {
            let _ = writeln!(
                out,
                "    - {{count: 1, gpus: {gpus}, model: {model}, name: {name}, domain: d{domain}}}"
            );
        }
        if self.hosts.iter().any(|host| host.model == "b") {
            let _ = writeln!(out, "  rates: {{b: {}}}", self.rate_of_b);
        }
        text.push_str("budgets:\n");
        self.write_budgets(&mut text, "", 1);
        let Settings {
            lookback,
            horizon,
            grace,
            margin,
            startup,
            reservations,
            reservation_age,
            debug_hosts,
        } = &self.settings;
        let begins = time_of(DAY_S - self.midnight_after);
        let _ = writeln!(
            text,
            "settings: {{lookback: {lookback}s, horizon: {horizon}s, grace: {grace}s, margin: {margin}, startup: {startup}s, reservations: {reservations}, reservation_age: {reservation_age}s, debug_hosts: {debug_hosts}, begins: {begins}}}"
        );
        text.push_str("workloads:\n");
        for work in &self.works {
            write_work(&mut text, work);
        }
        if !self.host_events.is_empty() {
            text.push_str("hosts_events:\n");
        }
        for HostEvent { at, host, event } in &self.host_events {
            let _ = writeln!(text, "  - {{at: {at}s, host: {host}, event: {event}}}");
        }
        if !self.changes.is_empty() {
            text.push_str("budget_changes:\n");
        }
        for Change { at, budget, share } in &self.changes {
            let _ = writeln!(text, "  - {{at: {at}s, budget: \"{budget}\", share: {share}}}");
        }
        text
    }

    fn write_budgets(&self, out: &mut String, parent: &str, depth: usize) {
        for Budget { path, share, limit_hours, terms } in &self.budgets {
            let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
            if above != parent {
                continue;
            }
            let indent = "  ".repeat(2 * depth - 1);
            let limit =
                limit_hours.map_or(String::new(), |hours| format!("{indent}  limit: {hours}\n"));
            let _ = write!(out, "{indent}\"{name}\":\n{indent}  share: {share}\n{limit}");
            if !terms.is_empty() {
                let _ = writeln!(out, "{indent}  terms: [{}]", terms.join(", "));
            }
            let below = format!("{path}/");
            if self.budgets.iter().any(|other| other.path.starts_with(&below)) {
                let _ = writeln!(out, "{indent}  children:");
                self.write_budgets(out, path, depth + 1);
            }
        }
    }
}

const DAY_S: u64 = 86_400;

/// A moment so many seconds after a midnight.
fn time_of(seconds: u64) -> String {
    let (day, s) = (seconds / DAY_S, seconds % DAY_S);
    format!("2026-03-{:02}T{:02}:{:02}:{:02}Z", 1 + day, s / 3_600, s / 60 % 60, s % 60)
}

fn write_work(out: &mut String, work: &Work) {
    let Work { id, submit, budget, gpus, runtime, min_runtime, .. } = work;
    let _ = write!(out, "  - {{id: \"{id}\", submit: {submit}s, budget: \"{budget}\", ");
    let _ = match work.shape {
        Some((hosts, each)) => write!(out, "hosts: {hosts}, gpus_per_host: {each}"),
        None => write!(out, "gpus: {gpus}"),
    };
    let _ = write!(out, ", runtime: {runtime}s, min_runtime: {min_runtime}s");
    let mut more = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = write!(out, ", {key}: {value}");
        }
    };
    let seconds = |value: u64| format!("{value}s");
    more("gpu_model", work.model.map(String::from));
    more("max_runtime", work.max_runtime.map(seconds));
    more("resumable", work.resumable.then(|| "true".into()));
    more("rank", (work.rank != 0).then(|| work.rank.to_string()));
    more("checkpoint_interval", work.checkpoint.map(seconds));
    more("checkpoint_on_signal", work.on_signal.then(|| "true".into()));
    more("save_time", (work.save_time > 0).then(|| seconds(work.save_time)));
    more("grace", work.grace.map(seconds));
    more("startup", work.startup.map(seconds));
    more("status", (work.status != "completed").then(|| work.status.into()));
    out.push_str("}\n");
}

fn draw_hosts(dice: &mut Dice, size: Size) -> Vec<Host> {
    let count = if dice.percent(8) { 1 } else { dice.range(2, size.hosts_max) };
    let (two_models, two_sizes) = (dice.percent(25), dice.percent(15));
    let gpus = dice.pick(&[1, 2, 4, 4, 8, 8]);
    let domains = dice.range(1, 3);
    (0..count)
        .map(|number| Host {
            name: format!("h{number}"),
            gpus: if two_sizes && dice.percent(40) { gpus / 2 + 1 } else { gpus },
            model: if two_models && dice.percent(40) { "b" } else { "a" },
            domain: dice.range(1, domains),
        })
        .collect()
}

fn draw_budgets(dice: &mut Dice) -> Vec<Budget> {
    let mut budgets: Vec<Budget> = Vec::new();
    let share = |dice: &mut Dice| dice.pick(&[0, 1, 1, 1, 2, 3, 7]);
    let limit = |dice: &mut Dice| dice.percent(7).then(|| dice.range(0, 40));
    let tops = dice.range(1, 4);
    let depth = dice.range(1, 3);
    for top in 0..tops {
        let path = format!("p{top}");
        budgets.push(Budget {
            path: path.clone(),
            share: share(dice),
            limit_hours: limit(dice),
            terms: Vec::new(),
        });
        if depth < 2 || dice.percent(30) {
            continue;
        }
        for middle in 0..dice.range(1, 3) {
            let path = format!("{path}/q{middle}");
            budgets.push(Budget {
                path: path.clone(),
                share: share(dice),
                limit_hours: limit(dice),
                terms: Vec::new(),
            });
            if depth < 3 || dice.percent(50) {
                continue;
            }
            for leaf in 0..dice.range(1, 2) {
                let path = format!("{path}/r{leaf}");
                budgets.push(Budget {
                    path,
                    share: share(dice),
                    limit_hours: limit(dice),
                    terms: Vec::new(),
                });
            }
        }
    }
    budgets
}

fn draw_settings(dice: &mut Dice, hosts: u64) -> Settings {
    let horizon = dice.pick(&[300, 1_800, 3_600, 7_200, 28_800]);
    let reservations = dice.pick(&[0, 1, 1, 1, 2, 3]);
    Settings {
        lookback: dice.pick(&[60, 600, 1_800, 3_600, 14_400, 86_400]),
        horizon,
        grace: dice.pick(&[0, 0, 1, 30, 30, 120, 900]),
        margin: dice.pick(&["0.000001", "0.01", "0.05", "0.05", "0.3"]),
        startup: dice.pick(&[0, 0, 30, 60]),
        reservations,
        reservation_age: dice.pick(&[0, horizon / 2, horizon / 2, horizon, 2 * horizon]),
        debug_hosts: dice.pick(&[0, 0, 1, 2]).min(hosts - 1),
    }
}
