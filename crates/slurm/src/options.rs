//! How the engine is to go about.

use crate::declare::Note;
use crate::read::Job;
use bursar_engine::{Error, ErrorKind};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// How [`SlurmEngine`](crate::SlurmEngine) goes about.
#[derive(Clone, Debug)]
pub struct SlurmOptions {
    /// The partitions that are governed.
    pub partitions: Vec<String>,
    /// What tells work to save and leave.
    pub checkpoint_signal: SlurmSignal,
    /// What warns work, if anything does. A signal ends work that does not know it, so it is none unless a site says
    /// otherwise; `URG` is one that does no harm.
    pub warn_signal: Option<SlurmSignal>,
    /// What of a job gets the signals.
    pub signal_scope: SignalTarget,
    /// How long after its start a job may first be signalled: Slurm drops signals for what is only being launched.
    pub signal_after: Duration,
    /// How long Slurm has to carry out a start.
    pub start_limit: Duration,
    /// How many starts are given to Slurm between two looks; the others wait for the next.
    pub releases_max: usize,
    /// Whether starts are pinned to the hosts that were planned.
    pub pin: bool,
    /// How long an end may go without its row in the accounts, before the controller's word counts.
    pub accounting_patience: Duration,
    /// How long a node may not answer before it counts as broken.
    pub silence_max: Duration,
    /// How work that did not come through Slurm's queue is submitted. None: it is refused.
    pub submit: Option<SubmitOptions>,
    /// What counts for jobs for which nobody declared anything: those from before us, and those that are only watched.
    pub undeclared: Undeclared,
    /// As whom the nodes are held against other Bursars. None: they are not.
    pub holder: Option<Holder>,
    /// Whether the hold of another is taken over, once.
    pub takes_over: bool,
}

/// What counts for jobs for which nothing was declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Undeclared {
    /// Their `min-runtime` in seconds, if their time limit is no shorter.
    pub min_runtime_s: u64,
    /// Whether they can go on from what they saved.
    pub resumable: bool,
}

/// Who governs nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// What tells its site from all others.
    pub site: String,
    /// What tells it from a copy of that site elsewhere: the machine and the folder.
    pub place: String,
}

/// How work is submitted that did not come through Slurm's queue.
#[derive(Clone, Debug)]
pub struct SubmitOptions {
    /// The partition that it goes to; one of those that are governed.
    pub partition: String,
    /// By what sbatch is run for a user: `sudo -n -u {user}`. Where an order names no user it runs as the other
    /// clients do.
    pub through: Vec<String>,
    /// Where logs are written, absolute: a folder that all hosts see and all users may write to.
    pub log_dir: PathBuf,
}

impl SlurmOptions {
    /// The usual, for these partitions.
    pub fn new(partitions: Vec<String>) -> Self {
        Self {
            partitions,
            checkpoint_signal: SlurmSignal::Usr1,
            warn_signal: None,
            signal_scope: SignalTarget::Script,
            signal_after: Duration::from_secs(2),
            start_limit: Duration::from_secs(60),
            releases_max: 50,
            pin: true,
            accounting_patience: Duration::from_secs(30),
            silence_max: Duration::from_secs(10),
            submit: None,
            undeclared: Undeclared::default(),
            holder: None,
            takes_over: false,
        }
    }

    /// The note of a job for which nothing was declared.
    pub(crate) fn note_of(&self, job: &Job, tag: String) -> Note {
        self.note_within(job.limit_ms, tag)
    }

    /// The same, of a job with this limit.
    pub(crate) fn note_within(&self, limit_ms: Option<u64>, tag: String) -> Note {
        let Undeclared { min_runtime_s, resumable } = self.undeclared;
        let limit_s = limit_ms.map_or(u64::MAX, |ms| ms / 1000);
        Note { min_runtime_s: min_runtime_s.min(limit_s), resumable, ..Note::new(tag) }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let invalid = |what: String| Err(Error::new(ErrorKind::Invalid, what));
        if self.partitions.is_empty() {
            return invalid("no partition is governed".to_owned());
        }
        for name in &self.partitions {
            if name.is_empty() || name.contains(|one: char| one == ',' || !one.is_ascii_graphic()) {
                return invalid(format!("'{}' is no partition", name.escape_debug()));
            }
        }
        if let Some(Holder { site, place }) = &self.holder {
            let fits = |text: &str| {
                !text.is_empty()
                    && text.chars().all(|one| one.is_ascii_graphic() && !";='\"".contains(one))
            };
            if !fits(site) || !fits(place) {
                return invalid("who governs has a name that no comment takes".to_owned());
            }
        }
        if let Some(submit) = &self.submit {
            if !self.partitions.contains(&submit.partition) {
                return invalid(format!("partition {} is not governed", submit.partition));
            }
            if !submit.log_dir.is_absolute() {
                return invalid("the folder of logs is not an absolute path".to_owned());
            }
        }
        Ok(())
    }
}

/// What of a job gets a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalTarget {
    /// The batch script alone.
    Script,
    /// Its steps, and not the script.
    Steps,
    /// Both.
    Both,
}

/// A signal that scancel can send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlurmSignal {
    /// `SIGTERM`
    Term,
    /// `SIGINT`
    Int,
    /// `SIGHUP`
    Hup,
    /// `SIGQUIT`
    Quit,
    /// `SIGUSR1`
    Usr1,
    /// `SIGUSR2`
    Usr2,
    /// `SIGURG`, which does nothing to work that does not know it.
    Urg,
    /// `SIGCONT`, which does nothing to work that runs and does not know it.
    Cont,
}

impl SlurmSignal {
    const ALL: [Self; 8] = [
        Self::Term,
        Self::Int,
        Self::Hup,
        Self::Quit,
        Self::Usr1,
        Self::Usr2,
        Self::Urg,
        Self::Cont,
    ];

    /// Its name without `SIG`, as scancel takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Term => "TERM",
            Self::Int => "INT",
            Self::Hup => "HUP",
            Self::Quit => "QUIT",
            Self::Usr1 => "USR1",
            Self::Usr2 => "USR2",
            Self::Urg => "URG",
            Self::Cont => "CONT",
        }
    }
}

impl fmt::Display for SlurmSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SlurmSignal {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let name = text.to_ascii_uppercase();
        let name = name.strip_prefix("SIG").unwrap_or(&name);
        Self::ALL.into_iter().find(|signal| signal.name() == name).ok_or_else(|| {
            let what = format!("'{}' is no signal that can be sent to jobs", text.escape_debug());
            Error::new(ErrorKind::Invalid, what)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names() {
        for signal in SlurmSignal::ALL {
            assert_eq!(signal.to_string().parse::<SlurmSignal>().unwrap(), signal);
        }
        assert_eq!("SIGusr1".parse::<SlurmSignal>().unwrap(), SlurmSignal::Usr1);
        assert!("KILL".parse::<SlurmSignal>().is_err());
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        assert!(SlurmOptions::new(vec!["main".to_owned()]).check().is_ok());
        for bad in [vec![], vec!["a,b"], vec![""], vec!["a b"]] {
            let names = bad.iter().map(|name: &&str| (*name).to_owned()).collect();
            assert!(SlurmOptions::new(names).check().is_err(), "{bad:?}");
        }
    }
}
