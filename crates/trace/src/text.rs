//! Text that is shown to people: one line of it stays one line, and none of it speaks to their terminal.

use std::borrow::Cow;

/// `text` on one line: control characters, separators that some terminals take for line ends, and characters
/// that turn the direction of text around are escaped. What a file or a person gave may hold any of these.
pub fn one_line(text: &str) -> Cow<'_, str> {
    if !text.chars().any(speaks_to_terminals) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if speaks_to_terminals(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

fn speaks_to_terminals(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_a_terminal_as_a_command() {
        assert_eq!(one_line("a\x1b[31mb\nc\u{202e}"), "a\\u{1b}[31mb\\u{a}c\\u{202e}");
        assert_eq!(one_line("\u{9b}2J\u{2028}\0"), "\\u{9b}2J\\u{2028}\\u{0}");
        assert!(matches!(one_line("plain, ü"), Cow::Borrowed(_)));
    }
}
