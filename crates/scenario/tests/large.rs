//! Scenarios with very many names of each sort are read in linear time. Nothing is timed here: where a name is
//! looked up by going through all of them, these tests take minutes instead of a moment.

use bursar_scenario::{Scenario, load_str};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// How many of each.
const MANY: usize = 50_000;

fn load(text: &str, dir: &Path) -> Scenario {
    load_str(text, dir, "large", &[]).unwrap_or_else(|error| panic!("{error}"))
}

fn lines(each: impl Fn(usize) -> String) -> String {
    (0..MANY).fold(String::new(), |mut text, number| {
        writeln!(text, "{}", each(number)).expect("text grows");
        text
    })
}

fn many_budgets() -> String {
    lines(|n| format!("  b{n}: {{share: 1000000000, members: [u{n}]}}"))
}

#[test]
fn many_models_hosts_budgets_and_workloads() {
    let text = format!(
        "cluster:\n  hosts:\n{}  rates:\n{}budgets:\n{}budget_changes:\n{}hosts_events:\n{}workloads:\n{}",
        lines(|n| format!("  - {{gpus: 8, model: m{n}}}")),
        lines(|n| format!("    m{n}: 2")),
        many_budgets(),
        lines(|n| format!("- {{at: 1d, budget: b{n}, share: 2}}")),
        lines(|n| format!("- {{at: 1d, host: m{n}-0, event: drain}}")),
        lines(|n| format!(
            "- {{id: w{n}, submit: 0, budget: b{n}, gpus: 8, gpu_model: m{n}, min_runtime: 1h, runtime: 2h}}"
        )),
    );
    let scenario = load(&text, Path::new(""));
    assert_eq!((scenario.models.len(), scenario.hosts.len()), (MANY, MANY));
    assert_eq!((scenario.budgets.len(), scenario.workloads.len()), (MANY + 1, MANY));
    assert_eq!((scenario.budget_changes.len(), scenario.hosts_events.len()), (MANY, MANY));
    let last = scenario.workloads.iter().find(|work| &*work.id == "w49999").expect("it is there");
    assert_eq!(scenario.models[last.model.expect("named") as usize].name, "m49999");
    assert_eq!(scenario.budgets[last.budget as usize].path, "b49999");
}

#[test]
fn many_teams() {
    let text = format!(
        "cluster: {{hosts: [{{count: 100000, gpus: 8, model: m}}]}}\nbudgets:\n{}\
         workloads:\n  generate:\n    span: 1h\n    mixes:\n{}    teams:\n{}",
        many_budgets(),
        lines(|n| format!("      x{n}: [{{name: k, weight: 1, gpus: 1, runtime: 1h}}]")),
        lines(|n| format!("    - {{budget: b{n}, load: 0.1, mix: x{n}}}")),
    );
    let scenario = load(&text, Path::new(""));
    // A budget holds 16 GPUs for an hour, and asks for a tenth of that: an hour and the rest.
    assert_eq!(scenario.workloads.len(), 2 * MANY);
    assert_eq!(scenario.users.len(), MANY);
}

/// A folder that is gone when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("bursar-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn traces_of_many_users_and_groups() {
    let folder = Folder::new("large");
    let jobs = lines(|n| format!("j{n},u{n},vc{n},1,Pass,{n},60"));
    let text = format!("jobname,user,vc,gpu_num,state,submit_time,duration\n{jobs}");
    std::fs::write(folder.0.join("jobs.csv"), text).expect("written");
    let groups: Vec<String> = (0..MANY).map(|n| format!("vc{n}")).collect();
    let text = format!(
        "cluster: {{hosts: [{{gpus: 8, model: m}}]}}\nbudgets:\n{}\
         workloads: {{file: jobs.csv, groups: [{}]}}\n",
        many_budgets(),
        groups.join(", "),
    );
    let scenario = load(&text, &folder.0);
    assert_eq!(scenario.workloads.len(), MANY);
    for work in &scenario.workloads {
        let user = &scenario.users[work.user.expect("named") as usize];
        assert_eq!(scenario.budgets[work.budget as usize].path[1..], user[1..]);
    }
}

#[test]
fn traces_that_name_many_budgets_which_are_not_there() {
    let folder = Folder::new("unknown");
    let jobs = lines(|n| format!("j{n},0,c{n},1,60"));
    let text = format!("id,submit,budget,gpus,runtime\ngood,0,b7,1,60\n{jobs}");
    std::fs::write(folder.0.join("jobs.csv"), text).expect("written");
    let text = format!(
        "cluster: {{hosts: [{{gpus: 8, model: m}}]}}\nbudgets:\n{}\
         workloads: {{file: jobs.csv, skip_bad: true}}\n",
        many_budgets(),
    );
    let scenario = load(&text, &folder.0);
    assert_eq!(scenario.workloads.len(), 1);
    let notes = scenario.notes.join("\n");
    assert!(
        notes.contains("line 3 job 'j0': budget: there is no budget 'c0'; the nearest is"),
        "{notes}"
    );
    assert!(notes.contains(": 50000 jobs do not fit the scenario and were skipped"), "{notes}");
}
