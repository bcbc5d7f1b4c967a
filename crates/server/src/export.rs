//! A site's history for the simulator: its workloads as a trace, or all of it as a scenario (docs/formats.md).
//!
//! What a workload needed is what it was seen to do: the time of all its attempts, less what was lost of them.
//! Work that never ran has shown nothing and is left out; work that still runs has shown what it did so far.

use crate::history;
use crate::journal::JournalError;
use bursar_site::record::{HostDoc, Outcome, SettingsDoc};
use bursar_site::site::{HostSaid, HostTurn};
use bursar_site::terms::TermDoc;
use bursar_site::{BudgetDoc, Ending, Site, Stage, Work};
use bursar_store::Reader;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What is written, and what its reader should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The trace or scenario.
    pub text: String,
    /// What is not in it, a sentence for each.
    pub notes: Vec<String>,
    /// The moment at which it was written, in milliseconds since the file's beginning: no more is known.
    pub until_ms: u64,
}

/// How long work needs that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// As long as it was seen to run so far; what never ran is left out.
    AsSeen,
    /// Up to its limit, where it has one; what never ran and has none is left out.
    ToLimit,
}

/// What of a site's books a simulation can use.
pub struct History {
    name: String,
    hosts: Vec<HostDoc>,
    rates_milli: BTreeMap<String, u64>,
    settings: SettingsDoc,
    /// The wall clock at the site's moment 0.
    unix_ms: u64,
    /// Whether GPU-hours went from one term to another, which a scenario cannot tell.
    has_transfers: bool,
    now_ms: u64,
    /// Where the file's moment 0 lies, in milliseconds since the site was created.
    begin_ms: u64,
    /// Every tree that was in force, and from when on.
    trees: Vec<(u64, BTreeMap<String, BudgetDoc>)>,
    host_events: Vec<(u64, String, &'static str)>,
    works: Vec<Work>,
}

impl History {
    /// The history of a journal that is read apart: all of it, or the last so many milliseconds.
    ///
    /// # Errors
    /// If it cannot be read or folded.
    pub fn read(reader: &Reader, last_ms: Option<u64>) -> Result<Self, JournalError> {
        let site = history::fold(reader)?;
        let now_ms = site.now_ms();
        Ok(Self::of(&site, now_ms, last_ms))
    }

    /// The history of a site up to now: all of it, or the last so many milliseconds. What began before them is there
    /// with what was left of it.
    #[must_use]
    pub fn of(site: &Site, now_ms: u64, last_ms: Option<u64>) -> Self {
        let begin_ms = last_ms.map_or(0, |last_ms| now_ms.saturating_sub(last_ms));
        let is_there = |work: &&Work| {
            let ended_ms = work.spells.last().and_then(|spell| spell.until_ms);
            !matches!(work.stage, Stage::Ended(_)) || ended_ms.is_none_or(|end| end > begin_ms)
        };
        let created = &site.created;
        let trees = site.trees().into_iter().map(|(at_ms, budgets)| (at_ms, budgets.tree));
        Self {
            name: created.name.clone(),
            hosts: created.hosts.clone(),
            rates_milli: created.rates_milli.clone(),
            settings: created.settings.clone(),
            unix_ms: created.unix_ms,
            has_transfers: site.has_transfers(),
            now_ms,
            begin_ms,
            trees: from_then_on(trees.collect(), begin_ms),
            host_events: host_events(site, begin_ms),
            works: site.works().filter(is_there).cloned().collect(),
        }
    }

    /// How many milliseconds it has.
    #[must_use]
    pub const fn span_ms(&self) -> u64 {
        self.now_ms - self.begin_ms
    }

    /// As if this tree had been in force all the time.
    pub fn put_under(&mut self, tree: BTreeMap<String, BudgetDoc>) {
        self.trees = vec![(0, tree)];
    }

    /// A moment as the file has it.
    fn at(&self, at_ms: u64) -> String {
        seconds(at_ms.saturating_sub(self.begin_ms))
    }

    /// The workloads that ran, as our workload CSV.
    #[must_use]
    pub fn csv(&self) -> Written {
        let mut text = String::from(
            "id,submit,budget,gpus,runtime,user,min_runtime,resumable,rank,kind,gpu_model,checkpoint_interval,max_runtime,status\n",
        );
        let (mut idle, mut live) = (0, 0);
        for work in &self.works {
            let Some(runtime) = self.observed_ms(work) else {
                idle += 1;
                continue;
            };
            live += u64::from(!matches!(work.stage, Stage::Ended(_)));
            let one = &work.declared;
            let span = |ms: Option<u64>| ms.map(seconds).unwrap_or_default();
            let fields = [
                work.number.to_string(),
                self.at(submitted_ms(work)),
                one.budget.clone(),
                one.gpus.to_string(),
                seconds(runtime),
                one.user.clone(),
                seconds(one.min_runtime_ms),
                one.resumable.to_string(),
                one.rank.to_string(),
                kind(work).to_owned(),
                one.gpu_model.clone().unwrap_or_default(),
                span(one.checkpoint_interval_ms),
                span(one.max_runtime_ms),
                status(work).to_owned(),
            ];
            text += &fields.map(|field| cell(&field)).join(",");
            text.push('\n');
        }
        Written {
            text,
            notes: notes(idle, live, 0, Open::AsSeen),
            until_ms: self.now_ms - self.begin_ms,
        }
    }

    /// All of it, as a scenario.
    #[must_use]
    pub fn scenario(&self, open: Open) -> Written {
        let mut text = String::new();
        let shares = Shares::of(&self.trees);
        let (mut idle, mut live, mut divided) = (0, 0, 0);
        let mut works = String::new();
        for work in &self.works {
            if shares.is_divided(&work.declared.budget) {
                divided += 1;
                continue;
            }
            let is_open = !matches!(work.stage, Stage::Ended(_));
            let limit = work.declared.max_runtime_ms.filter(|_| is_open && open == Open::ToLimit);
            let Some(runtime) = self.observed_ms(work).max(limit) else {
                idle += 1;
                continue;
            };
            live += u64::from(is_open);
            works += &self.item(work, runtime);
        }
        let mut notes = notes(idle, live, divided, open);
        if self.has_transfers {
            notes.push(
                "transfers between terms are not in it: each has the limit that was written".into(),
            );
        }
        for note in &notes {
            let _ = writeln!(text, "# {note}");
        }
        let _ = writeln!(
            text,
            "about: {}",
            quoted(&format!("what happened on the site {}", self.name))
        );
        text += "cluster:\n  hosts:\n";
        for host in &self.hosts {
            let domain = host.domain.as_ref();
            let domain = domain.map_or(String::new(), |name| format!(", domain: {}", quoted(name)));
            let _ = writeln!(
                text,
                "    - {{gpus: {}, model: {}, name: {}{domain}}}",
                host.gpus,
                quoted(&host.model),
                quoted(&host.name)
            );
        }
        if !self.rates_milli.is_empty() {
            let rate = |(model, milli): (&String, &u64)| {
                format!("{}: {}", quoted(model), thousandths(*milli))
            };
            let rates: Vec<String> = self.rates_milli.iter().map(rate).collect();
            let _ = writeln!(text, "  rates: {{{}}}", rates.join(", "));
        }
        text += "budgets:\n";
        shares.write_tree(&mut text);
        let set = &self.settings;
        let _ = write!(
            text,
            "settings:\n  lookback: {}\n  horizon: {}\n  grace: {}\n  margin: {}\n  reservations: {}\n  reservation_age: {}\n  debug_hosts: {}\n",
            seconds(set.lookback_ms),
            seconds(set.horizon_ms),
            seconds(set.grace_ms),
            millionths(set.margin_ppm),
            set.reservations,
            seconds(set.reservation_age_ms),
            set.debug_hosts
        );
        // Days and months of terms are counted from there.
        let begins = i64::try_from(self.unix_ms.saturating_add(self.begin_ms)).ok();
        if let Some(begins) = begins.and_then(|ms| Timestamp::from_millisecond(ms).ok()) {
            let _ = writeln!(text, "  begins: {begins}");
        }
        if let Some(zone) = &set.time_zone {
            let _ = writeln!(text, "  time_zone: {}", quoted(zone));
        }
        if !self.host_events.is_empty() {
            text += "hosts_events:\n";
        }
        for (at_ms, host, event) in &self.host_events {
            let at = seconds(*at_ms);
            let _ = writeln!(text, "  - {{at: {at}, host: {}, event: {event}}}", quoted(host));
        }
        shares.write_changes(&mut text);
        if works.is_empty() {
            text += "workloads: []\n";
        } else {
            text += "workloads:\n";
            text += &works;
        }
        Written { text, notes, until_ms: self.now_ms - self.begin_ms }
    }

    fn item(&self, work: &Work, runtime_ms: u64) -> String {
        let one = &work.declared;
        let mut fields = vec![
            format!("id: {}", quoted(&work.number.to_string())),
            format!("submit: {}", self.at(submitted_ms(work))),
            format!("budget: {}", quoted(&one.budget)),
        ];
        fields.extend(match one.shape {
            Some((hosts, each)) => {
                [format!("hosts: {hosts}"), format!("gpus_per_host: {each}")].to_vec()
            }
            None => vec![format!("gpus: {}", one.gpus)],
        });
        fields.extend([
            format!("runtime: {}", seconds(runtime_ms)),
            format!("min_runtime: {}", seconds(one.min_runtime_ms)),
            format!("resumable: {}", one.resumable),
            format!("rank: {}", one.rank),
            format!("user: {}", quoted(&one.user)),
            format!("kind: {}", kind(work)),
            format!("status: {}", status(work)),
        ]);
        let spans = [
            ("checkpoint_interval", one.checkpoint_interval_ms),
            ("max_runtime", one.max_runtime_ms),
        ];
        for (key, ms) in spans {
            fields.extend(ms.map(|ms| format!("{key}: {}", seconds(ms))));
        }
        if one.checkpoint_on_signal {
            fields.push("checkpoint_on_signal: true".into());
        }
        if one.grace_ms < self.settings.grace_ms {
            fields.push(format!("grace: {}", seconds(one.grace_ms)));
        }
        fields.extend(one.gpu_model.as_ref().map(|model| format!("gpu_model: {}", quoted(model))));
        let ran = self.ran(work);
        if !ran.is_empty() {
            fields.push(format!("ran: [{}]", ran.join(", ")));
        }
        format!("  - {{{}}}\n", fields.join(", "))
    }

    /// What its attempts were, as a scenario has it.
    fn ran(&self, work: &Work) -> Vec<String> {
        let mut ran = Vec::new();
        // An engine that rounds its moments may have one attempt begin before the end of the last.
        let mut earliest_ms = submitted_ms(work).max(self.begin_ms);
        for attempt in &work.attempts {
            let Some(start_ms) = attempt.started_ms.map(|start| start.max(earliest_ms)) else {
                continue;
            };
            if attempt.ended_ms.is_some_and(|end_ms| end_ms <= start_ms) {
                continue;
            }
            let end =
                attempt.ended_ms.map_or(String::new(), |ms| format!(", end: {}", self.at(ms)));
            let on =
                |(host, gpus): &(String, Vec<u32>)| format!("{}: {}", quoted(host), gpus.len());
            let on: Vec<String> = attempt.placement.iter().map(on).collect();
            earliest_ms = attempt.ended_ms.unwrap_or(start_ms);
            let start = self.at(start_ms);
            ran.push(format!("{{start: {start}{end}, on: {{{}}}}}", on.join(", ")));
        }
        ran
    }

    /// How long it worked, less what was lost; none if it never ran.
    fn observed_ms(&self, work: &Work) -> Option<u64> {
        let mut worked = 0;
        let mut is_over = false;
        for attempt in &work.attempts {
            let Some(started) = attempt.started_ms else { continue };
            if std::mem::take(&mut is_over) {
                // It had ended and was asked to run once more, from the beginning.
                worked = 0;
            }
            is_over = match attempt.outcome {
                Some(Outcome::Completed | Outcome::Failed | Outcome::Cancelled) => true,
                Some(Outcome::Left | Outcome::Lost) | None => false,
            };
            // What was done before the file begins need not be done again.
            let ended = attempt.ended_ms.unwrap_or(self.now_ms);
            let ran = ended.saturating_sub(started.max(self.begin_ms));
            worked += ran.saturating_sub(attempt.lost_gpu_ms / attempt.gpus().max(1));
        }
        let ran = work.attempts.iter().any(|attempt| {
            attempt.started_ms.is_some()
                && attempt.ended_ms.is_none_or(|ended| self.begin_ms == 0 || ended > self.begin_ms)
        });
        // A runtime of nothing is not taken; it ran for less than the clock shows.
        ran.then_some(worked.max(1))
    }
}

/// When it was submitted, as far as is known: what began to run before it was known here was there by then.
fn submitted_ms(work: &Work) -> u64 {
    let first = work.attempts.iter().filter_map(|attempt| attempt.started_ms).min();
    first.map_or(work.submitted_ms, |first| first.min(work.submitted_ms))
}

/// The trees from a moment on: the one in force then, and those that came later. Moments count from it.
fn from_then_on<T>(mut trees: Vec<(u64, T)>, begin_ms: u64) -> Vec<(u64, T)> {
    let in_force = trees.partition_point(|(at_ms, _)| *at_ms <= begin_ms).max(1) - 1;
    let mut later = trees.split_off(in_force);
    later.iter_mut().for_each(|(at_ms, _)| *at_ms = at_ms.saturating_sub(begin_ms));
    later
}

/// What became of hosts from a moment on, counted from it: how each stood then comes first.
fn host_events(site: &Site, begin_ms: u64) -> Vec<(u64, String, &'static str)> {
    let name = |host: u32| site.created.hosts[host as usize].name.clone();
    let word = |turn: HostTurn| match turn {
        HostTurn::Drain => "drain",
        HostTurn::Fail => "fail",
        HostTurn::Repair => "repair",
    };
    let (before, later): (Vec<HostSaid>, Vec<HostSaid>) =
        site.host_log().iter().partition(|said| said.at_ms < begin_ms);
    let stood: BTreeMap<u32, HostTurn> = before.iter().map(|said| (said.host, said.what)).collect();
    let stood = stood.into_iter().filter(|(_, turn)| *turn != HostTurn::Repair);
    let first = stood.map(|(host, turn)| (0, name(host), word(turn)));
    let later = later.iter().map(|said| (said.at_ms - begin_ms, name(said.host), word(said.what)));
    first.chain(later).collect()
}

fn notes(idle: u64, live: u64, divided: u64, open: Open) -> Vec<String> {
    let mut notes = Vec::new();
    let mut add = |count: u64, what: &str| {
        if count > 0 {
            let plural = if count == 1 { "" } else { "s" };
            notes.push(format!("{count} workload{plural} {what}"));
        }
    };
    add(idle, "never ran and left out: what they need is not known");
    add(
        live,
        match open {
            Open::AsSeen => "not ended yet: they have the runtime that was seen so far",
            Open::ToLimit => {
                "not ended yet: where they have a limit, they are taken to need all of it"
            }
        },
    );
    add(divided, "left out: their budget was divided later");
    notes
}

/// A term as scenarios have it.
fn term(term: &TermDoc) -> String {
    let mut fields = Vec::new();
    if let Some(each) = term.each {
        fields.push(format!("each: {}", each.word()));
    }
    fields.extend(term.from.as_deref().map(|from| format!("from: {}", quoted(from))));
    fields.extend(term.until.as_deref().map(|until| format!("until: {}", quoted(until))));
    fields.push(format!("limit: {}", thousandths((term.limit * 1_000.0).round() as u64)));
    if term.carry_over {
        fields.push("carry_over: true".to_owned());
    }
    format!("{{{}}}", fields.join(", "))
}

fn kind(work: &Work) -> &'static str {
    match work.declared.kind {
        bursar_site::declare::Kind::Batch => "batch",
        bursar_site::declare::Kind::Session => "session",
    }
}

fn status(work: &Work) -> &'static str {
    match work.stage {
        Stage::Ended(Ending::Completed) | Stage::Waits | Stage::Live(_) => "completed",
        Stage::Ended(Ending::Cancelled | Ending::Unreachable) => "cancelled",
        Stage::Ended(Ending::Failed | Ending::Terminated | Ending::HostFailed) => "failed",
    }
}

/// When a share became what, in millionths.
type OverTime = Vec<(u64, u64)>;

/// Shares over time of every budget that ever was.
struct Shares<'a> {
    /// By path: its share over time, and how it was last.
    budgets: BTreeMap<String, (OverTime, &'a BudgetDoc)>,
}

impl<'a> Shares<'a> {
    fn of(trees: &'a [(u64, BTreeMap<String, BudgetDoc>)]) -> Self {
        let mut shares = Self { budgets: BTreeMap::new() };
        for (at_ms, tree) in trees {
            let mut there = BTreeMap::new();
            flatten("", tree, &mut there);
            for (path, doc) in &there {
                let entry = shares.budgets.entry(path.clone());
                let (over_time, last) = entry.or_insert_with(|| (Vec::new(), doc));
                *last = doc;
                note_share(over_time, *at_ms, doc.share.0);
            }
            for (path, (over_time, _)) in &mut shares.budgets {
                // What is gone is owed nothing any more.
                if !there.contains_key(path) {
                    note_share(over_time, *at_ms, 0);
                }
            }
        }
        shares
    }

    /// Whether there ever was a budget below it.
    fn is_divided(&self, path: &str) -> bool {
        let below = format!("{path}/");
        self.budgets.keys().any(|other| other.starts_with(&below))
    }

    fn write_tree(&self, text: &mut String) {
        self.write_below("", 1, text);
    }

    fn write_below(&self, above: &str, depth: usize, text: &mut String) {
        for (path, (over_time, doc)) in &self.budgets {
            let name = match path.strip_prefix(above) {
                Some(rest) if above.is_empty() => rest,
                Some(rest) => rest.strip_prefix('/').unwrap_or_default(),
                None => continue,
            };
            if name.is_empty() || name.contains('/') {
                continue;
            }
            let indent = "  ".repeat(depth);
            // One that came later had no share before.
            let first = over_time.first().filter(|(at, _)| *at == 0).map_or(0, |(_, share)| *share);
            let _ =
                writeln!(text, "{indent}{}:\n{indent}  share: {}", quoted(name), millionths(first));
            if !doc.members.is_empty() {
                let members: Vec<String> = doc.members.iter().map(|one| quoted(one)).collect();
                let _ = writeln!(text, "{indent}  members: [{}]", members.join(", "));
            }
            if let Some(limit) = doc.limit {
                let _ = writeln!(text, "{indent}  limit: {}", limit.round());
            }
            if !doc.terms.is_empty() {
                let terms: Vec<String> = doc.terms.iter().map(term).collect();
                let _ = writeln!(text, "{indent}  terms: [{}]", terms.join(", "));
            }
            if self.is_divided(path) {
                let _ = writeln!(text, "{indent}  children:");
                self.write_below(path, depth + 2, text);
            }
        }
    }

    fn write_changes(&self, text: &mut String) {
        let mut changes: Vec<(u64, &str, u64)> = Vec::new();
        for (path, (over_time, _)) in &self.budgets {
            let later = over_time.iter().filter(|(at, _)| *at > 0);
            changes.extend(later.map(|(at, share)| (*at, &**path, *share)));
        }
        changes.sort_unstable();
        if !changes.is_empty() {
            text.push_str("budget_changes:\n");
        }
        for (at, path, share) in changes {
            let (at, path, share) = (seconds(at), quoted(path), millionths(share));
            let _ = writeln!(text, "  - {{at: {at}, budget: {path}, share: {share}}}");
        }
    }
}

fn note_share(over_time: &mut OverTime, at_ms: u64, share: u64) {
    match over_time.last_mut() {
        Some((at, last)) if *at == at_ms => *last = share,
        Some((_, last)) if *last == share => {}
        _ => over_time.push((at_ms, share)),
    }
}

fn flatten<'a>(
    above: &str,
    tree: &'a BTreeMap<String, BudgetDoc>,
    into: &mut BTreeMap<String, &'a BudgetDoc>,
) {
    for (name, doc) in tree {
        let path = if above.is_empty() { name.clone() } else { format!("{above}/{name}") };
        flatten(&path, &doc.children, into);
        into.insert(path, doc);
    }
}

/// A decimal number of units, without zeros at its end.
fn decimal(value: u64, per_unit: u64, digits: usize) -> String {
    let (whole, rest) = (value / per_unit, value % per_unit);
    if rest == 0 {
        return whole.to_string();
    }
    format!("{whole}.{rest:0digits$}").trim_end_matches('0').to_owned()
}

fn seconds(ms: u64) -> String {
    decimal(ms, 1_000, 3)
}

fn thousandths(milli: u64) -> String {
    decimal(milli, 1_000, 3)
}

fn millionths(micro: u64) -> String {
    decimal(micro, 1_000_000, 6)
}

/// Text in quotes, as YAML and JSON both read it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bursar_site::budgets::Share;

    #[test]
    fn numbers_are_exact() {
        assert_eq!(
            (seconds(1_234_567), seconds(1_500), seconds(60_000)),
            ("1234.567".into(), "1.5".into(), "60".into())
        );
        assert_eq!((millionths(50_000), millionths(1)), ("0.05".into(), "0.000001".into()));
        assert_eq!(cell("a,\"b\""), "\"a,\"\"b\"\"\"");
    }

    #[test]
    fn budgets_that_come_and_go_are_shares_over_time() {
        let leaf =
            |share: u64| BudgetDoc { share: Share(share * 1_000_000), ..BudgetDoc::default() };
        let tree = |entries: &[(&str, BudgetDoc)]| {
            entries.iter().map(|(name, doc)| ((*name).to_owned(), doc.clone())).collect()
        };
        let divided = BudgetDoc { children: tree(&[("x", leaf(2)), ("y", leaf(1))]), ..leaf(3) };
        let trees = vec![
            (0, tree(&[("a", leaf(1)), ("b", leaf(1))])),
            (5_000, tree(&[("a", leaf(2)), ("c", divided.clone())])),
            (7_000, tree(&[("a", leaf(2)), ("c", divided)])),
        ];
        let shares = Shares::of(&trees);
        assert!(shares.is_divided("c") && !shares.is_divided("a"));
        let (mut told, mut changes) = (String::new(), String::new());
        shares.write_tree(&mut told);
        shares.write_changes(&mut changes);
        assert!(
            told.contains(
                "  \"c\":\n    share: 0\n    children:\n      \"x\":\n        share: 0\n"
            ),
            "{told}"
        );
        assert_eq!(
            changes,
            "budget_changes:\n  - {at: 5, budget: \"a\", share: 2}\n  - {at: 5, budget: \"b\", share: 0}\n  - {at: 5, budget: \"c\", share: 3}\n  - {at: 5, budget: \"c/x\", share: 2}\n  - {at: 5, budget: \"c/y\", share: 1}\n"
        );
    }
}
