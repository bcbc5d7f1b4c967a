//! Server-sent events: what changes, as it changes, of what one may see.

use super::Shared;
use super::caller::Caller;
use super::document::Refusals;
use super::problem::Problem;
use crate::events::{Change, Following, Hub, Position, What};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use serde::Serialize;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

/// How often something is sent even if nothing changes, so that both sides notice when the other is gone.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// A follower and what is on its way.
struct Follower {
    user: String,
    token: String,
    /// When the token is void.
    until: Option<Instant>,
    hub: Arc<Hub>,
    waiting: VecDeque<Event>,
    coming: Receiver<Arc<Change>>,
    /// Whether nothing follows what waits.
    over: bool,
    /// Freed when the stream ends.
    _place: OwnedSemaphorePermit,
    _own_place: crate::gate::Place,
}

/// The last event that was seen, if the client says so.
fn last_of(headers: &HeaderMap) -> Result<Option<Position>, Problem> {
    let Some(last) = headers.get("last-event-id") else { return Ok(None) };
    let read = last.to_str().ok().and_then(|text| text.parse().ok());
    read.map(Some).ok_or_else(|| {
        Problem::invalid("Last-Event-ID: give the id of an event as it came, such as 57.2")
    })
}

/// What changes, of what one may see: `workload`, `budgets` and `host`. The stream begins with `open`, or with
/// `reset` if what was missed is no longer known: then read anew what you show. It ends with the token.
#[utoipa::path(
    get, path = "/v1/events", tag = "events",
    params(("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that was seen.", pattern = "^[0-9]{1,19}(\\.[0-9]{1,9})?$", example = "57.2")),
    responses((status = 200, description = "A stream of events; `data` is JSON.", body = String, content_type = "text/event-stream"), Refusals)
)]
pub(super) async fn events(
    State(shared): State<Shared>,
    caller: Caller,
    headers: HeaderMap,
) -> Result<impl IntoResponse, Problem> {
    let last = last_of(&headers)?;
    let asked = caller.ask(|daemon, token| {
        let left_ms = token.expires_ms.map(|at| at.saturating_sub(daemon.now_ms()));
        Ok((token, left_ms))
    });
    let (token, left_ms) = asked.await?;
    let place = Arc::clone(&shared.streams).try_acquire_owned().map_err(|_| Problem::busy())?;
    let own_place = shared.streams_of_one.enter(&token.user).ok_or_else(Problem::busy)?;
    let Following { at, gap, missed, coming } = shared.hub.follow(last);
    let mut follower = Follower {
        user: token.user,
        token: token.token,
        until: left_ms.map(|ms| Instant::now() + Duration::from_millis(ms)),
        over: shared.hub.is_closed(),
        hub: Arc::clone(&shared.hub),
        waiting: VecDeque::new(),
        coming,
        _place: place,
        _own_place: own_place,
    };
    let begin = if gap { "reset" } else { "open" };
    let begins_at = if gap { at } else { last.unwrap_or(at) };
    follower.waiting.push_back(event(begin, begins_at, &Begins { at: begins_at.to_string() }));
    for change in &missed {
        follower.take(change);
    }
    let stream = Sse::new(follower.into_stream());
    Ok(stream.keep_alive(KeepAlive::new().interval(HEARTBEAT)))
}

#[derive(Serialize)]
struct Begins {
    at: String,
}

fn event(kind: &str, at: Position, data: &impl Serialize) -> Event {
    let text = super::answer::json_text(data).unwrap_or_default();
    // JSON that is escaped has no line breaks, so one `data` line holds it.
    let text = String::from_utf8(text).unwrap_or_default();
    Event::default().event(kind).id(at.to_string()).data(text)
}

impl Follower {
    /// Puts what this follower may see of a change behind what waits.
    fn take(&mut self, change: &Change) {
        let at = change.at;
        match &change.what {
            What::Workload(work) => {
                let sees = work.user == self.user
                    || self.hub.budgets().is_member(&self.user, &work.budget);
                if sees {
                    self.waiting.push_back(event("workload", at, work));
                }
            }
            What::Budgets(budgets) => self.waiting.push_back(event("budgets", at, budgets)),
            What::Host(host) => self.waiting.push_back(event("host", at, host)),
            What::TokenRevoked(token) => self.over |= *token == self.token,
            What::Closing => self.over = true,
        }
    }

    async fn next(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some((Ok(event), self));
            }
            if self.over {
                return None;
            }
            let until = self.until;
            let void = async move {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = void => return None,
                received = self.coming.recv() => match received {
                    Ok(change) => self.take(&change),
                    // Too slow: it may come back with the last id that it saw.
                    Err(RecvError::Lagged(_) | RecvError::Closed) => return None,
                },
            }
        }
    }

    fn into_stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, Self::next)
    }
}
