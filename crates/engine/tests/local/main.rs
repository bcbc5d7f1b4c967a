//! The local engine with real processes: it passes the conformance suite, with control groups where there
//! are any and without, and keeps its promises when it is killed.

#![cfg(target_os = "linux")]

mod behaviour;
mod daemon;
mod kills;
mod limits;
mod subject;

mod with_cgroups {
    use crate::subject::Local;
    bursar_engine::conformance_tests!(Local::new());
}

mod without_cgroups {
    use crate::subject::Local;
    use bursar_engine::CgroupChoice;
    bursar_engine::conformance_tests!(Local::with(|options| options.cgroup = CgroupChoice::Off));
}
