//! Text from users, made harmless for the two places where it can stand: markup and embedded JSON.

use std::fmt::{self, Display, Formatter};

/// A text as it stands in markup, between tags or in a quoted attribute.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
            formatter.write_str(&rest[..at])?;
            formatter.write_str(match rest.as_bytes()[at] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                _ => "&#39;",
            })?;
            rest = &rest[at + 1..];
        }
        formatter.write_str(rest)
    }
}

/// JSON as it can stand in a `script` element: no `<`, so that neither `</script` nor `<!--` can end or
/// change it, and no U+2028 or U+2029, which old script parsers take for line ends. In JSON all of
/// these stand only within strings, where an escape means the same.
pub(crate) fn json_in_script(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find(['<', '\u{2028}', '\u{2029}']) {
        safe.push_str(&rest[..at]);
        let found = rest[at..].chars().next().unwrap_or('<');
        safe.push_str(match found {
            '\u{2028}' => "\\u2028",
            '\u{2029}' => "\\u2029",
            _ => "\\u003c",
        });
        rest = &rest[at + found.len_utf8()..];
    }
    safe.push_str(rest);
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_escaped() {
        let hostile = "</script><img src=x onerror=\"alert('1')\">&amp;é";
        assert_eq!(
            Escaped(hostile).to_string(),
            "&lt;/script&gt;&lt;img src=x onerror=&quot;alert(&#39;1&#39;)&quot;&gt;&amp;amp;é"
        );
        assert_eq!(Escaped("plain").to_string(), "plain");
    }

    #[test]
    fn escaped_json_means_the_same() {
        let hostile = "</script><!-- \u{2028}\u{2029} ü <";
        let json = serde_json::to_string(hostile).unwrap();
        let safe = json_in_script(&json);
        assert!(!safe.contains('<') && !safe.contains('\u{2028}') && !safe.contains('\u{2029}'));
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), hostile);
    }
}
