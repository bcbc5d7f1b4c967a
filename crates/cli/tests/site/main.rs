//! Live sites: the real daemon, real processes, and what people do with them.

#![cfg(target_os = "linux")]

mod configured;
mod demo;
mod exported;
mod folders;
mod kept;
mod killed;
mod period;
#[path = "../support/played.rs"]
mod played;
mod reports;
#[path = "../support/mod.rs"]
mod support;
mod tokens;
mod told;

use std::path::PathBuf;
pub(crate) use support::*;

/// What the tests of the repository bring along.
fn fixture(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/site/fixtures", name].iter().collect()
}
