//! The loop: observe, journal, decide, journal, act.

mod queue;

use crate::arrivals::{self, AccountBudgets};
use crate::clock::Clock;
use crate::hosts;
use crate::journal::{Journal, JournalError};
use crate::reconcile::{Orders, differences};
use crate::starts::Starts;
use bursar_engine::{Engine, HostFacts};
use bursar_site::{Body, Fold, Record, Refused, Site};
use queue::Queue;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The request was refused; nothing was written.
    #[error("{0}")]
    Refused(#[from] Refused),
    /// The journal could not take it. The daemon goes on with what the journal has.
    #[error("the journal could not take it: {0}")]
    Journal(#[from] JournalError),
    /// The journal cannot be folded: damaged, newer, or decided otherwise by this binary.
    #[error("{0}")]
    Replay(#[from] bursar_site::ReplayError),
    /// The engine could not be asked. It is tried again.
    #[error("the engine does not answer: {0}")]
    Engine(#[from] bursar_engine::Error),
}

/// How attempts are started here.
#[derive(Clone, Debug)]
pub struct StartOptions {
    /// The folder that holds a folder for the checkpoints of each workload.
    pub checkpoint_root: PathBuf,
    /// How long a log may become before it is rotated, in bytes.
    pub log_bytes_max: u64,
    /// How many log files are kept.
    pub log_files_max: u32,
    /// As whom attempts may run.
    pub accounts: crate::accounts::Accounts,
    /// After how many records a snapshot is taken, so that a restart folds no more than these.
    pub snapshot_every: u64,
    /// What the secrets are made with by which attempts report; none if there is nowhere to report to.
    pub report_key: Option<crate::report::ReportKey>,
    /// From which number on workloads are numbered, whatever the journal says.
    pub numbers_from: u64,
    /// How much may be queued.
    pub queue: crate::queue::QueueLimits,
    /// How long the logs of an attempt are kept after its end.
    pub keep_logs: Duration,
    /// Whether nothing is decided: what others start is watched.
    pub watches: bool,
    /// Whether nothing is decided before the accounts of an engine with its own queue were read.
    pub reads_past_first: bool,
    /// Which budgets the accounts of an engine with its own queue are.
    pub account_budgets: AccountBudgets,
}

/// What is said of requests that would change what somebody else decides.
const WATCHES: &str = "this site only watches Slurm (slurm.mode: watch): use Slurm's own commands";

/// Whether a request would have work start, stop or wait.
const fn changes_work(body: &Body) -> bool {
    matches!(
        body,
        Body::Submitted(_)
            | Body::Released { .. }
            | Body::Requeued { .. }
            | Body::Cancelled { .. }
            | Body::DrainStarted { .. }
            | Body::HostUp { .. }
    )
}

/// How long a look at the hosts is good for, in milliseconds.
const HOSTS_LOOK_MS: u64 = 1_000;

/// A live site with its journal, engine and clock. One thread drives it.
pub struct Daemon<J, E, C> {
    site: Site,
    journal: J,
    engine: E,
    clock: C,
    options: StartOptions,
    /// Whether something was folded since the last plan.
    unplanned: bool,
    /// Whether the site in memory may be ahead of the journal and must be folded anew.
    astray: bool,
    /// A plan that is in memory and could not be journaled yet: the site is ahead by it, and by no more.
    owed: Option<Record>,
    /// The latest record that is in a snapshot, or was when one could not be kept.
    snapshot: u64,
    /// How long the core planned in the latest round.
    plan_took: Duration,
    queue: Queue,
    /// The hosts as the engine saw them, and when they were last looked at.
    hosts: Option<(u64, Arc<[HostFacts]>)>,
    /// Starts that were ordered and are not seen yet.
    starts: Starts,
    /// Why an order other than a start could not be given in the latest round.
    order_failure: Option<String>,
}

impl<J: Journal, E: Engine, C: Clock> Daemon<J, E, C> {
    /// Folds a journal, which is begun with `first` if it is empty.
    ///
    /// # Errors
    /// If the journal cannot be read, written, or folded.
    pub fn open(
        mut journal: J,
        engine: E,
        clock: impl FnOnce(&Site) -> std::io::Result<C>,
        options: StartOptions,
        first: impl FnOnce() -> Vec<Body>,
    ) -> Result<Self, Failure> {
        let mut empty = true;
        journal
            .read(1, &mut |_| {
                empty = false;
                Err(JournalError(String::new()))
            })
            .or_else(|error| if empty { Err(error) } else { Ok(()) })?;
        if empty {
            let bodies = first().into_iter().zip(1..);
            let records: Vec<Record> =
                bodies.map(|(body, seq)| Record { seq, at_ms: 0, actor: None, body }).collect();
            journal.append(&records)?;
        }
        let (mut site, snapshot) = fold(&journal)?;
        site.skip_numbers(options.numbers_from);
        let clock = clock(&site).map_err(|error| JournalError(format!("clock: {error}")))?;
        Ok(Self {
            site,
            journal,
            engine,
            clock,
            options,
            unplanned: true,
            astray: false,
            owed: None,
            snapshot,
            plan_took: Duration::ZERO,
            queue: Queue::default(),
            hosts: None,
            starts: Starts::default(),
            order_failure: None,
        })
    }

    /// The site as it was folded last. Where a journal may have failed since, ask for [`Self::current`].
    pub const fn site(&self) -> &Site {
        &self.site
    }

    /// The site as the journal has it: folded anew if the last append failed and may have been written all the
    /// same, or if a plan could not be.
    ///
    /// # Errors
    /// If the journal cannot be read or folded.
    pub fn current(&mut self) -> Result<&Site, Failure> {
        if self.owed.take().is_some() {
            // Nobody is shown what the journal does not have.
            self.astray = true;
        }
        self.find_the_way()?;
        Ok(&self.site)
    }

    /// Something went wrong in the midst of a step: the site is folded anew before the next one.
    pub const fn distrust(&mut self) {
        self.astray = true;
    }

    /// Whether the site is as the journal has it, as far as is known.
    pub const fn is_settled(&self) -> bool {
        !self.astray && self.owed.is_none()
    }

    /// How long the core planned in the latest round.
    pub const fn plan_took(&self) -> Duration {
        self.plan_took
    }

    /// The clock.
    pub const fn clock(&self) -> &C {
        &self.clock
    }

    /// The engine, to read logs.
    pub const fn engine(&self) -> &E {
        &self.engine
    }

    /// The journal, for backups and exports.
    pub const fn journal(&self) -> &J {
        &self.journal
    }

    /// How attempts are started.
    pub const fn options(&self) -> &StartOptions {
        &self.options
    }

    /// How attempts that start from now on are started.
    pub const fn options_mut(&mut self) -> &mut StartOptions {
        &mut self.options
    }

    /// Gives journal and engine back, as if the process ended here.
    pub fn close(self) -> (J, E) {
        (self.journal, self.engine)
    }

    /// The daemon's moment: the clock's, and never before the latest record.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms().max(self.site.now_ms())
    }

    /// Checks a request against the site, journals it, and folds it in. Returns the record.
    ///
    /// # Errors
    /// [`Failure::Refused`] with nothing written; [`Failure::Journal`] if it may or may not have been.
    pub fn ask(
        &mut self,
        actor: &str,
        request: impl FnOnce(&Site) -> Result<Body, Refused>,
    ) -> Result<Record, Failure> {
        let (records, ()) = self.ask_for(actor, |site| Ok((vec![request(site)?], ())))?;
        Ok(records.into_iter().next().expect("it was asked for"))
    }

    /// As [`Self::ask`], for requests that change nothing or several things at once, or have more to tell. What
    /// is journaled is made here, from the site as the journal has it: a record made from another one might
    /// never be folded.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn ask_for<T>(
        &mut self,
        actor: &str,
        request: impl FnOnce(&Site) -> Result<(Vec<Body>, T), Refused>,
    ) -> Result<(Vec<Record>, T), Failure> {
        let (bodies, told) = request(self.current()?)?;
        if self.options.watches && bodies.iter().any(changes_work) {
            return Err(Refused::conflict(WATCHES).into());
        }
        if bodies.is_empty() {
            return Ok((Vec::new(), told));
        }
        let records = self.records(Some(actor), bodies);
        self.put(&records)?;
        Ok((records, told))
    }

    /// One round: what the engine did is journaled, the core plans, and what is wanted is ordered. Returns the
    /// site's moment at which the next round is due even if nothing happens; none if none is.
    ///
    /// # Errors
    /// If journal or engine failed; the next round goes on from what the journal has.
    pub fn round(&mut self) -> Result<Option<u64>, Failure> {
        self.find_the_way()?;
        if let Some(record) = self.owed.take() {
            self.journal_plan(record)?;
        }
        let seen = self.engine.observe()?;
        let hosts = self.look_at_hosts()?;
        let arrivals = self.engine.arrivals()?;
        let has_queue = arrivals.is_some();
        let arrivals = arrivals.unwrap_or_default();
        let runs = arrivals::running(&self.site, &arrivals);
        let of_queue = has_queue.then_some(&runs);
        let now = self.now_ms();
        let mut news = differences(&self.site, &seen, of_queue, now, &self.clock);
        news.bodies.extend(self.starts.given_up(&self.site, &seen, now, has_queue));
        if !news.bodies.is_empty() {
            // Together: what is written costs by how often, not by how much.
            let ended = if has_queue { news.bodies.clone() } else { Vec::new() };
            let records = self.records(None, news.bodies);
            self.put(&records)?;
            let held_back = arrivals::backing_off(&self.site, &ended, now);
            if !held_back.is_empty() {
                let records = self.records(None, held_back);
                self.put(&records)?;
            }
        }
        // After what has ended: what could not be started since it is gone counts as missing from now on.
        if has_queue {
            self.look_at_arrivals(&arrivals)?;
            self.look_at_past(&arrivals, &news.vanished)?;
            self.give_up_missing()?;
        }
        // After what has ended by itself, too: a host that is down takes all with it that is said to be on it.
        let bodies = hosts::news(&self.site, &hosts);
        if !bodies.is_empty() {
            let records = self.records(None, bodies);
            self.put(&records)?;
        }
        // After what has ended, too: that may be what kept it out of the books.
        while let Some(body) =
            arrivals::found(&self.site, &arrivals, |moment| self.clock.site_ms(moment))
        {
            let records = self.records(None, vec![body]);
            self.put(&records)?;
        }
        if let Some(body) = self.site.due_terms(self.now_ms()) {
            let records = self.records(None, vec![body]);
            self.put(&records)?;
        }
        while let Some((author, body)) = self.site.due_change(self.now_ms()) {
            let records = self.records(Some(&author), vec![body]);
            self.put(&records)?;
        }
        // What is watched waits for somebody else's decisions. It is in the queue for a moment at most, when it runs by
        // now on what by the books is still another's.
        if !self.options.watches || !self.site.anything_queued() {
            self.plan()?;
        }
        self.act(&seen, &runs, &news.forget, &hosts);
        self.clock.beat();
        if let Err(error) = self.engine.purge_some(self.options.keep_logs) {
            tracing::debug!(%error, "old logs could not be removed");
        }
        let deadline = self.site.next_deadline_ms();
        let (wake, change) = (self.site.next_wake_ms(), self.site.next_change_ms());
        Ok(deadline.into_iter().chain(wake).chain(change).chain(news.more_at).min())
    }

    /// How often to ask [`Self::has_news`] between rounds.
    pub fn news_every(&self) -> Option<Duration> {
        self.engine.news_every()
    }

    /// Whether a round now may find something that the last one did not.
    pub fn has_news(&mut self) -> bool {
        self.engine.has_news()
    }

    /// The hosts, looked at no more often than they change: a round follows every request, and a look may cost an
    /// engine far more than the rest of a round.
    fn look_at_hosts(&mut self) -> Result<Arc<[HostFacts]>, Failure> {
        let now = self.now_ms();
        if let Some((looked, hosts)) = &self.hosts
            && now < looked.saturating_add(HOSTS_LOOK_MS)
        {
            return Ok(Arc::clone(hosts));
        }
        let hosts: Arc<[HostFacts]> = self.engine.hosts()?.into();
        self.hosts = Some((now, Arc::clone(&hosts)));
        Ok(hosts)
    }

    /// Journals what others did, or nobody.
    fn put_by(&mut self, bodies: Vec<(Option<String>, Body)>) -> Result<(), Failure> {
        if bodies.is_empty() {
            return Ok(());
        }
        let at_ms = self.now_ms();
        let numbered = bodies.into_iter().zip(self.site.seq() + 1..);
        let records: Vec<Record> =
            numbered.map(|((actor, body), seq)| Record { seq, at_ms, actor, body }).collect();
        self.put(&records)
    }

    fn plan(&mut self) -> Result<(), Failure> {
        let at_ms = self.now_ms();
        // Nothing goes out before the plan is written; until it is, the site is ahead of its journal.
        self.astray = true;
        let begun = Instant::now();
        let planned = self.site.plan(at_ms);
        self.plan_took = begun.elapsed();
        if planned.decisions == 0 && !self.unplanned {
            self.astray = false;
            return Ok(());
        }
        let body = Body::Planned { decisions: planned.decisions, hash: planned.hash };
        self.journal_plan(Record { seq: self.site.seq() + 1, at_ms, actor: None, body })
    }

    /// Journals a plan that is in memory. If certainly nothing was written, it is owed: it can be journaled later, and
    /// the journal need not be folded again for it.
    fn journal_plan(&mut self, record: Record) -> Result<(), Failure> {
        self.astray = true;
        if let Err(error) = self.journal.append(std::slice::from_ref(&record)) {
            if self.journal.is_at(record.seq - 1) {
                (self.astray, self.owed) = (false, Some(record));
            }
            return Err(error.into());
        }
        self.site.planned(record.seq);
        (self.astray, self.unplanned) = (false, false);
        if record.seq - self.snapshot >= self.options.snapshot_every {
            self.keep_snapshot();
        }
        Ok(())
    }

    /// Right after a plan was journaled. One that cannot be kept only makes for a longer restart.
    fn keep_snapshot(&mut self) {
        self.snapshot = self.site.seq();
        if let Err(error) = self.journal.put_snapshot(self.snapshot, &self.site.snapshot()) {
            tracing::warn!(%error, "a snapshot could not be kept; a restart will take longer");
        }
    }

    /// Before the process ends: what was written since the last snapshot goes into one.
    pub fn rest(&mut self) {
        if self.current().is_err() || self.site.seq() == self.snapshot {
            return;
        }
        // A snapshot follows a plan, at whose moment nothing more is to be decided.
        self.unplanned = true;
        if self.plan().is_ok() && self.snapshot < self.site.seq() {
            self.keep_snapshot();
        }
    }

    /// Orders what is wanted and is not so. Whatever fails here is ordered again in the next round.
    fn act(
        &mut self,
        seen: &[bursar_engine::Observation],
        runs: &BTreeSet<u64>,
        forget: &[bursar_engine::AttemptKey],
        hosts: &[HostFacts],
    ) {
        let orders = Orders::of(&self.site, seen, runs, &self.options, |ms| self.clock.unix_ms(ms));
        self.starts.ordered(&orders.start);
        let now = self.now_ms();
        // Each is one attempt's (or host's) own, and is ordered again: the round goes on.
        let mut failure = None;
        let mut closed = |result: Result<(), bursar_engine::Error>| {
            if let Err(error) = result {
                failure.get_or_insert_with(|| error.to_string());
            }
        };
        // Before any start: others must not take what a drain has freed.
        for (host, why) in hosts::cordons(&self.site, hosts) {
            // What was seen is so no more.
            self.hosts = None;
            closed(match why {
                Some(why) => self.engine.cordon(host, why),
                None => self.engine.uncordon(host),
            });
        }
        for order in &orders.start {
            self.starts.note(&order.key, self.engine.start(order), now);
        }
        let mut note = |result: Result<(), bursar_engine::Error>| {
            if let Err(error) = result {
                failure.get_or_insert_with(|| error.to_string());
            }
        };
        for (key, signal) in &orders.signal {
            note(self.engine.signal(key, *signal));
        }
        for key in &orders.stop {
            note(self.engine.stop(key));
        }
        for key in forget {
            note(self.engine.forget(key));
        }
        if failure.is_some() && failure != self.order_failure {
            let shown = failure.as_deref().map(crate::plain::one_line);
            tracing::warn!(failure = shown, "an order could not be given; it is given again");
        }
        self.order_failure = failure;
    }

    /// Bodies as the next records, at this moment.
    fn records(&self, actor: Option<&str>, bodies: Vec<Body>) -> Vec<Record> {
        let (at_ms, actor) = (self.now_ms(), actor.map(str::to_owned));
        let numbered = bodies.into_iter().zip(self.site.seq() + 1..);
        numbered.map(|(body, seq)| Record { seq, at_ms, actor: actor.clone(), body }).collect()
    }

    fn put(&mut self, records: &[Record]) -> Result<(), Failure> {
        self.astray = true;
        if let Err(error) = self.journal.append(records) {
            // Nothing of it is in memory yet: if nothing was written, all is as it was.
            self.astray = !self.journal.is_at(self.site.seq());
            return Err(error.into());
        }
        for record in records {
            self.site.apply(record)?;
        }
        (self.astray, self.unplanned) = (false, true);
        Ok(())
    }

    /// After a journal failed, what was written decides.
    fn find_the_way(&mut self) -> Result<(), Failure> {
        if self.astray {
            (self.site, self.snapshot) = fold(&self.journal)?;
            self.site.skip_numbers(self.options.numbers_from);
            (self.astray, self.unplanned) = (false, true);
        }
        Ok(())
    }
}

/// The site of a journal, and the last record of the snapshot that it was folded from; 0 for none.
pub(crate) fn fold<J: Journal>(journal: &J) -> Result<(Site, u64), Failure> {
    if let Some(site) = from_snapshot(journal) {
        let seq = site.seq();
        match fold_from(journal, Some(site)) {
            Ok(site) => return Ok((site, seq)),
            // The records decide, from the first one on.
            Err(error) => tracing::warn!(%error, "the snapshot at record {seq} leads nowhere"),
        }
    }
    Ok((fold_from(journal, None)?, 0))
}

fn from_snapshot<J: Journal>(journal: &J) -> Option<Site> {
    let (seq, bytes) = match journal.latest_snapshot() {
        Ok(found) => found?,
        Err(error) => {
            tracing::warn!(%error, "the snapshots cannot be read; folding the whole journal");
            return None;
        }
    };
    match Site::restored(&bytes) {
        Ok(site) if site.seq() == seq => Some(site),
        Ok(site) => {
            tracing::warn!("the snapshot at record {seq} says it is of {}", site.seq());
            None
        }
        Err(error) => {
            tracing::info!(%error, "the snapshot at record {seq} is not used; folding the whole journal");
            None
        }
    }
}

fn fold_from<J: Journal>(journal: &J, site: Option<Site>) -> Result<Site, Failure> {
    let from = site.as_ref().map_or(1, |site| site.seq() + 1);
    let mut fold = site.map_or_else(Fold::default, Fold::from);
    let mut fault = None;
    let read = journal.read(from, &mut |record| {
        fold.take(record).map_err(|error| {
            let text = JournalError(error.to_string());
            fault = Some(error);
            text
        })
    });
    if let Some(fault) = fault {
        return Err(fault.into());
    }
    read?;
    let nothing = || JournalError("the journal does not say what its site is".into());
    Ok(fold.site().ok_or_else(nothing)?)
}
