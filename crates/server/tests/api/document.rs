//! The description of the API is what the API is.

use crate::world::World;
use bursar_server::api::{CODES, openapi_text};
use serde_json::Value;
use std::path::PathBuf;

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every operation of the description: its method and path.
pub(crate) fn operations() -> Vec<(String, String)> {
    let document: Value = serde_json::from_str(&openapi_text()).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    let methods = ["get", "put", "post", "delete", "patch", "head", "options"];
    let of = |(path, item): (&String, &Value)| {
        let found = methods.iter().filter(|method| item.get(**method).is_some());
        found.map(|method| (method.to_uppercase(), path.clone())).collect::<Vec<_>>()
    };
    paths.iter().flat_map(of).collect()
}

#[test]
fn the_committed_description_is_that_of_the_code() {
    let path = repository().join("docs/openapi.json");
    let text = openapi_text();
    if std::env::var_os("BURSAR_WRITE_OPENAPI").is_some() {
        std::fs::write(&path, &text).expect("written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == text,
        "docs/openapi.json is not what the code says; look at what changed with\n  \
         BURSAR_WRITE_OPENAPI=1 cargo test -p bursar-server --test api description; git diff docs/openapi.json"
    );
}

#[test]
fn the_description_is_openapi_3_1_and_says_all_of_each_operation() {
    let document: Value = serde_json::from_str(&openapi_text()).expect("JSON");
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")));
    for (method, path) in operations() {
        let operation = &document["paths"][&path][method.to_lowercase()];
        let name = format!("{method} {path}");
        assert!(operation["summary"].is_string(), "{name} has no summary");
        assert!(operation["responses"]["200"].is_object(), "{name} has no answer");
        let open = operation["security"]
            .as_array()
            .is_some_and(|all| all.contains(&serde_json::json!({})));
        let refuses = operation["responses"]["401"].is_object();
        assert!(open || refuses, "{name} neither is open to all nor refuses");
        for part in path.split('/').filter_map(|part| part.strip_prefix('{')) {
            let part = part.trim_end_matches('}');
            let parameters = operation["parameters"].as_array().expect("parameters");
            assert!(parameters.iter().any(|one| one["name"] == part), "{name}: {part}");
        }
    }
}

#[test]
fn routes_are_made_in_no_way_but_the_described_one() {
    // Work reports over a socket of its own, which is no part of the API.
    let folder = repository().join("crates/server/src/api");
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a text");
            for call in [".route(", ".nest(", ".route_service(", ".nest_service("] {
                assert!(
                    !text.contains(call),
                    "{}: {call} bypasses the description",
                    path.display()
                );
            }
        }
    }
}

#[tokio::test]
async fn it_is_served_without_a_token() {
    let world = World::new();
    let answer = world.send(crate::world::request(None, "GET", "/v1/openapi.json", "")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.text(), openapi_text());
}

#[tokio::test]
async fn other_methods_and_paths_are_refused_with_what_is_there() {
    let world = World::new();
    let all = operations();
    for (_, path) in &all {
        let concrete = path.replace("{number}", "1").replace("{name}", "h-0");
        for method in ["GET", "PUT", "POST", "DELETE", "PATCH"] {
            if all.contains(&(method.to_owned(), path.clone())) {
                continue;
            }
            let answer = world.ask("boss", method, &concrete, "").await;
            assert_eq!(answer.status, 405, "{method} {path}");
            assert_eq!(answer.json()["code"], "method");
            assert!(answer.headers.contains_key("allow"), "{method} {path} says what it takes");
        }
    }
    for path in ["/", "/v1", "/v2/workloads", "/v1/workloads/", "/v1/../healthz", "//healthz"] {
        let answer = world.ask("boss", "GET", path, "").await;
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.json()["code"], "not_found");
    }
}

#[test]
fn people_can_read_of_every_route_and_code() {
    let text = std::fs::read_to_string(repository().join("docs/api.md")).expect("docs/api.md");
    for (method, path) in operations() {
        assert!(
            text.contains(&format!("`{method} {path}`")),
            "{method} {path} is not in docs/api.md"
        );
    }
    for (code, statuses, _) in CODES {
        for status in *statuses {
            let row = format!("| `{code}` | {status} |");
            assert!(text.contains(&row), "{row} is not in docs/api.md");
        }
    }
}
