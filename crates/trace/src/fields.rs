//! A line split into its fields.

/// How a table is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Comma-separated, `"` quotes, `#` comments.
    Comma,
    /// `|`-separated, nothing quotes (`sacct -P`).
    Pipe,
}

impl Dialect {
    fn delimiter(self) -> u8 {
        match self {
            Dialect::Comma => b',',
            Dialect::Pipe => b'|',
        }
    }

    /// True for a line that carries no row.
    pub(crate) fn is_comment(self, line: &[u8]) -> bool {
        line.trim_ascii().is_empty() || (self == Dialect::Comma && line.first() == Some(&b'#'))
    }
}

/// The fields of one line; reused from line to line.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Fields {
    /// Splits `line`. Blanks around a field are dropped unless they are quoted.
    ///
    /// Lines are split one by one, so that a forgotten quote costs one row and never the rest of the
    /// file: a quoted line break is refused.
    pub(crate) fn split(&mut self, line: &[u8], dialect: Dialect) -> Result<(), &'static str> {
        self.text.clear();
        self.ends.clear();
        let delimiter = dialect.delimiter();
        if dialect == Dialect::Pipe || !line.contains(&b'"') {
            for field in line.split(|byte| *byte == delimiter) {
                self.text.extend_from_slice(field.trim_ascii());
                self.ends.push(self.text.len());
            }
            return Ok(());
        }
        let mut rest = line;
        loop {
            let start = rest.trim_ascii_start();
            rest = if let Some(quoted) = start.strip_prefix(b"\"") {
                self.quoted(quoted)?
            } else {
                let end = rest.iter().position(|byte| *byte == delimiter).unwrap_or(rest.len());
                self.text.extend_from_slice(rest[..end].trim_ascii());
                &rest[end..]
            };
            self.ends.push(self.text.len());
            match rest.split_first() {
                None => return Ok(()),
                Some((byte, after)) if *byte == delimiter => rest = after,
                Some(_) => return Err("has text after a closing quote"),
            }
        }
    }

    /// Takes a field from after its opening quote; gives what follows its closing one.
    fn quoted<'a>(&mut self, mut rest: &'a [u8]) -> Result<&'a [u8], &'static str> {
        loop {
            let end = rest
                .iter()
                .position(|byte| *byte == b'"')
                .ok_or("has a quote that is not closed on its line")?;
            self.text.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            match rest.strip_prefix(b"\"") {
                Some(after) => {
                    self.text.push(b'"');
                    rest = after;
                }
                None => return Ok(rest.trim_ascii_start()),
            }
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The field at `index`; empty when there is none.
    pub(crate) fn get(&self, index: usize) -> &[u8] {
        let Some(&end) = self.ends.get(index) else { return &[] };
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before)).copied();
        &self.text[start.unwrap_or(0)..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str, dialect: Dialect) -> Result<Vec<String>, &'static str> {
        let mut fields = Fields::default();
        fields.split(line.as_bytes(), dialect)?;
        Ok((0..fields.len()).map(|i| String::from_utf8_lossy(fields.get(i)).into_owned()).collect())
    }

    #[test]
    fn plain_quoted_and_broken_lines() {
        assert_eq!(split("a, b ,,c", Dialect::Comma).unwrap(), ["a", "b", "", "c"]);
        assert_eq!(
            split(r#"1,"x, ""y"" ", "z" ,"#, Dialect::Comma).unwrap(),
            ["1", r#"x, "y" "#, "z", ""]
        );
        assert_eq!(split(r#"a|"b|c"#, Dialect::Pipe).unwrap(), ["a", "\"b", "c"]);
        assert!(split(r#"a,"b"#, Dialect::Comma).unwrap_err().contains("not closed"));
        assert!(split(r#"a,"b"c"#, Dialect::Comma).unwrap_err().contains("after a closing"));
    }
}
