//! Newtypes for moments, spans and indices, so that two of them cannot be swapped by mistake.

use core::fmt;
use core::ops::{Add, Sub};

/// A moment, in whole milliseconds since the cluster's first moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TimeMs(pub u64);

/// A span of time, in whole milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SpanMs(pub u64);

impl TimeMs {
    /// Later than every moment that can occur.
    pub const NEVER: Self = Self(u64::MAX);

    /// The span from `earlier` to this moment; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> SpanMs {
        SpanMs(self.0.saturating_sub(earlier.0))
    }
}

impl SpanMs {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// `hours` as a span.
    #[must_use]
    pub const fn hours(hours: u64) -> Self {
        Self(hours * 3_600_000)
    }

    /// `minutes` as a span.
    #[must_use]
    pub const fn minutes(minutes: u64) -> Self {
        Self(minutes * 60_000)
    }

    /// `seconds` as a span.
    #[must_use]
    pub const fn seconds(seconds: u64) -> Self {
        Self(seconds * 1_000)
    }
}

impl Add<SpanMs> for TimeMs {
    type Output = Self;
    /// Saturates at [`TimeMs::NEVER`]: a moment past the end of time never comes.
    fn add(self, span: SpanMs) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Add for SpanMs {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for SpanMs {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for TimeMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SpanMs(self.0).fmt(f)
    }
}

impl fmt::Display for SpanMs {
    /// Days, hours, minutes, seconds: the largest two or three that matter, such as `2h30m`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == u64::MAX {
            return f.write_str("never");
        }
        let (ms, total_seconds) = (self.0 % 1_000, self.0 / 1_000);
        let parts = [
            (total_seconds / 86_400, "d"),
            (total_seconds / 3_600 % 24, "h"),
            (total_seconds / 60 % 60, "m"),
            (total_seconds % 60, "s"),
            (ms, "ms"),
        ];
        let mut written = false;
        for (amount, unit) in parts {
            if amount > 0 {
                write!(f, "{amount}{unit}")?;
                written = true;
            }
        }
        if written { Ok(()) } else { f.write_str("0s") }
    }
}

macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(pub u32);

        impl $name {
            /// The place in the table that this index points at.
            #[must_use]
            pub const fn at(self) -> usize {
                self.0 as usize
            }
        }
    };
}

index!(
    /// A host, by its place in the order of declaration.
    HostIx
);
index!(
    /// A GPU model, by its place in the order of declaration.
    ModelIx
);
index!(
    /// A budget, by its place in the tree (parents before children, siblings by name; 0 is the root).
    BudgetIx
);
index!(
    /// A live workload, by its place in the table. Places are used again after a workload has ended.
    WorkloadIx
);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn spans_read_as_people_write_them() {
        assert_eq!(SpanMs(0).to_string(), "0s");
        assert_eq!(SpanMs::minutes(90).to_string(), "1h30m");
        assert_eq!((SpanMs::hours(49) + SpanMs(5)).to_string(), "2d1h5ms");
        assert_eq!(TimeMs::NEVER.to_string(), "never");
    }

    #[test]
    fn the_end_of_time_is_not_passed() {
        assert_eq!(TimeMs::NEVER + SpanMs(1), TimeMs::NEVER);
        assert_eq!(TimeMs(3).since(TimeMs(5)), SpanMs(0));
    }
}
