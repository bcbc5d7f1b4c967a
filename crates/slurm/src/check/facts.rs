//! What is asked of a cluster and of this machine.

use crate::client::{Call, ClientError, Clients, Program, one_line};
use crate::gate::GATE_FILE;
use crate::read::{
    Association, Config, Job, Mark, Node, Partition, QueueWhat, Unreadable, administration_call,
    associations_call, config_call, node_call, partitions_call, preempting_call, queue_call,
    read_administration, read_associations, read_config, read_nodes, read_partitions,
    read_preempting, read_queue,
};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// What is to be governed, and how.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The partitions.
    pub partitions: Vec<String>,
    /// The folder where the gate's table is to be written by us.
    pub gate: Option<PathBuf>,
    /// The file that names the partitions, for people.
    pub file: String,
    /// By what the clients are run; empty if by nothing.
    pub run_by: Vec<String>,
    /// Whether it is only to be watched.
    pub watches: bool,
    /// Whether the clients have a token, so that it matters little who runs them.
    pub has_token: bool,
}

/// A file as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Where it should be.
    pub path: PathBuf,
    /// Its text; none if there is no such file. Why it could not be read, if neither is known.
    pub text: Result<Option<String>, String>,
}

impl Seen {
    /// Looks at a file. Where its folder is not here either, the file may well be on another machine.
    pub fn look(path: PathBuf) -> Self {
        let text = match std::fs::read(&path) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => match path.parent() {
                Some(folder) if folder.is_dir() => Ok(None),
                Some(_) | None => Err("its folder is not on this machine".to_owned()),
            },
            Err(error) => Err(error.to_string()),
        };
        Self { path, text }
    }
}

/// What was asked. Why it could not be found out stands where it could not.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The version of each client.
    pub versions: Vec<(Program, Result<String, String>)>,
    /// What slurmctld answers to a ping.
    pub ping: Result<String, String>,
    /// The configuration in force.
    pub config: Result<Config, String>,
    /// All partitions.
    pub partitions: Result<Vec<Partition>, String>,
    /// The nodes of the governed ones.
    pub nodes: Result<Vec<Node>, String>,
    /// The jobs of the governed ones that have not ended.
    pub jobs: Result<Vec<Job>, String>,
    /// The accounts and their users.
    pub associations: Result<Vec<Association>, String>,
    /// Who the clients are run as: number and name.
    pub caller: Result<(u32, String), String>,
    /// What the accounts let them do; none of a user that they do not know.
    pub level: Result<Option<String>, String>,
    /// Which QOS may displace jobs of which others.
    pub preempting: Result<Vec<(String, String)>, String>,
    /// `job_submit.lua` beside `slurm.conf`.
    pub script: Option<Seen>,
    /// The gate's table.
    pub table: Option<Seen>,
    /// Whether the gate's table can be written where it is to be.
    pub writable: Option<Result<(), String>>,
    /// `plugstack.conf`.
    pub plugstack: Option<Seen>,
}

/// The clients that governing uses, and this check.
const PROGRAMS: [Program; 6] = [
    Program::Scontrol,
    Program::Squeue,
    Program::Sinfo,
    Program::Sacct,
    Program::Scancel,
    Program::Sacctmgr,
];

impl Facts {
    /// Asks for all of it. Each call has its time limit; what depends on an answer that did not come is not asked.
    pub fn gather(clients: &impl Clients, wanted: &Wanted) -> Self {
        let version = |program: Program| {
            let answer = clients.run(&Call::new(program, ["--version"])).map_err(said);
            (program, answer.map(|bytes| text(&bytes)))
        };
        let versions: Vec<_> = PROGRAMS.into_iter().map(version).collect();
        let config = match ask(clients, &config_call(), read_config) {
            Ok(config) => config,
            Err(why) => return Self::of_none(versions, &why),
        };
        let ping = clients.run(&Call::new(Program::Scontrol, ["ping"]));
        let ping = ping.map(|bytes| text(&bytes)).map_err(said);
        let partitions = ask(clients, &partitions_call(), read_partitions);
        let there: Vec<String> = match &partitions {
            Ok(all) => all.iter().map(|one| one.name.clone()).collect(),
            Err(_) => Vec::new(),
        };
        let governed: Vec<String> =
            wanted.partitions.iter().filter(|name| there.contains(name)).cloned().collect();
        let mark = Mark::new();
        let (nodes, jobs) = if governed.is_empty() {
            (Ok(Vec::new()), Ok(Vec::new()))
        } else {
            let call = queue_call(&QueueWhat::Live(governed.clone()), &mark);
            (
                ask(clients, &node_call(&governed, &mark), |answer| read_nodes(answer, &mark)),
                ask(clients, &call, |answer| read_queue(answer, &mark)),
            )
        };
        let caller = caller(clients);
        let level = caller
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|(_, name)| ask(clients, &administration_call(name), read_administration));
        let cluster = config.get("ClusterName").unwrap_or("cluster");
        let associations = ask(clients, &associations_call(cluster), read_associations);
        let preempting = match config.get("PreemptType") {
            Some("preempt/qos") => ask(clients, &preempting_call(), read_preempting),
            Some(_) | None => Ok(Vec::new()),
        };
        let conf = config.get("SLURM_CONF").map(Path::new);
        let folder = conf.and_then(Path::parent);
        let table = wanted.gate.as_deref().or(folder);
        let plugstack = config.get("PlugStackConfig");
        Self {
            script: folder.map(|folder| Seen::look(folder.join("job_submit.lua"))),
            table: table.map(|folder| Seen::look(folder.join(GATE_FILE))),
            writable: wanted.gate.as_deref().map(writable),
            plugstack: plugstack.map(|path| Seen::look(path.into())),
            versions,
            ping,
            config: Ok(config),
            partitions,
            nodes,
            jobs,
            associations,
            caller,
            level,
            preempting,
        }
    }

    /// What is known where slurmctld does not answer: each question more would wait for it again.
    fn of_none(versions: Vec<(Program, Result<String, String>)>, why: &str) -> Self {
        let unknown = || why.to_owned();
        Self {
            versions,
            ping: Err(unknown()),
            config: Err(unknown()),
            partitions: Err(unknown()),
            nodes: Err(unknown()),
            jobs: Err(unknown()),
            associations: Err(unknown()),
            caller: Err(unknown()),
            level: Err(unknown()),
            preempting: Err(unknown()),
            script: None,
            table: None,
            writable: None,
            plugstack: None,
        }
    }
}

fn ask<T>(
    clients: &impl Clients,
    call: &Call,
    read: impl FnOnce(&[u8]) -> Result<T, Unreadable>,
) -> Result<T, String> {
    let answer = clients.run(call).map_err(said)?;
    read(&answer)
        .map_err(|why| format!("{} answered what cannot be read: {why}", call.program.name()))
}

fn caller(clients: &impl Clients) -> Result<(u32, String), String> {
    let id = |what: &str| clients.run(&Call::new(Program::Id, [what])).map(|bytes| text(&bytes));
    let uid = id("-u").map_err(said)?;
    let uid = uid.parse().map_err(|_| format!("id -u answered '{}'", uid.escape_debug()))?;
    Ok((uid, id("-un").map_err(said)?))
}

fn said(error: ClientError) -> String {
    match error {
        ClientError::NotRun { error, .. } => error.to_string(),
        // Some say on their standard output what is wrong.
        ClientError::Refused { said, output, .. }
            if said.starts_with("exit status") && !output.is_empty() =>
        {
            text(&output)
        }
        other => other.said(),
    }
}

fn text(bytes: &[u8]) -> String {
    one_line(&String::from_utf8_lossy(bytes))
}

fn writable(folder: &Path) -> Result<(), String> {
    if !folder.is_dir() {
        return Err("there is no such folder on this machine".to_owned());
    }
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)
        .map_err(|error| error.to_string())
}
