//! A journal folded again gives the same site and the same plans, whatever happened: seeded worlds of
//! people who submit, cancel, divide budgets and drain hosts, and an engine that is late.

mod world;

use bursar_site::snapshot::{DECIDES_AS, SnapshotError};
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

/// A run of the real daemon with real processes (crates/server/examples/journal_text.rs says which), folded by
/// this binary. If the rules have changed on purpose, it is recorded anew.
#[test]
fn a_recorded_run_is_decided_again_plan_by_plan() {
    let text = include_str!("../recorded/demo.jsonl");
    let records: Vec<Record> =
        text.lines().map(|line| serde_json::from_str(line).expect("a record")).collect();
    let mut site = Site::new(&records[0], &records[1]).expect("it begins");
    let (mut plans, mut decisions) = (0, 0);
    for record in &records[2..] {
        if let Body::Planned { decisions: known, hash } = &record.body {
            // What apply compares, for all to see; and a site from a snapshot decides the same.
            let mut copy = Site::restored(&site.snapshot()).expect("it is ours");
            if matches!(records[record.seq as usize - 2].body, Body::Planned { .. }) {
                let planned = copy.plan(record.at_ms);
                assert_eq!((planned.decisions, &planned.hash), (*known, hash), "{planned:?}");
            }
            (plans, decisions) = (plans + 1, decisions + known);
        }
        site.apply(record).unwrap_or_else(|error| panic!("{error}"));
    }
    let attempts = || site.works().flat_map(|work| &work.attempts);
    let evicted = |rule| {
        attempts().filter(move |one| one.eviction.as_ref().is_some_and(|why| why.rule == rule))
    };
    assert!(plans > 100 && decisions > 60, "{plans} plans, {decisions} decisions");
    assert!(evicted(6).count() > 5 && evicted(9).count() > 1, "preemptions and drains");
    let count = |kind| records.iter().filter(|record| record.body.kind() == kind).count();
    for kind in ["drain_started", "host_up", "change_scheduled", "requeued", "cancelled"] {
        assert!(count(kind) > 0, "{kind}");
    }
}

/// A restart: the journal up to some record is a snapshot, the rest is folded.
#[test]
fn a_snapshot_is_the_site_and_goes_on_as_it_would_have() {
    for seed in 0..60 {
        let world = World::play(seed, 250);
        let records = &world.records;
        let mut site = Site::new(&records[0], &records[1]).expect("it begins");
        let mut restarted = Site::restored(&site.snapshot()).expect("it is ours");
        for record in &records[2..] {
            site.apply(record).expect("a replay");
            restarted.apply(record).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            if matches!(record.body, Body::Planned { .. }) && record.seq % 5 == seed % 5 {
                assert!(site.snapshot() == restarted.snapshot(), "seed {seed}, {}", record.seq);
                restarted = Site::restored(&restarted.snapshot()).expect("it is ours");
            }
        }
        assert_eq!(shown(&site), shown(&restarted), "seed {seed}");
        assert!(site.snapshot() == restarted.snapshot(), "seed {seed}");
        assert!(site.snapshot() == world.site.snapshot(), "seed {seed}");
    }
}

#[test]
fn a_snapshot_of_other_code_or_in_pieces_is_not_taken() {
    let bytes = World::play(1, 30).site.snapshot();
    for cut in 0..bytes.len() {
        assert!(Site::restored(&bytes[..cut]).is_err(), "{cut} of {} bytes", bytes.len());
    }
    let at = bytes.windows(16).position(|window| window == DECIDES_AS.as_bytes());
    let mut other = bytes;
    other[at.expect("it says who made it")] ^= 1;
    assert!(matches!(Site::restored(&other), Err(SnapshotError::Other(_))));
}

#[test]
fn no_more_of_an_array_are_live_than_it_allows() {
    let mut most = 0;
    for seed in 0..30 {
        let site = World::play(seed, 250).site;
        for work in site.works() {
            let Some(element) = work.declared.element else { continue };
            let Some(at_once) = element.at_once else { continue };
            let live = site.elements(&element).filter(|one| matches!(one.stage, Stage::Live(_)));
            let live = live.count();
            assert!(live <= at_once as usize, "seed {seed}: {live} of array {}", element.array);
            let waits = |one: &&bursar_site::Work| one.stage == Stage::Waits && one.held.is_none();
            let idle = site.elements(&element).filter(waits).count();
            let after = !work.declared.after.is_empty();
            assert!(live == at_once as usize || idle == 0 || after, "seed {seed}: room is left");
            most = most.max(live);
        }
    }
    assert_eq!(most, 2, "some array was at work");
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
        let again = world.site.works().filter(|work| work.attempts_before > 0);
        *seen.entry("restarted").or_insert(0) += again.count();
        let elements = world.site.works().filter(|work| work.declared.element.is_some());
        *seen.entry("array").or_insert(0) += elements.count();
    }
    for kind in [
        "submitted",
        "cancelled",
        "started",
        "stopped",
        "drain_started",
        "host_up",
        "evicted",
        "requeued",
        "released",
        "found",
        "change_scheduled",
        "restarted",
        "array",
        "transferred",
        "funding_asked",
        "funding_decided",
    ] {
        assert!(seen.get(kind).is_some_and(|&count| count > 50), "{kind}: {seen:?}");
    }
    assert!(seen["budgets_changed"] > 100 && seen["schedule_dropped"] > 20, "{seen:?}");
}

/// What is charged in a term is what attempts charged from its begin on, whenever it was made known, whatever came late.
#[test]
fn terms_count_what_was_charged_in_them() {
    let (mut counted, mut limited) = (0, 0);
    for seed in 0..60 {
        let world = World::play(seed, 250);
        let site = &world.site;
        let now = site.now_ms();
        for view in site.budget_views("boss") {
            for term in view.terms {
                let below = format!("{}/", view.path);
                let works = site.works().filter(|work| {
                    work.declared.budget == view.path || work.declared.budget.starts_with(&below)
                });
                let attempts = works.flat_map(|work| &work.attempts).filter(|one| one.allocated);
                let charged: u64 = attempts
                    .filter_map(|one| {
                        let from = one.started_ms?.max(term.from_unix_ms);
                        let span = one.ended_ms.unwrap_or(now).checked_sub(from)?;
                        let gpus: usize = one.placement.iter().map(|(_, gpus)| gpus.len()).sum();
                        Some(span * gpus as u64)
                    })
                    .sum();
                let hours = charged as f64 / 3.6e6;
                assert!(
                    (term.charged_gpu_hours - hours).abs() < 1e-6,
                    "seed {seed}: {} {term:?}: {hours}",
                    view.path
                );
                counted += usize::from(charged > 0);
                limited += usize::from(term.left_gpu_hours == 0.0);
            }
        }
    }
    assert!(counted > 30 && limited > 3, "{counted} terms with charges, {limited} without room");
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
fn settings_that_no_decision_depends_on_can_change() {
    let mut records = World::play(5, 80).records;
    let mut site = fold(&records);
    let body = site.change_settings(1_000, 2_000).expect("fine").expect("it is new");
    let (seq, at_ms) = (site.seq() + 1, site.now_ms());
    records.push(Record { seq, at_ms, actor: Some("config/file".into()), body });
    site.apply(records.last().expect("it is there")).expect("folded");
    assert_eq!(site.change_settings(1_000, 2_000).expect("fine"), None, "it is so already");
    let again = fold(&through_json(&records));
    let settings = &again.created.settings;
    assert_eq!((settings.default_min_runtime_ms, settings.warn_before_ms), (1_000, 2_000));
    assert_eq!(shown(&site), shown(&again));
    let refused = site.change_settings(settings.horizon_ms + 1, 0).expect_err("above the horizon");
    assert!(refused.message.starts_with("default_min_runtime: "), "{refused}");
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
