//! Runs of a world, and their logs read back.

use crate::shrink::Fault;
use bursar_scenario::Scenario;
use bursar_sim::{EventSink, Outcome, RunOptions, run};
use serde_json::Value;

pub(crate) struct Played {
    pub(crate) log: String,
    pub(crate) outcome: Outcome,
}

pub(crate) fn play(scenario: &Scenario, policy: &str) -> Result<Played, Fault> {
    play_with(scenario, policy, RunOptions::default())
}

/// A log that a small world never fills: a run that writes on and on comes to an end.
struct Bounded(Vec<u8>);

/// Four days: ten times the span in which small worlds get their work.
const UNTIL_MS: u64 = 4 * 86_400_000;
const LOG_BYTES_MAX: usize = 8 << 20;

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() > LOG_BYTES_MAX {
            let end = self.0.len() - 2_000;
            let end = String::from_utf8_lossy(&self.0[end..]).into_owned();
            return Err(std::io::Error::other(format!("the log has no end: {end}")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub(crate) fn play_with(
    scenario: &Scenario,
    policy: &str,
    options: RunOptions<'_>,
) -> Result<Played, Fault> {
    // Work that is swapped out before it has saved anything begins anew for ever, by the rules.
    let options = RunOptions { until_ms: options.until_ms.or(Some(UNTIL_MS)), ..options };
    let mut log = Bounded(Vec::new());
    let outcome = run(scenario, policy, options, EventSink::Json(&mut log)).map_err(|error| {
        let kind = error.to_string();
        let kind =
            kind.split_whitespace().take(8).filter(|word| word.chars().all(char::is_alphabetic));
        Fault::new(format!("run error: {}", kind.collect::<Vec<_>>().join(" ")), error.to_string())
    })?;
    Ok(Played { log: String::from_utf8(log.0).expect("the log is text"), outcome })
}

impl Played {
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.log.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
    }
}

pub(crate) fn event(line: &Value) -> &str {
    line["event"].as_str().expect("a line has an event")
}

/// Milliseconds of a field in seconds.
pub(crate) fn ms(value: &Value) -> u64 {
    (value.as_f64().expect("a moment") * 1_000.0).round() as u64
}

/// The lines of each instant in an order of their own: for what may come in any order within one.
pub(crate) fn by_instant(log: &str, keep: impl Fn(&Value) -> bool) -> Vec<String> {
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let mut lines: Vec<(u64, String)> =
        lines.filter(keep).map(|line| (ms(&line["t"]), line.to_string())).collect();
    lines.sort();
    lines.into_iter().map(|(_, line)| line).collect()
}

/// Where two logs part, with a few lines before.
pub(crate) fn first_difference<T: AsRef<str>>(a: &[T], b: &[T]) -> Option<String> {
    let same = a.iter().zip(b).take_while(|(a, b)| a.as_ref() == b.as_ref()).count();
    if same == a.len() && same == b.len() {
        return None;
    }
    let from = same.saturating_sub(3);
    let show = |list: &[T]| -> String {
        list.iter().skip(from).take(7).map(|line| format!("    {}\n", line.as_ref())).collect()
    };
    Some(format!("line {}:\n  one:\n{}  other:\n{}", same + 1, show(a), show(b)))
}
