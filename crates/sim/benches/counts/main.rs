//! Speed as instruction counts: what the simulator and its policies take, and the limits that CI holds.
//!
//! Times differ from machine to machine and from minute to minute. How many instructions a deterministic
//! run takes does not: this program starts itself once per case under `valgrind --tool=callgrind`, counts
//! what happens inside [`count_inside`] and nothing of the set-up, and compares with `limits.txt` beside
//! it. `scripts/counts.sh` builds and runs it the way that the limits were recorded:
//!
//! ```text
//! scripts/counts.sh              compares with the limits; fails if one is exceeded
//! scripts/counts.sh --record     writes what was counted into limits.txt
//! scripts/counts.sh lab queue    looks only at rows whose name contains one of these
//! ```
//!
//! Invariant: nothing that is counted reads a clock, draws from the system or hashes at random.

mod cases;
mod queue;
mod table;

use bursar_core::compare::NAMES;
use std::collections::BTreeMap;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::thread;
use table::{Limit, Row, Table, Verdict};

/// Runs `work` where instructions are counted. Callgrind finds this function by its name.
#[inline(never)]
fn count_inside(work: &mut dyn FnMut()) {
    work();
}

/// What one case took.
#[derive(Clone, Copy, Debug)]
struct Count {
    instructions: u64,
    units: u64,
}

fn main() -> ExitCode {
    // Cargo itself adds `--bench`.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["--case", name] => cases::play(name).map(|units| println!("units {units}")),
        ["--record"] => gate(&[]).and_then(|(table, values)| table.record(&values)),
        _ if args.iter().any(|arg| arg.starts_with('-')) => Err(format!("unknown: {args:?}")),
        _ => gate(&args).and_then(|(table, values)| judge(&table, &values)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// The table, and for each row that was asked for what it comes to.
type Counted = (Table, BTreeMap<String, f64>);

/// Counts all cases that rows with one of these words in their name need.
fn gate(words: &[&str]) -> Result<Counted, String> {
    let table = Table::load()?;
    let has = |name: &str| table.rows().any(|row| row.name == name);
    if let Some(policy) = NAMES.iter().find(|policy| !has(&format!("jobs-{policy}"))) {
        return Err(format!("limits.txt has no row jobs-{policy}"));
    }
    let wanted = |row: &&Row| words.is_empty() || words.iter().any(|word| row.name.contains(word));
    let rows: Vec<&Row> = table.rows().filter(wanted).collect();
    let mut names: Vec<&str> = rows.iter().flat_map(|row| row.cases()).collect();
    names.sort_unstable();
    names.dedup();
    let counts = count_all(&names)?;
    let per_unit = |case: &str| counts[case].instructions as f64 / counts[case].units as f64;
    let values = rows.iter().map(|row| (row.name.clone(), row.value(per_unit))).collect();
    Ok((table, values))
}

/// Counts these cases, as many at a time as there are cores.
fn count_all(names: &[&str]) -> Result<BTreeMap<String, Count>, String> {
    let waiting = Mutex::new(names.to_vec());
    let done = Mutex::new(Ok(BTreeMap::new()));
    let worker = || {
        loop {
            let next = waiting.lock().expect("no worker panics").pop();
            let Some(name) = next else { return };
            let count = count_one(name);
            let mut done = done.lock().expect("no worker panics");
            match (count, &mut *done) {
                (Ok(count), Ok(counts)) => drop(counts.insert(name.to_owned(), count)),
                (Err(message), Ok(_)) => *done = Err(message),
                (_, Err(_)) => {}
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(worker);
        }
    });
    done.into_inner().expect("no worker panics")
}

/// Counts one case in a process of its own.
fn count_one(name: &str) -> Result<Count, String> {
    let own = std::env::current_exe().map_err(|error| format!("where am I: {error}"))?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*count_inside*"])
        .args(["--callgrind-out-file=/dev/null", "--"])
        .arg(own)
        .args(["--case", name])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            format!("valgrind cannot be run: {error}; scripts/setup.sh installs it")
        })?;
    let (said, told) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    // `==123== Collected : 4567`
    let after = |text: &str, word: &str| -> Option<u64> {
        let line = text.lines().find(|line| line.contains(word))?;
        line.split(word).nth(1)?.trim_start_matches([' ', ':']).trim().parse().ok()
    };
    match (output.status.success(), after(&told, "Collected"), after(&said, "units")) {
        (true, Some(instructions), Some(units)) if instructions > 0 && units > 0 => {
            Ok(Count { instructions, units })
        }
        _ => Err(format!("case {name} could not be counted:\n{said}{told}")),
    }
}

/// Prints one line per row; an error if a limit is exceeded.
fn judge(table: &Table, values: &BTreeMap<String, f64>) -> Result<(), String> {
    let mut exceeded = 0;
    println!("{:<18} {:>9} {:>9} {:>7}  per", "instructions", "recorded", "now", "change");
    for row in table.rows() {
        let Some(&now) = values.get(&row.name) else { continue };
        let change = (now / row.recorded - 1.0) * 100.0;
        let word = match row.verdict(now) {
            Verdict::Kept => String::new(),
            Verdict::Exceeded => {
                exceeded += 1;
                match row.limit {
                    Limit::Percent(percent) => format!("  EXCEEDED: at most {percent} % more"),
                    Limit::AtMost(limit) => format!("  EXCEEDED: at most {limit}"),
                }
            }
            Verdict::MuchLess => "  much less: tighten by scripts/counts.sh --record".to_owned(),
        };
        let (recorded, now) = (row.shown(row.recorded), row.shown(now));
        println!("{:<18} {recorded:>9} {now:>9} {change:>+6.1}%  {}{word}", row.name, row.unit);
    }
    if exceeded == 0 {
        return Ok(());
    }
    Err(format!(
        "{exceeded} limits exceeded. If that is worth it, say why in the commit and in docs/benchmarks.md, \
         and record anew: scripts/counts.sh --record"
    ))
}
