//! Answers as JSON that is safe to show: nothing in it is a character that a terminal or a page would obey,
//! whatever people and programs put into names, reasons and logs. Who parses it gets them back unharmed.

use super::problem::Problem;
use crate::plain::obeyed;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::io;

/// A body of JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Json<T>(pub(crate) T);

/// What a handler gives back.
pub(crate) type Answer<T> = Result<Json<T>, Problem>;

/// Writes JSON as `serde_json` does, with more characters escaped.
struct Escaped;

impl serde_json::ser::Formatter for Escaped {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut from = 0;
        for (at, c) in fragment.char_indices().filter(|&(_, c)| obeyed(c)) {
            writer.write_all(&fragment.as_bytes()[from..at])?;
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                write!(writer, "\\u{unit:04x}")?;
            }
            from = at + c.len_utf8();
        }
        writer.write_all(&fragment.as_bytes()[from..])
    }
}

/// A value as JSON text without characters that anything would obey.
///
/// # Errors
/// If the value cannot be written as JSON.
pub(crate) fn json_text<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(512);
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, Escaped))?;
    Ok(text)
}

pub(super) fn respond<T: Serialize + ?Sized>(
    status: StatusCode,
    media_type: &'static str,
    value: &T,
) -> Response {
    match json_text(value) {
        Ok(text) => {
            let kind = [(header::CONTENT_TYPE, HeaderValue::from_static(media_type))];
            (status, kind, text).into_response()
        }
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written as JSON");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        respond(StatusCode::OK, "application/json", &self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped_and_comes_back() {
        let nasty = "a\u{1b}[31mb\0c\u{7f}d\u{9b}e\u{202e}f\u{2066}g\r\nh\u{feff}i\u{2028}j\u{e0041}k é 漢 😀";
        let text = String::from_utf8(json_text(nasty).expect("JSON")).expect("UTF-8");
        assert!(!text.chars().any(obeyed), "{text:?}");
        assert!(text.contains("é 漢 😀"), "what people write is left alone: {text}");
        assert_eq!(serde_json::from_str::<String>(&text).expect("JSON"), nasty);
    }
}
