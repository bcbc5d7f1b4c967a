//! A full cluster of 8,192 GPUs and a long queue, driven on the core alone.
//!
//! The cluster is filled, then a queue is laid behind it; from there on each workload that ends is followed
//! by a new one, so that as many wait at the end as at the beginning. Two clusters with queues of different
//! length differ in nothing else: the same work runs, and the longer queue begins with the shorter one.

use bursar_core::{
    BudgetIx, BudgetNode, BudgetPolicy, Command, Event, HostSpec, ModelIx, Scheduler, Settings,
    SpanMs, State, Stop, TimeMs, Tree, WorkloadIx, WorkloadSpec,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

const HOSTS: u32 = 1_024;
const HOSTS_PER_RACK: u32 = 32;
const GPUS_PER_HOST: u32 = 8;
const PROGRAMMES: u32 = 4;
const TEAMS_EACH: u32 = 4;

/// GPUs of what is submitted, each as likely as the others.
const SIZES: [u32; 14] = [1, 1, 1, 2, 2, 4, 4, 8, 8, 8, 16, 16, 32, 64];

/// When so many wait, the cluster has been full for a while.
const WAITING_WHEN_FULL: usize = 200;
/// Ends of work before anything is counted: what was laid out at one moment has mixed by then.
const ENDS_BEFORE: usize = 150;
/// Ends of work that are counted, with all that follows from them.
const ENDS_COUNTED: usize = 300;

/// Numbers that look drawn (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// An attempt that will end: when, whose (by order of submission, since places are used again), and where.
type AttemptEnd = (TimeMs, u64, u32, WorkloadIx);

/// The cluster, its engine and its users.
pub(crate) struct FullCluster {
    scheduler: Scheduler,
    /// What is submitted while time passes is drawn apart from what was there before, and so is the same
    /// behind queues of any length.
    dice: Dice,
    now: TimeMs,
    ends: BinaryHeap<Reverse<AttemptEnd>>,
    /// Work that is left of each live workload, and since when it runs.
    live: BTreeMap<WorkloadIx, (SpanMs, Option<TimeMs>)>,
    running: usize,
    submitted: u64,
    events: u64,
}

impl FullCluster {
    /// A full cluster in which so many wait, some time after it was filled.
    pub(crate) fn new(waiting: usize) -> Self {
        let hosts: Vec<HostSpec> = (0..HOSTS)
            .map(|at| HostSpec {
                gpus: GPUS_PER_HOST,
                model: ModelIx(0),
                domain: at / HOSTS_PER_RACK,
            })
            .collect();
        let settings = Settings {
            lookback: SpanMs::hours(7 * 24),
            horizon: SpanMs::hours(8),
            grace: SpanMs::ZERO,
            margin_ppm: 50_000,
            reservations: 1,
            reservation_age: SpanMs::hours(4),
            debug_hosts: 31,
        };
        let state = State::new(settings, &hosts, vec![1], tree());
        let policy = Box::new(BudgetPolicy::new(&state));
        let mut cluster = Self {
            scheduler: Scheduler::new(state, policy),
            dice: Dice(1),
            now: TimeMs(0),
            ends: BinaryHeap::new(),
            live: BTreeMap::new(),
            running: 0,
            submitted: 0,
            events: 0,
        };
        while cluster.waiting() < WAITING_WHEN_FULL {
            cluster.submit();
            cluster.settle();
        }
        cluster.now = TimeMs(60_000);
        while cluster.waiting() < waiting {
            cluster.submit();
        }
        cluster.settle();
        cluster.dice = Dice(2);
        cluster.pass(ENDS_BEFORE);
        cluster
    }

    /// Plays on, and gives the number of facts that the core was told.
    pub(crate) fn play(&mut self) -> u64 {
        let before = self.events;
        self.pass(ENDS_COUNTED);
        self.events - before
    }

    fn waiting(&self) -> usize {
        self.live.len() - self.running
    }

    fn apply(&mut self, event: Event) -> Option<WorkloadIx> {
        self.events += 1;
        self.scheduler.apply(self.now, event).expect("the events of this world are legal")
    }

    /// Time passes until so many workloads have ended; each is followed by a new one.
    fn pass(&mut self, ends: usize) {
        let mut ended = 0;
        while ended < ends {
            let end = self.ends.peek().map_or(TimeMs::NEVER, |&Reverse((end, ..))| end);
            self.now = end.min(self.scheduler.next_wake());
            self.apply(Event::Tick);
            while let Some(&Reverse((at, tie, attempt, place))) = self.ends.peek() {
                if at > self.now {
                    break;
                }
                self.ends.pop();
                // Not if it was preempted: then it runs anew, or its place is another's.
                let is_over = self.live.get(&place).is_some_and(|(_, since)| since.is_some()) && {
                    let facts = self.scheduler.state().workload(place);
                    (facts.spec.tie, facts.attempt) == (tie, attempt)
                };
                if is_over {
                    self.live.remove(&place);
                    self.running -= 1;
                    self.apply(Event::Stopped(place, Stop::Completed));
                    self.submit();
                    ended += 1;
                }
            }
            self.settle();
        }
    }

    /// Decides and does what was decided, until nothing is left to do at this moment.
    fn settle(&mut self) {
        loop {
            let mut commands = Vec::new();
            while let Some(decision) = self.scheduler.decide() {
                self.scheduler.commit(&decision, &mut |command| commands.push(command));
            }
            if commands.is_empty() {
                break;
            }
            for command in commands {
                match command {
                    Command::Start { workload, attempt } => self.start(workload, attempt),
                    Command::Preempt { workload, .. } => self.leave(workload),
                    Command::HandOver(_) => {}
                }
            }
        }
        self.scheduler.clear_notices();
    }

    fn start(&mut self, place: WorkloadIx, attempt: u32) {
        self.apply(Event::Started(place));
        let (left, since) = self.live.get_mut(&place).expect("it waited");
        *since = Some(self.now);
        let tie = self.scheduler.state().workload(place).spec.tie;
        self.ends.push(Reverse((self.now + *left, tie, attempt, place)));
        self.running += 1;
    }

    /// A victim leaves at once. What can resume has lost nothing; what cannot has ended.
    fn leave(&mut self, place: WorkloadIx) {
        self.running -= 1;
        if self.scheduler.state().workload(place).spec.resumable {
            let (left, since) = self.live.get_mut(&place).expect("it ran");
            let since = since.take().expect("it ran");
            *left = *left - self.now.since(since);
        } else {
            self.live.remove(&place);
        }
        self.apply(Event::Stopped(place, Stop::Left));
    }

    /// Somebody submits something.
    fn submit(&mut self) {
        let dice = &mut self.dice;
        let team = dice.below(u64::from(PROGRAMMES * TEAMS_EACH)) as u32;
        let runtime = SpanMs::minutes(30 + dice.below(20 * 60));
        let contract = SpanMs::minutes(30 * (1 + dice.below(16)));
        let spec = WorkloadSpec {
            tie: self.submitted,
            // The root, then each programme with its teams.
            budget: BudgetIx(1 + team / TEAMS_EACH * (TEAMS_EACH + 1) + 1 + team % TEAMS_EACH),
            gpus: dice.pick(&SIZES),
            shape: None,
            model: None,
            min_runtime: contract.min(runtime),
            max_runtime: None,
            expected_runtime: Some(runtime),
            resumable: dice.below(10) > 0,
            rank: 0,
            checkpoint_interval: Some(SpanMs::minutes(30)),
            checkpoint_on_signal: dice.below(2) > 0,
            grace: None,
            startup: SpanMs::ZERO,
        };
        self.submitted += 1;
        let place = self.apply(Event::Submitted(Box::new(spec))).expect("it has a place");
        self.live.insert(place, (runtime, None));
    }
}

/// Programmes with teams in them, each with another share.
fn tree() -> Tree {
    let node = |path: String, parent, share: u32| BudgetNode {
        path,
        parent,
        share_micro: u64::from(share) * 1_000_000,
        limit_units: None,
        terms: Vec::new(),
    };
    let mut nodes = vec![node(String::new(), None, 1)];
    for programme in 0..PROGRAMMES {
        let parent = BudgetIx(nodes.len() as u32);
        nodes.push(node(format!("p{programme}"), Some(BudgetIx(0)), 2 + programme));
        for team in 0..TEAMS_EACH {
            nodes.push(node(format!("p{programme}/t{team}"), Some(parent), 1 + team));
        }
    }
    Tree::new(nodes)
}
