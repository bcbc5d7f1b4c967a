//! An exact sliding integral: how much of something accrued in `[t-W, t]`.
//!
//! The quantity is the integral of a step function (GPUs occupied, or fraction x capacity). It is kept
//! as breakpoints with running totals, so that a reading costs two look-ups and a multiplication, and
//! nothing is ever rounded or decayed.

use crate::ledger::Change;
use crate::units::{SpanMs, TimeMs};
use alloc::collections::VecDeque;
use core::cell::Cell;

/// What held before the first breakpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Before {
    /// Nothing accrued before the first moment (charges).
    Nothing,
    /// The first rate counts as having always held (rule 3: allocation before a cluster's first moment).
    FirstRate,
}

/// One breakpoint: from `at` on, `rate` accrues per millisecond; `total` had accrued by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Point {
    at: TimeMs,
    rate: u128,
    total: u128,
}

/// A sliding integral over the last `span`.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Window {
    span: SpanMs,
    before: Before,
    /// The rate of the very first breakpoint, for [`Before::FirstRate`].
    first: Option<(TimeMs, u128)>,
    points: VecDeque<Point>,
    /// The breakpoint that the window's start was last found at. A hint that only speeds up readings.
    #[cfg_attr(feature = "serde", serde(skip))]
    tail: Cell<usize>,
}

impl Window {
    /// An empty window of length `span`.
    #[must_use]
    pub const fn new(span: SpanMs, before: Before) -> Self {
        Self { span, before, first: None, points: VecDeque::new(), tail: Cell::new(0) }
    }

    /// The rate that accrues now.
    #[must_use]
    pub fn rate(&self) -> u128 {
        self.points.back().map_or(0, |point| point.rate)
    }

    /// Everything that ever accrued up to `now`.
    #[must_use]
    pub fn total(&self, now: TimeMs) -> u128 {
        self.points
            .back()
            .map_or(0, |point| point.total + point.rate * u128::from(now.since(point.at).0))
    }

    /// From `now` on, `rate` accrues per millisecond. `now` never goes back.
    pub fn set_rate(&mut self, now: TimeMs, rate: u128) {
        if self.first.is_none() {
            self.first = Some((now, rate));
        }
        let total = self.total(now);
        if let Some(last) = self.points.back_mut() {
            assert!(last.at <= now, "a window never goes back in time");
            if last.rate == rate {
                return;
            }
            if last.at == now {
                last.rate = rate;
                if self.first.is_some_and(|(at, _)| at == now) {
                    self.first = Some((now, rate));
                }
                return;
            }
        }
        self.points.push_back(Point { at: now, rate, total });
        self.forget(now);
    }

    /// What is known late: from `from` to `now`, `units` more (or less) accrued per millisecond than was said. Only
    /// for windows before which nothing accrued.
    pub fn correct(&mut self, from: TimeMs, now: TimeMs, units: u128, change: Change) {
        debug_assert_eq!(self.before, Before::Nothing);
        if from >= now || units == 0 {
            return;
        }
        // What lies before the oldest breakpoint that is kept has left the window: only the totals know of it.
        let kept = match (self.first, self.points.front()) {
            (Some((first_at, _)), Some(oldest)) if oldest.at > first_at => oldest.at.min(now),
            _ => TimeMs(0),
        };
        let start = self.split(from.max(kept));
        let end = self.split(now);
        for (index, point) in self.points.iter_mut().enumerate() {
            let accrued = units * u128::from(point.at.since(from).0);
            match change {
                Change::More => point.total += accrued,
                Change::Less => point.total -= accrued,
            }
            if (start..end).contains(&index) {
                match change {
                    Change::More => point.rate += units,
                    Change::Less => point.rate -= units,
                }
            }
        }
        self.tail.set(0);
    }

    /// The breakpoint at a moment, which changes nothing if it is new.
    fn split(&mut self, at: TimeMs) -> usize {
        let after = self.points.partition_point(|point| point.at <= at);
        let (rate, total) = match after.checked_sub(1).map(|before| self.points[before]) {
            Some(point) if point.at == at => return after - 1,
            Some(point) => {
                (point.rate, point.total + point.rate * u128::from(at.since(point.at).0))
            }
            None => {
                self.first = Some((at, 0));
                (0, 0)
            }
        };
        self.points.insert(after, Point { at, rate, total });
        after
    }

    /// Drops breakpoints that no window ending at or after `now` can reach.
    fn forget(&mut self, now: TimeMs) {
        let Some(start) = now.0.checked_sub(self.span.0) else { return };
        while self.points.len() > 1 && self.points[1].at.0 <= start {
            self.points.pop_front();
            self.tail.set(self.tail.get().saturating_sub(1));
        }
    }

    /// What accrued in `[now - span, now]`.
    #[must_use]
    pub fn sum(&self, now: TimeMs) -> u128 {
        if let Some(start) = now.0.checked_sub(self.span.0)
            && self.first.is_some_and(|(first_at, _)| start >= first_at.0)
        {
            self.tail.set(self.index_at(TimeMs(start)));
        }
        self.sum_between(now, now)
    }

    /// What would have accrued if all that comes in until `gains_until` were in the window and all that leaves
    /// it until `drops_until` were not: with both at a moment the reading of that moment, with the ends of an
    /// interval a bound of its readings, as nothing ever accrues backwards. Neither lies before the last
    /// change.
    #[must_use]
    pub fn sum_between(&self, gains_until: TimeMs, drops_until: TimeMs) -> u128 {
        let gained = self.total(gains_until);
        match self.before {
            Before::Nothing => gained.saturating_sub(self.dropped(drops_until)),
            Before::FirstRate => {
                let Some((first_at, first_rate)) = self.first else { return 0 };
                // The window may reach back before the first breakpoint.
                let before = (u128::from(first_at.0) + u128::from(self.span.0))
                    .saturating_sub(u128::from(drops_until.0));
                (gained + first_rate * before).saturating_sub(self.dropped(drops_until))
            }
        }
    }

    /// What of the running total has left the window at `now`.
    #[must_use]
    pub fn dropped(&self, now: TimeMs) -> u128 {
        match (now.0.checked_sub(self.span.0), self.first) {
            (Some(start), Some((first_at, _))) if start >= first_at.0 => {
                let point = self.points[self.index_at(TimeMs(start))];
                point.total + point.rate * u128::from(start - point.at.0)
            }
            _ => 0,
        }
    }

    /// The last breakpoint at or before `moment`: near the hint, else searched for.
    fn index_at(&self, moment: TimeMs) -> usize {
        const NEAR: usize = 4;
        let hint = self.tail.get().min(self.points.len().saturating_sub(1));
        if self.points[hint].at <= moment {
            for index in hint..hint + NEAR {
                match self.points.get(index + 1) {
                    Some(next) if next.at <= moment => {}
                    _ => return index,
                }
            }
        }
        self.points.partition_point(|point| point.at <= moment).saturating_sub(1)
    }

    /// The next moment after `now` at which the rate at the window's start changes, if any does.
    #[must_use]
    pub fn next_tail_change(&self, now: TimeMs) -> Option<TimeMs> {
        let (first_at, _) = self.first?;
        let leaves = |point: &Point| TimeMs(point.at.0 + self.span.0);
        match now.0.checked_sub(self.span.0) {
            Some(start) if start >= first_at.0 => {
                self.points.get(self.index_at(TimeMs(start)) + 1).map(leaves)
            }
            // Before that, the start has yet to reach the first breakpoint. Its rate may differ there.
            _ => Some(TimeMs(first_at.0 + self.span.0)),
        }
    }

    /// The rate at the window's start at `now`.
    #[must_use]
    pub fn tail_rate(&self, now: TimeMs) -> u128 {
        let Some((first_at, first_rate)) = self.first else { return 0 };
        match now.0.checked_sub(self.span.0) {
            Some(start) if start >= first_at.0 => self.points[self.index_at(TimeMs(start))].rate,
            _ => match self.before {
                Before::Nothing => 0,
                Before::FirstRate => first_rate,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// The same integral by walking every millisecond.
    fn slow(changes: &[(u64, u128)], before: Before, span: u64, now: u64) -> u128 {
        (0..span)
            .map(|back| {
                let Some(moment) = (now).checked_sub(back + 1) else {
                    return match before {
                        Before::Nothing => 0,
                        Before::FirstRate => changes.first().map_or(0, |change| change.1),
                    };
                };
                match changes.iter().rev().find(|change| change.0 <= moment) {
                    Some(change) => change.1,
                    None => match before {
                        Before::Nothing => 0,
                        Before::FirstRate => changes.first().map_or(0, |change| change.1),
                    },
                }
            })
            .sum()
    }

    proptest! {
        #[test]
        fn a_reading_equals_the_walk(
            steps in proptest::collection::vec((1u64..30, 0u128..5), 1..12),
            span in 1u64..60, wait in 0u64..80, always: bool,
        ) {
            let before = if always { Before::FirstRate } else { Before::Nothing };
            let mut window = Window::new(SpanMs(span), before);
            let (mut at, mut changes) = (0, Vec::new());
            for (gap, rate) in steps {
                window.set_rate(TimeMs(at), rate);
                changes.push((at, rate));
                prop_assert_eq!(window.sum(TimeMs(at)), slow(&changes, before, span, at));
                at += gap;
            }
            let now = at + wait;
            prop_assert_eq!(window.sum(TimeMs(now)), slow(&changes, before, span, now));
            // Between two changes of the tail the reading is a straight line.
            if let Some(next) = window.next_tail_change(TimeMs(now)) {
                prop_assert!(next.0 > now);
                let per_ms = window.rate() as i128 - window.tail_rate(TimeMs(now)) as i128;
                let line = window.sum(TimeMs(now)) as i128 + per_ms * i128::from(next.0 - now);
                prop_assert_eq!(window.sum(next) as i128, line);
            }
        }

        #[test]
        fn what_is_known_late_reads_as_if_it_had_been_known(
            steps in proptest::collection::vec((1u64..30, 1u128..5), 1..12),
            span in 1u64..60, wait in 0u64..40, later in 0u64..80, back in 0u64..200, stopped: bool,
        ) {
            let mut window = Window::new(SpanMs(span), Before::Nothing);
            let (mut at, mut changes) = (0, Vec::new());
            for (gap, rate) in steps {
                window.set_rate(TimeMs(at), rate);
                changes.push((at, rate));
                at += gap;
            }
            let now = at + wait;
            // Since `from` one unit more ran, or one less, which is heard of now.
            let from = if stopped { now - back.min(now) } else { (now + 5).saturating_sub(back + 5) };
            let rate = window.rate();
            if stopped {
                window.set_rate(TimeMs(now), rate - 1);
                window.correct(TimeMs(from), TimeMs(now), 1, Change::Less);
            } else {
                window.set_rate(TimeMs(now), rate + 1);
                window.correct(TimeMs(from), TimeMs(now), 1, Change::More);
            }
            let known = |moment: u64| {
                let said = changes.iter().rev().find(|change| change.0 <= moment);
                let said = said.map_or(0, |change| change.1);
                match (moment >= from, stopped) {
                    (false, _) => said,
                    (true, true) => said - 1,
                    (true, false) => said + 1,
                }
            };
            let read = now + later;
            let truth: u128 = (read.saturating_sub(span)..read).map(known).sum();
            prop_assert_eq!(window.sum(TimeMs(read)), truth);
            prop_assert_eq!(window.total(TimeMs(read)), (0..read).map(known).sum::<u128>());
        }
    }
}
