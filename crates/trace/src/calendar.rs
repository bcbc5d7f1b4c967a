//! Terms of a budget as people write them, and the spans of time that a calendar makes of them.
//!
//! A day begins when it does in the lab's time zone: the one on which clocks change has 23 or 25 hours, and a
//! term that is a day has them, too.

use crate::time::moment;
use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

/// How often a limit is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Each {
    /// Each day.
    Day,
    /// Each week, from Monday on.
    Week,
    /// Each month.
    Month,
    /// Each quarter of a year, from January, April, July and October on.
    Quarter,
}

impl Each {
    /// The words for them.
    pub const WORDS: [(&str, Self); 4] = [
        ("day", Self::Day),
        ("week", Self::Week),
        ("month", Self::Month),
        ("quarter", Self::Quarter),
    ];

    /// As it is written.
    #[must_use]
    pub fn word(self) -> &'static str {
        Self::WORDS.into_iter().find(|(_, each)| *each == self).map_or("", |(word, _)| word)
    }

    fn length(self) -> Span {
        match self {
            Self::Day => Span::new().days(1),
            Self::Week => Span::new().weeks(1),
            Self::Month => Span::new().months(1),
            Self::Quarter => Span::new().months(3),
        }
    }

    /// The first day of the one that a day lies in.
    fn first_day(self, day: Date) -> Option<Date> {
        match self {
            Self::Day => Some(day),
            Self::Week => match day.weekday() {
                Weekday::Monday => Some(day),
                _ => day.nth_weekday(-1, Weekday::Monday).ok(),
            },
            Self::Month => Some(day.first_of_month()),
            Self::Quarter => {
                let month = (day.month() - 1) / 3 * 3 + 1;
                Date::new(day.year(), month, 1).ok()
            }
        }
    }
}

/// When terms of a budget are: each of something, between two moments, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recurrence {
    /// How often the limit is renewed; if never, it is one term.
    pub each: Option<Each>,
    /// Its first moment; none if it has always held.
    pub from: Option<Timestamp>,
    /// The first moment at which it does not hold any more; none if it holds for good.
    pub until: Option<Timestamp>,
}

/// The most spans that one recurrence gives at a time: days of more than thirty years.
const SPANS_MAX: usize = 12_000;

impl Recurrence {
    /// Its spans that have a moment of `[begin, end)`, in order: each from its first moment to the first that is
    /// not of it any more. One that began before `begin` is whole.
    #[must_use]
    pub fn spans(
        &self,
        zone: &TimeZone,
        begin: Timestamp,
        end: Timestamp,
    ) -> Vec<(Timestamp, Timestamp)> {
        let first = self.from.unwrap_or(Timestamp::MIN);
        let last = self.until.unwrap_or(Timestamp::MAX);
        let within = |(from, until): (Timestamp, Timestamp)| (from.max(first), until.min(last));
        let counts =
            |&(from, until): &(Timestamp, Timestamp)| from < until && from < end && until > begin;
        let Some(each) = self.each else {
            return [(first, last)].into_iter().filter(counts).collect();
        };
        let mut spans = Vec::new();
        let mut day = each.first_day(begin.max(first).to_zoned_datetime(zone.clone()).date());
        while let Some(from_day) = day
            && spans.len() < SPANS_MAX
        {
            day = from_day.checked_add(each.length()).ok();
            let (Some(from), Some(until)) =
                (begins(from_day, zone), day.and_then(|day| begins(day, zone)))
            else {
                break;
            };
            if from >= end.min(last) {
                break;
            }
            spans.extend(Some(within((from, until))).filter(counts));
        }
        spans
    }
}

/// The first moment of a day somewhere.
fn begins(day: Date, zone: &TimeZone) -> Option<Timestamp> {
    // Where clocks skip midnight, the day begins with the first moment that there is.
    day.to_zoned_datetime(zone.clone())
        .and_then(|zoned| zoned.start_of_day())
        .ok()
        .map(|zoned| zoned.timestamp())
}

/// A moment as people write it: a day (`2026-11-01`, its first moment there) or a date and time; one that names no
/// zone is of `zone`.
pub fn parse_moment(text: &str, zone: &TimeZone) -> Result<Timestamp, String> {
    const SUCH_AS: &str = "such as 2026-11-01 or 2026-11-01T08:00:00Z";
    let wrong = || format!("'{}' is no day or moment, {SUCH_AS}", crate::one_line(text));
    if text.len() == 10 {
        let day = text.parse::<Date>().map_err(|_| wrong())?;
        return begins(day, zone).ok_or_else(wrong);
    }
    moment(text, Some(zone)).map_err(|_| wrong())
}

/// A time zone by its name, such as `Europe/Zurich`; `UTC` is always known.
pub fn time_zone(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name).map_err(|_| {
        format!(
            "there is no time zone '{}'; use a name such as UTC, Europe/Zurich or America/New_York",
            crate::one_line(name)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a moment")
    }

    fn zurich() -> TimeZone {
        time_zone("Europe/Zurich").expect("it is built in")
    }

    fn hours(spans: &[(Timestamp, Timestamp)]) -> Vec<i64> {
        spans.iter().map(|(from, until)| (until.as_second() - from.as_second()) / 3600).collect()
    }

    fn each(each: Each) -> Recurrence {
        Recurrence { each: Some(each), from: None, until: None }
    }

    #[test]
    fn a_day_has_the_hours_that_it_has() {
        let days = each(Each::Day);
        let autumn = days.spans(&zurich(), at("2026-10-24T12:00:00Z"), at("2026-10-27T00:00:00Z"));
        assert_eq!(hours(&autumn), [24, 25, 24, 24]);
        assert_eq!(autumn[0].0, at("2026-10-23T22:00:00Z"));
        let spring = days.spans(&zurich(), at("2026-03-28T23:00:00Z"), at("2026-03-29T12:00:00Z"));
        assert_eq!(hours(&spring), [23]);
        // There 2018-11-04 began at one o'clock: clocks went from 23:59:59 to 01:00.
        let zone = time_zone("America/Sao_Paulo").expect("it is built in");
        let skipped = days.spans(&zone, at("2018-11-04T12:00:00Z"), at("2018-11-04T12:00:01Z"));
        assert_eq!((skipped[0].0, hours(&skipped)), (at("2018-11-04T03:00:00Z"), vec![23]));
    }

    #[test]
    fn weeks_begin_on_monday_and_quarters_in_january() {
        let utc = TimeZone::UTC;
        let weeks =
            each(Each::Week).spans(&utc, at("2026-11-29T23:00:00Z"), at("2026-11-30T01:00:00Z"));
        assert_eq!(weeks[0].0, at("2026-11-23T00:00:00Z"));
        assert_eq!(weeks[1].0, at("2026-11-30T00:00:00Z"));
        let quarter =
            each(Each::Quarter).spans(&utc, at("2026-12-31T00:00:00Z"), at("2026-12-31T00:00:01Z"));
        assert_eq!(quarter, [(at("2026-10-01T00:00:00Z"), at("2027-01-01T00:00:00Z"))]);
        let months =
            each(Each::Month).spans(&utc, at("2028-01-15T00:00:00Z"), at("2028-03-01T00:00:00Z"));
        assert_eq!(hours(&months), [31 * 24, 29 * 24]);
    }

    #[test]
    fn between_two_dates_it_is_cut() {
        let utc = TimeZone::UTC;
        let (from, until) = (Some(at("2026-11-10T00:00:00Z")), Some(at("2026-12-24T00:00:00Z")));
        let once = Recurrence { each: None, from, until };
        let year = (at("2026-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z"));
        assert_eq!(hours(&once.spans(&utc, year.0, year.1)), [44 * 24]);
        assert!(once.spans(&utc, at("2026-12-24T00:00:00Z"), year.1).is_empty());
        let monthly = Recurrence { each: Some(Each::Month), from, until };
        assert_eq!(hours(&monthly.spans(&utc, year.0, year.1)), [21 * 24, 23 * 24]);
        let forever = Recurrence { each: None, from: None, until: None };
        assert_eq!(forever.spans(&utc, year.0, year.1), [(Timestamp::MIN, Timestamp::MAX)]);
    }

    #[test]
    fn moments_are_days_or_times() {
        assert_eq!(parse_moment("2026-07-01", &zurich()), Ok(at("2026-06-30T22:00:00Z")));
        assert_eq!(parse_moment("2026-07-01T00:00:00Z", &zurich()), Ok(at("2026-07-01T00:00:00Z")));
        assert_eq!(parse_moment("2026-07-01T00:00:00", &zurich()), Ok(at("2026-06-30T22:00:00Z")));
        for wrong in ["2026-02-30", "soon", ""] {
            assert!(parse_moment(wrong, &zurich()).unwrap_err().contains("such as 2026-11-01"));
        }
        assert!(time_zone("Mars/Olympus").unwrap_err().contains("'Mars/Olympus'"));
    }
}
