//! Slurm's command-line clients, run with a time limit.

use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The clients that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Program {
    /// The queue.
    Squeue,
    /// The nodes.
    Sinfo,
    /// The accounts.
    Sacct,
    /// Changes of jobs and nodes.
    Scontrol,
    /// Signals and ends.
    Scancel,
    /// Submissions.
    Sbatch,
    /// Accounts and who may do what.
    Sacctmgr,
    /// No client of Slurm's: who the clients are run as.
    Id,
    /// What the controller has counted.
    Sdiag,
}

impl Program {
    /// Its name, as it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Squeue => "squeue",
            Self::Sinfo => "sinfo",
            Self::Sacct => "sacct",
            Self::Scontrol => "scontrol",
            Self::Scancel => "scancel",
            Self::Sbatch => "sbatch",
            Self::Sacctmgr => "sacctmgr",
            Self::Id => "id",
            Self::Sdiag => "sdiag",
        }
    }
}

/// One call of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which one.
    pub program: Program,
    /// Its arguments, each as it is: no shell sees them.
    pub args: Vec<String>,
    /// What it reads.
    pub input: Vec<u8>,
    /// By what it is run, if not by what all are: `sudo -n -u alice`.
    pub through: Option<Vec<String>>,
}

impl Call {
    /// A call that reads nothing.
    pub fn new<S: Into<String>>(program: Program, args: impl IntoIterator<Item = S>) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        Self { program, args, input: Vec::new(), through: None }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program.name())?;
        for arg in &self.args {
            let shown: String = arg.chars().take(200).flat_map(char::escape_default).collect();
            write!(f, " {shown}")?;
        }
        Ok(())
    }
}

/// Why a call came to nothing, or may have.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// It could not be run: it had no effect.
    #[error("{call} cannot be run: {error}")]
    NotRun {
        /// What was called.
        call: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// It did not end in time and was killed. What it was to do may be done, or may yet be.
    #[error("{call} gave no answer within {limit_ms} ms")]
    TimedOut {
        /// What was called.
        call: String,
        /// How long it had, in milliseconds.
        limit_ms: u128,
    },
    /// It ended with an error. Slurm refused, as far as one can tell.
    #[error("{call}: {said}")]
    Refused {
        /// What was called.
        call: String,
        /// What it wrote to its standard error, on one line.
        said: String,
        /// What it wrote to its standard output all the same.
        output: Vec<u8>,
    },
    /// It answered something that is no answer.
    #[error("{call} answered what cannot be read: {why}")]
    Unreadable {
        /// What was called.
        call: String,
        /// Why.
        why: String,
    },
}

impl ClientError {
    /// Whether it is known that nothing was done.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::NotRun { .. } | Self::Refused { .. } => true,
            Self::TimedOut { .. } | Self::Unreadable { .. } => false,
        }
    }

    /// What Slurm said, in few words.
    pub fn said(&self) -> String {
        match self {
            Self::Refused { said, .. } => said.clone(),
            other => other.to_string(),
        }
    }
}

impl From<ClientError> for bursar_engine::Error {
    fn from(error: ClientError) -> Self {
        Self::new(bursar_engine::ErrorKind::Io, error.to_string())
    }
}

/// What runs calls: the clients themselves, or a test's.
pub trait Clients: Send {
    /// Runs a call; gives its standard output.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    fn run(&self, call: &Call) -> Result<Vec<u8>, ClientError>;
}

impl<C: Clients + ?Sized> Clients for Box<C> {
    fn run(&self, call: &Call) -> Result<Vec<u8>, ClientError> {
        (**self).run(call)
    }
}

/// The clients of this machine.
#[derive(Clone, Debug)]
pub struct SystemClients {
    /// By what they are run: empty, or `sudo -n -u slurm`. The first word is looked for on the `PATH`.
    pub through: Vec<String>,
    /// Their environment beside that of this process: `SLURM_CONF`, `SLURM_JWT`.
    pub env: BTreeMap<String, String>,
    /// How long a call may take.
    pub limit: Duration,
}

impl Default for SystemClients {
    fn default() -> Self {
        Self { through: Vec::new(), env: BTreeMap::new(), limit: Duration::from_secs(20) }
    }
}

/// Most that is read of an answer, in bytes: some hundred thousand jobs.
const OUTPUT_BYTES_MAX: u64 = 512 << 20;

impl Clients for SystemClients {
    fn run(&self, call: &Call) -> Result<Vec<u8>, ClientError> {
        let mut command =
            self.command(call.through.as_ref().unwrap_or(&self.through), call.program.name());
        command.args(&call.args);
        self.run_command(command, call)
    }
}

impl SystemClients {
    /// Runs what a call is; it says so in errors.
    fn run_command(&self, mut command: Command, call: &Call) -> Result<Vec<u8>, ClientError> {
        let until = Instant::now() + self.limit;
        let not_run = |error| ClientError::NotRun { call: call.to_string(), error };
        command
            .stdin(if call.input.is_empty() { Stdio::null() } else { Stdio::piped() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = command.spawn().map_err(not_run)?;
        let output = collect(child.stdout.take());
        let errors = collect(child.stderr.take());
        if let Some(mut stdin) = child.stdin.take() {
            let input = call.input.clone();
            // A client that reads nothing and says nothing must not stop us.
            std::thread::spawn(move || drop(stdin.write_all(&input)));
        }
        let timed_out =
            || ClientError::TimedOut { call: call.to_string(), limit_ms: self.limit.as_millis() };
        let (Some(output), Some(errors)) = (within(&output, until), within(&errors, until)) else {
            end(&mut child);
            return Err(timed_out());
        };
        let status = loop {
            match child.try_wait().map_err(not_run)? {
                Some(status) => break status,
                None if Instant::now() >= until => {
                    end(&mut child);
                    return Err(timed_out());
                }
                // It has closed its output, so it ends now.
                None => std::thread::sleep(Duration::from_micros(200)),
            }
        };
        if output.len() as u64 >= OUTPUT_BYTES_MAX {
            let why = "it is too long".to_owned();
            return Err(ClientError::Unreadable { call: call.to_string(), why });
        }
        if status.success() {
            return Ok(output);
        }
        let said = one_line(&String::from_utf8_lossy(&errors));
        let said = if said.is_empty() { status.to_string() } else { said };
        Err(ClientError::Refused { call: call.to_string(), said, output })
    }

    /// The number of the user as whom Slurm is called.
    ///
    /// # Errors
    ///
    /// One line that says why it is not known.
    pub fn uid(&self) -> Result<u32, String> {
        if self.through.is_empty() {
            return Ok(rustix::process::geteuid().as_raw());
        }
        let answer =
            self.run(&Call::new(Program::Id, ["-u"])).map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&answer);
        let shown = self.through.join(" ");
        text.trim().parse().map_err(|_| format!("{shown} id -u gives no number of a user"))
    }

    fn command(&self, through: &[String], program: &str) -> Command {
        let mut words = through.iter().map(String::as_str).chain([program]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            // Users set these for themselves; they would change what is answered.
            .env_remove("SQUEUE_FORMAT")
            .env_remove("SQUEUE_FORMAT2")
            .env_remove("SQUEUE_STATES")
            .env_remove("SQUEUE_PARTITION")
            .env_remove("SQUEUE_SORT")
            .env_remove("SINFO_FORMAT")
            .env_remove("SINFO_PARTITION")
            .env_remove("SACCT_FORMAT")
            .env_remove("SLURM_CLUSTERS")
            .env("SLURM_TIME_FORMAT", "%s")
            .env("LC_ALL", "C.UTF-8")
            .envs(&self.env);
        command
    }
}

/// Reads to the end on a thread of its own.
fn collect(from: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(from) = from {
            let _ = from.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
        }
        let _ = sender.send(bytes);
    });
    receiver
}

fn within(receiver: &Receiver<Vec<u8>>, until: Instant) -> Option<Vec<u8>> {
    match receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
        Ok(bytes) => Some(bytes),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => Some(Vec::new()),
    }
}

/// Kills a client and whatever it runs through.
fn end(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// The lines of a text as one, without what a terminal would obey.
pub(crate) fn one_line(text: &str) -> String {
    let lines: Vec<&str> =
        text.split(['\n', '\r']).map(str::trim).filter(|l| !l.is_empty()).collect();
    let text: String = lines.join("; ").chars().filter(|letter| !letter.is_control()).collect();
    text.chars().take(400).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients that are run through a script of the shell, which gets their names and arguments.
    fn clients(script: &str, limit_ms: u64) -> SystemClients {
        SystemClients {
            through: ["sh", "-c", script, "sh"].map(str::to_owned).to_vec(),
            env: BTreeMap::from([("SAID".to_owned(), "so".to_owned())]),
            limit: Duration::from_millis(limit_ms),
        }
    }

    #[test]
    fn arguments_arrive_as_they_are() {
        let call = Call {
            input: b"input".to_vec(),
            ..Call::new(Program::Squeue, ["a b", "$(x)", "'\n", ""])
        };
        let said = clients("printf '<%s>' \"$@\"; cat; echo $SAID $SLURM_TIME_FORMAT", 10_000);
        let output = said.run(&call).unwrap();
        assert_eq!(output, b"<squeue><a b><$(x)><'\n><>inputso %s\n");
    }

    #[test]
    fn what_a_client_said_is_one_line() {
        let failing =
            clients("echo part; echo ' one' >&2; printf 'two\\033[2J\\n' >&2; exit 3", 10_000);
        let error = failing.run(&Call::new(Program::Scontrol, ["x"])).unwrap_err();
        assert!(error.is_refusal());
        assert_eq!(error.said(), "one; two[2J");
        let ClientError::Refused { output, .. } = error else { panic!("{error}") };
        assert_eq!(output, b"part\n");
    }

    #[test]
    fn a_client_that_hangs_is_killed_with_what_it_runs() {
        let begun = Instant::now();
        let hanging = clients("sleep 1000 & echo here; sleep 1000", 300);
        let error = hanging.run(&Call::new(Program::Sinfo, ["x"])).unwrap_err();
        assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");
        assert!(!error.is_refusal());
        assert!(begun.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn who_runs_them_is_asked_for_a_while_only() {
        assert_eq!(clients("echo 20005", 10_000).uid(), Ok(20005));
        let error = clients("sleep 1000", 300).uid().unwrap_err();
        assert!(error.contains("gave no answer within 300 ms"), "{error}");
        let error = clients("echo nobody >&2; exit 1", 10_000).uid().unwrap_err();
        assert!(error.contains("nobody"), "{error}");
    }

    #[test]
    fn a_client_that_is_not_there_is_said_to_be() {
        let through = vec!["/nonexistent/sudo".to_owned()];
        let missing = SystemClients { through, ..SystemClients::default() };
        let error = missing.run(&Call::new(Program::Sinfo, ["x"])).unwrap_err();
        assert!(matches!(error, ClientError::NotRun { .. }), "{error}");
    }
}
