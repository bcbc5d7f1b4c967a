//! Reads the real histories in shared/data, where they are at hand, and compares with what its README says.

use std::path::PathBuf;

use bursar_trace::{Format, JobStatus, ReadOptions, Trace, Unit, describe, read_path};

fn data(file: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let path = folder.join(file);
    if !path.exists() {
        println!("skipped: {} is not here", path.display());
        return None;
    }
    Some(path)
}

fn trace(file: &str, options: &ReadOptions) -> Option<Trace> {
    data(file).map(|path| read_path(path, options).unwrap_or_else(|error| panic!("{error}")))
}

fn in_unit(unit: Unit) -> ReadOptions {
    ReadOptions { unit, ..ReadOptions::default() }
}

#[test]
fn philly() {
    let Some(trace) = trace("philly/jobs.csv", &ReadOptions::default()) else { return };
    assert_eq!((trace.format, trace.jobs.len()), (Format::Philly, 48_930));
    assert!(trace.jobs.windows(2).all(|w| (w[0].submit_ms, w[0].row) < (w[1].submit_ms, w[1].row)));
    let of_vc = |vc: &str| trace.jobs.iter().filter(|job| job.group.as_deref() == Some(vc)).count();
    assert_eq!((of_vc("11cb48"), of_vc("7f04ca")), (14_073, 1_098));
    assert_eq!(describe(&trace).groups, 10);
}

#[test]
fn helios() {
    let Some(all) = trace("helios/venus_gpu_jobs_full_noVC.csv", &ReadOptions::default()) else {
        return;
    };
    assert_eq!((all.format, all.jobs.len()), (Format::Helios, 125_303));
    assert_eq!(all.jobs.iter().map(|job| job.runtime_ms).max(), Some(48 * 3_600_000));
    let Some(two) = trace("helios/venus_2vc_sept_user_vc.csv", &ReadOptions::default()) else {
        return;
    };
    assert_eq!((two.format, two.jobs.len()), (Format::Helios, 1_867));
    // Microseconds from the start of a window of 26 days.
    let last_ms = two.jobs.iter().map(|job| job.submit_ms).max();
    assert_eq!(last_ms, Some(2_222_263_000));
    assert_eq!((describe(&two).users, describe(&two).groups), (12, 2));
}

#[test]
fn sacct() {
    let Some(cpus) = trace("sacct/phillips.log", &in_unit(Unit::Cpus)) else { return };
    assert_eq!(cpus.format, Format::Sacct);
    assert_eq!(cpus.jobs.len() as u64 + cpus.never_started, 4_285);
    let first = &cpus.jobs[0];
    assert_eq!((&*first.id, first.gpus, first.status), ("163485", 12, JobStatus::Cancelled));
    assert_eq!(first.runtime_ms, ((10 * 24 + 13) * 3_600 + 27 * 60 + 6) * 1_000);
    let gpus = trace("sacct/phillips.log", &ReadOptions::default()).unwrap();
    assert_eq!((gpus.jobs.len(), gpus.jobs[0].gpus, gpus.without_gpus), (2, 2, 4_283));
    let nodes = trace("sacct/pozidriv.log.gz", &in_unit(Unit::Nodes)).unwrap();
    assert_eq!(nodes.jobs.len() as u64 + nodes.never_started, 11_704);
    let error = read_path(data("sacct/pozidriv.log.gz").unwrap(), &ReadOptions::default());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("has no job: its rows are 11704 without a GPU"), "{error}");
}

#[test]
fn swf() {
    let Some(ricc) = trace("swf/RICC-2010-2.swf.gz", &ReadOptions::default()) else { return };
    assert_eq!(
        (ricc.format, ricc.origin.map(|origin| origin.as_second())),
        (Format::Swf, Some(1_272_639_895))
    );
    assert_eq!(ricc.jobs.len() as u64 + ricc.never_started, 447_794);
    let description = describe(&ricc);
    assert_eq!((description.users, description.groups), (176, 121));
    let Some(nasa) = trace("swf/NASA-iPSC-1993-3.1-cln.swf", &ReadOptions::default()) else {
        return;
    };
    assert_eq!(nasa.jobs.len() as u64 + nasa.never_started, 18_239);
    assert!(nasa.jobs.iter().all(|job| job.gpus <= 128));
}

#[test]
fn what_is_no_history_is_said_to_be_none() {
    for file in [
        "philly/published.csv",
        "philly/schedule.csv.gz",
        "helios/Venus_cluster_gpu_number.csv",
        "helios/vc_config.csv",
        "sacct/hierarchy.csv",
        "sacct/group-to-hierarchy.csv",
        "README.md",
    ] {
        let Some(path) = data(file) else { continue };
        let error = read_path(path, &ReadOptions::default()).unwrap_err().to_string();
        assert!(error.contains("is of no known format; looked for csv ("), "{error}");
    }
}
