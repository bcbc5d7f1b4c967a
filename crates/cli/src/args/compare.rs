//! Settings of the policies that Bursar is compared with.

use super::duration_ms;
use bursar_core::{SpanMs, compare};
use clap::Args;

const PPM: f64 = 1_000_000.0;

/// The flags; what is left out keeps the policy's own default.
#[derive(Debug, Args)]
#[command(next_help_heading = "Settings of policies to compare with")]
pub(crate) struct CompareArgs {
    /// fair-tree: how long until usage counts half; 0 for never [default: 7d].
    #[arg(long, value_name = "TIME", value_parser = duration_ms)]
    half_life: Option<u64>,
    /// yarn-fair: how long a queue is below its min share until it may preempt [default: 1m].
    #[arg(long, value_name = "TIME", value_parser = duration_ms)]
    yarn_min_share_timeout: Option<u64>,
    /// yarn-fair: how long a queue is starved until it may preempt [default: 10m].
    #[arg(long, value_name = "TIME", value_parser = duration_ms)]
    yarn_fair_share_timeout: Option<u64>,
    /// yarn-fair: the part of its fair share below which a queue is starved [default: 0.5].
    #[arg(long, value_name = "PART", value_parser = part_ppm)]
    yarn_fair_share_threshold: Option<u64>,
    /// yarn-fair: the part of its fraction that is a queue's min share [default: 0].
    #[arg(long, value_name = "PART", value_parser = part_ppm)]
    yarn_min_share: Option<u64>,
}

impl CompareArgs {
    pub(crate) fn options(&self) -> compare::Options {
        let default = compare::Options::default();
        let span = |given: Option<u64>, default| given.map_or(default, SpanMs);
        compare::Options {
            half_life: span(self.half_life, default.half_life),
            min_share_timeout: span(self.yarn_min_share_timeout, default.min_share_timeout),
            fair_share_timeout: span(self.yarn_fair_share_timeout, default.fair_share_timeout),
            fair_share_threshold_ppm: self
                .yarn_fair_share_threshold
                .unwrap_or(default.fair_share_threshold_ppm),
            min_share_ppm: self.yarn_min_share.unwrap_or(default.min_share_ppm),
        }
    }
}

/// A part of one, in millionths.
fn part_ppm(text: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        Ok(part) if (0.0..=1.0).contains(&part) => Ok((part * PPM).round() as u64),
        Ok(_) | Err(_) => Err("not a number from 0 to 1".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_one() {
        assert_eq!((part_ppm("0.5"), part_ppm("1")), (Ok(500_000), Ok(1_000_000)));
        assert!(["1.1", "-0.1", "NaN", "inf", "x"].iter().all(|text| part_ppm(text).is_err()));
    }
}
