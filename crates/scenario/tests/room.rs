//! Work that could never start on its cluster is refused when the scenario is read, and nothing else is.

use bursar_scenario::load_str;
use std::path::Path;

/// Three pools: 4 hosts of 8 GPUs and 3 of 4 with one model, one of 16 with another. The last two hosts declared
/// (one of 4 GPUs, and that of 16) are debug hosts.
fn load(workload: &str, more: &str) -> Result<(), String> {
    let text = format!(
        "cluster: {{hosts: [{{count: 4, gpus: 8, model: h100, name: x}}, \
         {{count: 3, gpus: 4, model: h100, name: y}}, {{gpus: 16, model: b200, name: z}}]}}\n\
         budgets: {{p: {{share: 1, children: {{a: 1, none: 0, capped: {{share: 1, limit: 90}}}}}}, q: 1}}\n\
         settings: {{debug_hosts: 2}}\n{more}\nworkloads:\n  \
         - {{id: w, submit: 0s, runtime: 1h, {workload}}}"
    );
    let read = load_str(&text, Path::new(""), "t", &[]);
    read.map(|_| ()).map_err(|error| {
        assert_eq!(error.to_string().lines().count(), 1);
        error.message
    })
}

fn good(workload: &str) {
    assert_eq!(load(workload, ""), Ok(()), "{workload}");
}

fn bad(workload: &str, parts: &[&str]) {
    let message = load(workload, "").expect_err(workload);
    for part in ["workloads[0] 'w': "].iter().chain(parts) {
        assert!(message.contains(part), "{part:?} in {message:?}");
    }
}

#[test]
fn a_gang_is_no_larger_than_hosts_of_one_model_and_size() {
    good("budget: p/a, gpus: 32, min_runtime: 0s");
    bad("budget: p/a, gpus: 33", &["gpus: 33 is more than", "have 32 together", "at most 32"]);
    // 12 GPUs fit the host of 16, and of the other model three hosts.
    good("budget: p/a, gpus: 12");
    good("budget: p/a, gpus: 12, gpu_model: h100");
    bad("budget: p/a, gpus: 17, gpu_model: b200", &["gpus: 17", "'b200' and one size have 16"]);
    good("budget: p/a, hosts: 4, gpus_per_host: 5");
    good("budget: p/a, hosts: 4, gpus_per_host: 4");
    // There are seven hosts with 4 GPUs, but no seven of one size.
    bad("budget: p/a, hosts: 5, gpus_per_host: 4", &["hosts: 5 hosts", "there are 4", "fewer"]);
    bad("budget: p/a, hosts: 2, gpus_per_host: 16", &["hosts: 2 hosts", "there are 1 "]);
}

#[test]
fn charged_work_does_without_the_debug_hosts() {
    let debug = "the last 2 hosts are debug hosts, which take contracts of at most 15m on one host";
    good("budget: p/a, gpus: 32, min_runtime: 1h");
    good("budget: p/a, gpus: 8, gpu_model: h100, min_runtime: 1h");
    // Of model h100 the others are 4 x 8 and 2 x 4.
    good("budget: p/a, hosts: 2, gpus_per_host: 4, min_runtime: 1h");
    good("budget: p/a, hosts: 4, gpus_per_host: 4, min_runtime: 1h");
    // One host of 16 is a debug host: what fits it is not split over others, and may stay 15 minutes.
    let large = "budget: p/a, gpus: 12";
    good(&format!("{large}, min_runtime: 15m"));
    good(&format!("{large}, min_runtime: 1h, max_runtime: 15m"));
    let split = "none of the others is large enough for what is never split";
    bad(
        &format!("{large}, min_runtime: 15m1s"),
        &["gpus: 12 can never start", debug, split, "min_runtime: 0", "debug_hosts"],
    );
    good(&format!("{large}, gpu_model: h100, min_runtime: 1h"));
    bad(
        "budget: p/a, gpus: 16, gpu_model: b200, min_runtime: 1h",
        &["gpus: 16 can never start", debug, "the others have at most 0 for one workload"],
    );
    bad(
        "budget: p/a, hosts: 1, gpus_per_host: 9, min_runtime: 1h",
        &["hosts: 1 can never start", debug, "there are 0 others"],
    );
    good("budget: p/a, hosts: 1, gpus_per_host: 9, min_runtime: 15m");
}

#[test]
fn what_may_be_charged_to_nobody_may_have_the_debug_hosts() {
    let gang = "gpus: 16, gpu_model: b200, min_runtime: 1h";
    good(&format!("budget: p/none, {gang}"));
    good(&format!("budget: p/capped, {gang}"));
    let change = |path: &str, share: u32| {
        let more = format!("budget_changes: [{{at: 1d, budget: {path}, share: {share}}}]");
        load(&format!("budget: p/a, {gang}"), &more).is_ok()
    };
    assert!(change("p/a", 0) && change("p", 0));
    assert!(!change("p/a", 3) && !change("q", 0));
}

#[test]
fn generators_and_traces_are_checked_alike() {
    let text = |gpus: u32| {
        format!(
            "cluster: {{hosts: [{{count: 4, gpus: 8, model: m}}]}}\nbudgets: {{p: 1}}\n\
             settings: {{debug_hosts: 1}}\nworkloads:\n  generate:\n    span: 1d\n    teams:\n      \
             - {{budget: p, load: 1, mix: [{{name: big, weight: 1, gpus: {gpus}, runtime: 1h, min_runtime: 1h}}]}}"
        )
    };
    let load = |gpus: u32| load_str(&text(gpus), Path::new(""), "t", &[]);
    assert!(load(24).is_ok());
    let message = load(25).expect_err("too large").to_string();
    let start = "t line 8: workloads: generate: teams[0]: big: gpus: 25 can never start: the last host is a debug host";
    assert!(message.starts_with(start), "{message}");

    let dir = std::env::temp_dir().join(format!("bursar-room-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let csv = "id,submit,budget,gpus,runtime,min_runtime\nr1,0,p,24,60,3600\nr2,0,p,25,60,3600\n";
    std::fs::write(dir.join("jobs.csv"), csv).expect("written");
    let trace = |skip: &str| {
        let head = text(1);
        let head = &head[..head.find("workloads:").expect("there")];
        let text = format!("{head}workloads: {{file: jobs.csv{skip}}}");
        load_str(&text, &dir, "t", &[])
    };
    let message = trace("").expect_err("too large").to_string();
    assert!(message.contains("jobs.csv line 3 job 'r2': gpus: 25 can never start"), "{message}");
    let skipped = trace(", skip_bad: true").expect("one is good");
    assert_eq!(skipped.workloads.len(), 1);
    assert!(skipped.notes.iter().any(|note| note.contains("gpus: 25 can never start")));
    std::fs::remove_dir_all(&dir).expect("it was made above");
}
