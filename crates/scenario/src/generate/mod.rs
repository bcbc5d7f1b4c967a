//! Seeded work: the `generate:` block.
//!
//! A block covers a `span` that begins on a Monday at midnight and holds `teams`, one per leaf budget:
//!
//! ```yaml
//! generate:
//!   span: 30d
//!   mixes: {research: [...]}    # kinds of work under a name, for `mix: research`
//!   every_team: {debug: {...}}  # any key of a team but budget; a team's own value replaces it whole
//!   teams:
//!     - budget: vision/detection
//!       load: 2.5       # GPU-time of the mix, in multiples of the team's allocation over the span
//!       users: 6        # the budget's members, or vision-detection-u1 …; the first submit most
//!       arrival:
//!         kind: bursty  # or poisson (each at its own moment), steady (evenly spaced)
//!         day_night: 0.6          # so much less at night (22 to 6; from 9 to 18 it is day)
//!         weekend: 0.4            # so much less on Saturday and Sunday
//!         bursts_per_week: 2      # at random; then arrivals are burst_factor times as dense
//!         burst_factor: 5
//!         burst_length: 4h
//!         idle_weeks: [2]         # nothing arrives then; weeks count from 1
//!         start: 4d               # nor before this, nor after `end`
//!         backlog: 0.1            # this part is there at the start
//!       mix:
//!         - name: mid
//!           weight: 40            # its part of the load, by GPU-TIME
//!           gpus: {16: 3, 32: 2}  # sizes with weights by COUNT, or one size
//!           runtime: {lognormal: {median: 2h, p90: 20h}, min: 5m, max: 3d} # or {uniform: [1m, 15m]}, or 2h
//!           min_runtime: {fraction: [0.3, 1], min: 15m, max: 8h}           # of the runtime; or 15m
//!           max_runtime: {factor: [1.2, 4], max: 7d}                       # or 3d; not declared if absent
//!           resumable: 0.9                # a chance, or true or false
//!           checkpoint_interval: [15m, 1h] # or 15m; for resumable ones
//!           on_signal: 0.5                # chance that a resumable one saves when told to go
//!           save_time: [5s, 20s]          # and how long that takes
//!           startup: 2m                   # or [1m, 5m]; else the cluster's
//!           rank: {0: 8, 5: 1}            # weights by count, or one rank
//!           kind: batch                   # or session
//!           gpu_model: h100               # or any
//!       debug: {per_user_per_day: 6, gpus: {1: 5, 8: 1}, runtime: {uniform: [1m, 15m]}}
//!       squatters: {users: 1, per_user_per_day: 1, gpus: 8, runtime: {uniform: [6h, 12h]}, min_runtime: 4h}
//!       sweeps: {load: 0.5, gpus: 1, runtime: 3h}
//! ```
//!
//! `debug`, `squatters` and `sweeps` are side streams with the keys of a mix item (without name and weight) and an
//! amount of their own, `load` or `per_user_per_day`, on top of the team's load; `users` and `arrival` default to
//! the team's. They differ in defaults only: debug has a contract of 15 min, squatters are sessions, sweeps are
//! unallocated. The word `none` switches one off for a team.
//!
//! The last workload of a load is cut so that the load is hit. Contracts above the horizon become the horizon.
//! Ids are `vision-detection.mid.00042`, numbered in order of submission.
//!
//! Invariant: each stream (seed, budget path, name of the kind) has its own dice, so that adding, removing
//! or changing one leaves all others as they were.

mod arrival;
mod draw;
mod team;
mod template;

use std::collections::BTreeMap;

use crate::error::{ErrorKind, Fault, quote};
use crate::fields::{Fields, duration_positive, list, named};
use crate::intake::{Intake, World};
use crate::yaml::Node;

use team::Common;

/// The longest span. Longer ones are typing errors.
const SPAN_MAX_MS: u64 = 3_653 * 86_400_000;

/// Reads a `generate:` block and draws its work into `intake`.
pub(crate) fn read(node: &Node, world: &World<'_>, intake: &mut Intake) -> Result<(), Fault> {
    let block = Fields::of(node, &["span", "mixes", "every_team", "teams"])?;
    let span_ms = block.must("span", |node| match duration_positive(node)? {
        ms if ms > SPAN_MAX_MS => Err(Fault::value(node.line, "more than ten years")),
        ms => Ok(ms),
    })?;
    let mixes = block.opt("mixes", |node| named(node, "mix"))?.unwrap_or_default();
    let common = Common {
        span_ms,
        every_team: block.opt("every_team", |node| Fields::of(node, &team::KEYS[1..]))?,
        mixes: mixes.into_iter().map(|(key, mix)| (&*key.text, mix)).collect(),
    };
    let mut lines_by_leaf: BTreeMap<u32, usize> = BTreeMap::new();
    for (index, node) in block.must("teams", list)?.iter().enumerate() {
        let read = team::generate(node, &common, world, intake);
        let leaf = read.map_err(|fault| fault.within(&format!("teams[{index}]")))?;
        if let Some(first) = lines_by_leaf.insert(leaf, node.line) {
            let path = quote(&world.budgets[leaf as usize].path);
            let message =
                format!("teams[{index}]: duplicate team for {path}, first on line {first}");
            return Err(Fault::new(ErrorKind::Duplicate, node.line, message));
        }
    }
    intake.span_ms = Some(intake.span_ms.unwrap_or(0).max(span_ms));
    Ok(())
}
