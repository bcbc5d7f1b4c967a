//! What `scenarios/lab.yaml` holds, and that it holds the same everywhere.

use std::collections::BTreeMap;
use std::path::Path;

use bursar_scenario::{Kind, Scenario, WorkloadSpec, load_path};

fn lab(overrides: &[(&str, &str)]) -> Scenario {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/lab.yaml");
    let overrides: Vec<_> = overrides.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    load_path(&path, &overrides).unwrap_or_else(|error| panic!("{error}"))
}

/// FNV-1a over everything that was drawn.
fn hash(scenario: &Scenario) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for w in &scenario.workloads {
        let what = (&w.id, w.tie, w.submit_ms, w.budget, w.user, w.gpus, w.runtime_ms);
        let contract = (w.min_runtime_ms, w.max_runtime_ms, w.resumable, w.rank, w.startup_ms);
        let saving = (w.checkpoint_interval_ms, w.checkpoint_on_signal, w.save_time_ms);
        for byte in format!("{what:?}{contract:?}{saving:?}").bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    hash
}

/// `mid` of `language-data.mid.00042`.
fn kind_of(id: &str) -> &str {
    id.split('.').nth(1).unwrap_or("")
}

const CAPACITY_GPU_H: f64 = 1_024.0 * 720.0;

fn gpu_h(gpus: u32, runtime_ms: u64) -> f64 {
    f64::from(gpus) * runtime_ms as f64 / 3.6e6
}

/// A change here changes every published figure about the lab: make it on purpose.
#[test]
fn the_lab_is_the_same_on_every_machine() {
    let hashes: Vec<String> = [&[][..], &[("seed", "1")], &[("seed", "2")]]
        .into_iter()
        .map(|overrides| format!("{:016x}", hash(&lab(overrides))))
        .collect();
    assert_eq!(hashes, ["22c679a0298ab550", "22c679a0298ab550", "637d88ec5cba0a54"]);
}

#[test]
fn each_team_asks_for_its_load() {
    let loads = [
        ("language/pretraining", 4.0),
        ("language/posttraining", 3.0),
        ("language/data", 0.85),
        ("vision/generation", 4.0),
        ("vision/perception", 3.0),
        ("vision/video", 3.2),
        ("robotics/control", 0.9),
        ("robotics/manipulation", 0.8),
        ("robotics/simulation", 1.2),
        ("science/proteins", 1.2),
        ("science/climate", 1.0),
        ("science/materials", 0.9),
        ("platform/safety", 0.8),
        ("platform/evaluation", 0.8),
        ("platform/inference", 0.8),
    ];
    for seed in ["1", "2", "3", "4", "5", "6"] {
        let lab = lab(&[("seed", seed)]);
        for (path, load) in loads {
            let leaf = lab.budget_index(path).unwrap();
            let mix = lab.workloads.iter().filter(|w| {
                w.budget as usize == leaf
                    && matches!(kind_of(&w.id), "quick" | "long" | "once" | "mid" | "large")
            });
            let drawn: f64 = mix.map(|w| gpu_h(w.gpus, w.runtime_ms)).sum();
            let hit = drawn / (CAPACITY_GPU_H * fraction(&lab, leaf) * load);
            assert!((hit - 1.0).abs() < 0.05, "seed {seed} {path}: {hit:.3} of the load");
        }
    }
}

/// Share among siblings over the whole path.
fn fraction(lab: &Scenario, leaf: usize) -> f64 {
    let Some(parent) = lab.budgets[leaf].parent else { return 1.0 };
    let siblings = lab.budgets.iter().filter(|budget| budget.parent == Some(parent));
    let sum: u64 = siblings.map(|budget| budget.share_micro).sum();
    lab.budgets[leaf].share_micro as f64 / sum as f64 * fraction(lab, parent)
}

#[test]
fn the_lab_in_numbers() {
    let lab = lab(&[]);
    assert_eq!((lab.hosts.len(), lab.gpus_total()), (128, 1_024));
    assert_eq!(lab.budgets.iter().filter(|budget| budget.is_leaf).count(), 15);
    assert_eq!(lab.settings.debug_hosts, 4);
    let count = lab.workloads.len();
    let mut by_leaf: BTreeMap<u32, f64> = BTreeMap::new();
    let mut by_kind: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
    let mut by_size: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
    for workload in &lab.workloads {
        let amount = gpu_h(workload.gpus, workload.runtime_ms);
        let kind = by_kind.entry(kind_of(&workload.id)).or_default();
        *kind = (kind.0 + 1, kind.1 + amount);
        let size = match workload.gpus {
            1 => "1",
            2..=8 => "2-8",
            9..=64 => "9-64",
            _ => "65-256",
        };
        let size = by_size.entry(size).or_default();
        *size = (size.0 + 1, size.1 + amount);
        if workload.min_runtime_ms > 0 {
            *by_leaf.entry(workload.budget).or_default() += amount;
        }
    }
    println!("{count} workloads, {} users", lab.users.len());
    for (name, (count, amount)) in by_kind.iter().chain(&by_size) {
        println!(
            "{name:10} {count:6} {:8.0} GPU-h {:5.3} of capacity",
            amount,
            amount / CAPACITY_GPU_H
        );
    }
    for (leaf, amount) in &by_leaf {
        let path = &lab.budgets[*leaf as usize].path;
        let fraction = fraction(&lab, *leaf as usize);
        let part = amount / CAPACITY_GPU_H / fraction;
        println!("{path:24} {:6.1} GPUs, asks for {part:5.2} times", fraction * 1_024.0);
    }
    let allocated: f64 = by_leaf.values().sum::<f64>() / CAPACITY_GPU_H;
    println!("allocated {allocated:.3}");
    assert!((30_000..60_000).contains(&count), "{count}");
    assert!((2.0..3.0).contains(&allocated), "{allocated}");
    assert!(lab.workloads.iter().any(|workload| workload.gpus == 256));
    let debug = |w: &&WorkloadSpec| (1..=900_000).contains(&w.min_runtime_ms);
    assert!(lab.workloads.iter().filter(debug).all(|w| kind_of(&w.id) == "debug" && w.gpus <= 8));
    assert!(lab.workloads.iter().any(|workload| workload.kind == Kind::Session));
}
