//! The supervisor of local attempts as a program of its own: `bursar-shim FOLDER`. `bursar` has it built
//! in; this one is for tests, and for those who run the local engine from a program of their own.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args_os().nth(1) {
        Some(folder) => bursar_engine::shim_main(Path::new(&folder)),
        None => {
            eprintln!("usage: bursar-shim FOLDER (of an attempt; started by the local engine)");
            ExitCode::from(2)
        }
    }
}
