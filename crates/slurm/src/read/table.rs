//! Tables whose fields end with a mark.

use std::fmt;

/// Why an answer cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

/// What ends each field of an answer. It is drawn anew for each call, so nobody can put it into a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark(String);

impl Mark {
    /// A new one. Without randomness from the system it is only unlikely, not secret.
    pub fn new() -> Self {
        Self(format!("<{}>", crate::random_hex()))
    }

    /// This one, for a recorded answer: not empty, and without what a format would take for itself.
    pub fn of(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The fields as `-O` of squeue and sinfo takes them.
    pub(crate) fn long_format(&self, fields: &[&str]) -> String {
        fields.iter().map(|field| format!("{field}:{self}")).collect::<Vec<_>>().join(",")
    }

    /// The rows of an answer: each is so many fields, every one ended by the mark, and a line end.
    pub(crate) fn rows(
        &self,
        answer: &[u8],
        fields: usize,
    ) -> Result<Vec<Vec<String>>, Unreadable> {
        let text = String::from_utf8_lossy(answer);
        let mut rows = Vec::new();
        let mut row: Vec<String> = Vec::with_capacity(fields);
        let mut parts = text.split(self.0.as_str()).peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                if !row.is_empty() || !part.trim().is_empty() {
                    return Err(Unreadable("it ends amidst a row".to_owned()));
                }
                break;
            }
            let field = if row.is_empty() && !rows.is_empty() {
                part.strip_prefix('\n')
                    .ok_or_else(|| Unreadable("a row has too many fields".to_owned()))?
            } else {
                part
            };
            row.push(field.to_owned());
            if row.len() == fields {
                rows.push(std::mem::replace(&mut row, Vec::with_capacity(fields)));
            }
        }
        Ok(rows)
    }
}

impl Default for Mark {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What Slurm prints where there is nothing.
pub(crate) fn present(field: &str) -> Option<&str> {
    let field = field.trim();
    let absent = ["", "(null)", "N/A", "n/a", "None", "None assigned", "Unknown"];
    (!absent.contains(&field)).then_some(field)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rows_hold_any_text() {
        let mark = Mark::of("@@");
        let rows = mark.rows(b"1@@two\nlines|,@@\n2@@@@\n", 2).unwrap();
        assert_eq!(rows, [["1", "two\nlines|,"], ["2", ""]]);
        assert_eq!(mark.rows(b"", 2).unwrap(), Vec::<Vec<String>>::new());
        assert_eq!(mark.rows(b"\xff@@\n", 1).unwrap(), [["\u{fffd}"]]);
        for bad in [&b"1@@"[..], b"1@@2", b"1@@2@@3@@\n", b"no answer", b"1@@2@@\nerror"] {
            assert!(mark.rows(bad, 2).is_err(), "{:?}", String::from_utf8_lossy(bad));
        }
        assert_ne!(Mark::new(), Mark::new());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(rows in prop::collection::vec(prop::collection::vec("[^@]*", 3), 0..5)) {
            let mark = Mark::of("@@");
            let text: String = rows.iter().map(|row| row.join("@@") + "@@\n").collect();
            prop_assert_eq!(mark.rows(text.as_bytes(), 3).unwrap(), rows);
        }

        #[test]
        fn no_answer_panics(answer in prop::collection::vec(any::<u8>(), 0..200), fields in 1_usize..5) {
            let _ = Mark::of("@").rows(&answer, fields);
        }
    }
}
