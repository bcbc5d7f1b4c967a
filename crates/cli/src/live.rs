//! The verbs that work with a live site.

use crate::args::{CancelArgs, QueueArgs, ReportArgs, RunArgs, Server, SubmitArgs, WorkloadArgs};
use crate::client::Client;
use crate::failure::{Failure, Form};
use crate::follow::{ended_as, follow, tell_on_interrupt};
use crate::shown::{note, say};
use crate::socket::Reporter;
use crate::told::waits_text;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Read as _};

pub(crate) fn print(server: &Server, answer: &Value, text: impl FnOnce(&Value) -> String) {
    if server.json {
        say(&format!("{answer:#}\n"));
    } else {
        say(&text(answer));
    }
}

pub(crate) fn words(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// GPU-hours for a table of them: two decimals, or more where two would show nothing.
pub(crate) fn gpu_hours(ms: &Value) -> String {
    let hours = ms.as_f64().unwrap_or(0.0) / 3_600_000.0;
    if hours > 0.0 && hours < 0.1 { format!("{hours:.4}") } else { format!("{hours:.2}") }
}

/// An amount of GPU-time in the unit that fits it.
pub(crate) fn gpu_time(ms: &Value) -> String {
    let seconds = ms.as_f64().unwrap_or(0.0) / 1_000.0;
    match seconds {
        0.0 => "0 GPU-seconds".to_owned(),
        _ if seconds < 120.0 => format!("{seconds:.0} GPU-seconds"),
        _ if seconds < 7_200.0 => format!("{:.1} GPU-minutes", seconds / 60.0),
        _ => format!("{:.2} GPU-hours", seconds / 3_600.0),
    }
}

pub(crate) fn span(ms: u64) -> String {
    // Whole seconds are enough for people.
    bursar_core::SpanMs(ms / 1_000 * 1_000).to_string()
}

fn now_ms() -> u64 {
    bursar_server::clock::wall_ms()
}

/// `1 GPU`, `2 GPUs`.
pub(crate) fn gpus(count: &Value) -> String {
    if *count == 1 { "1 GPU".into() } else { format!("{count} GPUs") }
}

/// `in 5m`, `3m ago`.
pub(crate) fn when(unix_ms: &Value) -> String {
    let Some(at) = unix_ms.as_u64() else { return "-".into() };
    let now = now_ms();
    if at >= now { format!("in {}", span(at - now)) } else { format!("{} ago", span(now - at)) }
}

fn accepted_text(answer: &Value) -> String {
    let mut text = String::new();
    let count = answer["count"].as_u64().unwrap_or(1);
    match answer["workload"].as_u64() {
        Some(number) if count > 1 => {
            text += &format!(
                "array {number} accepted: {count} workloads, {number} to {}\n",
                number + count - 1
            );
        }
        Some(number) => text += &format!("workload {number} accepted\n"),
        None => {}
    }
    for line in answer["defaults"].as_array().into_iter().flatten() {
        text += &format!("  default: {}\n", words(line));
    }
    for line in answer["advice"].as_array().into_iter().flatten() {
        text += &format!("  advice: {}\n", words(line));
    }
    text += &format!(
        "  its contract commits {} of budget {}",
        gpu_time(&answer["contract_gpu_ms"]),
        words(&answer["budget"])
    );
    if let Some(left) = answer["left_gpu_hours"].as_f64() {
        text += &format!(", whose limit leaves {}", gpu_time(&json!(left * 3_600_000.0)));
    }
    text += "\n";
    if let Some(held) = answer["held"].as_str() {
        text += &format!("  it is held until `bursar release`: {held}\n");
        return text;
    }
    text + &format!("  {}\n", start_text(answer, count))
}

/// When a submission starts, as far as that can be told.
fn start_text(answer: &Value, count: u64) -> String {
    let waits: Vec<String> =
        answer["waits_for"].as_array().into_iter().flatten().map(ToString::to_string).collect();
    if !waits.is_empty() {
        let s = if waits.len() == 1 { "" } else { "s" };
        return format!("it waits for workload{s} {} to end first", waits.join(", "));
    }
    let would = &answer["would_start"];
    match (&would["at_once"], would["in_ms"].as_u64(), would["starting"].as_u64()) {
        (Value::Bool(true), _, Some(starting)) if count > 1 && starting < count => {
            let s = if starting == 1 { "s" } else { "" };
            format!("{starting} of {count} start{s} at once; `bursar queue` shows the others")
        }
        (Value::Bool(true), _, _) if count > 1 => format!("all {count} start at once"),
        (Value::Bool(true), _, _) => "it starts at once".to_owned(),
        (_, Some(ms), _) => {
            let who = if count > 1 { "the first of them" } else { "it" };
            format!("{who} starts within {}, as things stand", span(ms))
        }
        _ => "when it starts cannot be promised now; `bursar why` tells what it waits for".into(),
    }
}

pub(crate) fn read_input(path: &std::path::Path) -> Result<String, Failure> {
    let name = path.display();
    let mut text = String::new();
    let read = if path.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text))
    };
    read.map_err(|error| Failure::input(format!("{name}: {error}")))?;
    Ok(text)
}

pub(crate) fn submit(args: &SubmitArgs) -> Result<(), Failure> {
    let text = read_input(&args.file)?;
    // What is wrong with the file itself is said without asking anybody, with its name.
    bursar_site::declare::read_workload(&text)
        .map_err(|refused| Failure::input(format!("{}: {refused}", args.file.display())))?;
    let client = Client::new(&args.server)?;
    let path = format!("/v1/workloads?dry_run={}&hold={}", args.dry_run, args.hold);
    let answer = client.post(&path, args.key.as_deref(), &text)?;
    print(&args.server, &answer, accepted_text);
    Ok(())
}

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let client = Client::new(&args.server)?;
    let budget = match &args.budget {
        Some(budget) => budget.clone(),
        None => only_budget(&client)?,
    };
    let command = std::path::Path::new(&args.command[0]).file_name();
    let name = command.map_or_else(|| args.command[0].clone(), |name| name.display().to_string());
    let workdir = match &args.workdir {
        Some(workdir) => std::path::absolute(workdir),
        None => std::env::current_dir(),
    };
    let mut workload = json!({
        "name": args.name.clone().unwrap_or(name),
        "gpus": args.gpus,
        "budget_owner": budget,
        "rank": args.rank,
        "resumable": args.resumable,
        "checkpoint_on_signal": args.checkpoint_on_signal,
        "command": args.command,
        "workdir": workdir.map_err(Failure::fault)?.display().to_string(),
        "labels": args.labels.iter().cloned().collect::<BTreeMap<_, _>>(),
        "env": args.env.iter().cloned().collect::<BTreeMap<_, _>>(),
    });
    let texts = [
        ("min_runtime", &args.min_runtime),
        ("max_runtime", &args.max_runtime),
        ("checkpoint_interval", &args.checkpoint_interval),
        ("array", &args.array),
    ];
    for (key, given) in texts {
        if let Some(given) = given {
            workload[key] = json!(given);
        }
    }
    let after =
        args.after.iter().map(|(workload, when)| json!({"workload": workload, "when": when}));
    let after: Vec<Value> = after.collect();
    if !after.is_empty() {
        workload["after"] = json!(after);
    }
    let path = format!("/v1/workloads?dry_run={}&hold={}", args.dry_run, args.hold);
    let body = json!({ "workload": workload }).to_string();
    let answer = client.post(&path, args.key.as_deref(), &body)?;
    if !args.follow || args.dry_run {
        print(&args.server, &answer, accepted_text);
        return Ok(());
    }
    let number = answer["workload"].as_u64().unwrap_or_default();
    tell_on_interrupt(number);
    note(&format!("workload {number} accepted: {}", start_text(&answer, 1)));
    follow(&client, number, None, Form::asked())?;
    ended_as(&client, number)
}

fn only_budget(client: &Client) -> Result<String, Failure> {
    let me = client.get("/v1/me", &[])?;
    let budgets: Vec<String> =
        me["may_submit_to"].as_array().into_iter().flatten().map(words).collect();
    match &budgets[..] {
        [only] => Ok(only.clone()),
        [] => Err(Failure::input("--budget: there is none that you may submit to")),
        many => Err(Failure::input(format!("--budget: name one of {}", many.join(", ")))),
    }
}

pub(crate) fn queue(args: &QueueArgs) -> Result<(), Failure> {
    let client = Client::new(&args.server)?;
    let (mut works, mut notes): (Vec<Value>, Vec<String>) = (Vec::new(), Vec::new());
    let mut after: Option<u64> = None;
    loop {
        let mut query = vec![("all", args.all.to_string())];
        query.extend(args.budget.iter().map(|budget| ("budget", budget.clone())));
        query.extend(args.user.iter().map(|user| ("user", user.clone())));
        query.extend(args.label.iter().map(|label| ("label", label.clone())));
        query.extend(after.map(|after| ("after", after.to_string())));
        let page = client.get("/v1/workloads", &query)?;
        if after.is_none() {
            notes = page["notes"].as_array().into_iter().flatten().map(words).collect();
        }
        works.extend(page["workloads"].as_array().into_iter().flatten().cloned());
        after = page["next_after"].as_u64();
        if after.is_none() {
            break;
        }
    }
    // Who runs comes first, then who waits, in the order in which they would be served.
    works.sort_by_key(|work| {
        let waits = work["why"].is_object();
        (waits, work["why"]["ahead"].as_u64().unwrap_or(0), work["workload"].as_u64())
    });
    // Said where nobody takes it for a row, and by name in JSON.
    let mut whole = json!({ "workloads": works });
    match Form::asked() {
        Form::Words => notes.iter().for_each(|told| note(&format!("bursar: {told}"))),
        Form::Json if notes.is_empty() => {}
        Form::Json => whole["notes"] = json!(notes),
    }
    print(&args.server, &whole, |_| queue_text(&works));
    Ok(())
}

pub(crate) fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(head);
    for row in rows {
        table.add_row(row);
    }
    let text = table.to_string();
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn queue_text(works: &[Value]) -> String {
    if works.is_empty() {
        return "nothing waits or runs\n".into();
    }
    let row = |work: &Value| {
        let state = work["ending"].as_str().unwrap_or(work["state"].as_str().unwrap_or("?"));
        let state = match (state, work["allocated"].as_bool()) {
            ("interruptible", Some(false)) => "unallocated",
            (state, _) => state,
        };
        let until = if work["state"] == "protected" {
            format!("protected, ends {}", when(&work["protected_until_unix_ms"]))
        } else if work["why"].is_object() {
            waits_text(&work["why"])
        } else {
            String::new()
        };
        vec![
            work["workload"].to_string(),
            words(&work["name"]),
            words(&work["user"]),
            words(&work["budget"]),
            work["gpus"].to_string(),
            state.to_owned(),
            until,
        ]
    };
    table(
        &["id", "name", "user", "budget", "gpus", "state", "why"],
        works.iter().map(row).collect(),
    )
}

pub(crate) fn cancel(args: &CancelArgs) -> Result<(), Failure> {
    let query = if args.array { "?array=true" } else { "" };
    let what = if args.array { "the array of workload" } else { "workload" };
    act(&args.server, args.workload, &format!("cancel{query}"), |number| {
        format!("{what} {number} is being cancelled\n")
    })
}

pub(crate) fn requeue(args: &WorkloadArgs) -> Result<(), Failure> {
    let client = Client::new(&args.server)?;
    let before = client.get(&format!("/v1/workloads/{}", args.workload), &[])?;
    act(&args.server, args.workload, "requeue", |number| match before["state"].as_str() {
        Some("ended") => format!("workload {number} had ended; it waits to run once more\n"),
        _ => format!("workload {number} is told to save and leave; then it waits again\n"),
    })
}

pub(crate) fn release(args: &WorkloadArgs) -> Result<(), Failure> {
    act(&args.server, args.workload, "release", |number| {
        format!(
            "workload {number} is no longer held; `bursar why {number}` tells what it waits for\n"
        )
    })
}

fn act(
    server: &Server,
    number: u64,
    what: &str,
    text: impl FnOnce(u64) -> String,
) -> Result<(), Failure> {
    let answer = Client::new(server)?.post(&format!("/v1/workloads/{number}/{what}"), None, "")?;
    print(server, &answer, |_| text(number));
    Ok(())
}

pub(crate) fn report(args: &ReportArgs) -> Result<(), Failure> {
    let inside = Reporter::here().filter(|_| args.workload.is_none());
    if let Some(reporter) = inside {
        if args.checkpoint {
            reporter.checkpoint()?;
        }
        if let Some(text) = &args.progress {
            reporter.progress(text)?;
        }
        print(&args.server, &json!({ "noted": true }), |_| noted());
        return Ok(());
    }
    let here = || std::env::var("BURSAR_WORKLOAD").ok()?.parse().ok();
    let Some(workload) = args.workload.or_else(here).filter(|_| args.checkpoint) else {
        return Err(Failure::input(
            "this does not run inside a workload (BURSAR_SOCKET is not set): name one with --workload, and --checkpoint",
        ));
    };
    let client = Client::new(&args.server)?;
    let answer = client.post(&format!("/v1/workloads/{workload}/checkpoint"), None, "")?;
    print(&args.server, &answer, |_| noted());
    Ok(())
}

/// Reports come from scripts and stand in logs of work: only somebody who looks on is answered.
fn noted() -> String {
    if std::io::stdout().is_terminal() { "noted\n".into() } else { String::new() }
}

/// A name that stands in a path.
pub(crate) fn path_word(name: &str) -> Result<&str, Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
    if name.is_empty() || !name.chars().all(plain) {
        return Err(Failure::input(format!(
            "'{name}' is no name: letters, digits, '-', '_', '.' and '@' make one"
        )));
    }
    Ok(name)
}
