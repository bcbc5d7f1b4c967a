//! What holds of every history that was read, and of every refusal.

use bursar_trace::{
    Format, ReadOptions, SPAN_MS_MAX, Trace, TraceError, describe, read, write_csv,
};

/// A history is in order and within bounds, can be described, and is the same after it was written and read.
pub(crate) fn history(trace: &Trace) {
    assert!(!trace.jobs.is_empty(), "a history has a job");
    for job in &trace.jobs {
        assert!(job.gpus >= 1 && job.runtime_ms <= SPAN_MS_MAX && !job.id.is_empty(), "{job:?}");
        assert!(job.start_ms.is_none_or(|start_ms| start_ms >= job.submit_ms), "{job:?}");
    }
    let order: Vec<_> = trace.jobs.iter().map(|job| (job.submit_ms, job.row)).collect();
    assert!(order.windows(2).all(|pair| pair[0] < pair[1]), "jobs are in order");
    one_line(&trace.notes.join(" "));
    assert!(!describe(trace).to_string().is_empty());

    let mut text = Vec::new();
    if write_csv(&mut text, &trace.jobs).is_err() {
        return;
    }
    let options = ReadOptions { format: Some(Format::BursarCsv), ..ReadOptions::default() };
    let again = read(&text[..], "again", &options).expect("what was written can be read");
    assert_eq!(again.jobs.len(), trace.jobs.len());
    for (job, mut other) in trace.jobs.iter().zip(again.jobs) {
        other.row = job.row;
        assert_eq!(*job, other, "what was written is what is read");
    }
}

/// A refusal is one line without anything that a terminal would act on.
pub(crate) fn refusal(error: &TraceError) {
    one_line(&error.to_string());
}

fn one_line(text: &str) {
    assert!(!text.chars().any(char::is_control), "{text:?}");
}
