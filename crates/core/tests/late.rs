//! What is heard of late, and what was started by somebody else: charged from when it was true.

use bursar_core::state::Stop;
use bursar_core::tree::BudgetNode;
use bursar_core::{
    BudgetIx, BudgetPolicy, Event, HostIx, HostSpec, ModelIx, PastRun, Scheduler, Settings, SpanMs,
    StartReason, State, Status, TimeMs, Tree, WorkloadIx, WorkloadSpec,
};

const MINUTE: u64 = 60_000;

/// Two hosts of 4 GPUs, two budgets of equal shares.
fn core() -> Scheduler {
    let settings = Settings {
        lookback: SpanMs::hours(10),
        horizon: SpanMs::hours(8),
        grace: SpanMs(30_000),
        margin_ppm: 50_000,
        reservations: 1,
        reservation_age: SpanMs::hours(4),
        debug_hosts: 0,
    };
    let node = |path: &str, parent: Option<u32>| BudgetNode {
        path: path.into(),
        parent: parent.map(BudgetIx),
        share_micro: 1_000_000,
        limit_units: None,
        terms: Vec::new(),
    };
    let tree = Tree::new(vec![node("", None), node("a", Some(0)), node("b", Some(0))]);
    let hosts = [HostSpec { gpus: 4, model: ModelIx(0), domain: 0 }; 2];
    let state = State::new(settings, &hosts, vec![1], tree);
    let policy = Box::new(BudgetPolicy::new(&state));
    Scheduler::new(state, policy)
}

fn work(tie: u64, budget: u32, gpus: u32, contract: SpanMs) -> Event {
    Event::Submitted(Box::new(WorkloadSpec {
        tie,
        budget: BudgetIx(budget),
        gpus,
        shape: None,
        model: None,
        min_runtime: contract,
        max_runtime: None,
        expected_runtime: None,
        resumable: true,
        rank: 0,
        checkpoint_interval: None,
        checkpoint_on_signal: false,
        grace: None,
        startup: SpanMs::ZERO,
    }))
}

fn at(minute: u64) -> TimeMs {
    TimeMs(minute * MINUTE)
}

fn apply(core: &mut Scheduler, minute: u64, event: Event) -> Option<WorkloadIx> {
    let place = core.apply(at(minute), event).expect("it fits");
    while let Some(decision) = core.decide() {
        core.commit(&decision, &mut |_| {});
    }
    core.clear_notices();
    core.next_wake();
    place
}

fn charged(core: &Scheduler, budget: u32) -> u64 {
    let state = core.state();
    let units = state.ledger.account(BudgetIx(budget)).charged.total(state.now());
    u64::try_from(units).expect("little") / MINUTE
}

#[test]
fn a_start_and_an_end_that_are_heard_of_late_count_from_when_they_were() {
    let mut core = core();
    let w = apply(&mut core, 0, work(1, 1, 4, SpanMs::hours(1))).expect("a place");
    assert_eq!(core.state().workload(w).status, Status::Starting);
    // It has run since minute 2, which is heard of at 30: protected until 62, charged for 28 minutes.
    apply(&mut core, 30, Event::StartedAt(w, at(2)));
    let state = core.state();
    assert!(state.workload(w).protected);
    assert_eq!(state.workload(w).protected_until, at(62));
    assert_eq!((charged(&core, 1), charged(&core, 0), charged(&core, 2)), (4 * 28, 4 * 28, 0));
    // It ended at 50, which is heard of at 300.
    apply(&mut core, 300, Event::StoppedAt(w, Stop::Completed, at(50)));
    assert_eq!((charged(&core, 1), charged(&core, 0)), (4 * 48, 4 * 48));
    apply(&mut core, 400, Event::Tick);
    assert_eq!(charged(&core, 1), 4 * 48);
}

#[test]
fn a_contract_that_was_over_before_its_start_was_heard_of_protects_nobody() {
    let mut core = core();
    let w = apply(&mut core, 0, work(1, 1, 8, SpanMs::hours(1))).expect("a place");
    apply(&mut core, 90, Event::StartedAt(w, at(0)));
    let state = core.state();
    assert!(!state.workload(w).protected);
    assert_eq!(state.takeable(), [w]);
    assert_eq!(state.ledger.account(BudgetIx(1)).interruptible_gpus, 8);
    // b got less than was funded: it may take them.
    apply(&mut core, 91, work(2, 2, 8, SpanMs::hours(1)));
    assert_eq!(core.state().workload(w).status, Status::Preempting);
}

#[test]
fn moments_before_the_decision_or_after_now_are_bounded() {
    let mut core = core();
    let w = apply(&mut core, 10, work(1, 1, 4, SpanMs::hours(1))).expect("a place");
    apply(&mut core, 20, Event::StartedAt(w, at(0)));
    assert_eq!(core.state().workload(w).started, at(10));
    apply(&mut core, 30, Event::StoppedAt(w, Stop::Completed, at(99)));
    assert_eq!(charged(&core, 1), 4 * 20);
}

#[test]
fn what_others_started_is_charged_and_protected_like_any_other() {
    let mut core = core();
    // A whole host is in use by work that somebody started at minute 5; heard of at 20.
    let w = core.apply(at(20), work(1, 1, 4, SpanMs::hours(1))).expect("it fits").expect("a place");
    apply(&mut core, 20, Event::Found(w, vec![(HostIx(1), 4)], at(5)));
    let found = core.state().workload(w);
    assert_eq!((found.status, found.allocated, found.attempt), (Status::Running, true, 1));
    assert_eq!(found.protected_until, at(65));
    assert_eq!(found.start_reason, Some(StartReason::Elsewhere));
    assert_eq!(charged(&core, 1), 4 * 15);
    // Others are placed around it.
    let other = apply(&mut core, 21, work(2, 2, 4, SpanMs::hours(1))).expect("a place");
    assert_eq!(core.state().workload(other).placement, [(HostIx(0), 4)]);
    apply(&mut core, 30, Event::Stopped(w, Stop::Completed));
    assert_eq!(charged(&core, 1), 4 * 25);
}

#[test]
fn a_run_that_is_heard_of_when_it_is_over_is_charged_for_its_time_alone() {
    let mut core = core();
    let run = |budget: u32, min_runtime: SpanMs, from: u64, to: u64| PastRun {
        budget: BudgetIx(budget),
        host: HostIx(1),
        gpus: 4,
        min_runtime,
        protection: min_runtime,
        since: at(from),
        ended: at(to),
    };
    // Others run meanwhile: their charge goes on.
    let w = apply(&mut core, 0, work(1, 1, 4, SpanMs::hours(1))).expect("a place");
    apply(&mut core, 0, Event::Started(w));
    let hour = SpanMs::hours(1);
    apply(&mut core, 100, Event::Ran(run(1, hour, 20, 50)));
    assert_eq!((charged(&core, 1), charged(&core, 0), charged(&core, 2)), (520, 520, 0));
    // Rule 1: without a contract nobody is charged.
    apply(&mut core, 110, Event::Ran(run(2, SpanMs::ZERO, 20, 50)));
    let unallocated = core.state().ledger.account(BudgetIx(2)).unallocated.total(at(110));
    assert_eq!((charged(&core, 2), unallocated), (0, 4 * 30 * u128::from(MINUTE)));
    // Longer ago than the lookback: the ratio does not know of it, a hard limit does.
    apply(&mut core, 800, Event::Ran(run(2, hour, 10, 100)));
    let state = core.state();
    let (now, b) = (state.now(), BudgetIx(2));
    assert_eq!((charged(&core, 2), state.ledger.used_units(b, now)), (360, 0));
    // Partly.
    apply(&mut core, 801, Event::Ran(run(2, hour, 191, 231)));
    let state = core.state();
    assert_eq!(state.ledger.used_units(b, state.now()), 4 * 30 * u128::from(MINUTE));
    apply(&mut core, 811, Event::Tick);
    let state = core.state();
    assert_eq!(state.ledger.used_units(b, state.now()), 4 * 20 * u128::from(MINUTE));
    // Nobody's: neither a leaf nor a host.
    let refused = core.apply(at(812), Event::Ran(run(0, hour, 20, 50)));
    assert!(refused.is_err(), "{refused:?}");
    let nowhere = PastRun { host: HostIx(9), ..run(1, hour, 20, 50) };
    assert!(core.apply(at(812), Event::Ran(nowhere)).is_err());
}

#[test]
fn what_cannot_be_found_there_is_refused_and_changes_nothing() {
    let mut core = core();
    let a = apply(&mut core, 0, work(1, 1, 8, SpanMs::hours(1))).expect("a place");
    apply(&mut core, 0, Event::Started(a));
    let w = apply(&mut core, 1, work(2, 2, 4, SpanMs::hours(1))).expect("a place");
    let placements = [vec![(HostIx(0), 4)], vec![(HostIx(0), 3)], vec![(HostIx(7), 4)], Vec::new()];
    for placement in placements {
        let refused = core.apply(at(2), Event::Found(w, placement.clone(), at(1)));
        assert!(refused.is_err(), "{placement:?}");
    }
    assert!(core.apply(at(2), Event::Found(a, vec![(HostIx(0), 8)], at(1))).is_err());
    assert_eq!(core.state().workload(w).status, Status::Queued);
}

#[test]
fn who_is_held_may_be_found_on_other_hosts() {
    let mut core = core();
    let mut run = |minute, tie, budget, gpus| {
        let w = apply(&mut core, minute, work(tie, budget, gpus, SpanMs::hours(1)));
        let w = w.expect("a place");
        apply(&mut core, minute, Event::Started(w));
        w
    };
    let first = run(0, 1, 1, 4);
    run(0, 2, 1, 4);
    // b takes one host; while it waits for its victim to go, its own start elsewhere is found.
    let held = apply(&mut core, 61, work(3, 2, 4, SpanMs::hours(1))).expect("a place");
    assert_eq!(core.state().workload(held).status, Status::Held);
    let victims: Vec<_> = (0..2).map(WorkloadIx).collect();
    let leaves = |w: &WorkloadIx| core.state().workload(*w).status == Status::Preempting;
    let victim = *victims.iter().find(|w| leaves(w)).expect("one leaves");
    let other = *victims.iter().find(|&&w| w != victim).expect("the other");
    let host = core.state().workload(other).placement[0].0;
    apply(&mut core, 62, Event::Stopped(other, Stop::Completed));
    apply(&mut core, 62, Event::Found(held, vec![(host, 4)], at(62)));
    assert_eq!(core.state().workload(held).status, Status::Running);
    assert_eq!(core.state().cluster.host(host).held, 0);
    // The victim leaves, and waits again; its host is nobody's by then.
    apply(&mut core, 62, Event::Stopped(victim, Stop::Left));
    let hosts = core.state().cluster.hosts();
    assert!(hosts.iter().all(|host| host.held == 0 && host.awaited == 0 && host.dying == 0));
    let _ = first;
}
