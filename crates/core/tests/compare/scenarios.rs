//! Small worlds whose outcome can be worked out on paper. A row is
//! `(budget, submit s, GPUs, runtime s)`; budget 1 is the first one listed.

use crate::world::{Job, World, scheduler, simulate};
use bursar_core::compare::{NAMES, Options};
use bursar_core::{Event, HostIx, SpanMs};

/// The first starts of jobs in a cluster with one budget.
fn starts(policy: &str, hosts: &[u32], jobs: &[(u64, u32, u64)]) -> Vec<u64> {
    let jobs: Vec<_> = jobs.iter().map(|&(at, gpus, runtime)| (0, at, gpus, runtime)).collect();
    let fates = simulate(policy, hosts, &[], &jobs, &Options::default());
    fates.into_iter().map(|fate| fate.starts_s[0]).collect()
}

/// All starts of each job, and its end.
fn fates(
    policy: &str,
    hosts: &[u32],
    budgets: &[(&str, u64)],
    jobs: &[(u32, u64, u32, u64)],
    options: &Options,
) -> Vec<(Vec<u64>, u64)> {
    let fates = simulate(policy, hosts, budgets, jobs, options);
    fates.into_iter().map(|fate| (fate.starts_s, fate.end_s)).collect()
}

#[test]
fn fifo_lets_nobody_pass_the_head() {
    let jobs = [(0, 6, 100), (1, 4, 50), (2, 2, 10), (3, 8, 5), (4, 1, 5)];
    assert_eq!(starts("fifo", &[8], &jobs), [0, 100, 100, 150, 155]);
}

#[test]
fn fifo_gangs_take_whole_hosts_and_the_rest_of_one() {
    // 12 GPUs: one whole host and 4 of another; job 1 leaves host 0 with 5.
    let jobs = [(0, 3, 100), (1, 12, 50), (2, 12, 50)];
    assert_eq!(starts("fifo", &[8, 8], &jobs), [0, 1, 51]);
    let jobs = [(0, 5, 100), (1, 12, 50)];
    assert_eq!(starts("fifo", &[8, 8], &jobs), [0, 100]);
}

#[test]
fn sjf_serves_the_shortest_and_keeps_to_its_head() {
    // At 100 the 8-GPU job of 10 s is the shortest; the shorter one that comes at 5 passes it.
    let jobs = [(0, 8, 100), (1, 4, 60), (2, 8, 10), (3, 4, 60), (5, 2, 5)];
    assert_eq!(starts("sjf", &[8], &jobs), [0, 115, 105, 115, 100]);
    // The head blocks although the longer one would fit beside what runs.
    let jobs = [(0, 6, 100), (1, 8, 10), (2, 2, 20)];
    assert_eq!(starts("sjf", &[8], &jobs), [0, 100, 110]);
}

#[test]
fn backfill_passes_the_head_only_without_delaying_it() {
    // Head: 8 GPUs, shadow time 100. 98 s from 2 on ends in time; 99 s from 3 on would not.
    let jobs = [(0, 6, 100), (1, 8, 10), (2, 1, 98), (3, 1, 99), (4, 1, 20)];
    assert_eq!(starts("backfill", &[8], &jobs), [0, 100, 2, 110, 4]);
}

#[test]
fn backfill_gives_long_work_what_the_head_does_not_need() {
    // At 100 the head needs 4 of the 6 GPUs that host 0 then has idle: 2 are extra, one host is full.
    let jobs = [(0, 6, 100), (0, 8, 1_000), (1, 4, 10), (2, 2, 500), (3, 1, 500)];
    assert_eq!(starts("backfill", &[8, 8], &jobs), [0, 0, 100, 2, 100]);
}

#[test]
fn backfill_by_hosts_not_by_counts() {
    // 4 idle GPUs on each host; the head wants one whole host, the first to be free is host 0 at 50.
    let jobs = [(0, 4, 50), (0, 4, 50), (0, 4, 200), (1, 8, 10), (2, 4, 500), (3, 4, 40)];
    let starts = starts("backfill", &[8, 8], &jobs);
    // 500 s fits beside the job of 200 s on host 1, 40 s nowhere until the head has been served.
    assert_eq!(starts, [0, 0, 0, 50, 2, 60]);
}

#[test]
fn backfill_survives_work_that_runs_longer_than_declared() {
    let job = |submit_s, gpus, runtime_s, declared_s| Job {
        budget: 0,
        submit_s,
        gpus,
        runtime_s,
        declared_s: Some(declared_s),
    };
    let jobs = [job(0, 6, 100, 10), job(1, 8, 10, 10), job(20, 2, 30, 30), job(21, 1, 1, 0)];
    let mut world = World::new(scheduler("backfill", &[8], &[], &Options::default()), &jobs);
    world.run();
    let starts: Vec<u64> = world.fates.iter().map(|fate| fate.starts_s[0]).collect();
    // Overdue work may end at any moment: only what takes no time passes.
    assert_eq!(starts, [0, 100, 110, 21]);
}

#[test]
fn levels_evicts_the_latest_work_above_a_cap() {
    let budgets = [("a", 1), ("b", 1)];
    let jobs = [(1, 0, 4, 100), (1, 1, 2, 300), (1, 2, 2, 300), (2, 10, 2, 50), (2, 11, 4, 50)];
    // Caps are 4 and 4. The second and third are above a's. At 10 b takes the latest of them; the fifth
    // is above b's cap until 60. Then the third comes first, on the 2 idle GPUs, and leaves at once,
    // with the second, for the fifth, which fits in b's cap now. At 100 both fit in a's.
    let expected = [
        (vec![0], 100),
        (vec![1, 100], 400),
        (vec![2, 60, 100], 400),
        (vec![10], 60),
        (vec![60], 110),
    ];
    assert_eq!(fates("levels", &[8], &budgets, &jobs, &Options::default()), expected);
}

#[test]
fn levels_spares_whom_it_can_do_without() {
    let budgets = [("a", 1), ("b", 1), ("c", 2)];
    // Caps 4, 4, 8. Above its cap a runs 2 on host 0 and then 4 more on host 1, of which b needs 4 on one
    // host: the latest are 1 + 1 on host 1 beside 4 of c, the 4 before them are enough.
    let jobs = [
        (1, 0, 4, 500), // host 0, within
        (3, 1, 8, 500), // host 1, within
        (1, 2, 2, 500), // host 0, above
        (1, 3, 1, 500), // host 0, above
        (1, 4, 1, 500), // host 0, above
        (2, 5, 2, 10),  // takes the two latest
        (2, 6, 2, 10),  // takes the other one
    ];
    let got = fates("levels", &[8, 8], &budgets, &jobs, &Options::default());
    assert_eq!((&got[5].0, &got[6].0), (&vec![5], &vec![6]));
    // When b is done all three come back in the order of submission.
    assert_eq!(got[2].0, [2, 15]);
    assert_eq!((&got[3].0, &got[4].0), (&vec![3, 16], &vec![4, 16]));
}

#[test]
fn levels_promotes_the_oldest_when_there_is_room_in_the_cap() {
    let budgets = [("a", 1), ("b", 1)];
    let jobs = [(1, 0, 4, 100), (1, 1, 2, 300), (2, 2, 2, 300), (2, 101, 4, 100), (1, 102, 4, 50)];
    // At 100 the second takes 2 of a's 4. So the fifth is above a's cap and must not evict the fourth,
    // which is above b's.
    let got = fates("levels", &[8], &budgets, &jobs, &Options::default());
    assert_eq!(got[3], (vec![101], 201));
    assert_eq!(got[4], (vec![201], 251));
}

#[test]
fn levels_lets_small_work_pass_a_large_gang_for_ever() {
    let budgets = [("a", 1), ("b", 1)];
    // b's gang needs all 8 and its cap is 4: it starts when nobody wants anything any more.
    let jobs = [(1, 0, 4, 100), (2, 1, 8, 10), (1, 50, 4, 100), (1, 140, 4, 100), (1, 230, 4, 10)];
    let got = fates("levels", &[8], &budgets, &jobs, &Options::default());
    assert_eq!(got[1], (vec![240], 250));
}

#[test]
fn fair_tree_serves_the_user_with_less_usage_first() {
    let budgets = [("a", 1), ("b", 1)];
    // a has used the host for 10 min; both then wait for it.
    let jobs = [(1, 0, 8, 600), (1, 1, 8, 100), (2, 2, 8, 100), (1, 3, 8, 100)];
    let got = fates("fair-tree", &[8], &budgets, &jobs, &Options::default());
    assert_eq!(got.iter().map(|fate| fate.0[0]).collect::<Vec<_>>(), [0, 700, 600, 800]);
}

#[test]
fn fair_tree_ranks_anew_every_five_minutes_only() {
    let budgets = [("a", 1), ("b", 1)];
    // At 100 nobody has been charged yet, so a's earlier job goes first.
    let jobs = [(1, 0, 8, 100), (1, 1, 8, 100), (2, 2, 8, 100)];
    let got = fates("fair-tree", &[8], &budgets, &jobs, &Options::default());
    assert_eq!(got.iter().map(|fate| fate.0[0]).collect::<Vec<_>>(), [0, 100, 200]);
}

#[test]
fn fair_tree_forgets_by_half_life() {
    let budgets = [("a", 1), ("b", 1)];
    let hour = 3_600;
    // a uses 8 GPUs for 2 h, ten hours later b uses them for 1 h; then both want them.
    let jobs = [
        (1, 0, 8, 2 * hour),
        (2, 12 * hour, 8, hour),
        (1, 12 * hour + 1, 8, 100),
        (2, 12 * hour + 1, 8, 100),
    ];
    let third_of = |half_life| {
        let options = Options { half_life, ..Options::default() };
        let got = fates("fair-tree", &[8], &budgets, &jobs, &options);
        (got[2].0[0] - 13 * hour, got[3].0[0] - 13 * hour)
    };
    assert_eq!(third_of(SpanMs::ZERO), (100, 0));
    assert_eq!(third_of(SpanMs::hours(24 * 7)), (100, 0));
    assert_eq!(third_of(SpanMs::hours(2)), (0, 100));
}

#[test]
fn fair_tree_goes_by_programme_before_user() {
    let budgets = [("p", 1), ("q", 1), ("p/x", 1), ("p/y", 1), ("q/z", 1)];
    // x has used GPUs, so y (same programme, nothing used) comes after z.
    let jobs = [(3, 0, 8, 600), (4, 1, 8, 100), (5, 2, 8, 100)];
    let got = fates("fair-tree", &[8], &budgets, &jobs, &Options::default());
    assert_eq!((got[1].0[0], got[2].0[0]), (700, 600));
}

#[test]
fn yarn_serves_the_queue_with_the_least_usage_by_weight() {
    let budgets = [("a", 3), ("b", 1)];
    // When the whole host becomes free it goes a, b (0 of 1), then a until it has 3 times as much.
    let jobs = [
        (1, 0, 8, 100),
        (1, 1, 2, 100),
        (2, 2, 2, 100),
        (2, 3, 2, 100),
        (1, 4, 2, 100),
        (1, 5, 2, 100),
    ];
    let got = fates("yarn-fair", &[8], &budgets, &jobs, &Options::default());
    assert_eq!(got.iter().map(|fate| fate.0[0]).collect::<Vec<_>>(), [0, 100, 100, 200, 100, 100]);
}

#[test]
fn yarn_preempts_the_newest_of_the_most_over_queue_after_the_timeout() {
    let budgets = [("a", 1), ("b", 1)];
    let jobs = [
        (1, 0, 2, 2_000),
        (1, 1, 2, 2_000),
        (1, 2, 2, 2_000),
        (1, 3, 2, 2_000),
        (2, 100, 2, 300),
        (2, 101, 2, 300),
        (2, 102, 2, 300),
    ];
    // b is below half its fair share of 4 from 100 on: at 700 it takes its full share, 2 jobs. The third
    // would be above. At 1000 they end: the third one of b comes first (0 used), then the older one of a.
    let got = fates("yarn-fair", &[8], &budgets, &jobs, &Options::default());
    let starts: Vec<Vec<u64>> = got.into_iter().map(|fate| fate.0).collect();
    assert_eq!(starts[0], [0]);
    assert_eq!(starts[1], [1]);
    assert_eq!(starts[2], [2, 1_000]);
    assert_eq!(starts[3], [3, 1_300]);
    assert_eq!(starts[4..], [vec![700], vec![700], vec![1_000]]);
}

#[test]
fn yarn_min_share_preempts_earlier_and_never_for_more_than_is_lacking() {
    let budgets = [("a", 1), ("b", 1)];
    let options = Options { min_share_ppm: 500_000, ..Options::default() };
    let jobs = [(1, 0, 2, 200), (1, 1, 6, 200), (2, 10, 6, 10), (2, 20, 2, 10)];
    // b's min share is 2 of 8. Its gang of 6 is more than it lacks; the 2 at 20 get theirs at 10 + 60, by
    // taking the newest of a.
    let got = fates("yarn-fair", &[8], &budgets, &jobs, &options);
    assert_eq!(got[3].0, [70]);
    assert_eq!(got[1].0[1..], [got[2].1]);
}

/// Numbers below a bound, the same every time.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % bound
    }
}

const CROWD_BUDGETS: [(&str, u64); 5] = [("p", 2), ("q", 1), ("p/x", 1), ("p/y", 3), ("q/z", 1)];

/// More work than 32 GPUs can do, in the three leaves of [`CROWD_BUDGETS`].
fn crowd(count: usize) -> Vec<Job> {
    let (mut draw, mut at) = (Draw(7), 0);
    let job = |_| {
        at += draw.below(60);
        Job {
            budget: 3 + draw.below(3) as u32,
            submit_s: at,
            gpus: [1, 1, 2, 4, 8, 12, 16, 32][draw.below(8) as usize],
            runtime_s: 1 + draw.below(900),
            // Too little, too much, or about right.
            declared_s: Some(draw.below(1_200)),
        }
    };
    (0..count).map(job).collect()
}

fn compared() -> impl Iterator<Item = &'static str> {
    // The budget policy has tests of its own, and rules that these worlds do not look at.
    NAMES.iter().copied().filter(|&policy| policy != "budget")
}

fn run_crowd(policy: &str, jobs: &[Job], host_events: Vec<(u64, Event)>) {
    let scheduler = scheduler(policy, &[8; 4], &CROWD_BUDGETS, &Options::default());
    let mut world = World::new(scheduler, jobs).checked().with_host_events(host_events);
    world.run();
    for (fate, job) in world.fates.iter().zip(jobs) {
        assert!(fate.starts_s[0] >= job.submit_s, "{policy}");
        let last = fate.starts_s[fate.starts_s.len() - 1];
        assert_eq!(fate.end_s, last + job.runtime_s, "{policy}");
    }
}

/// Every plan is what is then done, nothing is left to do after it, and what policies remember of blocked
/// requests hides nothing (the checked world).
#[test]
fn every_policy_ends_every_job_of_a_crowd() {
    let jobs = crowd(1_000);
    compared().for_each(|policy| run_crowd(policy, &jobs, Vec::new()));
}

#[test]
fn every_policy_ends_every_job_while_hosts_fail_and_drain() {
    let jobs = crowd(400);
    let mut draw = Draw(11);
    let mut events = Vec::new();
    let mut at = 0;
    for _ in 0..300 {
        at += 1 + draw.below(300);
        let host = HostIx(draw.below(4) as u32);
        events.push(match draw.below(4) {
            0 => (at, Event::HostFailed(host)),
            1 => (at, Event::DrainRequested(host)),
            _ => (at, Event::HostRepaired(host)),
        });
    }
    events.extend((0..4).map(|host| (at + 1, Event::HostRepaired(HostIx(host)))));
    compared().for_each(|policy| run_crowd(policy, &jobs, events.clone()));
}
