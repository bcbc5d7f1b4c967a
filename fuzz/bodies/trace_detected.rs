//! A history in whatever format it seems to have, plain or packed.

use crate::sound;
use bursar_trace::{ReadOptions, read};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

pub(crate) fn run(data: &[u8]) {
    let trace = match read(data, "history", &ReadOptions::default()) {
        Ok(trace) => trace,
        Err(error) => return sound::refusal(&error),
    };
    sound::history(&trace);
    // The same when the format is named, and when it is packed.
    let named = ReadOptions { format: Some(trace.format), ..ReadOptions::default() };
    assert_eq!(read(data, "history", &named).expect("its format is named"), trace);
    for packed in [gzip(data), zstd::encode_all(data, 1).expect("it can be packed")] {
        match read(&packed[..], "history", &ReadOptions::default()) {
            Ok(again) => assert_eq!(again, trace),
            // It was packed already.
            Err(error) => assert!(!data.is_ascii(), "{error}"),
        }
    }
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).expect("memory takes it");
    encoder.finish().expect("memory takes it")
}
