//! Inputs made to hurt: endless lines, bombs, truncated and foreign files.

use std::cell::Cell;
use std::io::{self, Cursor, Read, Write};

use bursar_trace::{Format, LINE_BYTES_MAX, ReadOptions, TraceError, read};
use flate2::Compression;
use flate2::write::GzEncoder;

const JOBS: &str = "id,submit,budget,gpus,runtime\na,0,p,1,5\nb,1,p,2,5\n";

/// Counts what is taken from it.
struct Counted<'a, R>(R, &'a Cell<usize>);

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let taken = self.0.read(out)?;
        self.1.set(self.1.get() + taken);
        Ok(taken)
    }
}

fn gzip(bytes: impl Read) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    io::copy(&mut { bytes }, &mut encoder).unwrap();
    encoder.finish().unwrap()
}

fn fails(bytes: &[u8]) -> String {
    read(bytes, "x", &ReadOptions::default()).unwrap_err().to_string()
}

#[test]
fn an_endless_line_is_an_error_after_little_more_than_the_limit() {
    for (start, expected) in [
        ("", "x line 1: is longer than 1048576 bytes"),
        ("id,submit,budget,gpus,runtime\na,0,p,1,", "x line 2: is longer than"),
        ("id,submit,budget,gpus,runtime\n\na,0,\"p,1,", "x line 3: is longer than"),
        ("JobID|State|Submit|Elapsed|AllocTRES\n1|", "x line 2: is longer than"),
        ("; Version: 2\n;", "x line 2: is longer than"),
        ("[{\"jobid\": \"", "x row 1: is longer than"),
        ("[{\"jobid\": \"a\", \"submitted_time\": \"2017-01-01 00:00:00\"}, [", "x row 2: is "),
    ] {
        let taken = Cell::new(0);
        let endless = Cursor::new(start).chain(io::repeat(b'1'));
        let error =
            read(Counted(endless, &taken), "x", &ReadOptions::default()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{start:?}: {error}");
        assert!(taken.get() < 3 * LINE_BYTES_MAX, "{start:?}: {} bytes", taken.get());
    }
}

#[test]
fn endless_json_of_short_tokens_is_bounded_too() {
    struct Again(usize);
    impl Read for Again {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            for byte in out.iter_mut() {
                *byte = b"{},"[self.0 % 3];
                self.0 += 1;
            }
            Ok(out.len())
        }
    }
    let endless = Cursor::new("[{\"jobid\": [").chain(Again(0));
    let error = read(endless, "x", &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.starts_with("x row 1: is longer than"), "{error}");
    let deep = format!("[{{\"jobid\": {}", "[".repeat(100_000));
    assert!(fails(deep.as_bytes()).contains("not readable as JSON: recursion limit"));
}

#[test]
fn decompression_bombs_stop_at_the_line_limit() {
    let bomb = gzip(io::repeat(b'a').take(256 << 20));
    assert!(bomb.len() < 4 << 20);
    assert!(fails(&bomb).starts_with("x line 1: is longer than"));
    let bomb = zstd::encode_all(io::repeat(0).take(256 << 20), 1).unwrap();
    assert!(fails(&bomb).starts_with("x line 1: is longer than"));
}

#[test]
fn gzip_of_several_members_and_zstd_of_several_frames_are_read_whole() {
    let (first, second) = JOBS.split_at(40);
    let mut parts = gzip(first.as_bytes());
    parts.extend(gzip(second.as_bytes()));
    assert_eq!(read(&parts[..], "x", &ReadOptions::default()).unwrap().jobs.len(), 2);
    let mut parts = zstd::encode_all(first.as_bytes(), 1).unwrap();
    parts.extend(zstd::encode_all(second.as_bytes(), 1).unwrap());
    assert_eq!(read(&parts[..], "x", &ReadOptions::default()).unwrap().jobs.len(), 2);
}

#[test]
fn truncated_compressed_files_say_so_wherever_they_end() {
    let long: String = (0..20_000).map(|i| format!("j{i},{i},p,{},5\n", i % 7 + 1)).collect();
    let text = format!("id,submit,budget,gpus,runtime\n{long}");
    let packed = [gzip(text.as_bytes()), zstd::encode_all(text.as_bytes(), 1).unwrap()];
    for (whole, name) in packed.iter().zip(["gzip", "zstd"]) {
        for end in (7..whole.len()).step_by(whole.len() / 50) {
            let error = fails(&whole[..end]);
            let expected = format!("the {name} data ends too early; the file is truncated");
            assert!(error.contains(&expected), "{end}: {error}");
        }
        let mut damaged = whole.clone();
        let middle = damaged.len() / 2;
        damaged[middle..middle + 40].fill(0xff);
        let error = fails(&damaged);
        assert!(error.starts_with("x") && !error.contains('\n'), "{error}");
    }
}

#[test]
fn foreign_files_are_named() {
    assert!(fails(b"PK\x03\x04abc").contains("is a zip archive"));
    assert!(fails(b"\xff\xfei\0d\0").contains("is text in UTF-16"));
    assert!(fails(b"\x7fELF\x02\x01\x01").contains("is of no known format"));
    assert!(fails(b"").contains("x: has no job: it is empty"));
    assert!(fails(b"id,submit,budget,gpus,runtime\nid,1,\xff,1,1").contains("is not UTF-8 text"));
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_are_no_problem() {
    let text = format!("\u{feff}{}", JOBS.replace('\n', "\r\n"));
    let trace = read(text.as_bytes(), "x", &ReadOptions::default()).unwrap();
    assert_eq!((trace.jobs.len(), trace.jobs[1].runtime_ms), (2, 5_000));
}

#[test]
fn a_failing_reader_is_an_error_at_its_line() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("disk on fire"))
        }
    }
    let result: Result<_, TraceError> =
        read(Cursor::new(JOBS).chain(Broken), "x", &ReadOptions::default());
    assert!(result.unwrap_err().to_string().contains("cannot be read: disk on fire"));
}

#[test]
fn a_hundred_broken_rows_are_listed_and_all_are_counted() {
    let mut text = Vec::new();
    write!(text, "id,submit,budget,gpus,runtime\nok,0,p,1,1\n").unwrap();
    for i in 0..250 {
        writeln!(text, "j{i},0,p,0,1").unwrap();
    }
    let options = ReadOptions { skip_bad: true, ..ReadOptions::default() };
    let trace = read(&text[..], "x", &options).unwrap();
    assert_eq!((trace.skipped.len(), trace.skipped_count, trace.jobs.len()), (100, 250, 1));
    let only_bad = b"id,submit,budget,gpus,runtime\nj,0,p,0,1\n";
    let error = read(&only_bad[..], "x", &options).unwrap_err().to_string();
    assert!(error.starts_with("x: has no job: its rows are 1 broken; the first"), "{error}");
}

#[test]
fn the_wrong_format_by_name_is_an_error_and_no_panic() {
    for format in Format::ALL {
        let options = ReadOptions { format: Some(format), ..ReadOptions::default() };
        let result = read(JOBS.as_bytes(), "x", &options);
        assert_eq!(result.is_ok(), format == Format::BursarCsv, "{format}");
    }
}
