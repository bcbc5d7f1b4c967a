//! What must be so in the end. Each check is a sentence about a job that it does not hold of.

use super::breaking::Forgotten;
use super::jobs::{Mark, Submitted, marks_of};
use crate::governed::Governed;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A run of a job, as Slurm accounts it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    job: String,
    state: String,
    started_s: Option<u64>,
    ended_s: Option<u64>,
    /// None where Slurm's accounts lost that: they do if the controller is killed at the wrong moment.
    gpus: Option<u64>,
    ran: bool,
}

/// A job, or a task of an array.
struct Story<'a> {
    submitted: &'a Submitted,
    /// The task's, or else the job's own.
    name: String,
    rows: Vec<Row>,
    /// As the API shows it, if it does.
    work: Option<Value>,
    marks: Vec<Mark>,
}

pub(crate) struct History<'a> {
    pub(crate) governed: &'a Governed,
    pub(crate) forgotten: &'a [Forgotten],
    pub(crate) nodes_failed: bool,
}

impl History<'_> {
    pub(crate) fn findings(&self, submitted: &[Submitted]) -> Vec<String> {
        let stories = self.stories(submitted);
        let mut findings = Vec::new();
        for story in &stories {
            let mut add = |what: String| findings.push(format!("{}: {what}", story.name));
            story.has_ended().unwrap_or_else(&mut add);
            story.ran_once_at_a_time().unwrap_or_else(&mut add);
            story.kept_its_protection().unwrap_or_else(&mut add);
            let forgotten = self.forgotten.iter().any(|forgotten| story.is_forgotten(forgotten));
            let id = &story.submitted.id;
            let others = submitted.iter().filter(|other| other.id == *id).count();
            if forgotten || id.is_some() && others > 1 {
                // Slurm itself does not know any more what was, or gave its number to another that a node has not
                // forgotten.
                continue;
            }
            story.is_known().unwrap_or_else(&mut add);
            story.ends_well(self).unwrap_or_else(&mut add);
            story.ran_as_often_as_accounted().unwrap_or_else(&mut add);
            story.is_charged_as_accounted(!self.forgotten.is_empty()).unwrap_or_else(&mut add);
        }
        for one in submitted {
            findings.extend(limit_of_array(one, &stories));
        }
        findings.extend(self.is_verified());
        findings
    }

    fn stories<'a>(&self, submitted: &'a [Submitted]) -> Vec<Story<'a>> {
        let works = self.works();
        let mut stories = Vec::new();
        for one in submitted {
            let name = &one.planned.name;
            let works: Vec<&Value> = works.iter().filter(|work| work["name"] == **name).collect();
            let ids = works.iter().filter_map(|work| shown(work)?.split('_').next());
            let ids = ids.map(str::to_owned).chain(one.id.clone()).collect();
            let rows = self.rows(name, &ids);
            let tasks = one
                .planned
                .kind
                .array
                .map_or(vec![None], |(_, tasks)| (0..tasks).map(Some).collect());
            for task in tasks {
                let ending = task.map(|task| format!("_{task}"));
                let is_its = |shown: &str| ending.as_ref().is_none_or(|it| shown.ends_with(&**it));
                let name = format!("{name}{}", ending.as_deref().unwrap_or_default());
                stories.push(Story {
                    submitted: one,
                    rows: rows.iter().filter(|row| is_its(&row.job)).cloned().collect(),
                    work: works
                        .iter()
                        .find(|work| shown(work).is_some_and(is_its))
                        .map(|work| (*work).clone()),
                    marks: marks_of(&self.governed.lab, &name),
                    name,
                });
            }
        }
        stories
    }

    fn works(&self) -> Vec<Value> {
        let site = self.governed.site();
        let all = site.get("/v1/workloads?all=true&limit=1000");
        let all = all["workloads"].as_array().expect("a list");
        all.iter().map(|work| site.work(work["workload"].as_u64().expect("a number"))).collect()
    }

    /// The runs of these jobs that are called so: a number may have been another's before.
    fn rows(&self, name: &str, ids: &BTreeSet<String>) -> Vec<Row> {
        if ids.is_empty() {
            return Vec::new();
        }
        let ids = ids.iter().cloned().collect::<Vec<_>>().join(",");
        let fields = "-oJobID,State,Start,End,AllocTRES,NodeList,JobName";
        let text = self.governed.lab.ok(
            "svc",
            "sacct",
            &["-a", "-D", "-X", "-P", "-n", "-j", &ids, fields],
        );
        let named = text.lines().filter(|line| line.rsplit('|').next() == Some(name));
        let mut rows: Vec<Row> = named.map(row).collect();
        rows.sort_by_key(|row| (row.started_s, row.ended_s));
        rows
    }

    /// The history is one that the simulator can play and the checker passes.
    fn is_verified(&self) -> Option<String> {
        let folder = self.governed.path("export");
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = |name: &str| folder.join(name).to_str().expect("UTF-8").to_owned();
        let (scenario, events) = (path("site.yaml"), path("events.jsonl"));
        let site = self.governed.site();
        for (done, what) in [
            (site.ask(&["export", "trace", "--scenario", "--out", &scenario]), "export"),
            (crate::bursar(&["simulate", &scenario, "--quiet", "--events", &events]), "simulate"),
            (crate::bursar(&["verify", &events, &scenario]), "verify"),
        ] {
            if done.code != Some(0) {
                return Some(format!("{what}: {}{}", done.stdout, done.stderr));
            }
        }
        None
    }

    /// Everything that is known, for whoever looks into a failure.
    pub(crate) fn told(&self, submitted: &[Submitted]) -> String {
        let mut told = String::new();
        for story in self.stories(submitted) {
            let one = story.submitted;
            let _ = writeln!(
                told,
                "{} {:?} at {}{}",
                story.name,
                one.id,
                one.at_ms[0],
                one.cancelled_ms.map_or(String::new(), |at| format!(", cancelled at {}", at[0]))
            );
            for row in &story.rows {
                let _ = writeln!(told, "    {row:?}");
            }
            let marks: Vec<String> =
                story.marks.iter().map(|mark| format!("{} {}", mark.word, mark.at_ms)).collect();
            let _ = writeln!(told, "    {}", marks.join(", "));
            let Some(work) = &story.work else { continue };
            let _ = writeln!(
                told,
                "    workload {} {} {}",
                work["workload"], work["state"], work["ending"]
            );
            for attempt in work["history"].as_array().expect("a history") {
                let _ = writeln!(told, "      {attempt}");
            }
        }
        told
    }
}

impl Story<'_> {
    fn kind(&self) -> &'static super::jobs::Kind {
        self.submitted.planned.kind
    }

    fn attempts(&self) -> &[Value] {
        self.work.as_ref().and_then(|work| work["history"].as_array()).map_or(&[], Vec::as_slice)
    }

    fn ending(&self) -> &str {
        self.work.as_ref().and_then(|work| work["ending"].as_str()).unwrap_or("none")
    }

    /// Runs that began.
    fn runs(&self) -> Vec<&Row> {
        self.rows.iter().filter(|row| row.started_s.is_some() && row.ran).collect()
    }

    /// Whether anything of it happened in a time that Slurm forgot.
    fn is_forgotten(&self, forgotten: &Forgotten) -> bool {
        let one = self.submitted;
        let spans = [Some(one.at_ms), one.cancelled_ms];
        let in_span = |span: [u64; 2]| span[0] <= forgotten.to_ms && span[1] >= forgotten.from_ms;
        // Seconds, cut off.
        let seconds = self.rows.iter().flat_map(|row| [row.started_s, row.ended_s]).flatten();
        spans.into_iter().flatten().any(in_span)
            || self.marks.iter().any(|mark| forgotten.has(mark.at_ms))
            || seconds.into_iter().any(|second| in_span([second * 1000, second * 1000 + 999]))
    }

    fn has_ended(&self) -> Result<(), String> {
        match &self.work {
            Some(work) if work["state"] != "ended" => Err(format!("it is {}", work["state"])),
            _ => Ok(()),
        }
    }

    /// No job is lost.
    fn is_known(&self) -> Result<(), String> {
        let one = self.submitted;
        let may_be_unknown = one.id.is_none() || one.cancelled_ms.is_some();
        if self.work.is_none() && (!may_be_unknown || !self.runs().is_empty()) {
            return Err("Bursar does not know it".to_owned());
        }
        Ok(())
    }

    /// Its end is one that its kind may have, and the one that Slurm has.
    fn ends_well(&self, history: &History<'_>) -> Result<(), String> {
        if self.work.is_none() {
            return Ok(());
        }
        let (kind, one, ending) = (self.kind(), self.submitted, self.ending());
        let evicted = self.attempts().last().is_some_and(|attempt| attempt["eviction"].is_object());
        let failed = history.nodes_failed || !history.forgotten.is_empty();
        let may = match ending {
            "cancelled" => one.cancelled_ms.is_some(),
            "terminated" => evicted && !kind.resumable,
            "host_failed" => failed && !kind.resumable,
            other => other == kind.ends,
        };
        if !may {
            return Err(format!("it ends as {ending}"));
        }
        let last = self.rows.last().map(|row| row.state.split(' ').next().unwrap_or_default());
        let same = matches!(
            (last, ending),
            (Some("COMPLETED"), "completed")
                | (Some("FAILED"), "failed" | "terminated")
                | (Some("CANCELLED"), "cancelled" | "terminated")
                | (Some("NODE_FAIL"), "host_failed")
                | (None, "cancelled")
        );
        if !same {
            return Err(format!("it ends as {ending}, for Slurm as {last:?}"));
        }
        let mut attempts = self.attempts().iter();
        let lost = |one: &&Value| one["outcome"] == "lost" && one["started_unix_ms"].is_u64();
        match attempts.find(lost).filter(|_| !failed) {
            Some(attempt) => Err(format!("a run was lost, and no node was: {attempt}")),
            None => Ok(()),
        }
    }

    fn count(&self, word: &str) -> usize {
        self.marks.iter().filter(|mark| mark.word == word).count()
    }

    fn ran_once_at_a_time(&self) -> Result<(), String> {
        match self.count("twice") {
            0 => Ok(()),
            _ => Err("it ran twice at once".to_owned()),
        }
    }

    /// Each run wrote one mark when it began, unless its node was killed before it could, and none came after the end.
    fn ran_as_often_as_accounted(&self) -> Result<(), String> {
        let count = |word: &str| self.count(word);
        let (begun, runs) = (count("begin"), self.runs().len());
        let lost = self.runs().iter().filter(|row| row.state == "NODE_FAIL").count();
        if !(runs - lost..=runs).contains(&begun) {
            return Err(format!("it began {begun} times, and {runs} runs are accounted"));
        }
        let over = ["completed", "failed", "cancelled"];
        let early = self.attempts().iter().rev().skip(1);
        match early
            .into_iter()
            .find(|one| one["outcome"].as_str().is_some_and(|it| over.contains(&it)))
        {
            Some(attempt) => Err(format!("it ran again after its end: {attempt}")),
            None => Ok(()),
        }
    }

    /// Nobody was told to leave before the time that he was promised.
    fn kept_its_protection(&self) -> Result<(), String> {
        for attempt in self.attempts() {
            let told = attempt["eviction"]["at_unix_ms"].as_u64();
            let until = attempt["protected_until_unix_ms"].as_u64();
            if let (Some(told), Some(until)) = (told, until)
                && told < until
            {
                return Err(format!("it was told to leave while it was protected: {attempt}"));
            }
        }
        // By what it wrote itself: who is protected for longer than he works never saves.
        let saved = self.marks.iter().any(|mark| mark.word == "saved");
        if saved && self.attempts().iter().all(|attempt| attempt["eviction"].is_null()) {
            return Err("it was told to leave, and Bursar did not decide that".to_owned());
        }
        Ok(())
    }

    /// Each attempt is charged what its run is accounted with. A controller that was killed may account fewer GPUs than
    /// it gave ("gres count underflow").
    fn is_charged_as_accounted(&self, forgot: bool) -> Result<(), String> {
        let mut charged = Vec::new();
        for attempt in self.attempts() {
            let (Some(from), Some(to)) =
                (attempt["started_unix_ms"].as_u64(), attempt["ended_unix_ms"].as_u64())
            else {
                continue;
            };
            let gpus = attempt["placement"].as_array().expect("a placement").iter();
            let gpus = gpus.map(|host| host[1].as_array().map_or(0, Vec::len) as u64).sum::<u64>();
            let charge = attempt["charged_gpu_ms"].as_u64().expect("a charge");
            let due = if attempt["allocated"] == true { gpus * (to - from) } else { 0 };
            // Moments are told to the millisecond, by a clock that is one to and fro.
            if charge.abs_diff(due) > gpus {
                return Err(format!("{charge} GPU-ms are charged, not {due}: {attempt}"));
            }
            charged.push(Charge { from_ms: from, span_ms: to - from, gpus: Some(gpus) });
        }
        let of_row = |row: &&Row| {
            let (from, to) = row.started_s.zip(row.ended_s)?;
            Some(Charge { from_ms: from * 1000, span_ms: (to - from) * 1000, gpus: row.gpus })
        };
        let accounted: Vec<Charge> = self.runs().iter().filter_map(of_row).collect();
        let mut pairs = charged.iter().zip(&accounted);
        if charged.len() == accounted.len() && pairs.all(|(ours, slurms)| ours.is(slurms, forgot)) {
            Ok(())
        } else {
            Err(format!("charged {charged:?}, accounted {accounted:?}"))
        }
    }
}

/// What a run is charged for.
#[derive(Debug)]
struct Charge {
    from_ms: u64,
    span_ms: u64,
    gpus: Option<u64>,
}

impl Charge {
    /// Slurm's second of a start may have begun before the decision; charges never do. Moments are told by the daemon's
    /// clock, which is a millisecond to and fro: what is charged for them is exact.
    fn is(&self, slurms: &Self, forgot: bool) -> bool {
        let may_be = |gpus| self.gpus == Some(gpus) || (forgot && self.gpus > Some(gpus));
        self.span_ms.abs_diff(slurms.span_ms) <= 1
            && slurms.gpus.is_none_or(may_be)
            && self.from_ms.abs_diff(slurms.from_ms) <= 1500
    }
}

/// What people know a job by.
fn shown(work: &Value) -> Option<&str> {
    work["declared"]["command"][0].as_str()?.rsplit(' ').next()
}

/// No more tasks of an array ran at once than its user wants.
fn limit_of_array(one: &Submitted, stories: &[Story<'_>]) -> Option<String> {
    let (most, _) = one.planned.kind.array?;
    let own = stories.iter().filter(|story| std::ptr::eq(story.submitted, one));
    let mut steps = Vec::new();
    for row in own.flat_map(|story| story.runs()) {
        // A second may be both one's last and another's first.
        steps.push((row.started_s?, 1, 1));
        steps.push((row.ended_s?, 0, -1));
    }
    steps.sort_unstable();
    let (mut running, mut peak) = (0, 0);
    for (_, _, step) in steps {
        running += step;
        peak = peak.max(running);
    }
    (peak > most as i64).then(|| format!("{}: {peak} tasks ran at once", one.planned.name))
}

fn row(line: &str) -> Row {
    let fields: Vec<&str> = line.split('|').collect();
    let gpus = fields[4].split(',').find_map(|one| one.strip_prefix("gres/gpu="));
    Row {
        job: fields[0].to_owned(),
        state: fields[1].to_owned(),
        started_s: fields[2].parse().ok(),
        ended_s: fields[3].parse().ok(),
        gpus: gpus.and_then(|gpus| gpus.parse().ok()),
        ran: fields[5] != "None assigned",
    }
}
