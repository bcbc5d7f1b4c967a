//! What happens in the demo: who submits what and when, and which host is drained.

use crate::client::Client;
use crate::failure::Failure;
use crate::live::words;
use bursar_site::BudgetDoc;
use bursar_site::budgets::Share;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// A submission: at which second, who, for which budget, what.
struct Scene {
    at_s: u64,
    user: &'static str,
    budget: &'static str,
    name: &'static str,
    gpus: u32,
    min_runtime: &'static str,
    steps: u64,
}

const fn scene(
    at_s: u64,
    (user, budget): (&'static str, &'static str),
    name: &'static str,
    gpus: u32,
    min_runtime: &'static str,
    steps: u64,
) -> Scene {
    Scene { at_s, user, budget, name, gpus, min_runtime, steps }
}

const ANN: (&str, &str) = ("ann", "vision/detection");
const MAX: (&str, &str) = ("max", "vision/generation");
const BOB: (&str, &str) = ("bob", "language/pretraining");
const SUE: (&str, &str) = ("sue", "language/evaluation");

/// The beginning. Vision fills all GPUs while language sleeps; when language comes, it waits until the first
/// contracts are over, and then takes what it was funded for.
const OPENING: [Scene; 7] = [
    scene(0, MAX, "diffusion", 4, "10s", 90),
    scene(0, ANN, "detector", 2, "10s", 60),
    scene(1, MAX, "video", 2, "12s", 60),
    scene(3, ANN, "ablation", 2, "8s", 30),
    scene(5, BOB, "llm", 4, "10s", 80),
    scene(9, SUE, "benchmark", 1, "5s", 20),
    scene(12, SUE, "sweep", 1, "0s", 40),
];

/// What goes on after it, again and again.
const ROUND: [Scene; 6] = [
    scene(0, ANN, "detector", 2, "10s", 50),
    scene(4, MAX, "diffusion", 4, "10s", 60),
    scene(8, SUE, "benchmark", 1, "5s", 20),
    scene(14, BOB, "llm", 4, "12s", 70),
    scene(20, MAX, "video", 2, "8s", 40),
    scene(26, SUE, "sweep", 1, "0s", 30),
];

const OPENING_S: u64 = 40;
const ROUND_S: u64 = 36;

/// Nothing more is submitted while so many wait: nobody looks at a queue that only grows.
const WAITING_MAX: usize = 6;

const DRAIN_AT_S: u64 = 20;
const DRAIN_EVERY_S: u64 = 60;
/// How long a host is repaired.
const REPAIR_S: u64 = 5;

/// The demo's budgets: two programmes with two budgets each.
pub(super) fn budgets() -> BTreeMap<String, BudgetDoc> {
    let leaf = |share: u64, member: &str| BudgetDoc {
        share: Share(share * 1_000_000),
        members: vec![member.to_owned()],
        ..BudgetDoc::default()
    };
    let programme = |owner: &str, children: [(&str, BudgetDoc); 2]| BudgetDoc {
        share: Share(1_000_000),
        owners: vec![owner.to_owned()],
        children: children.map(|(name, child)| (name.to_owned(), child)).into(),
        ..BudgetDoc::default()
    };
    let vision = [("detection", leaf(1, "ann")), ("generation", leaf(2, "max"))];
    let language = [("pretraining", leaf(3, "bob")), ("evaluation", leaf(1, "sue"))];
    [("vision", programme("vera", vision)), ("language", programme("lars", language))]
        .map(|(name, budget)| (name.to_owned(), budget))
        .into()
}

/// How far the story is.
pub(super) struct Story {
    program: String,
    /// Last one first: what starts early has the first.
    hosts: Vec<String>,
    /// GPUs of each.
    gpus: u32,
    /// Scenes that were played: of the opening, then of all rounds.
    played: usize,
    drains: u64,
    /// Since which second the host that drained is empty.
    drained_at_s: Option<u64>,
}

impl Story {
    /// A story whose workloads run this program, on the hosts that there are.
    pub(super) fn new(program: String, client: &Client) -> Result<Self, Failure> {
        let answer = client.get("/v1/hosts", &[])?;
        let hosts: Vec<&Value> = answer["hosts"].as_array().into_iter().flatten().rev().collect();
        let gpus = hosts.iter().filter_map(|host| host["gpus"].as_u64()).max().unwrap_or(1);
        Ok(Self {
            program,
            hosts: hosts.into_iter().map(|host| words(&host["name"])).collect(),
            gpus: u32::try_from(gpus).unwrap_or(u32::MAX),
            played: 0,
            drains: 0,
            drained_at_s: None,
        })
    }

    /// The scene that comes next, with its second.
    fn next(&self) -> (u64, &'static Scene) {
        match OPENING.get(self.played) {
            Some(scene) => (scene.at_s, scene),
            None => {
                let later = self.played - OPENING.len();
                let scene = &ROUND[later % ROUND.len()];
                let round = (later / ROUND.len()) as u64;
                (OPENING_S + round * ROUND_S + scene.at_s, scene)
            }
        }
    }

    /// Does what is due.
    pub(super) fn go_on(&mut self, client: &Client, since: Duration) -> Result<(), Failure> {
        let second = since.as_secs();
        while self.next().0 <= second {
            let (_, scene) = self.next();
            self.played += 1;
            if self.played <= OPENING.len() || waiting(client)? < WAITING_MAX {
                client.post("/v1/workloads", None, &self.workload(scene).to_string())?;
            }
        }
        self.drain(client, second)
    }

    fn workload(&self, scene: &Scene) -> Value {
        json!({ "workload": {
            "name": scene.name, "gpus": scene.gpus.min(self.gpus), "budget_owner": scene.budget, "user": scene.user,
            "min_runtime": scene.min_runtime, "resumable": true, "checkpoint_on_signal": true,
            "checkpoint_interval": "5s",
            "command": [self.program, "demo-train", "--steps", scene.steps.to_string()],
        }})
    }

    /// A host after the other is emptied, repaired and put back.
    fn drain(&mut self, client: &Client, second: u64) -> Result<(), Failure> {
        if second < DRAIN_AT_S + self.drains * DRAIN_EVERY_S || self.hosts.is_empty() {
            return Ok(());
        }
        let host = self.hosts[self.drains as usize % self.hosts.len()].clone();
        let answer = client.get("/v1/hosts", &[])?;
        let hosts = answer["hosts"].as_array().into_iter().flatten();
        let state = |known: &Value| known["state"].as_str().unwrap_or_default().to_owned();
        let state = hosts.filter(|known| known["name"] == *host).map(state).next();
        match state.as_deref() {
            Some("up") => {
                let body = json!({ "reason": "fan 2 is loud" }).to_string();
                client.post(&format!("/v1/hosts/{host}/drain"), None, &body)?;
            }
            Some("drained") => {
                let since = *self.drained_at_s.get_or_insert(second);
                if second >= since + REPAIR_S {
                    client.post(&format!("/v1/hosts/{host}/undrain"), None, "")?;
                    self.drained_at_s = None;
                    self.drains += 1;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn waiting(client: &Client) -> Result<usize, Failure> {
    let works = client.get("/v1/workloads", &[])?;
    let waits = |work: &&Value| work["state"] == "queued";
    Ok(works["workloads"].as_array().into_iter().flatten().filter(waits).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_story_goes_on_in_order() {
        let mut story = Story {
            program: "bursar".into(),
            hosts: Vec::new(),
            gpus: 4,
            played: 0,
            drains: 0,
            drained_at_s: None,
        };
        let mut last = 0;
        for played in 0..40 {
            story.played = played;
            let (second, _) = story.next();
            assert!(second >= last, "scene {played} at {second} s comes after one at {last} s");
            last = second;
        }
        assert!(last > 200);
    }

    #[test]
    fn everybody_may_submit_to_their_budget() {
        let budgets = bursar_site::Budgets::new(1, budgets(), vec!["you".into()]).expect("a tree");
        for scene in OPENING.iter().chain(&ROUND) {
            assert!(budgets.is_member(scene.user, scene.budget), "{}", scene.name);
        }
    }
}
