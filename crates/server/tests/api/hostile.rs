//! Secrets that must not be found, and text that must not be obeyed.

use crate::world::{PEOPLE, World, request, secret, workload};
use bursar_server::plain::obeyed;
use bursar_site::views::Standing;
use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tracing_subscriber::fmt::MakeWriter;

/// What people try.
const NASTY: [&str; 9] = [
    "\u{1b}[31mred",
    "\u{1b}]0;title\u{7}",
    "nul\0nul",
    "two\r\nlines",
    "\u{9b}31m",
    "\u{202e}txet",
    "\u{2066}hidden\u{2069}",
    "del\u{7f}",
    "tag\u{e0041}",
];

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic while it was held").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Log {
    fn text(&self) -> String {
        let bytes = self.0.lock().expect("no panic while it was held").clone();
        String::from_utf8(bytes).expect("UTF-8")
    }
}

/// Every text is tried in every place that takes text; gives how often it was refused.
async fn try_everything(world: &World, nasty: &str) -> u32 {
    let mut refused = 0;
    let base =
        || json!({"name": "w", "gpus": 1, "budget_owner": "program-a/team-a1", "command": ["x"]});
    let mut bodies = Vec::new();
    for field in
        ["name", "gpu_model", "workdir", "user", "budget_owner", "kind", "min_runtime", "memory"]
    {
        let mut one = base();
        one[field] = json!(if field == "workdir" { format!("/{nasty}") } else { nasty.to_owned() });
        bodies.push(one);
    }
    for (key, value) in [(nasty, "v"), ("k", nasty)] {
        let mut one = base();
        one["labels"] = json!({ key: value });
        bodies.push(one);
    }
    let mut unknown = base();
    unknown[nasty] = json!(1);
    bodies.push(unknown);
    let mut requests = Vec::new();
    for body in bodies {
        let body = json!({ "workload": body }).to_string();
        requests.push(("max", "POST", "/v1/workloads".to_owned(), body));
    }
    let change = |reason: &str, name: &str, owner: &str| json!({"base": 1, "reason": reason, "budgets": {name: {"share": 1, "owners": [owner]}}});
    for body in [change(nasty, "b", "o"), change("r", nasty, "o"), change("r", "b", nasty)] {
        requests.push(("boss", "PUT", "/v1/budgets".to_owned(), body.to_string()));
    }
    let at = json!({"base": 1, "reason": "r", "at": nasty, "budgets": {}}).to_string();
    requests.push(("boss", "PUT", "/v1/budgets".to_owned(), at));
    let reason = json!({ "reason": nasty }).to_string();
    requests.push(("boss", "POST", "/v1/hosts/h-1/drain".to_owned(), reason));
    for body in [json!({ "name": nasty }), json!({ "name": "n", "user": nasty })] {
        requests.push(("boss", "POST", "/v1/tokens".to_owned(), body.to_string()));
    }
    let escaped: String = nasty.bytes().map(|byte| format!("%{byte:02x}")).collect();
    for (method, path) in [
        ("GET", format!("/v1/workloads?{escaped}=1")),
        ("GET", format!("/v1/workloads?limit={escaped}")),
        ("GET", format!("/v1/workloads/{escaped}")),
        ("GET", format!("/v1/workloads/1/log?attempt={escaped}")),
        ("POST", format!("/v1/hosts/{escaped}/drain")),
        ("POST", format!("/v1/hosts/{escaped}/undrain")),
        ("POST", format!("/v1/tokens/{escaped}/revoke")),
        ("GET", format!("/{escaped}")),
    ] {
        requests.push(("boss", method, path, String::new()));
    }
    for (who, method, path, body) in requests {
        let answer = world.ask(who, method, &path, &body).await;
        assert!(answer.status.is_client_error(), "{method} {path} {body}: {}", answer.text());
        let raw = answer.text().chars().find(|&c| obeyed(c));
        assert_eq!(raw, None, "{method} {path} {body}: {:?}", answer.text());
        refused += 1;
    }
    refused
}

#[tokio::test]
async fn what_would_be_obeyed_is_refused_and_never_told_raw() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
    let guard = tracing::subscriber::set_default(subscriber);
    let world = World::new();
    let mut refused = 0;
    for nasty in NASTY {
        refused += try_everything(&world, nasty).await;
    }
    assert!(refused > 200, "{refused}");
    // A filter is a question, not a name: it finds nothing, and says so plainly.
    let answer = world.ask("max", "GET", "/v1/workloads?user=%1b%5b31m", "").await;
    assert_eq!(answer.json()["workloads"], json!([]));
    // Methods and secrets are texts of strangers, too.
    for method in ["X-\u{7c}", "POST'"] {
        world.ask("max", method, "/v1/workloads", "").await;
    }
    drop(guard);
    let text = log.text();
    assert!(text.lines().count() > 100, "{text}");
    for line in text.lines() {
        assert!(!line.chars().any(obeyed), "{line:?}");
    }
    assert!(text.contains("actor=\"max/max\""), "{text}");
    assert!(text.contains("route=\"/v1/hosts/{name}/drain\""), "{text}");
    assert!(!text.contains("secret-of"), "a secret is in the log: {text}");
    assert!(!text.contains("[31m"), "what people wrote is in the log: {text}");
}

#[tokio::test]
async fn what_may_hold_anything_comes_back_escaped() {
    let world = World::new();
    let body = json!({"workload": {
        "name": "w", "gpus": 1, "budget_owner": "program-a/team-a1",
        "command": ["sh", "-c", "echo \u{1b}[31m\nexit 0"],
        "env": {"K": "a\u{202e}b\u{9b}"},
    }});
    let number = world.submit("max", &body.to_string()).await;
    world.until(number, Standing::Protected).await;
    for path in
        [format!("/v1/workloads/{number}"), "/v1/audit".into(), "/v1/workloads?all=true".into()]
    {
        for who in ["max", "boss"] {
            let answer = world.ask(who, "GET", &path, "").await;
            assert!(!answer.text().chars().any(obeyed), "{path}: {:?}", answer.text());
        }
    }
    let shown = world.ask("max", "GET", &format!("/v1/workloads/{number}"), "").await.json();
    assert_eq!(shown["declared"]["command"], body["workload"]["command"]);
    assert_eq!(shown["declared"]["env"]["K"], "a\u{202e}b\u{9b}");
}

#[tokio::test]
async fn names_are_looked_up_and_never_opened() {
    let world = World::new();
    for path in [
        "/v1/workloads/..%2f..%2fetc%2fpasswd",
        "/v1/workloads/..%2f..%2fetc%2fpasswd/log",
        "/v1/workloads/1%00/log",
        "/v1/workloads/%ff%fe/log",
        "/v1/workloads/0x1/log",
        "/v1/workloads/99999999999999999999999/log",
        "/v1/workloads/../../etc/passwd",
    ] {
        let answer = world.ask("boss", "GET", path, "").await;
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.json()["code"], "not_found", "{path}");
    }
    for path in ["/v1/hosts/..%2fh-1/drain", "/v1/hosts/%ff/drain", "/v1/tokens/..%2fboss/revoke"] {
        assert_eq!(world.ask("boss", "POST", path, "").await.status, 404, "{path}");
    }
    // Attempts that there were not have no log, whatever they are called.
    let number = world.submit("max", &workload("w", "program-a/team-a1")).await;
    for attempt in ["0", "7", "4294967295"] {
        let path =
            format!("/v1/workloads/{number}/log?attempt={attempt}&offset=18446744073709551615");
        let answer = world.ask("max", "GET", &path, "").await;
        assert_eq!((answer.status.as_u16(), answer.json()["text"].as_str()), (200, Some("")));
    }
}

#[tokio::test]
async fn headers_are_taken_as_they_must_be_or_refused() {
    let world = World::new();
    for key in [&b"a\tb"[..], b"\xff", b"", &[b'x'; 200]] {
        let mut asked = request(
            Some(&secret("max")),
            "POST",
            "/v1/workloads",
            &workload("w", "program-a/team-a1"),
        );
        let value = axum::http::HeaderValue::from_bytes(key).expect("a header");
        asked.headers_mut().insert("idempotency-key", value);
        assert_eq!(world.send(asked).await.status, 422, "{key:?}");
    }
    let good = format!("Bearer {}", secret("max"));
    for value in [
        "Bearer",
        "Bearer ",
        "Basic bWF4",
        &secret("max"),
        &good.replace(' ', ""),
        &format!("Bearer {}", "x".repeat(5_000)),
        &format!("{good} more"),
        "Bearer \u{e9}",
    ] {
        let mut asked = request(None, "GET", "/v1/me", "");
        let value = axum::http::HeaderValue::from_bytes(value.as_bytes()).expect("a header");
        asked.headers_mut().insert("authorization", value);
        let answer = world.send(asked).await;
        assert_eq!(answer.status, 401, "{}", answer.text());
        assert!(!answer.text().contains("secret-of"));
    }
    // Two tokens are none.
    let mut asked = request(Some(&secret("max")), "GET", "/v1/me", "");
    asked.headers_mut().append("authorization", good.parse().expect("a header"));
    assert_eq!(world.send(asked).await.status, 401);
    let mut asked = request(None, "GET", "/v1/me", "");
    asked
        .headers_mut()
        .insert("authorization", good.replace("Bearer", "bearer").parse().expect("a header"));
    assert_eq!(world.send(asked).await.status, 200, "schemes have no case");
    // Ids are the server's own, whatever the client says.
    let mut asked = request(Some(&secret("max")), "GET", "/v1/me", "");
    asked.headers_mut().insert("x-request-id", "mine".parse().expect("a header"));
    let id = world.send(asked).await.headers["x-request-id"].to_str().expect("text").to_owned();
    assert!(id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
}

fn files_below(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        // The engine has a pipe there, too: opening that would wait for ever.
        if path.is_dir() {
            files_below(&path, found);
        } else if path.is_file() {
            found.push(path);
        }
    }
}

#[tokio::test]
async fn tokens_cannot_be_read_from_what_is_kept() {
    let world = World::new();
    let number = world.submit("max", &workload("w", "program-a/team-a1")).await;
    world.until(number, Standing::Protected).await;
    let mut secrets: Vec<String> = PEOPLE.iter().map(|person| secret(person)).collect();
    for name in ["one", "two"] {
        let made =
            world.ask("max", "POST", "/v1/tokens", &json!({ "name": name }).to_string()).await;
        assert_eq!(made.status, 200);
        secrets.push(made.json()["secret"].as_str().expect("a secret").to_owned());
    }
    let new = secrets.last().expect("one").clone();
    assert_eq!(world.send(request(Some(&new), "GET", "/v1/me", "")).await.status, 200);
    // Nor from any answer.
    for path in ["/v1/tokens", "/v1/audit", "/v1/me", "/metrics"] {
        let answer = world.ask("boss", "GET", path, "").await;
        assert_eq!(answer.status, 200);
        assert!(secrets.iter().all(|one| !answer.text().contains(one)), "{path}");
        assert!(!answer.text().contains("sha256"), "{path} shows hashes");
    }
    let mut files = Vec::new();
    files_below(world.dir.path(), &mut files);
    assert!(files.iter().any(|path| path.to_string_lossy().contains("journal")), "{files:?}");
    for path in files {
        let bytes = std::fs::read(&path).expect("it is read");
        for one in &secrets {
            // The random part alone is as good as all of it.
            for part in [one.as_bytes(), one.trim_start_matches("bursar_").as_bytes()] {
                let found = bytes.windows(part.len()).any(|window| window == part);
                assert!(!found, "{} holds a secret", path.display());
            }
        }
    }
}

#[tokio::test]
async fn a_job_that_panics_takes_nothing_with_it() {
    let world = World::new();
    let number = world.submit("max", &workload("w", "program-a/team-a1")).await;
    world.until(number, Standing::Protected).await;
    let before = world.records().await.len();
    std::panic::set_hook(Box::new(|_| {}));
    let failed = world.try_with(|_| panic!("a fault of ours")).await;
    let _ = std::panic::take_hook();
    assert_eq!(failed, Err(bursar_server::driver::NoAnswer::Fault));
    // The journal was folded anew, and all goes on.
    assert_eq!(world.ask("max", "GET", &format!("/v1/workloads/{number}"), "").await.status, 200);
    world.until(number, Standing::Protected).await;
    world.submit("max", &workload("x", "program-a/team-a1")).await;
    assert!(world.records().await.len() > before);
}

#[tokio::test]
async fn a_round_that_panics_does_not_end_the_rounds() {
    let world = World::new();
    let number = world.submit("max", &workload("w", "program-a/team-a1")).await;
    world.until(number, Standing::Protected).await;
    std::panic::set_hook(Box::new(|_| {}));
    world.processes.panic_once();
    while world.processes.will_panic() {
        // Every job is followed by a round.
        world.records().await;
    }
    world.records().await;
    let _ = std::panic::take_hook();
    assert_eq!(world.ask("max", "GET", &format!("/v1/workloads/{number}"), "").await.status, 200);
    let next = world.submit("max", &workload("x", "program-a/team-a1")).await;
    world.until(next, Standing::Protected).await;
    assert_eq!(world.ask("max", "GET", "/readyz", "").await.status, 200);
}
