//! Setting up: what a real release answered, what is thought of it, and what budgets are made of it.

use bursar_slurm::check::{Facts, Finding, Remedy, Verdict, Wanted, findings};
use bursar_slurm::client::{Call, ClientError, Clients, Program, SystemClients};
use bursar_slurm::read::{
    Config, FairShare, Mark, read_associations, read_config, read_coordinators, read_history,
    read_partitions, read_preempting,
};
use bursar_slurm::{JOB_SUBMIT_LUA, PlannedBudget, UserBudgets, plan_budgets};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/22.05").join(name);
    // A name in it is no UTF-8.
    String::from_utf8_lossy(&fs::read(path).expect("a fixture")).into_owned()
}

#[test]
fn a_configuration() {
    let config: Config =
        read_config(fixture("scontrol-config").as_bytes()).expect("a configuration");
    assert_eq!(
        (config.get("SLURM_VERSION"), config.get("ClusterName")),
        (Some("22.05.8"), Some("lab"))
    );
    assert_eq!(config.number("MinJobAge"), Some(300));
    assert!(config.list("SchedulerParameters").contains(&"bf_continue"));
    assert_eq!(config.get("EpilogSlurmctld"), None);
}

#[test]
fn partitions() {
    let found = read_partitions(fixture("scontrol-partition").as_bytes()).expect("partitions");
    let names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["main", "free", "only1", "only2", "only3", "only4"]);
    assert_eq!(found[0].nodes, ["n1", "n2", "n3", "n4"]);
    assert_eq!((&*found[0].state, &*found[0].preempt_mode), ("UP", "OFF"));
}

#[test]
fn a_history() {
    let rows =
        read_history(fixture("sacct-history").as_bytes(), &Mark::of("<5f0a>")).expect("rows");
    let shown: Vec<String> = rows
        .iter()
        .map(|row| {
            format!("{} {} {} {} {}", row.job, row.user, row.state, row.gpus(), row.elapsed_s)
        })
        .collect();
    assert_eq!(
        shown,
        [
            "1 alice COMPLETED 3 3",
            "2 carol COMPLETED 16 5",
            "3 bob COMPLETED 0 5",
            "4_1 dave REQUEUED 1 2",
            "4_2 dave CANCELLED by 0 1 29",
            "4_3 dave CANCELLED by 0 1 29",
        ]
    );
    assert_eq!((&*rows[3].name, rows[3].ended), ("name|with bar", Some(1_796_040_634)));
}

fn lines(budgets: &BTreeMap<String, PlannedBudget>, indent: usize, into: &mut String) {
    for (name, one) in budgets {
        let share = one.share_micro / 1_000_000;
        let people = |what: &str, people: &[String]| match people {
            [] => String::new(),
            people => format!(" {what} {}", people.join(" ")),
        };
        let (owners, members) = (people("owned by", &one.owners), people("of", &one.members));
        *into += &format!("{:indent$}{name} {share}{owners}{members}\n", "");
        lines(&one.children, indent + 2, into);
    }
}

#[test]
fn budgets_of_accounts() {
    let read = read_associations(fixture("sacctmgr-assoc").as_bytes()).expect("associations");
    assert_eq!(read.iter().filter(|one| one.share == FairShare::Parent).count(), 2);
    let coordinators =
        read_coordinators(fixture("sacctmgr-coordinators").as_bytes()).expect("coordinators");
    let plan = plan_budgets(&read, &coordinators, UserBudgets::None).expect("a tree");
    let mut shown = String::new();
    lines(&plan.budgets, 0, &mut shown);
    assert_eq!(
        shown,
        "\
old 0 of bob
product 50 of carol dave
research 50 of alice bob
speech 20 owned by carol dave of carol
transit 2 of carol
vision 30 owned by erin
  vision-3d 1 of bob
  vision-own 5 of erin
  vision-video 3 of alice frank
"
    );
    let accounts: Vec<_> =
        plan.accounts.iter().map(|(one, path)| format!("{one}: {path}")).collect();
    assert_eq!(accounts, ["vision: vision/vision-own", "vision video: vision/vision-video"]);
    assert_eq!(plan.notes.len(), 4, "{:#?}", plan.notes);
    for (note, word) in plan.notes.iter().zip(["parent", "vision-video", "vision-own", "root, svc"])
    {
        assert!(note.contains(word), "{note}");
    }
    assert_eq!(read_preempting(fixture("sacctmgr-qos").as_bytes()).expect("QOS").len(), 1);
}

/// Clients that answer what a real release did, with some words of it replaced.
struct Recorded {
    replaced: Vec<(String, String)>,
    uid: &'static str,
}

impl Clients for Recorded {
    fn run(&self, call: &Call) -> Result<Vec<u8>, ClientError> {
        let args: Vec<&str> = call.args.iter().map(String::as_str).collect();
        let refused = |said: &str| {
            let (call, said) = (call.to_string(), said.to_owned());
            Err(ClientError::Refused { call, said, output: Vec::new() })
        };
        let mark = args.iter().find_map(|arg| {
            let from = arg.find('<')?;
            arg[from..].split_inclusive('>').next()
        });
        let text = match (call.program, &args[..]) {
            (_, ["--version"]) => "slurm-wlm 22.05.8\n".to_owned(),
            (Program::Scontrol, ["ping"]) => "Slurmctld(primary) at ctl is UP\n".to_owned(),
            (Program::Scontrol, ["show", "config"]) => fixture("scontrol-config"),
            (Program::Scontrol, ["-a", "-o", "show", "partition"]) => fixture("scontrol-partition"),
            (Program::Sinfo, _) => fixture("sinfo"),
            (Program::Squeue, _) => fixture("squeue-live"),
            (Program::Id, ["-u"]) => self.uid.to_owned(),
            (Program::Id, ["-un"]) => "svc\n".to_owned(),
            (Program::Sacctmgr, args) if args.contains(&"assoc") => fixture("sacctmgr-assoc"),
            (Program::Sacctmgr, args) if args.contains(&"user") => fixture("sacctmgr-user"),
            (Program::Sacctmgr, args) if args.contains(&"qos") => fixture("sacctmgr-qos"),
            _ => return refused("nobody has recorded that"),
        };
        let text = mark.map_or(text.clone(), |mark| text.replace("<5f0a>", mark));
        let text = self.replaced.iter().fold(text, |text, (from, to)| text.replace(&**from, to));
        if text == "down" {
            refused("slurm_load: Unable to contact slurm controller")
        } else {
            Ok(text.into())
        }
    }
}

fn wanted(partition: &str) -> Wanted {
    Wanted {
        partitions: vec![partition.to_owned()],
        file: "bursar.yaml".to_owned(),
        ..Wanted::default()
    }
}

fn checked(replaced: &[(&str, &str)], wanted: &Wanted) -> Vec<Finding> {
    let owned = |(from, to): &(&str, &str)| ((*from).to_owned(), (*to).to_owned());
    let clients = Recorded { replaced: replaced.iter().map(owned).collect(), uid: "20005\n" };
    findings(&Facts::gather(&clients, wanted), wanted)
}

fn about<'a>(found: &'a [Finding], about: &str, verdict: Verdict) -> &'a Finding {
    let is = |one: &&Finding| one.about == about && one.verdict == verdict;
    found.iter().find(is).unwrap_or_else(|| panic!("no {verdict:?} of {about} in {found:#?}"))
}

#[test]
fn a_cluster_as_it_is() {
    let found = checked(&[], &wanted("main"));
    for good in [
        "clients",
        "slurmctld",
        "slurmdbd",
        "rights",
        "JobSubmitPlugins",
        "PreemptType",
        "AccountingStorageTRES",
    ] {
        about(&found, good, Verdict::Good);
    }
    assert!(found.iter().all(|one| one.verdict != Verdict::Missing), "{found:#?}");
    let gpus = about(&found, "partition main", Verdict::Good);
    assert_eq!(gpus.found, "32 GPUs: 4 nodes with 8 h100; out of service: n2, n4");
    let others = about(&found, "partition main", Verdict::Advice);
    assert!(
        others.found.starts_with("free, only1, only2, only3, only4 have nodes of it"),
        "{}",
        others.found
    );
    let json = serde_json::to_value(about(&found, "MinJobAge", Verdict::Advice)).expect("JSON");
    assert_eq!((&json["line"], &json["file"]), (&"MinJobAge=3600".into(), &"slurm.conf".into()));
    assert!(about(&found, "jobs", Verdict::Good).found.contains("came through the gate"));
}

#[test]
fn what_is_missing_is_said_with_its_line() {
    let replaced = [
        ("JobSubmitPlugins        = lua", "JobSubmitPlugins = throttle"),
        ("gres/gpu,gres/gpu:h100\nAcc", "fs/lustre\nAcc"),
        ("PreemptType             = preempt/none", "PreemptType = preempt/partition_prio"),
        ("PreemptMode=OFF State=UP", "PreemptMode=REQUEUE State=DOWN"),
        ("batch_sched_delay=1,", ""),
        ("svc|Administrator", "svc|Operator"),
        ("AccountingStorageEnforce = associations,limits,qos", "AccountingStorageEnforce = none"),
    ];
    let found = checked(&replaced, &wanted("main"));
    let line = |what: &str, verdict| {
        let json = serde_json::to_value(about(&found, what, verdict)).expect("JSON");
        json["line"].as_str().or(json["command"].as_str()).expect("a remedy").to_owned()
    };
    let missing = Verdict::Missing;
    assert_eq!(line("JobSubmitPlugins", missing), "JobSubmitPlugins=throttle,lua");
    assert_eq!(
        line("AccountingStorageTRES", missing),
        "AccountingStorageTRES=fs/lustre,gres/gpu,gres/gpu:h100"
    );
    assert_eq!(line("PreemptType", missing), "PartitionName=main … PreemptMode=OFF");
    assert_eq!(line("partition main", missing), "scontrol update PartitionName=main State=UP");
    assert_eq!(line("rights", missing), "sacctmgr modify user svc set AdminLevel=Administrator");
    assert!(line("SchedulerParameters", Verdict::Advice).ends_with(",batch_sched_delay=1"));
    about(&found, "AccountingStorageEnforce", Verdict::Advice);
    about(&checked(&[], &wanted("nosuch")), "partition nosuch", missing);
    let by_qos = checked(&[("= preempt/none", "= preempt/qos")], &wanted("main"));
    assert!(
        about(&by_qos, "PreemptType", missing).found.contains("QOS high displaces jobs of normal")
    );
}

#[test]
fn a_cluster_that_does_not_answer_has_few_findings() {
    let down = fixture("scontrol-config");
    let found = checked(&[(&down, "down")], &wanted("main"));
    about(&found, "clients", Verdict::Good);
    let why = &about(&found, "slurmctld", Verdict::Missing).found;
    assert!(why.contains("Unable to contact"), "{why}");
    assert_eq!(found.len(), 2, "{found:#?}");
    let old = checked(&[("slurm-wlm 22.05.8", "slurm 20.11.4")], &wanted("main"));
    assert!(about(&old, "client squeue", Verdict::Missing).why.contains("22.05"));
    let through = Wanted { run_by: vec!["/nonexistent/sudo".to_owned()], ..wanted("main") };
    let clients = SystemClients { through: through.run_by.clone(), ..SystemClients::default() };
    let found = findings(&Facts::gather(&clients, &through), &through);
    let [one] = &found[..] else { panic!("{found:#?}") };
    let begin = "scontrol, squeue, sinfo, sacct, scancel, sacctmgr cannot be run through '/nonexistent/sudo'";
    assert!(one.found.starts_with(begin), "{}", one.found);
}

#[test]
fn the_gate_and_its_table_are_looked_at() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("UTF-8");
    let replaced = [("/shared/etc", path)];
    let of = |wanted: &Wanted| checked(&replaced, wanted);
    let missing = Verdict::Missing;
    let ours = Wanted { gate: Some(folder.path().to_owned()), ..wanted("main") };
    let found = of(&ours);
    assert!(about(&found, "job_submit.lua", missing).found.contains("is not there"));
    about(&found, "slurm.gate", Verdict::Good);
    assert!(about(&found, "bursar.gate", Verdict::Good).found.contains("bursar up writes it"));
    about(&of(&wanted("main")), "bursar.gate", missing);

    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
    write("job_submit.lua", &JOB_SUBMIT_LUA.replace("local MARK", "local mark"));
    assert!(about(&of(&ours), "job_submit.lua", missing).found.contains("of another version"));
    write("job_submit.lua", "-- the site's own");
    assert!(about(&of(&ours), "job_submit.lua", missing).found.contains("site's own"));
    write("job_submit.lua", JOB_SUBMIT_LUA);
    about(&of(&ours), "job_submit.lua", Verdict::Good);

    write("bursar.gate", "bursar-gate 1\nuid 1\npartition main horizon=1\nend\n");
    assert!(about(&of(&wanted("main")), "bursar.gate", missing).found.contains("names uid 1"));
    about(&of(&ours), "bursar.gate", Verdict::Good);
    write("bursar.gate", "bursar-gate 1\nuid 20005\npartition other horizon=1\nend\n");
    assert!(about(&of(&wanted("main")), "bursar.gate", missing).found.contains("does not govern"));
    write("bursar.gate", "bursar-gate 1\nuid 20005\npartition main horizon=1\nend\n");
    about(&of(&wanted("main")), "bursar.gate", Verdict::Good);
    write("bursar.gate", "bursar-gate 1\nuid 20005\n");
    let found = of(&ours);
    let damaged = about(&found, "bursar.gate", missing);
    assert!(damaged.found.contains("damaged"), "{damaged:?}");
    let remedy = Remedy::Command { command: "bursar up --config bursar.yaml".to_owned() };
    assert_eq!(damaged.remedy, Some(remedy));
    // Who only looks needs none of it.
    let watched = of(&Wanted { watches: true, ..ours.clone() });
    let of_governing =
        ["bursar.gate", "job_submit.lua", "slurm.gate", "rights", "jobs", "options of sbatch"];
    let asked = watched.iter().find(|one| of_governing.contains(&&*one.about));
    assert_eq!(asked, None, "{watched:#?}");
    assert!(watched.iter().any(|one| one.about.contains("main")), "{watched:#?}");
    write("plugstack.conf", "#optional /x/spank_bursar.so\n");
    about(&of(&ours), "options of sbatch", Verdict::Advice);
    write("plugstack.conf", "optional /x/spank_bursar.so\n");
    about(&of(&ours), "options of sbatch", Verdict::Good);
}
