//! `bursar slurm check`: what a cluster lacks to be governed, and the lines that help.

use crate::config::Config;
use crate::failure::Failure;
use crate::shown::{one_line, say, say_raw};
use crate::up::{data_folder, read_budgets};
use bursar_server::arrivals::AccountBudgets;
use bursar_server::slurm::SlurmMode;
use bursar_site::Budgets;
use bursar_slurm::check::{Facts, Finding, Remedy, Verdict, Wanted, findings};
use bursar_slurm::read::Association;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, stdout};
use std::path::Path;

pub(super) fn check(file: &Path, json: bool) -> Result<(), Failure> {
    let name = file.display().to_string();
    let (config, slurm) = super::configured(file)?;
    let budgets = first_budgets(&config)?;
    let wanted = Wanted {
        partitions: slurm.options.partitions.clone(),
        gate: slurm.gate.clone(),
        watches: slurm.mode == SlurmMode::Watch,
        file: name.clone(),
        run_by: slurm.clients.through.clone(),
        has_token: std::env::var_os("SLURM_JWT").is_some_and(|token| !token.is_empty()),
    };
    let facts = Facts::gather(&slurm.clients, &wanted);
    crate::interrupt::check()?;
    let mut found = findings(&facts, &wanted);
    if let Ok(associations) = &facts.associations {
        found.push(accounts(associations, budgets.as_ref(), &slurm.accounts, &name));
    }
    let count = |verdict| found.iter().filter(|one| one.verdict == verdict).count();
    let (missing, advice) = (count(Verdict::Missing), count(Verdict::Advice));
    if json {
        let answer = json!({
            "file": name, "partitions": wanted.partitions, "missing": missing, "advice": advice,
            "findings": found,
        });
        say(&format!("{answer:#}\n"));
    } else {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colours = if stdout().is_terminal() && !plain { Colours::Shown } else { Colours::None };
        say_raw(&text(&found, colours));
        let end = match (missing, advice) {
            (0, 0) => "All is as it should be. Next: bursar up --config FILE".to_owned(),
            (0, _) => format!(
                "Nothing is missing; {} would do good. Next: bursar up --config FILE",
                counted(advice, "advised change", "advised changes")
            ),
            _ => {
                format!("{} missing, {advice} advised", counted(missing, "thing is", "things are"))
            }
        };
        say(&format!("\n{}\n", end.replace("FILE", &name)));
        let in_slurm_conf = |one: &Finding| matches!(&one.remedy, Some(Remedy::Line { file, .. }) if file == "slurm.conf");
        if found.iter().any(in_slurm_conf) {
            say(
                "slurm.conf is read again by scontrol reconfigure; plugins and AccountingStorageTRES only when slurmctld starts.\n",
            );
        }
    }
    if missing > 0 { Err(Failure::Missing(missing)) } else { Ok(()) }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// The tree that a new site would begin with; none if the site is there, whose own budgets count.
fn first_budgets(config: &Config) -> Result<Option<Budgets>, Failure> {
    let owner = config.owner.as_deref().unwrap_or("root");
    let tree = config.budgets.as_deref().map(|file| read_budgets(file, owner)).transpose()?;
    let data = data_folder(config.data.as_ref())?;
    if bursar_store::Reader::beside(&data).is_ok() {
        return Ok(None);
    }
    // What a site without a file of budgets begins with has no account's name.
    let tree = tree.unwrap_or_default();
    let budgets = Budgets::new(1, tree, vec![owner.to_owned()]);
    Ok(Some(budgets.unwrap_or_default()))
}

/// Whether each account that has users has a budget.
fn accounts(
    associations: &[Association],
    budgets: Option<&Budgets>,
    names: &AccountBudgets,
    file: &str,
) -> Finding {
    const ABOUT: &str = "accounts";
    const WHY: &str = "a job whose account is no budget is not taken in: it stays on hold";
    let Some(budgets) = budgets else {
        return Finding::good(
            ABOUT,
            "the site is there, so its own budgets count: bursar budget show",
        );
    };
    let is_root = |one: &&Association| one.user.is_none() && one.parent.is_none();
    let root = associations.iter().find(is_root).map(|one| one.account.as_str());
    let (mut without, mut known) = (BTreeMap::new(), BTreeSet::new());
    for one in associations.iter().filter(|one| Some(one.account.as_str()) != root) {
        let Some(user) = &one.user else { continue };
        match names.budget(budgets, &one.account, user) {
            Ok(path) if budgets.get(&path).is_some_and(|budget| budget.children.is_empty()) => {
                known.insert(&*one.account);
            }
            Ok(path) if budgets.get(&path).is_some() => {
                without.insert(
                    &*one.account,
                    format!("{path} is divided, and work belongs to leaves"),
                );
            }
            Ok(path) => {
                without.insert(&*one.account, format!("there is no budget {path}"));
            }
            Err(_) => {
                without.insert(&*one.account, "no budget has its name".to_owned());
            }
        }
    }
    if without.is_empty() {
        return Finding::good(ABOUT, format!("{} have users, and each has a budget", known.len()));
    }
    let some: Vec<String> =
        without.iter().take(5).map(|(account, why)| format!("{account} ({why})")).collect();
    let more = without.len().saturating_sub(5);
    let more = if more == 0 { String::new() } else { format!(" and {more} others") };
    let said = format!("without a budget: {}{more}", some.join(", "));
    let first = without.keys().next().copied().unwrap_or_default();
    if known.is_empty() {
        Finding::missing(ABOUT, said, WHY).command(
            "bursar slurm init --partition … --out FOLDER  (makes budgets of all accounts)",
        )
    } else {
        Finding::advice(ABOUT, said, WHY).line(file, format!("accounts: {{'{first}': BUDGET}}"))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Colours {
    Shown,
    None,
}

/// The most letters of a line of explanation.
const WIDTH: usize = 100;

/// Findings as a person reads them: one line for each, and below what is not good, what would help and why.
fn text(found: &[Finding], colours: Colours) -> String {
    let widest = found.iter().map(|one| one.about.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for one in found {
        let (word, colour) = match one.verdict {
            Verdict::Good => ("good", "32"),
            Verdict::Advice => ("advice", "33"),
            Verdict::Missing => ("MISSING", "1;31"),
        };
        let word = match colours {
            Colours::Shown => format!("\x1b[{colour}m{word:<8}\x1b[0m"),
            Colours::None => format!("{word:<8}"),
        };
        let about = one_line(&one.about);
        let indent = 11;
        let mut rows = wrapped(&one.found, WIDTH.saturating_sub(indent + widest)).into_iter();
        let first = rows.next().unwrap_or_default();
        text += &format!("{word} {about:<widest$}  {first}\n");
        for row in rows {
            text += &format!("{:indent$}{:<widest$}{row}\n", "", "");
        }
        match &one.remedy {
            Some(Remedy::Line { file, line }) => {
                text += &format!("{:9}{}:  {}\n", "", one_line(file), one_line(line));
            }
            Some(Remedy::Command { command }) => {
                text += &format!("{:9}run:  {}\n", "", one_line(command));
            }
            None => {}
        }
        for row in wrapped(&one.why, WIDTH - 9) {
            text += &format!("{:9}{row}\n", "");
        }
    }
    text
}

/// A sentence in lines of so many letters at most, as far as its words allow.
fn wrapped(sentence: &str, width: usize) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for word in one_line(sentence).split_whitespace() {
        match rows.last_mut() {
            Some(row) if row.chars().count() + 1 + word.chars().count() <= width => {
                *row = format!("{row} {word}");
            }
            Some(_) | None => rows.push(word.to_owned()),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use bursar_slurm::read::read_associations;

    #[test]
    fn a_finding_is_a_few_lines() {
        let found = [
            Finding::good("clients", "22.05.8"),
            Finding::advice("MinJobAge", "300 s\u{1b}[2J", "a ".repeat(60))
                .line("slurm.conf", "MinJobAge=3600"),
        ];
        let text = text(&found, Colours::None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "good     clients    22.05.8");
        assert_eq!(lines[1], "advice   MinJobAge  300 s\\u{1b}[2J");
        assert_eq!(lines[2], "         slurm.conf:  MinJobAge=3600");
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH));
    }

    #[test]
    fn accounts_without_a_budget_are_named() {
        let read = read_associations(
            b"root|||1|\nroot||root|1|\na|root||1|\na||ann|1|\nb|root||1|\nb||bo|1|\n",
        );
        let tree =
            bursar_site::yaml::read("a: {share: 1}\nlab: {share: 1, children: {c: {share: 1}}}")
                .unwrap();
        let budgets = Budgets::new(1, tree, Vec::new()).unwrap();
        let of = |names: &[(&str, &str)]| {
            let named = |(one, other): &(&str, &str)| ((*one).to_owned(), (*other).to_owned());
            let names = AccountBudgets(names.iter().map(named).collect());
            accounts(read.as_ref().unwrap(), Some(&budgets), &names, "bursar.yaml")
        };
        let found = of(&[]);
        assert_eq!(
            (found.verdict, &*found.found),
            (Verdict::Advice, "without a budget: b (no budget has its name)")
        );
        assert!(of(&[("b", "lab")]).found.contains("lab is divided"));
        assert!(of(&[("b", "lab/x")]).found.contains("there is no budget lab/x"));
        assert_eq!(of(&[("b", "lab/c")]).verdict, Verdict::Good);
        let none = accounts(
            read.as_ref().unwrap(),
            Some(&Budgets::default()),
            &AccountBudgets::default(),
            "f",
        );
        assert_eq!(none.verdict, Verdict::Missing);
    }
}
