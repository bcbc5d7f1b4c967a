//! What generator blocks promise: the load is hit, every stream has its own dice, mistakes are named.

use std::path::Path;

use bursar_scenario::{Kind, Scenario, WorkloadSpec, load_str};

const HEAD: &str = "\
cluster: {hosts: [{count: 40, gpus: 8, model: h100}]}
budgets: {p: {share: 3, children: {a: 1, b: {share: 2, members: [ann, bob]}}}, q: 1}
";

fn load(generate: &str, seed: u64) -> Result<Scenario, String> {
    let text = format!("{HEAD}seed: {seed}\nworkloads: {{generate: {{span: 20d, {generate}}}}}\n");
    load_str(&text, Path::new(""), "g.yaml", &[]).map_err(|error| error.to_string())
}

const MIX: &str = "mix: [\
    {name: small, weight: 1, gpus: {1: 3, 8: 1}, runtime: {lognormal: {median: 1h, p90: 8h}, max: 2d}, min_runtime: 15m},\
    {name: big, weight: 3, gpus: {64: 1}, runtime: {lognormal: {median: 6h, p90: 24h}, max: 3d},\
     min_runtime: {fraction: [0.2, 0.5], min: 1h, max: 8h}, max_runtime: {factor: [1.5, 3]},\
     resumable: 0.5, checkpoint_interval: [15m, 1h], on_signal: 0.5, save_time: [5s, 20s], startup: [1m, 5m], rank: {0: 1, 5: 1}}]";

fn gpu_hours<'a>(workloads: impl Iterator<Item = &'a WorkloadSpec>) -> f64 {
    workloads.map(|w| f64::from(w.gpus) * w.runtime_ms as f64 / 3.6e6).sum()
}

fn of<'a>(scenario: &'a Scenario, part: &'a str) -> impl Iterator<Item = &'a WorkloadSpec> {
    scenario.workloads.iter().filter(move |workload| workload.id.contains(part))
}

#[test]
fn loads_and_weights_are_hit() {
    for seed in 0..5 {
        let teams = format!(
            "teams: [{{budget: p/a, load: 2.5, {MIX}}}, {{budget: q, load: 0.5, {MIX}, sweeps: {{load: 1, gpus: 1, runtime: 2h}}}}]"
        );
        let scenario = load(&teams, seed).unwrap();
        // p/a holds a quarter of 320 GPUs, q another.
        let allocation = 80.0 * 480.0;
        for (part, load) in [
            ("p-a.small", 2.5 / 4.0),
            ("p-a.big", 2.5 * 3.0 / 4.0),
            ("q.small", 0.125),
            ("q.big", 0.375),
            ("q.sweeps", 1.0),
        ] {
            let hit = gpu_hours(of(&scenario, part)) / (allocation * load);
            assert!((hit - 1.0).abs() < 0.01, "seed {seed} {part}: {hit}");
        }
        assert_eq!(scenario.span_ms, Some(20 * 86_400_000));
        assert!(scenario.workloads.iter().all(|w| w.submit_ms < 20 * 86_400_000));
    }
}

#[test]
fn streams_do_not_depend_on_each_other() {
    let alone = load(&format!("teams: [{{budget: p/a, load: 2, {MIX}}}]"), 7).unwrap();
    let both = load(
        &format!(
            "every_team: {{debug: {{per_user_per_day: 3, gpus: 1, runtime: 10m}}}}, \
             teams: [{{budget: q, load: 1, {MIX}}}, {{budget: p/a, load: 2, {MIX}}}]"
        ),
        7,
    )
    .unwrap();
    let bare = |scenario: &Scenario, part| -> Vec<String> {
        of(scenario, part)
            .map(|w| format!("{:?}", WorkloadSpec { tie: 0, user: None, ..w.clone() }))
            .collect()
    };
    for part in ["p-a.small", "p-a.big"] {
        assert_eq!(bare(&alone, part), bare(&both, part));
        let other = load(&format!("teams: [{{budget: p/a, load: 2, {MIX}}}]"), 8).unwrap();
        assert_ne!(bare(&alone, part), bare(&other, part));
    }
    assert_eq!(load("teams: [{budget: p/a}]", 7).unwrap_err(), "g.yaml: workloads: there are none");
}

#[test]
fn side_streams_have_their_defaults_and_amounts() {
    let scenario = load(
        "every_team: {debug: {per_user_per_day: 3, gpus: {1: 1, 8: 1}, runtime: {uniform: [1m, 15m]}}, \
         squatters: {users: 1, per_user_per_day: 0.5, gpus: 8, runtime: {uniform: [6h, 12h]}, min_runtime: 12h}}, \
         teams: [{budget: p/b}, {budget: q, users: 4, squatters: none}]",
        1,
    )
    .unwrap();
    let count = |part| of(&scenario, part).count();
    assert_eq!((count("p-b.debug"), count("q.debug")), (3 * 2 * 20, 3 * 4 * 20));
    assert_eq!((count("p-b.squatters"), count("q.squatters")), (10, 0));
    assert!(of(&scenario, ".debug").all(|w| w.min_runtime_ms == 900_000 && w.kind == Kind::Batch));
    // A contract above the horizon is declared as the horizon.
    assert!(
        of(&scenario, "squatters")
            .all(|w| w.kind == Kind::Session && w.min_runtime_ms == 28_800_000)
    );
    assert!(scenario.users.iter().any(|user| user == "ann"), "{:?}", scenario.users);
    assert!(scenario.users.iter().any(|user| user == "q-u4"), "{:?}", scenario.users);
}

#[test]
fn what_is_drawn_is_consistent() {
    let scenario = load(&format!("teams: [{{budget: p/a, load: 4, {MIX}}}]"), 3).unwrap();
    for w in &scenario.workloads {
        assert!(w.runtime_ms >= 1_000 && w.runtime_ms % 1_000 == 0, "{w:?}");
        assert!(w.min_runtime_ms % 300_000 == 0 && w.min_runtime_ms >= 900_000, "{w:?}");
        assert!(w.max_runtime_ms.is_none_or(|max| max > w.runtime_ms), "{w:?}");
        assert!(w.checkpoint_interval_ms.is_none() || w.resumable, "{w:?}");
        assert!(!w.checkpoint_on_signal || w.resumable, "{w:?}");
        assert!(w.save_time_ms <= 20_000, "{w:?}");
    }
    let resumable = of(&scenario, "big").filter(|w| w.resumable).count();
    let all = of(&scenario, "big").count();
    assert!((0.3..0.7).contains(&(resumable as f64 / all as f64)), "{resumable} of {all}");
    let ids: Vec<&str> = of(&scenario, "big").map(|w| &*w.id).collect();
    assert!(ids.is_sorted(), "numbered in order of submission");
}

#[test]
fn mistakes_are_named() {
    let table = [
        (
            "teams: [{budget: p, load: 1, mix: []}]",
            "g.yaml line 4: workloads: generate: teams[0]: budget: 'p' is divided among p/a, p/b; name a leaf",
        ),
        (
            "teams: [{budget: q, mix: big}]",
            "g.yaml line 4: workloads: generate: teams[0]: mix: there is no mix 'big' ()",
        ),
        (
            "mixes: {big: [{name: x, weight: 1, gpus: 1, runtime: 1h}]}, teams: [{budget: q, mix: big}]",
            "g.yaml line 4: workloads: generate: teams[0]: 'load' is missing",
        ),
        (
            "teams: [{budget: q, load: 1, mix: [{name: x, weight: 1, gpus: 400, runtime: 1h}]}]",
            "g.yaml line 4: workloads: generate: teams[0]: mix[0]: gpus: 400 is more than the cluster has for one workload: hosts of one model and size have 320 together (rule 8); ask for at most 320, or declare more hosts",
        ),
        (
            "teams: [{budget: q, load: 1, mix: [{name: x, weight: 1, gpus: {1: 0}, runtime: 1h}]}]",
            "g.yaml line 4: workloads: generate: teams[0]: mix[0]: gpus: the weights add up to nothing",
        ),
        (
            "teams: [{budget: q, load: 1, mix: [{name: debug, weight: 1, gpus: 1, runtime: 1h}]}]",
            "g.yaml line 4: workloads: generate: teams[0]: mix[0]: the name 'debug' is taken",
        ),
        (
            "teams: [{budget: q, sweeps: {gpus: 1, runtime: 1h}}]",
            "g.yaml line 4: workloads: generate: teams[0]: sweeps: give one of 'load' and 'per_user_per_day'",
        ),
        (
            "teams: [{budget: q, sweeps: {load: 1, gpus: 1, runtime: {uniform: [2h, 1h]}}}]",
            "g.yaml line 4: workloads: generate: teams[0]: sweeps: runtime: uniform: low is above high",
        ),
        (
            "teams: [{budget: q, sweeps: {load: 1, gpus: 1, runtime: 1h, arrival: {start: 30d}}}]",
            "g.yaml line 4: workloads: generate: teams[0]: sweeps: its arrival leaves no moment within the span",
        ),
        (
            "teams: [{budget: q, sweeps: {load: 1000, gpus: 1, runtime: 1s}}]",
            "g.yaml line 4: workloads: generate: teams[0]: sweeps: more than 2000000 workloads would be drawn in all",
        ),
        (
            "teams: [{budget: q}, {budget: q}]",
            "g.yaml line 4: workloads: generate: teams[1]: duplicate team for 'q', first on line 4",
        ),
        (
            "every_team: {load: x}, teams: [{budget: q, mix: []}]",
            "g.yaml line 4: workloads: generate: teams[0]: every_team: load: 'x' is not a number",
        ),
        (
            "team: []",
            "g.yaml line 4: workloads: generate: unknown key 'team'; the nearest valid key is 'teams'",
        ),
        (
            "teams: [{budget: q, arrival: {bursts_per_week: 2}}]",
            "g.yaml line 4: workloads: generate: teams[0]: arrival: bursts_per_week: only 'kind: bursty' has bursts",
        ),
    ];
    for (generate, want) in table {
        assert_eq!(load(generate, 0).unwrap_err(), want);
    }
}
