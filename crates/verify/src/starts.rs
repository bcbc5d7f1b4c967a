//! Rules 1, 4 and 7 at a start: its class, its turn, and the reservations of others.

use crate::books::{Bound, Sure};
use crate::log::What;
use crate::placement::Allowed;
use crate::replay::Replay;
use crate::report::{Check, seconds};
use crate::state::{Faith, HostState, Phase, Promise};
use std::cmp::Ordering;

impl Replay<'_> {
    /// Rule 1: whether an attempt that starts now on hosts like this is allocated.
    pub(crate) fn class_now(&self, workload: u32, host: u32) -> (bool, Sure) {
        let spec = &self.scenario.workloads[workload as usize];
        let leaf = spec.budget as usize;
        if spec.min_runtime_ms == 0 || self.books.fraction(leaf) == 0 {
            return (false, Sure::Yes);
        }
        let contract = self.rate(workload, host) * u128::from(self.contract(workload));
        match self.books.has_room(leaf, contract) {
            // What may be held unseen may have taken that room.
            (true, Sure::Yes) if !self.fogs.is_empty() && self.books.is_limited(leaf) => {
                (true, Sure::Maybe)
            }
            answer => answer,
        }
    }

    /// Rules 1, 7 and 8: whether an allocated start on this host could be decided now.
    pub(crate) fn may_start_on(&self, workload: u32, host: u32) -> Allowed {
        match (self.may_use(workload, host), self.class_now(workload, host)) {
            (Allowed::No, _) | (_, (false, Sure::Yes)) => Allowed::No,
            (Allowed::Yes, (true, Sure::Yes)) => Allowed::Yes,
            (Allowed::Yes | Allowed::Maybe, _) => Allowed::Maybe,
        }
    }

    /// What is judged when a start is decided, by what holds then.
    pub(crate) fn judge_decision(&mut self, workload: u32, placement: &[(u32, u32)], rule: u8) {
        self.note_class(workload, placement[0].0);
        if rule != 1 {
            self.judge_reserved_hosts(workload, placement, self.now, usize::MAX);
        }
        self.judge_turn(workload, placement, rule);
        self.release_promise(workload);
    }

    /// Remembers the class that is right at the decision.
    pub(crate) fn note_class(&mut self, workload: u32, host: u32) {
        self.jobs[workload as usize].class = Some(self.class_now(workload, host));
    }

    /// The reservation of one whose start is decided is over; what it promised is still to be kept.
    pub(crate) fn release_promise(&mut self, workload: u32) {
        if let Some(index) = self.promises.iter().position(|p| p.holder == workload) {
            let promise = self.promises.remove(index);
            let is_good = promise.faith == Faith::Good;
            self.jobs[workload as usize].promised =
                is_good.then_some((promise.until, promise.since));
        }
    }

    /// All that is judged when an attempt of the budget policy starts.
    pub(crate) fn judge_start(&mut self, index: usize, allocated: bool) {
        let entry = &self.entries[index];
        let (workload, spot) = (entry.workload, self.spot(entry.workload));
        let default_rule = if allocated { 8 } else { 1 };
        let rule = entry.rule.unwrap_or(default_rule);
        if entry.placement.is_empty() {
            return;
        }
        let hold = self.timeline.by_start.get(&index).map(|&hold| &self.timeline.holds[hold]);
        let is_held = hold.is_some();
        if let Some(hold) = hold {
            let (waited, grace) = (self.now - hold.decided, self.scenario.settings.grace_ms);
            self.findings.check(Check::Grace, spot, waited <= grace, || {
                format!("starts {waited} ms after it was decided; grace is {grace}")
            });
        }
        match hold {
            Some(hold) if hold.is_unseen() && hold.decided == self.now => {
                let (from, decided) = (hold.from, hold.decided);
                self.judge_decided_before(workload, &entry.placement, Some(rule), decided, from);
            }
            // Judged where it was decided.
            Some(_) if self.jobs[workload as usize].class.is_some() => {}
            _ => {
                if rule == 7 {
                    self.judge_promised_hosts(workload, &entry.placement);
                }
                self.judge_turns_of_pass(index, rule);
                self.judge_decision(workload, &entry.placement, rule);
            }
        }

        let (class, sure) = self.jobs[workload as usize].class.unwrap_or((allocated, Sure::Yes));
        if sure == Sure::Maybe {
            self.findings.undecided(Check::Class);
        } else {
            let spec = &self.scenario.workloads[workload as usize];
            let fraction = self.books.fraction(spec.budget as usize);
            self.findings.check(Check::Class, spot, class == allocated, || {
                format!(
                    "allocated is {allocated}; min_runtime is {} ms, its budget's fraction \
                     {fraction}/2^32{}",
                    spec.min_runtime_ms,
                    if class { ", and its limits have room" } else { "" },
                )
            });
        }
        let right = (allocated).then(|| self.now.saturating_add(self.contract(workload)));
        self.findings.check(Check::Class, spot, entry.protected_until == right, || {
            let shown = |until: Option<u64>| until.map_or("null".into(), seconds);
            format!("protected until {}, not {}", shown(entry.protected_until), shown(right))
        });
        let rule_fits = if allocated { matches!(rule, 6..=8) } else { rule == 1 };
        self.findings.check(Check::Class, spot, rule_fits, || {
            format!("allocated is {allocated} and it starts by rule {rule}")
        });
        if allocated {
            self.judge_debug_hosts(workload, &entry.placement);
        }
        if matches!(rule, 1 | 8) && is_held {
            self.findings.undecided(Check::Fullest);
        } else if matches!(rule, 1 | 8) {
            self.judge_fullest(workload, &entry.placement, allocated);
        }
        self.judge_kept(workload);
    }

    /// Rule 7: whoever starts by a reservation that stands in the log and is due does so on the hosts
    /// that it names. One that is made, or moved, and due at the same moment is not in the log.
    pub(crate) fn judge_promised_hosts(&mut self, workload: u32, placement: &[(u32, u32)]) {
        let spot = self.spot(workload);
        let promise = self.promises.iter().find(|promise| promise.holder == workload);
        let is_due =
            |promise: &&Promise| promise.until <= self.now && promise.doubt != Some(self.now);
        let Some(promise) = promise.filter(is_due) else {
            return self.findings.undecided(Check::PromiseKept);
        };
        let elsewhere = placement.iter().find(|place| !promise.hosts.contains(&place.0));
        self.findings.check(Check::PromiseKept, spot, elsewhere.is_none(), || {
            let host = elsewhere.map_or(0, |place| place.0) as usize;
            format!("{} was not reserved for it", self.scenario.hosts[host].name)
        });
    }

    /// Rule 7: a contract starts on hosts reserved for another only if it is over in time.
    /// Reservations of entry `before` or later do not count.
    pub(crate) fn judge_reserved_hosts(
        &mut self,
        workload: u32,
        placement: &[(u32, u32)],
        decided_at: u64,
        before: usize,
    ) {
        let spot = self.spot(workload);
        let (grace, contract) = (self.scenario.settings.grace_ms, self.contract(workload));
        for promise in &self.promises {
            let shared = placement.iter().find(|place| promise.hosts.contains(&place.0));
            let Some(&(host, _)) = shared else { continue };
            if promise.holder == workload || promise.entry >= before {
                continue;
            }
            if self.is_open(promise) {
                self.findings.undecided(Check::PromiseHosts);
                continue;
            }
            let end = decided_at.saturating_add(grace).saturating_add(contract);
            let holder = &self.scenario.workloads[promise.holder as usize].id;
            let name = self.scenario.hosts[host as usize].name.as_str();
            let until = promise.until;
            self.findings.check(Check::PromiseHosts, spot, end <= until, || {
                format!(
                    "{name} is reserved for {holder} from {} on; decision + grace + contract is \
                     {}, {} ms later",
                    seconds(until),
                    seconds(end),
                    end - until
                )
            });
        }
    }

    /// Rule 4: no allocated request comes first, asks for no more, may use the same GPUs and was
    /// passed over. For a start that others leave for, only those of the same leaf tell.
    fn judge_turn(&mut self, workload: u32, placement: &[(u32, u32)], rule: u8) {
        // A reservation goes before the order; its T can have moved to this very moment.
        if self.promises.iter().any(|promise| promise.holder == workload) {
            return;
        }
        let leaf = self.leaf(workload);
        let queues = match rule {
            1 | 8 => self.queues.keys().copied().collect::<Vec<_>>(),
            6 => vec![leaf],
            _ => return,
        };
        let mut passed_over = None;
        for other in queues {
            if other != leaf && rule != 1 && !self.certainly_first(other, leaf) {
                continue;
            }
            passed_over = self.passed_over(workload, placement, other, rule);
            if passed_over.is_some() {
                break;
            }
        }
        let spot = self.spot(workload);
        let message = passed_over.map(|first| self.order_message(workload, first));
        let good = message.is_none();
        self.findings.check(Check::Order, spot, good, || message.unwrap_or_default());
    }

    /// Rule 4: of several that start on idle GPUs at one moment, none comes before one that is named
    /// earlier: its GPUs were idle then, too.
    fn judge_turns_of_pass(&mut self, index: usize, rule: u8) {
        let entry = &self.entries[index];
        let holds_promise =
            |workload: u32| self.promises.iter().any(|promise| promise.holder == workload);
        if rule != 8 || holds_promise(entry.workload) {
            return;
        }
        let leaf = self.leaf(entry.workload);
        let later = self.entries[index + 1..].iter().zip(index + 1..);
        let of_pass = later.take_while(|(other, at)| {
            other.at == entry.at
                && other.what == What::Started
                && other.rule == Some(8)
                && !self.timeline.by_start.contains_key(at)
                // A reservation that ends gives its hosts to those who come after.
                && !holds_promise(other.workload)
        });
        let first = of_pass.map(|(other, _)| other.workload).find(|&other| {
            let theirs = self.leaf(other);
            let comes_first = match theirs == leaf {
                true => self.turnout(other) < self.turnout(entry.workload),
                false => self.certainly_first(theirs, leaf),
            };
            comes_first && self.jobs[other as usize].phase == Phase::Waiting
        });
        if let Some(first) = first {
            let message = self.order_message(entry.workload, first);
            let spot = self.spot(entry.workload);
            self.findings.fail(Check::Order, spot, message);
        }
    }

    fn order_message(&self, workload: u32, first: u32) -> String {
        let spec = |workload: u32| &self.scenario.workloads[workload as usize];
        let (mine, theirs) = (spec(workload), spec(first));
        let why = match self.books.sides(self.leaf(first), self.leaf(workload)) {
            None => "first in its budget".into(),
            Some((a, b)) => format!(
                "its side {:?} has usage ratio {}, {:?} has {}",
                self.scenario.budgets[a].path,
                self.books.ratio(a, 0, Bound::Most).shown(),
                self.scenario.budgets[b].path,
                self.books.ratio(b, 0, Bound::Least).shown(),
            ),
        };
        format!(
            "starts with {} GPUs before {} with {}, which is allocated, waits, had room and comes \
             first: {why}",
            mine.gpus, theirs.id, theirs.gpus
        )
    }

    /// Rule 4: whether leaf `a` comes before leaf `b` whatever may have been decided unseen.
    fn certainly_first(&self, a: usize, b: usize) -> bool {
        let Some((a, b)) = self.books.sides(a, b) else { return false };
        if !self.fogs.is_empty() {
            return false;
        }
        let (high, low) =
            (self.books.ratio(a, 0, Bound::Most), self.books.ratio(b, 0, Bound::Least));
        match high.compare(low) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => {
                let (share_a, share_b) = (self.books.share_micro(a), self.books.share_micro(b));
                let name = |side: usize| &self.scenario.budgets[side].name;
                share_a > share_b || (share_a == share_b && name(a) < name(b))
            }
        }
    }

    /// An allocated request of `leaf` that could have started on this placement instead.
    fn passed_over(
        &self,
        workload: u32,
        placement: &[(u32, u32)],
        leaf: usize,
        rule: u8,
    ) -> Option<u32> {
        let gpus: u32 = placement.iter().map(|place| place.1).sum();
        let all: Vec<(u32, i64)> = placement.iter().map(|p| (p.0, i64::from(p.1))).collect();
        let contract_max = if rule == 1 { u64::MAX } else { self.contract(workload) };
        let own = leaf == self.leaf(workload) && rule != 1;
        let turnout = self.turnout(workload);
        let asks = self.queues.get(&leaf)?.iter().take_while(|(ask, _)| ask.0 <= gpus);
        for (_, waiting) in asks {
            let representative = &self.scenario.workloads[waiting.first()?.2 as usize];
            if !self.pools.fits(representative, &all) {
                continue;
            }
            for &(contract, order, other) in waiting {
                if contract > contract_max {
                    break;
                }
                let comes_first = other != workload && (!own || order < turnout);
                if comes_first
                    && self.jobs[other as usize].hold().is_none()
                    && !self.may_be_held(other)
                    && self.class_now(other, placement[0].0) == (true, Sure::Yes)
                    && self.could_have(other, &all)
                {
                    return Some(other);
                }
            }
        }
        None
    }

    fn could_have(&self, workload: u32, gpus_of: &[(u32, i64)]) -> bool {
        let usable = |&&(host, _): &&(u32, i64)| {
            self.hosts[host as usize].state == HostState::Up
                && self.may_use(workload, host) == Allowed::Yes
        };
        let usable: Vec<(u32, i64)> = gpus_of.iter().filter(usable).copied().collect();
        usable.len() == gpus_of.len()
            || self.pools.fits(&self.scenario.workloads[workload as usize], &usable)
    }
}
