//! Lines, waits and what was owed, summed for budgets, people and the whole.

use super::facts::Facts;
use super::owed::Owed;
use super::waits::Waits;
use super::{AttemptRow, BudgetRow, Cause, ClusterRow, PersonRow, Report, Sums, met_share, share};
use std::collections::BTreeMap;

/// What one row gathers.
#[derive(Clone, Debug, Default)]
struct Row {
    sums: Sums,
    /// The workload of the latest line: lines come in their order.
    last: Option<u64>,
    first_ms: Vec<u64>,
    waited_ms: Vec<u64>,
}

impl Row {
    fn add(&mut self, line: &AttemptRow) {
        let sums = &mut self.sums;
        sums.used_gpu_ms += line.used_gpu_ms;
        sums.unallocated_gpu_ms += if line.allocated { 0 } else { line.used_gpu_ms };
        sums.delivered_gpu_ms += line.delivered_gpu_ms;
        sums.lost_gpu_ms += line.lost_gpu_ms;
        sums.attempts += 1;
        if self.last.replace(line.workload) != Some(line.workload) {
            sums.workloads += 1;
        }
        if let Some(rule) = line.preempted_by_rule {
            sums.preemptions += 1;
            sums.preemptions_allocated += u64::from(line.allocated);
            *sums.preemptions_by_rule.entry(rule).or_default() += 1;
        }
        match line.breach {
            Some(Cause::Scheduler) => sums.breaches.scheduler += 1,
            Some(Cause::HostFailure) => sums.breaches.host_failure += 1,
            None => {}
        }
    }
}

/// The budgets at and above a path, itself first, the root last.
fn upwards(path: &str) -> impl Iterator<Item = &str> {
    fn above(path: &str) -> Option<&str> {
        match path.rsplit_once('/') {
            Some((above, _)) => Some(above),
            None => (!path.is_empty()).then_some(""),
        }
    }
    std::iter::successors(Some(path), |path| above(path))
}

impl Facts {
    /// The report.
    #[must_use]
    pub fn report(self) -> Report {
        let lines = self.lines();
        let trees = self.trees();
        let owed = self.owed(&trees, &self.time(&trees));
        let mut budgets: BTreeMap<Vec<&str>, (f64, Row)> = BTreeMap::new();
        for (path, &fraction) in trees.paths.iter().filter(|(path, _)| self.scope.shows(path)) {
            budgets.insert(parts(path), (fraction, Row::default()));
        }
        let mut people: BTreeMap<&str, Row> = BTreeMap::new();
        let mut all = Row::default();
        for (at, line) in &lines {
            let work = &self.works[*at];
            all.add(line);
            people.entry(&work.user).or_default().add(line);
            for path in upwards(&work.budget) {
                if let Some((_, row)) = budgets.get_mut(&parts(path)) {
                    row.add(line);
                }
            }
        }
        let mut classes: BTreeMap<&'static str, Vec<u64>> = BTreeMap::new();
        for work in &self.works {
            let waited = self.waited(work);
            if let Some(first_ms) = waited.first_ms {
                for class in self.classes(work) {
                    classes.entry(class).or_default().push(first_ms);
                }
            }
            if work.min_runtime_ms == 0 {
                // Nothing is promised to it.
                continue;
            }
            let add = |row: &mut Row| {
                row.first_ms.extend(waited.first_ms);
                row.waited_ms.extend(waited.in_period_ms);
            };
            if waited.first_ms.is_some() || waited.in_period_ms.is_some() {
                add(people.entry(&work.user).or_default());
            }
            for path in upwards(&work.budget) {
                if let Some((_, row)) = budgets.get_mut(&parts(path)) {
                    add(row);
                }
            }
        }
        let mut rows: Vec<BudgetRow> = budgets
            .into_iter()
            .map(|(path, (fraction, row))| BudgetRow {
                path: path.join("/"),
                fraction,
                unallocated_share: share(row.sums.unallocated_gpu_ms, row.sums.used_gpu_ms),
                sums: row.sums,
                first_waits: Waits::of(row.first_ms),
                waited: Waits::of(row.waited_ms),
                ..BudgetRow::default()
            })
            .collect();
        self.add_owed(&mut rows, &owed, &lines);
        let cluster = self.is_whole.then(|| self.cluster(&lines, &all.sums, rows.first()));
        let person = |(user, row): (&str, Row)| PersonRow {
            user: user.to_owned(),
            sums: row.sums,
            first_waits: Waits::of(row.first_ms),
            waited: Waits::of(row.waited_ms),
        };
        Report {
            site: self.site.clone(),
            from_unix_ms: self.unix_ms + self.from_ms,
            to_unix_ms: self.unix_ms + self.to_ms,
            budget: self.budget.clone(),
            cluster,
            budgets: rows,
            people: people.into_iter().map(person).collect(),
            waits: classes.into_iter().map(|(class, waits)| (class, Waits::of(waits))).collect(),
            notes: self.notes.clone(),
            attempts: self.attempts.then(|| lines.into_iter().map(|(_, line)| line).collect()),
        }
    }

    /// What leaves were owed, and what of it was met, summed up the tree.
    fn add_owed(
        &self,
        rows: &mut [BudgetRow],
        owed: &BTreeMap<&str, Owed>,
        lines: &[(usize, AttemptRow)],
    ) {
        let mut delivered: BTreeMap<&str, u64> = BTreeMap::new();
        for (_, line) in lines {
            *delivered.entry(line.budget.as_str()).or_default() += line.delivered_gpu_ms;
        }
        let places: BTreeMap<String, usize> =
            rows.iter().enumerate().map(|(at, row)| (row.path.clone(), at)).collect();
        for (&leaf, owed_to) in owed {
            let met = owed_to.owed.min(delivered.get(leaf).copied().unwrap_or(0));
            for at in upwards(leaf).filter_map(|path| places.get(path)) {
                let row = &mut rows[*at];
                row.allocation_gpu_ms += owed_to.allocation;
                row.demand_gpu_ms += owed_to.demand;
                row.owed_gpu_ms += owed_to.owed;
                row.met_gpu_ms += met;
            }
        }
        for row in rows {
            row.delivered_ratio = met_share(row.met_gpu_ms, row.owed_gpu_ms);
        }
    }

    /// The whole cluster, host by host.
    fn cluster(
        &self,
        lines: &[(usize, AttemptRow)],
        all: &Sums,
        root: Option<&BudgetRow>,
    ) -> ClusterRow {
        let span_ms = self.to_ms - self.from_ms;
        // Per host, GPU-time out of service and GPU-time given to work.
        let mut hosts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (place, host) in self.hosts.iter().enumerate() {
            let out_ms = self.out_of_service_ms(place as u32);
            hosts.insert(&host.name, (u64::from(host.gpus) * out_ms, 0));
        }
        for (at, line) in lines {
            let attempts = &self.works[*at].attempts;
            let Ok(place) = attempts.binary_search_by_key(&line.attempt, |one| one.number) else {
                continue;
            };
            for (host, gpus) in &attempts[place].placement {
                if let Some((_, given)) = hosts.get_mut(host.as_str()) {
                    *given += u64::from(*gpus) * (line.to_unix_ms - line.from_unix_ms);
                }
            }
        }
        let (mut idle, mut out, mut exact) = (0, 0, true);
        for host in &self.hosts {
            let (out_of, given) = hosts[host.name.as_str()];
            let in_service = u64::from(host.gpus) * span_ms - out_of;
            exact &= given <= in_service;
            idle += in_service.saturating_sub(given);
            out += out_of;
        }
        let total: u64 = self.hosts.iter().map(|host| u64::from(host.gpus) * span_ms).sum();
        let (used, in_service) = (all.used_gpu_ms, total - out);
        ClusterRow {
            total_gpu_ms: total,
            in_service_gpu_ms: in_service,
            out_of_service_gpu_ms: out,
            allocated_gpu_ms: used - all.unallocated_gpu_ms,
            unallocated_gpu_ms: all.unallocated_gpu_ms,
            idle_gpu_ms: idle,
            lost_gpu_ms: all.lost_gpu_ms,
            availability: share(in_service, total),
            occupancy: share(used, in_service),
            unallocated_share: share(all.unallocated_gpu_ms, used),
            goodput: share(used.saturating_sub(all.lost_gpu_ms), in_service),
            delivered_ratio: root.map_or(1.0, |root| root.delivered_ratio),
            conservation_exact: exact && used + idle + out == total,
        }
    }

    /// How long a host was out of service in the period.
    fn out_of_service_ms(&self, host: u32) -> u64 {
        let mut since = None;
        let mut out_ms = 0;
        let within =
            |begin: u64, end: u64| end.min(self.to_ms).saturating_sub(begin.max(self.from_ms));
        for change in self.service.iter().filter(|change| change.host == host) {
            match (change.is_in, since) {
                (true, Some(begin)) => {
                    out_ms += within(begin, change.at_ms);
                    since = None;
                }
                (false, None) => since = Some(change.at_ms),
                _ => {}
            }
        }
        out_ms + since.map_or(0, |begin| within(begin, self.to_ms))
    }
}

/// A path as it is ordered: parents before children, siblings by name.
fn parts(path: &str) -> Vec<&str> {
    if path.is_empty() { Vec::new() } else { path.split('/').collect() }
}
