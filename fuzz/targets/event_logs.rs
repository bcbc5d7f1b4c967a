//! The checker's reader of event logs: see the body.
#![no_main]

#[path = "../bodies/event_logs.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
