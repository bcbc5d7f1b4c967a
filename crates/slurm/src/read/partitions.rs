//! The partitions: `scontrol show partition -o`, one line for each.

use super::hostlist::expand;
use super::table::{Unreadable, present};
use crate::client::{Call, Program};

/// A partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    /// Its name.
    pub name: String,
    /// The names of its nodes.
    pub nodes: Vec<String>,
    /// `UP`, `DOWN`, `DRAIN`, `INACTIVE`.
    pub state: String,
    /// What Slurm does to jobs of it that others may displace: `OFF`, `REQUEUE`, `CANCEL` …
    pub preempt_mode: String,
}

/// The call that [`read_partitions`] reads the answer of: all of them, hidden ones, too.
pub fn partitions_call() -> Call {
    Call::new(Program::Scontrol, ["-a", "-o", "show", "partition"])
}

/// Reads the answer to [`partitions_call`].
///
/// # Errors
///
/// If it is none.
pub fn read_partitions(answer: &[u8]) -> Result<Vec<Partition>, Unreadable> {
    let text = String::from_utf8_lossy(answer);
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.filter(|line| !line.starts_with("No partitions")).map(partition).collect()
}

fn partition(line: &str) -> Result<Partition, Unreadable> {
    let mut found = Partition::default();
    for (key, value) in line.split_whitespace().filter_map(|word| word.split_once('=')) {
        match key {
            "PartitionName" => value.clone_into(&mut found.name),
            "Nodes" => found.nodes = expand(present(value).unwrap_or_default())?,
            "State" => value.clone_into(&mut found.state),
            "PreemptMode" => value.clone_into(&mut found.preempt_mode),
            _ => {}
        }
    }
    if found.name.is_empty() {
        let shown: String = line.chars().take(80).flat_map(char::escape_default).collect();
        return Err(Unreadable(format!("'{shown}' is no partition")));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_for_each() {
        let text = "PartitionName=gpu AllowGroups=ALL Nodes=n[1-2],big PreemptMode=REQUEUE State=UP TRES=cpu=4\n\
                    PartitionName=none Nodes=(null) PreemptMode=OFF State=DOWN\n";
        let found = read_partitions(text.as_bytes()).unwrap();
        assert_eq!(
            (&*found[0].name, &found[0].nodes[..]),
            ("gpu", &["n1", "n2", "big"].map(str::to_owned)[..])
        );
        assert_eq!((&*found[0].preempt_mode, &*found[1].state), ("REQUEUE", "DOWN"));
        assert!(found[1].nodes.is_empty());
        assert!(read_partitions(b"slurm_load_partitions error").is_err());
        assert_eq!(read_partitions(b"No partitions in the system\n"), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            let _ = read_partitions(text.as_bytes());
        }
    }
}
