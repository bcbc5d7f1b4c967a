//! What people see: text that cannot speak to their terminal, and moments as they say them.

use std::fmt;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use bursar_trace::one_line;

/// Prints `text` on standard output, with all control characters but line ends escaped.
///
/// A reader that has gone away (`| head`) has read enough: the verb goes on to its own end. Any other
/// failure is kept for [`unsaid`].
pub(crate) fn say(text: &str) {
    say_raw(&lines(text));
}

/// Prints text of our own making as it is.
pub(crate) fn say_raw(text: &str) {
    let mut out = io::stdout().lock();
    keep_failure(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// Remembers why something could not be printed on standard output.
pub(crate) fn keep_failure(printed: io::Result<()>) {
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            // The first failure tells most.
            let _ = UNSAID.set(error.to_string());
        }
        Err(_) => GONE.store(true, Ordering::Relaxed),
        Ok(()) => {}
    }
}

/// Whether whoever read standard output has gone away: a verb that goes on until it is interrupted ends then.
pub(crate) fn nobody_reads() -> bool {
    GONE.load(Ordering::Relaxed)
}

static GONE: AtomicBool = AtomicBool::new(false);

/// Why not everything could be printed on standard output, if so.
pub(crate) fn unsaid() -> Option<&'static str> {
    UNSAID.get().map(String::as_str)
}

static UNSAID: OnceLock<String> = OnceLock::new();

/// Prints one line on standard error.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{}", one_line(text));
}

/// `text` with its line ends, and nothing else that speaks to terminals.
fn lines(text: &str) -> String {
    text.split('\n').map(one_line).collect::<Vec<_>>().join("\n")
}

/// A moment since the start as `2d 03:15:00`; milliseconds only where there are some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment(pub(crate) u64);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, ms) = (self.0 / 1_000, self.0 % 1_000);
        let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
        let text = format!("{days}d {hours:02}:{:02}:{:02}", seconds / 60 % 60, seconds % 60);
        if ms > 0 { f.pad(&format!("{text}.{ms:03}")) } else { f.pad(&text) }
    }
}

/// A length of time in its two largest units, such as `2h30m`.
pub(crate) fn span(ms: u64) -> String {
    const UNITS: [(u64, &str); 5] =
        [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    let Some(at) = UNITS.iter().position(|&(unit, _)| ms >= unit) else { return "0s".to_owned() };
    let mut rest = ms;
    let mut text = String::new();
    for (unit, name) in UNITS.into_iter().skip(at).take(2) {
        if rest >= unit {
            text.push_str(&format!("{}{name}", rest / unit));
            rest %= unit;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_a_terminal_as_a_command() {
        assert_eq!(lines("two\nlines\r\x1b[31m\n"), "two\nlines\\u{d}\\u{1b}[31m\n");
    }

    #[test]
    fn moments_and_spans() {
        assert_eq!(Moment(184_500_000).to_string(), "2d 03:15:00");
        assert_eq!(format!("{:>14}", Moment(1_500)), "0d 00:00:01.500");
        assert_eq!(
            (span(0), span(1_500), span(9_000_000)),
            ("0s".into(), "1s500ms".into(), "2h30m".into())
        );
        assert_eq!(span(86_460_000), "1d");
    }
}
