//! Logs that are no possible history, or none at all; and the report.

use crate::dsl::{history, json, judge, scenario};
use crate::placement::{PLACES, PLACES_LOG};
use crate::promises::{RESERVED, RESERVED_LOG};
use crate::swaps::{SWAP, SWAP_LOG};
use bursar_verify::{Check, VerifyError, verify};

#[test]
fn the_log_must_be_a_possible_history() {
    history(
        SWAP,
        SWAP_LOG,
        &[
            ("0 submitted a1\n", "1 submitted a1\n", Check::Log),
            ("600 submitted b1\n", "", Check::Log),
            ("8112.5 completed b1 #1", "8112.5 completed b1 #2", Check::Log),
            ("started a1 #2", "started a1 #3", Check::Log),
            ("4512.5 requeued a1 #1\n", "", Check::Log),
            ("8112.5 completed b1", "4000 completed b1", Check::Log),
            ("started a1 #2", "started ghost #2", Check::Log),
            ("600 submitted b1", "600 submitted b1 budget=a", Check::Log),
            ("600 submitted b1", "600 submitted b1 gpus=4", Check::Log),
            ("4512.5 requeued a1 #1", "4512.5 terminated a1 #1", Check::Log),
            ("18000 completed", "18000 submitted a1\n18000 completed", Check::Log),
        ],
    );
}

#[test]
fn other_policies_are_judged_by_what_holds_for_all() {
    let log = SWAP_LOG.replace("4500 preempted", "1800 preempted");
    let log: String = log
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| format!("{line} policy=levels\n"))
        .collect();
    let log = log
        .replace("until=1800 ", "until=3600 ")
        .replace("1800 protection_ended a1 #1 policy=levels\n", "");
    let both = format!("{SWAP_LOG}{log}");
    let report = judge(SWAP, &both);
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.policies.len(), 2);
    assert_eq!(report.policies[1].breaches.preempted, 1);
    let twice = both.replace("8112.5 completed b1 #1 policy=levels\n", "");
    assert!(!judge(SWAP, &twice).is_clean());
}

#[test]
fn a_log_that_is_none_is_an_error_that_names_the_line() {
    let scenario = scenario(SWAP);
    let good = json(SWAP_LOG);
    for (bad, line) in [
        (format!("{good}{{\"t\":"), 12),
        (format!("nonsense\n{good}"), 1),
        (good.replace("\"submitted\"", "\"sublimated\""), 1),
        (format!("{good}{}", json("1 drained @h0 policy=x\n1 drained @h0")), 13),
    ] {
        let error = verify(bad.as_bytes(), &scenario).expect_err("not a log");
        let VerifyError::Malformed { line: named, .. } = &error else { panic!("{error}") };
        assert_eq!(*named, line, "{error}");
        assert_eq!(error.to_string().lines().count(), 1);
    }
    assert!(verify("".as_bytes(), &scenario).expect("an empty log").is_clean());
}

/// What a log repeats of its own is neither a line of the report nor a command to a terminal.
#[test]
fn no_text_of_a_log_speaks_to_a_terminal() {
    let scenario = scenario(SWAP);
    let evil = r"x\nno violation in 9 events\u001b[2J\u202e\u2028";
    let good = json(SWAP_LOG);
    let is_clean = |text: &str| {
        let speaks =
            |c: char| c != '\n' && (c.is_control() || ('\u{2028}'..='\u{202e}').contains(&c));
        !text.chars().any(speaks)
    };
    let malformed = [
        format!(r#"{{"t":1,"policy":"p","event":"{evil}"}}"#),
        format!(r#"{{"t":"{evil}","policy":"p","event":"drained","host":"h"}}"#),
        format!(r#"{{"t":1,"policy":"p","event":"reserved","workload":"a1","until":"{evil}"}}"#),
        good.replace("budget\"", &format!("{evil}\""))
            + &good
            + &good.replace("budget\"", &format!("{evil}\"")),
    ];
    for bad in malformed {
        let text = verify(bad.as_bytes(), &scenario).expect_err("not a log").to_string();
        assert!(is_clean(&text) && text.lines().count() == 1, "{text:?}");
    }
    let wrong = [
        ("\"policy\":\"budget\"", format!("\"policy\":\"{evil}\"")),
        ("\"workload\":\"b1\"", format!("\"workload\":\"{evil}\"")),
        ("\"by\":\"b1\"", format!("\"by\":\"{evil}\"")),
        ("\"host\":\"h0\"", format!("\"host\":\"{evil}\"")),
        ("\"workload\":\"a1\"", format!("\"workload\":\"a1\",\"budget\":\"{evil}\"")),
    ];
    for (old, new) in wrong {
        let log = good.replace(old, &new);
        assert_ne!(log, good);
        let report = verify(log.as_bytes(), &scenario).expect("a log");
        let text = report.to_string();
        assert!(is_clean(&text), "{text:?}");
        assert!(!text.lines().any(|line| line == "no violation in 9 events"), "{text}");
        for violation in &report.violations {
            assert_eq!(violation.to_string().lines().count(), 1);
        }
    }
}

#[test]
fn the_report_shows_what_was_checked_and_serializes() {
    let report = judge(SWAP, &SWAP_LOG.replace("4500 preempted", "4499.999 preempted"));
    let text = report.to_string();
    for part in ["rule  6  the preemption is allowed", "VIOLATED 1", "t=4499.999", "checked"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert_eq!(report.policies[0].checks.len(), Check::ALL.len());
    let value = serde_json::to_value(&report).expect("serializes");
    assert_eq!(value["violations"][0]["rule"], 6);
    assert_eq!(value["violations"][0]["workload"], "a1");
    assert_eq!(value["policies"][0]["policy"], "budget");
}

/// A small generator, so that a failure repeats.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

#[test]
fn no_log_makes_it_panic() {
    for (text, log) in [(SWAP, SWAP_LOG), (RESERVED, RESERVED_LOG), (PLACES, PLACES_LOG)] {
        let scenario = scenario(text);
        let lines: Vec<String> = json(log).lines().map(String::from).collect();
        let names = ["a1", "b1", "u1", "c1", "h-0", "h0", "x-0"];
        for seed in 0..1_500 {
            let mut draw = Draw(seed);
            let mut lines = lines.clone();
            for _ in 0..=draw.below(4) {
                let (one, other) = (draw.below(lines.len()), draw.below(lines.len()));
                match draw.below(6) {
                    0 => drop(lines.remove(one)),
                    1 => lines.insert(one, lines[other].clone()),
                    2 => lines.swap(one, other),
                    3 => {
                        let (from, to) = (draw.below(names.len()), draw.below(names.len()));
                        lines[one] = lines[one].replace(names[from], names[to]);
                    }
                    4 => {
                        let (from, to) = (draw.below(10), draw.below(10));
                        lines[one] = lines[one].replace(&from.to_string(), &to.to_string());
                    }
                    _ => {
                        let events = ["started", "preempted", "requeued", "completed", "reserved"];
                        let (from, to) = (draw.below(5), draw.below(5));
                        lines[one] = lines[one].replace(events[from], events[to]);
                    }
                }
            }
            // An error or a report, whatever the text.
            drop(verify(lines.join("\n").as_bytes(), &scenario));
        }
    }
}
