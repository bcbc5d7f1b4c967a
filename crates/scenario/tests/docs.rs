//! What docs/formats.md shows can be read.

use bursar_scenario::load_str;
use std::path::Path;

const FORMATS: &str = include_str!("../../../docs/formats.md");

/// The blocks of code in this language, in order.
fn blocks(language: &str) -> impl Iterator<Item = &'static str> {
    let begin = format!("```{language}\n");
    let parts: Vec<&'static str> = FORMATS.split(&begin).skip(1).collect();
    parts.into_iter().map(|block| block.split("```").next().expect("a beginning"))
}

#[test]
fn the_scenarios_shown_are_good() {
    let mut yaml = blocks("yaml");
    let lab = yaml.next().expect("a scenario");
    let lab = load_str(lab, Path::new(""), "lab", &[]).expect("it is good");
    assert_eq!((lab.hosts.len(), lab.workloads.len(), lab.hosts_events.len()), (5, 1, 2));

    let generator = yaml.next().expect("a generator block");
    let around = "cluster: {hosts: [{count: 64, gpus: 8, model: h100}]}\n\
                  budgets: {vision: {share: 1, children: {detection: 1}}, rest: 3}\n";
    let drawn = load_str(&format!("{around}{generator}"), Path::new(""), "drawn", &[]);
    assert!(drawn.expect("it is good").workloads.len() > 100);
    assert_eq!(yaml.next(), None, "a block that nobody reads");
}

#[test]
fn the_workload_csv_shown_is_good() {
    let folder = std::env::temp_dir().join(format!("bursar-docs-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    for csv in blocks("csv") {
        std::fs::write(folder.join("jobs.csv"), csv).expect("written");
        let text = "cluster: {hosts: [{count: 2, gpus: 8, model: h100}]}\nbudgets: auto\nworkloads: jobs.csv\n";
        let read = load_str(text, &folder, "csv", &[]).expect("it is good");
        assert_eq!(read.workloads.len(), 2);
    }
    std::fs::remove_dir_all(&folder).expect("it was made above");
}
