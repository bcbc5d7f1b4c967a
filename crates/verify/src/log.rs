//! The event log: one JSON object a line (docs/formats.md).

use crate::VerifyError;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::io::{BufRead, Read};

/// The longest line that is read. A gang on ten thousand hosts is a line of half a megabyte.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// A moment or a span in the log, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Millis(pub(crate) u64);

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SecondsVisitor)
    }
}

struct SecondsVisitor;

impl Visitor<'_> for SecondsVisitor {
    type Value = Millis;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("seconds, at most 3 decimals, not negative")
    }

    fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Millis, E> {
        let millis = seconds.checked_mul(1000).filter(|&millis| millis < 1 << 53);
        millis.map(Millis).ok_or_else(|| E::custom(format!("{seconds} seconds is too far away")))
    }

    fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Millis, E> {
        let millis = (seconds * 1000.0).round();
        if !(0.0..(1u64 << 53) as f64).contains(&millis) {
            return Err(E::custom(format!("{seconds} seconds is not a moment")));
        }
        // A decimal text of at most 3 decimals is within an ulp or two of a whole millisecond.
        if (seconds * 1000.0 - millis).abs() > 1e-6 + millis * 1e-15 {
            return Err(E::custom(format!("{seconds} seconds has more than 3 decimals")));
        }
        Ok(Millis(millis as u64))
    }
}

/// An amount of GPU-time in the log, in GPU-milliseconds. Unlike a moment it may be very large.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpuMillis(pub(crate) u64);

impl<'de> Deserialize<'de> for GpuMillis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(GpuSecondsVisitor)
    }
}

struct GpuSecondsVisitor;

impl Visitor<'_> for GpuSecondsVisitor {
    type Value = GpuMillis;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU-seconds, not negative")
    }

    fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<GpuMillis, E> {
        Ok(GpuMillis(seconds.saturating_mul(1000)))
    }

    fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<GpuMillis, E> {
        if seconds >= 0.0 {
            return Ok(GpuMillis((seconds * 1000.0).round() as u64));
        }
        Err(E::custom(format!("{seconds} GPU-seconds is no amount")))
    }
}

/// Text that is borrowed from the line where that is possible.
#[derive(serde::Deserialize, Debug)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// What happened.
#[derive(serde::Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    Submitted,
    Started,
    ProtectionEnded,
    Preempted,
    Requeued,
    Completed,
    Failed,
    Terminated,
    Cancelled,
    HostFailed,
    DrainStarted,
    Drained,
    HostDown,
    HostUp,
    Reserved,
    Unreserved,
    Refused,
}

impl What {
    /// Whether it happens to a host and not to a workload.
    pub(crate) fn is_of_host(self) -> bool {
        matches!(self, Self::DrainStarted | Self::Drained | Self::HostDown | Self::HostUp)
    }

    /// Whether an attempt, if one runs, is over.
    pub(crate) fn ends_attempt(self) -> bool {
        matches!(
            self,
            Self::Requeued
                | Self::Completed
                | Self::Failed
                | Self::Terminated
                | Self::Cancelled
                | Self::HostFailed
        )
    }
}

/// GPUs on one host, as written.
#[derive(serde::Deserialize, Debug)]
pub(crate) struct RawPlace<'a> {
    #[serde(borrow)]
    pub(crate) host: Text<'a>,
    /// Left out where only the hosts matter.
    #[serde(default)]
    pub(crate) gpus: u32,
}

/// A line, as written. Keys that are not checked are passed over.
#[derive(serde::Deserialize, Debug)]
pub(crate) struct RawEntry<'a> {
    pub(crate) t: Millis,
    #[serde(borrow)]
    pub(crate) policy: Text<'a>,
    pub(crate) event: What,
    #[serde(borrow)]
    pub(crate) workload: Option<Text<'a>>,
    pub(crate) attempt: Option<u32>,
    #[serde(borrow)]
    pub(crate) budget: Option<Text<'a>>,
    pub(crate) gpus: Option<u32>,
    pub(crate) allocated: Option<bool>,
    pub(crate) protected_until: Option<Millis>,
    pub(crate) decided: Option<Millis>,
    #[serde(borrow, default)]
    pub(crate) placement: Option<Vec<RawPlace<'a>>>,
    #[serde(borrow)]
    pub(crate) by: Option<Text<'a>>,
    pub(crate) rule: Option<u8>,
    #[serde(borrow)]
    pub(crate) host: Option<Text<'a>>,
    pub(crate) until: Option<Millis>,
    pub(crate) lost_gpu_seconds: Option<GpuMillis>,
}

/// Parses one line and sees that the keys which its event cannot do without are there.
pub(crate) fn parse(text: &[u8], line: u64) -> Result<RawEntry<'_>, VerifyError> {
    let malformed = |message: String| VerifyError::Malformed { line, message };
    let entry: RawEntry<'_> = serde_json::from_slice(text).map_err(|error| {
        // serde_json counts lines within the text that it was given, which is one.
        let message = error.to_string();
        let at = message.rfind(" at line ").unwrap_or(message.len());
        malformed(format!("{} (column {})", &message[..at], error.column()))
    })?;
    let missing = if entry.event.is_of_host() {
        entry.host.is_none().then_some("host")
    } else if entry.workload.is_none() {
        Some("workload")
    } else {
        match entry.event {
            What::Started | What::Reserved if entry.placement.is_none() => Some("placement"),
            What::Started if entry.attempt.is_none() => Some("attempt"),
            What::Reserved if entry.until.is_none() => Some("until"),
            _ => None,
        }
    };
    match missing {
        Some(key) => Err(malformed(format!("{:?} without \"{key}\"", entry.event))),
        None => Ok(entry),
    }
}

/// Reads the next line into `buffer`, without its end; false at the end of the input.
pub(crate) fn next_line(
    reader: &mut impl BufRead,
    buffer: &mut Vec<u8>,
    line: u64,
) -> Result<bool, VerifyError> {
    buffer.clear();
    let read = reader
        .by_ref()
        .take(LINE_BYTES_MAX + 1)
        .read_until(b'\n', buffer)
        .map_err(|source| VerifyError::Io { line, source })?;
    if read as u64 > LINE_BYTES_MAX {
        let most = LINE_BYTES_MAX >> 20;
        return Err(VerifyError::Malformed {
            line,
            message: format!("longer than {most} MiB; no line of an event log is"),
        });
    }
    Ok(read > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Result<u64, String> {
        let line = format!(r#"{{"t":{text},"policy":"budget","event":"drained","host":"h"}}"#);
        parse(line.as_bytes(), 7).map(|entry| entry.t.0).map_err(|error| error.to_string())
    }

    #[test]
    fn seconds_become_exact_milliseconds() {
        assert_eq!(at("0"), Ok(0));
        assert_eq!(at("2592000.001"), Ok(2_592_000_001));
        assert_eq!(at("0.1"), Ok(100));
        assert_eq!(at("3600.0"), Ok(3_600_000));
        for bad in ["-1", "0.0001", "1e300", "\"3\"", "253402300800000"] {
            let message = at(bad).expect_err("not a moment");
            assert!(message.starts_with("line 7: "), "{message}");
        }
    }

    #[test]
    fn what_an_event_needs_must_be_there() {
        let needs = [
            (r#"{"t":1,"policy":"budget","event":"started","workload":"a"}"#, "placement"),
            (r#"{"t":1,"policy":"budget","event":"submitted"}"#, "workload"),
            (r#"{"t":1,"policy":"budget","event":"host_down"}"#, "host"),
            (r#"{"t":1,"event":"host_down","host":"h"}"#, "policy"),
            (r#"{"t":1,"policy":"budget","event":"exploded"}"#, "exploded"),
            (r#"{"t":1,"#, "EOF"),
            ("[]", "length"),
        ];
        for (text, word) in needs {
            let message = parse(text.as_bytes(), 3).expect_err(text).to_string();
            assert!(message.starts_with("line 3: "), "{message}");
            assert!(message.contains(word), "{message} should say {word}");
            assert_eq!(message.lines().count(), 1);
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut reader = std::io::BufReader::new(std::io::repeat(b'x'));
        let error = next_line(&mut reader, &mut Vec::new(), 1).expect_err("endless");
        assert!(error.to_string().contains("longer than 16 MiB"));
    }
}
