//! What people ask for. Everything that could be wrong with a request is refused here, before it is
//! journaled: what a site accepted, its fold can always apply.

use crate::budgets::{BudgetDoc, Budgets, is_name, printable};
use crate::declare::{Accepted, WorkloadDoc};
use crate::error::{Refused, RefusedKind};
use crate::plan::hash_of;
use crate::record::{Body, BudgetsChanged, Submitted, TokenIssued};
use crate::site::Site;
use crate::work::{Stage, Work};
use bursar_core::HostState;
use std::collections::BTreeMap;

/// A workload that may enter, and what its submitter should be told.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The record to journal; none if the same key was used before.
    pub body: Option<Body>,
    /// The workload's number.
    pub workload: u64,
    /// What is kept, with defaults and advice.
    pub accepted: Accepted,
}

impl Site {
    /// Whose secret this is, if it is a token's that is not void. Compared by hash, so that the time it takes
    /// tells nothing about a secret.
    #[must_use]
    pub fn authenticate(&self, secret: &str, now_ms: u64) -> Option<&TokenIssued> {
        let hash = hash_of(secret);
        let valid = |(token, good): &(TokenIssued, bool)| {
            let expired = token.expires_ms.is_some_and(|expires| expires <= now_ms);
            let same = token.secret_sha256.len() == hash.len()
                && token.secret_sha256.bytes().zip(hash.bytes()).fold(0, |d, (a, b)| d | (a ^ b))
                    == 0;
            same && *good && !expired
        };
        self.tokens.values().filter(|entry| valid(entry)).map(|(token, _)| token).next()
    }

    /// A workload of `user`. The same key gives the same workload again.
    pub fn submit(
        &self,
        user: &str,
        doc: WorkloadDoc,
        key: Option<&str>,
    ) -> Result<Submission, Refused> {
        let accepted = doc.accept(user, &self.created.settings)?;
        let declared = &accepted.declared;
        if !self.budgets.is_member(user, &declared.budget) {
            // Whether it exists is not for others to know.
            return Err(Refused::forbidden(format!(
                "budget_owner: there is no budget '{}' that you may submit to; yours are: {}",
                printable(&declared.budget),
                self.budgets_of_member(user)
            )));
        }
        if declared.user != user && !self.budgets.is_owner(user, &declared.budget) {
            return Err(Refused::forbidden(format!(
                "user: only an owner of '{}' may submit for somebody else",
                declared.budget
            )));
        }
        if let Some(key) = key {
            if key.is_empty() || key.len() > 128 {
                return Err(Refused::invalid("idempotency key: give it 1 to 128 characters"));
            }
            if let Some(number) = self.by_key(user, key) {
                if self.works[&number].declared != accepted.declared {
                    return Err(Refused::conflict(format!(
                        "idempotency key: it was used for workload {number}, which is another one"
                    )));
                }
                return Ok(Submission { body: None, workload: number, accepted });
            }
        }
        self.check_fit(&accepted)?;
        for after in &declared.after {
            let known = self.works.get(&after.workload);
            if !known.is_some_and(|work| self.may_see(user, work)) {
                return Err(Refused::not_found(format!(
                    "after: there is no workload {} that you may see",
                    after.workload
                )));
            }
        }
        let workload = self.next_number();
        let body = Body::Submitted(Submitted {
            workload,
            declared: accepted.declared.clone(),
            idempotency_key: key.map(str::to_owned),
        });
        Ok(Submission { body: Some(body), workload, accepted })
    }

    fn budgets_of_member(&self, user: &str) -> String {
        let leaves = self.budgets.paths().filter(|path| {
            self.budgets.is_member(user, path)
                && self.budgets.get(path).is_some_and(|budget| budget.children.is_empty())
        });
        let names: Vec<&str> = leaves.take(8).collect();
        if names.is_empty() { "none".into() } else { names.join(", ") }
    }

    fn check_fit(&self, accepted: &Accepted) -> Result<(), Refused> {
        let declared = &accepted.declared;
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

    /// The end of a workload, asked for by who submitted it or who owns its budget.
    pub fn cancel(&self, user: &str, number: u64) -> Result<Body, Refused> {
        let work = self.visible(user, number)?;
        if work.declared.user != user && !self.budgets.is_owner(user, &work.declared.budget) {
            return Err(Refused::forbidden(format!(
                "workload {number} is {}'s; only they or an owner of '{}' may cancel it",
                work.declared.user, work.declared.budget
            )));
        }
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
        let work = self.visible(user, number)?;
        if work.declared.user != user && !self.budgets.is_owner(user, &work.declared.budget) {
            return Err(Refused::forbidden(format!("workload {number} is not yours")));
        }
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
        if base != self.budgets.version {
            return Err(Refused::conflict(format!(
                "base version {base} is stale: the budgets are at version {}; look at what changed and try again",
                self.budgets.version
            )));
        }
        if reason.trim().is_empty() || reason.chars().count() > 1000 {
            return Err(Refused::invalid("reason: say why, in 1 to 1000 characters"));
        }
        let owners = owners.unwrap_or_else(|| self.budgets.owners.clone());
        if owners.is_empty() || !owners.iter().all(|owner| is_name(owner)) {
            return Err(Refused::invalid("owners: the root needs at least one, by user name"));
        }
        let version = base + 1;
        let new = Budgets::new(version, budgets, owners)?;
        self.budgets.may_change(user, &new)?;
        for work in self.works.values().filter(|work| !matches!(work.stage, Stage::Ended(_))) {
            let path = &work.declared.budget;
            if !new.get(path).is_some_and(|budget| budget.children.is_empty()) {
                return Err(Refused::conflict(format!(
                    "budget '{path}' has workload {} that waits or runs; cancel it or let it end before the budget goes or is divided",
                    work.number
                )));
            }
        }
        Ok(Body::BudgetsChanged(BudgetsChanged {
            version,
            reason: reason.to_owned(),
            budgets: new.tree,
            owners: new.owners,
        }))
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
        let index = self.host_index(host).ok_or_else(|| no_host(host))?;
        match self.scheduler.state().cluster.host(index).state {
            HostState::Up => {
                Ok(Body::DrainStarted { host: host.to_owned(), reason: reason.to_owned() })
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

    /// What a submission would cost if it ran for its contract, in GPU-milliseconds at rate 1.
    #[must_use]
    pub fn contract_gpu_ms(&self, accepted: &Accepted) -> u64 {
        u64::from(accepted.declared.gpus).saturating_mul(accepted.declared.min_runtime_ms)
    }

    /// When a submission would start, told by a copy of the core that takes it now: at once, or by when it is
    /// promised; none if nothing can be promised.
    #[must_use]
    pub fn would_start(&self, accepted: &Accepted) -> Option<WouldStart> {
        let mut copy = self.scheduler.clone();
        let spec = self.spec(self.next_number(), &accepted.declared).ok()?;
        let now = copy.state().now();
        let place = copy.apply(now, bursar_core::Event::Submitted(Box::new(spec))).ok()??;
        while let Some(decision) = copy.decide() {
            copy.commit(&decision, &mut |_| {});
        }
        let status = copy.state().workload(place).status;
        if status != bursar_core::Status::Queued {
            let grace = copy.why(place);
            let held = status == bursar_core::Status::Held;
            let until = crate::views::until_of(&grace).filter(|_| held).unwrap_or(now);
            return Some(WouldStart { in_ms: until.since(now).0, at_once: !held });
        }
        let why = copy.why(place);
        crate::views::until_of(&why)
            .map(|until| WouldStart { in_ms: until.since(now).0, at_once: false })
    }
}

/// When a workload would start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct WouldStart {
    /// In at most so many milliseconds.
    pub in_ms: u64,
    /// Whether that is now.
    pub at_once: bool,
}

fn no_host(host: &str) -> Refused {
    Refused::not_found(format!("there is no host '{}'", printable(host)))
}
