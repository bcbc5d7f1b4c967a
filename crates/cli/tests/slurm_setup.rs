//! `bursar slurm check`, `init` and `import` on a real Slurm (docs/slurm.md). Skipped with `BURSAR_NO_SLURM=1`.

#![cfg(target_os = "linux")]

use bursar_slurm_lab::{Lab, folder, skipped};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// The binary, with the cluster's environment.
fn bursar(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.args(args).envs(bursar_slurm_lab::environment()).env("NO_COLOR", "1");
    command.env_remove("BURSAR_DATA").output().expect("bursar")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs what must end with this code; gives what it printed.
fn ends(code: i32, args: &[&str]) -> String {
    let output = bursar(args);
    let both = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}: {both}");
    both
}

#[test]
fn a_cluster_is_checked_divided_and_read() {
    if skipped() {
        return;
    }
    let lab = Lab::all_nodes();
    let place = tempfile::tempdir().expect("a folder");
    let path = |name: &str| place.path().join(name).to_str().expect("UTF-8").to_owned();
    let (out, config) = (path("conf"), path("conf/bursar.yaml"));

    // Budgets of its accounts.
    let said = ends(0, &["slurm", "init", "--partition", "main", "--out", &out, "--owner", "ops"]);
    assert!(
        said.contains("2 budgets of its accounts") && said.contains("bursar up --config"),
        "{said}"
    );
    ends(0, &["config", "check", &config]);
    let budgets = std::fs::read_to_string(path("conf/budgets.yaml")).expect("budgets");
    assert!(budgets.contains("research:\n  share: 50\n"), "{budgets}");
    let said = ends(2, &["slurm", "init", "--partition", "main", "--out", &out]);
    assert!(said.contains("is there already"), "{said}");
    let said = ends(2, &["slurm", "init", "--partition", "mian", "--out", &path("other")]);
    assert!(said.contains("no partition 'mian'; give one of main"), "{said}");
    assert!(!Path::new(&path("other")).exists());

    // Nothing that watching needs is missing here, nor what governing needs; somebody who is no Administrator cannot govern.
    let data = format!("data: {}\n", path("data"));
    let mine = std::fs::read_to_string(&config).expect("a configuration") + &data;
    std::fs::write(&config, &mine).expect("a configuration");
    let said = ends(0, &["slurm", "check", "--config", &config]);
    assert!(!said.contains("MinJobAge") && said.contains("Nothing is missing"), "{said}");
    assert!(mine.contains("\n  mode: watch\n"), "a new site watches first: {mine}");
    let mine = mine.replace("\n  mode: watch\n", "\n  mode: govern\n");
    std::fs::write(&config, &mine).expect("a configuration");
    let said = ends(0, &["slurm", "check", "--config", &config]);
    assert!(said.contains("MinJobAge=3600") && said.contains("Nothing is missing"), "{said}");
    let alice = bursar_slurm_lab::through("alice").join(", ");
    std::fs::write(&config, format!("{mine}  run_by: [{alice}]\n").replace(&data, ""))
        .expect("a file");
    let output = bursar(&["slurm", "check", "--config", &config, "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = answer["findings"].as_array().expect("findings");
    let rights = findings.iter().find(|one| one["about"] == "rights").expect("rights");
    assert_eq!(rights["command"], "sacctmgr modify user alice set AdminLevel=Administrator");

    // What ran becomes a scenario that can be played at once.
    let script = "sleep 1";
    let submit = |user: &str, args: &[&str]| {
        let whole = [&["--parsable", "-p", "free", "--wrap", script], args].concat();
        lab.ok(user, "sbatch", &whole)
    };
    let jobs = [
        submit("alice", &["--gpus=2"]),
        submit("carol", &["-N2", "--gpus-per-node=8", "-J", "a|b"]),
        submit("bob", &["-n1"]),
    ];
    let begun = Instant::now();
    let all = jobs.join(",");
    // Slurm's accounts know of a job that has ended, and a second later in which partition it was.
    let ask = ["-a", "-X", "-n", "-P", "-o", "State", "-r", "free", "-j", &all];
    while lab.ok("svc", "sacct", &ask).matches("COMPLETED").count() < 3 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the jobs do not end");
        std::thread::sleep(Duration::from_millis(200));
    }
    let history = path("history");
    let args = [
        "slurm",
        "import",
        "--since",
        "2d",
        "--partition",
        "free",
        "--out",
        &history,
        "--anonymise",
    ];
    let said = ends(0, &args);
    assert!(said.contains("left out, without GPUs: "), "{said}");
    let rows = std::fs::read_to_string(path("history/history.txt")).expect("a history");
    for job in &jobs[..2] {
        assert!(rows.lines().any(|row| row.starts_with(&format!("{job}|"))), "{job}: {rows}");
    }
    assert!(
        rows.contains("|user-0001|") && !rows.contains("alice") && !rows.contains("a_b"),
        "{rows}"
    );
    let mut again = args.to_vec();
    again.extend(["--force", "--json"]);
    let answer = bursar(&again);
    let answer: serde_json::Value = serde_json::from_slice(&answer.stdout).expect("JSON");
    assert!(
        answer["jobs"].as_u64() >= Some(2) && answer["counts"]["without_gpus"].as_u64() >= Some(1),
        "{answer}"
    );
    let scenario = path("history/scenario.yaml");
    let table = ends(0, &["simulate", &scenario, "--policy", "budget", "--policy", "fair-tree"]);
    assert!(table.contains("32 GPUs on 4 hosts") && table.contains("research"), "{table}");
    assert!(folder().join("etc/slurm.conf").is_file());
}
