//! `bursar up --demo`: an organisation, funded budgets, and small real processes, with a commentary.

mod commentary;
mod story;
mod train;

pub(crate) use train::train;

use crate::args::UpArgs;
use crate::client::Client;
use crate::failure::Failure;
use crate::shown::say;
use crate::up::{DEFAULT_LISTEN, LogFilter, logs, owner, program, shim, stopped, write_secret};
use bursar_server::settings::SettingsWanted;
use bursar_server::up::{Rotation, Up, UpOptions, up as bring_up};
use commentary::Commentary;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use story::Story;
use tempfile::TempDir;

/// How often the demo looks at its site.
const LOOK_AGAIN: Duration = Duration::from_millis(150);

/// How long what runs may take to end when the demo does.
const END_WITHIN: Duration = Duration::from_secs(15);

/// GPUs and hosts that are pretended.
const VIRTUAL: (u32, u32) = (8, 2);

/// Where the demo's token lies in its data folder.
const TOKEN_FILE: &str = "token";

/// A minute of the demo is about a day of a lab: contracts of seconds, and a memory to match.
fn settings() -> SettingsWanted {
    SettingsWanted {
        lookback_ms: Some(60_000),
        horizon_ms: Some(30_000),
        grace_ms: Some(5_000),
        default_min_runtime_ms: Some(10_000),
        warn_before_ms: Some(3_000),
        ..SettingsWanted::default()
    }
}

pub(crate) fn demo(args: &UpArgs) -> Result<(), Failure> {
    let (data, temporary) = folder(args)?;
    let _logs = logs(&LogFilter::of(None, "warn"), args.log_json, args)?;
    let options = UpOptions {
        slurm: None,
        work: data.clone(),
        limits: bursar_server::limits::Limits::default(),
        data: data.clone(),
        accounts: bursar_server::accounts::Accounts::default(),
        jump: bursar_server::clock::Jump::Refused,
        keep_secret: None,
        queue: bursar_server::queue::QueueLimits::default(),
        listen: args.listen.unwrap_or(DEFAULT_LISTEN),
        virtual_gpus: args.virtual_gpus.unwrap_or(VIRTUAL.0),
        // Nothing of the demo uses a GPU, and its story needs several hosts.
        always_virtual: true,
        virtual_hosts: args.virtual_hosts.unwrap_or(VIRTUAL.1),
        settings: settings(),
        rotation: Rotation::default(),
        owner: owner(args, None),
        name: "demo".into(),
        budgets: story::budgets(),
        shim: shim()?,
    };
    let site = bring_up(options).map_err(Failure::Fault)?;
    let token_file = data.join(TOKEN_FILE);
    let secret = match &site.first_secret {
        Some(secret) => {
            write_secret(&token_file, secret)?;
            secret.clone()
        }
        None => std::fs::read_to_string(&token_file).map_err(|_| {
            Failure::input(format!(
                "--data: {} holds a site that is no demo; name another folder, or none",
                data.display()
            ))
        })?,
    };
    say(&introduction(&site, &token_file));
    let client = Client::with(&format!("http://{}", site.address), secret.trim());
    let asked = Arc::new(AtomicBool::new(false));
    let asks = Arc::clone(&asked);
    site.runtime().spawn(async move {
        stopped(true).await;
        asks.store(true, Ordering::Relaxed);
    });
    // The site goes on until all of the demo has ended.
    let (over, is_over) = tokio::sync::oneshot::channel();
    let program = program()?;
    let play = std::thread::spawn(move || {
        let played = Story::new(program, &client).and_then(|story| play(&client, story, &asked));
        let ended = end_all(&client);
        // Nobody listens if the site fell; that is what is told then.
        let _ = over.send(());
        played.and(ended)
    });
    site.serve(async move {
        let _ = is_over.await;
    })
    .map_err(Failure::Fault)?;
    let played = play.join().map_err(|_| Failure::fault("the demo's story broke off"))?;
    if let Some(folder) = temporary {
        folder.close().map_err(Failure::fault)?;
    }
    played
}

fn folder(args: &UpArgs) -> Result<(PathBuf, Option<TempDir>), Failure> {
    if let Some(data) = &args.data {
        return Ok((std::path::absolute(data).map_err(Failure::fault)?, None));
    }
    let made = tempfile::Builder::new().prefix("bursar-demo-").tempdir();
    let made = made.map_err(|error| {
        Failure::fault(format!("cannot make a temporary folder: {error}; name one with --data"))
    })?;
    Ok((made.path().to_owned(), Some(made)))
}

fn introduction(site: &Up, token_file: &Path) -> String {
    let exports = format!(
        "  export BURSAR_TOKEN_FILE={}\n{}",
        token_file.display(),
        crate::up::url_line(site.address)
    );
    format!(
        "The demo is up at http://{}: {}.
Two programmes share them, vision (ann, max) and language (bob, sue), half each.

In another terminal:

{exports}
  bursar queue          who runs, who waits, and why
  bursar budget show    fractions and usage ratios
  bursar host list      hosts, and by when each would be empty
  bursar why 5          what a workload waits for, or why it had to leave
  bursar logs 1 -f      what a workload writes
  bursar run --budget language/evaluation --min-runtime 10s --follow -- sh -c 'echo hello; sleep 3'

Ctrl-C ends the demo and everything that it started. What happens:

",
        site.address,
        site.hosts.join(", ")
    )
}

fn play(client: &Client, mut story: Story, asked: &AtomicBool) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut commentary = Commentary::new();
    while !asked.load(Ordering::Relaxed) {
        story.go_on(client, begun.elapsed())?;
        commentary.look(client, begun.elapsed())?;
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

/// Ends everything that waits or runs.
fn end_all(client: &Client) -> Result<(), Failure> {
    let until = Instant::now() + END_WITHIN;
    let mut told = 0;
    loop {
        let works = client.get("/v1/workloads", &[])?;
        let live: Vec<u64> = works["workloads"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|work| work["workload"].as_u64())
            .collect();
        if live.is_empty() {
            return Ok(());
        }
        if told == 0 {
            let works = works["workloads"].as_array().into_iter().flatten();
            let run = works.filter(|work| work["started_unix_ms"].is_u64()).count();
            let waits = live.len() - run;
            say(&format!("\nending what runs ({run}) and what waits ({waits}) …\n"));
        }
        told += 1;
        for number in &live {
            // Refused for those that are being cancelled, or have ended meanwhile.
            let _ = client.post(&format!("/v1/workloads/{number}/cancel"), None, "");
        }
        if Instant::now() > until {
            return Err(Failure::fault(format!("{} workloads did not end", live.len())));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
