//! Every shared case parses, and says what its text says.

use std::path::{Path, PathBuf};

use bursar_scenario::{HostEventKind, load_path};

fn shared_cases() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cases");
    let Ok(entries) = std::fs::read_dir(&dir) else {
        eprintln!("skipped: {} is not there", dir.display());
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    paths.sort();
    paths
}

#[test]
fn every_shared_case_parses() {
    for path in shared_cases() {
        let scenario = load_path(&path, &[]).unwrap_or_else(|error| panic!("{error}"));
        assert!(scenario.about.is_some(), "{}", path.display());
        assert_eq!(scenario.settings.lookback_ms, 8 * 3_600_000);
        assert_eq!(scenario.settings.horizon_ms, 2 * 3_600_000);
        assert_eq!(scenario.settings.debug_hosts, 0);
        assert!(scenario.hosts.iter().enumerate().all(|(i, host)| host.name == format!("h{i}")));
        let order: Vec<_> = scenario.workloads.iter().map(|w| (w.submit_ms, w.tie)).collect();
        assert!(order.is_sorted());
    }
}

#[test]
fn the_drain_case_in_detail() {
    let Some(path) = shared_cases().into_iter().find(|path| path.ends_with("10-drain.yaml")) else {
        return;
    };
    let scenario = load_path(&path, &[]).unwrap();
    let event = scenario.hosts_events[0];
    assert_eq!((event.at_ms, event.host, event.kind), (1_800_000, 0, HostEventKind::Drain));
    let ids: Vec<&str> = scenario.workloads.iter().map(|w| &*w.id).collect();
    assert_eq!(ids, ["a1", "u1", "b1", "b2"]);
    let a1 = &scenario.workloads[0];
    assert_eq!((a1.runtime_ms, a1.min_runtime_ms), (9_000_000, 3_600_000));
    assert_eq!((a1.resumable, a1.checkpoint_interval_ms), (true, Some(3_600_000)));
    assert_eq!(scenario.budgets[a1.budget as usize].path, "a");
    assert_eq!(scenario.workloads[1].min_runtime_ms, 0);
}
