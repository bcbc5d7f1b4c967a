//! The built binary, run as people run it.

mod bad_input;
mod explain;
mod interrupt;
mod runs;
mod traces;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// What a command did.
struct Done {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// The binary, in a folder that holds nothing but what a test puts there.
fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.current_dir(folder).args(args).env("NO_COLOR", "1").env("COLUMNS", "100");
    command
}

fn bursar(folder: &Path, args: &[&str]) -> Done {
    let Output { status, stdout, stderr } = command(folder, args).output().unwrap();
    Done {
        code: status.code(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    }
}

/// Runs what must work, and gives what it prints.
fn good(folder: &Path, args: &[&str]) -> String {
    let done = bursar(folder, args);
    assert_eq!(done.code, Some(0), "{args:?}: {}", done.stderr);
    done.stdout
}

/// One of the scenarios of these tests.
fn scenario(name: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/scenarios", name].iter().collect();
    path.to_str().unwrap().to_owned()
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// All files of a folder, hidden ones, too.
fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}
