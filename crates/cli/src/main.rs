//! `bursar`: the one binary.
//!
//! Each verb is a module that takes its flags and gives nothing or a [`Failure`], whose line is printed
//! and whose code is the exit code. Invariant: with bad input nothing is written, neither to standard
//! output nor to a file.

mod args;
mod budget;
mod client;
mod config;
mod demo;
mod explain;
mod export;
mod failure;
mod follow;
mod funding;
mod interrupt;
mod keep;
mod live;
mod operate;
mod output;
mod play;
mod report;
mod shell;
mod shown;
mod simulate;
mod slurm;
mod socket;
mod sweep;
mod table;
mod token;
mod told;
mod trace;
mod up;
mod verify;
mod whatif;

use args::{Cli, Verb};
use clap::Parser;
use failure::{Failure, Form};
use std::panic::{self, PanicHookInfo};
use std::process::ExitCode;
use std::sync::Once;

/// A fault of Bursar's own: what `sysexits.h` calls EX_SOFTWARE.
const EXIT_PANIC: u8 = 70;

fn main() -> ExitCode {
    // The supervisor of an attempt must come before threads, signals and everything else.
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == up::SHIM) {
        let Some(folder) = words.next() else { return ExitCode::from(2) };
        return bursar_engine::shim_main(folder.as_ref());
    }
    panic::set_hook(Box::new(tell_fault));
    panic::catch_unwind(start).unwrap_or(ExitCode::from(EXIT_PANIC))
}

fn start() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    // What follows a live site ends at once when it is interrupted; nothing of it is half-done.
    let watch = if cli.verb.is_live() { Ok(()) } else { interrupt::watch() };
    let failure = match watch.and_then(|()| run(&cli.verb)) {
        Ok(()) => return after_saying(),
        // Whatever else failed on the way, failed because of it.
        Err(_) if interrupt::asked() => Failure::Interrupted,
        Err(failure) => failure,
    };
    failure.tell(Form::asked());
    ExitCode::from(failure.exit_code())
}

fn run(verb: &Verb) -> Result<(), Failure> {
    match verb {
        Verb::Simulate(args) if args.sweeps.is_empty() => simulate::simulate(args),
        Verb::Simulate(args) => sweep::sweep(args),
        Verb::Explain(args) => explain::explain(args),
        Verb::Verify(args) => verify::verify(args),
        Verb::Trace(verb) => trace::trace(verb),
        Verb::Up(args) => up::up(args),
        Verb::Submit(args) => live::submit(args),
        Verb::Run(args) => live::run(args),
        Verb::Queue(args) => live::queue(args),
        Verb::Show(args) => told::show(args),
        Verb::Why(args) => told::why(args),
        Verb::Logs(args) => follow::logs(args),
        Verb::Cancel(args) => live::cancel(args),
        Verb::Requeue(args) => live::requeue(args),
        Verb::Release(args) => live::release(args),
        Verb::Wait(args) => follow::wait(args),
        Verb::Report(args) if args.is_of_period() => report::report(args),
        Verb::Report(args) => live::report(args),
        Verb::Budget(verb) => budget::budget(verb),
        Verb::Funding(verb) => funding::funding(verb),
        Verb::Host(verb) => operate::host(verb),
        Verb::Audit(args) => operate::audit(args),
        Verb::Token(verb) => token::token(verb),
        Verb::Export(verb) => export::export(verb),
        Verb::WhatIf(args) => whatif::whatif(args),
        Verb::Backup(args) => keep::backup(args),
        Verb::Restore(args) => keep::restore(args),
        Verb::Check(args) => keep::check(args),
        Verb::Config(verb) => config::config(verb),
        Verb::Slurm(verb) => slurm::slurm(verb),
        Verb::DemoTrain(args) => demo::train(args),
        Verb::Policies(args) => shell::policies(args),
        Verb::Completions(args) => shell::completions(args),
        Verb::Man(args) => shell::man(args),
    }
}

/// All went well, if all that was printed has gone out.
fn after_saying() -> ExitCode {
    let Some(error) = shown::unsaid() else { return ExitCode::SUCCESS };
    let failure = Failure::Fault(format!("cannot write standard output: {error}"));
    failure.tell(Form::asked());
    ExitCode::from(failure.exit_code())
}

/// What clap says, on one line like every other error; help and version as they are.
fn refuse(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind as Kind;
    if matches!(
        error.kind(),
        Kind::DisplayHelp | Kind::DisplayVersion | Kind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        shown::keep_failure(error.print());
        return if error.use_stderr() { ExitCode::from(2) } else { after_saying() };
    }
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let lines: Vec<&str> = lines
        .filter(|line| !line.is_empty() && !line.starts_with("For more information"))
        .collect();
    let failure = Failure::Input(format!("{} (see --help)", lines.join(" ")));
    failure.tell(Form::asked());
    ExitCode::from(failure.exit_code())
}

/// One line, whatever fails and however many threads do.
fn tell_fault(fault: &PanicHookInfo<'_>) {
    static ONCE: Once = Once::new();
    let payload = fault.payload();
    let message = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    let place = fault.location().map_or_else(String::new, |at| format!(" at {at}"));
    ONCE.call_once(|| {
        shown::note(&format!(
            "bursar: this is a fault of Bursar's (version {}), please report it{place}: {message}",
            env!("CARGO_PKG_VERSION")
        ));
    });
}
