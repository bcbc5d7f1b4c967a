//! What changed, for those who follow: a bounded memory of changes and a channel to every follower.
//!
//! The driver's thread finds the changes after each step ([`Hub::look`]) and never waits for a follower: one
//! who is too slow misses some, is told so, and begins anew. Absent on purpose: rights. A change carries what
//! rights are decided by, and followers decide.

use crate::daemon::Daemon;
use crate::{Clock, Journal};
use bursar_engine::Engine;
use bursar_site::views::Standing;
use bursar_site::{Budgets, Ending, Site, Work};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;
use utoipa::ToSchema;

/// How many changes are remembered for those who come back: minutes of a busy site.
const REMEMBERED: usize = 8_192;
/// How many changes a follower may be behind.
const BEHIND_MAX: usize = 1_024;

/// The place of a change: the journal's latest record by then, and its place among the changes since that record
/// (time alone changes things, too). As text `57.2`; `57` stands for `57.0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The latest record of the journal.
    pub seq: u64,
    /// From 1; 0 is before all of them.
    pub nth: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.seq, self.nth)
    }
}

impl FromStr for Position {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (seq, nth) = text.split_once('.').unwrap_or((text, "0"));
        Ok(Self { seq: seq.parse()?, nth: nth.parse()? })
    }
}

/// A workload stands elsewhere than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WorkloadChange {
    /// The workload.
    pub workload: u64,
    /// Whose it is.
    pub user: String,
    /// The budget that pays.
    pub budget: String,
    /// Where it stands now.
    pub state: Standing,
    /// How it ended, if it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
    /// How many attempts it has had.
    pub attempts: usize,
    /// When, in milliseconds since 1970.
    pub at_unix_ms: u64,
}

/// The budget tree was changed. What of it one sees is to be read anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct BudgetsChange {
    /// The version in force.
    pub version: u64,
    /// When, in milliseconds since 1970.
    pub at_unix_ms: u64,
}

/// A host is in another state than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct HostChange {
    /// The host.
    pub host: String,
    /// `up`, `draining`, `drained` or `down`.
    pub state: String,
    /// Why it drains or is down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When, in milliseconds since 1970.
    pub at_unix_ms: u64,
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A workload.
    Workload(WorkloadChange),
    /// The budget tree.
    Budgets(BudgetsChange),
    /// A host.
    Host(HostChange),
    /// A token is void from now on: not told, but who follows by it follows no more.
    TokenRevoked(String),
    /// The daemon ends.
    Closing,
}

/// A change and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its place.
    pub at: Position,
    /// What changed.
    pub what: What,
}

/// What is known of a workload that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    standing: Standing,
    unallocated: bool,
}

#[derive(Default)]
struct State {
    position: Position,
    /// The place of the latest change that is no longer remembered, or was before this process.
    forgotten: Position,
    remembered: VecDeque<Arc<Change>>,
    budgets: Arc<Budgets>,
    /// Workloads that have not ended.
    open: BTreeMap<u64, Known>,
    next_number: u64,
    /// How many of those that were asked to run again are known.
    run_again: usize,
    hosts: BTreeMap<String, (&'static str, Option<String>)>,
    good_tokens: BTreeSet<String>,
    /// The hashes of their secrets, as the journal has them.
    good_hashes: BTreeSet<String>,
    preemptions: u64,
    looked: bool,
    closed: bool,
}

/// How many workloads stand where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By where they stand, and whether they are unallocated by their declaration.
    pub standings: BTreeMap<(Standing, bool), u64>,
    /// Workloads that were told to leave since the process began.
    pub preemptions: u64,
}

/// The memory of changes, and the way to followers.
pub struct Hub {
    sender: broadcast::Sender<Arc<Change>>,
    state: Mutex<State>,
}

impl Default for Hub {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(BEHIND_MAX), state: Mutex::default() }
    }
}

/// A follower's beginning.
pub struct Following {
    /// Where it begins.
    pub at: Position,
    /// Whether changes between its last one and these are no longer known.
    pub gap: bool,
    /// What it missed.
    pub missed: Vec<Arc<Change>>,
    /// What comes.
    pub coming: broadcast::Receiver<Arc<Change>>,
}

impl Hub {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Whoever panicked did so between two changes at worst.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The budget tree in force, to decide rights by.
    pub fn budgets(&self) -> Arc<Budgets> {
        Arc::clone(&self.lock().budgets)
    }

    /// Whether this was the hash of a good token's secret at the last look; it may have expired since.
    pub fn has_token(&self, hash: &crate::limits::SecretHash) -> bool {
        let text: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        self.lock().good_hashes.contains(&text)
    }

    /// How many workloads stand where.
    pub fn counts(&self) -> Counts {
        let state = self.lock();
        let mut counts = Counts { preemptions: state.preemptions, ..Counts::default() };
        for known in state.open.values() {
            *counts.standings.entry((known.standing, known.unallocated)).or_default() += 1;
        }
        counts
    }

    /// Begins to follow, after a change that was seen last if there was one.
    pub fn follow(&self, last: Option<Position>) -> Following {
        let state = self.lock();
        let missed = state.remembered.iter().filter(|change| last.is_some_and(|at| change.at > at));
        // A place that is yet to come is another journal's.
        let gap = last.is_some_and(|at| at < state.forgotten || at > state.position);
        Following {
            at: state.position,
            gap,
            missed: if gap { Vec::new() } else { missed.cloned().collect() },
            // Within the lock: nothing comes between what was missed and what comes.
            coming: self.sender.subscribe(),
        }
    }

    /// Ends all following.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let at = state.position;
        let _ = self.sender.send(Arc::new(Change { at, what: What::Closing }));
    }

    /// Whether following has ended for all.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Finds what changed since the last look.
    pub fn look<J: Journal, E: Engine, C: Clock>(&self, daemon: &Daemon<J, E, C>) {
        let site = daemon.site();
        let mut state = self.lock();
        let mut news = Vec::new();
        state.changes_of(site, daemon.clock(), &mut news);
        let first = !std::mem::replace(&mut state.looked, true);
        if site.seq() != state.position.seq {
            state.position = Position { seq: site.seq(), nth: 0 };
        }
        if first {
            // What is found at the first look was so before.
            state.forgotten = state.position;
            return;
        }
        for what in news {
            state.position.nth += 1;
            let change = Arc::new(Change { at: state.position, what });
            if state.remembered.len() == REMEMBERED
                && let Some(oldest) = state.remembered.pop_front()
            {
                state.forgotten = oldest.at;
            }
            state.remembered.push_back(Arc::clone(&change));
            // Nobody follows: nobody misses it.
            let _ = self.sender.send(change);
        }
    }
}

fn workload_change(site: &Site, work: &Work, at_unix_ms: u64) -> What {
    What::Workload(WorkloadChange {
        workload: work.number,
        user: work.declared.user.clone(),
        budget: work.declared.budget.clone(),
        state: site.standing(work),
        ending: site.ending(work),
        attempts: work.attempts.len(),
        at_unix_ms,
    })
}

impl State {
    fn changes_of(&mut self, site: &Site, clock: &impl Clock, news: &mut Vec<What>) {
        let at_unix_ms = clock.unix_ms(site.now_ms());
        let moved = !self.looked || site.seq() != self.position.seq;
        if moved && (!self.looked || self.budgets.version != site.budgets.version) {
            self.budgets = Arc::new(site.budgets.clone());
            news.push(What::Budgets(BudgetsChange { version: site.budgets.version, at_unix_ms }));
        }
        self.workloads(site, moved, at_unix_ms, news);
        if moved {
            self.hosts(site, at_unix_ms, news);
            self.tokens(site, news);
        }
    }

    fn workloads(&mut self, site: &Site, moved: bool, at_unix_ms: u64, news: &mut Vec<What>) {
        let mut ended = Vec::new();
        for (number, known) in &mut self.open {
            // By time alone only protection ends.
            if !moved && known.standing != Standing::Protected {
                continue;
            }
            let Some(work) = site.work(*number) else { continue };
            let standing = site.standing(work);
            if standing == known.standing {
                continue;
            }
            self.preemptions += u64::from(standing == Standing::Preempting);
            known.standing = standing;
            news.push(workload_change(site, work, at_unix_ms));
            if standing == Standing::Ended {
                ended.push(*number);
            }
        }
        for number in ended {
            self.open.remove(&number);
        }
        if moved {
            // After a journal failed there may be fewer than before.
            let again = site.run_again().get(self.run_again..).unwrap_or_default();
            let again = again.iter().copied().filter(|number| !self.open.contains_key(number));
            let again: BTreeSet<u64> = again.filter(|&number| number < self.next_number).collect();
            self.run_again = site.run_again().len();
            let numbers = again.into_iter().chain(self.next_number..site.next_number());
            // The first look is at all there is, the others at what came since.
            for work in numbers.filter_map(|number| site.work(number)) {
                let standing = site.standing(work);
                if self.looked {
                    news.push(workload_change(site, work, at_unix_ms));
                }
                if standing != Standing::Ended {
                    let unallocated = work.declared.min_runtime_ms == 0;
                    self.open.insert(work.number, Known { standing, unallocated });
                }
            }
            self.next_number = site.next_number();
        }
    }

    fn hosts(&mut self, site: &Site, at_unix_ms: u64, news: &mut Vec<What>) {
        for view in site.host_views() {
            let now = (view.state, view.reason);
            if self.hosts.get(&view.name) == Some(&now) {
                continue;
            }
            news.push(What::Host(HostChange {
                host: view.name.clone(),
                state: now.0.to_owned(),
                reason: now.1.clone(),
                at_unix_ms,
            }));
            self.hosts.insert(view.name, now);
        }
    }

    fn tokens(&mut self, site: &Site, news: &mut Vec<What>) {
        let Some(owner) = site.budgets.owners.first() else { return };
        let good = || site.tokens_of(owner).filter(|(_, good)| *good);
        if good().count() == self.good_tokens.len()
            && good().all(|(token, _)| self.good_tokens.contains(&token.token))
        {
            return;
        }
        let now: BTreeSet<String> = good().map(|(token, _)| token.token.clone()).collect();
        let revoked = self.good_tokens.difference(&now).cloned();
        news.extend(revoked.map(What::TokenRevoked));
        self.good_tokens = now;
        self.good_hashes = good().map(|(token, _)| token.secret_sha256.clone()).collect();
    }
}
