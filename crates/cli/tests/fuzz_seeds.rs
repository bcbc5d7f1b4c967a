//! The bodies of the fuzz targets in `fuzz/`, replayed over their seeds and over seeds with a byte changed.
//!
//! Fuzzing itself needs a nightly compiler (`scripts/fuzz.sh`). This finds nothing new; it keeps the bodies
//! compiling, and keeps mended what was once found and put among the seeds.

#[path = "../../../fuzz/bodies/event_logs.rs"]
mod event_logs;
#[path = "../../../fuzz/bodies/scenarios.rs"]
mod scenarios;
#[path = "../../../fuzz/bodies/sound.rs"]
mod sound;
#[path = "../../../fuzz/bodies/trace_detected.rs"]
mod trace_detected;
#[path = "../../../fuzz/bodies/trace_formats.rs"]
mod trace_formats;

use std::fs;
use std::path::Path;

/// How many changed copies of each seed are tried.
const CHANGED: usize = 200;

/// What a byte is changed to.
const BYTES: &[u8] = b"0 -9,|\n\"{}[]:x\0\xff";

/// Runs `body` on every seed of a target, and on copies with one byte changed or with their end cut off.
fn replay(target: &str, body: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut seeds: Vec<_> = fs::read_dir(folder)
        .expect("the target has seeds")
        .map(|entry| entry.expect("a seed").path())
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty());
    for path in seeds {
        println!("{}", path.display());
        let seed = fs::read(&path).expect("a seed is a file");
        body(&seed);
        for copy in 0..CHANGED {
            // Spread over the whole seed; which byte comes there differs from copy to copy.
            let at = copy * seed.len() / CHANGED;
            body(&seed[..at]);
            let mut changed = seed.clone();
            changed[at] = BYTES[copy % BYTES.len()];
            body(&changed);
        }
    }
}

#[test]
fn trace_formats_hold() {
    replay("trace_formats", trace_formats::run);
}

#[test]
fn trace_detected_holds() {
    replay("trace_detected", trace_detected::run);
}

#[test]
fn scenarios_hold() {
    replay("scenarios", scenarios::run);
}

#[test]
fn event_logs_hold() {
    replay("event_logs", event_logs::run);
}
