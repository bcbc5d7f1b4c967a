//! Moments: dates and times from text, and how a trace's times are counted until its origin is known.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::error::Problem;

/// Added to absolute milliseconds so that all moments that jiff knows (from year -9999) are positive.
const BIAS_MS: u64 = 400_000_000_000_000;

/// What the times of a trace are counted from while it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeBase {
    /// The trace's own origin, and which moment that is, if known.
    Origin(Option<Timestamp>),
    /// The biased epoch of [`absolute_ms`]; the first submission becomes the origin.
    Absolute,
}

/// A moment as milliseconds since the biased epoch.
pub(crate) fn absolute_ms(moment: Timestamp) -> u64 {
    let biased = i128::from(moment.as_millisecond()) + i128::from(BIAS_MS);
    u64::try_from(biased).unwrap_or(0)
}

/// The moment of which [`absolute_ms`] is `ms`.
pub(crate) fn moment_of(ms: u64) -> Option<Timestamp> {
    let epoch_ms = i128::from(ms) - i128::from(BIAS_MS);
    i64::try_from(epoch_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok())
}

/// A date and time; one that names no zone is of `zone`, and an error when there is none.
pub(crate) fn moment(text: &str, zone: Option<&TimeZone>) -> Result<Timestamp, Problem> {
    const WRONG: &str = "is not a date and time (years 0001 to 9999) such as 2026-01-31T08:00:00Z";
    let after_date = text.as_bytes().get(10..).unwrap_or_default();
    let parsed = if after_date.iter().any(|byte| b"+-Zz".contains(byte)) {
        text.parse::<Timestamp>().ok()
    } else {
        let civil = text.parse::<DateTime>().map_err(|_| WRONG)?;
        let zone = zone.ok_or("names no zone: end it with Z or an offset such as +02:00")?;
        zone.to_timestamp(civil).ok()
    };
    let moment = parsed.ok_or(WRONG)?;
    let year_one = -62_135_596_800;
    if moment.as_second() < year_one { Err(WRONG.into()) } else { Ok(moment) }
}

/// As [`moment`], with the words by which Slurm and scripts say that there is none.
pub(crate) fn moment_if_any(
    text: &str,
    zone: Option<&TimeZone>,
) -> Result<Option<Timestamp>, Problem> {
    match text {
        "" | "Unknown" | "None" | "NaT" | "nan" | "N/A" => Ok(None),
        text => moment(text, zone).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_with_and_without_zone() {
        let utc = TimeZone::UTC;
        let expected = Timestamp::from_second(1_677_601_102).unwrap();
        for text in ["2023-03-01 00:18:22+08:00", "2023-02-28T16:18:22Z", "2023-02-28T16:18:22"] {
            assert_eq!(moment(text, Some(&utc)), Ok(expected), "{text}");
        }
        assert!(moment("2023-02-28T16:18:22", None).unwrap_err().contains("zone"));
        assert_eq!(moment_of(absolute_ms(expected)), Some(expected));
    }

    #[test]
    fn impossible_dates_are_refused() {
        for text in [
            "10000-01-01T00:00:00Z",
            "+010000-01-01T00:00:00Z",
            "-000001-01-01T00:00:00Z",
            "2023-02-30T00:00:00Z",
            "12:00",
            "9999-12-31T23:59:59Z",
            "é23-02-28T16:18:22Z",
        ] {
            assert!(moment(text, None).unwrap_err().contains("9999"), "{text}");
        }
        assert_eq!(moment_if_any("Unknown", None), Ok(None));
    }
}
