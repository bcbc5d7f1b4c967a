//! The suite that every engine must pass, on a real Slurm.
//!
//! Two of its checks are about what Slurm does by itself, and are left out:
//!
//! - `a_dead_supervisor_leaves_nothing`: what supervises work there is Slurm's own slurmd and slurmstepd. Nobody kills
//!   what a slurmstepd left that was killed itself, unless the site has control groups; nodes.rs has what we owe: work
//!   on a node that is lost is lost, and goes back into the queue if it can be resumed.
//! - `logs_are_rotated_and_read_on`: Slurm writes one file for each job, where its user says. It is not ours to cut.

use crate::subject::Slurm;
use bursar_engine::testkit::conformance;
use bursar_slurm_lab::skipped;

macro_rules! checks {
    ($($check:ident,)*) => {
        $(
            #[test]
            fn $check() {
                if !skipped() {
                    conformance::$check(&mut Slurm::new());
                }
            }
        )*
    };
}

checks! {
    an_attempt_starts_once,
    exit_codes_are_seen,
    signals_that_end_work_are_seen,
    stop_ends_all_processes,
    orders_for_nobody_do_nothing,
    the_checkpoint_signal_arrives,
    an_early_checkpoint_signal_is_not_lost,
    the_warning_arrives_where_it_is_expected,
    the_warning_harms_nobody,
    a_restart_finds_running_work,
    an_end_without_witness_is_known,
    a_claim_without_a_start_fails,
    what_is_forgotten_stays_claimed,
    a_missing_program_fails_to_start,
    a_missing_workdir_fails_to_start,
    bad_orders_claim_nothing,
    hosts_can_be_cordoned,
    many_attempts_do_not_mix,
}
