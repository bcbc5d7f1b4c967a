//! Numbers and durations from text, exactly: decimals become whole milliseconds without a float.
//!
//! Digits finer than a millisecond are rounded to the nearest one.

use crate::error::{Problem, clip};

/// Longest duration, and longest distance from a trace's origin, that is believed: 100 years.
/// A GPU count of [`GPUS_MAX`] over this long still fits 64 bits as GPU-milliseconds.
pub const SPAN_MS_MAX: u64 = 100 * 365 * 86_400_000;

/// Most GPUs that one job is believed to have.
pub const GPUS_MAX: u32 = 1_000_000;

/// Fraction digits that can matter; the rest are only checked to be digits.
const FRACTION_DIGITS_MAX: usize = 18;

/// Milliseconds of a duration: seconds (`90`, `0.25`) or parts from large to small (`15m`, `1h30m`,
/// `7d`, `1.5h`; units `w`, `d`, `h`, `m`, `s`, `ms`).
///
/// The error is a fragment that quotes the text and says what would be right.
pub fn parse_duration_ms(text: &str) -> Result<u64, String> {
    duration_ms(text).map_err(|problem| format!("'{}' {problem}", clip(text, 60)))
}

/// As [`parse_duration_ms`]; the problem does not repeat the text.
pub(crate) fn duration_ms(text: &str) -> Result<u64, Problem> {
    const WRONG: &str = "is not a duration: write seconds, or parts such as 15m, 1h30m or 7d";
    let text = text.trim();
    let mut rest = text;
    let mut total: u64 = 0;
    let mut smallest_ms = u64::MAX;
    if !rest.ends_with(|c: char| c.is_ascii_alphabetic()) || !rest.starts_with(digit_or_point) {
        return in_span(decimal(text, 1_000, WRONG)?);
    }
    while !rest.is_empty() {
        let number_end = rest.find(|c| !digit_or_point(c)).ok_or(WRONG)?;
        let (number, after) = rest.split_at(number_end);
        let unit_end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let unit_ms = match unit {
            "w" => 7 * 86_400_000,
            "d" => 86_400_000,
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1_000,
            "ms" => 1,
            _ => return Err(WRONG.into()),
        };
        if unit_ms >= smallest_ms {
            return Err(
                "has its parts out of order: write each unit once, the largest first".into()
            );
        }
        smallest_ms = unit_ms;
        total = in_span(total.saturating_add(decimal(number, unit_ms, WRONG)?))?;
        rest = after.trim_start();
    }
    Ok(total)
}

/// Milliseconds of a plain decimal number of seconds.
pub(crate) fn seconds_ms(text: &str) -> Result<u64, Problem> {
    in_span(decimal(text, 1_000, "is not a number of seconds")?)
}

/// Milliseconds of a plain decimal number of microseconds.
pub(crate) fn microseconds_ms(text: &str) -> Result<u64, Problem> {
    let microseconds = decimal(text, 1, "is not a number of microseconds")?;
    in_span(microseconds / 1_000 + u64::from(microseconds % 1_000 >= 500))
}

/// A whole number of GPUs, at least 1.
pub(crate) fn gpus(text: &str) -> Result<u32, Problem> {
    match count(text)? {
        0 => Err(NOT_A_COUNT.into()),
        gpus => Ok(gpus),
    }
}

const NOT_A_COUNT: &str = "is not a whole number of at least 1";

/// A whole number of things, 0 allowed, also as `8.0` (which tables written by scripts have).
pub(crate) fn count(text: &str) -> Result<u32, Problem> {
    let whole = match text.split_once('.') {
        Some((whole, zeros)) if !zeros.is_empty() && zeros.bytes().all(|b| b == b'0') => whole,
        Some(_) | None => text,
    };
    if whole.is_empty() || !whole.bytes().all(|b| b.is_ascii_digit()) {
        return Err(NOT_A_COUNT.into());
    }
    match whole.parse::<u64>() {
        Ok(count) if count <= u64::from(GPUS_MAX) => Ok(count as u32),
        Ok(_) | Err(_) => Err(format!("is more than {GPUS_MAX}").into()),
    }
}

/// A whole number that may be negative.
pub(crate) fn integer(text: &str) -> Result<i64, Problem> {
    text.parse().map_err(|_| "is not a whole number".into())
}

/// A rank.
pub(crate) fn rank(text: &str) -> Result<i32, Problem> {
    text.parse().map_err(|_| "is not a whole number from -2147483648 to 2147483647".into())
}

/// A yes or a no.
pub(crate) fn boolean(text: &str) -> Result<bool, Problem> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "1" => Ok(true),
        "false" | "no" | "0" => Ok(false),
        _ => Err("is neither true nor false".into()),
    }
}

/// Refuses what is beyond [`SPAN_MS_MAX`].
pub(crate) fn in_span(ms: u64) -> Result<u64, Problem> {
    if ms > SPAN_MS_MAX { Err("is more than 100 years".into()) } else { Ok(ms) }
}

fn digit_or_point(c: char) -> bool {
    c.is_ascii_digit() || c == '.'
}

/// A plain decimal number times `scale`, to the nearest whole number; `u64::MAX` when huge.
fn decimal(text: &str, scale: u64, wrong: &'static str) -> Result<u64, Problem> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) {
        let unsigned = text.trim_start_matches(['-', '+']).to_ascii_lowercase();
        return Err(match unsigned.as_str() {
            "nan" | "inf" | "infinity" => "is not a finite number".into(),
            _ if text.starts_with('-') && unsigned.starts_with(digit_or_point) => {
                "is negative".into()
            }
            _ => wrong.into(),
        });
    }
    let whole: u64 = match whole.trim_start_matches('0') {
        "" => 0,
        whole => whole.parse().unwrap_or(u64::MAX),
    };
    let kept = &fraction[..fraction.len().min(FRACTION_DIGITS_MAX)];
    let parts = kept.bytes().fold(0u128, |sum, b| sum * 10 + u128::from(b - b'0'));
    let of = 10u128.pow(kept.len() as u32);
    let scaled = u128::from(whole) * u128::from(scale);
    let rounded = scaled + (parts * u128::from(scale) + of / 2) / of;
    Ok(u64::try_from(rounded).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_exact() {
        for (text, ms) in [
            ("0", 0),
            ("90", 90_000),
            ("0.001", 1),
            (".5", 500),
            ("5.", 5_000),
            ("15m", 900_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("0.1h", 360_000),
            ("7d", 604_800_000),
            ("1w2d3h4m5s6ms", 788_645_006),
            ("4503599627.001", 4_503_599_627_001_u64.min(SPAN_MS_MAX + 1)),
            ("0.0004", 0),
            ("0.0005", 1),
        ] {
            if ms > SPAN_MS_MAX {
                assert!(parse_duration_ms(text).is_err(), "{text}");
            } else {
                assert_eq!(parse_duration_ms(text), Ok(ms), "{text}");
            }
        }
        assert_eq!(parse_duration_ms("2147483647.123"), Ok(2_147_483_647_123));
    }

    #[test]
    fn what_is_no_duration_is_refused_with_a_reason() {
        for (text, part) in [
            ("", "is not a duration: write seconds, or parts such as"),
            ("NaN", "finite"),
            ("-inf", "finite"),
            ("-3", "negative"),
            ("1e3", "is not a duration"),
            ("1h30", "is not a duration"),
            ("1x", "not a duration"),
            ("h", "is not a duration"),
            ("1..5h", "not a duration"),
            ("30m1h", "out of order"),
            ("5m5m", "out of order"),
            ("40000d", "100 years"),
            ("99999999999999999999999999", "100 years"),
            ("99999999999999999999999999w", "100 years"),
            ("5µ", "is not a duration"),
        ] {
            let error = parse_duration_ms(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn counts() {
        assert_eq!(count("8.0"), Ok(8));
        assert_eq!(count("0"), Ok(0));
        assert_eq!(gpus("0").unwrap_err(), "is not a whole number of at least 1");
        for bad in ["", "-1", "1.5", "8.", "+3", "x", "1e3"] {
            assert_eq!(count(bad).unwrap_err(), NOT_A_COUNT, "{bad}");
        }
        assert_eq!(count("99999999999999999999999").unwrap_err(), "is more than 1000000");
        assert_eq!(microseconds_ms("5835000000"), Ok(5_835_000));
    }
}
