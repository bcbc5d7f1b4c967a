//! Names what decides: a number over the sources of the core and of this crate. A snapshot is good only for the
//! very code that made it; any other folds the journal from its beginning, and so proves that it decides the same.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn main() {
    let mut paths = Vec::new();
    for folder in ["../core/src", "src"] {
        println!("cargo::rerun-if-changed={folder}");
        sources(Path::new(folder), &mut paths);
    }
    paths.sort();
    // FNV-1a: it tells versions apart; nobody is to be fooled who could not change the binary as well.
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    for path in paths {
        for byte in fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())) {
            sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    println!("cargo::rustc-env=BURSAR_DECIDES_AS={sum:016x}");
}
