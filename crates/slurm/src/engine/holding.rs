//! Who governs: two Bursars on one Slurm would start and stop each other's work.
//!
//! Whoever governs keeps a *hold* in Slurm itself, where all machines see it: a word in the comment of the first node of
//! each governed partition, with who it is and when that was last renewed. Whoever finds a fresh one of somebody else on
//! any of its nodes orders nothing. Two that come at the same moment both write theirs; the next look shows each of them
//! whose stayed. What else a comment says stays in it.

use super::SlurmEngine;
use crate::options::Holder;
use crate::read::Node;
use bursar_engine::{Error, ErrorKind};
use std::collections::BTreeSet;
use std::fmt;

/// What begins the word.
const MARK: &str = "bursar:1;";

/// How often a hold is renewed, in seconds. It costs one call of scontrol.
const RENEW_S: u64 = 60;

/// How old a hold may be that counts, in seconds: some renewals may fail, and clocks differ a little.
const HOLD_S: u64 = 180;

/// A hold, as it stands in a comment: `bursar:1;site=5f0a;on=head1/9c2e;at=1796032495`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hold {
    holder: Holder,
    at_s: u64,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Holder { site, place } = &self.holder;
        write!(f, "{MARK}site={site};on={place};at={}", self.at_s)
    }
}

impl Hold {
    /// The one in a comment, if there is one.
    fn of(comment: &str) -> Option<Self> {
        let word = comment.split_whitespace().find_map(|word| word.strip_prefix(MARK))?;
        let value =
            |key: &str| word.split(';').find_map(|part| part.strip_prefix(key)?.strip_prefix('='));
        let holder = Holder { site: value("site")?.to_owned(), place: value("on")?.to_owned() };
        Some(Self { holder, at_s: value("at")?.parse().ok()? })
    }

    fn is_fresh(&self, now_s: u64) -> bool {
        now_s.abs_diff(self.at_s) <= HOLD_S
    }
}

/// A comment with this hold in place of any other.
fn with_hold(comment: &str, hold: &Hold) -> String {
    let theirs = comment.split_whitespace().filter(|word| !word.starts_with(MARK));
    theirs.map(str::to_owned).chain([hold.to_string()]).collect::<Vec<_>>().join(" ")
}

/// What is to be done about the holds that are seen.
#[derive(Debug, PartialEq, Eq)]
enum Holding {
    /// Somebody else has the nodes.
    Theirs(Hold),
    /// These comments are to be written: of which node, and what. It is pressing where no fresh hold of ours is there.
    Ours { write: Vec<(String, String)>, pressing: bool },
}

fn holding(nodes: &[Node], holder: &Holder, takes_over: bool, now_s: u64) -> Holding {
    let holds = nodes.iter().filter_map(|node| Hold::of(node.comment.as_deref()?));
    let others = holds.filter(|hold| hold.holder != *holder && hold.is_fresh(now_s));
    if let Some(hold) = others.max_by_key(|hold| hold.at_s).filter(|_| !takes_over) {
        return Holding::Theirs(hold);
    }
    let hold = Hold { holder: holder.clone(), at_s: now_s };
    let (mut partitions, mut write, mut pressing) = (BTreeSet::new(), Vec::new(), false);
    for node in nodes {
        // Not only of the first ones: who takes over leaves nobody else's.
        let comment = node.comment.as_deref().unwrap_or_default();
        let found = Hold::of(comment);
        let is_first =
            node.partitions.iter().filter(|one| partitions.insert((*one).clone())).count() > 0;
        let ours = found.as_ref().is_some_and(|found| found.holder == *holder);
        let is_new =
            ours && found.as_ref().is_some_and(|found| now_s.abs_diff(found.at_s) < RENEW_S);
        let is_theirs = found.as_ref().is_some_and(|found| !ours && found.is_fresh(now_s));
        if is_first && !is_new || is_theirs {
            pressing |= !(ours && found.is_some_and(|found| found.is_fresh(now_s)));
            write.push((node.name.clone(), with_hold(comment, &hold)));
        }
    }
    Holding::Ours { write, pressing }
}

impl SlurmEngine {
    /// Sees to it that nobody else governs these nodes, by the nodes as they were just seen.
    pub(super) fn hold(&mut self) -> Result<(), Error> {
        let Some(holder) = self.options.holder.clone() else { return Ok(()) };
        let now_s = crate::now_ms() / 1000;
        self.holds = false;
        match holding(&self.nodes, &holder, self.options.takes_over, now_s) {
            Holding::Theirs(hold) => {
                let Holder { site, place } = hold.holder;
                let ago = now_s.abs_diff(hold.at_s);
                Err(Error::new(
                    ErrorKind::InUse,
                    format!(
                        "another Bursar governs these nodes: site {site} on {place}, seen {ago} s ago. Stop it; if it is \
                         gone, this one may come up {HOLD_S} s after it was last seen, or at once with --take-over"
                    ),
                ))
            }
            Holding::Ours { write, pressing } => {
                for (node, comment) in write {
                    let args = [format!("NodeName={node}"), format!("Comment={comment}")];
                    let written = self.scontrol(["update".to_owned()].into_iter().chain(args));
                    // An older one of ours is there still, and this is done again.
                    if let Err(error) = written
                        && pressing
                    {
                        return Err(error.into());
                    }
                }
                (self.holds, self.options.takes_over) = (true, false);
                Ok(())
            }
        }
    }

    /// Whether anything may be ordered. Who lost his hold looks again.
    pub(super) fn must_hold(&mut self) -> Result<(), Error> {
        if self.holds || self.options.holder.is_none() {
            return Ok(());
        }
        self.look_at_nodes()?;
        self.hold()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{Mark, read_nodes};

    fn holder(name: &str) -> Holder {
        Holder { site: name.to_owned(), place: "head1/9c2e".to_owned() }
    }

    fn nodes(comments: [&str; 3]) -> Vec<Node> {
        let row = |(at, comment): (usize, &str)| {
            let partition = if at == 3 { "b" } else { "a" };
            format!("n{at}@@idle@@gpu:h100:8@@none@@{comment}@@{partition}@@\n")
        };
        let answer: String = (1..).zip(comments).map(row).collect();
        read_nodes(answer.as_bytes(), &Mark::of("@@")).unwrap()
    }

    fn written(comments: [&str; 3], takes_over: bool) -> Vec<(String, String)> {
        match holding(&nodes(comments), &holder("x"), takes_over, 1000) {
            Holding::Ours { write, .. } => write,
            Holding::Theirs(hold) => panic!("{hold}"),
        }
    }

    #[test]
    fn the_first_node_of_each_partition_says_who_governs() {
        let ours = "bursar:1;site=x;on=head1/9c2e;at=1000";
        let both =
            [("n1".to_owned(), ours.to_owned()), ("n3".to_owned(), format!("a bad fan {ours}"))];
        assert_eq!(written(["(null)", "(null)", "a bad fan"], false), both);
        // Not again before it is time.
        let young = "bursar:1;site=x;on=head1/9c2e;at=950";
        assert_eq!(written([young, "", young], false), []);
        let old = "bursar:1;site=x;on=head1/9c2e;at=940";
        assert_eq!(written([old, "", young], false), both[..1]);
        let pressing =
            |first: &str| match holding(&nodes([first, "", young]), &holder("x"), false, 1000) {
                Holding::Ours { pressing, .. } => pressing,
                Holding::Theirs(hold) => panic!("{hold}"),
            };
        assert!(!pressing(old) && pressing("") && pressing("bursar:1;site=x;on=head1/9c2e;at=1"));
    }

    #[test]
    fn who_finds_somebody_elses_orders_nothing() {
        for other in
            ["bursar:1;site=y;on=head1/9c2e;at=820", "bursar:1;site=x;on=head2/9c2e;at=1180"]
        {
            // Anywhere on the nodes.
            for comments in [[other, "", ""], ["", other, ""], ["", "", other]] {
                let found = holding(&nodes(comments), &holder("x"), false, 1000);
                assert_eq!(found, Holding::Theirs(Hold::of(other).unwrap()));
                // Unless he is told to: then no other hold stays.
                assert!(
                    written(comments, true)
                        .iter()
                        .all(|(_, comment)| Hold::of(comment).unwrap().holder == holder("x"))
                );
            }
        }
        // One that is old counts no more.
        let gone = "bursar:1;site=y;on=head1/9c2e;at=819";
        assert_eq!(written([gone, "", gone], false).len(), 2);
    }
}
