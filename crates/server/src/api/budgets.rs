//! The budget tree.

use super::answer::{Answer, Json};
use super::caller::{Caller, must_write};
use super::document::{Refusals, RefusedChanges};
use super::problem::Problem;
use super::read::{Number, PAGE_MAX, Query, Sent, page_of};
use super::workloads::unix;
use crate::clock::Clock as _;
use bursar_site::changes::{Change, Edit, Scheduled};
use bursar_site::views::BudgetView;
use bursar_site::{BudgetDoc, Site};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

/// Budgets that one may see.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct BudgetsAnswer {
    /// The version in force: the `base` of a change.
    version: u64,
    /// The root first, parents before children.
    budgets: Vec<BudgetView>,
    /// Who owns the root.
    owners: Vec<String>,
    /// The whole tree as it is changed; for owners of the root.
    tree: Option<BTreeMap<String, BudgetDoc>>,
    /// What lies below each budget that one owns, as it is changed with `at`; not below those within another.
    owned: BTreeMap<String, BTreeMap<String, BudgetDoc>>,
}

/// Budgets that one may see: those of which one is a member or owner, all below, and those above without their
/// members.
#[utoipa::path(
    get, path = "/v1/budgets", tag = "budgets",
    responses((status = 200, description = "How each stands.", body = BudgetsAnswer), Refusals)
)]
pub(super) async fn budgets(caller: Caller) -> Answer<BudgetsAnswer> {
    caller
        .ask(|daemon, token| {
            let site = daemon.site();
            let user = token.user.as_str();
            let operator = site.budgets.is_root_owner(user);
            let mut budgets = site.budget_views(user);
            for view in &mut budgets {
                // What lies above one's own is shown to say whom to ask, not who else is there.
                if !site.budgets.is_member(user, &view.path) {
                    view.members.clear();
                }
            }
            if !site.budgets.knows(user) {
                budgets.clear();
            }
            let owners = if budgets.is_empty() { Vec::new() } else { site.budgets.owners.clone() };
            Ok(Json(BudgetsAnswer {
                version: site.budgets.version,
                budgets,
                owners,
                tree: operator.then(|| site.budgets.tree.clone()),
                owned: if operator { BTreeMap::new() } else { owned_by(site, user) },
            }))
        })
        .await
}

fn owned_by(site: &Site, user: &str) -> BTreeMap<String, BTreeMap<String, BudgetDoc>> {
    let owns = |path: &str| site.budgets.is_owner(user, path);
    let topmost = site
        .budgets
        .paths()
        .filter(|path| owns(path) && path.rsplit_once('/').is_none_or(|(above, _)| !owns(above)));
    topmost
        .filter_map(|path| Some((path.to_owned(), site.budgets.get(path)?.children.clone())))
        .collect()
}

/// A change of the budget tree.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"base": 1, "reason": "a2 hired two people", "at": "program-a", "budgets": {"a1": {"share": 1}, "a2": {"share": 2}}}))]
pub(super) struct BudgetsRequest {
    /// The version that the change is based on.
    base: u64,
    /// Why.
    #[schema(min_length = 1, max_length = 1000)]
    reason: String,
    /// The budget below which `budgets` are to be; the root unless given. Who owns a budget divides it so.
    at: Option<String>,
    /// All budgets that are to be there.
    budgets: BTreeMap<String, BudgetDoc>,
    /// Who is to own the root; as before unless given.
    #[schema(min_items = 1)]
    owners: Option<Vec<String>>,
    /// From when on it is to hold, in milliseconds since 1970; from now on unless given.
    effective_unix_ms: Option<u64>,
}

/// How to change.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ChangeQuery {
    /// Only tell what it would change.
    #[serde(default)]
    dry_run: bool,
}

/// What a change did, or would.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Changed {
    /// The version in force now.
    version: u64,
    /// The number of the scheduled change set, if it waits for its moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduled: Option<u64>,
    /// What it changes.
    edits: Vec<EditView>,
}

/// One edit, with a line for people.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct EditView {
    #[serde(flatten)]
    edit: Edit,
    /// The same in a line.
    text: String,
}

fn views(edits: Vec<Edit>) -> Vec<EditView> {
    edits.into_iter().map(|edit| EditView { text: edit.to_string(), edit }).collect()
}

/// Changes the budget tree, below a budget that one owns, as a whole: now or from a later moment on. A stale
/// `base` is refused.
#[utoipa::path(
    put, path = "/v1/budgets", tag = "budgets", params(ChangeQuery),
    request_body(content = BudgetsRequest, description = "JSON; or the same as YAML, in which plain words and numbers are texts where texts are asked for."),
    responses((status = 200, description = "It is in force, waits for its moment, or was only looked at.", body = Changed), RefusedChanges)
)]
pub(super) async fn change_budgets(
    caller: Caller,
    Query(query): Query<ChangeQuery>,
    Sent(wanted): Sent<BudgetsRequest>,
) -> Answer<Changed> {
    caller
        .ask(move |daemon, token| {
            if !query.dry_run {
                must_write(&token)?;
            }
            let user = token.user;
            let BudgetsRequest { base, reason, at, budgets, owners, effective_unix_ms } = wanted;
            let created_ms = daemon.clock().unix_ms(0);
            let effective_ms = effective_unix_ms.map(|at| at.saturating_sub(created_ms));
            let tree = whole_tree(daemon.current()?, &user, at.as_deref(), budgets)?;
            let (records, edits) = daemon.ask_for(&user, |site| {
                let edits = site.diff_budgets(&user, base, tree.clone(), owners.clone())?;
                let body = match effective_ms {
                    _ if query.dry_run => None,
                    None => Some(site.change_budgets(&user, base, tree, owners, &reason)?),
                    Some(at) => {
                        Some(site.schedule_budgets(&user, base, tree, owners, &reason, at)?)
                    }
                };
                Ok((body.into_iter().collect(), edits))
            })?;
            let scheduled = effective_ms.and_then(|_| records.first()).map(|record| record.seq);
            let version = daemon.site().budgets.version;
            Ok(Json(Changed { version, scheduled, edits: views(edits) }))
        })
        .await
}

/// Which versions.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryQuery {
    /// Only versions before this one.
    before: Option<u64>,
    /// How many at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// A version of the tree.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct VersionView {
    /// The version.
    version: u64,
    /// When it came into force.
    at_unix_ms: u64,
    /// Through whom; none for the site's first budgets.
    author: Option<String>,
    /// Why.
    reason: String,
    /// What it changed, as far as one may see it.
    edits: Vec<EditView>,
}

/// Versions of the tree.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct HistoryAnswer {
    /// The latest first.
    versions: Vec<VersionView>,
    /// What to ask `before` for the next page; none on the last.
    next_before: Option<u64>,
}

/// Who changed what, when and why: versions that changed something one may see.
#[utoipa::path(
    get, path = "/v1/budgets/history", tag = "budgets", params(HistoryQuery),
    responses((status = 200, description = "The latest first.", body = HistoryAnswer), Refusals)
)]
pub(super) async fn history(
    caller: Caller,
    Query(query): Query<HistoryQuery>,
) -> Answer<HistoryAnswer> {
    let limit = page_of(query.limit)?;
    caller
        .ask(move |daemon, token| {
            let earlier = |one: &Change| query.before.is_none_or(|before| one.version < before);
            let mut found: Vec<Change> =
                daemon.site().history_for(&token.user).filter(earlier).take(limit + 1).collect();
            let more = found.len() > limit;
            found.truncate(limit);
            let next_before = more.then(|| found.last().map(|one| one.version)).flatten();
            let unix = unix(daemon);
            let versions = found.into_iter().map(|one| VersionView {
                version: one.version,
                at_unix_ms: unix(one.at_ms),
                author: one.author,
                reason: one.reason,
                edits: views(one.edits),
            });
            Ok(Json(HistoryAnswer { versions: versions.collect(), next_before }))
        })
        .await
}

/// A change set that waits for its moment.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct ScheduledView {
    /// Its number.
    change: u64,
    /// Through whom.
    author: String,
    /// When it was asked for.
    asked_unix_ms: u64,
    /// From when on it is to hold.
    effective_unix_ms: u64,
    /// Why.
    reason: String,
    /// What it will change, as far as one may see it.
    edits: Vec<EditView>,
}

/// Change sets that wait.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct ScheduledAnswer {
    /// By their moment.
    scheduled: Vec<ScheduledView>,
}

/// Change sets that wait for their moment. When it comes, what they edit must be as it was when they were asked
/// for, and their author must still be allowed to edit it; else they are dropped (the audit log says why).
#[utoipa::path(
    get, path = "/v1/budgets/scheduled", tag = "budgets",
    responses((status = 200, description = "By their moment.", body = ScheduledAnswer), Refusals)
)]
pub(super) async fn scheduled(caller: Caller) -> Answer<ScheduledAnswer> {
    caller
        .ask(|daemon, token| {
            let mut found: Vec<Scheduled> = daemon.site().scheduled_for(&token.user).collect();
            found.sort_by_key(|one| (one.effective_ms, one.id));
            found.truncate(PAGE_MAX);
            let unix = unix(daemon);
            let scheduled = found.into_iter().map(|one| ScheduledView {
                change: one.id,
                author: one.author,
                asked_unix_ms: unix(one.asked_ms),
                effective_unix_ms: unix(one.effective_ms),
                reason: one.reason,
                edits: views(one.edits),
            });
            Ok(Json(ScheduledAnswer { scheduled: scheduled.collect() }))
        })
        .await
}

/// A change set that is no longer scheduled.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Withdrawn {
    /// Its number.
    change: u64,
}

/// Withdraws a scheduled change set: its author, or an owner of the root.
#[utoipa::path(
    post, path = "/v1/budgets/scheduled/{number}/withdraw", tag = "budgets",
    params(("number" = u64, Path, description = "The change set.", example = 4711)),
    responses((status = 200, description = "It will not be made.", body = Withdrawn), RefusedChanges)
)]
pub(super) async fn withdraw(caller: Caller, Number(number): Number) -> Answer<Withdrawn> {
    caller
        .ask(move |daemon, token| {
            must_write(&token)?;
            daemon.ask(&token.user, |site| site.withdraw(&token.user, number))?;
            Ok(Json(Withdrawn { change: number }))
        })
        .await
}

/// The tree with `budgets` below `at`. Whoever does not own that is told nothing of what is there.
fn whole_tree(
    site: &Site,
    user: &str,
    at: Option<&str>,
    budgets: BTreeMap<String, BudgetDoc>,
) -> Result<BTreeMap<String, BudgetDoc>, Problem> {
    let Some(path) = at.filter(|path| !path.is_empty()) else {
        if site.budgets.is_root_owner(user) {
            return Ok(budgets);
        }
        return Err(Problem::forbidden(
            "only owners of the root may change the whole tree; name the budget that you own with `at`",
        ));
    };
    let mut tree = site.budgets.tree.clone();
    let found = site.budgets.is_owner(user, path).then(|| below(&mut tree, path)).flatten();
    let Some(children) = found else {
        return Err(Problem::forbidden(format!("at: there is no budget '{path}' that you own")));
    };
    *children = budgets;
    Ok(tree)
}

/// What lies below a budget.
fn below<'a>(
    tree: &'a mut BTreeMap<String, BudgetDoc>,
    path: &str,
) -> Option<&'a mut BTreeMap<String, BudgetDoc>> {
    path.split('/')
        .try_fold(tree, |children, name| children.get_mut(name).map(|budget| &mut budget.children))
}
