//! What people are told: by whom they wait, why they were stopped, when a submission starts.

use bursar_site::past::Kept;
use bursar_site::record::{BudgetsChanged, Created, HostDoc, Outcome, SettingsDoc};
use bursar_site::views::Wanted;
use bursar_site::{Body, Record, Refused, Site, declare, yaml};
use std::collections::BTreeMap;

const MINUTE: u64 = 60_000;

/// A site with hosts of four GPUs, two equal budgets, and an engine that does at once what is wanted.
struct Lab {
    site: Site,
    now_ms: u64,
}

impl Lab {
    fn with_hosts(hosts: u32) -> Self {
        let host =
            |at| HostDoc { name: format!("h-{at}"), gpus: 4, model: "x".into(), domain: None };
        let created = Created {
            name: "test".into(),
            unix_ms: 0,
            settings: SettingsDoc::default(),
            hosts: (0..hosts).map(host).collect(),
            rates_milli: BTreeMap::new(),
            site_id: None,
        };
        let text = "a: {share: 1, members: [ann]}\nb: {share: 1, limit: 10, members: [bob]}";
        let change = BudgetsChanged::first(yaml::read(text).expect("a tree"), "boss", "first");
        let record = |seq, body| Record { seq, at_ms: 0, actor: Some("boss".into()), body };
        let first = record(1, Body::Created(created));
        let site = Site::new(&first, &record(2, Body::BudgetsChanged(change))).expect("it begins");
        Self { site, now_ms: 0 }
    }

    fn apply(&mut self, body: Body) {
        let seq = self.site.seq() + 1;
        let record = Record { seq, at_ms: self.now_ms, actor: Some("boss".into()), body };
        self.site.apply(&record).expect("it follows");
    }

    /// Decides and does it, until nothing is left to do.
    fn settle(&mut self) {
        loop {
            self.site.plan(self.now_ms);
            let mut news = Vec::new();
            for (work, attempt, wanted) in self.site.wanted() {
                let (workload, number) = (work.number, attempt.number);
                match wanted {
                    Wanted::Run if attempt.started_ms.is_none() => {
                        news.push(Body::Started { workload, attempt: number, since_ms: None });
                    }
                    Wanted::Run => {}
                    Wanted::Leave { .. } => news.push(stopped(workload, number, Outcome::Left)),
                    Wanted::Stop { .. } => news.push(stopped(workload, number, Outcome::Cancelled)),
                }
            }
            if news.is_empty() {
                return;
            }
            news.into_iter().for_each(|body| self.apply(body));
        }
    }

    fn pass(&mut self, minutes: u64) {
        self.now_ms += minutes * MINUTE;
        self.settle();
    }

    fn try_submit(
        &self,
        budget: &str,
        fields: &str,
    ) -> Result<bursar_site::requests::Submission, Refused> {
        let contract = if fields.contains("min_runtime") { "" } else { "min_runtime: 1h, " };
        let text = format!(
            "workload: {{name: w, budget_owner: {budget}, command: [x], {contract}{fields}}}"
        );
        let doc = declare::read_workload(&text).expect("it can be read");
        self.site.submit("boss", doc, None, false)
    }

    fn submit(&mut self, budget: &str, fields: &str) -> u64 {
        let submission = self.try_submit(budget, fields).expect("accepted");
        submission.bodies.into_iter().for_each(|body| self.apply(body));
        self.settle();
        submission.workload
    }

    fn why(&self, number: u64) -> bursar_site::waiting::Why {
        self.site.why(self.site.work(number).expect("there")).expect("it waits")
    }
}

fn stopped(workload: u64, attempt: u32, outcome: Outcome) -> Body {
    Body::Stopped {
        workload,
        attempt,
        outcome,
        ended_ms: None,
        exit_code: None,
        detail: None,
        run: None,
    }
}

#[test]
fn waits_name_who_has_the_gpus_and_when_the_first_protection_ends() {
    let mut lab = Lab::with_hosts(2);
    lab.submit("a", "gpus: 4");
    lab.pass(10);
    lab.submit("a", "gpus: 3");
    let waits = lab.submit("a", "gpus: 2");
    let why = lab.why(waits);
    assert_eq!(why.text, "it needs 2 GPUs and 1 of 8 is free");
    assert_eq!(why.more[0], "workloads 1 and 2 have the others; all are protected");
    assert!(why.more[1].contains("it is next in the order; its budget a stands at usage ratio"));
    assert_eq!(why.frees_ms, Some(60 * MINUTE));
}

#[test]
fn free_gpus_that_do_not_fit_and_hosts_out_of_service_are_told() {
    let mut lab = Lab::with_hosts(2);
    lab.submit("a", "gpus: 2, hosts: 2, gpus_per_host: 1");
    let split = lab.submit("b", "gpus: 4");
    let why = lab.why(split);
    assert!(why.text.contains("on one host") || why.text.contains("reserved"), "{why:?}");
    for host in ["h-0", "h-1"] {
        lab.apply(Body::HostDown { host: host.into(), reason: "gone".into(), by_engine: false });
    }
    lab.settle();
    let why = lab.why(split);
    assert_eq!(why.text, "no host that could hold it is in service (h-0 is down, h-1 is down)");
}

#[test]
fn unallocated_work_is_told_why_it_is() {
    let mut lab = Lab::with_hosts(1);
    lab.submit("a", "gpus: 4");
    let beyond = lab.submit("b", "gpus: 4, min_runtime: 8h");
    let why = lab.why(beyond);
    assert!(why.more.iter().any(|line| line.contains("the limit of budget b")), "{why:?}");
}

#[test]
fn a_reservation_names_its_hosts_and_who_is_on_them() {
    let mut lab = Lab::with_hosts(1);
    lab.submit("a", "gpus: 4");
    let waits = lab.submit("b", "gpus: 2");
    let why = lab.why(waits);
    assert_eq!(why.rule, 7, "{why:?}");
    assert_eq!(why.text, "h-0 is reserved for it; it waits for workload 1 there");
    assert!(why.until_ms.is_some() && why.frees_ms == Some(60 * MINUTE));
}

#[test]
fn a_preemption_is_remembered_with_what_was_kept() {
    let mut lab = Lab::with_hosts(1);
    let first = lab.submit("a", "gpus: 4, resumable: true, checkpoint_on_signal: true");
    lab.pass(90);
    let second = lab.submit("b", "gpus: 4");
    // Its reservation is due after half a horizon (rule 7).
    lab.pass(241);
    let work = lab.site.work(first).expect("there");
    let (attempt, eviction) = lab.site.last_eviction(work).expect("it was preempted");
    assert_eq!((attempt.number, eviction.by), (1, Some(second)));
    assert_eq!(lab.site.kept(work, attempt), Kept::All);
    // Also when it runs again.
    lab.apply(stopped(second, 1, Outcome::Completed));
    lab.settle();
    let work = lab.site.work(first).expect("there");
    assert_eq!(work.latest().expect("an attempt").number, 2);
    assert!(lab.site.last_eviction(work).is_some());
    assert_eq!(lab.site.end_of(work), None);
}

#[test]
fn a_dependency_that_failed_is_named_and_what_could_never_start_is_refused() {
    let mut lab = Lab::with_hosts(1);
    let first = lab.submit("a", "gpus: 1");
    let after = lab.submit("a", &format!("gpus: 1, after: [{{workload: {first}}}]"));
    assert_eq!(lab.why(after).text, "it waits for workload 1 to end");
    let submission = lab.try_submit("a", "gpus: 1, after: [{workload: 1}]").expect("accepted");
    assert_eq!(lab.site.waits_for(&submission.accepted.declared), [1]);
    assert_eq!(lab.site.would_start(&submission.accepted), None);
    lab.apply(Body::Stopped {
        workload: first,
        attempt: 1,
        outcome: Outcome::Failed,
        ended_ms: None,
        exit_code: None,
        detail: Some("ended by signal 9".into()),
        run: None,
    });
    lab.settle();
    let end = |number| lab.site.end_of(lab.site.work(number).expect("there")).expect("ended");
    assert_eq!((end(first).signal, end(after).because_of), (Some(9), Some(first)));
    assert_eq!(end(first).text, "it failed: its command was ended by signal 9");
    assert!(end(after).text.starts_with("it can never start: workload 1 failed"));
    let refused = lab.try_submit("a", "gpus: 1, after: [{workload: 1}]").expect_err("never");
    assert!(refused.message.starts_with("after: workload 1 failed"), "{refused}");
    assert!(lab.try_submit("a", "gpus: 1, after: [{workload: 1, when: any}]").is_ok());
}

#[test]
fn of_an_array_it_is_told_how_many_start_at_once() {
    let lab = Lab::with_hosts(1);
    let starting = |fields: &str| {
        let submission = lab.try_submit("a", fields).expect("accepted");
        lab.site.would_start(&submission.accepted).expect("told").starting
    };
    assert_eq!(starting("gpus: 1, array: 0-9%2"), 2);
    assert_eq!(starting("gpus: 1, array: 0-9"), 4);
    assert_eq!(starting("gpus: 1, array: 0-1"), 2);
}

#[test]
fn an_unknown_budget_is_told_with_the_nearest_and_a_limit_with_what_is_left() {
    let lab = Lab::with_hosts(1);
    let refused = lab.try_submit("aa", "gpus: 1").expect_err("no such budget");
    assert!(refused.message.contains("the nearest of yours is 'a' (yours: a, b)"), "{refused}");
    assert_eq!((lab.site.left_of_limit("a"), lab.site.left_of_limit("b")), (None, Some(10.0)));
}

#[test]
fn why_a_token_is_refused_is_told_to_who_has_its_secret() {
    let mut lab = Lab::with_hosts(1);
    let issue = |lab: &Lab, name: &str, secret: &str, expires: Option<u64>| {
        lab.site.issue_token("boss", name, "ann", secret, expires, false).expect("issued")
    };
    let short = issue(&lab, "short", "one", Some(MINUTE));
    lab.apply(short);
    let gone = issue(&lab, "gone", "two", None);
    lab.apply(gone);
    lab.apply(Body::TokenRevoked { token: "gone".into() });
    let told = |secret: &str| {
        lab.site.token_of(secret, 4 * MINUTE).map(|token| token.token.clone()).expect_err(secret)
    };
    assert_eq!(told("one"), "token 'short' expired 3m ago");
    assert_eq!(told("two"), "token 'gone' was revoked");
    assert_eq!(told("three"), "this site does not know it");
}
