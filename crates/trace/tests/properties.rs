//! Properties over generated input: no bytes make a reader panic, and what is written is read back.

use std::sync::Arc;

use bursar_trace::{
    Format, JobKind, JobStatus, ReadOptions, SPAN_MS_MAX, Trace, TraceJob, Unit, describe,
    parse_duration_ms, read, write_csv,
};
use proptest::prelude::*;

/// First lines that lead into each reader.
const HEADERS: [&str; 9] = [
    "id,submit,budget,gpus,runtime,user,min_runtime,resumable,rank,kind,start\n",
    "; UnixStartTime: 99999999999999999999\n; UnixStartTime: 5\n",
    "JobID|Submit|Start|End|Elapsed|State|Timelimit|AllocTRES|ReqTRES|JobName\n",
    "jobname,user,vc,gpu_num,state,submit_time,duration\n",
    "job_id,user,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue,vc\n",
    "job_id,arrival_s,service_sec,gpu_count\n",
    "job_id,user,type,gpu_num,state,submit_time,start_time,end_time,duration\n",
    "name,cpu_milli,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n",
    "[{\"jobid\": \"a\", \"submitted_time\": \"2017-01-01 00:00:00\", \"attempts\": [",
];

/// Pieces that are nearly right.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("COMPLETED".to_owned()),
        Just("Running".to_owned()),
        Just("gres/gpu:x=3,gres/gpu=4,cpu=1".to_owned()),
        Just("1-02:03:04".to_owned()),
        Just("9999-12-31T23:59:59".to_owned()),
        Just("-9999-01-01T00:00:00Z".to_owned()),
        Just("0001-01-01 00:00:00".to_owned()),
        Just("2017-01-01 00:00:00".to_owned()),
        Just("18446744073709551615".to_owned()),
        Just("3155760000".to_owned()),
        Just("-1".to_owned()),
        Just("NaN".to_owned()),
        Just("\"".to_owned()),
        Just("{\"start_time\": null}".to_owned()),
        "[0-9]{1,3}",
        "[0-9.]{0,24}[smhdw]?",
        "\\PC{0,6}",
    ]
}

fn rows(separator: &'static str) -> impl Strategy<Value = String> {
    let row = prop::collection::vec(piece(), 0..19).prop_map(move |row| row.join(separator));
    prop::collection::vec(row, 0..8).prop_map(|rows| rows.join("\n"))
}

fn read_all_ways(bytes: &[u8]) -> Vec<Trace> {
    let mut traces = Vec::new();
    for format in Format::ALL.into_iter().map(Some).chain([None]) {
        for (skip_bad, unit) in [(false, Unit::Gpus), (true, Unit::Gpus), (true, Unit::Cpus)] {
            let options = ReadOptions { format, skip_bad, unit, ..ReadOptions::default() };
            match read(bytes, "x", &options) {
                Ok(trace) => traces.push(trace),
                Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
            }
        }
    }
    traces
}

fn is_sound(trace: &Trace) {
    assert!(!trace.jobs.is_empty());
    for job in &trace.jobs {
        assert!(job.gpus >= 1 && job.runtime_ms <= SPAN_MS_MAX && !job.id.is_empty());
        assert!(job.start_ms.is_none_or(|start_ms| start_ms >= job.submit_ms));
    }
    assert!(trace.jobs.windows(2).all(|w| (w[0].submit_ms, w[0].row) < (w[1].submit_ms, w[1].row)));
    let _ = describe(trace).to_string();
}

fn name() -> impl Strategy<Value = Option<Arc<str>>> {
    // No control characters and no blanks around it: what a name in a CSV can be.
    prop::option::of("[^\\pC]{1,12}").prop_map(|name: Option<String>| {
        name.filter(|name| !name.trim().is_empty()).map(|name| Arc::from(name.as_str()))
    })
}

fn span() -> impl Strategy<Value = u64> {
    prop_oneof![0..100_000u64, 0..=SPAN_MS_MAX]
}

prop_compose! {
    fn job()(
        id in "[^\\pC ]{1,12}",
        (submit_ms, runtime_ms, gpus) in (span(), span(), 1..=1_000_000u32),
        (user, group, budget, gpu_model) in (name(), name(), name(), name()),
        (min_runtime_ms, checkpoint_interval_ms, startup_ms, max_runtime_ms) in (
            prop::option::of(span()),
            prop::option::of(span()),
            prop::option::of(span()),
            prop::option::of(span()),
        ),
        (resumable, rank) in (any::<Option<bool>>(), any::<Option<i32>>()),
        kind in prop::option::of(prop::sample::select(vec![JobKind::Batch, JobKind::Session])),
        status in prop::sample::select(vec![
            JobStatus::Completed,
            JobStatus::Failed,
            JobStatus::Cancelled,
        ]),
        wait_ms in prop::option::of(span()),
    ) -> TraceJob {
        TraceJob {
            id,
            row: 0,
            submit_ms,
            runtime_ms,
            gpus,
            user,
            group,
            budget,
            min_runtime_ms,
            resumable,
            rank,
            kind,
            gpu_model,
            checkpoint_interval_ms,
            startup_ms,
            max_runtime_ms,
            status,
            start_ms: wait_ms.map(|wait_ms| (submit_ms + wait_ms).min(SPAN_MS_MAX)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        read_all_ways(&bytes).iter().for_each(is_sound);
    }

    #[test]
    fn nearly_right_rows_never_panic(
        header in prop::sample::select(HEADERS.to_vec()),
        rows in prop_oneof![rows(","), rows("|"), rows(" ")],
    ) {
        read_all_ways(format!("{header}{rows}").as_bytes()).iter().for_each(is_sound);
    }

    #[test]
    fn compressed_garbage_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        bytes.splice(0..0, [0x1f, 0x8b, 8]);
        read_all_ways(&bytes);
        bytes.splice(0..3, [0x28, 0xb5, 0x2f, 0xfd]);
        read_all_ways(&bytes);
    }

    #[test]
    fn durations_never_panic_and_seconds_are_exact(text in "\\PC{0,12}", ms in 0..=SPAN_MS_MAX) {
        let _ = parse_duration_ms(&text);
        prop_assert_eq!(parse_duration_ms(&format!("{}.{:03}", ms / 1000, ms % 1000)), Ok(ms));
        prop_assert_eq!(parse_duration_ms(&format!("{ms}ms")), Ok(ms));
    }

    #[test]
    fn what_is_written_is_read_back(mut jobs in prop::collection::vec(job(), 1..20)) {
        for (index, job) in jobs.iter_mut().enumerate() {
            job.id = format!("{}{index}", job.id);
        }
        jobs.sort_by_key(|job| job.submit_ms);
        for (index, job) in jobs.iter_mut().enumerate() {
            // The first line is the header.
            job.row = index as u64 + 2;
        }
        let mut text = Vec::new();
        write_csv(&mut text, &jobs).unwrap();
        let trace = read(&text[..], "x.csv", &ReadOptions::default()).unwrap();
        prop_assert_eq!(trace.jobs, jobs);
        prop_assert!(trace.notes.is_empty() && trace.skipped_count == 0);
    }
}
