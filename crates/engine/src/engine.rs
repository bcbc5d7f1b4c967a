//! The trait.

use crate::arrival::{Arrival, PastRun};
use crate::error::Error;
use crate::key::AttemptKey;
use crate::observation::{HostFacts, Moment, Observation};
use crate::order::StartOrder;

/// What carries out decisions on the hosts of a cluster.
///
/// **Invariant: an order is never an error because of when it comes.** A start of a known key, a signal to
/// an attempt that has ended, a stop of one that nobody knows: all of these do nothing and are `Ok`.
/// `Ok` means that the order was taken, not that it was carried out; only an observation tells that.
pub trait Engine: Send {
    /// The hosts, always in the same order.
    ///
    /// # Errors
    ///
    /// `Io` if they cannot be seen now. That says nothing about them.
    fn hosts(&mut self) -> Result<Vec<HostFacts>, Error>;

    /// Every attempt that was claimed and not forgotten. One that goes back to the engine's queue is not told as
    /// exited before it is there again.
    ///
    /// # Errors
    ///
    /// `Io` if they cannot be seen now. That says nothing about them: it is not an empty list.
    fn observe(&mut self) -> Result<Vec<Observation>, Error>;

    /// All work in the engine's own queue, waiting or running without an order of ours, in the order in which it came; none where work comes by
    /// orders alone, which is what this does if an engine says nothing else.
    ///
    /// # Errors
    ///
    /// `Io` if it cannot be seen now. That says nothing about it: it is not an empty list.
    fn arrivals(&mut self) -> Result<Option<Vec<Arrival>>, Error> {
        Ok(None)
    }

    /// All runs of work of the engine's own queue that ended since a moment, as the engine accounts them: those that
    /// observations told of, too. What was told and then [taken](Engine::took_past_runs) need not be told again, and may be.
    ///
    /// # Errors
    /// `Io` if they cannot be known now. That says nothing about them: it is not an empty list.
    fn past_runs(&mut self, _since: Moment) -> Result<Vec<PastRun>, Error> {
        Ok(Vec::new())
    }

    /// All that [`past_runs`](Engine::past_runs) told last is in the books.
    ///
    /// # Errors
    /// `Io` if that could not be kept; it is told again then.
    fn took_past_runs(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// How often to ask [`has_news`](Engine::has_news) between two looks, where that costs far less than a look.
    fn news_every(&self) -> Option<std::time::Duration> {
        None
    }

    /// Whether a look now may show something that the last one did not. No news is no promise.
    fn has_news(&mut self) -> bool {
        false
    }

    /// An arrival was not taken in: the engine tells whoever looks at it why. It stays where it is.
    ///
    /// # Errors
    ///
    /// `Io` if the order could not be given.
    fn decline(&mut self, _name: &str, _why: &str) -> Result<(), Error> {
        Ok(())
    }

    /// An arrival has ended for us and is to leave the engine's queue.
    ///
    /// # Errors
    ///
    /// `Io` if the order could not be given.
    fn withdraw(&mut self, _name: &str) -> Result<(), Error> {
        Ok(())
    }

    /// Starts an attempt, unless its key was ever claimed before: by an earlier call, by one before a
    /// restart, by one that failed afterwards. What cannot be known beforehand (no such command, no such
    /// user) shows as [`Outcome::StartFailed`](crate::Outcome::StartFailed).
    ///
    /// # Errors
    ///
    /// `Invalid` if the order contradicts itself or the hosts, and the key is not claimed; `Io` if the
    /// claim was not made, or that is not known.
    fn start(&mut self, order: &StartOrder) -> Result<(), Error>;

    /// Tells running work something. Each signal is delivered to an attempt at most once, however often
    /// it is ordered. One that comes while the attempt starts is delivered when it runs.
    ///
    /// # Errors
    ///
    /// `Io` if the order could not be given.
    fn signal(&mut self, key: &AttemptKey, signal: Signal) -> Result<(), Error>;

    /// Ends an attempt now, with everything that it started. One that adopted an arrival, was told to leave and may
    /// be resumed goes back to the engine's queue, as it does if it leaves by itself.
    ///
    /// # Errors
    ///
    /// `Io` if the order could not be given.
    fn stop(&mut self, key: &AttemptKey) -> Result<(), Error>;

    /// Lets go of the records of an attempt that has ended; it is no longer observed. Its log stays, and
    /// so does its claim.
    ///
    /// # Errors
    ///
    /// `NotEnded` if it has not; `Io` if the records could not be moved.
    fn forget(&mut self, key: &AttemptKey) -> Result<(), Error>;

    /// Removes the logs of some attempts that were forgotten so long ago, their claims with them: whoever drives the
    /// engine numbers attempts upwards. A little at a time, each time it is called; an engine without logs of its
    /// own does nothing.
    ///
    /// # Errors
    ///
    /// `Io` if something could not be removed.
    fn purge_some(&mut self, _age: std::time::Duration) -> Result<(), Error> {
        Ok(())
    }

    /// Keeps others than this engine's orders from starting work on a host, where there are others. They are told why.
    ///
    /// # Errors
    ///
    /// `Unknown` if there is no such host; `Io` if the order could not be given.
    fn cordon(&mut self, host: &str, why: &str) -> Result<(), Error>;

    /// Takes a cordon away.
    ///
    /// # Errors
    ///
    /// As for [`cordon`](Engine::cordon).
    fn uncordon(&mut self, host: &str) -> Result<(), Error>;

    /// A part of what an attempt wrote to its standard output and error, at most `bytes_max` bytes of it,
    /// from `offset` bytes after its beginning. An empty part means that there is no more yet. Old output
    /// may be gone: [`LogChunk::offset`] tells.
    ///
    /// # Errors
    ///
    /// `Unknown` if there is no log of this attempt; `Io` if it cannot be read.
    fn read_log(&self, key: &AttemptKey, offset: u64, bytes_max: usize) -> Result<LogChunk, Error>;
}

/// So that whoever drives an engine need not know which it is.
impl<E: Engine + ?Sized> Engine for Box<E> {
    fn arrivals(&mut self) -> Result<Option<Vec<Arrival>>, Error> {
        (**self).arrivals()
    }

    fn past_runs(&mut self, since: Moment) -> Result<Vec<PastRun>, Error> {
        (**self).past_runs(since)
    }

    fn took_past_runs(&mut self) -> Result<(), Error> {
        (**self).took_past_runs()
    }

    fn news_every(&self) -> Option<std::time::Duration> {
        (**self).news_every()
    }

    fn has_news(&mut self) -> bool {
        (**self).has_news()
    }

    fn decline(&mut self, name: &str, why: &str) -> Result<(), Error> {
        (**self).decline(name, why)
    }

    fn withdraw(&mut self, name: &str) -> Result<(), Error> {
        (**self).withdraw(name)
    }

    fn hosts(&mut self) -> Result<Vec<HostFacts>, Error> {
        (**self).hosts()
    }

    fn observe(&mut self) -> Result<Vec<Observation>, Error> {
        (**self).observe()
    }

    fn start(&mut self, order: &StartOrder) -> Result<(), Error> {
        (**self).start(order)
    }

    fn signal(&mut self, key: &AttemptKey, signal: Signal) -> Result<(), Error> {
        (**self).signal(key, signal)
    }

    fn stop(&mut self, key: &AttemptKey) -> Result<(), Error> {
        (**self).stop(key)
    }

    fn forget(&mut self, key: &AttemptKey) -> Result<(), Error> {
        (**self).forget(key)
    }

    fn purge_some(&mut self, age: std::time::Duration) -> Result<(), Error> {
        (**self).purge_some(age)
    }

    fn cordon(&mut self, host: &str, why: &str) -> Result<(), Error> {
        (**self).cordon(host, why)
    }

    fn uncordon(&mut self, host: &str) -> Result<(), Error> {
        (**self).uncordon(host)
    }

    fn read_log(&self, key: &AttemptKey, offset: u64, bytes_max: usize) -> Result<LogChunk, Error> {
        (**self).read_log(key, offset, bytes_max)
    }
}

/// What running work can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// Your protection ends soon. Never harms work that does not know the signal.
    Warn,
    /// Save what you can and leave; you will be stopped otherwise.
    Checkpoint,
}

/// A part of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunk {
    /// What was written, as it was written.
    pub bytes: Vec<u8>,
    /// Where it begins, in bytes from the beginning of the log. Later than what was asked for if that is
    /// gone, earlier if the log is not that long.
    pub offset: u64,
    /// Where the next part begins.
    pub next_offset: u64,
}
