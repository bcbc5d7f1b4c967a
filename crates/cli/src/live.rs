//! The verbs that work with a live site.

use crate::args::{
    AuditArgs, CancelArgs, HostVerb, LogsArgs, QueueArgs, ReportArgs, RunArgs, Server, SubmitArgs,
    WaitArgs, WorkloadArgs,
};
use crate::client::Client;
use crate::failure::Failure;
use crate::shown::{note, say};
use crate::socket::Reporter;
use serde_json::{Value, json};
use std::io::Read as _;
use std::time::Duration;

/// How often a verb that follows something looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(300);

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

/// GPU-hours with two decimals.
pub(crate) fn gpu_hours(ms: &Value) -> String {
    format!("{:.2}", ms.as_f64().unwrap_or(0.0) / 3_600_000.0)
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
    let hours = gpu_hours(&answer["contract_gpu_ms"]);
    text += &format!("  its contract commits {hours} GPU-hours of its budget\n");
    if let Some(held) = answer["held"].as_str() {
        text += &format!("  it is held until `bursar release`: {held}\n");
        return text;
    }
    text += &match (&answer["would_start"]["at_once"], answer["would_start"]["in_ms"].as_u64()) {
        (Value::Bool(true), _) => "  it starts at once\n".to_owned(),
        (_, Some(ms)) => format!("  it starts within {}, as things stand\n", span(ms)),
        _ => {
            "  when it starts cannot be promised now; `bursar why` tells what it waits for\n".into()
        }
    };
    text
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
    let workdir = std::env::current_dir().map_err(Failure::fault)?;
    let mut workload = json!({
        "name": args.name.clone().unwrap_or(name),
        "gpus": args.gpus,
        "budget_owner": budget,
        "rank": args.rank,
        "resumable": args.resumable,
        "command": args.command,
        "workdir": workdir.display().to_string(),
    });
    for (key, given) in [("min_runtime", &args.min_runtime), ("max_runtime", &args.max_runtime)] {
        if let Some(given) = given {
            workload[key] = json!(given);
        }
    }
    if let Some(array) = &args.array {
        workload["array"] = json!(array);
    }
    let path = if args.dry_run { "/v1/workloads?dry_run=true" } else { "/v1/workloads" };
    let answer = client.post(path, None, &json!({ "workload": workload }).to_string())?;
    if !args.follow || args.dry_run {
        print(&args.server, &answer, accepted_text);
        return Ok(());
    }
    let number = answer["workload"].as_u64().unwrap_or_default();
    note(&format!("workload {number} accepted"));
    follow(&client, number, None)?;
    ended_well(&client, number)
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
    let mut works: Vec<Value> = Vec::new();
    let mut after: Option<u64> = None;
    loop {
        let mut query = vec![("all", args.all.to_string())];
        query.extend(args.budget.iter().map(|budget| ("budget", budget.clone())));
        query.extend(args.user.iter().map(|user| ("user", user.clone())));
        query.extend(after.map(|after| ("after", after.to_string())));
        let page = client.get("/v1/workloads", &query)?;
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
    print(&args.server, &json!({ "workloads": works }), |_| queue_text(&works));
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
            why_text(&work["why"])
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

fn why_text(why: &Value) -> String {
    let promise = match why["starts_by_unix_ms"].as_u64() {
        Some(_) => format!("; it starts {} at the latest", when(&why["starts_by_unix_ms"])),
        None => String::new(),
    };
    // Before it is in the queue, no rule has a part in it.
    let rule = match why["rule"].as_u64() {
        Some(0) | None => String::new(),
        Some(rule) => format!(" (rule {rule})"),
    };
    format!("{}{rule}{promise}", words(&why["text"]))
}

fn detail(server: &Server, number: u64) -> Result<Value, Failure> {
    Client::new(server)?.get(&format!("/v1/workloads/{number}"), &[])
}

pub(crate) fn show(args: &WorkloadArgs) -> Result<(), Failure> {
    let work = detail(&args.server, args.workload)?;
    print(&args.server, &work, |work| {
        let declared = &work["declared"];
        let state = work["ending"].as_str().unwrap_or(work["state"].as_str().unwrap_or("?"));
        let mut text = format!(
            "workload {} {}: {state}\n  {} of {}, for {}; submitted {}\n  contract: protected for {}, {}\n  charged so far: {} GPU-hours\n",
            work["workload"],
            words(&work["name"]),
            gpus(&work["gpus"]),
            words(&work["budget"]),
            words(&work["user"]),
            when(&work["submitted_unix_ms"]),
            span(declared["min_runtime_ms"].as_u64().unwrap_or(0)),
            if declared["resumable"] == true { "resumable" } else { "not resumable" },
            gpu_hours(&work["charged_gpu_ms"]),
        );
        if work["why"].is_object() {
            text += &format!("  {}\n", why_text(&work["why"]));
        }
        if let Some(said) = work["progress"]["text"].as_str() {
            text += &format!("  it says: {said} ({})\n", when(&work["progress"]["unix_ms"]));
        }
        for attempt in work["history"].as_array().into_iter().flatten() {
            text += &attempt_text(attempt);
        }
        text
    });
    Ok(())
}

/// How many hosts of an attempt are shown; `--json` has all of them.
const HOSTS_SHOWN: usize = 4;

fn attempt_text(attempt: &Value) -> String {
    let hosts = attempt["placement"].as_array().into_iter().flatten().map(|place| {
        let gpus: Vec<String> =
            place[1].as_array().into_iter().flatten().map(ToString::to_string).collect();
        format!("{}[{}]", words(&place[0]), gpus.join(","))
    });
    let mut hosts: Vec<String> = hosts.collect();
    if hosts.len() > HOSTS_SHOWN {
        let left_out = hosts.len() - HOSTS_SHOWN;
        hosts.splice(HOSTS_SHOWN - 1..hosts.len() - 1, [format!("… {left_out} more …")]);
    }
    let class = if attempt["allocated"] == true { "allocated" } else { "unallocated" };
    let mut text = format!(
        "  attempt {} ({class}) on {}: {}\n",
        attempt["attempt"],
        hosts.join(" "),
        words(&attempt["reason"])
    );
    if attempt["started_unix_ms"].is_u64() {
        text += &format!("    started {}", when(&attempt["started_unix_ms"]));
        if let Some(outcome) = attempt["outcome"].as_str() {
            text += &format!(", {outcome} {}", when(&attempt["ended_unix_ms"]));
        }
        text += "\n";
    }
    let eviction = &attempt["eviction"];
    if eviction.is_object() {
        let by = eviction["by"].as_u64().map_or(String::new(), |by| format!(" for workload {by}"));
        text += &format!(
            "    told to leave {}{by}: {}\n",
            when(&eviction["at_unix_ms"]),
            words(&eviction["reason"])
        );
        let (side, against) = (&eviction["side"], &eviction["against"]);
        if side.is_array() {
            text += &format!(
                "    usage ratios: {} at {} after the swap, {} at {}\n",
                words(&side[0]),
                words(&side[1]),
                words(&against[0]),
                words(&against[1])
            );
        }
        text += &format!("    lost: {} GPU-hours\n", gpu_hours(&attempt["lost_gpu_ms"]));
    }
    if let Some(detail) = attempt["detail"].as_str() {
        text += &format!("    {detail}\n");
    }
    text
}

pub(crate) fn why(args: &WorkloadArgs) -> Result<(), Failure> {
    let work = detail(&args.server, args.workload)?;
    print(&args.server, &work, |work| {
        if work["why"].is_object() {
            return format!("{}\n", why_text(&work["why"]));
        }
        let last = work["history"].as_array().and_then(|history| history.last());
        match (work["state"].as_str(), last) {
            (_, Some(attempt)) => attempt_text(attempt),
            (Some(state), None) => format!("it is {state} and had no attempt\n"),
            (None, None) => "nothing is known of it\n".into(),
        }
    });
    Ok(())
}

/// Prints a log until its attempt (or, for the latest one, its workload) has ended.
fn follow(client: &Client, number: u64, attempt: Option<u32>) -> Result<(), Failure> {
    let (mut offset, mut shown_attempt) = (0, attempt);
    loop {
        let mut query = vec![("offset", offset.to_string())];
        query.extend(shown_attempt.map(|attempt| ("attempt", attempt.to_string())));
        let part = client.get(&format!("/v1/workloads/{number}/log"), &query)?;
        let text = part["text"].as_str().unwrap_or_default();
        say(text);
        if let Some(found) = part["attempt"].as_u64() {
            shown_attempt = u32::try_from(found).ok();
        }
        offset = part["next_offset"].as_u64().unwrap_or(offset);
        if !text.is_empty() {
            continue;
        }
        if part["ended"] == true {
            let work = client.get(&format!("/v1/workloads/{number}"), &[])?;
            let attempts = work["attempts"].as_u64().unwrap_or(0);
            if attempt.is_some() || work["state"] == "ended" {
                return Ok(());
            }
            if attempts > shown_attempt.map_or(0, u64::from) {
                // Preempted and started again: its next attempt has a log of its own.
                shown_attempt = u32::try_from(attempts).ok();
                offset = 0;
                note(&format!("attempt {attempts} of workload {number}"));
            }
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

pub(crate) fn logs(args: &LogsArgs) -> Result<(), Failure> {
    let client = Client::new(&args.server)?;
    if args.follow {
        return follow(&client, args.workload, args.attempt);
    }
    let mut offset = 0;
    loop {
        let mut query = vec![("offset", u64::to_string(&offset))];
        query.extend(args.attempt.map(|attempt| ("attempt", attempt.to_string())));
        let part = client.get(&format!("/v1/workloads/{}/log", args.workload), &query)?;
        let text = part["text"].as_str().unwrap_or_default();
        if text.is_empty() {
            return Ok(());
        }
        say(text);
        offset = part["next_offset"].as_u64().unwrap_or(offset);
    }
}

pub(crate) fn cancel(args: &CancelArgs) -> Result<(), Failure> {
    let query = if args.array { "?array=true" } else { "" };
    let what = if args.array { "the array of workload" } else { "workload" };
    act(&args.server, args.workload, &format!("cancel{query}"), |number| {
        format!("{what} {number} is being cancelled\n")
    })
}

pub(crate) fn requeue(args: &WorkloadArgs) -> Result<(), Failure> {
    act(&args.server, args.workload, "requeue", |number| {
        format!("workload {number} waits again, or will when it has saved and left\n")
    })
}

pub(crate) fn release(args: &WorkloadArgs) -> Result<(), Failure> {
    act(&args.server, args.workload, "release", |number| {
        format!("workload {number} is no longer held\n")
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

fn ended_well(client: &Client, number: u64) -> Result<(), Failure> {
    let work = client.get(&format!("/v1/workloads/{number}"), &[])?;
    match work["ending"].as_str() {
        Some("completed") => Ok(()),
        Some(ending) => {
            let last = work["history"].as_array().and_then(|history| history.last());
            let code = last.and_then(|last| last["exit_code"].as_i64());
            let code = code.map_or(String::new(), |code| format!(" with exit code {code}"));
            Err(Failure::Fault(format!("workload {number} ended as {ending}{code}")))
        }
        None => Err(Failure::Fault(format!("workload {number} has not ended"))),
    }
}

pub(crate) fn wait(args: &WaitArgs) -> Result<(), Failure> {
    let client = Client::new(&args.server)?;
    loop {
        let work = client.get(&format!("/v1/workloads/{}", args.workload), &[])?;
        if work["state"] == "ended" {
            if args.server.json {
                say(&format!("{work:#}\n"));
            }
            return ended_well(&client, args.workload);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
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
        print(&args.server, &json!({ "noted": true }), |_| "noted\n".into());
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
    print(&args.server, &answer, |_| "noted\n".into());
    Ok(())
}

/// A tree of budgets as people write it.
pub(crate) fn host(verb: &HostVerb) -> Result<(), Failure> {
    match verb {
        HostVerb::List { server } => {
            let answer = Client::new(server)?.get("/v1/hosts", &[])?;
            print(server, &answer, |answer| {
                let row = |host: &Value| {
                    let empty = if host["used"] == 0 {
                        "now".to_owned()
                    } else {
                        when(&host["empty_by_unix_ms"])
                    };
                    vec![
                        words(&host["name"]),
                        words(&host["model"]),
                        format!("{} of {}", host["used"], host["gpus"]),
                        words(&host["state"]),
                        empty,
                        words(&host["reason"]),
                    ]
                };
                let rows = answer["hosts"].as_array().into_iter().flatten().map(row).collect();
                table(&["host", "model", "GPUs used", "state", "empty if drained", "reason"], rows)
            });
        }
        HostVerb::Drain { host, reason, server } => {
            let body = json!({ "reason": reason }).to_string();
            let path = format!("/v1/hosts/{}/drain", path_word(host)?);
            let answer = Client::new(server)?.post(&path, None, &body)?;
            print(server, &answer, |answer| {
                format!("{host} drains; it is empty {}\n", when(&answer["empty_by_unix_ms"]))
            });
        }
        HostVerb::Undrain { host, server } => {
            let path = format!("/v1/hosts/{}/undrain", path_word(host)?);
            let answer = Client::new(server)?.post(&path, None, "")?;
            print(server, &answer, |_| format!("{host} is in service\n"));
        }
    }
    Ok(())
}

/// A name that stands in a path.
pub(crate) fn path_word(name: &str) -> Result<&str, Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
    if name.is_empty() || !name.chars().all(plain) {
        return Err(Failure::input(format!("'{name}' is no name of a host")));
    }
    Ok(name)
}

pub(crate) fn audit(args: &AuditArgs) -> Result<(), Failure> {
    let client = Client::new(&args.server)?;
    let answer = client.get("/v1/audit", &[("after", args.after.to_string())])?;
    print(&args.server, &answer, |answer| {
        let row = |entry: &Value| {
            let mut what = entry["what"].clone();
            let kind = words(&what["kind"]);
            if let Some(fields) = what.as_object_mut() {
                fields.remove("kind");
                fields.remove("budgets");
                fields.remove("declared");
            }
            let rest = what.to_string();
            vec![
                entry["seq"].to_string(),
                when(&entry["at_unix_ms"]),
                words(&entry["actor"]),
                kind,
                rest,
            ]
        };
        let rows = answer["entries"].as_array().into_iter().flatten().map(row).collect();
        table(&["seq", "when", "who", "what", "details"], rows)
    });
    Ok(())
}
