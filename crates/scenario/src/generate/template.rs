//! One kind of work, and how a workload of it is drawn.

use super::draw::{Dice, PPM, Times, Weighted, chance, parse_gpus, part, range};
use crate::error::{ErrorKind, Fault};
use crate::fields::{Fields, decimal, duration, duration_positive, text};
use crate::intake::World;
use crate::model::{Ends, Kind, WorkloadSpec};
use crate::workloads::{kind, parse_rank};
use crate::yaml::{Node, Value};

const MINUTE_MS: u64 = 60_000;
/// People declare contracts in steps of five minutes and limits in quarters of an hour.
const CONTRACT_STEP_MS: u64 = 5 * MINUTE_MS;
const LIMIT_STEP_MS: u64 = 15 * MINUTE_MS;

/// The keys of a template, for the blocks that have more of their own.
pub(super) const KEYS: [&str; 12] = [
    "gpus",
    "runtime",
    "min_runtime",
    "max_runtime",
    "resumable",
    "checkpoint_interval",
    "on_signal",
    "save_time",
    "startup",
    "rank",
    "kind",
    "gpu_model",
];

/// What a kind of work has where its block says nothing.
pub(super) struct Defaults {
    pub(super) min_runtime_ms: u64,
    pub(super) kind: Kind,
}

/// One kind of work.
#[derive(Clone, Debug)]
pub(super) struct Template {
    gpus: Weighted<u32>,
    runtime: Times,
    contract: Contract,
    limit: Option<Limit>,
    resumable_ppm: u64,
    checkpoint_interval: Option<(u64, u64)>,
    on_signal_ppm: u64,
    save_time: (u64, u64),
    startup: Option<(u64, u64)>,
    rank: Weighted<i32>,
    kind: Kind,
    model: Option<u32>,
    horizon_ms: u64,
}

/// How `min_runtime` is declared.
#[derive(Clone, Debug)]
enum Contract {
    Fixed(u64),
    /// Part of the runtime, within bounds.
    Part {
        ppm: (u64, u64),
        min_ms: u64,
        max_ms: u64,
    },
}

/// How `max_runtime` is declared.
#[derive(Clone, Debug)]
enum Limit {
    Fixed(u64),
    /// The runtime times a factor: people overestimate.
    Factor {
        micro: (u64, u64),
        max_ms: u64,
    },
}

impl Template {
    /// Reads the template's keys of `block`, which may have others.
    pub(super) fn read(
        block: &Fields<'_>,
        world: &World<'_>,
        defaults: &Defaults,
    ) -> Result<Self, Fault> {
        let horizon_ms = world.settings.horizon_ms;
        let model = block.opt("gpu_model", |node| {
            let model = world.cluster.model(text(node)?);
            model.map_err(|message| Fault::new(ErrorKind::UnknownName, node.line, message))
        })?;
        let gpus = block.must("gpus", |node| {
            let gpus = Weighted::read(node, "number of GPUs", parse_gpus)?;
            for size in gpus.values() {
                let check = world.check_gang(size, model);
                check.map_err(|message| Fault::value(node.line, message))?;
            }
            Ok(gpus)
        })?;
        let contract = block.opt("min_runtime", read_contract)?;
        let default = Contract::Fixed(defaults.min_runtime_ms);
        Ok(Self {
            gpus,
            runtime: block.must("runtime", Times::read)?,
            contract: contract.unwrap_or(default),
            limit: block.opt("max_runtime", read_limit)?,
            resumable_ppm: block.opt("resumable", chance)?.unwrap_or(0),
            checkpoint_interval: block
                .opt("checkpoint_interval", |node| range(node, duration_positive))?,
            on_signal_ppm: block.opt("on_signal", chance)?.unwrap_or(0),
            save_time: block.opt("save_time", |node| range(node, duration))?.unwrap_or((0, 0)),
            startup: block.opt("startup", |node| range(node, duration))?,
            rank: block
                .opt("rank", |node| Weighted::read(node, "rank", parse_rank))?
                .unwrap_or(Weighted::one(0)),
            kind: block.opt("kind", kind)?.unwrap_or(defaults.kind),
            model: model.map(|model| model as u32),
            horizon_ms,
        })
    }

    /// Draws one workload, without its id, budget, user and moment.
    pub(super) fn draw(&self, dice: &mut Dice) -> WorkloadSpec {
        let gpus = self.gpus.draw(dice);
        let runtime_ms = self.runtime.draw(dice);
        let resumable = dice.chance(self.resumable_ppm);
        let whole_minutes = |ms: u64| (ms / MINUTE_MS * MINUTE_MS).max(MINUTE_MS.min(ms));
        let checkpoint_interval_ms = match self.checkpoint_interval {
            Some(range) if resumable => Some(whole_minutes(dice.between(range))),
            Some(_) | None => None,
        };
        let checkpoint_on_signal = resumable && dice.chance(self.on_signal_ppm);
        let save_time_ms = match checkpoint_on_signal {
            true => dice.between(self.save_time) / 1_000 * 1_000,
            false => 0,
        };
        WorkloadSpec {
            id: "".into(),
            tie: 0,
            submit_ms: 0,
            budget: 0,
            user: None,
            gpus,
            shape: None,
            model: self.model,
            runtime_ms,
            min_runtime_ms: self.min_runtime(runtime_ms, dice),
            max_runtime_ms: self.max_runtime(runtime_ms, dice),
            resumable,
            rank: self.rank.draw(dice),
            kind: self.kind,
            checkpoint_interval_ms,
            checkpoint_on_signal,
            save_time_ms,
            grace_ms: None,
            startup_ms: self.startup.map(|range| dice.between(range) / 1_000 * 1_000),
            ends: Ends::Completed,
            ran: Box::default(),
        }
    }

    /// Nobody declares more than the horizon allows, so that a shorter horizon shortens contracts
    /// and does not refuse the scenario.
    fn min_runtime(&self, runtime_ms: u64, dice: &mut Dice) -> u64 {
        let ms = match &self.contract {
            Contract::Fixed(ms) => *ms,
            Contract::Part { ppm, min_ms, max_ms } => {
                let ms = scaled(runtime_ms, dice.between(*ppm));
                ms.next_multiple_of(CONTRACT_STEP_MS).clamp(*min_ms, *max_ms)
            }
        };
        ms.min(self.horizon_ms)
    }

    /// Rounded up to a quarter of an hour, and one more for starting up.
    fn max_runtime(&self, runtime_ms: u64, dice: &mut Dice) -> Option<u64> {
        match self.limit.as_ref()? {
            Limit::Fixed(ms) => Some(*ms),
            Limit::Factor { micro, max_ms } => {
                let ms = scaled(runtime_ms, dice.between(*micro));
                let ms = ms.min(*max_ms).max(runtime_ms);
                Some(ms.next_multiple_of(LIMIT_STEP_MS) + LIMIT_STEP_MS)
            }
        }
    }
}

fn scaled(ms: u64, micro: u64) -> u64 {
    (u128::from(ms) * u128::from(micro) / u128::from(PPM)) as u64
}

/// `15m`, or `{fraction: 0.5, min: 15m, max: 8h}`; the fraction may be a range.
fn read_contract(node: &Node) -> Result<Contract, Fault> {
    if let Value::Scalar(_) = node.value {
        return duration(node).map(Contract::Fixed);
    }
    let block = Fields::of(node, &["fraction", "min", "max"])?;
    let ppm = block.must("fraction", |node| range(node, part))?;
    let min_ms = block.opt("min", duration)?.unwrap_or(0);
    let max_ms = block.opt("max", duration)?.unwrap_or(u64::MAX);
    if min_ms > max_ms {
        return Err(Fault::value(block.line, "min is above max"));
    }
    Ok(Contract::Part { ppm, min_ms, max_ms })
}

/// `3d`, or `{factor: [1.2, 4], max: 7d}`.
fn read_limit(node: &Node) -> Result<Limit, Fault> {
    if let Value::Scalar(_) = node.value {
        return duration_positive(node).map(Limit::Fixed);
    }
    let block = Fields::of(node, &["factor", "max"])?;
    let micro = block.must("factor", |node| range(node, |node| decimal(node, 6, 1_000)))?;
    let max_ms = block.opt("max", duration_positive)?.unwrap_or(crate::fields::TIME_MAX_MS);
    Ok(Limit::Factor { micro, max_ms })
}
