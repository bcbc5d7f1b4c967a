//! Prints a site's journal as JSON lines: `cargo run -p bursar-server --example journal_text DATA > demo.jsonl`.
//!
//! Hashes of tokens, commands, folders and environments are left out, so that a run can be kept as a test:
//! `crates/site/tests/recorded/demo.jsonl` is one of `bursar up --demo --data DATA`, during which people also
//! changed budgets (one change at a later moment), submitted an array, cancelled and requeued.

use bursar_server::{JournalError, history};
use bursar_site::Body;
use bursar_store::Reader;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = std::env::args_os().nth(1).map(PathBuf::from).ok_or("which data folder?")?;
    let reader = Reader::beside(&data)?;
    history::records(&reader, &mut |mut record| {
        match &mut record.body {
            Body::TokenIssued(token) => token.secret_sha256 = "0".repeat(64),
            Body::Submitted(submitted) => {
                let declared = &mut submitted.declared;
                declared.command = vec!["command".into()];
                declared.workdir = None;
                declared.env.clear();
            }
            _ => {}
        }
        let line = serde_json::to_string(&record).map_err(|e| JournalError(e.to_string()))?;
        println!("{line}");
        Ok(())
    })?;
    Ok(())
}
