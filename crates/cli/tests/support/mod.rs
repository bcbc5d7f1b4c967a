//! A daemon in a process of its own, and what asks it.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Long enough for a machine that is busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Looks again and again until something is seen.
pub(crate) fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, what, look)
}

pub(crate) fn within<T>(patience: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + patience;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < until, "not seen within {patience:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The binary, without anything of this machine's user.
pub(crate) fn command(args: &[&str]) -> Command {
    // A runner of tests may have put it elsewhere since they were built.
    let binary = std::env::var_os("NEXTEST_BIN_EXE_bursar");
    let mut command = Command::new(binary.unwrap_or_else(|| env!("CARGO_BIN_EXE_bursar").into()));
    for name in ["BURSAR_URL", "BURSAR_TOKEN", "BURSAR_TOKEN_FILE", "BURSAR_DATA", "BURSAR_LOG"] {
        command.env_remove(name);
    }
    command.args(args).env("HOME", "/nonexistent").env("NO_COLOR", "1").env("COLUMNS", "200");
    command
}

/// What a command did.
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs it to its end, which must come.
pub(crate) fn finish(command: &mut Command) -> Done {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = child.spawn().expect("it runs");
    let pid = rustix::process::Pid::from_child(&child);
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    let output = is_done.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        panic!("{command:?} did not end within {PATIENCE:?}");
    });
    let Output { status, stdout, stderr } = output.expect("its output");
    Done {
        code: status.code(),
        stdout: String::from_utf8(stdout).expect("text"),
        stderr: String::from_utf8(stderr).expect("text"),
    }
}

pub(crate) fn bursar(args: &[&str]) -> Done {
    finish(&mut command(args))
}

/// A daemon in a process of its own. Killed when it is dropped.
pub(crate) struct Site {
    pub(crate) child: Child,
    pub(crate) url: String,
    /// The owner's; empty if it was not told.
    pub(crate) token: String,
    /// What it has said so far on standard output, and on standard error.
    pub(crate) said: Arc<Mutex<String>>,
}

pub(crate) fn collect(from: impl std::io::Read + Send + 'static, into: Arc<Mutex<String>>) {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            *into.lock().expect("nobody panics with it") += &format!("{line}\n");
        }
    });
}

impl Site {
    /// Brings a site up in a folder, with 4 virtual GPUs on 2 hosts. Its owner is a user whom every machine has.
    pub(crate) fn up(data: &Path) -> Self {
        Self::up_with(
            data,
            &[
                "--virtual-gpus",
                "4",
                "--virtual-hosts",
                "2",
                "--owner",
                "root",
                "--allow-root-work",
            ],
        )
    }

    pub(crate) fn up_with(data: &Path, flags: &[&str]) -> Self {
        let data = data.to_str().expect("text");
        let mut args = vec!["up", "--data", data, "--listen", "127.0.0.1:0"];
        args.extend(flags);
        Self::spawn(&mut command(&args))
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        let site = Self::try_spawn(command).unwrap_or_else(|said| panic!("ended: {said}"));
        eventually("that it is ready", || {
            let answer = ureq::get(format!("{}/readyz", site.url)).call().ok()?;
            answer.status().is_success().then_some(())
        });
        site
    }

    /// A daemon that is up, whether or not its rounds go well; or what it said if it gave up.
    pub(crate) fn try_spawn(command: &mut Command) -> Result<Self, String> {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let said = Arc::new(Mutex::new(String::new()));
        collect(child.stdout.take().expect("piped"), Arc::clone(&said));
        collect(child.stderr.take().expect("piped"), Arc::clone(&said));
        let mut site = Self { child, url: String::new(), token: String::new(), said };
        let up = eventually("where the API listens", || {
            let ended = site.child.try_wait().expect("a child").is_some();
            let said = site.said();
            let Some((_, rest)) = said.split_once(" is up at ") else {
                return ended.then(|| Err(said.clone()));
            };
            let url = rest.lines().next()?.trim();
            Some(Ok(url.split_whitespace().next()?.trim_end_matches([':', '.']).to_owned()))
        });
        site.url = up?;
        let said = site.said();
        if let Some((_, rest)) = said.split_once("export BURSAR_TOKEN=") {
            site.token = rest.lines().next().expect("a token").to_owned();
        }
        Ok(site)
    }

    pub(crate) fn said(&self) -> String {
        self.said.lock().expect("nobody panics with it").clone()
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let answer = get(&self.url, &self.token, path).expect("an answer");
        assert!(answer.0 < 400, "{path}: {} {}", answer.0, answer.1);
        answer.1
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> (u16, Value) {
        post(&self.url, &self.token, path, None, body).expect("an answer")
    }

    /// A workload that must be accepted; its number.
    pub(crate) fn submit(&self, fields: Value) -> u64 {
        let mut workload = serde_json::json!({
            "name": "w", "gpus": 1, "budget_owner": "main", "min_runtime": "10m", "resumable": false,
            "workdir": "/",
        });
        let given = fields.as_object().expect("fields").clone();
        workload.as_object_mut().expect("fields").extend(given);
        let body = serde_json::json!({ "workload": workload }).to_string();
        let (status, answer) = self.post("/v1/workloads", &body);
        assert_eq!(status, 200, "{answer}");
        answer["workload"].as_u64().expect("a number")
    }

    pub(crate) fn work(&self, number: u64) -> Value {
        self.get(&format!("/v1/workloads/{number}"))
    }

    /// Waits until a workload stands so.
    pub(crate) fn until(&self, number: u64, state: &str) -> Value {
        eventually(&format!("workload {number} {state}"), || {
            let work = self.work(number);
            (work["state"] == state).then_some(work)
        })
    }

    /// The binary as this site's owner.
    pub(crate) fn ask(&self, args: &[&str]) -> Done {
        finish(command(args).env("BURSAR_URL", &self.url).env("BURSAR_TOKEN", &self.token))
    }

    pub(crate) fn ask_well(&self, args: &[&str]) -> String {
        let done = self.ask(args);
        assert_eq!(done.code, Some(0), "{args:?}: {}", done.stderr);
        done.stdout
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it is there");
    }

    /// Ends the daemon as an operator does; its exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        self.signal(rustix::process::Signal::TERM);
        self.ended()
    }

    pub(crate) fn ended(&mut self) -> Option<i32> {
        eventually("its end", || self.child.try_wait().expect("a child")).code()
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    config.timeout_global(Some(Duration::from_secs(30))).build().into()
}

pub(crate) fn answer(mut response: ureq::http::Response<ureq::Body>) -> Option<(u16, Value)> {
    let status = response.status().as_u16();
    let text = response.body_mut().read_to_string().ok()?;
    Some((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
}

pub(crate) fn get(url: &str, token: &str, path: &str) -> Option<(u16, Value)> {
    let request = agent().get(format!("{url}{path}"));
    answer(request.header("Authorization", format!("Bearer {token}")).call().ok()?)
}

/// None if the answer did not come: the request may have been done or not.
pub(crate) fn post(
    url: &str,
    token: &str,
    path: &str,
    key: Option<&str>,
    body: &str,
) -> Option<(u16, Value)> {
    let request = agent().post(format!("{url}{path}"));
    let mut request = request.header("Authorization", format!("Bearer {token}"));
    if let Some(key) = key {
        request = request.header("Idempotency-Key", key);
    }
    answer(request.send(body).ok()?)
}

pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

pub(crate) fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().expect("it is there").permissions().mode() & 0o777
}
