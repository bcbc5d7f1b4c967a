//! One attempt as the daemon sees it: its folder, read.

use super::folder::{Command, Folder, is_nonsense};
use super::process::ProcessId;
use super::records::{
    ExitRecord, MomentRecord, OutcomeRecord, StateRecord, VERSION, add_note, one_line,
};
use super::{cgroup, clock, remains};
use crate::key::AttemptKey;
use crate::observation::{AttemptState, Exited, Moment, Observation};
use rustix::process::Signal;
use std::io;
use std::time::{Duration, Instant};

/// What a record says.
enum Read<T> {
    Known(T),
    /// It was not written yet.
    Nothing,
    /// It will make no sense tomorrow either.
    Nonsense,
}

fn sensible<T>(read: io::Result<Option<T>>) -> io::Result<Read<T>> {
    match read {
        Ok(Some(record)) => Ok(Read::Known(record)),
        Ok(None) => Ok(Read::Nothing),
        Err(error) if is_nonsense(&error) => Ok(Read::Nonsense),
        Err(error) => Err(error),
    }
}

/// Ends what came to the daemon when a supervisor and its guard were killed; how many are left.
pub(crate) type Adopted<'a> = &'a mut dyn FnMut() -> io::Result<usize>;

/// One attempt.
#[derive(Debug)]
pub(crate) struct Attempt {
    key: AttemptKey,
    folder: Folder,
    /// How it ended, once that is known; it does not change again.
    ended: Option<(Exited, Vec<String>)>,
    /// When it was first told to stop.
    stopped: Option<Instant>,
}

impl Attempt {
    pub(crate) fn new(key: AttemptKey, folder: Folder) -> Self {
        Self { key, folder, ended: None, stopped: None }
    }

    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// How far it is. Ends what is left of it if its shim is dead.
    pub(crate) fn observe(
        &mut self,
        boot_id: &str,
        adopted: Adopted<'_>,
    ) -> io::Result<Observation> {
        if let Some((exited, notes)) = &self.ended {
            return Ok(self.seen(AttemptState::Exited(exited.clone()), notes.clone()));
        }
        // In this order: the shim writes the exit first and then ends.
        let supervised = self.folder.is_supervised()?;
        let (exit, state) = (sensible(self.folder.exit())?, sensible(self.folder.state())?);
        if let Read::Known(exit) = &exit {
            return Ok(self.conclude(exit, boot_id));
        }
        let spoiled = matches!(exit, Read::Nonsense) || matches!(state, Read::Nonsense);
        let note = spoiled.then(|| "its records cannot be read".to_owned());
        match state {
            Read::Known(state) if supervised => {
                let notes = state.notes.iter().cloned().chain(note).collect();
                Ok(self.seen(self.alive(&state, boot_id), notes))
            }
            Read::Nothing | Read::Nonsense if supervised => {
                Ok(self.seen(AttemptState::Starting, note.into_iter().collect()))
            }
            Read::Known(state) => self.settle(Some(&state), spoiled, boot_id, adopted),
            Read::Nothing | Read::Nonsense => self.settle(None, spoiled, boot_id, adopted),
        }
    }

    /// Ends an attempt whose shim is dead and did not say how it ended.
    fn settle(
        &mut self,
        state: Option<&StateRecord>,
        spoiled: bool,
        boot_id: &str,
        adopted: Adopted<'_>,
    ) -> io::Result<Observation> {
        let this_boot = state.is_some_and(|state| state.boot_id == boot_id);
        // Only a launcher that is recorded is told to go.
        let may_have_run = spoiled || state.is_some_and(|state| state.work.is_some());
        let booted = state.is_some() && !this_boot;
        // Without its order it still has a session.
        let order = self.folder.order().ok();
        let here = state.filter(|_| this_boot);
        let (work, guard) = (here.and_then(|state| state.work), here.and_then(|s| s.guard));
        let left = remains::end(work, guard, order.as_ref())? + adopted()?;
        if left > 0 {
            let mut notes = state.map(|state| state.notes.clone()).unwrap_or_default();
            add_note(&mut notes, format!("its supervisor is dead; {left} processes do not die"));
            let alive = state.map_or(AttemptState::Starting, |state| self.alive(state, boot_id));
            return Ok(self.seen(alive, notes));
        }
        order.iter().flat_map(|order| &order.cgroup).for_each(|group| cgroup::remove(group));
        // Without a group, and without whoever gets orphans, there is no telling.
        let grouped = state.is_some_and(|state| state.cgroup.is_some());
        let got_away = may_have_run && !booted && !grouped && !self.guarded(guard)?;
        let why = match self.folder.shim_said() {
            _ if spoiled => "its records cannot be read".to_owned(),
            _ if booted => "the machine was booted again".to_owned(),
            said if got_away && said.is_empty() => {
                "its supervisor and guard were killed; what left its session may still run"
                    .to_owned()
            }
            said if said.is_empty() => "its supervisor was killed".to_owned(),
            said => format!("its supervisor failed: {said}"),
        };
        let outcome = if may_have_run {
            OutcomeRecord::Lost(one_line(&why))
        } else {
            OutcomeRecord::NotStarted(one_line(&format!("it was claimed, not started: {why}")))
        };
        let ended = if booted { self.last_sign() } else { clock::now() };
        let started = may_have_run.then(|| self.started_at_the_latest(state, boot_id));
        let exit = self.exit_without_shim(state, (started, ended), outcome, boot_id);
        Ok(self.conclude(&exit, boot_id))
    }

    /// Since when it ran, or may have: work that may have run counts as having run, since nobody can say that it
    /// did not. If nothing else is known, since it was claimed.
    fn started_at_the_latest(&self, state: Option<&StateRecord>, boot_id: &str) -> MomentRecord {
        let known = state.and_then(|state| state.started.or(state.going));
        let claimed = || {
            let unix_ms = self.folder.claimed_unix_ms().unwrap_or_else(clock::unix_ms);
            MomentRecord { unix_ms, boot_ms: None }
        };
        let this_boot = state.is_some_and(|state| state.boot_id == boot_id);
        // Recorded under this boot, in which it has no place if it is from another.
        known.map_or_else(claimed, |moment| moment.seen_from(this_boot).into())
    }

    /// The last that is known of an attempt of an earlier boot: when its supervisor last wrote something. By the
    /// wall clock, and not after the machine was booted.
    fn last_sign(&self) -> Moment {
        let boot = clock::boot().unix_ms;
        let unix_ms = self.folder.written_unix_ms().map_or(boot, |written| written.min(boot));
        Moment { unix_ms, boot_ms: None }
    }

    /// Whether the guard has ended all that the shim left, or is at it and has nothing left.
    fn guarded(&self, guard: Option<ProcessId>) -> io::Result<bool> {
        let lives = guard.map(ProcessId::handle).transpose()?.flatten().is_some();
        Ok(lives || self.folder.was_emptied())
    }

    fn exit_without_shim(
        &self,
        state: Option<&StateRecord>,
        (started, ended): (Option<MomentRecord>, Moment),
        outcome: OutcomeRecord,
        boot_id: &str,
    ) -> ExitRecord {
        let exit = ExitRecord {
            version: VERSION,
            boot_id: boot_id.to_owned(),
            started,
            ended: started.map_or(ended.into(), |started| started.not_after(ended.into())),
            outcome,
            told_to_leave: self.stopped.is_some() || state.is_some_and(|state| state.told_to_leave),
            notes: state.map(|state| state.notes.clone()).unwrap_or_default(),
        };
        // If that fails it is found out again after a restart.
        let _ = self.folder.write_exit(&exit);
        exit
    }

    fn conclude(&mut self, exit: &ExitRecord, boot_id: &str) -> Observation {
        let (exited, notes) = (exit.exited(boot_id), exit.notes.clone());
        self.ended = Some((exited.clone(), notes.clone()));
        self.seen(AttemptState::Exited(exited), notes)
    }

    fn alive(&self, state: &StateRecord, boot_id: &str) -> AttemptState {
        let Some(started) = state.started else { return AttemptState::Starting };
        AttemptState::Running {
            started_at: started.seen_from(state.boot_id == boot_id),
            warned: state.warned,
            told_to_leave: state.told_to_leave || self.stopped.is_some(),
        }
    }

    fn seen(&self, state: AttemptState, notes: Vec<String>) -> Observation {
        Observation { key: self.key.clone(), state, notes }
    }

    /// Tells its work something. Nothing happens if it has none any more.
    pub(crate) fn signal(&self, command: Command) -> io::Result<()> {
        if self.ended.is_none() {
            self.folder.tell(command)?;
        }
        Ok(())
    }

    /// Ends it. A shim that was told so long ago and is still there is killed with all that it has.
    pub(crate) fn stop(&mut self, stuck_after: Duration) -> io::Result<()> {
        if self.ended.is_some() || !self.folder.tell(Command::Stop)? {
            // Without a shim, looking at it is what ends it.
            return Ok(());
        }
        let first = *self.stopped.get_or_insert_with(Instant::now);
        if first.elapsed() >= stuck_after {
            let boot_id = clock::boot_id()?;
            if let Some(state) = self.folder.state()?.filter(|state| state.boot_id == boot_id) {
                state.shim.signal(Signal::KILL)?;
                remains::end(state.work, state.guard, self.folder.order().ok().as_ref())?;
            }
        }
        Ok(())
    }
}
