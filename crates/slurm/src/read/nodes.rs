//! The nodes: `sinfo -N -O`, one row for each.

use super::table::{Mark, Unreadable, present};
use super::tres::{Gpus, gpus_of_gres};
use crate::client::{Call, Program};
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// The fields that are asked for, by the names that `-O` has for them since 22.05.
pub const NODE_FIELDS: [&str; 6] =
    ["NodeList", "StateComplete", "Gres", "Reason", "Comment", "Partition"];

/// A node as Slurm sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its GPUs.
    pub gpus: Gpus,
    /// Its state: `idle`, `mixed`, `drain`, `not_responding` …, in small letters.
    pub states: BTreeSet<String>,
    /// Why it is drained or down.
    pub reason: Option<String>,
    /// What is noted of it.
    pub comment: Option<String>,
    /// Of which partitions, among those that were asked for, it is.
    pub partitions: BTreeSet<String>,
}

impl Node {
    /// Whether it takes no new work because somebody said so.
    pub fn drains(&self) -> bool {
        ["drain", "drained", "draining"].iter().any(|state| self.states.contains(*state))
    }

    /// Whether Slurm gets no answer from it, at the moment, or a controller that was restarted has not heard of it yet.
    pub fn is_silent(&self) -> bool {
        self.states.contains("not_responding") || self.states.contains("unknown")
    }

    /// Whether it cannot run work, whoever drained it and whether or not it answers.
    pub fn is_broken(&self) -> bool {
        let broken = [
            "down",
            "fail",
            "failing",
            "error",
            "future",
            "invalid_reg",
            "powered_down",
            "powering_down",
            "power_down",
            "reboot_issued",
            "rebooting",
            "maintenance",
            "planned_down",
        ];
        broken.iter().any(|state| self.states.contains(*state))
    }
}

/// The call that [`read_nodes`] reads the answer of: the nodes of these partitions.
pub fn node_call(partitions: &[String], mark: &Mark) -> Call {
    let format = mark.long_format(&NODE_FIELDS);
    Call::new(Program::Sinfo, ["-h", "-N", "-p", &partitions.join(","), "-O", &format])
}

/// Reads the answer to [`node_call`]: each node once, in the order of their names and numbers.
///
/// # Errors
///
/// If it is none.
pub fn read_nodes(answer: &[u8], mark: &Mark) -> Result<Vec<Node>, Unreadable> {
    let mut nodes = Vec::new();
    for row in mark.rows(answer, NODE_FIELDS.len())? {
        let [name, state, gres, reason, comment, partition] = &row[..] else {
            return Err(Unreadable("a row has not the fields that were asked for".to_owned()));
        };
        let name = name.trim().to_owned();
        if name.is_empty() || name.contains(['[', ',']) {
            return Err(Unreadable(format!("'{}' is not one node", name.escape_debug())));
        }
        let state = state.to_ascii_lowercase();
        let states =
            state.split('+').map(|one| one.trim().to_owned()).filter(|one| !one.is_empty());
        nodes.push(Node {
            name,
            gpus: gpus_of_gres(gres),
            states: states.collect(),
            reason: present(reason).filter(|reason| *reason != "none").map(str::to_owned),
            comment: present(comment).map(str::to_owned),
            // The default one has a star.
            partitions: BTreeSet::from([partition.trim().trim_end_matches('*').to_owned()]),
        });
    }
    nodes.sort_by(|one, other| natural(&one.name, &other.name));
    nodes.dedup_by(|one, kept| {
        let same = one.name == kept.name;
        if same {
            kept.partitions.append(&mut one.partitions);
        }
        same
    });
    Ok(nodes)
}

/// `n2` before `n10`.
fn natural(one: &str, other: &str) -> Ordering {
    let parts = |text: &str| -> Vec<(String, u64)> {
        let mut parts = vec![(String::new(), 0_u64)];
        let mut in_number = false;
        for letter in text.chars() {
            let digit = letter.to_digit(10);
            if digit.is_none() && in_number {
                parts.push((String::new(), 0));
            }
            in_number = digit.is_some();
            if let Some(last) = parts.last_mut() {
                match digit {
                    Some(digit) => last.1 = last.1.saturating_mul(10).saturating_add(digit.into()),
                    None => last.0.push(letter),
                }
            }
        }
        parts
    };
    parts(one).cmp(&parts(other)).then_with(|| one.cmp(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nodes_are_ordered_by_their_numbers() {
        let mark = Mark::of("@@");
        let answer = b"n10@@idle@@gpu:h100:8@@none@@@@a*@@\n\
            n9@@idle+drain@@gpu:h100:8@@why | so@@(null)@@a*@@\nn10@@idle@@gpu:h100:8@@none@@@@b@@\n";
        let nodes = read_nodes(answer, &mark).unwrap();
        assert_eq!(nodes.iter().map(|node| &*node.name).collect::<Vec<_>>(), ["n9", "n10"]);
        assert!(nodes[0].drains() && !nodes[1].drains());
        assert_eq!(nodes[0].reason.as_deref(), Some("why | so"));
        assert_eq!(nodes[1].partitions, ["a", "b"].map(str::to_owned).into());
        // Just after its controller was restarted it is no node that failed.
        let unknown = read_nodes(b"n1@@unknown@@gpu:h100:8@@none@@@@a@@\n", &mark).unwrap();
        assert!(unknown[0].is_silent() && !unknown[0].is_broken());
        assert!(read_nodes(b"n[1-2]@@idle@@@@@@@@@@\n", &mark).is_err());
    }

    proptest! {
        #[test]
        fn any_two_names_have_one_order(one in "[a-b0-2]{0,6}", other in "[a-b0-2]{0,6}") {
            prop_assert_eq!(natural(&one, &other), natural(&other, &one).reverse());
            prop_assert_eq!(natural(&one, &other) == Ordering::Equal, one == other);
        }
    }
}
