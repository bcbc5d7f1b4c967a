//! Short attempts on one host, as what they come to in each cell of time.
//!
//! A month of a large cluster has more attempts than a page can carry or a screen can show. Those shorter
//! than a cell are added up: per host and cell, the mean number of GPUs that each leaf had, allocated and
//! unallocated. Whole numbers of GPUs are given out by largest remainder, so that the picture is as full as
//! the host was.

use crate::bars::{Bar, End, What};
use std::cmp::Reverse;

/// What the short attempts of one leaf and class had on one host within one cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    host: u32,
    cell: u64,
    leaf: u32,
    allocated: bool,
    gpu_time: u64,
    protected_time: u64,
    /// Attempts that started here.
    attempts: u32,
}

impl Piece {
    const fn is_with(&self, other: &Self) -> bool {
        self.host == other.host
            && self.cell == other.cell
            && self.leaf == other.leaf
            && self.allocated == other.allocated
    }
}

/// The same bars in order of their start, those on one host and shorter than `cell` added up.
pub(crate) fn join(bars: &[Bar], cell: u64, leaf_of: impl Fn(What) -> u32) -> Vec<Bar> {
    let mut kept = Vec::new();
    let mut pieces = Vec::new();
    for bar in bars {
        match bar.placement[..] {
            [(host, gpus)] if bar.end - bar.start < cell => {
                cut(bar, host, gpus, cell, leaf_of(bar.what), &mut pieces);
            }
            _ => kept.push(bar.clone()),
        }
    }
    pieces.sort_unstable();
    pieces.dedup_by(|piece, sum| {
        let same = piece.is_with(sum);
        if same {
            sum.gpu_time += piece.gpu_time;
            sum.protected_time += piece.protected_time;
            sum.attempts += piece.attempts;
        }
        same
    });
    let of_one_cell = |a: &Piece, b: &Piece| (a.host, a.cell) == (b.host, b.cell);
    for together in pieces.chunk_by(of_one_cell) {
        fill(together, cell, &mut kept);
    }
    kept.sort_unstable();
    kept
}

/// Cuts a short bar at the border of cells; there is at most one within it.
fn cut(bar: &Bar, host: u32, gpus: u32, cell: u64, leaf: u32, pieces: &mut Vec<Piece>) {
    let (first, last) = (bar.start / cell, bar.end.saturating_sub(1).max(bar.start) / cell);
    for place in first..=last {
        let (from, to) = (bar.start.max(place * cell), bar.end.min((place + 1) * cell));
        let protected = bar.protected_until.clamp(from, to) - from;
        pieces.push(Piece {
            host,
            cell: place,
            leaf,
            allocated: bar.allocated,
            gpu_time: (to - from) * u64::from(gpus),
            protected_time: protected * u64::from(gpus),
            attempts: u32::from(place == first),
        });
    }
}

/// Gives out the GPUs of one cell of one host.
fn fill(pieces: &[Piece], cell: u64, bars: &mut Vec<Bar>) {
    let total: u64 = pieces.iter().map(|piece| piece.gpu_time).sum();
    let whole: u64 = pieces.iter().map(|piece| piece.gpu_time / cell).sum();
    let more = ((total + cell / 2) / cell).saturating_sub(whole) as usize;
    let mut by_remainder: Vec<usize> = (0..pieces.len()).collect();
    by_remainder.sort_by_key(|&at| Reverse(pieces[at].gpu_time % cell));
    let luckier = &by_remainder[..more.min(pieces.len())];
    for (at, piece) in pieces.iter().enumerate() {
        let gpus = (piece.gpu_time / cell) as u32 + u32::from(luckier.contains(&at));
        if gpus == 0 {
            continue;
        }
        let start = piece.cell * cell;
        let protected = piece.protected_time * cell / piece.gpu_time.max(1);
        bars.push(Bar {
            start,
            what: What::Joined { leaf: piece.leaf, attempts: piece.attempts },
            end: start + cell,
            protected_until: start + protected,
            allocated: piece.allocated,
            why: End::Completed,
            placement: vec![(piece.host, gpus)],
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(start: u64, end: u64, leaf: u32, gpus: u32) -> Bar {
        Bar {
            start,
            what: What::Joined { leaf, attempts: 1 },
            end,
            protected_until: end,
            allocated: true,
            why: End::Completed,
            placement: vec![(0, gpus)],
        }
    }

    fn leaf_of(what: What) -> u32 {
        match what {
            What::Joined { leaf, .. } => leaf,
            What::Attempt { workload, .. } => workload,
        }
    }

    #[test]
    fn a_cell_holds_the_mean_of_what_ran_in_it() {
        // Leaf 1 has 2.4 GPUs in the first cell of 100, leaf 2 has 1.2, together 3.6: 4 are shown.
        let bars = [short(0, 60, 1, 4), short(60, 99, 2, 3), short(90, 110, 2, 1)];
        let joined = join(&bars, 100, leaf_of);
        let told: Vec<_> =
            joined.iter().map(|bar| (bar.start, leaf_of(bar.what), bar.placement[0].1)).collect();
        assert_eq!(told, [(0, 1, 3), (0, 2, 1)]);
        assert!(joined.iter().all(|bar| bar.end == bar.start + 100));
    }

    #[test]
    fn long_and_wide_attempts_stay_themselves() {
        let mut wide = short(5, 10, 1, 8);
        wide.placement = vec![(0, 8), (1, 8)];
        let bars = [short(0, 100, 1, 1), wide];
        assert_eq!(join(&bars, 100, leaf_of), bars);
    }
}
