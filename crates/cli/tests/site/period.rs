//! Reports of a period and `whatif`, on a site with a past of four days: the figures are computed here a second time,
//! from the history that the site exports, with arithmetic of their own.

use crate::played::Played;
use crate::{Done, Site, bursar, finish, folder};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// How long the past is; nothing is submitted in the last day and a half.
const PAST: u64 = 4 * DAY;
const GRACE: u64 = MINUTE;

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// A small lab: two hosts of four GPUs, three leaves, a host that fails and one that is drained, shares that change.
fn past() -> String {
    let mut dice = 7u64;
    let mut below = |bound: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % bound
    };
    let mut told = String::from(
        "cluster: {hosts: [{gpus: 4, model: virtual, name: virtual-1}, {gpus: 4, model: virtual, name: virtual-2}]}\n\
         budgets:\n  a: {share: 3, children: {x: {share: 2, members: [max, mia]}, y: {share: 1, members: [lea]}}}\n  b: {share: 1, members: [bob]}\n\
         settings: {lookback: 12h, horizon: 2h, grace: 1m, debug_hosts: 0}\n\
         hosts_events:\n- {at: 30h10m, host: virtual-1, event: fail}\n- {at: 33h, host: virtual-1, event: repair}\n\
         - {at: 40h, host: virtual-2, event: drain}\n- {at: 45h, host: virtual-2, event: repair}\n\
         budget_changes:\n- {at: 36h20m, budget: b, share: 3}\n\
         workloads:\n",
    );
    for nth in 0..64 {
        let (budget, users): (&str, &[&str]) =
            [("a/x", &["max", "mia"][..]), ("a/y", &["lea"]), ("b", &["bob"])][below(3) as usize];
        let user = users[below(users.len() as u64) as usize];
        let gpus = [1, 1, 2, 4, 8][below(5) as usize];
        let contract = [0, 15 * 60, 3600, 7200][below(4) as usize];
        let (submit, runtime) = (below(60 * HOUR), 10 * MINUTE + below(3 * HOUR));
        let _ = writeln!(
            told,
            "- {{id: w{nth:03}, submit: {}, budget: {budget}, user: {user}, gpus: {gpus}, runtime: {}, min_runtime: {contract}, resumable: true}}",
            submit as f64 / 1_000.0,
            runtime as f64 / 1_000.0
        );
    }
    told
}

/// The site's folder, and the moment of its beginning.
fn played(dir: &Path) -> (PathBuf, u64) {
    let scenario = bursar_scenario::load_str(&past(), dir, "past", &[]).expect("a scenario");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64;
    let began = now - PAST;
    let data = dir.join("site");
    let mut played = Played::begin(&scenario, &data, "root", began).expect("a site");
    played.to(PAST - HOUR).expect("it plays");
    let live: Vec<u64> = played
        .site
        .works()
        .filter(|work| !matches!(work.stage, bursar_site::Stage::Ended(_)))
        .map(|work| work.number)
        .collect();
    assert!(live.is_empty(), "all has ended long ago: {live:?}");
    (data, began)
}

/// An attempt, as it was exported. Milliseconds since the site began.
struct Ran {
    start: u64,
    end: u64,
    on: BTreeMap<String, u64>,
}

/// A workload, likewise.
struct Work {
    budget: String,
    user: String,
    gpus: u64,
    submit: u64,
    /// What it did and kept.
    runtime: u64,
    min_runtime: u64,
    ran: Vec<Ran>,
}

fn ms(value: &Value) -> u64 {
    (value.as_f64().expect("seconds") * 1_000.0).round() as u64
}

fn words(value: &Value) -> String {
    value.as_str().expect("words").to_owned()
}

fn works(exported: &Value) -> Vec<Work> {
    let ran = |one: &Value| Ran {
        start: ms(&one["start"]),
        end: ms(&one["end"]),
        on: one["on"]
            .as_object()
            .expect("hosts")
            .iter()
            .map(|(host, gpus)| (host.clone(), gpus.as_u64().expect("GPUs")))
            .collect(),
    };
    let work = |one: &Value| Work {
        budget: words(&one["budget"]),
        user: words(&one["user"]),
        gpus: one["gpus"].as_u64().expect("GPUs"),
        submit: ms(&one["submit"]),
        runtime: ms(&one["runtime"]),
        min_runtime: ms(&one["min_runtime"]),
        ran: one["ran"].as_array().expect("it ran").iter().map(ran).collect(),
    };
    exported["workloads"].as_array().expect("workloads").iter().map(work).collect()
}

fn overlap(a: (u64, u64), b: (u64, u64)) -> u64 {
    a.1.min(b.1).saturating_sub(a.0.max(b.0))
}

/// When hosts were out of service: one that failed until it is repaired, a drained one from when it was empty.
fn out_of_service(exported: &Value, works: &[Work]) -> Vec<(u64, u64)> {
    let events = exported["hosts_events"].as_array().expect("events");
    let mut out = Vec::new();
    for (nth, event) in events.iter().enumerate() {
        let (at, host) = (ms(&event["at"]), words(&event["host"]));
        if event["event"] == "repair" {
            continue;
        }
        let repaired = events[nth..]
            .iter()
            .find(|later| later["event"] == "repair" && later["host"] == event["host"]);
        let until = ms(&repaired.expect("it is repaired")["at"]);
        let mut from = at;
        if event["event"] == "drain" {
            let there = works.iter().flat_map(|work| &work.ran);
            let there =
                there.filter(|ran| ran.on.contains_key(&host) && ran.start < at && ran.end > at);
            from = there.map(|ran| ran.end).max().unwrap_or(at);
        }
        out.push((from, until));
    }
    out
}

/// GPU-hours that a leaf was owed, and that its work asked for.
fn owed(
    leaf: &str,
    works: &[Work],
    fraction: &dyn Fn(u64) -> f64,
    out: &[(u64, u64)],
    began: u64,
    (from, to): (u64, u64),
) -> (f64, f64) {
    let (mut owed, mut asked) = (0.0, 0.0);
    let mut begin = from;
    while begin < to {
        // To the next full hour of the clock.
        let end = ((began + begin) / HOUR + 1) * HOUR - began;
        let end = end.min(to);
        // Second by second would do; what changes does so at full seconds, but for ends of attempts.
        let mut cuts: Vec<u64> =
            out.iter().flat_map(|span| [span.0, span.1]).chain([36 * HOUR + 20 * MINUTE]).collect();
        cuts.extend([begin, end]);
        cuts.retain(|cut| (begin..=end).contains(cut));
        cuts.sort_unstable();
        let allocation: f64 = cuts
            .windows(2)
            .map(|pair| {
                let down =
                    out.iter().filter(|span| span.0 <= pair[0] && pair[0] < span.1).count() as f64;
                fraction(pair[0]) * (8.0 - 4.0 * down) * (pair[1] - pair[0]) as f64
            })
            .sum();
        let mut demand = 0.0;
        for work in works.iter().filter(|work| work.budget == leaf && work.min_runtime > 0) {
            let last = work.ran.last().expect("it ran");
            let there = overlap((work.submit, last.end), (begin, end));
            let first = begin.max(work.submit);
            // What was interrupted was lost, as nothing saves; the last attempt did it all. What ran on after the period
            // is not known to have ended.
            let left = match last.end < to {
                true if first < last.start => work.runtime,
                true => last.end.saturating_sub(first),
                false => u64::MAX,
            };
            let ran: u64 =
                work.ran.iter().map(|ran| overlap((ran.start, ran.end), (begin, end))).sum();
            demand += (work.gpus * there.min(left.max(ran))) as f64;
        }
        owed += allocation.min(demand);
        asked += demand;
        begin = end;
    }
    (owed / HOUR as f64, asked / HOUR as f64)
}

fn near(found: &Value, expected: f64, what: &str) {
    let found = found.as_u64().expect("GPU-milliseconds") as f64 / HOUR as f64;
    assert!(
        (found - expected).abs() < 1e-4 * (1.0 + expected),
        "{what}: {found} is not {expected}"
    );
}

fn by<'a>(rows: &'a Value, key: &str, name: &str) -> &'a Value {
    let rows = rows.as_array().expect("rows");
    rows.iter().find(|row| row[key] == name).unwrap_or_else(|| panic!("no {name} in {rows:?}"))
}

/// The root's owner's token, of a site whose first one was never shown.
fn up(data: &Path) -> Site {
    let recovered = bursar(&[
        "token",
        "recover",
        "--data",
        text(data),
        "--out",
        text(&data.with_extension("token")),
    ]);
    assert_eq!(recovered.code, Some(0), "{}", recovered.stderr);
    let mut site =
        Site::up_with(data, &["--virtual-gpus", "8", "--virtual-hosts", "2", "--allow-root-work"]);
    site.token =
        fs::read_to_string(data.with_extension("token")).expect("a token").trim().to_owned();
    site
}

fn well(done: Done) -> String {
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    done.stdout
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn figures_are_those_of_the_exported_history() {
    let dir = folder();
    let (data, began) = played(dir.path());
    let site = up(&data);
    let exported = site.ask_well(&["export", "trace", "--scenario"]);
    let exported: Value = serde_saphyr::from_str(&exported).expect("YAML");
    let works = works(&exported);
    let out = out_of_service(&exported, &works);
    let changed = 36 * HOUR + 20 * MINUTE;
    let fraction = |leaf: &str, at: u64| {
        let (a, b) = if at < changed { (3.0, 1.0) } else { (3.0, 3.0) };
        let of_a = a / (a + b);
        match leaf {
            "a/x" => of_a * 2.0 / 3.0,
            "a/y" => of_a / 3.0,
            _ => b / (a + b),
        }
    };
    // From the middle of an hour to the middle of another; all of it; and a part in which nothing was disturbed.
    let spans = [
        (25 * HOUR + 17 * MINUTE, 62 * HOUR + 43 * MINUTE + 1_234),
        (0, 80 * HOUR),
        (5 * HOUR, 6 * HOUR),
    ];
    for span in spans {
        let (from, to) = span;
        let path = format!(
            "/v1/report?from_unix_ms={}&to_unix_ms={}&attempts=true",
            began + from,
            began + to
        );
        let report = site.get(&path);
        let used = |keep: &dyn Fn(&Work) -> bool| -> u64 {
            let works = works.iter().filter(|work| keep(work));
            works
                .flat_map(|work| {
                    work.ran.iter().map(|ran| work.gpus * overlap((ran.start, ran.end), span))
                })
                .sum()
        };
        let root = by(&report["budgets"], "path", "");
        let mut all_owed = 0.0;
        for leaf in ["a/x", "a/y", "b"] {
            let row = by(&report["budgets"], "path", leaf);
            assert_eq!(row["used_gpu_ms"], used(&|work| work.budget == leaf), "{leaf}");
            assert_eq!(
                row["delivered_gpu_ms"],
                used(&|work| work.budget == leaf && work.min_runtime > 0)
            );
            assert_eq!(
                row["unallocated_gpu_ms"],
                used(&|work| work.budget == leaf && work.min_runtime == 0)
            );
            let (owed_to, asked) = owed(leaf, &works, &|at| fraction(leaf, at), &out, began, span);
            near(&row["owed_gpu_ms"], owed_to, leaf);
            near(&row["demand_gpu_ms"], asked, leaf);
            all_owed += owed_to;
        }
        near(&root["owed_gpu_ms"], all_owed, "all");
        assert_eq!(root["used_gpu_ms"], used(&|_| true));
        for user in ["max", "mia", "lea", "bob"] {
            let expected = used(&|work| work.user == user);
            let row =
                report["people"].as_array().expect("rows").iter().find(|row| row["user"] == user);
            assert_eq!(
                row.map_or(0, |row| row["used_gpu_ms"].as_u64().expect("ms")),
                expected,
                "{user}"
            );
        }
        // The pyramid.
        let cluster = &report["cluster"];
        let down: u64 = out.iter().map(|&span_out| 4 * overlap(span_out, span)).sum();
        assert_eq!(cluster["total_gpu_ms"], 8 * (to - from));
        assert_eq!(cluster["out_of_service_gpu_ms"], down);
        assert_eq!(cluster["idle_gpu_ms"], 8 * (to - from) - down - used(&|_| true));
        assert_eq!(cluster["conservation_exact"], true);
        // Waits of contracts, of those that first started in the period or went on waiting.
        let mut waits: Vec<u64> = Vec::new();
        for work in works.iter().filter(|work| work.min_runtime > 0 && work.submit < to) {
            let first = work.ran[0].start;
            if first >= from {
                waits.push(first.min(to) - work.submit);
            }
        }
        waits.sort_unstable();
        let found = &report["waits"]["all"];
        if waits.is_empty() {
            assert!(found.is_null());
        } else {
            assert_eq!(found["count"], waits.len());
            assert_eq!(found["longest_ms"], waits[waits.len() - 1]);
            assert_eq!(found["p50_ms"], waits[waits.len().div_ceil(2) - 1]);
        }
        // Who was interrupted by no failure was told to leave, a grace before.
        let failed = 30 * HOUR + 10 * MINUTE;
        let told = |work: &Work| {
            let but_last = &work.ran[..work.ran.len() - 1];
            let told = but_last.iter().filter(|ran| ran.end != failed).map(|ran| ran.end - GRACE);
            told.filter(|at| (from..to).contains(at)).count()
        };
        assert_eq!(root["preemptions"], works.iter().map(told).sum::<usize>());
        let mut lost = 0;
        for work in &works {
            let gone =
                work.ran[..work.ran.len() - 1].iter().filter(|ran| (from..to).contains(&ran.end));
            lost += gone.map(|ran| work.gpus * (ran.end - ran.start)).sum::<u64>();
        }
        assert_eq!(root["lost_gpu_ms"], lost);
        // All of it is in the lines.
        let lines = report["attempts"].as_array().expect("lines");
        let sum = |key: &str| lines.iter().map(|line| line[key].as_u64().expect("ms")).sum::<u64>();
        for key in ["used_gpu_ms", "delivered_gpu_ms", "lost_gpu_ms"] {
            assert_eq!(root[key], sum(key), "{key}");
        }
    }
    let whole: u64 = works
        .iter()
        .map(|work| work.gpus * work.ran.iter().map(|ran| ran.end - ran.start).sum::<u64>())
        .sum();
    let interrupted = works.iter().filter(|work| work.ran.len() > 1).count();
    assert!(interrupted > 3 && whole > 100 * HOUR, "{interrupted} were interrupted");

    // What each workload was charged, by the site's own account of it.
    let report = site.get(&format!("/v1/report?from_unix_ms={began}&attempts=true"));
    let mut charged: BTreeMap<u64, u64> = BTreeMap::new();
    for line in report["attempts"].as_array().expect("lines") {
        *charged.entry(line["workload"].as_u64().expect("a number")).or_default() +=
            line["delivered_gpu_ms"].as_u64().expect("ms");
    }
    for (number, charged) in charged {
        assert_eq!(site.work(number)["charged_gpu_ms"], charged, "workload {number}");
    }
    the_same_by_the_command_line(&site, &data, began, dir.path());
}

/// The verb says what the API says, and writes it so that it is read back.
fn the_same_by_the_command_line(site: &Site, data: &Path, began: u64, dir: &Path) {
    let moment = |ms: u64| {
        let at = i64::try_from(began + ms).expect("a moment");
        jiff::Timestamp::from_millisecond(at).expect("a moment").to_string()
    };
    let (from, to) = (moment(20 * HOUR), moment(60 * HOUR));
    let path =
        format!("/v1/report?from_unix_ms={}&to_unix_ms={}", began + 20 * HOUR, began + 60 * HOUR);
    let span = ["report", "--from", &from, "--to", &to];
    let asked = json(&site.ask_well(&[&span[..], &["--json"]].concat()));
    let mut direct = site.get(&path);
    direct["time_zone"] = "UTC".into();
    assert_eq!(asked, direct);
    let offline = bursar(&[&span[..], &["--json", "--data", text(data)]].concat());
    assert_eq!(json(&well(offline)), direct);

    let (csv, parquet) = (dir.join("people.csv"), dir.join("people.parquet"));
    let files = ["--rows", "people", "--csv", text(&csv), "--parquet", text(&parquet)];
    assert_eq!(site.ask_well(&[&span[..], &files[..]].concat()), "");
    let csv = fs::read_to_string(&csv).expect("written");
    let head: Vec<&str> = csv.lines().next().expect("a head").split(',').collect();
    let used = head.iter().position(|name| *name == "used_gpu_ms").expect("a column");
    for row in csv.lines().skip(1) {
        let cells: Vec<&str> = row.split(',').collect();
        assert_eq!(cells.len(), head.len());
        let told = by(&direct["people"], "user", cells[0]);
        assert_eq!(told["used_gpu_ms"].to_string(), cells[used]);
    }
    assert_eq!(csv.lines().count(), 5, "{csv}");
    let bytes = fs::read(&parquet).expect("written");
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));

    let shown = site.ask_well(&[&span[..], &["--budget", "a", "--rows", "attempts"]].concat());
    for part in ["a/x", "a/y", "mia", "budgets, in GPU-hours", "attempts, in GPU-hours"] {
        assert!(shown.contains(part), "{part} is missing in\n{shown}");
    }
    assert!(!shown.contains("bob") && !shown.contains("availability"), "{shown}");
    assert!(site.ask_well(&span).contains("availability"));

    // Who may see what: a member of a/y is told of that leaf, and of nobody else.
    let said = site.ask_well(&["token", "issue", "lea", "--user", "lea", "--json"]);
    let secret = words(&json(&said)["secret"]);
    let as_lea = |args: &[&str]| {
        finish(crate::command(args).env("BURSAR_URL", &site.url).env("BURSAR_TOKEN", &secret))
    };
    let told = json(&well(as_lea(&[&span[..], &["--json"]].concat())));
    let paths: Vec<&Value> =
        told["budgets"].as_array().expect("rows").iter().map(|row| &row["path"]).collect();
    assert_eq!(paths, ["a/y"]);
    assert_eq!(told["budgets"][0], *by(&direct["budgets"], "path", "a/y"));
    assert!(told["cluster"].is_null());
    let refused = as_lea(&[&span[..], &["--budget", "b"]].concat());
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("there is no budget 'b' that you may see"),
        "{}",
        refused.stderr
    );

    // What is wrong is told, and nothing is written.
    let wrong: [(&[&str], &str); 7] = [
        (&["report"], "--last"),
        (&["report", "--month", "2026-13"], "--month"),
        (&["report", "--last", "0"], "--last"),
        (&["report", "--from", "2026-11-02", "--to", "2026-11-01"], "--to"),
        (&["report", "--last", "1d", "--time-zone", "Mars/Olympus"], "--time-zone"),
        (&["report", "--last", "1d", "--checkpoint"], "--checkpoint"),
        (&["report", "--from", "2000-01-01", "--to", "2000-02-01"], "the period is empty"),
    ];
    for (args, part) in wrong {
        let file = dir.join("not.csv");
        let args = [args, &["--csv", text(&file)]].concat();
        let refused = site.ask(&args);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{args:?}");
        assert!(refused.stderr.contains(part), "{args:?}: {}", refused.stderr);
        assert!(!file.exists(), "{args:?}");
    }
}

#[test]
fn whatif_measures_a_part_of_the_past_as_it_was_and_as_it_would_have_been() {
    let dir = folder();
    let (data, began) = played(dir.path());
    let site = up(&data);
    let tree = dir.path().join("tree.yaml");
    fs::write(&tree, "a: {share: 1, children: {x: {share: 1}, z: {share: 1}}}\nb: {share: 9, terms: [{each: month, limit: 5000}]}\n")
        .expect("written");
    let args = ["whatif", "--last", "60h", "--change", text(&tree), "--move", "a/y=a/z", "--json"];
    let told = json(&site.ask_well(&args));
    let (from, until) =
        (told["from_ms"].as_u64().expect("ms"), told["until_ms"].as_u64().expect("ms"));
    assert_eq!(until - from, 60 * HOUR);
    assert!(from >= 12 * HOUR, "the lookback before it is played, too: {from}");
    let columns: Vec<&String> =
        told["summary"]["policies"].as_object().expect("columns").keys().collect();
    assert_eq!(columns.len(), 3, "{columns:?}");
    for (_, column) in told["summary"]["policies"].as_object().expect("columns") {
        assert_eq!(column["conservation_exact"], true, "{column}");
        assert_eq!(column["measured_seconds"], 60.0 * 3_600.0);
    }
    // What is recorded is what the report says of the same period.
    let exported = site.get("/v1/export/trace?form=whatif");
    let now = exported["until_ms"].as_u64().expect("ms");
    let report = site.get(&format!(
        "/v1/report?from_unix_ms={}&to_unix_ms={}",
        began + now - 60 * HOUR,
        began + now
    ));
    for leaf in ["a/x", "a/y", "b"] {
        let row = by(&told["budgets"], "budget", leaf);
        let delivered = row["of"]["recorded"]["delivered_gpu_hours"].as_f64().expect("hours");
        near(&by(&report["budgets"], "path", leaf)["delivered_gpu_ms"], delivered, leaf);
    }
    // The changed tree has a budget of its own, and that of the history is not in it.
    let changed = "budget, changed";
    let row = |budget: &str| by(&told["budgets"], "budget", budget)["of"].clone();
    assert!(row("a/z")[changed].is_object() && row("a/z")["budget"].is_null());
    assert!(row("a/y")[changed].is_null() && row("a/y")["budget"].is_object());
    // With nine tenths of everything b waits less.
    let p90 = |column: &str| row("b")[column]["first_waits"]["p90"].as_f64().expect("seconds");
    assert!(p90(changed) < p90("budget"), "{}", row("b"));
    let shown = site.ask_well(&args[..args.len() - 1]);
    for part in ["budget, changed", "changed: the budgets of", "differs", "a/z"] {
        assert!(shown.contains(part), "{part} is missing in\n{shown}");
    }

    // Another cluster, other settings; and without a daemon.
    let offline = |more: &[&str]| {
        let args = ["whatif", "--data", text(&data), "--last", "60h", "--json"];
        bursar(&[&args[..], more].concat())
    };
    let smaller =
        offline(&["--hosts", "1x4xvirtual", "--set", "horizon=1h", "--set", "reservation_age=30m"]);
    let smaller = json(&well(smaller));
    let notes = smaller["notes"].to_string();
    assert!(notes.contains("no host of that cluster could hold them"), "{notes}");
    assert!(notes.contains("would have had a shorter contract"), "{notes}");
    let gpus = |column: &str| {
        smaller["summary"]["policies"][column]["gpu_hours"]["total"].as_f64().expect("GPU-hours")
    };
    assert_eq!((gpus("budget"), gpus(changed)), (480.0, 240.0));
    let cluster = dir.path().join("cluster.yaml");
    fs::write(
        &cluster,
        "cluster: {hosts: [{count: 3, gpus: 8, model: virtual}], rates: {virtual: 2}}\n",
    )
    .expect("written");
    let larger = json(&well(offline(&["--cluster", text(&cluster)])));
    assert_eq!(larger["summary"]["policies"][changed]["gpu_hours"]["total"], 1_440.0);
    let refused: BTreeSet<(&str, Vec<&str>)> = BTreeSet::from([
        ("--move a/y=NEW", vec!["--change", text(&tree)]),
        ("no budget 'c'", vec!["--change", text(&tree), "--move", "c=b"]),
        ("'a' is no budget of the new tree", vec!["--change", text(&tree), "--move", "a/y=a"]),
        ("HOSTSxGPUSxMODEL", vec!["--hosts", "8xh100"]),
        ("horizo", vec!["--set", "horizo=1h"]),
        ("--last", vec!["--last", "0"]),
    ]);
    for (part, args) in refused {
        let done = if part == "--last" {
            bursar(&[&["whatif", "--data", text(&data)], &args[..]].concat())
        } else {
            offline(&args)
        };
        assert_eq!((done.code, done.stdout.as_str()), (Some(2), ""), "{args:?}");
        assert!(done.stderr.contains(part), "{args:?}: {}", done.stderr);
    }
}
