//! No text makes the reader panic, hang, or answer in more than one line.

use std::path::Path;

use bursar_scenario::load_str;
use proptest::prelude::*;

const GOOD: &str = "\
about: text
cluster: {hosts: [{count: 4, gpus: 8, model: h100, name: gpu, domain: r}, {gpus: 8, model: b200}], rates: {b200: 2.5}}
budgets:
  p: {share: 1, members: [ann], limit: 1000, children: {p1: {share: 0.5}, p2: 3}}
  q: &q {share: 2}
settings: {horizon: 8h, lookback: 7d, margin: 0.05, grace: 30s, debug_hosts: 10%, reservations: 1}
hosts_events: [{at: 1h, host: gpu-1, event: fail}, {at: 2h, host: gpu-1, event: repair}]
budget_changes: [{at: 10d, budget: p/p1, share: 2}]
seed: 3
workloads:
  - {id: run-1, submit: 0s, budget: p/p1, gpus: 2, runtime: 1h30m, min_runtime: 1h, rank: -3, user: ann}
  - &w {id: run-2, submit: 5m, budget: q, hosts: 2, gpus_per_host: 8, runtime: 1h, resumable: true}
  - {<<: *w, id: run-3}
  - generate:
      span: 2d
      every_team: {debug: {per_user_per_day: 3, gpus: {1: 3, 8: 1}, runtime: {uniform: [1m, 15m]}}}
      teams:
        - budget: q
          load: 1.5
          arrival: {kind: bursty, bursts_per_week: 2, burst_factor: 5, day_night: 0.6, weekend: 0.4, backlog: 0.1}
          mix: [{name: m, weight: 1, gpus: 8, runtime: {lognormal: {median: 2h, p90: 9h}, max: 1d}, min_runtime: {fraction: 0.5}}]
";

fn check(text: &str) -> Result<(), TestCaseError> {
    match load_str(text, Path::new("/nonexistent"), "s", &[]) {
        Ok(scenario) => {
            prop_assert!(!scenario.workloads.is_empty());
            let order: Vec<_> = scenario.workloads.iter().map(|w| (w.submit_ms, w.tie)).collect();
            prop_assert!(order.windows(2).all(|pair| pair[0] < pair[1]));
            for workload in &scenario.workloads {
                prop_assert!(scenario.budgets[workload.budget as usize].is_leaf);
                prop_assert!(workload.gpus > 0 && workload.runtime_ms > 0);
                prop_assert!(workload.min_runtime_ms <= scenario.settings.horizon_ms);
            }
        }
        Err(error) => {
            let text = error.to_string();
            prop_assert_eq!(text.lines().count(), 1);
            prop_assert!(!text.chars().any(char::is_control));
        }
    }
    Ok(())
}

/// Pieces that mean something to YAML or to a scenario.
fn piece() -> impl Strategy<Value = String> {
    let words = [
        "0",
        "-1",
        ".nan",
        ".inf",
        "1e400",
        "99999999999999999999",
        "0.0000001",
        "*q",
        "*w",
        "&q",
        "<<",
        ": ",
        "- ",
        "\n",
        "\n  ",
        "{",
        "}",
        "[",
        "]",
        ",",
        "'",
        "\"",
        "#",
        "|",
        ">",
        "!!str ",
        "%",
        "---\n",
        "\t",
        "\0",
        "null",
        "~",
        "p/p1",
        "15m",
        "1h30m",
        "7d",
        "10000-01-01T00:00:00Z",
        "\u{feff}",
        "ß",
        "\u{2028}",
        "file: /dev/zero",
    ];
    prop_oneof![
        4 => prop::sample::select(words.to_vec()).prop_map(String::from),
        1 => any::<String>(),
        1 => "[a-z_]{1,12}",
    ]
}

/// The nearest place at or after `at` where the text may be cut.
fn cut(text: &str, at: usize) -> usize {
    (at.min(text.len())..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text(text in any::<String>()) {
        check(&text)?;
    }

    #[test]
    fn any_bytes_that_are_text(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        check(&String::from_utf8_lossy(&bytes))?;
    }

    #[test]
    fn pieces_of_yaml(pieces in prop::collection::vec(piece(), 0..60)) {
        check(&pieces.concat())?;
    }

    #[test]
    fn mutated_scenarios(
        edits in prop::collection::vec((0..GOOD.len(), 0..12_usize, piece()), 1..5),
    ) {
        let mut text = GOOD.to_owned();
        for (at, length, piece) in edits {
            let from = cut(&text, at);
            let to = cut(&text, from + length);
            text.replace_range(from..to, &piece);
        }
        check(&text)?;
    }

    #[test]
    fn overrides(key in piece(), value in piece()) {
        for key in [key.as_str(), "seed", "lookback", "horizon", "margin", "debug_hosts", "grace"] {
            let overrides = [(key.to_owned(), value.clone())];
            if let Err(error) = load_str(GOOD, Path::new(""), "s", &overrides) {
                prop_assert_eq!(error.to_string().lines().count(), 1);
            }
        }
    }
}

#[test]
fn the_seed_text_of_the_mutations_is_good() {
    let scenario = load_str(GOOD, Path::new(""), "s", &[]).unwrap();
    assert!(scenario.workloads.len() > 10);
}
