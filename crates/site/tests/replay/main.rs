//! A journal folded again gives the same site and the same plans, whatever happened: seeded worlds of
//! people who submit, cancel, divide budgets and drain hosts, and an engine that is late.

mod world;

use bursar_site::{Body, Record, Site, Stage};
use world::World;

/// The records as they come back from a journal.
fn through_json(records: &[Record]) -> Vec<Record> {
    let text = serde_json::to_string(records).expect("records are written");
    serde_json::from_str(&text).expect("and read")
}

fn fold(records: &[Record]) -> Site {
    let mut site = Site::new(&records[0], &records[1]).expect("a journal begins well");
    for record in &records[2..] {
        site.apply(record).unwrap_or_else(|error| panic!("{error}: {record:?}"));
    }
    site
}

/// All that people could see.
fn shown(site: &Site) -> String {
    let works: Vec<_> =
        site.works().map(|work| (work, site.standing(work), site.why(work))).collect();
    format!("{works:#?}\n{:#?}\n{:#?}", site.budget_views("boss"), site.host_views())
}

#[test]
fn a_journal_folds_to_the_same_site() {
    for seed in 0..60 {
        let world = World::play(seed, 250);
        let again = fold(&through_json(&world.records));
        assert_eq!(shown(&world.site), shown(&again), "seed {seed}");
    }
}

#[test]
fn worlds_are_worth_playing() {
    let mut seen = std::collections::BTreeMap::new();
    for seed in 0..60 {
        let world = World::play(seed, 250);
        for record in &world.records {
            *seen.entry(record.body.kind()).or_insert(0) += 1;
        }
        let evicted = world.site.works().flat_map(|work| &work.attempts);
        *seen.entry("evicted").or_insert(0) += evicted.filter(|one| one.eviction.is_some()).count();
    }
    for kind in
        ["submitted", "cancelled", "started", "stopped", "drain_started", "host_up", "evicted"]
    {
        assert!(seen.get(kind).is_some_and(|&count| count > 50), "{kind}: {seen:?}");
    }
    assert!(seen["budgets_changed"] > 100, "{seen:?}");
}

#[test]
fn nobody_has_a_gpu_that_somebody_else_has_and_charges_add_up() {
    for seed in 0..30 {
        let world = World::play(seed, 250);
        let mut owners = std::collections::BTreeMap::new();
        let mut charged = 0;
        for work in world.site.works() {
            for attempt in &work.attempts {
                charged += world.site.charged_so_far(attempt);
                if attempt.ended_ms.is_some() {
                    continue;
                }
                assert!(matches!(work.stage, Stage::Live(_)));
                for (host, gpus) in &attempt.placement {
                    for gpu in gpus {
                        let before = owners.insert((host.clone(), *gpu), work.number);
                        assert_eq!(before, None, "seed {seed}: {host}:{gpu} has two owners");
                    }
                }
            }
        }
        assert_eq!(u128::from(charged), world.site.charged_gpu_ms(), "seed {seed}: rule 12");
    }
}

#[test]
fn a_journal_that_would_be_decided_otherwise_is_refused() {
    let mut records = World::play(3, 60).records;
    let at = records.iter().rposition(|record| matches!(record.body, Body::Planned { .. }));
    let Body::Planned { hash, .. } = &mut records[at.expect("plans")].body else { unreachable!() };
    *hash = "0".repeat(64);
    let mut site = Site::new(&records[0], &records[1]).expect("it begins well");
    let error = records[2..].iter().find_map(|record| site.apply(record).err());
    assert!(error.expect("it is noticed").what.contains("decides otherwise"));
}

#[test]
fn a_missing_record_and_a_clock_that_goes_back_are_refused() {
    let records = World::play(4, 40).records;
    let mut site = Site::new(&records[0], &records[1]).expect("it begins well");
    assert!(site.apply(&records[3]).expect_err("a gap").what.contains("one is missing"));
    site.apply(&records[2]).expect("the right one");
    let last = records.last().expect("records");
    let late = Record { seq: 4, at_ms: last.at_ms, ..records[3].clone() };
    let mut ahead = site;
    let _ = ahead.apply(&late);
    let early = Record { seq: ahead.seq() + 1, at_ms: 0, ..records[3].clone() };
    assert!(ahead.apply(&early).is_err());
}
