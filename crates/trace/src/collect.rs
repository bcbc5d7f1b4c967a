//! Gathers the jobs of a history as they are read: broken rows, repeated ids, order, origin.

use std::collections::{BTreeMap, HashMap};

use crate::error::{Place, RowError, TraceError, TraceErrorKind};
use crate::job::{BadRow, Format, Numbering, SKIPPED_LISTED_MAX, Trace, TraceJob};
use crate::names::Names;
use crate::time::{TimeBase, moment_of};
use crate::values::SPAN_MS_MAX;

/// Why a row gives no job.
#[derive(Debug)]
pub(crate) enum NoJob {
    /// It held no GPU.
    WithoutGpus,
    /// It ended before it started.
    NeverStarted,
    /// The history does not say when it ended.
    Unfinished,
    /// The row is no job of its own, but this (in the plural).
    NotAJob(&'static str),
    /// The row is broken.
    Bad(RowError),
}

impl From<RowError> for NoJob {
    fn from(error: RowError) -> Self {
        NoJob::Bad(error)
    }
}

/// What the readers of single rows share.
#[derive(Debug, Default)]
pub(crate) struct Context {
    pub(crate) names: Names,
    tally: BTreeMap<&'static str, u64>,
}

impl Context {
    /// Counts a job (or row) of which `what` is to be told; it becomes the note `<what>: <count>`.
    pub(crate) fn note(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }
}

/// What to do with an id that was there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RepeatedIds {
    /// An error: in our own format an id is a name that people use.
    Refuse,
    /// `id#2`: other systems repeat ids for requeues and after a wrap-around.
    Number,
}

/// The jobs read so far.
pub(crate) struct Collector {
    pub(crate) context: Context,
    pub(crate) time_base: TimeBase,
    name: String,
    format: Format,
    skip_bad: bool,
    repeated_ids: RepeatedIds,
    numbering: Numbering,
    jobs: Vec<TraceJob>,
    seen: HashMap<Box<str>, Seen>,
    submit_ms: Option<(u64, u64)>,
    skipped: Vec<BadRow>,
    skipped_count: u64,
    without_gpus: u64,
    never_started: u64,
    unfinished: u64,
}

struct Seen {
    line: u64,
    times: u64,
}

impl Collector {
    pub(crate) fn new(name: &str, format: Format, skip_bad: bool) -> Self {
        Collector {
            context: Context::default(),
            time_base: TimeBase::Origin(None),
            name: name.to_owned(),
            format,
            skip_bad,
            repeated_ids: match format {
                Format::BursarCsv => RepeatedIds::Refuse,
                Format::Swf
                | Format::Sacct
                | Format::Philly
                | Format::Helios
                | Format::Acme
                | Format::Openb => RepeatedIds::Number,
            },
            numbering: Numbering::Lines,
            jobs: Vec::new(),
            seen: HashMap::new(),
            submit_ms: None,
            skipped: Vec::new(),
            skipped_count: 0,
            without_gpus: 0,
            never_started: 0,
            unfinished: 0,
        }
    }

    /// For formats whose entries are not lines.
    pub(crate) fn counting_rows(mut self) -> Self {
        self.numbering = Numbering::Entries;
        self
    }

    /// Takes what the row at `line` gave; an error unless broken rows are to be skipped.
    pub(crate) fn add(
        &mut self,
        line: u64,
        result: Result<TraceJob, NoJob>,
    ) -> Result<(), TraceErrorKind> {
        let error = match result {
            Ok(job) => match self.keep(line, job) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            },
            Err(NoJob::WithoutGpus) => {
                self.without_gpus += 1;
                return Ok(());
            }
            Err(NoJob::NeverStarted) => {
                self.never_started += 1;
                return Ok(());
            }
            Err(NoJob::Unfinished) => {
                self.unfinished += 1;
                return Ok(());
            }
            Err(NoJob::NotAJob(what)) => {
                self.context.note(what);
                return Ok(());
            }
            Err(NoJob::Bad(error)) => error,
        };
        if !self.skip_bad {
            return Err(error.into_kind());
        }
        self.skipped_count += 1;
        if self.skipped.len() < SKIPPED_LISTED_MAX {
            self.skipped.push(BadRow { line, problem: error.kind().to_string() });
        }
        Ok(())
    }

    fn keep(&mut self, line: u64, mut job: TraceJob) -> Result<(), RowError> {
        let (first, last) = self.submit_ms.unwrap_or((job.submit_ms, job.submit_ms));
        let (first, last) = (first.min(job.submit_ms), last.max(job.submit_ms));
        if last - first > SPAN_MS_MAX {
            return Err(RowError::row("is more than 100 years apart from other jobs"));
        }
        if job.start_ms.is_some_and(|start_ms| start_ms < job.submit_ms) {
            self.context
                .note("jobs that start before they were submitted, whose start is not used");
            job.start_ms = None;
        }
        if job.start_ms.is_some_and(|start_ms| start_ms - job.submit_ms > SPAN_MS_MAX) {
            return Err(RowError::row("starts more than 100 years after it was submitted"));
        }
        if let Some(seen) = self.seen.get(job.id.as_str()) {
            if self.repeated_ids == RepeatedIds::Refuse {
                return Err(RowError::duplicate(&job.id, seen.line));
            }
            let mut times = seen.times;
            let numbered = loop {
                times += 1;
                let numbered = format!("{}#{times}", job.id);
                if !self.seen.contains_key(numbered.as_str()) {
                    break numbered;
                }
            };
            if let Some(seen) = self.seen.get_mut(job.id.as_str()) {
                seen.times = times;
            }
            job.id = numbered;
            self.context.note("rows that repeat an earlier id, told apart as id#2, id#3 …");
        }
        self.seen.insert(job.id.as_str().into(), Seen { line, times: 1 });
        self.submit_ms = Some((first, last));
        job.row = line;
        self.jobs.push(job);
        Ok(())
    }

    /// The history: its jobs in order, its times from its origin.
    pub(crate) fn finish(self) -> Result<Trace, TraceError> {
        let Some((first_ms, _)) = self.submit_ms else {
            let kind = TraceErrorKind::Empty { detail: self.what_there_is() };
            return Err(TraceError::new(&self.name, Place::File, kind));
        };
        let mut jobs = self.jobs;
        let origin = match self.time_base {
            TimeBase::Origin(origin) => origin,
            TimeBase::Absolute => {
                for job in &mut jobs {
                    job.submit_ms -= first_ms;
                    job.start_ms = job.start_ms.map(|start_ms| start_ms - first_ms);
                }
                moment_of(first_ms)
            }
        };
        jobs.sort_by_key(|job| job.submit_ms);
        let notes =
            self.context.tally.iter().map(|(what, count)| format!("{what}: {count}")).collect();
        Ok(Trace {
            name: self.name,
            format: self.format,
            origin,
            numbering: self.numbering,
            jobs,
            skipped: self.skipped,
            skipped_count: self.skipped_count,
            without_gpus: self.without_gpus,
            never_started: self.never_started,
            unfinished: self.unfinished,
            notes,
        })
    }

    fn what_there_is(&self) -> String {
        let left_out = [
            (self.skipped_count, "broken"),
            (self.without_gpus, "without a GPU (another unit may be chosen)"),
            (self.never_started, "that never started"),
            (self.unfinished, "without an end"),
        ];
        let parts: Vec<String> = left_out
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        let first_problem = self
            .skipped
            .first()
            .map(|bad| {
                format!(
                    "; the first broken one is{}: {}",
                    self.numbering.place(bad.line),
                    bad.problem
                )
            })
            .unwrap_or_default();
        if parts.is_empty() {
            ": it has no rows".to_owned()
        } else {
            format!(": its rows are {}{first_problem}", parts.join(", "))
        }
    }
}
