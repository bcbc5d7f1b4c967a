//! `bursar.yaml`: what `bursar up` can be told by a file (docs/configuration.md).

use crate::args::ConfigVerb;
use crate::failure::Failure;
use crate::shown::say;
use crate::slurm::SlurmBlock;
use bursar_server::queue::QueueLimits;
use bursar_server::settings::SettingsWanted;
use bursar_server::up::Rotation;
use bursar_site::declare::{Bytes, Duration};
use serde::{Deserialize, Deserializer};
use serde_json::json;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The file. What is not there is a default.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    pub(crate) name: Option<String>,
    pub(crate) data: Option<PathBuf>,
    pub(crate) work: Option<PathBuf>,
    #[serde(deserialize_with = "address")]
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) virtual_gpus: Option<u32>,
    pub(crate) virtual_hosts: Option<u32>,
    pub(crate) owner: Option<String>,
    pub(crate) budgets: Option<PathBuf>,
    pub(crate) token_out: Option<PathBuf>,
    pub(crate) allow_root_work: Option<bool>,
    pub(crate) settings: SettingsBlock,
    pub(crate) log: LogBlock,
    pub(crate) workload_logs: RotationBlock,
    pub(crate) slurm: Option<SlurmBlock>,
    pub(crate) queue: QueueBlock,
}

/// The numbers of the rules.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SettingsBlock {
    lookback: Option<Duration>,
    horizon: Option<Duration>,
    grace: Option<Duration>,
    margin: Option<f64>,
    reservations: Option<u32>,
    reservation_age: Option<Duration>,
    debug_hosts: Option<u32>,
    default_min_runtime: Option<Duration>,
    warn_before: Option<Duration>,
    time_zone: Option<String>,
}

/// What the daemon itself writes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LogBlock {
    pub(crate) filter: Option<String>,
    pub(crate) json: Option<bool>,
}

/// How what work writes is kept.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RotationBlock {
    rotate_at: Option<Bytes>,
    keep: Option<u32>,
    keep_days: Option<u32>,
}

/// How much may be queued.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct QueueBlock {
    most: Option<usize>,
    of_one_user: Option<usize>,
}

/// An address to listen on.
fn address<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<SocketAddr>, D::Error> {
    let Some(text) = Option::<String>::deserialize(reader)? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| {
        serde::de::Error::custom(format!(
            "'{text}' is no address; give an IP address and a port, such as 127.0.0.1:7373"
        ))
    })
}

impl Config {
    /// What is allowed and hardly meant, a sentence for each.
    pub(crate) fn warnings(&self) -> Vec<String> {
        const ROTATE_AT_LEAST: u64 = 64 * 1024;
        let mut warnings = Vec::new();
        let Ok(settings) = self.settings().for_a_new_site(1) else { return warnings };
        let span = bursar_site::declare::span_text;
        if settings.lookback_ms < settings.horizon_ms {
            warnings.push(format!(
                "settings.lookback: {} is below the horizon ({}): what was used counts for less time than one contract may take; give at least {}",
                span(settings.lookback_ms),
                span(settings.horizon_ms),
                span(settings.horizon_ms)
            ));
        }
        if settings.grace_ms >= settings.horizon_ms {
            warnings.push(format!(
                "settings.grace: {} is not below the horizon ({}); 30s is usual",
                span(settings.grace_ms),
                span(settings.horizon_ms)
            ));
        }
        let rotate_at = self.rotation().bytes_max;
        if rotate_at < ROTATE_AT_LEAST {
            warnings.push(format!(
                "workload_logs.rotate_at: {rotate_at} bytes are a few lines; what was written before is soon gone; give 64MiB"
            ));
        }
        warnings
    }

    /// Reads a file. Paths in it are relative to where it lies.
    pub(crate) fn read(file: &Path) -> Result<Self, Failure> {
        let name = file.display();
        let text = std::fs::read_to_string(file)
            .map_err(|error| Failure::input(format!("{name}: {error}")))?;
        let mut config = parse(&text).map_err(|what| Failure::input(format!("{name}: {what}")))?;
        let file = std::path::absolute(file).map_err(Failure::fault)?;
        let folder = file.parent().unwrap_or(Path::new("/"));
        let paths =
            [&mut config.data, &mut config.work, &mut config.budgets, &mut config.token_out];
        for path in paths.into_iter().flatten() {
            *path = folder.join(&*path);
        }
        if let Some(slurm) = &mut config.slurm {
            slurm.resolve(folder);
        }
        Ok(config)
    }

    /// What it says about settings.
    pub(crate) fn settings(&self) -> SettingsWanted {
        let block = &self.settings;
        let ms = |span: Option<Duration>| span.map(|span| span.0);
        SettingsWanted {
            lookback_ms: ms(block.lookback),
            horizon_ms: ms(block.horizon),
            grace_ms: ms(block.grace),
            margin_ppm: block.margin.map(|margin| (margin * 1e6).round() as u64),
            reservations: block.reservations,
            reservation_age_ms: ms(block.reservation_age),
            debug_hosts: block.debug_hosts,
            default_min_runtime_ms: ms(block.default_min_runtime),
            warn_before_ms: ms(block.warn_before),
            time_zone: block.time_zone.clone(),
        }
    }

    /// What it says about logs of work.
    pub(crate) fn rotation(&self) -> Rotation {
        let usual = Rotation::default();
        Rotation {
            bytes_max: self.workload_logs.rotate_at.map_or(usual.bytes_max, |bytes| bytes.0),
            files_max: self.workload_logs.keep.unwrap_or(usual.files_max),
            keep_days: self.workload_logs.keep_days.unwrap_or(usual.keep_days),
        }
    }

    /// What it says about how much may be queued.
    pub(crate) fn queue(&self) -> QueueLimits {
        let usual = QueueLimits::default();
        QueueLimits {
            all: self.queue.most.unwrap_or(usual.all),
            of_one: self.queue.of_one_user.unwrap_or(usual.of_one),
        }
    }

    /// What in `other` differs from this and only counts when `bursar up` starts, or when the site is made: a
    /// sentence for each that says what to do.
    pub(crate) fn not_reloaded(&self, other: &Self) -> Vec<String> {
        const RESTART: &str = "it counts when `bursar up` is started again";
        const CREATED: &str = "it only counts when the site is created";
        const CHANGE: &str =
            "it only counts when the site is created; use `bursar budget import FILE --reason …`";
        let keys = [
            ("name", self.name != other.name, CREATED),
            ("data", self.data != other.data, RESTART),
            ("work", self.work != other.work, RESTART),
            ("listen", self.listen != other.listen, RESTART),
            ("virtual_gpus", self.virtual_gpus != other.virtual_gpus, CREATED),
            ("virtual_hosts", self.virtual_hosts != other.virtual_hosts, CREATED),
            ("owner", self.owner != other.owner, CREATED),
            ("budgets", self.budgets != other.budgets, CHANGE),
            ("token_out", self.token_out != other.token_out, CREATED),
            ("slurm", self.slurm != other.slurm, RESTART),
            ("allow_root_work", self.allow_root_work != other.allow_root_work, RESTART),
            ("queue", self.queue != other.queue, RESTART),
            ("log.json", self.log.json != other.log.json, RESTART),
        ];
        let changed = keys.into_iter().filter(|(_, changed, _)| *changed);
        changed.map(|(key, _, what)| format!("{key}: was changed, but {what}")).collect()
    }
}

/// Reads a text. What is wrong is said with its line.
pub(crate) fn parse(text: &str) -> Result<Config, String> {
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(Config::default());
    }
    let config: Config = bursar_site::yaml::read(text)?;
    check(&config)?;
    Ok(config)
}

/// What can be said without the machine and its hosts.
fn check(config: &Config) -> Result<(), String> {
    if let Some(margin) = config.settings.margin.filter(|margin| !(1e-6..=100.0).contains(margin)) {
        return Err(format!("settings.margin: {margin} is not above 0 and at most 100; give 0.05"));
    }
    // However many hosts there are: what is said about debug hosts needs them.
    let mut settings = config.settings();
    settings.debug_hosts = None;
    settings.for_a_new_site(usize::MAX / 100)?;
    if config.virtual_hosts == Some(0) {
        return Err("virtual_hosts: 0 is not allowed; leave it out for one".into());
    }
    if let Some(slurm) = &config.slurm {
        slurm.wanted()?;
    }
    let rotation = config.rotation();
    if rotation.bytes_max == 0 || rotation.files_max == 0 {
        return Err(
            "workload_logs: 0 leaves no room for a log; give rotate_at: 64MiB, keep: 4".into()
        );
    }
    if rotation.keep_days == 0 {
        return Err("workload_logs.keep_days: 0 removes what nobody has read; give 30".into());
    }
    let queue = config.queue();
    if queue.all == 0 || queue.of_one == 0 {
        return Err("queue: 0 lets nobody submit; give most: 100000, of_one_user: 20000".into());
    }
    if let Some(filter) = &config.log.filter {
        tracing_subscriber::EnvFilter::try_new(filter)
            .map_err(|error| format!("log.filter: '{filter}' is no filter ({error}); try info"))?;
        // The reader takes every other word for the name of a module, which shows nothing.
        let known = |word: &str| {
            let level = word.parse::<tracing_subscriber::filter::LevelFilter>().is_ok();
            level || word.contains(['=', '[']) || word.starts_with("bursar")
        };
        if let Some(word) = filter.split(',').map(str::trim).find(|word| !known(word)) {
            return Err(format!(
                "log.filter: '{word}' is no level; give error, warn, info, debug or trace, or module=level"
            ));
        }
    }
    Ok(())
}

/// `bursar config …`.
pub(crate) fn config(verb: &ConfigVerb) -> Result<(), Failure> {
    match verb {
        ConfigVerb::Check { file, json } => {
            let config = Config::read(file)?;
            if let Some(budgets) = &config.budgets {
                crate::up::read_budgets(budgets, config.owner.as_deref().unwrap_or("root"))?;
            }
            let (name, warnings) = (file.display().to_string(), config.warnings());
            if *json {
                let answer = json!({ "file": name, "fine": true, "warnings": warnings });
                say(&format!("{answer:#}\n"));
                return Ok(());
            }
            let but = if warnings.is_empty() { "" } else { ", but:" };
            say(&format!("{name}: fine{but}\n"));
            warnings.iter().for_each(|warning| say(&format!("  {warning}\n")));
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_says_the_defaults_and_is_complete() {
        let text = include_str!("../../../docs/bursar.example.yaml");
        let as_shipped = parse(text).expect("the example is fine");
        // Commented keys are shown with `#key: value`: with all of them on it must be fine, too.
        let whole: String = text
            .lines()
            .map(|line| match line.trim_start().strip_prefix('#') {
                Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase()) => {
                    format!("{}{rest}\n", &line[..line.len() - line.trim_start().len()])
                }
                _ => format!("{line}\n"),
            })
            .collect();
        let config = parse(&whole).unwrap_or_else(|what| panic!("{what}\n{whole}"));
        let made = config.settings().for_a_new_site(1).expect("settings of a new site");
        let usual = SettingsWanted::default().for_a_new_site(1).expect("the defaults");
        assert_eq!(made, usual, "the example says the defaults");
        assert_eq!(config.rotation(), Rotation::default());
        assert_eq!(as_shipped.rotation(), Rotation::default());
        // Every key is in it.
        let known = "name data work listen virtual_gpus virtual_hosts owner budgets token_out allow_root_work settings lookback \
                     horizon grace margin reservations reservation_age debug_hosts default_min_runtime \
                     warn_before time_zone log filter json workload_logs rotate_at keep \
                     keep_days queue most of_one_user slurm mode partitions accounts conf gate run_by resumable \
                     checkpoint_signal warn_signal signal_to answer_within start_within starts_at_once history";
        for key in known.split_whitespace() {
            let there = whole.lines().any(|line| line.trim_start().starts_with(&format!("{key}:")));
            assert!(there, "{key} is missing in the example");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, want) in [
            (
                "name: x\nlisten: 127.0.0.1:1\nlissten: 3",
                "line 3: unknown key 'lissten'; the nearest valid key is 'listen'",
            ),
            (
                "settings:\n  lookback: 7d\n  warn_befor: 5m",
                "line 3: settings: unknown key 'warn_befor'; the nearest valid key is 'warn_before'",
            ),
            ("settings:\n  lookback: soon", "line 2: settings.lookback: 'soon'"),
            (
                "listen: foo",
                "line 1: listen: 'foo' is no address; give an IP address and a port, such as 127.0.0.1:7373",
            ),
            ("virtual_gpus: -1", "line 1: virtual_gpus: '-1' is below 0"),
            ("settings: {lookback: 1 week}", "line 1: settings.lookback: '1 week'"),
            ("log: {filter: loud}", "log.filter: 'loud' is no level; give error"),
            ("name: a\nname: b", "line 2: duplicate key 'name'"),
            ("settings: {margin: 0}", "settings.margin: 0 is not above 0"),
            (
                "settings: {default_min_runtime: 9h}",
                "settings.default_min_runtime: 9h is above the horizon",
            ),
            ("virtual_hosts: 0", "virtual_hosts: 0 is not allowed"),
            ("workload_logs: {keep: 0}", "workload_logs: 0 leaves"),
            ("workload_logs: {keep_days: 0}", "workload_logs.keep_days: 0 removes"),
            ("queue: {of_one_user: 0}", "queue: 0 lets nobody"),
            ("log: {filter: 'a=b=c'}", "log.filter: 'a=b=c' is no filter"),
        ] {
            let said = parse(text).expect_err(text);
            assert!(said.starts_with(want), "{text}: {said}");
            assert!(!said.contains('\n'), "{said}");
        }
        assert_eq!(parse("# nothing\n"), Ok(Config::default()));
    }

    #[test]
    fn what_is_hardly_meant_is_told() {
        let warned = |text: &str| parse(text).expect(text).warnings();
        let told = warned("settings: {lookback: 1h}\nworkload_logs: {rotate_at: 10}");
        assert!(told[0].starts_with("settings.lookback: 1h is below the horizon (8h)"), "{told:?}");
        assert!(told[1].starts_with("workload_logs.rotate_at: 10 bytes"), "{told:?}");
        assert_eq!(warned("log: {filter: 'info,bursar_server=debug'}"), Vec::<String>::new());
    }

    #[test]
    fn what_a_reload_cannot_change_is_told() {
        let before = parse("listen: 127.0.0.1:1\nbudgets: a.yaml").expect("fine");
        let after = parse("listen: 127.0.0.1:2\nbudgets: b.yaml\nsettings: {warn_before: 1m}");
        let told = before.not_reloaded(&after.expect("fine"));
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].starts_with(
                "listen: was changed, but it counts when `bursar up` is started again"
            )
        );
        assert!(told[1].contains("bursar budget import"), "{told:?}");
    }
}
