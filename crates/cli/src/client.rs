//! Asking a live site.

use crate::args::Server;
use crate::failure::Failure;
use serde_json::Value;

/// A way to a site.
pub(crate) struct Client {
    url: String,
    secret: String,
    agent: ureq::Agent,
}

impl Client {
    pub(crate) fn new(server: &Server) -> Result<Self, Failure> {
        let secret = match &server.token_file {
            Some(file) => std::fs::read_to_string(file)
                .map_err(|error| Failure::input(format!("{}: {error}", file.display())))?,
            None => std::env::var("BURSAR_TOKEN").map_err(|_| {
                Failure::input(
                    "no token: set BURSAR_TOKEN (printed once by `bursar up`) or name a --token-file",
                )
            })?,
        };
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(std::time::Duration::from_secs(60)))
            .build()
            .into();
        let url = server.url.trim_end_matches('/').to_owned();
        Ok(Self { url, secret: secret.trim().to_owned(), agent })
    }

    fn bearer(&self) -> String {
        format!("Bearer {}", self.secret)
    }

    fn answer(
        &self,
        sent: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Value, Failure> {
        let mut response = sent.map_err(|error| {
            Failure::fault(format!(
                "{} does not answer: {error}; is `bursar up` running?",
                self.url
            ))
        })?;
        let status = response.status();
        let text = response.body_mut().read_to_string().map_err(Failure::fault)?;
        let value: Value = serde_json::from_str(&text)
            .map_err(|_| Failure::fault(format!("{} answers no JSON ({status})", self.url)))?;
        if status.is_success() {
            return Ok(value);
        }
        let detail = value["detail"].as_str().unwrap_or("it says no more").to_owned();
        if status.is_client_error() {
            return Err(Failure::Input(detail));
        }
        Err(Failure::Fault(format!("{} could not do it ({status}): {detail}", self.url)))
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
