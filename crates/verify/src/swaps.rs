//! Rule 6, and what rule 7 takes: who may be made to leave for whom, and whether all had to.

use crate::books::{Bound, Sure};
use crate::placement::Allowed;
use crate::pools::Offer;
use crate::replay::Replay;
use crate::report::{Check, Spot};
use crate::state::Phase;
use std::cmp::Ordering;

impl Replay<'_> {
    /// Judges a decision that makes others leave, by what holds before any of them does.
    pub(crate) fn judge_preemption(&mut self, hold: usize) {
        let facts = self.timeline.holds[hold].clone();
        let (by, victims) = (facts.workload, facts.victims);
        let spot = self.spot(by);
        let phase = self.jobs[by as usize].phase;
        let free = phase == Phase::Waiting && self.jobs[by as usize].hold() != Some(Sure::Yes);
        self.findings
            .check(Check::Log, spot, free, || format!("others leave for it, but it is {phase:?}"));
        let start = facts.start.map(|start| &self.entries[start]);
        let like = match start.and_then(|start| start.placement.first()) {
            Some(place) => place.0,
            None => {
                let victim = self.entries[victims[0]].workload;
                self.jobs[victim as usize].placement.first().map_or(0, |place| place.0)
            }
        };
        let (class, sure) = self.class_now(by, like);
        self.findings.check(Check::Swap, spot, class || sure == Sure::Maybe, || {
            "others leave for it, but it is unallocated".into()
        });

        let promise = self.promises.iter().find(|promise| promise.holder == by);
        let due = promise.filter(|promise| promise.until <= self.now).cloned();
        let place = start.map(|start| &start.placement[..]);
        let mut taken = false;
        for &victim in &victims {
            let entry = &self.entries[victim];
            let placement = &self.jobs[entry.workload as usize].placement;
            let on = |host: u32| placement.iter().any(|place| place.0 == host);
            let reserved = due.as_ref().is_some_and(|due| due.hosts.iter().any(|&host| on(host)));
            let by_promise = match entry.rule {
                Some(7) => true,
                Some(_) => false,
                None => due.is_some(),
            };
            let at = Spot { line: entry.line, ..self.spot(entry.workload) };
            if by_promise {
                taken |= !reserved;
                let meant = place.is_none_or(|place| place.iter().any(|place| on(place.0)));
                let rule = start.and_then(|start| start.rule);
                self.findings.check(Check::Swap, at, meant && rule != Some(6), || {
                    "preempted by rule 7, but not for a start by rule 7 on its hosts".into()
                });
            } else {
                self.judge_swap(at, entry.workload, by, like);
            }
        }
        if taken {
            self.judge_taken(by, like, place);
        }
        let by_rule_6 = match start.and_then(|start| start.rule) {
            Some(rule) => rule == 6,
            None => due.is_none() && victims.iter().all(|&v| self.entries[v].rule != Some(7)),
        };
        if by_rule_6 {
            self.judge_minimal(by, &victims);
        }
        match start {
            Some(start) if !start.placement.is_empty() => {
                if !by_rule_6 {
                    self.judge_promised_hosts(by, &start.placement);
                }
                let rule = if by_rule_6 { 6 } else { 7 };
                self.judge_decision(by, &start.placement, rule);
            }
            _ => {
                self.note_class(by, like);
                self.release_promise(by);
            }
        }
    }

    /// Rule 7: at T the holder takes its hosts from everything not protected, whatever the ratios. If
    /// such a T is not in the log, the reservation was made, or moved, and due at this very moment:
    /// then its hosts must hold enough of what a reservation may count.
    fn judge_taken(&mut self, by: u32, like: u32, placement: Option<&[(u32, u32)]>) {
        let spot = self.spot(by);
        let Some(placement) = placement else {
            return self.findings.undecided(Check::Swap);
        };
        let short = placement.iter().find_map(|&(host, gpus)| {
            let facts = &self.hosts[host as usize];
            let soon = facts.gpus - facts.used + facts.leaving - facts.held;
            let counts = facts.runs.iter().filter(|&&run| self.may_count(run, by, like));
            let on_it = |run: &u32| {
                let placement = &self.jobs[*run as usize].placement;
                let here = placement.iter().find(|place| place.0 == host);
                here.map_or(0, |place| i64::from(place.1))
            };
            let counted: i64 = counts.map(on_it).sum();
            (soon + counted < i64::from(gpus)).then_some((host, gpus, soon, counted))
        });
        if short.is_some() && !self.fogs.is_empty() {
            return self.findings.undecided(Check::Swap);
        }
        self.findings.check(Check::Swap, spot, short.is_none(), || {
            let (host, gpus, soon, counted) = short.unwrap_or_default();
            format!(
                "starts by rule 7 without a reservation that is due, and could not have got one: of \
                 {gpus} GPUs on {} it may count {soon} idle or leaving ones and {counted} of others",
                self.scenario.hosts[host as usize].name
            )
        });
    }

    /// Rule 7: whether a reservation of `by` that is due now may count the work of `run`: what rule 6
    /// allows, and from age A on what is of a side above its own.
    fn may_count(&self, run: u32, by: u32, like: u32) -> bool {
        let job = &self.jobs[run as usize];
        if job.told.is_some() || (job.allocated && job.protected_until > self.now) {
            return false;
        }
        if self.swap_fault(run, by, like).is_none() {
            return true;
        }
        let spec = &self.scenario.workloads[by as usize];
        let age = self.now - spec.submit_ms.min(self.now);
        let sides = self.books.sides(self.leaf(by), self.leaf(run));
        age >= self.scenario.settings.reservation_age_ms
            && sides.is_some_and(|(mine, theirs)| {
                let mine = self.books.ratio(mine, 0, Bound::Least);
                self.books.ratio(theirs, 0, Bound::Most).compare(mine) == Ordering::Greater
            })
    }

    /// Rule 6: unallocated; or no longer protected and (a) the swap keeps the order by the margin or
    /// (b) of lower rank in the same leaf.
    fn judge_swap(&mut self, at: Spot<'_>, victim: u32, by: u32, like: u32) {
        let fault = self.swap_fault(victim, by, like);
        if fault.is_some() && !self.fogs.is_empty() && self.leaf(by) != self.leaf(victim) {
            // What may be held unseen may have raised the other side's ratio.
            return self.findings.undecided(Check::Swap);
        }
        let good = fault.is_none();
        self.findings.check(Check::Swap, at, good, || fault.unwrap_or_default());
    }

    fn swap_fault(&self, victim: u32, by: u32, like: u32) -> Option<String> {
        let job = &self.jobs[victim as usize];
        // Who is protected is a matter of rule 5.
        if !job.allocated || job.protected_until > self.now {
            return None;
        }
        let (mine, theirs) = (self.leaf(by), self.leaf(victim));
        let specs = &self.scenario.workloads;
        let (spec, other) = (&specs[by as usize], &specs[victim as usize]);
        let Some((side, against)) = self.books.sides(mine, theirs) else {
            return (spec.rank <= other.rank).then(|| {
                format!(
                    "preempted for {} of the same budget, whose rank {} is not above {}",
                    spec.id, spec.rank, other.rank
                )
            });
        };
        let contract = self.rate(by, like) * u128::from(self.contract(by));
        let after = self.books.ratio(side, contract, Bound::Least);
        let with_margin = after.plus_ppm(self.scenario.settings.margin_ppm);
        let loses = self.books.ratio(against, 0, Bound::Most);
        if with_margin.compare(loses) != Ordering::Greater {
            return None;
        }
        let budgets = &self.scenario.budgets;
        Some(format!(
            "preempted for {}, whose side {:?} would have usage ratio {} after the swap, {} with the \
             margin, above {} of {:?}",
            spec.id,
            budgets[side].path,
            after.shown(),
            with_margin.shown(),
            loses.shown(),
            budgets[against].path
        ))
    }

    /// Rule 6: none of the victims can be spared, with what was idle or leaving on hosts that the
    /// beneficiary may use.
    fn judge_minimal(&mut self, by: u32, victims: &[usize]) {
        // Hosts that it perhaps may not use count as not usable: that spares nobody wrongly.
        let allowed: Vec<Allowed> =
            (0..self.hosts.len() as u32).map(|host| self.may_start_on(by, host)).collect();
        let is_open =
            allowed.contains(&Allowed::Maybe) || self.hosts.iter().any(|host| host.maybe_held > 0);
        let mut gpus_of: Vec<Offer> = Vec::with_capacity(self.hosts.len());
        for (index, host) in self.hosts.iter().enumerate() {
            let gpus = match allowed[index] {
                Allowed::Yes => host.gpus - host.used + host.leaving - host.held - host.maybe_held,
                Allowed::No | Allowed::Maybe => 0,
            };
            gpus_of.push((index as u32, gpus));
        }
        let give = |victim: usize, sign: i64, gpus_of: &mut Vec<Offer>| {
            for &(host, gpus) in &self.jobs[self.entries[victim].workload as usize].placement {
                if allowed[host as usize] == Allowed::Yes {
                    gpus_of[host as usize].1 += sign * i64::from(gpus);
                }
            }
        };
        for &victim in victims {
            give(victim, 1, &mut gpus_of);
        }
        let spec = |workload: u32| &self.scenario.workloads[workload as usize];
        let mut spared = None;
        for &victim in victims {
            give(victim, -1, &mut gpus_of);
            if self.pools.fits(spec(by), &gpus_of) {
                spared = Some(self.entries[victim].workload);
                break;
            }
            give(victim, 1, &mut gpus_of);
        }
        if spared.is_some() && self.is_hazy() {
            return self.findings.undecided(Check::Minimal);
        }
        let spot = self.spot(by);
        self.findings.check(Check::Minimal, spot, spared.is_none(), || {
            let gpus = spec(by).gpus;
            let count = victims.len();
            let spared = spared.map_or("", |spared| &*spec(spared).id);
            format!("{count} leave for its {gpus} GPUs, but it fits without {spared}")
        });
        if spared.is_none() && !is_open {
            let fits = self.pools.fits(spec(by), &gpus_of);
            self.findings.check(Check::Minimal, spot, fits, || {
                "it does not fit even when all have left that were told to".into()
            });
        }
    }
}
