//! What a shell needs: the list of policies, completions, manual pages.

use crate::args::{Cli, CompletionsArgs, ManArgs, PoliciesArgs};
use crate::failure::Failure;
use crate::shown::{note, say, say_raw};
use clap::CommandFactory;
use std::collections::BTreeMap;

/// What a policy does, in one line.
fn about(policy: &str) -> &'static str {
    match policy {
        "budget" => "GPU-time budgets, contracts and promises; the default",
        "fifo" => "first come, first served; nobody passes the head of the queue",
        "backfill" => "first come, first served with EASY backfilling on declared max_runtime",
        "sjf" => "shortest job first, knowing every runtime; nobody passes the head of the queue",
        "levels" => "a cap of protected GPUs per team; all work above it may be preempted",
        "fair-tree" => "Slurm's Fair Tree on decayed usage, with backfilling (--half-life)",
        "yarn-fair" => "Hadoop YARN's Fair Scheduler with preemption (--yarn-...)",
        "recorded" => "nothing is decided: plays what really ran, where a scenario says so (ran)",
        _ => "",
    }
}

/// Lists the policies, the default first.
pub(crate) fn policies(args: &PoliciesArgs) -> Result<(), Failure> {
    let names: Vec<&str> = bursar_sim::policy_names().collect();
    if args.json {
        let list: Vec<BTreeMap<&str, &str>> = names
            .iter()
            .map(|name| BTreeMap::from([("name", *name), ("about", about(name))]))
            .collect();
        say(&(serde_json::to_string_pretty(&list).map_err(Failure::fault)? + "\n"));
    } else {
        names.iter().for_each(|name| say(&format!("{name:<11}{}\n", about(name))));
    }
    Ok(())
}

/// Prints a completion script.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "bursar", &mut script);
    say_raw(&String::from_utf8_lossy(&script));
    Ok(())
}

/// Writes a manual page per verb.
pub(crate) fn man(args: &ManArgs) -> Result<(), Failure> {
    let folder = &args.folder;
    let cannot = |error| Failure::Input(format!("cannot write {}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(cannot)?;
    clap_mangen::generate_to(Cli::command(), folder).map_err(cannot)?;
    name_sections(folder).map_err(cannot)?;
    note(&format!("wrote manual pages to {}", folder.display()));
    Ok(())
}

/// What comes after the options are examples and exit codes; the generator calls it "extra".
fn name_sections(folder: &std::path::Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("bursar") && name.ends_with(".1") {
            let text = std::fs::read_to_string(&path)?;
            std::fs::write(
                &path,
                text.replace("\n.SH EXTRA\n", "\n.SH \"EXAMPLES AND EXIT CODES\"\n"),
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_has_a_page_and_a_completion() {
        fn walk(command: &clap::Command, name: &str, each: &mut dyn FnMut(&str, &str)) {
            for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
                let name = format!("{name}-{}", verb.get_name());
                each(&name, verb.get_name());
                walk(verb, &name, each);
            }
        }
        let folder = tempfile::tempdir().expect("a folder");
        man(&ManArgs { folder: folder.path().to_owned() }).expect("written");
        let page = std::fs::read_to_string(folder.path().join("bursar-why.1")).expect("a page");
        assert!(page.contains("EXAMPLES AND EXIT CODES") && !page.contains("EXTRA"), "{page}");
        let mut script = Vec::new();
        clap_complete::generate(
            clap_complete::Shell::Zsh,
            &mut Cli::command(),
            "bursar",
            &mut script,
        );
        let script = String::from_utf8(script).expect("text");
        let mut verbs = 0;
        walk(&Cli::command(), "bursar", &mut |name, verb| {
            verbs += 1;
            assert!(folder.path().join(format!("{name}.1")).exists(), "{name} has no page");
            assert!(script.contains(&format!("\n'{verb}:")), "{name} has no completion");
        });
        assert!(verbs > 30, "{verbs} verbs");
    }

    #[test]
    fn every_policy_is_told_about() {
        for name in bursar_sim::policy_names() {
            assert!(!about(name).is_empty(), "{name}");
        }
    }
}
