//! The trace readers, each format by name: see the body.
#![no_main]

#[path = "../bodies/trace_formats.rs"]
mod body;
#[path = "../bodies/sound.rs"]
mod sound;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
