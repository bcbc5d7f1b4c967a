//! Who asked for what.

use super::answer::{Answer, Json};
use super::caller::Caller;
use super::document::Refusals;
use super::problem::Problem;
use super::read::{Query, page_of};
use crate::clock::Clock as _;
use crate::journal::{Journal as _, JournalError};
use bursar_site::Body;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

/// Which part of the audit log.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditQuery {
    /// Only records after this one.
    #[serde(default)]
    after: u64,
    /// How many at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// One thing that somebody asked for.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct AuditEntry {
    /// Its place in the journal.
    seq: u64,
    /// When, in milliseconds since 1970.
    at_unix_ms: u64,
    /// The same in milliseconds since the site was created, as moments in `what` are.
    at_ms: u64,
    /// Who.
    actor: Option<String>,
    /// What, as the journal has it, without secrets.
    #[schema(value_type = Object)]
    what: Value,
}

/// A page of the audit log.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct AuditPage {
    entries: Vec<AuditEntry>,
}

/// Who asked for what. For owners of the root.
#[utoipa::path(
    get, path = "/v1/audit", tag = "audit", params(AuditQuery),
    responses((status = 200, description = "Oldest first; for the next page ask after the last.", body = AuditPage), Refusals)
)]
pub(super) async fn audit(caller: Caller, Query(query): Query<AuditQuery>) -> Answer<AuditPage> {
    let limit = page_of(query.limit)?;
    caller
        .ask(move |daemon, token| {
            if !daemon.site().budgets.is_root_owner(&token.user) {
                return Err(Problem::forbidden("only owners of the root may read the audit log"));
            }
            let mut entries: Vec<AuditEntry> = Vec::new();
            let read = daemon.journal().read(query.after.saturating_add(1), &mut |record| {
                if record.actor.is_some() {
                    if entries.len() == limit {
                        return Err(JournalError(String::new()));
                    }
                    entries.push(AuditEntry {
                        seq: record.seq,
                        at_unix_ms: daemon.clock().unix_ms(record.at_ms),
                        at_ms: record.at_ms,
                        actor: record.actor,
                        what: without_secrets(&record.body),
                    });
                }
                Ok(())
            });
            match read {
                Err(error) if entries.len() < limit => {
                    Err(crate::daemon::Failure::from(error).into())
                }
                _ => Ok(Json(AuditPage { entries })),
            }
        })
        .await
}

fn without_secrets(body: &Body) -> Value {
    let mut value = json!(body);
    if let Some(fields) = value.as_object_mut() {
        fields.remove("secret_sha256");
        if let Some(env) = fields.get_mut("declared").and_then(|declared| declared.get_mut("env")) {
            // Environments carry keys of other services.
            *env = json!("not shown");
        }
    }
    value
}
