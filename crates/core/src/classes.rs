//! The classes by which waits are told (docs/metrics.md). No decision depends on them; the simulator and a site's reports
//! mean the same by them.

use crate::units::SpanMs;
use alloc::vec;
use alloc::vec::Vec;

/// The longest contract of a debug run.
const DEBUG_RUNTIME_MAX: SpanMs = SpanMs::minutes(15);

/// The classes of a workload with this contract that asks for so many GPUs, and whether one host could be all of it.
/// Unallocated work is a class of its own, since nothing is promised to it.
#[must_use]
pub fn classes(gpus: u64, min_runtime: SpanMs, is_single: bool) -> Vec<&'static str> {
    if min_runtime == SpanMs::ZERO {
        return vec!["unallocated"];
    }
    let size = match gpus {
        1 => "1",
        2..=8 => "2-8",
        9..=64 => "9-64",
        65..=256 => "65-256",
        _ => ">256",
    };
    let mut classes = vec!["all", size];
    if is_single && min_runtime <= DEBUG_RUNTIME_MAX {
        classes.push("debug");
    }
    classes
}
