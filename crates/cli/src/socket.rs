//! Saying something to the daemon from inside a workload: one HTTP request on a socket of this machine.

use crate::failure::Failure;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Reports must not hold up the work.
const PATIENCE: Duration = Duration::from_secs(10);

/// What an attempt may say about itself, and where.
pub(crate) struct Reporter {
    socket: PathBuf,
    token: String,
}

impl Reporter {
    /// As the environment of a workload says; none outside of one.
    pub(crate) fn here() -> Option<Self> {
        let socket = PathBuf::from(std::env::var_os("BURSAR_SOCKET")?);
        let token = std::env::var(bursar_server::report::TOKEN_VARIABLE).ok()?;
        Some(Self { socket, token })
    }

    /// A checkpoint was saved just now.
    pub(crate) fn checkpoint(&self) -> Result<(), Failure> {
        self.post("/v1/checkpoint", "")
    }

    /// How far it is.
    pub(crate) fn progress(&self, text: &str) -> Result<(), Failure> {
        self.post("/v1/progress", text)
    }

    fn post(&self, path: &str, body: &str) -> Result<(), Failure> {
        let socket = self.socket.display();
        let answer = exchange(&self.socket, &self.token, path, body)
            .map_err(|error| Failure::fault(format!("{socket} does not answer: {error}")))?;
        let status = answer.split(' ').nth(1).unwrap_or_default();
        if status.starts_with('2') {
            return Ok(());
        }
        let text = answer.rsplit_once("\r\n\r\n").map_or("", |(_, body)| body);
        let problem: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
        let detail = problem["detail"].as_str().unwrap_or("it says no more").to_owned();
        if status.starts_with('4') {
            return Err(Failure::Input(detail));
        }
        Err(Failure::Fault(format!("{socket} could not do it ({status}): {detail}")))
    }
}

fn exchange(socket: &Path, token: &str, path: &str, body: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: bursar\r\nAuthorization: Bearer {token}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.take(1 << 20).read_to_string(&mut answer)?;
    Ok(answer)
}
