//! How fast a large history is read. Run by hand:
//! `cargo test --release -p bursar-trace --test speed -- --ignored --nocapture`

use std::fmt::Write as _;
use std::time::Instant;

use bursar_trace::{ReadOptions, describe, read};

#[test]
#[ignore = "a measurement, for release builds"]
fn a_million_rows() {
    let mut text =
        String::from("id,submit,budget,gpus,runtime,user,min_runtime,resumable,status\n");
    for i in 0..1_000_000u64 {
        writeln!(
            text,
            "job-{i},{}.5,program-{}/a{},{},{},user{},15m,true,completed",
            i * 7,
            i % 5,
            i % 15,
            1 << (i % 7),
            i * 7_919 % 86_400,
            i * 31 % 300
        )
        .unwrap();
    }
    let begin = Instant::now();
    let trace = read(text.as_bytes(), "million.csv", &ReadOptions::default()).unwrap();
    let read_in = begin.elapsed();
    let begin = Instant::now();
    let description = describe(&trace);
    println!("read {} MB in {read_in:?}, described in {:?}", text.len() >> 20, begin.elapsed());
    assert_eq!(description.jobs, 1_000_000);
}
