//! What a workload writes, and its end: `logs`, `wait` and `run --follow`.

use crate::args::{LogsArgs, WaitArgs};
use crate::client::Client;
use crate::failure::{Failure, Form};
use crate::live::{print, words};
use crate::shown::{note, say};
use serde_json::{Value, json};
use std::time::Duration;

/// How often a verb that follows something looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(300);

/// Prints a part of a log: as it is, or as one object on one line.
fn say_part(part: &Value, form: Form) {
    match form {
        Form::Words => say(part["text"].as_str().unwrap_or_default()),
        Form::Json => say(&format!("{part}\n")),
    }
}

/// Prints a log until its attempt (or, for the latest one, its workload) has ended.
pub(crate) fn follow(
    client: &Client,
    number: u64,
    attempt: Option<u32>,
    form: Form,
) -> Result<(), Failure> {
    let (mut offset, mut shown_attempt) = (0, attempt);
    loop {
        let mut query = vec![("offset", offset.to_string())];
        query.extend(shown_attempt.map(|attempt| ("attempt", attempt.to_string())));
        let part = client.get(&format!("/v1/workloads/{number}/log"), &query)?;
        if let Some(found) = part["attempt"].as_u64() {
            shown_attempt = u32::try_from(found).ok();
        }
        offset = part["next_offset"].as_u64().unwrap_or(offset);
        if part["text"].as_str().is_some_and(|text| !text.is_empty()) {
            say_part(&part, form);
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
    let form = Form::asked();
    if args.follow {
        return follow(&client, args.workload, args.attempt, form);
    }
    let (mut offset, mut whole) = (0, String::new());
    loop {
        let mut query = vec![("offset", u64::to_string(&offset))];
        query.extend(args.attempt.map(|attempt| ("attempt", attempt.to_string())));
        let mut part = client.get(&format!("/v1/workloads/{}/log", args.workload), &query)?;
        let text = part["text"].as_str().unwrap_or_default();
        match (text.is_empty(), form) {
            (true, Form::Words) => return Ok(()),
            (true, Form::Json) => {
                part["text"] = json!(whole);
                part["offset"] = json!(0);
                say(&format!("{part:#}\n"));
                return Ok(());
            }
            (false, Form::Words) => say(text),
            (false, Form::Json) => whole += text,
        }
        offset = part["next_offset"].as_u64().unwrap_or(offset);
    }
}

/// The exit code of a workload that has ended: its command's own, 128 and the number of the signal that ended it,
/// and 1 for every other end that is no completion.
fn exit_code(work: &Value) -> u8 {
    let end = &work["end"];
    let code = |key: &str| end[key].as_i64().and_then(|code| u8::try_from(code).ok());
    match work["ending"].as_str() {
        Some("completed") => 0,
        Some("failed") => match (code("signal"), code("exit_code")) {
            (Some(signal), _) => signal.saturating_add(128),
            (None, Some(code)) => code.max(1),
            (None, None) => 1,
        },
        _ => 1,
    }
}

/// Ends as a workload ended.
pub(crate) fn ended_as(client: &Client, number: u64) -> Result<(), Failure> {
    let work = client.get(&format!("/v1/workloads/{number}"), &[])?;
    match (exit_code(&work), work["ending"].is_string()) {
        (0, _) => Ok(()),
        (code, true) => {
            let message = format!("workload {number}: {}", words(&work["end"]["text"]));
            Err(Failure::Ended { message, exit_code: code })
        }
        (_, false) => Err(Failure::Fault(format!("workload {number} has not ended"))),
    }
}

pub(crate) fn wait(args: &WaitArgs) -> Result<(), Failure> {
    let client = Client::new(&args.server)?;
    loop {
        let work = client.get(&format!("/v1/workloads/{}", args.workload), &[])?;
        if work["state"] == "ended" {
            print(&args.server, &work, |_| String::new());
            return ended_as(&client, args.workload);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Tells whoever stops following that what they follow goes on.
pub(crate) fn tell_on_interrupt(number: u64) {
    let told = ctrlc::set_handler(move || {
        note(&format!(
            "workload {number} runs on; follow it with `bursar logs {number} -f`, end it with `bursar cancel {number}`"
        ));
        std::process::exit(130);
    });
    // Without it Ctrl-C does what it always did.
    drop(told);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_the_commands_own() {
        let of = |ending: &str, end: Value| exit_code(&json!({ "ending": ending, "end": end }));
        assert_eq!(of("completed", json!({ "exit_code": 0 })), 0);
        assert_eq!(of("failed", json!({ "exit_code": 3 })), 3);
        assert_eq!(of("failed", json!({ "signal": 15 })), 143);
        assert_eq!(of("failed", json!({ "exit_code": 0 })), 1, "stopped at its max_runtime");
        assert_eq!(of("failed", json!({})), 1, "it could not be started");
        assert_eq!(of("cancelled", json!({ "exit_code": 0 })), 1);
        assert_eq!(of("unreachable", json!({})), 1);
    }
}
