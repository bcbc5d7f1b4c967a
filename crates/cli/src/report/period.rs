//! Periods as people say them.

use crate::args::ReportArgs;
use crate::failure::Failure;
use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

/// A period, by the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Period {
    /// So many milliseconds up to now.
    Last(u64),
    /// From one moment to another that is not in it, or to now. Milliseconds since 1970.
    Between(u64, Option<u64>),
}

/// The time zone of a report.
pub(super) fn zone(name: &str) -> Result<TimeZone, Failure> {
    TimeZone::get(name).map_err(|_| {
        Failure::input(format!(
            "--time-zone: there is no time zone '{name}' on this machine; one is Europe/Berlin, and UTC is always there"
        ))
    })
}

/// What was asked for.
pub(super) fn period(args: &ReportArgs, zone: &TimeZone) -> Result<Period, Failure> {
    if let Some(last_ms) = args.last {
        return match last_ms {
            0 => Err(Failure::input("--last: give more than 0, such as 7d")),
            _ => Ok(Period::Last(last_ms)),
        };
    }
    if let Some(text) = &args.month {
        return month(text, zone);
    }
    let from_ms = moment("--from", args.from.as_deref().unwrap_or_default(), zone)?;
    let to_ms = args.to.as_deref().map(|text| moment("--to", text, zone)).transpose()?;
    if to_ms.is_some_and(|to_ms| to_ms <= from_ms) {
        return Err(Failure::input("--to: it is not after --from"));
    }
    Ok(Period::Between(from_ms, to_ms))
}

/// From the first midnight of a month to that of the next.
fn month(text: &str, zone: &TimeZone) -> Result<Period, Failure> {
    let wrong = || Failure::input(format!("--month: '{text}' is no month; write 2026-11"));
    let (year, month) = text.split_once('-').ok_or_else(wrong)?;
    let plain =
        |part: &str, digits| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
    if !plain(year, 4) || !plain(month, 2) {
        return Err(wrong());
    }
    let first =
        Date::new(year.parse().map_err(|_| wrong())?, month.parse().map_err(|_| wrong())?, 1);
    let first = first.map_err(|_| wrong())?;
    let next = first.last_of_month().tomorrow().map_err(|_| wrong())?;
    let midnight = |date: Date| unix_ms(zone, date.to_datetime(jiff::civil::Time::midnight()));
    match (midnight(first), midnight(next)) {
        (Some(from), Some(to)) => Ok(Period::Between(from, Some(to))),
        _ => Err(wrong()),
    }
}

/// A moment as people write it: with an offset, or in the time zone.
fn moment(flag: &str, text: &str, zone: &TimeZone) -> Result<u64, Failure> {
    let found = match text.parse::<Timestamp>() {
        Ok(timestamp) => u64::try_from(timestamp.as_millisecond()).ok(),
        Err(_) => text.parse::<DateTime>().ok().and_then(|local| unix_ms(zone, local)),
    };
    found.ok_or_else(|| {
        Failure::input(format!(
            "{flag}: '{text}' is no moment; write 2026-11-01, 2026-11-01T09:00 or 2026-11-01T09:00:00Z"
        ))
    })
}

/// A moment of a time zone. One that its clocks skip is as much later as they were put forward; of two that have the same
/// name the first is meant.
fn unix_ms(zone: &TimeZone, local: DateTime) -> Option<u64> {
    let timestamp = zone.to_timestamp(local).ok()?;
    u64::try_from(timestamp.as_millisecond()).ok()
}

/// A moment of a time zone, to the millisecond and with its offset.
pub(super) fn shown(unix_ms: u64, zone: &TimeZone) -> String {
    zoned(unix_ms, zone, "%Y-%m-%dT%H:%M:%S%.3f%:z")
}

/// The same for people.
pub(super) fn told(unix_ms: u64, zone: &TimeZone) -> String {
    zoned(unix_ms, zone, "%Y-%m-%d %H:%M")
}

fn zoned(unix_ms: u64, zone: &TimeZone, format: &str) -> String {
    let at = i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.map_or_else(
        || format!("{unix_ms} ms"),
        |at| at.to_zoned_datetime(zone.clone()).strftime(format).to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(text: &str, name: &str) -> f64 {
        let Ok(Period::Between(from, Some(to))) = month(text, &zone(name).expect("a zone")) else {
            panic!("{text} of {name}")
        };
        (to - from) as f64 / 3_600_000.0
    }

    #[test]
    fn months_are_those_of_the_calendar_also_where_clocks_are_put() {
        assert_eq!(hours("2026-11", "UTC"), 720.0);
        assert_eq!(hours("2026-02", "UTC"), 672.0);
        assert_eq!(hours("2028-02", "Europe/Berlin"), 29.0 * 24.0);
        // One hour less in March and one more in October.
        assert_eq!(hours("2026-03", "Europe/Berlin"), 743.0);
        assert_eq!(hours("2026-10", "Europe/Berlin"), 745.0);
        assert_eq!(hours("2026-12", "Asia/Kolkata"), 744.0);
        // Half an hour.
        assert_eq!(hours("2026-04", "Australia/Lord_Howe"), 720.5);
        let months: f64 = (1..=12).map(|m| hours(&format!("2026-{m:02}"), "Europe/Berlin")).sum();
        assert_eq!(months, 365.0 * 24.0);
        for wrong in
            ["2026-13", "2026-00", "2026-1", "26-11", "2026", "november", "2026-11-01", "-026-11"]
        {
            let refused = month(wrong, &TimeZone::UTC).expect_err(wrong).to_string();
            assert!(refused.contains("--month"), "{refused}");
        }
    }

    #[test]
    fn moments_are_the_time_zones_unless_they_say_otherwise() {
        let berlin = zone("Europe/Berlin").expect("a zone");
        let at = |text: &str| moment("--from", text, &berlin).ok();
        assert_eq!(at("1970-01-01T01:00:01"), Some(1_000));
        assert_eq!(at("1970-01-01T00:00:01Z"), Some(1_000));
        // Skipped, and there twice.
        assert_eq!(at("2026-03-29T02:30"), at("2026-03-29T01:30:00Z"));
        assert_eq!(at("2026-10-25T02:30"), at("2026-10-25T00:30:00Z"));
        assert_eq!(at("soon"), None);
        let told = shown(at("2026-10-25T02:30").expect("a moment"), &berlin);
        assert_eq!(told, "2026-10-25T02:30:00.000+02:00");
        assert!(zone("Mars/Olympus").is_err());
    }
}
