//! Moments and spans as Slurm prints them.

use super::table::present;

/// A moment in seconds since 1970, as the clients print it with `SLURM_TIME_FORMAT=%s`; none where there is none.
pub fn moment(text: &str) -> Option<u64> {
    present(text)?.parse().ok().filter(|seconds| *seconds > 0)
}

/// A time limit in milliseconds: `minutes`, `hours:minutes:seconds`, `days-hours:minutes:seconds`. None where there
/// is no limit, or none that is known yet.
pub fn limit_ms(text: &str) -> Option<u64> {
    let text = present(text)?;
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (days.parse::<u64>().ok()?, clock),
        None => (0, text),
    };
    let parts: Vec<u64> = clock.split(':').map(str::parse).collect::<Result<_, _>>().ok()?;
    let seconds = match parts[..] {
        [minutes] if days == 0 => minutes.checked_mul(60)?,
        [hours] => hours.checked_mul(3600)?,
        [minutes, seconds] => minutes.checked_mul(60)?.checked_add(seconds)?,
        [hours, minutes, seconds] => {
            let minutes = hours.checked_mul(60)?.checked_add(minutes)?;
            minutes.checked_mul(60)?.checked_add(seconds)?
        }
        _ => return None,
    };
    days.checked_mul(86_400)?.checked_add(seconds)?.checked_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn moments_and_limits() {
        assert_eq!(moment("1796028917"), Some(1_796_028_917));
        for none in ["Unknown", "N/A", "None", "", "0", "-1", "soon"] {
            assert_eq!(moment(none), None, "{none}");
        }
        let hour = 3_600_000;
        assert_eq!(limit_ms("10:00:00"), Some(10 * hour));
        assert_eq!(limit_ms("2-12:00:00"), Some(60 * hour));
        assert_eq!(limit_ms("30:00"), Some(hour / 2));
        assert_eq!(limit_ms("60"), Some(hour));
        assert_eq!(limit_ms("1-1"), Some(25 * hour));
        for none in ["UNLIMITED", "NOT_SET", "Partition_Limit", "1:2:3:4", "18446744073709551615"] {
            assert_eq!(limit_ms(none), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*", odd in "[0-9:-]{0,30}") {
            for text in [&text, &odd] {
                let _ = (moment(text), limit_ms(text));
            }
        }
    }
}
