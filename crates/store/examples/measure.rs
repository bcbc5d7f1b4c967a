//! How fast the journal is on this machine and disk:
//! `cargo run --release -p bursar-store --example measure [FOLDER] [RECORDS]`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bursar_store::{Check, NewRecord, Store, restore};

/// About what a submission takes.
const BODY_BYTES: usize = 240;
const BATCH: u64 = 1000;
const SINGLES: u64 = 2000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let parent = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let records: u64 = args.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let dir = tempfile::tempdir_in(parent)?;
    let site = dir.path().join("site");
    let rate = |what: &str, count: u64, took: Duration| {
        let each = took.as_secs_f64() / count as f64;
        println!(
            "{what:34} {:8.3} s {:12.0} /s {:10.2} us each",
            took.as_secs_f64(),
            1.0 / each,
            each * 1e6
        );
    };

    let mut store = Store::create(&site)?;
    let text = "x".repeat(BODY_BYTES - 40);
    let mut waits = Vec::new();
    for seq in 1..=SINGLES {
        let body = format!(r#"{{"workload":"run-{seq}","text":"{text}"}}"#);
        let begun = Instant::now();
        store.append(&[NewRecord { at_ms: seq, kind: "submitted", version: 1, body: &body }])?;
        waits.push(begun.elapsed());
    }
    rate("append, one record each", SINGLES, waits.iter().sum());
    waits.sort();
    println!(
        "  p50 {:?}, p99 {:?}, max {:?}",
        waits[waits.len() / 2],
        waits[waits.len() * 99 / 100],
        waits[waits.len() - 1]
    );

    let begun = Instant::now();
    while store.head().seq < records {
        let first = store.head().seq + 1;
        let bodies: Vec<(u64, String)> = (first..first + BATCH)
            .map(|seq| (seq, format!(r#"{{"workload":"run-{seq}","text":"{text}"}}"#)))
            .collect();
        let new: Vec<NewRecord<'_>> = bodies
            .iter()
            .map(|(at_ms, body)| NewRecord { at_ms: *at_ms, kind: "submitted", version: 1, body })
            .collect();
        store.append(&new)?;
    }
    let records = store.head().seq;
    let append = begun.elapsed();
    rate("append, a thousand at once", records - SINGLES, append);

    let begun = Instant::now();
    let mut bytes = 0;
    for record in store.read_from(1) {
        bytes += record?.body.len();
    }
    let read = begun.elapsed();
    rate("read and check", records, read);
    println!(
        "  {:.1} times as fast as the appends, {:.0} MB of bodies",
        append.as_secs_f64() / read.as_secs_f64(),
        bytes as f64 / 1e6
    );

    let begun = Instant::now();
    let verified = store.verify(&mut |_| ())?;
    rate("verify", records, begun.elapsed());
    println!("  {:.0} MB of database", verified.bytes as f64 / 1e6);

    let state: Vec<u8> = (0..20_000_000_u64)
        .map(|i| b"{\"gpus\":0123456789}"[(i.wrapping_mul(i >> 7) % 19) as usize])
        .collect();
    let begun = Instant::now();
    store.put_snapshot(records, &state)?;
    println!("put a snapshot of 20 MB            {:8.3} s", begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    store.latest_snapshot()?;
    println!("get it back                        {:8.3} s", begun.elapsed().as_secs_f64());

    let to = dir.path().join("backup.db");
    let begun = Instant::now();
    store.backup(&to)?;
    rate("back up and check", records, begun.elapsed());
    drop(store);
    let begun = Instant::now();
    restore(&to, dir.path().join("other"))?;
    rate("restore and check", records, begun.elapsed());
    for check in [Check::Full, Check::Tail] {
        let begun = Instant::now();
        drop(Store::open_with(&site, check)?);
        println!("open, {check:?} check                   {:8.3} s", begun.elapsed().as_secs_f64());
    }
    Ok(())
}
