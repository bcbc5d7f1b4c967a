//! The `settings:` block and the overrides of the command line (`--set key=value`).
//!
//! Both go through the same readers, so that a value refused in the file is refused on the command
//! line, too. An override replaces what the file says before defaults are derived from it.

use crate::budgets::Calendar;
use crate::cluster::check_debug_hosts;
use crate::error::{ErrorKind, Fault, nearest};
use crate::fields::{Fields, parse_decimal, parse_duration, parse_whole, text};
use crate::model::Settings;
use crate::yaml::Node;
use bursar_trace::{parse_moment, time_zone};
use jiff::tz::TimeZone;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// From this many hosts on some are kept for debug work: in a smaller cluster one host is too much.
const DEBUG_FROM_HOSTS: u64 = 32;
/// The part of the hosts that is kept for debug work, in millionths.
const DEBUG_PART_PPM: u64 = 30_000;

const KEYS: [&str; 10] = [
    "lookback",
    "horizon",
    "grace",
    "margin",
    "startup",
    "reservations",
    "reservation_age",
    "debug_hosts",
    "begins",
    "time_zone",
];

/// The texts of the settings, each with the place that gave it.
#[derive(Debug, Default)]
pub(crate) struct RawSettings {
    values: [Option<(String, Given)>; KEYS.len()],
    seed: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Given {
    Line(usize),
    Override,
}

impl RawSettings {
    /// Takes in what the file says.
    pub(crate) fn read(node: Option<&Node>) -> Result<Self, Fault> {
        let mut raw = Self::default();
        let Some(node) = node else { return Ok(raw) };
        let block = Fields::of(node, &KEYS).map_err(|fault| fault.within("settings"))?;
        for (key, slot) in KEYS.iter().zip(&mut raw.values) {
            let value = block.opt(key, |node| Ok((text(node)?.to_owned(), Given::Line(node.line))));
            *slot = value.map_err(|fault| fault.within("settings"))?;
        }
        Ok(raw)
    }

    /// Takes in the overrides, which win. The last of equals wins, as on any command line.
    pub(crate) fn override_with(&mut self, overrides: &[(String, String)]) -> Result<(), Fault> {
        for (key, value) in overrides {
            if key == "seed" {
                let seed = parse_whole(value, 0, u64::MAX);
                self.seed = Some(seed.map_err(|message| at_override(key, value, &message))?);
                continue;
            }
            let Some(index) = KEYS.iter().position(|known| known == key) else {
                let near = nearest(key, KEYS.into_iter().chain(["seed"])).unwrap_or_default();
                let message =
                    format!("--set {key}: unknown setting; the nearest valid one is '{near}'");
                return Err(Fault::whole(ErrorKind::UnknownKey, message));
            };
            self.values[index] = Some((value.clone(), Given::Override));
        }
        Ok(())
    }

    /// The seed that an override gave.
    pub(crate) fn seed_override(&self) -> Option<u64> {
        self.seed
    }

    /// Checks everything and fills in the defaults, some of which depend on the cluster's size.
    pub(crate) fn resolve(&self, hosts: usize) -> Result<Settings, Fault> {
        let horizon_ms = self.get("horizon", positive)?.unwrap_or(8 * HOUR_MS);
        let debug_default = {
            let hosts = hosts as u64;
            if hosts < DEBUG_FROM_HOSTS { 0 } else { part_of(hosts, DEBUG_PART_PPM).max(1) as u32 }
        };
        let debug_hosts = |given: &str| {
            let count = parse_debug_hosts(given, hosts)?;
            check_debug_hosts(count, hosts)?;
            Ok(count)
        };
        Ok(Settings {
            lookback_ms: self.get("lookback", positive)?.unwrap_or(7 * DAY_MS),
            horizon_ms,
            grace_ms: self.get("grace", parse_duration)?.unwrap_or(30_000),
            margin_ppm: self.get("margin", parse_margin)?.unwrap_or(50_000),
            startup_ms: self.get("startup", parse_duration)?.unwrap_or(0),
            reservations: self.get("reservations", parse_reservations)?.unwrap_or(1),
            reservation_age_ms: self
                .get("reservation_age", parse_duration)?
                .unwrap_or(horizon_ms / 2),
            debug_hosts: self.get("debug_hosts", debug_hosts)?.unwrap_or(debug_default),
        })
    }

    /// What dates in the budgets' terms mean.
    pub(crate) fn calendar(&self) -> Result<Calendar, Fault> {
        let zone = self.get("time_zone", time_zone)?.unwrap_or(TimeZone::UTC);
        let begins = self.get("begins", |given| parse_moment(given, &zone))?;
        Ok(Calendar { zone, begins })
    }

    fn get<T>(
        &self,
        key: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Fault> {
        let index = KEYS.iter().position(|known| *known == key);
        let Some((value, given)) = index.and_then(|index| self.values[index].as_ref()) else {
            return Ok(None);
        };
        let read = read(value).map_err(|message| match given {
            Given::Line(line) => Fault::value(*line, format!("settings: {key}: {message}")),
            Given::Override => at_override(key, value, &message),
        });
        read.map(Some)
    }
}

fn at_override(key: &str, value: &str, message: &str) -> Fault {
    Fault::whole(ErrorKind::Value, format!("--set {key}={value:.40}: {message}"))
}

fn positive(given: &str) -> Result<u64, String> {
    match parse_duration(given)? {
        0 => Err("0 is not allowed; give a time above 0".into()),
        ms => Ok(ms),
    }
}

fn parse_margin(given: &str) -> Result<u64, String> {
    match parse_decimal(given, 6, 100)? {
        0 => Err("0 is not allowed; without a margin workloads would swap for ever".into()),
        ppm => Ok(ppm),
    }
}

fn parse_reservations(given: &str) -> Result<u32, String> {
    Ok(parse_whole(given, 0, 1_000)? as u32)
}

/// A number of hosts, or a part of them such as `3%`.
fn parse_debug_hosts(given: &str, hosts: usize) -> Result<u32, String> {
    match given.strip_suffix('%') {
        Some(percent) => {
            // Four decimals of a percent are six of the whole.
            let ppm = parse_decimal(percent, 4, 100)?;
            Ok(part_of(hosts as u64, ppm) as u32)
        }
        None => Ok(parse_whole(given, 0, 100_000)? as u32),
    }
}

/// `ppm` millionths of `count`, rounded half up.
fn part_of(count: u64, ppm: u64) -> u64 {
    (count * ppm + 500_000) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml;

    fn resolve(text: &str, hosts: usize, sets: &[(&str, &str)]) -> Result<Settings, String> {
        let sets: Vec<_> = sets.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let node = yaml::parse(text).unwrap();
        let read = || {
            let mut raw = RawSettings::read(Some(&node))?;
            raw.override_with(&sets)?;
            raw.resolve(hosts)
        };
        read().map_err(|fault: Fault| fault.into_error("s").to_string())
    }

    #[test]
    fn defaults_and_what_follows_from_what() {
        let plain = resolve("{}", 128, &[]).unwrap();
        assert_eq!(plain.lookback_ms, 7 * DAY_MS);
        assert_eq!((plain.horizon_ms, plain.reservation_age_ms), (8 * HOUR_MS, 4 * HOUR_MS));
        assert_eq!((plain.grace_ms, plain.margin_ppm, plain.startup_ms), (30_000, 50_000, 0));
        assert_eq!((plain.reservations, plain.debug_hosts), (1, 4));
        let set = resolve("{horizon: 4h}", 128, &[("horizon", "2h"), ("horizon", "3h")]).unwrap();
        assert_eq!(set.reservation_age_ms, 90 * MINUTE_MS);
    }

    #[test]
    fn debug_hosts_by_size() {
        for (hosts, want) in [(1, 0), (31, 0), (32, 1), (49, 1), (50, 2), (128, 4), (1_000, 30)] {
            assert_eq!(resolve("{}", hosts, &[]).unwrap().debug_hosts, want, "{hosts}");
        }
        assert_eq!(resolve("{debug_hosts: 12.5%}", 20, &[]).unwrap().debug_hosts, 3);
        assert_eq!(resolve("{debug_hosts: 2}", 20, &[]).unwrap().debug_hosts, 2);
    }

    #[test]
    fn what_is_refused() {
        let table = [
            (
                "{lookback: 0}",
                "s line 1: settings: lookback: 0 is not allowed; give a time above 0",
            ),
            (
                "{margin: 0.0}",
                "s line 1: settings: margin: 0 is not allowed; without a margin workloads would swap for ever",
            ),
            ("{margin: .nan}", "s line 1: settings: margin: '.nan' is not finite"),
            (
                "{debug_hosts: 4}",
                "s line 1: settings: debug_hosts: 4 of 4 hosts leaves none for anything else",
            ),
            (
                "{debug_hosts: 101%}",
                "s line 1: settings: debug_hosts: 101 is too large; the most is 100",
            ),
            (
                "{horizn: 2h}",
                "s line 1: settings: unknown key 'horizn'; the nearest valid key is 'horizon'",
            ),
        ];
        for (text, want) in table {
            assert_eq!(resolve(text, 4, &[]).unwrap_err(), want);
        }
        let set = |key, value| resolve("{}", 4, &[(key, value)]).unwrap_err();
        assert_eq!(set("grace", "-1s"), "s: --set grace=-1s: '-1s' is negative");
        assert_eq!(
            set("sed", "1"),
            "s: --set sed: unknown setting; the nearest valid one is 'seed'"
        );
        assert_eq!(set("seed", "x"), "s: --set seed=x: 'x' is not a whole number");
    }
}
