//! The trace readers, the format detected and the input possibly packed: see the body.
#![no_main]

#[path = "../bodies/trace_detected.rs"]
mod body;
#[path = "../bodies/sound.rs"]
mod sound;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
