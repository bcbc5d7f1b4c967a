//! Asking a live site.

use crate::args::Server;
use crate::failure::Failure;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The longest answer that is read: the whole history of a large site.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// A way to a site.
pub(crate) struct Client {
    url: String,
    secret: String,
    /// Where the secret is from, for whoever has to look after it.
    source: String,
    agent: ureq::Agent,
}

impl Client {
    pub(crate) fn new(server: &Server) -> Result<Self, Failure> {
        let (secret, source) = secret(server)?;
        let mut client = Self::with(&server.url, secret.trim());
        client.source = source;
        Ok(client)
    }

    /// A way for whoever has this secret.
    pub(crate) fn with(url: &str, secret: &str) -> Self {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(std::time::Duration::from_secs(60)))
            .build()
            .into();
        let url = whole_url(url);
        Self { url, secret: secret.to_owned(), source: "the demo's own".to_owned(), agent }
    }

    fn bearer(&self) -> String {
        format!("Bearer {}", self.secret)
    }

    fn received(
        &self,
        sent: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<(ureq::http::StatusCode, String), Failure> {
        let mut response = sent.map_err(|error| {
            Failure::fault(format!(
                "{} does not answer: {error}; is `bursar up` running?",
                self.url
            ))
        })?;
        let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        Ok((response.status(), body.map_err(Failure::fault)?))
    }

    fn answer(
        &self,
        sent: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Value, Failure> {
        let (status, text) = self.received(sent)?;
        if !status.is_success() {
            return Err(self.refused(status, &text));
        }
        serde_json::from_str(&text)
            .map_err(|_| Failure::fault(format!("{} answers no JSON ({status})", self.url)))
    }

    fn refused(&self, status: ureq::http::StatusCode, text: &str) -> Failure {
        let problem: Value = serde_json::from_str(text).unwrap_or_default();
        let told = problem["detail"].as_str().unwrap_or("it says no more");
        let message = if status == ureq::http::StatusCode::UNAUTHORIZED {
            format!(
                "{} does not take the token from {}: {told}; \
                 is it this site's? `bursar token issue` makes another while you have a good one, else ask an operator",
                self.url, self.source
            )
        } else if status.is_client_error() {
            told.to_owned()
        } else {
            format!("{} could not do it ({status}): {told}", self.url)
        };
        let code = problem["code"].as_str().unwrap_or("no_bursar").to_owned();
        Failure::Refused { status: status.as_u16(), code, message }
    }

    /// Reads.
    pub(crate) fn get(&self, path: &str, query: &[(&str, String)]) -> Result<Value, Failure> {
        let mut request = self.agent.get(format!("{}{path}", self.url));
        for (key, value) in query {
            request = request.query(key, value);
        }
        self.answer(request.header("Authorization", self.bearer()).call())
    }

    /// Asks for a change.
    pub(crate) fn post(&self, path: &str, key: Option<&str>, body: &str) -> Result<Value, Failure> {
        let request = self.agent.post(format!("{}{path}", self.url));
        let mut request = request.header("Authorization", self.bearer());
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        self.answer(request.send(body))
    }

    /// Puts something in place of what is there.
    pub(crate) fn put(&self, path: &str, body: &str) -> Result<Value, Failure> {
        let request = self.agent.put(format!("{}{path}", self.url));
        self.answer(request.header("Authorization", self.bearer()).send(body))
    }
}

/// An address as people write it: without a scheme, it is http.
fn whole_url(url: &str) -> String {
    let url = url.trim().trim_end_matches('/');
    if url.contains("://") { url.to_owned() } else { format!("http://{url}") }
}

/// The secret that was named, else the one that lies where people keep theirs; and where it is from.
fn secret(server: &Server) -> Result<(String, String), Failure> {
    let read = |file: &Path| {
        std::fs::read_to_string(file).map_err(|error| {
            Failure::input(format!("the token's file {}: {error}", file.display()))
        })
    };
    if let Some(file) = &server.token_file {
        return Ok((read(file)?, format!("the file {}", file.display())));
    }
    if let Some(secret) = std::env::var("BURSAR_TOKEN").ok().filter(|text| !text.trim().is_empty())
    {
        return Ok((secret, "the variable BURSAR_TOKEN".to_owned()));
    }
    match own_token_file().filter(|file| file.exists()) {
        Some(file) => Ok((read(&file)?, format!("the file {}", file.display()))),
        None => Err(Failure::input(
            "no token: set BURSAR_TOKEN (printed once by `bursar up`), name a --token-file, or put it into ~/.config/bursar/token",
        )),
    }
}

/// Where a person keeps their token.
fn own_token_file() -> Option<PathBuf> {
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
    config.or_else(home).map(|folder| folder.join("bursar/token"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_need_no_scheme() {
        assert_eq!(whole_url("127.0.0.1:7373"), "http://127.0.0.1:7373");
        assert_eq!(whole_url("https://bursar.lab/"), "https://bursar.lab");
    }
}
