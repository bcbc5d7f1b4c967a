//! `bursar demo-train`: what the demo's workloads run. A training loop that trains nothing, but counts, saves,
//! reports and resumes as a real one should.

use crate::args::DemoTrainArgs;
use crate::failure::Failure;
use crate::shown::say;
use crate::socket::Reporter;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Steps between two checkpoints.
const SAVE_EVERY: u64 = 10;

struct Training {
    step: u64,
    steps: u64,
    file: PathBuf,
    reporter: Option<Reporter>,
}

pub(crate) fn train(args: &DemoTrainArgs) -> Result<(), Failure> {
    let folder = std::env::var_os("BURSAR_CHECKPOINT_DIR").ok_or_else(|| {
        Failure::input("BURSAR_CHECKPOINT_DIR: not set; this runs inside a workload only")
    })?;
    let file = PathBuf::from(folder).join("step");
    let resumes = std::env::var("BURSAR_RESUME").is_ok_and(|resume| resume == "1");
    let step = if resumes { saved(&file)? } else { 0 };
    say(&if resumes {
        format!("resumed from step {step} of {}\n", args.steps)
    } else {
        format!("begins, {} steps\n", args.steps)
    });
    let training = Training { step, steps: args.steps, file, reporter: Reporter::here() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(Failure::fault)?.block_on(run(training, args.step_ms))
}

async fn run(mut training: Training, step_ms: u64) -> Result<(), Failure> {
    let mut leave = signal(SignalKind::terminate()).map_err(Failure::fault)?;
    let mut warning = signal(SignalKind::user_defined2()).map_err(Failure::fault)?;
    let mut clock = tokio::time::interval(Duration::from_millis(step_ms.max(1)));
    clock.tick().await;
    while training.step < training.steps {
        tokio::select! {
            _ = clock.tick() => training.step()?,
            _ = warning.recv() => say("warned: its protection ends soon\n"),
            _ = leave.recv() => {
                training.save()?;
                say(&format!("told to leave: saved at step {}\n", training.step));
                return Ok(());
            }
        }
    }
    say("done\n");
    Ok(())
}

impl Training {
    fn step(&mut self) -> Result<(), Failure> {
        self.step += 1;
        if self.step.is_multiple_of(SAVE_EVERY) {
            self.save()?;
            let loss = 4.0 / (1.0 + self.step as f64 / 20.0);
            let text = format!("step {} of {}, loss {loss:.3}", self.step, self.steps);
            say(&format!("{text}\n"));
            // A daemon that is down meanwhile is no reason to stop training.
            let _ = self.reporter.as_ref().map(|reporter| reporter.progress(&text));
        }
        Ok(())
    }

    /// Written beside and renamed: whoever resumes finds a whole one.
    fn save(&self) -> Result<(), Failure> {
        let beside = self.file.with_extension("new");
        let written = fs::write(&beside, self.step.to_string());
        written.and_then(|()| fs::rename(&beside, &self.file)).map_err(|error| {
            Failure::fault(format!("cannot write {}: {error}", self.file.display()))
        })?;
        let _ = self.reporter.as_ref().map(Reporter::checkpoint);
        Ok(())
    }
}

/// The step of the checkpoint; 0 if it was stopped before the first one.
fn saved(file: &Path) -> Result<u64, Failure> {
    match fs::read_to_string(file) {
        Ok(text) => text.trim().parse().map_err(|_| {
            Failure::input(format!("{}: '{}' is no step", file.display(), text.trim()))
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(Failure::fault(format!("{}: {error}", file.display()))),
    }
}
