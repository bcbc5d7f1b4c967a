//! How fast a large history is read: `cargo run --release -p bursar-trace --example read_speed`.
//!
//! A million rows are made in memory and read back. Beside each time stands that of a yardstick: splitting
//! the same text at line ends and commas, and nothing else.

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::Write as _;
use std::time::{Duration, Instant};

use bursar_trace::{ReadOptions, describe, read};
use flate2::Compression;
use flate2::write::GzEncoder;

const ROWS: u64 = 1_000_000;
/// Each is done so many times, and its shortest time counts.
const REPEATED: u32 = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let csv = csv()?;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(csv.as_bytes())?;
    let gzip = gzip.finish()?;
    let zstd = zstd::encode_all(csv.as_bytes(), 3)?;
    let swf = swf()?;
    println!("{:<12} {:>6} {:>12} {:>12}", "", "MB", "rows/second", "x yardstick");
    for (name, bytes, text) in [
        ("CSV", csv.as_bytes(), &csv),
        ("CSV, gzip", &gzip, &csv),
        ("CSV, zstd", &zstd, &csv),
        ("SWF", swf.as_bytes(), &swf),
    ] {
        let (_, yardstick) = timed(|| split(text));
        let (trace, took) = timed(|| read(bytes, name, &ReadOptions::default()));
        assert_eq!(trace?.jobs.len() as u64, ROWS);
        report(name, bytes.len(), took, yardstick);
    }
    let (trace, _) = timed(|| read(csv.as_bytes(), "CSV", &ReadOptions::default()));
    let trace = trace?;
    let (_, yardstick) = timed(|| split(&csv));
    let (_, took) = timed(|| describe(&trace));
    report("described", csv.len(), took, yardstick);
    Ok(())
}

fn report(name: &str, bytes: usize, took: Duration, yardstick: Duration) {
    let per_second = ROWS as f64 / took.as_secs_f64();
    let ratio = took.as_secs_f64() / yardstick.as_secs_f64();
    println!("{name:<12} {:>6} {per_second:>12.0} {ratio:>12.1}", bytes >> 20);
}

/// What `work` gives, and the shortest time that it takes.
fn timed<T>(work: impl Fn() -> T) -> (T, Duration) {
    let once = || {
        let begun = Instant::now();
        let result = black_box(work());
        (result, begun.elapsed())
    };
    let (result, first) = once();
    (result, (1..REPEATED).map(|_| once().1).fold(first, Duration::min))
}

/// How many bytes lie between line ends, commas and blanks.
fn split(text: &str) -> usize {
    text.lines().map(|line| line.split([',', ' ']).map(str::len).sum::<usize>()).sum()
}

fn csv() -> Result<String, std::fmt::Error> {
    let header = "id,submit,budget,gpus,runtime,user,min_runtime,resumable,status\n";
    let mut text = header.to_owned();
    for row in 0..ROWS {
        let (submit, leaf, gpus) = (row * 7, row % 15, 1 << (row % 7));
        let (runtime, user) = (row * 7_919 % 86_400, row * 31 % 300);
        writeln!(
            text,
            "job-{row},{submit}.5,program-{}/a{leaf},{gpus},{runtime},user{user},15m,true,completed",
            leaf % 5
        )?;
    }
    Ok(text)
}

fn swf() -> Result<String, std::fmt::Error> {
    let mut text = "; Version: 2.2\n".to_owned();
    for row in 0..ROWS {
        let (submit, procs, user) = (row * 7, 1 << (row % 7), row * 31 % 300);
        let runtime = row * 7_919 % 86_400;
        writeln!(
            text,
            "{} {submit} 30 {runtime} {procs} -1 -1 {procs} 90000 -1 1 {user} 1 -1 1 1 -1 -1",
            row + 1
        )?;
    }
    Ok(text)
}
