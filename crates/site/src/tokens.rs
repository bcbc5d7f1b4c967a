//! Tokens that are asked for by a token.

use crate::error::Refused;
use crate::record::{Body, TokenIssued};
use crate::site::Site;

impl Site {
    /// A token for `for_user`, asked for by the token `by`: it does not outlive that one, and may do no more. Else
    /// whoever gets hold of a token for a day, or for reading, could make one for ever, or for everything.
    pub fn issue_token_by(
        &self,
        by: &TokenIssued,
        name: &str,
        for_user: &str,
        secret: &str,
        expires_in_ms: Option<u64>,
        read_only: bool,
    ) -> Result<Body, Refused> {
        let read_only = read_only || by.read_only;
        let mut body =
            self.issue_token(&by.user, name, for_user, secret, expires_in_ms, read_only)?;
        if let Body::TokenIssued(token) = &mut body {
            token.expires_ms = token.expires_ms.into_iter().chain(by.expires_ms).min();
        }
        Ok(body)
    }
}
