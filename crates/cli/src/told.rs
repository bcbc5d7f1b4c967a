//! `bursar show` and `bursar why`: what is told about one workload.

use crate::args::{Server, WorkloadArgs};
use crate::client::Client;
use crate::failure::Failure;
use crate::live::{gpu_time, gpus, print, span, when, words};
use serde_json::{Value, json};

/// How many hosts of an attempt are shown; `--json` has all of them.
const HOSTS_SHOWN: usize = 4;

fn detail(server: &Server, number: u64) -> Result<Value, Failure> {
    Client::new(server)?.get(&format!("/v1/workloads/{number}"), &[])
}

/// What a workload waits for, on one line.
pub(crate) fn waits_text(why: &Value) -> String {
    let mut text = words(&why["text"]);
    if why["frees_unix_ms"].is_u64() {
        text += &format!("; the first protection there ends {}", when(&why["frees_unix_ms"]));
    }
    if why["starts_by_unix_ms"].is_u64() {
        text += &format!("; it starts {} at the latest", when(&why["starts_by_unix_ms"]));
    }
    text
}

/// The same with all that there is to say, a line for each.
fn waits_lines(why: &Value) -> Vec<String> {
    let more = why["more"].as_array().into_iter().flatten().map(words);
    let mut lines: Vec<String> = std::iter::once(waits_text(why)).chain(more).collect();
    // Before it is in the queue, no rule has a part in it.
    if let Some(rule) = why["rule"].as_u64().filter(|&rule| rule > 0) {
        lines.push(format!("rule {rule} of docs/policy"));
    }
    lines
}

/// Why a workload was last told to leave, for whom, and what was kept.
fn preempted_lines(work: &Value) -> Vec<String> {
    let told = &work["preempted"];
    if !told.is_object() {
        return Vec::new();
    }
    let by = told["by"].as_u64().map_or(String::new(), |by| format!(" for workload {by}"));
    let reason = words(&told["reason"]);
    let mut lines = vec![format!(
        "workload {} was last told to leave {}, in attempt {}{by}: {reason}",
        work["workload"],
        when(&told["at_unix_ms"]),
        told["attempt"]
    )];
    let (side, against) = (&told["side"], &told["against"]);
    if side.is_array() {
        lines.push(ratios(side, against));
    }
    let lost = gpu_time(&told["lost_gpu_ms"]);
    let saved = match told["checkpoint_unix_ms"].as_u64() {
        Some(_) => format!("it had last saved {}", when(&told["checkpoint_unix_ms"])),
        None => "it had not saved before".to_owned(),
    };
    lines.push(match told["kept"].as_str() {
        Some("leaving") => "it is saving, or about to leave".to_owned(),
        Some("all") => "saved: nothing of its work was lost".to_owned(),
        Some("nothing") => format!("lost: all that it had done, {lost}; {saved}"),
        _ => format!("lost: {lost}; {saved}, and what was saved is kept"),
    });
    lines
}

/// The two usage ratios that rule 6 compared.
fn ratios(side: &Value, against: &Value) -> String {
    format!(
        "usage ratios: {} at {} even after the swap, {} at {}",
        words(&side[0]),
        words(&side[1]),
        words(&against[0]),
        words(&against[1])
    )
}

/// How it stands now: the first line is a whole sentence, and the rest are more about it.
fn now_lines(work: &Value) -> Vec<String> {
    let number = &work["workload"];
    if work["why"].is_object() {
        let mut lines = waits_lines(&work["why"]);
        lines[0] = format!("workload {number} waits: {}", lines[0]);
        return lines;
    }
    if work["end"].is_object() {
        let end = &work["end"];
        let ago = match end["at_unix_ms"].as_u64() {
            Some(_) => format!(" {}", when(&end["at_unix_ms"])),
            None => String::new(),
        };
        return vec![format!("workload {number} ended{ago}: {}", words(&end["text"]))];
    }
    let last = work["history"].as_array().and_then(|history| history.last());
    let Some(attempt) = last else {
        return vec![format!("workload {number} is {}", words(&work["state"]))];
    };
    let until = &attempt["protected_until_unix_ms"];
    let how = match work["state"].as_str() {
        Some("starting") => "is starting".to_owned(),
        Some("protected") => {
            format!("runs, protected until {} ({})", clock_time(until), when(until))
        }
        Some("interruptible") if attempt["allocated"] == true => {
            format!("runs, and may be preempted since {} ({})", clock_time(until), when(until))
        }
        Some("interruptible") => {
            "runs unallocated: charged to nobody, and may be preempted at any moment".to_owned()
        }
        Some("preempting") => "was told to leave, and saves".to_owned(),
        other => format!("is {}", other.unwrap_or("there")),
    };
    vec![
        format!("workload {number} {how}"),
        format!("attempt {} started by {}", attempt["attempt"], words(&attempt["reason"])),
    ]
}

/// A moment as the clock on the wall shows it; with its date, if that is not today's.
fn clock_time(unix_ms: &Value) -> String {
    let zone = jiff::tz::TimeZone::system();
    let at = unix_ms.as_i64().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let Some(at) = at.map(|at| at.to_zoned_datetime(zone.clone())) else { return "-".to_owned() };
    let today = jiff::Timestamp::now().to_zoned_datetime(zone).date();
    let form = if at.date() == today { "%H:%M:%S" } else { "%F %H:%M:%S" };
    at.strftime(form).to_string()
}

pub(crate) fn why(args: &WorkloadArgs) -> Result<(), Failure> {
    let work = detail(&args.server, args.workload)?;
    let (before, now) = (preempted_lines(&work), now_lines(&work));
    let mut told = json!({
        "workload": work["workload"], "name": work["name"], "state": work["state"],
        "text": now[0], "more": now[1..],
    });
    let last = work["history"].as_array().and_then(|history| history.last());
    let running = last.filter(|attempt| attempt["ended_unix_ms"].is_null());
    let parts = [
        ("preempted", &work["preempted"]),
        ("waits", &work["why"]),
        ("ended", &work["end"]),
        ("runs", running.unwrap_or(&Value::Null)),
    ];
    for (key, part) in parts {
        if !part.is_null() {
            told[key] = part.clone();
        }
    }
    if let Some(ending) = work["ending"].as_str() {
        told["ending"] = json!(ending);
    }
    print(&args.server, &told, |_| {
        let block = |lines: &[String]| {
            let first = lines.first().map(|line| format!("{line}\n")).unwrap_or_default();
            let rest = lines.iter().skip(1).map(|line| format!("  {line}\n"));
            first + &rest.collect::<String>()
        };
        block(&before) + &block(&now)
    });
    Ok(())
}

pub(crate) fn show(args: &WorkloadArgs) -> Result<(), Failure> {
    let work = detail(&args.server, args.workload)?;
    print(&args.server, &work, |work| {
        let state = work["ending"].as_str().unwrap_or(work["state"].as_str().unwrap_or("?"));
        let mut text = format!(
            "workload {} {}: {state}\n  {} of {}, for {}; submitted {}\n",
            work["workload"],
            words(&work["name"]),
            gpus(&work["gpus"]),
            words(&work["budget"]),
            words(&work["user"]),
            when(&work["submitted_unix_ms"]),
        );
        if let Some(arrived) = work["arrived"].as_object() {
            let word = |key: &str| arrived.get(key).map(words).unwrap_or_default();
            text += &format!("  in Slurm: job {}, partition {}\n", word("shown"), word("queue"));
        }
        text += &declared_text(&work["declared"]);
        text += &format!("  charged so far: {}\n", gpu_time(&work["charged_gpu_ms"]));
        if work["why"].is_object() {
            for line in waits_lines(&work["why"]) {
                text += &format!("  {line}\n");
            }
        }
        if let Some(end) = work["end"]["text"].as_str() {
            text += &format!("  {end}\n");
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

/// A word of a command line as one would type it.
fn typed(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// What was declared, as far as it was.
fn declared_text(declared: &Value) -> String {
    let ms = |key: &str| declared[key].as_u64().map(span);
    let mut text = format!(
        "  contract: protected for {}, {}\n",
        ms("min_runtime_ms").unwrap_or_else(|| "0s".into()),
        if declared["resumable"] == true { "resumable" } else { "not resumable" }
    );
    let mut saves = Vec::new();
    saves.extend(ms("checkpoint_interval_ms").map(|every| format!("every {every}")));
    if declared["checkpoint_on_signal"] == true {
        saves.push("when it is told to leave".to_owned());
    }
    let pairs = |key: &str| {
        let pairs = declared[key].as_object().into_iter().flatten();
        let pairs: Vec<String> =
            pairs.map(|(key, value)| format!("{key}={}", words(value))).collect();
        (!pairs.is_empty()).then(|| pairs.join(", "))
    };
    let command: Vec<String> =
        declared["command"].as_array().into_iter().flatten().map(|w| typed(&words(w))).collect();
    // Values of an environment may be secrets that a screen is not to show.
    let env = declared["env"].as_object().filter(|env| !env.is_empty());
    let env = env.map(|env| env.keys().cloned().collect::<Vec<_>>().join(", "));
    let after = declared["after"].as_array().into_iter().flatten().map(|after| {
        let how = if after["when"] == "any" { "has ended" } else { "has completed" };
        format!("workload {} {how}", after["workload"])
    });
    let after: Vec<String> = after.collect();
    let shape = declared["shape"]
        .as_array()
        .map(|shape| format!("{} hosts with {} GPUs each", shape[0], shape[1]));
    let element = declared["element"].as_object().map(|element| {
        let most = element.get("at_once").and_then(Value::as_u64);
        let most = most.map_or(String::new(), |most| format!(", at most {most} at once"));
        format!(
            "index {} of array {} ({} workloads{most})",
            element["index"], element["array"], element["size"]
        )
    });
    let memory = declared["memory_bytes"]
        .as_u64()
        .map(|bytes| format!("{:.1} GiB", bytes as f64 / f64::from(1u32 << 30)));
    let text_of = |key: &str| declared[key].as_str().map(str::to_owned);
    let rank = declared["rank"].as_i64().filter(|&rank| rank != 0).map(|rank| rank.to_string());
    let lines = [
        ("saves", (!saves.is_empty()).then(|| saves.join(" and "))),
        ("command", Some(command.join(" "))),
        ("workdir", text_of("workdir")),
        ("GPU model", text_of("gpu_model")),
        ("shape", shape),
        ("array", element),
        ("rank", rank),
        ("ended at", ms("max_runtime_ms")),
        ("CPUs", declared["cpus"].as_u64().map(|cpus| cpus.to_string())),
        ("memory", memory),
        ("environment", env),
        ("labels", pairs("labels")),
        ("after", (!after.is_empty()).then(|| after.join(", "))),
    ];
    for (what, line) in lines {
        if let Some(line) = line {
            text += &format!("  {what}: {line}\n");
        }
    }
    text
}

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
    let outcome = attempt["outcome"].as_str().map(|outcome| {
        let code = attempt["exit_code"].as_i64();
        let code = code.map_or(String::new(), |code| format!(" with exit code {code}"));
        format!("{outcome}{code} {}", when(&attempt["ended_unix_ms"]))
    });
    match (attempt["started_unix_ms"].is_u64(), outcome) {
        (true, Some(outcome)) => {
            text += &format!("    started {}, {outcome}\n", when(&attempt["started_unix_ms"]));
        }
        (true, None) => text += &format!("    started {}\n", when(&attempt["started_unix_ms"])),
        (false, Some(outcome)) => text += &format!("    never ran: {outcome}\n"),
        (false, None) => {}
    }
    let eviction = &attempt["eviction"];
    if eviction.is_object() {
        let by = eviction["by"].as_u64().map_or(String::new(), |by| format!(" for workload {by}"));
        text += &format!(
            "    told to leave {}{by}: {}\n",
            when(&eviction["at_unix_ms"]),
            words(&eviction["reason"])
        );
        if eviction["side"].is_array() {
            text += &format!("    {}\n", ratios(&eviction["side"], &eviction["against"]));
        }
        text += &format!("    lost: {}\n", gpu_time(&attempt["lost_gpu_ms"]));
    }
    if let Some(detail) = attempt["detail"].as_str() {
        text += &format!("    {detail}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_as_one_would_type_them() {
        assert_eq!(typed("./train.sh"), "./train.sh");
        assert_eq!(typed("echo it's"), "'echo it'\\''s'");
        assert_eq!(typed(""), "''");
    }

    #[test]
    fn why_begins_with_the_last_preemption_also_when_it_runs_again() {
        let work = json!({
            "workload": 5, "state": "protected",
            "preempted": {
                "attempt": 1, "at_unix_ms": 1, "by": 7, "reason": "rule 6: it may", "kept": "all",
                "lost_gpu_ms": 0, "side": ["a", "0.1000"], "against": ["b", "0.9000"],
            },
            "history": [{"attempt": 2, "allocated": true, "reason": "rule 8: idle", "protected_until_unix_ms": 9}],
        });
        let before = preempted_lines(&work);
        assert!(before[0].contains("in attempt 1 for workload 7: rule 6"), "{before:?}");
        assert_eq!(before[1], "usage ratios: a at 0.1000 even after the swap, b at 0.9000");
        assert_eq!(before[2], "saved: nothing of its work was lost");
        let now = now_lines(&work);
        assert!(now[0].starts_with("workload 5 runs, protected until "), "{now:?}");
    }
}
