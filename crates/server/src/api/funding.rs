//! Funding requests, and transfers between terms.

use super::Shared;
use super::answer::{Answer, Json};
use super::caller::{Caller, must_write};
use super::document::{Refusals, RefusedChanges};
use super::problem::Problem;
use super::read::{Number, PAGE_MAX, Query, Sent, SentIfAny, page_of};
use super::workloads::unix;
use crate::clock::Clock as _;
use crate::effect::Effect;
use crate::export::History;
use axum::extract::State;
use axum::http::StatusCode;
use bursar_site::Site;
use bursar_site::budgets::Share;
use bursar_site::funding::{Funding, HowMuch, Ruling};
use bursar_site::terms::Every;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use utoipa::{IntoParams, ToSchema};

/// What somebody asked for, and what became of it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct FundingView {
    /// Its number.
    request: u64,
    /// Who asked.
    by: String,
    /// When.
    asked_unix_ms: u64,
    /// For which budget; one that is not there yet is to be made.
    budget: String,
    /// Which share among its siblings.
    #[schema(value_type = f64)]
    share: Share,
    /// The share that it had when it was asked; none if it was not there.
    #[schema(value_type = Option<f64>)]
    share_before: Option<Share>,
    /// How many GPUs that was then, on average, if it was asked for so.
    gpus: Option<f64>,
    /// How many GPUs it may hold on average now, as shares and hosts are.
    gpus_now: f64,
    /// The same, if it is granted as it was asked for.
    gpus_if_granted: f64,
    /// From when on; at once if there is none.
    from_unix_ms: Option<u64>,
    /// Why.
    reason: String,
    /// What was decided; none while it is open.
    decision: Option<DecisionView>,
    /// Whether one may grant or decline it.
    may_decide: bool,
}

/// What was decided.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct DecisionView {
    /// By whom.
    by: String,
    /// When.
    at_unix_ms: u64,
    /// What.
    #[serde(flatten)]
    ruling: Ruling,
    /// Why.
    reason: String,
}

fn view(site: &Site, unix: &impl Fn(u64) -> u64, user: &str, one: &Funding) -> FundingView {
    let now = site.budgets.get(&one.budget).map_or(Share(0), |doc| doc.share);
    FundingView {
        request: one.id,
        by: one.by.clone(),
        asked_unix_ms: unix(one.asked_ms),
        budget: one.budget.clone(),
        share: one.share,
        share_before: one.share_before,
        gpus: one.gpus,
        gpus_now: site.gpus_of_share(&one.budget, now),
        gpus_if_granted: site.gpus_of_share(&one.budget, one.share),
        from_unix_ms: one.from_ms.map(unix),
        reason: one.reason.clone(),
        decision: one.decision.as_ref().map(|decision| DecisionView {
            by: decision.by.clone(),
            at_unix_ms: unix(decision.at_ms),
            ruling: decision.ruling,
            reason: decision.reason.clone(),
        }),
        may_decide: one.decision.is_none() && site.may_rule(user, one),
    }
}

/// Which requests.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct FundingQuery {
    /// Decided ones, too.
    #[serde(default)]
    all: bool,
    /// Only those for this budget and what is below it.
    budget: Option<String>,
    /// Only requests before this one.
    before: Option<u64>,
    /// How many at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Funding requests.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct FundingAnswer {
    /// The latest first.
    requests: Vec<FundingView>,
    /// What to ask `before` for the next page; none on the last.
    next_before: Option<u64>,
}

/// Funding requests that one may see: one's own, those for budgets of which one is a member or owner, and for those
/// above.
#[utoipa::path(
    get, path = "/v1/funding", tag = "funding", params(FundingQuery),
    responses((status = 200, description = "The latest first.", body = FundingAnswer), Refusals)
)]
pub(super) async fn list(
    caller: Caller,
    Query(query): Query<FundingQuery>,
) -> Answer<FundingAnswer> {
    let limit = page_of(query.limit)?.min(PAGE_MAX);
    caller
        .ask(move |daemon, token| {
            let (site, unix, user) = (daemon.site(), unix(daemon), token.user.as_str());
            let is_below = |path: &str| match query.budget.as_deref() {
                None | Some("") => true,
                Some(above) => path
                    .strip_prefix(above)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
            };
            let mut found: Vec<&Funding> = site
                .funding_for(user)
                .filter(|one| query.all || one.decision.is_none())
                .filter(|one| query.before.is_none_or(|before| one.id < before))
                .filter(|one| is_below(&one.budget))
                .take(limit + 1)
                .collect();
            let more = found.len() > limit;
            found.truncate(limit);
            let next_before = more.then(|| found.last().map(|one| one.id)).flatten();
            let requests = found.into_iter().map(|one| view(site, &unix, user, one)).collect();
            Ok(Json(FundingAnswer { requests, next_before }))
        })
        .await
}

/// A funding request.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"budget": "program-a/a1", "gpus": 32, "reason": "the sweep for the paper"}))]
pub(super) struct FundingRequest {
    /// For which budget; a new one below a budget to which one belongs.
    budget: String,
    /// Which share among its siblings; or `gpus`.
    #[schema(value_type = Option<f64>, minimum = 0)]
    share: Option<Share>,
    /// So many GPUs on average: the share that gives them, as all other shares and the hosts are now.
    #[schema(minimum = 0)]
    gpus: Option<f64>,
    /// From when on, in milliseconds since 1970; at once unless given.
    from_unix_ms: Option<u64>,
    /// Why: owners decide by it, and everybody whom it concerns can read it.
    #[schema(min_length = 1, max_length = 1000)]
    reason: String,
}

/// Asks for funding.
#[utoipa::path(
    post, path = "/v1/funding", tag = "funding",
    request_body(content = FundingRequest, description = "JSON; or the same as YAML."),
    responses((status = 200, description = "It waits for an owner's decision.", body = FundingView), RefusedChanges)
)]
pub(super) async fn ask(caller: Caller, Sent(wanted): Sent<FundingRequest>) -> Answer<FundingView> {
    caller
        .ask(move |daemon, token| {
            must_write(&token)?;
            let FundingRequest { budget, share, gpus, from_unix_ms, reason } = wanted;
            let created_ms = daemon.clock().unix_ms(0);
            let from_ms = from_unix_ms.map(|at| at.saturating_sub(created_ms));
            let user = token.user;
            let record = daemon.ask(&user, |site| {
                site.ask_funding(&user, &budget, HowMuch { share, gpus }, from_ms, &reason)
            })?;
            let site = daemon.site();
            let one = site.funding(record.seq).expect("it was folded");
            Ok(Json(view(site, &unix(daemon), &user, one)))
        })
        .await
}

fn seen<'a>(site: &'a Site, user: &str, number: u64) -> Result<&'a Funding, Problem> {
    let found = site.funding(number).filter(|one| site.sees_funding(user, one));
    found.ok_or_else(|| {
        bursar_site::Refused::not_found(format!("there is no funding request {number}")).into()
    })
}

/// A funding request.
#[utoipa::path(
    get, path = "/v1/funding/{number}", tag = "funding",
    params(("number" = u64, Path, description = "The request.", example = 4711)),
    responses((status = 200, description = "What was asked, and what became of it.", body = FundingView), Refusals)
)]
pub(super) async fn show(caller: Caller, Number(number): Number) -> Answer<FundingView> {
    caller
        .ask(move |daemon, token| {
            let site = daemon.site();
            let one = seen(site, &token.user, number)?;
            Ok(Json(view(site, &unix(daemon), &token.user, one)))
        })
        .await
}

/// Over how long.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EffectQuery {
    /// The last so many milliseconds; seven days unless given.
    #[param(minimum = 1)]
    last_ms: Option<u64>,
    /// As if it were granted with this share instead.
    share: Option<f64>,
}

/// What granting a request would do: the last days played again by the simulator, with the budgets as they are and as
/// they would be; waits and what was delivered, side by side. Of budgets that one may not see only sums are told. For
/// whoever may decide.
#[utoipa::path(
    get, path = "/v1/funding/{number}/effect", tag = "funding",
    params(("number" = u64, Path, description = "The request.", example = 4711), EffectQuery),
    responses((status = 200, description = "Now and then.", body = Effect), RefusedChanges)
)]
pub(super) async fn effect(
    caller: Caller,
    State(shared): State<Shared>,
    Number(number): Number,
    Query(query): Query<EffectQuery>,
) -> Answer<Effect> {
    let other = match query.share.map(|share| serde_json::from_value(share.into())) {
        None => None,
        Some(Ok(share)) => Some(share),
        Some(Err(error)) => return Err(Problem::invalid(format!("share: {error}"))),
    };
    let user = caller.user().await?;
    // It takes a core for seconds: one at a time for each of them.
    let _busy = shared.dry_runs_of_one.enter(&user).ok_or_else(Problem::busy)?;
    let gather = caller.ask(move |daemon, token| {
        let (site, user) = (daemon.site(), token.user);
        let one = seen(site, &user, number)?;
        if !site.may_rule(&user, one) {
            return Err(bursar_site::Refused::forbidden(format!(
                "only owners of a budget above '{}' decide on its funding",
                one.budget
            ))
            .into());
        }
        let then = site.tree_if_granted(one, other.unwrap_or(one.share))?.tree;
        let now_ms = daemon.now_ms();
        let last_ms = query.last_ms.unwrap_or(7 * 86_400_000).min(now_ms);
        // What lies before only fills the lookback.
        let warm_up = site.created.settings.lookback_ms.min(now_ms - last_ms);
        let history = History::of(site, now_ms, Some(last_ms + warm_up));
        let paths = site.budgets.paths().map(str::to_owned);
        let hidden: BTreeSet<String> =
            paths.filter(|path| !site.budgets.is_member(&user, path)).collect();
        Ok((history, site.budgets.tree.clone(), then, warm_up, hidden))
    });
    let (history, now, then, from_ms, hidden) = gather.await?;
    let run =
        move || crate::effect::effect(history, &now, &then, from_ms, |path| !hidden.contains(path));
    let played = tokio::task::spawn_blocking(run).await.map_err(|_| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the daemon is stopping")
    })?;
    played.map(Json).map_err(|why| bursar_site::Refused::conflict(why).into())
}

/// How a request is granted.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Grant {
    /// Another share than was asked for.
    #[schema(value_type = Option<f64>, minimum = 0)]
    share: Option<Share>,
    /// Or another number of GPUs on average.
    #[schema(minimum = 0)]
    gpus: Option<f64>,
    /// What to say to it.
    #[serde(default)]
    #[schema(max_length = 1000)]
    reason: String,
}

/// Grants a request, as it was asked for or otherwise: the budgets change now, or when it was asked for.
#[utoipa::path(
    post, path = "/v1/funding/{number}/grant", tag = "funding",
    params(("number" = u64, Path, description = "The request.", example = 4711)),
    request_body(content = Option<Grant>, description = "JSON; or the same as YAML; or nothing."),
    responses((status = 200, description = "It is granted.", body = FundingView), RefusedChanges)
)]
pub(super) async fn grant(
    caller: Caller,
    Number(number): Number,
    SentIfAny(how): SentIfAny<Grant>,
) -> Answer<FundingView> {
    decide(caller, number, move |site, user| {
        let other = (how.share.is_some() || how.gpus.is_some())
            .then_some(HowMuch { share: how.share, gpus: how.gpus });
        site.grant_funding(user, number, other, &how.reason)
    })
    .await
}

/// Why a request is declined.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Decline {
    /// Everybody whom it concerns can read it.
    #[schema(min_length = 1, max_length = 1000)]
    reason: String,
}

/// Declines a request.
#[utoipa::path(
    post, path = "/v1/funding/{number}/decline", tag = "funding",
    params(("number" = u64, Path, description = "The request.", example = 4711)),
    request_body(content = Decline, description = "JSON; or the same as YAML."),
    responses((status = 200, description = "It is declined.", body = FundingView), RefusedChanges)
)]
pub(super) async fn decline(
    caller: Caller,
    Number(number): Number,
    Sent(why): Sent<Decline>,
) -> Answer<FundingView> {
    decide(caller, number, move |site, user| {
        Ok(vec![site.decline_funding(user, number, &why.reason)?])
    })
    .await
}

/// Takes back a request of one's own.
#[utoipa::path(
    post, path = "/v1/funding/{number}/withdraw", tag = "funding",
    params(("number" = u64, Path, description = "The request.", example = 4711)),
    responses((status = 200, description = "It is withdrawn.", body = FundingView), RefusedChanges)
)]
pub(super) async fn withdraw(caller: Caller, Number(number): Number) -> Answer<FundingView> {
    decide(caller, number, move |site, user| Ok(vec![site.withdraw_funding(user, number)?])).await
}

async fn decide(
    caller: Caller,
    number: u64,
    rule: impl FnOnce(&Site, &str) -> Result<Vec<bursar_site::Body>, bursar_site::Refused>
    + Send
    + 'static,
) -> Answer<FundingView> {
    caller
        .ask(move |daemon, token| {
            must_write(&token)?;
            let user = token.user;
            daemon.ask_for(&user, |site| Ok((rule(site, &user)?, ())))?;
            let site = daemon.site();
            let one = seen(site, &user, number)?;
            Ok(Json(view(site, &unix(daemon), &user, one)))
        })
        .await
}

/// GPU-hours that go from one term to another.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"from": "program-a/a1", "to": "program-a/a2", "gpu_hours": 120, "reason": "a1 is done for November"}))]
pub(super) struct TransferRequest {
    /// The budget that gives.
    from: String,
    /// The budget that gets: below the same one.
    to: String,
    /// How many GPU-hours at rate 1.
    #[schema(minimum = 0)]
    gpu_hours: f64,
    /// Of which term, where they share several.
    each: Option<Every>,
    /// Why.
    #[serde(default)]
    #[schema(max_length = 1000)]
    reason: String,
}

/// What was transferred.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Transferred {
    /// Thousandths of a GPU-hour.
    milli_gpu_hours: u64,
    /// What the term of the one that gave has left.
    from: Vec<bursar_site::terms::TermView>,
    /// How the terms of the one that got stand.
    to: Vec<bursar_site::terms::TermView>,
}

/// GPU-hours of a term that holds now go to the same term of a sibling, for this once. For owners of both.
#[utoipa::path(
    post, path = "/v1/budgets/transfer", tag = "budgets",
    request_body(content = TransferRequest, description = "JSON; or the same as YAML."),
    responses((status = 200, description = "They are transferred.", body = Transferred), RefusedChanges)
)]
pub(super) async fn transfer(
    caller: Caller,
    Sent(wanted): Sent<TransferRequest>,
) -> Answer<Transferred> {
    caller
        .ask(move |daemon, token| {
            must_write(&token)?;
            let TransferRequest { from, to, gpu_hours, each, reason } = wanted;
            let user = token.user;
            let record = daemon
                .ask(&user, |site| site.transfer(&user, &from, &to, gpu_hours, each, &reason))?;
            let bursar_site::Body::Transferred { milli_gpu_hours, .. } = record.body else {
                unreachable!("a transfer was asked for")
            };
            let site = daemon.site();
            let (from, to) = (site.term_views(&from), site.term_views(&to));
            Ok(Json(Transferred { milli_gpu_hours, from, to }))
        })
        .await
}
