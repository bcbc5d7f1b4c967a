//! The description as compact text for a terminal.

use std::fmt;

use crate::text::one_line;

use super::{Description, LoadBucket, NamedUse, Quantiles};

/// Characters of the longest bar.
const BAR_CHARS: u128 = 32;

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({})", one_line(&self.name), self.format)?;
        let span = Span(self.last_submit_ms - self.first_submit_ms);
        write!(f, "jobs      {} submitted over {span}", self.jobs)?;
        if let Some(origin) = &self.origin {
            write!(f, ", from {origin}")?;
        }
        writeln!(f, "; {} GPU-hours", GpuHours(self.gpu_ms))?;
        self.fmt_left_out(f)?;
        write!(f, "ended    ")?;
        for (status, jobs) in &self.statuses {
            write!(f, " {status} {jobs} ({})", Percent(u128::from(*jobs), u128::from(self.jobs)))?;
        }
        writeln!(f)?;
        fmt_quantiles(f, "runtime", &self.runtime_ms)?;
        if let Some(wait_ms) = &self.recorded_wait_ms {
            fmt_quantiles(f, "waited", wait_ms)?;
        }
        writeln!(f, "\n{:<10}{:>10}{:>8}{:>16}{:>8}", "GPUs", "jobs", "", "GPU-hours", "")?;
        for class in &self.sizes {
            writeln!(
                f,
                "{:<10}{:>10}{:>8}{:>16}{:>8}",
                class.gpus,
                class.jobs,
                Percent(u128::from(class.jobs), u128::from(self.jobs)).to_string(),
                GpuHours(class.gpu_ms).to_string(),
                Percent(class.gpu_ms, self.gpu_ms).to_string(),
            )?;
        }
        writeln!(f, "largest job {} GPUs", self.gpus_max)?;
        self.fmt_named(f, "users", self.users, &self.top_users)?;
        self.fmt_named(f, "groups", self.groups, &self.top_groups)?;
        self.fmt_named(f, "budgets", self.budgets, &self.top_budgets)?;
        let models = self.top_gpu_models.len() as u64;
        self.fmt_named(f, "GPU models", models, &self.top_gpu_models)?;
        self.fmt_load(f)?;
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}

impl Description {
    fn fmt_left_out(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.skipped, "broken rows"),
            (self.without_gpus, "without a GPU"),
            (self.never_started, "never started"),
            (self.unfinished, "without an end"),
        ];
        let parts: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if parts.is_empty() { Ok(()) } else { writeln!(f, "left out  {}", parts.join(", ")) }
    }

    fn fmt_named(
        &self,
        f: &mut fmt::Formatter<'_>,
        what: &str,
        count: u64,
        top: &[NamedUse],
    ) -> fmt::Result {
        if top.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\n{what}: {count}{}",
            if count > top.len() as u64 { ", the largest" } else { "" }
        )?;
        for used in top {
            writeln!(
                f,
                "  {:<24}{:>10} jobs{:>16} GPU-hours{:>8}",
                crate::error::clip(&used.name, 40),
                used.jobs,
                GpuHours(used.gpu_ms).to_string(),
                Percent(used.gpu_ms, self.gpu_ms).to_string(),
            )?;
        }
        Ok(())
    }

    fn fmt_load(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.load.first() else { return Ok(()) };
        writeln!(
            f,
            "\nload per {}: jobs submitted, and GPUs busy on average if each had started at once \
             (at most {})",
            Span(first.to_ms - first.from_ms),
            self.peak_gpus
        )?;
        let most = self.load.iter().map(gpus).max().unwrap_or(0).max(1);
        for bucket in &self.load {
            let filled = gpus(bucket).saturating_mul(BAR_CHARS).div_ceil(most) as usize;
            writeln!(
                f,
                "  {:>10}{:>9}{:>9} {}",
                Span(bucket.from_ms).to_string(),
                bucket.jobs,
                gpus(bucket),
                "█".repeat(filled)
            )?;
        }
        Ok(())
    }
}

/// GPUs that are busy on average, to the nearest.
fn gpus(bucket: &LoadBucket) -> u128 {
    let width_ms = u128::from(bucket.to_ms - bucket.from_ms).max(1);
    (bucket.demand_gpu_ms + width_ms / 2) / width_ms
}

fn fmt_quantiles(f: &mut fmt::Formatter<'_>, what: &str, q: &Quantiles) -> fmt::Result {
    writeln!(
        f,
        "{what:<10}min {}, p50 {}, p90 {}, p99 {}, max {}",
        Span(q.min),
        Span(q.p50),
        Span(q.p90),
        Span(q.p99),
        Span(q.max)
    )
}

/// A span of time in its two largest units.
struct Span(u64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 5] =
            [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
        let Some(at) = UNITS.iter().position(|(unit_ms, _)| self.0 >= *unit_ms) else {
            return f.write_str("0s");
        };
        let (large_ms, large) = UNITS[at];
        write!(f, "{}{large}", self.0 / large_ms)?;
        match UNITS.get(at + 1) {
            Some((small_ms, small)) if (self.0 % large_ms) / small_ms > 0 => {
                write!(f, "{}{small}", (self.0 % large_ms) / small_ms)
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// GPU-milliseconds as GPU-hours with one decimal.
struct GpuHours(u128);

impl fmt::Display for GpuHours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = (self.0 + 180_000) / 360_000;
        write!(f, "{}.{}", tenths / 10, tenths % 10)
    }
}

/// A part of a whole in percent with one decimal.
struct Percent(u128, u128);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = (self.0 * 1_000 + self.1 / 2).checked_div(self.1).unwrap_or(0);
        write!(f, "{}.{}%", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use crate::{ReadOptions, describe, read};

    #[test]
    fn a_small_history_as_text() {
        let text = "id,submit,budget,gpus,runtime,user,status\n\
                    a,0,p,8,7200,ann,completed\n\
                    b,3600,p,1,60,bob,failed\n\
                    c,7200,q,300,3600,ann,completed\n";
        let trace = read(text.as_bytes(), "small.csv", &ReadOptions::default()).unwrap();
        let description = describe(&trace);
        assert_eq!(description.peak_gpus, 300);
        let expected = "\
small.csv (csv)
jobs      3 submitted over 2h; 316.0 GPU-hours
ended     completed 2 (66.7%) failed 1 (33.3%)
runtime   min 1m, p50 1h, p90 2h, p99 2h, max 2h

GPUs            jobs               GPU-hours        
1                  1   33.3%             0.0    0.0%
2-8                1   33.3%            16.0    5.1%
9-64               0    0.0%             0.0    0.0%
65-256             0    0.0%             0.0    0.0%
>256               1   33.3%           300.0   94.9%
largest job 300 GPUs

users: 2
  ann                              2 jobs           316.0 GPU-hours  100.0%
  bob                              1 jobs             0.0 GPU-hours    0.0%

budgets: 2
  q                                1 jobs           300.0 GPU-hours   94.9%
  p                                2 jobs            16.0 GPU-hours    5.1%

load per 1h: jobs submitted, and GPUs busy on average if each had started at once (at most 300)
          0s        1        8 █
          1h        1        8 █
          2h        1      300 ████████████████████████████████
";
        assert_eq!(description.to_string(), expected);
    }
}
