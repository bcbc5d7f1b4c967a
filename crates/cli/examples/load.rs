//! A live site under load: `cargo build --release -p bursar && cargo run --release -p bursar --example load [BURSAR]`.
//!
//! Starts `bursar up` with 8,192 virtual GPUs on 1,024 virtual hosts in a folder of its own, fills the GPUs with
//! a few gangs, and measures submissions, lists and answers to *why*, first with nobody waiting, then with 10,000
//! workloads waiting while others go on submitting. What it prints are p50 and p99, and how they compare.

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const WAITING: u64 = 10_000;
const PROBES: usize = 300;
/// How many others submit at the same time, and how long each thinks between two submissions.
const OTHERS: usize = 4;
const THINKS: Duration = Duration::from_millis(20);

type Failure = Box<dyn std::error::Error>;

struct Site {
    child: Child,
    url: String,
    secret: String,
    agent: ureq::Agent,
    /// Work ends when this is gone, which outlives no run.
    alive: String,
}

impl Site {
    fn up(program: &PathBuf, folder: &std::path::Path) -> Result<Self, Failure> {
        let token = folder.join("token");
        let mut child = Command::new(program)
            .args(["up", "--virtual-gpus", "8192", "--virtual-hosts", "1024"])
            .args(["--listen", "127.0.0.1:0", "--allow-root-work"])
            .arg("--data")
            .arg(folder.join("site"))
            .arg("--token-out")
            .arg(&token)
            .env("BURSAR_LOG", "warn")
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let first = lines.next().ok_or("it said nothing")??;
        let url = first.rsplit(' ').next().ok_or("no address")?.to_owned();
        // What else it says must go somewhere, or it would wait for that.
        std::thread::spawn(move || lines.for_each(drop));
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        for _ in 0..500 {
            if token.exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let secret = std::fs::read_to_string(&token)?.trim().to_owned();
        let alive = folder.join("alive");
        std::fs::write(&alive, "")?;
        let alive = alive.to_str().ok_or("a path that is no text")?.to_owned();
        Ok(Self { child, url, secret, agent, alive })
    }

    fn send(&self, method: &str, path: &str, body: &str) -> Result<Value, Failure> {
        loop {
            let url = format!("{}{path}", self.url);
            let bearer = format!("Bearer {}", self.secret);
            let answer = match method {
                "GET" => self.agent.get(url).header("Authorization", bearer).call(),
                _ => self.agent.post(url).header("Authorization", bearer).send(body),
            };
            let mut answer = answer?;
            if answer.status() == 429 {
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
            let status = answer.status();
            let text = answer.body_mut().with_config().limit(64 << 20).read_to_string()?;
            if !status.is_success() {
                return Err(format!("{method} {path}: {status}: {text}").into());
            }
            return Ok(serde_json::from_str(&text)?);
        }
    }

    fn submit(&self, gpus: u32, array: u64) -> Result<u64, Failure> {
        let script = format!("while [ -e '{}' ]; do sleep 1; done", self.alive);
        let mut workload = json!({
            "name": "w", "gpus": gpus, "min_runtime": "8h", "resumable": true,
            "checkpoint_on_signal": true, "budget_owner": "main", "command": ["sh", "-c", script],
        });
        if array > 0 {
            workload["array"] = json!(format!("1-{array}"));
        }
        let body = json!({ "workload": workload }).to_string();
        let answer = self.send("POST", "/v1/workloads", &body)?;
        Ok(answer["workload"].as_u64().ok_or("no number")?)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// p50 and p99 in milliseconds.
fn measured(mut what: impl FnMut() -> Result<(), Failure>) -> Result<(f64, f64), Failure> {
    let mut took = Vec::with_capacity(PROBES);
    for _ in 0..PROBES {
        let begun = Instant::now();
        what()?;
        took.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    took.sort_by(f64::total_cmp);
    Ok((took[took.len() / 2], took[took.len() * 99 / 100]))
}

type Figures = Vec<(&'static str, (f64, f64))>;

fn probe(site: &Site, of: u64) -> Result<Figures, Failure> {
    let submit = measured(|| site.submit(8, 0).map(drop))?;
    let page = measured(|| site.send("GET", "/v1/workloads?limit=50", "").map(drop))?;
    let last = measured(|| {
        let path = format!("/v1/workloads?limit=50&after={}", of.saturating_sub(60));
        site.send("GET", &path, "").map(drop)
    })?;
    let why = measured(|| site.send("GET", &format!("/v1/workloads/{of}"), "").map(drop))?;
    let budgets = measured(|| site.send("GET", "/v1/budgets", "").map(drop))?;
    Ok(vec![
        ("submit", submit),
        ("list, first page of 50", page),
        ("list, last page", last),
        ("show and why", why),
        ("budgets", budgets),
    ])
}

fn main() -> Result<(), Failure> {
    let beside =
        std::env::current_exe()?.parent().and_then(|p| p.parent()).map(|p| p.join("bursar"));
    let program =
        std::env::args_os().nth(1).map(PathBuf::from).or(beside).ok_or("which bursar?")?;
    let folder = tempfile::tempdir()?;
    let site = Site::up(&program, folder.path())?;
    // All but the debug hosts, which take short contracts only: 3 % of the hosts.
    let mut gangs = vec![site.submit(272, 0)?];
    for _ in 0..15 {
        gangs.push(site.submit(512, 0)?);
    }
    let runs = |number: u64| -> Result<bool, Failure> {
        let work = site.send("GET", &format!("/v1/workloads/{number}"), "")?;
        if work["state"] == "ended" {
            return Err(format!("a gang could not run: {}", work["history"][0]["detail"]).into());
        }
        Ok(work["state"] == "protected")
    };
    for number in &gangs {
        while !runs(*number)? {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let waiting = site.submit(8, 0)?;
    let empty = probe(&site, waiting)?;

    let begun = Instant::now();
    let last = site.submit(8, WAITING)? + WAITING - 1;
    println!("an array of {WAITING} accepted in {:.2} s", begun.elapsed().as_secs_f64());
    let (stop, submitted) = (AtomicBool::new(false), AtomicU64::new(0));
    let loaded = std::thread::scope(|threads| -> Result<Figures, Failure> {
        for _ in 0..OTHERS {
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    if site.submit(8, 0).is_ok() {
                        submitted.fetch_add(1, Ordering::Relaxed);
                    }
                    std::thread::sleep(THINKS);
                }
            });
        }
        let figures = probe(&site, last);
        stop.store(true, Ordering::Relaxed);
        figures
    })?;
    println!("{} submissions of others meanwhile", submitted.load(Ordering::Relaxed));
    println!("{:26} {:>8} {:>8} | {:>8} {:>8} | ratio of p50", "ms", "p50", "p99", "p50", "p99");
    println!("{:26} {:^17} | {:^17} |", "", "few waiting", "10,000 waiting");
    for ((what, (a50, a99)), (_, (b50, b99))) in empty.iter().zip(&loaded) {
        println!("{what:26} {a50:8.2} {a99:8.2} | {b50:8.2} {b99:8.2} | {:.1}", b50 / a50);
    }
    Ok(())
}
