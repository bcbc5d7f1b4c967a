//! Workloads from trace files, with and without mappings.

use std::fs;
use std::path::{Path, PathBuf};

use bursar_scenario::{Ends, Kind, Scenario, load_path, load_str};

/// A directory of this test process's own, removed at the end.
struct Dir(PathBuf);

impl Dir {
    fn new(test: &str, files: &[(&str, &str)]) -> Self {
        let dir =
            std::env::temp_dir().join(format!("bursar-scenario-{test}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for (name, text) in files {
            fs::write(dir.join(name), text).unwrap();
        }
        Self(dir)
    }

    fn load(&self, rest: &str) -> Result<Scenario, String> {
        let text =
            format!("cluster: {{hosts: [{{count: 4, gpus: 8, model: h100, name: n}}]}}\n{rest}\n");
        fs::write(self.0.join("s.yaml"), text).unwrap();
        let dir = format!("{}/", self.0.display());
        load_path(&self.0.join("s.yaml"), &[]).map_err(|error| error.to_string().replace(&dir, ""))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // Nothing depends on it; the next run uses another name.
        let _ = fs::remove_dir_all(&self.0);
    }
}

const CSV: &str = "\
id,submit,budget,gpus,runtime,user,min_runtime,resumable,rank,kind,gpu_model,checkpoint_interval,startup,status
j10,5,a,8,3600,ann,900,true,3,session,h100,600,60,failed
j9,5,b,32,60,,,,,,,,,
";

#[test]
fn our_own_csv() {
    let dir = Dir::new("csv", &[("jobs.csv", CSV)]);
    let scenario = dir.load("budgets: {a: 1, b: 1}\nworkloads: jobs.csv").unwrap();
    let [first, second] = &scenario.workloads[..] else { panic!("{:?}", scenario.workloads) };
    assert_eq!((&*first.id, first.tie, &*second.id, second.tie), ("j10", 0, "j9", 1));
    assert_eq!(
        (first.submit_ms, first.runtime_ms, first.min_runtime_ms),
        (5_000, 3_600_000, 900_000)
    );
    assert_eq!((first.rank, first.kind, first.ends), (3, Kind::Session, Ends::Failed));
    assert_eq!((first.checkpoint_interval_ms, first.startup_ms), (Some(600_000), Some(60_000)));
    assert_eq!((first.user, first.model, first.resumable), (Some(0), Some(0), true));
    assert_eq!((second.min_runtime_ms, second.resumable, second.user), (0, false, None));
    let auto = dir.load("budgets: auto\nworkloads: [{file: jobs.csv}]").unwrap();
    assert_eq!(auto.workloads, scenario.workloads);
}

#[test]
fn what_does_not_fit_is_refused_or_skipped() {
    let dir = Dir::new("fit", &[("jobs.csv", CSV)]);
    let refused = dir.load("budgets: {a: 1, c: 1}\nworkloads: jobs.csv").unwrap_err();
    assert_eq!(
        refused,
        "s.yaml line 3: workloads: jobs.csv line 3 job 'j9': budget: there is no budget 'b'; the nearest is 'a'"
    );
    let skipped =
        dir.load("budgets: {a: 1, c: 1}\nworkloads: {file: jobs.csv, skip_bad: true}").unwrap();
    assert_eq!(skipped.workloads.len(), 1);
    assert_eq!(skipped.notes.len(), 2, "{:?}", skipped.notes);
    let twice = dir
        .load("budgets: {a: 1, b: 1}\nworkloads: [{file: jobs.csv}, {file: jobs.csv}]")
        .unwrap_err();
    assert_eq!(twice, "s.yaml: workloads: duplicate id 'j10'");
    let missing = dir.load("budgets: {a: 1, b: 1}\nworkloads: no.csv").unwrap_err();
    assert!(missing.starts_with("s.yaml line 3: workloads: no.csv: "), "{missing}");
    let folder = dir.load("budgets: {a: 1, b: 1}\nworkloads: .").unwrap_err();
    assert!(
        folder.starts_with("s.yaml line 3: workloads: ") && folder.ends_with(" is not a file"),
        "{folder}"
    );
    let format = dir.load("budgets: {a: 1}\nworkloads: {file: jobs.csv, format: xls}").unwrap_err();
    assert!(format.starts_with("s.yaml line 3: workloads: format: 'xls' is no format"), "{format}");
}

const PHILLY: &str = "\
jobname,user,vc,gpu_num,state,submit_time,duration
b,u1,v1,1,COMPLETED,88,7200
a,u2,v1,2,FAILED,88,14
c,u1,v2,2,COMPLETED,490,14
";

#[test]
fn foreign_traces_need_a_mapping_or_members_or_a_single_leaf() {
    let dir = Dir::new("foreign", &[("jobs.csv", PHILLY)]);
    let paths = |scenario: &Scenario| -> Vec<String> {
        let path =
            |w: &bursar_scenario::WorkloadSpec| scenario.budgets[w.budget as usize].path.clone();
        scenario.workloads.iter().map(path).collect()
    };
    let lost = dir.load("budgets: {a: 1, b: 1}\nworkloads: jobs.csv").unwrap_err();
    assert_eq!(
        lost,
        "s.yaml line 3: workloads: jobs.csv names no budgets; add a mapping such as {by: group, default: p/{}}, or members to budgets"
    );
    let single = dir.load("budgets: {all: 1}\nworkloads: jobs.csv").unwrap();
    assert_eq!(paths(&single), ["all", "all", "all"]);
    let ids: Vec<&str> = single.workloads.iter().map(|w| &*w.id).collect();
    assert_eq!(ids, ["b", "a", "c"], "order of rows decides between equal moments");
    assert_eq!(
        (single.workloads[0].min_runtime_ms, single.workloads[0].resumable),
        (3_600_000, true)
    );
    assert_eq!(single.workloads[1].ends, Ends::Failed);
    let members = dir.load("budgets: {x: {share: 1, members: [u1]}, y: {share: 1, members: [u2]}}\nworkloads: jobs.csv").unwrap();
    assert_eq!(paths(&members), ["x", "y", "x"]);
    let auto = dir
        .load("budgets: auto\nworkloads: {file: jobs.csv, mapping: {by: group, default: 'vc/{}', contract: {min_runtime: {cap: 30m}, resumable_above: 10s}}}")
        .unwrap();
    assert_eq!(paths(&auto), ["vc/v1", "vc/v1", "vc/v2"]);
    assert_eq!((auto.workloads[0].min_runtime_ms, auto.workloads[1].resumable), (1_800_000, true));
    let group = dir.load("budgets: {all: 1}\nworkloads: {file: jobs.csv, groups: [v2]}").unwrap();
    assert_eq!(group.workloads.len(), 1);
    let wrong =
        dir.load("budgets: {all: 1}\nworkloads: {file: jobs.csv, groups: [v3]}").unwrap_err();
    assert_eq!(
        wrong,
        "s.yaml line 3: workloads: file: groups: no job is of group 'v3'; the nearest is 'v1'"
    );
    let rule = dir
        .load("budgets: {all: 1}\nworkloads: {file: jobs.csv, mapping: {by: grup}}")
        .unwrap_err();
    assert_eq!(
        rule,
        "s.yaml line 3: workloads: mapping: by: 'grup' is not one of budget, user and group"
    );
}

#[test]
fn a_real_month_of_one_virtual_cluster() {
    let jobs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/philly/jobs.csv");
    if !jobs.exists() {
        eprintln!("skipped: {} is not there", jobs.display());
        return;
    }
    let text = "cluster: {hosts: [{count: 16, gpus: 8, model: gpu}]}\nbudgets: {all: 1}\n\
                workloads: {file: jobs.csv, groups: [11cb48]}\n";
    let scenario = load_str(text, jobs.parent().unwrap(), "philly", &[]).unwrap();
    assert_eq!(scenario.workloads.len(), 14_073);
}

#[test]
fn times_without_a_zone_are_of_the_one_that_is_named() {
    let csv = "id,submit,budget,gpus,runtime\na,2026-01-01T00:00:00,p,1,60\n\
               b,2026-01-01T00:00:00Z,p,1,60\n";
    let dir = Dir::new("zone", &[("jobs.csv", csv)]);
    let load =
        |zone: &str| dir.load(&format!("budgets: auto\nworkloads: {{file: jobs.csv{zone}}}"));
    // Midnight in Tokyo is nine hours before that of UTC.
    let tokyo = load(", time_zone: Asia/Tokyo").unwrap();
    let submits: Vec<u64> = tokyo.workloads.iter().map(|workload| workload.submit_ms).collect();
    assert_eq!(submits, [0, 9 * 3_600_000]);
    assert!(load("").unwrap_err().contains("names no zone"));
    assert_eq!(
        load(", time_zone: Mars/Olympus").unwrap_err(),
        "s.yaml line 3: workloads: time_zone: there is no time zone 'Mars/Olympus'; one is Asia/Shanghai"
    );
}
