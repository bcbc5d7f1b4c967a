//! Funding requests: a member asks for more, an owner grants, changes or declines it with a reason, and everyone whom
//! it concerns can read both.

use crate::budgets::{BudgetDoc, Budgets, Share, is_name, join};
use crate::changes;
use crate::error::Refused;
use crate::plain::printable;
use crate::record::Body;
use crate::requests::check_reason;
use crate::site::Site;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What somebody asked for, and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Funding {
    /// Its number: that of its record.
    pub id: u64,
    /// Who asked.
    pub by: String,
    /// When, in milliseconds since the site was created.
    pub asked_ms: u64,
    /// For which budget; one that is not there yet is to be made.
    pub budget: String,
    /// Which share among its siblings.
    pub share: Share,
    /// The share that it had; none if it was not there.
    pub share_before: Option<Share>,
    /// How many GPUs that was then, on average, if it was asked for so.
    pub gpus: Option<f64>,
    /// From when on, in milliseconds since the site was created; at once if there is none.
    pub from_ms: Option<u64>,
    /// Why.
    pub reason: String,
    /// What was decided, if it was.
    pub decision: Option<FundingDecision>,
}

/// What was decided on a funding request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FundingDecision {
    /// By whom.
    pub by: String,
    /// When, in milliseconds since the site was created.
    pub at_ms: u64,
    /// What.
    pub ruling: Ruling,
    /// Why.
    pub reason: String,
}

/// What may be decided on a funding request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "ruling")]
pub enum Ruling {
    /// The budget gets this share.
    Granted {
        /// The share, which may be another than was asked for.
        #[schema(value_type = f64)]
        share: Share,
    },
    /// Nothing changes.
    Declined,
    /// Whoever asked took it back.
    Withdrawn,
}

/// How much is asked for, or granted.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HowMuch {
    /// A share among its siblings.
    #[schema(value_type = Option<f64>, minimum = 0)]
    pub share: Option<Share>,
    /// So many GPUs on average: the share that gives them, as all shares and hosts are now.
    #[schema(minimum = 0)]
    pub gpus: Option<f64>,
}

/// How many requests may wait for a decision.
const OPEN_MAX: usize = 2_000;

/// The budget above; empty for the root.
fn above(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(above, _)| above)
}

impl Site {
    /// A funding request.
    #[must_use]
    pub fn funding(&self, id: u64) -> Option<&Funding> {
        self.funding.get(&id)
    }

    /// Funding requests that a person may see, the latest first: those of their own, of budgets of which they are
    /// owners or members, and of budgets above those.
    pub fn funding_for<'a>(&'a self, user: &'a str) -> impl Iterator<Item = &'a Funding> {
        self.funding.values().rev().filter(move |one| self.sees_funding(user, one))
    }

    /// Whether a person may see a funding request.
    #[must_use]
    pub fn sees_funding(&self, user: &str, one: &Funding) -> bool {
        let below = format!("{}/", one.budget);
        one.by == user
            || self.budgets.is_member(user, &one.budget)
            || self
                .budgets
                .paths()
                .any(|path| path.starts_with(&below) && self.budgets.is_member(user, path))
    }

    /// Whether a person may grant or decline a funding request: owners of a budget above.
    #[must_use]
    pub fn may_rule(&self, user: &str, one: &Funding) -> bool {
        let above = above(&one.budget);
        self.budgets.is_root_owner(user)
            || (!above.is_empty() && self.budgets.is_owner(user, above))
    }

    /// How many GPUs a budget may hold on average, if it has this share: of those in service, the others as they are.
    /// For a budget that is not there, as if it were.
    #[must_use]
    pub fn gpus_of_share(&self, path: &str, share: Share) -> f64 {
        let (others, parent_gpus) = self.beside(path);
        let all = others + share.0 as f64;
        if all == 0.0 { 0.0 } else { parent_gpus * share.0 as f64 / all }
    }

    /// The shares of all siblings in millionths, and how many GPUs the budget above may hold on average.
    fn beside(&self, path: &str) -> (f64, f64) {
        let above = above(path);
        let siblings = if above.is_empty() {
            Some(&self.budgets.tree)
        } else {
            self.budgets.get(above).map(|doc| &doc.children)
        };
        let others = siblings.into_iter().flatten().filter(|(name, _)| join(above, name) != path);
        let others: u64 = others.map(|(_, doc)| doc.share.0).sum();
        let state = self.scheduler.state();
        let fraction = match self.budgets.index(above) {
            Some(node) => state.tree.fraction(node) as f64 / (1u64 << 32) as f64,
            None => 1.0,
        };
        let occupancy = state.occupancy();
        let gpus = occupancy.allocated + occupancy.unallocated + occupancy.idle;
        (others as f64, fraction * gpus as f64)
    }

    /// The share that is meant, and in GPUs if it was said so.
    fn share_of(&self, path: &str, wanted: HowMuch) -> Result<(Share, Option<f64>), Refused> {
        let (share, gpus) = (wanted.share, wanted.gpus);
        match (share, gpus) {
            (Some(share), None) => Ok((share, None)),
            (None, Some(gpus)) => {
                let (others, most) = self.beside(path);
                if !(gpus.is_finite() && gpus >= 0.0) {
                    return Err(Refused::invalid(format!("gpus: {gpus} is no number of GPUs")));
                }
                if gpus == 0.0 {
                    return Ok((Share(0), Some(gpus)));
                }
                if gpus >= most || others == 0.0 {
                    let above = match above(path) {
                        "" => "the whole cluster".to_owned(),
                        above => format!("'{above}'"),
                    };
                    return Err(Refused::invalid(format!(
                        "gpus: {gpus} is not less than the {most:.1} that {above} may hold on average for all below it; ask for less, or name a share"
                    )));
                }
                // Four decimals: nobody divides finer, and people read it.
                let share = others * gpus / (most - gpus);
                Ok((Share(((share / 100.0).round() as u64).max(1) * 100), Some(gpus)))
            }
            _ => Err(Refused::invalid("say how much: either share or gpus")),
        }
    }

    /// A member asks for more, or for a budget of its own.
    ///
    /// # Errors
    /// If they have no part in the budget (or in the one above it, for one that is not there), or it is not said how
    /// much and why.
    pub fn ask_funding(
        &self,
        user: &str,
        budget: &str,
        wanted: HowMuch,
        from_ms: Option<u64>,
        reason: &str,
    ) -> Result<Body, Refused> {
        let known = self.budgets.get(budget);
        let whose = if known.is_some() { budget } else { above(budget) };
        let has_part = self.budgets.is_root_owner(user)
            || (!whose.is_empty() && self.budgets.is_member(user, whose));
        if !has_part {
            return Err(Refused::forbidden(format!(
                "there is no budget '{}' that you belong to; a new one can be asked for below one that you belong to",
                printable(budget)
            )));
        }
        let name = budget.rsplit('/').next().unwrap_or_default();
        if known.is_none() && !is_name(name) {
            return Err(Refused::invalid(format!("budget: '{}' is no name", printable(name))));
        }
        if reason.trim().is_empty() {
            return Err(Refused::invalid("reason: say what it is for, in 1 to 1000 characters"));
        }
        check_reason(reason)?;
        if from_ms.is_some_and(|from| from <= self.now_ms()) {
            return Err(Refused::invalid("from: the moment is past; leave it out for now"));
        }
        let (share, gpus) = self.share_of(budget, wanted)?;
        if known.is_some_and(|doc| doc.share == share) {
            return Err(Refused::invalid(format!(
                "'{budget}' has this share already: {} of its siblings'",
                share.0 as f64 / 1e6
            )));
        }
        if self.funding.values().filter(|one| one.decision.is_none()).count() >= OPEN_MAX {
            return Err(Refused::conflict(format!(
                "{OPEN_MAX} requests wait for a decision already"
            )));
        }
        Ok(Body::FundingAsked {
            budget: budget.to_owned(),
            share,
            gpus,
            from_ms,
            reason: reason.to_owned(),
        })
    }

    fn open_request(&self, user: &str, id: u64) -> Result<&Funding, Refused> {
        let found = self.funding.get(&id).filter(|one| self.sees_funding(user, one));
        let one =
            found.ok_or_else(|| Refused::not_found(format!("there is no funding request {id}")))?;
        match &one.decision {
            None => Ok(one),
            Some(decision) => Err(Refused::conflict(format!(
                "funding request {id} was decided by {} already",
                decision.by
            ))),
        }
    }

    /// The tree as it is when a request is granted with this share.
    ///
    /// # Errors
    /// If the tree has changed so that it cannot be made.
    pub fn tree_if_granted(&self, one: &Funding, share: Share) -> Result<Budgets, Refused> {
        let mut tree = self.budgets.tree.clone();
        let above = above(&one.budget);
        let names = above.split('/').filter(|name| !name.is_empty());
        let level = names.into_iter().try_fold(&mut tree, |level, name| {
            level.get_mut(name).map(|doc: &mut BudgetDoc| &mut doc.children)
        });
        let Some(level) = level else {
            return Err(Refused::conflict(format!("there is no budget '{above}' any more")));
        };
        let name = one.budget.rsplit('/').next().unwrap_or_default().to_owned();
        level.entry(name).and_modify(|doc| doc.share = share).or_insert_with(|| BudgetDoc {
            share,
            members: vec![one.by.clone()],
            ..BudgetDoc::default()
        });
        Budgets::new(self.budgets.version + 1, tree, self.budgets.owners.clone())
    }

    /// An owner of a budget above grants a request, with the share that was asked for or another. It holds at once,
    /// or from the moment that was asked for.
    ///
    /// # Errors
    /// If `user` owns no budget above, or the request is decided, or the tree cannot be so.
    pub fn grant_funding(
        &self,
        user: &str,
        id: u64,
        other: Option<HowMuch>,
        reason: &str,
    ) -> Result<Vec<Body>, Refused> {
        let one = self.open_request(user, id)?;
        self.must_rule(user, one)?;
        check_reason(reason)?;
        let share = match other {
            Some(other) => self.share_of(&one.budget, other)?.0,
            None => one.share,
        };
        let new = self.tree_if_granted(one, share)?;
        self.check_change(user, &new)?;
        let why = format!("funding request {id} of {}: {}", one.by, one.reason);
        let why: String = why.chars().take(1000).collect();
        let change = match one.from_ms.filter(|&from| from > self.now_ms()) {
            Some(effective_ms) => Body::ChangeScheduled {
                effective_ms,
                reason: why,
                edits: changes::diff(&self.budgets, &new),
            },
            None => self.changed(new, &why, None),
        };
        let decided = Body::FundingDecided {
            request: id,
            ruling: Ruling::Granted { share },
            reason: reason.to_owned(),
        };
        Ok(vec![decided, change])
    }

    /// An owner of a budget above declines a request, and says why.
    ///
    /// # Errors
    /// If `user` owns no budget above, the request is decided, or no reason is given.
    pub fn decline_funding(&self, user: &str, id: u64, reason: &str) -> Result<Body, Refused> {
        let one = self.open_request(user, id)?;
        self.must_rule(user, one)?;
        if reason.trim().is_empty() {
            return Err(Refused::invalid(
                "reason: whoever asked and all below can read it; say why, in 1 to 1000 characters",
            ));
        }
        check_reason(reason)?;
        let (ruling, reason) = (Ruling::Declined, reason.to_owned());
        Ok(Body::FundingDecided { request: id, ruling, reason })
    }

    /// Whoever asked takes it back.
    ///
    /// # Errors
    /// If it is another's, or decided.
    pub fn withdraw_funding(&self, user: &str, id: u64) -> Result<Body, Refused> {
        let one = self.open_request(user, id)?;
        if one.by != user {
            return Err(Refused::forbidden(format!(
                "funding request {id} is {}'s; its budget's owners may decline it",
                one.by
            )));
        }
        let ruling = Ruling::Withdrawn;
        Ok(Body::FundingDecided { request: id, ruling, reason: String::new() })
    }

    fn must_rule(&self, user: &str, one: &Funding) -> Result<(), Refused> {
        if self.may_rule(user, one) {
            return Ok(());
        }
        Err(Refused::forbidden(format!(
            "only owners of a budget above '{}' decide on its funding",
            one.budget
        )))
    }

    pub(crate) fn fold_asked(&mut self, funding: Funding) {
        self.funding.insert(funding.id, funding);
    }

    pub(crate) fn fold_decided(
        &mut self,
        request: u64,
        decision: FundingDecision,
    ) -> Result<(), String> {
        let one = self.funding.get_mut(&request);
        let one = one.ok_or_else(|| format!("there is no funding request {request}"))?;
        one.decision = Some(decision);
        Ok(())
    }
}
