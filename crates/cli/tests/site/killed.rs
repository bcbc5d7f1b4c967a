//! The daemon is killed again and again while work is submitted: nothing that was acknowledged is lost, nothing
//! runs twice, and what is charged is what was recorded.

use crate::{Site, eventually, folder, post};
use bursar_server::history;
use bursar_site::Body;
use bursar_store::Reader;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SEED: u64 = 7;
const KILLS: usize = 10;
const CLIENTS: usize = 3;
const WORKLOADS: usize = 72;

/// Numbers that look random; the same for a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

struct Clients {
    /// Where the daemon is now.
    url: Mutex<String>,
    token: String,
    next: AtomicUsize,
    /// By key: the number that was acknowledged.
    acknowledged: Mutex<BTreeMap<String, u64>>,
    runs: String,
}

impl Clients {
    /// Submits one workload after the other, each until it is acknowledged.
    fn work(&self) {
        loop {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            if at >= WORKLOADS {
                return;
            }
            let key = format!("key-{at}");
            let script = format!(
                "echo \"$BURSAR_WORKLOAD $BURSAR_ATTEMPT\" >> {}; sleep 0.{}",
                self.runs,
                at % 7
            );
            let body = json!({ "workload": {
                "name": key, "gpus": 1 + at % 2, "budget_owner": "main", "min_runtime": "10m",
                "resumable": false, "workdir": "/", "command": ["sh", "-c", script],
            }})
            .to_string();
            let number = eventually("an acknowledgement", || {
                let url = self.url.lock().expect("no panic").clone();
                let answer = post(&url, &self.token, "/v1/workloads", Some(&key), &body)?;
                match answer {
                    (200, answer) => answer["workload"].as_u64(),
                    (503, _) => None,
                    (status, answer) => panic!("{key}: {status} {answer}"),
                }
            });
            self.acknowledged.lock().expect("no panic").insert(key, number);
        }
    }

    fn count(&self) -> usize {
        self.acknowledged.lock().expect("no panic").len()
    }
}

#[test]
fn nothing_is_lost_and_nothing_runs_twice() {
    let dir = folder();
    let data = dir.path().join("site");
    let runs = dir.path().join("runs");
    let mut site = Site::up(&data);
    let token = site.token.clone();
    let clients = Arc::new(Clients {
        url: Mutex::new(site.url.clone()),
        token: token.clone(),
        next: AtomicUsize::new(0),
        acknowledged: Mutex::new(BTreeMap::new()),
        runs: runs.to_str().expect("text").to_owned(),
    });
    let threads: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let clients = Arc::clone(&clients);
            std::thread::spawn(move || clients.work())
        })
        .collect();
    let mut dice = Dice(SEED);
    let mut target = 0;
    for kill in 1..=KILLS {
        // After the n-th answer, while the other clients have asked and were not answered.
        target += 2 + dice.roll(6) as usize;
        let most = WORKLOADS - (KILLS - kill) - 1;
        eventually(&format!("answer {target}, seed {SEED}"), || {
            (clients.count() >= target.min(most)).then_some(())
        });
        std::thread::sleep(Duration::from_micros(dice.roll(3_000)));
        site.kill();
        site = Site::up(&data);
        assert!(site.token.is_empty(), "a second first token");
        site.token.clone_from(&token);
        clients.url.lock().expect("no panic").clone_from(&site.url);
    }
    for thread in threads {
        thread.join().expect("a client that was answered");
    }
    let acknowledged = clients.acknowledged.lock().expect("no panic").clone();
    assert_eq!(acknowledged.len(), WORKLOADS);
    let numbers: BTreeSet<u64> = acknowledged.values().copied().collect();
    assert_eq!(numbers.len(), WORKLOADS, "two keys, one workload");

    eventually("the end of all", || {
        site.get("/v1/workloads")["workloads"].as_array()?.is_empty().then_some(())
    });
    let list = site.get("/v1/workloads?all=true");
    let list = list["workloads"].as_array().expect("a list");
    let there: BTreeSet<u64> = list.iter().filter_map(|work| work["workload"].as_u64()).collect();
    assert_eq!(there, numbers, "acknowledged, and there");
    let told: BTreeMap<u64, Value> = numbers.iter().map(|&one| (one, site.work(one))).collect();

    // One line for each attempt that ran, one attempt for each workload.
    let lines = fs::read_to_string(&runs).expect("it ran");
    let mut ran: Vec<&str> = lines.lines().collect();
    ran.sort_unstable();
    let mut once = Vec::new();
    for (number, work) in &told {
        assert_eq!(work["name"].as_str().and_then(|key| acknowledged.get(key)), Some(number));
        // Killed between the claim of an attempt and its start, the daemon cannot know that it may start it: that
        // attempt never runs, and its workload waits again.
        assert_eq!(work["ending"], "completed", "{work}");
        let attempts = work["history"].as_array().expect("attempts");
        let (last, before) = attempts.split_last().expect("it ran");
        for never in before {
            assert_eq!(
                (&never["started_unix_ms"], &never["charged_gpu_ms"]),
                (&Value::Null, &json!(0))
            );
        }
        once.push(format!("{number} {}", last["attempt"]));
    }
    once.sort_unstable();
    assert_eq!(ran, once);
    assert_eq!(site.stop(), Some(0));
    compare(&data, &told);
}

/// The folded journal says what the API told, and charges are what the records of starts and ends come to.
fn compare(data: &Path, told: &BTreeMap<u64, Value>) {
    let reader = Reader::beside(data).expect("a journal");
    let site = history::fold(&reader).expect("it folds");
    let mut seen: BTreeMap<(u64, u32), (u64, Option<u64>)> = BTreeMap::new();
    history::records(&reader, &mut |record| {
        match record.body {
            Body::Started { workload, attempt, since_ms } => {
                let since = since_ms.unwrap_or(record.at_ms);
                let twice = seen.insert((workload, attempt), (since, None));
                assert_eq!(twice, None, "workload {workload} started twice");
            }
            Body::Stopped { workload, attempt, ended_ms, .. } => {
                // Not started in the journal: it never ran.
                if let Some((_, ended)) = seen.get_mut(&(workload, attempt)) {
                    assert_eq!(
                        ended.replace(ended_ms.unwrap_or(record.at_ms)),
                        None,
                        "workload {workload} ended twice"
                    );
                }
            }
            _ => {}
        }
        Ok(())
    })
    .expect("it is read");
    let mut all = 0;
    for work in site.works() {
        let shown = &told[&work.number];
        assert_eq!(shown["attempts"], work.attempts.len());
        assert_eq!(shown["declared"], json!(work.declared));
        for (attempt, view) in work.attempts.iter().zip(shown["history"].as_array().expect("one")) {
            let Some(&(started, ended)) = seen.get(&(work.number, attempt.number)) else {
                assert_eq!((attempt.started_ms, attempt.charged_gpu_ms), (None, 0));
                continue;
            };
            let ended = ended.expect("it has ended");
            let charged = attempt.gpus() * (ended - started);
            assert_eq!(attempt.charged_gpu_ms, charged);
            assert_eq!(view["charged_gpu_ms"], charged);
            let between = |key: &str| view[key].as_u64().expect("a moment");
            // Each is told by the wall clock, which is read anew for it.
            let shown = between("ended_unix_ms") - between("started_unix_ms");
            assert!(shown.abs_diff(ended - started) <= 1, "{shown} {view}");
            all += charged;
        }
    }
    assert_eq!(site.charged_gpu_ms(), u128::from(all));
    assert_eq!(told.len(), site.works().count());
}
