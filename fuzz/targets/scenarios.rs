//! The scenario reader: see the body.
#![no_main]

#[path = "../bodies/scenarios.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
