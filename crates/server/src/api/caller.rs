//! Who asks. A request with a body has its token looked at before the body is read, so that strangers cannot
//! make the server read; the job on the daemon's thread looks again, so that nobody is let in by what is no
//! longer so.

use super::problem::Problem;
use super::{LocalDaemon, Shared};
use crate::driver::Handle;
use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::header;
use axum::http::request::Parts;
use bursar_site::record::TokenIssued;
use sha2::{Digest as _, Sha256};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};

/// How long a secret may be: ours have 71 characters.
const SECRET_BYTES_MAX: usize = 512;

/// What is known of a request when it has been answered, for its log line.
#[derive(Clone, Debug, Default)]
pub(super) struct Actor(Arc<OnceLock<String>>);

impl Actor {
    pub(super) fn name(&self) -> &str {
        self.0.get().map_or("-", String::as_str)
    }
}

/// Somebody with a token that has not been refused yet. A handler that takes one can only be reached with a
/// token; what it may do is decided by [`Caller::ask`]'s job.
pub(crate) struct Caller {
    secret: String,
    hash: crate::limits::SecretHash,
    actor: Actor,
    shared: Shared,
}

/// The address of whoever sent a request; nobody's where there is no connection.
pub(super) fn peer_of(parts: &axum::http::Extensions) -> IpAddr {
    let peer = parts.get::<ConnectInfo<SocketAddr>>();
    peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |ConnectInfo(address)| address.ip())
}

fn secret_of(parts: &Parts) -> Option<&str> {
    let mut values = parts.headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    let (scheme, secret) = value.split_once(' ')?;
    let secret = secret.trim();
    let fits = !secret.is_empty() && secret.len() <= SECRET_BYTES_MAX;
    (scheme.eq_ignore_ascii_case("bearer") && fits).then_some(secret)
}

impl FromRequestParts<Shared> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Problem> {
        let peer = peer_of(&parts.extensions);
        let Some(secret) = secret_of(parts).map(str::to_owned) else {
            shared.limiter.take_of_peer(peer).map_err(Problem::too_many)?;
            return Err(Problem::unauthenticated());
        };
        let hash = Sha256::digest(secret.as_bytes()).into();
        let actor = parts.extensions.get::<Actor>().cloned().unwrap_or_default();
        let caller = Self { secret, hash, actor, shared: shared.clone() };
        if !shared.limiter.knows(&hash) {
            // Whoever guesses has few tries, and those with a good token do not feel it, not even the first time.
            let guesses = !shared.hub.has_token(&hash);
            if guesses {
                shared.limiter.take_of_peer(peer).map_err(Problem::too_many)?;
            }
            let good = caller.job(|_, _| Ok(())).await;
            match (&good, guesses) {
                (Ok(()), true) => shared.limiter.give_back(peer),
                // As one that has expired.
                (Err(_), false) => shared.limiter.take_of_peer(peer).map_err(Problem::too_many)?,
                (Ok(()), false) | (Err(_), true) => {}
            }
            good?;
            shared.used.note();
        }
        shared.limiter.take_of_token(&hash).map_err(Problem::too_many)?;
        if let Some(guest) = parts.extensions.get::<Arc<crate::guests::Guest>>() {
            guest.is_known();
        }
        Ok(caller)
    }
}

impl Caller {
    /// Runs a job on the daemon's thread for whoever the token is of.
    pub(crate) async fn ask<T: Send + 'static>(
        self,
        job: impl FnOnce(&mut LocalDaemon, TokenIssued) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        self.job(job).await
    }

    /// Who it is.
    pub(crate) async fn user(&self) -> Result<String, Problem> {
        self.job(|_, token| Ok(token.user)).await
    }

    async fn job<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut LocalDaemon, TokenIssued) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let daemon: &Handle<LocalDaemon> = &self.shared.daemon;
        let secret = self.secret.clone();
        let actor = self.actor.clone();
        let run = move |daemon: &mut LocalDaemon| -> Result<Result<T, String>, Problem> {
            // Nobody is let in by what the journal does not have, or shown it.
            daemon.current()?;
            let now = daemon.now_ms();
            let token = match daemon.site().token_of(&secret, now) {
                Ok(token) => token.clone(),
                Err(told) => return Ok(Err(told)),
            };
            actor.0.get_or_init(|| format!("{}/{}", token.user, token.token));
            job(daemon, token).map(Ok)
        };
        let answered: Result<T, String> = daemon.with(run).await??;
        answered.map_err(|told| {
            self.shared.limiter.forget(&self.hash);
            Problem::void_token(&told)
        })
    }
}

/// Only tokens that may write go on.
pub(crate) fn must_write(token: &TokenIssued) -> Result<(), Problem> {
    if token.read_only {
        let detail = format!("token '{}' may only read; use another one", token.token);
        return Err(Problem::new(axum::http::StatusCode::FORBIDDEN, "read_only", detail));
    }
    Ok(())
}
