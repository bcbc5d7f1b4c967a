//! `bursar slurm import`: what a cluster ran, as a history and a scenario.

use super::history::{History, Told};
use super::init::{Cluster, Tree, must_be_free, planned, tree};
use super::scenario::{Parts, hosts, text};
use super::{ask, clients, must_exist};
use crate::args::{SlurmImportArgs, duration_ms};
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
use bursar_trace::{Format, ReadOptions};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use std::collections::BTreeMap;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

const HISTORY: &str = "history.txt";
const SCENARIO: &str = "scenario.yaml";

/// The column of the history that names budgets.
pub(super) const BUDGET_COLUMN: &str = "Budget";

/// What is charged where an account is no budget.
pub(super) const FORMER: &str = "without-budget";

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
    let budgets = Budgets::new(1, source.tree.clone(), Vec::new()).map_err(Failure::input)?;
    let mut history = History::of(rows, span, &budgets, &source.accounts);
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
    if args.json {
        let files = places.map(|place| place.display().to_string());
        let mut answer = told.json();
        answer["about"] = about.into();
        answer["files"] = files.to_vec().into();
        say(&format!("{answer:#}\n"));
    } else {
        let scenario = places[1].display();
        say(&format!(
            "{about}\n{}\nNext:\n\n  bursar simulate {scenario} --policy budget --policy fair-tree\n",
            told.text()
        ));
    }
    Ok(())
}

/// Writes both files beside their places, sees that they can be simulated, and moves them there. Gives what is to be told.
fn write(args: &SlurmImportArgs, history: &History, scenario: &str) -> Result<Told, Failure> {
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
        Ok(history.told(&trace, misfits))
    });
    if result.is_err() && !was_there {
        // Only if it is empty, as we made it.
        let _ = std::fs::remove_dir(out);
    }
    result
}

/// How many days a job may have waited beyond the span.
const WAIT_DAYS: u64 = 7;

/// A span of time, in seconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) now_s: u64,
    pub(super) from_s: u64,
    pub(super) until_s: u64,
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
        Ok(Self { now_s, from_s, until_s })
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
pub(super) fn moment(seconds: u64) -> String {
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
        let (config, wanted) = super::configured(file)?;
        let cluster = Cluster::ask(&wanted.clients)?.name;
        must_exist(
            &wanted.options.partitions,
            &wanted.clients,
            &format!("{}: slurm.partitions", file.display()),
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
    // What was submitted in the span may have run after it.
    let end_s = span.until_s.saturating_add(WAIT_DAYS * DAY_S).min(span.now_s);
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let days = (end_s - span.from_s).div_ceil(DAY_S);
    let bar = if quiet || plain || !stderr().is_terminal() {
        ProgressBar::hidden()
    } else {
        let style =
            ProgressStyle::with_template("{bar:30} day {pos} of {len}, {msg} rows, {eta} left");
        ProgressBar::new(days).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    };
    // A job that runs at midnight is in the answers for both days; the later one knows more of it.
    let mut rows: BTreeMap<(Option<u64>, String), HistoryRow> = BTreeMap::new();
    let mut from_s = span.from_s;
    while from_s < end_s {
        interrupt::check()?;
        let until_s = from_s.saturating_add(DAY_S).min(end_s);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates_or_times_ago() {
        let now: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
        let of = |text: &str| instant(text, now).map(moment);
        assert_eq!(of("30d"), Ok("2026-10-31T12:00:00Z".to_owned()));
        assert_eq!(of("1h30m"), Ok("2026-11-30T10:30:00Z".to_owned()));
        assert_eq!(of("2026-10-01T08:00:00+02:00"), Ok("2026-10-01T06:00:00Z".to_owned()));
        assert!(of("2026-10-01").is_ok() && of("2026-10-01T08:00").is_ok());
        for bad in ["", "30", "2026", "soon", "2026-13-01", "99999999999d", "1900-01-01T00:00:00Z"]
        {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
