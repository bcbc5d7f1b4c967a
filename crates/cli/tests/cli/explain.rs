//! The story of a workload.

use crate::{folder, good, scenario};
use serde_json::Value;

fn explain(more: &[&str]) -> String {
    let small = scenario("small.yaml");
    let args: Vec<&str> =
        ["explain", small.as_str(), "--workload"].iter().chain(more).copied().collect();
    good(folder().path(), &args)
}

#[test]
fn stories_of_a_small_scenario() {
    let stories: Vec<String> = ["e1", "e2", "e3", "w1", "w2"].map(|id| explain(&[id])).into();
    insta::assert_snapshot!(stories.join("\n"));
}

#[test]
fn moments_of_a_small_scenario() {
    let asked = [
        ["w1", "--at", "10m"],
        ["w1", "--at", "45m"],
        ["w1", "--at", "0d 05:00:00"],
        ["w1", "--at", "10d"],
        ["e1", "--at", "20m"],
        ["e1", "--at", "1h30m"],
        ["e3", "--at", "30m"],
    ];
    let stories: Vec<String> = asked.iter().map(|args| explain(args)).collect();
    insta::assert_snapshot!(stories.join("\n"));
}

#[test]
fn as_json() {
    let story: Value = serde_json::from_str(&explain(&["w1", "--json"])).unwrap();
    assert_eq!((&story["workload"], &story["gpus"]), (&"w1".into(), &8.into()));
    let moments = story["moments"].as_array().unwrap();
    assert_eq!(moments[0]["event"], "submitted");
    assert_eq!(moments.last().unwrap()["event"], "completed");
    let waits = moments.iter().find(|moment| moment["event"] == "waits").unwrap();
    assert!(waits["rule"].is_number() && waits["reason"].is_string(), "{waits}");
    let moment: Value = serde_json::from_str(&explain(&["w1", "--at", "45m", "--json"])).unwrap();
    assert_eq!((&moment["at"], &moment["state"]), (&2700.into(), &"waiting".into()));
    assert!(moment["waits"]["reason"].is_string(), "{moment}");
}

#[test]
fn under_another_policy() {
    let story = explain(&["w1", "--policy", "fifo"]);
    assert!(story.contains("waits by policy fifo"), "{story}");
}
