//! The gate in slurmctld, its table, and the options of sbatch.

use super::{Facts, Finding, Seen, Wanted};
use crate::gate::{GATE_FILE, JOB_SUBMIT_LUA};
use crate::read::Config;
use std::path::Path;

/// Whether the gate is there, is ours and finds its table.
pub(super) fn gate(facts: &Facts, wanted: &Wanted, config: &Config, found: &mut Vec<Finding>) {
    let plugins = config.list("JobSubmitPlugins");
    if plugins.contains(&"lua") {
        found.push(Finding::good("JobSubmitPlugins", plugins.join(",")));
    } else {
        let line: Vec<&str> = plugins.iter().copied().chain(["lua"]).collect();
        let is = if plugins.is_empty() { "none".to_owned() } else { plugins.join(",") };
        found.push(
            Finding::missing(
                "JobSubmitPlugins",
                is,
                "the gate puts jobs on hold and reads what they declare",
            )
            .line("slurm.conf", format!("JobSubmitPlugins={}", line.join(","))),
        );
    }
    if let Some(seen) = &facts.script {
        found.push(script(seen));
    }
    written(facts, wanted, found);
    if let Some(seen) = &facts.table {
        found.push(table(seen, facts, wanted));
    }
}

fn script(seen: &Seen) -> Finding {
    const ABOUT: &str = "job_submit.lua";
    let path = seen.path.display();
    let write = format!("bursar slurm gate > {path}");
    match &seen.text {
        Ok(Some(text)) if text == JOB_SUBMIT_LUA => {
            Finding::good(ABOUT, format!("{path}, that of this version"))
        }
        Ok(Some(text)) if text.starts_with(first_words(JOB_SUBMIT_LUA)) => Finding::missing(
            ABOUT,
            format!("{path} is of another version, or was changed"),
            "gate and daemon understand each other only as they were tested together",
        )
        .command(write),
        Ok(Some(_)) => Finding::missing(
            ABOUT,
            format!("{path} is the site's own"),
            "jobs are put on hold by ours; what the site's own does has to be merged into it by hand",
        )
        .command(format!("bursar slurm gate > {path}.bursar")),
        Ok(None) => {
            Finding::missing(ABOUT, format!("{path} is not there"), "without it slurmctld refuses all jobs, or starts them itself")
                .command(write)
        }
        Err(why) => Finding::advice(
            ABOUT,
            format!("{path} cannot be looked at from here: {why}"),
            "slurmctld reads it beside its slurm.conf; see there that it is that of this version",
        )
        .command("bursar slurm gate | diff - /etc/slurm/job_submit.lua"),
    }
}

/// What any version of the gate begins with.
fn first_words(text: &str) -> &str {
    text.split(':').next().unwrap_or(text)
}

/// Whether the table will be written.
fn written(facts: &Facts, wanted: &Wanted, found: &mut Vec<Finding>) {
    const ABOUT: &str = "slurm.gate";
    match (&wanted.gate, &facts.writable) {
        (Some(folder), Some(Ok(()))) => {
            let beside = facts.script.as_ref().and_then(|script| script.path.parent());
            let elsewhere = beside.filter(|beside| beside.is_dir() && !is_same(beside, folder));
            found.push(match elsewhere {
                None => Finding::good(ABOUT, format!("{} can be written", folder.display())),
                Some(beside) => Finding::advice(
                    ABOUT,
                    format!("{} is not where slurm.conf is", folder.display()),
                    "the gate looks for its table beside job_submit.lua",
                )
                .line(&*wanted.file, format!("gate: {}", beside.display())),
            });
        }
        (Some(folder), Some(Err(why))) => found.push(Finding::missing(
            ABOUT,
            format!("{} cannot be written: {why}", folder.display()),
            format!("the daemon keeps {GATE_FILE} there; run it where slurmctld is, as somebody who may write there, or leave slurm.gate out and bring the file there yourself"),
        )),
        (Some(_), None) | (None, _) => {
            let folder = facts.script.as_ref().and_then(|script| script.path.parent());
            let folder = folder.map_or("/etc/slurm".to_owned(), |folder| folder.display().to_string());
            found.push(
                Finding::advice(
                    ABOUT,
                    "it is not set",
                    format!("somebody else has to write {GATE_FILE} and keep it as budgets and settings are"),
                )
                .line(&*wanted.file, format!("gate: {folder}")),
            );
        }
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    let whole = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    whole(one) == whole(other)
}

fn table(seen: &Seen, facts: &Facts, wanted: &Wanted) -> Finding {
    let about = GATE_FILE;
    let path = seen.path.display();
    let text = match &seen.text {
        Ok(Some(text)) => text,
        Ok(None) if wanted.gate.is_some() => {
            return Finding::good(
                about,
                "it is not there yet; bursar up writes it, and nothing is governed until then",
            );
        }
        Ok(None) => {
            return Finding::missing(
                about,
                format!("{path} is not there"),
                "without it the gate lets every job pass; set slurm.gate, or write it as docs/slurm.md says",
            );
        }
        Err(why) => {
            return Finding::advice(
                about,
                format!("{path} cannot be looked at from here: {why}"),
                "without it the gate lets every job pass",
            );
        }
    };
    if !text.starts_with("bursar-gate 1\n") || !text.ends_with("\nend\n") {
        // Without a table jobs would enter as if nobody governed: it is written anew, not removed.
        let damaged = Finding::missing(
            about,
            format!("{path} is damaged"),
            "the last good one stays in force; where there never was one, the gate refuses every submission",
        );
        return match wanted.gate {
            Some(_) => damaged.command(format!("bursar up --config {}", wanted.file)),
            None => damaged,
        };
    }
    let words = |key: &str| -> Vec<String> {
        let rest = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        rest.filter_map(|rest| rest.split_whitespace().next()).map(str::to_owned).collect()
    };
    // What we write ourselves is put right at the next start.
    let ours = wanted.gate.is_some();
    let wrong = |found: String, why: &str, line: String| match ours {
        true => Finding::good(about, format!("{found}; bursar up writes it anew")),
        false => Finding::missing(about, found, why).line(seen.path.display().to_string(), line),
    };
    let uids = words("uid");
    if let Ok((uid, name)) = &facts.caller
        && *uid != 0
        && !uids.contains(&uid.to_string())
    {
        return wrong(
            format!(
                "{path} names uid {}, and Slurm is called as {name} (uid {uid})",
                uids.join(", ")
            ),
            "the gate refuses what Bursar changes of jobs",
            format!("uid {uid}"),
        );
    }
    let governed = words("partition");
    if let Some(lacks) = wanted.partitions.iter().find(|name| !governed.contains(name)) {
        return wrong(
            format!("{path} does not govern partition {lacks}"),
            "jobs of it are not put on hold, and Slurm starts them itself",
            format!("partition {lacks} horizon=28800 min-runtime=3600 resumable=0"),
        );
    }
    Finding::good(about, format!("{path} governs {}", governed.join(", ")))
}

/// Whether sbatch has our options.
pub(super) fn options(facts: &Facts, config: &Config, found: &mut Vec<Finding>) {
    const ABOUT: &str = "options of sbatch";
    const WHY: &str = "sbatch --min-runtime, --resumable and --budget are its options; without them there are the comment and #BURSAR lines";
    const LINE: &str = "optional /usr/lib/slurm/spank_bursar.so";
    let default = config.get("PlugStackConfig").unwrap_or("plugstack.conf").to_owned();
    let is_named =
        |line: &str| !line.trim_start().starts_with('#') && line.contains("spank_bursar");
    found.push(match &facts.plugstack {
        Some(Seen { path, text: Ok(Some(text)) }) if text.lines().any(is_named) => {
            Finding::good(ABOUT, format!("{} names spank_bursar", path.display()))
        }
        Some(Seen { path, text: Ok(text) }) => {
            let is = if text.is_some() { "does not name spank_bursar" } else { "is not there" };
            Finding::advice(ABOUT, format!("{} {is}", path.display()), WHY).line(default, LINE)
        }
        Some(Seen { path, text: Err(why) }) => Finding::advice(
            ABOUT,
            format!("{} cannot be looked at from here: {why}", path.display()),
            WHY,
        )
        .line(default, LINE),
        None => Finding::advice(ABOUT, "Slurm names no plugstack.conf", WHY).line(default, LINE),
    });
}
