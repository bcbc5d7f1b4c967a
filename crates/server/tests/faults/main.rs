//! Nothing is lost and nothing runs twice, whatever fails: seeded runs of a daemon over a journal that may
//! fail before or after it wrote, an engine whose orders may be lost or answered wrongly, a clock that may
//! jump, and a process that may be killed between any two steps. First it must stay *safe*; then all is
//! healed and it must *come to the end*.

mod fakes;
mod run;

#[test]
fn nothing_is_lost_and_nothing_runs_twice() {
    let mut total = run::Seen::default();
    for seed in 0..200 {
        total.add(&run::play(seed, false));
    }
    // The faults happened, and in their midst what they should disturb.
    println!("{total:?}");
    assert!(total.crashes > 500 && total.journal_failures > 500 && total.engine_failures > 500);
    assert!(total.exact > 1_000 && total.hosts_lost > 200, "{total:?}");
    assert!(total.never_started > 200, "{total:?}");
    assert!(total.evictions > 200 && total.completed > 1_000 && total.cancelled > 100, "{total:?}");
}

#[test]
fn work_of_the_engines_own_queue_is_neither_lost_nor_run_twice() {
    let mut total = run::Seen::default();
    for seed in 0..100 {
        total.add(&run::play(seed, true));
    }
    println!("{total:?}");
    assert!(total.crashes > 200 && total.found > 100, "{total:?}");
    assert!(total.evictions > 100 && total.completed > 1_000 && total.cancelled > 100, "{total:?}");
    assert!(total.exact > 500 && total.unseen > 50, "{total:?}");
}
