//! The scheduler driven directly, by an engine less obliging than the simulator's: starts are confirmed
//! late, attempts fail before they run, owners cancel what waits, holds or starts.

use crate::shrink::Fault;
pub(crate) use crate::world::Dice;
use crate::world::World;
use bursar_core::{
    BudgetIx, BudgetPolicy, Command, Decision, Event, HostIx, HostState, Refusal, Scheduler, State,
    Status, Stop, TimeMs, WorkloadIx,
};
use bursar_scenario::{HostEventKind, Scenario};
use bursar_sim::{build_state, build_workload};
use std::collections::BTreeMap;

/// What will happen, by moment and number.
#[derive(Clone, Debug)]
enum Due {
    Submit(usize),
    Host(usize),
    Change(usize),
    Confirm(WorkloadIx, u32),
    Gone(WorkloadIx, u32, Stop),
    Cancel(usize),
}

struct Drive<'a> {
    scenario: &'a Scenario,
    scheduler: Scheduler,
    due: BTreeMap<(u64, u64), Due>,
    number: u64,
    dice: Dice,
    /// The place of each workload of the scenario while it lives.
    places: Vec<Option<WorkloadIx>>,
    late: bool,
}

/// More decisions than any moment of a small world has.
const DECISIONS_MAX: usize = 1_000;
/// Work that is swapped out before it is done begins anew for ever: a drive ends after four days.
const UNTIL_MS: u64 = 4 * 86_400_000;
/// More moments than any small world has.
const MOMENTS_MAX: usize = 200_000;

impl<'a> Drive<'a> {
    fn new(scenario: &'a Scenario, dice: Dice, late: bool) -> Self {
        let state = build_state(scenario);
        let policy = Box::new(BudgetPolicy::new(&state));
        let scheduler = Scheduler::new(state, policy);
        let places = vec![None; scenario.workloads.len()];
        let mut drive =
            Self { scenario, scheduler, due: BTreeMap::new(), number: 0, dice, places, late };
        for (index, work) in scenario.workloads.iter().enumerate() {
            drive.expect(work.submit_ms, Due::Submit(index));
            if late && drive.dice.percent(15) {
                let at = work.submit_ms + drive.dice.range(0, work.runtime_ms);
                drive.expect(at, Due::Cancel(index));
            }
        }
        for (index, event) in scenario.hosts_events.iter().enumerate() {
            drive.expect(event.at_ms, Due::Host(index));
        }
        for (index, change) in scenario.budget_changes.iter().enumerate() {
            drive.expect(change.at_ms, Due::Change(index));
        }
        drive
    }

    fn expect(&mut self, at_ms: u64, due: Due) {
        self.number += 1;
        self.due.insert((at_ms, self.number), due);
    }

    fn is_attempt(&self, place: WorkloadIx, attempt: u32, status: &[Status]) -> bool {
        let workload = self.scheduler.state().workload(place);
        workload.attempt == attempt && status.contains(&workload.status)
    }

    fn event_of(&self, due: &Due) -> Option<Event> {
        match *due {
            Due::Submit(index) => {
                Some(Event::Submitted(Box::new(build_workload(self.scenario, index))))
            }
            Due::Host(index) => {
                let event = &self.scenario.hosts_events[index];
                let host = HostIx(event.host as u32);
                Some(match event.kind {
                    HostEventKind::Fail => Event::HostFailed(host),
                    HostEventKind::Repair => Event::HostRepaired(host),
                    HostEventKind::Drain => Event::DrainRequested(host),
                })
            }
            Due::Change(index) => {
                let change = &self.scenario.budget_changes[index];
                Some(Event::SharesChanged(vec![(
                    BudgetIx(change.budget as u32),
                    change.share_micro,
                )]))
            }
            Due::Confirm(place, attempt) => self
                .is_attempt(place, attempt, &[Status::Starting])
                .then_some(Event::Started(place)),
            Due::Gone(place, attempt, stop) => {
                let on = [Status::Starting, Status::Running, Status::Preempting];
                self.is_attempt(place, attempt, &on).then_some(Event::Stopped(place, stop))
            }
            Due::Cancel(index) => {
                let place = self.places[index]?;
                let waits = [Status::Queued, Status::Held, Status::Starting];
                let status = self.scheduler.state().workload(place).status;
                waits.contains(&status).then_some(Event::Cancelled(place))
            }
        }
    }

    fn happen(&mut self, at_ms: u64) -> Result<(), Fault> {
        let at = TimeMs(at_ms);
        self.scheduler.apply(at, Event::Tick).expect("time passes");
        while let Some((&(due_ms, number), _)) = self.due.first_key_value()
            && due_ms <= at_ms
        {
            let due = self.due.remove(&(due_ms, number)).expect("it is there");
            let Some(event) = self.event_of(&due) else { continue };
            let shown = format!("{due:?}");
            let place = match self.scheduler.apply(at, event) {
                Ok(place) => place,
                // No pool is large enough, although the whole cluster is.
                Err(Refusal::TooLarge { .. }) => continue,
                Err(refusal) => {
                    return Err(Fault::new(
                        "drive: refused",
                        format!("{shown} at {at}: {refusal}"),
                    ));
                }
            };
            if let Due::Submit(index) = due {
                self.places[index] = place;
            }
            self.forget_ended();
        }
        Ok(())
    }

    fn forget_ended(&mut self) {
        let state = self.scheduler.state();
        for place in &mut self.places {
            if place.is_some_and(|place| state.workload(place).status == Status::Ended) {
                *place = None;
            }
        }
    }

    fn act(&mut self, command: Command, now_ms: u64) {
        match command {
            Command::Start { workload, attempt } => {
                let delay = if self.late { self.dice.pick(&[0, 0, 1, 700, 5_000]) } else { 0 };
                let index = self.places.iter().position(|place| *place == Some(workload));
                let given = &self.scenario.workloads[index.expect("what starts is known")];
                let longest = given.max_runtime_ms.unwrap_or(u64::MAX).min(given.runtime_ms);
                if self.late && self.dice.percent(5) {
                    self.expect(now_ms + delay / 2, Due::Gone(workload, attempt, Stop::Failed));
                }
                self.expect(now_ms + delay, Due::Confirm(workload, attempt));
                self.expect(
                    now_ms + delay + longest,
                    Due::Gone(workload, attempt, Stop::Completed),
                );
            }
            Command::Preempt { workload, attempt, leave_by } => {
                let at = if self.late { self.dice.range(now_ms, leave_by.0) } else { leave_by.0 };
                self.expect(at, Due::Gone(workload, attempt, Stop::Left));
            }
            Command::HandOver(_) => {}
        }
    }

    /// A plan has an end.
    fn comes_to_rest(&self) -> Result<(), Fault> {
        let mut copy = self.scheduler.clone();
        let mut last = Vec::new();
        for _ in 0..DECISIONS_MAX {
            let Some(decision) = copy.decide() else { return Ok(()) };
            copy.commit(&decision, &mut |_| {});
            last.push(decision);
        }
        let last = &last[DECISIONS_MAX - 6..];
        Err(Fault::new(
            "drive: the plan has no end",
            format!("at {}: … {last:?}", copy.state().now()),
        ))
    }

    /// Rule 10: what is planned is what is decided step by step, and then nothing is left to decide.
    fn settle(&mut self, now_ms: u64) -> Result<(), Fault> {
        self.comes_to_rest()?;
        let plan = self.scheduler.plan();
        if plan != self.scheduler.plan() {
            return Err(Fault::new("drive: two plans", format!("{plan:?}")));
        }
        let mut commands = Vec::new();
        for planned in &plan.decisions {
            let decision = self.scheduler.decide();
            if decision.as_ref() != Some(planned) {
                return Err(Fault::new(
                    "drive: another decision",
                    format!("{planned:?}, not {decision:?}"),
                ));
            }
            check_contracts(self.scheduler.state(), planned)?;
            self.scheduler.commit(planned, &mut |command| commands.push(command));
            check_state(self.scheduler.state())?;
        }
        if let Some(more) = self.scheduler.decide() {
            return Err(Fault::new("drive: more than planned", format!("{more:?}")));
        }
        let again = self.scheduler.plan();
        if !again.decisions.is_empty() {
            return Err(Fault::new("drive: plans again", format!("{again:?} after {plan:?}")));
        }
        for command in commands {
            self.act(command, now_ms);
        }
        Ok(())
    }

    fn play(&mut self) -> Result<(), Fault> {
        let mut last_ms = 0;
        for _ in 0..MOMENTS_MAX {
            let wake = self.scheduler.next_wake().0;
            let due = self.due.first_key_value().map_or(u64::MAX, |(&(at, _), _)| at);
            let at_ms = wake.min(due);
            if at_ms > UNTIL_MS {
                return Ok(());
            }
            if at_ms < last_ms {
                return Err(Fault::new(
                    "drive: wakes in the past",
                    format!("{at_ms} after {last_ms}"),
                ));
            }
            last_ms = at_ms;
            self.happen(at_ms)?;
            check_state(self.scheduler.state())?;
            self.settle(at_ms)?;
            self.forget_ended();
            self.scheduler.clear_notices();
        }
        Err(Fault::new("drive: never ends", format!("{MOMENTS_MAX} moments by {last_ms} ms")))
    }
}

/// Rules 1 and 5: nobody protected is told to leave, and nobody at all for an unallocated request.
fn check_contracts(state: &State, decision: &Decision) -> Result<(), Fault> {
    let victims = match decision {
        Decision::Start { victims, allocated, .. } => {
            if !allocated && !victims.is_empty() {
                return Err(Fault::new("drive: unallocated preempts", format!("{decision:?}")));
            }
            victims.clone()
        }
        Decision::Evict(victim) => vec![victim.clone()],
        _ => Vec::new(),
    };
    for victim in victims {
        let workload = state.workload(victim.workload);
        if workload.protected || workload.status != Status::Running {
            return Err(Fault::new(
                "drive: a contract is broken",
                format!("{decision:?}: {workload:?}"),
            ));
        }
    }
    Ok(())
}

/// The counters of hosts and budgets follow from the attempts.
fn check_state(state: &State) -> Result<(), Fault> {
    let fault =
        |what: &str| Err(Fault::new(format!("drive: {what}"), format!("at {}", state.now())));
    for host in state.cluster.hosts() {
        let runs: u32 = host.runs.iter().map(|&(_, gpus)| gpus).sum();
        let of = |wanted: &dyn Fn(WorkloadIx) -> bool| -> u32 {
            host.runs.iter().filter(|&&(index, _)| wanted(index)).map(|&(_, gpus)| gpus).sum()
        };
        if runs != host.used || host.used + host.starting > host.spec.gpus {
            return fault("GPUs in use");
        }
        if host.dying != of(&|index| state.workload(index).status == Status::Preempting) {
            return fault("GPUs of those who leave");
        }
        let free = |index| {
            let workload = state.workload(index);
            !workload.allocated && workload.status == Status::Running
        };
        if host.unallocated != of(&free) {
            return fault("unallocated GPUs");
        }
        if matches!(host.state, HostState::Down | HostState::Drained)
            && host.used + host.starting > 0
        {
            return fault("work on a host out of service");
        }
    }
    let unallocated: u32 = state
        .takeable()
        .iter()
        .map(|&index| state.workload(index))
        .filter(|workload| !workload.allocated)
        .map(|workload| workload.spec.gpus)
        .sum();
    if unallocated != state.takeable_unallocated_gpus() {
        return fault("takeable unallocated GPUs");
    }
    let interruptible = |leaf: BudgetIx| -> u32 {
        let list = state.takeable().iter().map(|&index| state.workload(index));
        list.filter(|work| work.allocated && work.spec.budget == leaf)
            .map(|work| work.spec.gpus)
            .sum()
    };
    for &leaf in state.tree.leaves() {
        if state.ledger.account(leaf).interruptible_gpus != interruptible(leaf) {
            return fault("interruptible GPUs");
        }
    }
    let occupancy = state.occupancy();
    let all: u64 = state.cluster.hosts().iter().map(|host| u64::from(host.spec.gpus)).sum();
    let sum =
        occupancy.allocated + occupancy.unallocated + occupancy.idle + occupancy.out_of_service;
    if sum != all { fault("occupancy") } else { Ok(()) }
}

pub(crate) fn drive_scenario(scenario: &Scenario, dice: Dice, late: bool) -> Result<(), Fault> {
    Drive::new(scenario, dice, late).play()
}

fn drive(world: &World, late: bool) -> Result<(), Fault> {
    let scenario = world.scenario().map_err(|error| Fault::new("world", error))?;
    drive_scenario(&scenario, Dice::new(world.works.len() as u64), late)
}

/// The plan is what is committed, with an engine that does as it is told at once.
pub(crate) fn plan_is_kept(world: &World) -> Result<(), Fault> {
    drive(world, false)
}

/// The same with an engine that is late and owners who cancel.
pub(crate) fn plan_is_kept_by_a_late_engine(world: &World) -> Result<(), Fault> {
    drive(world, true)
}
