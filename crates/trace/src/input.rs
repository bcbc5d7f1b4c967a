//! Bytes in, lines out: decompression by magic bytes, and a bound on what one line may hold.
//!
//! Invariant: a line, or a JSON entry, that is longer than [`LINE_BYTES_MAX`] is an error after
//! about that many bytes, so neither an endless line nor a decompression bomb fills the memory.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};

use flate2::read::MultiGzDecoder;

use crate::error::{Place, TraceError, TraceErrorKind};

/// Most bytes that one line of a history may have.
pub const LINE_BYTES_MAX: usize = 1 << 20;

const BUFFER_BYTES: usize = 1 << 16;
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const BOM: [u8; 3] = [0xef, 0xbb, 0xbf];

/// Beginnings of files that are not read, and what such a file is.
const CONTAINERS: [(&[u8], &str); 6] = [
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz-compressed"),
    (b"BZh", "bzip2-compressed"),
    (b"PK\x03\x04", "a zip archive"),
    (b"PAR1", "a Parquet file"),
    (&[0xff, 0xfe], "text in UTF-16"),
    (&[0xfe, 0xff], "text in UTF-16"),
];

/// An opened history: its beginning is at hand for detection, its lines come one by one.
pub(crate) struct Input<'a> {
    name: String,
    packing: Option<&'static str>,
    reader: Chain<Cursor<Vec<u8>>, BufReader<Box<dyn Read + 'a>>>,
    buffer: Vec<u8>,
    line: u64,
}

impl<'a> Input<'a> {
    /// Opens `reader`, decompressing it if its first bytes say so.
    pub(crate) fn open(mut reader: impl Read + 'a, name: &str) -> Result<Self, TraceError> {
        let fail = |kind| TraceError::new(name, Place::File, kind);
        let mut magic = Vec::with_capacity(6);
        reader
            .by_ref()
            .take(6)
            .read_to_end(&mut magic)
            .map_err(|e| fail(TraceErrorKind::Read(e)))?;
        if let Some((_, what)) = CONTAINERS.iter().find(|(start, _)| magic.starts_with(start)) {
            return Err(fail(TraceErrorKind::Container { what }));
        }
        let is_gzip = magic.starts_with(&GZIP);
        let is_zstd = magic.starts_with(&ZSTD);
        let raw = Cursor::new(magic).chain(reader);
        let (packing, unpacked): (_, Box<dyn Read + 'a>) = if is_gzip {
            (Some("gzip"), Box::new(MultiGzDecoder::new(BufReader::new(raw))))
        } else if is_zstd {
            let decoder = zstd::Decoder::new(raw).map_err(|e| fail(TraceErrorKind::Read(e)))?;
            (Some("zstd"), Box::new(decoder))
        } else {
            (None, Box::new(raw))
        };
        let mut rest = BufReader::with_capacity(BUFFER_BYTES, unpacked);
        let mut head = Vec::new();
        rest.by_ref()
            .take(LINE_BYTES_MAX as u64 + 1)
            .read_to_end(&mut head)
            .map_err(|e| fail(reading_kind(e, packing)))?;
        if head.len() > LINE_BYTES_MAX && !head.contains(&b'\n') && !looks_like_json(&head) {
            let kind = TraceErrorKind::TooLong { limit: LINE_BYTES_MAX };
            return Err(TraceError::new(name, Place::Line(1), kind));
        }
        let mut head = Cursor::new(head);
        if head.get_ref().starts_with(&BOM) {
            head.set_position(BOM.len() as u64);
        }
        let reader = head.chain(rest);
        Ok(Input { name: name.to_owned(), packing, reader, buffer: Vec::new(), line: 0 })
    }

    /// What errors call it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its first bytes, at most about [`LINE_BYTES_MAX`].
    pub(crate) fn head(&self) -> &[u8] {
        let head = self.reader.get_ref().0.get_ref();
        head.strip_prefix(&BOM).unwrap_or(head)
    }

    /// Number of the line that [`Input::next_line`] gave last.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// An error about the file as a whole.
    pub(crate) fn fail(&self, kind: TraceErrorKind) -> TraceError {
        TraceError::new(&self.name, Place::File, kind)
    }

    /// An error about the line that was read last.
    pub(crate) fn fail_line(&self, kind: TraceErrorKind) -> TraceError {
        TraceError::new(&self.name, Place::Line(self.line), kind)
    }

    /// The next line, without its end.
    pub(crate) fn next_line(&mut self) -> Result<Option<&[u8]>, TraceError> {
        self.buffer.clear();
        let limit = LINE_BYTES_MAX as u64 + 1;
        let read = self.reader.by_ref().take(limit).read_until(b'\n', &mut self.buffer);
        let taken = match read {
            Ok(taken) => taken,
            Err(e) => {
                self.line += 1;
                return Err(self.fail_line(reading_kind(e, self.packing)));
            }
        };
        if taken == 0 {
            return Ok(None);
        }
        self.line += 1;
        if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
        } else if self.buffer.len() > LINE_BYTES_MAX {
            return Err(self.fail_line(TraceErrorKind::TooLong { limit: LINE_BYTES_MAX }));
        }
        if self.buffer.last() == Some(&b'\r') {
            self.buffer.pop();
        }
        Ok(Some(&self.buffer))
    }

    /// All that is left, as bytes with a budget that the consumer renews entry by entry.
    pub(crate) fn entries<'b>(&'b mut self, budget: &'b EntryBudget) -> impl Read + 'b {
        BufReader::with_capacity(
            BUFFER_BYTES,
            Metered { reader: &mut self.reader, budget, packing: self.packing },
        )
    }
}

/// True for what can be the beginning of a JSON array or object, where a line may be the whole file.
pub(crate) fn looks_like_json(head: &[u8]) -> bool {
    matches!(head.iter().find(|byte| !byte.is_ascii_whitespace()), Some(b'[' | b'{'))
}

/// How much of the current JSON entry has been read.
#[derive(Default)]
pub(crate) struct EntryBudget {
    spent: Cell<usize>,
    failure: Cell<Option<TraceErrorKind>>,
}

impl EntryBudget {
    /// An entry is complete: the next one has the whole budget.
    pub(crate) fn renew(&self) {
        self.spent.set(0);
    }

    /// What stopped the reading, if it was not the JSON itself.
    pub(crate) fn take_failure(&self) -> Option<TraceErrorKind> {
        self.failure.take()
    }
}

struct Metered<'b, R> {
    reader: R,
    budget: &'b EntryBudget,
    packing: Option<&'static str>,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.budget.spent.get() > LINE_BYTES_MAX {
            self.budget.failure.set(Some(TraceErrorKind::TooLong { limit: LINE_BYTES_MAX }));
            return Err(io::Error::other("entry too long"));
        }
        match self.reader.read(out) {
            Ok(taken) => {
                self.budget.spent.set(self.budget.spent.get() + taken);
                Ok(taken)
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Err(e),
            Err(e) => {
                self.budget.failure.set(Some(reading_kind(e, self.packing)));
                Err(io::Error::other("reading failed"))
            }
        }
    }
}

fn reading_kind(error: io::Error, packing: Option<&'static str>) -> TraceErrorKind {
    match packing {
        None => TraceErrorKind::Read(error),
        Some(packing) if error.kind() == io::ErrorKind::UnexpectedEof => {
            TraceErrorKind::Truncated { packing }
        }
        Some(packing) => {
            let reason = crate::error::clip(&error.to_string(), 80);
            TraceErrorKind::Damaged { packing, reason }
        }
    }
}
