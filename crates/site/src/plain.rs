//! Which characters are shown, and which are obeyed by what shows them.

/// Whether a terminal, a page or a reader of logs would obey a character instead of showing it: control
/// characters (ESC, NUL, newlines, C1), and marks that turn the direction of text or hide it.
#[must_use]
pub fn obeyed(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// A text on one line, without anything that would be obeyed.
#[must_use]
pub fn line(text: &str) -> String {
    text.chars().map(|c| if obeyed(c) { '\u{fffd}' } else { c }).collect()
}

/// How many characters of what somebody wrote a sentence repeats.
const SHOWN_MAX: usize = 80;

/// A text as it may be shown in a sentence: nothing that would be obeyed, and not too much. What is left out is
/// marked, and words are left whole if they are not endless themselves.
pub(crate) fn shortened(text: &str) -> String {
    let Some((end, _)) = text.char_indices().nth(SHOWN_MAX) else { return line(text) };
    let shown = &text[..end];
    let whole = shown.rfind(' ').filter(|&at| at > end / 2).map_or(shown, |at| &shown[..at]);
    format!("{}…", line(whole))
}

/// As [`shortened`].
pub(crate) fn printable(text: &str) -> String {
    shortened(text)
}
