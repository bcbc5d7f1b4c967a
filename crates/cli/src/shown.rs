//! What people see: text that cannot speak to their terminal, and moments as they say them.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};

/// Prints `text` on standard output, with all control characters but line ends escaped.
///
/// A reader that has gone away (`| head`) has read enough: the verb goes on to its own end.
pub(crate) fn say(text: &str) {
    say_raw(&clean(text, Some('\n')));
}

/// Prints text of our own making as it is.
pub(crate) fn say_raw(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints one line on standard error.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{}", one_line(text));
}

/// `text` on one line, control characters escaped.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    clean(text, None)
}

fn clean(text: &str, kept: Option<char>) -> Cow<'_, str> {
    let escaped = |c: char| Some(c) != kept && speaks_to_terminals(c);
    if !text.chars().any(escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if escaped(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Control characters, separators that some terminals take for line ends, and those that turn the
/// direction of text around.
fn speaks_to_terminals(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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
        assert_eq!(one_line("a\x1b[31mb\nc\u{202e}"), "a\\u{1b}[31mb\\u{a}c\\u{202e}");
        assert_eq!(clean("two\nlines\r", Some('\n')), "two\nlines\\u{d}");
        assert_eq!(one_line("plain, ü\0"), "plain, ü\\u{0}");
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
