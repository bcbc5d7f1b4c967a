//! A scenario's text.

use bursar_scenario::load_str;
use std::path::Path;

/// Where a scenario that names a file would find something that is not one.
const SYSTEM: [&str; 3] = ["dev", "proc", "sys"];

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if SYSTEM.iter().any(|folder| text.contains(folder)) {
        return;
    }
    let scenario = match load_str(text, Path::new("/nonexistent"), "scenario", &[]) {
        Ok(scenario) => scenario,
        Err(error) => {
            let error = error.to_string();
            assert!(!error.chars().any(char::is_control), "{error:?}");
            return;
        }
    };
    assert!(!scenario.workloads.is_empty() && !scenario.hosts.is_empty());
    let order: Vec<_> = scenario.workloads.iter().map(|one| (one.submit_ms, one.tie)).collect();
    assert!(order.windows(2).all(|pair| pair[0] < pair[1]), "workloads are in order");
    for workload in &scenario.workloads {
        assert!(scenario.budgets[workload.budget as usize].is_leaf);
        assert!(workload.gpus > 0 && workload.runtime_ms > 0);
        assert!(workload.min_runtime_ms <= scenario.settings.horizon_ms);
        assert!(workload.user.is_none_or(|user| (user as usize) < scenario.users.len()));
        assert!(workload.model.is_none_or(|model| (model as usize) < scenario.models.len()));
    }
    for (at, budget) in scenario.budgets.iter().enumerate() {
        assert!(budget.parent.map_or(at == 0, |parent| parent < at), "parents come first");
    }
    for host in &scenario.hosts {
        assert!(host.gpus > 0 && host.model < scenario.models.len());
    }
    assert!(scenario.models.iter().all(|model| model.rate_milli > 0));
    assert!(scenario.settings.margin_ppm > 0);
    assert!(scenario.hosts_events.is_sorted_by_key(|event| event.at_ms));
    assert!(scenario.budget_changes.is_sorted_by_key(|change| change.at_ms));
}
