//! Edges between crates point inwards only (DESIGN section 4), and the core stays what it says it is.

use std::fs;
use std::path::{Path, PathBuf};

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The names under `[dependencies]` of a crate's manifest (not under `[dev-dependencies]`).
fn dependencies(name: &str) -> Vec<String> {
    let text = fs::read_to_string(crates().join(name).join("Cargo.toml")).expect("a manifest");
    let mut inside = false;
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let kind = section.rsplit('.').next().unwrap_or_default();
            let own = !section.starts_with("target.") && !section.contains("dev-dependencies");
            inside = (own && section.contains("dependencies"))
                || kind.starts_with("dependencies")
                || kind.starts_with("build-dependencies");
        } else if inside && !line.is_empty() && !line.starts_with('#') {
            let end = line.find(['=', '.', ' ']).expect("a dependency has a version");
            found.push(line[..end].to_owned());
        }
    }
    found
}

fn bursar_dependencies(name: &str) -> Vec<String> {
    let mut own: Vec<String> = dependencies(name)
        .into_iter()
        .filter_map(|dependency| dependency.strip_prefix("bursar-").map(String::from))
        .collect();
    own.sort();
    own
}

#[test]
fn edges_point_inwards_only() {
    // Nothing decides with serde: a live site writes states down with it, a simulation is built without.
    assert_eq!(dependencies("core"), ["serde"], "the core depends on nothing that it decides with");
    let manifest = fs::read_to_string(crates().join("core/Cargo.toml")).expect("a manifest");
    let serde = manifest.lines().find(|line| line.starts_with("serde = {")).expect("serde");
    assert!(serde.contains("optional = true") && serde.contains("default-features = false"));
    for (name, allowed) in [
        ("trace", &[][..]),
        ("scenario", &["trace"]),
        ("sim", &["core", "scenario"]),
        ("verify", &["scenario"]),
        ("report", &["core", "scenario", "sim"]),
        ("store", &[]),
        ("engine", &[]),
        ("slurm", &["engine"]),
        ("slurm-lab", &["slurm"]),
        ("site", &["core", "trace"]),
        ("server", &["engine", "scenario", "sim", "site", "slurm", "store"]),
    ] {
        let found = bursar_dependencies(name);
        let outward = found.iter().find(|one| !allowed.contains(&one.as_str()));
        assert_eq!(outward, None, "{name} may depend on {allowed:?} only");
    }
    // Nothing inside depends on the binary.
    for entry in fs::read_dir(crates()).expect("the crates").flatten() {
        let name = entry.file_name().into_string().expect("a name");
        if entry.path().join("Cargo.toml").is_file() && name != "cli" {
            assert!(
                !dependencies(&name).contains(&"bursar".to_owned()),
                "{name} depends on the binary"
            );
        }
    }
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// A source without its comments and without the tests at its end.
fn code_of(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a source");
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let code = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    text.lines().map(code).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_core_has_no_std_no_float_and_no_hash_order() {
    let root = crates().join("core/src");
    let main = fs::read_to_string(root.join("lib.rs")).expect("lib.rs");
    assert!(main.lines().any(|line| line == "#![no_std]"));
    let mut paths = Vec::new();
    sources(&root, &mut paths);
    assert!(paths.len() > 20, "the sources were found");
    let banned = ["f32", "f64", "HashMap", "HashSet", "std", "unsafe", "Instant", "SystemTime"];
    for path in paths {
        let code = code_of(&path);
        let words = code.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let found: Vec<&str> =
            words.filter(|word| banned.contains(word) && *word != "no_std").collect();
        assert!(found.is_empty(), "{}: {found:?}", path.display());
    }
}

#[test]
fn the_checker_shares_no_code_with_what_it_checks() {
    let mut paths = Vec::new();
    sources(&crates().join("verify/src"), &mut paths);
    for path in paths {
        let code = code_of(&path);
        assert!(
            !code.contains("bursar_core") && !code.contains("bursar_sim"),
            "{}",
            path.display()
        );
    }
}
