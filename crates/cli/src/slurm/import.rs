//! `bursar slurm import`: what a cluster ran, as a history and a scenario.

use super::init::{Cluster, Tree, must_be_free, planned, tree};
use super::scenario::{Parts, hosts, text};
use super::{ask, clients, must_exist};
use crate::args::{SlurmImportArgs, duration_ms};
use crate::config::Config;
use crate::failure::Failure;
use crate::interrupt;
use crate::shown::{note, say};
use crate::up::read_budgets;
use bursar_server::arrivals::AccountBudgets;
use bursar_server::settings::SettingsWanted;
use bursar_site::{BudgetDoc, Budgets};
use bursar_slurm::UserBudgets;
use bursar_slurm::client::SystemClients;
use bursar_slurm::read::{HistoryRow, Mark, history_call, node_call, read_history, read_nodes};
use bursar_trace::{Format, ReadOptions, Trace};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, stderr};
use std::path::Path;
use std::time::Duration;

const HISTORY: &str = "history.txt";
const SCENARIO: &str = "scenario.yaml";

/// The column of the history that names budgets.
const BUDGET_COLUMN: &str = "Budget";

/// What is charged where an account is no budget.
const FORMER: &str = "without-budget";

/// How long sacct may take for a day.
const DAY_LIMIT: Duration = Duration::from_secs(300);

pub(super) fn import(args: &SlurmImportArgs) -> Result<(), Failure> {
    let places = [HISTORY, SCENARIO].map(|name| args.out.join(name));
    must_be_free(&places, args.force)?;
    let span = Span::of(args)?;
    let mut source = Source::of(args)?;
    let nodes = {
        let mark = Mark::new();
        let call = node_call(&source.partitions, &mark);
        ask(&source.clients, &call, |answer| read_nodes(answer, &mark))?
    };
    let hosts = hosts(&nodes);
    let there = source.partitions.join(", ");
    if hosts.is_empty() {
        return Err(Failure::input(format!(
            "partition {there}: its nodes have no GPUs; give another"
        )));
    }
    source.clients.limit = DAY_LIMIT;
    let rows = read_days(&source, span, args.quiet)?;
    let mut history = History::of(rows, span, &source);
    if history.rows.is_empty() {
        return Err(Failure::input(format!(
            "partition {there}: no job with GPUs was submitted from {} to {}; see sacct -a -r {} -S {0}, and AccountingStorageTRES",
            moment(span.from_s),
            moment(span.until_s),
            source.partitions.join(",")
        )));
    }
    if history.charged.contains(FORMER) {
        source.tree.insert(FORMER.to_owned(), BudgetDoc::default());
    }
    if args.anonymise {
        let named = history.anonymise();
        if named > 0 {
            note(&format!(
                "note: {named} users have budgets of their name; --anonymise leaves names of budgets as they are"
            ));
        }
    }
    let about = format!(
        "Partition {there} of Slurm's cluster {}, from {} to {}",
        source.cluster,
        moment(span.from_s),
        moment(span.until_s)
    );
    let scenario = text(&Parts {
        about: &about,
        hosts: &hosts,
        tree: &source.tree,
        settings: source.settings.clone(),
        history: HISTORY,
        column: BUDGET_COLUMN,
        charged: &history.charged,
    })?;
    let told = write(args, &history, &scenario)?;
    say(&format!("{about}\n{told}"));
    Ok(())
}

/// Writes both files beside their places, sees that they can be simulated, and moves them there. Gives what a person is
/// told.
fn write(args: &SlurmImportArgs, history: &History, scenario: &str) -> Result<String, Failure> {
    let out = &args.out;
    let cannot =
        |error: &std::io::Error| Failure::input(format!("--out: {}: {error}", out.display()));
    let was_there = out.is_dir();
    std::fs::create_dir_all(out).map_err(|error| cannot(&error))?;
    let made =
        tempfile::Builder::new().prefix(".bursar-").tempdir_in(out).map_err(|error| cannot(&error));
    let result = made.and_then(|made| {
        let paths = [HISTORY, SCENARIO].map(|name| made.path().join(name));
        std::fs::write(&paths[0], history.text()).map_err(|error| cannot(&error))?;
        std::fs::write(&paths[1], scenario).map_err(|error| cannot(&error))?;
        let options = ReadOptions {
            format: Some(Format::Sacct),
            group_column: Some(BUDGET_COLUMN.to_owned()),
            ..ReadOptions::default()
        };
        let trace = bursar_trace::read_path(&paths[0], &options).map_err(Failure::fault)?;
        let read = bursar_scenario::load_path(&paths[1], &[]).map_err(|error| {
            Failure::Fault(format!("what was read cannot be simulated: {error}"))
        })?;
        let misfits = (trace.jobs.len() as u64).saturating_sub(read.workloads.len() as u64);
        interrupt::check()?;
        for (path, name) in paths.iter().zip([HISTORY, SCENARIO]) {
            std::fs::rename(path, out.join(name)).map_err(|error| cannot(&error))?;
            note(&format!("wrote {}", out.join(name).display()));
        }
        Ok(history.told(&trace, misfits) + &next(&out.join(SCENARIO)))
    });
    if result.is_err() && !was_there {
        // Only if it is empty, as we made it.
        let _ = std::fs::remove_dir(out);
    }
    result
}

fn next(scenario: &Path) -> String {
    let scenario = scenario.display();
    format!("\nNext:\n\n  bursar simulate {scenario} --policy budget --policy fair-tree\n")
}

/// A span of time, in seconds since 1970.
#[derive(Clone, Copy, Debug)]
struct Span {
    from_s: u64,
    until_s: u64,
}

impl Span {
    fn of(args: &SlurmImportArgs) -> Result<Self, Failure> {
        let now = Timestamp::now();
        let when = |flag: &str, text: &str| {
            instant(text, now).map_err(|why| Failure::input(format!("{flag}: {why}")))
        };
        let from_s = when("--since", &args.since)?;
        let until = args.until.as_deref().map(|text| when("--until", text)).transpose()?;
        let now_s = u64::try_from(now.as_second()).unwrap_or_default();
        let until_s = until.unwrap_or(now_s).min(now_s);
        if from_s >= until_s {
            return Err(Failure::input(format!(
                "--since: {} is not before {}; give an earlier one, such as 30d",
                moment(from_s),
                moment(until_s)
            )));
        }
        Ok(Self { from_s, until_s })
    }
}

/// `30d` ago, or a date of this machine's zone.
fn instant(text: &str, now: Timestamp) -> Result<u64, String> {
    let wrong =
        || format!("'{text}' is neither a time ago such as 30d nor a date such as 2026-10-01");
    let found = if let Ok(moment) = text.parse::<Timestamp>() {
        moment.as_second()
    } else if let Ok(at) =
        text.parse::<DateTime>().or_else(|_| text.parse::<Date>().map(DateTime::from))
    {
        TimeZone::system().to_timestamp(at).map_err(|_| wrong())?.as_second()
    } else if text.ends_with(|last: char| last.is_ascii_alphabetic()) {
        let ago_ms = duration_ms(text).map_err(|_| wrong())?;
        now.as_second() - i64::try_from(ago_ms / 1000).map_err(|_| wrong())?
    } else {
        return Err(wrong());
    };
    u64::try_from(found).map_err(|_| wrong())
}

/// A moment as files and people have it.
fn moment(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).map_or_else(|_| "Unknown".to_owned(), |at| at.to_string())
}

/// Where the history comes from, and what it is charged to.
struct Source {
    clients: SystemClients,
    cluster: String,
    partitions: Vec<String>,
    tree: Tree,
    accounts: AccountBudgets,
    settings: SettingsWanted,
}

impl Source {
    fn of(args: &SlurmImportArgs) -> Result<Self, Failure> {
        let Some(file) = &args.config else {
            let clients = clients(&args.clients)?;
            let cluster = Cluster::ask(&clients)?.name;
            must_exist(&args.partitions, &clients, "--partition")?;
            let planned = planned(&clients, &cluster, UserBudgets::None)?;
            return Ok(Self {
                tree: tree(&planned),
                accounts: AccountBudgets(planned.accounts),
                partitions: args.partitions.clone(),
                settings: SettingsWanted::default(),
                clients,
                cluster,
            });
        };
        let config = Config::read(file)?;
        let name = file.display();
        let block = config.slurm.as_ref().ok_or_else(|| {
            Failure::input(format!(
                "{name}: 'slurm' is missing; add a block such as slurm: {{partitions: [gpu]}}"
            ))
        })?;
        let wanted = block.wanted().map_err(|what| Failure::input(format!("{name}: {what}")))?;
        let cluster = Cluster::ask(&wanted.clients)?.name;
        must_exist(
            &wanted.options.partitions,
            &wanted.clients,
            &format!("{name}: slurm.partitions"),
        )?;
        let mut accounts = wanted.accounts;
        let tree = match &config.budgets {
            Some(budgets) => read_budgets(budgets, config.owner.as_deref().unwrap_or("root"))?,
            None => {
                let planned = planned(&wanted.clients, &cluster, UserBudgets::None)?;
                let tree = tree(&planned);
                accounts.0.extend(planned.accounts);
                tree
            }
        };
        Ok(Self {
            tree,
            accounts,
            partitions: wanted.options.partitions,
            settings: config.settings(),
            clients: wanted.clients,
            cluster,
        })
    }
}

/// Reads the accounts, a day at a time: slurmdbd refuses long answers, and an interrupt is heeded in between.
fn read_days(source: &Source, span: Span, quiet: bool) -> Result<Vec<HistoryRow>, Failure> {
    const DAY_S: u64 = 86_400;
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let days = (span.until_s - span.from_s).div_ceil(DAY_S);
    let bar = if quiet || plain || !stderr().is_terminal() {
        ProgressBar::hidden()
    } else {
        let style =
            ProgressStyle::with_template("{bar:30} day {pos} of {len}, {msg} rows, {eta} left");
        ProgressBar::new(days).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    };
    // A job that runs at midnight is in the answers for both days; the later one knows more of it.
    let mut rows: BTreeMap<(u64, String), HistoryRow> = BTreeMap::new();
    let mut from_s = span.from_s;
    while from_s < span.until_s {
        interrupt::check()?;
        let until_s = from_s.saturating_add(DAY_S).min(span.until_s);
        let mark = Mark::new();
        let call = history_call(&source.partitions, from_s, until_s, &mark);
        for row in ask(&source.clients, &call, |answer| read_history(answer, &mark))? {
            rows.insert((row.submitted, row.job.clone()), row);
        }
        bar.set_message(rows.len().to_string());
        bar.inc(1);
        from_s = until_s;
    }
    bar.finish_and_clear();
    Ok(rows.into_values().collect())
}

/// A row, and the budget that its job is charged to.
#[derive(Debug)]
struct Charged {
    row: HistoryRow,
    budget: String,
}

/// What was read, and how much of it was left out.
#[derive(Debug, Default)]
struct History {
    /// By submission.
    rows: Vec<Charged>,
    /// The budgets that they name.
    charged: BTreeSet<String>,
    read: usize,
    elsewhen: usize,
    without_gpus: usize,
    waiting: usize,
    put_back: usize,
    /// Accounts that are no budgets, with the number of their jobs.
    without_budget: BTreeMap<String, usize>,
}

impl History {
    fn of(rows: Vec<HistoryRow>, span: Span, source: &Source) -> Self {
        let budgets = Budgets::new(1, source.tree.clone(), Vec::new()).unwrap_or_default();
        let is_leaf =
            |path: &String| budgets.get(path).is_some_and(|budget| budget.children.is_empty());
        let mut history = Self { read: rows.len(), ..Self::default() };
        for row in rows {
            if !(span.from_s..span.until_s).contains(&row.submitted) {
                history.elsewhen += 1;
            } else if row.gpus() == 0 {
                history.without_gpus += 1;
            } else if row.state.starts_with("PENDING") {
                history.waiting += 1;
            } else {
                let found = source.accounts.budget(&budgets, &row.account, &row.user).ok();
                let budget = found.filter(is_leaf).unwrap_or_else(|| {
                    *history.without_budget.entry(row.account.clone()).or_default() += 1;
                    FORMER.to_owned()
                });
                history.put_back += usize::from(row.state.starts_with("REQUEUED"));
                history.charged.insert(budget.clone());
                history.rows.push(Charged { row, budget });
            }
        }
        history
    }

    /// Gives users and jobs made-up names: the same for the same, in the order in which they come. Gives the number of
    /// users whose names stay in those of budgets.
    fn anonymise(&mut self) -> usize {
        let (mut users, mut jobs) = (BTreeMap::new(), BTreeMap::new());
        for Charged { row, .. } in &mut self.rows {
            row.user = made_up("user", &row.user, &mut users);
            row.name = made_up("job", &row.name, &mut jobs);
        }
        let names: BTreeSet<&str> = self.charged.iter().flat_map(|path| path.split('/')).collect();
        users.keys().filter(|user| names.contains(user.as_str())).count()
    }

    /// As `sacct -P` prints it, with the budget beside the account.
    fn text(&self) -> String {
        let mut text = format!(
            "JobID|Submit|Start|End|ElapsedRaw|State|TimelimitRaw|User|Account|Partition|ReqTRES|AllocTRES|{BUDGET_COLUMN}|JobName\n"
        );
        let some = |at: Option<u64>| at.map_or_else(|| "Unknown".to_owned(), moment);
        for Charged { row, budget } in &self.rows {
            let fields = [
                &row.job,
                &moment(row.submitted),
                &some(row.started),
                &some(row.ended),
                &row.elapsed_s,
                // Not by whom it was cancelled: that is a number of a user.
                row.state.split_whitespace().next().unwrap_or_default(),
                &row.limit_minutes,
                &row.user,
                &row.account,
                &row.partition,
                &row.asked.to_ascii_lowercase(),
                &row.had.to_ascii_lowercase(),
                budget,
                &row.name,
            ];
            text += &fields.map(field).join("|");
            text.push('\n');
        }
        text
    }

    /// What a person is told of it.
    fn told(&self, trace: &Trace, misfits: u64) -> String {
        let hours: f64 =
            trace.jobs.iter().map(|job| f64::from(job.gpus) * job.runtime_ms as f64).sum::<f64>()
                / 3.6e6;
        let users: BTreeSet<&str> =
            trace.jobs.iter().filter_map(|job| job.user.as_deref()).collect();
        let mut text = format!(
            "  {} rows read, {} jobs of {} users, {hours:.1} GPU-hours\n",
            self.read,
            trace.jobs.len(),
            users.len()
        );
        let mut line = |count: u64, what: &str| {
            if count > 0 {
                text += &format!("  {what}: {count}\n");
            }
        };
        line(self.without_gpus as u64 + trace.without_gpus, "left out, without GPUs");
        line(self.elsewhen as u64, "left out, submitted before or after");
        line(self.waiting as u64, "left out, still waiting");
        line(trace.never_started, "left out, cancelled before they ran");
        line(trace.unfinished, "left out, without an end");
        line(
            misfits,
            "in the history, but left out of simulations, as the cluster has no room for them now",
        );
        line(self.put_back as u64, "put back into the queue, each run counted as a job");
        for told in &trace.notes {
            text += &format!("  note: {told}\n");
        }
        if !self.without_budget.is_empty() {
            let named: Vec<String> = self
                .without_budget
                .iter()
                .map(|(account, jobs)| format!("{account} ({jobs})"))
                .collect();
            text += &format!(
                "  note: accounts without a budget, whose jobs go to {FORMER}, which has a share of 0: {}\n",
                named.join(", ")
            );
        }
        text
    }
}

/// A field of the history: what would end it is replaced.
fn field(text: &str) -> String {
    text.chars().map(|one| if one == '|' || one.is_control() { '_' } else { one }).collect()
}

fn made_up(what: &str, name: &str, known: &mut BTreeMap<String, usize>) -> String {
    let number = known.len() + 1;
    let number = *known.entry(name.to_owned()).or_insert(number);
    format!("{what}-{number:04}")
}
