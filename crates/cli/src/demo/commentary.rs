//! What the demo says about what happens, read from what the API tells everybody.

use crate::client::Client;
use crate::failure::Failure;
use crate::live::{span, words};
use crate::shown::{one_line, say_raw};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::Duration;

/// How often to look into a log for the step that an attempt resumed from, before going on without.
const LOOKS_MAX: u32 = 40;

/// What was said about a workload.
#[derive(Default)]
struct Said {
    ended: bool,
    /// Looks in a row at which it waited.
    waited: u32,
    /// Attempts whose start was told.
    started: u64,
    /// Attempts whose eviction was told.
    evicted: u64,
    /// Attempts whose end of protection was told.
    unprotected: u64,
    /// Looks into the log of the attempt that resumes.
    looked: u32,
}

/// Tells what is new.
pub(super) struct Commentary {
    said: BTreeMap<u64, Said>,
    hosts: BTreeMap<String, String>,
    colours: bool,
    since: Duration,
}

#[derive(Clone, Copy)]
enum Tone {
    Plain,
    Good,
    Alarm,
    Quiet,
}

impl Commentary {
    pub(super) fn new() -> Self {
        let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { said: BTreeMap::new(), hosts: BTreeMap::new(), colours, since: Duration::ZERO }
    }

    fn tell(&self, tone: Tone, what: &str, rest: &str) {
        let code = match tone {
            Tone::Plain => "1",
            Tone::Good => "1;32",
            Tone::Alarm => "1;33",
            Tone::Quiet => "2",
        };
        let (seconds, rest) = (self.since.as_secs(), one_line(rest));
        let what = format!("{what:<9}");
        let what = if self.colours { format!("\x1b[{code}m{what}\x1b[0m") } else { what };
        say_raw(&format!("{seconds:>5}s  {what} {rest}\n"));
    }

    /// Looks at everything, and tells what changed.
    pub(super) fn look(&mut self, client: &Client, since: Duration) -> Result<(), Failure> {
        self.since = since;
        self.look_at_hosts(client)?;
        let last = self.said.keys().next_back().copied().unwrap_or(0);
        let query = [("all", "true".to_owned()), ("after", last.to_string())];
        let new = client.get("/v1/workloads", &query)?;
        for work in new["workloads"].as_array().into_iter().flatten() {
            self.said.insert(work["workload"].as_u64().unwrap_or_default(), Said::default());
        }
        let live: Vec<u64> =
            self.said.iter().filter(|(_, said)| !said.ended).map(|(number, _)| *number).collect();
        let mut works = Vec::new();
        for number in live {
            let work = client.get(&format!("/v1/workloads/{number}"), &[])?;
            // Who comes is told before what follows from it.
            if number > last {
                self.tell(Tone::Quiet, "submits", &submission(&work));
            }
            works.push((number, work));
        }
        for (number, work) in works {
            let mut said = self.said.remove(&number).unwrap_or_default();
            self.follow(client, &work, &mut said)?;
            self.said.insert(number, said);
        }
        Ok(())
    }

    fn follow(&self, client: &Client, work: &Value, said: &mut Said) -> Result<(), Failure> {
        let who = name(work);
        for attempt in work["history"].as_array().into_iter().flatten() {
            let number = attempt["attempt"].as_u64().unwrap_or_default();
            if number > said.started && attempt["started_unix_ms"].is_u64() {
                let resumed = if number > 1 { resumed_from(client, work, number)? } else { None };
                if number > 1 && resumed.is_none() && said.looked < LOOKS_MAX {
                    // Its first line is not written yet.
                    said.looked += 1;
                    return Ok(());
                }
                (said.started, said.looked) = (number, 0);
                self.tell_start(&who, attempt, resumed);
            }
            if number > said.evicted && attempt["eviction"].is_object() {
                said.evicted = number;
                self.tell_eviction(&who, &attempt["eviction"]);
            }
        }
        let attempts = work["attempts"].as_u64().unwrap_or(0);
        let interruptible = work["state"] == "interruptible" && work["allocated"] == true;
        if interruptible && attempts > said.unprotected {
            said.unprotected = attempts;
            self.tell(
                Tone::Quiet,
                "open",
                &format!("{who}: its contract is over, it may be preempted now"),
            );
        }
        said.waited = if work["state"] == "queued" { said.waited + 1 } else { 0 };
        // Not what starts in the same breath.
        if said.waited == 2 {
            let why = &work["why"];
            let rest = format!("{who}: {} (rule {})", words(&why["text"]), why["rule"]);
            self.tell(Tone::Plain, "waits", &rest);
        }
        if let Some(ending) = work["ending"].as_str() {
            said.ended = true;
            self.tell(Tone::Quiet, ending, &who);
        }
        Ok(())
    }

    fn tell_start(&self, who: &str, attempt: &Value, resumed: Option<String>) {
        let places = attempt["placement"].as_array().into_iter().flatten();
        let hosts: Vec<String> = places.map(|place| words(&place[0])).collect();
        let hosts = hosts.join(" and ");
        let reason = words(&attempt["reason"]);
        let until = attempt["protected_until_unix_ms"].as_u64();
        let started = attempt["started_unix_ms"].as_u64();
        let class = match until.zip(started) {
            Some((until, started)) => {
                format!("protected for {}", span(until.saturating_sub(started)))
            }
            None => "unallocated, never protected".to_owned(),
        };
        let number = attempt["attempt"].as_u64().unwrap_or(1);
        if number == 1 {
            self.tell(Tone::Good, "starts", &format!("{who} on {hosts}, {class}: {reason}"));
        } else {
            let step = resumed.map_or(String::new(), |step| format!(" from {step}"));
            let rest = format!("{who}{step} on {hosts}, attempt {number}, {class}: {reason}");
            self.tell(Tone::Good, "resumes", &rest);
        }
    }

    fn tell_eviction(&self, who: &str, eviction: &Value) {
        let rule = &eviction["rule"];
        let by = eviction["by"].as_u64().map_or(String::new(), |by| format!(" for #{by}"));
        let (side, against) = (&eviction["side"], &eviction["against"]);
        let why = if side.is_array() {
            format!(
                "usage ratio of {} is {} even after the swap, of {} it is {}",
                words(&side[0]),
                words(&side[1]),
                words(&against[0]),
                words(&against[1])
            )
        } else {
            bare(&eviction["reason"])
        };
        self.tell(Tone::Alarm, "preempted", &format!("{who}{by} (rule {rule}): {why}"));
    }

    fn look_at_hosts(&mut self, client: &Client) -> Result<(), Failure> {
        let answer = client.get("/v1/hosts", &[])?;
        for host in answer["hosts"].as_array().into_iter().flatten() {
            let (name, state) = (words(&host["name"]), words(&host["state"]));
            let before = self.hosts.insert(name.clone(), state.clone());
            if before.as_ref() == Some(&state) {
                continue;
            }
            match (before.as_deref(), &*state) {
                (_, "draining") => {
                    let left = host["workloads"].as_array().map_or(0, Vec::len);
                    let rest = format!(
                        "{name} ({}): takes nothing new; its {left} workload{} may stay as long as protected (rule 9)",
                        words(&host["reason"]),
                        if left == 1 { "" } else { "s" }
                    );
                    self.tell(Tone::Alarm, "drains", &rest);
                }
                (_, "drained") => {
                    self.tell(Tone::Alarm, "drained", &format!("{name} is empty, to be repaired"));
                }
                (Some(_), "up") => self.tell(Tone::Good, "back", &format!("{name} is in service")),
                _ => {}
            }
        }
        Ok(())
    }
}

/// A reason without the rule that it begins with: that is told already.
fn bare(reason: &Value) -> String {
    let reason = words(reason);
    match reason.strip_prefix("rule ").and_then(|rest| rest.split_once(": ")) {
        Some((_, rest)) => rest.to_owned(),
        None => reason,
    }
}

fn name(work: &Value) -> String {
    format!("#{} {} of {}", work["workload"], words(&work["name"]), words(&work["budget"]))
}

fn submission(work: &Value) -> String {
    let gpus = crate::live::gpus(&work["gpus"]);
    let contract = work["declared"]["min_runtime_ms"].as_u64().unwrap_or(0);
    let contract = if contract == 0 {
        "no contract".to_owned()
    } else {
        format!("a contract of {}", span(contract))
    };
    format!("{}: {}, {gpus}, {contract}", words(&work["user"]), name(work))
}

/// What the log of an attempt says about where it goes on.
fn resumed_from(client: &Client, work: &Value, attempt: u64) -> Result<Option<String>, Failure> {
    let path = format!("/v1/workloads/{}/log", work["workload"]);
    let part = client.get(&path, &[("attempt", attempt.to_string())])?;
    let text = part["text"].as_str().unwrap_or_default();
    let found = text.lines().find_map(|line| line.strip_prefix("resumed from "));
    Ok(found.map(str::to_owned))
}
