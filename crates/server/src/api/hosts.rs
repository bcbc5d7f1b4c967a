//! Hosts and their drains (rule 9).

use super::answer::{Answer, Json};
use super::caller::{Caller, must_write};
use super::document::{Refusals, RefusedChanges};
use super::read::{Name, SentIfAny};
use crate::clock::Clock as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A host and what is on it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct HostView {
    /// Its name.
    name: String,
    /// Its GPU model.
    model: String,
    /// How many GPUs it has.
    gpus: u32,
    /// How many run something.
    used: u32,
    /// `up`, `draining`, `drained` or `down`.
    state: String,
    /// Why it drains or is down.
    reason: Option<String>,
    /// By when it would be empty if it were drained now.
    empty_by_unix_ms: u64,
    /// The workloads on it that one may see.
    workloads: Vec<u64>,
}

/// Hosts.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct HostList {
    hosts: Vec<HostView>,
}

/// All hosts, with those of their workloads that one may see.
#[utoipa::path(
    get, path = "/v1/hosts", tag = "hosts",
    responses((status = 200, description = "In the order that placement prefers.", body = HostList), Refusals)
)]
pub(super) async fn hosts(caller: Caller) -> Answer<HostList> {
    caller
        .ask(|daemon, token| {
            let site = daemon.site();
            let sees = |number: &u64| {
                site.work(*number).is_some_and(|work| site.may_see(&token.user, work))
            };
            let view = |host: bursar_site::views::HostView| HostView {
                name: host.name,
                model: host.model,
                gpus: host.gpus,
                used: host.used,
                state: host.state.to_owned(),
                reason: host.reason,
                empty_by_unix_ms: daemon.clock().unix_ms(host.empty_by_ms),
                workloads: host.workloads.into_iter().filter(sees).collect(),
            };
            Ok(Json(HostList { hosts: site.host_views().into_iter().map(view).collect() }))
        })
        .await
}

/// Why a host is drained.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DrainRequest {
    /// Why, for those who wonder. Everybody with a token sees it.
    #[serde(default)]
    #[schema(max_length = 1000, example = "new power supply")]
    reason: String,
}

/// A drain that has begun.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Drained {
    /// The host.
    host: String,
    /// How many of its GPUs run something.
    used: u32,
    /// By when it is empty.
    empty_by_unix_ms: Option<u64>,
}

/// Begins to empty a host: nothing starts on it, and what runs keeps its protection. For owners of the root.
#[utoipa::path(
    post, path = "/v1/hosts/{name}/drain", tag = "hosts",
    params(("name" = String, Path, description = "The host.")),
    request_body(content = Option<DrainRequest>, description = "JSON; or the same as YAML, in which plain words and numbers are texts where texts are asked for."),
    responses((status = 200, description = "By when it will be empty.", body = Drained), RefusedChanges)
)]
pub(super) async fn drain(
    caller: Caller,
    Name(name): Name,
    SentIfAny(wanted): SentIfAny<DrainRequest>,
) -> Answer<Drained> {
    caller
        .ask(move |daemon, token| {
            must_write(&token)?;
            daemon.ask(&token.user, |site| site.drain(&token.user, &name, &wanted.reason))?;
            let found = daemon.site().host_views().into_iter().find(|host| host.name == name);
            let used = found.as_ref().map_or(0, |host| host.used);
            let empty_by_unix_ms = found.map(|host| daemon.clock().unix_ms(host.empty_by_ms));
            Ok(Json(Drained { host: name, used, empty_by_unix_ms }))
        })
        .await
}

/// A host that is in service again.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Undrained {
    /// The host.
    host: String,
}

/// Calls a drain off, or takes a repaired host back. For owners of the root.
#[utoipa::path(
    post, path = "/v1/hosts/{name}/undrain", tag = "hosts",
    params(("name" = String, Path, description = "The host.")),
    responses((status = 200, description = "It is in service.", body = Undrained), RefusedChanges)
)]
pub(super) async fn undrain(caller: Caller, Name(name): Name) -> Answer<Undrained> {
    caller
        .ask(move |daemon, token| {
            must_write(&token)?;
            daemon.ask(&token.user, |site| site.undrain(&token.user, &name))?;
            Ok(Json(Undrained { host: name }))
        })
        .await
}
