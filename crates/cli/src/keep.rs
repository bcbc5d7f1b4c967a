//! What keeps a site's journal: `bursar backup`, `restore`, `check`.

use crate::args::{BackupArgs, CheckArgs, RestoreArgs};
use crate::failure::Failure;
use crate::shown::say;
use crate::up::data_folder;
use bursar_store::{Head, Reader, StoreError, StoreErrorKind};
use serde_json::json;
use std::path::Path;

/// What a store says: input if the folder or file is not what it should be, else a fault.
pub(crate) fn failed(error: StoreError) -> Failure {
    match error.kind() {
        StoreErrorKind::Missing => Failure::input(format!(
            "{error}; if a site is elsewhere, name its folder with --data (as `bursar up --data` was told)"
        )),
        StoreErrorKind::Full { .. }
        | StoreErrorKind::Busy { .. }
        | StoreErrorKind::Io { .. }
        | StoreErrorKind::Sqlite { .. }
        | StoreErrorKind::Poisoned { .. } => Failure::fault(error),
        _ => Failure::input(error),
    }
}

pub(crate) fn backup(args: &BackupArgs) -> Result<(), Failure> {
    let data = data_folder(args.data.data.as_ref())?;
    let head = Reader::beside(&data).and_then(|reader| reader.backup(&args.to)).map_err(failed)?;
    tell(args.json, &args.to, &head, |to, records| {
        format!("{to}: {records} records of {}\n", data.display())
    });
    Ok(())
}

/// A file that is not there is a slip of whoever named it, not a fault of the disk.
fn must_be_there(file: &Path) -> Result<(), Failure> {
    let found = file.metadata().map(drop);
    found.map_err(|error| Failure::input(format!("{}: {error}", file.display())))
}

pub(crate) fn restore(args: &RestoreArgs) -> Result<(), Failure> {
    must_be_there(&args.from)?;
    let head = bursar_store::restore(&args.from, &args.data).map_err(failed)?;
    tell(args.json, &args.data, &head, |data, records| {
        format!("{data}: {records} records; bring it up with: bursar up --data {data}\n")
    });
    Ok(())
}

fn tell(json: bool, made: &Path, head: &Head, text: impl FnOnce(&str, u64) -> String) {
    let made = made.display().to_string();
    if json {
        let chain = head.chain.to_string();
        let answer = json!({ "made": made, "records": head.seq, "chain": chain });
        say(&format!("{answer:#}\n"));
    } else {
        say(&text(&made, head.seq));
    }
}

pub(crate) fn check(args: &CheckArgs) -> Result<(), Failure> {
    let (reader, what) = match &args.backup {
        Some(file) => {
            must_be_there(file)?;
            (Reader::of_backup(file), file.clone())
        }
        None => {
            let data = data_folder(args.data.data.as_ref())?;
            (Reader::beside(&data), data)
        }
    };
    let reader = reader.map_err(failed)?;
    let found = reader.verify(&mut |_| ()).map_err(failed)?;
    let site = bursar_server::history::fold(&reader)
        .map_err(|error| Failure::input(format!("{}: {error}", what.display())))?;
    if args.json {
        let answer = json!({
            "records": found.head.seq, "chain": found.head.chain.to_string(), "bytes": found.bytes,
            "snapshots": found.snapshots, "snapshots_damaged": found.snapshots_damaged,
            "site": site.created.name, "workloads": site.works().count(),
        });
        say(&format!("{answer:#}\n"));
        return Ok(());
    }
    say(&format!(
        "{}: whole: {} records, {} workloads, every decision decided again\n",
        what.display(),
        found.head.seq,
        site.works().count()
    ));
    if found.snapshots_damaged > 0 {
        say(&format!(
            "{} of {} snapshots are damaged, which costs a longer start only; look at the disk\n",
            found.snapshots_damaged,
            found.snapshots + found.snapshots_damaged
        ));
    }
    Ok(())
}
