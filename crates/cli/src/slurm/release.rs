//! `bursar slurm release` and `bursar slurm watchdog`: Slurm goes on without Bursar.

use crate::args::WatchdogArgs;
use crate::failure::Failure;
use crate::interrupt;
use crate::shown::{note, say};
use crate::up::{DEFAULT_LISTEN, data_folder};
use bursar_server::history;
use bursar_server::slurm::{SlurmWanted, told_of};
use bursar_slurm::{HandedBack, hand_back};
use bursar_store::Reader;
use serde_json::json;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What is needed to give work back.
struct Governed {
    slurm: SlurmWanted,
    data: PathBuf,
    listen: SocketAddr,
}

impl Governed {
    fn read(file: &Path) -> Result<Self, Failure> {
        let (config, slurm) = super::configured(file)?;
        let data = data_folder(config.data.as_ref())?;
        Ok(Self { slurm, data, listen: config.listen.unwrap_or(DEFAULT_LISTEN) })
    }

    /// Whether the daemon does its rounds.
    fn is_ready(&self) -> bool {
        self.answers("readyz")
    }

    /// Whether anybody answers, however badly it is.
    fn answers_at_all(&self) -> bool {
        std::net::TcpStream::connect_timeout(&self.listen, Duration::from_secs(5)).is_ok()
    }

    fn answers(&self, path: &str) -> bool {
        let config = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(10)));
        let agent: ureq::Agent = config.build().into();
        agent.get(format!("http://{}/{path}", self.listen)).call().is_ok()
    }

    /// Whether a daemon has the data folder.
    fn is_in_use(&self) -> bool {
        use rustix::fs::{FlockOperation, flock};
        let Ok(lock) = std::fs::File::open(self.data.join("lock")) else { return false };
        // Let go of at once, with the file.
        flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err()
    }

    /// The order of the site, as its journal has it; if that cannot be read, by age.
    fn order(&self) -> Result<Vec<String>, Failure> {
        let reader = Reader::beside(&self.data).map_err(|error| {
            Failure::input(format!("there is no site to release the work of: {error}"))
        })?;
        let site = match history::fold(&reader) {
            Ok(site) => site,
            Err(error) => {
                note(&format!("the journal cannot be read ({error}): the oldest job comes first"));
                return Ok(Vec::new());
            }
        };
        let governs = self.slurm.gate.as_deref().and_then(bursar_slurm::Gate::site_in);
        if governs.is_some() && governs != site.created.site_id {
            return Err(Failure::input(
                "slurm.gate: the table there is another site's, which governs: name that site's configuration",
            ));
        }
        Ok(site.handback_order())
    }

    fn hand_back(&self) -> Result<HandedBack, Failure> {
        let (clients, gate) = (&self.slurm.clients, self.slurm.gate.as_deref());
        let partitions = &self.slurm.options.partitions;
        hand_back(clients, partitions, gate, &self.order()?).map_err(Failure::fault)
    }
}

pub(super) fn release(file: &Path, json: bool) -> Result<(), Failure> {
    let governed = Governed::read(file)?;
    if governed.answers("healthz") || governed.is_in_use() {
        return Err(Failure::input(format!(
            "the site is up (it should answer at {}) and would put jobs on hold again: stop it first, or set slurm.mode: watch and start it again",
            governed.listen
        )));
    }
    if governed.slurm.gate.is_none() {
        note(
            "slurm.gate is not set: empty the gate's table yourself first, or new jobs go on entering on hold",
        );
    }
    let done = governed.hand_back()?;
    if json {
        let answer = json!({ "released": done.released, "left": done.left, "said": done.said });
        say(&format!("{answer:#}\n"));
    } else {
        say(&format!("{}\n", told_of(&done)));
    }
    if done.left.is_empty() { Ok(()) } else { Err(Failure::Missing(done.left.len())) }
}

/// What the watchdog has seen.
#[derive(Debug, Default)]
struct Seen {
    /// Since when the daemon does not do its rounds, although Slurm answers.
    down_since: Option<Instant>,
    /// Whether that was answered by giving all back.
    handed_back: bool,
}

impl Seen {
    /// Whether all is to be given back now.
    fn look(&mut self, is_ready: bool, slurm_answers: bool, now: Instant, after: Duration) -> bool {
        if is_ready {
            *self = Self::default();
            return false;
        }
        // Without Slurm nobody can do rounds, and nothing can be released: it does not count.
        if !slurm_answers {
            self.down_since = None;
            return false;
        }
        let since = *self.down_since.get_or_insert(now);
        !self.handed_back && now.duration_since(since) >= after
    }
}

pub(super) fn watchdog(args: &WatchdogArgs) -> Result<(), Failure> {
    let governed = Governed::read(&args.config)?;
    let after = Duration::from_millis(args.after);
    let every = Duration::from_millis(args.every.max(100));
    note(&format!(
        "watching the site at {}: what is on hold is released to Slurm when it is down for {}",
        governed.listen,
        bursar_core::SpanMs(args.after)
    ));
    let (mut seen, mut told) = (Seen::default(), false);
    loop {
        let is_ready = governed.is_ready();
        let was_down = seen.down_since.is_some();
        // A daemon that lives and does not answer where it should is looked for in vain: nothing is done behind its back.
        let elsewhere = !is_ready && !governed.answers_at_all() && governed.is_in_use();
        if elsewhere && !told {
            note("a daemon has the data folder and does not answer there: is its address another?");
        }
        told = elsewhere;
        let slurm_answers = is_ready || !elsewhere && slurm_answers(&governed.slurm);
        if seen.look(is_ready, slurm_answers, Instant::now(), after) {
            match governed.hand_back() {
                Ok(done) if done.left.is_empty() => {
                    note(&told_of(&done));
                    seen.handed_back = true;
                }
                // It is tried again at the next look.
                Ok(done) => note(&told_of(&done)),
                Err(failure) => note(&format!("nothing could be released yet: {failure}")),
            }
            if args.once && seen.handed_back {
                return Ok(());
            }
        }
        match (was_down, seen.down_since.is_some()) {
            (false, true) => note("the site does not answer"),
            (true, false) if is_ready => note("the site is back"),
            _ => {}
        }
        let looked = Instant::now();
        while looked.elapsed() < every {
            interrupt::check()?;
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn slurm_answers(slurm: &SlurmWanted) -> bool {
    use bursar_slurm::client::{Call, Clients as _, Program};
    slurm.clients.run(&Call::new(Program::Scontrol, ["ping"])).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_given_back_once_and_only_after_long_enough() {
        let (begun, after) = (Instant::now(), Duration::from_secs(600));
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut seen = Seen::default();
        assert!(!seen.look(true, true, at(0), after));
        assert!(!seen.look(false, true, at(10), after));
        // With Slurm down it begins anew.
        assert!(!seen.look(false, false, at(500), after));
        assert!(!seen.look(false, true, at(700), after));
        assert!(!seen.look(false, true, at(1299), after));
        assert!(seen.look(false, true, at(1300), after));
        // What could not be done is tried again, what was done is not.
        assert!(seen.look(false, true, at(1310), after));
        seen.handed_back = true;
        assert!(!seen.look(false, true, at(1320), after));
        // The site was there in between.
        assert!(!seen.look(true, true, at(1330), after));
        assert!(!seen.look(false, true, at(1340), after));
        assert!(seen.look(false, true, at(1940), after));
    }
}
