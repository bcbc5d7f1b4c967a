//! A team: the streams of work that go to one leaf budget.

use super::arrival::Arrival;
use super::draw::{Dice, PPM};
use super::template::{self, Defaults, Template};
use crate::error::{ErrorKind, Fault, quote, some_of};
use crate::fields::{self, Fields, decimal, list, text, whole};
use crate::intake::{Intake, World};
use crate::model::{Kind, WorkloadSpec};
use crate::yaml::{Node, Value};
use std::collections::{BTreeMap, BTreeSet};

/// How many workloads one scenario may draw; beyond, a number in the block is wrong.
const DRAWN_MAX: usize = 2_000_000;
/// The shortest piece of work that fills up what is left of a load.
const REST_MIN_MS: u64 = 60_000;
const DAY_MS: u64 = 86_400_000;
const DEBUG_CONTRACT_MS: u64 = 15 * 60_000;

/// The side streams: name, the contract and the kind that they have unless they say otherwise.
const SIDES: [(&str, Defaults); 3] = [
    ("debug", Defaults { min_runtime_ms: DEBUG_CONTRACT_MS, kind: Kind::Batch }),
    ("squatters", Defaults { min_runtime_ms: 0, kind: Kind::Session }),
    ("sweeps", Defaults { min_runtime_ms: 0, kind: Kind::Batch }),
];

/// The keys of a team; `every_team` has the same but for `budget`.
pub(super) const KEYS: [&str; 8] =
    ["budget", "load", "users", "arrival", "mix", "debug", "squatters", "sweeps"];

/// What the `generate` block says for all teams.
pub(super) struct Common<'a> {
    pub(super) span_ms: u64,
    pub(super) every_team: Option<Fields<'a>>,
    pub(super) mixes: BTreeMap<&'a str, &'a Node>,
}

/// How much work a stream brings.
enum Amount {
    /// Until this GPU-time is reached.
    GpuMs(u128),
    /// This many workloads.
    Count(u64),
}

/// One kind of work of one team, ready to be drawn.
struct Stream {
    name: String,
    line: usize,
    template: Template,
    amount: Amount,
    arrival: Arrival,
    users: u64,
}

/// A team under construction.
struct Team<'a, 'w> {
    common: &'a Common<'a>,
    world: &'a World<'w>,
    block: Fields<'a>,
    leaf: u32,
    arrival: Arrival,
    users: u64,
}

/// Reads a team and draws all its work into `intake`. Returns the leaf.
pub(super) fn generate(
    node: &Node,
    common: &Common<'_>,
    world: &World<'_>,
    intake: &mut Intake,
) -> Result<u32, Fault> {
    let block = Fields::of(node, &KEYS)?;
    let leaf = block.must("budget", |node| {
        let leaf = world.leaf(text(node)?);
        leaf.map_err(|message| Fault::new(ErrorKind::UnknownName, node.line, message))
    })?;
    let mut team = Team { common, world, block, leaf, arrival: Arrival::default(), users: 1 };
    team.arrival = team.opt("arrival", Arrival::read)?.unwrap_or_default();
    let members = world.budgets[leaf as usize].members.len() as u64;
    team.users = team.opt("users", |node| whole(node, 1, 10_000))?.unwrap_or(members.max(1));
    let mut streams = team.mix_streams()?;
    for (name, defaults) in &SIDES {
        streams.extend(team.opt(name, |node| team.side_stream(name, node, defaults))?.flatten());
    }
    for stream in streams {
        let fault =
            |message: String| Fault::value(stream.line, format!("{}: {message}", stream.name));
        team.draw(&stream, intake).map_err(fault)?;
    }
    Ok(leaf)
}

impl<'a> Team<'a, '_> {
    /// The team's own value of a key, or that of `every_team`.
    fn opt<T>(
        &self,
        key: &str,
        read: impl FnOnce(&'a Node) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        match &self.common.every_team {
            Some(every) if self.block.get(key).is_none() => {
                every.opt(key, read).map_err(|fault| fault.within("every_team"))
            }
            Some(_) | None => self.block.opt(key, read),
        }
    }

    /// `load` times what the team's fraction gives it over the span, in GPU-milliseconds.
    fn gpu_ms(&self, load_micro: u64) -> u128 {
        let gpus = self.world.fraction(self.leaf) * self.world.cluster.gpus_total() as f64;
        let seconds = self.common.span_ms as f64 / 1_000.0;
        (gpus * seconds * (load_micro as f64 / PPM as f64)) as u128 * 1_000
    }

    /// The kinds of the mix share the team's load by weight.
    fn mix_streams(&self) -> Result<Vec<Stream>, Fault> {
        let Some(mix) = self.opt("mix", |node| self.find_mix(node))? else { return Ok(Vec::new()) };
        let load = self.opt("load", |node| decimal(node, 6, 1_000))?;
        let load = load.ok_or_else(|| self.block.missing("load"))?;
        let mut streams: Vec<(u64, Stream)> = Vec::new();
        let mut taken: BTreeSet<&str> = SIDES.iter().map(|(name, _)| *name).collect();
        for (index, item) in mix.iter().enumerate() {
            let read = self.mix_stream(item, &mut taken);
            streams.push(read.map_err(|fault| fault.within(&format!("mix[{index}]")))?);
        }
        let all = self.gpu_ms(load);
        let weights: u64 = streams.iter().map(|(weight, _)| weight).sum();
        for (weight, stream) in &mut streams {
            stream.amount = Amount::GpuMs(all * u128::from(*weight) / u128::from(weights.max(1)));
        }
        Ok(streams.into_iter().map(|(_, stream)| stream).collect())
    }

    /// One kind of the mix; its name must not be `taken`, and is from here on.
    fn mix_stream(
        &self,
        item: &'a Node,
        taken: &mut BTreeSet<&'a str>,
    ) -> Result<(u64, Stream), Fault> {
        let keys: Vec<&str> = ["name", "weight"].into_iter().chain(template::KEYS).collect();
        let block = Fields::of(item, &keys)?;
        let name = block.must("name", fields::name)?;
        if !taken.insert(name) {
            let message = format!("the name {} is taken", quote(name));
            return Err(Fault::value(block.line, message));
        }
        let defaults = Defaults { min_runtime_ms: 0, kind: Kind::Batch };
        let stream = Stream {
            name: name.to_owned(),
            line: block.line,
            template: Template::read(&block, self.world, &defaults)?,
            amount: Amount::Count(0),
            arrival: self.arrival.clone(),
            users: self.users,
        };
        Ok((block.must("weight", |node| whole(node, 0, PPM))?, stream))
    }

    /// A list of kinds, or the name of one in `mixes`.
    fn find_mix(&self, node: &'a Node) -> Result<&'a [Node], Fault> {
        let Value::Scalar(name) = &node.value else { return list(node) };
        match self.common.mixes.get(&**name) {
            Some(mix) => list(mix),
            None => {
                let known = some_of(self.common.mixes.keys().copied());
                let message = format!("there is no mix {} ({known})", quote(name));
                Err(Fault::value(node.line, message))
            }
        }
    }

    /// `debug`, `squatters` or `sweeps`; the word `none` switches one off.
    fn side_stream(
        &self,
        name: &str,
        node: &Node,
        defaults: &Defaults,
    ) -> Result<Option<Stream>, Fault> {
        if matches!(&node.value, Value::Scalar(word) if &**word == "none") {
            return Ok(None);
        }
        let own = ["load", "per_user_per_day", "users", "arrival"];
        let keys: Vec<&str> = own.into_iter().chain(template::KEYS).collect();
        let block = Fields::of(node, &keys)?;
        let users = block.opt("users", |node| whole(node, 1, 10_000))?.unwrap_or(self.users);
        let load = block.opt("load", |node| decimal(node, 6, 1_000))?;
        let per_user_per_day = block.opt("per_user_per_day", |node| decimal(node, 6, 100_000))?;
        let amount = match (load, per_user_per_day) {
            (Some(load), None) => Amount::GpuMs(self.gpu_ms(load)),
            (None, Some(micro)) => {
                let per_day = u128::from(micro) * u128::from(users);
                let count = per_day * u128::from(self.common.span_ms) / u128::from(DAY_MS);
                Amount::Count(((count + 500_000) / 1_000_000) as u64)
            }
            (None, None) | (Some(_), Some(_)) => {
                return Err(Fault::value(block.line, "give one of 'load' and 'per_user_per_day'"));
            }
        };
        let arrival = block.opt("arrival", Arrival::read)?.unwrap_or(self.arrival.clone());
        let template = Template::read(&block, self.world, defaults)?;
        let (name, line) = (name.to_owned(), block.line);
        Ok(Some(Stream { name, line, template, amount, arrival, users }))
    }

    fn draw(&self, stream: &Stream, intake: &mut Intake) -> Result<(), String> {
        let budget = &self.world.budgets[self.leaf as usize];
        let dice = |purpose| Dice::new(self.world.seed, &[&budget.path, &stream.name, purpose]);
        let room = DRAWN_MAX.saturating_sub(intake.drawn());
        let mut drawn = draw_amount(stream, &mut dice("work"), room)?;
        if drawn.is_empty() {
            return Ok(());
        }
        let moments = stream
            .arrival
            .moments(self.common.span_ms, drawn.len() as u64, &mut dice("moments"))
            .ok_or("its arrival leaves no moment within the span")?;
        let who = budget.path.replace('/', "-");
        let width = drawn.len().to_string().len().max(5);
        let (submitters, mut user_dice) = (Submitters::new(stream.users), dice("users"));
        for (number, submit_ms) in moments.into_iter().enumerate() {
            let workload = &mut drawn[number];
            workload.id = format!("{who}.{}.{number:0width$}", stream.name).into();
            workload.submit_ms = submit_ms;
            workload.budget = self.leaf;
            self.world
                .check_start(workload)
                .map_err(|(key, message)| format!("{key}: {message}"))?;
            let user = submitters.draw(&mut user_dice);
            let user = match budget.members.get(user) {
                Some(member) => intake.user(member),
                None => intake.user(&format!("{who}-u{}", user + 1)),
            };
            workload.user = Some(user);
        }
        intake.push_drawn(drawn);
        Ok(())
    }
}

/// A few people submit most of the work: the first twice as much as the second, three times the third.
struct Submitters {
    /// Running sums of their parts.
    ends: Vec<u64>,
}

impl Submitters {
    fn new(users: u64) -> Self {
        const WHOLE: u64 = 1_000_000;
        let mut sum = 0;
        let parts = (1..=users).map(|number| WHOLE / number);
        let ends = parts.map(|part| {
            sum += part;
            sum
        });
        Self { ends: ends.collect() }
    }

    /// Who submits the next one, counted from 0.
    fn draw(&self, dice: &mut Dice) -> usize {
        let ticket = dice.below(self.ends.last().copied().unwrap_or(1));
        self.ends.partition_point(|end| *end <= ticket)
    }
}

/// Draws workloads until the amount is reached; the last of a load is cut to what is missing.
fn draw_amount(stream: &Stream, dice: &mut Dice, room: usize) -> Result<Vec<WorkloadSpec>, String> {
    let too_many = || format!("more than {DRAWN_MAX} workloads would be drawn in all");
    let mut drawn = Vec::new();
    match stream.amount {
        Amount::Count(count) => {
            if count > room as u64 {
                return Err(too_many());
            }
            drawn.extend((0..count).map(|_| stream.template.draw(dice)));
        }
        Amount::GpuMs(mut rest) => loop {
            let mut workload = stream.template.draw(dice);
            let gpus = u128::from(workload.gpus);
            if rest < gpus * u128::from(REST_MIN_MS) {
                break;
            }
            if drawn.len() >= room {
                return Err(too_many());
            }
            let rest_ms = u64::try_from(rest / gpus).unwrap_or(u64::MAX) / 1_000 * 1_000;
            workload.runtime_ms = workload.runtime_ms.min(rest_ms);
            rest -= gpus * u128::from(workload.runtime_ms);
            drawn.push(workload);
        },
    }
    Ok(drawn)
}
