//! Where workloads of all sources come together: what they are checked against, and the total order
//! that they are given.

use std::collections::BTreeMap;

use bursar_trace::one_line;

use crate::budgets::{fraction, no_leaf, shares_below};
use crate::cluster::Cluster;
use crate::error::{ErrorKind, Fault, Place, quote};
use crate::model::{BudgetChange, BudgetSpec, Settings, WorkloadSpec};
use crate::room::Room;

/// All that a workload may refer to.
pub(crate) struct World<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) budgets: &'a [BudgetSpec],
    pub(crate) settings: &'a Settings,
    pub(crate) seed: u64,
    leaves: BTreeMap<&'a str, u32>,
    /// Per budget the sum of its children's shares.
    shares_below: Vec<u128>,
    room: Room,
}

impl<'a> World<'a> {
    pub(crate) fn new(
        cluster: &'a Cluster,
        budgets: &'a [BudgetSpec],
        changes: &[BudgetChange],
        settings: &'a Settings,
        seed: u64,
    ) -> Self {
        let leaves = (0_u32..)
            .zip(budgets)
            .filter(|(_, budget)| budget.is_leaf)
            .map(|(index, budget)| (&*budget.path, index))
            .collect();
        let room = Room::new((&cluster.hosts, &cluster.models), budgets, changes, settings);
        let shares_below = shares_below(budgets);
        Self { cluster, budgets, settings, seed, leaves, shares_below, room }
    }

    /// The leaf with this path.
    pub(crate) fn find_leaf(&self, path: &str) -> Option<u32> {
        self.leaves.get(path).copied()
    }

    /// The leaf with this path, or why there is none.
    pub(crate) fn leaf(&self, path: &str) -> Result<u32, String> {
        self.find_leaf(path).ok_or_else(|| self.no_leaf(path))
    }

    /// Why there is no leaf with this path.
    pub(crate) fn no_leaf(&self, path: &str) -> String {
        no_leaf(self.budgets, path)
    }

    /// What part of everything the leaf with this index holds, nearly.
    pub(crate) fn fraction(&self, leaf: u32) -> f64 {
        fraction(self.budgets, &self.shares_below, leaf as usize)
    }

    /// Whether a gang of `gpus` can ever be placed on this cluster.
    pub(crate) fn check_gang(&self, gpus: u32, model: Option<usize>) -> Result<(), String> {
        let named = model.map(|model| (model, &*self.cluster.models[model].name));
        self.room.check_gang(gpus, named)
    }

    /// Whether one workload can ever have `hosts` hosts with `gpus_per_host` GPUs on each.
    pub(crate) fn check_shape(
        &self,
        hosts: u32,
        gpus_per_host: u32,
        model: Option<usize>,
    ) -> Result<(), String> {
        self.room.check_shape(hosts, gpus_per_host, model)
    }

    /// Whether a workload of a size that was found good can ever start: the key at fault, and why.
    pub(crate) fn check_start(&self, spec: &WorkloadSpec) -> Result<(), (&'static str, String)> {
        self.room.check_start(spec)
    }

    /// Whether the contract may be declared.
    pub(crate) fn check_min_runtime(&self, min_runtime_ms: u64) -> Result<(), String> {
        let horizon_ms = self.settings.horizon_ms;
        if min_runtime_ms <= horizon_ms {
            return Ok(());
        }
        Err(format!(
            "{} is above the horizon of {}, the longest that may be declared",
            show_ms(min_runtime_ms),
            show_ms(horizon_ms)
        ))
    }
}

/// A length of time as people write it, such as `1h30m`.
pub(crate) fn show_ms(ms: u64) -> String {
    const UNITS: [(u64, &str); 5] =
        [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    let mut rest = ms;
    let mut out = String::new();
    for (unit_ms, unit) in UNITS {
        if rest >= unit_ms {
            out.push_str(&format!("{}{unit}", rest / unit_ms));
            rest %= unit_ms;
        }
    }
    if out.is_empty() { "0s".into() } else { out }
}

/// How ids of one source are ordered when nothing else decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum IdOrder {
    /// Byte order: lists, generators, our own CSV.
    Bytes,
    /// Order of arrival here: traces in foreign formats.
    Rows,
}

struct Draft {
    workload: WorkloadSpec,
    order: IdOrder,
    /// Where it came from, for a duplicate: a line of the scenario, or 0.
    line: usize,
}

/// Collects workloads and their users.
#[derive(Default)]
pub(crate) struct Intake {
    drafts: Vec<Draft>,
    users: Vec<String>,
    users_by_name: BTreeMap<String, u32>,
    /// How many of them generator blocks drew.
    drawn: usize,
    /// The longest span that a generator block covered.
    pub(crate) span_ms: Option<u64>,
    /// What a person should know about what was read, one line each.
    notes: Vec<String>,
}

impl Intake {
    /// The index of a user, new or known.
    pub(crate) fn user(&mut self, name: &str) -> u32 {
        if let Some(index) = self.users_by_name.get(name) {
            return *index;
        }
        let index = self.users.len() as u32;
        self.users.push(name.to_owned());
        self.users_by_name.insert(name.to_owned(), index);
        index
    }

    /// Takes in one workload; its `tie` is given later.
    pub(crate) fn push(&mut self, workload: WorkloadSpec, order: IdOrder, line: usize) {
        self.drafts.push(Draft { workload, order, line });
    }

    /// Takes in workloads that a generator block drew.
    pub(crate) fn push_drawn(&mut self, workloads: Vec<WorkloadSpec>) {
        self.drawn += workloads.len();
        workloads.into_iter().for_each(|workload| self.push(workload, IdOrder::Bytes, 0));
    }

    /// How many workloads generator blocks drew.
    pub(crate) fn drawn(&self) -> usize {
        self.drawn
    }

    /// A person should know this.
    pub(crate) fn note(&mut self, text: &str) {
        self.notes.push(one_line(text).into_owned());
    }

    /// All that a person should know.
    pub(crate) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Gives ties and sorts. Refuses equal ids.
    pub(crate) fn finish(self) -> Result<(Vec<WorkloadSpec>, Vec<String>), Fault> {
        let mut drafts = self.drafts;
        if drafts.is_empty() {
            return Err(Fault::whole(ErrorKind::Missing, "workloads: there are none"));
        }
        let mut by_id: Vec<u32> = (0..drafts.len() as u32).collect();
        by_id.sort_by(|a, b| {
            drafts[*a as usize].workload.id.cmp(&drafts[*b as usize].workload.id).then(a.cmp(b))
        });
        for pair in by_id.windows(2) {
            let (first, second) = (&drafts[pair[0] as usize], &drafts[pair[1] as usize]);
            if first.workload.id == second.workload.id {
                return Err(duplicate(first, second));
            }
        }
        let mut tie = 0;
        for index in by_id {
            let draft = &mut drafts[index as usize];
            if draft.order == IdOrder::Bytes {
                draft.workload.tie = tie;
                tie += 1;
            }
        }
        for draft in drafts.iter_mut().filter(|draft| draft.order == IdOrder::Rows) {
            draft.workload.tie = tie;
            tie += 1;
        }
        let mut workloads: Vec<WorkloadSpec> =
            drafts.into_iter().map(|draft| draft.workload).collect();
        workloads.sort_unstable_by_key(|workload| (workload.submit_ms, workload.tie));
        Ok((workloads, self.users))
    }
}

fn duplicate(first: &Draft, second: &Draft) -> Fault {
    let id = quote(&first.workload.id);
    let message = match first.line {
        0 => format!("workloads: duplicate id {id}"),
        line => format!("workloads: duplicate id {id}, first on line {line}"),
    };
    let place = match second.line {
        0 => Place::Whole,
        line => Place::Line(line),
    };
    Fault { kind: ErrorKind::Duplicate, place, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_as_people_write_them() {
        for (ms, want) in [(0, "0s"), (5_400_000, "1h30m"), (86_400_001, "1d1ms")] {
            assert_eq!(show_ms(ms), want);
        }
    }
}
