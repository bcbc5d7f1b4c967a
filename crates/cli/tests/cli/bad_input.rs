//! Bad input: one line that names the place, exit 2, nothing on standard output, no file.

use crate::{bursar, command, files, folder, scenario};
use std::fs;
use std::io::Write;
use std::path::Path;

const GOOD: &str = "\
cluster: {hosts: [{count: 4, gpus: 8, model: h100, name: gpu}]}
budgets:
  p: {share: 1, children: {p1: {share: 1}, p2: {share: 3}}}
  q: {share: 2}
settings: {horizon: 8h}
workloads:
  - {id: run-1, submit: 0s, budget: p/p1, gpus: 2, runtime: 1h, min_runtime: 1h}
  - {id: run-2, submit: 5m, budget: q, gpus: 16, runtime: 1h}
";

/// Runs `bursar` with every output asked for, and checks what it left.
fn refused(folder: &Path, args: &[&str], place: &str) {
    let before = files(folder);
    let done = bursar(folder, args);
    assert_eq!(done.code, Some(2), "{args:?}: {}", done.stderr);
    assert_eq!(done.stdout, "", "{args:?}");
    assert_eq!(done.stderr.lines().count(), 1, "{args:?}: {}", done.stderr);
    assert!(done.stderr.starts_with("bursar: "), "{}", done.stderr);
    assert!(done.stderr.contains(place), "{args:?}: '{place}' is not in {}", done.stderr);
    assert!(!done.stderr.contains('\x1b'), "{:?}", done.stderr);
    assert_eq!(files(folder), before, "{args:?} left a file");
}

const OUTPUTS: [&str; 6] = ["--summary", "s.json", "--events", "e.jsonl", "--html", "r.html"];

fn simulate<'a>(more: &[&'a str]) -> Vec<&'a str> {
    ["simulate", "s.yaml"].into_iter().chain(OUTPUTS).chain(more.iter().copied()).collect()
}

#[test]
fn a_scenario_that_says_what_cannot_be() {
    let table = [
        ("q: {share: 2}", "q: &q {share: 2, children: {r: *q}}", "line 4"),
        ("q: {share: 2}", "p: {share: 2}", "s.yaml line 4: budgets: duplicate budget 'p'"),
        ("q: {share: 2}", "q: {share: -2}", "s.yaml line 4"),
        ("q: {share: 2}", "q: {share: .nan}", "s.yaml line 4"),
        ("q: {share: 2}", "q: {share: .inf}", "s.yaml line 4"),
        ("budget: q,", "budget: r,", "there is no budget 'r'"),
        ("gpus: 2,", "gpus: 0,", "'run-1': gpus: 0 is not allowed"),
        ("gpus: 2,", "gpus: 33,", "'run-1': gpus: 33 is more than the cluster has"),
        ("gpus: 2,", "gpus: nan,", "'run-1': gpus: 'nan'"),
        ("min_runtime: 1h", "min_runtime: 9h", "'run-1': min_runtime: 9h is above the horizon"),
        ("submit: 0s", "submit: 10000-01-01T00:00:00Z", "'run-1': submit:"),
        ("id: run-2", "id: \"run\\e[31m\\n2\"", "control character"),
        ("cluster:", "clutser:", "the nearest valid key is 'cluster'"),
    ];
    for (from, to, place) in table {
        let folder = folder();
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{from}");
        fs::write(folder.path().join("s.yaml"), text).unwrap();
        refused(folder.path(), &simulate(&[]), place);
        refused(folder.path(), &["explain", "s.yaml", "--workload", "run-1"], place);
        refused(folder.path(), &["verify", "s.yaml", "s.yaml"], place);
    }
}

#[test]
fn flags_that_say_what_cannot_be() {
    let folder = folder();
    fs::write(folder.path().join("s.yaml"), GOOD).unwrap();
    let table: [(&[&str], &str); 12] = [
        (&["--set", "horizon=soon"], "--set horizon=soon"),
        (&["--set", "horizn=4h"], "the nearest valid one is 'horizon'"),
        (&["--set", "horizon=30m"], "'run-1': min_runtime: 1h is above the horizon of 30m"),
        (&["--set", "horizon"], "not KEY=VALUE"),
        (&["--set", "margin=nan"], "--set margin=nan"),
        (&["--policy", "bugdet"], "bugdet"),
        (&["--policy", "fifo", "--policy", "fifo"], "given twice"),
        (&["--until=-1h"], "--until"),
        (&["--yarn-min-share", "2"], "--yarn-min-share"),
        (&["--sweep", "horizon=4h"], "cannot be used with"),
        (&["--events", "s.yaml"], "--events"),
        (&["--no-such-flag"], "--no-such-flag"),
    ];
    for (more, place) in table {
        let args = simulate(more);
        let args = if more == ["--events", "s.yaml"] {
            vec!["simulate", "s.yaml", "--events", "s.yaml"]
        } else {
            args
        };
        let place =
            if more == ["--events", "s.yaml"] { "it is read, or written twice" } else { place };
        refused(folder.path(), &args, place);
    }
    refused(
        folder.path(),
        &["simulate", "s.yaml", "--summary", "no/such/s.json"],
        "no/such/s.json",
    );
    refused(folder.path(), &["simulate", "none.yaml"], "none.yaml");
    refused(folder.path(), &["explain", "s.yaml", "--workload", "run-3"], "the nearest is 'run-1'");
    refused(folder.path(), &["explain", "s.yaml", "--workload", "x\x1b[2Jy"], "\\u{1b}");
}

#[test]
fn a_grid_with_one_bad_value_plays_nothing() {
    let folder = folder();
    fs::write(folder.path().join("s.yaml"), GOOD).unwrap();
    let table: [(&[&str], &str); 6] = [
        (&["--sweep", "horizon=8h,30m"], "above the horizon of 30m"),
        (&["--sweep", "horizon=8h,soon"], "--set horizon=soon"),
        (&["--sweep", "lookbak=1d"], "the nearest valid one is 'lookback'"),
        (&["--sweep", "lookback=1d,,2d"], "--sweep"),
        (&["--sweep", "lookback=1d", "--sweep", "lookback=2d"], "given twice"),
        (&["--sweep", "lookback=1d", "--set", "lookback=2d"], "both in --set and in --sweep"),
    ];
    for (more, place) in table {
        let args: Vec<&str> =
            ["simulate", "s.yaml", "--summary", "s.json"].iter().chain(more).copied().collect();
        refused(folder.path(), &args, place);
    }
}

/// Writes a history, and a scenario that reads it.
fn history(folder: &Path, name: &str, bytes: &[u8]) {
    fs::write(folder.join(name), bytes).unwrap();
    let text = format!(
        "cluster: {{hosts: [{{count: 4, gpus: 8, model: h100}}]}}\nbudgets: auto\nworkloads: {name}\n"
    );
    fs::write(folder.join("s.yaml"), text).unwrap();
}

#[test]
fn a_history_that_cannot_be_read() {
    let rows = "id,submit,budget,gpus,runtime\na,0,p,1,60\n";
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let many: String =
        (0..5_000).map(|at| format!("j{at},{at},p,1,{}\n", at * 7 % 1_000 + 1)).collect();
    packed.write_all(b"id,submit,budget,gpus,runtime\n").unwrap();
    packed.write_all(many.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let long = format!("{rows}b,0,{},1,60\n", "x".repeat(bursar_trace_line_max() + 1));
    let table: [(&str, Vec<u8>, &str); 9] = [
        ("empty.csv", Vec::new(), "empty.csv"),
        ("header.csv", b"id,submit,budget,gpus,runtime\n".to_vec(), "header.csv"),
        ("cut.csv.gz", packed[..packed.len() / 2].to_vec(), "cut.csv.gz"),
        ("long.csv", long.into_bytes(), "long.csv line 3"),
        ("nan.csv", format!("{rows}b,0,p,NaN,60\n").into_bytes(), "nan.csv line 3: field 'gpus'"),
        ("zero.csv", format!("{rows}b,0,p,0,60\n").into_bytes(), "zero.csv line 3: field 'gpus'"),
        ("inf.csv", format!("{rows}b,0,p,1,inf\n").into_bytes(), "inf.csv line 3: field 'runtime'"),
        (
            "year.csv",
            b"id,submit,budget,gpus,runtime\nb,10000-01-01T00:00:00Z,p,1,60\n".to_vec(),
            "year.csv line 2: field 'submit'",
        ),
        ("noise.csv", b"\x1b[2J\x00\xff\n".to_vec(), "noise.csv"),
    ];
    for (name, bytes, place) in table {
        let folder = folder();
        history(folder.path(), name, &bytes);
        refused(folder.path(), &simulate(&[]), place);
        refused(folder.path(), &["trace", "describe", name], place);
        refused(folder.path(), &["trace", "convert", name, "--to", "out.csv"], place);
    }
}

/// What to replace, by what, and what the error says of it.
type Mistake = (&'static str, &'static str, &'static str);

/// For each format a good history of two jobs, and mistakes in the second.
const FORMATS: [(&str, &str, &[Mistake]); 8] = [
    (
        "csv",
        "id,submit,budget,gpus,runtime\na,0,p,1,60\nb,5,p,2,61\n",
        &[
            (",2,61", ",0,61", "line 3: field 'gpus': '0'"),
            (",2,61", ",NaN,61", "line 3: field 'gpus': 'NaN'"),
            (",61", ",inf", "line 3: field 'runtime': 'inf'"),
            (",61", ",-1", "line 3: field 'runtime': '-1' is negative"),
            ("b,5", "b,10000-01-01T00:00:00Z", "line 3: field 'submit': '10000-01-01"),
            (",2,61", ",61", "line 3: has 4 fields where the header has 5"),
        ],
    ),
    (
        "swf",
        "; c\n1 0 0 60 1 -1 -1 1 -1 -1 1 1 1 -1 1 -1 -1 -1\n2 5 0 61 2 -1 -1 2 -1 -1 1 1 1 -1 1 -1 -1 -1\n",
        &[
            ("61 2", "NaN 2", "line 3: field 'run time': 'NaN'"),
            ("61 2", "61 inf", "line 3: field 'allocated processors': 'inf'"),
            ("2 5", "2 10000-01-01T00:00:00Z", "line 3: field 'submit time': '10000-01-01"),
            ("61 2", "61", "line 3: has 17 fields where swf has 18"),
        ],
    ),
    (
        "sacct",
        "JobID|Submit|State|ElapsedRaw|AllocTRES\n1|2026-01-01T00:00:00|FAILED|60|gres/gpu=1\n2|2026-01-01T00:00:05|FAILED|61|gres/gpu=2\n",
        &[
            ("|61|", "|NaN|", "line 3: field 'ElapsedRaw': 'NaN'"),
            (
                "gpu=2",
                "gpu=NaN",
                "line 3: field 'AllocTRES': 'gres/gpu=NaN' has a number of gres/gpu",
            ),
            ("2026-01-01T00:00:05", "10000-01-01T00:00:00", "line 3: field 'Submit': '10000-01-01"),
        ],
    ),
    (
        "philly",
        "jobname,user,vc,gpu_num,state,submit_time,duration\na,u,v,1,Pass,0,60\nb,u,v,2,Pass,5,61\n",
        &[
            (",61", ",NaN", "line 3: field 'duration': 'NaN'"),
            ("v,2,", "v,1.5,", "line 3: field 'gpu_num': '1.5'"),
            (",5,61", ",10000-01-01,61", "line 3: field 'submit_time': '10000-01-01'"),
        ],
    ),
    (
        "philly-json",
        r#"[{"jobid": "a", "submitted_time": "2017-10-03 07:33:10", "attempts": [{"start_time": "2017-10-03 07:33:11", "end_time": "2017-10-03 07:34:10", "detail": [{"gpus": ["g"]}]}]}, {"jobid": "b", "submitted_time": "2017-10-03 07:33:15", "attempts": [{"start_time": "2017-10-03 07:33:16", "end_time": "2017-10-03 07:35:10", "detail": [{"gpus": ["g"]}]}]}]"#,
        &[
            (
                "2017-10-03 07:33:15",
                "10000-01-01 00:00:00",
                "row 2: field 'submitted_time': '10000-01-01",
            ),
            ("2017-10-03 07:35:10", "NaN", "row 2: field 'end_time': 'NaN'"),
            ("\"b\"", "b", "row 2: is not readable as JSON"),
        ],
    ),
    (
        "helios",
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration\n1,u,v,1,1,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:00:00,2020-04-01 00:01:00,60\n2,u,v,2,1,1,COMPLETED,2020-04-01 00:00:05,2020-04-01 00:00:05,2020-04-01 00:01:06,61\n",
        &[
            (",61", ",NaN", "line 3: field 'duration': 'NaN'"),
            ("v,2,", "v,-2,", "line 3: field 'gpu_num': '-2'"),
            (
                "2020-04-01 00:00:05,2020",
                "10000-01-01 00:00:00,2020",
                "line 3: field 'submit_time': '10000-01-01",
            ),
        ],
    ),
    (
        "acme",
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration\n1,u,1,1,1,t,COMPLETED,2023-04-01 00:00:00,2023-04-01 00:00:00,2023-04-01 00:01:00,60\n2,u,1,2,1,t,COMPLETED,2023-04-01 00:00:05,2023-04-01 00:00:05,2023-04-01 00:01:06,61\n",
        &[
            (",61", ",NaN", "line 3: field 'duration': 'NaN'"),
            ("1,2,1", "1,x,1", "line 3: field 'gpu_num': 'x'"),
            (
                "2023-04-01 00:00:05,2023",
                "10000-01-01 00:00:00,2023",
                "line 3: field 'submit_time': '10000-01-01",
            ),
        ],
    ),
    (
        "openb",
        "name,num_gpu,gpu_milli,gpu_spec,pod_phase,creation_time,deletion_time,scheduled_time\na,1,1000,,Succeeded,0,60,0\nb,2,1000,,Succeeded,5,66,5\n",
        &[
            (",5,66", ",5,NaN", "line 3: field 'deletion_time': 'NaN'"),
            ("b,2,", "b,inf,", "line 3: field 'num_gpu': 'inf'"),
            (",5,66", ",10000-01-01,66", "line 3: field 'creation_time': '10000-01-01'"),
        ],
    ),
];

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 0).unwrap()
}

/// Every reader, plain and packed: a good history is read, and each mistake is one line that names file, line,
/// field and value.
#[test]
fn every_reader_names_the_place() {
    type Pack = fn(&[u8]) -> Vec<u8>;
    let packings: [(&str, Pack); 3] = [("", <[u8]>::to_vec), (".gz", gzip), (".zst", zstd)];
    let folder = folder();
    for (format, good, mistakes) in FORMATS {
        for (ending, pack) in packings {
            let name = format!("{format}{ending}");
            let write = |bytes: &[u8]| fs::write(folder.path().join(&name), bytes).unwrap();
            write(&pack(good.as_bytes()));
            let done = bursar(folder.path(), &["trace", "describe", &name]);
            assert_eq!(done.code, Some(0), "{name}: {}", done.stderr);
            let describe = ["trace", "describe", &name];
            for (from, to, place) in mistakes {
                assert_eq!(good.matches(from).count(), 1, "{format}: {from}");
                write(&pack(good.replace(from, to).as_bytes()));
                refused(folder.path(), &describe, &format!("{name} {place}"));
            }
            if ending.is_empty() {
                write(format!("{good}{}", "x".repeat(bursar_trace_line_max() + 1)).as_bytes());
                refused(folder.path(), &describe, &format!("{name} "));
                continue;
            }
            let packed = pack(good.as_bytes());
            for cut in [packed.len() / 2, packed.len() - 3] {
                write(&packed[..cut]);
                refused(folder.path(), &describe, "the file is truncated, copy it again");
            }
        }
    }
}

/// What cannot be written leaves nothing: not the temporary file, and none of the other outputs.
#[test]
fn outputs_that_cannot_be_written() {
    let folder = folder();
    fs::write(folder.path().join("s.yaml"), GOOD).unwrap();
    fs::create_dir(folder.path().join("folder")).unwrap();
    for flag in ["--summary", "--events", "--html"] {
        for (path, why) in [
            ("no/such/x", "cannot write no/such/x: there is no folder no/such; make it first"),
            ("s.yaml/x", "cannot write s.yaml/x: s.yaml is not a folder"),
            ("folder", "cannot write folder: it is a folder"),
        ] {
            refused(folder.path(), &["simulate", "s.yaml", flag, path], why);
        }
        // A full device: a fault on the way, and none of the other files has come to its place.
        let others = ["--summary", "--events", "--html"].into_iter().filter(|other| *other != flag);
        let others: Vec<&str> = others.zip(["one", "two"]).flat_map(<[&str; 2]>::from).collect();
        let args: Vec<&str> =
            ["simulate", "s.yaml", flag, "/dev/full"].into_iter().chain(others).collect();
        let before = files(folder.path());
        let done = bursar(folder.path(), &args);
        assert_eq!((done.code, done.stdout.as_str()), (Some(1), ""), "{}", done.stderr);
        let starts = "bursar: cannot write /dev/full: No space left on device";
        assert!(
            done.stderr.starts_with(starts) && done.stderr.lines().count() == 1,
            "{}",
            done.stderr
        );
        assert_eq!(files(folder.path()), before);
    }
}

/// Standard output that cannot take what is printed is a fault that is told, and no panic.
#[test]
fn a_full_standard_output_is_told() {
    let folder = folder();
    fs::write(folder.path().join("s.yaml"), GOOD).unwrap();
    fs::write(folder.path().join("j.csv"), "id,submit,budget,gpus,runtime\na,0,p,1,60\n").unwrap();
    let table: [&[&str]; 8] = [
        &["simulate", "s.yaml"],
        &["simulate", "s.yaml", "--json"],
        &["simulate", "s.yaml", "--events", "-"],
        &["explain", "s.yaml", "--workload", "run-1"],
        &["trace", "describe", "j.csv"],
        &["trace", "convert", "j.csv", "--to", "-"],
        &["policies"],
        &["--help"],
    ];
    for args in table {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let done = command(folder.path(), args).stdout(full).output().unwrap();
        let stderr = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(1), "{args:?}: {stderr}");
        // An object for programs, a line for people.
        let begins = match args.contains(&"--json") {
            true => "{\"code\":\"fault\",\"message\":\"cannot write ",
            false => "bursar: cannot write ",
        };
        assert!(stderr.starts_with(begins), "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
    }
}

const fn bursar_trace_line_max() -> usize {
    1 << 20
}

#[test]
fn a_log_that_is_none() {
    let folder = folder();
    let small = scenario("small.yaml");
    for (text, place) in [
        ("", "e.jsonl: holds no event"),
        ("{\"t\":0", "e.jsonl line 1"),
        ("not json\n", "e.jsonl line 1"),
        ("{\"t\":0,\"policy\":\"budget\",\"event\":\"exploded\"}\n", "e.jsonl line 1"),
    ] {
        fs::write(folder.path().join("e.jsonl"), text).unwrap();
        refused(folder.path(), &["verify", "e.jsonl", &small], place);
    }
    refused(folder.path(), &["verify", "none.jsonl", &small], "none.jsonl");
}
