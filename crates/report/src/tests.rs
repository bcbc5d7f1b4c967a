//! What a page must and must not contain.

use crate::bars::{Bar, Bars, End};
use crate::render;
use bursar_scenario::{Scenario, load_str};
use bursar_sim::{
    AttemptRecord, BudgetSummary, EventSink, Outcome, PolicySummary, RunOptions, Series,
    WaitQuantiles, run,
};

const SMALL: &str = "
about: two teams on one host and a failure
cluster: {hosts: [{count: 2, gpus: 4, model: h100, name: h}]}
budgets: {a: {share: 1, children: {x: {share: 1}, y: {share: 1}}}, b: {share: 1}}
settings: {lookback: 8h, horizon: 2h, grace: 0s, startup: 0s, debug_hosts: 0}
hosts_events: [{at: 9h, host: h-1, event: fail}, {at: 10h, host: h-1, event: repair}]
workloads:
  - {id: a1, submit: 0s, budget: a/x, gpus: 8, runtime: 20h, min_runtime: 1h, resumable: true, checkpoint_interval: 1h}
  - {id: b1, submit: 30m, budget: b, gpus: 4, runtime: 3h, min_runtime: 1h}
  - {id: b2, submit: 2h, budget: b, gpus: 4, runtime: 30m, min_runtime: 10m, max_runtime: 20m}
  - {id: u1, submit: 3h, budget: a/y, gpus: 2, runtime: 90m}
";

fn play(text: &str, policies: &[&str]) -> (Scenario, Vec<Outcome>) {
    let scenario = load_str(text, "".as_ref(), "test.yaml", &[]).expect("valid scenario");
    let options = RunOptions { series: true, ..RunOptions::default() };
    let play = |name: &&str| run(&scenario, name, options, EventSink::None).expect("it runs");
    let outcomes = policies.iter().map(play).collect();
    (scenario, outcomes)
}

fn page(text: &str, policies: &[&str], title: &str) -> String {
    let (scenario, outcomes) = play(text, policies);
    let mut bytes = Vec::new();
    render(&scenario, &outcomes, title, &mut bytes).expect("memory can be written");
    String::from_utf8(bytes).expect("UTF-8")
}

/// The page between the first `from` and the next `to`.
fn between<'a>(page: &'a str, from: &str, to: &str) -> &'a str {
    let start = page.find(from).expect("present") + from.len();
    &page[start..start + page[start..].find(to).expect("closed")]
}

/// The markup of a page as lines of text: what someone reads who sees no pictures.
fn skeleton(page: &str) -> String {
    let body = between(page, "<body>", "<p id=\"said\"");
    let mut text = String::new();
    for piece in
        body.replace("</dt>", "\u{1f}").replace("</th>", " |").replace("</td>", " |").split('<')
    {
        text.push_str(piece.split_once('>').map_or(piece, |(_, text)| text));
    }
    let text = text.replace("\u{1f}", ": ");
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn hostile_names_stay_text() {
    let hostile = "</script><img src=x onerror=alert(1)>";
    let text = SMALL
        .replace("id: a1", &format!("id: '{hostile}'"))
        .replace("name: h}", "name: 'h<b>'}")
        .replace("h-1", "'h<b>-1'")
        .replace("about: two", "about: <script>two</script>\u{2028}");
    let text =
        text.replace("b: {share: 1}}", "'<i>': {share: 1}}").replace("budget: b", "budget: '<i>'");
    let page = page(&text, &["budget"], hostile);
    for sign in ["<img", "<i>", "<b>", "<script>two", "\u{2028}\""] {
        assert!(!page.contains(sign), "{sign:?} got into the page");
    }
    assert!(page.contains("&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;"));
    assert_eq!(page.matches("</script>").count(), 2, "the data and the scripts, nothing else");
    let json = between(&page, "id=\"data\">", "</script>");
    let data: serde_json::Value = serde_json::from_str(json).expect("the data is JSON");
    let names: Vec<_> =
        data["names"].as_array().unwrap().iter().filter_map(|name| name.as_str()).collect();
    assert!(names.iter().any(|name| name[1..] == *hostile));
}

#[test]
fn the_page_needs_nothing_else() {
    let page = page(SMALL, &["budget"], "small");
    for sign in [
        "http://", "https://", "//cdn", "@import", "url(//", "<link", "<iframe", " src=",
        "onclick", "onload=",
    ] {
        assert!(!page.contains(sign), "{sign:?} is in the page");
    }
    assert!(page.contains("default-src 'none'"));
    for sign in
        ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch("]
    {
        assert!(!page.contains(sign), "a script uses {sign}");
    }
}

#[test]
fn same_input_same_bytes() {
    assert_eq!(
        page(SMALL, &["budget", "fifo"], "small"),
        page(SMALL, &["budget", "fifo"], "small")
    );
}

/// An outcome with made-up figures, so that the text does not change with what the core decides.
fn made_up(policy: &str, ratio: f64) -> Outcome {
    let waits = |count, p50| WaitQuantiles {
        count,
        mean: p50,
        p50,
        p90: 90.0,
        p99: 7_300.0,
        max: 400_000.0,
    };
    let mut summary = PolicySummary {
        policy: policy.to_owned(),
        measured_seconds: 2_592_000.0,
        ended_seconds: 2_600_000.0,
        delivered_ratio: ratio,
        worst_budget: "a/y".to_owned(),
        worst_delivered_ratio: ratio / 2.0,
        budgets_owed: 2,
        budgets_at_95: 1,
        occupancy: 0.991,
        availability: 0.999,
        unallocated_share: 0.05,
        goodput: 0.97,
        lost_share: 0.021,
        lost_gpu_seconds: 7_200_000.0,
        ..PolicySummary::default()
    };
    summary.breaches.insert("scheduler".to_owned(), 1_234);
    summary.breaches.insert("host_failure".to_owned(), 2);
    (summary.preemptions.total, summary.preemptions.allocated) = (7_065, 756);
    (summary.reservations.met, summary.reservations.missed) = (151, 1);
    summary.simulator.workloads = 57_123;
    summary.first_waits.classes.insert("debug".to_owned(), waits(2_323, 0.0));
    summary.first_waits.classes.insert(">256".to_owned(), waits(3, 60.0));
    for (budget, owed) in [("a/x", 1_000.0), ("a/y", 0.0), ("b", 12.25)] {
        summary.budgets.push(BudgetSummary {
            budget: budget.to_owned(),
            fraction: 0.25,
            owed_gpu_hours: owed,
            delivered_gpu_hours: owed * ratio,
            delivered_ratio: ratio,
            ..BudgetSummary::default()
        });
    }
    Outcome { summary, series: Series::default() }
}

#[test]
fn without_pictures_the_page_reads_well() {
    let scenario = load_str(SMALL, "".as_ref(), "test.yaml", &[]).unwrap();
    let outcomes = [made_up("budget", 0.99), made_up("levels", 0.5)];
    let mut bytes = Vec::new();
    render(&scenario, &outcomes, "small.yaml", &mut bytes).unwrap();
    insta::assert_snapshot!(skeleton(std::str::from_utf8(&bytes).unwrap()));
}

#[test]
fn runs_without_series_or_work_have_a_page() {
    let (scenario, mut outcomes) = play(SMALL, &["budget"]);
    outcomes[0].series = Series::default();
    let mut bytes = Vec::new();
    render(&scenario, &outcomes, "small", &mut bytes).unwrap();
    render(&scenario, &[], "small", &mut bytes).unwrap();
    let empty = "
cluster: {hosts: [{count: 1, gpus: 4, model: h100}]}
budgets: {a: {share: 0}}
workloads: [{id: w, submit: 0s, budget: a, gpus: 1, runtime: 10m, min_runtime: 10m}]
";
    assert!(page(empty, &["budget"], "empty").contains("none owed"));
}

#[test]
fn ends_follow_from_what_happened() {
    const HOUR_MS: u64 = 3_600_000;
    let scenario = load_str(SMALL, "".as_ref(), "test.yaml", &[]).unwrap();
    let place =
        |id: &str| scenario.workloads.iter().position(|spec| &*spec.id == id).unwrap() as u32;
    let record = |id: &str, end_ms: u64, preempted: bool| AttemptRecord {
        workload: place(id),
        attempt: 1,
        start_ms: 0,
        end_ms,
        protected_until_ms: 0,
        allocated: true,
        preempted,
        placement: vec![(1, 4), (0, 4)],
    };
    let mut outcome = made_up("budget", 1.0);
    outcome.summary.ended_seconds = 20.0 * 3_600.0;
    outcome.summary.unfinished = 1;
    let cases = [
        (record("a1", 2 * HOUR_MS, true), End::Requeued),
        (record("b1", 2 * HOUR_MS, true), End::Terminated),
        (record("a1", 9 * HOUR_MS, false), End::HostFailed),
        (record("b2", 20 * 60_000, false), End::MaxRuntime),
        (record("b1", 3 * HOUR_MS, false), End::Completed),
        (record("a1", 20 * HOUR_MS, false), End::Running),
    ];
    for (record, why) in cases {
        outcome.series.attempts = vec![record.clone()];
        let bars = Bars::new(&scenario, &outcome, 1_000, 100);
        assert_eq!(bars.bars[0].why, why, "{record:?}");
        assert_eq!(bars.bars[0].placement, [(0, 4), (1, 4)]);
    }
}

#[test]
fn short_attempts_are_joined_where_there_are_too_many() {
    let mut text = "
cluster: {hosts: [{count: 1, gpus: 2, model: h100}]}
budgets: {a: {share: 1}}
settings: {debug_hosts: 0, startup: 0s}
workloads:
"
    .to_owned();
    for at in 0..300 {
        text.push_str(&format!(
            "  - {{id: w{at:03}, submit: {}s, budget: a, gpus: 1, runtime: 20s, min_runtime: 10s}}\n",
            at * 20
        ));
    }
    text.push_str("  - {id: long, submit: 0s, budget: a, gpus: 1, runtime: 2h, min_runtime: 1h}\n");
    let (scenario, outcomes) = play(&text, &["budget"]);
    let all = Bars::new(&scenario, &outcomes[0], 1_000, 1_000);
    assert_eq!((all.bars.len(), all.joined_below), (301, 0));
    let few = Bars::new(&scenario, &outcomes[0], 1_000, 20);
    assert!(few.bars.len() <= 20 && few.joined_below > 20, "{} bars", few.bars.len());
    let gpu_time = |bars: &Bars| -> u64 {
        let of = |bar: &Bar| (bar.end - bar.start) * u64::from(bar.placement[0].1);
        bars.bars.iter().map(of).sum()
    };
    assert!(gpu_time(&all).abs_diff(gpu_time(&few)) <= few.joined_below, "as full as it was");
    assert!(few.bars.is_sorted_by_key(|bar| bar.start));
}
