//! The site: the fold of its records over the core.

use crate::budgets::Budgets;
use crate::changes::{self, Change, Scheduled};
use crate::declare::Declared;
use crate::error::ReplayError;
use crate::funding::{Funding, FundingDecision};
use crate::outcome::stop_of;
use crate::record::{
    Body, BudgetsChanged, Created, Outcome, Record, Submitted, TermSpan, TokenIssued,
};
use crate::work::{Attempt, Ending, Stage, Work};
use bursar_core::{
    Event, HostIx, HostSpec, ModelIx, Scheduler, Settings, SpanMs, State, Status, Stop, TimeMs,
    Tree, WorkloadIx, WorkloadSpec,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A live site. Everything in it follows from its records.
pub struct Site {
    /// What the site is, with its settings as they are in force.
    pub created: Created,
    /// The budget tree in force.
    pub budgets: Budgets,
    pub(crate) scheduler: Scheduler,
    /// Models, in the order of the core's indices.
    pub(crate) models: Vec<String>,
    /// What one unit of the ledger is worth, in thousandths of a GPU-millisecond at rate 1.
    pub(crate) rate_step: u64,
    pub(crate) seq: u64,
    pub(crate) works: BTreeMap<u64, Work>,
    pub(crate) open: crate::open::Open,
    /// Which workload a place of the core is.
    pub(crate) places: BTreeMap<WorkloadIx, u64>,
    pub(crate) next_number: u64,
    /// Numbers below this are not given to anybody, though no record has them.
    pub(crate) numbers_from: u64,
    pub(crate) keys: BTreeMap<(String, String), u64>,
    pub(crate) tokens: BTreeMap<String, (TokenIssued, bool)>,
    /// Why hosts drain or are down, and whether their engine says so.
    pub(crate) host_reasons: BTreeMap<String, (String, bool)>,
    /// For each host which of its GPUs an attempt has.
    pub(crate) gpu_owners: Vec<Vec<Option<u64>>>,
    /// For each workload who waits for it.
    pub(crate) dependents: BTreeMap<u64, Vec<u64>>,
    /// What every version of the tree changed, oldest first.
    pub(crate) changes: Vec<Change>,
    /// Workloads that had ended and were asked to run again, in that order.
    pub(crate) run_again: Vec<u64>,
    /// Change sets that wait for their moment, by number.
    pub(crate) scheduled: BTreeMap<u64, Scheduled>,
    /// Workloads that came through the engine's own queue, by their names there.
    pub(crate) arrivals: BTreeMap<String, u64>,
    /// Hard limits that hold for a time, as they were laid out.
    pub(crate) terms: Vec<TermSpan>,
    /// Until when, if there are any.
    pub(crate) terms_until_ms: Option<u64>,
    /// Funding requests, by number.
    pub(crate) funding: BTreeMap<u64, Funding>,
    /// When hosts left service and came back, oldest first. All are in service at the beginning.
    pub(crate) service: Vec<Service>,
    /// What was said of hosts, oldest first.
    pub(crate) host_log: Vec<HostSaid>,
}

/// Something was said of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSaid {
    /// When, in milliseconds since the site was created.
    pub at_ms: u64,
    /// Its place among the site's hosts.
    pub host: u32,
    /// What.
    pub what: HostTurn,
}

/// What becomes of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostTurn {
    /// It is to be emptied.
    Drain,
    /// It failed.
    Fail,
    /// It is back, or its drain is called off.
    Repair,
}

/// A host left service or came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Service {
    /// When, in milliseconds since the site was created.
    pub(crate) at_ms: u64,
    /// Its place among the site's hosts.
    pub(crate) host: u32,
    /// Whether it is in service from then on. A draining host is until it is drained.
    pub(crate) is_in: bool,
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Where a name is in a list, at the end of it if it was not there.
fn place<'a>(names: &mut Vec<&'a str>, name: &'a str) -> u32 {
    let at = names.iter().position(|other| *other == name).unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    });
    at as u32
}

pub(crate) fn rate_of(created: &Created, model: &str) -> u64 {
    created.rates_milli.get(model).copied().unwrap_or(1000)
}

/// The GPU models of a site in the order of the core's indices, and what one unit of the ledger is worth in
/// thousandths of a GPU-millisecond at rate 1.
pub(crate) fn models_of(created: &Created) -> (Vec<String>, u64) {
    let mut models = Vec::new();
    for host in &created.hosts {
        place(&mut models, &host.model);
    }
    let step = models.iter().map(|model| rate_of(created, model)).fold(0, gcd).max(1);
    (models.into_iter().map(str::to_owned).collect(), step)
}

impl Site {
    /// The site of a journal's first two records: what it is, and its first budgets.
    pub fn new(first: &Record, second: &Record) -> Result<Self, ReplayError> {
        let fault = |record: &Record, what: String| ReplayError { seq: record.seq, what };
        let Body::Created(created) = &first.body else {
            return Err(fault(first, "a journal begins with what its site is".into()));
        };
        let Body::BudgetsChanged(change) = &second.body else {
            return Err(fault(second, "after what a site is its first budgets come".into()));
        };
        let budgets = budgets_of(change).map_err(|refused| fault(second, refused.message))?;
        if created.hosts.is_empty() {
            return Err(fault(first, "a site needs at least one host".into()));
        }
        let (models, rate_step) = models_of(created);
        let mut domains: Vec<&str> = Vec::new();
        let hosts: Vec<HostSpec> = created
            .hosts
            .iter()
            .map(|host| HostSpec {
                gpus: host.gpus,
                model: ModelIx(
                    models.iter().position(|model| *model == host.model).expect("listed") as u32,
                ),
                domain: place(&mut domains, host.domain.as_deref().unwrap_or("")),
            })
            .collect();
        let rates = models.iter().map(|model| rate_of(created, model) / rate_step).collect();
        let given = &created.settings;
        let settings = Settings {
            lookback: SpanMs(given.lookback_ms),
            horizon: SpanMs(given.horizon_ms),
            grace: SpanMs(given.grace_ms),
            margin_ppm: given.margin_ppm,
            reservations: given.reservations,
            reservation_age: SpanMs(given.reservation_age_ms),
            debug_hosts: given.debug_hosts,
        };
        let per_hour = 3_600_000 * 1_000 / u128::from(rate_step);
        let tree = Tree::new(budgets.nodes(per_hour, &change.terms, |_| 0));
        let state = State::new(settings, &hosts, rates, tree);
        let policy = bursar_core::BudgetPolicy::new(&state);
        let first_change = Change {
            version: change.version,
            at_ms: second.at_ms,
            author: second.actor.clone(),
            reason: change.reason.clone(),
            edits: changes::diff(&Budgets::default(), &budgets),
        };
        Ok(Self {
            created: created.clone(),
            budgets,
            changes: vec![first_change],
            run_again: Vec::new(),
            scheduled: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            terms: change.terms.clone(),
            terms_until_ms: change.terms_until_ms,
            funding: BTreeMap::new(),
            service: Vec::new(),
            host_log: Vec::new(),
            scheduler: Scheduler::new(state, Box::new(policy)),
            gpu_owners: hosts.iter().map(|host| vec![None; host.gpus as usize]).collect(),
            models,
            rate_step,
            seq: second.seq,
            works: BTreeMap::new(),
            open: crate::open::Open::default(),
            places: BTreeMap::new(),
            next_number: 1,
            numbers_from: 0,
            keys: BTreeMap::new(),
            tokens: BTreeMap::new(),
            host_reasons: BTreeMap::new(),
            dependents: BTreeMap::new(),
        })
    }

    /// The latest record that was folded.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    /// The site's moment, in milliseconds since it was created. Records never go back before it.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.scheduler.state().now().0
    }

    /// The number that the next workload gets.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.next_number.max(self.numbers_from)
    }

    /// From now on workloads get numbers from this one on: something of those below it may be left, from a history
    /// that the journal does not have. No record says so; whoever folds the journal again says it again.
    pub const fn skip_numbers(&mut self, from: u64) {
        self.numbers_from = from;
    }

    /// Workloads that had ended and were asked to run again, in that order, as often as they were.
    #[must_use]
    pub fn run_again(&self) -> &[u64] {
        &self.run_again
    }

    /// A workload.
    #[must_use]
    pub fn work(&self, number: u64) -> Option<&Work> {
        self.works.get(&number)
    }

    /// All workloads, oldest first.
    pub fn works(&self) -> impl DoubleEndedIterator<Item = &Work> {
        self.works.values()
    }

    /// The workload that a submission with this key made before.
    #[must_use]
    pub fn by_key(&self, user: &str, key: &str) -> Option<u64> {
        self.keys.get(&(user.to_owned(), key.to_owned())).copied()
    }

    pub(crate) fn host_index(&self, name: &str) -> Option<HostIx> {
        let at = self.created.hosts.iter().position(|host| host.name == name)?;
        Some(HostIx(at as u32))
    }

    pub(crate) fn spec(&self, number: u64, declared: &Declared) -> Result<WorkloadSpec, String> {
        let span = |ms: Option<u64>| ms.map(SpanMs);
        let budget = self.budgets.index(&declared.budget);
        let model = match &declared.gpu_model {
            None => None,
            Some(name) => {
                let at = self.models.iter().position(|model| model == name);
                let at = at.ok_or_else(|| format!("gpu_model: no host here has '{name}'"))?;
                Some(ModelIx(at as u32))
            }
        };
        Ok(WorkloadSpec {
            tie: number,
            budget: budget.ok_or_else(|| format!("there is no budget '{}'", declared.budget))?,
            gpus: declared.gpus,
            shape: declared.shape,
            model,
            min_runtime: SpanMs(declared.min_runtime_ms),
            max_runtime: span(declared.max_runtime_ms),
            expected_runtime: None,
            resumable: declared.resumable,
            rank: declared.rank,
            checkpoint_interval: span(declared.checkpoint_interval_ms),
            checkpoint_on_signal: declared.checkpoint_on_signal,
            grace: Some(SpanMs(declared.grace_ms)),
            startup: SpanMs::ZERO,
        })
    }

    /// Folds one record. What a request could get wrong was refused before it was journaled (see
    /// [`crate::requests`]), so an error here means a journal that does not fit this binary.
    pub fn apply(&mut self, record: &Record) -> Result<(), ReplayError> {
        let fault = |what: String| ReplayError { seq: record.seq, what };
        if record.seq != self.seq + 1 {
            return Err(fault(format!("it follows record {}; one is missing", self.seq)));
        }
        if record.at_ms < self.now_ms() {
            return Err(fault(format!(
                "its moment {} lies before {}",
                record.at_ms,
                self.now_ms()
            )));
        }
        let at = TimeMs(record.at_ms);
        self.fold(at, record).map_err(fault)?;
        self.seq = record.seq;
        Ok(())
    }

    fn fold(&mut self, at: TimeMs, record: &Record) -> Result<(), String> {
        match &record.body {
            Body::Created(_) => Err("a site is created once".into()),
            Body::BudgetsChanged(change) => self.fold_budgets(at, change, record.actor.clone()),
            Body::ChangeScheduled { effective_ms, reason, edits } => {
                let author = record.actor.clone().ok_or("a change set has an author")?;
                let scheduled = Scheduled {
                    id: record.seq,
                    author,
                    asked_ms: at.0,
                    effective_ms: *effective_ms,
                    reason: reason.clone(),
                    edits: edits.clone(),
                };
                self.scheduled.insert(record.seq, scheduled);
                Ok(())
            }
            Body::ScheduleDropped { change, .. } => {
                let dropped = self.scheduled.remove(change);
                dropped.map(|_| ()).ok_or_else(|| format!("no change set {change} is scheduled"))
            }
            Body::TermsLaidOut { terms, until_ms } => self.fold_terms(at, terms, *until_ms),
            Body::Transferred {
                from,
                from_series,
                to,
                to_series,
                term_from_ms,
                milli_gpu_hours,
                reason: _,
            } => self.fold_transfer(
                at,
                (from, *from_series),
                (to, *to_series),
                *term_from_ms,
                *milli_gpu_hours,
            ),
            Body::FundingAsked { budget, share, gpus, from_ms, reason } => {
                let by = record.actor.clone().ok_or("a funding request is somebody's")?;
                self.fold_asked(Funding {
                    id: record.seq,
                    by,
                    asked_ms: at.0,
                    budget: budget.clone(),
                    share: *share,
                    share_before: self.budgets.get(budget).map(|doc| doc.share),
                    gpus: *gpus,
                    from_ms: *from_ms,
                    reason: reason.clone(),
                    decision: None,
                });
                Ok(())
            }
            Body::FundingDecided { request, ruling, reason } => {
                let by = record.actor.clone().ok_or("a decision is somebody's")?;
                let (ruling, reason) = (*ruling, reason.clone());
                self.fold_decided(*request, FundingDecision { by, at_ms: at.0, ruling, reason })
            }
            Body::Submitted(submitted) => {
                self.fold_submission(at, submitted, record.actor.as_deref())
            }
            Body::Released { workload } => {
                let work = self.works.get_mut(workload);
                let work = work.ok_or_else(|| format!("no workload {workload}"))?;
                (work.held, work.held_until_ms) = (None, None);
                self.release(at, *workload)
            }
            Body::HeldBack { workload, why, until_ms } => {
                self.fold_held_back(at, *workload, why, *until_ms)
            }
            Body::Requeued { workload } => self.fold_requeue(at, *workload),
            Body::Cancelled { workload } => self.fold_cancel(at, *workload),
            Body::Found { workload, placement, since_ms } => {
                self.fold_found(at, *workload, placement, *since_ms)
            }
            Body::Ran { .. } => self.fold_ran(at, &record.body),
            Body::Started { workload, attempt, since_ms } => {
                let place = self.place_of(*workload, *attempt)?;
                let since = since_ms.map_or(at, TimeMs);
                self.event(at, Event::StartedAt(place, since))
            }
            Body::Stopped { workload, attempt, outcome, ended_ms, exit_code, detail, run } => {
                let place = self.place_of(*workload, *attempt)?;
                let asked = self.works.get(workload).is_some_and(|w| w.requeue_by_ms.is_some());
                let latest = self.latest_mut(*workload)?;
                latest.asked_to_requeue = asked && *outcome == Outcome::Left;
                latest.outcome = Some(*outcome);
                latest.exit_code = *exit_code;
                latest.detail.clone_from(detail);
                latest.run.clone_from(run);
                let left = *outcome == Outcome::Left;
                let told = self.scheduler.state().workload(place).status == Status::Preempting;
                // The core knows of those only that it told to leave; one that left for another reason (a
                // requeue) is its submitter's doing.
                let stop = if left && !told { Stop::Cancelled } else { stop_of(*outcome) };
                self.event(at, Event::StoppedAt(place, stop, ended_ms.map_or(at, TimeMs)))
            }
            Body::Checkpointed { workload, attempt } => {
                self.place_of(*workload, *attempt)?;
                self.latest_mut(*workload)?.checkpoint_ms = Some(at.0);
                Ok(())
            }
            Body::DrainStarted { host, reason, by_engine } => {
                self.host_reasons.insert(host.clone(), (reason.clone(), *by_engine));
                let host = self.known_host(host)?;
                self.host_turns(at, host, HostTurn::Drain, Event::DrainRequested(host))
            }
            Body::HostDown { host, reason, by_engine } => {
                self.host_reasons.insert(host.clone(), (reason.clone(), *by_engine));
                let host = self.known_host(host)?;
                self.host_turns(at, host, HostTurn::Fail, Event::HostFailed(host))
            }
            Body::HostUp { host } => {
                self.host_reasons.remove(host);
                let host = self.known_host(host)?;
                self.host_turns(at, host, HostTurn::Repair, Event::HostRepaired(host))
            }
            Body::Planned { decisions, hash } => {
                let planned = self.plan(at.0);
                if (planned.decisions, &planned.hash) == (*decisions, hash) {
                    return Ok(());
                }
                let first = planned.text.lines().next().unwrap_or("nothing");
                Err(format!(
                    "this binary decides otherwise: {} decisions here, {decisions} in the journal; the first here is: {first}",
                    planned.decisions
                ))
            }
            Body::SettingsChanged { default_min_runtime_ms, warn_before_ms } => {
                // Not the core's: it was given a copy of the others when the site was created.
                let settings = &mut self.created.settings;
                settings.default_min_runtime_ms = *default_min_runtime_ms;
                settings.warn_before_ms = *warn_before_ms;
                Ok(())
            }
            Body::TokenIssued(token) => {
                self.tokens.insert(token.token.clone(), (token.clone(), true));
                Ok(())
            }
            Body::TokenRevoked { token } => {
                let found = self.tokens.get_mut(token);
                found.ok_or_else(|| format!("there is no token '{token}'"))?.1 = false;
                Ok(())
            }
        }
    }

    fn known_host(&self, name: &str) -> Result<HostIx, String> {
        self.host_index(name).ok_or_else(|| format!("there is no host '{name}'"))
    }

    fn host_turns(
        &mut self,
        at: TimeMs,
        host: HostIx,
        what: HostTurn,
        event: Event,
    ) -> Result<(), String> {
        self.host_log.push(HostSaid { at_ms: at.0, host: host.0, what });
        self.event(at, event)
    }

    /// What was said of hosts, oldest first.
    #[must_use]
    pub fn host_log(&self) -> &[HostSaid] {
        &self.host_log
    }

    /// Every tree that was in force, and from when on, oldest first.
    #[must_use]
    pub fn trees(&self) -> Vec<(u64, Budgets)> {
        trees_of(&self.changes)
    }

    pub(crate) fn event(&mut self, at: TimeMs, event: Event) -> Result<(), String> {
        let result = self.scheduler.apply(at, event).map_err(|refusal| refusal.to_string());
        self.take_notices(at);
        result.map(|_| ())
    }

    fn fold_budgets(
        &mut self,
        at: TimeMs,
        change: &BudgetsChanged,
        author: Option<String>,
    ) -> Result<(), String> {
        let budgets = budgets_of(change).map_err(|refused| refused.message)?;
        self.take_terms(&change.terms, change.terms_until_ms);
        let nodes = self.nodes_with(&budgets, at);
        self.event(at, Event::TreeChanged(nodes))?;
        self.changes.push(Change {
            version: change.version,
            at_ms: at.0,
            author,
            reason: change.reason.clone(),
            edits: changes::diff(&self.budgets, &budgets),
        });
        if let Some(id) = change.scheduled {
            self.scheduled.remove(&id);
        }
        self.budgets = budgets;
        Ok(())
    }

    fn fold_submission(
        &mut self,
        at: TimeMs,
        submitted: &Submitted,
        actor: Option<&str>,
    ) -> Result<(), String> {
        let number = submitted.workload;
        if number < self.next_number {
            return Err(format!("workload {number} exists already"));
        }
        self.next_number = number + 1;
        if let (Some(key), Some(actor)) = (&submitted.idempotency_key, actor) {
            self.keys.insert((actor.to_owned(), key.clone()), number);
        }
        for after in &submitted.declared.after {
            self.dependents.entry(after.workload).or_default().push(number);
        }
        self.open.add(&submitted.declared.user);
        self.works.insert(
            number,
            Work {
                number,
                declared: submitted.declared.clone(),
                submitted_ms: at.0,
                stage: Stage::Waits,
                attempts: Vec::new(),
                cancelled: false,
                held: submitted.held.clone(),
                held_until_ms: None,
                sent: submitted.sent_sha256.clone(),
                requeue_by_ms: None,
                attempts_before: 0,
                spells: Vec::new(),
                arrived: submitted.arrived.clone(),
            },
        );
        if let Some(arrived) = &submitted.arrived {
            self.arrivals.insert(arrived.name.clone(), number);
        }
        self.release(at, number)
    }

    fn fold_requeue(&mut self, at: TimeMs, number: u64) -> Result<(), String> {
        let work = self.works.get_mut(&number).ok_or_else(|| format!("no workload {number}"))?;
        match work.stage {
            Stage::Ended(_) => {
                work.cancelled = false;
                work.wait_again();
                self.open.add(&work.declared.user);
                self.run_again.push(number);
                self.release(at, number)
            }
            Stage::Live(_) => {
                work.requeue_by_ms = Some(at.0.saturating_add(work.declared.grace_ms));
                Ok(())
            }
            Stage::Waits => Err(format!("workload {number} waits already")),
        }
    }

    fn fold_cancel(&mut self, at: TimeMs, number: u64) -> Result<(), String> {
        let work = self.works.get_mut(&number).ok_or_else(|| format!("no workload {number}"))?;
        work.cancelled = true;
        match work.stage {
            Stage::Waits => self.end(at, number, Ending::Cancelled),
            Stage::Ended(_) => Err(format!("workload {number} has ended")),
            Stage::Live(place) => match self.scheduler.state().workload(place).status {
                // An attempt that its engine may know of is stopped first.
                Status::Starting | Status::Running | Status::Preempting => Ok(()),
                Status::Queued | Status::Held | Status::Ended => {
                    self.event(at, Event::Cancelled(place))
                }
            },
        }
    }

    /// The place of a workload whose latest attempt is this one.
    fn place_of(&self, number: u64, attempt: u32) -> Result<WorkloadIx, String> {
        let work = self.works.get(&number).ok_or_else(|| format!("no workload {number}"))?;
        let Stage::Live(place) = work.stage else {
            return Err(format!("workload {number} is not live"));
        };
        match work.latest() {
            Some(latest) if latest.number == attempt && latest.ended_ms.is_none() => Ok(place),
            _ => Err(format!("workload {number} has no attempt {attempt} that could change")),
        }
    }

    fn latest_mut(&mut self, number: u64) -> Result<&mut Attempt, String> {
        let work = self.works.get_mut(&number).ok_or_else(|| format!("no workload {number}"))?;
        work.attempts.last_mut().ok_or_else(|| format!("workload {number} has no attempt"))
    }

    /// The core's name for a place, for canonical texts.
    pub(crate) fn number_at(&self, place: WorkloadIx) -> u64 {
        self.places.get(&place).copied().unwrap_or(0)
    }
}

/// The trees that changes made, one of the other. The edits fit, as they were made from one to the next.
pub(crate) fn trees_of(made: &[Change]) -> Vec<(u64, Budgets)> {
    let mut trees: Vec<(u64, Budgets)> = Vec::with_capacity(made.len());
    let mut last = Budgets::default();
    for change in made {
        let Ok(next) = changes::apply(&change.edits, &last) else { continue };
        trees.push((change.at_ms, next.clone()));
        last = next;
    }
    trees
}

fn budgets_of(change: &BudgetsChanged) -> Result<Budgets, crate::error::Refused> {
    Budgets::new(change.version, change.budgets.clone(), change.owners.clone())
}
