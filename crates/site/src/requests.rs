//! What people ask for. Everything that could be wrong with a request is refused here, before it is
//! journaled: what a site accepted, its fold can always apply.

use crate::budgets::{BudgetDoc, Budgets, is_name};
use crate::changes::{self, Change, Edit, Scheduled};
use crate::declare::{Accepted, Declared, Element, WorkloadDoc};
use crate::error::{Refused, RefusedKind};
use crate::plain::{obeyed, printable};
use crate::plan::hash_of;
use crate::record::{Body, BudgetsChanged, Submitted, TokenIssued};
use crate::site::Site;
use crate::terms::lay_out;
use crate::work::{Stage, Work};
use bursar_core::HostState;
use std::collections::BTreeMap;
use subtle::ConstantTimeEq as _;

/// A submission that is accepted, and what its submitter should be told.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The records to journal together: one for each workload, none if the same key was used before.
    pub bodies: Vec<Body>,
    /// The workload's number; the first one's of an array.
    pub workload: u64,
    /// How many workloads it is.
    pub count: u32,
    /// What is kept, with defaults and advice.
    pub accepted: Accepted,
    /// Why it is held, if it is.
    pub held: Option<String>,
}

impl Site {
    /// Whose secret this is, if it is a token's that is not void. Compared by hash, so that the time it takes
    /// tells nothing about a secret.
    #[must_use]
    pub fn authenticate(&self, secret: &str, now_ms: u64) -> Option<&TokenIssued> {
        self.token_of(secret, now_ms).ok()
    }

    /// As [`Site::authenticate`]; why it is refused is told to whoever has the secret, and to nobody else.
    ///
    /// # Errors
    /// One sentence.
    pub fn token_of(&self, secret: &str, now_ms: u64) -> Result<&TokenIssued, String> {
        let hash = hash_of(secret);
        // Every token is compared in full, whichever fits: where a search ends would tell something, too.
        let mut found = None;
        for entry in self.tokens.values() {
            let same: bool = entry.0.secret_sha256.as_bytes().ct_eq(hash.as_bytes()).into();
            if same {
                found = Some(entry);
            }
        }
        let Some((token, good)) = found else {
            return Err("this site does not know it".to_owned());
        };
        let name = &token.token;
        if !good {
            return Err(format!("token '{name}' was revoked"));
        }
        match token.expires_ms.filter(|&expires| expires <= now_ms) {
            Some(expired) => {
                let ago = (now_ms - expired) / 1_000 * 1_000;
                Err(format!("token '{name}' expired {} ago", crate::declare::span_text(ago)))
            }
            None => Ok(token),
        }
    }

    /// A workload of `user`, or an array of them. The same key gives the same again. With `hold` it does not
    /// enter the queue before it is released, and may even be one that has no room here.
    pub fn submit(
        &self,
        user: &str,
        doc: WorkloadDoc,
        key: Option<&str>,
        hold: bool,
    ) -> Result<Submission, Refused> {
        let sent = key.map(|_| crate::sent::digest(&doc, hold));
        let accepted = doc.accept(user, &self.created.settings)?;
        let declared = &accepted.declared;
        let may = self.budgets.is_member(user, &declared.budget);
        if !may || self.budgets.get(&declared.budget).is_none() {
            // Whether it exists is not for others to know.
            let told = format!(
                "budget_owner: there is no budget '{}' that you may submit to; {}",
                printable(&declared.budget),
                self.budgets_of_member(user, &declared.budget)
            );
            return Err(if may { Refused::invalid(told) } else { Refused::forbidden(told) });
        }
        self.check_for_whom(user, &declared.user, &declared.budget)?;
        if let Some(key) = key {
            if key.is_empty() || key.len() > 128 {
                return Err(Refused::invalid("idempotency key: give it 1 to 128 characters"));
            }
            if let Some(number) = self.by_key(user, key) {
                let work = &self.works[&number];
                let same = match &work.sent {
                    Some(before) => sent.as_ref() == Some(before),
                    // Records of before have what was kept of it only.
                    None => work.declared == elements(&accepted, number)[0],
                };
                if !same {
                    return Err(Refused::conflict(format!(
                        "idempotency key: it was used for workload {number}, which is another one"
                    )));
                }
                let count = work.declared.element.map_or(1, |element| element.size);
                let held = work.held.clone();
                return Ok(Submission { bodies: vec![], workload: number, count, accepted, held });
            }
        }
        let held = match self.check_fit(&accepted.declared) {
            Err(refused) if hold && refused.kind == RefusedKind::NeverFits => Some(refused.message),
            Err(refused) if refused.kind == RefusedKind::NeverFits => {
                let message = format!("{}; --hold keeps it until there is room", refused.message);
                return Err(Refused { message, ..refused });
            }
            Err(refused) => return Err(refused),
            Ok(()) => hold.then(|| format!("by {user}, at submit")),
        };
        for after in &declared.after {
            let known = self.works.get(&after.workload);
            if !known.is_some_and(|work| self.may_see(user, work)) {
                return Err(Refused::not_found(format!(
                    "after: there is no workload {} that you may see",
                    after.workload
                )));
            }
        }
        self.must_be_reachable(declared)?;
        let first = self.next_number();
        let bodies: Vec<Body> = elements(&accepted, first)
            .into_iter()
            .zip(first..)
            .map(|(declared, workload)| {
                Body::Submitted(Box::new(Submitted {
                    workload,
                    declared,
                    idempotency_key: key.filter(|_| workload == first).map(str::to_owned),
                    sent_sha256: sent.clone().filter(|_| workload == first),
                    held: held.clone(),
                    arrived: None,
                }))
            })
            .collect();
        let count = bodies.len() as u32;
        Ok(Submission { bodies, workload: first, count, accepted, held })
    }

    /// What somebody may submit to: the name that is nearest to what they wrote, and some others.
    fn budgets_of_member(&self, user: &str, wanted: &str) -> String {
        const LISTED: usize = 8;
        let leaves = self.budgets.paths().filter(|path| {
            self.budgets.is_member(user, path)
                && self.budgets.get(path).is_some_and(|budget| budget.children.is_empty())
        });
        let names: Vec<&str> = leaves.collect();
        match &names[..] {
            [] => "you may submit to none; an owner of a budget makes you a member of it".into(),
            [only] => format!("yours is {only}"),
            many => {
                let near = crate::yaml::nearest(wanted, many);
                let shown = many[..many.len().min(LISTED)].join(", ");
                let more = if many.len() > LISTED { " …" } else { "" };
                format!("the nearest of yours is '{near}' (yours: {shown}{more})")
            }
        }
    }

    pub(crate) fn check_fit(&self, declared: &Declared) -> Result<(), Refused> {
        let spec = self.spec(self.next_number(), declared).map_err(Refused::invalid)?;
        let state = self.scheduler.state();
        if state.tree.leaf_place(spec.budget).is_none() {
            let below = self.budgets.get(&declared.budget).map(|budget| &budget.children);
            let names: Vec<&str> = below.into_iter().flatten().map(|(n, _)| n.as_str()).collect();
            return Err(Refused::invalid(format!(
                "budget_owner: '{}' is divided; name one below it: {}",
                declared.budget,
                names.join(", ")
            )));
        }
        if spec.min_runtime > state.settings.horizon {
            let most = state.settings.horizon;
            return Err(Refused::invalid(format!("min_runtime: above the horizon {most}")));
        }
        if state.cluster.asks(spec.gpus, spec.shape, spec.model).next().is_none() {
            let largest = state.cluster.largest_gang(spec.model);
            let hosts = self.created.hosts.len();
            let of = declared.gpu_model.as_deref().unwrap_or("one model");
            return Err(Refused {
                kind: RefusedKind::NeverFits,
                message: format!(
                    "gpus: {} can never be placed here: the largest gang of {of} that the {hosts} host{} of this site can hold has {largest} GPUs",
                    spec.gpus,
                    if hosts == 1 { "" } else { "s" }
                ),
            });
        }
        Ok(())
    }

    /// Whether a person may see a workload: their own, and those of budgets they own or are members of.
    #[must_use]
    pub fn may_see(&self, user: &str, work: &Work) -> bool {
        work.declared.user == user || self.budgets.is_member(user, &work.declared.budget)
    }

    /// A workload that a person may see.
    pub fn visible(&self, user: &str, number: u64) -> Result<&Work, Refused> {
        let found = self.works.get(&number).filter(|work| self.may_see(user, work));
        found.ok_or_else(|| {
            Refused::not_found(format!("there is no workload {number} that you may see"))
        })
    }

    /// A workload that a person may do something with: its submitter, or an owner of its budget.
    fn own(&self, user: &str, number: u64, what: &str) -> Result<&Work, Refused> {
        let work = self.visible(user, number)?;
        if work.declared.user != user && !self.budgets.is_owner(user, &work.declared.budget) {
            return Err(Refused::forbidden(format!(
                "workload {number} is {}'s; only they or an owner of '{}' may {what} it",
                work.declared.user, work.declared.budget
            )));
        }
        Ok(work)
    }

    /// The end of all workloads of an array that have not ended, named by any of them.
    pub fn cancel_array(&self, user: &str, number: u64) -> Result<Vec<Body>, Refused> {
        let work = self.own(user, number, "cancel")?;
        let Some(element) = work.declared.element else {
            return Err(Refused::invalid(format!("workload {number} is of no array")));
        };
        let open = self
            .elements(&element)
            .filter(|one| !one.cancelled && !matches!(one.stage, Stage::Ended(_)));
        let bodies: Vec<Body> = open.map(|one| Body::Cancelled { workload: one.number }).collect();
        if bodies.is_empty() {
            return Err(Refused::conflict(format!("array {} has ended already", element.array)));
        }
        Ok(bodies)
    }

    /// A held workload may enter the queue.
    pub fn release_held(&self, user: &str, number: u64) -> Result<Body, Refused> {
        let work = self.own(user, number, "release")?;
        if work.held.is_none() || work.stage != Stage::Waits {
            return Err(Refused::conflict(format!("workload {number} is not held")));
        }
        self.check_still_member(work)?;
        self.check_fit(&work.declared)?;
        Ok(Body::Released { workload: number })
    }

    /// A workload leaves its GPUs and waits again, after the checkpoint signal and its grace; one that has ended
    /// runs once more.
    pub fn requeue(&self, user: &str, number: u64) -> Result<Body, Refused> {
        let work = self.own(user, number, "requeue")?;
        self.check_still_member(work)?;
        let conflict = |what: &str| Err(Refused::conflict(format!("workload {number} {what}")));
        match (work.stage, work.latest()) {
            (Stage::Waits, _) => conflict("waits already"),
            (Stage::Ended(_), _) => {
                // The tree may have changed since it ran.
                self.check_fit(&work.declared)?;
                Ok(Body::Requeued { workload: number })
            }
            (Stage::Live(_), _) if work.cancelled => conflict("is being cancelled"),
            (Stage::Live(_), Some(latest)) if latest.ended_ms.is_none() => {
                if latest.started_ms.is_none() {
                    return conflict("is just starting; ask again when it runs");
                }
                if work.requeue_by_ms.is_some() || latest.eviction.is_some() {
                    return conflict("is leaving already");
                }
                Ok(Body::Requeued { workload: number })
            }
            (Stage::Live(_), _) => conflict("waits already"),
        }
    }

    /// The end of a workload, asked for by who submitted it or who owns its budget.
    pub fn cancel(&self, user: &str, number: u64) -> Result<Body, Refused> {
        let work = self.own(user, number, "cancel")?;
        if let Stage::Ended(_) = work.stage {
            return Err(Refused::conflict(format!("workload {number} has ended already")));
        }
        if work.cancelled {
            return Err(Refused::conflict(format!("workload {number} is being cancelled already")));
        }
        Ok(Body::Cancelled { workload: number })
    }

    /// A checkpoint of the latest attempt, told by its workload.
    pub fn checkpoint(&self, user: &str, number: u64) -> Result<Body, Refused> {
        let work = self.own(user, number, "report about")?;
        match work.latest() {
            Some(latest) if latest.started_ms.is_some() && latest.ended_ms.is_none() => {
                Ok(Body::Checkpointed { workload: number, attempt: latest.number })
            }
            _ => Err(Refused::conflict(format!("workload {number} does not run"))),
        }
    }

    /// A new budget tree in place of version `base`.
    pub fn change_budgets(
        &self,
        user: &str,
        base: u64,
        budgets: BTreeMap<String, BudgetDoc>,
        owners: Option<Vec<String>>,
        reason: &str,
    ) -> Result<Body, Refused> {
        let new = self.wanted_budgets(user, base, budgets, owners, reason)?;
        Ok(self.changed(new, reason, None))
    }

    /// What a new budget tree in place of version `base` would change.
    pub fn diff_budgets(
        &self,
        user: &str,
        base: u64,
        budgets: BTreeMap<String, BudgetDoc>,
        owners: Option<Vec<String>>,
    ) -> Result<Vec<Edit>, Refused> {
        let new = self.wanted_budgets(user, base, budgets, owners, "only asked for")?;
        Ok(changes::diff(&self.budgets, &new))
    }

    /// A new budget tree from a later moment on. What is kept are its edits of version `base`; when the moment
    /// comes they must still fit, and `user` must still be allowed to make them.
    pub fn schedule_budgets(
        &self,
        user: &str,
        base: u64,
        budgets: BTreeMap<String, BudgetDoc>,
        owners: Option<Vec<String>>,
        reason: &str,
        effective_ms: u64,
    ) -> Result<Body, Refused> {
        if effective_ms <= self.now_ms() {
            return Err(Refused::invalid(
                "effective: the moment is past; leave it out to change the budgets now",
            ));
        }
        if self.scheduled.len() >= SCHEDULED_MAX {
            return Err(Refused::conflict(format!(
                "{SCHEDULED_MAX} change sets wait for their moment already; withdraw one"
            )));
        }
        let new = self.wanted_budgets(user, base, budgets, owners, reason)?;
        let edits = changes::diff(&self.budgets, &new);
        Ok(Body::ChangeScheduled { effective_ms, reason: reason.to_owned(), edits })
    }

    fn wanted_budgets(
        &self,
        user: &str,
        base: u64,
        budgets: BTreeMap<String, BudgetDoc>,
        owners: Option<Vec<String>>,
        reason: &str,
    ) -> Result<Budgets, Refused> {
        if base != self.budgets.version {
            return Err(Refused::conflict(format!(
                "base version {base} is stale: the budgets are at version {}; look at what changed and try again",
                self.budgets.version
            )));
        }
        if reason.trim().is_empty() {
            return Err(Refused::invalid("reason: say why, in 1 to 1000 characters"));
        }
        check_reason(reason)?;
        let owners = owners.unwrap_or_else(|| self.budgets.owners.clone());
        let new = Budgets::new(base + 1, budgets, owners)?;
        self.check_change(user, &new)?;
        Ok(new)
    }

    /// Whether a person may put `new` in place of the tree in force, and nobody's work is left without a budget.
    pub(crate) fn check_change(&self, user: &str, new: &Budgets) -> Result<(), Refused> {
        if new.owners.is_empty() || !new.owners.iter().all(|owner| is_name(owner)) {
            return Err(Refused::invalid("owners: the root needs at least one, by user name"));
        }
        self.budgets.may_change(user, new)?;
        for work in self.works.values().filter(|work| !matches!(work.stage, Stage::Ended(_))) {
            let path = &work.declared.budget;
            if !new.get(path).is_some_and(|budget| budget.children.is_empty()) {
                return Err(Refused::conflict(format!(
                    "budget '{path}' has workload {} that waits or runs; cancel it or let it end before the budget goes or is divided",
                    work.number
                )));
            }
        }
        Ok(())
    }

    /// What becomes of the first change set whose moment has come: it is made, or dropped with the reason. With
    /// the person whose it is.
    #[must_use]
    pub fn due_change(&self, now_ms: u64) -> Option<(String, Body)> {
        let due = self.scheduled.values().filter(|one| one.effective_ms <= now_ms);
        let one = due.min_by_key(|one| (one.effective_ms, one.id))?;
        let made = changes::apply(&one.edits, &self.budgets)
            .and_then(|new| self.check_change(&one.author, &new).map(|()| new));
        let body = match made {
            Ok(new) => self.changed(new, &one.reason, Some(one.id)),
            Err(refused) => Body::ScheduleDropped { change: one.id, why: refused.message },
        };
        Some((one.author.clone(), body))
    }

    /// The moment of the next scheduled change set.
    #[must_use]
    pub fn next_change_ms(&self) -> Option<u64> {
        self.scheduled.values().map(|one| one.effective_ms).min()
    }

    /// Change sets that wait for their moment, as far as a person may see what they edit.
    pub fn scheduled_for(&self, user: &str) -> impl Iterator<Item = Scheduled> {
        self.scheduled.values().filter_map(move |one| {
            let edits = self.visible_edits(user, &one.edits);
            let shown = one.author == user || !edits.is_empty();
            shown.then(|| Scheduled { edits, ..one.clone() })
        })
    }

    /// What every version of the tree changed, latest first, as far as a person may see it.
    pub fn history_for(&self, user: &str) -> impl Iterator<Item = Change> {
        self.changes.iter().rev().filter_map(move |one| {
            let edits = self.visible_edits(user, &one.edits);
            (!edits.is_empty()).then(|| Change { edits, ..one.clone() })
        })
    }

    fn visible_edits(&self, user: &str, edits: &[Edit]) -> Vec<Edit> {
        let root = self.budgets.is_root_owner(user);
        let sees = |edit: &&Edit| root || self.budgets.is_member(user, edit.path());
        edits.iter().filter(sees).cloned().collect()
    }

    /// A scheduled change set is withdrawn, by its author or an owner of the root.
    pub fn withdraw(&self, user: &str, change: u64) -> Result<Body, Refused> {
        let found = self.scheduled.get(&change);
        let found = found.filter(|one| one.author == user || self.budgets.is_root_owner(user));
        if found.is_none() {
            return Err(Refused::not_found(format!(
                "there is no scheduled change set {change} of yours"
            )));
        }
        Ok(Body::ScheduleDropped { change, why: format!("withdrawn by {user}") })
    }

    fn must_operate(&self, user: &str) -> Result<(), Refused> {
        if self.budgets.is_root_owner(user) {
            return Ok(());
        }
        Err(Refused::forbidden("only operators (owners of the root) may do that"))
    }

    /// A drain (rule 9).
    pub fn drain(&self, user: &str, host: &str, reason: &str) -> Result<Body, Refused> {
        self.must_operate(user)?;
        check_reason(reason)?;
        let index = self.host_index(host).ok_or_else(|| no_host(host))?;
        match self.scheduler.state().cluster.host(index).state {
            HostState::Up => {
                let (host, reason) = (host.to_owned(), reason.to_owned());
                Ok(Body::DrainStarted { host, reason, by_engine: false })
            }
            HostState::Draining => Err(Refused::conflict(format!("host {host} drains already"))),
            HostState::Drained => Err(Refused::conflict(format!("host {host} is drained"))),
            HostState::Down => Err(Refused::conflict(format!("host {host} is down"))),
        }
    }

    /// The end of a drain, or of a repair.
    pub fn undrain(&self, user: &str, host: &str) -> Result<Body, Refused> {
        self.must_operate(user)?;
        let index = self.host_index(host).ok_or_else(|| no_host(host))?;
        if self.scheduler.state().cluster.host(index).state == HostState::Up {
            return Err(Refused::conflict(format!("host {host} is in service already")));
        }
        // It would be drained again at once: whoever closed it in the engine opens it there.
        if let Some((reason, true)) = self.host_reasons.get(host) {
            return Err(Refused::conflict(format!(
                "host {host} was not closed here ({}): open it there, and it is in service here",
                printable(reason)
            )));
        }
        Ok(Body::HostUp { host: host.to_owned() })
    }

    /// A token for `for_user`, by themselves or an owner of the root. The secret stays with the caller.
    pub fn issue_token(
        &self,
        user: &str,
        name: &str,
        for_user: &str,
        secret: &str,
        expires_in_ms: Option<u64>,
        read_only: bool,
    ) -> Result<Body, Refused> {
        if user != for_user {
            self.must_operate(user)?;
        }
        if !is_name(name) || !is_name(for_user) {
            return Err(Refused::invalid(
                "token and user are named by letters, digits, '-', '_', '.'",
            ));
        }
        if self.tokens.contains_key(name) {
            return Err(Refused::conflict(format!("token '{name}' exists; choose another name")));
        }
        let expires_ms = expires_in_ms.map(|span| self.now_ms().saturating_add(span));
        Ok(Body::TokenIssued(TokenIssued {
            token: name.to_owned(),
            user: for_user.to_owned(),
            secret_sha256: hash_of(secret),
            expires_ms,
            read_only,
        }))
    }

    /// The end of a token, by whose it is or an owner of the root.
    pub fn revoke_token(&self, user: &str, name: &str) -> Result<Body, Refused> {
        let unknown = || Refused::not_found(format!("there is no token '{}'", printable(name)));
        let (token, good) = self.tokens.get(name).ok_or_else(unknown)?;
        if token.user != user && !self.budgets.is_root_owner(user) {
            return Err(unknown());
        }
        if !good {
            return Err(Refused::conflict(format!("token '{name}' is void already")));
        }
        Ok(Body::TokenRevoked { token: name.to_owned() })
    }

    /// The tokens that a person may see: their own, an owner of the root all; with whether each is good.
    pub fn tokens_of(&self, user: &str) -> impl Iterator<Item = (&TokenIssued, bool)> {
        let all = self.budgets.is_root_owner(user);
        let tokens = self.tokens.values().map(|(token, good)| (token, *good));
        tokens.filter(move |(token, _)| all || token.user == user)
    }

    /// Other settings of those that no decision of the core depends on; none if they are so already.
    pub fn change_settings(
        &self,
        default_min_runtime_ms: u64,
        warn_before_ms: u64,
    ) -> Result<Option<Body>, Refused> {
        let known = &self.created.settings;
        if default_min_runtime_ms > known.horizon_ms {
            return Err(Refused::invalid(format!(
                "default_min_runtime: {} is above the horizon; give at most {}",
                crate::declare::span_text(default_min_runtime_ms),
                crate::declare::span_text(known.horizon_ms)
            )));
        }
        let same = (known.default_min_runtime_ms, known.warn_before_ms)
            == (default_min_runtime_ms, warn_before_ms);
        Ok((!same).then_some(Body::SettingsChanged { default_min_runtime_ms, warn_before_ms }))
    }
}

/// How many change sets may wait for their moment.
const SCHEDULED_MAX: usize = 1_000;

impl Site {
    /// The record that puts a tree in force now.
    pub(crate) fn changed(&self, new: Budgets, reason: &str, scheduled: Option<u64>) -> Body {
        let laid = lay_out(&self.created, &new.tree, self.now_ms(), &self.terms);
        Body::BudgetsChanged(BudgetsChanged {
            version: new.version,
            reason: reason.to_owned(),
            budgets: new.tree,
            owners: new.owners,
            scheduled,
            terms: laid.terms,
            terms_until_ms: laid.until_ms,
        })
    }
}

/// What each workload of a submission declares: one, or the elements of an array that begins at `first`.
fn elements(accepted: &Accepted, first: u64) -> Vec<Declared> {
    let Some(array) = &accepted.array else { return vec![accepted.declared.clone()] };
    let size = array.indices.len() as u32;
    let element = |&index: &u64| Declared {
        name: format!("{}[{index}]", accepted.declared.name),
        element: Some(Element { array: first, index, size, at_once: array.at_once }),
        ..accepted.declared.clone()
    };
    array.indices.iter().map(element).collect()
}

/// A reason is shown to many: on one line, and not a book.
pub(crate) fn check_reason(reason: &str) -> Result<(), Refused> {
    if reason.chars().count() > 1000 || reason.chars().any(obeyed) {
        return Err(Refused::invalid(
            "reason: at most 1000 characters on one line, without control characters or marks of direction",
        ));
    }
    Ok(())
}

fn no_host(host: &str) -> Refused {
    Refused::not_found(format!("there is no host '{}'", printable(host)))
}
