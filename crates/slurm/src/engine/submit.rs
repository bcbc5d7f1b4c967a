//! Work that did not come through Slurm's queue: it is submitted as a script of ours.

use super::SlurmEngine;
use crate::client::{Call, Program, one_line};
use crate::options::SubmitOptions;
use crate::records::Record;
use bursar_engine::{Error, ErrorKind, StartOrder};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

impl SlurmEngine {
    pub(super) fn check_submission(&self, order: &StartOrder) -> Result<(), Error> {
        let invalid =
            |why: &str| Err(Error::new(ErrorKind::Invalid, format!("{}: {why}", order.key)));
        if self.options.submit.is_none() {
            return invalid("only work that came through Slurm's queue is started here");
        }
        if order.placement.is_empty() {
            return invalid("it is to run nowhere");
        }
        let name =
            |name: &String| name.bytes().all(|one| one.is_ascii_alphanumeric() || one == b'_');
        if !order.env.keys().all(name) {
            return invalid("a variable has a name that a shell does not take");
        }
        let user = |name: &str| {
            name.bytes().all(|one| one.is_ascii_alphanumeric() || b"_.-".contains(&one))
        };
        if order.user.as_deref().is_some_and(|name| name.starts_with('-') || !user(name)) {
            return invalid("its user has an odd name");
        }
        Ok(())
    }

    pub(super) fn log_of_submission(&self, order: &StartOrder) -> Option<PathBuf> {
        let submit = self.options.submit.as_ref().filter(|_| order.adopts.is_none())?;
        Some(submit.log_dir.join(format!("{}.log", order.key)))
    }

    /// Gives it to Slurm, on hold. `record.name` is the word by which it is found.
    pub(super) fn submit(&self, order: &StartOrder, record: &Record) -> Result<(), String> {
        let Some((submit, log)) = self.options.submit.as_ref().zip(record.log.as_ref()) else {
            return Err("nothing can be submitted here".to_owned());
        };
        let through = order.user.as_ref().map(|user| {
            submit.through.iter().map(|word| word.replace("{user}", user)).collect::<Vec<_>>()
        });
        let call = Call {
            input: script(order, &refusals(log)).into_bytes(),
            through,
            ..Call::new(Program::Sbatch, arguments(order, record, submit, log))
        };
        self.run(&call).map(drop).map_err(|error| error.said())
    }

    /// Why the script of an attempt did not run its command, if it wrote that down.
    pub(super) fn refused_by_script(&self, record: &Record) -> Option<String> {
        let path = refusals(record.log.as_ref().filter(|_| !record.adopts)?);
        let text = std::fs::read(path).ok()?;
        Some(one_line(&String::from_utf8_lossy(&text[..text.len().min(1000)])))
    }
}

/// Where the script writes why it does not run its command.
fn refusals(log: &Path) -> PathBuf {
    log.with_extension("refused")
}

fn arguments(
    order: &StartOrder,
    record: &Record,
    submit: &SubmitOptions,
    log: &Path,
) -> Vec<String> {
    let hosts: Vec<&str> = order.placement.iter().map(|part| &*part.host).collect();
    let each: Vec<usize> = order.placement.iter().map(|part| part.gpus.len()).collect();
    let total: usize = each.iter().sum();
    let mut args = vec![
        "--parsable".to_owned(),
        "--hold".to_owned(),
        "--no-requeue".to_owned(),
        "--export=NONE".to_owned(),
        "--open-mode=append".to_owned(),
        "--chdir=/".to_owned(),
        "--time=UNLIMITED".to_owned(),
        format!("--partition={}", submit.partition),
        format!("--job-name=bursar-{}", order.key),
        format!("--comment=bursar-order={}", record.name),
        format!("--output={}", log.display().to_string().replace('%', "%%")),
        format!("--nodes={0}-{0}", hosts.len()),
        format!("--ntasks={}", hosts.len()),
        "--ntasks-per-node=1".to_owned(),
        format!("--nodelist={}", hosts.join(",")),
    ];
    if total > 0 {
        let even = each.iter().all(|one| *one == each[0]);
        args.push(if even { format!("--gres=gpu:{}", each[0]) } else { format!("--gpus={total}") });
    }
    if let Some(cpus) = order.cpus {
        args.push(format!("--cpus-per-task={cpus}"));
    }
    if let Some(bytes) = order.memory_bytes {
        args.push(format!("--mem={}K", bytes.div_ceil(1024)));
    }
    args
}

/// The script: it prepares what the order says and becomes the command, so that signals reach that.
fn script(order: &StartOrder, refusals: &Path) -> String {
    let host = order.placement.first().map_or("", |part| &*part.host);
    let mut env = order.environment(host, None);
    // Slurm chooses the GPUs, and says which.
    if order.placement.iter().any(|part| !part.gpus.is_empty()) {
        env.remove("CUDA_VISIBLE_DEVICES");
    }
    let mut text = "#!/bin/sh\nrefuse() { printf '%s\\n' \"$1\" >".to_owned();
    text.push_str(&quoted(&refusals.to_string_lossy()));
    text.push_str("; exit 127; }\n");
    for (name, value) in &env {
        let _ = writeln!(text, "export {name}={}", quoted(value));
    }
    let folder = order.workdir.as_deref().map(|folder| folder.to_string_lossy().into_owned());
    let go = folder
        .as_deref()
        .map_or("cd \"${HOME:-/}\"".to_owned(), |folder| format!("cd {}", quoted(folder)));
    let shown = folder.unwrap_or_else(|| "the home folder".to_owned());
    let _ = writeln!(
        text,
        "{go} 2>/dev/null || refuse {}",
        quoted(&format!("{shown} cannot be entered"))
    );
    let program = order.command.first().map_or("", |word| &**word);
    let missing = quoted(&format!("{program}: command not found"));
    if program.contains('/') {
        let _ = writeln!(text, "[ -x {} ] || refuse {missing}", quoted(program));
    } else {
        let _ =
            writeln!(text, "command -v -- {} >/dev/null 2>&1 || refuse {missing}", quoted(program));
    }
    let words: Vec<String> = order.command.iter().map(|word| quoted(word)).collect();
    let _ = writeln!(text, "exec {}", words.join(" "));
    text
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_command_as_they_are() {
        for word in ["", "a b", "it's", "$(x) `y` \\ \"", "two\nlines", "ä"] {
            let text = format!("printf %s {}", quoted(word));
            let output = std::process::Command::new("sh").args(["-c", &text]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), word);
        }
    }
}
