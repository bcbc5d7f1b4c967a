//! An engine that leads to a [`FakeWorld`], badly if a seed has it so.

use super::world::{FakeWorld, World};
use crate::engine::{Engine, LogChunk, Signal};
use crate::error::{Error, ErrorKind};
use crate::key::AttemptKey;
use crate::observation::{HostFacts, Observation};
use crate::order::StartOrder;

/// What goes wrong between an engine and its cluster, and how often. Spans are in milliseconds of virtual
/// time; each is drawn anew, from none to the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Of a thousand orders, how many are taken and never carried out.
    pub lost_per_mille: u32,
    /// How many are carried out twice, each time with a delay of its own.
    pub repeated_per_mille: u32,
    /// How many answer `Io`; half of these are carried out all the same.
    pub unanswered_per_mille: u32,
    /// How late orders are carried out. Later ones may overtake them.
    pub delay_ms_max: u64,
    /// How long a command takes from its claim to its execution.
    pub start_ms_max: u64,
    /// Of a thousand starts, how many fail.
    pub start_fails_per_mille: u32,
    /// How old an observation may be. It is never older than one before.
    pub stale_ms_max: u64,
    /// Of a thousand observations, how many answer `Io`.
    pub blind_per_mille: u32,
}

impl Faults {
    /// None at all.
    pub const NONE: Self = Self {
        lost_per_mille: 0,
        repeated_per_mille: 0,
        unanswered_per_mille: 0,
        delay_ms_max: 0,
        start_ms_max: 0,
        start_fails_per_mille: 0,
        stale_ms_max: 0,
        blind_per_mille: 0,
    };

    /// All of them, often enough that a few hundred orders meet each.
    pub const MANY: Self = Self {
        lost_per_mille: 100,
        repeated_per_mille: 100,
        unanswered_per_mille: 50,
        delay_ms_max: 3_000,
        start_ms_max: 2_000,
        start_fails_per_mille: 20,
        stale_ms_max: 3_000,
        blind_per_mille: 50,
    };
}

/// An order on its way.
#[derive(Clone, Debug)]
pub(super) enum Order {
    Start(Box<StartOrder>),
    Signal(AttemptKey, Signal),
    Stop(AttemptKey),
    Forget(AttemptKey),
    Cordon(String, bool),
}

/// An engine for tests. Several may lead to the same [`FakeWorld`]; dropping one and taking another is a
/// restart of the daemon.
#[derive(Debug)]
pub struct FakeEngine {
    world: FakeWorld,
}

impl FakeEngine {
    pub(super) fn new(world: FakeWorld) -> Self {
        Self { world }
    }

    fn give(&self, order: &Order) -> Result<(), Error> {
        let mut world = self.world.lock();
        let faults = world.faults;
        let unanswered = world.chance(faults.unanswered_per_mille);
        let lost = world.chance(faults.lost_per_mille) || unanswered && world.chance(500);
        let times = if lost { 0 } else { 1 + u32::from(world.chance(faults.repeated_per_mille)) };
        for _ in 0..times {
            world.send(order.clone());
        }
        if unanswered { Err(no_answer()) } else { Ok(()) }
    }

    fn look(&self) -> Result<std::sync::MutexGuard<'_, World>, Error> {
        let mut world = self.world.lock();
        let blind = world.faults.blind_per_mille;
        if world.chance(blind) { Err(no_answer()) } else { Ok(world) }
    }

    fn check_host(&self, name: &str) -> Result<u32, Error> {
        let world = self.world.lock();
        let host = world.hosts.iter().find(|host| host.name == name);
        let unknown =
            || Error::new(ErrorKind::Unknown, format!("no host '{}'", name.escape_debug()));
        host.map(|host| host.gpus).ok_or_else(unknown)
    }
}

impl Engine for FakeEngine {
    fn hosts(&mut self) -> Result<Vec<HostFacts>, Error> {
        Ok(self.look()?.hosts.clone())
    }

    fn observe(&mut self) -> Result<Vec<Observation>, Error> {
        Ok(self.look()?.show())
    }

    fn start(&mut self, order: &StartOrder) -> Result<(), Error> {
        order.check()?;
        for part in &order.placement {
            let gpus =
                self.check_host(&part.host).map_err(|error| Error::invalid(error.to_string()))?;
            if let Some(gpu) = part.gpus.iter().find(|gpu| **gpu >= gpus) {
                return Err(Error::invalid(format!("host {} has no GPU {gpu}", part.host)));
            }
        }
        self.give(&Order::Start(Box::new(order.clone())))
    }

    fn signal(&mut self, key: &AttemptKey, signal: Signal) -> Result<(), Error> {
        self.give(&Order::Signal(key.clone(), signal))
    }

    fn stop(&mut self, key: &AttemptKey) -> Result<(), Error> {
        self.give(&Order::Stop(key.clone()))
    }

    fn forget(&mut self, key: &AttemptKey) -> Result<(), Error> {
        if self.world.lock().has_ended(key) == Some(false) {
            return Err(Error::new(ErrorKind::NotEnded, format!("{key} has not ended")));
        }
        self.give(&Order::Forget(key.clone()))
    }

    fn cordon(&mut self, host: &str, _: &str) -> Result<(), Error> {
        self.check_host(host)?;
        self.give(&Order::Cordon(host.to_owned(), true))
    }

    fn uncordon(&mut self, host: &str) -> Result<(), Error> {
        self.check_host(host)?;
        self.give(&Order::Cordon(host.to_owned(), false))
    }

    fn read_log(&self, key: &AttemptKey, offset: u64, bytes_max: usize) -> Result<LogChunk, Error> {
        let Some((written, file_bytes, files)) = self.world.lock().log(key) else {
            return Err(Error::new(ErrorKind::Unknown, format!("there is no log of {key}")));
        };
        let begun = written.div_ceil(file_bytes);
        let first = begun.saturating_sub(files) * file_bytes;
        let offset = offset.clamp(first, written);
        let next_offset = written.min(offset.saturating_add(bytes_max as u64));
        let digit = |at: u64| b'0' + u8::try_from(at % 10).unwrap_or(0);
        Ok(LogChunk { bytes: (offset..next_offset).map(digit).collect(), offset, next_offset })
    }
}

fn no_answer() -> Error {
    Error::new(ErrorKind::Io, "no answer")
}
