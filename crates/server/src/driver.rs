//! The thread that drives a daemon: it linearises what is asked, and keeps the rounds going.

use crate::clock::Clock;
use crate::daemon::{Daemon, Failure};
use crate::journal::Journal;
use crate::plain::one_line;
use crate::watch::Watcher;
use bursar_engine::Engine;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How long a driver waits at most before it looks at the processes of a machine again.
pub const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// How long at most a journal that cannot be written is left alone. A full disk is not emptied by asking.
const LEAVE_ALONE_MAX: Duration = Duration::from_secs(10);

/// The time between rounds while the journal cannot be written: twice as long after each that failed.
#[derive(Debug, Default)]
struct Pause {
    wait: Duration,
    until: Option<Instant>,
}

impl Pause {
    fn note(&mut self, done: &Done) {
        self.wait = match done {
            Done::JournalFailed => (self.wait * 2).clamp(LOOK_AGAIN, LEAVE_ALONE_MAX),
            Done::Well(_) | Done::Failed => Duration::ZERO,
        };
        self.until = (!self.wait.is_zero()).then(|| Instant::now() + self.wait);
    }

    /// What is left of it.
    fn left(&self) -> Option<Duration> {
        let left = self.until?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }
}

/// What became of a round.
enum Done {
    /// With the site's moment at which the next is due.
    Well(Option<u64>),
    JournalFailed,
    Failed,
}

type Job<D> = Box<dyn FnOnce(&mut D) + Send>;

/// A way to the daemon from other threads.
pub struct Handle<D> {
    jobs: Sender<Job<D>>,
    /// Whether the latest round went well.
    healthy: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl<D> Clone for Handle<D> {
    fn clone(&self) -> Self {
        Self {
            jobs: self.jobs.clone(),
            healthy: Arc::clone(&self.healthy),
            rounds: Arc::clone(&self.rounds),
            stop: Arc::clone(&self.stop),
        }
    }
}

/// Why a job has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The driver has ended.
    #[error("the daemon is stopping")]
    Stopping,
    /// The job met a fault of ours. The daemon goes on with what its journal has.
    #[error("the daemon met a fault of its own; its log says more")]
    Fault,
}

impl<D: 'static> Handle<D> {
    /// Runs a job on the daemon's thread, between two rounds.
    ///
    /// # Errors
    /// If the daemon is stopping, or the job panicked.
    pub async fn with<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut D) -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let (answer, answered) = oneshot::channel();
        let run: Job<D> = Box::new(move |daemon| {
            // Who asked may have gone away meanwhile; what was done is done.
            let _ = answer.send(job(daemon));
        });
        self.jobs.send(run).map_err(|_| NoAnswer::Stopping)?;
        let stopping = || self.stop.load(Ordering::Acquire);
        answered.await.map_err(|_| if stopping() { NoAnswer::Stopping } else { NoAnswer::Fault })
    }

    /// Whether the latest round went well.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::Acquire)
    }

    /// How many rounds there were.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }
}

/// A running driver.
pub struct Driver<D> {
    /// The way to it.
    pub handle: Handle<D>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<D>,
}

impl<J, E, C> Driver<Daemon<J, E, C>>
where
    J: Journal + 'static,
    E: Engine + 'static,
    C: Clock + 'static,
{
    /// Starts to drive a daemon, and tells a watcher of each step. It looks at the engine that often even if nothing
    /// is asked.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn start(
        daemon: Daemon<J, E, C>,
        mut watcher: impl Watcher<Daemon<J, E, C>> + 'static,
        look_again: Duration,
    ) -> std::io::Result<Self> {
        let (jobs, received) = channel();
        let healthy = Arc::new(AtomicBool::new(true));
        let rounds = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let handle = Handle {
            jobs,
            healthy: Arc::clone(&healthy),
            rounds: Arc::clone(&rounds),
            stop: Arc::clone(&stop),
        };
        let stops = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("daemon".into()).spawn(move || {
            let flags = (&*stops, &*healthy, &*rounds);
            drive(daemon, &received, flags, &mut watcher, look_again)
        })?;
        Ok(Self { handle, stop, thread })
    }

    /// Ends the rounds and gives the daemon back. What runs, runs on.
    pub fn stop(self) -> Option<Daemon<J, E, C>> {
        self.stop.store(true, Ordering::Release);
        drop(self.handle);
        self.thread.join().ok()
    }
}

fn drive<J: Journal, E: Engine, C: Clock>(
    mut daemon: Daemon<J, E, C>,
    jobs: &Receiver<Job<Daemon<J, E, C>>>,
    (stop, healthy, rounds): (&AtomicBool, &AtomicBool, &AtomicU64),
    watcher: &mut dyn Watcher<Daemon<J, E, C>>,
    look_again: Duration,
) -> Daemon<J, E, C> {
    let mut last_failure = String::new();
    let mut pause = Pause::default();
    while !stop.load(Ordering::Acquire) {
        let wait = match pause.left() {
            Some(left) => left.min(look_again),
            None => {
                let begun = Instant::now();
                let span = tracing::info_span!("round").entered();
                let done = round(&mut daemon, healthy, &mut last_failure);
                drop(span);
                watcher.round(&daemon, begun.elapsed(), healthy.load(Ordering::Acquire));
                rounds.fetch_add(1, Ordering::Relaxed);
                pause.note(&done);
                match done {
                    Done::Well(Some(at_ms)) => {
                        Duration::from_millis(at_ms.saturating_sub(daemon.now_ms())).min(look_again)
                    }
                    Done::Well(None) | Done::JournalFailed | Done::Failed => look_again,
                }
            }
        };
        match next(&mut daemon, jobs, wait) {
            Ok(job) => {
                done(&mut daemon, job);
                // What came meanwhile is answered before the next round, so that a burst costs one.
                for job in jobs.try_iter().take(1_000) {
                    done(&mut daemon, job);
                }
                watcher.requests(&daemon);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    daemon.rest();
    daemon
}

/// The next job within this time. Where the engine can tell cheaply that it has news, that ends the time, too.
fn next<J: Journal, E: Engine, C: Clock>(
    daemon: &mut Daemon<J, E, C>,
    jobs: &Receiver<Job<Daemon<J, E, C>>>,
    wait: Duration,
) -> Result<Job<Daemon<J, E, C>>, RecvTimeoutError> {
    let Some(every) = daemon.news_every() else { return jobs.recv_timeout(wait) };
    let until = Instant::now() + wait;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match jobs.recv_timeout(left.min(every)) {
            Err(RecvTimeoutError::Timeout) if left > every => {
                let news = std::panic::catch_unwind(AssertUnwindSafe(|| daemon.has_news()));
                if news.unwrap_or(true) {
                    return Err(RecvTimeoutError::Timeout);
                }
            }
            answer => return answer,
        }
    }
}

/// Does a job. One that panics takes nobody else's answers with it: what it left in memory is thrown away, and the
/// journal decides, as after a crash.
fn done<J: Journal, E: Engine, C: Clock>(daemon: &mut Daemon<J, E, C>, job: Job<Daemon<J, E, C>>) {
    if std::panic::catch_unwind(AssertUnwindSafe(|| job(daemon))).is_err() {
        daemon.distrust();
        tracing::error!("a request met a fault; the journal is folded anew");
    }
}

fn round<J: Journal, E: Engine, C: Clock>(
    daemon: &mut Daemon<J, E, C>,
    healthy: &AtomicBool,
    last_failure: &mut String,
) -> Done {
    let Ok(done) = std::panic::catch_unwind(AssertUnwindSafe(|| daemon.round())) else {
        // As a request that panics: the journal decides, and the rounds go on, as seldom as they can.
        daemon.distrust();
        healthy.store(false, Ordering::Release);
        tracing::error!("a round met a fault; the journal is folded anew");
        return Done::Failed;
    };
    match done {
        Ok(due) => {
            if !healthy.swap(true, Ordering::AcqRel) {
                tracing::info!("the daemon goes on");
                last_failure.clear();
            }
            Done::Well(due)
        }
        Err(failure) => {
            healthy.store(false, Ordering::Release);
            let text = failure.to_string();
            if text != *last_failure {
                let shown = one_line(&text);
                match &failure {
                    Failure::Replay(_) => {
                        tracing::error!(failure = shown, "the journal cannot be folded");
                    }
                    _ => tracing::warn!(failure = shown, "a round failed; it is tried again"),
                }
                *last_failure = text;
            }
            if matches!(failure, Failure::Journal(_)) { Done::JournalFailed } else { Done::Failed }
        }
    }
}
