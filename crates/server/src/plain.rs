//! Text that came from outside, made fit to be shown.

pub use bursar_site::plain::obeyed;

/// How long a text from outside may be in a log line.
const SHOWN_CHARS_MAX: usize = 500;

/// A text from outside on one line of a log: what would be obeyed is escaped, what is too long is cut.
#[must_use]
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len().min(SHOWN_CHARS_MAX));
    for c in text.chars().take(SHOWN_CHARS_MAX) {
        if obeyed(c) { line.extend(c.escape_unicode()) } else { line.push(c) }
    }
    if text.chars().nth(SHOWN_CHARS_MAX).is_some() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_lines() {
        assert_eq!(one_line("a\nb\u{1b}[2J\u{202e}"), "a\\u{a}b\\u{1b}[2J\\u{202e}");
        assert_eq!(one_line("plain: ünïcode"), "plain: ünïcode");
        assert!(one_line(&"x".repeat(5_000)).chars().count() <= SHOWN_CHARS_MAX + 1);
    }
}
