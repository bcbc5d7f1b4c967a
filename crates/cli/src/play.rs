//! Plays runs side by side on the machine's cores, with one progress bar for all of them.

use crate::failure::Failure;
use crate::interrupt;
use bursar_scenario::Scenario;
use bursar_sim::{EventSink, Outcome, RunError, RunOptions, run};
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;
use std::io::{IsTerminal, stderr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

/// Whether a bar is drawn; only ever on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bar {
    /// Draw it.
    Shown,
    /// `--quiet`.
    Quiet,
}

impl Bar {
    pub(crate) const fn unless(quiet: bool) -> Self {
        if quiet { Self::Quiet } else { Self::Shown }
    }
}

/// One run, which an interrupt stops unless something else was given to.
pub(crate) fn play<'a>(
    scenario: &'a Scenario,
    policy: &'a str,
    options: RunOptions<'a>,
    sink: EventSink<'a>,
) -> Result<Outcome, Failure> {
    let stop = options.stop.or(Some(interrupt::flag()));
    let options = RunOptions { stop, ..options };
    run(scenario, policy, options, sink).map_err(|error| match error {
        RunError::Policy(_) | RunError::NothingRecorded => Failure::input(error),
        RunError::Stopped => Failure::Interrupted,
        RunError::Refused { .. } | RunError::Restless { .. } => {
            Failure::Fault(format!("a fault of Bursar's, please report it: {error}"))
        }
        RunError::Write(_) => Failure::fault(error),
    })
}

/// Where the simulated time of a run ends, as far as can be told before it.
pub(crate) fn end_ms(scenario: &Scenario, until: Option<u64>) -> u64 {
    until.or(scenario.span_ms).unwrap_or_else(|| scenario.last_arrival_ms()).max(1)
}

/// Plays all `jobs`, each on a core of its own where there are enough, and gives what came of them in
/// their order. Job i, whose simulated time ends at `ends_ms[i]`, tells its counter how far it is.
pub(crate) fn all<T: Send, R: Send>(
    jobs: Vec<T>,
    ends_ms: &[u64],
    bar: Bar,
    each: impl Fn(T, &AtomicU64) -> Result<R, Failure> + Sync,
) -> Result<Vec<R>, Failure> {
    let counters: Vec<AtomicU64> = jobs.iter().map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    thread::scope(|threads| {
        // A bar is drawn by the same sequences that colours are.
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let shown = bar == Bar::Shown && stderr().is_terminal() && !plain;
        let drawer = shown.then(|| threads.spawn(|| draw(&counters, ends_ms, &done)));
        // Also when a run panics: the bar must end for the scope to.
        let _ends =
            EndsBar { done: &done, drawer: drawer.as_ref().map(|drawer| drawer.thread().clone()) };
        jobs.into_par_iter()
            .zip(&counters)
            .zip(ends_ms)
            .with_max_len(1)
            .map(|((job, counter), &end_ms)| {
                let result = each(job, counter)?;
                counter.store(end_ms, Ordering::Relaxed);
                Ok(result)
            })
            .collect()
    })
}

struct EndsBar<'a> {
    done: &'a AtomicBool,
    drawer: Option<Thread>,
}

impl Drop for EndsBar<'_> {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(drawer) = &self.drawer {
            drawer.unpark();
        }
    }
}

/// Draws the bar until `done`.
fn draw(counters: &[AtomicU64], ends_ms: &[u64], done: &AtomicBool) {
    const PARTS: u64 = 1_000;
    let style =
        ProgressStyle::with_template("{bar:30} {percent:>3} % of {msg} simulated, {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(PARTS * counters.len() as u64).with_style(style);
    let span = crate::shown::span(ends_ms.iter().copied().max().unwrap_or(0));
    bar.set_message(if counters.len() > 1 { format!("{} x {span}", counters.len()) } else { span });
    while !done.load(Ordering::Relaxed) {
        let part = |(at, &end): (&AtomicU64, &u64)| {
            let (at, end) = (u128::from(at.load(Ordering::Relaxed)), u128::from(end.max(1)));
            (at.min(end) * u128::from(PARTS) / end) as u64
        };
        bar.set_position(counters.iter().zip(ends_ms).map(part).sum());
        thread::park_timeout(Duration::from_millis(100));
    }
    bar.finish_and_clear();
}
