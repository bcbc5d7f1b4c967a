//! What to start, and the environment that work finds itself in.

use crate::error::Error;
use crate::key::AttemptKey;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// GPUs of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostGpus {
    /// The name of the host.
    pub host: String,
    /// Its GPUs by number, each once. May be empty: work that needs none.
    pub gpus: Vec<u32>,
}

/// An attempt to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartOrder {
    /// The attempt.
    pub key: AttemptKey,
    /// The program and its arguments. A program without `/` is looked for on the `PATH` of `env`.
    pub command: Vec<String>,
    /// Where it runs, absolute. None: the home folder of its user.
    pub workdir: Option<PathBuf>,
    /// Its environment, beside what the engine gives ([`StartOrder::environment`]).
    pub env: BTreeMap<String, String>,
    /// Whom it runs as. None: as the engine itself runs.
    pub user: Option<String>,
    /// Where it runs, by host.
    pub placement: Vec<HostGpus>,
    /// Most memory it may use, in bytes, where the engine can enforce that.
    pub memory_bytes: Option<u64>,
    /// Most processor time it may use, in processors, where the engine can enforce that.
    pub cpus: Option<u32>,
    /// The [`Arrival`](crate::Arrival) that this starts, where the work came through the engine's own queue. The
    /// engine has its command and all else, then; what is said here of these does not count. If it is gone by then,
    /// the attempt is claimed all the same, and its end told as never started.
    pub adopts: Option<String>,
    /// Whether the work waits again if it has to leave. With [`adopts`](StartOrder::adopts) the engine keeps it in its
    /// queue then.
    pub resumable: bool,
    /// Whether an attempt before this one left something to resume from.
    pub resume: bool,
    /// Where it saves, absolute: the same folder for all attempts of a workload.
    pub checkpoint_dir: PathBuf,
    /// Until when it will not be preempted, in milliseconds since 1970; none if it may be at any time.
    pub protected_until_unix_ms: Option<u64>,
    /// Size at which a log file is followed by another, in bytes; at least 1.
    pub log_bytes_max: u64,
    /// How many log files are kept; at least 1.
    pub log_files_max: u32,
}

impl StartOrder {
    /// Whether the order makes sense on any host.
    ///
    /// # Errors
    ///
    /// `Invalid`, with what is wrong.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |what: String| Err(Error::invalid(format!("{}: {what}", self.key)));
        if self.adopts.is_none() && self.command.first().is_none_or(String::is_empty) {
            return refuse("no command".to_owned());
        }
        if self.command.iter().any(|word| word.contains('\0')) {
            return refuse("the command has a zero byte".to_owned());
        }
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return refuse(format!("environment '{}' cannot be set", name.escape_debug()));
            }
        }
        let folders = [
            ("workdir", self.workdir.as_deref()),
            ("checkpoint folder", Some(&*self.checkpoint_dir)),
        ];
        for (what, folder) in folders {
            let bytes = folder.map(|folder| folder.as_os_str().as_encoded_bytes());
            if folder.is_some_and(|folder| !folder.is_absolute()) {
                return refuse(format!("the {what} is not an absolute path"));
            }
            if bytes.is_some_and(|bytes| bytes.contains(&0) || str::from_utf8(bytes).is_err()) {
                return refuse(format!("the {what} has a zero byte or is not UTF-8"));
            }
        }
        let mut hosts = BTreeSet::new();
        for part in &self.placement {
            if !hosts.insert(&part.host) {
                return refuse(format!("host {} twice", part.host.escape_debug()));
            }
            let distinct: BTreeSet<u32> = part.gpus.iter().copied().collect();
            if distinct.len() != part.gpus.len() {
                return refuse(format!("a GPU of host {} twice", part.host.escape_debug()));
            }
        }
        if self.memory_bytes == Some(0) || self.cpus == Some(0) {
            return refuse("a limit of nothing".to_owned());
        }
        if self.log_bytes_max == 0 || self.log_files_max == 0 {
            return refuse("no room for a log".to_owned());
        }
        Ok(())
    }

    /// The environment of the work on one host: what the order says, and over it
    ///
    /// | variable | value |
    /// |---|---|
    /// | `BURSAR_WORKLOAD`, `BURSAR_ATTEMPT` | the key |
    /// | `BURSAR_RESUME` | `1` if there is something to resume from, else `0` |
    /// | `BURSAR_CHECKPOINT_DIR` | where to save |
    /// | `BURSAR_PROTECTED_UNTIL` | whole seconds since 1970, or empty |
    /// | `BURSAR_SOCKET` | where to report, if there is such a socket |
    /// | `CUDA_VISIBLE_DEVICES` | its GPUs on that host, `0,1`; empty hides all |
    /// | `CUDA_DEVICE_ORDER` | `PCI_BUS_ID`, without which CUDA numbers GPUs otherwise than the driver |
    pub fn environment(&self, host: &str, socket: Option<&Path>) -> BTreeMap<String, String> {
        let mut env = self.env.clone();
        let gpus =
            self.placement.iter().filter(|part| part.host == host).flat_map(|part| &part.gpus);
        let gpus: Vec<String> = gpus.map(u32::to_string).collect();
        let protected = self.protected_until_unix_ms.map(|ms| (ms / 1000).to_string());
        let mut set = |name: &str, value: String| env.insert(name.to_owned(), value);
        set("BURSAR_WORKLOAD", self.key.workload().to_owned());
        set("BURSAR_ATTEMPT", self.key.attempt().to_string());
        set("BURSAR_RESUME", u8::from(self.resume).to_string());
        set("BURSAR_CHECKPOINT_DIR", self.checkpoint_dir.to_string_lossy().into_owned());
        set("BURSAR_PROTECTED_UNTIL", protected.unwrap_or_default());
        set("CUDA_VISIBLE_DEVICES", gpus.join(","));
        set("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned());
        if let Some(socket) = socket {
            set("BURSAR_SOCKET", socket.to_string_lossy().into_owned());
        }
        env
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> StartOrder {
        StartOrder {
            key: AttemptKey::new("w", 3).unwrap(),
            command: vec!["true".to_owned()],
            workdir: None,
            env: BTreeMap::new(),
            user: None,
            placement: vec![HostGpus { host: "h".to_owned(), gpus: vec![4, 0] }],
            memory_bytes: None,
            cpus: None,
            adopts: None,
            resumable: true,
            resume: true,
            checkpoint_dir: "/c/w".into(),
            protected_until_unix_ms: Some(1_999),
            log_bytes_max: 1,
            log_files_max: 1,
        }
    }

    #[test]
    fn work_is_told_who_it_is() {
        let mut order = order();
        order.env = [("BURSAR_ATTEMPT", "99"), ("X", "y")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into();
        let env = order.environment("h", Some(Path::new("/run/s")));
        let text: Vec<String> = env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            text,
            [
                "BURSAR_ATTEMPT=3",
                "BURSAR_CHECKPOINT_DIR=/c/w",
                "BURSAR_PROTECTED_UNTIL=1",
                "BURSAR_RESUME=1",
                "BURSAR_SOCKET=/run/s",
                "BURSAR_WORKLOAD=w",
                "CUDA_DEVICE_ORDER=PCI_BUS_ID",
                "CUDA_VISIBLE_DEVICES=4,0",
                "X=y",
            ]
        );
        order.protected_until_unix_ms = None;
        let env = order.environment("another", None);
        assert_eq!(env["CUDA_VISIBLE_DEVICES"], "");
        assert_eq!(env["BURSAR_PROTECTED_UNTIL"], "");
        assert!(!env.contains_key("BURSAR_SOCKET"));
    }

    #[test]
    fn orders_that_make_no_sense_are_refused() {
        assert!(order().check().is_ok());
        let changes: [fn(&mut StartOrder); 12] = [
            |order| order.command.clear(),
            |order| order.command = vec![String::new()],
            |order| order.command.push("a\0b".to_owned()),
            |order| drop(order.env.insert("a=b".to_owned(), String::new())),
            |order| drop(order.env.insert("A".to_owned(), "\0".to_owned())),
            |order| order.workdir = Some("here".into()),
            |order| order.checkpoint_dir = "c".into(),
            |order| order.placement[0].gpus = vec![1, 1],
            |order| order.placement.push(order.placement[0].clone()),
            |order| order.memory_bytes = Some(0),
            |order| order.log_bytes_max = 0,
            |order| order.log_files_max = 0,
        ];
        for (index, change) in changes.iter().enumerate() {
            let mut order = order();
            change(&mut order);
            assert!(order.check().is_err(), "change {index}");
        }
    }
}
