//! What a workload waits for, in sentences (rule 11). The core says which rule it is and what was compared; who has
//! the GPUs meanwhile, and until when they are protected, are facts that stand beside it.

use crate::site::Site;
use crate::work::{Stage, Work};
use bursar_core::cluster::Host;
use bursar_core::{HostState, SpanMs, Status, TimeMs, WaitReason, WorkloadIx};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What a waiting workload waits for. Moments in milliseconds since the site was created.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Why {
    /// The rule; 0 where none of the rules has a part in it, as the workload is not in the queue yet.
    pub rule: u8,
    /// A short sentence without moments.
    pub text: String,
    /// What more there is to say, as sentences: who has the GPUs, and what stands between it and them.
    pub more: Vec<String>,
    /// By when it starts, if that can be promised.
    pub until_ms: Option<u64>,
    /// When the first protection of those ends who have GPUs that it could use.
    pub frees_ms: Option<u64>,
    /// The usage ratio of its budget.
    pub usage_ratio: Option<String>,
    /// Allocated requests that come before it.
    pub ahead: Option<u32>,
    /// GPUs that it may take now, wherever they are.
    pub takeable_gpus: Option<u32>,
}

/// `1 GPU`, `2 GPUs`.
pub(crate) fn gpus(count: u32) -> String {
    if count == 1 { "1 GPU".to_owned() } else { format!("{count} GPUs") }
}

/// `workload 3`, `workloads 3, 4 and 5`, `workloads 3, 4, 5 and 9 others`.
fn workloads(numbers: &[u64]) -> String {
    const SHOWN: usize = 4;
    match numbers {
        [] => "nobody".to_owned(),
        [one] => format!("workload {one}"),
        many => {
            let shown = if many.len() > SHOWN { SHOWN - 1 } else { many.len() - 1 };
            let first: Vec<String> = many[..shown].iter().map(ToString::to_string).collect();
            let last = match &many[shown..] {
                [last] => last.to_string(),
                rest => format!("{} others", rest.len()),
            };
            format!("workloads {} and {last}", first.join(", "))
        }
    }
}

/// The hosts that could hold a request at some time, and who is on them.
#[derive(Clone, Debug, Default)]
struct Room {
    /// GPUs of those in service that take work.
    gpus_up: u32,
    /// Of these, GPUs that nobody has.
    free: u32,
    /// The most free GPUs on one host.
    most_free: u32,
    /// GPUs of one host, at most.
    per_host: u32,
    /// Hosts that take no work, and why: a few of them.
    out: Vec<String>,
    /// How many have GPUs of those that take work, and how many of them are protected.
    holders: usize,
    protected: usize,
    /// Who they are, in words.
    who: String,
    /// When the first of these protections ends.
    frees_ms: Option<u64>,
}

/// What is known of the room for requests while many of them are told about at one moment.
#[derive(Debug, Default)]
pub struct Rooms(BTreeMap<Vec<usize>, Room>);

impl Site {
    /// What a workload waits for; none if it does not wait for GPUs.
    #[must_use]
    pub fn why(&self, work: &Work) -> Option<Why> {
        self.why_among(work, &mut Rooms::default())
    }

    /// As [`Site::why`], for many workloads at one moment.
    #[must_use]
    pub fn why_among(&self, work: &Work, rooms: &mut Rooms) -> Option<Why> {
        let place = match work.stage {
            Stage::Live(place) => place,
            Stage::Waits => {
                return Some(Why { text: self.why_outside(work), ..Why::default() });
            }
            Stage::Ended(_) => return None,
        };
        let status = self.scheduler.state().workload(place).status;
        if !matches!(status, Status::Queued | Status::Held) {
            return None;
        }
        let reason = self.scheduler.why(place);
        let mut why = Why {
            rule: reason.rule(),
            until_ms: crate::views::until_of(&reason).map(|until| until.0),
            ..Why::default()
        };
        match reason {
            WaitReason::Reserved { .. } => self.tell_reserved(place, &mut why),
            WaitReason::Grace { .. } => self.tell_grace(place, &mut why),
            WaitReason::Order { ratio, ahead, takeable_gpus, .. } => {
                why.usage_ratio = Some(ratio.to_string());
                why.ahead = Some(ahead);
                why.takeable_gpus = Some(takeable_gpus);
                self.tell_room(place, rooms, &mut why);
                let order = match ahead {
                    0 => "it is next in the order".to_owned(),
                    1 => "1 request comes before it".to_owned(),
                    _ => format!("{ahead} requests come before it"),
                };
                why.more.push(format!(
                    "{order}; its budget {} stands at usage ratio {ratio}, and the least used comes first",
                    work.declared.budget
                ));
            }
            WaitReason::Idle { .. } => {
                self.tell_room(place, rooms, &mut why);
                // Nothing that ends by itself is promised to it.
                why.frees_ms = None;
                why.more.push(format!(
                    "it is unallocated ({}): charged to nobody, never protected, and started only on GPUs that no allocated work wants",
                    self.why_unallocated(work, place)
                ));
            }
            WaitReason::BacksOff { until } => {
                why.text = format!(
                    "it is unallocated and was preempted repeatedly; it is tried again in {}",
                    whole_seconds(until.since(self.scheduler.state().now()))
                );
            }
            WaitReason::Compared(policy) => why.text = format!("it waits by policy {policy}"),
        }
        Some(why)
    }

    /// Why a workload is not in the queue yet.
    fn why_outside(&self, work: &Work) -> String {
        if let (Some(held), Some(until)) = (&work.held, work.held_until_ms) {
            let left = until.saturating_sub(self.now_ms());
            return format!("{held}; it is tried again in {}", whole_seconds(SpanMs(left)));
        }
        if let Some(held) = &work.held {
            return format!("it is held until it is released: {held}");
        }
        match &self.waits_for(&work.declared)[..] {
            [] => {
                let most = work.declared.element.and_then(|element| element.at_once).unwrap_or(0);
                format!(
                    "{most} workloads of its array are in the queue or run; it enters when one ends"
                )
            }
            others => format!("it waits for {} to end", workloads(others)),
        }
    }

    /// What makes a start unallocated (rule 1).
    fn why_unallocated(&self, work: &Work, place: WorkloadIx) -> String {
        let state = self.scheduler.state();
        let budget = &work.declared.budget;
        if work.declared.min_runtime_ms == 0 {
            "its min_runtime is 0".to_owned()
        } else if state.tree.fraction(state.workload(place).spec.budget) == 0 {
            format!("budget {budget} has a share of 0")
        } else {
            format!("the limit of budget {budget} has no room for its contract")
        }
    }

    fn tell_reserved(&self, place: WorkloadIx, why: &mut Why) {
        let state = self.scheduler.state();
        let found = state.reservations.iter().find(|one| one.holder == place);
        let hosts: Vec<(&str, &Host)> = found
            .into_iter()
            .flat_map(|one| &one.placement)
            .map(|&(host, _)| {
                (self.created.hosts[host.at()].name.as_str(), state.cluster.host(host))
            })
            .collect();
        let names: Vec<&str> = hosts.iter().take(4).map(|(name, _)| *name).collect();
        let left_out = hosts.len() - names.len();
        let names = match (names.is_empty(), left_out) {
            (true, _) => "hosts are reserved for it".to_owned(),
            (false, 0) => format!("{} reserved for it", are(&names)),
            (false, more) => {
                format!("{} and {more} more hosts are reserved for it", names.join(", "))
            }
        };
        let holders = hosts.iter().flat_map(|(_, host)| host.runs.iter().map(|&(one, _)| one));
        let holders: BTreeSet<WorkloadIx> = holders.collect();
        why.text = match holders.is_empty() {
            true => names,
            false => format!("{names}; it waits for {} there", self.numbers(&holders)),
        };
        why.frees_ms = self.first_protection_end(&holders);
    }

    fn tell_grace(&self, place: WorkloadIx, why: &mut Why) {
        let state = self.scheduler.state();
        let leaving = state.workload(place).awaits.iter().flat_map(|&(host, _)| {
            let runs = state.cluster.host(host).runs.iter();
            runs.map(|&(one, _)| one)
                .filter(|&one| state.workload(one).status == Status::Preempting)
        });
        let leaving: BTreeSet<WorkloadIx> = leaving.collect();
        why.text = match leaving.is_empty() {
            true => "its GPUs are held; the work on them is leaving".to_owned(),
            false => format!(
                "its GPUs are held; it waits for {} to save and leave",
                self.numbers(&leaving)
            ),
        };
    }

    fn room_in(&self, pools: &[usize]) -> Room {
        const OUT_SHOWN: usize = 4;
        let state = self.scheduler.state();
        let mut room = Room::default();
        let mut holders = BTreeSet::new();
        for (doc, host) in self.created.hosts.iter().zip(state.cluster.hosts()) {
            if !pools.contains(&host.pool) {
                continue;
            }
            room.per_host = room.per_host.max(host.spec.gpus);
            let out = match host.state {
                HostState::Up => {
                    room.gpus_up += host.spec.gpus;
                    room.free += host.idle();
                    room.most_free = room.most_free.max(host.idle());
                    holders.extend(host.runs.iter().map(|&(one, _)| one));
                    continue;
                }
                HostState::Draining => "drains",
                HostState::Drained => "is drained",
                HostState::Down => "is down",
            };
            if room.out.len() < OUT_SHOWN {
                room.out.push(format!("{} {out}", doc.name));
            }
        }
        room.holders = holders.len();
        room.protected = holders.iter().filter(|&&one| state.workload(one).protected).count();
        room.who = self.numbers(&holders);
        room.frees_ms = self.first_protection_end(&holders);
        room
    }

    /// Which GPUs there are for a request, who has them, and what keeps it from those that are free.
    fn tell_room(&self, place: WorkloadIx, rooms: &mut Rooms, why: &mut Why) {
        let state = self.scheduler.state();
        let spec = &state.workload(place).spec;
        let asks = state.cluster.asks(spec.gpus, spec.shape, spec.model);
        let pools: Vec<usize> = asks.map(|(pool, _)| pool).collect();
        let room = rooms.0.entry(pools).or_insert_with_key(|pools| self.room_in(pools));
        let out = room.out.join(", ");
        if room.gpus_up == 0 {
            why.text = format!("no host that could hold it is in service ({out})");
            return;
        }
        if room.gpus_up < spec.gpus {
            why.text = format!(
                "it needs {} and only {} are in service ({out})",
                gpus(spec.gpus),
                room.gpus_up
            );
            return;
        }
        let needs = gpus(spec.gpus);
        let free = match room.free {
            0 => format!("none of {} is free", room.gpus_up),
            1 => format!("1 of {} is free", room.gpus_up),
            free => format!("{free} of {} are free", room.gpus_up),
        };
        if room.free < spec.gpus {
            why.text = format!("it needs {needs} and {free}");
            self.tell_holders(room, why);
            return;
        }
        let one_host = match spec.shape {
            None if spec.gpus <= room.per_host => Some(spec.gpus),
            None => None,
            Some((_, each)) => Some(each),
        };
        if let Some(each) = one_host.filter(|&each| room.most_free < each) {
            why.text = format!(
                "it needs {} on one host and at most {} are free on one, though {free} in all",
                gpus(each),
                room.most_free
            );
            self.tell_holders(room, why);
            return;
        }
        why.text = match state.reservations.iter().find(|one| one.holder != place) {
            Some(other) => format!(
                "{free}, but kept for workload {}, which was promised a start and would come later otherwise",
                self.number_at(other.holder)
            ),
            None if spec.min_runtime > bursar_core::Settings::DEBUG_RUNTIME_MAX
                && state.settings.debug_hosts > 0 =>
            {
                format!("{free}, but on hosts kept for contracts of at most 15m, or not together")
            }
            None => {
                format!("it needs {needs}; {free}, but on hosts where they do not fit together")
            }
        };
        self.tell_holders(room, why);
    }

    fn tell_holders(&self, room: &Room, why: &mut Why) {
        if room.holders == 0 {
            return;
        }
        let (all, protected) = (room.holders, room.protected);
        let how = match protected {
            0 if all == 1 => "it is no longer protected".to_owned(),
            0 => "none of them is protected any more".to_owned(),
            _ if all == 1 => "it is protected".to_owned(),
            all_of if all_of == all => "all are protected".to_owned(),
            some => format!("{some} of them are protected"),
        };
        let have = if all == 1 { "has" } else { "have" };
        let what = if room.free == 0 { "them" } else { "the others" };
        why.more.push(format!("{} {have} {what}; {how}", room.who));
        // What rule 6 compares. That a side is not high enough is the usual reason why unprotected work stays.
        if protected < all && why.takeable_gpus == Some(0) && why.usage_ratio.is_some() {
            why.more.push(format!(
                "work whose protection has ended leaves for it only if its side of the budgets stays below theirs by {} even with its contract counted",
                self.scheduler.state().settings.margin_ppm as f64 / 1e6
            ));
        }
        why.frees_ms = room.frees_ms;
    }

    fn first_protection_end(&self, holders: &BTreeSet<WorkloadIx>) -> Option<u64> {
        let state = self.scheduler.state();
        let ends = holders.iter().map(|&one| state.workload(one)).filter(|one| one.protected);
        ends.map(|one| one.protected_until)
            .filter(|&until| until != TimeMs::NEVER)
            .min()
            .map(|at| at.0)
    }

    fn numbers(&self, of: &BTreeSet<WorkloadIx>) -> String {
        let mut numbers: Vec<u64> = of.iter().map(|&one| self.number_at(one)).collect();
        numbers.sort_unstable();
        workloads(&numbers)
    }
}

/// `h-0 is`, `h-0, h-1 are`.
fn are(names: &[&str]) -> String {
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", names.join(", "))
}

/// A span in whole seconds, rounded up.
fn whole_seconds(span: SpanMs) -> SpanMs {
    SpanMs(span.0.div_ceil(1_000) * 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_workloads_stay_short() {
        assert_eq!(workloads(&[3]), "workload 3");
        assert_eq!(workloads(&[3, 4]), "workloads 3 and 4");
        assert_eq!(workloads(&[3, 4, 5, 6]), "workloads 3, 4, 5 and 6");
        assert_eq!(workloads(&[3, 4, 5, 6, 7]), "workloads 3, 4, 5 and 2 others");
    }
}
